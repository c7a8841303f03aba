// Who does what: every unit once, evenly, and whatever the period of the plan.
#include "harness/cli/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace skidproof::cli {
namespace {

using ::testing::HasSubstr;

TEST(Shard, EveryUnitIsOneShardsAndNoneHasMoreThanOneUnitMore) {
  for (uint64_t of : {1u, 2u, 3u, 4u, 7u, 64u}) {
    for (uint64_t units : {0u, 1u, 5u, 64u, 1411u}) {
      std::map<uint64_t, uint64_t> own;
      for (uint64_t position = 0; position < units; ++position) {
        uint64_t owners = 0;
        for (uint64_t index = 1; index <= of; ++index) {
          const bool has = Shard{.index = index, .of = of}.has(position);
          owners += has;
          own[index] += has;
        }
        ASSERT_EQ(owners, 1u) << position << " of " << units << " for " << of;
      }
      uint64_t least = units, most = 0;
      for (const auto& [index, count] : own) {
        least = std::min(least, count);
        most = std::max(most, count);
      }
      if (units > 0) {
        EXPECT_LE(most - least, 1u) << units << " for " << of;
      }
    }
  }
}

// A test over four counters, with four shards: no shard is that of one counter.
TEST(Shard, APlanThatRepeatsWithThePeriodOfTheShardsIsSpread) {
  std::map<uint64_t, std::map<uint64_t, uint64_t>> counters;  // of each shard
  for (uint64_t position = 0; position < 400; ++position) {
    ++counters[shard_of(position, 4)][position % 4];
  }
  for (const auto& [index, of_shard] : counters) {
    ASSERT_EQ(of_shard.size(), 4u);
    for (const auto& [counter, times] : of_shard) EXPECT_EQ(times, 25u);
  }
}

TEST(Shard, NamesThatAreNone) {
  const auto second = parse_shard("2/4");
  ASSERT_TRUE(second);
  EXPECT_EQ(second->index, 2u);
  EXPECT_EQ(second->of, 4u);
  EXPECT_TRUE(parse_shard("10000/10000"));
  for (const char* text : {"", "/", "2", "2/", "/4", "a/4", "2/b", "-1/4", "+1/4", " 1/4", "1/4 ",
                           "1/4/2", "1.0/4", "99999999999999999999/4"}) {
    EXPECT_THAT(parse_shard(text).error().message, HasSubstr("names no shard")) << text;
  }
  EXPECT_THAT(parse_shard("0/4").error().message, HasSubstr("there is no shard"));
  EXPECT_THAT(parse_shard("5/4").error().advice, HasSubstr("1/4 to 4/4"));
  EXPECT_THAT(parse_shard("1/0").error().message, HasSubstr("0 shards"));
  EXPECT_THAT(parse_shard("1/10001").error().advice, HasSubstr("10000"));
}

TEST(Shard, AnotherPlanHasAnotherHash) {
  const std::vector<std::string> plan = {"A.b", "A.c"}, turned = {"A.c", "A.b"}, less = {"A.b"},
                                 joined = {"A.bA.c"};
  EXPECT_EQ(plan_hash(plan), plan_hash(plan));
  for (const auto& other : {turned, less, joined}) EXPECT_NE(plan_hash(plan), plan_hash(other));
}

}  // namespace
}  // namespace skidproof::cli
