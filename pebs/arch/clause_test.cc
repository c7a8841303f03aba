// The clause registry: complete, unique, cited, and found by id.
#include "pebs/arch/clause.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <set>
#include <string>
#include <vector>

namespace skidproof {
namespace {

using testing::HasSubstr;

TEST(Clauses, IdsAreUniqueAndEveryRowIsFilled) {
  std::set<std::string_view> ids, texts;
  for (const Clause* clause : clauses()) {
    SCOPED_TRACE(std::string(clause->id));
    EXPECT_TRUE(ids.insert(clause->id).second);
    EXPECT_TRUE(texts.insert(clause->text).second) << "two clauses say the same";
    EXPECT_GE(clause->text.size(), 20U);
    EXPECT_EQ(clause->text.back(), '.');
    EXPECT_GE(clause->citation.size(), 10U);
  }
}

// The whole rule sets of the behaviour and DS-area chapters.
TEST(Clauses, EveryBehaviourAndDsAreaRuleIsThere) {
  std::vector<std::string> expected;
  for (int n = 1; n <= 75; ++n) expected.push_back(fmt::format("R{}", n));
  for (int n = 1; n <= 16; ++n) expected.push_back(fmt::format("D{}", n));
  for (const char* id : {"R47a", "D6a", "D13a", "D13b"}) expected.emplace_back(id);
  std::vector<std::string> actual;
  for (const Clause* clause : clauses()) {
    if (clause->id[0] == 'R' || clause->id[0] == 'D') actual.emplace_back(clause->id);
  }
  EXPECT_THAT(actual, testing::UnorderedElementsAreArray(expected));
}

TEST(Clauses, NumbersOfRegistersAndPlacementHaveNoGap) {
  for (char group : {'A', 'B', 'E', 'G', 'M', 'N', 'P', 'T'}) {
    std::set<int> numbers;
    for (const Clause* clause : clauses()) {
      if (clause->id[0] == group) numbers.insert(std::stoi(std::string(clause->id.substr(1))));
    }
    ASSERT_FALSE(numbers.empty());
    EXPECT_EQ(*numbers.begin(), 1) << group;
    EXPECT_EQ(*numbers.rbegin(), static_cast<int>(numbers.size())) << group;
  }
}

TEST(Clauses, ConstantsAreTheRegistrysRows) {
  EXPECT_EQ(clause::R19.id, "R19");
  const auto found = find_clause("R19");
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, &clause::R19);
}

TEST(Clauses, AgreementFollowsTheSources) {
  for (const Clause* disputed :
       {&clause::R12, &clause::R21, &clause::R33, &clause::R45, &clause::R46, &clause::D3,
        &clause::D11, &clause::D12, &clause::D16}) {
    EXPECT_EQ(disputed->agreement, Agreement::kDisputed) << disputed->id;
  }
  for (const Clause* inferred : {&clause::R3, &clause::R9, &clause::R18, &clause::R20, &clause::R35,
                                 &clause::R50, &clause::D8, &clause::D15}) {
    EXPECT_EQ(inferred->agreement, Agreement::kInferred) << inferred->id;
  }
  for (const Clause* agreed : {&clause::R1, &clause::R2, &clause::R16, &clause::R19, &clause::R44,
                               &clause::R51, &clause::D2, &clause::D5, &clause::P5, &clause::P7}) {
    EXPECT_EQ(agreed->agreement, Agreement::kAgreed) << agreed->id;
  }
}

TEST(Clauses, WhatTheExcerptsStateIsMarked) {
  for (const Clause* stated : {&clause::R1, &clause::R16, &clause::R19, &clause::R37, &clause::R38,
                               &clause::R44, &clause::R48, &clause::D10, &clause::P5}) {
    EXPECT_TRUE(stated->excerpt) << stated->id;
  }
  for (const Clause* elsewhere : {&clause::R3, &clause::R51, &clause::R71, &clause::P13}) {
    EXPECT_FALSE(elsewhere->excerpt) << elsewhere->id;
  }
}

TEST(FindClause, IgnoresLetterCase) {
  const auto found = find_clause("r47A");
  ASSERT_TRUE(found);
  EXPECT_EQ((*found)->id, "R47a");
}

TEST(FindClause, UnknownOneNamesNearIds) {
  const auto found = find_clause("R76");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(found.error().message, HasSubstr("'R76'"));
  EXPECT_THAT(found.error().advice, HasSubstr("Did you mean"));
  EXPECT_THAT(found.error().advice, HasSubstr("R7"));
}

TEST(FindClause, NonsenseSaysWhatIdsLookLike) {
  const auto found = find_clause("skid");
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().advice, HasSubstr("Clauses are A"));
}

TEST(Agreement, Names) {
  EXPECT_EQ(name_of(Agreement::kAgreed), "agreed");
  EXPECT_EQ(name_of(Agreement::kDisputed), "disputed");
  EXPECT_EQ(name_of(Agreement::kInferred), "inferred");
}

}  // namespace
}  // namespace skidproof
