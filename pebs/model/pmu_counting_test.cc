// The PMU alone, counting: RDPMC, privilege levels, the sibling, cycle filters, status bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/pmu.h"
#include "pebs/model/sibling.h"

namespace skidproof::model {
namespace {

using namespace arch;

class NoMemory : public Bus {
 public:
  bool read(uint64_t, std::span<std::byte>) override { return false; }
  bool write(uint64_t, std::span<const std::byte>) override { return false; }
};

class CountingTest : public ::testing::Test {
 protected:
  void make(bool sibling = true, void (*change)(Behaviour&) = nullptr,
            std::string_view name = "sandy-bridge") {
    uarch_ = *find_microarch(name);
    Behaviour behaviour = behaviour_of(*uarch_);
    if (change != nullptr) change(behaviour);
    pmu_ =
        std::make_unique<Pmu>(*uarch_, Topology{.sibling_thread = sibling}, memory_, behaviour, 1);
    clock_ = 0;
  }
  void SetUp() override { make(); }
  void set(uint32_t msr, uint64_t value) {
    auto done = pmu_->wrmsr(msr, value);
    ASSERT_TRUE(done) << done.error().text();
  }
  uint64_t get(uint32_t msr) { return pmu_->rdmsr(msr).value(); }
  bool faults(uint32_t msr, uint64_t value) {
    auto done = pmu_->wrmsr(msr, value);
    return !done && done.error().code == ErrorCode::kGeneralProtection;
  }
  // Counts instructions on PMCn.
  void start(unsigned n, uint64_t more, uint64_t levels = evtsel::kOs | evtsel::kUsr) {
    set(IA32_PERFEVTSEL0 + n, 0xC0 | levels | evtsel::kEnable | more);
    set(IA32_PERF_GLOBAL_CTRL, get(IA32_PERF_GLOBAL_CTRL) | bit(n));
  }
  static SignalCounts counts(uint64_t instructions, uint64_t cycles) {
    SignalCounts c{};
    c[index(Signal::kInstructions)] = instructions;
    c[index(Signal::kCycles)] = c[index(Signal::kReferenceCycles)] = cycles;
    return c;
  }
  void retire(uint64_t cycles = 1) {
    Retired r;
    r.ip = 0x1000;
    r.length = 4;
    r.counts = counts(1, cycles);
    r.cycle = clock_ += cycles;
    r.after = &registers_;
    pmu_->retire(r);
  }

