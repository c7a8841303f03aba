// The observer beside the interpreter: what it makes of the same instructions is what the interpreter makes of
// them, field by field.
#include "pebs/engines/observer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "kernels/kernel.h"
#include "pebs/engines/guest_memory.h"
#include "pebs/engines/interpreter.h"
#include "pebs/engines/retired_accesses.h"
#include "pebs/engines/testing/random_code.h"

namespace skidproof::engines {
namespace {

using arch::Signal;

constexpr uint64_t kSeed = 7;

class GuestCode final : public CodeMemory {
 public:
  explicit GuestCode(GuestMemory& memory) : memory_(memory) {}
  size_t code(uint64_t address, std::span<std::byte> into) override {
    size_t readable = 0;
    while (readable < into.size() && memory_.mapped(address + readable, 1)) ++readable;
    std::memcpy(into.data(), memory_.host(address), readable);
    return readable;
  }

 private:
  GuestMemory& memory_;
};

// What somebody sees of an instruction who watches the bus: out of the bytes and what the interpreter says.
struct Watched {
  Watched(std::span<const std::byte> bytes, const model::Retired& retired, uint64_t next,
          const model::Registers& before) {
    auto decoded = model::decode(bytes, retired.ip, Mode::kLong);
    EXPECT_TRUE(decoded);
    executed.ip = retired.ip;
    executed.next_ip = next;
    executed.taken = retired.counts[arch::index(Signal::kConditionalTaken)] != 0;
    const bool repeats = (decoded->instruction.attributes & ZYDIS_ATTRIB_HAS_REP) != 0;
    if (repeats) executed.repetitions = before.gpr[static_cast<size_t>(arch::Gpr::kRcx)];
    if (executed.repetitions == 0) return;
    const model::InstructionFacts& f = decoded->facts;
    if (retired.load.valid)
      add(retired.load.address, f.explicit_load ? f.address_of.bytes : 8, true);
    if (retired.store.valid)
      add(retired.store.address, f.explicit_store ? f.address_of.bytes : 8, false);
    if (f.flushes) add(address_of(f, *retired.after), 1, true);
    executed.accesses = {accesses.data(), count};
  }

  void add(uint64_t address, uint32_t bytes, bool load) {
    if (!load && count > 0 && accesses[0].address == address && accesses[0].bytes == bytes) {
      accesses[0].store = true;  // read, modified and written
      return;
    }
    accesses[count++] = {address, bytes, load, !load};
  }

  Executed executed;
  std::array<SeenAccess, 2> accesses;
  size_t count = 0;
};

void expect_same(const model::Access& seen, const model::Access& known) {
  EXPECT_EQ(seen.valid, known.valid);
  EXPECT_EQ(seen.address, known.address);
  EXPECT_EQ(seen.l1_hit, known.l1_hit);
  EXPECT_EQ(seen.stlb_miss, known.stlb_miss);
  EXPECT_EQ(seen.locked, known.locked);
  EXPECT_EQ(seen.source, known.source);
  EXPECT_EQ(seen.latency, known.latency);
  EXPECT_EQ(seen.cache_latency, known.cache_latency);
}

// One microarch's interpreter, and an observer on a core of its own.
struct Pair {
  explicit Pair(const arch::Microarch& row, model::CoreBehaviour how)
      : microarch(row),
        behaviour(how),
        memory(GuestMemory::create(GuestMemory::kBase, 64 << 20).value()),
        code(memory->allocate(1 << 20, MemoryUse::kCode, false).value()),
        data(memory->allocate(8 << 20, MemoryUse::kData, false).value()),
        stack(memory->allocate(16 << 10, MemoryUse::kData, false).value()),
        core(row, kSeed),
        interpreter(*memory, core, how),
        source(*memory),
        own(row, kSeed),
        observer(own, how, source) {}

