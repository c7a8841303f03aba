// Robust location and spread: what a noisy machine's measurements are reduced to.
#ifndef SKIDPROOF_HARNESS_STATS_ROBUST_H_
#define SKIDPROOF_HARNESS_STATS_ROBUST_H_

#include <cstddef>
#include <span>
#include <vector>

namespace skidproof::stats {

// Every function here takes its values in any order and answers NaN for an empty sample. A sample
// that holds a NaN has no order, so the answer is NaN as well.

double minimum(std::span<const double> values);
double maximum(std::span<const double> values);
double median(std::span<const double> values);

// The p-quantile, p in [0, 1] (clamped), by linear interpolation between order statistics: type 7
// of Hyndman and Fan, "Sample quantiles in statistical packages", The American Statistician 50,
// 1996.
double quantile(std::span<const double> values, double p);

// Median absolute deviation from the median, unscaled. Times 1.4826 it estimates the standard
// deviation of a normal distribution.
double median_absolute_deviation(std::span<const double> values);

// An interval that holds the true quantile with at least the probability `coverage`.
struct QuantileInterval {
  double low = 0;
  double high = 0;
  double coverage = 0;  // what these order statistics really guarantee
};

// The distribution-free interval of the p-quantile, 0 < p < 1, between two order statistics (David and Nagaraja, "Order Statistics",
// 3rd ed., 7.1): each the innermost beyond which the quantile lies with at most half of what `confidence` leaves. In a sample
// too small for that (at 0.95 fewer than 6 values for the median, 13 for a quartile) it is an extreme; `coverage` tells.
QuantileInterval quantile_interval(std::span<const double> values, double p,
                                   double confidence = 0.95);
QuantileInterval median_interval(std::span<const double> values, double confidence = 0.95);

// Everything that a report says about one sample.
struct Summary {
  size_t n = 0;
  double minimum = 0;
  double median = 0;
  double maximum = 0;
  double mad = 0;
  QuantileInterval interval;  // of the median
};
Summary summarize(std::span<const double> values, double confidence = 0.95);

// Slope and intercept of the line through (x, y) by Theil and Sen: the median of all pairwise
// slopes, which up to 29 % outliers cannot carry away. Pairs of equal x are left out; NaN when none
// remains or the sizes differ. O(n²).
struct Line {
  double slope = 0;
  double intercept = 0;
};
Line theil_sen(std::span<const double> x, std::span<const double> y);

}  // namespace skidproof::stats

#endif  // SKIDPROOF_HARNESS_STATS_ROBUST_H_
