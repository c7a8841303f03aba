// NetBurst's branch trace store: records and DS area by the numbers of the figures, MSR_DEBUGCTLA, and PEBS
// beside it.
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "harness/check/check.h"
#include "suites/branches.h"
#include "suites/netburst_sampling.h"

namespace skidproof::check::netburst_bts {
namespace {

using namespace suites;
using arch::bit;
using nb::MSR_DEBUGCTLA;

constexpr uint64_t kIterations = 10;
// Of MSR_DEBUGCTLA. [SDM Figure 17-12]
constexpr uint64_t kTr = bit(2), kBts = bit(3), kBtint = bit(4), kOffOs = bit(5), kOffUsr = bit(6);

// A little-endian number.
uint64_t number_at(std::span<const std::byte> bytes, size_t offset, size_t size) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + offset, size);
  return value;
}

// What a run stores with this value of MSR_DEBUGCTLA, in bytes; nothing where the value is refused.
Expected<uint64_t> stored(Machine& machine, const Program& code, Mode mode, uint64_t debugctl) {
  Session session = SKIDPROOF_TRY(Session::open(machine, trace_plan({}, mode)));
  if (SKIDPROOF_TRY(refuses(machine, MSR_DEBUGCTLA, debugctl))) return 0;
  RunPlan plan;
  plan.iterations = kIterations;
  plan.mode = mode;
  plan.enable = {{MSR_DEBUGCTLA, debugctl}};
  plan.disable = {{MSR_DEBUGCTLA, 0}};
  SKIDPROOF_CHECK(machine.run(code, plan));
  return session.branch_index() - session.branch_base();
}

}  // namespace

SKIDPROOF_SUITE(NetBurstBts, kBranchTrace);

// By number. [SDM Figures 17-5, 17-6, 17-8, 17-9]
SKIDPROOF_NETBURST_TEST_OVER(NetBurstBts, HasTheLayoutOfItsMode, over::words(kModeWords),
                             clause::B4, clause::B3, clause::B7, clause::N13) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const Mode mode = mode_of(param().word());
  SKIDPROOF_REQUIRE(machine().identity().runs(mode), SkipCategory::kMachineLimit, kNoSuchCode);
  SKIDPROOF_REQUIRE(!uarch().dtes64, SkipCategory::kNotOnThisMicroarch,
                    "DTES64: one layout in every mode");
  const Program& code = program("branch_stream", "trips=3", mode);
  const std::vector<Branch> expected = stream_branches(code, kIterations);
  Session session = need(Session::open(machine(), trace_plan({}, mode)));

  need(session.run(code, kIterations));

  const size_t field = mode == Mode::kLong ? 8 : 4;
  const size_t record = mode == Mode::kLong ? 24 : 12;
  const std::span<const std::byte> ds = session.ds_bytes();
  const uint64_t base = number_at(ds, 0, field);
  const uint64_t moved = number_at(ds, field, field) - base;
  VERIFY_EQ(base, session.branch_base());
  VERIFY_EQ(moved % record, 0u);
  VERIFY_GE(moved / record, expected.size());
  VERIFY_EQ(number_at(ds, 2 * field, field), session.branch_maximum());
  VERIFY_EQ(number_at(ds, 3 * field, field), session.branch_threshold());
  session.set_branch_index(base);
  const std::span<const std::byte> buffer = session.after_branch_index();
  std::vector<Branch> branches;
  for (uint64_t at = 0; at + record <= std::min<uint64_t>(moved, buffer.size()); at += record) {
    const uint64_t from = number_at(buffer, at, field), to = number_at(buffer, at + field, field);
    if (inside(code, from)) branches.push_back({.from = from, .to = to});
  }
  evidence("records", moved / record);
  VERIFY_EQ(branches.size(), expected.size());
  VERIFY_EQ(agreeing(expected, branches), expected.size());
}

// TR and BTS, and each filter, at CPL 0.
SKIDPROOF_NETBURST_TEST_OVER(NetBurstBts, IsSwitchedOnByMsrDebugctla, over::words(kModeWords),
                             clause::N17, clause::B1, clause::B15, clause::B4) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const Mode mode = mode_of(param().word());
  SKIDPROOF_REQUIRE(machine().identity().runs(mode), SkipCategory::kMachineLimit, kNoSuchCode);
  const Program& code = program("branch_stream", "trips=3", mode);
  const uint64_t all =
      code.total(kIterations).branches_taken * uarch().branch_record_in(mode).bytes;
  auto bytes = [&](uint64_t debugctl) { return need(stored(machine(), code, mode, debugctl)); };
  VERIFY_GE(bytes(kTr | kBts), all);
  VERIFY_GE(bytes(kTr | kBts | kBtint), all);
  VERIFY_GE(bytes(kTr | kBts | kOffUsr), all);
  VERIFY_EQ(bytes(kTr | kBts | kOffOs | kOffUsr), 0u);
  VERIFY_LT(bytes(kTr | kBts | kOffOs), all);
  VERIFY_EQ(bytes(kTr), 0u);
  VERIFY_EQ(bytes(kBts), 0u);
  VERIFY_EQ(bytes(bit(6) | bit(7)), 0u) << "TR and BTS of later parts";
}

