// The LBR stack behind the interrupt that froze it. The program jumps at addresses of which each comes once, so that
// an entry says how far it was.
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/check/check.h"
#include "suites/branches.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::lbr_freeze {
namespace {

using namespace suites;

constexpr uint64_t kFirstPeriod = 600;
constexpr uint64_t kTries = 8;
constexpr char kNoStack[] = "no LBR stack that is described";
constexpr char kNoEvent[] = "no event samples taken jumps";
// What PmuStatusBits, PebsArming and PebsThreshold judge.
constexpr char kNoInterrupt[] = "no interrupt came, or no record, and nothing was frozen";
constexpr char kLate[] = "the interrupt came later than ever before, behind the program";

// Jumps enough for an interrupt that is asked for within the first of them.
std::string long_enough(const calibrate::Figure& lateness) {
  return fmt::format("jumps={}", 3 * kFirstPeriod + instructions_for_interrupt(lateness));
}

// Of every jump, or every uop or instruction: there is nothing else in the program's loop.
const arch::Event* every_jump(const arch::Microarch& microarch, unsigned counter) {
  const arch::Event* jumps = precise_event(microarch, arch::Signal::kNearTaken, counter);
  return jumps != nullptr ? jumps : dense_event(microarch, counter);
}

// One interrupt, after which the stack stays as it is.
SessionPlan frozen_plan(SessionPlan plan) {
  plan.last_branches_until_pmi = true;
  plan.pmi.clear_status = false;
  plan.pmi.unmask = false;
  return plan;
}

// A run that its interrupt cut short, and the stack behind it.
struct Frozen {
  SessionRun run;
  std::vector<LastBranch> stack;  // newest first
  std::vector<Branch> taken;      // by the whole program
  std::optional<size_t> newest;   // which of `taken` the newest entry is
  std::optional<size_t> reached;  // … and the last one before the handler
};

// Which of the branches goes to, or comes from, an address; each has its own.
std::optional<size_t> index_of(const std::vector<Branch>& taken, uint64_t address,
                               uint64_t Branch::*end) {
  const auto found = std::find_if(taken.begin(), taken.end(),
                                  [&](const Branch& branch) { return branch.*end == address; });
  if (found == taken.end()) return std::nullopt;
  return static_cast<size_t>(found - taken.begin());
}

Expected<Frozen> freeze(Session& session, const Program& code) {
  Frozen frozen;
  frozen.run = SKIDPROOF_TRY(session.run(code, 1));
  frozen.stack = SKIDPROOF_TRY(session.last_branches());
  frozen.taken =
      taken_branches(code, looping(code, 1, [](const Instruction&, uint64_t) { return false; }));
  if (!frozen.stack.empty()) {
    frozen.newest = index_of(frozen.taken, frozen.stack.front().from, &Branch::from);
  }
  if (!frozen.run.log.pmis.empty()) {
    frozen.reached = index_of(frozen.taken, frozen.run.log.pmis[0].ip, &Branch::to);
  }
  return frozen;
}

// How many entries, from the newest on, are the branches before one another.
size_t in_order(const Frozen& frozen) {
  size_t n = 0;
  while (n < frozen.stack.size() && frozen.newest && n <= *frozen.newest) {
    const Branch& expected = frozen.taken[*frozen.newest - n];
    if (frozen.stack[n].from != expected.from || frozen.stack[n].to != expected.to) break;
    ++n;
  }
  return n;
}

}  // namespace

SKIDPROOF_SUITE(LbrFreeze, kInterrupt);

// By a counter that does no PEBS.
SKIDPROOF_TEST(LbrFreeze, HoldsTheNewestBranchesInOrder, clause::L1, clause::L2) {
  SKIDPROOF_REQUIRE(uarch().last_branches.depth != 0, SkipCategory::kNotOnThisMicroarch, kNoStack);
  const Program& code =
      program("jump_chain", long_enough(calibrated(calibrate::Quantity::kPmiLateness)));
  for (uint64_t run = 0; run < kTries; ++run) {
    SessionPlan plan;
    interrupt_after(plan, uarch(), kFirstPeriod + 37 * run);
    Session session = need(Session::open(machine(), frozen_plan(plan)));

    const Frozen frozen = need(freeze(session, code));

    SKIDPROOF_REQUIRE(!frozen.run.log.pmis.empty(), SkipCategory::kNothingCompared, kNoInterrupt);
    SKIDPROOF_REQUIRE(frozen.reached.has_value(), SkipCategory::kNoise, kLate);
    VERIFY_EQ(frozen.stack.size(), size_t{uarch().last_branches.depth});
    VERIFY_TRUE(frozen.newest.has_value()) << "the newest entry is no branch of the program";
    if (!frozen.newest) return;
    VERIFY_LE(*frozen.newest, *frozen.reached) << "no branch behind the interrupt";
    VERIFY_EQ(in_order(frozen), frozen.stack.size());
  }
}

// What the record says of the program the stack must know, too: the interrupt comes with the record.
SKIDPROOF_TEST(LbrFreeze, KeepsTheBranchesBeforeTheSample, clause::L3, clause::L1, clause::L2) {
  SKIDPROOF_REQUIRE(uarch().last_branches.depth != 0, SkipCategory::kNotOnThisMicroarch, kNoStack);
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = every_jump(uarch(), counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code =
      program("jump_chain", long_enough(calibrated(calibrate::Quantity::kPmiLateness)));
  for (uint64_t run = 0; run < kTries; ++run) {
    SessionPlan plan = one_counter(
        counter, *event, usable_period(uarch(), counter, *event, kFirstPeriod + 37 * run), 1);
    plan.threshold_records = 1;
    Session session = need(Session::open(machine(), frozen_plan(plan)));

    const Frozen frozen = need(freeze(session, code));

    SKIDPROOF_REQUIRE(!frozen.run.log.pmis.empty() && !session.records().empty(),
                      SkipCategory::kNothingCompared, kNoInterrupt);
    SKIDPROOF_REQUIRE(frozen.reached.has_value(), SkipCategory::kNoise, kLate);
    // The sampled instruction went where the record was taken.
    const auto sampled = index_of(frozen.taken, session.records()[0].ip(), &Branch::to);
    VERIFY_TRUE(sampled.has_value()) << "the record is none of the program's jumps";
    VERIFY_TRUE(frozen.newest.has_value()) << "the newest entry is no branch of the program";
    if (!sampled || !frozen.newest) return;
    VERIFY_GE(*frozen.newest + 1, *sampled) << "a branch before the sampled instruction is missing";
    VERIFY_LE(*frozen.newest, *frozen.reached) << "no branch behind the interrupt";
    VERIFY_EQ(in_order(frozen), frozen.stack.size());
  }
}

}  // namespace skidproof::check::lbr_freeze
