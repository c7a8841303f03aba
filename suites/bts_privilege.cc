// The branch trace store by privilege level: BTS_OFF_OS and BTS_OFF_USR.
#include <cstdint>
#include <vector>

#include "harness/check/check.h"
#include "suites/branches.h"
#include "suites/sampling.h"

namespace skidproof::check::bts_privilege {
namespace {

using namespace suites;

constexpr uint64_t kIterations = 10;

// Ring, and what is off: 1 the system, 2 the user.
std::vector<Param> rings_and_filters() {
  std::vector<Param> all;
  for (uint64_t user : {0, 1}) {
    for (uint64_t off : {0, 1, 2, 3}) {
      static constexpr const char* kOff[] = {"nothing", "os", "usr", "both"};
      all.push_back({.label = std::string(user != 0 ? "CPL3" : "CPL0") + ".off=" + kOff[off],
                     .numbers = {user, off}});
    }
  }
  return all;
}

}  // namespace

SKIDPROOF_SUITE(BtsPrivilege, kBranchTrace);

SKIDPROOF_COMMON_TEST_OVER(BtsPrivilege, KeepsOutWhatItsFilterSays, rings_and_filters(),
                           clause::B15, clause::B1, clause::B2) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  SKIDPROOF_REQUIRE(uarch().branch_trace.cpl_qualified, SkipCategory::kNotOnThisMicroarch,
                    "no privilege filters (DS-CPL)");
  const bool user = param().number(0) != 0;
  const bool off_os = (param().number(1) & 1) != 0;
  const bool off_usr = (param().number(1) & 2) != 0;
  const bool kept_out = (off_os && off_usr) || (user ? off_usr : off_os);
  const Program& code = program("branch_stream", "trips=3");
  const std::vector<Branch> expected = stream_branches(code, kIterations);
  SessionPlan plan = trace_plan({.off_os = off_os, .off_usr = off_usr});
  plan.ring = user ? Ring::kUser : Ring::kKernel;
  Session session = need(Session::open(machine(), plan));

  need(session.run(code, kIterations));

  const Trace trace = trace_of(code, session.branch_records());
  evidence("program-records", trace.branches.size());
  evidence("records", session.branch_records().size());
  VERIFY_EQ(trace.branches.size(), kept_out ? 0 : expected.size());
  VERIFY_EQ(agreeing(expected, trace.branches), trace.branches.size());
  if (off_os && off_usr) {
    VERIFY_EQ(session.branch_index(), session.branch_base()) << "none at any level";
  }
}

}  // namespace skidproof::check::bts_privilege
