// DS recording and what interrupts ordinary execution: system-management mode, machine checks, INIT
// and RESET.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "harness/check/check.h"
#include "suites/branches.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::ds_modes {
namespace {

using namespace suites;
using arch::bit;
using arch::Gpr;
using arch::IA32_DEBUGCTL;
using arch::IA32_PEBS_ENABLE;
using arch::IA32_PERF_GLOBAL_CTRL;
using arch::Signal;

constexpr uint64_t kWishedPeriod = 10;
constexpr char kNoEvent[] = "no sparse precise event";
constexpr char kCannot[] = "this machine cannot bring that about";
constexpr char kNoSmmFreeze[] = "no FREEZE_WHILE_SMM_EN (IA32_PERF_CAPABILITIES[12])";

template <typename T>
bool refused(const Expected<T>& result) {
  return !result && result.error().code == ErrorCode::kNotAvailable;
}

// Three of a kind, spread over a run of so many instructions.
std::vector<DisturbanceAt> three(Disturbance what, Random& random, uint64_t instructions) {
  std::vector<DisturbanceAt> all;
  for (uint64_t third = 0; third < 3; ++third) {
    const uint64_t from = third * (instructions / 3);
    all.push_back({.what = what, .after = random.between(from, from + instructions / 3 - 2)});
  }
  return all;
}

// How many instructions of the program run before its loop's body runs for the nth time, from 0.
uint64_t before_body(const Program& code, uint64_t nth) {
  return code.once.instructions - 1 + nth * code.per_iteration.instructions;
}

// The one event of an iteration that is sampled: its jump, since no assist has any; on NetBurst, which
// samples none, its load.
std::string_view word_of(const arch::Microarch& microarch) {
  return microarch.architectural_perfmon() ? "taken" : "load";
}

SessionPlan load_plan(const arch::Microarch& microarch, unsigned counter,
                      const arch::Event& event) {
  return one_counter(counter, event, usable_period(microarch, counter, event, kWishedPeriod),
                     safe_records(microarch, 128));
}

}  // namespace

SKIDPROOF_SUITE(DsModes, kEdges);

// --- System-management mode

SKIDPROOF_COMMON_TEST_OVER(DsModes, StoreNoBranchInSmm, over::words({"running", "frozen"}),
                           clause::R56, clause::B21, clause::B22, clause::B2) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const bool frozen = param().word() == "frozen";
  SKIDPROOF_REQUIRE(!frozen || uarch().smm_freeze, SkipCategory::kNotOnThisMicroarch, kNoSmmFreeze);
  constexpr uint64_t kIterations = 30;
  const Program& code = program("branch_stream", "trips=3");
  SessionPlan plan = trace_plan();
  plan.freeze_while_smm = frozen;
  Session session = need(Session::open(machine(), plan));

  Expected<SessionRun> run = session.run(
      code, kIterations, three(Disturbance::kSmi, random(), code.total(kIterations).instructions));
  SKIDPROOF_REQUIRE(!refused(run), SkipCategory::kMachineLimit, kCannot);
  const SessionRun done = need(std::move(run));

  const std::vector<Branch> expected = stream_branches(code, kIterations);
  const Trace trace = trace_of(code, session.branch_records());
  evidence("interrupts", done.log.disturbances);
  evidence("foreign-records", trace.foreign);
  VERIFY_EQ(done.log.disturbances, 3u);
  VERIFY_EQ(trace.foreign, 0u) << "records of the handler in SMM";
  VERIFY_EQ(agreeing(expected, trace.branches), expected.size())
      << "every branch before and behind RSM";
  VERIFY_EQ(trace.branches.size(), expected.size());
}

