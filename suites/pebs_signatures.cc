// Narrow questions about records: what one published erratum spoils and nothing else does, or what it leaves
// alone and another violation would not (pebs/arch/errata_tests.inc).
#include <cstdint>

#include "harness/check/check.h"
#include "suites/exact.h"
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
  const auto counter = static_cast<unsigned>(__builtin_ctz(uarch().load_latency_counters));
  const Program& chase = program("pointer_chase", "bytes=8K");
  constexpr size_t kRecords = 8;
  SessionPlan plan = one_counter(counter, *event, usable_period(uarch(), 32), 4 * kRecords);
  plan.load_latency_threshold = 3;  // the least [SDM 18.8.1.2]

  Sampled sampled = need(sample(machine(), plan, chase,
                                loads_for(kRecords, usable_period(uarch(), 32),
                                          calibrated(calibrate::Quantity::kLoadsATag))));

  evidence("records", sampled.records().size());
  VERIFY_GE(sampled.records().size(), kRecords / 2);
}

}  // namespace skidproof::check
