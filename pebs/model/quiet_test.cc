// How many instructions the PMU lets an engine run without stepping: as many as cannot overflow, and no fewer.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "pebs/arch/msr.h"
#include "pebs/arch/netburst.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/pmu.h"
#include "pebs/model/sibling.h"
#include "pebs/model/testing/flat_memory.h"

namespace skidproof::model {
namespace {

using namespace arch;
namespace nb = arch::netburst;

class QuietTest : public ::testing::Test {
 protected:
  // How far the counters are from the overflow. No divisor of it is the most that an instruction adds.
  static constexpr uint64_t kLeft = 1'000'003;

  void make(
      std::string_view name, bool sibling, void (*change)(Behaviour&) = [](Behaviour&) {}) {
    const Microarch& uarch = **find_microarch(name);
    Behaviour behaviour = behaviour_of(uarch);
    change(behaviour);
    pmu_ = std::make_unique<Pmu>(uarch, Topology{.sibling_thread = sibling}, memory_, behaviour, 1);
  }
  void SetUp() override { make("sandy-bridge", false); }
  void set(uint32_t msr, uint64_t value) {
    auto done = pmu_->wrmsr(msr, value);
    ASSERT_TRUE(done) << done.error().text();
  }
  void enable(uint64_t bits) {
    set(IA32_PERF_GLOBAL_CTRL, pmu_->rdmsr(IA32_PERF_GLOBAL_CTRL).value() | bits);
  }
  void count(unsigned n, uint64_t event, uint64_t left = kLeft, uint64_t select_bits = 0) {
    set(IA32_A_PMC0 + n, low_bits(48) - left);
    set(IA32_PERFEVTSEL0 + n, event | evtsel::kOs | evtsel::kEnable | select_bits);
    enable(bit(n));
  }
  void count_fixed(unsigned i, uint64_t left = kLeft, uint64_t bits = 0) {
    set(IA32_FIXED_CTR0 + i, low_bits(48) - left);
    set(IA32_FIXED_CTR_CTRL, pmu_->rdmsr(IA32_FIXED_CTR_CTRL).value() | (fixed_ctrl::kOs | bits)
                                                                            << (4 * i));
    enable(bit(32 + i));
  }
  void sample_stores(uint64_t period, unsigned n = 0) { sample(0x82D0, period, n); }
  void sample(uint64_t event, uint64_t period, unsigned n) {
    memory_.set_field(0x20, FlatMemory::kBuffer);
    memory_.set_field(0x28, FlatMemory::kBuffer);
    memory_.set_field(0x30, FlatMemory::kBuffer + 8 * 0xB0);
    memory_.set_field(0x38, FlatMemory::kBuffer + 8 * 0xB0);
    set(IA32_DS_AREA, FlatMemory::kBase);
    set(IA32_PEBS_ENABLE, bit(n));
    count(n, event, period - 1);
  }
  void retire(Signal signal, bool fused = false) {
    Retired r;
    r.counts[index(Signal::kInstructions)] = 1;
    r.counts[index(signal)] = 1;
    r.length = 4;
    r.cycle = cycle_ += 1000;
    r.fused_with_next = fused;
    r.after = &registers_;
    pmu_->retire(r);
  }
  uint64_t quiet(uint64_t most_uops = max_per_instruction(Signal::kUops)) {
    return pmu_->quiet_instructions(most_uops);
  }

