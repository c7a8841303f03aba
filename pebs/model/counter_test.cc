#include "pebs/model/counter.h"

#include <gtest/gtest.h>

namespace skidproof::model {
namespace {

using arch::evtsel::kCmaskShift;
using arch::evtsel::kEdge;
using arch::evtsel::kInvert;

CycleFilter filter(uint64_t select) {
  CycleFilter f;
  f.configure(select);
  return f;
}

TEST(CountRegister, OverflowsFromAllOnesToZero) {
  CountRegister r{.value = 0xFFFE, .mask = 0xFFFF};
  EXPECT_FALSE(r.add(1));
  EXPECT_TRUE(r.add(1));
  EXPECT_EQ(r.value, 0);
  r.value = 0xFFFF;
  EXPECT_TRUE(r.add(3));
  EXPECT_EQ(r.value, 2);
}

TEST(CountRegister, QuietNeverReachesTheOverflow) {
  for (uint64_t most : {1, 2, 3, 64}) {
    CountRegister r{.value = 0xFF00, .mask = 0xFFFF};
    EXPECT_FALSE(r.add(r.quiet(most) * most));
  }
}

TEST(CycleFilter, IsUnusedWithoutCmaskAndEdge) {
  EXPECT_FALSE(filter(kInvert).used());
  EXPECT_TRUE(filter(kEdge).used());
  EXPECT_TRUE(filter(uint64_t{1} << kCmaskShift).used());
}

TEST(CycleFilter, CountsCyclesWithAtLeastCmaskEvents) {
  CycleFilter f = filter(uint64_t{2} << kCmaskShift);
  EXPECT_EQ(f.feed(10, 1), 0);
  EXPECT_EQ(f.feed(10, 1), 0);  // cycle 10: two events
  EXPECT_EQ(f.feed(11, 1), 1);  // cycle 11: one event
  EXPECT_EQ(f.feed(15, 3), 0);  // 12–14: none
  EXPECT_EQ(f.feed(16, 0), 1);
}

TEST(CycleFilter, InvertCountsTheOtherCycles) {
  CycleFilter f = filter((uint64_t{2} << kCmaskShift) | kInvert);
  EXPECT_EQ(f.feed(10, 2), 0);
  EXPECT_EQ(f.feed(14, 0), 3);  // 11, 12, 13
  EXPECT_EQ(f.feed(15, 0), 1);
}

// The first instruction brings its own cycles: those before it are nobody's.
TEST(CycleFilter, BeginsWithTheFirstInstruction) {
  CycleFilter f = filter((uint64_t{1} << kCmaskShift) | kInvert);
  EXPECT_EQ(f.feed(1000, 1, 4), 4);
  EXPECT_EQ(f.feed(1003, 1, 3), 2);
}

TEST(CycleFilter, EdgeCountsTransitions) {
  CycleFilter f = filter(kEdge);
  uint64_t edges = 0;
  for (uint64_t cycle : {1, 2, 3, 7, 8, 20}) edges += f.feed(cycle, 1);
  edges += f.feed(22, 0);
  EXPECT_EQ(edges, 3);  // 1–3, 7–8, 20
}

}  // namespace
}  // namespace skidproof::model
