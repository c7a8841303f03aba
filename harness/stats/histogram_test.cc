// The integer histogram.
#include "harness/stats/histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace skidproof::stats {
namespace {

TEST(Histogram, CountsAndShares) {
  Histogram histogram;
  histogram.add(1, 3);
  histogram.add(-2);
  histogram.add(7, 0);
  EXPECT_EQ(histogram.total(), 4u);
  EXPECT_EQ(histogram.count(1), 3u);
  EXPECT_EQ(histogram.count(7), 0u);
  EXPECT_DOUBLE_EQ(histogram.share(1), 0.75);
  EXPECT_EQ(histogram.mode(), 1);
  EXPECT_EQ(histogram.minimum(), -2);
  EXPECT_EQ(histogram.maximum(), 1);
  EXPECT_EQ(histogram.text(), "-2:1 1:3");
}

TEST(Histogram, OfNothing) {
  const Histogram histogram;
  EXPECT_TRUE(histogram.empty());
  EXPECT_EQ(histogram.share(1), 0);
  EXPECT_EQ(histogram.mode(), 0);
  EXPECT_EQ(histogram.quantile(0.5), 0);
  EXPECT_EQ(histogram.text(), "");
}

TEST(Histogram, QuantilesAreValuesThatOccurred) {
  Histogram histogram;
  histogram.add(10, 50);
  histogram.add(20, 49);
  histogram.add(1000);
  EXPECT_EQ(histogram.quantile(0), 10);
  EXPECT_EQ(histogram.quantile(0.5), 10);
  EXPECT_EQ(histogram.quantile(0.51), 20);
  EXPECT_EQ(histogram.quantile(0.99), 20);
  EXPECT_EQ(histogram.quantile(1), 1000);
}

TEST(Histogram, ModeOfATieIsTheSmallest) {
  Histogram histogram;
  histogram.add(5, 2);
  histogram.add(3, 2);
  EXPECT_EQ(histogram.mode(), 3);
}

TEST(Histogram, DenseHasTheZeros) {
  Histogram histogram;
  histogram.add(2);
  histogram.add(4, 5);
  EXPECT_THAT(histogram.dense(1, 5), testing::ElementsAre(0, 1, 0, 5, 0));
  EXPECT_THAT(histogram.dense(5, 1), testing::IsEmpty());
  const int64_t top = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(histogram.dense(top, top), testing::ElementsAre(0));
}

TEST(Histogram, MergeAddsUp) {
  Histogram a, b;
  a.add(1, 2);
  b.add(1);
  b.add(9, 4);
  a.merge(b);
  EXPECT_EQ(a.text(), "1:3 9:4");
  EXPECT_EQ(a.total(), 7u);
}

}  // namespace
}  // namespace skidproof::stats
