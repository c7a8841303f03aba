// What a rough machine's PMU does beyond what is promised: each field by itself, on the PMU alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>
#include <vector>

#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/pmu.h"
#include "pebs/model/testing/flat_memory.h"
#include "pebs/record.h"

namespace skidproof::model {
namespace {

using namespace arch;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Le;

constexpr uint64_t kStoreEvent = 0x82D0;  // MEM_UOPS_RETIRED.ALL_STORES, precise
constexpr uint64_t kLoadEvent = 0x81D0;   // MEM_UOPS_RETIRED.ALL_LOADS, precise
constexpr uint64_t kUopEvent = 0x01C2;    // UOPS_RETIRED.ALL, precise
constexpr uint64_t kPdirEvent = 0x01C0;   // INST_RETIRED.PREC_DIST, PMC1
constexpr uint64_t kCycleEvent = 0x003C;  // CPU_CLK_UNHALTED.THREAD_P
constexpr uint64_t kInstructions = 0x00C0;
constexpr uint64_t kRecordBytes = 0xB0;

class PmuRoughTest : public ::testing::Test {
 protected:
  using Change = void (*)(Rough&);

  void make(Change change, uint64_t seed = 1, std::string_view name = "sandy-bridge") {
    const Microarch& row = **find_microarch(name);
    Rough rough;
    change(rough);
    memory_ = {};
    pmu_ = std::make_unique<Pmu>(row, Topology{.sibling_thread = true}, memory_,
                                 behaviour_of(row, rough), seed);
    memory_.set_field(0x20, FlatMemory::kBuffer);
    memory_.set_field(0x28, FlatMemory::kBuffer);
    memory_.set_field(0x30, FlatMemory::kBuffer + 100 * kRecordBytes);
    memory_.set_field(0x38, FlatMemory::kBuffer + 101 * kRecordBytes);
    set(IA32_DS_AREA, FlatMemory::kBase);
    clock_ = 0;
  }
  void set(uint32_t msr, uint64_t value) {
    const auto done = pmu_->wrmsr(msr, value);
    ASSERT_TRUE(done) << done.error().text();
  }
  uint64_t get(uint32_t msr) { return pmu_->rdmsr(msr).value(); }

  void select(unsigned n, uint64_t event, uint64_t more = 0) {
    set(IA32_PERFEVTSEL0 + n, event | evtsel::kOs | evtsel::kEnable | more);
  }
  void sample(unsigned n, uint64_t event, uint64_t period) {
    memory_.set_field(static_cast<uint32_t>(0x40 + 8 * n), (uint64_t{0} - period) & low_bits(48));
    set(IA32_PMC0 + n, uint64_t{0} - period);
    select(n, event);
    set(IA32_PEBS_ENABLE, get(IA32_PEBS_ENABLE) | bit(n));
  }
  void enable(uint64_t counters) { set(IA32_PERF_GLOBAL_CTRL, counters); }

  // One instruction of this event, `cycles` behind the one before; the counts have no cycles.
  void retire(Signal signal = Signal::kInstructions, uint64_t cycles = 100) {
    Retired r;
    r.ip = 0x1000;
    r.length = 4;
    r.counts[index(Signal::kInstructions)] = 1;
    if (signal != Signal::kInstructions) r.counts[index(signal)] = 1;
    if (signal == Signal::kStores) r.store = {.valid = true, .address = 0x5000};
    r.cycle = clock_ += cycles;
    r.after = &registers_;
    pmu_->retire(r);
  }
  uint64_t records() { return (memory_.field(0x28) - FlatMemory::kBuffer) / kRecordBytes; }
  Record record(size_t i) {
    return {memory_.at(FlatMemory::kBuffer + i * kRecordBytes),
            (*find_microarch("sandy-bridge"))->record};
  }
  // What this counter has after each of many starts of it, with nothing executed.
  std::set<uint64_t> after_starts(uint32_t counter, uint64_t global_bit) {
    std::set<uint64_t> seen;
    for (int i = 0; i < 300; ++i) {
      enable(0);
      set(counter, 0);
      enable(global_bit);
      seen.insert(get(counter));
    }
    enable(0);
    return seen;
  }

