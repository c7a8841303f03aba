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
  EXPECT_FALSE(pmu_->rdpmc(0, true, false));
  EXPECT_FALSE(pmu_->rdpmc(kFixed, true, false));
  make(true, [](Behaviour& b) { b.counting.rdpmc_needs_pce = false; });
  EXPECT_TRUE(pmu_->rdpmc(0, true, false));
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

TEST_F(CountingTest, AnyThreadIsOwnWithoutASibling) {
  make(false);
  start(0, evtsel::kAnyThread);
  pmu_->advance(counts(500, 900), 500);
  EXPECT_EQ(get(IA32_PMC0), 500u);
}

// CMASK 1 and its inverse split the cycles between them from the first on.
TEST_F(CountingTest, CmaskAndItsInverseSplitTheCycles) {
  start(0, uint64_t{1} << evtsel::kCmaskShift);
  start(1, (uint64_t{1} << evtsel::kCmaskShift) | evtsel::kInvert);
  clock_ = 5000;  // long after power-on
  for (uint64_t cycles : {3, 1, 1, 0, 0, 9, 2, 1}) retire(cycles);
  const uint64_t total = 3 + 1 + 1 + 9 + 2 + 1;
  EXPECT_EQ(get(IA32_PMC0) + get(IA32_PMC0 + 1), total);  // the cycle that is open is not counted
  EXPECT_EQ(get(IA32_PMC0), 5u);
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