SKIDPROOF_NETBURST_TEST(NetBurstBts, KeepsEachBitOfMsrDebugctla, clause::N17, clause::B17) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  Restore restore(machine(), {MSR_DEBUGCTLA});
  const bool filters = uarch().branch_trace.cpl_qualified;
  // TR is not set: no branch trace message is sent while the bits are looked at.
  for (uint64_t value :
       {kBts, kBtint, kBts | kBtint, filters ? kOffOs : 0, filters ? kOffUsr : 0, uint64_t{0}}) {
    need(machine().wrmsr(MSR_DEBUGCTLA, value));
    VERIFY_EQ(need(machine().rdmsr(MSR_DEBUGCTLA)), value);
  }
}

// Mispredicted branches are sampled. The branch whose PEBS record interrupts is stored before the handler
// looks: its iteration is in EDI, and its address or its target is the record's IP (N11).
SKIDPROOF_NETBURST_TEST_OVER(NetBurstBts, InterruptsBehindThePebsRecordAndTheBranchRecord,
                             over::words(kModeWords), clause::R30, clause::B20, clause::N9) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const Mode mode = mode_of(param().word());
  SKIDPROOF_REQUIRE(machine().identity().runs(mode), SkipCategory::kMachineLimit, kNoSuchCode);
  constexpr uint64_t kPeriod = 50, kCalls = 40;
  const Program& code = program("call_return", "depth=24", mode);
  SessionPlan plan = one_counter(netburst_counter(uarch(), "tagged_mispred_branch", kPeriod), 4);
  plan.mode = mode;
  plan.threshold_records = 1;
  plan.branches = BranchTraceSetup{.records = 4096};
  plan.pmi.unmask = false;  // the first interrupt tells

  Sampled sampled = need(sample(machine(), plan, code, kCalls));

  const std::vector<BranchRecord> branches = all_of(sampled.session.branch_records());
  VERIFY_EQ(trace_of(code, branches).branches.size(), code.total(kCalls).branches_taken);
  VERIFY_EQ(sampled.run.log.pmis.size(), 1u);
  VERIFY_GE(sampled.records().size(), 1u);
  if (sampled.run.log.pmis.empty() || sampled.records().empty()) return;
  const Record record = sampled.records().front();
  const uint64_t stored = (sampled.run.log.pmis[0].bts_index - sampled.session.branch_base()) /
                          uarch().branch_record_in(mode).bytes;
  VERIFY_LE(stored, branches.size());
  const uint64_t iteration = kCalls - record.gpr(arch::Gpr::kRdi) + 1;
  uint64_t jumps = 0, of_record = 0;
  for (size_t i = 0; i < std::min<size_t>(stored, branches.size()); ++i) {
    jumps += branches[i].from() == code.mark("loop.jnz");
    const bool at = branches[i].from() == record.ip() || branches[i].to() == record.ip();
    of_record += at && jumps == iteration;
  }
  evidence("branch-records-at-interrupt", stored);
  VERIFY_GE(of_record, 1u) << "the branch that gave the PEBS record";
}

SKIDPROOF_NETBURST_TEST_OVER(NetBurstBts, IsClearedBy, over::words({"INIT", "RESET"}),
                             clause::R57) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  const Program& code = program("branch_stream", "trips=3");
  Session session = need(Session::open(machine(), trace_plan()));
  RunPlan plan;
  plan.iterations = kIterations;
  plan.enable = {{MSR_DEBUGCTLA, kTr | kBts | kBtint},
                 {arch::IA32_PEBS_ENABLE, nb::pebs_enable::kEnable}};
  plan.disturbances = {{.what = param().word() == "INIT" ? Disturbance::kInit : Disturbance::kReset,
                        .after = code.total(kIterations).instructions / 2}};
  plan.read = {arch::IA32_PEBS_ENABLE, MSR_DEBUGCTLA};

  Expected<RunLog> run = machine().run(code, plan);
  SKIDPROOF_REQUIRE(run || run.error().code != ErrorCode::kNotAvailable,
                    SkipCategory::kMachineLimit, "this machine cannot bring that about");
  const RunLog log = need(std::move(run));

  VERIFY_EQ(log.disturbances, 1u);
  VERIFY_TRUE(log.abandoned);
  VERIFY_EQ(log.read.at(0), 0u) << "MSR_PEBS_ENABLE";
  VERIFY_EQ(log.read.at(1) & (kTr | kBts | kBtint), 0u) << "MSR_DEBUGCTLA";
  VERIFY_GT(session.branch_index(), session.branch_base()) << "there was recording before";
}

}  // namespace skidproof::check::netburst_bts
