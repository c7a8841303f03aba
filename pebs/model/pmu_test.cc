// The PMU alone, fed by hand: no engine, no program. Each test states one rule of the manual.
#include "pebs/model/pmu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/assist.h"
#include "pebs/model/testing/flat_memory.h"
#include "pebs/record.h"

namespace skidproof::model {
namespace {

using namespace arch;

const Microarch& row(std::string_view name) { return **find_microarch(name); }

class PmuTest : public ::testing::Test {
 protected:
  using Change = Behaviour (*)(Behaviour);

  void make(std::string_view name, bool sibling = true, Change change = nullptr) {
    uarch_ = &row(name);
    Behaviour behaviour = behaviour_of(*uarch_);
    if (change != nullptr) behaviour = change(behaviour);
    pmu_ =
        std::make_unique<Pmu>(*uarch_, Topology{.sibling_thread = sibling}, memory_, behaviour, 1);
  }
  void SetUp() override {
    make("sandy-bridge");
    set_up_ds(8, 8);
  }
  void set_up_ds(uint64_t maximum_records, uint64_t threshold_records) {
    memory_.set_field(0x20, FlatMemory::kBuffer);
    memory_.set_field(0x28, FlatMemory::kBuffer);
    memory_.set_field(0x30, FlatMemory::kBuffer + maximum_records * 0xB0);
    memory_.set_field(0x38, FlatMemory::kBuffer + threshold_records * 0xB0);
  }
  void set(uint32_t msr, uint64_t value) {
    auto done = pmu_->wrmsr(msr, value);
    ASSERT_TRUE(done) << done.error().text();
  }
  uint64_t get(uint32_t msr) { return pmu_->rdmsr(msr).value(); }
  bool faults(uint32_t msr, uint64_t value) {
    auto done = pmu_->wrmsr(msr, value);
    return !done && done.error().code == ErrorCode::kGeneralProtection;
  }
  // Samples stores on PMC0 with this period.
  void sample_stores(uint64_t period, unsigned counter = 0, uint64_t select_bits = 0) {
    sample(0x82D0, period, counter, select_bits);
  }
  void sample(uint64_t event, uint64_t period, unsigned counter, uint64_t select_bits = 0) {
    set(IA32_DS_AREA, FlatMemory::kBase);
    memory_.set_field(0x40 + 8 * counter, (uint64_t{0} - period) & low_bits(48));
    set(IA32_PMC0 + counter, uint64_t{0} - period);
    set(IA32_PERFEVTSEL0 + counter, event | evtsel::kOs | evtsel::kEnable | select_bits);
    set(IA32_PEBS_ENABLE, get(IA32_PEBS_ENABLE) | bit(counter));
    set(IA32_PERF_GLOBAL_CTRL, get(IA32_PERF_GLOBAL_CTRL) | bit(counter));
  }
  // Retires one instruction at ip_; each takes step_ cycles, so that arming is over by the next.
  void retire(Signal signal = Signal::kInstructions, bool fused = false, uint64_t next = 0) {
    Retired r;
    r.ip = ip_;
    r.length = 4;
    r.counts[index(Signal::kInstructions)] = 1;
    if (signal != Signal::kInstructions) r.counts[index(signal)] = 1;
    if (signal == Signal::kStores) r.store = {.valid = true, .address = 0x5000 + ip_};
    if (signal == Signal::kLoads) r.load = {.valid = true, .latency = 60, .address = 0x7000 + ip_};
    cycle_ += step_;
    r.cycle = cycle_;
    r.fused_with_next = fused;
    ip_ = next != 0 ? next : ip_ + 4;
    registers_.ip = ip_;
    r.after = &registers_;
    pmu_->retire(r);
  }
  // PMC2 overflows, with INT.
  void overflow_of_instructions() {
    set(IA32_PMC0 + 2, ~uint64_t{0});
    set(IA32_PERFEVTSEL0 + 2, 0xC0 | evtsel::kOs | evtsel::kEnable | evtsel::kInt);
    set(IA32_PERF_GLOBAL_CTRL, get(IA32_PERF_GLOBAL_CTRL) | bit(2));
    retire();
    EXPECT_TRUE(pmu_->interrupt_pending());
  }
  // How many instructions retire until an interrupt is delivered, and unmasks the entry; -1: none comes.
  int until_interrupt() {
    for (int waited = 0; waited < 1000; ++waited) {
      if (pmu_->take_interrupt()) {
        set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
        return waited;
      }
      retire();
    }
    return -1;
  }
  uint64_t records() { return (memory_.field(0x28) - FlatMemory::kBuffer) / 0xB0; }
  Record record(size_t i) { return {memory_.at(FlatMemory::kBuffer + i * 0xB0), uarch_->record}; }

