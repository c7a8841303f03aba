// Order statistics and what is built on them.
#include "harness/stats/robust.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace skidproof::stats {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Sorted copy; empty when the sample has no order.
std::vector<double> sorted(std::span<const double> values) {
  if (std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); })) return {};
  std::vector<double> copy(values.begin(), values.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

double quantile_of_sorted(const std::vector<double>& order, double p) {
  if (order.empty() || std::isnan(p)) return kNaN;
  const double position = std::clamp(p, 0.0, 1.0) * static_cast<double>(order.size() - 1);
  const auto below = static_cast<size_t>(position);
  const double fraction = position - static_cast<double>(below);
  // Not only a shortcut: infinity minus infinity would be NaN.
  if (fraction == 0) return order[below];
  return order[below] + fraction * (order[below + 1] - order[below]);
}

// The largest k >= 1 with P(Binomial(n, share) < k) <= most, and that probability; k = 1 when none.
struct Tail {
  size_t k = 1;
  double probability = 0;
};
Tail tail_of(size_t n, double share, double most) {
  // log of the point probability of i, so that n of many thousands does not underflow at the start.
  double log_point = static_cast<double>(n) * std::log1p(-share);
  const double log_odds = std::log(share) - std::log1p(-share);
  double below = std::exp(log_point);
  Tail best{1, below};
  for (size_t i = 1; i < n; ++i) {
    log_point += std::log(static_cast<double>(n - i + 1) / static_cast<double>(i)) + log_odds;
    below += std::exp(log_point);
    if (below > most) break;
    best = {i + 1, below};
  }
  return best;
}

QuantileInterval interval_of_sorted(const std::vector<double>& order, double p, double confidence) {
  if (order.empty() || !(p > 0 && p < 1)) return {kNaN, kNaN, 0};
  const size_t n = order.size();
  const double most = (1 - confidence) / 2;
  // How many of n values are below the quantile; how many above.
  const Tail below = tail_of(n, p, most);
  const Tail above = tail_of(n, 1 - p, most);
  return {order[below.k - 1], order[std::max(below.k - 1, n - above.k)],
          std::max(0.0, 1 - below.probability - above.probability)};
}

}  // namespace

double minimum(std::span<const double> values) { return quantile(values, 0); }
double maximum(std::span<const double> values) { return quantile(values, 1); }
double median(std::span<const double> values) { return quantile(values, 0.5); }

double quantile(std::span<const double> values, double p) {
  return quantile_of_sorted(sorted(values), p);
}

double median_absolute_deviation(std::span<const double> values) {
  const double centre = median(values);
  std::vector<double> distances;
  distances.reserve(values.size());
  for (double value : values) distances.push_back(std::abs(value - centre));
  return median(distances);
}

QuantileInterval quantile_interval(std::span<const double> values, double p, double confidence) {
  return interval_of_sorted(sorted(values), p, confidence);
}

QuantileInterval median_interval(std::span<const double> values, double confidence) {
  return quantile_interval(values, 0.5, confidence);
}

Summary summarize(std::span<const double> values, double confidence) {
  const std::vector<double> order = sorted(values);
  Summary summary;
  summary.n = values.size();
  summary.minimum = quantile_of_sorted(order, 0);
  summary.median = quantile_of_sorted(order, 0.5);
  summary.maximum = quantile_of_sorted(order, 1);
  summary.mad = median_absolute_deviation(values);
  summary.interval = interval_of_sorted(order, 0.5, confidence);
  return summary;
}

Line theil_sen(std::span<const double> x, std::span<const double> y) {
  if (x.size() != y.size()) return {kNaN, kNaN};
  std::vector<double> slopes;
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = i + 1; j < x.size(); ++j) {
      if (x[i] != x[j]) slopes.push_back((y[j] - y[i]) / (x[j] - x[i]));
    }
  }
  Line line;
  line.slope = median(slopes);
  std::vector<double> offsets;
  for (size_t i = 0; i < x.size(); ++i) offsets.push_back(y[i] - line.slope * x[i]);
  line.intercept = median(offsets);
  return line;
}

}  // namespace skidproof::stats
