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

#include "harness/check/listener.h"
#include "results/writer.h"

namespace skidproof::check {
namespace {

using results::Json;
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
  EXPECT_EQ(self.row("Must.SkipWhatTheMachineDoesNotHave")["skip_category"], "machine-limit");
  EXPECT_EQ(self.row("Must.SkipWhatTheMachineDoesNotHave")["reason"],
            "reading: no such thing here");
}

TEST(Listener, AModelThatLacksSomethingIsAnError) {
  const SelfTest self = run_self_test("Must.BeInErrorWhereAModelLacksSomething");
  EXPECT_EQ(self.exit, kExitHarnessFailed);
  EXPECT_EQ(self.row("Must.BeInErrorWhereAModelLacksSomething")["status"], "error");
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
  const SelfTest self = run_self_test("Must.Fail:Must.Skip", "100 1 fail-fast");
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
  counts[Status::kPass] = 1;
  EXPECT_EQ(exit_code(counts), kExitHeld);
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