  const Microarch* uarch_ = nullptr;
  FlatMemory memory_;
  std::unique_ptr<Pmu> pmu_;
  Registers registers_;
  uint64_t ip_ = 0x1000;
  uint64_t cycle_ = 0;
  uint64_t step_ = 100;
};

// R34 gives a PEBS counter's own interrupt behind its record; it is no less due where the record finds no room.
TEST_F(PmuTest, InterruptsForACounterWhoseRecordFindsNoRoom) {
  for (const bool interrupts : {false, true}) {
    make("sandy-bridge");
    set_up_ds(0, 8);
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
    sample_stores(2, 0, interrupts ? evtsel::kInt : 0);
    retire(Signal::kStores);
    retire(Signal::kStores);
    EXPECT_FALSE(pmu_->interrupt_pending()) << "armed";
    retire(Signal::kStores);
    EXPECT_EQ(records(), 0u);
    EXPECT_EQ(pmu_->interrupt_pending(), interrupts);
  }
}

TEST_F(PmuTest, IsActiveWhereverSomethingCounts) {
  EXPECT_FALSE(pmu_->active());
  for (unsigned n = 0; n < 4; ++n) {
    set(IA32_PERFEVTSEL0 + n, 0xC0 | evtsel::kOs | evtsel::kEnable);
    set(IA32_PERF_GLOBAL_CTRL, bit(n));
    EXPECT_TRUE(pmu_->active()) << "PMC" << n;
    set(IA32_PERF_GLOBAL_CTRL, 0);
    EXPECT_FALSE(pmu_->active()) << "PMC" << n;
  }
  for (unsigned n = 0; n < 3; ++n) {
    set(IA32_FIXED_CTR_CTRL, bit(4 * n));
    set(IA32_PERF_GLOBAL_CTRL, bit(32 + n));
    EXPECT_TRUE(pmu_->active()) << "fixed counter " << n;
    set(IA32_PERF_GLOBAL_CTRL, 0);
    EXPECT_FALSE(pmu_->active()) << "fixed counter " << n;
  }
}

TEST_F(PmuTest, LegacyWriteSignExtendsAndIgnoresEdx) {
  set(IA32_PMC0, 0x12345678'80000000);
  EXPECT_EQ(get(IA32_PMC0), 0xFFFF80000000);
  set(IA32_PMC0, 0xFFFFFFFF'23456789);
  EXPECT_EQ(get(IA32_PMC0), 0x23456789);
}

TEST_F(PmuTest, FullWidthAliasTakesTheWidthAndFaultsAboveIt) {
  set(IA32_A_PMC0 + 2, 0x8000'0000'0001);
  EXPECT_EQ(get(IA32_PMC0 + 2), 0x8000'0000'0001);
  EXPECT_TRUE(faults(IA32_A_PMC0 + 2, uint64_t{1} << 48));
  make("nehalem");
  EXPECT_TRUE(faults(IA32_A_PMC0, 1));
}

TEST_F(PmuTest, CoalescenceDecidesWhichCountersExist) {
  EXPECT_TRUE(faults(IA32_PMC0 + 4, 0));
  EXPECT_TRUE(faults(IA32_PERFEVTSEL0 + 7, 0));
  EXPECT_TRUE(faults(IA32_PERF_GLOBAL_CTRL, bit(4)));
  EXPECT_TRUE(faults(IA32_PERF_GLOBAL_OVF_CTRL, bit(7)));
  make("sandy-bridge", false);
  set(IA32_PMC0 + 7, 5);
  EXPECT_EQ(get(IA32_PMC0 + 7), 5);
  set(IA32_PERF_GLOBAL_CTRL, 0xFF);
  EXPECT_TRUE(faults(IA32_PEBS_ENABLE, bit(4)));
}

TEST_F(PmuTest, StatusIsReadOnlyAndAFaultChangesNothing) {
  EXPECT_TRUE(faults(IA32_PERF_GLOBAL_STATUS, 0));
  set(IA32_PERF_GLOBAL_CTRL, 1);
  EXPECT_TRUE(faults(IA32_PERF_GLOBAL_CTRL, bit(40) | 2));
  EXPECT_EQ(get(IA32_PERF_GLOBAL_CTRL), 1);
}

TEST_F(PmuTest, RecordsTheEventAfterTheOverflow) {
  sample_stores(3);
  for (int i = 0; i < 3; ++i) retire(Signal::kStores);
  EXPECT_EQ(records(), 0);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 1);
  retire();  // not a store: still armed
  EXPECT_EQ(records(), 0);
  uint64_t eventing = ip_;
  retire(Signal::kStores);
  ASSERT_EQ(records(), 1);
  EXPECT_EQ(record(0).ip(), eventing + 4);
  EXPECT_EQ(record(0).global_status(), 1);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 0);
  EXPECT_EQ(get(IA32_PMC0), low_bits(48) - 2);  // −3: the slot is loaded after the triggering event
}

TEST_F(PmuTest, AFusedPairRetiresTogether) {
  sample_stores(1);
  retire(Signal::kStores);
  retire(Signal::kStores, /*fused=*/true);
  EXPECT_EQ(records(), 0);
  EXPECT_EQ(pmu_->quiet_instructions(), 0);
  retire(Signal::kBranches, false, 0x9000);
  ASSERT_EQ(records(), 1);
  EXPECT_EQ(record(0).ip(), 0x9000);
}

TEST_F(PmuTest, NehalemPublishesASkidOfOneOverAFusedPairToo) {
  make("nehalem");
  set(IA32_DS_AREA, FlatMemory::kBase);
  set(IA32_PMC0, ~uint64_t{0});
  set(IA32_PERFEVTSEL0, 0x020B | evtsel::kOs | evtsel::kEnable);  // MEM_INST_RETIRED.STORES
  set(IA32_PEBS_ENABLE, 1);
  set(IA32_PERF_GLOBAL_CTRL, 1);
  retire(Signal::kStores);
  uint64_t first = ip_;
  retire(Signal::kStores, /*fused=*/true);
  ASSERT_EQ(records(), 1);
  EXPECT_EQ(record(0).ip(), first + 4);
}

TEST_F(PmuTest, OneRecordMayCarryTwoCounters) {
  sample_stores(2, 0);
  sample_stores(2, 3);
  for (int i = 0; i < 3; ++i) retire(Signal::kStores);
  ASSERT_EQ(records(), 1);
  EXPECT_EQ(record(0).global_status(), 0b1001);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 0);
  EXPECT_EQ(get(IA32_PMC0), get(IA32_PMC0 + 3));
}

TEST_F(PmuTest, WithIntTheOverflowInterruptFollowsItsRecordAndTheThresholds) {
  make("sandy-bridge", true,
       [](Behaviour b) { return b.rough.pmi_low = b.rough.pmi_high = 20, b; });
  set_up_ds(8, 1);
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  sample_stores(1, 0, evtsel::kInt);
  retire(Signal::kStores);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 1);
  EXPECT_FALSE(pmu_->interrupt_pending()) << "the assist comes first";
  retire(Signal::kStores);
  EXPECT_EQ(records(), 1);
  EXPECT_EQ(until_interrupt(), 20) << "the threshold's";
  EXPECT_EQ(until_interrupt(), 20) << "the overflow's";
  EXPECT_EQ(until_interrupt(), -1);
}

