// Narrow questions about records: what one published erratum spoils and nothing else does, or what it leaves
// alone and another violation would not (pebs/arch/errata).
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/load_latency.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_signatures {
namespace {

using namespace suites;
using arch::EventKind;

// What samples every cycle: a published encoding, or an event of nearly every instruction of which no cycle has
// sixteen.
std::optional<CounterSetup> every_cycle(const arch::Microarch& microarch, unsigned counter,
                                        uint64_t period) {
  for (const arch::Event& e : microarch.events) {
    if (e.precise() && e.cmask >= 10 && e.invert && ((e.pebs_counters >> counter) & 1) != 0) {
      return CounterSetup::of(counter, e, period);
    }
  }
  const arch::Event* event = dense_event(microarch, counter);
  if (event == nullptr) return std::nullopt;
  CounterSetup setup = CounterSetup::of(counter, *event, period);
  setup.cmask = 16;
  setup.invert = true;
  return setup;
}

constexpr char kNoEvent[] = "no precise event for this signal on this counter";
constexpr size_t kMany = 200;  // records: what shows in one of twenty shows in some of them

// How far apart the records of a run lie, of which each should follow the last by a period and an event (R2, R19).
struct Spacing {
  uint64_t records = 0;
  uint64_t exact = 0;
  uint64_t late = 0;      // by one event
  uint64_t repeated = 0;  // with the very next event: no overflow stands behind it
  uint64_t other = 0;
  std::map<int64_t, uint64_t> apart;  // events from the record before -> records
};

// Of the sparse_event kernel, whose RDI counts its iterations down, an event each. Behind a repeated record the
// period begins with it or with the one before: which, no text says.
Spacing spacing_of(const Records& records, uint64_t each) {
  Spacing spacing;
  // RDI of the record before, and of the first with the same overflow.
  uint64_t last = 0, first = 0;
  for (Record record : records) {
    const uint64_t left = record.gpr(arch::Gpr::kRdi);
    const uint64_t apart = last - left, since_first = first - left;
    if (spacing.records++ == 0) {
      last = first = left;
      continue;
    }
    ++spacing.apart[static_cast<int64_t>(apart)];
    if (apart == 1) {
      ++spacing.repeated;
    } else {
      const bool exact = apart == each || since_first == each;
      ++(exact ? spacing.exact : apart == each + 1 ? spacing.late : spacing.other);
      first = left;
    }
    last = left;
  }
  return spacing;
}

// What a sparse event gives on the lowest counter whose overflow arms.
struct SparseSampling {
  unsigned counter = 0;
  const arch::Event* event = nullptr;  // nullptr: there is none
  uint64_t period = 0;
  uint64_t each = 0;   // events from record to record
  size_t records = 0;  // at the most
  SessionPlan plan;
};

SparseSampling sparse_sampling(const arch::Microarch& microarch) {
  SparseSampling what;
  what.counter = arming_counter(microarch);
  what.event = sparse_event(microarch, "taken", what.counter);
  if (what.event == nullptr) return what;
  what.period = usable_period(microarch, what.counter, *what.event, 64);
  what.each = events_a_record(microarch, what.counter, what.period);
  what.records = safe_records(microarch, kMany);
  what.plan = one_counter(what.counter, *what.event, what.period, what.records);
  return what;
}

Expected<Spacing> sparse_spacing(Machine& machine, const SparseSampling& what,
                                 const Program& code) {
  const uint64_t iterations = iterations_for_exactly(what.records, what.period);
  const Sampled sampled = SKIDPROOF_TRY(sample(machine, what.plan, code, iterations));
  return spacing_of(sampled.records(), what.each);
}

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

// Half of the instructions are MOV SS, which keep the processor longer than the other half, no-operations.
SKIDPROOF_TEST(PebsSignatures, RecordTheInstructionBehindAMovSs, clause::R5, clause::R12) {
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = dense_event(uarch(), counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "no event samples nearly every instruction");
  const Program& code = program("special_instruction", "instruction=mov_ss,unroll=16");
  std::set<uint64_t> behind;
  for (const auto& [name, address] : code.marks) {
    if (name.starts_with("behind")) behind.insert(address);
  }
  uint64_t records = 0, directly = 0;
  for (uint64_t run = 0; run < 8; ++run) {
    const uint64_t period = usable_period(uarch(), counter, *event, 61 + run);
    const SessionPlan plan = one_counter(counter, *event, period, safe_records(uarch(), 20));
    const Sampled sampled = need(sample(machine(), plan, code, 400));
    for (Record record : sampled.records()) {
      ++records;
      directly += behind.contains(record.ip()) ? 1 : 0;
    }
  }
  evidence("records", records);
  evidence("directly-behind", directly);
  VERIFY_GE(records, 50u);
  VERIFY_GT(directly, 0u);
}

// Cycles, sampled as public practice does. A record that follows another within a few iterations has no period
// behind it: unless the counter that is sampled sees the cycles of its own records, and these are as many.
SKIDPROOF_TEST_OVER(PebsSignatures, RecordAPeriodOfCyclesOnce,
                    over::numbers("period=", {900, 1000}), clause::R1, clause::R33) {
  constexpr unsigned kInvertedCmask = arch::kQualifierInvert | arch::kQualifierCmask;
  SKIDPROOF_REQUIRE(uarch().architectural_perfmon() &&
                        uarch().expectation(kInvertedCmask) == arch::Expectation::kClassify,
                    SkipCategory::kNotOnThisMicroarch, "nobody samples cycles so");
  const unsigned counter = arming_counter(uarch());
  const uint64_t period = param().number();
  SKIDPROOF_REQUIRE(every_cycle(uarch(), counter, period).has_value(),
                    SkipCategory::kNotOnThisMicroarch, "no event samples nearly every instruction");
  // Loads one after the other, of which none comes in fewer cycles than it has instructions.
  const Program& code = program("pointer_chase", "bytes=1K");
  const size_t room = safe_records(uarch(), 128);
  const auto run = [&](uint64_t each, bool pebs, uint64_t iterations) {
    CounterSetup setup = *every_cycle(uarch(), counter, each);
    setup.pebs = pebs;
    SessionPlan plan = one_counter(setup, room);
    plan.fixed = {{.counter = 1}};
    return need(sample(machine(), plan, code, iterations));
  };
  constexpr uint64_t kIterations = 10'000, kLong = 4000;
  const uint64_t alone = run(kLong, false, kIterations).run.fixed.at(0);
  const uint64_t each = std::max<uint64_t>(alone / kIterations, 1);
  const uint64_t iterations = room * kLong / 2 / each;
  const uint64_t undisturbed = run(kLong, false, iterations).run.fixed.at(0);
  const Sampled rarely = run(kLong, true, iterations);
  const uint64_t few = rarely.records().size();
  observe("cycles-sampled", few != 0);
  SKIDPROOF_REQUIRE(few != 0, SkipCategory::kNoPromise, "no record with these qualifiers");
  const uint64_t cycles = std::max(rarely.run.fixed.at(0), undisturbed);
  const bool sees = few * kLong > undisturbed + (cycles - undisturbed) / 2;
  evidence("cycles-a-record", (cycles - undisturbed) / few);
  evidence("sees-its-own-records", sees);
  constexpr uint64_t kClose = 4;  // iterations
  SKIDPROOF_REQUIRE(!sees || (cycles - undisturbed) / few + 4 * kClose * each < period,
                    SkipCategory::kNoPromise, "a record takes a period, and the counter sees it");

  const Sampled often = run(period, true, room * period / 4 / each);
  uint64_t close = 0, before = 0;
  for (Record record : often.records()) {
    const uint64_t left = record.gpr(arch::Gpr::kRdi);
    close += before != 0 && before - left < kClose ? 1 : 0;
    before = left;
  }
  evidence("records", often.records().size());
  evidence("close", close);
  VERIFY_GE(often.records().size(), 5u);
  VERIFY_LE(close, often.records().size() / 8);
}

// Of many, so that what happens now and then happens at some.
SKIDPROOF_TEST(PebsSignatures, RecordNoOverflowLate, clause::R2) {
  const SparseSampling what = sparse_sampling(uarch());
  SKIDPROOF_REQUIRE(what.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));

  const Spacing spacing = need(sparse_spacing(machine(), what, code));

  histogram("events-apart", "events", spacing.apart, {static_cast<int64_t>(what.each)});
  VERIFY_GE(spacing.records, what.records / 2);
  VERIFY_EQ(spacing.late, 0u);
}

// Whatever is late is so by one event, and most is not.
SKIDPROOF_TEST(PebsSignatures, KeepThePeriodBesideLateRecords, clause::R2, clause::R19) {
  const SparseSampling what = sparse_sampling(uarch());
  SKIDPROOF_REQUIRE(what.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));

  const Spacing spacing = need(sparse_spacing(machine(), what, code));

  histogram("events-apart", "events", spacing.apart, {static_cast<int64_t>(what.each)});
  VERIFY_GE(spacing.records, what.records - what.records / what.period - 1);
  VERIFY_EQ(spacing.repeated, 0u);
  VERIFY_EQ(spacing.other, 0u);
  VERIFY_GT(spacing.exact, spacing.late);
}

