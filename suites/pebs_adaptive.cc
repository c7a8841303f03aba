// Adaptive records: which groups a record has, in which order, how large it says it is, and what stands
// in each of them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "harness/check/check.h"
#include "kernels/jit/disasm.h"
#include "pebs/arch/reserved.h"
#include "suites/adaptive.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_adaptive {
namespace {

using namespace suites;
using arch::bit;
using arch::Gpr;
using arch::RecordLayout;
using arch::Signal;
namespace adaptive = arch::adaptive;

constexpr unsigned kEntries = 6;  // of the branch group
constexpr char kNoEvent[] = "no precise event for this signal on this counter";

// All choices of groups, each once.
std::vector<Param> choices() {
  std::vector<Param> params;
  for (uint64_t groups = 0; groups <= adaptive::kGroups; ++groups) {
    std::string label = "basic";
    if (groups & adaptive::kMemory) label += "+memory";
    if (groups & adaptive::kGprs) label += "+registers";
    if (groups & adaptive::kXmm) label += "+xmm";
    if (groups & adaptive::kBranches) label += "+branches";
    params.push_back({.label = label, .numbers = {groups}});
  }
  return params;
}

// Stores of the sparse kernel, on a counter whose overflow arms.
constexpr size_t kRoom = 16;  // records

struct Stores {
  unsigned counter = 0;
  const arch::Event* event = nullptr;
  uint64_t period = 0;
};
// Where counters see the stores of the assist that writes a record, the period is so long that those of a
// buffer of records are fewer than half of it.
Stores stores_of(const arch::Microarch& microarch, const calibrate::Figure& stores_a_record) {
  const unsigned counter = arming_counter(microarch);
  const uint64_t own =
      stores_a_record.known()
          ? static_cast<uint64_t>(std::llround(std::max(0.0, stores_a_record.high)))
          : 0;
  return {counter, precise_event(microarch, Signal::kStores, counter),
          usable_period(microarch, 40) + 2 * kRoom * own};
}
SessionPlan plan_of(const Stores& stores, uint64_t config) {
  SessionPlan plan = one_counter(stores.counter, *stores.event, stores.period, kRoom);
  plan.pebs_data_cfg = config;
  return plan;
}

#define SKIDPROOF_STORES stores_of(uarch(), calibrated(calibrate::Quantity::kRecordStores))

// A loop of one store, with known values in every XMM register.
Expected<Program> known_xmm(uint64_t code_address, uint64_t data_address) {
  constexpr uint32_t kValues = 64;  // offset of XMM0's value
  std::vector<std::byte> code;
  auto put = [&code](std::initializer_list<unsigned> octets) {
    for (unsigned octet : octets) code.push_back(static_cast<std::byte>(octet));
  };
  for (unsigned n = 0; n < 16; ++n) {  // movups xmmN, [rsi + kValues + 16 n]
    if (n >= 8) put({0x44});
    const uint32_t at = kValues + 16 * n;
    put({0x0F, 0x10, 0x86 | (n & 7) << 3, at & 0xFF, at >> 8, 0, 0});
  }
  const size_t top = code.size();
  for (int i = 0; i < 64; ++i) put({0x90});
  put({0x48, 0x89, 0x3E});  // mov [rsi], rdi
  for (int i = 0; i < 64; ++i) put({0x90});
  put({0x48, 0x83, 0xEF, 0x01, 0x0F, 0x85});  // sub rdi, 1; jnz top
  const auto back = static_cast<int32_t>(static_cast<int64_t>(top) -
                                         static_cast<int64_t>(code.size() + sizeof(int32_t)));
  for (unsigned i = 0; i < 4; ++i) put({static_cast<uint32_t>(back) >> (8 * i) & 0xFF});
  put({0xC3});
  Program program;
  program.kernel = "known_xmm";
  program.code = std::move(code);
  program.code_address = program.entry = code_address;
  program.data_address = data_address;
  program.data_bytes = 4096;
  for (Decoded& one : SKIDPROOF_TRY(disassemble(program.code, code_address))) {
    program.instructions.push_back(std::move(one.instruction));
  }
  program.per_iteration = {.instructions = 131, .stores = 1, .branches_taken = 1};
  program.once = {.instructions = 17, .loads = 17};
  return program;
}

}  // namespace

SKIDPROOF_SUITE(PebsAdaptive, kOneRecord);

// --- Groups

