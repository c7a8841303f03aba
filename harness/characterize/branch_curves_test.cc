#include "harness/characterize/branch_curves.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace skidproof {
namespace {

std::vector<CurvePoint> curve_of(const std::vector<uint64_t>& sizes,
                                 const std::function<double(uint64_t)>& cost) {
  std::vector<CurvePoint> out;
  for (uint64_t x : sizes)
    out.push_back({.x = x, .value = cost(x), .low = cost(x) - 0.1, .high = cost(x) + 0.1, .n = 6});
  return out;
}

const std::vector<uint64_t> kSizes = {4, 8, 12, 15, 16, 17, 18, 24, 32, 64};

TEST(StepReach, FindsTheStep) {
  const Reach reach =
      step_reach(curve_of(kSizes, [](uint64_t x) { return x <= 16 ? 3 : 15; }), 5, 1);
  ASSERT_TRUE(reach.clear) << reach.why;
  EXPECT_EQ(reach.last_within, 16u);
  EXPECT_EQ(reach.first_beyond, 17u);
}

TEST(StepReach, IsNotClearWithoutAStepOrWithACoarseOne) {
  EXPECT_FALSE(step_reach({}, 5, 1).clear);
  EXPECT_FALSE(step_reach(curve_of(kSizes, [](uint64_t) { return 3; }), 5, 1).clear);
  EXPECT_FALSE(
      step_reach(curve_of(kSizes, [](uint64_t x) { return x <= 18 ? 3 : 15; }), 5, 1).clear);
  EXPECT_FALSE(
      step_reach(curve_of(kSizes, [](uint64_t x) { return std::log2(static_cast<double>(x)) * 4; }),
                 5, 1)
          .clear);
}

TEST(StepReach, BearsOnePointInTen) {
  const auto spoiled = [](int many) {
    return [many](uint64_t x) { return x <= 16 && !(x == 8 || (many > 1 && x == 12)) ? 3 : 15; };
  };
  EXPECT_TRUE(step_reach(curve_of(kSizes, spoiled(1)), 5, 1).clear);
  EXPECT_FALSE(step_reach(curve_of(kSizes, spoiled(2)), 5, 1).clear);
}

std::vector<uint64_t> sizes_until(uint64_t last) {
  std::vector<uint64_t> out;
  for (double x = 256; x <= static_cast<double>(last); x *= std::sqrt(std::sqrt(2.0)))
    out.push_back(std::llround(x));
  return out;
}

TEST(SoftReach, GivesBothEnds) {
  const auto ramp = [](uint64_t x) {
    return x <= 1024 ? 3.0 : std::min(15.0, 3 + 8 * std::log2(static_cast<double>(x) / 1024));
  };
  const Reach reach = soft_reach(curve_of(sizes_until(16384), ramp), 1, 3);
  ASSERT_TRUE(reach.clear) << reach.why;
  EXPECT_EQ(reach.last_within, 1024u);
  EXPECT_GT(reach.first_beyond, 1024u);
  EXPECT_LT(reach.first_beyond, 2048u);
}

TEST(SoftReach, IsNotClearOnAFlatOrASlowCurve) {
  EXPECT_FALSE(soft_reach({}, 1, 3).clear);
  EXPECT_FALSE(soft_reach(curve_of(sizes_until(16384), [](uint64_t) { return 3; }), 1, 3).clear);
  const auto slow = [](uint64_t x) { return 0.7 * std::log2(static_cast<double>(x)); };
  EXPECT_FALSE(soft_reach(curve_of(sizes_until(16384), slow), 1, 3).clear);
}

// Two cycles a jump, more with each doubling behind an edge.
double edge(uint64_t x, double at) {
  return static_cast<double>(x) <= at * 1.01 ? 0 : 6 * std::log2(static_cast<double>(x) / at);
}

std::map<uint64_t, std::vector<CurvePoint>> curves_of(
    const std::function<double(uint64_t, uint64_t)>& cost) {
  std::map<uint64_t, std::vector<CurvePoint>> out;
  for (uint64_t spacing : {8, 16, 32, 64}) {
    out[spacing] = curve_of(sizes_until(32768), [&](uint64_t x) { return 2 + cost(x, spacing); });
  }
  return out;
}

TEST(JumpLevels, KnowsJumpsFromBytes) {
  const auto levels = jump_levels(curves_of([](uint64_t x, uint64_t) { return edge(x, 4096); }), 2);
  ASSERT_EQ(levels.size(), 1u);
  EXPECT_EQ(levels[0].jumps, 4096u);
  EXPECT_EQ(levels[0].spacings, (std::vector<uint64_t>{8, 16, 32, 64}));
  EXPECT_TRUE(
      jump_levels(curves_of([](uint64_t x, uint64_t s) { return edge(x * s, 65536); }), 2).empty());
  EXPECT_TRUE(jump_levels(curves_of([](uint64_t, uint64_t) { return 0; }), 2).empty());
}

// The near distances meet the instruction cache late, the far ones early.
TEST(JumpLevels, FindsThemBesideAnInstructionCache) {
  const auto levels =
      jump_levels(curves_of([](uint64_t x, uint64_t spacing) {
                    return spacing == 64 ? std::min(3.0, edge(x * spacing, 32768)) : edge(x, 8192);
                  }),
                  2);
  ASSERT_EQ(levels.size(), 1u);
  EXPECT_EQ(levels[0].jumps, 8192u);
}

TEST(JumpLevels, OneDistanceAloneDoesNotSayHowMany) {
  const auto levels = jump_levels(curves_of([](uint64_t x, uint64_t spacing) {
                                    return edge(x, spacing == 16 ? 8192 * 6 / 5 : 8192);
                                  }),
                                  2);
  ASSERT_EQ(levels.size(), 1u);
  EXPECT_LE(levels[0].jumps, 8192u);
  EXPECT_GT(levels[0].first_beyond, 8192u * 6 / 5) << "it widens the range";
}

TEST(JumpLevels, AreAgreedUponWhereNoTwoDistancesAreFarApart) {
  const auto level = [](double at_8, double at_32) {
    const auto levels =
        jump_levels(curves_of([=](uint64_t x, uint64_t spacing) {
                      return edge(x, spacing == 8 ? at_8 : spacing == 32 ? at_32 : 8192);
                    }),
                    2);
    EXPECT_EQ(levels.size(), 1u);
    return levels.empty() ? JumpLevel{} : levels[0];
  };
  EXPECT_TRUE(level(8192, 8192).agreed);
  EXPECT_TRUE(level(8192, 9000).agreed);
  const JumpLevel apart = level(6800, 9800);
  EXPECT_FALSE(apart.agreed);
  EXPECT_GT(static_cast<double>(apart.most_within), 1.25 * static_cast<double>(apart.least));
}

// Half as many at twice the distance is either.
TEST(JumpLevels, SaysNothingWhereTwoNeighboursAloneAgree) {
  EXPECT_TRUE(jump_levels(curves_of([](uint64_t x, uint64_t spacing) {
                            return spacing <= 16 ? edge(x, 4096) : 0;
                          }),
                          2)
                  .empty());
}

}  // namespace
}  // namespace skidproof