  const Microarch* uarch_ = nullptr;
  NoMemory memory_;
  std::unique_ptr<Pmu> pmu_;
  Registers registers_;
  uint64_t clock_ = 0;
};

constexpr uint32_t kFixed = uint32_t{1} << 30;

TEST_F(CountingTest, RdpmcReadsWhatRdmsrReadsAndNothingElse) {
  for (bool sibling : {true, false}) {
    make(sibling);
    const unsigned gp = gp_counters(*uarch_, sibling);
    for (uint32_t n = 0; n < gp; ++n) set(IA32_A_PMC0 + n, 0xABCD'0000'0000 + n);
    for (uint32_t i = 0; i < 3; ++i) set(IA32_FIXED_CTR0 + i, 0x1234'0000'0000 + i);
    for (uint32_t n = 0; n < gp; ++n) EXPECT_EQ(pmu_->rdpmc(n), get(IA32_PMC0 + n));
    for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(pmu_->rdpmc(kFixed | i), get(IA32_FIXED_CTR0 + i));
    for (uint32_t index : {gp, gp + 1, kFixed | 3, kFixed | 7, uint32_t{1} << 29, ~uint32_t{0}}) {
      auto read = pmu_->rdpmc(index);
      ASSERT_FALSE(read) << index;
      EXPECT_EQ(read.error().code, ErrorCode::kGeneralProtection);
    }
  }
}

TEST_F(CountingTest, RdpmcNeedsPceAboveRingZero) {
  EXPECT_TRUE(pmu_->rdpmc(0, false, false));
  EXPECT_TRUE(pmu_->rdpmc(0, true, true));
  EXPECT_TRUE(pmu_->rdpmc(0, true)) << "PCE is set unless it is said";
  EXPECT_FALSE(pmu_->rdpmc(0, true, false));
  EXPECT_FALSE(pmu_->rdpmc(kFixed, true, false));
  make(true, [](Behaviour& b) { b.counting.rdpmc_needs_pce = false; });
  EXPECT_TRUE(pmu_->rdpmc(0, true, false));
}

TEST_F(CountingTest, AllCountersAdvanceTogether) {
  for (unsigned n = 0; n < 4; ++n) start(n, 0);
  set(IA32_FIXED_CTR_CTRL, 0x333);
  set(IA32_PERF_GLOBAL_CTRL, get(IA32_PERF_GLOBAL_CTRL) | uint64_t{7} << status::kFixedShift);
  for (int i = 0; i < 2; ++i) pmu_->advance(counts(100, 250), 100);
  for (unsigned n = 0; n < 4; ++n) EXPECT_EQ(get(IA32_PMC0 + n), 200u) << n;
  EXPECT_EQ(get(IA32_FIXED_CTR0), 200u);
  EXPECT_EQ(get(IA32_FIXED_CTR0 + 1), 500u);
  EXPECT_EQ(get(IA32_FIXED_CTR0 + 2), 500u);
}

// Each counter filters by the level of each instruction, not by the one at which it was set up.
TEST_F(CountingTest, CountersFollowEveryChangeOfLevel) {
  start(0, 0, evtsel::kUsr);
  start(1, 0, evtsel::kOs);
  start(2, 0);
  set(IA32_FIXED_CTR_CTRL, fixed_ctrl::kUsr);
  set(IA32_PERF_GLOBAL_CTRL, get(IA32_PERF_GLOBAL_CTRL) | bit(status::kFixedShift));
  for (int round = 0; round < 3; ++round) {
    pmu_->set_user(true);
    retire();
    retire();
    pmu_->advance(counts(10, 5), 10);
    pmu_->set_user(false);
    retire();
    pmu_->advance(counts(100, 50), 100);
  }
  EXPECT_EQ(get(IA32_PMC0), 36u);
  EXPECT_EQ(get(IA32_PMC0 + 1), 303u);
  EXPECT_EQ(get(IA32_PMC0 + 2), 339u);
  EXPECT_EQ(get(IA32_FIXED_CTR0), 36u);
}

TEST_F(CountingTest, OverflowsAtOneLevelOnly) {
  start(0, 0, evtsel::kUsr);
  set(IA32_PMC0, 0xFFFF'FFFF);
  retire();
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 0u);
  pmu_->set_user(true);
  retire();
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), bit(0));
  EXPECT_EQ(get(IA32_PMC0), 0u);
}

// The sibling's events are a function of the clock: however the run was cut into pieces.
TEST_F(CountingTest, AnyThreadAddsTheSiblingHoweverTheRunIsCut) {
  constexpr uint64_t kCycles = 1000;
  const uint64_t other = Sibling::events(Signal::kInstructions, 0, kCycles);
  ASSERT_GT(other, 0u);
  for (uint64_t piece : {1, 7, 1000}) {
    make();
    start(0, evtsel::kAnyThread);
    start(1, 0);
    set(IA32_FIXED_CTR_CTRL, fixed_ctrl::kOs | fixed_ctrl::kAnyThread);
    set(IA32_PERF_GLOBAL_CTRL, get(IA32_PERF_GLOBAL_CTRL) | bit(status::kFixedShift));
    for (uint64_t done = 0; done < kCycles; done += piece) {
      uint64_t now = std::min(piece, kCycles - done);
      if (now == 1) {
        retire();
      } else {
        pmu_->advance(counts(now, now), now);
      }
    }
    EXPECT_EQ(get(IA32_PMC0 + 1), kCycles);
    EXPECT_EQ(get(IA32_PMC0), kCycles + other) << "pieces of " << piece;
    EXPECT_EQ(get(IA32_FIXED_CTR0), kCycles + other) << "pieces of " << piece;
  }
}

