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
        interpreter(*memory, core, row, how),
        source(*memory),
        own(row, kSeed),
        observer(own, row, how, source) {}

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

std::string name_of_row(const ::testing::TestParamInfo<const arch::Microarch*>& info) {
  std::string name(info.param->name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Every, ObserverOn, ::testing::ValuesIn(arch::microarchs()), name_of_row);

}  // namespace
}  // namespace skidproof::engines
