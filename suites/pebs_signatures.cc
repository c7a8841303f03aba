// Narrow questions about records: what one published erratum spoils and nothing else does, or what it leaves
// alone and another violation would not (pebs/arch/errata_tests.inc).
#include <cstdint>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/load_latency.h"
#include "suites/sampling.h"

namespace skidproof::check {
namespace {

using namespace suites;
using arch::EventKind;

}  // namespace

SKIDPROOF_SUITE(PebsSignatures, kOneRecord);

// Of the program alone, whatever the other thread loads.
SKIDPROOF_TEST(PebsSignatures, RecordLoadLatencyOnASharedCore, clause::P11) {
  SKIDPROOF_REQUIRE(machine().identity().sibling_thread, SkipCategory::kNeedsSibling,
                    "no other thread shares the core");
  const arch::Event* event = facility_event(uarch(), EventKind::kLoadLatency);
  SKIDPROOF_REQUIRE(event != nullptr && uarch().load_latency_counters != 0,
                    SkipCategory::kNotOnThisMicroarch, "no load latency facility");
  const Program& chase = program("pointer_chase", "bytes=8K");
  SessionPlan plan = latency_plan(uarch(), latency_counter(uarch()), 32);
  plan.keep_sibling_busy = true;

  TaggedLoads sampled =
      need(sample_tagged(machine(), plan, chase, calibrated(calibrate::Quantity::kLoadsATag)));

  evidence("records", sampled.recorded);
  SKIDPROOF_REQUIRE_TAGS(sampled);
  VERIFY_GE(sampled.recorded, sampled.wanted);
  SKIDPROOF_REQUIRE(sampled.run.log.sibling_busy, SkipCategory::kMachineLimit, kSiblingIdle);
}

}  // namespace skidproof::check