// Whichever counter shares, and however rare the sibling's event is.
TEST_F(CountingTest, OneCounterOfBothThreadsFollowsTheSibling) {
  const struct {
    uint64_t event;
    Signal signal;
  } events[] = {{0x81D0, Signal::kLoads}, {0x82D0, Signal::kStores}, {0x20C4, Signal::kNearTaken}};
  for (unsigned n = 0; n < 4; ++n) {
    for (const auto& [event, signal] : events) {
      make();
      set(IA32_PERFEVTSEL0 + n, event | evtsel::kOs | evtsel::kAnyThread | evtsel::kEnable);
      set(IA32_PERF_GLOBAL_CTRL, bit(n));
      uint64_t cycles = 0;
      for (uint64_t piece = 1; piece < 30; ++piece) {
        retire(piece);
        pmu_->advance(counts(1, piece), 1);
        cycles += 2 * piece;
        ASSERT_EQ(get(IA32_PMC0 + n), Sibling::events(signal, 0, cycles)) << "PMC" << n;
      }
    }
  }
}

// A broken AnyThread counts the sibling alone, on each fixed counter.
TEST_F(CountingTest, EachFixedCounterMayCountTheSibling) {
  const Signal signals[] = {Signal::kInstructions, Signal::kCycles, Signal::kReferenceCycles};
  for (unsigned i = 0; i < 3; ++i) {
    make(true, [](Behaviour& b) { b.counting.any_thread = AnyThread::kSibling; });
    set(IA32_FIXED_CTR_CTRL, fixed_ctrl::field(i, fixed_ctrl::kOs | fixed_ctrl::kAnyThread));
    set(IA32_PERF_GLOBAL_CTRL, bit(status::kFixedShift + i));
    pmu_->advance(counts(500, 900), 500);
    EXPECT_EQ(get(IA32_FIXED_CTR0 + i), Sibling::events(signals[i], 0, 900)) << i;
  }
}

// A sibling's events leak in where there is a sibling. (BJ122)
TEST_F(CountingTest, WithoutASiblingNothingLeaksIn) {
  for (const bool sibling : {true, false}) {
    make(
        sibling, [](Behaviour& b) { b.counting.sibling_leaks = 0xF; }, "ivy-bridge");
    set(IA32_PERFEVTSEL0, 0x82D0 | evtsel::kOs | evtsel::kEnable);
    set(IA32_PERF_GLOBAL_CTRL, 1);
    pmu_->advance(counts(500, 900), 500);
    EXPECT_EQ(get(IA32_PMC0) > 0, sibling);
  }
}

TEST_F(CountingTest, AnyThreadIsOwnWithoutASibling) {
  make(false);
  start(0, evtsel::kAnyThread);
  pmu_->advance(counts(500, 900), 500);
  EXPECT_EQ(get(IA32_PMC0), 500u);
}

// CMASK 1 and its inverse split the cycles between them from the first on, whatever is written meanwhile.
TEST_F(CountingTest, CmaskAndItsInverseSplitTheCycles) {
  for (const bool writes : {false, true}) {
    make();
    start(0, uint64_t{1} << evtsel::kCmaskShift);
    start(1, (uint64_t{1} << evtsel::kCmaskShift) | evtsel::kInvert);
    clock_ = 5000;  // long after power-on
    for (uint64_t cycles : {3, 1, 1, 0, 0, 9, 2, 1}) {
      retire(cycles);
      if (writes) set(IA32_PERFEVTSEL0 + 2, 0);
    }
    const uint64_t total = 3 + 1 + 1 + 9 + 2 + 1;
    EXPECT_EQ(get(IA32_PMC0) + get(IA32_PMC0 + 1), total);  // the cycle that is open is not counted
    EXPECT_EQ(get(IA32_PMC0), 5u);
  }
}

