// The BTS buffer: its maximum, its threshold, circular and not, full and set back.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "harness/calibrate/calibration.h"
#include "harness/check/check.h"
#include "suites/branches.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::bts_buffer {
namespace {

using namespace suites;
using arch::bit;

// Bytes at the maximum and behind it that no longer hold the session's fill.
size_t written_past_maximum(Session& session) {
  const uint64_t index = session.branch_index();
  session.set_branch_index(session.branch_base());
  std::span<const std::byte> all = session.after_branch_index();
  session.set_branch_index(index);
  all = all.subspan(session.branch_maximum() - session.branch_base());
  return all.size() - static_cast<size_t>(std::count(all.begin(), all.end(), Session::kFill));
}

// How many of the first records nothing was written to.
size_t untouched_records(Session& session, size_t records, size_t size) {
  const uint64_t index = session.branch_index();
  session.set_branch_index(session.branch_base());
  const std::span<const std::byte> all = session.after_branch_index();
  session.set_branch_index(index);
  size_t untouched = 0;
  for (size_t i = 0; i < records; ++i) {
    const std::span<const std::byte> record = all.subspan(i * size, size);
    untouched +=
        std::all_of(record.begin(), record.end(), [](std::byte b) { return b == Session::kFill; });
  }
  return untouched;
}

// All records of a circular buffer of so many, oldest first.
std::vector<BranchRecord> chronological(const Session& session, size_t records,
                                        const arch::BranchRecordLayout* layout) {
  const BranchRecords newest = session.branch_records();
  const size_t behind = records > newest.size() ? records - newest.size() : 0;
  const BranchRecords oldest(session.after_branch_index().first(behind * layout->bytes), layout);
  std::vector<BranchRecord> all = all_of(oldest);
  for (const BranchRecord& record : all_of(newest)) all.push_back(record);
  return all;
}

}  // namespace

SKIDPROOF_SUITE(BtsBuffer, kBranchTrace);

// The smallest buffer that D9 leaves defined holds one record.
SKIDPROOF_COMMON_TEST_OVER(BtsBuffer, HoldsTheRecordsBelowItsMaximum,
                           over::product(over::numbers("records=", {1, 2, 7}),
                                         over::words(kModeWords)),
                           clause::B8, clause::B14, clause::D9) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const Mode mode = mode_of(param().word());
  SKIDPROOF_REQUIRE(machine().identity().runs(mode), SkipCategory::kMachineLimit, kNoSuchCode);
  const size_t records = param().number();
  const Program& code = program("branch_stream", "trips=3", mode);
  Session session = need(Session::open(
      machine(), trace_plan({.records = records + 8, .maximum_records = records}, mode)));

  need(session.run(code, 10));

  evidence("records", session.branch_records().size());
  VERIFY_EQ(session.branch_index() - session.branch_base(),
            records * uarch().branch_record_in(mode).bytes);
  VERIFY_EQ(written_past_maximum(session), 0u);
  const Trace trace = trace_of(code, session.branch_records());
  VERIFY_EQ(agreeing(stream_branches(code, 10), trace.branches), trace.branches.size())
      << "the first branches, not later ones";
}

// A multiple of the record size without the "plus 1" leaves the last record open; no reading lets a
// byte stand at or past the maximum.
SKIDPROOF_COMMON_TEST_OVER(BtsBuffer, WritesNoByteAtOrPastTheMaximum,
                           over::product(over::numbers("bytes-over=", {0, 1, 8, 11, 16, 23}),
                                         over::words(kModeWords)),
                           clause::B8, clause::D3, clause::D13b) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const Mode mode = mode_of(param().word());
  SKIDPROOF_REQUIRE(machine().identity().runs(mode), SkipCategory::kMachineLimit, kNoSuchCode);
  constexpr size_t kWhole = 4;  // records below the maximum
  const uint64_t size = uarch().branch_record_in(mode).bytes;
  SKIDPROOF_REQUIRE(param().number() < size, SkipCategory::kNotOnThisMicroarch,
                    "a whole record more");
  const Program& code = program("branch_stream", "trips=3", mode);
  Session session = need(Session::open(
      machine(),
      trace_plan({.records = kWhole + 8, .maximum_bytes = kWhole * size + param().number()},
                 mode)));

  need(session.run(code, 10));

  const size_t records = session.branch_records().size();
  evidence("records", records);
  if (!suites::aligned_maximum(param().number())) {
    observe("bytes-past-the-maximum", written_past_maximum(session));
    return;
  }
  VERIFY_EQ(written_past_maximum(session), 0u);
  VERIFY_LE(session.branch_index(), session.branch_maximum());
  if (param().number() > 0) {
    VERIFY_EQ(records, kWhole);
  } else {
    VERIFY_GE(records, kWhole - 1);
  }
}