SKIDPROOF_COMMON_TEST(DsModes, RecordNoEventInSmm, clause::R56, clause::B22) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = sparse_event(uarch(), word_of(uarch()), counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), word_of(uarch())));
  const SessionPlan plan = load_plan(uarch(), counter, *event);
  const uint64_t iterations = iterations_for_exactly(12, plan.counters[0].period);
  Session session = need(Session::open(machine(), plan));

  Expected<SessionRun> run =
      session.run(code, iterations,
                  three(Disturbance::kSmi, random(), code.total(iterations).instructions / 2));
  SKIDPROOF_REQUIRE(!refused(run), SkipCategory::kMachineLimit, kCannot);
  const SessionRun done = need(std::move(run));

  const Instruction* jump = code.at(code.mark("loop.jnz"));
  uint64_t of_others = 0;
  uint64_t of_event = 0;
  for (Record record : session.records()) {
    const uint64_t ip = record.ip();
    of_others += foreign(code, ip) ? 1 : 0;
    // The jump that ends the loop is an event, too, where jumps are counted whether taken or not.
    const bool behind_loop = jump != nullptr && ip == jump->end();
    of_event += ip == code.mark("after") || ip == code.mark("event") || behind_loop ? 1 : 0;
  }
  evidence("records", session.records().size());
  VERIFY_EQ(done.log.disturbances, 3u);
  VERIFY_LE(of_others, kForeignAllowed);
  VERIFY_EQ(of_event + of_others, session.records().size()) << "records of the program's events";
  VERIFY_GE(of_event, 5u) << "half of the run lies behind the last RSM";
}

// Nothing but FREEZE_WHILE_SMM_EN keeps the handler out of the counts.
SKIDPROOF_TEST(DsModes, CountInSmmWithoutTheFreeze, clause::R56, clause::B21) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("mixed", "");
  SessionPlan plan;
  plan.buffer_records = 1;
  plan.counters = {plain_counter(0, *event)};
  constexpr uint64_t kIterations = 50;
  Session session = need(Session::open(machine(), plan));
  const SessionRun quiet = need(session.run(code, kIterations));

  Expected<SessionRun> run = session.run(
      code, kIterations, three(Disturbance::kSmi, random(), code.total(kIterations).instructions));
  SKIDPROOF_REQUIRE(!refused(run), SkipCategory::kMachineLimit, kCannot);
  const SessionRun done = need(std::move(run));

  VERIFY_EQ(done.log.disturbances, 3u);
  VERIFY_GE(done.counters.at(0), quiet.counters.at(0) + 3) << "RSM alone is an instruction";
}

// A run that the handler in SMM cannot be seen in: the counts are those of one without it.
SKIDPROOF_TEST(DsModes, CountNothingInSmmWhereTheFreezeSaysSo, clause::R56, clause::B21) {
  SKIDPROOF_REQUIRE(uarch().smm_freeze, SkipCategory::kNotOnThisMicroarch, kNoSmmFreeze);
  const Program& code = program("mixed", "");
  SessionPlan plan;
  plan.buffer_records = 1;
  for (Signal signal : {Signal::kInstructions, Signal::kLoads, Signal::kBranches}) {
    const auto counter = static_cast<unsigned>(plan.counters.size());
    const arch::Event* event = counting_event(uarch(), signal, counter);
    if (event != nullptr) plan.counters.push_back(plain_counter(counter, *event));
  }
  if (uarch().fixed_counters > 0) plan.fixed = {{.counter = 0}};
  plan.freeze_while_smm = true;
  constexpr uint64_t kIterations = 50;
  Session session = need(Session::open(machine(), plan));
  const SessionRun quiet = need(session.run(code, kIterations));

  Expected<SessionRun> run = session.run(
      code, kIterations, three(Disturbance::kSmi, random(), code.total(kIterations).instructions));
  SKIDPROOF_REQUIRE(!refused(run), SkipCategory::kMachineLimit, kCannot);
  const SessionRun done = need(std::move(run));

  VERIFY_EQ(done.log.disturbances, 3u);
  VERIFY_GT(quiet.counters.size() + quiet.fixed.size(), 0u);
  const uint64_t edge = 2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions));
  for (size_t i = 0; i < quiet.counters.size(); ++i) {
    VERIFY_THAT(difference(done.counters.at(i), quiet.counters[i]), within(0, edge))
        << "PMC" << plan.counters[i].counter;
  }
  for (size_t i = 0; i < quiet.fixed.size(); ++i) {
    VERIFY_THAT(difference(done.fixed.at(i), quiet.fixed[i]), within(0, edge));
  }
}