SKIDPROOF_TEST_OVER(PebsAdaptive, HasTheGroupsThatAreSelectedInTheirOrder, choices(), clause::A1,
                    clause::A2, clause::A3, clause::A8, clause::A10, clause::A11, clause::R8,
                    clause::G3, clause::G5) {
  SKIDPROOF_REQUIRE(uarch().pebs_baseline, SkipCategory::kNotOnThisMicroarch, kNoAdaptiveRecords);
  const Stores stores = SKIDPROOF_STORES;
  SKIDPROOF_REQUIRE(stores.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const uint64_t groups = param().number();
  const uint64_t config = data_config(groups, kEntries);
  const Program& code = program("sparse_event", sparse_parameters("store"));
  constexpr size_t kRecords = 3;

  Sampled sampled = need(sample(machine(), plan_of(stores, config), code,
                                iterations_for_exactly(kRecords, stores.period)));

  const size_t size = adaptive::record_bytes(config);
  evidence("record-bytes", size);
  VERIFY_EQ(sampled.session.index() - sampled.session.base(), kRecords * size);
  VERIFY_EQ(sampled.records().size(), kRecords);
  VERIFY_EQ(sampled.records().remainder_bytes(), 0u);
  constexpr uint64_t kNamed = adaptive::kGroups | uint64_t{0xFF} << adaptive::kBranchEntriesShift;
  for (Record record : sampled.records()) {
    VERIFY_EQ(adaptive::size_field(record.header()), size);
    VERIFY_EQ(results::hex(record.header() & kNamed), results::hex(config));
    VERIFY_EQ(record.header() & 0xFFFFFFFF & ~kNamed, 0u) << "bits that nothing defines";
    VERIFY_EQ(record.eventing_ip(), code.mark("event"));
    VERIFY_EQ(results::hex(record.applicable_counters()), results::hex(bit(stores.counter)));
    VERIFY_EQ(record.has(&RecordLayout::data_address), (groups & adaptive::kMemory) != 0);
    if (groups & adaptive::kMemory) {
      VERIFY_EQ(results::hex(record.data_address()), results::hex(code.data_address));
    }
    if (groups & adaptive::kGprs) {
      VERIFY_EQ(record.ip(), code.mark("after"));
      VERIFY_EQ(record.gpr(Gpr::kRsi), code.data_address);
      VERIFY_LE(record.gpr(Gpr::kRdi), iterations_for_exactly(kRecords, stores.period));
    }
    if ((groups & adaptive::kBranches) == 0) continue;
    VERIFY_EQ(record.branches(), kEntries);
    for (unsigned i = 0; i < record.branches(); ++i) {
      VERIFY_EQ(record.branch(i).from, code.mark("loop.jnz")) << "entry " << i;
      VERIFY_EQ(record.branch(i).to, code.mark("loop.first")) << "entry " << i;
      // Since the branch before: a whole iteration, of which no core retires more than eight at once.
      VERIFY_GE(record.branch(i).info & 0xFFFF, code.per_iteration.instructions / 8)
          << "cycles of entry " << i;
    }
  }
}

SKIDPROOF_TEST_OVER(PebsAdaptive, IsTheBasicGroupWithoutTheBitOrWithoutAGroup,
                    over::words({"no_bit", "no_group", "neither"}), clause::A4, clause::A2,
                    clause::A1) {
  SKIDPROOF_REQUIRE(uarch().pebs_baseline, SkipCategory::kNotOnThisMicroarch, kNoAdaptiveRecords);
  const Stores stores = SKIDPROOF_STORES;
  SKIDPROOF_REQUIRE(stores.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const std::string& word = param().word();
  const Program& code = program("sparse_event", sparse_parameters("store"));
  SessionPlan plan =
      plan_of(stores, word == "no_bit" ? data_config(adaptive::kGroups, kEntries) : 0);
  plan.counters[0].adaptive = word == "no_group";

  Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(4, stores.period)));

  VERIFY_EQ(sampled.session.index() - sampled.session.base(), 4u * adaptive::kBasicBytes);
  VERIFY_EQ(sampled.records().size(), 4u);
  for (Record record : sampled.records()) {
    VERIFY_EQ(adaptive::size_field(record.header()), size_t{adaptive::kBasicBytes});
    VERIFY_EQ(record.header() & 0xFFFFFFFF, 0u) << "no group is named";
    VERIFY_EQ(record.eventing_ip(), code.mark("event"));
  }
}

