// Traces of a small world: what counts as tested, and what the page says of it.
#include "harness/cli/tracing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/cli/traceability_page.h"

namespace skidproof::cli {
namespace {

using results::SkipCategory;
using results::Status;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Three clauses and three tests; the second has two parameters.
struct World {
  std::vector<const Clause*> clauses = {&clause::R1, &clause::R19, &clause::R58};
  std::vector<check::TestInfo> tests = {
      {.suite = "B",
       .name = "Second/PMC0",
       .clauses = {&clause::R19},
       .param = {},
       .file = "/x/suites/b.cc",
       .make = {}},
      {.suite = "B",
       .name = "Second/PMC1",
       .clauses = {&clause::R19},
       .param = {},
       .file = "/x/suites/b.cc",
       .make = {}},
      {.suite = "A",
       .name = "First",
       .clauses = {&clause::R1, &clause::R19},
       .param = {},
       .file = "/x/suites/a.cc",
       .make = {}},
  };
  std::vector<model::Defect> defects = {
      {"reset-never", "", model::Promise::kReset, &clause::R19, nullptr, nullptr},
      {"reset-odd", "", model::Promise::kReset, &clause::R19, nullptr, nullptr}};
  Evidence evidence;

  void ran(const std::string& id, const std::string& microarch, Status status,
           const std::string& broken = "", std::optional<SkipCategory> category = {}) {
    results::TestRow row;
    row.machine = "model:" + microarch + broken;
    row.microarch = microarch;
    row.id = id;
    row.status = status;
    row.skip_category = category;
    evidence.add(row);
  }
  void caught(const std::string& defect, const std::string& microarch,
              std::vector<std::string> by) {
    results::DefectRow row;
    row.id = defect;
    row.microarch = microarch;
    row.machine = "model:" + microarch + "+" + defect;
    row.caught_by = std::move(by);
    evidence.add(row);
  }
  Trace traced() const {
    return trace({.clauses = clauses,
                  .tests = tests,
                  .defects = defects,
                  .microarchs = {"old", "new", "newest"}},
                 evidence);
  }
};

TEST(Trace, WithoutRowsACitationCounts) {
  const Trace all = World().traced();
  ASSERT_EQ(all.clauses.size(), 3u);
  EXPECT_FALSE(all.from_rows);
  EXPECT_EQ(all.tests, 2u);
  EXPECT_TRUE(all.clauses[0].tested);
  ASSERT_EQ(all.clauses[1].tests.size(), 2u);
  EXPECT_EQ(all.clauses[1].tests[0].id, "A.First");
  EXPECT_EQ(all.clauses[1].tests[1].id, "B.Second");
  EXPECT_EQ(all.clauses[1].tests[1].source, "suites/b.cc");
  EXPECT_FALSE(all.clauses[2].tested);
  EXPECT_THAT(all.clauses[2].untested_because, HasSubstr("cannot be tested here: needs a VM exit"));
}

TEST(Trace, WithRowsATestMustHavePassedSomewhere) {
  World world;
  world.ran("B.Second/PMC0", "new", Status::kPass);
  world.ran("B.Second/PMC1", "new", Status::kSkip, "", SkipCategory::kMachineLimit);
  world.ran("B.Second/PMC0", "old", Status::kSkip, "", SkipCategory::kNotOnThisMicroarch);
  world.ran("A.First", "old", Status::kPass, "+reset-never");
  const Trace all = world.traced();
  EXPECT_THAT(all.microarchs, ElementsAre("old", "new"));
  EXPECT_FALSE(all.clauses[0].tested) << "a broken model proves nothing";
  EXPECT_EQ(all.clauses[0].untested_because, "its tests ran nowhere: A.First");
  EXPECT_TRUE(all.clauses[1].tested);
  EXPECT_THAT(all.clauses[1].tests[1].passed_on, ElementsAre("new"));
}

TEST(Trace, OneFailureOfAConformingModelSpoilsItsClauses) {
  World world;
  world.ran("B.Second/PMC0", "new", Status::kPass);
  world.ran("B.Second/PMC1", "new", Status::kFail);
  world.ran("A.First", "new", Status::kPass);
  const Trace all = world.traced();
  EXPECT_TRUE(all.clauses[0].tested);
  EXPECT_FALSE(all.clauses[1].tested);
  EXPECT_THAT(all.clauses[1].untested_because, HasSubstr("fails on a conforming model: B.Second"));
}

TEST(Trace, ATestThatOnlyClassifiesIsNoTest) {
  World world;
  world.ran("A.First", "new", Status::kSkip, "", SkipCategory::kNoPromise);
  const Trace all = world.traced();
  EXPECT_FALSE(all.clauses[0].tested);
  EXPECT_THAT(all.clauses[0].untested_because, HasSubstr("classified, not asserted"));
  world.ran("A.First", "old", Status::kPass);
  EXPECT_TRUE(world.traced().clauses[0].tested);
}

TEST(Trace, NamesTheFirstCatchOfEachMicroarch) {
  World world;
  world.ran("A.First", "new", Status::kPass);
  world.caught("reset-never", "old",
               {"Z.NotOurs", "B.Second/PMC1", "A.First"});  // as --all writes it
  world.caught("reset-never", "new", {"A.First"});
  world.caught("reset-odd", "old", {});
  const Trace all = world.traced();
  const std::vector<DefectTrace>& defects = all.clauses[1].defects;
  ASSERT_EQ(defects.size(), 2u);
  EXPECT_THAT(defects[0].caught_by, ElementsAre("A.First", "B.Second"));
  EXPECT_THAT(defects[0].caught_on, ElementsAre("old", "new"));
  EXPECT_THAT(defects[1].missed_on, ElementsAre("old"));
  EXPECT_THAT(not_caught(all), ElementsAre("reset-odd"));
  EXPECT_THAT(without_defect(all), ElementsAre("R1"));
}

TEST(Coverage, CountsWhatIsPicked) {
  const Trace all = World().traced();
  const Coverage every = coverage_of(all, [](const Clause&) { return true; });
  EXPECT_EQ(every.clauses, 3u);
  EXPECT_EQ(every.tested, 2u);
  EXPECT_DOUBLE_EQ(every.percent(), 100.0 * 2 / 3);
  EXPECT_DOUBLE_EQ(coverage_of(all, [](const Clause&) { return false; }).percent(), 100.0);
}

TEST(Page, SaysWhatRanWhereAndWhatItCaught) {
  World world;
  for (const char* microarch : {"old", "new", "newest"}) {
    world.ran("A.First", microarch, Status::kPass);
    world.ran("B.Second/PMC0", microarch,
              microarch == std::string("old") ? Status::kSkip : Status::kPass);
    world.caught("reset-never", microarch, {"B.Second/PMC0"});
  }
  const std::string page = page_of(world.traced());
  EXPECT_THAT(page, HasSubstr("[A.First](../suites/a.cc): all 3"));
  EXPECT_THAT(page, HasSubstr("[B.Second](../suites/b.cc): all but old"));
  EXPECT_THAT(page, HasSubstr("`reset-never`: B.Second<br>`reset-odd`: **not tried**"));
  EXPECT_THAT(page, HasSubstr("| all | 3 | 2 | 66.7 % |"));
  EXPECT_THAT(page, HasSubstr("| R58 | agreed |"));
  EXPECT_THAT(page, Not(HasSubstr("PMC0 |")));
}

TEST(Page, DoesNotDependOnTheOrderOfRows) {
  World one, other;
  one.ran("A.First", "old", Status::kPass);
  one.ran("B.Second/PMC0", "new", Status::kPass);
  one.caught("reset-never", "old", {"A.First"});
  other.caught("reset-never", "old", {"A.First"});
  other.ran("B.Second/PMC0", "new", Status::kPass);
  other.ran("A.First", "old", Status::kPass);
  EXPECT_EQ(page_of(one.traced()), page_of(other.traced()));
}

TEST(SomeOf, TakesAsFewWordsAsPossible) {
  const std::vector<std::string> all = {"a", "b", "c"};
  EXPECT_EQ(some_of({}, all), "none");
  EXPECT_EQ(some_of({"b"}, all), "b");
  EXPECT_EQ(some_of({"a", "c"}, all), "all but b");
  EXPECT_EQ(some_of(all, all), "all 3");
}

TEST(Shortened, CutsBehindAWord) {
  EXPECT_EQ(shortened("a word", 6), "a word");
  EXPECT_EQ(shortened("a word and more", 9), "a word …");
  EXPECT_EQ(shortened("§18 says so", 6), "§18 …");
}

TEST(FirstDifference, NamesTheLine) {
  EXPECT_THAT(first_difference("a\nb\n", "a\nb\n"), IsEmpty());
  EXPECT_THAT(first_difference("a\nb\n", "a\nc\n"), HasSubstr("line 2 reads\n  `b`"));
  EXPECT_THAT(first_difference("a\n", "a\nc\n"), HasSubstr("`c`"));
  EXPECT_THAT(first_difference("a\nc\n", "a\n"), HasSubstr("`c`"));
  EXPECT_THAT(first_difference("a", "a\n"), HasSubstr("ends differently"));
}

}  // namespace
}  // namespace skidproof::cli