  FlatMemory memory_;
  std::unique_ptr<Pmu> pmu_;
  Registers registers_;
  uint64_t clock_ = 0;
};

TEST_F(PmuRoughTest, ARecordTakesCyclesThatAllCountersOfCyclesSee) {
  make([](Rough& r) { r.assist_cycles = 900, r.reference_percent = 50; });
  sample(0, kStoreEvent, 3);
  select(1, kCycleEvent);
  set(IA32_FIXED_CTR_CTRL, 0x111);
  enable(bit(0) | bit(1) | bit(32) | bit(33) | bit(34));
  for (int i = 0; i < 3; ++i) retire(Signal::kStores);
  EXPECT_EQ(pmu_->take_stall(), 0u);
  retire(Signal::kStores);
  ASSERT_EQ(records(), 1u);
  EXPECT_EQ(pmu_->take_stall(), 900u);
  EXPECT_EQ(pmu_->take_stall(), 0u);
  EXPECT_EQ(get(IA32_PMC0 + 1), 900u);
  EXPECT_EQ(get(IA32_FIXED_CTR0), 4u) << "no instruction";
  EXPECT_EQ(get(IA32_FIXED_CTR0 + 1), 900u);
  EXPECT_EQ(get(IA32_FIXED_CTR0 + 2), 450u);
}

TEST_F(PmuRoughTest, ARecordsUopsAndAccessesAreSeenByOthersAndPerhapsByItsOwnCounter) {
  for (const uint32_t own : {0u, 1u}) {
    for (unsigned n = 0; n < 4; ++n) {
      make(own == 0 ? [](Rough& r) { r.assist_uops = 17, r.assist_accesses = 5; } : [](Rough& r) {
        r.assist_uops = 17, r.assist_accesses = 5, r.assist_seen_by_own = 1;
      });
      const unsigned uops = (n + 1) % 4, stores = (n + 2) % 4, loads = (n + 3) % 4;
      sample(n, kStoreEvent, 50);
      select(uops, kUopEvent);
      select(stores, kStoreEvent);
      select(loads, kLoadEvent);
      enable(0xF);
      for (int i = 0; i < 51; ++i) retire(Signal::kStores);
      ASSERT_EQ(records(), 1u);
      EXPECT_EQ(get(IA32_PMC0 + uops), 17u);
      EXPECT_EQ(get(IA32_PMC0 + stores), 51u + 5u);
      EXPECT_EQ(get(IA32_PMC0 + loads), 5u);
      EXPECT_EQ(get(IA32_PMC0 + n), low_bits(48) + 1 - 50 + 5 * own)
          << "reloaded, and then its own";
    }
  }
}

// Each by itself, if only one.
TEST_F(PmuRoughTest, ARecordMayCostCyclesUopsOrAccesses) {
  const Change costs[] = {[](Rough& r) { r.assist_cycles = 1; },
                          [](Rough& r) { r.assist_uops = 1; },
                          [](Rough& r) { r.assist_accesses = 1; }};
  for (unsigned cost = 0; cost < 3; ++cost) {
    make(costs[cost]);
    sample(0, kStoreEvent, 3);
    select(1, kCycleEvent);
    select(2, kUopEvent);
    select(3, kLoadEvent);
    enable(0xF);
    for (int i = 0; i < 4; ++i) retire(Signal::kStores);
    ASSERT_EQ(records(), 1u);
    for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(get(IA32_PMC0 + 1 + i), i == cost ? 1u : 0u) << cost;
  }
}

// CMASK counts cycles. In those that a record takes nothing retires until its own uops do, in the last.
TEST_F(PmuRoughTest, AFilteredCounterSeesTheCyclesOfARecord) {
  make([](Rough& r) { r.assist_cycles = 900, r.assist_uops = 17; });
  sample(0, kStoreEvent, 3);
  select(1, kUopEvent, uint64_t{1} << evtsel::kCmaskShift);
  select(2, kUopEvent, uint64_t{1} << evtsel::kCmaskShift | evtsel::kInvert);
  enable(0x7);
  for (int i = 0; i < 4; ++i) retire(Signal::kStores);
  ASSERT_EQ(records(), 1u);
  EXPECT_EQ(get(IA32_PMC0 + 1), 0u);
  EXPECT_EQ(get(IA32_PMC0 + 2), 300u + 900u);
  retire(Signal::kInstructions, 900 + 100);
  EXPECT_EQ(get(IA32_PMC0 + 1), 1u);
  EXPECT_EQ(get(IA32_PMC0 + 2), 300u + 900u + 99u);
}

TEST_F(PmuRoughTest, ARecordsCyclesCanOverflowACounter) {
  make([](Rough& r) { r.assist_cycles = 900; });
  sample(0, kStoreEvent, 3);
  select(1, kCycleEvent);
  set(IA32_PMC0 + 1, uint64_t{0} - 900);
  set(IA32_FIXED_CTR_CTRL, 0x10);
  set(IA32_FIXED_CTR0 + 1, (uint64_t{0} - 901) & low_bits(48));
  enable(bit(0) | bit(1) | bit(33));
  for (int i = 0; i < 4; ++i) retire(Signal::kStores);
  ASSERT_EQ(records(), 1u);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), bit(1)) << "fixed counter 1 lacks one cycle";
  set(IA32_FIXED_CTR0 + 1, (uint64_t{0} - 900) & low_bits(48));
  for (int i = 0; i < 4; ++i) retire(Signal::kStores);
  ASSERT_EQ(records(), 2u);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), bit(1) | bit(33));
}

// A counter that overflows by the uops of another's record is armed behind that record.
TEST_F(PmuRoughTest, AnOverflowByARecordArmsFromItsEndOn) {
  make([](Rough& r) { r.assist_cycles = 900, r.assist_uops = 17, r.arm_low = r.arm_high = 8; });
  sample(0, kStoreEvent, 3);
  sample(1, kUopEvent, 17);
  enable(bit(0) | bit(1));
  for (int i = 0; i < 4; ++i) retire(Signal::kStores);
  ASSERT_EQ(records(), 1u);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), bit(1));
  retire(Signal::kUops, 900 + 7);
  EXPECT_EQ(records(), 1u);
  retire(Signal::kUops, 1);
  EXPECT_EQ(records(), 2u);
}