TEST_F(CountingTest, StatusStaysThroughEverythingButOvfCtrl) {
  start(0, 0);
  set(IA32_PMC0, 0xFFFF'FFFF);
  retire();
  set(IA32_PERFEVTSEL0, 0);
  set(IA32_PMC0, 0);
  set(IA32_A_PMC0, 0);
  set(IA32_PERF_GLOBAL_CTRL, 0);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), bit(0));
  set(IA32_PERF_GLOBAL_OVF_CTRL, bit(1));
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), bit(0));
  set(IA32_PERF_GLOBAL_OVF_CTRL, bit(0));
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 0u);
}

// One register's decision leaves the others as they were.
TEST_F(CountingTest, RegisterBitsOfADefectConcernOneRegister) {
  make(true, [](Behaviour& b) {
    b.counting.lax = {IA32_PERF_GLOBAL_CTRL, bit(40)};
    b.counting.refused = {IA32_DEBUGCTL, bit(14)};
    b.counting.lost = {IA32_PERFEVTSEL0, bit(31)};
  });
  EXPECT_FALSE(faults(IA32_PERF_GLOBAL_CTRL, bit(40)));
  EXPECT_TRUE(faults(IA32_PERF_GLOBAL_CTRL, bit(41)));
  EXPECT_TRUE(faults(IA32_FIXED_CTR_CTRL, bit(40)));
  EXPECT_TRUE(faults(IA32_DEBUGCTL, bit(14)));
  EXPECT_FALSE(faults(IA32_DEBUGCTL, bit(12)));
  set(IA32_PERFEVTSEL0 + 2, 0xFFFF'FFFF);
  EXPECT_EQ(get(IA32_PERFEVTSEL0 + 2), 0x7FFF'FFFFu);
}

// Of a select that names no event nothing is counted, whatever the register held before.
TEST_F(CountingTest, ASelectForgetsTheEventBefore) {
  for (const uint64_t before : {uint64_t{0xC0}, 0xC0 | evtsel::kOs}) {
    for (const uint64_t unknown : {0x0000, 0xFFFF}) {
      make();
      set(IA32_PERF_GLOBAL_CTRL, 1);
      set(IA32_PERFEVTSEL0, before);
      set(IA32_PERFEVTSEL0, unknown | evtsel::kOs | evtsel::kEnable);
      retire();
      EXPECT_EQ(get(IA32_PMC0), 0u) << std::hex << unknown << " after " << before;
    }
  }
}

// --- Broken counters: what the defect is about, and no more

// Where two counters share a select, each counts by the last write of it. (M13)
TEST_F(CountingTest, ASharedSelectIsReadWithEachWrite) {
  make(true, [](Behaviour& b) { b.counting.selects_shared = true; });
  start(1, 0);
  uint64_t counted = 0;
  for (const uint64_t event : {0x00C0, 0xFFFF, 0x00C0, 0x81D0, 0x00C0}) {
    set(IA32_PERFEVTSEL0, event);
    retire();
    counted += event == 0x00C0 ? 1 : 0;
    EXPECT_EQ(get(IA32_PMC0 + 1), counted) << std::hex << event;
    EXPECT_EQ(get(IA32_PMC0), 0u) << "not enabled";
  }
}

// With USR alone PMC4 to PMC7 stand, the lower ones count. (BDM126)
TEST_F(CountingTest, OnlyTheUpperCountersStandWithUsrAlone) {
  make(
      false, [](Behaviour& b) { b.counting.upper_usr_only_dead = 0xF0; }, "broadwell");
  pmu_->set_user(true);
  for (unsigned n = 0; n < 8; ++n) start(n, 0, evtsel::kUsr);
  retire();
  for (unsigned n = 0; n < 8; ++n) EXPECT_EQ(get(IA32_PMC0 + n), n < 4 ? 1u : 0u) << "PMC" << n;
  for (unsigned n = 0; n < 8; ++n) start(n, 0);
  retire();
  for (unsigned n = 0; n < 8; ++n) EXPECT_EQ(get(IA32_PMC0 + n), n < 4 ? 2u : 1u) << "PMC" << n;
}

TEST_F(CountingTest, AMistakenEventLeavesTheOthersAsTheyAre) {
  make(true, [](Behaviour& b) { b.counting.mistake = {Signal::kLoads, Signal::kStores}; });
  start(0, 0);
  pmu_->advance(counts(500, 900), 500);
  EXPECT_EQ(get(IA32_PMC0), 500u);
}

// Fixed counter 0 starts as much too high as the part has it. (HSD143)
TEST_F(CountingTest, AStartBesideASiblingMayGainAnyNumber) {
  void (*const gains[])(Behaviour&) = {[](Behaviour& b) { b.counting.fixed_start_extra = 0; },
                                       [](Behaviour& b) { b.counting.fixed_start_extra = 1; },
                                       [](Behaviour& b) { b.counting.fixed_start_extra = 2; }};
  for (uint64_t extra = 0; extra < 3; ++extra) {
    make(true, gains[extra]);
    set(IA32_FIXED_CTR_CTRL, fixed_ctrl::kOs);
    set(IA32_PERF_GLOBAL_CTRL, bit(status::kFixedShift));
    EXPECT_EQ(get(IA32_FIXED_CTR0), extra);
  }
}

// Fixed counter 2 alone runs slower or faster, however little. (W145)
TEST_F(CountingTest, ReferenceCyclesMayRunAtAnyRate) {
  const struct {
    void (*change)(Behaviour&);
    uint64_t of_a_thousand;
  } rates[] = {{[](Behaviour& b) { b.counting.reference_clock_percent = 99; }, 990},
               {[](Behaviour& b) { b.counting.reference_clock_percent = 100; }, 1000},
               {[](Behaviour& b) { b.counting.reference_clock_percent = 101; }, 1010}};
  for (const auto& [change, of_a_thousand] : rates) {
    make(true, change);
    set(IA32_FIXED_CTR_CTRL, 0x333);
    set(IA32_PERF_GLOBAL_CTRL, uint64_t{7} << status::kFixedShift);
    for (int i = 0; i < 10; ++i) pmu_->advance(counts(100, 100), 100);
    EXPECT_EQ(get(IA32_FIXED_CTR0 + 2), of_a_thousand);
    EXPECT_EQ(get(IA32_FIXED_CTR0 + 1), 1000u);
  }
}

TEST_F(CountingTest, EveryEventMayCountTwiceOrNotAtAll) {
  make(true, [](Behaviour& b) { b.counting.extra_events = 1; });
  start(0, 0);
  for (int i = 0; i < 5; ++i) retire();
  EXPECT_EQ(get(IA32_PMC0), 10u);
  make(true, [](Behaviour& b) { b.lost_events = 1; });
  start(0, 0);
  for (int i = 0; i < 5; ++i) retire();
  EXPECT_EQ(get(IA32_PMC0), 0u);
}

TEST_F(CountingTest, SwappedFixedCountersAreTheFirstTwo) {
  make(true, [](Behaviour& b) { b.fixed_counters_swapped = true; });
  set(IA32_FIXED_CTR_CTRL, 0x333);
  set(IA32_PERF_GLOBAL_CTRL, uint64_t{7} << status::kFixedShift);
  SignalCounts apart = counts(100, 250);
  apart[index(Signal::kReferenceCycles)] = 240;
  pmu_->advance(apart, 100);
  EXPECT_EQ(get(IA32_FIXED_CTR0), 250u);
  EXPECT_EQ(get(IA32_FIXED_CTR0 + 1), 100u);
  EXPECT_EQ(get(IA32_FIXED_CTR0 + 2), 240u);
}

TEST_F(CountingTest, MagicSelectsStartCountersOfTheErratum) {
  make(
      true, [](Behaviour& b) { b.counting.needs_magic_selects = true; }, "nehalem");
  start(0, 0);
  retire();
  EXPECT_EQ(get(IA32_PMC0), 0u);
  for (uint64_t select : {0x4300B5, 0x4300D2, 0x4300B1, 0x4300B1}) set(IA32_PERFEVTSEL0, select);
  start(0, 0);
  retire();
  EXPECT_EQ(get(IA32_PMC0), 1u);
}

}  // namespace
}  // namespace skidproof::model
