// PEBS and branch trace store together: both record the same branch, PEBS first, and the interrupt
// comes behind both.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "harness/check/check.h"
#include "suites/branches.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::bts_pebs {
namespace {

using namespace suites;
using arch::Gpr;
using arch::Signal;

constexpr uint64_t kWishedPeriod = 20;
constexpr uint64_t kMostRecords = 5;
constexpr char kNoEvent[] = "no precise event of conditional branches on PMC0";

// Iterations that give so many records, and no more for half a period.
uint64_t iterations_for_records(const arch::Microarch& microarch, const arch::Event& event,
                                uint64_t records) {
  const uint64_t period = usable_period(microarch, 0, event, kWishedPeriod);
  return records * events_a_record(microarch, 0, period) + period / 2;
}

// PMC0 samples the loop's own jump, the only branch of an iteration, which BTS stores: room for those of
// kMostRecords PEBS records, and for others on the way in and out.
SessionPlan both_plan(const arch::Microarch& microarch, const arch::Event& event) {
  SessionPlan plan = one_counter(0, event, usable_period(microarch, 0, event, kWishedPeriod), 64);
  plan.branches =
      BranchTraceSetup{.records = iterations_for_records(microarch, event, kMostRecords) + 512};
  return plan;
}

// Where among the branch records the one stands that a PEBS record was taken at: the nth jump back,
// by RDI, which counts iterations down.
std::optional<size_t> position(const Program& code, uint64_t iterations, const Record& sampled,
                               const BranchRecords& branches) {
  const uint64_t nth = iterations - sampled.gpr(Gpr::kRdi) + 1;
  uint64_t seen = 0;
  for (size_t i = 0; i < branches.size(); ++i) {
    if (branches[i].from() == code.mark("loop.jnz") && ++seen == nth) return i;
  }
  return std::nullopt;
}

}  // namespace

SKIDPROOF_SUITE(BtsPebs, kBranchTrace);

SKIDPROOF_TEST(BtsPebs, StoresTheBranchesThatPebsRecords, clause::B20, clause::B1) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const arch::Event* event = precise_event(uarch(), Signal::kConditional);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", "event=taken");
  const SessionPlan plan = both_plan(uarch(), *event);
  const uint64_t iterations = iterations_for_records(uarch(), *event, kMostRecords);

  Sampled sampled = need(sample(machine(), plan, code, iterations));

  const auto expected = taken_branches(
      code, looping(code, iterations, [](const Instruction&, uint64_t) { return false; }));
  const Trace trace = trace_of(code, sampled.session.branch_records());
  VERIFY_EQ(sampled.records().size(), kMostRecords);
  VERIFY_EQ(trace.branches.size(), expected.size());
  VERIFY_EQ(agreeing(expected, trace.branches), expected.size());
}

// The PEBS record and the branch record of one branch are written to the same place: what stands
// there afterwards was written last. A first run tells which branch record that is; in the second
// the BTS buffer ends behind it.
SKIDPROOF_TEST(BtsPebs, WritesThePebsRecordBeforeTheBranchRecord, clause::R30) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const arch::Event* event = precise_event(uarch(), Signal::kConditional);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", "event=taken");
  SessionPlan plan = both_plan(uarch(), *event);
  const uint64_t iterations = iterations_for_records(uarch(), *event, 1);
  size_t at = 0;
  {
    Sampled sampled = need(sample(machine(), plan, code, iterations));
    VERIFY_EQ(sampled.records().size(), 1u);
    if (sampled.records().empty()) return;
    const auto found =
        position(code, iterations, sampled.records().front(), sampled.session.branch_records());
    VERIFY_TRUE(found.has_value()) << "no branch record of the sampled branch";
    if (!found) return;
    at = *found;
  }
  const uint64_t size = uarch().branch_trace.record->bytes;
  plan.branches->maximum_records = at + 1;
  Session session = need(Session::open(machine(), plan));
  const uint64_t place = session.branch_base() + at * size;
  session.set_base(place);
  session.set_index(place);
  session.set_maximum(place + record_bytes(uarch()));
  session.set_threshold(place + 2 * record_bytes(uarch()));

  need(session.run(code, iterations));

  evidence("branch-record", at);
  VERIFY_EQ(session.index() - place, record_bytes(uarch())) << "one PEBS record";
  VERIFY_EQ(session.branch_index() - place, size) << "the BTS buffer is full";
  session.set_branch_index(place);
  const std::span<const std::byte> bytes = session.after_branch_index();
  const BranchRecord branch(bytes.data(), uarch().branch_trace.record);
  VERIFY_EQ(branch.from(), code.mark("loop.jnz"));
  VERIFY_EQ(branch.to(), code.mark("loop.first"));
  const std::span<const std::byte> rest = bytes.first(record_bytes(uarch())).subspan(size);
  VERIFY_LT(static_cast<size_t>(std::count(rest.begin(), rest.end(), Session::kFill)), rest.size())
      << "the rest of the PEBS record";
}

SKIDPROOF_TEST(BtsPebs, InterruptsBehindBothRecords, clause::R30, clause::R44) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const arch::Event* event = precise_event(uarch(), Signal::kConditional);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", "event=taken");
  SessionPlan plan = both_plan(uarch(), *event);
  plan.threshold_records = 1;
  const uint64_t iterations = iterations_for_records(uarch(), *event, 1);

  Sampled sampled = need(sample(machine(), plan, code, iterations));

  VERIFY_EQ(sampled.records().size(), 1u);
  VERIFY_EQ(sampled.run.log.pmis.size(), 1u);
  if (sampled.records().empty() || sampled.run.log.pmis.empty()) return;
  const Pmi& pmi = sampled.run.log.pmis[0];
  const auto at =
      position(code, iterations, sampled.records().front(), sampled.session.branch_records());
  VERIFY_TRUE(at.has_value());
  if (!at) return;
  const uint64_t behind =
      sampled.session.branch_base() + (*at + 1) * uarch().branch_trace.record->bytes;
  evidence("branch-records-at-interrupt",
           (pmi.bts_index - sampled.session.branch_base()) / uarch().branch_trace.record->bytes);
  VERIFY_GE(pmi.bts_index, behind) << "the branch record of the sampled branch";
  VERIFY_GE(pmi.pebs_index, sampled.session.threshold());
}

}  // namespace skidproof::check::bts_pebs