  // Runs the program to its end; `random` says which instructions the observer follows in one go.
  void run(const Program& program, uint64_t iterations, Random& random) {
    ASSERT_TRUE(interpreter.load(program));
    observer.suspect_code();
    interpreter.call(program.entry, iterations, program.data_address,
                     stack.address + stack.host.size());
    uint64_t stretch = 0;
    arch::SignalCounts counts{};
    uint64_t clock = own.clock();
    while (!interpreter.finished() && !::testing::Test::HasFailure()) {
      const model::Registers before = interpreter.registers();
      model::Retired known;
      auto stepped = interpreter.step(known);
      ASSERT_TRUE(stepped) << stepped.error().text();
      ++instructions;
      const Watched watched({memory->host(known.ip), known.length}, known, known.after->ip, before);
      if (stretch > 0) {
        observer.follow(watched.executed, counts, clock);
        if (--stretch == 0) own.settle(counts, clock);
      } else {
        model::Retired seen;
        observer.retire(watched.executed, *known.after, seen);
        SCOPED_TRACE(
            fmt::format("{} at {:#x}, instruction {}", program.id(), known.ip, instructions));
        EXPECT_EQ(seen.ip, known.ip);
        EXPECT_EQ(seen.length, known.length);
        EXPECT_EQ(seen.counts, known.counts);
        EXPECT_EQ(seen.cycle, known.cycle);
        EXPECT_EQ(seen.fused_with_next, known.fused_with_next);
        EXPECT_EQ(seen.after, known.after);
        expect_same(seen.load, known.load);
        expect_same(seen.store, known.store);
        if (random.chance(1, 50)) {
          stretch = 1 + random.below(100);
          counts = {};
          clock = own.clock();
        }
      }
    }
    if (stretch > 0) own.settle(counts, clock);
    EXPECT_EQ(own.clock(), core.clock()) << program.id();
    EXPECT_EQ(own.totals(), core.totals()) << program.id();
  }