TEST_F(PmuTest, WithoutIntTheThresholdInterruptsOnce) {
  set_up_ds(8, 1);
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  sample_stores(1);
  for (int i = 0; i < 2; ++i) retire(Signal::kStores);
  EXPECT_GE(until_interrupt(), 0);
  EXPECT_EQ(until_interrupt(), -1);
}

// The overflow interrupt of a PEBS counter waits for that counter's record, whatever is written meanwhile. [R34]
TEST_F(PmuTest, TheOverflowInterruptWaitsForTheRecordOfItsCounter) {
  for (unsigned n = 0; n < 4; ++n) {
    make("sandy-bridge");
    set_up_ds(8, 8);
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
    sample_stores(1, n, evtsel::kInt);
    retire(Signal::kStores);
    set(IA32_PERFEVTSEL0 + (n ^ 1), 0);
    EXPECT_FALSE(pmu_->interrupt_pending()) << "PMC" << n;
    retire(Signal::kStores);
    EXPECT_TRUE(pmu_->interrupt_pending()) << "PMC" << n;
  }
}

TEST_F(PmuTest, ACounterThatIsDisarmedInterruptsForNoOthersRecord) {
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  sample_stores(1, 0, evtsel::kInt);
  retire(Signal::kStores);
  set(IA32_PEBS_ENABLE, 0);
  sample_stores(1, 1);
  for (int i = 0; i < 2; ++i) retire(Signal::kStores);
  EXPECT_EQ(records(), 1);
  EXPECT_FALSE(pmu_->interrupt_pending());
}

