// Reprogramming: stopped first, PEBS records nothing more, starts afresh with whatever it is
// programmed with, and takes what software changed in the DS area; changed while it counts, it
// promises nothing.
#include <cstdint>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_reprogramming {
namespace {

using namespace suites;
using arch::bit;
using arch::IA32_PEBS_ENABLE;
using arch::IA32_PERF_GLOBAL_CTRL;
using arch::Signal;

constexpr uint64_t kWishedPeriod = 40;
constexpr char kNoEvent[] = "no precise store event on this counter";
constexpr char kOwnStores[] = "the machine's own code around a program stores";

// A run in which nothing is written to a register but what is given.
RunPlan with(std::initializer_list<MsrWrite> enable) {
  RunPlan run;
  run.iterations = 50;
  run.enable = enable;
  run.disable = {{IA32_PERF_GLOBAL_CTRL, 0}};
  return run;
}

}  // namespace

SKIDPROOF_SUITE(PebsReprogramming, kInterrupt);

// The overflow falls on the last store; then GLOBAL_CTRL is cleared, or PEBS_ENABLE is.
SKIDPROOF_TEST_OVER(PebsReprogramming, LeavesNoRecordBehindOnceStopped,
                    over::counters({0, 1, 2, 3}), clause::R39, clause::R3) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = precise_event(uarch(), Signal::kStores, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  SKIDPROOF_REQUIRE(!distributes(uarch(), counter), SkipCategory::kNotOnThisMicroarch, kNeverArmed);
  const Program& code = program("sparse_event", sparse_parameters("store"));
  const uint64_t first = usable_period(uarch(), counter, *event, kWishedPeriod);
  const uint64_t events = need(count(machine(), counter, *event, code, first));
  SKIDPROOF_REQUIRE(events == code.total(first).stores, SkipCategory::kMachineLimit, kOwnStores);
  Sampled sampled = need(sample(machine(), one_counter(counter, *event, first, 8), code, first));
  VERIFY_EQ(sampled.run.global_status & bit(counter), bit(counter)) << "armed, not yet triggered";
  VERIFY_EQ(sampled.session.index(), sampled.session.base()) << "stopped, it records nothing";

  need(machine().run(code, with({})));
  VERIFY_EQ(sampled.session.index(), sampled.session.base()) << "with GLOBAL_CTRL clear";

  need(machine().run(code, with({need(pebs_switch(machine(), counter, false)),
                                 {IA32_PERF_GLOBAL_CTRL, bit(counter)}})));
  VERIFY_EQ(sampled.session.index(), sampled.session.base()) << "with PEBS_ENABLE clear";
  const uint64_t value = need(machine().rdmsr(arch::IA32_PMC0 + counter));
  VERIFY_EQ(value, code.total(50).stores) << "it counts on from its overflow";
}

// A counter is armed by one programme, stopped, and programmed with another event: that one starts
// from nothing.
SKIDPROOF_TEST_OVER(PebsReprogramming, StartsAfreshWhenItWasStoppedFirst,
                    over::counters({0, 1, 2, 3}), clause::R14, clause::R39) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* stores = precise_event(uarch(), Signal::kStores, counter);
  const arch::Event* taken = precise_event(uarch(), Signal::kConditional, counter);
  SKIDPROOF_REQUIRE(stores != nullptr && taken != nullptr, SkipCategory::kNotOnThisMicroarch,
                    kNoEvent);
  SKIDPROOF_REQUIRE(!distributes(uarch(), counter), SkipCategory::kNotOnThisMicroarch, kNeverArmed);
  const Program& code = program("sparse_event", sparse_parameters("store"));
  const uint64_t first = usable_period(uarch(), counter, *stores, kWishedPeriod);
  const uint64_t events = need(count(machine(), counter, *stores, code, first));
  SKIDPROOF_REQUIRE(events == code.total(first).stores, SkipCategory::kMachineLimit, kOwnStores);
  {
    Sampled armed = need(sample(machine(), one_counter(counter, *stores, first, 8), code, first));
    VERIFY_EQ(armed.run.counters[0], 0u);
    VERIFY_EQ(armed.session.index(), armed.session.base());
    need(armed.session.close());
  }
  const uint64_t period = usable_period(uarch(), counter, *taken, 50);
  const uint64_t iterations = iterations_for_exactly(4, period);
  const uint64_t jumps = need(count(machine(), counter, *taken, code, iterations));

  Sampled sampled =
      need(sample(machine(), one_counter(counter, *taken, period, 16), code, iterations));

  const Exact expected = exact(uarch(), jumps, period, period, counter);
  evidence("records", sampled.records().size());
  VERIFY_EQ(sampled.records().size(), expected.records);
  VERIFY_EQ(sampled.run.counters[0], expected.counter);
}