// With FREEZE_PERFMON_ON_PMI, which is one of the conditions of BJ58; no interrupt comes.
SKIDPROOF_TEST(PebsSignatures, RecordNoOverflowTwice, clause::R2, clause::R1) {
  SparseSampling what = sparse_sampling(uarch());
  SKIDPROOF_REQUIRE(what.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  what.plan.freeze_on_pmi = uarch().perfmon_version >= 2;

  const Spacing spacing = need(sparse_spacing(machine(), what, code));

  histogram("events-apart", "events", spacing.apart, {static_cast<int64_t>(what.each)});
  VERIFY_GE(spacing.records, what.records / 2);
  VERIFY_EQ(spacing.repeated, 0u);
}

// Left out what is repeated, which most is not, the others lie a period apart.
SKIDPROOF_TEST(PebsSignatures, KeepThePeriodBesideRepeatedRecords, clause::R2, clause::R19) {
  const SparseSampling what = sparse_sampling(uarch());
  SKIDPROOF_REQUIRE(what.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));

  const Spacing spacing = need(sparse_spacing(machine(), what, code));

  histogram("events-apart", "events", spacing.apart, {static_cast<int64_t>(what.each)});
  VERIFY_GE(spacing.records, what.records);
  VERIFY_EQ(spacing.late, 0u);
  VERIFY_EQ(spacing.other, 0u);
  VERIFY_GT(spacing.exact, spacing.repeated);
}