  const arch::Microarch& microarch;
  model::CoreBehaviour behaviour;
  std::unique_ptr<GuestMemory> memory;
  Memory code, data, stack;
  model::Core core;
  Interpreter interpreter;
  GuestCode source;
  model::Core own;
  Observer observer;
  uint64_t instructions = 0;
};

class ObserverOn : public ::testing::TestWithParam<const arch::Microarch*> {};

TEST_P(ObserverOn, SeesEveryKernelAsTheInterpreterDoes) {
  const arch::Microarch& row = *GetParam();
  Pair pair(row, model::core_behaviour_of(row));
  Random random(kSeed);
  for (const auto& [name, kernel] : kernels()) {
    const Params params = Params::parse(kernel.parameters, "").value();
    const size_t bytes = kernel.data_bytes != nullptr ? kernel.data_bytes(params) : 0;
    if (bytes > pair.data.host.size()) continue;
    const Placement placement{.code_address = pair.code.address, .data_address = pair.data.address};
    const Program program = generate(kernel, params, placement).value();
    ASSERT_TRUE(prepare_data(kernel, params, program, pair.data.host, 1));
    pair.run(program, 20, random);
    if (HasFailure()) return;
  }
  EXPECT_GT(pair.instructions, 1000u);
}

TEST_P(ObserverOn, SeesRandomCodeAsTheInterpreterDoes) {
  const arch::Microarch& row = *GetParam();
  Pair pair(row, model::core_behaviour_of(row));
  Random random(kSeed + 1);
  for (uint64_t seed = 0; seed < 40 && !HasFailure(); ++seed) {
    testing::RandomCode code(seed, pair.code.address, pair.data.address + 4096, true);
    const Program program = code.generate(200);
    pair.run(program, 1, random);
    pair.run(program, 1, random);  // with everything warm
  }
}

// An interrupt that comes in the middle of a block, and its handler: the block goes on where it was left.
TEST_P(ObserverOn, GoesOnInABlockThatAnInterruptLeft) {
  const arch::Microarch& row = *GetParam();
  Pair pair(row, model::core_behaviour_of(row));
  Memory handler = pair.memory->allocate(4096, MemoryUse::kCode, false).value();
  constexpr std::array<uint8_t, 3> kHandler = {0x90, 0x48, 0xCF};  // NOP, IRETQ
  std::memcpy(handler.host.data(), kHandler.data(), kHandler.size());
  testing::RandomCode code(3, pair.code.address, pair.data.address + 4096, true);
  const Program program = code.generate(6000);
  ASSERT_TRUE(pair.interpreter.load(program));
  pair.interpreter.call(program.entry, 1, program.data_address,
                        pair.stack.address + pair.stack.host.size());
  Random random(kSeed);
  size_t interrupts = 0, fused = 0;
  while (!pair.interpreter.finished() && !HasFailure()) {
    const model::Registers before = pair.interpreter.registers();
    model::Retired known, seen;
    if (random.chance(1, 3)) {
      ++interrupts;
      const uint64_t at = handler.address;
      pair.observer.retire({.ip = at, .next_ip = at + 1}, before, seen);
      EXPECT_EQ(seen.length, 1u);
      pair.observer.retire({.ip = at + 1, .next_ip = before.ip}, before, seen);
      EXPECT_EQ(seen.counts[arch::index(Signal::kBranches)], 0u) << "a far return is none of them";
    }
    ASSERT_TRUE(pair.interpreter.step(known));
    const Watched watched({pair.memory->host(known.ip), known.length}, known, known.after->ip,
                          before);
    pair.observer.retire(watched.executed, *known.after, seen);
    EXPECT_EQ(seen.fused_with_next, known.fused_with_next) << std::hex << known.ip;
    EXPECT_EQ(seen.counts[arch::index(Signal::kUops)], known.counts[arch::index(Signal::kUops)])
        << std::hex << known.ip;
    fused += known.fused_with_next;
  }
  EXPECT_GT(interrupts, 50u);
  if (row.fusion.fuses(arch::FusionFirst::kCmp, arch::condition_of_code(4), false, false, false,
                       true)) {
    EXPECT_GT(fused, 5u);
  }
}

// Other code at the same addresses.
TEST(Observer, ReadsCodeAgainThatMayHaveChanged) {
  const arch::Microarch& row = **arch::find_microarch("sandy-bridge");
  Pair pair(row, model::core_behaviour_of(row));
  const uint64_t ip = pair.code.address;
  auto write = [&](std::initializer_list<int> bytes) {
    size_t n = 0;
    for (int b : bytes) pair.code.host[n++] = static_cast<std::byte>(b);
  };
  const model::Registers registers;
  model::Retired seen;
  write({0x90, 0xEB, 0xFD});  // NOP, JMP back to it
  pair.observer.retire({.ip = ip, .next_ip = ip + 1}, registers, seen);
  EXPECT_EQ(seen.counts[arch::index(Signal::kNops)], 1u);
  pair.observer.retire({.ip = ip + 1, .next_ip = ip}, registers, seen);
  EXPECT_EQ(seen.counts[arch::index(Signal::kBranches)], 1u);
  write({0xF8, 0xEB, 0xFD});  // CLC instead
  pair.observer.suspect_code();
  pair.observer.retire({.ip = ip, .next_ip = ip + 1}, registers, seen);
  EXPECT_EQ(seen.counts[arch::index(Signal::kNops)], 0u);
}

// Bytes that are no instruction, and code that is not decoded at all.
TEST(Observer, TakesWhatItCannotDecodeForOneUopWithItsAccesses) {
  const arch::Microarch& row = **arch::find_microarch("sandy-bridge");
  Pair pair(row, model::core_behaviour_of(row));
  pair.observer.set_mode(Mode::kReal);
  const std::array<SeenAccess, 1> accesses = {{{.address = 0x5000, .bytes = 2, .load = true}}};
  const model::Registers registers;
  model::Retired seen;
  pair.observer.retire({.ip = 0x100, .next_ip = 0x103, .accesses = accesses}, registers, seen);
  EXPECT_EQ(seen.length, 3u);
  EXPECT_EQ(seen.counts[arch::index(Signal::kInstructions)], 1u);
  EXPECT_EQ(seen.counts[arch::index(Signal::kUops)], 1u);
  EXPECT_EQ(seen.counts[arch::index(Signal::kLoads)], 1u);
  EXPECT_TRUE(seen.load.valid);
  EXPECT_EQ(seen.load.address, 0x5000u);
  EXPECT_FALSE(seen.store.valid);
}

std::string name_of_row(const ::testing::TestParamInfo<const arch::Microarch*>& info) {
  std::string name(info.param->name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Every, ObserverOn, ::testing::ValuesIn(arch::microarchs()), name_of_row);

}  // namespace
}  // namespace skidproof::engines
