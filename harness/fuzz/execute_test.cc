// Where the limit of a PEBS buffer is one page, no case lies over the border of two: a longer buffer can
// hang the processor [Linux 6.12, arch/x86/events/intel/ds.c, intel_ds_init].
#include "harness/fuzz/execute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "harness/fuzz/generator.h"
#include "pebs/arch/ds_area.h"
#include "pebs/engines/model_machine.h"

namespace skidproof::fuzz {
namespace {

constexpr uint64_t kPage = 4096;

const arch::Microarch& core2() { return **arch::find_microarch("core2"); }

std::unique_ptr<Machine> machine_of(const arch::Microarch& row) {
  auto machine = engines::make_model_machine(row, {});
  EXPECT_TRUE(machine) << machine.error().text();
  return *std::move(machine);
}

// Forwards, and keeps the bounds of the PEBS buffer as they stand in the DS area before each run.
class Watched final : public Machine {
 public:
  explicit Watched(Machine& machine) : machine_(machine) {}
  const Identity& identity() const override { return machine_.identity(); }
  CpuidResult cpuid(uint32_t leaf, uint32_t subleaf) const override {
    return machine_.cpuid(leaf, subleaf);
  }
  Expected<uint64_t> rdmsr(uint32_t msr) override { return machine_.rdmsr(msr); }
  Expected<uint64_t> rdpmc(const CounterRead& read) override { return machine_.rdpmc(read); }
  Expected<void> wrmsr(uint32_t msr, uint64_t value) override { return machine_.wrmsr(msr, value); }
  Expected<Memory> allocate(const MemoryRequest& request) override {
    Memory memory = SKIDPROOF_TRY(machine_.allocate(request));
    blocks_.push_back(memory);
    return memory;
  }
  Expected<RunLog> run(const Program& program, const RunPlan& plan) override {
    const arch::DsLayout& layout = identity().microarch->ds;
    const uint64_t ds = plan.pebs_base_address - layout.pebs_base;
    buffers.push_back({word(ds + layout.pebs_base), word(ds + layout.pebs_index),
                       word(ds + layout.pebs_maximum)});
    return machine_.run(program, plan);
  }

  struct Buffer {
    uint64_t base = 0, index = 0, maximum = 0;
  };
  std::vector<Buffer> buffers;

 private:
  uint64_t word(uint64_t address) const {
    uint64_t value = 0;
    for (const Memory& block : blocks_) {
      const uint64_t offset = address - block.address;
      if (offset >= block.host.size()) continue;
      std::memcpy(&value, block.host.data() + offset, sizeof value);
    }
    return value;
  }

  Machine& machine_;
  std::vector<Memory> blocks_;
};

TEST(FuzzExecutor, KeepsTheBufferInsideOnePageWhereMoreIsNotSafe) {
  ASSERT_EQ(core2().pebs_buffer_limit_bytes, kPage);
  auto executor = Executor::create(core2());
  ASSERT_TRUE(executor);
  size_t runs = 0;
  uint64_t longest = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const auto machine = machine_of(core2());
    Watched watched(*machine);
    const Case c = generate_case(watched.identity(), core2().gp_counters, seed);
    const auto outcome = (*executor)->run(watched, c);
    ASSERT_TRUE(outcome) << outcome.error().text();
    EXPECT_FALSE(outcome->violation) << "seed " << seed;
    for (const Watched::Buffer& buffer : watched.buffers) {
      ++runs;
      longest = std::max(longest, buffer.maximum - buffer.base);
      EXPECT_EQ(buffer.base % kPage, 0u) << "seed " << seed;
      EXPECT_LE(std::max(buffer.maximum, buffer.index), buffer.base + kPage) << "seed " << seed;
    }
  }
  EXPECT_GT(runs, 100u);
  EXPECT_GT(longest, kPage / 2) << "and uses it";
}

TEST(FuzzExecutor, RefusesACaseWithALongerBuffer) {
  const auto machine = machine_of(core2());
  auto executor = Executor::create(core2());
  ASSERT_TRUE(executor);
  for (auto DebugStorePlan::*field : {&DebugStorePlan::maximum, &DebugStorePlan::index}) {
    Case c = generate_case(machine->identity(), core2().gp_counters, 1);
    c.ds.*field = kPage + 1;
    Watched watched(*machine);
    const auto outcome = (*executor)->run(watched, c);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(outcome.error().message, ::testing::HasSubstr("4096"));
    EXPECT_TRUE(watched.buffers.empty()) << "nothing ran";
  }
}

}  // namespace
}  // namespace skidproof::fuzz
