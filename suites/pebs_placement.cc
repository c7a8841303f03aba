// Placement: PEBS records on PMC0 to PMC3 and on no other counter.
#include <cstdint>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check {
namespace {

using namespace suites;
using arch::bit;
using arch::Signal;

// Counts on every counter where there are eight.
constexpr Signal kSignal = Signal::kConditional;
constexpr char kNoEvent[] = "no precise event for conditional jumps";

}  // namespace

SKIDPROOF_TEST_OVER(PebsPlacement, RecordsOnPmc0To3, over::counters({0, 1, 2, 3}), clause::P1,
                    clause::R31) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = precise_event(uarch(), kSignal, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  const uint64_t period = usable_period(uarch(), 40);

  Sampled sampled = need(sample(machine(), one_counter(counter, *event, period, 16), code,
                                iterations_for_exactly(3, period)));

  evidence("records", sampled.records().size());
  VERIFY_EQ(sampled.records().size(), 3u);
  for (Record record : sampled.records()) VERIFY_EQ(record.global_status() & 0xFF, bit(counter));
}

// The enable bit is refused, or does nothing. Either way the counter counts through its overflow.
SKIDPROOF_TEST_OVER(PebsPlacement, NeverRecordsOnPmc4To7, over::counters({4, 5, 6, 7}), clause::P1,
                    clause::R36) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = precise_event(uarch(), kSignal);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  SKIDPROOF_REQUIRE(uarch().gp_counters_alone > counter, SkipCategory::kNotOnThisMicroarch,
                    "there is no such counter");
  SKIDPROOF_REQUIRE(!machine().identity().sibling_thread, SkipCategory::kNeedsNoSibling,
                    "a sibling thread has the upper four counters");
  SKIDPROOF_REQUIRE(reported_counters(machine()) > counter, SkipCategory::kMachineLimit,
                    "CPUID reports fewer counters");
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  const uint64_t period = usable_period(uarch(), 40);
  const uint64_t iterations = iterations_for_exactly(3, period);
  const uint64_t events = need(count(machine(), counter, *event, code, iterations));
  const bool refused = need(refuses(machine(), arch::IA32_PEBS_ENABLE, bit(counter)));
  SessionPlan plan = one_counter(CounterSetup::of(counter, *event, period, false), 16);
  plan.pebs_enable = uint64_t{uarch().pebs_counters} | (refused ? 0 : bit(counter));

  Sampled sampled = need(sample(machine(), plan, code, iterations));

  evidence("enable-bit-refused", refused);
  VERIFY_EQ(sampled.records().size(), 0u);
  VERIFY_EQ(sampled.session.index(), sampled.session.base());
  VERIFY_EQ(sampled.run.counters[0], events - period) << "it overflows and counts on";
  VERIFY_EQ(sampled.run.global_status & bit(counter), bit(counter));
}

}  // namespace skidproof::check