// Two counters side by side, one with the Adaptive bit: a reader walks by the sizes.
SKIDPROOF_TEST_OVER(PebsAdaptive, GivesEachCounterRecordsOfItsOwnSize,
                    over::words({"first", "second"}), clause::A5, clause::A4, clause::A6) {
  SKIDPROOF_REQUIRE(uarch().pebs_baseline, SkipCategory::kNotOnThisMicroarch, kNoAdaptiveRecords);
  constexpr unsigned kFirst = 1, kOther = 2;
  // Taken branches: a record has none of its own, so that the two stay as far apart as their periods keep them.
  const arch::Event* one = sparse_event(uarch(), "taken", kFirst);
  const arch::Event* event = sparse_event(uarch(), "taken", kOther);
  SKIDPROOF_REQUIRE(one != nullptr && event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t config = data_config(kWithRegisters | adaptive::kBranches, 3);
  const uint64_t period = usable_period(uarch(), 40);
  SessionPlan plan = one_counter(kFirst, *one, period, kRoom);
  plan.pebs_data_cfg = config;
  const uint64_t second = 3 * period + 7;
  plan.counters.push_back(CounterSetup::of(kOther, *event, second));
  plan.counters[param().word() == "first" ? 1 : 0].adaptive = false;
  const uint64_t large = param().word() == "first" ? bit(kFirst) : bit(kOther);

  Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(2, second)));

  std::map<uint64_t, uint64_t> records;
  uint64_t bytes = 0;
  for (Record record : sampled.records()) {
    const bool is_large = (record.applicable_counters() & large) != 0;
    const size_t expected =
        is_large ? adaptive::record_bytes(config) : size_t{adaptive::kBasicBytes};
    VERIFY_EQ(adaptive::size_field(record.header()), expected);
    bytes += adaptive::size_field(record.header());
    ++records[record.applicable_counters()];
  }
  evidence("records", sampled.records().size());
  VERIFY_EQ(sampled.records().remainder_bytes(), 0u);
  VERIFY_EQ(sampled.session.index() - sampled.session.base(), bytes);
  VERIFY_GE(records[bit(kFirst)], 5u);
  VERIFY_GE(records[bit(kOther)], 1u);
  VERIFY_LE(records[bit(kOther)], 2u);
}

SKIDPROOF_TEST_OVER(PebsAdaptive, LeavesARecordThatDoesNotFit, choices(), clause::A5, clause::R48,
                    clause::D10) {
  SKIDPROOF_REQUIRE(uarch().pebs_baseline, SkipCategory::kNotOnThisMicroarch, kNoAdaptiveRecords);
  const Stores stores = SKIDPROOF_STORES;
  SKIDPROOF_REQUIRE(stores.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const uint64_t config = data_config(param().number(), kEntries);
  const size_t size = adaptive::record_bytes(config);
  const Program& code = program("sparse_event", sparse_parameters("store"));
  SessionPlan plan = plan_of(stores, config);
  // The maximum is a whole number of records from the base, as software has to see to. The index is as
  // shorter records leave it: behind two more there is room for the basic group and for no whole record.
  const size_t start = size - adaptive::record_bytes(0);
  plan.maximum_bytes = 3 * size;
  plan.index_bytes = start;
  const size_t fitting = (3 * size - start) / size;

  Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(5, stores.period)));

  evidence("records-that-fit", fitting);
  VERIFY_EQ(sampled.session.index() - sampled.session.base(), start + fitting * size);
  for (std::byte b : sampled.session.after_index()) {
    if (b == Session::kFill) continue;
    VERIFY_EQ(static_cast<unsigned>(b), static_cast<unsigned>(Session::kFill))
        << "written behind the last record";
    break;
  }
}

// --- The basic group

