// The record: the bytes of its format, every register as the sampled instruction left it, and the
// status as it stood before the assist.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <utility>
#include <vector>

#include "harness/check/check.h"
#include "kernels/jit/disasm.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_record {
namespace {

using namespace suites;
using arch::bit;
using arch::Gpr;
using arch::Signal;

constexpr char kNoEvent[] = "no precise load event on PMC0";

// CF, PF, AF, ZF, SF and OF in RFLAGS.
constexpr uint64_t kCarry = bit(0), kParity = bit(2), kAuxiliary = bit(4), kZero = bit(6),
                   kSign = bit(7), kOverflow = bit(11);
constexpr uint64_t kStatusFlags = kCarry | kParity | kAuxiliary | kZero | kSign | kOverflow;

// What CMP a, b sets. [SDM vol. 1, 3.4.3.1 "Status Flags"]
uint64_t flags_of_cmp(uint64_t a, uint64_t b) {
  const uint64_t difference = a - b;
  const bool overflow = ((a ^ b) & (a ^ difference)) >> 63 != 0;
  const bool even = __builtin_popcountll(difference & 0xFF) % 2 == 0;
  return (a < b ? kCarry : 0) | (even ? kParity : 0) |
         (((a ^ b ^ difference) & 0x10) != 0 ? kAuxiliary : 0) | (difference == 0 ? kZero : 0) |
         (difference >> 63 != 0 ? kSign : 0) | (overflow ? kOverflow : 0);
}

// Two operands whose comparison sets the flags that the word names.
std::pair<uint64_t, uint64_t> operands(const std::string& word, Random& random) {
  const uint64_t low = random.next() >> 2;
  const uint64_t high = low + 1 + (random.next() >> 2);
  if (word == "below") return {low, high};
  if (word == "equal") return {low, low};
  if (word == "overflow") return {bit(63), low | 1};
  return {high, low};
}

// A loop that keeps known values in the general registers while it loads, once an iteration.
// Kernels may not write the caller's registers; this program keeps those in its data, writes them
// all, and puts them back. As with a kernel's, its loop runs n times, none included.
class KnownRegisters {
 public:
  std::array<uint64_t, arch::kGprs> values{};  // RSP, RSI and RDI are the machine's
  uint64_t before_load = 0;                    // in RDX until the load has given it its value
  // RDX takes its value from XMM0 instead of memory: for microarchs that sample no loads.
  bool simd = false;

  // Data: quadword 0 is what is loaded, 1 takes RSP, 2 to 7 keep the caller's registers.
  static constexpr int8_t kStackSlot = 8, kSavedSlots = 16;
  static constexpr size_t kBytes = 4096;  // of code and of data, at most

  Expected<Program> place(uint64_t code_address, uint64_t data_address) const;

 private:
  static constexpr unsigned kMoveToMemory = 0x89, kMoveToRegister = 0x8B;
  static constexpr unsigned kNops = 64;  // on each side of the load
  static constexpr std::array<Gpr, 6> kSaved = {Gpr::kRbx, Gpr::kRbp, Gpr::kR12,
                                                Gpr::kR13, Gpr::kR14, Gpr::kR15};

  struct Code {
    std::vector<std::byte> bytes;

