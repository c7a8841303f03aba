// The hypothesis tests: worked examples, and that they reject at the rate they claim.
#include "harness/stats/hypothesis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"

namespace skidproof::stats {
namespace {

using Counts = std::vector<uint64_t>;
using Values = std::vector<double>;

TEST(ChiSquareUniform, WorkedExample) {
  // A die thrown 60 times: Σ (o − 10)²/10 = (25+4+1+4+0+100)/10 = 13.4 with 5 degrees of freedom.
  const auto result = chi_square_uniform(Counts{5, 8, 9, 8, 10, 20});
  ASSERT_TRUE(result);
  EXPECT_DOUBLE_EQ(result->statistic, 13.4);
  EXPECT_EQ(result->degrees, 5);
  EXPECT_NEAR(result->p, 0.0199, 1e-4);
}

TEST(ChiSquareUniform, EqualCountsFitPerfectly) {
  const auto result = chi_square_uniform(Counts{1000, 1000, 1000, 1000});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->statistic, 0);
  EXPECT_EQ(result->p, 1);
}

TEST(ChiSquareUniform, OneHotCellIsBeyondDoubt) {
  const auto result = chi_square_uniform(Counts{1000, 1000, 4000, 1000});
  ASSERT_TRUE(result);
  EXPECT_LT(result->p, 1e-100);
}

TEST(ChiSquareUniform, RejectsUniformDrawsAtItsLevelOnly) {
  Random random(3);
  int rejected = 0;
  constexpr int kTrials = 2000;
  for (int trial = 0; trial < kTrials; ++trial) {
    Counts counts(16, 0);
    for (int draw = 0; draw < 800; ++draw) ++counts[random.below(16)];
    rejected += chi_square_uniform(counts)->p < 0.05;
  }
  EXPECT_NEAR(static_cast<double>(rejected) / kTrials, 0.05, 0.02);
}

TEST(ChiSquareUniform, RefusesTooFewCounts) {
  const auto result = chi_square_uniform(Counts{4, 4, 4});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(result.error().advice.find("merge"), std::string::npos);
  EXPECT_FALSE(chi_square_uniform(Counts{}));
  EXPECT_FALSE(chi_square_uniform(Counts{100}));
}

TEST(ChiSquareGoodness, MendelsPeas) {
  // Mendel 1866: 315, 108, 101, 32 against 9:3:3:1; the statistic is 0.470.
  const auto result = chi_square_goodness(Counts{315, 108, 101, 32}, Values{9, 3, 3, 1});
  ASSERT_TRUE(result);
  EXPECT_NEAR(result->statistic, 0.470024, 1e-6);
  EXPECT_NEAR(result->p, 0.9254, 1e-4);
}

TEST(ChiSquareGoodness, RefusesWeightsThatAreNone) {
  EXPECT_FALSE(chi_square_goodness(Counts{10, 10}, Values{1}));
  EXPECT_FALSE(chi_square_goodness(Counts{10, 10}, Values{1, 0}));
  EXPECT_FALSE(chi_square_goodness(Counts{10, 10}, Values{1, std::nan("")}));
}

TEST(KolmogorovSmirnov, DistanceOfSmallSamples) {
  EXPECT_DOUBLE_EQ(kolmogorov_smirnov(Values{1, 2, 3, 4}, Values{3, 4, 5, 6})->statistic, 0.5);
  EXPECT_DOUBLE_EQ(kolmogorov_smirnov(Values{1, 2}, Values{3, 4})->statistic, 1);
  EXPECT_DOUBLE_EQ(kolmogorov_smirnov(Values{1, 1, 2}, Values{2, 1, 1})->statistic, 0);
}

TEST(KolmogorovSmirnov, RejectsAtItsLevelAndSeesAShift) {
  Random random(11);
  const auto draw = [&random](double shift) {
    Values values;
    for (int i = 0; i < 60; ++i) {
      values.push_back(static_cast<double>(random.next() >> 11) * 0x1p-53 + shift);
    }
    return values;
  };
  int false_alarms = 0, found = 0;
  constexpr int kTrials = 1000;
  for (int trial = 0; trial < kTrials; ++trial) {
    false_alarms += kolmogorov_smirnov(draw(0), draw(0))->p < 0.05;
    found += kolmogorov_smirnov(draw(0), draw(0.5))->p < 0.05;
  }
  EXPECT_LT(false_alarms, 80);
  EXPECT_GT(false_alarms, 15);
  EXPECT_GT(found, 950);
}

TEST(KolmogorovSmirnov, RefusesAnEmptySampleOrANaN) {
  EXPECT_FALSE(kolmogorov_smirnov(Values{}, Values{1}));
  EXPECT_FALSE(kolmogorov_smirnov(Values{1, std::nan("")}, Values{1}));
}

}  // namespace
}  // namespace skidproof::stats
