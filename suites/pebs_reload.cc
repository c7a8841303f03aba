// Counter reset: after each record every counter that overflowed under PEBS is loaded with its own
// slot of the DS area, and no other counter is touched.
#include <cstdint>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_reload {
namespace {

using namespace suites;
using arch::Signal;

// No counter of these tests comes near a second overflow when it is loaded with −kFar.
constexpr uint64_t kFar = uint64_t{1} << 20;

constexpr char kNoEvent[] = "no precise event for this signal on this counter";
constexpr char kOneCounter[] = "PEBS works on fewer counters";

}  // namespace

SKIDPROOF_SUITE(PebsReload, kBuffer);

SKIDPROOF_TEST_OVER(PebsReload, LoadsTheResetSlotAfterEveryRecord,
                    over::product(over::counters({0, 1, 2, 3}),
                                  over::words({"load", "store", "taken"})),
                    clause::R19, clause::D10) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), param().word(), counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  SKIDPROOF_REQUIRE_EXACT(param().word());
  const Program& code = program("sparse_event", sparse_parameters(uarch(), param().word()));
  const uint64_t period = usable_period(uarch(), counter, *event, 37);
  const uint64_t iterations = iterations_for_exactly(6, period);
  const uint64_t events = need(count(machine(), counter, *event, code, iterations));

  Sampled sampled =
      need(sample(machine(), one_counter(counter, *event, period, 16), code, iterations));

  const Exact expected = exact(uarch(), events, period, period, counter);
  evidence("events", events);
  evidence("records", sampled.records().size());
  evidence("counter", results::hex(sampled.run.counters[0]));
  VERIFY_GE(expected.records, 6u);
  VERIFY_EQ(sampled.records().size(), expected.records);
  VERIFY_EQ(sampled.run.counters[0], expected.counter);
  VERIFY_EQ(sampled.session.reset_slot(counter), minus_period(period, uarch().gp_width))
      << "the slot itself is not the processor's to change";
}

SKIDPROOF_TEST_OVER(PebsReload, TakesThePeriodFromTheSlotNotFromTheFirstValue,
                    over::numbers("period=", {64, 100, 1000}), clause::R19) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t first = usable_period(uarch(), 0, *event, 40);
  const uint64_t period = usable_period(uarch(), 0, *event, param().number());
  const uint64_t iterations = first + 1 + iterations_for_exactly(2, period);
  const uint64_t events = need(count(machine(), 0, *event, code, iterations));
  CounterSetup setup = CounterSetup::of(0, *event, first);
  setup.reset = minus_period(period, uarch().gp_width);

  Sampled sampled = need(sample(machine(), one_counter(setup, 16), code, iterations));

  const Exact expected = exact(uarch(), events, first, period);
  evidence("records", sampled.records().size());
  VERIFY_EQ(expected.records, 3u);
  VERIFY_EQ(sampled.records().size(), expected.records);
  VERIFY_EQ(sampled.run.counters[0], expected.counter);
}

// The slot is as wide as the counter: what a 32-bit write could not say, it says. A slot of 0 puts
// the next overflow 2^width events away (R20).
SKIDPROOF_TEST_OVER(PebsReload, LoadsEveryBitOfTheSlot,
                    over::numbers("slot=", {0x8000'0000'0000, 0xFFFE'0000'0000, 0xFFFF'7FFF'FFFF,
                                            0xFFFF'0000'0001, 0x0001'8000'0000, 0x7FFF'FFFF, 0}),
                    clause::R19, clause::R20) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  // Not one that stands at 0 when it is loaded: that a slot of 0 is left out would not show.
  const unsigned arms = uarch().pebs_counters & ~unsigned{uarch().pdist_counters};
  const unsigned counter = (arms & arch::bit(1)) != 0 ? 1 : arming_counter(uarch());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t first = usable_period(uarch(), counter, *event, 40);
  const uint64_t iterations = iterations_for_exactly(3, first);
  const uint64_t events = need(count(machine(), counter, *event, code, iterations));
  const uint64_t slot = param().number() & arch::gp_counter_mask(uarch());
  CounterSetup setup = CounterSetup::of(counter, *event, first);
  setup.reset = slot;

  Sampled sampled = need(sample(machine(), one_counter(setup, 8), code, iterations));

  evidence("counter", results::hex(sampled.run.counters[0]));
  VERIFY_EQ(sampled.records().size(), 1u);
  VERIFY_EQ(sampled.run.counters[0], slot + events - events_a_record(uarch(), counter, first))
      << "the slot and the events since the record";
}

SKIDPROOF_TEST(PebsReload, TakesEachCountersOwnSlot, clause::R19, clause::P2, clause::R31) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  SKIDPROOF_REQUIRE((uarch().pebs_counters & 0xF) == 0xF, SkipCategory::kNotOnThisMicroarch,
                    kOneCounter);
  const uint64_t step = usable_period(uarch(), 0, *event, 40);
  SessionPlan plan;
  for (unsigned n = 0; n < 4; ++n) {
    CounterSetup setup = CounterSetup::of(n, *event, (n + 1) * step);
    setup.reset = minus_period((n + 1) * kFar, uarch().gp_width);
    plan.counters.push_back(setup);
  }
  const uint64_t iterations = 5 * step;
  const uint64_t events = need(count(machine(), 0, *event, code, iterations));

  Sampled sampled = need(sample(machine(), plan, code, iterations));

  evidence("records", sampled.records().size());
  VERIFY_EQ(sampled.records().size(), 4u);
  for (unsigned n = 0; n < 4; ++n) {
    const uint64_t since = events - events_a_record(uarch(), n, (n + 1) * step);
    VERIFY_EQ(sampled.run.counters[n], *plan.counters[n].reset + since) << "PMC" << n;
  }
}

