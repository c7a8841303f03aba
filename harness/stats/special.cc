// Incomplete gamma by power series below a + 1 and by continued fraction above, each where it
// converges; the factor that both share is computed without cancelling large logarithms.
#include "harness/stats/special.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace skidproof::stats {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
// Both expansions need a few times sqrt(a) terms near x = a; this covers a far beyond 1e6.
constexpr int kMostTerms = 100'000;

// y − ln(1 + y) without cancellation near 0.
double minus_log1p(double y) {
  if (std::abs(y) > 0.1) return y - std::log1p(y);
  // y²/2 − y³/3 + y⁴/4 − …
  double power = y * y;
  double sum = 0;
  for (int n = 2; n < 40; ++n) {
    const double term = power / n;
    sum += term;
    if (std::abs(term) <= kEpsilon * std::abs(sum)) break;
    power *= -y;
  }
  return sum;
}

// ln Γ(a + 1) − (a ln a − a + ln sqrt(2πa)), DLMF 5.11.1, good to 1e-16 for a >= 20.
double stirling_remainder(double a) {
  const double b = 1 / (a * a);
  return (1.0 / 12 - b * (1.0 / 360 - b * (1.0 / 1260 - b * (1.0 / 1680 - b / 1188)))) / a;
}

// x^a e^−x / Γ(a + 1).
double shared_factor(double a, double x) {
  if (x == 0) return 0;
  // tgamma, not lgamma: the latter writes the global signgam, a data race between threads.
  if (a < 20) return std::exp(a * std::log(x) - x) / std::tgamma(a + 1);
  const double exponent = -a * minus_log1p((x - a) / a) - stirling_remainder(a);
  return std::exp(exponent) / std::sqrt(2 * std::numbers::pi * a);
}

// P(a, x) for x < a + 1: DLMF 8.7.1, Σ xⁿ / ((a + 1) … (a + n)).
double p_by_series(double a, double x) {
  double term = 1;
  double sum = 1;
  for (int n = 1; n < kMostTerms; ++n) {
    term *= x / (a + n);
    sum += term;
    if (term <= sum * kEpsilon) break;
  }
  return shared_factor(a, x) * sum;
}

// Q(a, x) for x >= a + 1: the even part of DLMF 8.9.2, evaluated by Lentz's method as modified by
// Thompson and Barnett (Journal of Computational Physics 64, 1986).
double q_by_fraction(double a, double x) {
  constexpr double kTiny = std::numeric_limits<double>::min() / kEpsilon;
  double b = x + 1 - a;
  double c = 1 / kTiny;
  double d = 1 / b;
  double value = d;
  for (int n = 1; n < kMostTerms; ++n) {
    const double numerator = -n * (n - a);
    b += 2;
    d = numerator * d + b;
    if (std::abs(d) < kTiny) d = kTiny;
    c = b + numerator / c;
    if (std::abs(c) < kTiny) c = kTiny;
    d = 1 / d;
    const double factor = d * c;
    value *= factor;
    if (std::abs(factor - 1) <= kEpsilon) break;
  }
  return shared_factor(a, x) * a * value;
}

}  // namespace

double gamma_p(double a, double x) {
  if (!(a > 0) || !(x >= 0)) return kUndefined;
  if (std::isinf(x)) return 1;
  return x < a + 1 ? p_by_series(a, x) : 1 - q_by_fraction(a, x);
}

double gamma_q(double a, double x) {
  if (!(a > 0) || !(x >= 0)) return kUndefined;
  if (std::isinf(x)) return 0;
  return x < a + 1 ? 1 - p_by_series(a, x) : q_by_fraction(a, x);
}

double chi_square_tail(double statistic, double degrees) {
  return gamma_q(degrees / 2, statistic / 2);
}

double kolmogorov_tail(double lambda) {
  if (std::isnan(lambda)) return kUndefined;
  if (lambda <= 0) return 1;
  constexpr double kPi = std::numbers::pi;
  if (lambda < 1) {
    // The theta-function transform: the plain series converges slowly near 0 (Marsaglia, Tsang and
    // Wang, "Evaluating Kolmogorov's distribution", Journal of Statistical Software 8, 2003).
    double sum = 0;
    for (int k = 1; k <= 20; ++k) {
      const double odd = 2 * k - 1;
      sum += std::exp(-odd * odd * kPi * kPi / (8 * lambda * lambda));
    }
    return 1 - std::sqrt(2 * kPi) / lambda * sum;
  }
  double sum = 0;
  for (int k = 1; k <= 20; ++k) {
    sum += (k % 2 == 1 ? 1 : -1) * std::exp(-2.0 * k * k * lambda * lambda);
  }
  return std::clamp(2 * sum, 0.0, 1.0);
}

}  // namespace skidproof::stats
