// Of n trials k came out: what their probability may be.
#ifndef SKIDPROOF_HARNESS_STATS_BINOMIAL_H_
#define SKIDPROOF_HARNESS_STATS_BINOMIAL_H_

#include <cstdint>

namespace skidproof::stats {

// P(X >= k) for X the number of successes in n trials of probability p each.
double binomial_tail(uint64_t k, uint64_t n, double p);

struct Interval {
  double low = 0;
  double high = 1;
};

// The exact interval of the probability behind k successes in n trials: it holds the true one with at
// least this confidence (Clopper and Pearson, "The use of confidence or fiducial limits illustrated in
// the case of the binomial", Biometrika 26, 1934). [0, 1] for n = 0.
Interval binomial_interval(uint64_t k, uint64_t n, double confidence = 0.95);

}  // namespace skidproof::stats

#endif  // SKIDPROOF_HARNESS_STATS_BINOMIAL_H_
