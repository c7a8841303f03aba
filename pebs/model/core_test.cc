// The core model: where loads are served from, what things cost, and what branches teach it.
#include "pebs/model/core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace skidproof::model {
namespace {

using arch::Signal;

constexpr uint64_t kSomewhere = 0xffff'8880'0000'0000;

// One access as an engine makes it: skipped when it is quick.
struct Driver {
  explicit Driver(arch::CacheGeometry geometry = {}, uint64_t seed = 1) : core(geometry, seed) {}
  explicit Driver(const CoreBehaviour& behaviour) : core(behaviour, 1) {}

  uint64_t load(uint64_t address, unsigned bytes = 8, bool chase = false) {
    ++loads;
    ++clock;
    if (core.load_is_quick(address, bytes)) return 0;
    uint64_t stall = core.load(address, bytes, clock, chase, false);
    clock += stall;
    return stall;
  }
  uint64_t store(uint64_t address, unsigned bytes = 8) {
    ++stores;
    ++clock;
    if (core.store_is_quick(address, bytes)) return 0;
    uint64_t stall = core.store(address, bytes, clock, false);
    clock += stall;
    return stall;
  }
  uint64_t stream(uint64_t address, unsigned bytes = 8) {
    ++stores;
    ++clock;
    if (core.stream_is_quick(address, bytes)) return 0;
    uint64_t stall = core.store_stream(address, bytes, clock, false);
    clock += stall;
    return stall;
  }
  uint64_t branch(uint64_t address, bool taken) {
    ++branches;
    uint64_t stall = core.conditional(Predictor::key(address), taken);
    clock += stall + 1;
    return stall;
  }
  // What the signal gained since the last call.
  uint64_t gained(Signal signal) {
    settle();
    uint64_t& last = seen[arch::index(signal)];
    uint64_t now = core.totals()[arch::index(signal)];
    return now - std::exchange(last, now);
  }
  void settle() {
    arch::SignalCounts counts{};
    counts[arch::index(Signal::kLoads)] = std::exchange(loads, 0);
    counts[arch::index(Signal::kStores)] = std::exchange(stores, 0);
    counts[arch::index(Signal::kConditional)] = std::exchange(branches, 0);
    core.settle(counts, clock);
  }

