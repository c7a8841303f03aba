// Tests that must pass, fail, err, skip, be vacuous or end the run: the name says which. check_test
// runs them and reads their rows; they are no tests of a processor.
#include <stdexcept>

#include "harness/check/check.h"
#include "harness/check/outcome.h"
#include "harness/check/self_test/fake_machine.h"
#include "harness/check/set_aside.h"

namespace skidproof::check {
namespace {

constexpr uint32_t kMsr = 0x10;

SKIDPROOF_KERNEL(self_test_needs_avx2){
    .brief = "a kernel that no fake machine can run",
    .needs = [](const Params&) { return std::vector<Isa>{Isa::kAvx2}; },
    .per_iteration = [](const Params&) { return Expectations{}; },
    .body = [](Emitter&, const Params&) {},
};

}  // namespace

SKIDPROOF_SUITE(Must, kRead);
SKIDPROOF_SUITE(Each, kCount);
SKIDPROOF_SUITE(Again, kCount);
SKIDPROOF_SUITE(Bare, kRead);
SKIDPROOF_SUITE(Later, kEdges);
SKIDPROOF_SUITE(Stop, kEdges);

SKIDPROOF_TEST(Must, Pass, clause::R19) {
  need(machine().wrmsr(kMsr, 7));
  evidence("value", results::hex(7));
  histogram("skid", "instructions", {{1, 9}, {2, 1}}, {1, 2});
  VERIFY_EQ(need(machine().rdmsr(kMsr)), 7u);
}

SKIDPROOF_TEST(Must, CountGeneralProtectionAsAnAnswer, clause::R1) {
  VERIFY_FALSE(machine().rdmsr(FakeMachine::kAbsent).has_value());
}

SKIDPROOF_TEST(Must, Fail, clause::R19, clause::R1) {
  evidence("seen", 8);
  VERIFY_EQ(need(machine().rdmsr(kMsr)), 8u) << "the reset slot";
}

SKIDPROOF_TEST(Must, StayFailedWhenTheHarnessFailsLater, clause::R1) {
  VERIFY_EQ(need(machine().rdmsr(kMsr)), 1u);
  need(machine().rdmsr(FakeMachine::kUnreachable));
}

SKIDPROOF_TEST(Must, ErrWhenNeedFails, clause::R1) {
  VERIFY_EQ(need(machine().rdmsr(kMsr)), 0u);
  need(machine().rdmsr(FakeMachine::kUnreachable), "reading");
  ADD_FAILURE() << "need() must not return";
}

SKIDPROOF_TEST(Must, ErrOnAnException, clause::R1) {
  VERIFY_EQ(need(machine().rdmsr(kMsr)), 0u);
  throw std::runtime_error("from a library");
}

SKIDPROOF_TEST(Must, ErrOnAnUnknownKernel, clause::R1) { program("no_such_kernel"); }

SKIDPROOF_TEST(Must, ErrOnEvidenceGivenTwice, clause::R1) {
  VERIFY_EQ(need(machine().rdmsr(kMsr)), 0u);
  evidence("once", 1);
  evidence("once", 2);
}

SKIDPROOF_TEST(Must, ErrOnASkipWithoutCategory, clause::R1) { GTEST_SKIP() << "no reason"; }

SKIDPROOF_TEST(Must, Skip, clause::R1) {
  SKIDPROOF_REQUIRE(uarch().gp_counters > 100, SkipCategory::kNotOnThisMicroarch,
                    "too few counters");
  ADD_FAILURE() << "SKIDPROOF_REQUIRE must return";
}

SKIDPROOF_TEST(Must, BeInErrorWhenAnAccessFailed, clause::R1) {
  VERIFY_EQ(need(machine().rdmsr(kMsr)), 0u);
  need(machine().wrmsr(FakeMachine::kNoModel, 1));
  need(machine().rdmsr(FakeMachine::kNotHere), "reading");
  ADD_FAILURE() << "need() must not return";
}

SKIDPROOF_TEST(Must, BeInErrorWhereAModelLacksSomething, clause::R1) {
  need(machine().rdmsr(FakeMachine::kNotHere), "reading");
  ADD_FAILURE() << "need() must not return";
}

SKIDPROOF_TEST(Must, SkipWithoutTheInstructionSet, clause::R1) { program("self_test_needs_avx2"); }

SKIDPROOF_TEST(Must, BeVacuousComparingNothing, clause::R1) { need(machine().rdmsr(kMsr)); }

SKIDPROOF_TEST(Must, BeVacuousExecutingNothing, clause::R1) {
  VERIFY_FALSE(machine().rdmsr(FakeMachine::kUnreachable).has_value());
}

SKIDPROOF_TEST(Must, BeInErrorWhenAnAccessFailedBeforeASkip, clause::R1) {
  const bool answers = machine().rdmsr(FakeMachine::kUnreachable).has_value();
  SKIDPROOF_REQUIRE(answers, SkipCategory::kMachineLimit, "there is no such register here");
}

SKIDPROOF_TEST(Must, SkipWhatTheMachineDeclines, clause::R1) {
  need(machine().wrmsr(FakeMachine::kNoModel, 1));
  need(machine().rdpmc({}), "reading");
  ADD_FAILURE() << "need() must not return";
}

SKIDPROOF_TEST(Must, CompareManyThings, clause::R1) {
  for (uint64_t value : {7, 5, 9}) {
    need(machine().wrmsr(kMsr, value));
    VERIFY_EQ(need(machine().rdmsr(kMsr)), value);
  }
  VERIFY_THAT(std::vector<int>{1}, ::testing::SizeIs(1));
  VERIFY_TRUE(machine().rdmsr(kMsr));
  VERIFY_NE(&machine(), nullptr);
}

SKIDPROOF_TEST(Must, Observe, clause::R1) {
  observe("the register", results::hex(need(machine().rdmsr(kMsr))));
  observe("its neighbour", nullptr);
}

SKIDPROOF_TEST(Must, PassThoughItObservesToo, clause::R1) {
  observe("the register", need(machine().rdmsr(kMsr)));
  VERIFY_EQ(need(machine().rdmsr(kMsr)), 0u);
}

SKIDPROOF_TEST(Must, ErrOnWhatIsObservedTwice, clause::R1) {
  observe("once", need(machine().rdmsr(kMsr)));
  observe("once", 2);
}

SKIDPROOF_TEST(Must, BeVacuousObservingWithoutLooking, clause::R1) { observe("nothing", 0); }

// The attempts of one test: each of these does in the i-th what its name says. A process runs each
// once.
int attempts() {
  static int made = 0;
  return made++;
}

SKIDPROOF_TEST(Again, FailsAlways, clause::R1) {
  evidence("attempt", attempts());
  evidence("seed", results::hex(seed()));
  VERIFY_EQ(need(machine().rdmsr(kMsr)), 1u);
}

SKIDPROOF_TEST(Again, FailsTwiceInFive, clause::R1) {
  const int attempt = attempts();
  evidence("attempt", attempt);
  VERIFY_EQ(need(machine().rdmsr(kMsr)), attempt == 0 || attempt == 4 ? 1u : 0u);
}

SKIDPROOF_TEST(Again, FailsOnce, clause::R1) {
  need(machine().wrmsr(kMsr, attempts() == 0 ? 1 : 0));
  VERIFY_EQ(need(machine().rdmsr(kMsr)), 0u) << "a fresh machine each time";
}

SKIDPROOF_TEST(Again, FailsOnceAndThenSkips, clause::R1) {
  VERIFY_EQ(need(machine().rdmsr(kMsr)), attempts() == 0 ? 1u : 0u);
  SKIDPROOF_REQUIRE(attempts() == 1, SkipCategory::kNoResource, "out of cheek");
}

SKIDPROOF_TEST(Again, FailsOnceAndThenIsOffTheTape, clause::R1) {
  const bool first = attempts() == 0;
  if (!first) need(machine().wrmsr(FakeMachine::kOffTape, 1));
  VERIFY_EQ(need(machine().rdmsr(kMsr)), first ? 1u : 0u);
}

SKIDPROOF_TEST(Again, FailsOffTheTape, clause::R1) {
  need(machine().wrmsr(FakeMachine::kOffTape, 1));
  VERIFY_EQ(need(machine().rdmsr(kMsr)), 1u);
}

SKIDPROOF_TEST(Again, FailsUnderNoiseAlways, clause::R1) {
  need(machine().wrmsr(FakeMachine::kNoisy, 1));
  need(machine().run(Program{}, RunPlan{}));
  VERIFY_EQ(need(machine().rdmsr(kMsr)), 1u);
}

SKIDPROOF_TEST(Again, FailsBesideNoiseThatIsSetAside, clause::R1) {
  need(machine().run(Program{}, RunPlan{}));
  need(machine().wrmsr(FakeMachine::kNoisy, 1));
  if (!set_aside(need(machine().run(Program{}, RunPlan{}))))
    need(machine().rdmsr(FakeMachine::kUnreachable));
  VERIFY_EQ(need(machine().rdmsr(kMsr)), 1u);
}

SKIDPROOF_TEST(Again, FailsUnderNoiseOnce, clause::R1) {
  const bool noisy = attempts() == 0;
  if (noisy) need(machine().wrmsr(FakeMachine::kNoisy, 1));
  need(machine().run(Program{}, RunPlan{}));
  VERIFY_EQ(need(machine().rdmsr(kMsr)), noisy ? 1u : 0u);
}

SKIDPROOF_TEST(Again, HoldsUnderNoise, clause::R1) {
  need(machine().wrmsr(FakeMachine::kNoisy, 1));
  need(machine().run(Program{}, RunPlan{}));
  VERIFY_EQ(need(machine().rdmsr(kMsr)), 0u);
}

SKIDPROOF_TEST(Again, TimesOutOnce, clause::R1) {
  if (attempts() == 0) need(machine().wrmsr(FakeMachine::kHangs, 1));
  need(machine().run(Program{}, RunPlan{}));
  VERIFY_EQ(need(machine().rdmsr(kMsr)), 0u);
}

SKIDPROOF_TEST(Again, TimesOutAlways, clause::R1) {
  need(machine().wrmsr(FakeMachine::kHangs, 1));
  need(machine().run(Program{}, RunPlan{}));
}

SKIDPROOF_TEST(Later, StandsOnTheGround, clause::R1) { VERIFY_EQ(need(machine().rdmsr(kMsr)), 0u); }

// On a processor without a PMU that no row of facts covers.
SKIDPROOF_TEST(Bare, NeedsAPmu, clause::R1) { need(machine().rdmsr(kMsr)); }

SKIDPROOF_TIMING_TEST(Bare, NeedsNone, clause::R1) {
  VERIFY_FALSE(machine().identity().pmu);
  need(machine().run(Program{}, RunPlan{}));
}

SKIDPROOF_TIMING_TEST(Bare, RefillsOnlyWhatIsItsOwn, clause::R1) {
  need(machine().run(Program{}, RunPlan{}));
  refill(Program{}, 1);
  ADD_FAILURE() << "refill() must not return";
}

SKIDPROOF_TEST_OVER(Each, Counter,
                    over::product(over::counters({0, 3}), over::words({"non-temporal"})),
                    clause::R19) {
  need(machine().wrmsr(kMsr, param().number(0)));
  VERIFY_EQ(need(machine().rdmsr(kMsr)), param().number(0));
  VERIFY_EQ(param().word(), "non-temporal");
}

SKIDPROOF_TEST(Stop, First, clause::R1) {
  request_stop(SkipCategory::kDeadline, "the deadline came");
  need(machine().run(Program{}, RunPlan{}));
  ADD_FAILURE() << "a stopped run executes nothing more";
}

SKIDPROOF_TEST(Stop, Second, clause::R1) { ADD_FAILURE() << "must not begin"; }

}  // namespace skidproof::check