// The same machine with the same seed, with and without records that leave nothing open.
TEST_F(PmuRoughTest, WhatIsNotLeftOpenDrawsNothing) {
  std::vector<uint64_t> waits[2];
  for (const bool samples : {false, true}) {
    make([](Rough& r) { r.pmi_low = 10, r.pmi_high = 200; });
    sample(1, kPdirEvent, 5);
    if (!samples) set(IA32_PEBS_ENABLE, 0);
    select(0, kInstructions, evtsel::kInt);
    enable(bit(0) | bit(1));
    for (int i = 0; i < 10; ++i) {
      set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
      set(IA32_PMC0, ~uint64_t{0});
      retire();
      uint64_t instructions = 0;
      for (; !pmu_->take_interrupt() && instructions < 1000; ++instructions) retire();
      waits[samples ? 1 : 0].push_back(instructions);
    }
    EXPECT_EQ(records() > 0, samples);
  }
  EXPECT_EQ(waits[0], waits[1]);
}

TEST_F(PmuRoughTest, WithoutACostNothingOfARecordIsCounted) {
  make([](Rough&) {});
  sample(0, kStoreEvent, 3);
  select(1, kUopEvent);
  select(2, kCycleEvent);
  enable(0x7);
  for (int i = 0; i < 4; ++i) retire(Signal::kStores);
  ASSERT_EQ(records(), 1u);
  EXPECT_EQ(pmu_->take_stall(), 0u);
  EXPECT_EQ(get(IA32_PMC0 + 1), 0u);
  EXPECT_EQ(get(IA32_PMC0 + 2), 0u);
}