  FlatMemory memory_;
  std::unique_ptr<Pmu> pmu_;
  Registers registers_;
  uint64_t cycle_ = 0;
};

TEST_F(QuietTest, WithoutCountersThereIsNoEnd) { EXPECT_EQ(quiet(), UINT64_MAX); }

TEST_F(QuietTest, ACounterIsQuietForAsLongAsItCannotOverflow) {
  const struct {
    uint64_t event, most;
  } events[] = {{0x00C0, 1},  {0x003C, kMaxCyclesPerInstruction},
                {0x81D0, 2},  {0x82D0, 2},
                {0x01C2, 64}, {0x41D0, 2},
                {0x4F2E, 8},  {0x412E, 8},
                {0x00C4, 1},  {0x01D1, 2}};
  for (unsigned n = 0; n < 4; ++n) {
    for (const auto& [event, most] : events) {
      make("sandy-bridge", false);
      count(n, event);
      EXPECT_EQ(quiet(), kLeft / most) << "PMC" << n << ", event " << std::hex << event;
    }
  }
  make("sandy-bridge", false);
  count(1, 0x01C2);
  EXPECT_EQ(quiet(3), kLeft / 3) << "the engine knows its program's uops";
}

TEST_F(QuietTest, AFixedCounterIsQuietForAsLongAsItCannotOverflow) {
  const uint64_t most[] = {1, kMaxCyclesPerInstruction, kMaxCyclesPerInstruction};
  for (unsigned i = 0; i < 3; ++i) {
    make("sandy-bridge", false);
    count_fixed(i);
    EXPECT_EQ(quiet(), kLeft / most[i]) << "fixed counter " << i;
  }
  make("ice-lake", false);
  count_fixed(3);
  EXPECT_EQ(quiet(), kLeft / (kMaxCyclesPerInstruction * kMaxSlotsPerCycle));
}

// What the engine knows of its code counts where it allows more than an instruction's most does.
TEST_F(QuietTest, GoesByHowFarEventsAreApart) {
  CodeBounds code{};
  auto quiet_in = [&] { return pmu_->quiet_instructions(64, &code); };
  auto bound = [&](Signal signal) -> EventBound& { return code[index(signal)]; };
  count(2, 0x82D0);
  EXPECT_EQ(quiet_in(), kLeft / 2) << "nothing is known";
  bound(Signal::kStores) = {.once = 6, .apart = 10};
  EXPECT_EQ(quiet_in(), (kLeft - 6) * 10);
  bound(Signal::kStores) = {.once = 0, .apart = UINT64_MAX};
  EXPECT_EQ(quiet_in(), UINT64_MAX) << "there is no store";
  bound(Signal::kStores) = {.once = kLeft + 1, .apart = 10};
  EXPECT_EQ(quiet_in(), kLeft / 2) << "one block may have them all";
  bound(Signal::kStores) = {.once = 6, .apart = 10};
  count_fixed(0);
  EXPECT_EQ(quiet_in(), kLeft);
  bound(Signal::kInstructions) = {.once = 20, .apart = 1};
  EXPECT_EQ(quiet_in(), kLeft) << "of two bounds the better";
  bound(Signal::kInstructions) = {.once = 0, .apart = 3};
  EXPECT_EQ(quiet_in(), 3 * kLeft);
}

TEST_F(QuietTest, DoesNotGoByTheCodeWhereMoreThanTheCodeDecides) {
  CodeBounds code;
  code.fill({.once = 0, .apart = UINT64_MAX});
  auto quiet_in = [&] { return pmu_->quiet_instructions(64, &code); };
  make("sandy-bridge", true);
  count(2, 0x82D0, kLeft, evtsel::kAnyThread);
  EXPECT_EQ(quiet_in(), quiet());
  make("sandy-bridge", true);
  count_fixed(0, kLeft, fixed_ctrl::kAnyThread);
  EXPECT_EQ(quiet_in(), quiet());
  void (*const defects[])(Behaviour&) = {[](Behaviour& b) { b.counting.extra_events = 7; },
                                         [](Behaviour& b) { b.registers_after = false; },
                                         [](Behaviour& b) { b.precise_store_lag = -1; }};
  for (const auto defect : defects) {
    make("sandy-bridge", false, defect);
    count(2, 0x82D0);
    EXPECT_EQ(quiet_in(), quiet());
    EXPECT_LT(quiet_in(), UINT64_MAX);
  }
}

TEST_F(QuietTest, TheNearestOverflowDecides) {
  for (unsigned nearest = 0; nearest < 7; ++nearest) {
    make("sandy-bridge", false);
    for (unsigned n = 0; n < 4; ++n) count(n, 0x00C0, n == nearest ? 100 : kLeft);
    // Cycles are left alone: one instruction may take a thousand.
    count_fixed(0, nearest == 4 ? 100 : kLeft);
    count_fixed(1, (nearest == 5 ? 100 : kLeft) * kMaxCyclesPerInstruction);
    count_fixed(2, (nearest == 6 ? 100 : kLeft) * kMaxCyclesPerInstruction);
    EXPECT_EQ(quiet(), 100u) << nearest;
  }
}

// The sibling adds to it in each cycle that an instruction takes.
TEST_F(QuietTest, AnyThreadAllowsForTheSibling) {
  for (const bool sibling : {false, true}) {
    const uint64_t others = sibling ? Sibling::most(kMaxCyclesPerInstruction) : 0;
    make("sandy-bridge", sibling);
    count(2, 0x82D0, kLeft, evtsel::kAnyThread);
    EXPECT_EQ(quiet(), kLeft / (2 + others));
    for (unsigned i = 0; i < 3; ++i) {
      make("sandy-bridge", sibling);
      count_fixed(i, kLeft, fixed_ctrl::kAnyThread);
      EXPECT_EQ(quiet(), kLeft / ((i == 0 ? 1 : kMaxCyclesPerInstruction) + others)) << i;
    }
    make("sandy-bridge", sibling);
    count(2, 0x82D0);
    EXPECT_EQ(quiet(), kLeft / 2) << "without AnyThread";
    count_fixed(0);
    EXPECT_EQ(quiet(), kLeft / 2) << "without AnyThread";
  }
}

// So does a sibling whose events leak in, by the code of the select. (BJ122)
TEST_F(QuietTest, ALeakAllowsForTheSibling) {
  void (*const leaks[])(Behaviour&) = {[](Behaviour& b) { b.counting.sibling_leaks = 1 << 0; },
                                       [](Behaviour& b) { b.counting.sibling_leaks = 1 << 1; },
                                       [](Behaviour& b) { b.counting.sibling_leaks = 1 << 2; },
                                       [](Behaviour& b) { b.counting.sibling_leaks = 1 << 3; }};
  const uint64_t events[] = {0x81D0, 0x01D1, 0x08D2, 0x01D3};
  for (unsigned leak = 0; leak < 4; ++leak) {
    for (unsigned event = 0; event < 4; ++event) {
      make("haswell", true, leaks[leak]);
      count(0, events[event]);
      const uint64_t others = leak == event ? Sibling::most(kMaxCyclesPerInstruction) : 0;
      EXPECT_EQ(quiet(), kLeft / (2 + others)) << std::hex << events[event];
    }
  }
}

// However little faster the clock of a broken processor is. (W145)
TEST_F(QuietTest, FastReferenceCyclesDoNotOverflowEither) {
  void (*const rates[])(Behaviour&) = {
      [](Behaviour& b) { b.counting.reference_clock_percent = 101; },
      [](Behaviour& b) { b.counting.reference_clock_percent = 133; }};
  for (const auto rate : rates) {
    make("sandy-bridge", false, rate);
    count_fixed(2);
    ASSERT_GT(quiet(), 0u);
    SignalCounts most{};
    most[index(Signal::kReferenceCycles)] = quiet() * kMaxCyclesPerInstruction;
    pmu_->advance(most, quiet());
    EXPECT_GT(pmu_->rdmsr(IA32_FIXED_CTR0 + 2).value(), low_bits(48) - kLeft);
  }
}

// The sibling's part of so many cycles: the most that any of them can bring, whenever they begin.
TEST_F(QuietTest, NoStretchOfTheSiblingBringsMoreThanItsMost) {
  for (uint64_t cycles : {1u, 2u, 7u, 1024u}) {
    uint64_t seen = 0;
    for (uint64_t from = 0; from < 64; ++from) {
      for (Signal signal :
           {Signal::kCycles, Signal::kInstructions, Signal::kUops, Signal::kLoads}) {
        seen = std::max(seen, Sibling::events(signal, from, from + cycles));
      }
    }
    EXPECT_LE(seen, Sibling::most(cycles));
    EXPECT_GE(seen, cycles) << "it counts every cycle";
  }
}

TEST_F(QuietTest, WhatNeedsEachInstructionIsNeverQuiet) {
  count(0, 0x82D0, kLeft, uint64_t{1} << evtsel::kCmaskShift);
  EXPECT_EQ(quiet(), 0u) << "cycles are compared";

  make("sandy-bridge", false);
  set(IA32_DEBUGCTL, bit(6) | bit(7));
  EXPECT_EQ(quiet(), 0u) << "branches are traced";

  make("sandy-bridge", false);
  sample_stores(2);
  EXPECT_EQ(quiet(), 0u) << "the next store is the event";
  retire(Signal::kStores);
  EXPECT_EQ(quiet(), 0u);
  retire(Signal::kStores);
  EXPECT_EQ(quiet(), 0u) << "armed";
  retire(Signal::kStores, /*fused=*/true);
  EXPECT_EQ(quiet(), 0u) << "the record waits for the rest of the pair";
  retire(Signal::kBranches);
  EXPECT_EQ(memory_.field(0x28), FlatMemory::kBuffer + 0xB0);

  make("sandy-bridge", false, [](Behaviour& b) { b.counting.lost_at_privilege = 3; });
  count(0, 0x00C0, kLeft, evtsel::kUsr);
  pmu_->set_user(true);
  for (int hidden = 0; hidden < 3; ++hidden) {
    EXPECT_EQ(quiet(), 0u) << "a change of privilege hides instructions";
    retire(Signal::kInstructions);
  }
  EXPECT_EQ(quiet(), kLeft);

  make("sandy-bridge", false);
  sample(0x01C0, 1, 1);
  retire(Signal::kInstructions, /*fused=*/true);
  EXPECT_EQ(memory_.field(0x28), FlatMemory::kBuffer);
  EXPECT_EQ(quiet(), 0u) << "the record of PDIR waits for the rest of the pair";
  retire(Signal::kBranches);
  EXPECT_EQ(memory_.field(0x28), FlatMemory::kBuffer + 0xB0);

  make("ice-lake", false);
  memory_.set_field(0x20, FlatMemory::kBuffer);
  memory_.set_field(0x28, FlatMemory::kBuffer);
  memory_.set_field(0x30, FlatMemory::kBuffer + 0x400);
  memory_.set_field(0x38, FlatMemory::kBuffer + 0x400);
  set(IA32_DS_AREA, FlatMemory::kBase);
  set(IA32_PEBS_ENABLE, bit(33));
  count_fixed(1, 500);
  EXPECT_EQ(quiet(), 0u) << "a thousand cycles are enough";
  retire(Signal::kCycles);
  EXPECT_EQ(quiet(), 0u) << "499 cycles are left";
  set(IA32_FIXED_CTR0 + 1, low_bits(48));
  retire(Signal::kCycles);
  set(IA32_FIXED_CTR0 + 1, 0);
  EXPECT_EQ(quiet(), 0u) << "armed, and far from the next overflow";
}

// A counter that is armed and does not count waits for nothing.
TEST_F(QuietTest, AnArmedCounterThatStandsIsQuiet) {
  for (unsigned n = 0; n < 3; ++n) {
    make("sandy-bridge", false);
    sample_stores(1, n);
    retire(Signal::kStores);
    set(IA32_PMC0 + n, 0);
    count(3, 0x00C0);
    EXPECT_EQ(quiet(), 0u) << "PMC" << n;
    set(IA32_PERF_GLOBAL_CTRL, bit(3));
    EXPECT_EQ(quiet(), kLeft) << "PMC" << n;
  }
}

// Of a broken processor an event in SMM pends a record, even where nothing counts behind RSM.
TEST_F(QuietTest, ARecordThatPendsKeepsThePmuActive) {
  for (const bool event : {false, true}) {
    make("sandy-bridge", false, [](Behaviour& b) {
      b.modes.frozen_event_pends = true;
      b.modes.rsm_restores_counting = false;
    });
    set(IA32_DEBUGCTL, debugctl::kFreezeWhileSmm);
    sample_stores(1);
    retire(Signal::kStores);
    pmu_->enter_smm();
    retire(event ? Signal::kStores : Signal::kLoads);
    EXPECT_FALSE(pmu_->active());
    pmu_->leave_smm();
    EXPECT_EQ(pmu_->active(), event);
    EXPECT_EQ(quiet(), event ? 0u : UINT64_MAX);
    retire(Signal::kInstructions);
    EXPECT_EQ(memory_.field(0x28), FlatMemory::kBuffer + (event ? 0xB0 : 0));
    EXPECT_FALSE(pmu_->active());
  }
}

TEST_F(QuietTest, AnInterruptIsDueWhenItsCountdownEnds) {
  make("sandy-bridge", false, [](Behaviour& b) {
    b.rough.pmi_low = b.rough.pmi_high = 25;
    b.rough.interrupt_instructions = 1;
  });
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  count(0, 0x00C0, 0, evtsel::kInt);
  retire(Signal::kStores);
  ASSERT_TRUE(pmu_->interrupt_pending());
  set(IA32_PERFEVTSEL0, 0);
  EXPECT_EQ(quiet(), 25u);
  pmu_->advance({}, 10);
  EXPECT_FALSE(pmu_->take_interrupt());
  EXPECT_EQ(quiet(), 15u);
  pmu_->advance({}, 15);
  EXPECT_EQ(quiet(), 0u);
  ASSERT_TRUE(pmu_->take_interrupt());
  EXPECT_EQ(quiet(), 0u) << "what it counts as comes with the next instruction";
  retire(Signal::kStores);
  EXPECT_EQ(quiet(), UINT64_MAX);
}

// --- NetBurst

class NetBurstQuietTest : public QuietTest {
 protected:
  void SetUp() override { make("netburst", false); }