TEST_F(PmuTest, WhatWasMaskedDoesNotFollowALaterInterrupt) {
  set_up_ds(8, 1);
  sample_stores(1, 0, evtsel::kInt);
  for (int i = 0; i < 2; ++i) retire(Signal::kStores);
  EXPECT_EQ(records(), 1);
  EXPECT_FALSE(pmu_->interrupt_pending());
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  overflow_of_instructions();
  EXPECT_GE(until_interrupt(), 0);
  EXPECT_EQ(until_interrupt(), -1);
}

// What was raised is delivered, though the entry is masked meanwhile.
TEST_F(PmuTest, MaskingHoldsBackNoInterruptThatWasRaised) {
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  for (int round = 0; round < 2; ++round) {
    overflow_of_instructions();
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi | lvt::kMasked);
    EXPECT_GE(until_interrupt(), 0) << round;
  }
}

TEST_F(PmuTest, ThresholdRaisesWhenTheIndexReachesIt) {
  set_up_ds(8, 2);
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  sample_stores(1);
  for (int i = 0; i < 2; ++i) retire(Signal::kStores);
  EXPECT_EQ(records(), 1);
  EXPECT_FALSE(pmu_->interrupt_pending());
  for (int i = 0; i < 2; ++i) retire(Signal::kStores);
  EXPECT_EQ(records(), 2);
  EXPECT_TRUE(pmu_->interrupt_pending());
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS) & status::kOvfBuffer, status::kOvfBuffer);
  EXPECT_FALSE(pmu_->take_interrupt()) << "delivery takes some instructions";
  int waited = 0;
  while (!pmu_->take_interrupt() && waited < 1000) {
    retire();
    ++waited;
  }
  EXPECT_GT(waited, 0);
  EXPECT_LT(waited, 1000);
  EXPECT_EQ(get(IA32_X2APIC_LVT_PMI), lvt::kNmi | lvt::kMasked);
}

TEST_F(PmuTest, MaskedEntryDeliversNothing) {
  set_up_ds(8, 1);
  sample_stores(1);
  for (int i = 0; i < 4; ++i) retire(Signal::kStores);
  EXPECT_GT(records(), 0);
  EXPECT_FALSE(pmu_->interrupt_pending());
}

