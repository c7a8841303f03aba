// Against closed forms and published values.
#include "harness/stats/binomial.h"

#include <gtest/gtest.h>

#include <cmath>

namespace skidproof::stats {
namespace {

TEST(Binomial, TailsOfCoins) {
  EXPECT_NEAR(binomial_tail(0, 10, 0.5), 1, 1e-12);
  EXPECT_NEAR(binomial_tail(10, 10, 0.5), 1.0 / 1024, 1e-12);
  EXPECT_NEAR(binomial_tail(9, 10, 0.5), 11.0 / 1024, 1e-12);
  EXPECT_EQ(binomial_tail(11, 10, 0.5), 0);
  EXPECT_EQ(binomial_tail(1, 10, 0), 0);
  EXPECT_EQ(binomial_tail(10, 10, 1), 1);
}

// None of n, or all: one end is that of the range, the other has a closed form.
TEST(Binomial, IntervalsAtTheEndsHaveAClosedForm) {
  for (uint64_t n : {1u, 4u, 12u, 100u}) {
    const double root = std::pow(0.025, 1.0 / static_cast<double>(n));
    const Interval none = binomial_interval(0, n);
    EXPECT_EQ(none.low, 0) << n;
    EXPECT_NEAR(none.high, 1 - root, 1e-9) << n;
    const Interval all = binomial_interval(n, n);
    EXPECT_NEAR(all.low, root, 1e-9) << n;
    EXPECT_EQ(all.high, 1) << n;
  }
}

// 95 % limits of 5 in 10, as statistical tables have them: 18.7 % to 81.3 %.
TEST(Binomial, AnIntervalOfTheTables) {
  const Interval half = binomial_interval(5, 10);
  EXPECT_NEAR(half.low, 0.1871, 5e-5);
  EXPECT_NEAR(half.high, 0.8129, 5e-5);
}

TEST(Binomial, MoreConfidenceIsWiderAndNoTrialsSayNothing) {
  EXPECT_LT(binomial_interval(2, 7, 0.99).low, binomial_interval(2, 7, 0.95).low);
  EXPECT_GT(binomial_interval(2, 7, 0.99).high, binomial_interval(2, 7, 0.95).high);
  const Interval nothing = binomial_interval(0, 0);
  EXPECT_EQ(nothing.low, 0);
  EXPECT_EQ(nothing.high, 1);
}

}  // namespace
}  // namespace skidproof::stats