  static const nb::Metric& metric(std::string_view name) {
    return *std::ranges::find(nb::kMetrics, name, &nb::Metric::name);
  }
  void select(unsigned n, std::string_view name, uint64_t left = kLeft, uint64_t cccr_bits = 0) {
    const nb::Metric& m = metric(name);
    set(nb::MSR_BPU_COUNTER0 + n, low_bits(nb::kCounterWidth) - left);
    if (m.upstream_select != 0xFF) {
      set(nb::escr_of(n, m.upstream_select), escr(m.upstream_event, m.upstream_mask));
    }
    if (m.tagging == nb::Tagging::kReplay) {
      set(IA32_PEBS_ENABLE, m.enable | nb::pebs_enable::kUopTag | nb::pebs_enable::kEnable);
      set(nb::MSR_PEBS_MATRIX_VERT, m.matrix);
    }
    set(nb::escr_of(n, m.select), escr(m.event, m.mask));
    set(nb::MSR_BPU_CCCR0 + n, nb::cccr::kEnable | nb::cccr::kAnyThread |
                                   uint64_t{m.select} << nb::cccr::kEscrShift | cccr_bits);
  }
  static uint64_t escr(uint64_t event, uint64_t mask) {
    return event << nb::escr::kSelectShift | mask << nb::escr::kMaskShift | nb::escr::kOs;
  }
};

TEST_F(NetBurstQuietTest, ACounterIsQuietForAsLongAsItCannotOverflow) {
  EXPECT_EQ(quiet(), UINT64_MAX);
  const struct {
    const char* name;
    uint64_t most;
  } metrics[] = {{"instr_retired", 1},         {"branch_retired", 1},
                 {"memory_stores", 2},         {"2nd_level_load_miss_retired", 4},
                 {"DTLB_all_miss_retired", 4}, {"1st_level_load_miss_retired", 8},
                 {"uops_retired", 64}};
  for (const unsigned n : {12u, 16u, 17u}) {
    for (const auto& [name, most] : metrics) {
      make("netburst", false);
      select(n, name);
      EXPECT_EQ(quiet(), kLeft / most) << name << " on counter " << n;
    }
  }
  make("netburst", false);
  select(0, "global_power_events");
  EXPECT_EQ(quiet(), kLeft / kMaxCyclesPerInstruction);
  make("netburst", false);
  select(12, "uops_retired");
  EXPECT_EQ(quiet(5), kLeft / 5);
  select(14, "instr_retired", 100);
  EXPECT_EQ(quiet(5), 100u) << "the nearest overflow decides";
  select(16, "instr_retired", 50);
  EXPECT_EQ(quiet(5), 50u) << "the nearest overflow decides";
}

TEST_F(NetBurstQuietTest, WhatNeedsEachInstructionIsNeverQuiet) {
  set(nb::MSR_DEBUGCTLA, bit(2) | bit(3));
  EXPECT_EQ(quiet(), 0u) << "branches are traced";

  make("netburst", false, [](Behaviour& b) { b.skid_instructions = 3; });
  memory_.set_field(0x20, FlatMemory::kBuffer);
  memory_.set_field(0x28, FlatMemory::kBuffer);
  memory_.set_field(0x30, FlatMemory::kBuffer + 0x400);
  memory_.set_field(0x38, FlatMemory::kBuffer + 0x400);
  set(IA32_DS_AREA, FlatMemory::kBase);
  set(IA32_PEBS_ENABLE, nb::pebs_enable::kEnable);
  select(16, "memory_stores", 0);
  EXPECT_EQ(quiet(), 0u) << "the next store overflows";
  retire(Signal::kStores);
  set(nb::MSR_BPU_COUNTER0 + 16, 0);
  EXPECT_EQ(quiet(), 0u) << "armed";
  retire(Signal::kStores);
  set(nb::MSR_BPU_COUNTER0 + 16, 0);
  for (int more = 0; more < 2; ++more) {
    EXPECT_EQ(memory_.field(0x28), FlatMemory::kBuffer);
    EXPECT_EQ(quiet(), 0u) << "the record is late";
    retire(Signal::kInstructions);
  }
  EXPECT_GT(memory_.field(0x28), FlatMemory::kBuffer);
}

TEST_F(NetBurstQuietTest, AnInterruptIsDueWhenItsCountdownEnds) {
  make("netburst", false, [](Behaviour& b) { b.rough.pmi_low = b.rough.pmi_high = 25; });
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  select(12, "instr_retired", 0, nb::cccr::kOvfPmi);
  retire(Signal::kInstructions);
  ASSERT_TRUE(pmu_->interrupt_pending());
  set(nb::MSR_BPU_CCCR0 + 12, 0);
  EXPECT_EQ(quiet(), 25u);
  pmu_->advance({}, 24);
  EXPECT_FALSE(pmu_->take_interrupt());
  EXPECT_EQ(quiet(), 1u);
  pmu_->advance({}, 1);
  EXPECT_EQ(quiet(), 0u);
  EXPECT_TRUE(pmu_->take_interrupt());
  EXPECT_FALSE(pmu_->take_interrupt()) << "once";
  EXPECT_EQ(quiet(), UINT64_MAX);
}

}  // namespace
}  // namespace skidproof::model
