// PEBS in company: counters that overflow together or one event apart, interrupts of other counters
// and of the PEBS counter itself, facilities beside a second PEBS event.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/check/check.h"
#include "pebs/arch/reserved.h"
#include "suites/exact.h"
#include "suites/load_latency.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_company {
namespace {

using namespace suites;
using arch::bit;
using arch::EventKind;
using arch::pebs_overflow;
using arch::Signal;

// No counter of these tests comes near a second overflow when it is loaded with −kFar.
constexpr uint64_t kFar = uint64_t{1} << 20;
constexpr uint64_t kWishedPeriod = 40;

constexpr char kNoEvent[] = "no such precise event on these counters";
constexpr char kNoStatus[] = "the record holds no status";

// So far apart that an interrupt of one event is handled before the next one.
constexpr uint64_t kFarApart = 4096;

// A PEBS counter that overflows once, after `first` events, and is then loaded with −reset.
CounterSetup overflows_once(unsigned counter, const arch::Event& event, uint64_t first,
                            uint64_t reset, const arch::Microarch& microarch) {
  CounterSetup setup = CounterSetup::of(counter, event, first);
  setup.reset = minus_period(reset, microarch.gp_width);
  return setup;
}

// An event on both counters, or nullptr.
const arch::Event* event_on(const arch::Microarch& microarch, Signal signal, unsigned a,
                            unsigned b) {
  const arch::Event* event = precise_event(microarch, signal, a);
  return event != nullptr && ((event->pebs_counters >> b) & 1) != 0 ? event : nullptr;
}

}  // namespace

SKIDPROOF_SUITE(PebsCollisions, kBuffer);
SKIDPROOF_SUITE(PebsPdirInCompany, kBuffer);
SKIDPROOF_SUITE(PebsLoadLatencyInCompany, kBuffer);
SKIDPROOF_SUITE(PebsInterrupts, kInterrupt);

// --- Collisions

// PMC0 overflows on one event, PMC2 on the same, the next or the one after. Near each other they
// may share a record (R26); two events apart each has its own. Loaded is each exactly once.
SKIDPROOF_TEST_OVER(PebsCollisions, GiveEachCounterItsRecordOrShareOne,
                    over::numbers("apart=", {0, 1, 2, 3, 10}), clause::R26, clause::R19,
                    clause::R16) {
  const arch::Event* event = event_on(uarch(), Signal::kConditional, 0, 2);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  SKIDPROOF_REQUIRE(uarch().record->global_status != arch::kAbsent,
                    SkipCategory::kNotOnThisMicroarch, kNoStatus);
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  const uint64_t apart = param().number();
  const uint64_t first = usable_period(uarch(), 0, *event, kWishedPeriod);
  SessionPlan plan;
  plan.counters = {overflows_once(0, *event, first, kFar, uarch()),
                   overflows_once(2, *event, first + apart, 2 * kFar, uarch())};
  const uint64_t iterations = iterations_for_exactly(1, first + apart);
  const uint64_t events = need(count(machine(), 0, *event, code, iterations));

  Sampled sampled = need(sample(machine(), plan, code, iterations));

  uint64_t shown = 0;
  for (Record record : sampled.records()) shown |= record.global_status() & 0xFF;
  evidence("records", sampled.records().size());
  VERIFY_EQ(shown, bit(0) | bit(2)) << "each overflow shows in a record";
  if (apart < 2) {
    VERIFY_THAT(sampled.records().size(), ::testing::AnyOf(1u, 2u)) << "shared, or one each";
  } else {
    VERIFY_EQ(sampled.records().size(), 2u);
    VERIFY_EQ(sampled.records().front().global_status() & 0xFF, bit(0));
    VERIFY_EQ(sampled.records().back().global_status() & 0xFF, bit(2));
  }
  // Counted since its own record, which came one event behind its overflow, or with the other's
  // record right before that, or right behind it.
  for (size_t i = 0; i < 2; ++i) {
    const uint64_t since = sampled.run.counters[i] - *plan.counters[i].reset;
    const uint64_t due = events - (first + (i == 0 ? 0 : apart) + 1);
    const uint64_t tolerance = apart < 2 ? 1 : 0;
    VERIFY_GE(since + tolerance, due) << "PMC" << plan.counters[i].counter;
    VERIFY_LE(since, due + tolerance) << "PMC" << plan.counters[i].counter;
  }
}