// The buffer is full when a counter interrupts; the handler sets the index back and enables
// nothing.
SKIDPROOF_COMMON_TEST_OVER(BtsBuffer, GoesOnWhenTheHandlerSetsTheIndexBack, over::words(kModeWords),
                           clause::B14) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const Mode mode = mode_of(param().word());
  SKIDPROOF_REQUIRE(machine().identity().runs(mode), SkipCategory::kMachineLimit, kNoSuchCode);
  constexpr size_t kRecords = 64;
  const Program& code = program("branch_stream", "trips=3", mode);
  SessionPlan plan = trace_plan({.records = kRecords}, mode);
  interrupt_after(plan, uarch(), code.total(20).instructions);
  plan.pmi.rewind_branches = true;
  const uint64_t behind =
      instructions_for_interrupt(calibrated(calibrate::Quantity::kPmiLateness)) /
      code.total(1).instructions;
  Session session = need(Session::open(machine(), plan));

  const SessionRun run = need(session.run(code, 20 + behind + 40));

  VERIFY_EQ(run.log.pmis.size(), 1u);
  for (const Pmi& pmi : run.log.pmis) {
    VERIFY_EQ(pmi.bts_index - session.branch_base(),
              kRecords * uarch().branch_record_in(mode).bytes)
        << "the buffer was full";
  }
  const Trace after = trace_of(code, session.branch_records());
  evidence("records-after", after.branches.size());
  VERIFY_GE(after.branches.size(), 1u) << "recorded after the handler";
}

SKIDPROOF_COMMON_TEST_OVER(BtsBuffer, GoesOnWhenSoftwareSetsTheIndexBackBetweenRuns,
                           over::words(kModeWords), clause::B14) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const Mode mode = mode_of(param().word());
  SKIDPROOF_REQUIRE(machine().identity().runs(mode), SkipCategory::kMachineLimit, kNoSuchCode);
  const Program& code = program("branch_stream", "trips=3", mode);
  Session session = need(Session::open(machine(), trace_plan({.records = 40}, mode)));
  need(session.run(code, 30));
  VERIFY_EQ(session.branch_records().size(), 40u);

  session.rewind_branches();
  need(session.resume(code, 1));

  const std::vector<Branch> expected = stream_branches(code, 1);
  const Trace trace = trace_of(code, session.branch_records());
  VERIFY_EQ(trace.branches.size(), expected.size());
  VERIFY_EQ(agreeing(expected, trace.branches), expected.size());
}

SKIDPROOF_COMMON_TEST_OVER(BtsBuffer, IsCircularWithBtintClear, over::words(kModeWords),
                           clause::B11, clause::B12, clause::B8, clause::B6) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const Mode mode = mode_of(param().word());
  SKIDPROOF_REQUIRE(machine().identity().runs(mode), SkipCategory::kMachineLimit, kNoSuchCode);
  constexpr size_t kRecords = 32;
  const Program& code = program("branch_stream", "trips=3", mode);
  const std::vector<Branch> expected = stream_branches(code, 11);
  Session session =
      need(Session::open(machine(), trace_plan({.records = kRecords, .interrupt = false}, mode)));

  const SessionRun run = need(session.run(code, 11));

  const Trace trace =
      trace_of(code, chronological(session, kRecords, &uarch().branch_record_in(mode)));
  evidence("program-records", trace.branches.size());
  VERIFY_GT(expected.size(), 2 * kRecords) << "more than twice round";
  VERIFY_EQ(run.log.pmis.size(), 0u);
  VERIFY_GT(trace.branches.size(), kRecords / 2);
  VERIFY_LE(trace.branches.size(), kRecords);
  const size_t first = expected.size() - std::min(trace.branches.size(), expected.size());
  VERIFY_EQ(agreeing(expected, trace.branches, first), trace.branches.size())
      << "the last branches of the run";
  VERIFY_EQ(trace.foreign, 0u);
  VERIFY_LE(session.branch_index(), session.branch_maximum());
  VERIFY_EQ(written_past_maximum(session), 0u);
}

// The note on the threshold says that clearing BTINT is not enough against an interrupt, not that
// one must come: the outcome is reported.
SKIDPROOF_COMMON_TEST_OVER(BtsBuffer, ReportsWhatAThresholdInsideACircularBufferDoes,
                           over::words(kModeWords), clause::B13, clause::B12) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const Mode mode = mode_of(param().word());
  SKIDPROOF_REQUIRE(machine().identity().runs(mode), SkipCategory::kMachineLimit, kNoSuchCode);
  constexpr size_t kRecords = 32;
  const Program& code = program("branch_stream", "trips=3", mode);
  Session session = need(Session::open(
      machine(),
      trace_plan({.records = kRecords, .threshold_records = kRecords / 2, .interrupt = false},
                 mode)));

  const SessionRun run = need(session.run(code, 20));

  evidence("interrupts", run.log.pmis.size());
  VERIFY_EQ(untouched_records(session, kRecords, uarch().branch_record_in(mode).bytes), 0u)
      << "the buffer ends at its maximum";
  VERIFY_LE(session.branch_index(), session.branch_maximum());
  VERIFY_EQ(written_past_maximum(session), 0u);
}

