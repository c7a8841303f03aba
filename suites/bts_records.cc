// The branch trace store: which branches are stored, in which order, and what their records hold.
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "harness/calibrate/calibration.h"
#include "harness/check/check.h"
#include "suites/branches.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::bts_records {
namespace {

using namespace suites;
using arch::IA32_DEBUGCTL;
using arch::Signal;

constexpr uint64_t kIterations = 12;

// A kernel, its parameters, and a number that its directions depend on.
std::vector<Param> streams() {
  auto stream = [](const char* label, const char* kernel, const char* parameters,
                   uint64_t number = 0) {
    return Param{.label = label, .numbers = {number}, .words = {kernel, parameters}};
  };
  return {stream("every-kind", "branch_stream", "trips=3", 3),
          stream("one-trip", "branch_stream", "trips=1", 1),
          stream("calls", "call_return", "depth=5"),
          stream("always", "branch_pattern", "pattern=always,length=6", 6),
          stream("never", "branch_pattern", "pattern=never,length=6", 6),
          stream("alternating", "branch_pattern", "pattern=alternating,length=6", 6),
          stream("loop", "sparse_event", "event=taken")};
}

Direction directions(const Program& program, const Param& param) {
  const std::string& parameters = param.word(1);
  uint64_t number = param.number();
  bool never = parameters.starts_with("pattern=never");
  bool alternating = parameters.starts_with("pattern=alternating");
  auto others = [&program, number, never, alternating](const Instruction& jump, uint64_t nth) {
    if (jump.address == program.mark("inner.jnz") || jump.address == program.mark("table.jne")) {
      return nth % number != number - 1;
    }
    if (jump.address == program.mark("branch")) return !never && (!alternating || nth % 2 == 0);
    return jump.address == program.mark("taken");
  };
  return looping(program, kIterations, others);
}

}  // namespace

SKIDPROOF_SUITE(BtsRecords, kBranchTrace);

SKIDPROOF_COMMON_TEST_OVER(BtsRecords, AreTheTakenBranchesInOrder,
                           over::product(streams(), over::words(kModeWords)), clause::B1,
                           clause::B2, clause::B3, clause::B4, clause::B7) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const Mode mode = mode_of(param().word(2));
  SKIDPROOF_REQUIRE(machine().identity().runs(mode), SkipCategory::kMachineLimit, kNoSuchCode);
  const Program& code = program(param().word(0), param().word(1), mode);
  const std::vector<Branch> expected = taken_branches(code, directions(code, param()));
  Session session = need(Session::open(machine(), trace_plan({}, mode)));

  need(session.run(code, kIterations));

  const Trace trace = trace_of(code, session.branch_records());
  evidence("records", session.branch_records().size());
  evidence("branches", expected.size());
  VERIFY_EQ(expected.size(), code.total(kIterations).branches_taken) << "the kernel's own account";
  VERIFY_EQ(trace.branches.size(), expected.size());
  VERIFY_EQ(agreeing(expected, trace.branches), expected.size()) << "branches before the first "
                                                                    "that is another";
  VERIFY_EQ(trace.foreign, 0u) << "records between the program's";
  VERIFY_EQ(session.branch_records().remainder_bytes(), 0u);
}

SKIDPROOF_COMMON_TEST_OVER(BtsRecords, MoveTheIndexByOneRecordEach, over::words(kModeWords),
                           clause::B7, clause::B6, clause::B3, clause::B4) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const Mode mode = mode_of(param().word());
  SKIDPROOF_REQUIRE(machine().identity().runs(mode), SkipCategory::kMachineLimit, kNoSuchCode);
  const Program& code = program("branch_stream", "", mode);
  const uint64_t size = uarch().branch_record_in(mode).bytes;
  Session session = need(Session::open(machine(), trace_plan({}, mode)));
  const std::vector<std::byte> before(session.ds_bytes().begin(), session.ds_bytes().end());
  VERIFY_EQ(session.branch_index(), session.branch_base());
  uint64_t few = 0;
  for (uint64_t iterations : {3, 4}) {
    session.rewind_branches();
    need(session.run(code, iterations));
    const uint64_t moved = session.branch_index() - session.branch_base();
    VERIFY_EQ(moved % size, 0u);
    for (std::byte b : session.after_branch_index()) {
      if (b == Session::kFill) continue;
      VERIFY_EQ(b, Session::kFill) << "a byte behind the index";
      return;
    }
    // Whatever the machine takes around the program, one iteration more is its branches more.
    if (iterations == 4) {
      VERIFY_EQ(moved - few, code.per_iteration.branches_taken * size);
    }
    few = moved;
  }
  session.rewind_branches();
  VERIFY_TRUE(std::equal(before.begin(), before.end(), session.ds_bytes().begin()))
      << "the processor changes nothing of the management area but the index";
}

SKIDPROOF_COMMON_TEST_OVER(BtsRecords, NeedBothTrAndBts, over::numbers("bits=", {0, 1, 2, 3}),
                           clause::B1) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const bool messages = (param().number() & 1) != 0;
  const bool store = (param().number() & 2) != 0;
  const Program& code = program("branch_stream", "");
  Session session =
      need(Session::open(machine(), trace_plan({.messages = messages, .store = store})));

  need(session.run(code, kIterations));

  const uint64_t moved = session.branch_index() - session.branch_base();
  evidence("bytes", moved);
  if (messages && store) {
    VERIFY_GE(moved, code.total(kIterations).branches_taken * uarch().branch_trace.record->bytes);
  } else {
    VERIFY_EQ(moved, 0u);
  }
}