// Linux finds zero in the status of a record when it cleared the bit in between (R24). Whatever the
// record shows, a record loads its counter, and a counter without one counts on.
SKIDPROOF_TEST_OVER(PebsCollisions, KeepTheCountWhenSoftwareClearsTheStatusOfAnArmedCounter,
                    over::counters({0, 1, 2, 3}), clause::R24, clause::R19) {
  const auto counter = static_cast<unsigned>(param().number());
  const std::string_view word = sparse_word(uarch(), "store");
  const arch::Event* event = sparse_event(uarch(), word, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  SKIDPROOF_REQUIRE(!distributes(uarch(), counter), SkipCategory::kNotOnThisMicroarch, kNeverArmed);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), word));
  const uint64_t first = usable_period(uarch(), counter, *event, kWishedPeriod);
  const uint64_t own = need(count(machine(), counter, *event, code, first));
  SKIDPROOF_REQUIRE(own == sparse_events(word, code, first), SkipCategory::kMachineLimit,
                    "the machine's own code around a program has such events");
  const CounterSetup setup = overflows_once(counter, *event, first, kFar, uarch());
  Sampled sampled = need(sample(machine(), one_counter(setup, 8), code, first));
  VERIFY_EQ(sampled.records().size(), 0u);
  VERIFY_EQ(sampled.run.global_status & bit(counter), bit(counter)) << "armed, not yet triggered";

  need(machine().wrmsr(arch::IA32_PERF_GLOBAL_OVF_CTRL, bit(counter)));
  constexpr uint64_t kMore = 5;
  const SessionRun later = need(sampled.session.resume(code, kMore));

  const size_t records = sampled.records().size();
  evidence("records", records);
  VERIFY_LE(records, 1u);
  if (records == 0) {
    VERIFY_EQ(later.counters[0], kMore) << "no record, hence no reload";
    return;
  }
  // The assist's own stores may be counted; they are few beside what the record loads.
  const calibrate::Figure& assist = calibrated(calibrate::Quantity::kRecordStores);
  const bool seen = word == "store" && records_count(assist);
  const auto more = seen ? static_cast<uint64_t>(std::ceil(2 * assist.high)) : 0;
  VERIFY_GE(later.counters[0], *setup.reset + kMore - 1) << "loaded by the record";
  VERIFY_LE(later.counters[0], *setup.reset + kMore - 1 + more) << "loaded by the record";
  if (uarch().record->global_status == arch::kAbsent) return;
  const uint64_t shown = sampled.records().front().global_status() & 0xFF;
  evidence("status-in-the-record", shown == 0 ? "zero" : "the counter's bit");
  VERIFY_THAT(shown, ::testing::AnyOf(uint64_t{0}, bit(counter)));
}

// --- Interrupts beside PEBS