SKIDPROOF_TEST_OVER(PebsAdaptive, NamesItsCounter, over::counters({0, 1, 2, 3, 4, 5, 6, 7}),
                    clause::A6, clause::A14, clause::R19, clause::G5) {
  SKIDPROOF_REQUIRE(uarch().selects_groups(), SkipCategory::kNotOnThisMicroarch,
                    kNoAdaptiveRecords);
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = precise_event(uarch(), Signal::kConditional, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  const uint64_t period = usable_period(uarch(), counter, *event, 40);
  const bool arms = ((uarch().pdist_counters >> counter) & 1) == 0;
  SessionPlan plan = one_counter(counter, *event, period, 16);
  // A neighbour that is enabled and never overflows.
  const unsigned neighbour = counter ^ 1;
  plan.counters.push_back(CounterSetup::of(neighbour, *event, uint64_t{1} << 30));
  // And two that overflow without PEBS: what they show in the status is not this record's.
  const unsigned without = (counter ^ 2) < uarch().gp_counters ? counter ^ 2 : counter ^ 4;
  plan.counters.push_back(CounterSetup::of(without, *event, period / 2, false));
  plan.fixed = {{.counter = 0, .initial = minus_period(100, uarch().fixed_width)}};

  Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(3, period)));

  evidence("records", sampled.records().size());
  VERIFY_EQ(sampled.records().size(), 3u);
  VERIFY_LT(sampled.run.counters[0] - minus_period(period, uarch().gp_width),
            period + (arms ? 1 : 4))
      << "loaded after the last record";
  for (Record record : sampled.records()) {
    VERIFY_EQ(results::hex(record.applicable_counters()), results::hex(bit(counter)));
    VERIFY_EQ(record.eventing_ip(), code.mark("loop.jnz"));
    VERIFY_EQ(record.ip(), code.mark("loop.first"));
  }
}

SKIDPROOF_TEST(PebsAdaptive, NamesBothCountersThatOverflowedTogether, clause::A6, clause::R26) {
  SKIDPROOF_REQUIRE(uarch().selects_groups(), SkipCategory::kNotOnThisMicroarch,
                    kNoAdaptiveRecords);
  const Stores stores = SKIDPROOF_STORES;
  SKIDPROOF_REQUIRE(stores.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters("store"));
  SessionPlan plan = plan_of(stores, data_config(kWithRegisters));
  const unsigned other = stores.counter + 1;
  plan.counters.push_back(CounterSetup::of(other, *stores.event, stores.period));

  Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(1, stores.period)));

  VERIFY_THAT(sampled.records().size(), ::testing::AnyOf(1u, 2u)) << "shared, or one each";
  uint64_t named = 0;
  for (Record record : sampled.records()) {
    VERIFY_EQ(named & record.applicable_counters(), 0u) << "one overflow, two records";
    named |= record.applicable_counters();
  }
  VERIFY_EQ(results::hex(named), results::hex(bit(stores.counter) | bit(other)));
}