TEST_F(PmuTest, FullBufferSkipsWithoutReload) {
  set_up_ds(1, 8);
  sample_stores(1);
  for (int i = 0; i < 10; ++i) retire(Signal::kStores);
  EXPECT_EQ(records(), 1);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS) & 1, 1);
  memory_.set_field(0x28, FlatMemory::kBuffer);  // software rewinds
  retire(Signal::kStores);
  EXPECT_EQ(records(), 1);
}

TEST_F(PmuTest, QualifiersInvalidatePebs) {
  for (uint64_t qualifier :
       {evtsel::kAnyThread, evtsel::kEdge, evtsel::kInvert, uint64_t{1} << 24}) {
    SetUp();
    sample_stores(1, 0, qualifier);
    for (int i = 0; i < 10; ++i) retire(Signal::kStores);
    EXPECT_EQ(records(), 0) << std::hex << qualifier;
  }
}

// INV with a CMASK that no cycle reaches asks for every cycle; as if the fields were not there it is for
// stores.
TEST_F(PmuTest, DisputedQualifiersRecordNothingOrWhatTheySelectOrAsIfTheyWereNotThere) {
  const Change outcomes[] = {[](Behaviour b) { return b.rough.disputed_qualifiers = 0, b; },
                             [](Behaviour b) { return b.rough.disputed_qualifiers = 1, b; },
                             [](Behaviour b) { return b.rough.disputed_qualifiers = 2, b; }};
  for (unsigned outcome = 0; outcome < 3; ++outcome) {
    make("sandy-bridge", true, outcomes[outcome]);
    set_up_ds(64, 1000);
    sample_stores(4, 0, evtsel::kInvert | uint64_t{16} << evtsel::kCmaskShift);
    for (int i = 0; i < 40; ++i) retire();
    EXPECT_EQ(records() > 0, outcome == 1) << outcome;
    for (int i = 0; i < 10; ++i) retire(Signal::kStores);
    EXPECT_EQ(records() > 0, outcome != 0) << outcome;
    EXPECT_LE(outcome == 2 ? records() : 2, 2) << "of ten stores";
  }
}

// An event counts and is sampled on its published counters, and on those that a facility has on a broken processor.
TEST_F(PmuTest, AnEventCountsAndIsSampledWhereItsFacilityIs) {
  const Change conforming = [](Behaviour b) { return b; };
  const Change stores_elsewhere = [](Behaviour b) { return b.precise_store_counters = 0b10001, b; };
  const Change loads_elsewhere = [](Behaviour b) { return b.load_latency_elsewhere = true, b; };
  const Change counted_anywhere = [](Behaviour b) { return b.counter_lists_hold = false, b; };
  const Change three_of_pebs = [](Behaviour b) { return b.pebs_counters = 0b111, b; };
  const struct {
    const char* name;
    Change change;
    uint64_t event;
    Signal signal;
    unsigned counted, sampled;
  } cases[] = {
      {"a precise store", conforming, 0x02CD, Signal::kStores, 0x08, 0x08},
      {"… elsewhere", stores_elsewhere, 0x02CD, Signal::kStores, 0x19, 0x01},
      {"… and another event", stores_elsewhere, 0x82D0, Signal::kStores, 0x0F, 0x0F},
      {"load latency", conforming, 0x01CD, Signal::kLoads, 0x08, 0x08},
      {"… elsewhere", loads_elsewhere, 0x01CD, Signal::kLoads, 0x0F, 0x0F},
      {"… and another event", loads_elsewhere, 0x82D0, Signal::kStores, 0x0F, 0x0F},
      {"… counted elsewhere", counted_anywhere, 0x01CD, Signal::kLoads, 0x0F, 0x08},
      {"PMC3 without PEBS", three_of_pebs, 0x82D0, Signal::kStores, 0x0F, 0x07},
  };
  for (const auto& c : cases) {
    unsigned counted = 0, sampled = 0;
    for (unsigned n = 0; n < 8; ++n) {
      make("sandy-bridge", false, c.change);
      set_up_ds(8, 8);
      set(IA32_DS_AREA, FlatMemory::kBase);
      set(MSR_PEBS_LD_LAT_THRESHOLD, 3);
      set(IA32_PMC0 + n, ~uint64_t{0});
      set(IA32_PERFEVTSEL0 + n, c.event | evtsel::kOs | evtsel::kEnable);
      set(IA32_PEBS_ENABLE, (bit(n) & 0xF) | pebs_enable::kPreciseStore |
                                uint64_t{0xF} << pebs_enable::kLoadLatencyShift);
      set(IA32_PERF_GLOBAL_CTRL, bit(n));
      // A tagged load is one of several.
      for (int i = 0; i < 100; ++i) retire(c.signal);
      counted |= get(IA32_PMC0 + n) != low_bits(48) ? 1u << n : 0;
      sampled |= records() > 0 ? 1u << n : 0;
    }
    EXPECT_EQ(counted, c.counted) << c.name;
    EXPECT_EQ(sampled, c.sampled) << c.name;
  }
}

