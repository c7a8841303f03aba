// The reasons for clauses without a test.
#include "pebs/arch/untested.h"

#include <gtest/gtest.h>

#include <set>

namespace skidproof {
namespace {

TEST(Untested, EachClauseAtMostOnceAndWithAReason) {
  std::set<const Clause*> seen;
  for (const Untested& row : untested()) {
    SCOPED_TRACE(std::string(row.clause->id));
    EXPECT_TRUE(seen.insert(row.clause).second);
    EXPECT_GE(row.reason.size(), 15U);
    EXPECT_NE(row.reason.back(), '.');
    EXPECT_EQ(find_untested(*row.clause), &row);
  }
}

// What the project began with is what it must test.
TEST(Untested, NoClauseOfTheExcerptsIsGivenUp) {
  for (const Untested& row : untested()) {
    EXPECT_FALSE(row.clause->excerpt && row.testable == Testable::kNever) << row.clause->id;
  }
}

TEST(Untested, AnUnlistedClauseHasNoRow) { EXPECT_EQ(find_untested(clause::R19), nullptr); }

TEST(Testable, Names) {
  EXPECT_EQ(name_of(Testable::kNotYet), "no test yet");
  EXPECT_EQ(name_of(Testable::kNever), "cannot be tested here");
}

}  // namespace
}  // namespace skidproof
