// Pearson's chi-square and the two-sample Kolmogorov–Smirnov test.
#include "harness/stats/hypothesis.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "harness/stats/special.h"

namespace skidproof::stats {
namespace {

constexpr double kLeastExpectedCount = 5;

// True when the sample can be ordered.
bool ordered(std::span<const double> values) {
  return !values.empty() &&
         std::none_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
}

// The greatest difference of the two empirical distribution functions; both samples sorted.
double greatest_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double greatest = 0;
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    const double value = std::min(a[i], b[j]);
    // Step over all ties at once: the functions are only compared between distinct values.
    while (i < a.size() && a[i] == value) ++i;
    while (j < b.size() && b[j] == value) ++j;
    const double distance = static_cast<double>(i) / static_cast<double>(a.size()) -
                            static_cast<double>(j) / static_cast<double>(b.size());
    greatest = std::max(greatest, std::abs(distance));
  }
  return greatest;
}

}  // namespace

Expected<TestResult> chi_square_uniform(std::span<const uint64_t> counts) {
  return chi_square_goodness(counts, std::vector<double>(counts.size(), 1.0));
}

Expected<TestResult> chi_square_goodness(std::span<const uint64_t> counts,
                                         std::span<const double> weights) {
  if (counts.size() < 2 || counts.size() != weights.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a chi-square test of {} cells against {} weights has no meaning",
                            counts.size(), weights.size()),
                "give two cells or more, and one weight for each");
  }
  if (std::any_of(weights.begin(), weights.end(),
                  [](double w) { return !(w > 0) || std::isinf(w); })) {
    return fail(ErrorCode::kInvalidArgument, "a chi-square weight is not a positive number");
  }
  const double total =
      std::accumulate(counts.begin(), counts.end(), 0.0,
                      [](double sum, uint64_t count) { return sum + static_cast<double>(count); });
  const double weight = std::accumulate(weights.begin(), weights.end(), 0.0);
  TestResult result;
  result.degrees = static_cast<double>(counts.size() - 1);
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = total * weights[i] / weight;
    if (expected < kLeastExpectedCount) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("cell {} expects only {:.3g} of {:.0f} counts; a chi-square test needs "
                      "{:.0f} in each cell",
                      i, expected, total, kLeastExpectedCount),
          "collect more records, or merge cells");
    }
    const double difference = static_cast<double>(counts[i]) - expected;
    result.statistic += difference * difference / expected;
  }
  result.p = chi_square_tail(result.statistic, result.degrees);
  return result;
}

Expected<TestResult> kolmogorov_smirnov(std::span<const double> a, std::span<const double> b) {
  if (!ordered(a) || !ordered(b)) {
    return fail(ErrorCode::kInvalidArgument,
                "a Kolmogorov-Smirnov test needs two samples that are not empty and hold no NaN");
  }
  std::vector<double> left(a.begin(), a.end());
  std::vector<double> right(b.begin(), b.end());
  std::sort(left.begin(), left.end());
  std::sort(right.begin(), right.end());
  TestResult result;
  result.statistic = greatest_distance(left, right);
  const double n = static_cast<double>(left.size());
  const double m = static_cast<double>(right.size());
  const double root = std::sqrt(n * m / (n + m));
  result.p = kolmogorov_tail((root + 0.12 + 0.11 / root) * result.statistic);
  return result;
}

}  // namespace skidproof::stats