// The run takes as many branches each time: first without a threshold, to see how many.
SKIDPROOF_COMMON_TEST_OVER(BtsBuffer, InterruptsWhenTheIndexReachesTheThreshold,
                           over::product(over::numbers("iterations=", {0, 1, 6}),
                                         over::words(kModeWords)),
                           clause::B9, clause::D5, clause::D6) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const Mode mode = mode_of(param().word());
  SKIDPROOF_REQUIRE(machine().identity().runs(mode), SkipCategory::kMachineLimit, kNoSuchCode);
  const Program& code = program("sparse_event", "event=taken", mode);
  const uint64_t iterations = param().number();
  constexpr size_t kRoom = 64;
  size_t records = 0;
  {
    Session session = need(Session::open(machine(), trace_plan({.records = kRoom}, mode)));
    const SessionRun run = need(session.run(code, iterations));
    records = session.branch_records().size();
    VERIFY_EQ(run.log.pmis.size(), 0u) << "a threshold above the maximum";
  }
  VERIFY_GE(records, code.total(iterations).branches_taken);
  VERIFY_LT(records + 1, kRoom);
  {
    Session session = need(Session::open(
        machine(), trace_plan({.records = kRoom, .threshold_records = records + 1}, mode)));
    const SessionRun run = need(session.run(code, iterations));
    VERIFY_EQ(run.log.pmis.size(), 0u) << "one record short of the threshold";
  }
  Session session = need(
      Session::open(machine(), trace_plan({.records = kRoom, .threshold_records = records}, mode)));

  const SessionRun run = need(session.run(code, iterations));

  evidence("records", records);
  evidence("ovf-buffer", (run.global_status & arch::status::kOvfBuffer) != 0);
  VERIFY_GE(run.log.pmis.size(), 1u);
  if (run.log.pmis.empty()) return;
  VERIFY_GE(run.log.pmis[0].bts_index, session.branch_threshold());
}

// Half of the buffer lies behind the threshold: room for the branches before the handler.
SKIDPROOF_COMMON_TEST_OVER(BtsBuffer, LosesNothingToAHandlerThatSetsTheIndexBack,
                           over::words(kModeWords), clause::B10, clause::B9, clause::B14) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const Mode mode = mode_of(param().word());
  SKIDPROOF_REQUIRE(machine().identity().runs(mode), SkipCategory::kMachineLimit, kNoSuchCode);
  constexpr size_t kRecords = 512;
  const uint64_t size = uarch().branch_record_in(mode).bytes;
  const Program& code = program("branch_stream", "trips=3", mode);
  const std::vector<Branch> expected = stream_branches(code, 200);
  SessionPlan plan = trace_plan({.records = kRecords, .threshold_records = kRecords / 2}, mode);
  plan.pmi.rewind_branches = true;
  Session session = need(Session::open(machine(), plan));

  const SessionRun run = need(session.run(code, 200));

  uint64_t records = session.branch_records().size();
  for (const Pmi& pmi : run.log.pmis) {
    VERIFY_LT(pmi.bts_index, session.branch_maximum() - size) << "full before the handler";
    VERIFY_GE(pmi.bts_index, session.branch_threshold());
    records += (pmi.bts_index - session.branch_base()) / size;
  }
  evidence("interrupts", run.log.pmis.size());
  evidence("records", records);
  VERIFY_GE(run.log.pmis.size(), expected.size() / kRecords);
  VERIFY_GE(records, expected.size());
  const Trace trace = trace_of(code, session.branch_records());
  const size_t first = expected.size() - std::min(trace.branches.size(), expected.size());
  VERIFY_EQ(agreeing(expected, trace.branches, first), trace.branches.size());
}

// How the freeze shows depends on the version: GLOBAL_CTRL cleared, or CTR_Frz set.
SKIDPROOF_TEST_OVER(BtsBuffer, FreezesTheCountersAtItsThreshold, over::words({"on", "off"}),
                    clause::B18, clause::R52) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  SKIDPROOF_REQUIRE(uarch().fixed_counters > 0 && uarch().perfmon_version >= 2,
                    SkipCategory::kNotOnThisMicroarch, "the freeze needs perfmon version 2");
  const bool freeze = param().word() == "on";
  const Program& code = program("branch_stream", "trips=3");
  SessionPlan plan = trace_plan({.records = 256, .threshold_records = 64});
  plan.fixed = {{.counter = 0}};
  plan.freeze_on_pmi = freeze;
  plan.pmi.unmask = false;  // the first interrupt tells
  Session session = need(Session::open(machine(), plan));

  const SessionRun run = need(session.run(code, 15));

  VERIFY_EQ(run.log.pmis.size(), 1u);
  for (const Pmi& pmi : run.log.pmis) {
    const bool frozen =
        uarch().perfmon_version < 4 ? pmi.global_ctrl == 0 : (pmi.global_status & bit(59)) != 0;
    VERIFY_EQ(frozen, freeze);
  }
}

}  // namespace skidproof::check::bts_buffer