// Only loads are tagged: what lies between two of them keeps none apart.
TEST_F(PmuTest, OtherInstructionsTakeNoTagFromALoad) {
  make("sandy-bridge", false, [](Behaviour b) {
    b.rough.tagging = 1;
    b.rough.tag_apart = 300;
    return b;
  });
  set(MSR_PEBS_LD_LAT_THRESHOLD, 3);
  set(IA32_PERFEVTSEL0 + 3, 0x01CD | evtsel::kOs | evtsel::kEnable);
  set(IA32_PEBS_ENABLE, bit(pebs_enable::kLoadLatencyShift + 3));
  set(IA32_PERF_GLOBAL_CTRL, bit(3));
  for (int i = 0; i < 10; ++i) {
    retire(Signal::kLoads);
    for (int between = 0; between < 3; ++between) retire();
  }
  EXPECT_EQ(get(IA32_PMC0 + 3), 10u);
}

// Which event is recorded, counted from the overflowing one, when one retires each cycle and arming takes eight.
TEST_F(PmuTest, WhatWaitsForNoArmingHasNoShadow) {
  const Change conforming = [](Behaviour b) { return b; };
  const struct {
    const char* name;
    Change change;
    uint64_t event;
    unsigned counter;
    int behind;
  } cases[] = {
      {"a store", conforming, 0x82D0, 0, 8},
      {"PDIR's event on another counter", conforming, 0x01C0, 0, 8},
      {"PDIR", conforming, 0x01C0, 1, 0},
      {"PDIR of the event behind", [](Behaviour b) { return b.rough.pdir_next = 1, b; }, 0x01C0, 1,
       1},
      {"PDIR's event at once", [](Behaviour b) { return b.pdir_event_at_once = true, b; }, 0x01C0,
       0, 1},
      {"no event", [](Behaviour b) { return b.record_without_event = true, b; }, 0x82D0, 0, 1},
  };
  for (const auto& c : cases) {
    make("sandy-bridge", true, c.change);
    set_up_ds(8, 8);
    sample(c.event, 1, c.counter);
    step_ = 1;
    int behind = -1;
    while (records() == 0 && ++behind < 20) retire(Signal::kStores);
    EXPECT_EQ(behind, c.behind) << c.name;
  }
}

// A broken PDIR beside another PEBS counter gives a second record for each overflow, and for each anew.
TEST_F(PmuTest, ARedundantRecordComesOnceForEachOverflow) {
  make("sandy-bridge", true, [](Behaviour b) { return b.redundant = Redundant::kPdirNotAlone, b; });
  sample_stores(1000);
  sample(0x01C0, 100, 1);
  set(IA32_PMC0 + 1, ~uint64_t{0});
  for (int i = 0; i < 5; ++i) retire();
  EXPECT_EQ(records(), 2);
  // Where PEBS is switched off between the two, the second does not come, nor is it missed later.
  set(IA32_PMC0 + 1, ~uint64_t{0});
  retire();
  EXPECT_EQ(records(), 3);
  set(IA32_PEBS_ENABLE, 1);
  set(IA32_PEBS_ENABLE, 3);
  retire();
  EXPECT_EQ(records(), 3);
  set(IA32_PMC0 + 1, ~uint64_t{0});
  for (int i = 0; i < 5; ++i) retire();
  EXPECT_EQ(records(), 5);
}

