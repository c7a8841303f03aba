// Suggestions for mistyped words.
#include "pebs/arch/near_match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace skidproof::arch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::array<std::string_view, 4> kKnown = {"nehalem", "westmere", "sandy-bridge",
                                                    "ivy-bridge"};

TEST(EditDistance, CountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("R19", "r19"), 0U);
}

TEST(NearMatches, NearestFirst) {
  EXPECT_THAT(near_matches("sandybridge", kKnown, 3), ElementsAre("sandy-bridge"));
  EXPECT_THAT(near_matches("ivi-bridge", kKnown, 1), ElementsAre("ivy-bridge"));
}

TEST(NearMatches, NothingNearGivesNothing) {
  EXPECT_THAT(near_matches("zen4", kKnown, 3), IsEmpty());
  EXPECT_THAT(near_matches("", kKnown, 3), IsEmpty());
}

TEST(NearMatches, KeepsToTheLimit) {
  constexpr std::array<std::string_view, 3> ids = {"R1", "R2", "R3"};
  EXPECT_THAT(near_matches("R9", ids, 2), ElementsAre("R1", "R2"));
}

}  // namespace
}  // namespace skidproof::arch
