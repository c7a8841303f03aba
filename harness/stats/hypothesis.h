// Tests of hypotheses: is this histogram uniform, do these two samples differ?
#ifndef SKIDPROOF_HARNESS_STATS_HYPOTHESIS_H_
#define SKIDPROOF_HARNESS_STATS_HYPOTHESIS_H_

#include <cstdint>
#include <span>

#include "base/expected.h"

namespace skidproof::stats {

// What a test found. A small p says that chance alone seldom gives so large a statistic.
struct TestResult {
  double statistic = 0;
  double degrees = 0;  // of freedom; 0 where the test has none
  double p = 1;
};

// Pearson's chi-square test of counts against the hypothesis that every cell is equally likely.
// kInvalidArgument: fewer than two cells, or fewer than 5 expected counts in a cell, below which
// the chi-square distribution no longer describes the statistic (Cochran, "The chi-square test of
// goodness of fit", Annals of Mathematical Statistics 23, 1952): collect more, or merge cells.
Expected<TestResult> chi_square_uniform(std::span<const uint64_t> counts);

// The same against given weights, one positive number for each cell, which need not sum to 1.
Expected<TestResult> chi_square_goodness(std::span<const uint64_t> counts,
                                         std::span<const double> weights);

// Two-sample Kolmogorov–Smirnov test: the greatest distance of the empirical distributions, with
// the asymptotic p-value in Stephens' small-sample form ("Use of the Kolmogorov–Smirnov, Cramér–von
// Mises and related statistics", Journal of the Royal Statistical Society B 32, 1970). Ties make it
// conservative. kInvalidArgument: an empty sample or a NaN.
Expected<TestResult> kolmogorov_smirnov(std::span<const double> a, std::span<const double> b);

}  // namespace skidproof::stats

#endif  // SKIDPROOF_HARNESS_STATS_HYPOTHESIS_H_