SKIDPROOF_TEST(DsModes, ReportWhatIsCountedInSmmWithoutTheFreeze, clause::B21) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "no event counts instructions on PMC0");
  const Program& code = program("mixed", "");
  SessionPlan plan = one_counter(plain_counter(0, *event), 1);
  Session session = need(Session::open(machine(), plan));
  const uint64_t quiet = need(session.run(code, 50)).counters[0];

  Expected<SessionRun> run =
      session.run(code, 50, three(Disturbance::kSmi, random(), code.total(50).instructions));
  SKIDPROOF_REQUIRE(!refused(run), SkipCategory::kMachineLimit, kCannot);

  const uint64_t counted = need(std::move(run)).counters[0];
  evidence("instructions-in-smm", counted - quiet);
  VERIFY_GE(counted, quiet) << "the program's own instructions count in any case";
}

// The SMI comes between the event that overflows and the next one, which is to be recorded.
SKIDPROOF_TEST(DsModes, KeepAnArmedCounterWaitingThroughSmm, clause::R56, clause::R2) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  SKIDPROOF_REQUIRE(uarch().smm_freeze, SkipCategory::kNotOnThisMicroarch, kNoSmmFreeze);
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = sparse_event(uarch(), word_of(uarch()), counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), word_of(uarch())));
  SessionPlan plan = load_plan(uarch(), counter, *event);
  plan.freeze_while_smm = true;
  const uint64_t period = plan.counters[0].period;
  std::vector<DisturbanceAt> interrupts;
  for (uint64_t record = 1; record <= 4; ++record) {
    const uint64_t overflow = record * (period + 1) - 1;  // this many events
    const uint64_t bodies =
        overflow - sparse_events(sparse_word(uarch(), word_of(uarch())), code, 0);
    interrupts.push_back({.what = Disturbance::kSmi, .after = before_body(code, bodies) + 3});
  }
  Session session = need(Session::open(machine(), plan));

  Expected<SessionRun> run = session.run(code, iterations_for_exactly(4, period), interrupts);
  SKIDPROOF_REQUIRE(!refused(run), SkipCategory::kMachineLimit, kCannot);
  const SessionRun done = need(std::move(run));

  VERIFY_EQ(done.log.disturbances, 4u);
  VERIFY_EQ(session.records().size(), 4u);
  for (Record record : session.records()) {
    VERIFY_TRUE(record.ip() == code.mark("after") || record.eventing_ip() == code.mark("event"))
        << "the next event of the program";
  }
}

// FREEZE_PERFMON_ON_PMI is no part of what an SMI switches off.
SKIDPROOF_TEST(DsModes, KeepTheFreezeOnPmiThroughSmm, clause::M24, clause::B21) {
  const Program& code = program("mixed", "");
  Restore restore(machine(), {IA32_DEBUGCTL});
  RunPlan plan;
  plan.iterations = 50;
  plan.enable = {{IA32_DEBUGCTL, arch::debugctl::kFreezePerfmonOnPmi}};
  plan.disturbances = {
      {.what = Disturbance::kSmi, .after = code.total(plan.iterations).instructions / 2}};
  plan.read = {IA32_DEBUGCTL};

  Expected<RunLog> run = machine().run(code, plan);
  SKIDPROOF_REQUIRE(!refused(run), SkipCategory::kMachineLimit, kCannot);
  const RunLog log = need(std::move(run));

  VERIFY_EQ(log.disturbances, 1u);
  VERIFY_EQ(log.read.at(0) & arch::debugctl::kFreezePerfmonOnPmi,
            arch::debugctl::kFreezePerfmonOnPmi);
}

// --- Machine check

SKIDPROOF_COMMON_TEST(DsModes, StoreNoBranchAfterAMachineCheck, clause::R57, clause::B23) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  constexpr uint64_t kIterations = 30;
  const Program& code = program("branch_stream", "trips=3");
  Session session = need(Session::open(machine(), trace_plan()));
  const uint64_t instructions = code.total(kIterations).instructions;
  const uint64_t after = random().between(instructions / 4, instructions / 2);

  Expected<SessionRun> run =
      session.run(code, kIterations, {{.what = Disturbance::kMachineCheck, .after = after}});
  SKIDPROOF_REQUIRE(!refused(run), SkipCategory::kMachineLimit, kCannot);
  const SessionRun done = need(std::move(run));

  const std::vector<Branch> expected = stream_branches(code, kIterations);
  const auto before = static_cast<size_t>(
      std::count_if(expected.begin(), expected.end(),
                    [after](const Branch& branch) { return branch.instruction <= after; }));
  const Trace trace = trace_of(code, session.branch_records());
  evidence("records", session.branch_records().size());
  VERIFY_EQ(done.log.disturbances, 1u);
  VERIFY_EQ(trace.branches.size(), before) << "branches before the machine check";
  VERIFY_EQ(agreeing(expected, trace.branches), before);

  session.rewind_branches();
  need(session.resume(code, kIterations));
  VERIFY_EQ(trace_of(code, session.branch_records()).branches.size(), expected.size())
      << "enabled again";
}

