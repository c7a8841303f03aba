// Placement: PEBS records on the counters that the microarch has for it, and on no other.
#include <cstdint>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_placement {
namespace {

using namespace suites;
using arch::bit;

// The loop's own jump counts on every counter where there are eight.
constexpr char kWord[] = "taken";
constexpr char kNoEvent[] = "no precise event for conditional jumps";
constexpr char kNoSuchCounter[] = "there is no such counter";

}  // namespace

SKIDPROOF_SUITE(PebsPlacement, kOneRecord);

SKIDPROOF_TEST_OVER(PebsPlacement, RecordsOnPmc0To3, over::counters({0, 1, 2, 3}), clause::P1,
                    clause::R31, clause::G12) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), kWord, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), counter, *event, 40);

  Sampled sampled = need(sample(machine(), one_counter(counter, *event, period, 16), code,
                                iterations_for_exactly(3, period)));

  evidence("records", sampled.records().size());
  VERIFY_EQ(sampled.records().size(), 3u);
  for (Record record : sampled.records()) {
    VERIFY_EQ(recorded_counters(uarch(), record).value_or(bit(counter)), bit(counter));
  }
}

// The enable bit is refused, or does nothing. Either way the counter counts through its overflow.
SKIDPROOF_TEST_OVER(PebsPlacement, NeverRecordsOnAnotherCounter,
                    over::counters({1, 2, 3, 4, 5, 6, 7}), clause::P1, clause::R36, clause::G12) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), kWord);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  SKIDPROOF_REQUIRE(uarch().gp_counters_alone > counter, SkipCategory::kNotOnThisMicroarch,
                    kNoSuchCounter);
  SKIDPROOF_REQUIRE((uarch().pebs_counters & bit(counter)) == 0, SkipCategory::kNotOnThisMicroarch,
                    "PEBS works on this counter");
  SKIDPROOF_REQUIRE(uarch().gp_counters > counter || !machine().identity().sibling_thread,
                    SkipCategory::kNeedsNoSibling, "a sibling thread has the upper four counters");
  SKIDPROOF_REQUIRE(reported_counters(machine()) > counter, SkipCategory::kMachineLimit,
                    "CPUID reports fewer counters");
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), counter, *event, 40);
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

}  // namespace skidproof::check::pebs_placement
