// Format 3: 90H names the counters that a record applies to, C0H says when it was taken.
#include <cstdint>
#include <vector>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_applicable {
namespace {

using namespace suites;
using arch::bit;
using arch::Gpr;

// In a record of a fixed layout, with the status field gone in its favour.
bool names_counters(const arch::Microarch& microarch) {
  return microarch.record->applicable_counters != arch::kAbsent && !microarch.record->adaptive();
}
bool has_time_stamp(const arch::Microarch& microarch) {
  return microarch.record->tsc != arch::kAbsent;
}
constexpr char kNoNames[] = "the record does not name its counters at 90H";
constexpr char kNoStamp[] = "the record has no time stamp";
constexpr char kNoEvent[] = "no precise event for this signal on this counter";

}  // namespace

SKIDPROOF_SUITE(PebsApplicable, kOneRecord);

// --- Applicable counters

SKIDPROOF_TEST_OVER(PebsApplicable, NamesTheCounterThatSampled,
                    over::product(over::counters({0, 1, 2, 3}),
                                  over::words({"load", "store", "taken"})),
                    clause::G5) {
  SKIDPROOF_REQUIRE(names_counters(uarch()), SkipCategory::kNotOnThisMicroarch, kNoNames);
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), param().word(), counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  SKIDPROOF_REQUIRE_EXACT(param().word());
  const Program& code = program("sparse_event", sparse_parameters(uarch(), param().word()));
  const uint64_t period = usable_period(uarch(), 40);

  Sampled sampled = need(sample(machine(), one_counter(counter, *event, period, 16), code,
                                iterations_for_exactly(5, period)));

  VERIFY_EQ(sampled.records().size(), 5u);
  for (Record record : sampled.records()) VERIFY_EQ(record.applicable_counters(), bit(counter));
}

// PMC1 without PEBS and fixed counter 0 have overflowed before each record; the status of the older
// formats would show them.
SKIDPROOF_TEST(PebsApplicable, LeavesOutWhatOverflowedWithoutPebs, clause::G5) {
  SKIDPROOF_REQUIRE(names_counters(uarch()), SkipCategory::kNotOnThisMicroarch, kNoNames);
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), 40);
  SessionPlan plan;
  plan.counters = {CounterSetup::of(0, *event, period),
                   CounterSetup::of(1, *event, period / 2, false)};
  plan.fixed = {{.counter = 0, .initial = minus_period(100, uarch().fixed_width)}};

  Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(4, period)));

  VERIFY_EQ(sampled.records().size(), 4u);
  for (Record record : sampled.records()) VERIFY_EQ(record.applicable_counters(), bit(0));
  VERIFY_EQ(sampled.run.global_status & bit(1), bit(1)) << "it did overflow";
}

// Two counters on one event with one period overflow together: one record for both, or one for each,
// and between them each counter is named exactly once.
SKIDPROOF_TEST_OVER(PebsApplicable, NamesBothOfTwoThatOverflowTogether,
                    (std::vector<Param>{{.label = "PMC0+PMC1", .numbers = {0, 1}},
                                        {.label = "PMC0+PMC3", .numbers = {0, 3}},
                                        {.label = "PMC1+PMC2", .numbers = {1, 2}},
                                        {.label = "PMC2+PMC3", .numbers = {2, 3}}}),
                    clause::R26, clause::G5) {
  SKIDPROOF_REQUIRE(names_counters(uarch()), SkipCategory::kNotOnThisMicroarch, kNoNames);
  const auto one = static_cast<unsigned>(param().number(0));
  const auto other = static_cast<unsigned>(param().number(1));
  const arch::Event* event = sparse_event(uarch(), "taken", one);
  SKIDPROOF_REQUIRE(event != nullptr && (event->pebs_counters & bit(other)) != 0,
                    SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), 40);
  SessionPlan plan;
  plan.counters = {CounterSetup::of(one, *event, period), CounterSetup::of(other, *event, period)};

  Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(3, period)));

  uint64_t named = 0;
  size_t shared = 0, namings = 0;
  for (Record record : sampled.records()) {
    const uint64_t applicable = record.applicable_counters();
    VERIFY_EQ(applicable & ~(bit(one) | bit(other)), 0u);
    VERIFY_NE(applicable, 0u);
    named |= applicable;
    shared += applicable == (bit(one) | bit(other));
    namings += static_cast<size_t>(__builtin_popcountll(applicable));
  }
  evidence("records", sampled.records().size());
  evidence("shared", shared);
  VERIFY_EQ(named, bit(one) | bit(other));
  VERIFY_EQ(namings, 6u) << "three overflows of each";
}

