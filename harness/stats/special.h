// The special functions behind p-values.
#ifndef SKIDPROOF_HARNESS_STATS_SPECIAL_H_
#define SKIDPROOF_HARNESS_STATS_SPECIAL_H_

namespace skidproof::stats {

// Regularized incomplete gamma functions (NIST Digital Library of Mathematical Functions, 8.2.4):
//   P(a, x) = γ(a, x) / Γ(a),  Q(a, x) = Γ(a, x) / Γ(a) = 1 − P(a, x),  a > 0, x >= 0.
// NaN outside that domain. Relative error below 1e-12 for 1/2 <= a <= 1e6, in the far tails as
// well.
double gamma_p(double a, double x);
double gamma_q(double a, double x);

// P(X >= statistic) for X chi-square distributed with `degrees` degrees of freedom.
double chi_square_tail(double statistic, double degrees);

// P(K >= lambda) for the Kolmogorov distribution.
double kolmogorov_tail(double lambda);

}  // namespace skidproof::stats

#endif  // SKIDPROOF_HARNESS_STATS_SPECIAL_H_
