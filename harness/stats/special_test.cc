// The special functions against 60-digit references, exact identities and published critical
// values.
#include "harness/stats/special.h"

#include <gtest/gtest.h>

#include <cmath>

namespace skidproof::stats {
namespace {

void expect_relative(double got, double expected, double tolerance, double a, double x) {
  EXPECT_LE(std::abs(got - expected), tolerance * std::abs(expected))
      << "a = " << a << ", x = " << x << ": got " << got << ", expected " << expected;
}

TEST(Gamma, MatchesSixtyDigitReferences) {
  struct Reference {
    double a, x, p, q;
  };
  constexpr Reference kReferences[] = {
      {0.5, 0.25, 0.52049987781304654, 0.47950012218695346},
      {0.5, 30, 0.99999999999999051, 9.4857375710738484e-15},
      {1.5, 2, 0.73853587005088938, 0.26146412994911062},
      {5, 5, 0.55950671493478759, 0.44049328506521241},
      {10, 3, 0.0011024881301154797, 0.99889751186988452},
      {19.5, 25, 0.88848373163706888, 0.11151626836293112},
      {20.5, 25, 0.84175623009865667, 0.15824376990134333},
      {100, 100, 0.51329879827914866, 0.48670120172085134},
      {100, 250, 1.0, 1.1737017704487874e-27},
      {1000, 900, 0.00054990226571178292, 0.99945009773428822},
      {1000, 1100, 0.99894067674607002, 0.0010593232539299773},
      {50000, 50500, 0.98713115962276633, 0.01286884037723367},
      {1000000, 1001000, 0.84134478636834029, 0.15865521363165971},
      {1000000, 999000, 0.15865521357430365, 0.84134478642569635},
  };
  for (const Reference& r : kReferences) {
    expect_relative(gamma_p(r.a, r.x), r.p, 1e-12, r.a, r.x);
    expect_relative(gamma_q(r.a, r.x), r.q, 1e-12, r.a, r.x);
  }
}

TEST(Gamma, OfOneHalfIsTheErrorFunction) {
  for (double x = 0.01; x < 40; x *= 1.7) {
    expect_relative(gamma_q(0.5, x), std::erfc(std::sqrt(x)), 1e-12, 0.5, x);
  }
}

TEST(Gamma, OfAnIntegerIsAPoissonSum) {
  for (int a : {1, 2, 3, 8, 19, 20, 40}) {
    for (double x : {0.1, 1.0, 7.5, 21.0, 60.0}) {
      double term = std::exp(-x);
      double sum = term;
      for (int k = 1; k < a; ++k) {
        term *= x / k;
        sum += term;
      }
      expect_relative(gamma_q(a, x), sum, 1e-12, a, x);
    }
  }
}

TEST(Gamma, IsContinuousWhereTheExpansionsMeet) {
  for (double a : {0.5, 3.0, 50.0, 1e4}) {
    const double below = gamma_q(a, (a + 1) * (1 - 1e-13));
    const double above = gamma_q(a, (a + 1) * (1 + 1e-13));
    EXPECT_NEAR(below, above, 1e-10) << a;
  }
}

TEST(Gamma, AtTheEdgesOfItsDomain) {
  EXPECT_EQ(gamma_p(3, 0), 0);
  EXPECT_EQ(gamma_q(3, 0), 1);
  EXPECT_EQ(gamma_p(3, INFINITY), 1);
  EXPECT_EQ(gamma_q(3, INFINITY), 0);
  EXPECT_TRUE(std::isnan(gamma_q(0, 1)));
  EXPECT_TRUE(std::isnan(gamma_q(1, -1)));
  EXPECT_TRUE(std::isnan(gamma_q(NAN, 1)));
  EXPECT_TRUE(std::isnan(gamma_p(1, NAN)));
}

// NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.4: upper-tail critical values.
TEST(ChiSquareTail, MatchesThePublishedTable) {
  struct Row {
    double degrees, statistic, p;
  };
  for (const Row& row :
       {Row{1, 3.841, 0.05}, Row{1, 6.635, 0.01}, Row{1, 10.828, 0.001}, Row{2, 5.991, 0.05},
        Row{10, 18.307, 0.05}, Row{10, 29.588, 0.001}, Row{30, 50.892, 0.01},
        Row{100, 124.342, 0.05}, Row{100, 149.449, 0.001}}) {
    EXPECT_NEAR(chi_square_tail(row.statistic, row.degrees), row.p, row.p * 1e-3)
        << row.degrees << " degrees of freedom";
  }
}

TEST(KolmogorovTail, MatchesReferencesOnBothSidesOfTheSeam) {
  struct Row {
    double lambda, p;
  };
  for (const Row& row : {Row{0.3, 0.99999069419866543}, Row{0.5, 0.96394524366487509},
                         Row{0.9, 0.39273070794065437}, Row{0.99, 0.28087383922554891},
                         Row{1.01, 0.25943416909359745}, Row{1.3580986, 0.050000010680280787},
                         Row{1.6276236, 0.010000000749940367}, Row{3, 3.0459959489425257e-8}}) {
    EXPECT_NEAR(kolmogorov_tail(row.lambda), row.p, row.p * 1e-12) << row.lambda;
  }
  EXPECT_EQ(kolmogorov_tail(0), 1);
  EXPECT_EQ(kolmogorov_tail(-1), 1);
  EXPECT_EQ(kolmogorov_tail(100), 0);
  EXPECT_TRUE(std::isnan(kolmogorov_tail(NAN)));
}

}  // namespace
}  // namespace skidproof::stats
