// The rate of a core that nobody shares, out of probes of which some are wrong.
#include "harness/characterize/company.h"

#include <gtest/gtest.h>

#include <cmath>

namespace skidproof {
namespace {

TEST(OwnRate, IsTheLeastOfFewProbes) {
  OwnRate rate;
  EXPECT_TRUE(std::isinf(rate.cycles()));
  for (const double probed : {0.30, 0.18, 0.25}) rate.add(probed);
  EXPECT_EQ(rate.cycles(), 0.18);
}

TEST(OwnRate, ForgivesOneInTwoHundredThatIsTooShort) {
  OwnRate rate;
  rate.add(0.14);
  EXPECT_EQ(rate.cycles(), 0.14) << "nothing says otherwise yet";
  for (int i = 0; i < 1000; ++i) rate.add(i % 3 == 0 ? 0.18 : 0.20);
  for (int i = 0; i < 4; ++i) rate.add(0.15);
  EXPECT_EQ(rate.cycles(), 0.18);
}

// Alone in a hundredth of the time is alone.
TEST(OwnRate, FindsARateThatIsSeldomSeen) {
  OwnRate rate;
  for (int i = 0; i < 200'000; ++i) rate.add(i % 100 == 0 ? 0.18 : 0.36 + i * 1e-7);
  EXPECT_EQ(rate.cycles(), 0.18);
}

}  // namespace
}  // namespace skidproof