  Core core;
  uint64_t clock = 0;
  uint64_t loads = 0, stores = 0, branches = 0;
  arch::SignalCounts seen{};
};

// Loads one word of each line of a block, `passes` times, chasing.
void walk(Driver& d, uint64_t bytes, int passes) {
  for (int pass = 0; pass < passes; ++pass) {
    for (uint64_t at = 0; at < bytes; at += 64) d.load(kSomewhere + at, 8, true);
  }
}

TEST(Core, AWorkingSetIsServedByTheLevelThatHoldsIt) {
  struct Row {
    uint64_t bytes;
    Signal from;
  };
  for (const Row& row : {Row{16 << 10, Signal::kLoadsL1Hit}, Row{128 << 10, Signal::kLoadsL2Hit},
                         Row{4 << 20, Signal::kLoadsL3Hit}, Row{32 << 20, Signal::kLoadsL3Miss}}) {
    SCOPED_TRACE(row.bytes);
    Driver d;
    walk(d, row.bytes, 2);
    d.gained(row.from);
    walk(d, row.bytes, 1);
    EXPECT_EQ(d.gained(row.from), row.bytes / 64);
  }
}

TEST(Core, EveryLoadHasExactlyOneSource) {
  Driver d;
  Random random(3);
  for (int n = 0; n < 50'000; ++n) {
    d.load(kSomewhere + random.below(random.chance(1, 2) ? 1 << 14 : 1 << 26), 8,
           random.chance(1, 2));
    if (random.chance(1, 4)) d.store(kSomewhere + random.below(1 << 20));
  }
  d.settle();
  const auto& t = d.core.totals();
  uint64_t sum = 0;
  for (Signal s : {Signal::kLoadsL1Hit, Signal::kLoadsFillBuffer, Signal::kLoadsL2Hit,
                   Signal::kLoadsL3Hit, Signal::kLoadsL3Miss}) {
    EXPECT_GT(t[arch::index(s)], 0u) << arch::name_of(s);
    sum += t[arch::index(s)];
  }
  EXPECT_EQ(sum, t[arch::index(Signal::kLoads)]);
}

TEST(Core, AChaseStallsForTheWholeLatencyAndOtherLoadsForAQuarter) {
  arch::CacheGeometry g;
  Driver chase, stream;
  chase.load(kSomewhere);  // the page is known from here on
  stream.load(kSomewhere);
  chase.clock = stream.clock = 10'000;
  EXPECT_EQ(chase.load(kSomewhere + 128, 8, true),
            (g.memory_latency - g.l1_latency) * g.retire_width);
  EXPECT_EQ(stream.load(kSomewhere + 128), (g.memory_latency - g.l1_latency) * g.retire_width / 4);
}

TEST(Core, ALineOnItsWayIsAFillBufferHitUntilItArrives) {
  Driver d;
  d.load(kSomewhere);
  d.clock = 10'000;
  d.load(kSomewhere + 64);
  EXPECT_FALSE(d.core.load_is_quick(kSomewhere + 64, 8));
  EXPECT_TRUE(d.core.store_is_quick(kSomewhere + 64, 8)) << "a store does not wait for it";
  d.gained(Signal::kLoadsFillBuffer);
  d.load(kSomewhere + 72);
  EXPECT_EQ(d.gained(Signal::kLoadsFillBuffer), 1u);
  d.clock += 4 * 200;
  d.load(kSomewhere + 80);
  EXPECT_EQ(d.gained(Signal::kLoadsFillBuffer), 0u);
  EXPECT_TRUE(d.core.load_is_quick(kSomewhere + 64, 8));
}

TEST(Core, TheEleventhMissWaitsForAFillBuffer) {
  Driver d;
  d.load(kSomewhere);
  d.clock = 10'000;
  uint64_t longest = 0;
  for (uint64_t n = 1; n <= 10; ++n) longest = std::max(longest, d.store(kSomewhere + 64 * n));
  EXPECT_EQ(longest, 0u);
  EXPECT_GT(d.store(kSomewhere + 64 * 11), 4u * 100);
}

TEST(Core, SplitsAreCountedAndBoundedByOneSource) {
  Driver d;
  d.load(kSomewhere + 60);
  EXPECT_EQ(d.gained(Signal::kSplitLoads), 1u);
  EXPECT_EQ(d.gained(Signal::kLoadsL3Miss), 1u);
  d.store(kSomewhere + 60);
  EXPECT_EQ(d.gained(Signal::kSplitStores), 1u);
  d.load(kSomewhere + 4096 - 4);  // two pages
  EXPECT_EQ(d.gained(Signal::kSplitLoads), 1u);
  EXPECT_EQ(d.gained(Signal::kStlbMissLoads), 2u);  // the first load's, and one for this
}

TEST(Core, TranslationsAreMissedBeyondEachTlb) {
  arch::CacheGeometry g;
  for (uint32_t pages : {g.dtlb_entries, g.stlb_entries, 4 * g.stlb_entries}) {
    SCOPED_TRACE(pages);
    Driver d;
    for (int pass = 0; pass < 3; ++pass) {
      if (pass == 2) d.gained(Signal::kStlbMissLoads);
      for (uint64_t n = 0; n < pages; ++n) d.load(kSomewhere + n * 4096 + n % 64 * 64);
    }
    EXPECT_EQ(d.gained(Signal::kStlbMissLoads), pages <= g.stlb_entries ? 0 : pages);
  }
}

TEST(Core, ForgettingTranslationsMakesTheNextAccessWalk) {
  Driver d;
  d.load(kSomewhere);
  d.load(kSomewhere);
  d.gained(Signal::kStlbMissLoads);
  d.core.forget_translations();
  EXPECT_FALSE(d.core.load_is_quick(kSomewhere, 8));
  d.load(kSomewhere);
  EXPECT_EQ(d.gained(Signal::kStlbMissLoads), 1u);
}

TEST(Core, TheMostRecentPageOfEachTlbSetIsQuick) {
  const arch::CacheGeometry g;
  const uint64_t sets = g.dtlb_entries / g.dtlb_ways;
  Driver d(g);
  auto word = [](uint64_t n) {
    return kSomewhere + n * (4096 + 64);
  };  // lines of different sets, too
  for (int pass = 0; pass < 2; ++pass) {
    for (uint64_t n = 0; n < sets; ++n) d.load(word(n));
    d.clock += 10'000;
  }
  for (uint64_t n = 0; n < sets; ++n) {
    EXPECT_TRUE(d.core.load_is_quick(word(n), 8)) << n;
    EXPECT_TRUE(d.core.store_is_quick(word(n), 8)) << n;
  }
  d.load(word(sets));
  EXPECT_FALSE(d.core.load_is_quick(word(0), 8)) << "another page of its set came";
}

TEST(Core, ACheckedPageIsNeverQuick) {
  Driver d;
  d.core.load(kSomewhere, 8, 0, false, true);
  d.core.load(kSomewhere, 8, 5000, false, true);
  EXPECT_FALSE(d.core.load_is_quick(kSomewhere, 8));
  EXPECT_FALSE(d.core.store_is_quick(kSomewhere, 8));
}

TEST(Core, AnAddressThatSharesTagBitsIsNotQuick) {
  Driver d;
  d.load(kSomewhere);
  d.clock += 10'000;
  d.load(kSomewhere);
  ASSERT_TRUE(d.core.load_is_quick(kSomewhere, 8));
  for (unsigned bit = 37; bit < 64; ++bit) {
    EXPECT_FALSE(d.core.load_is_quick(kSomewhere ^ (uint64_t{1} << bit), 8)) << bit;
  }
}

TEST(Core, NonTemporalStoresCombineInALineAndLeaveTheCaches) {
  Driver d;
  d.load(kSomewhere);
  d.clock += 10'000;
  d.load(kSomewhere);
  ASSERT_TRUE(d.core.load_is_quick(kSomewhere, 8));
  d.stream(kSomewhere);
  EXPECT_TRUE(d.core.stream_is_quick(kSomewhere + 8, 8));
  EXPECT_FALSE(d.core.load_is_quick(kSomewhere, 8));
  d.clock += 10'000;
  d.gained(Signal::kLoadsL3Miss);
  d.load(kSomewhere);
  EXPECT_EQ(d.gained(Signal::kLoadsL3Miss), 1u);
  EXPECT_FALSE(d.core.stream_is_quick(kSomewhere + 8, 8));  // the load took the line back
}

TEST(Core, AFlushedLineComesFromMemoryAndItsNeighboursStay) {
  Driver d;
  for (uint64_t at : {0, 64, 128}) d.load(kSomewhere + at);
  d.clock += 10'000;
  for (uint64_t at : {0, 64, 128}) d.load(kSomewhere + at);
  d.core.flush(kSomewhere + 64 + 63);
  EXPECT_FALSE(d.core.load_is_quick(kSomewhere + 64, 8));
  EXPECT_TRUE(d.core.load_is_quick(kSomewhere, 8));
  EXPECT_TRUE(d.core.load_is_quick(kSomewhere + 128, 8));
  d.gained(Signal::kLoadsL3Miss);
  d.load(kSomewhere + 64);
  EXPECT_EQ(d.gained(Signal::kLoadsL3Miss), 1u);
  d.stream(kSomewhere + 256);
  d.core.flush(kSomewhere + 256);
  EXPECT_FALSE(d.core.stream_is_quick(kSomewhere + 264, 8));
}

// Loads and stores alike, each line by itself; what L2 has the last level is not asked for.
TEST(Core, TheLastLevelIsAskedForWhatL2Lacks) {
  arch::CacheGeometry geometry;
  Driver d(geometry);
  const uint64_t lines = 2 * geometry.l2_bytes / 64;
  for (uint64_t n = 0; n < lines; ++n) d.load(kSomewhere + 64 * n);
  EXPECT_EQ(d.gained(Signal::kLlcReferences), lines);
  EXPECT_EQ(d.gained(Signal::kLlcMisses), lines);
  for (uint64_t n = 0; n < lines; ++n) d.load(kSomewhere + 64 * n);
  EXPECT_EQ(d.gained(Signal::kLlcReferences), lines);
  EXPECT_EQ(d.gained(Signal::kLlcMisses), 0u);
  for (uint64_t n = lines - 16; n < lines; ++n) d.load(kSomewhere + 64 * n);
  EXPECT_EQ(d.gained(Signal::kLlcReferences), 0u);
  d.store(kSomewhere + (uint64_t{1} << 30));
  d.store(kSomewhere + (uint64_t{2} << 30) + 60);  // two lines
  EXPECT_EQ(d.gained(Signal::kLlcReferences), 3u);
  EXPECT_EQ(d.gained(Signal::kLlcMisses), 3u);
}

// The next line comes behind a miss, of the same page.
TEST(Core, PrefetchesTheNextLineOfThePage) {
  CoreBehaviour behaviour;
  behaviour.prefetch = 1;
  constexpr uint64_t kLines = 4096 / 64;
  for (const uint64_t line : {uint64_t{0}, uint64_t{1}, kLines - 2, kLines - 1}) {
    Driver d(behaviour);
    d.load(kSomewhere + 64 * line);
    d.load(kSomewhere + 64 * (line + 1));
    EXPECT_EQ(d.gained(Signal::kLlcMisses), line == kLines - 1 ? 2u : 1u) << line;
    d.load(kSomewhere + 64 * (line + 1) + 8);
    EXPECT_EQ(d.gained(Signal::kLlcReferences), line == kLines - 1 ? 2u : 1u) << line;
  }
  // Not behind a hit, and of some misses where the share says so.
  Driver d(behaviour);
  d.load(kSomewhere);
  d.load(kSomewhere + 64);
  d.load(kSomewhere + 128);
  EXPECT_EQ(d.gained(Signal::kLlcMisses), 2u) << "the second came by itself, and brought no third";
  behaviour.prefetch = 0.5;
  Driver half(behaviour);
  for (uint64_t n = 0; n < 2000; ++n)
    half.load(kSomewhere + 4096 * n), half.load(kSomewhere + 4096 * n + 64);
  const uint64_t misses = half.gained(Signal::kLlcMisses);
  EXPECT_GT(misses, 2700u);
  EXPECT_LT(misses, 3300u);
}

TEST(Core, TheReferenceClockRunsAtItsOwnRate) {
  for (const uint32_t percent : {40u, 100u, 130u}) {
    CoreBehaviour behaviour;
    behaviour.reference_percent = percent;
    Driver d(behaviour);
    for (uint64_t n = 0; n < 1000; ++n) {
      d.load(kSomewhere + 4096 * n);
      d.settle();
    }
    const uint64_t cycles = d.gained(Signal::kCycles);
    EXPECT_NEAR(static_cast<double>(d.gained(Signal::kReferenceCycles)),
                static_cast<double>(cycles * percent) / 100, 1);
  }
}

TEST(Core, SlotsAndBusCyclesFollowTheClock) {
  for (const uint32_t slots : {6u, 1000u}) {
    arch::CacheGeometry geometry;
    geometry.slots = slots;
    geometry.bus_ratio = 25;
    Driver d(geometry);
    for (uint64_t n = 0; n < 100; ++n) {
      d.load(kSomewhere + 4096 * n);
      d.settle();  // in pieces that are no multiple of anything
    }
    const uint64_t cycles = d.gained(Signal::kCycles);
    ASSERT_GT(cycles, 1000u);
    // No more than what the PMU is told that a cycle has at the most.
    EXPECT_EQ(d.gained(Signal::kSlots), std::min<uint64_t>(slots, kMaxSlotsPerCycle) * cycles);
    EXPECT_EQ(d.gained(Signal::kBusCycles), cycles / 25);
    EXPECT_EQ(d.core.cycle(), cycles);
  }
}

// However the clock is cut, its readings are whole cycles, rounded down. A width of 0 is taken for 1.
TEST(Core, ReadingsOfTheClockAreWholeCycles) {
  for (const uint32_t width : {0u, 1u, 3u, 4u, 8u}) {
    for (const uint32_t bus_ratio : {1u, 3u, 25u}) {
      arch::CacheGeometry geometry;
      geometry.retire_width = width;
      geometry.bus_ratio = bus_ratio;
      Driver d(geometry);
      ASSERT_EQ(d.core.width(), std::max(1u, width));
      for (uint64_t n = 0; n < 500; ++n) {
        d.clock += n % (3 * d.core.width() + 2);
        d.settle();
        const uint64_t cycles = d.clock / d.core.width();
        ASSERT_EQ(d.core.cycle(), cycles) << "width " << width << ", slot " << d.clock;
        ASSERT_EQ(d.core.totals()[arch::index(Signal::kCycles)], cycles);
        ASSERT_EQ(d.core.totals()[arch::index(Signal::kBusCycles)], cycles / bus_ratio)
            << "ratio " << bus_ratio << ", cycle " << cycles;
      }
    }
  }
}

TEST(Core, ProbesTellWhatTheLastAccessMet) {
  Driver d;
  d.core.arm_probe(kSomewhere);
  d.load(kSomewhere);
  EXPECT_EQ(d.core.probe().load.source, 0xC);
  EXPECT_TRUE(d.core.probe().load.stlb_miss);
  EXPECT_FALSE(d.core.probe().load.l1_hit);
  EXPECT_GE(d.core.probe().load.latency, 200);
  d.settle();
  d.clock += 10'000;
  d.load(kSomewhere);
  d.core.arm_probe(kSomewhere);
  d.load(kSomewhere);  // quick
  EXPECT_EQ(d.core.probe().load.source, 1);
  EXPECT_EQ(d.core.probe().load.latency, 4);
  EXPECT_TRUE(d.core.probe().store.l1_hit);
}

TEST(Core, NoAccessStallsLongerThanItMay) {
  arch::CacheGeometry slow;
  slow.memory_latency = 5000;
  slow.walk_latency = 5000;
  slow.mispredict_penalty = 5000;
  Driver d(slow);
  Random random(9);
  for (int n = 0; n < 1000; ++n) {
    EXPECT_LE(d.load(kSomewhere + random.below(1 << 28), 8, true),
              Core::kMaximumAccessStall * d.core.width());
    EXPECT_LE(d.store(kSomewhere + random.below(1 << 28)),
              Core::kMaximumAccessStall * d.core.width());
    EXPECT_LE(d.branch(kSomewhere, random.chance(1, 2)), 64u * d.core.width());
  }
}

// ---- Branches.

uint64_t mispredictions(Driver& d, int count, bool (*direction)(int)) {
  for (int n = 0; n < count; ++n) d.branch(0x1234, direction(n));
  return d.gained(Signal::kMispredicts);
}

TEST(Core, PatternsAreLearnedAndCoinsAreNot) {
  Driver d;
  for (auto direction : {+[](int) { return true; }, +[](int) { return false; },
                         +[](int n) { return n % 2 == 0; }, +[](int n) { return n % 5 == 0; },
                         +[](int n) { return n % int{Predictor::kHistoryBits} == 0; }}) {
    mispredictions(d, 600, direction);  // whole periods
    EXPECT_EQ(mispredictions(d, 1000, direction), 0u);
  }
  uint64_t random = mispredictions(
      d, 10'000, +[](int n) { return Random(static_cast<uint64_t>(n)).chance(1, 2); });
  EXPECT_NEAR(static_cast<double>(random), 5000, 300);
}

TEST(Core, OutcomesAreCountedByDirection) {
  const arch::CacheGeometry g;
  Driver d(g);
  for (int n = 0; n < 30; ++n) {
    const uint64_t stall = d.branch(0x1234, n % 3 == 0);
    const uint64_t wrong = d.gained(Signal::kMispredictsConditional);
    EXPECT_EQ(stall, wrong * g.mispredict_penalty * g.retire_width) << "outcome " << n;
  }
  EXPECT_EQ(d.gained(Signal::kConditionalTaken), 10u);
  EXPECT_EQ(d.gained(Signal::kNearTaken), 10u);
  EXPECT_EQ(d.gained(Signal::kConditionalNotTaken), 20u);
  EXPECT_EQ(d.gained(Signal::kMispredicts),
            d.gained(Signal::kMispredictsTaken) + d.gained(Signal::kMispredictsNotTaken));
}

TEST(Core, ReturnsArePredictedByTheirCalls) {
  Driver d;
  for (uint64_t depth = 1; depth <= 16; ++depth) d.core.call(depth * 16);
  for (uint64_t depth = 16; depth >= 1; --depth) EXPECT_EQ(d.core.give_back(depth * 16), 0u);
  EXPECT_GT(d.core.give_back(0x999), 0u);
  d.settle();
  EXPECT_EQ(d.gained(Signal::kMispredicts), 1u);
  d.core.call_indirect(9, 0x300, 0x310);
  EXPECT_EQ(d.core.give_back(0x310), 0u);
}

TEST(Core, IndirectBranchesRepeatTheirLastTarget) {
  Driver d;
  d.core.jump_indirect(7, 0x100);
  EXPECT_EQ(d.core.jump_indirect(7, 0x100), 0u);
  EXPECT_GT(d.core.jump_indirect(7, 0x200), 0u);
  EXPECT_GT(d.core.call_indirect(9, 0x300, 0x310), 0u);
  EXPECT_EQ(d.core.call_indirect(9, 0x300, 0x320), 0u);
  EXPECT_EQ(d.gained(Signal::kMispredictsNearCall), 1u);
  EXPECT_EQ(d.gained(Signal::kMispredicts), 3u);
  EXPECT_EQ(d.gained(Signal::kMispredictsTaken), 3u);
  EXPECT_EQ(d.gained(Signal::kMispredictsConditional), 0u);
}

TEST(Core, EachIndirectBranchHasATargetOfItsOwn) {
  Driver d;
  auto wrong = [&](uint32_t key) { return d.core.jump_indirect(key, 0x1000 + 16 * key) != 0; };
  for (uint32_t key = 0; key < Predictor::kTargets; ++key) EXPECT_TRUE(wrong(key)) << key;
  for (uint32_t key = 0; key < Predictor::kTargets; ++key) EXPECT_FALSE(wrong(key)) << key;
}

// An idle predictor leans one way or the other, and only weakly.
TEST(Predictor, OneOutcomeTurnsAnIdleCounter) {
  for (const bool taken : {false, true}) {
    Predictor predictor;
    unsigned wrong = 0;
    uint32_t history = 0;
    auto meets = [&](uint32_t counter) {
      const bool mispredicted = predictor.conditional(counter ^ history, taken);
      history = history << 1 | static_cast<uint32_t>(taken);
      return mispredicted;
    };
    constexpr uint32_t kCounters = 1u << Predictor::kHistoryBits;
    for (uint32_t counter = 0; counter < kCounters; ++counter) {
      wrong += meets(counter);
      EXPECT_FALSE(meets(counter)) << counter;
    }
    EXPECT_GT(wrong, 0u);
    EXPECT_LT(wrong, kCounters);
  }
}

TEST(Core, TimePassesInWhichNothingRetires) {
  for (const uint64_t stall : {0u, 1u, 900u}) {
    Driver d;
    d.clock += 100 * d.core.width();
    d.settle();
    const uint64_t cycle = d.core.cycle(), tsc = d.core.tsc();
    arch::SignalCounts expected = d.core.totals();
    d.core.stall(stall);
    EXPECT_EQ(d.core.cycle() - cycle, stall);
    EXPECT_EQ(d.core.tsc() - tsc, stall);
    EXPECT_EQ(d.core.clock(), (cycle + stall) * d.core.width());
    expected[arch::index(Signal::kCycles)] += stall;
    expected[arch::index(Signal::kReferenceCycles)] += stall;
    expected[arch::index(Signal::kBusCycles)] += stall;
    expected[arch::index(Signal::kSlots)] += stall * arch::CacheGeometry{}.slots;
    EXPECT_EQ(d.core.totals(), expected) << "nothing else";
  }
}

TEST(Core, ResetBringsBackTheBeginning) {
  auto play = [](Driver& d) {
    Random random(5);
    for (int n = 0; n < 5000; ++n) {
      d.load(kSomewhere + random.below(1 << 22));
      d.stream(kSomewhere + random.below(1 << 16));
      d.branch(random.below(64), random.chance(2, 3));
    }
    d.settle();
    return d.core.totals();
  };
  Driver first;
  arch::SignalCounts once = play(first);
  first.core.reset();
  first.clock = 0;
  EXPECT_EQ(play(first), once);
  Driver second({}, 1), other({}, 2);
  EXPECT_EQ(play(second), once);
  EXPECT_NE(play(other), once);  // another seed: another idle predictor
}

TEST(Core, ResetForgetsWhatWasUnderWay) {
  Driver d;
  auto begin = [&] {
    d.load(kSomewhere);
    d.stream(kSomewhere + 64);  // the next store to this line would combine
    for (uint64_t n = 0; n < 20; ++n) d.branch(n, n % 2 == 0);
    for (uint64_t depth = 1; depth <= Predictor::kReturns; ++depth) d.core.call(depth * 16);
    d.core.jump_indirect(7, 0x200);
    d.core.arm_probe(kSomewhere);
    d.load(kSomewhere + 128);
    d.core.reset();
  };
  begin();
  arch::SignalCounts counts{};
  d.core.settle(counts, 0);
  EXPECT_EQ(d.core.totals(), arch::SignalCounts{}) << "nothing was settled before";
  begin();
  d.core.load(kSomewhere, 8, 1, false, false);  // the page is known again
  EXPECT_EQ(d.core.probe().load.source, 0) << "nobody armed it again";
  EXPECT_EQ(d.core.probe().load.latency, 0);
  EXPECT_FALSE(d.core.stream_is_quick(kSomewhere + 64, 8));
  EXPECT_GT(d.core.jump_indirect(7, 0x200), 0u);
  for (uint64_t depth = Predictor::kReturns; depth >= 1; --depth) {
    EXPECT_GT(d.core.give_back(depth * 16), 0u) << depth;
  }
}

// Broken cores: what costs more, and that nothing else does.
TEST(CoreDeviations, ForwardingCostsByWhatTheStoreWrote) {
  CoreBehaviour behaviour;
  behaviour.apart_stall = 3;
  behaviour.forwarded_stall = 5;
  behaviour.blocked_stall = 7;
  Driver d(behaviour);
  const uint64_t width = d.core.width();
  d.load(kSomewhere);
  d.load(kSomewhere + 64);
  const auto behind_a_store = [&](uint64_t address, unsigned stored, unsigned loaded) {
    d.clock += 10'000;
    d.store(kSomewhere + 16, stored);
    return d.load(address, loaded);
  };
  EXPECT_EQ(behind_a_store(kSomewhere + 64, 8, 8), 3 * width);
  EXPECT_EQ(behind_a_store(kSomewhere + 16, 8, 8), 5 * width);
  EXPECT_EQ(behind_a_store(kSomewhere + 20, 8, 4), 5 * width);
  EXPECT_EQ(behind_a_store(kSomewhere + 16, 1, 8), 7 * width);
  EXPECT_EQ(behind_a_store(kSomewhere + 12, 8, 8), 7 * width);
  EXPECT_EQ(behind_a_store(kSomewhere + 24, 8, 8), 3 * width);
  EXPECT_EQ(d.load(kSomewhere + 16), 0u) << "no store stands before this one";
  d.core.reset();
  d.clock = 0;
  d.store(kSomewhere + 16);
  d.clock += 10'000;
  EXPECT_EQ(d.load(kSomewhere + 16), 5 * width) << "it stays broken";
}

TEST(CoreDeviations, HitsCostMore) {
  CoreBehaviour behaviour;
  behaviour.l1_stall = 9;
  Driver d(behaviour);
  d.load(kSomewhere);
  d.clock += 10'000;
  EXPECT_EQ(d.load(kSomewhere), 9u * d.core.width());

  behaviour = {};
  behaviour.dtlb_latency = 40;
  Driver t(behaviour);
  const uint64_t other = kSomewhere + (uint64_t{behaviour.caches.dtlb_entries} << 12);
  for (uint64_t address : {kSomewhere, other, kSomewhere}) t.load(address, 8, true);
  t.clock += 10'000;
  EXPECT_EQ(t.load(other, 8, true), 40u * t.core.width()) << "a page of the first TLB";
  EXPECT_EQ(t.load(other, 8, true), 0u) << "the most recent page";
}

TEST(CoreDeviations, DependentLoadsOverlapInsteadOfTheOthers) {
  CoreBehaviour behaviour;
  Driver sound(behaviour);
  behaviour.chains_overlap = true;
  Driver broken(behaviour);
  for (Driver* d : {&sound, &broken}) {
    d->load(kSomewhere + 2048);
    d->clock = 10'000;
  }
  const uint64_t chased = sound.load(kSomewhere, 8, true);
  const uint64_t streamed = sound.load(kSomewhere + 128, 8, false);
  EXPECT_GT(chased, streamed);
  EXPECT_EQ(broken.load(kSomewhere, 8, true), streamed);
  EXPECT_EQ(broken.load(kSomewhere + 128, 8, false), chased);
}

}  // namespace
}  // namespace skidproof::model
