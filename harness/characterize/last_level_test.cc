// Curves of caches that are known: in the range, or not clear.
#include "harness/characterize/last_level.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/random.h"

namespace skidproof {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMi = uint64_t{1} << 20;
constexpr double kHit = 60, kMiss = 300;

// Half octaves; `misses`: the share of loads that miss, of a set so many times as large as the cache.
std::vector<WorkingSetCost> curve_of(uint64_t cache, uint64_t from, uint64_t to,
                                     const std::function<double(double)>& misses,
                                     double disturbed = 0, uint64_t seed = 1) {
  std::vector<WorkingSetCost> curve;
  Random random(seed);
  for (double bytes = static_cast<double>(from); bytes <= static_cast<double>(to);
       bytes *= std::exp2(0.125)) {
    const double share = misses(bytes / static_cast<double>(cache));
    const double noise = 1 + disturbed * static_cast<double>(random.below(1000)) / 1000;
    curve.push_back({static_cast<uint64_t>(bytes), (kHit + (kMiss - kHit) * share) * noise});
  }
  return curve;
}

// The oldest line goes, all sets are filled evenly.
double oldest_goes(double over) { return over <= 1 ? 0 : std::min(1.0, (over - 1) * 16); }
// The same, with lines in sets at random: sets of 16 lines, as many as Poisson's distribution overfills.
double hashed(double over) {
  const double mean = 16 * over;
  double term = std::exp(-mean), lines = 0;
  for (int k = 0; k < 200; ++k) {
    if (k > 16) lines += k * term;
    term *= mean / (k + 1);
  }
  return std::min(1.0, lines / mean);
}
// Any line goes: where a share m misses, a line stays through a round with probability exp(-m × over).
double any_goes(double over) {
  double m = 1;
  for (int i = 0; i < 2000; ++i) m = 1 - std::exp(-m * over);
  return over <= 1 ? 0 : m;
}
// Keeps what it has, and turns new lines away.
double keeps(double over) { return over <= 1 ? 0 : 1 - 1 / over; }

TEST(LastLevelTest, TheRangeHoldsTheSize) {
  int clear = 0;
  for (const auto& misses : {oldest_goes, hashed, any_goes, keeps}) {
    for (uint64_t mebibytes : {8, 12, 30, 33}) {
      for (uint64_t seed = 0; seed < 20; ++seed) {
        const double disturbed = seed == 0 ? 0 : 0.06;
        const LastLevel found = judge_last_level(
            curve_of(mebibytes * kMi, 2 * kMi, 16 * mebibytes * kMi, misses, disturbed, seed));
        if (!found.clear) {
          EXPECT_FALSE(found.why.empty());
          continue;
        }
        ++clear;
        EXPECT_LE(found.low, mebibytes * kMi);
        EXPECT_GE(found.high, mebibytes * kMi);
      }
    }
  }
  EXPECT_GT(clear, 100);
}

TEST(LastLevelTest, ASlowRiseIsNotClear) {
  const LastLevel found = judge_last_level(curve_of(16 * kMi, 2 * kMi, 512 * kMi, [](double over) {
    return std::clamp(std::log2(over * 8) / 6, 0.0, 1.0);
  }));
  EXPECT_FALSE(found.clear);
  EXPECT_THAT(found.why, HasSubstr("slowly"));
}

TEST(LastLevelTest, NoThirdLevelIsNotClear) {
  const LastLevel found = judge_last_level(curve_of(
      kMi, 2 * kMi, 64 * kMi, [](double) { return 1.0; }, 0.05));
  EXPECT_FALSE(found.clear);
  EXPECT_THAT(found.why, HasSubstr("does not rise"));
}

TEST(LastLevelTest, MemoryMustBeReached) {
  const LastLevel found = judge_last_level(curve_of(30 * kMi, 2 * kMi, 34 * kMi, [](double over) {
    return std::clamp((over - 1) / 2, 0.0, 1.0) + std::max(0.0, over / 8);
  }));
  EXPECT_FALSE(found.clear);
  EXPECT_FALSE(judge_last_level({}).clear);
  EXPECT_FALSE(judge_last_level({{2 * kMi, 60}, {4 * kMi, 300}}).clear);
}

TEST(LastLevelTest, WhatCpuidTellsIsNotContradicted) {
  const LastLevel found = judge_last_level(curve_of(16 * kMi, 2 * kMi, 128 * kMi, oldest_goes));
  ASSERT_TRUE(found.clear) << found.why;
  EXPECT_TRUE(held_against(found, std::nullopt).clear);
  EXPECT_TRUE(held_against(found, 16 * kMi).clear);
  // A part of a cache that others have, too.
  const LastLevel part = held_against(found, 300 * kMi);
  EXPECT_FALSE(part.clear);
  EXPECT_THAT(part.why, HasSubstr("300 MiB that CPUID tells"));
  EXPECT_FALSE(held_against(found, 4 * kMi).clear);
}

}  // namespace
}  // namespace skidproof