    void put(std::initializer_list<unsigned> octets) {
      for (unsigned b : octets) bytes.push_back(static_cast<std::byte>(b));
    }
    void put_value(const void* value, size_t size) {
      const auto* first = static_cast<const std::byte*>(value);
      bytes.insert(bytes.end(), first, first + size);
    }
    // MOV r64, imm64
    void set(unsigned reg, uint64_t value) {
      put({0x48u | reg >> 3, 0xB8u | (reg & 7)});
      put_value(&value, sizeof value);
    }
    // MOV [rsi + displacement], r64 and the other way round
    void move(unsigned opcode, unsigned reg, unsigned displacement) {
      put({0x48u | reg >> 3 << 2, opcode, 0x46u | (reg & 7) << 3, displacement});
    }
    void move_saved(unsigned opcode) {
      for (unsigned i = 0; i < kSaved.size(); ++i) {
        move(opcode, static_cast<unsigned>(kSaved[i]), kSavedSlots + 8 * i);
      }
    }
    // A 32-bit distance from behind itself to a target, to be known later.
    size_t hole() {
      put({0, 0, 0, 0});
      return bytes.size();
    }
    void fill(size_t hole_end, size_t target) {
      const auto distance =
          static_cast<int32_t>(static_cast<int64_t>(target) - static_cast<int64_t>(hole_end));
      std::memcpy(&bytes[hole_end - 4], &distance, sizeof distance);
    }
  };
};

Expected<Program> KnownRegisters::place(uint64_t code_address, uint64_t data_address) const {
  Code code;
  code.move(kMoveToMemory, static_cast<unsigned>(Gpr::kRsp), kStackSlot);
  code.move_saved(kMoveToMemory);
  for (unsigned reg = 0; reg < arch::kGprs; ++reg) {
    const auto gpr = static_cast<Gpr>(reg);
    if (gpr != Gpr::kRsp && gpr != Gpr::kRsi && gpr != Gpr::kRdi) code.set(reg, values[reg]);
  }
  if (simd) code.put({0xF3, 0x0F, 0x7E, 0x06});  // movq xmm0, [rsi]
  code.put({0x48, 0x8D, 0x7F, 0x01, 0xE9});      // lea rdi, [rdi+1]; jmp check
  const size_t to_check = code.hole();
  const size_t top = code.bytes.size();
  code.set(static_cast<unsigned>(Gpr::kRdx), before_load);
  code.bytes.insert(code.bytes.end(), kNops, std::byte{0x90});
  code.put({0x48, 0x39, 0xE9});  // cmp rcx, rbp
  const size_t load = code.bytes.size();
  if (simd) {
    code.put({0x66, 0x48, 0x0F, 0x7E, 0xC2});  // movq rdx, xmm0
  } else {
    code.put({0x48, 0x8B, 0x16});  // mov rdx, [rsi]
  }
  const size_t after = code.bytes.size();
  code.bytes.insert(code.bytes.end(), kNops, std::byte{0x90});
  code.fill(to_check, code.bytes.size());
  code.put({0x48, 0x83, 0xEF, 0x01, 0x0F, 0x85});  // check: sub rdi, 1; jnz top
  code.fill(code.hole(), top);
  code.move_saved(kMoveToRegister);
  code.put({0xC3});  // ret

  Program program;
  program.kernel = "known_registers";
  program.code = std::move(code.bytes);
  program.code_address = program.entry = code_address;
  program.data_address = data_address;
  program.data_bytes = kBytes;
  program.marks = {{"load", code_address + load}, {"after", code_address + after}};
  for (Decoded& one : SKIDPROOF_TRY(disassemble(program.code, code_address))) {
    program.instructions.push_back(std::move(one.instruction));
  }
  program.per_iteration = {.instructions = 2 * kNops + 5,
                           .loads = simd ? 0u : 1u,
                           .branches_taken = 1,
                           .fusible_pairs = 1};
  program.once = {.instructions = simd ? 32u : 31u,
                  .loads = simd ? 8u : 7u,
                  .stores = 7,
                  .branches_taken = 2,
                  .branches_not_taken = 1,
                  .fusible_pairs = 1};
  return program;
}

}  // namespace

SKIDPROOF_SUITE(PebsRecord, kOneRecord);

SKIDPROOF_TEST_OVER(PebsRecord, HoldsEveryRegisterAsTheInstructionLeftIt,
                    over::words({"below", "equal", "overflow", "above"}), clause::P3, clause::R5,
                    clause::R7, clause::R59) {
  const arch::Event* event = sparse_event(uarch(), "load");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  KnownRegisters known;
  known.simd = sparse_word(uarch(), "load") == "simd";
  for (uint64_t& value : known.values) value = random().next();
  known.before_load = random().next();
  const auto [a, b] = operands(param().word(), random());
  known.values[static_cast<size_t>(Gpr::kRcx)] = a;
  known.values[static_cast<size_t>(Gpr::kRbp)] = b;
  Memory code_memory =
      need(machine().allocate({.bytes = KnownRegisters::kBytes, .use = MemoryUse::kCode}));
  Memory data = need(machine().allocate({.bytes = KnownRegisters::kBytes}));
  const uint64_t loaded = random().next();
  std::memcpy(data.host.data(), &loaded, sizeof loaded);
  const Program code = need(known.place(code_memory.address, data.address));
  const uint64_t period = usable_period(uarch(), 0, *event, 40);
  const uint64_t iterations = iterations_for_exactly(5, period);

  Sampled sampled = need(sample(machine(), one_counter(0, *event, period, 16), code, iterations));

  uint64_t stack = 0;
  std::memcpy(&stack, data.host.data() + KnownRegisters::kStackSlot, sizeof stack);
  std::array<uint64_t, arch::kGprs> expected = known.values;
  expected[static_cast<size_t>(Gpr::kRsp)] = stack;
  expected[static_cast<size_t>(Gpr::kRsi)] = data.address;
  const bool trap =
      (need(machine().rdmsr(arch::IA32_PERF_CAPABILITIES)) & arch::capabilities::kPebsTrap) != 0;
  expected[static_cast<size_t>(Gpr::kRdx)] = trap ? loaded : known.before_load;
  evidence("records", sampled.records().size());
  evidence("flags", results::hex(flags_of_cmp(a, b)));
  // Where the assist's own loads count, the counter overflows sooner: any number of records will do, and the
  // last of them may be of a load behind the program.
  const bool more = !known.simd && records_count(calibrated(calibrate::Quantity::kRecordLoads));
  if (!more) {
    VERIFY_EQ(sampled.records().size(), 5u);
  }
  uint64_t of_the_program = 0;
  for (Record record : sampled.records()) {
    if (more && foreign(code, record.ip())) continue;
    ++of_the_program;
    VERIFY_EQ(record.ip(), code.mark(trap ? "after" : "load"));
    for (unsigned reg = 0; reg < arch::kGprs; ++reg) {
      const auto gpr = static_cast<Gpr>(reg);
      if (gpr == Gpr::kRdi) continue;
      VERIFY_EQ(record.gpr(gpr), expected[reg]) << "register number " << reg;
    }
    VERIFY_THAT(record.gpr(Gpr::kRdi),
                ::testing::AllOf(::testing::Ge(1u), ::testing::Le(iterations)));
    VERIFY_EQ(record.flags() & kStatusFlags, flags_of_cmp(a, b));
    VERIFY_EQ(record.flags() & bit(1), bit(1)) << "always 1 in RFLAGS";
  }
  VERIFY_GE(of_the_program, 5u);
}