// Each mode has the form of its records and of the DS area, whatever ran before.
SKIDPROOF_COMMON_TEST(BtsRecords, TakeTheFormOfTheModeThatRuns, clause::B3, clause::B4) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  SKIDPROOF_REQUIRE(machine().identity().runs(Mode::kProtected32), SkipCategory::kMachineLimit,
                    kNoSuchCode);
  for (Mode mode : {Mode::kLong, Mode::kProtected32, Mode::kLong}) {
    const Program& code = program("branch_stream", "trips=3", mode);
    const std::vector<Branch> expected = stream_branches(code, kIterations);
    Session session = need(Session::open(machine(), trace_plan({}, mode)));

    need(session.run(code, kIterations));

    const Trace trace = trace_of(code, session.branch_records());
    VERIFY_EQ(trace.branches.size(), expected.size()) << name_of(mode);
    VERIFY_EQ(agreeing(expected, trace.branches), expected.size()) << name_of(mode);
  }
}

// Beyond the return predictor's depth returns are mispredicted, and the only jump that falls through
// is the loop's last: mispredicted branches, less that one, are the records without the bit.
SKIDPROOF_COMMON_TEST_OVER(BtsRecords, MarkPredictedBranches, over::words(kModeWords), clause::B5) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const Mode mode = mode_of(param().word());
  SKIDPROOF_REQUIRE(machine().identity().runs(mode), SkipCategory::kMachineLimit, kNoSuchCode);
  SKIDPROOF_REQUIRE(uarch().branch_trace.predicted, SkipCategory::kNotOnThisMicroarch,
                    "this microarch does not provide the predicted bit");
  const arch::Event* event = counting_event(uarch(), Signal::kMispredicts);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "no event counts mispredicted branches");
  const Program& code = program("call_return", "depth=24", mode);
  SessionPlan plan = trace_plan({.records = 4096}, mode);
  plan.counters = {plain_counter(0, *event)};
  Session session = need(Session::open(machine(), plan));

  const SessionRun run = need(session.run(code, 40));

  const uint64_t mispredicted = run.counters[0];
  const Trace trace = trace_of(code, session.branch_records());
  uint64_t unpredicted = 0;
  for (const BranchRecord& record : all_of(session.branch_records())) {
    unpredicted += record.predicted() ? 0 : 1;
  }
  evidence("mispredicted", mispredicted);
  evidence("unpredicted", unpredicted);
  VERIFY_EQ(trace.branches.size(), code.total(40).branches_taken);
  VERIFY_GT(mispredicted, 0u);
  VERIFY_LE(trace.unpredicted, mispredicted);
  VERIFY_GE(unpredicted + 1, mispredicted);
}

// A counter interrupts amid the program.
SKIDPROOF_COMMON_TEST_OVER(BtsRecords, ShowAnInterrupt, over::words(kModeWords), clause::B19,
                           clause::B1) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const Mode mode = mode_of(param().word());
  SKIDPROOF_REQUIRE(machine().identity().runs(mode), SkipCategory::kMachineLimit, kNoSuchCode);
  constexpr uint64_t kBefore = 250;
  const uint64_t behind =
      kBefore + instructions_for_interrupt(calibrated(calibrate::Quantity::kPmiLateness));
  const Program& code =
      program("straight_line", fmt::format("instructions={}", kBefore + behind), mode);
  SessionPlan plan = trace_plan({}, mode);
  interrupt_after(plan, uarch(), kBefore);
  Session session = need(Session::open(machine(), plan));

  const SessionRun run = need(session.run(code, 1));

  VERIFY_EQ(run.log.pmis.size(), 1u);
  if (run.log.pmis.empty()) return;
  SKIDPROOF_REQUIRE(inside(code, run.log.pmis[0].ip), SkipCategory::kNoise,
                    "the interrupt came later than ever before, behind the program");
  uint64_t entries = 0;
  for (const BranchRecord& record : all_of(session.branch_records())) {
    entries += record.from() == run.log.pmis[0].ip && !inside(code, record.to()) ? 1 : 0;
  }
  evidence("interrupt-records", entries);
  VERIFY_EQ(entries, 1u);
  const auto expected =
      taken_branches(code, looping(code, 1, [](const Instruction&, uint64_t) { return false; }));
  const Trace trace = trace_of(code, session.branch_records());
  VERIFY_EQ(agreeing(expected, trace.branches), expected.size());
}

SKIDPROOF_COMMON_TEST(BtsRecords, CanBeHadExactlyWhereTheyAreAnnounced, clause::B17) {
  const arch::BranchTrace& bits = uarch().branch_trace;
  for (uint64_t value : {bits.store, bits.interrupt, bits.store | bits.interrupt}) {
    const uint64_t present = need(machine().rdmsr(IA32_DEBUGCTL));
    VERIFY_EQ(need(refuses(machine(), IA32_DEBUGCTL, present | value)),
              !has_branch_trace(machine()));
  }
}

SKIDPROOF_COMMON_TEST(BtsRecords, CanBeFilteredExactlyWhereDsCplIsAnnounced, clause::B16) {
  const arch::BranchTrace& bits = uarch().branch_trace;
  constexpr uint32_t kDsCpl = 1u << 4;
  const bool announced = (machine().cpuid(1, 0).ecx & kDsCpl) != 0;
  const bool available = has_branch_trace(machine());
  for (uint64_t value : {bits.off_os, bits.off_usr}) {
    const uint64_t present = need(machine().rdmsr(IA32_DEBUGCTL));
    VERIFY_EQ(need(refuses(machine(), IA32_DEBUGCTL, present | value)), !(announced && available));
  }
}

}  // namespace skidproof::check::bts_records