// PMC1 interrupts on the very event on which a PEBS counter overflows. Its interrupt waits for no
// record of another counter (R27), finds OvfBuffer clear (R25 lets it find the PEBS counter's bit),
// and the record follows.
SKIDPROOF_TEST_OVER(PebsCollisions, LetAnInterruptOfAnotherCounterComeFirst,
                    over::counters({0, 2, 3}), clause::R27, clause::R25, clause::R21) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = event_on(uarch(), Signal::kStores, counter, 1);
  if (event == nullptr) {  // PMC1 need not do PEBS here
    event = sparse_event(uarch(), "store", counter);
    if (event != nullptr && ((event->counters >> 1) & 1) == 0) event = nullptr;
  }
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  SKIDPROOF_REQUIRE(!distributes(uarch(), counter), SkipCategory::kNotOnThisMicroarch, kNeverArmed);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "store", kFarApart));
  const uint64_t first = usable_period(uarch(), counter, *event, 33);
  SessionPlan plan;
  plan.counters = {overflows_once(counter, *event, first, kFar, uarch()),
                   CounterSetup::of(1, *event, first, false)};
  plan.counters[1].interrupt = true;

  Sampled sampled = need(sample(machine(), plan, code, first + 5));

  VERIFY_EQ(sampled.records().size(), 1u);
  VERIFY_EQ(sampled.run.log.pmis.size(), 1u);
  for (const Pmi& pmi : sampled.run.log.pmis) {
    VERIFY_EQ(pmi.global_status & bit(1), bit(1)) << "the interrupting counter";
    VERIFY_EQ(pmi.global_status & pebs_overflow(uarch()), 0u) << "no threshold was reached";
    VERIFY_EQ(pmi.pebs_index, sampled.session.base()) << "before the record";
    evidence("pebs-counter-seen-set", (pmi.global_status & bit(counter)) != 0);
  }
}

// With INT the assist comes first and the overflow interrupt behind it: one for each record where
// the threshold is out of the way.
SKIDPROOF_TEST_OVER(PebsInterrupts, ComeAfterTheRecordForAPebsCounterWithInt,
                    over::counters({0, 1, 2, 3}), clause::R34, clause::R28) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken", kFarApart));
  const uint64_t period = usable_period(uarch(), counter, *event, 33);
  SessionPlan plan = one_counter(counter, *event, period, 8);
  plan.counters[0].interrupt = true;
  constexpr uint64_t kRecords = 3;

  Sampled sampled = need(sample(machine(), plan, code, kRecords * (period + 1) + 5));

  VERIFY_EQ(sampled.records().size(), kRecords);
  VERIFY_EQ(sampled.run.log.pmis.size(), kRecords) << "one for each overflow";
  uint64_t written = sampled.session.base();
  for (const Pmi& pmi : sampled.run.log.pmis) {
    written += record_bytes(uarch());
    VERIFY_EQ(pmi.pebs_index, written) << "its record is there";
    VERIFY_EQ(pmi.global_status & pebs_overflow(uarch()), 0u) << "no threshold was reached";
  }
}

// The record that reaches the threshold gives two: the threshold's, then the overflow's. Where the
// handler of the first takes time, the second may come while the entry is masked, and is lost.
SKIDPROOF_TEST_OVER(PebsInterrupts, AreTwoForAPebsCounterWithIntAtTheThreshold,
                    over::counters({0, 1, 2, 3}), clause::R34, clause::R44) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken", kFarApart));
  const uint64_t period = usable_period(uarch(), counter, *event, 33);
  SessionPlan plan = one_counter(counter, *event, period, 8);
  plan.counters[0].interrupt = true;
  plan.threshold_records = 1;

  Sampled sampled = need(sample(machine(), plan, code, period + 6));

  const std::vector<Pmi>& pmis = sampled.run.log.pmis;
  evidence("interrupts", pmis.size());
  VERIFY_EQ(sampled.records().size(), 1u);
  VERIFY_GE(pmis.size(), machine().identity().instant_handler ? 2u : 1u);
  VERIFY_LE(pmis.size(), 2u);
  for (const Pmi& pmi : pmis) {
    VERIFY_EQ(pmi.pebs_index, sampled.session.threshold()) << "the assist came first";
  }
  if (pmis.empty()) return;
  VERIFY_EQ(pmis.front().global_status & pebs_overflow(uarch()), pebs_overflow(uarch()))
      << "the threshold's comes first";
  if (pmis.size() == 2) {
    evidence("status-of-the-second", results::hex(pmis.back().global_status));
  }
}