SKIDPROOF_COMMON_TEST(DsModes, RecordNoEventAfterAMachineCheck, clause::R57, clause::B23) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = sparse_event(uarch(), word_of(uarch()), counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), word_of(uarch())));
  const SessionPlan plan = load_plan(uarch(), counter, *event);
  const uint64_t period = plan.counters[0].period;
  const uint64_t iterations = iterations_for_exactly(12, period);
  const uint64_t after = before_body(code, iterations_for_exactly(4, period));
  Session session = need(Session::open(machine(), plan));

  Expected<SessionRun> run =
      session.run(code, iterations, {{.what = Disturbance::kMachineCheck, .after = after}});
  SKIDPROOF_REQUIRE(!refused(run), SkipCategory::kMachineLimit, kCannot);
  const SessionRun done = need(std::move(run));

  const size_t records = session.records().size();
  evidence("records", records);
  VERIFY_EQ(done.log.disturbances, 1u);
  VERIFY_EQ(records, 4u) << "those before the machine check";

  need(session.run(code, iterations_for_exactly(3, period)));
  VERIFY_EQ(session.records().size(), records + 3) << "enabled again";
}

// --- INIT and RESET

SKIDPROOF_TEST_OVER(DsModes, AreClearedBy, over::words({"INIT", "RESET"}), clause::R57,
                    clause::M20) {
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = sparse_event(uarch(), word_of(uarch()), counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const uint64_t trace = has_branch_trace(machine())
                             ? uarch().branch_trace.messages | uarch().branch_trace.store |
                                   uarch().branch_trace.interrupt
                             : 0;
  const bool pebs = uarch().pebs_in_ds_area();  // of architectural PEBS no source says it
  SKIDPROOF_REQUIRE(pebs || trace != 0, SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), word_of(uarch())));
  SessionPlan session_plan = load_plan(uarch(), counter, *event);
  if (trace != 0) session_plan.branches = BranchTraceSetup{};
  Session session = need(Session::open(machine(), session_plan));
  RunPlan plan;
  plan.iterations = iterations_for_exactly(8, session_plan.counters[0].period);
  plan.enable = {{IA32_PERF_GLOBAL_CTRL, bit(counter)}};
  if (pebs) plan.enable.insert(plan.enable.begin(), {IA32_PEBS_ENABLE, bit(counter)});
  if (trace != 0) plan.enable.insert(plan.enable.begin(), {IA32_DEBUGCTL, trace});
  plan.disturbances = {{.what = param().word() == "INIT" ? Disturbance::kInit : Disturbance::kReset,
                        .after = code.total(plan.iterations).instructions / 2}};
  plan.read = {IA32_DEBUGCTL};
  if (pebs) plan.read.push_back(IA32_PEBS_ENABLE);

  Expected<RunLog> run = machine().run(code, plan);
  SKIDPROOF_REQUIRE(!refused(run), SkipCategory::kMachineLimit, kCannot);
  const RunLog log = need(std::move(run));

  VERIFY_EQ(log.disturbances, 1u);
  VERIFY_TRUE(log.abandoned);
  if (pebs) {
    VERIFY_EQ(log.read.at(1), 0u) << "IA32_PEBS_ENABLE";
  }
  VERIFY_EQ(log.read.at(0) & uarch().branch_trace.all(), 0u) << "IA32_DEBUGCTL";
  VERIFY_TRUE(session.index() > session.base() || session.branch_index() > session.branch_base())
      << "there was recording before";
}

}  // namespace skidproof::check::ds_modes
