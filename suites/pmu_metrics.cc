// The top-down metrics: their register, its enable, its RDPMC index (A20).
#include <cstdint>

#include "harness/check/check.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pmu_metrics {
namespace {

using namespace suites;

constexpr uint32_t kMetricsIndex = uint32_t{1} << 29;

}  // namespace

SKIDPROOF_SUITE(PmuMetrics, kCount);

SKIDPROOF_TEST(PmuMetrics, ExistExactlyWhereTheyAreAnnounced, clause::A20, clause::M5) {
  const bool announced =
      (need(machine().rdmsr(arch::IA32_PERF_CAPABILITIES)) & arch::capabilities::kPerfMetrics) != 0;
  evidence("announced", announced);
  evidence("row", row().perf_metrics);
  VERIFY_EQ(need(refuses_to_read(machine(), arch::MSR_PERF_METRICS)), !announced);
  VERIFY_EQ(need(refuses(machine(), arch::IA32_PERF_GLOBAL_CTRL, arch::status::kPerfMetrics)),
            !announced);
}

// How wide the machine is, nothing here promises.
SKIDPROOF_TEST_OVER(PmuMetrics, CountSlotsOnFixedCounterThree,
                    over::words({"nop_sled", "pointer_chase", "mixed"}), clause::A21) {
  SKIDPROOF_REQUIRE((arch::fixed_bits(uarch()) >> 3 & 1) != 0, SkipCategory::kNotOnThisMicroarch,
                    "there is no fixed counter 3");
  SessionPlan plan;
  plan.fixed = {{.counter = 1}, {.counter = 3}};
  const Sampled counted = need(sample(machine(), plan, program(param().word()), 2000));
  const uint64_t cycles = counted.run.fixed.at(0), slots = counted.run.fixed.at(1);
  evidence("cycles", cycles);
  evidence("slots", slots);
  VERIFY_GT(cycles, 0u);
  // A thread has half of a core's slots at the least, and no core is 32 wide.
  VERIFY_GE(slots, cycles / 2);
  VERIFY_LE(slots, 32 * cycles);
}

// Software clears them before it counts; what they hold while nothing counts can be read both ways.
SKIDPROOF_TEST(PmuMetrics, AreReadByRdpmc, clause::A20, clause::M32) {
  const Expected<uint64_t> trial = machine().rdpmc({.index = 0});
  SKIDPROOF_REQUIRE(trial || trial.error().code != ErrorCode::kNotAvailable,
                    SkipCategory::kMachineLimit, "this machine has no way to execute RDPMC");
  const Expected<uint64_t> read = machine().rdpmc({.index = kMetricsIndex});
  if (!uarch().perf_metrics) {
    VERIFY_FALSE(read.has_value());
    return;
  }
  VERIFY_TRUE(read.has_value());
  if (!read) return;
  Restore restore(machine(), {arch::MSR_PERF_METRICS});
  need(machine().wrmsr(arch::MSR_PERF_METRICS, 0));
  VERIFY_EQ(need(machine().rdmsr(arch::MSR_PERF_METRICS)), 0u);
  VERIFY_EQ(need(machine().rdpmc({.index = kMetricsIndex})), 0u);
}

}  // namespace skidproof::check::pmu_metrics