// Along the executed path the next IP lies one instruction behind the sampled one, or two where that is
// the first of a fused pair, which retires together (R72).
SKIDPROOF_TEST_OVER(PebsAdaptive, HasTheNextIpBehindTheSampledOne,
                    (std::vector<Param>{
                        {.label = "fused", .words = {"fused_branch", "first=cmp,condition=e"}},
                        {.label = "test", .words = {"fused_branch", "first=test,condition=ne"}},
                        {.label = "calls", .words = {"call_return", "depth=4"}},
                        {.label = "division", .words = {"division_shadow", "operation=div"}},
                    }),
                    clause::R12, clause::R8, clause::A8) {
  SKIDPROOF_REQUIRE(uarch().selects_groups(), SkipCategory::kNotOnThisMicroarch,
                    kNoAdaptiveRecords);
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = precise_event(uarch(), Signal::kInstructions, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program(param().word(0), param().word(1));
  const LoopPath path = LoopPath::of(code, forward_jumps(true));
  std::map<int64_t, uint64_t> distances;
  uint64_t compared = 0, pairs = 0;
  for (uint64_t i = 0; i < 8; ++i) {  // with several periods every instruction has its turn
    const uint64_t period = usable_period(uarch(), 97) + i;
    Sampled sampled = need(sample(machine(), one_counter(counter, *event, period, 64), code, 4000));
    for (Record record : sampled.records()) {
      const std::optional<size_t> at = path.position(record.eventing_ip());
      const std::optional<size_t> next = path.position(record.ip());
      if (!at || !next) continue;  // on the way in or out
      const size_t distance = (*next + path.size() - *at) % path.size();
      const bool pair = first_of_fused_pair(uarch(), code, path.step(*at));
      VERIFY_GE(distance, 1u) << path.step(*at).text;
      VERIFY_LE(distance, pair ? 2u : 1u) << path.step(*at).text;
      pairs += pair;
      ++distances[static_cast<int64_t>(distance)];
      ++compared;
    }
  }
  histogram("distance", "instructions", distances);
  VERIFY_GE(compared, 400u);
  if (pairs != 0 && uarch().fused_pair_skid == 1) observe(kTwoBehindAPair, distances[2]);
}

SKIDPROOF_TEST(PebsAdaptive, StampsRecordsWithTheTime, clause::A7, clause::R28) {
  SKIDPROOF_REQUIRE(uarch().selects_groups(), SkipCategory::kNotOnThisMicroarch,
                    kNoAdaptiveRecords);
  const Stores stores = SKIDPROOF_STORES;
  SKIDPROOF_REQUIRE(stores.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters("store"));
  constexpr size_t kRecords = 12;
  SessionPlan plan = plan_of(stores, data_config(kWithRegisters));
  plan.threshold_records = kRecords;

  Sampled sampled =
      need(sample(machine(), plan, code, iterations_for_exactly(kRecords, stores.period)));

  VERIFY_EQ(sampled.records().size(), kRecords);
  VERIFY_EQ(sampled.run.log.pmis.size(), 1u);
  uint64_t before = 0, first = 0;
  for (Record record : sampled.records()) {
    if (before == 0) first = record.tsc();
    VERIFY_GT(record.tsc(), before) << "records follow one another";
    before = record.tsc();
  }
  evidence("ticks", before - first);
  VERIFY_LE(before - first, sampled.run.log.tsc) << "longer than the run";
  for (const Pmi& pmi : sampled.run.log.pmis) {
    VERIFY_LE(before, pmi.tsc) << "the interrupt of the last record came before it";
  }
}

// --- Registers and branches

SKIDPROOF_TEST(PebsAdaptive, HoldsEveryXmmRegister, clause::A9, clause::A3) {
  SKIDPROOF_REQUIRE(uarch().selects_groups(), SkipCategory::kNotOnThisMicroarch,
                    kNoAdaptiveRecords);
  const Stores stores = SKIDPROOF_STORES;
  SKIDPROOF_REQUIRE(stores.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  Memory code_memory = need(machine().allocate({.bytes = 4096, .use = MemoryUse::kCode}));
  Memory data = need(machine().allocate({.bytes = 4096}));
  std::array<std::array<uint64_t, 2>, 16> values{};
  for (auto& value : values) value = {random().next(), random().next()};
  std::memcpy(data.host.data() + 64, values.data(), sizeof values);
  const Program code = need(known_xmm(code_memory.address, data.address));

  Sampled sampled = need(sample(machine(), plan_of(stores, data_config(adaptive::kXmm)), code,
                                iterations_for_exactly(4, stores.period)));

  VERIFY_EQ(sampled.records().size(), 4u);
  for (Record record : sampled.records()) {
    VERIFY_TRUE(record.has(&RecordLayout::xmm));
    for (unsigned n = 0; n < values.size(); ++n) {
      VERIFY_EQ(results::hex(record.xmm(n)[0]), results::hex(values[n][0])) << "XMM" << n;
      VERIFY_EQ(results::hex(record.xmm(n)[1]), results::hex(values[n][1])) << "XMM" << n;
    }
  }
}

// From the recorded IP back along the executed path: each taken branch on the way is an entry.
SKIDPROOF_TEST_OVER(PebsAdaptive, HoldsTheBranchesThatLedToTheRecord,
                    over::product(over::numbers("entries=", {1, 2, 8, 32}),
                                  {{.label = "calls", .words = {"call_return", "depth=3"}},
                                   {.label = "taken",
                                    .words = {"fused_branch", "first=test,condition=ne,taken=1"}},
                                   {.label = "falls",
                                    .numbers = {1},
                                    .words = {"fused_branch", "first=cmp,condition=e,taken=0"}}}),
                    clause::A10, clause::A3) {
  SKIDPROOF_REQUIRE(records_branches(uarch(), static_cast<unsigned>(param().number())),
                    SkipCategory::kNotOnThisMicroarch, kNoSuchBranches);
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = precise_event(uarch(), Signal::kBranches, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const auto entries = static_cast<unsigned>(param().number());
  const bool falls = param().numbers.size() > 1;
  const Program& code = program(param().word(0), param().word(1));
  const InstructionTest taken = forward_jumps(!falls);
  const LoopPath path = LoopPath::of(code, taken);
  const uint64_t period = usable_period(uarch(), 101);
  SessionPlan plan = one_counter(counter, *event, period, 32);
  plan.pebs_data_cfg = data_config(adaptive::kGprs | adaptive::kBranches, entries);

  Sampled sampled = need(sample(machine(), plan, code, iterations_for(32, period)));

  uint64_t compared = 0;
  for (Record record : sampled.records()) {
    VERIFY_EQ(record.branches(), entries);
    const std::optional<size_t> at = path.position(record.ip());
    if (!at) continue;  // on the way in or out
    unsigned next = 0;
    for (size_t distance = 1; next < entries; ++distance) {
      const Instruction& step = path.before(*at, distance);
      const bool branches =
          step.flow != Flow::kNone && (step.flow != Flow::kConditional || taken(step));
      if (!branches) continue;
      const BranchEntry entry = record.branch(next);
      VERIFY_EQ(entry.from, step.address) << "entry " << next << ", " << step.text;
      VERIFY_EQ(entry.to, path.before(*at, distance - 1).address) << "entry " << next;
      ++next;
    }
    ++compared;
  }
  evidence("records", compared);
  VERIFY_GE(compared, 24u);
}

// The branch that was sampled because it was mispredicted is the newest, and says so.
SKIDPROOF_TEST(PebsAdaptive, SaysWhichBranchWasMispredicted, clause::A10) {
  SKIDPROOF_REQUIRE(uarch().selects_groups(), SkipCategory::kNotOnThisMicroarch,
                    kNoAdaptiveRecords);
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = precise_event(uarch(), Signal::kMispredictsTaken, counter);
  const bool all_taken = event != nullptr;
  if (!all_taken) event = precise_event(uarch(), Signal::kMispredictsConditional, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("branch_pattern", "pattern=random,length=4096");
  const uint64_t period = usable_period(uarch(), 50);
  SessionPlan plan = one_counter(counter, *event, period, 32);
  plan.pebs_data_cfg = data_config(adaptive::kBranches, uarch().pebs_baseline ? 2 : 8);

  Sampled sampled = need(sample(machine(), plan, code, 8));

  VERIFY_GE(sampled.records().size(), 10u);
  uint64_t compared = 0;
  for (Record record : sampled.records()) {
    if (foreign(code, record.eventing_ip())) continue;
    // A jump that was not taken leaves no entry.
    if (!all_taken && record.branch(0).from != record.eventing_ip()) continue;
    VERIFY_EQ(record.branch(0).from, record.eventing_ip());
    VERIFY_EQ(record.branch(0).info >> 63, 1u) << "mispredicted";
    ++compared;
  }
  evidence("records", compared);
  VERIFY_GT(compared, 0u) << "half of the jumps are taken";
}

// --- The register

SKIDPROOF_TEST(PebsAdaptive, HasADataConfigurationExactlyWithBaseline, clause::A13, clause::M5,
               clause::V14) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const uint64_t value = need(machine().rdmsr(arch::IA32_PERF_CAPABILITIES));
  const bool announced = (value & arch::capabilities::kPebsBaseline) != 0;
  evidence("pebs-baseline", announced);
  evidence("row", row().pebs_baseline);
  VERIFY_EQ(need(refuses_to_read(machine(), arch::MSR_PEBS_DATA_CFG)), !announced);
  if (!announced) return;
  Restore restore(machine(), {arch::MSR_PEBS_DATA_CFG});
  const uint64_t defined = arch::writable_pebs_data_cfg(uarch());
  for (uint64_t word : {defined, uint64_t{1}, uint64_t{2}, uint64_t{4}, uint64_t{8},
                        random().next() & defined, uint64_t{0x1F000008}, uint64_t{0}}) {
    const bool refused = need(refuses(machine(), arch::MSR_PEBS_DATA_CFG, word));
    VERIFY_FALSE(refused) << results::hex(word);
    if (refused) continue;
    need(machine().wrmsr(arch::MSR_PEBS_DATA_CFG, word));
    VERIFY_EQ(results::hex(need(machine().rdmsr(arch::MSR_PEBS_DATA_CFG))), results::hex(word));
  }
  for (unsigned b = 0; b < 64; ++b) {
    if ((defined >> b & 1) != 0) continue;
    VERIFY_TRUE(need(refuses(machine(), arch::MSR_PEBS_DATA_CFG, bit(b)))) << "bit " << b;
  }
}

}  // namespace skidproof::check::pebs_adaptive
