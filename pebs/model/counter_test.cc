#include "pebs/model/counter.h"

#include <gtest/gtest.h>

#include "pebs/model/sibling.h"

namespace skidproof::model {
namespace {

using arch::evtsel::kCmaskShift;
using arch::evtsel::kEdge;
using arch::evtsel::kInvert;

CycleFilter filter(uint64_t select, const CountingBehaviour& behaviour = {}) {
  CycleFilter f;
  f.configure(select, behaviour);
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
  edges += f.feed(21, 0);
  EXPECT_EQ(edges, 3);  // 1–3, 7–8, 20
  EXPECT_EQ(f.feed(30, 0), 0) << "idle cycles have no event";
  EXPECT_EQ(f.feed(31, 1), 0);
  EXPECT_EQ(f.feed(32, 0), 1);  // 31
}

TEST(CycleFilter, EdgeOfInvertCountsTheStretchesBelowCmask) {
  CycleFilter f = filter((uint64_t{1} << kCmaskShift) | kInvert | kEdge);
  EXPECT_EQ(f.feed(10, 0), 0);
  EXPECT_EQ(f.feed(14, 1), 1);  // 10–13, without an event
  EXPECT_EQ(f.feed(15, 0), 0);  // 14 has one
  EXPECT_EQ(f.feed(16, 0), 1);  // 15
  EXPECT_EQ(f.feed(40, 1), 0);  // 16–39 go on from there
}

TEST(CycleFilter, ConfiguringItAgainBeginsAnew) {
  const uint64_t select = (uint64_t{1} << kCmaskShift) | kInvert | kEdge;
  CycleFilter f = filter(select, {.invert_overcounts_one_level = true});
  f.feed(10, 0);
  f.feed(11, 3);
  f.configure(select & ~kEdge);
  EXPECT_EQ(f.feed(1000, 1, 4), 4) << "the time before is nobody's";
  f.configure(0);
  EXPECT_FALSE(f.used());
}

// A CPU whose comparisons are with one more than CMASK says; 0 is still no comparison.
TEST(CycleFilter, AnOffsetIsAddedToACmaskThatIsNotZero) {
  EXPECT_FALSE(filter(0, {.cmask_offset = 1}).used());
  for (uint64_t cmask : {1, 2, 3}) {
    CycleFilter f = filter(cmask << kCmaskShift, {.cmask_offset = 1});
    for (uint64_t events = 0; events < 6; ++events) {
      f.feed(10 + events, events);
      CycleFilter next = f;
      EXPECT_EQ(next.feed(11 + events, 0), events > cmask ? 1 : 0) << cmask << ", " << events;
    }
  }
}

// The other logical processor: in any stretch at most one event each cycle, and none of what both share.
TEST(Sibling, AddsAtMostOneEachCycle) {
  for (size_t n = 0; n < arch::kSignals; ++n) {
    const auto signal = static_cast<arch::Signal>(n);
    for (uint64_t from = 0; from < 20; ++from) {
      for (uint64_t to = from; to < 40; ++to) {
        EXPECT_LE(Sibling::events(signal, from, to), to - from) << arch::name_of(signal);
        EXPECT_LE(Sibling::events(signal, from, to), Sibling::most(to - from));
      }
    }
  }
  for (const arch::Signal shared : {arch::Signal::kNone, arch::Signal::kCycles,
                                    arch::Signal::kReferenceCycles, arch::Signal::kBusCycles}) {
    EXPECT_EQ(Sibling::events(shared, 0, 1000), 0);
  }
}

}  // namespace
}  // namespace skidproof::model