// Two counters that overflow on the same event may share a record (R26); each is loaded all the
// same.
SKIDPROOF_TEST(PebsReload, LoadsBothOfTwoThatOverflowTogether, clause::R19, clause::R26) {
  const unsigned lower = arming_counter(uarch());
  const arch::Event* event = sparse_event(uarch(), "taken", lower);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  SKIDPROOF_REQUIRE((uarch().pebs_counters & 0xF) == 0xF, SkipCategory::kNotOnThisMicroarch,
                    kOneCounter);
  const uint64_t first = usable_period(uarch(), lower, *event, 50);
  SessionPlan plan;
  for (unsigned n : {lower, lower + 2}) {
    CounterSetup setup = CounterSetup::of(n, *event, first);
    setup.reset = minus_period((n + 1) * kFar, uarch().gp_width);
    plan.counters.push_back(setup);
  }
  const uint64_t iterations = iterations_for_exactly(2, first);
  const uint64_t events = need(count(machine(), lower, *event, code, iterations));

  Sampled sampled = need(sample(machine(), plan, code, iterations));

  evidence("records", sampled.records().size());
  VERIFY_THAT(sampled.records().size(), ::testing::AnyOf(1u, 2u)) << "shared, or one each";
  for (size_t i = 0; i < 2; ++i) {
    VERIFY_EQ(sampled.run.counters[i], *plan.counters[i].reset + events - (first + 1))
        << "PMC" << plan.counters[i].counter;
  }
}

SKIDPROOF_TEST_OVER(PebsReload, LeavesPebsCountersThatDidNotOverflow, over::counters({1, 2, 3}),
                    clause::R19) {
  const auto other = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), 0, *event, 40);
  SKIDPROOF_REQUIRE((uarch().pebs_counters & arch::bit(other)) != 0,
                    SkipCategory::kNotOnThisMicroarch, kOneCounter);
  SessionPlan plan;
  plan.counters = {CounterSetup::of(0, *event, period), CounterSetup::of(other, *event, kFar)};
  plan.counters[1].reset = minus_period(2 * kFar, uarch().gp_width);
  const uint64_t iterations = iterations_for_exactly(5, period);
  const uint64_t events = need(count(machine(), 0, *event, code, iterations));

  Sampled sampled = need(sample(machine(), plan, code, iterations));

  VERIFY_EQ(sampled.records().size(), exact(uarch(), events, period, period).records);
  VERIFY_EQ(sampled.run.counters[1], minus_period(kFar, uarch().gp_width) + events);
}

SKIDPROOF_TEST_OVER(PebsReload, LeavesOverflowedCountersWithoutPebs, over::counters({1, 2, 3}),
                    clause::R19) {
  const auto other = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  SKIDPROOF_REQUIRE(reported_counters(machine()) > other, SkipCategory::kMachineLimit,
                    "CPUID reports fewer counters");
  const uint64_t period = usable_period(uarch(), 0, *event, 40);
  SessionPlan plan;
  plan.counters = {CounterSetup::of(0, *event, period),
                   CounterSetup::of(other, *event, period - 10, false)};
  plan.counters[1].reset = minus_period(kFar, uarch().gp_width);
  const uint64_t iterations = iterations_for_exactly(5, period);
  const uint64_t events = need(count(machine(), 0, *event, code, iterations));

  Sampled sampled = need(sample(machine(), plan, code, iterations));

  VERIFY_EQ(sampled.records().size(), exact(uarch(), events, period, period).records);
  VERIFY_EQ(sampled.run.counters[1], events - (period - 10)) << "it counts on from its overflow";
}

// What overflowed without PEBS has no record of its own, and its slot is never read.
SKIDPROOF_TEST_OVER(PebsReload, GivesNothingToACounterWhoseEnableBitIsClear,
                    over::counters({0, 1, 2, 3}), clause::R19, clause::R39) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), counter, *event, 40);
  const uint64_t iterations = iterations_for_exactly(4, period);
  const uint64_t events = need(count(machine(), counter, *event, code, iterations));
  CounterSetup setup = CounterSetup::of(counter, *event, period, false);

  Sampled sampled = need(sample(machine(), one_counter(setup, 8), code, iterations));

  VERIFY_EQ(sampled.records().size(), 0u);
  VERIFY_EQ(sampled.run.counters[0], events - period);
  VERIFY_EQ(sampled.run.global_status & arch::bit(counter), arch::bit(counter));
}

}  // namespace skidproof::check::pebs_reload
