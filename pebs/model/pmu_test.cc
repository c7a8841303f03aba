// The PMU alone, fed by hand: no engine, no program. Each test states one rule of the manual.
#include "pebs/model/pmu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  void make(std::string_view name, bool sibling = true, Behaviour (*change)(Behaviour) = nullptr) {
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
    set(IA32_DS_AREA, FlatMemory::kBase);
    memory_.set_field(0x40 + 8 * counter, (uint64_t{0} - period) & low_bits(48));
    set(IA32_PMC0 + counter, uint64_t{0} - period);
    set(IA32_PERFEVTSEL0 + counter, 0x82D0 | evtsel::kOs | evtsel::kEnable | select_bits);
    set(IA32_PEBS_ENABLE, get(IA32_PEBS_ENABLE) | bit(counter));
    set(IA32_PERF_GLOBAL_CTRL, get(IA32_PERF_GLOBAL_CTRL) | bit(counter));
  }
  // Retires one instruction at ip_; each takes 100 cycles, so that arming is over by the next.
  void retire(Signal signal = Signal::kInstructions, bool fused = false, uint64_t next = 0) {
    Retired r;
    r.ip = ip_;
    r.length = 4;
    r.counts[index(Signal::kInstructions)] = 1;
    if (signal != Signal::kInstructions) r.counts[index(signal)] = 1;
    if (signal == Signal::kStores) r.store = {.valid = true, .address = 0x5000 + ip_};
    cycle_ += 100;
    r.cycle = cycle_;
    r.fused_with_next = fused;
    ip_ = next != 0 ? next : ip_ + 4;
    registers_.ip = ip_;
    r.after = &registers_;
    pmu_->retire(r);
  }
  uint64_t records() { return (memory_.field(0x28) - FlatMemory::kBuffer) / 0xB0; }
  Record record(size_t i) { return {memory_.at(FlatMemory::kBuffer + i * 0xB0), uarch_->record}; }

  const Microarch* uarch_ = nullptr;
  FlatMemory memory_;
  std::unique_ptr<Pmu> pmu_;
  Registers registers_;
  uint64_t ip_ = 0x1000;
  uint64_t cycle_ = 0;
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
  set_up_ds(8, 1);
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  sample_stores(1);
  set(IA32_PERFEVTSEL0, get(IA32_PERFEVTSEL0) | evtsel::kInt);
  auto delivered = [&] {
    for (int waited = 0; waited < 1000; ++waited) {
      if (pmu_->take_interrupt()) {
        set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
        return true;
      }
      retire();
    }
    return false;
  };
  retire(Signal::kStores);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 1);
  EXPECT_FALSE(pmu_->interrupt_pending()) << "the assist comes first";
  retire(Signal::kStores);
  EXPECT_EQ(records(), 1);
  EXPECT_TRUE(delivered()) << "the threshold's";
  EXPECT_TRUE(delivered()) << "the overflow's";
  EXPECT_FALSE(delivered());
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
  Behaviour (*const outcomes[])(Behaviour) = {
      [](Behaviour b) { return b.rough.disputed_qualifiers = 0, b; },
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
