// The robust statistics against samples whose answers are known.
#include "harness/stats/robust.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.h"

namespace skidproof::stats {
namespace {

using Values = std::vector<double>;

TEST(Median, OfOddAndEvenSamplesInAnyOrder) {
  EXPECT_EQ(median(Values{3, 1, 2}), 2);
  EXPECT_EQ(median(Values{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median(Values{7}), 7);
}

TEST(Median, OfNothingOrOfANaNIsNaN) {
  EXPECT_TRUE(std::isnan(median(Values{})));
  EXPECT_TRUE(std::isnan(median(Values{1, std::nan(""), 2})));
  EXPECT_TRUE(std::isnan(median_interval(Values{}).low));
}

TEST(Quantile, InterpolatesAsTypeSeven) {
  // R: quantile(c(1, 2, 4, 8, 16), c(.1, .25, .9), type = 7) gives 1.4, 2, 12.8.
  const Values values{16, 8, 4, 2, 1};
  EXPECT_DOUBLE_EQ(quantile(values, 0.1), 1.4);
  EXPECT_DOUBLE_EQ(quantile(values, 0.25), 2);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 12.8);
  EXPECT_EQ(quantile(values, 0), 1);
  EXPECT_EQ(quantile(values, 1), 16);
  EXPECT_EQ(quantile(values, 7), 16) << "p is clamped";
}

TEST(Quantile, LivesWithInfinity) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(median(Values{infinity, infinity, infinity}), infinity);
}

TEST(Mad, IgnoresOneWildValue) {
  EXPECT_EQ(median_absolute_deviation(Values{1, 1, 2, 2, 4, 6, 9}), 1);
  EXPECT_EQ(median_absolute_deviation(Values{1, 1, 2, 2, 4, 6, 9e9}), 1);
}

// David and Nagaraja's table: the ranks of the 95 % interval of the median and what they cover.
TEST(MedianInterval, TakesTheTabulatedOrderStatistics) {
  struct Row {
    size_t n, low, high;
    double coverage;
  };
  for (const Row& row : {Row{6, 1, 6, 0.96875}, Row{7, 1, 7, 0.984375}, Row{9, 2, 8, 0.9609375},
                         Row{10, 2, 9, 0.978515625}, Row{15, 4, 12, 0.96484375},
                         Row{20, 6, 15, 0.9586105346679688}, Row{25, 8, 18, 0.9567147493362427}}) {
    Values values;
    for (size_t i = row.n; i > 0; --i) values.push_back(static_cast<double>(i));
    const QuantileInterval interval = median_interval(values);
    EXPECT_EQ(interval.low, row.low) << row.n;
    EXPECT_EQ(interval.high, row.high) << row.n;
    EXPECT_NEAR(interval.coverage, row.coverage, 1e-12) << row.n;
  }
}

TEST(MedianInterval, OfATinySampleGivesItsExtremesAndSaysHowLittleTheyCover) {
  const QuantileInterval interval = median_interval(Values{5, 3, 4});
  EXPECT_EQ(interval.low, 3);
  EXPECT_EQ(interval.high, 5);
  EXPECT_DOUBLE_EQ(interval.coverage, 0.75);
  EXPECT_EQ(median_interval(Values{5}).coverage, 0);
}

TEST(MedianInterval, HoldsTheMedianAsOftenAsItSays) {
  Random random(7);
  int held = 0;
  constexpr int kTrials = 4000;
  double coverage = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    Values values;
    for (int i = 0; i < 25; ++i) values.push_back(static_cast<double>(random.next() >> 11));
    const QuantileInterval interval = median_interval(values);
    coverage = interval.coverage;
    const double truth = static_cast<double>(uint64_t{1} << 52);
    held += interval.low <= truth && truth <= interval.high;
  }
  EXPECT_NEAR(static_cast<double>(held) / kTrials, coverage, 0.015);
}

TEST(QuantileInterval, OfAQuartileTakesWhatTheBinomialDistributionAllows) {
  // scipy.stats.binom: beyond rank k lies cdf(k - 1, n, 0.25), from above with 0.75.
  struct Row {
    size_t n, low, high;
    double coverage;
  };
  for (const Row& row : {Row{12, 1, 7, 0.9540709}, Row{13, 1, 7, 0.9519526},
                         Row{20, 2, 10, 0.9618226}, Row{40, 5, 17, 0.9723964}}) {
    Values values;
    for (size_t i = row.n; i > 0; --i) values.push_back(static_cast<double>(i));
    const QuantileInterval lower = quantile_interval(values, 0.25);
    EXPECT_EQ(lower.low, row.low) << row.n;
    EXPECT_EQ(lower.high, row.high) << row.n;
    EXPECT_NEAR(lower.coverage, row.coverage, 1e-6) << row.n;
    const QuantileInterval upper = quantile_interval(values, 0.75);
    EXPECT_EQ(upper.low, row.n + 1 - row.high) << row.n;
    EXPECT_EQ(upper.high, row.n + 1 - row.low) << row.n;
    EXPECT_NEAR(upper.coverage, row.coverage, 1e-6) << row.n;
  }
  EXPECT_TRUE(std::isnan(quantile_interval(Values{1, 2, 3}, 1).low)) << "an extreme has none";
}

TEST(MedianInterval, OfALargeSampleIsNarrow) {
  Values values;
  for (int i = 1; i <= 100'000; ++i) values.push_back(i);
  const QuantileInterval interval = median_interval(values);
  // Normal approximation: n/2 ± 1.96 · sqrt(n)/2 = 50,000 ± 310.
  EXPECT_NEAR(interval.low, 50'000 - 310, 3);
  EXPECT_NEAR(interval.high, 50'000 + 310, 3);
  EXPECT_NEAR(interval.coverage, 0.95, 0.002);
}

TEST(Summarize, FillsEveryField) {
  const Summary summary = summarize(Values{2, 9, 4, 1, 3, 8, 7});
  EXPECT_EQ(summary.n, 7u);
  EXPECT_EQ(summary.minimum, 1);
  EXPECT_EQ(summary.median, 4);
  EXPECT_EQ(summary.maximum, 9);
  EXPECT_EQ(summary.mad, 3);
  EXPECT_EQ(summary.interval.low, 1);
  EXPECT_EQ(summary.interval.high, 9);
}

TEST(TheilSen, FindsTheLineUnderOutliers) {
  Values x, y;
  for (int i = 0; i < 20; ++i) {
    x.push_back(i);
    y.push_back(i % 5 == 0 ? 1e6 : 3.0 * i - 2);
  }
  const Line line = theil_sen(x, y);
  EXPECT_NEAR(line.slope, 3, 1e-9);
  EXPECT_NEAR(line.intercept, -2, 1e-9);
}

TEST(TheilSen, OfOneAbscissaIsNaN) {
  EXPECT_TRUE(std::isnan(theil_sen(Values{1, 1}, Values{2, 3}).slope));
  EXPECT_TRUE(std::isnan(theil_sen(Values{1, 2}, Values{2}).slope));
}

}  // namespace
}  // namespace skidproof::stats
