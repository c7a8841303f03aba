// Tails of the binomial distribution by their sum, and their inverse by bisection.
#include "harness/stats/binomial.h"

#include <cmath>

namespace skidproof::stats {
namespace {

// The p at which the tail from k on has this probability; the tail grows with p.
double tail_reaches(uint64_t k, uint64_t n, double probability) {
  double low = 0, high = 1;
  for (int halving = 0; halving < 60; ++halving) {
    const double middle = (low + high) / 2;
    (binomial_tail(k, n, middle) < probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

double binomial_tail(uint64_t k, uint64_t n, double p) {
  if (k == 0) return 1;
  if (k > n || p <= 0) return 0;
  if (p >= 1) return 1;
  const double trials = static_cast<double>(n);
  double sum = 0;
  for (uint64_t i = k; i <= n; ++i) {
    const double successes = static_cast<double>(i);
    sum += std::exp(std::lgamma(trials + 1) - std::lgamma(successes + 1) -
                    std::lgamma(trials - successes + 1) + successes * std::log(p) +
                    (trials - successes) * std::log1p(-p));
  }
  return sum < 1 ? sum : 1;
}

Interval binomial_interval(uint64_t k, uint64_t n, double confidence) {
  const double outside = (1 - confidence) / 2;
  Interval interval;
  if (n == 0) return interval;
  if (k > 0) interval.low = tail_reaches(k, n, outside);
  if (k < n) interval.high = tail_reaches(k + 1, n, 1 - outside);
  return interval;
}

}  // namespace skidproof::stats
