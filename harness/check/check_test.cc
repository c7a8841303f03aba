// The glue under test: a program of tests that must pass, fail, err, skip or be vacuous is run, and
// its rows say that they did.
#include "harness/check/check.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/check/ladder.h"
#include "harness/check/listener.h"
#include "results/writer.h"

namespace skidproof::check {
namespace {

using results::Json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct SelfTest {
  int exit = -1;
  std::vector<Json> rows;

  // The `test` row of that id; an object without fields when there is none.
  Json row(const std::string& id) const {
    for (const Json& one : rows) {
      if (one["type"] == "test" && one["id"] == id) return one;
    }
    ADD_FAILURE() << "no row of " << id;
    return Json::object();
  }
};

SelfTest run_self_test(const std::string& filter, const std::string& limit = "") {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) /
      fmt::format("skidproof-self-test-{}.jsonl", static_cast<long>(::getpid()));
  const std::string command = fmt::format("'{}' '{}' '{}' {} >/dev/null 2>&1",
                                          SKIDPROOF_CHECK_SELF_TEST, path.string(), filter, limit);
  SelfTest result;
  const int status = std::system(command.c_str());
  if (WIFEXITED(status)) result.exit = WEXITSTATUS(status);
  auto file = results::read_rows(path.string());
  EXPECT_TRUE(file.has_value());
  if (!file) return result;
  EXPECT_THAT(file->problems, IsEmpty());
  for (const auto& row : file->rows) result.rows.push_back(row.json);
  std::filesystem::remove(path);
  return result;
}

TEST(Listener, WritesTheIntentBeforeAndTheOutcomeAfter) {
  const SelfTest self = run_self_test("Must.Pass");
  EXPECT_EQ(self.exit, kExitHeld);
  ASSERT_THAT(self.rows, SizeIs(2));
  EXPECT_EQ(self.rows[0]["type"], "test-start");
  EXPECT_EQ(self.rows[0]["id"], "Must.Pass");
  const Json row = self.row("Must.Pass");
  EXPECT_EQ(row["status"], "pass");
  EXPECT_EQ(row["machine"], "fake");
  EXPECT_EQ(row["seed"], 5);
  EXPECT_EQ(row["iterations"], 2);
  EXPECT_EQ(row["comparisons"], 1);
  EXPECT_EQ(row["clauses"], Json::array({"R19"}));
  EXPECT_EQ(row["evidence"]["value"], "0x7");
  EXPECT_EQ(row["evidence"]["skid"]["kind"], "histogram");
  EXPECT_EQ(row["evidence"]["skid"]["bins"], Json::parse("[[1,9],[2,1]]"));
  EXPECT_EQ(row["evidence"]["skid"]["expected"], Json::parse("[1,2]"));
}

TEST(Listener, AFailureNamesPlaceClausesAndEvidence) {
  const SelfTest self = run_self_test("Must.Fail");
  EXPECT_EQ(self.exit, kExitPropertyFailed);
  const Json row = self.row("Must.Fail");
  EXPECT_EQ(row["status"], "fail");
  ASSERT_THAT(row["failures"], SizeIs(1));
  const std::string failure = row["failures"][0];
  EXPECT_THAT(failure, HasSubstr("tests.cc:"));
  EXPECT_THAT(failure, HasSubstr("the reset slot"));
  EXPECT_THAT(failure, HasSubstr("  need(machine().rdmsr(kMsr))\n"));
  EXPECT_EQ(row["stage"], "read");
  EXPECT_EQ(row["erratum"], "");
  EXPECT_EQ(row["clauses"], Json::array({"R19", "R1"}));
  const std::string citation = row["citations"]["R19"];
  EXPECT_THAT(citation, HasSubstr(std::string(clause::R19.text)));
  EXPECT_THAT(citation, HasSubstr(std::string(clause::R19.citation)));
  EXPECT_EQ(row["evidence"]["seen"], 8);
}

TEST(Listener, AFailedPropertyStaysFailedWhateverComesLater) {
  const SelfTest self = run_self_test("Must.StayFailed*");
  EXPECT_EQ(self.exit, kExitPropertyFailed);
  const Json row = self.row("Must.StayFailedWhenTheHarnessFailsLater");
  EXPECT_EQ(row["status"], "fail");
  EXPECT_THAT(row["failures"], SizeIs(2));
}

TEST(Listener, HarnessFailuresAreErrorsNotFailures) {
  const std::map<std::string, std::string> reasons = {
      {"Must.ErrWhenNeedFails", "reading: no way to it"},
      {"Must.ErrOnAnException", "from a library"},
      {"Must.ErrOnAnUnknownKernel", "no_such_kernel"},
      {"Must.ErrOnEvidenceGivenTwice", "`once`"},
      {"Must.ErrOnASkipWithoutCategory", "without a category"},
      {"Must.BeVacuousComparingNothing", "vacuous: 1 executed operations, 0 comparisons"},
      {"Must.BeVacuousExecutingNothing", "vacuous: 0 executed operations, 1 comparisons"},
      {"Must.BeVacuousObservingWithoutLooking", "vacuous: 0 executed operations"},
      {"Must.ErrOnWhatIsObservedTwice", "`once` is observed twice"},
  };
  const SelfTest self = run_self_test("Must.Err*:Must.BeVacuous*");
  EXPECT_EQ(self.exit, kExitHarnessFailed);
  EXPECT_THAT(self.rows, SizeIs(2 * reasons.size()));
  for (const auto& [id, reason] : reasons) {
    const Json row = self.row(id);
    EXPECT_EQ(row["status"], "error") << id;
    EXPECT_THAT(row["reason"].get<std::string>(), HasSubstr(reason)) << id;
  }
  const std::string where = self.row("Must.ErrWhenNeedFails")["reason"];
  EXPECT_THAT(where, HasSubstr("tests.cc:"));
}

TEST(Listener, SkipsCarryTheirCategory) {
  const SelfTest self = run_self_test("Must.Skip*");
  EXPECT_EQ(self.exit, kExitNothingRan);
  EXPECT_EQ(self.row("Must.Skip")["status"], "skip");
  EXPECT_EQ(self.row("Must.Skip")["skip_category"], "not-on-this-microarch");
  EXPECT_EQ(self.row("Must.Skip")["reason"], "too few counters");
  EXPECT_EQ(self.row("Must.SkipWithoutTheInstructionSet")["skip_category"], "isa-missing");
  EXPECT_EQ(self.row("Must.SkipWhatTheMachineDeclines")["skip_category"], "machine-limit");
  EXPECT_THAT(self.row("Must.SkipWhatTheMachineDeclines")["reason"].get<std::string>(),
              HasSubstr("no way to execute RDPMC"));
}

TEST(Listener, WhatProgramsCostNeedsNoPmu) {
  const SelfTest self = run_self_test("Bare.*");
  EXPECT_EQ(self.row("Bare.NeedsAPmu")["skip_category"], "no-pmu");
  EXPECT_EQ(self.row("Bare.NeedsNone")["status"], "pass");
  EXPECT_EQ(self.row("Bare.RefillsOnlyWhatIsItsOwn")["status"], "error");
}

// S25: a register that answers neither with a value nor with #GP is the harness' failure, however the
// test puts it.
TEST(Listener, AnAccessThatFailedIsNoSkip) {
  const SelfTest self = run_self_test("Must.BeInErrorWhe*");
  EXPECT_EQ(self.exit, kExitHarnessFailed);
  for (const char* id :
       {"Must.BeInErrorWhenAnAccessFailed", "Must.BeInErrorWhenAnAccessFailedBeforeASkip",
        "Must.BeInErrorWhereAModelLacksSomething"}) {
    EXPECT_EQ(self.row(id)["status"], "error") << id;
  }
  EXPECT_THAT(self.row("Must.BeInErrorWhenAnAccessFailedBeforeASkip")["reason"].get<std::string>(),
              AllOf(HasSubstr("there is no such register here"), HasSubstr("no way to it")));
}

// What an attempt found that asked a tape for something else, it found on no machine.
TEST(Listener, OffTheTapeIsAnErrorWhateverWasFound) {
  for (const char* id : {"Again.FailsOffTheTape", "Again.FailsOnceAndThenIsOffTheTape"}) {
    const SelfTest self = run_self_test(id);
    EXPECT_EQ(self.exit, kExitHarnessFailed);
    EXPECT_EQ(self.row(id)["status"], "error");
    EXPECT_EQ(self.row(id)["reason"], "off the tape: call 2 of the test");
  }
}

// --- Evidence

TEST(Evidence, APassSaysWhatItCompared) {
  const Json row = run_self_test("Must.CompareManyThings").row("Must.CompareManyThings");
  EXPECT_EQ(row["status"], "pass");
  EXPECT_EQ(row["comparisons"], 6);
  EXPECT_EQ(row["evidence"]["compared"], Json::parse(R"json({
      "need(machine().rdmsr(kMsr)) == value": {
        "times": 3, "seen": {"first": 7, "last": 9, "least": 5, "most": 9},
        "expected": {"first": 7, "last": 9, "least": 5, "most": 9}},
      "std::vector<int>{1} matches ::testing::SizeIs(1)": {"times": 1, "seen": "{ 1 }"},
      "machine().rdmsr(kMsr)": {"times": 1, "seen": true},
      "&machine() != nullptr": {"times": 1, "seen": "not null", "expected": "null"}})json"));
}

TEST(Evidence, WhatNothingPromisesIsObserved) {
  const SelfTest self = run_self_test("Must.Observe:Must.PassThoughItObservesToo");
  EXPECT_EQ(self.exit, kExitHeld);
  const Json observed = self.row("Must.Observe");
  EXPECT_EQ(observed["status"], "observed");
  EXPECT_EQ(observed["evidence"]["observed"],
            Json::parse(R"({"the register": "0x0", "its neighbour": null})"));
  const Json held = self.row("Must.PassThoughItObservesToo");
  EXPECT_EQ(held["status"], "pass");
  EXPECT_EQ(held["evidence"]["observed"], Json::parse(R"({"the register": 0})"));
  EXPECT_TRUE(held["evidence"].contains("compared"));
}

// --- Attempts

TEST(Attempts, WhatComesAgainIsAFailureWithItsRate) {
  const SelfTest self = run_self_test("Again.FailsAlways");
  EXPECT_EQ(self.exit, kExitPropertyFailed);
  const Json row = self.row("Again.FailsAlways");
  EXPECT_EQ(row["status"], "fail");
  EXPECT_THAT(row["failures"], SizeIs(1));
  EXPECT_EQ(row["evidence"]["attempt"], 0) << "what it shows is of the first that failed";
  EXPECT_EQ(row["evidence"]["seed"], results::hex(derive_seed(5, "Again.FailsAlways")));
  EXPECT_EQ(row["repetitions"]["n"], 4);
  EXPECT_EQ(row["repetitions"]["k"], 4);
  EXPECT_EQ(row["repetitions"]["rate"], 1.0);
  EXPECT_NEAR(row["repetitions"]["low"].get<double>(), 0.3976, 1e-4);  // 0.025^(1/4)
  EXPECT_EQ(row["repetitions"]["high"], 1.0);
}

TEST(Attempts, TwoFailuresAreEnoughWhereNobodyAsksForTheRate) {
  const Json row = run_self_test("Again.FailsAlways", "100 1 certain").row("Again.FailsAlways");
  EXPECT_EQ(row["status"], "fail");
  EXPECT_EQ(row["repetitions"]["n"], 2);
}

TEST(Attempts, WhatFailsNowAndThenIsAFailureToo) {
  const Json row = run_self_test("Again.FailsTwiceInFive").row("Again.FailsTwiceInFive");
  EXPECT_EQ(row["status"], "fail");
  EXPECT_EQ(row["repetitions"]["n"], 5);
  EXPECT_EQ(row["repetitions"]["k"], 2);
  EXPECT_EQ(row["repetitions"]["rate"], 0.4);
  EXPECT_EQ(row["evidence"]["attempt"], 0);
}

TEST(Attempts, WhatNeverComesAgainIsDisturbed) {
  const SelfTest self = run_self_test("Again.FailsOnce");
  EXPECT_EQ(self.exit, kExitHeld) << "it decides nothing";
  const Json row = self.row("Again.FailsOnce");
  EXPECT_EQ(row["status"], "disturbed");
  EXPECT_EQ(row["reason"], "failed in 1 of 12 attempts, and never again");
  EXPECT_THAT(row["failures"], SizeIs(1));
  EXPECT_EQ(row["repetitions"]["n"], 12);
}

TEST(Attempts, ASkipTakesNoFailureBack) {
  const SelfTest self = run_self_test("Again.FailsOnceAndThenSkips");
  EXPECT_EQ(self.exit, kExitPropertyFailed);
  const Json row = self.row("Again.FailsOnceAndThenSkips");
  EXPECT_EQ(row["status"], "fail");
  EXPECT_TRUE(row["skip_category"].is_null());
  EXPECT_EQ(row["reason"], "failed in 1 of 1 attempts; 3 more could not be judged: out of cheek");
}

TEST(Attempts, NoiseVoidsAFailureButNotAPass) {
  const SelfTest self = run_self_test("Again.*UnderNoise*");
  EXPECT_EQ(self.exit, kExitHeld);
  EXPECT_EQ(self.row("Again.FailsUnderNoiseAlways")["status"], "disturbed");
  EXPECT_EQ(self.row("Again.FailsUnderNoiseAlways")["repetitions"]["n"], 0);
  EXPECT_EQ(self.row("Again.FailsUnderNoiseAlways")["repetitions"]["voided"], 8);
  EXPECT_EQ(self.row("Again.FailsUnderNoiseAlways")["evidence"]["noise"]["smi"], 1);
  EXPECT_EQ(self.row("Again.FailsUnderNoiseOnce")["status"], "pass");
  EXPECT_EQ(self.row("Again.FailsUnderNoiseOnce")["repetitions"]["voided"], 1);
  EXPECT_EQ(self.row("Again.HoldsUnderNoise")["status"], "pass");
  EXPECT_EQ(self.row("Again.HoldsUnderNoise")["repetitions"]["voided"], 0);
}

TEST(Attempts, NoiseOfRunsThatWereSetAsideVoidsNothing) {
  const SelfTest self = run_self_test("Again.FailsBesideNoiseThatIsSetAside");
  EXPECT_EQ(self.exit, kExitPropertyFailed);
  const auto row = self.row("Again.FailsBesideNoiseThatIsSetAside");
  EXPECT_EQ(row["status"], "fail");
  EXPECT_EQ(row["repetitions"]["voided"], 0);
  EXPECT_EQ(row["evidence"]["noise"]["runs-set-aside"], 1);
}

TEST(Attempts, ATimeoutIsTriedAgainAndThenAnError) {
  const SelfTest self = run_self_test("Again.TimesOut*");
  EXPECT_EQ(self.exit, kExitHarnessFailed);
  EXPECT_EQ(self.row("Again.TimesOutOnce")["status"], "pass");
  EXPECT_EQ(self.row("Again.TimesOutOnce")["repetitions"]["voided"], 1);
  EXPECT_EQ(self.row("Again.TimesOutAlways")["status"], "error");
  EXPECT_THAT(self.row("Again.TimesOutAlways")["reason"].get<std::string>(),
              HasSubstr("does not come back"));
  EXPECT_EQ(self.row("Again.TimesOutAlways")["repetitions"]["voided"], 3);
}

// --- Stages

TEST(Stages, TestsRunInTheirOrder) {
  const SelfTest self = run_self_test("Later.*:Each.*:Must.Pass");
  std::vector<std::string> stages;
  for (const Json& row : self.rows) {
    if (row["type"] == "test") stages.push_back(row["stage"]);
  }
  EXPECT_THAT(stages, ElementsAre("read", "count", "count", "edges"));
}

TEST(Stages, WhatStandsOnBrokenGroundIsLeftOutWithTheReason) {
  const SelfTest self = run_self_test("Must.Pass:Each.*:Again.FailsAlways:Later.*", "100 1 ladder");
  EXPECT_EQ(self.exit, kExitPropertyFailed);
  EXPECT_EQ(self.row("Must.Pass")["status"], "pass");
  EXPECT_EQ(self.row("Each.Counter/PMC3.non_temporal")["status"], "pass") << "the same stage ends";
  EXPECT_EQ(self.row("Later.StandsOnTheGround")["skip_category"], "ground-broken");
  EXPECT_EQ(self.row("Later.StandsOnTheGround")["reason"],
            "stage `count` did not hold: Again.FailsAlways failed; --all goes on");
  EXPECT_EQ(self.row("Later.StandsOnTheGround")["iterations"], 0) << "it touches nothing";
}

TEST(Stages, WithoutALadderEverythingRuns) {
  const SelfTest self = run_self_test("Again.FailsAlways:Later.*");
  EXPECT_EQ(self.row("Later.StandsOnTheGround")["status"], "pass");
}

TEST(Stages, WhatAnErratumOrNoiseExplainsBreaksNoGround) {
  using results::Status;
  Ladder ladder;
  for (Status status : results::kStatuses) {
    if (status == Status::kFail || status == Status::kError) continue;
    ladder.note(Stage::kRead, "A.B", status);
  }
  EXPECT_FALSE(ladder.broken_below(Stage::kEdges));
  ladder.note(Stage::kBuffer, "A.C", Status::kError);
  ladder.note(Stage::kBuffer, "A.D", Status::kFail);
  EXPECT_FALSE(ladder.broken_below(Stage::kBuffer)) << "its own stage goes on";
  EXPECT_EQ(*ladder.broken_below(Stage::kInterrupt),
            "stage `buffer` did not hold: A.C was in error, and 1 more; --all goes on");
  ladder.reset();
  EXPECT_FALSE(ladder.broken_below(Stage::kInterrupt));
}

TEST(Stages, ASuiteWithoutOneEndsTheProcess) {
  const auto forgets = [] {
    internal::register_test("Forgetful", "Test", "forgetful.cc", 7, {&clause::R1}, {}, nullptr);
    static_cast<void>(tests());
  };
  EXPECT_DEATH(forgets(),
               "forgetful.cc:7: the suite Forgetful has no stage: add "
               "SKIDPROOF_SUITE\\(Forgetful");
  const auto twice = [] {
    internal::register_suite("Twice", Stage::kRead, "a.cc", 1);
    internal::register_suite("Twice", Stage::kRead, "b.cc", 2);
  };
  EXPECT_DEATH(twice(), "b.cc:2: the suite Twice has a stage already");
}

TEST(Listener, AnAnsweredGeneralProtectionIsSomethingExecuted) {
  EXPECT_EQ(run_self_test("Must.CountGeneralProtection*").exit, kExitHeld);
}

TEST(Listener, ParametersAreNamedAndFilterable) {
  const SelfTest self = run_self_test("Each.Counter/PMC3.*");
  EXPECT_EQ(self.exit, kExitHeld);
  ASSERT_THAT(self.rows, SizeIs(2));
  EXPECT_EQ(self.rows[1]["id"], "Each.Counter/PMC3.non_temporal");
}

TEST(Listener, EachRepetitionHasItsSeed) {
  const SelfTest self = run_self_test("Must.Pass", "100 2");
  ASSERT_THAT(self.rows, SizeIs(4));
  EXPECT_EQ(self.rows[1]["repetition"], 0);
  EXPECT_EQ(self.rows[1]["seed"], 5);
  EXPECT_EQ(self.rows[3]["repetition"], 1);
  EXPECT_EQ(self.rows[3]["seed"], 6);
}

TEST(Listener, ATestThatGoogleTestPassesOverIsNotAPass) {
  const SelfTest self = run_self_test("Must.Fail:Must.Skip", "100 1 fail-fast certain");
  EXPECT_EQ(self.exit, kExitPropertyFailed);
  EXPECT_EQ(self.row("Must.Fail")["status"], "fail");
  EXPECT_EQ(self.row("Must.Skip")["skip_category"], "interrupted");
}

TEST(Listener, AStoppedRunEndsItsTestAndBeginsNoOther) {
  const SelfTest self = run_self_test("Stop.*");
  EXPECT_EQ(self.exit, kExitNothingRan);
  ASSERT_THAT(self.rows, SizeIs(2));
  EXPECT_EQ(self.row("Stop.First")["skip_category"], "deadline");
  EXPECT_EQ(self.row("Stop.First")["reason"], "the deadline came");
}

TEST(Listener, AFullDiskEndsTheRun) {
  const SelfTest self = run_self_test("Each.*", "2");
  EXPECT_EQ(self.exit, kExitHarnessFailed);
  EXPECT_THAT(self.rows, SizeIs(2));
}

TEST(Filter, SpeaksGoogleTestsLanguage) {
  EXPECT_TRUE(matches_filter("*", "A.B"));
  EXPECT_TRUE(matches_filter("", "A.B"));
  EXPECT_TRUE(matches_filter("X.*:A.?", "A.B"));
  EXPECT_FALSE(matches_filter("A.?", "A.BC"));
  EXPECT_FALSE(matches_filter("A.*-A.B", "A.B"));
  EXPECT_TRUE(matches_filter("A.*-A.B", "A.C"));
  EXPECT_TRUE(matches_filter("-A.B:A.C", "A.D"));
  EXPECT_FALSE(matches_filter("-A.B:A.C", "A.C"));
  EXPECT_TRUE(matches_filter("*b*d*", "abcbd"));
  EXPECT_FALSE(matches_filter("A", "AB"));
}

TEST(ExitCode, AFailureOutweighsAnErrorOutweighsASkip) {
  using results::Status;
  results::StatusCounts counts;
  EXPECT_EQ(exit_code(counts), kExitNothingRan);
  counts[Status::kSkip] = 3;
  EXPECT_EQ(exit_code(counts), kExitNothingRan);
  for (Status harmless :
       {Status::kPass, Status::kXfail, Status::kXpass, Status::kObserved, Status::kDisturbed}) {
    counts[harmless] = 1;
    EXPECT_EQ(exit_code(counts), kExitHeld) << results::name_of(harmless);
    if (harmless != Status::kPass) counts[harmless] = 0;
  }
  counts[Status::kError] = 1;
  EXPECT_EQ(exit_code(counts), kExitHarnessFailed);
  counts[Status::kFail] = 1;
  EXPECT_EQ(exit_code(counts), kExitPropertyFailed);
}

TEST(Over, ProductJoinsLabelsAndValues) {
  const auto both = over::product(over::counters({1, 2}), over::numbers("period", {5}));
  ASSERT_THAT(both, SizeIs(2));
  EXPECT_EQ(both[1].label, "PMC2.period5");
  EXPECT_THAT(both[1].numbers, ElementsAre(2u, 5u));
}

}  // namespace
}  // namespace skidproof::check