TEST_F(PmuRoughTest, AStartShowsUpToSoMuchOfTheCodeBefore) {
  make([](Rough& r) { r.start_instructions = 3, r.start_cycles = 2; });
  select(0, kInstructions);
  select(1, kCycleEvent);
  select(2, kStoreEvent);
  set(IA32_FIXED_CTR_CTRL, 0x33);
  EXPECT_THAT(after_starts(IA32_PMC0, bit(0)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(after_starts(IA32_PMC0 + 1, bit(1)), ElementsAre(0, 1, 2));
  EXPECT_THAT(after_starts(IA32_PMC0 + 2, bit(2)), ElementsAre(0)) << "of stores nothing";
  EXPECT_THAT(after_starts(IA32_FIXED_CTR0, bit(32)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(after_starts(IA32_FIXED_CTR0 + 1, bit(33)), ElementsAre(0, 1, 2));
  make([](Rough& r) { r.start_instructions = 1; });
  select(0, kInstructions);
  EXPECT_THAT(after_starts(IA32_PMC0, bit(0)), ElementsAre(0, 1));
}

TEST_F(PmuRoughTest, TheWriteItselfIsOneInstructionAndOneUop) {
  make([](Rough& r) { r.start_wrmsr = 1; });
  select(0, kInstructions);
  select(1, kUopEvent);
  select(2, kCycleEvent);
  select(3, kInstructions, uint64_t{1} << evtsel::kCmaskShift);
  set(IA32_FIXED_CTR_CTRL, 0x33);
  for (const uint32_t counter : {IA32_PMC0, IA32_PMC0 + 1, IA32_FIXED_CTR0}) {
    const uint64_t its_bit = counter == IA32_FIXED_CTR0 ? bit(32) : bit(counter - IA32_PMC0);
    EXPECT_THAT(after_starts(counter, its_bit), ElementsAre(1)) << counter;
  }
  EXPECT_THAT(after_starts(IA32_PMC0 + 2, bit(2)), ElementsAre(0)) << "no cycle";
  EXPECT_THAT(after_starts(IA32_PMC0 + 3, bit(3)), ElementsAre(0)) << "CMASK counts cycles";
  // Each counter by itself, and only where it starts.
  enable(bit(0));
  set(IA32_PMC0, 0);
  set(IA32_PMC0 + 1, 0);
  enable(bit(0) | bit(1));
  EXPECT_EQ(get(IA32_PMC0), 0u);
  EXPECT_EQ(get(IA32_PMC0 + 1), 1u);
  enable(bit(32));
  set(IA32_FIXED_CTR0, 0);
  enable(bit(32) | bit(0));
  EXPECT_EQ(get(IA32_FIXED_CTR0), 0u);
  enable(bit(0));
  set(IA32_FIXED_CTR0, 0);
  enable(bit(0) | bit(1));
  EXPECT_EQ(get(IA32_FIXED_CTR0), 0u);
}

TEST_F(PmuRoughTest, AStartCanOverflow) {
  make([](Rough& r) { r.start_wrmsr = 1; });
  select(0, kInstructions);
  set(IA32_PMC0, ~uint64_t{0});
  set(IA32_FIXED_CTR_CTRL, 0x3);
  set(IA32_FIXED_CTR0, low_bits(48));
  enable(bit(0) | bit(32));
  EXPECT_EQ(get(IA32_PMC0), 0u);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), bit(0) | bit(32));
}

// An overflow by something that is no event of the program arms PEBS: with the usual delay, and PDIR at once.
TEST_F(PmuRoughTest, AnOverflowAtTheStartArms) {
  make([](Rough& r) { r.start_wrmsr = 1, r.arm_low = r.arm_high = 8; });
  sample(0, kUopEvent, 1);
  enable(bit(0));
  retire(Signal::kUops, 7);
  EXPECT_EQ(records(), 0u);
  retire(Signal::kUops, 1);
  EXPECT_EQ(records(), 1u);
  for (const bool armed_before : {false, true}) {
    make([](Rough& r) { r.start_wrmsr = 1, r.arm_low = r.arm_high = 8; });
    if (armed_before) {
      sample(1, kStoreEvent, 1);
      enable(bit(1));
      retire(Signal::kStores);
      set(IA32_PEBS_ENABLE, 0);
      enable(0);
    }
    sample(1, kPdirEvent, 1);
    enable(bit(1));
    EXPECT_EQ(pmu_->quiet_instructions(), 0u);
    retire(Signal::kInstructions, 0);
    EXPECT_EQ(records(), 1u) << armed_before;
  }
}

TEST_F(PmuRoughTest, AStopShowsUpToSoMuchOfTheCodeBehindAndNoOverflow) {
  make([](Rough& r) { r.stop_instructions = 2, r.stop_cycles = 3; });
  select(0, kInstructions);
  select(1, kCycleEvent);
  set(IA32_FIXED_CTR_CTRL, 0x33);
  std::set<uint64_t> seen[4];
  const uint32_t counters[] = {IA32_PMC0, IA32_PMC0 + 1, IA32_FIXED_CTR0, IA32_FIXED_CTR0 + 1};
  for (int i = 0; i < 300; ++i) {
    for (const uint32_t counter : counters) set(counter, 0);
    enable(bit(0) | bit(1) | bit(32) | bit(33));
    enable(0);
    for (size_t c = 0; c < 4; ++c) seen[c].insert(get(counters[c]));
  }
  EXPECT_THAT(seen[0], ElementsAre(0, 1, 2));
  EXPECT_THAT(seen[1], ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(seen[2], ElementsAre(0, 1, 2));
  EXPECT_THAT(seen[3], ElementsAre(0, 1, 2, 3));
  for (uint64_t left = 0; left < 3; ++left) {
    std::set<uint64_t> most, most_fixed;
    for (int i = 0; i < 50; ++i) {
      set(IA32_PMC0, ~uint64_t{0} - left);
      set(IA32_FIXED_CTR0, low_bits(48) - left);
      enable(bit(0) | bit(32));
      enable(0);
      most.insert(get(IA32_PMC0));
      most_fixed.insert(get(IA32_FIXED_CTR0));
    }
    EXPECT_EQ(*most.rbegin(), low_bits(48)) << left;
    EXPECT_EQ(*most_fixed.rbegin(), low_bits(48)) << left;
    EXPECT_EQ(*most.begin(), low_bits(48) - left);
    EXPECT_EQ(*most_fixed.begin(), low_bits(48) - left);
  }
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 0u);
}

TEST_F(PmuRoughTest, AStopShowsNothingToACounterThatDoesNotStop) {
  make([](Rough& r) { r.stop_instructions = 2, r.stop_cycles = 3; });
  for (unsigned n = 0; n < 4; ++n) select(n, n % 2 == 0 ? kInstructions : kCycleEvent);
  set(IA32_FIXED_CTR_CTRL, 0x333);
  const uint64_t running = bit(0) | bit(1) | bit(32), stopping = bit(2) | bit(33);
  for (int i = 0; i < 50; ++i) {
    enable(running | stopping);
    enable(running);
  }
  for (unsigned n = 0; n < 4; ++n) EXPECT_EQ(get(IA32_PMC0 + n) > 0, n == 2) << "PMC" << n;
  for (unsigned i = 0; i < 3; ++i)
    EXPECT_EQ(get(IA32_FIXED_CTR0 + i) > 0, i == 1) << "fixed counter " << i;
}

TEST_F(PmuRoughTest, ArmingTakesFromTheLeastToTheMost) {
  make([](Rough& r) { r.arm_low = 20, r.arm_high = 40; });
  sample(0, kStoreEvent, 1000);
  enable(bit(0));
  std::set<uint64_t> waits;
  for (int i = 0; i < 60; ++i) {
    set(IA32_PMC0, ~uint64_t{0});
    const uint64_t before = records();
    retire(Signal::kStores, 1000);
    uint64_t cycles = 0;
    for (; records() == before && cycles < 100; ++cycles) retire(Signal::kStores, 1);
    waits.insert(cycles);
  }
  EXPECT_EQ(*waits.begin(), 20u);
  EXPECT_EQ(*waits.rbegin(), 40u);
}

TEST_F(PmuRoughTest, APmiComesFromTheLeastToTheMost) {
  make([](Rough& r) { r.pmi_low = 10, r.pmi_high = 14; });
  select(0, kInstructions, evtsel::kInt);
  enable(bit(0));
  std::set<uint64_t> waits;
  for (int i = 0; i < 60; ++i) {
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
    set(IA32_PMC0, ~uint64_t{0});
    retire();
    uint64_t instructions = 0;
    for (; !pmu_->take_interrupt() && instructions < 100; ++instructions) retire();
    waits.insert(instructions);
  }
  EXPECT_EQ(*waits.begin(), 10u);
  EXPECT_EQ(*waits.rbegin(), 14u);
}

TEST_F(PmuRoughTest, AnInterruptMayCountAsAnInstruction) {
  for (const bool counts : {false, true}) {
    make(counts ? [](Rough& r) { r.interrupt_instructions = 1, r.pmi_low = r.pmi_high = 0; }
                : [](Rough& r) { r.pmi_low = r.pmi_high = 0; });
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
    select(0, kInstructions, evtsel::kInt);
    set(IA32_FIXED_CTR_CTRL, 0x3);
    set(IA32_PMC0, ~uint64_t{0});
    enable(bit(0) | bit(32));
    retire();
    ASSERT_TRUE(pmu_->take_interrupt());
    for (int i = 0; i < 9; ++i) retire();
    EXPECT_EQ(get(IA32_FIXED_CTR0), counts ? 11u : 10u);
  }
}

// Golden Cove's load latency counts on PMC1; the event beside it on PMC0 to PMC3.
TEST_F(PmuRoughTest, LoadLatencyMayNeedTheEventBesideIt) {
  constexpr uint64_t kLatencyEvent = 0x01CD, kAuxiliary = 0x8203;
  const auto tagged = [&](uint64_t running) {
    set(IA32_PMC0 + 1, 0);
    enable(bit(1) | running);
    for (int i = 0; i < 20; ++i) {
      Retired r;
      r.ip = 0x1000;
      r.length = 4;
      r.counts[index(Signal::kInstructions)] = r.counts[index(Signal::kLoads)] = 1;
      r.load = {.valid = true, .latency = 40, .cache_latency = 40, .address = 0x7000};
      r.cycle = clock_ += 100;
      r.after = &registers_;
      pmu_->retire(r);
    }
    enable(0);
    return get(IA32_PMC0 + 1);
  };
  for (const bool needed : {false, true}) {
    make(
        needed ? [](Rough& r) { r.auxiliary_needed = 1, r.tagging = 1; }
               : [](Rough& r) { r.tagging = 1; },
        1, "alder-lake-p");
    set(MSR_PEBS_LD_LAT_THRESHOLD, 3);
    select(1, kLatencyEvent);
    EXPECT_EQ(tagged(0), needed ? 0u : 20u) << "no such event";
    select(0, kAuxiliary);
    EXPECT_EQ(tagged(bit(0)), 20u);
    EXPECT_EQ(tagged(0), needed ? 0u : 20u) << "not enabled globally";
    set(IA32_PERFEVTSEL0, kAuxiliary | evtsel::kOs);
    EXPECT_EQ(tagged(bit(0)), needed ? 0u : 20u) << "not enabled by its own bit";
    select(0, kAuxiliary ^ 0x0100);
    EXPECT_EQ(tagged(bit(0)), needed ? 0u : 20u) << "another event";
    select(0, kInstructions);
    select(4, kAuxiliary);
    EXPECT_EQ(tagged(bit(0) | bit(4)), needed ? 0u : 20u) << "on a counter that does not count it";
    select(3, kAuxiliary);
    EXPECT_EQ(tagged(bit(3)), 20u);
    set(IA32_PERFEVTSEL0 + 3, 0);
    set(IA32_PERFEVTSEL0 + 4, 0);
  }
}

TEST_F(PmuRoughTest, LoadLatencyNeedsNoEventBesideItWhereTheRowHasNone) {
  make([](Rough& r) { r.auxiliary_needed = 1, r.tagging = 1; }, 1, "nehalem");
  set(MSR_PEBS_LD_LAT_THRESHOLD, 3);
  set(IA32_PEBS_ENABLE, bit(32 + 3) | bit(3));
  select(3, 0x100B);
  enable(bit(3));
  Retired r;
  r.counts[index(Signal::kLoads)] = 1;
  r.load = {.valid = true, .latency = 40, .address = 0x7000};
  r.cycle = clock_ += 100;
  r.after = &registers_;
  pmu_->retire(r);
  EXPECT_EQ(get(IA32_PMC0 + 3), 1u);
}

TEST_F(PmuRoughTest, FieldsOfNoFacilityHoldAnything) {
  std::set<uint64_t> addresses, sources, latencies;
  make([](Rough& r) { r.stale_fields = 1; });
  sample(0, kLoadEvent, 1);
  enable(bit(0));
  for (int i = 0; i < 40; ++i) retire(Signal::kLoads);
  ASSERT_GE(records(), 10u);
  for (size_t i = 0; i < records(); ++i) {
    addresses.insert(record(i).data_address());
    sources.insert(record(i).data_source());
    latencies.insert(record(i).latency());
  }
  EXPECT_GE(addresses.size(), 10u);
  EXPECT_GE(sources.size(), 10u);
  EXPECT_GE(latencies.size(), 10u);
}

// 05CDH with PS_EN: 98H and A0H are of the store. Bit 0 of A0H is promised, with 4 and 5; the rest is not.
TEST_F(PmuRoughTest, StaleFieldsAreThoseOfTheLastAccessThatWasDescribed) {
  make([](Rough& r) { r.stale_fields = 2; });
  set(IA32_PEBS_ENABLE, bit(63));
  sample(3, 0x02CD, 1);
  sample(0, kLoadEvent, 2);
  enable(bit(0));
  for (int i = 0; i < 4; ++i) retire(Signal::kLoads);
  ASSERT_GE(records(), 1u);
  EXPECT_EQ(record(0).data_address(), 0u) << "nothing was described yet";
  enable(bit(3));
  for (int i = 0; i < 4; ++i) retire(Signal::kStores);
  const uint64_t described = records() - 1;
  ASSERT_EQ(record(described).data_address(), 0x5000u);
  enable(bit(0));
  for (int i = 0; i < 6; ++i) retire(Signal::kLoads);
  ASSERT_GT(records(), described + 1);
  EXPECT_EQ(record(records() - 1).data_address(), 0x5000u);
}

TEST_F(PmuRoughTest, StaleFieldsAreAllThatASampledLoadLeft) {
  make([](Rough& r) { r.stale_fields = 2, r.tagging = 1; });
  set(MSR_PEBS_LD_LAT_THRESHOLD, 3);
  set(IA32_PEBS_ENABLE, bit(35));
  sample(3, 0x01CD, 1);
  enable(bit(3));
  Retired r;
  r.counts[index(Signal::kLoads)] = 1;
  r.load = {.valid = true, .stlb_miss = true, .source = 5, .latency = 40, .address = 0x7000};
  r.after = &registers_;
  for (int i = 0; i < 2; ++i) {
    r.cycle = clock_ += 100;
    pmu_->retire(r);
  }
  sample(0, kStoreEvent, 1);
  enable(bit(0));
  for (int i = 0; i < 2; ++i) retire(Signal::kStores);
  ASSERT_EQ(records(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(record(i).data_address(), 0x7000u) << i;
    EXPECT_EQ(record(i).data_source(), 0x15u) << i;
    EXPECT_EQ(record(i).latency(), 40u) << i;
  }
}

TEST_F(PmuRoughTest, ReservedBitsOfADescribedAccessHoldAnything) {
  make([](Rough& r) { r.stale_fields = 1; });
  set(IA32_PEBS_ENABLE, bit(63));
  sample(3, 0x02CD, 1);
  enable(bit(3));
  for (int i = 0; i < 40; ++i) retire(Signal::kStores);
  ASSERT_GE(records(), 10u);
  std::set<uint64_t> reserved, defined;
  for (size_t i = 0; i < records(); ++i) {
    EXPECT_EQ(record(i).data_address(), 0x5000u);
    reserved.insert(record(i).data_source() >> 8);
    defined.insert(record(i).data_source() & 0xF);
  }
  EXPECT_GE(reserved.size(), 10u);
  EXPECT_EQ(defined.size(), 1u);
}

// Nehalem's load latency: four bits of the source are promised.
TEST_F(PmuRoughTest, ReservedBitsOfASampledLoadHoldAnything) {
  make([](Rough& r) { r.stale_fields = 1, r.tagging = 1; }, 1, "nehalem");
  set(MSR_PEBS_LD_LAT_THRESHOLD, 3);
  sample(3, 0x100B, 1);
  set(IA32_PEBS_ENABLE, bit(3) | bit(35));
  enable(bit(3));
  Retired r;
  r.ip = 0x1000;
  r.length = 4;
  r.counts[index(Signal::kInstructions)] = r.counts[index(Signal::kLoads)] = 1;
  r.load = {.valid = true, .source = 6, .latency = 40, .address = 0x7000};
  r.after = &registers_;
  for (int i = 0; i < 40; ++i) {
    r.cycle = clock_ += 100;
    pmu_->retire(r);
  }
  ASSERT_GE(records(), 10u);
  std::set<uint64_t> above, next;
  for (size_t i = 0; i < records(); ++i) {
    const uint64_t source = record(i).data_source();
    EXPECT_EQ(source & 0xF, 6u);
    EXPECT_EQ(source & 0xC0, 0u) << "what is neither described nor reserved";
    next.insert(source >> 4 & 3);
    above.insert(source >> 8);
    EXPECT_EQ(record(i).latency(), 40u);
  }
  EXPECT_EQ(next.size(), 4u);
  EXPECT_GE(above.size(), 10u);
}

// D3: a whole number of records below the maximum, or that and one byte; behind any other maximum a record may go on.
TEST_F(PmuRoughTest, OnlyAnUnalignedMaximumIsOverrun) {
  struct Case {
    uint64_t more;
    uint64_t fit;
  };
  for (const Case& one : {Case{0, 2}, {1, 2}, {2, 3}, {kRecordBytes - 1, 3}, {kRecordBytes, 3}}) {
    make([](Rough& r) { r.unaligned_overrun = 1; });
    memory_.set_field(0x30, FlatMemory::kBuffer + 2 * kRecordBytes + one.more);
    sample(0, kStoreEvent, 1);
    enable(bit(0));
    for (int i = 0; i < 20; ++i) retire(Signal::kStores);
    EXPECT_EQ(records(), one.fit) << one.more;
  }
}

TEST_F(PmuRoughTest, NothingIsRecordedAtAnUnalignedMaximum) {
  make([](Rough& r) { r.unaligned_overrun = 1; });
  const uint64_t maximum = FlatMemory::kBuffer + 2 * kRecordBytes + 40;
  memory_.set_field(0x30, maximum);
  memory_.set_field(0x28, maximum);
  sample(0, kStoreEvent, 1);
  enable(bit(0));
  for (int i = 0; i < 5; ++i) retire(Signal::kStores);
  EXPECT_EQ(memory_.field(0x28), maximum);
}

// Sparse tagging leaves the least time between two tagged loads; the threshold is of all of the latency or of the
// caches' share.
TEST_F(PmuRoughTest, TaggedLoadsLieApart) {
  constexpr uint64_t kLatencyEvent = 0x100B;
  const auto load = [&](uint16_t latency, uint16_t in_caches, uint64_t cycles) {
    Retired r;
    r.ip = 0x1000;
    r.length = 4;
    r.counts[index(Signal::kInstructions)] = r.counts[index(Signal::kLoads)] = 1;
    r.load = {.valid = true, .latency = latency, .cache_latency = in_caches, .address = 0x7000};
    r.cycle = clock_ += cycles;
    r.after = &registers_;
    pmu_->retire(r);
    return get(IA32_PMC0 + 3);
  };
  make([](Rough& r) { r.tagging = 1, r.tag_apart = 100; }, 1, "nehalem");
  set(IA32_PEBS_ENABLE, bit(32 + 3) | bit(3));
  set(MSR_PEBS_LD_LAT_THRESHOLD, 30);
  select(3, kLatencyEvent);
  enable(bit(3));
  EXPECT_EQ(load(31, 31, 1000), 1u);
  EXPECT_EQ(load(31, 31, 99), 1u) << "too soon";
  EXPECT_EQ(load(31, 31, 1), 2u);
  EXPECT_EQ(load(30, 31, 1000), 2u) << "no slower than the threshold";
  EXPECT_EQ(load(31, 31, 50), 2u) << "one that was tagged and too fast keeps the next away";
  make([](Rough& r) { r.tagging = 1, r.threshold_of_caches = 1; }, 1, "nehalem");
  set(IA32_PEBS_ENABLE, bit(32 + 3) | bit(3));
  set(MSR_PEBS_LD_LAT_THRESHOLD, 30);
  select(3, kLatencyEvent);
  enable(bit(3));
  EXPECT_EQ(load(90, 30, 100), 0u);
  EXPECT_EQ(load(90, 31, 100), 1u);
}

TEST_F(PmuRoughTest, TaggingIsAShareOfTheLoads) {
  for (const double share : {0.02, 0.25, 0.5}) {
    make([](Rough&) {}, 1, "nehalem");
    Rough rough;
    rough.tagging = share;
    const Microarch& row = **find_microarch("nehalem");
    pmu_ = std::make_unique<Pmu>(row, Topology{}, memory_, behaviour_of(row, rough), 7);
    set(IA32_PEBS_ENABLE, bit(32 + 3) | bit(3));
    set(MSR_PEBS_LD_LAT_THRESHOLD, 3);
    select(3, 0x100B);
    enable(bit(3));
    for (int i = 0; i < 20000; ++i) {
      Retired r;
      r.length = 4;
      r.counts[index(Signal::kLoads)] = 1;
      r.load = {.valid = true, .latency = 40, .address = 0x7000};
      r.cycle = clock_ += 10;
      r.after = &registers_;
      pmu_->retire(r);
    }
    EXPECT_NEAR(static_cast<double>(get(IA32_PMC0 + 3)), 20000 * share,
                5 * std::sqrt(20000 * share));
  }
}

TEST_F(PmuRoughTest, PinControlMayBeDropped) {
  make([](Rough& r) { r.pc_sticks = 0; });
  select(0, kInstructions, evtsel::kPinControl);
  EXPECT_EQ(get(IA32_PERFEVTSEL0) & evtsel::kPinControl, 0u);
  make([](Rough&) {});
  select(0, kInstructions, evtsel::kPinControl);
  EXPECT_NE(get(IA32_PERFEVTSEL0) & evtsel::kPinControl, 0u);
}

TEST_F(PmuRoughTest, AnIdleSiblingAddsNothing) {
  uint64_t both[2] = {};
  for (const bool idle : {false, true}) {
    make(idle ? [](Rough& r) { r.sibling_idle = 1; } : [](Rough&) {});
    select(0, kInstructions, evtsel::kAnyThread);
    enable(bit(0));
    SignalCounts counts{};
    counts[index(Signal::kInstructions)] = 1000;
    counts[index(Signal::kCycles)] = 1000;
    pmu_->advance(counts, 1000);
    both[idle ? 1 : 0] = get(IA32_PMC0);
  }
  EXPECT_GT(both[0], 1000u);
  EXPECT_EQ(both[1], 1000u);
}

// Which instruction a distributed fixed counter records, counted from the one that overflows it.
TEST_F(PmuRoughTest, ADistributedFixedCounterRecordsTheOverflowingEventOrALaterOne) {
  struct Case {
    const char* microarch;
    Change change;
    std::set<uint64_t> behind;
  };
  const Case cases[] = {
      {"ice-lake", [](Rough&) {}, {0}},
      {"ice-lake", [](Rough& r) { r.pdir_next = 1; }, {1}},
      {"ice-lake", [](Rough& r) { r.pdir_next = 0.5; }, {0, 1}},
      {"ice-lake", [](Rough& r) { r.pdist_late = 1; }, {1}},
      {"ice-lake", [](Rough& r) { r.pdist_late = 1, r.pdist_late_most = 3; }, {1, 2, 3}},
      {"ice-lake", [](Rough& r) { r.pdist_late = 0.5; }, {0, 1}},
      {"alder-lake-p", [](Rough&) {}, {1}},
      {"alder-lake-p", [](Rough& r) { r.pdir_next = 1; }, {0}},
      {"alder-lake-p", [](Rough& r) { r.pdist_late = 1; }, {2}},
  };
  for (const Case& one : cases) {
    make(one.change, 1, one.microarch);
    const Microarch& row = **find_microarch(one.microarch);
    memory_.set_field(0x30, FlatMemory::kBuffer + 100 * adaptive::kBasicBytes);
    memory_.set_field(0x38, FlatMemory::kBuffer + 101 * adaptive::kBasicBytes);
    memory_.set_field(row.ds.fixed_counter_reset(0), low_bits(48) - 99);
    set(IA32_FIXED_CTR_CTRL, 0x1);
    set(IA32_PEBS_ENABLE, bit(32));
    enable(bit(32));
    std::set<uint64_t> behind;
    for (int i = 0; i < 60; ++i) {
      set(IA32_FIXED_CTR0, low_bits(48));
      const uint64_t before = memory_.field(0x28);
      uint64_t instructions = 0;
      for (; instructions < 20; ++instructions) {
        retire(Signal::kInstructions, 1);
        if (memory_.field(0x28) != before) break;
      }
      behind.insert(instructions);
    }
    EXPECT_EQ(behind, one.behind) << one.microarch;
  }
}

// Whether a qualifier that published encodings use records nothing, its own event, or as if it were not there.
TEST_F(PmuRoughTest, DisputedQualifiersRecordOneOfThreeWays) {
  constexpr uint64_t kTwo = (uint64_t{2} << evtsel::kCmaskShift) | evtsel::kInvert;
  const auto recorded = [&](Change change) {
    make(change, 1, "skylake");
    memory_.set_field(0x30, FlatMemory::kBuffer + 0x8000);
    memory_.set_field(0x38, FlatMemory::kBuffer + 0x8001);
    memory_.set_field(0x40, low_bits(48));
    set(IA32_PMC0, ~uint64_t{0});
    select(0, 0x82D0, kTwo);
    set(IA32_PEBS_ENABLE, bit(0));
    enable(bit(0));
    for (int i = 0; i < 50; ++i) retire(Signal::kStores);
    return memory_.field(0x28) - FlatMemory::kBuffer;
  };
  EXPECT_EQ(recorded([](Rough& r) { r.disputed_qualifiers = 0; }), 0u);
  EXPECT_GT(recorded([](Rough& r) { r.disputed_qualifiers = 1; }), 0u);
  EXPECT_GT(recorded([](Rough& r) { r.disputed_qualifiers = 2; }), 0u);
}

TEST(BehaviourOf, TakesWhatTheMachineDraws) {
  const Microarch& row = **find_microarch("skylake");
  for (const auto& [field, sets] :
       {std::pair{0u, row.full_buffer_sets_ovf}, {1u, true}, {2u, false}}) {
    Rough rough;
    rough.full_buffer = field;
    EXPECT_EQ(behaviour_of(row, rough).full_sets_ovf_buffer, sets) << field;
    EXPECT_EQ(behaviour_of(row, rough).rough, rough);
  }
  Rough rough;
  EXPECT_FALSE(behaviour_of(row, rough).bts.unaligned_overrun);
  rough.unaligned_overrun = 1;
  EXPECT_TRUE(behaviour_of(row, rough).bts.unaligned_overrun);
}

// CPUID says what a part of the row lacks; the registers follow.
TEST(RowOf, APartMayLackWhatItsRowHas) {
  const Microarch& row = **find_microarch("sapphire-rapids");
  ASSERT_TRUE(row.tsx && row.sgx && row.processor_trace && row.la57);
  const auto with = [&](void (*change)(Rough&)) {
    Rough rough;
    change(rough);
    return row_of(row, rough);
  };
  const Microarch same = with([](Rough&) {});
  EXPECT_TRUE(same.tsx && same.sgx && same.processor_trace && same.la57);
  EXPECT_EQ(same.perfevtsel_defined, row.perfevtsel_defined);
  const Microarch plain = with([](Rough& r) { r.transactions = 0; });
  EXPECT_FALSE(plain.tsx);
  EXPECT_EQ(plain.perfevtsel_defined, row.perfevtsel_defined & ~evtsel::kInTx);
  EXPECT_TRUE(plain.sgx && plain.processor_trace && plain.la57);
  EXPECT_FALSE(with([](Rough& r) { r.sgx = 0; }).sgx);
  EXPECT_FALSE(with([](Rough& r) { r.processor_trace = 0; }).processor_trace);
  EXPECT_FALSE(with([](Rough& r) { r.la57 = 0; }).la57);
  const Microarch& older = **find_microarch("nehalem");
  EXPECT_FALSE(row_of(older, {}).tsx || row_of(older, {}).la57);
}

// PDist with a shorter period than it takes is sampled like any other event: the one behind is recorded.
TEST_F(PmuRoughTest, ACounterOfPdistBelowItsLeastReloadRecordsTheEventBehind) {
  for (const uint64_t period : {255u, 256u}) {
    make([](Rough& r) { r.pdist_least = 256; }, 1, "alder-lake-p");
    memory_.set_field(0x30, FlatMemory::kBuffer + 100 * adaptive::kBasicBytes);
    memory_.set_field(0x38, FlatMemory::kBuffer + 101 * adaptive::kBasicBytes);
    sample(0, kStoreEvent, period);
    enable(bit(0));
    for (uint64_t i = 0; i < period; ++i) retire(Signal::kStores);
    EXPECT_EQ(memory_.field(0x28) != FlatMemory::kBuffer, period == 256) << period;
    retire(Signal::kStores);
    EXPECT_EQ(memory_.field(0x28), FlatMemory::kBuffer + adaptive::kBasicBytes) << period;
  }
}

TEST_F(PmuRoughTest, WithoutAShadowTheVeryNextEventIsRecorded) {
  for (const bool shadow : {true, false}) {
    if (shadow) {
      make([](Rough& r) { r.arm_low = r.arm_high = 12; });
    } else {
      make([](Rough& r) { r.arm_low = r.arm_high = 12, r.shadowless = 1; });
    }
    sample(0, kStoreEvent, 3);
    enable(bit(0));
    for (int i = 0; i < 3; ++i) retire(Signal::kStores, 1);
    retire(Signal::kStores, 0);
    EXPECT_EQ(records(), shadow ? 0u : 1u);
  }
}

}  // namespace
}  // namespace skidproof::model