// Far apart, each record names its own counter.
SKIDPROOF_TEST(PebsApplicable, NamesOneOfTwoThatOverflowApart, clause::G5, clause::R26) {
  SKIDPROOF_REQUIRE(names_counters(uarch()), SkipCategory::kNotOnThisMicroarch, kNoNames);
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr && (event->pebs_counters & bit(2)) != 0,
                    SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), 40);
  SessionPlan plan;
  plan.counters = {CounterSetup::of(0, *event, period), CounterSetup::of(2, *event, period)};
  plan.counters[1].initial = minus_period(period + period / 2, uarch().gp_width);
  plan.counters[1].reset = minus_period(period, uarch().gp_width);

  Sampled sampled = need(sample(machine(), plan, code, 4 * (period + 1)));

  VERIFY_GE(sampled.records().size(), 6u);
  uint64_t last = bit(2);
  for (Record record : sampled.records()) {
    VERIFY_EQ(record.applicable_counters(), last == bit(0) ? bit(2) : bit(0)) << "in turn";
    last = record.applicable_counters();
  }
}

// --- Time stamp

// The handler looks at the clock behind each record: the stamp lies between the one before and it.
SKIDPROOF_TEST_OVER(PebsApplicable, StampsEachRecordBetweenItsInterrupts,
                    over::words({"load", "store", "taken"}), clause::G6, clause::D7, clause::R28) {
  SKIDPROOF_REQUIRE(has_time_stamp(uarch()), SkipCategory::kNotOnThisMicroarch, kNoStamp);
  const arch::Event* event = sparse_event(uarch(), param().word());
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  SKIDPROOF_REQUIRE_EXACT(param().word());
  const Program& code = program("sparse_event", sparse_parameters(uarch(), param().word()));
  constexpr size_t kRecords = 12;
  SessionPlan plan = one_counter(0, *event, usable_period(uarch(), 0, *event, 40), kRecords);
  plan.threshold_records = 1;  // every record from the first on

  Sampled sampled = need(
      sample(machine(), plan, code, iterations_for_exactly(kRecords, plan.counters[0].period)));

  const std::vector<Pmi>& pmis = sampled.run.log.pmis;
  VERIFY_EQ(sampled.records().size(), kRecords);
  VERIFY_EQ(pmis.size(), kRecords);
  if (sampled.records().size() != pmis.size()) return;
  for (size_t i = 0; i < pmis.size(); ++i) {
    const uint64_t stamp = sampled.records()[i].tsc();
    VERIFY_LE(stamp, pmis[i].tsc) << "record " << i << " from after its interrupt";
    if (i > 0) {
      VERIFY_GT(stamp, pmis[i - 1].tsc) << "record " << i;
    }
  }
  evidence("first", sampled.records().front().tsc());
  evidence("first-interrupt", pmis.front().tsc);
}

SKIDPROOF_TEST(PebsApplicable, StampsRecordsInTheOrderOfTime, clause::G6) {
  SKIDPROOF_REQUIRE(has_time_stamp(uarch()), SkipCategory::kNotOnThisMicroarch, kNoStamp);
  const arch::Event* event = dense_event(uarch());
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  constexpr size_t kRecords = 200;
  const uint64_t period = usable_period(uarch(), 400);

  Sampled sampled = need(sample(machine(), one_counter(0, *event, period, kRecords),
                                program("mixed"), iterations_for(kRecords, period, 4)));

  VERIFY_EQ(sampled.records().size(), kRecords);
  uint64_t last = 0;
  for (Record record : sampled.records()) {
    VERIFY_GT(record.tsc(), last);
    last = record.tsc();
  }
  if (sampled.records().empty()) return;
  const uint64_t span = last - sampled.records().front().tsc();
  evidence("span", span);
  VERIFY_LE(span, sampled.run.log.tsc) << "longer than the run";
}

}  // namespace skidproof::check::pebs_applicable