// Software may meet an interrupt with nothing in the status (R55); each threshold is announced by
// one that says so all the same.
SKIDPROOF_TEST(PebsInterrupts, SayWhyAtEachThresholdEvenIfOthersDoNot, clause::R55, clause::R44) {
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken", 512));
  const uint64_t period = usable_period(uarch(), counter, *event, 33);
  SessionPlan plan = one_counter(counter, *event, period, 4);
  plan.threshold_records = 1;
  plan.pmi.rewind_index = true;
  constexpr uint64_t kRecords = 20;

  Sampled sampled = need(sample(machine(), plan, code, kRecords * (period + 1) + period / 2));

  uint64_t announced = 0, empty = 0;
  for (const Pmi& pmi : sampled.run.log.pmis) {
    announced += (pmi.global_status & pebs_overflow(uarch())) != 0;
    empty += pmi.global_status == 0;
  }
  evidence("without-a-status-bit", empty);
  VERIFY_EQ(announced, kRecords);
}

// --- Facilities that are to be alone

// One PEBS counter of a facility and an ordinary one on stores, each overflowing once.
SessionPlan in_company(const arch::Microarch& microarch, const CounterSetup& facility,
                       const arch::Event& stores, unsigned other, uint64_t first) {
  SessionPlan plan;
  plan.counters = {facility, overflows_once(other, stores, first, kFar, microarch)};
  plan.counters[0].reset = minus_period(kFar, microarch.gp_width);
  plan.buffer_records = 16;
  return plan;
}

// Of two counters that overflow once each.
std::string outcome_of(size_t records) {
  if (records == 0) return "nothing recorded";
  if (records == 1) return "one record of the two";
  return records == 2 ? "a record of each" : fmt::format("{} records of the two", records);
}

// The manual wants the precise distribution alone where its event is published so (P6): there the
// outcome is reported, but no record comes without an overflow.
SKIDPROOF_TEST_OVER(PebsPdirInCompany, GivesNoRecordWithoutAnOverflow, over::counters({0, 2, 3}),
                    clause::P6, clause::R1, clause::R13) {
  SKIDPROOF_REQUIRE(uarch().pdir_counter != 0, SkipCategory::kNotOnThisMicroarch,
                    "no precise distribution on a general-purpose counter");
  const auto pdir = static_cast<unsigned>(__builtin_ctz(uarch().pdir_counter));
  const auto other = static_cast<unsigned>(param().number());
  const arch::Event* distribution = facility_event(uarch(), EventKind::kPdir);
  const arch::Event* stores = precise_event(uarch(), Signal::kStores, other);
  SKIDPROOF_REQUIRE(distribution != nullptr && stores != nullptr && other != pdir,
                    SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters("store"));
  const uint64_t instructions = usable_period(uarch(), pdir, *distribution, 1000);
  // The other counter overflows in front of the distribution's record, near it and behind it: what the assist itself
  // stores may be counted and bring it about in the middle of that record, which then stands for both.
  results::Json outcomes;
  for (const uint64_t stored : {kWishedPeriod / 4, kWishedPeriod, 2 * kWishedPeriod}) {
    const SessionPlan plan =
        in_company(uarch(), CounterSetup::of(pdir, *distribution, instructions), *stores, other,
                   usable_period(uarch(), other, *stores, stored));
    SessionPlan alone = plan;
    alone.counters.resize(1);
    VERIFY_EQ(need(sample(machine(), alone, code, 100)).records().size(), 1u)
        << "the control, alone";

    Sampled sampled = need(sample(machine(), plan, code, 100));

    outcomes[fmt::format("stores={}", stored)] = outcome_of(sampled.records().size());
    VERIFY_EQ(sampled.records().remainder_bytes(), 0u);
    VERIFY_LE(sampled.records().size(), 2u)
        << "each counter overflowed once, the other after " << stored << " stores";
    if (!distribution->taken_alone) {
      VERIFY_EQ(sampled.records().size(), 2u);
    }
  }
  observe("outcome", outcomes);
}