// What became of the first overflow behind the write that enabled PEBS is left open; the counter is loaded by software
// then, with IA32_PEBS_ENABLE as it is.
SKIDPROOF_TEST(PebsSignatures, KeepThePeriodWhilePebsStaysEnabled, clause::R2, clause::R19,
               clause::R39) {
  const SparseSampling what = sparse_sampling(uarch());
  SKIDPROOF_REQUIRE(what.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  Session session = need(Session::open(machine(), what.plan));
  const SessionRun first = need(session.run(code, iterations_for_exactly(1, what.period)));
  evidence("records-of-the-first-overflow", session.records().size());
  session.rewind();
  if (first.global_status != 0) {
    need(machine().wrmsr(arch::IA32_PERF_GLOBAL_OVF_CTRL, first.global_status));
  }
  const uint64_t start = minus_period(what.period, uarch().gp_width);
  need(machine().wrmsr(arch::IA32_PMC0 + what.counter, start));

  need(session.resume(code, iterations_for_exactly(what.records, what.period)));

  const Spacing spacing = spacing_of(session.records(), what.each);
  histogram("events-apart", "events", spacing.apart, {static_cast<int64_t>(what.each)});
  VERIFY_EQ(spacing.records, what.records);
  VERIFY_EQ(spacing.exact + 1, spacing.records);
}

}  // namespace skidproof::check::pebs_signatures
