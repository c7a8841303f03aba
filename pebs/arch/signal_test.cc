// Signals have names that tell them apart.
#include "pebs/arch/signal.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace skidproof::arch {
namespace {

TEST(Signal, EveryOneHasANameOfItsOwn) {
  std::set<std::string> names;
  for (size_t i = 0; i < kSignals; ++i) names.insert(name_of(static_cast<Signal>(i)));
  EXPECT_EQ(names.size(), kSignals);
  EXPECT_EQ(names.count(""), 0U);
}

TEST(Signal, NamesFollowTheEnumeration) {
  EXPECT_STREQ(name_of(Signal::kNone), "none");
  EXPECT_STREQ(name_of(Signal::kCycles), "cycles");
  EXPECT_STREQ(name_of(Signal::kMispredictsNotTaken), "mispredicted branches not taken");
  EXPECT_STREQ(name_of(Signal::kLoads), "loads");
  EXPECT_STREQ(name_of(Signal::kLoadsL3Miss), "L3-miss loads");
}

TEST(Signal, OutOfRangeIsNamedAsSuch) { EXPECT_STREQ(name_of(Signal::kCount), "unknown signal"); }

}  // namespace
}  // namespace skidproof::arch