// The fields at 98H, A0H and A8H are promised for load latency and precise store only (P17): what
// an ordinary event leaves there is reported.
SKIDPROOF_TEST_OVER(PebsRecord, TakesTheBytesOfItsFormat, over::counters({0, 1, 2, 3}), clause::P3,
                    clause::M5, clause::D2, clause::G1) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "no precise load event on this counter");
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), counter, *event, 40);

  Sampled sampled = need(sample(machine(), one_counter(counter, *event, period, 16), code,
                                iterations_for_exactly(3, period)));

  // Figure 17-10, Tables 18-23, 18-44, 18-55.
  constexpr std::array<uint64_t, 4> kBytes = {144, 176, 192, 200};
  evidence("format", uarch().record->format);
  evidence("format-of-the-row", row().record->format);
  SKIDPROOF_REQUIRE(uarch().record->format < kBytes.size(), SkipCategory::kNotOnThisMicroarch,
                    "the record has no fixed size");
  VERIFY_EQ(sampled.session.index() - sampled.session.base(),
            3 * kBytes.at(uarch().record->format));
  VERIFY_EQ(sampled.records().remainder_bytes(), 0u);
  for (Record record : sampled.records()) {
    VERIFY_FALSE(foreign(code, record.ip())) << "08H is the IP";
    VERIFY_EQ(recorded_counters(uarch(), record).value_or(bit(counter)), bit(counter))
        << "90H is the status, or names the counter";
    VERIFY_EQ(record.gpr(Gpr::kRsi), code.data_address) << "30H is RSI";
    VERIFY_EQ(record.has(&arch::RecordLayout::eventing_ip), uarch().record->format >= 2);
  }
  if (sampled.records().empty()) return;
  const Record first = sampled.records().front();
  evidence("98H", results::hex(first.data_address()));
  evidence("A0H", results::hex(first.data_source()));
  evidence("A8H", results::hex(first.latency()));
}

// PMC0 samples; PMC1 and fixed counter 0 overflow before its record, PMC2 does not.
SKIDPROOF_TEST(PebsRecord, HoldsTheStatusOfAllCountersFromBeforeTheAssist, clause::R16, clause::R23,
               clause::M35) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  SKIDPROOF_REQUIRE(uarch().record->global_status != arch::kAbsent,
                    SkipCategory::kNotOnThisMicroarch, "the record holds no status");
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), 0, *event, 40);
  SessionPlan plan;
  plan.counters = {CounterSetup::of(0, *event, period),
                   CounterSetup::of(1, *event, period / 2, false),
                   CounterSetup::of(2, *event, 100 * period, false)};
  plan.fixed = {{.counter = 0, .initial = minus_period(100, uarch().fixed_width)}};

  Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(4, period)));

  constexpr uint64_t kFixed0 = bit(arch::status::kFixedShift);
  VERIFY_EQ(sampled.records().size(), 4u);
  for (Record record : sampled.records()) {
    VERIFY_EQ(record.global_status() & (0xFF | kFixed0), bit(0) | bit(1) | kFixed0);
  }
  if (!sampled.records().empty()) {
    evidence("status", results::hex(sampled.records().front().global_status()));
  }
}

SKIDPROOF_TEST(PebsRecord, ShowsBothCountersThatOverflowedTogether, clause::R16, clause::R26) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "no precise store event on PMC0");
  SKIDPROOF_REQUIRE(uarch().record->global_status != arch::kAbsent,
                    SkipCategory::kNotOnThisMicroarch, "the record holds no status");
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), 40);
  SessionPlan plan;
  plan.counters = {CounterSetup::of(1, *event, period), CounterSetup::of(3, *event, period)};

  Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(1, period)));

  evidence("records", sampled.records().size());
  VERIFY_THAT(sampled.records().size(), ::testing::AnyOf(1u, 2u)) << "shared, or one each";
  if (sampled.records().empty()) return;
  VERIFY_EQ(sampled.records().front().global_status() & 0xFF, bit(1) | bit(3));
}

}  // namespace skidproof::check::pebs_record