// --- Modes and RESET, where a broken processor shows more of them

TEST_F(PmuTest, ABrokenProcessorMayRecordNothingInRealAddressMode) {
  for (const Mode mode : {Mode::kLong, Mode::kProtected32, Mode::kReal}) {
    make("sandy-bridge", true, [](Behaviour b) {
      return b.modes.real_mode_pebs = b.modes.real_mode_branches = false, b;
    });
    set_up_ds(8, 8);
    set(IA32_DEBUGCTL, bit(6) | bit(7));
    pmu_->set_mode(mode);
    EXPECT_EQ(pmu_->active(), mode != Mode::kReal) << "branches are traced";
    sample_stores(1);
    for (int i = 0; i < 2; ++i) retire(Signal::kStores);
    EXPECT_EQ(records(), mode == Mode::kReal ? 0u : 1u) << name_of(mode);
  }
}

// The write of a register that retires in SMM is an instruction with events of its own.
TEST_F(PmuTest, AWriteInSmmPendsARecordWhereEventsDo) {
  for (const bool pends : {false, true}) {
    make("sandy-bridge", true,
         pends ? +[](Behaviour b) { return b.modes.frozen_event_pends = true, b; } : nullptr);
    set_up_ds(8, 8);
    set(IA32_DEBUGCTL, debugctl::kFreezeWhileSmm);
    sample(0x01C2, 1, 0);  // UOPS_RETIRED.ALL
    retire(Signal::kUops);
    pmu_->enter_smm();
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
    Retired write;
    write.length = 2;
    write.counts[index(Signal::kInstructions)] = write.counts[index(Signal::kUops)] = 1;
    write.cycle = cycle_ += step_;
    write.after = &registers_;
    pmu_->retire_write(write);
    pmu_->leave_smm();
    retire();
    EXPECT_EQ(records(), pends ? 1u : 0u);
  }
}

TEST_F(PmuTest, ResetForgetsWhatABrokenProcessorRemembers) {
  const struct {
    const char* name;
    Change change;
    std::function<uint64_t()> shows;
    uint64_t first, again;
  } cases[] = {
      {"reloads once", [](Behaviour b) { return b.reload = Reload::kOnlyOnce, b; },
       [&] {
         sample_stores(3);
         for (int i = 0; i < 8; ++i) retire(Signal::kStores);
         return get(IA32_PMC0);
       },
       1, 5},
      {"loses the overflow behind a second enable",
       [](Behaviour b) { return b.toggling_loses_overflow = true, b; },
       [&] {
         set(IA32_PEBS_ENABLE, 0);
         sample_stores(1);
         for (int i = 0; i < 2; ++i) retire(Signal::kStores);
         return records();
       },
       1, 0},
      {"freezes at the second interrupt",
       [](Behaviour b) { return b.interrupts_before_freeze = 1, b; },
       [&] {
         set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
         set(IA32_DEBUGCTL, debugctl::kFreezePerfmonOnPmi);
         overflow_of_instructions();
         return get(IA32_PERF_GLOBAL_CTRL);
       },
       bit(2), 0},
      {"counts behind a sequence of selects",
       [](Behaviour b) { return b.counting.needs_magic_selects = true, b; },
       [&] {
         set(IA32_PERFEVTSEL0, 0xC0 | evtsel::kOs | evtsel::kEnable);
         set(IA32_PERF_GLOBAL_CTRL, 1);
         retire();
         const uint64_t counted = get(IA32_PMC0);
         for (uint64_t select : {0x4300B5, 0x4300D2, 0x4300B1}) set(IA32_PERFEVTSEL0, select);
         return counted;
       },
       0, 1},
      {"records no more behind a machine check",
       [](Behaviour b) { return b.modes.machine_check_reversible = false, b; },
       [&] {
         sample_stores(1);
         for (int i = 0; i < 2; ++i) retire(Signal::kStores);
         pmu_->machine_check();
         return records();
       },
       1, 0},
      {"SMM", [](Behaviour b) { return b; },
       [&] {
         sample_stores(1);
         for (int i = 0; i < 2; ++i) retire(Signal::kStores);
         pmu_->enter_smm();
         return records();
       },
       1, 0},
  };
  for (const auto& c : cases) {
    make("sandy-bridge", true, c.change);
    set_up_ds(8, 8);
    EXPECT_EQ(c.shows(), c.first) << c.name;
    set_up_ds(8, 8);
    EXPECT_EQ(c.shows(), c.again) << c.name;
    pmu_->reset();
    set_up_ds(8, 8);
    EXPECT_EQ(c.shows(), c.first) << c.name << ", after RESET";
  }
}