// Cleared, set, cleared and set again: each time it records as the first time.
SKIDPROOF_TEST_OVER(PebsReprogramming, RecordsAlikeHoweverOftenItWasStopped,
                    over::counters({0, 1, 2, 3}), clause::R39) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), counter, *event, kWishedPeriod);
  const uint64_t iterations = iterations_for_exactly(4, period);
  const uint64_t events = need(count(machine(), counter, *event, code, iterations));
  const Exact expected = exact(uarch(), events, period, period, counter);
  Session session = need(Session::open(machine(), one_counter(counter, *event, period, 16)));
  for (int i = 0; i < 3; ++i) {
    const SessionRun run = need(session.run(code, iterations));
    VERIFY_EQ(session.records().size(), expected.records) << "run " << i;
    VERIFY_EQ(run.counters[0], expected.counter) << "run " << i;
    session.rewind();
  }
}

// Written while it counts, a counter promises nothing (R14): the outcome is reported. The buffer
// keeps its bounds, and its index moves by whole records.
SKIDPROOF_TEST_OVER(PebsReprogramming, KeepsTheBufferWhenACounterIsWrittenWhileItCounts,
                    over::words({"counter", "select"}), clause::R14, clause::D2, clause::R48) {
  const arch::Event* stores = precise_event(uarch(), Signal::kStores);
  const arch::Event* taken = precise_event(uarch(), Signal::kConditional);
  SKIDPROOF_REQUIRE(stores != nullptr && taken != nullptr, SkipCategory::kNotOnThisMicroarch,
                    kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters("store"));
  const uint64_t period = usable_period(uarch(), 0, *taken, kWishedPeriod);
  constexpr size_t kRoom = 4;
  Session session = need(Session::open(machine(), one_counter(0, *taken, period, kRoom)));
  need(session.run(code, iterations_for_exactly(1, period)));
  VERIFY_EQ(session.records().size(), 1u);

  const bool counter = param().word() == "counter";
  const uint64_t adaptive = need(machine().rdmsr(arch::IA32_PERFEVTSEL0)) & arch::evtsel::kAdaptive;
  const MsrWrite late =
      counter ? MsrWrite{arch::IA32_PMC0, minus_period(period / 2, uarch().gp_width)}
              : MsrWrite{arch::IA32_PERFEVTSEL0,
                         CounterSetup::of(0, *stores, period).select_msr() | adaptive};
  need(machine().run(
      code, with({need(pebs_switch(machine(), 0, true)), {IA32_PERF_GLOBAL_CTRL, bit(0)}, late})));

  const uint64_t moved = session.index() - session.base();
  evidence("records", moved / record_bytes(uarch()));
  VERIFY_EQ(moved % record_bytes(uarch()), 0u);
  VERIFY_LE(session.index(), session.maximum());
}

// Stopped and drained, the fields of the DS area are software's to change, and the next record
// obeys them (R42).
SKIDPROOF_TEST(PebsReprogramming, TakesFieldsOfTheDsAreaThatWereChangedWhileStopped, clause::R42,
               clause::D4, clause::D5) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), 0, *event, kWishedPeriod);
  const uint64_t size = record_bytes(uarch());
  SessionPlan plan = one_counter(0, *event, period, 12);
  Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(2, period)));
  Session& session = sampled.session;
  VERIFY_EQ(session.records().size(), 2u);
  VERIFY_EQ(sampled.run.log.pmis.size(), 0u);
  need(machine().wrmsr(IA32_PEBS_ENABLE, 0));

  session.set_threshold(session.base() + 5 * size);
  session.set_maximum(session.base() + 6 * size);
  const SessionRun shorter = need(session.run(code, iterations_for_exactly(6, period)));
  VERIFY_EQ(session.index(), session.base() + 6 * size) << "the new maximum";
  VERIFY_GE(shorter.log.pmis.size(), 1u) << "the new threshold";
  for (const Pmi& pmi : shorter.log.pmis) VERIFY_GE(pmi.pebs_index, session.threshold());
  need(machine().wrmsr(IA32_PEBS_ENABLE, 0));

  session.set_maximum(session.base() + 12 * size);
  session.set_threshold(session.base() + 20 * size);
  session.set_reset_slot(0, minus_period(2 * period, uarch().gp_width));
  const uint64_t iterations = period + 1 + iterations_for_exactly(1, 2 * period);
  const uint64_t events = need(count(machine(), 0, *event, code, iterations));
  session.rewind();
  const SessionRun longer = need(session.run(code, iterations));
  const Exact expected = exact(uarch(), events, period, 2 * period);
  VERIFY_EQ(session.records().size(), expected.records) << "the new reset value";
  VERIFY_EQ(longer.counters[0], expected.counter);
  VERIFY_EQ(longer.log.pmis.size(), 0u);
}

}  // namespace skidproof::check::pebs_reprogramming