// The freeze acts on interrupts; the distribution has none to give here.
SKIDPROOF_TEST(PebsPdirInCompany, RecordsTheOverflowingEventWithTheFreezeArmed, clause::R13,
               clause::R52) {
  SKIDPROOF_REQUIRE(uarch().pdir_counter != 0, SkipCategory::kNotOnThisMicroarch,
                    "no precise distribution on a general-purpose counter");
  const auto pdir = static_cast<unsigned>(__builtin_ctz(uarch().pdir_counter));
  const arch::Event* distribution = facility_event(uarch(), EventKind::kPdir);
  SKIDPROOF_REQUIRE(distribution != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  // A loop in which few of the overflows come at the fused pair that closes it.
  const Program& code = program("sparse_event", sparse_parameters("store", 68));
  const uint64_t period = usable_period(uarch(), pdir, *distribution, 200);
  constexpr uint64_t kRecords = 100;
  SessionPlan plan = one_counter(pdir, *distribution, period, 2 * kRecords);
  plan.fixed = {{.counter = 0}};  // instructions retired
  plan.freeze_on_pmi = true;

  Sampled sampled =
      need(sample(machine(), plan, code, kRecords * period / code.per_iteration.instructions + 1));

  const uint64_t mask = arch::gp_counter_mask(uarch());
  const uint64_t records = sampled.records().size();
  const uint64_t rest = (sampled.run.counters[0] - minus_period(period, uarch().gp_width)) & mask;
  const uint64_t accounted = records * period + rest;
  const uint64_t missing =
      std::max(sampled.run.fixed[0], accounted) - std::min(sampled.run.fixed[0], accounted);
  evidence("records", records);
  evidence("missing", missing);
  VERIFY_GE(records, kRecords * 9 / 10);
  // R13's event N is inferred, and so one more may pass; an ordinary event lets several.
  VERIFY_LE(missing,
            records * 3 / 2 + 2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions)));
  observe("events-that-pass-before-a-record",
          static_cast<double>(missing) / static_cast<double>(records));
  VERIFY_EQ(sampled.run.log.pmis.size(), 0u);
}

// Load latency excludes every other PEBS event where its event is published so (R32): what becomes
// of both is reported, but no record comes without an overflow.
SKIDPROOF_TEST(PebsLoadLatencyInCompany, GivesNoRecordWithoutAnOverflow, clause::R32, clause::R1) {
  const arch::Event* latency = facility_event(uarch(), EventKind::kLoadLatency);
  SKIDPROOF_REQUIRE(latency != nullptr, SkipCategory::kNotOnThisMicroarch, "no load latency");
  const auto counter = static_cast<unsigned>(__builtin_ctz(uarch().load_latency_counters));
  const unsigned other = counter == 0 ? 1 : 0;
  const arch::Event* taken = precise_event(uarch(), Signal::kConditional, other);
  SKIDPROOF_REQUIRE(taken != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "no precise event for conditional jumps");
  const Program& chase = program("pointer_chase", "bytes=8K");
  const uint64_t period = usable_period(uarch(), counter, *latency, kWishedPeriod);
  SessionPlan plan =
      in_company(uarch(), CounterSetup::of(counter, *latency, period), *taken, other, period);
  plan.load_latency_threshold = least_threshold(uarch());
  SessionPlan alone = plan;
  alone.counters.resize(1);
  const uint64_t kIterations =
      std::max<uint64_t>(5000, loads_for(2, period, calibrated(calibrate::Quantity::kLoadsATag)));
  const size_t control = need(sample(machine(), alone, chase, kIterations)).records().size();
  if (control == 0) {
    observe("tagging", "too sparse for one record");
    return;
  }
  VERIFY_EQ(control, 1u) << "the control, alone";

  Sampled sampled = need(sample(machine(), plan, chase, kIterations));

  evidence("records", sampled.records().size());
  observe("outcome", outcome_of(sampled.records().size()));
  VERIFY_EQ(sampled.records().remainder_bytes(), 0u);
  VERIFY_LE(sampled.records().size(), 2u) << "each counter overflowed once";
  if (!latency->taken_alone) {
    VERIFY_EQ(sampled.records().size(), 2u);
  }
}

}  // namespace skidproof::check::pebs_company