// Bounds that are read once are read again behind RESET, with a DS area where IA32_DS_AREA points from then on.
TEST_F(PmuTest, ResetForgetsBoundsThatWereReadOnce) {
  make("sandy-bridge", true, [](Behaviour b) { return b.latched = true, b; });
  memory_ = FlatMemory(0);
  for (const uint64_t buffer : {0x1000u, 0x4000u}) {
    pmu_->reset();
    for (const uint32_t field : {0x20u, 0x28u}) memory_.set_field(field, buffer);
    for (const uint32_t field : {0x30u, 0x38u}) memory_.set_field(field, buffer + 8 * 0xB0);
    set(IA32_PMC0, ~uint64_t{0});
    set(IA32_PERFEVTSEL0, 0x82D0 | evtsel::kOs | evtsel::kEnable);
    set(IA32_PEBS_ENABLE, 1);
    set(IA32_PERF_GLOBAL_CTRL, 1);
    for (int i = 0; i < 2; ++i) retire(Signal::kStores);
    EXPECT_EQ(memory_.field(0x28), buffer + 0xB0);
  }
}

TEST_F(PmuTest, LegacyFreezeClearsGlobalCtrl) {
  set_up_ds(8, 1);
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  set(IA32_DEBUGCTL, debugctl::kFreezePerfmonOnPmi);
  sample_stores(1);
  for (int i = 0; i < 2; ++i) retire(Signal::kStores);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_CTRL), 0);
}

TEST_F(PmuTest, UnmappedDebugStoreRecordsNothingAndDoesNotCrash) {
  sample_stores(1);
  set(IA32_DS_AREA, 0x1000);
  for (int i = 0; i < 5; ++i) retire(Signal::kStores);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS) & 1, 1);
}

TEST_F(PmuTest, RdpmcKnowsGeneralAndFixedCounters) {
  set(IA32_PMC0 + 1, 77);
  set(IA32_FIXED_CTR0 + 2, 99);
  EXPECT_EQ(pmu_->rdpmc(1), 77u);
  EXPECT_EQ(pmu_->rdpmc((1u << 30) | 2), 99u);
  EXPECT_FALSE(pmu_->rdpmc(4));
  EXPECT_FALSE(pmu_->rdpmc((1u << 30) | 3));
}

// What becomes of an index below the base no text of these parts says (R47); the model skips the event.
TEST_F(PmuTest, ChecksTheLowerBoundOfTheBufferWhereItIsToldTo) {
  memory_.set_field(0x28, FlatMemory::kBuffer - 0xB0);
  Behaviour behaviour = behaviour_of(row("sandy-bridge"));
  for (bool checked : {true, false}) {
    behaviour.lower_bound = checked;
    LatchedBounds latched;
    DebugStore ds(memory_, row("sandy-bridge"), behaviour, FlatMemory::kBase, latched);
    ASSERT_TRUE(ds.load());
    EXPECT_TRUE(ds.below_base());
    EXPECT_EQ(ds.room(), !checked);
  }
}

}  // namespace
}  // namespace skidproof::model
