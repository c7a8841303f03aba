// Arming and triggering: the overflow arms, the next event records; without either there is no
// record.
#include <cstdint>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_arming {
namespace {

using namespace suites;
using arch::bit;
using arch::Gpr;
using arch::Signal;

constexpr char kNoEvent[] = "no precise event for this signal on this counter";

}  // namespace

SKIDPROOF_SUITE(PebsArming, kOneRecord);

// RDI counts the iterations down, so a record's RDI says which of the events it belongs to.
SKIDPROOF_TEST_OVER(PebsArming, RecordsTheEventBehindTheOverflow,
                    over::product(over::counters({0, 1, 2, 3}),
                                  over::words({"load", "store", "taken"})),
                    clause::R1, clause::R2) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), param().word(), counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  SKIDPROOF_REQUIRE_EXACT(param().word());
  const Program& code = program("sparse_event", sparse_parameters(uarch(), param().word()));
  const uint64_t period = usable_period(uarch(), counter, *event, random().between(33, 60));
  const uint64_t iterations = iterations_for_exactly(1, period);
  const uint64_t own = sparse_events(sparse_word(uarch(), param().word()), code, iterations);
  const uint64_t events = need(count(machine(), counter, *event, code, iterations));
  VERIFY_GE(events, own);

  Sampled sampled =
      need(sample(machine(), one_counter(counter, *event, period, 8), code, iterations));

  VERIFY_EQ(sampled.records().size(), 1u);
  if (sampled.records().empty()) return;
  const uint64_t recorded = iterations + 1 - sampled.records().front().gpr(Gpr::kRdi);
  evidence("period", period);
  evidence("recorded-event", recorded);
  // The machine's own events, if any, may come before the program's.
  const uint64_t expected = events_a_record(uarch(), counter, period);
  VERIFY_LE(recorded, expected);
  VERIFY_GE(recorded, expected - std::min(period, events - own));
}

SKIDPROOF_TEST_OVER(PebsArming, RecordsNothingWithoutAnOverflow, over::counters({0, 1, 2, 3}),
                    clause::R1) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t events = need(count(machine(), counter, *event, code, 100));

  // One event short: the counter ends at all-ones.
  Sampled sampled = need(sample(machine(), one_counter(counter, *event, events + 1, 8), code, 100));

  VERIFY_EQ(sampled.records().size(), 0u);
  VERIFY_EQ(sampled.run.counters[0], arch::gp_counter_mask(uarch()));
  VERIFY_EQ(sampled.run.global_status & bit(counter), 0u);
  VERIFY_EQ(sampled.session.index(), sampled.session.base());
}

// The overflow falls on the last store, and 2,000 instructions without one follow it.
SKIDPROOF_TEST(PebsArming, WaitsForAnEventHoweverLong, clause::R3, clause::R4, clause::R18) {
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken", 4096));
  const uint64_t iterations = usable_period(uarch(), counter, *event, 3);
  const uint64_t events = need(count(machine(), counter, *event, code, iterations));
  SKIDPROOF_REQUIRE(events == sparse_events(sparse_word(uarch(), "taken"), code, iterations),
                    SkipCategory::kMachineLimit,
                    "the machine's own code around a program has such events");

  Sampled sampled =
      need(sample(machine(), one_counter(counter, *event, events, 8), code, iterations));

  VERIFY_EQ(sampled.run.counters[0], 0u) << "it overflowed on the last store";
  VERIFY_EQ(sampled.records().size(), 0u);
  VERIFY_EQ(sampled.run.global_status & bit(counter), bit(counter)) << "armed, not yet triggered";
}

// One event more than the overflow, and the status is clear again.
SKIDPROOF_TEST_OVER(PebsArming, ShowsTheOverflowInTheStatusUntilTheRecord,
                    over::counters({0, 1, 2, 3}), clause::R4, clause::R17, clause::R18) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  SKIDPROOF_REQUIRE((uarch().pdist_counters >> counter & 1) == 0, SkipCategory::kNotOnThisMicroarch,
                    "the overflowing event itself is recorded (R62)");
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t iterations = usable_period(uarch(), counter, *event, 40);
  const uint64_t events = need(count(machine(), counter, *event, code, iterations));
  SKIDPROOF_REQUIRE(events == sparse_events(sparse_word(uarch(), "taken"), code, iterations),
                    SkipCategory::kMachineLimit,
                    "the machine's own code around a program has such events");
  const SessionPlan plan = one_counter(counter, *event, events, 8);

  Sampled armed = need(sample(machine(), plan, code, iterations));
  VERIFY_EQ(armed.records().size(), 0u);
  VERIFY_EQ(armed.run.global_status & bit(counter), bit(counter));
  need(armed.session.close());

  Sampled recorded = need(sample(machine(), plan, code, iterations + 1));
  VERIFY_EQ(recorded.records().size(), 1u);
  VERIFY_EQ(recorded.run.global_status & bit(counter), 0u);
}

// P4 promises nothing for an event that is not in the list: whether it is recorded is reported.
// What holds in either case is the count.
SKIDPROOF_TEST(PebsArming, CountsAnImpreciseEventWhateverPebsMakesOfIt, clause::P4, clause::R19) {
  const arch::Event* event = nullptr;
  for (const arch::Event& e : uarch().events) {
    if (!e.precise() && e.signal == Signal::kBranches) event = &e;
  }
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "no imprecise branch event");
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), 0, *event, 40);
  const uint64_t iterations = iterations_for_exactly(3, period);
  const uint64_t events = need(count(machine(), 0, *event, code, iterations));

  Sampled sampled = need(sample(
      machine(), one_counter(0, *event, period, safe_records(uarch(), 32)), code, iterations));

  evidence("event", event->name);
  evidence("records", sampled.records().size());
  VERIFY_GE(events, code.total(iterations).branches());
  const size_t records = sampled.records().size();
  if (records == 0) {
    VERIFY_EQ(sampled.run.counters[0], events - period) << "no record, hence no reload";
  } else {
    VERIFY_EQ(sampled.records().remainder_bytes(), 0u);
    VERIFY_LE(records, events / period) << "no more records than overflows";
  }
}

}  // namespace skidproof::check::pebs_arming
