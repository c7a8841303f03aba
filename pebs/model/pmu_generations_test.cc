// What Core 2 and the generations after Ivy Bridge change in the PMU, fed by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>

#include "pebs/arch/data_source.h"
#include "pebs/arch/generations.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/pmu.h"
#include "pebs/record.h"

namespace skidproof::model {
namespace {

using namespace arch;

// Two pages from kBase on: the management area, then the buffer.
class TwoPages : public Bus {
 public:
  static constexpr uint64_t kBase = 0xffff'8880'0001'0000;
  static constexpr uint64_t kBuffer = kBase + 0x1000;

  bool read(uint64_t address, std::span<std::byte> into) override {
    std::memcpy(into.data(), at(address), into.size());
    return true;
  }
  bool write(uint64_t address, std::span<const std::byte> from) override {
    std::memcpy(at(address), from.data(), from.size());
    return true;
  }
  std::byte* at(uint64_t address) { return bytes_.data() + (address - kBase); }
  uint64_t field(uint32_t offset) {
    uint64_t value = 0;
    read(kBase + offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  void set_field(uint32_t offset, uint64_t value) {
    write(kBase + offset, std::as_bytes(std::span(&value, 1)));
  }

 private:
  std::array<std::byte, 0x2000> bytes_{};
};

class GenerationsTest : public ::testing::Test {
 protected:
  void make(const Microarch& row, void (*change)(Behaviour&) = nullptr) {
    uarch_ = &row;
    Behaviour behaviour = behaviour_of(row);
    if (change != nullptr) change(behaviour);
    memory_ = {};
    pmu_ = std::make_unique<Pmu>(row, Topology{}, memory_, behaviour, 1);
    memory_.set_field(row.ds.pebs_base, TwoPages::kBuffer);
    memory_.set_field(row.ds.pebs_index, TwoPages::kBuffer);
    memory_.set_field(row.ds.pebs_maximum, TwoPages::kBuffer + 0x1000);
    memory_.set_field(row.ds.pebs_threshold, TwoPages::kBuffer + 0x2000);
    set(IA32_DS_AREA, TwoPages::kBase);
  }
  void set(uint32_t msr, uint64_t value) {
    auto done = pmu_->wrmsr(msr, value);
    ASSERT_TRUE(done) << done.error().text();
  }
  uint64_t get(uint32_t msr) { return pmu_->rdmsr(msr).value(); }
  bool faults(uint32_t msr, uint64_t value) { return !pmu_->wrmsr(msr, value); }
  // Samples an event with this period; the slot puts the next overflow far away.
  void sample(unsigned n, uint64_t select, uint64_t period) {
    memory_.set_field(uarch_->ds.gp_reset(n), (uint64_t{0} - 1000) & gp_counter_mask(*uarch_));
    set(IA32_PMC0 + n, uint64_t{0} - period);
    set(IA32_PERFEVTSEL0 + n, select | evtsel::kOs | evtsel::kEnable);
    set(IA32_PEBS_ENABLE, get(IA32_PEBS_ENABLE) | bit(n));
    set(IA32_PERF_GLOBAL_CTRL, get(IA32_PERF_GLOBAL_CTRL) | bit(n));
  }
  // The next event of fixed counter i overflows; the slot puts the one after far away.
  void sample_fixed(unsigned i) {
    memory_.set_field(uarch_->ds.fixed_counter_reset(i), low_bits(48) - 99);
    set(IA32_FIXED_CTR0 + i, low_bits(48));
    set(IA32_FIXED_CTR_CTRL, fixed_ctrl::field(i, fixed_ctrl::kOs));
    set(IA32_PEBS_ENABLE, bit(32 + i));
    set(IA32_PERF_GLOBAL_CTRL, bit(32 + i));
  }
  // One instruction of four bytes with one event of the signal, so many cycles after the last.
  void retire(Signal signal, const Access& load = {}, const Access& store = {},
              uint64_t cycles = 100, bool fused = false) {
    Retired r;
    r.ip = ip_;
    r.length = 4;
    r.counts[index(signal)] = 1;
    r.counts[index(Signal::kInstructions)] = 1;
    r.load = load;
    r.store = store;
    r.cycle = r.tsc = cycle_ += cycles;
    r.fused_with_next = fused;
    registers_.ip = ip_ += 4;
    r.after = &registers_;
    pmu_->retire(r);
  }
  Record record() {
    return Records({memory_.at(TwoPages::kBuffer), uarch_->record->bytes}, uarch_->record).front();
  }
  uint64_t recorded_bytes() { return memory_.field(uarch_->ds.pebs_index) - TwoPages::kBuffer; }
  // How many instructions retire until there is a record: 0 where the very next one gives it.
  unsigned until_record(Signal signal, uint64_t cycles = 100) {
    for (unsigned n = 0; n < 50; ++n) {
      retire(signal, {}, {}, cycles);
      if (recorded_bytes() != 0) return n;
    }
    return 50;
  }

  TwoPages memory_;
  const Microarch* uarch_ = nullptr;
  std::unique_ptr<Pmu> pmu_;
  Registers registers_;
  uint64_t ip_ = 0x1000, cycle_ = 5000;
};

TEST_F(GenerationsTest, HaswellRecordsBothIpsAndTheStore) {
  make(kHaswell);
  sample(2, 0x82D0, 1);
  retire(Signal::kStores);
  const uint64_t sampled = ip_;
  retire(Signal::kStores, {}, {.valid = true, .l1_hit = true, .latency = 9, .address = 0xABCD});
  EXPECT_EQ(recorded_bytes(), 0xC0U);
  EXPECT_EQ(record().eventing_ip(), sampled);
  EXPECT_EQ(record().ip(), sampled + 4);
  EXPECT_EQ(record().global_status(), bit(2));
  EXPECT_EQ(record().tx_information(), 0U);
  EXPECT_EQ(record().data_address(), 0xABCDU);
  EXPECT_EQ(record().data_source(), store_status::kL1Hit);
  EXPECT_EQ(record().latency(), 0U);
}

// MEM_UOPS_RETIRED.ALL_LOADS of a read-modify-write: the load, and no status.
TEST_F(GenerationsTest, HaswellRecordsTheLoadOfALoadEvent) {
  make(kHaswell);
  sample(0, 0x81D0, 1);
  retire(Signal::kLoads);
  retire(Signal::kLoads, {.valid = true, .l1_hit = true, .address = 0x111},
         {.valid = true, .l1_hit = true, .address = 0x222});
  EXPECT_EQ(record().data_address(), 0x111U);
  EXPECT_EQ(record().data_source(), 0U);
}

// The record of a fused pair describes the access of the half that was sampled.
TEST_F(GenerationsTest, HaswellDescribesTheFirstHalfOfAFusedPair) {
  make(kHaswell);
  sample(0, 0x81D0, 1);
  retire(Signal::kLoads);
  const uint64_t sampled = ip_;
  retire(Signal::kLoads, {.valid = true, .address = 0x111}, {}, 100, /*fused=*/true);
  EXPECT_EQ(recorded_bytes(), 0u);
  retire(Signal::kBranches);
  ASSERT_EQ(recorded_bytes(), 0xC0u);
  EXPECT_EQ(record().eventing_ip(), sampled);
  EXPECT_EQ(record().data_address(), 0x111u);
}

// What a broken processor may hold instead: the instruction before, and the registers before the sampled one.
TEST_F(GenerationsTest, ABrokenRecordMayHoldWhatWasBefore) {
  for (const bool broken : {false, true}) {
    make(kHaswell, broken ? [](Behaviour& b) {
      b.generation.eventing_ip = EventingIp::kBefore;
      b.registers_after = false;
    } : +[](Behaviour&) {});
    sample(0, 0x82D0, 1);
    for (uint64_t i = 0; i < 2; ++i) {
      registers_.gpr[0] = 0x100 + i;
      retire(Signal::kStores);
    }
    EXPECT_EQ(record().eventing_ip(), ip_ - (broken ? 8 : 4));
    EXPECT_EQ(record().gpr(Gpr::kRax), broken ? 0x100u : 0x101u);
  }
}

TEST_F(GenerationsTest, SkylakeNamesTheCountersAndStampsTheTime) {
  make(kSkylake);
  sample(0, 0x81D0, 1);
  sample(3, 0x81D0, 1);
  set(IA32_PMC0 + 1, ~uint64_t{0});
  set(IA32_PERFEVTSEL0 + 1, 0x81D0 | evtsel::kOs | evtsel::kEnable);
  set(IA32_PERF_GLOBAL_CTRL, 0b1011);
  retire(Signal::kLoads);
  retire(Signal::kLoads, {.valid = true, .address = 0x111});
  EXPECT_EQ(recorded_bytes(), 0xC8U);
  EXPECT_EQ(record().applicable_counters(), bit(0) | bit(3)) << "PMC1 overflowed without PEBS";
  EXPECT_EQ(record().tsc(), cycle_);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), bit(1));
}

TEST_F(GenerationsTest, SkylakeFreezesByCtrFrz) {
  make(kSkylake);
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  set(IA32_PERFEVTSEL0, 0x81D0 | evtsel::kOs | evtsel::kEnable | evtsel::kInt);
  set(IA32_PERF_GLOBAL_CTRL, 1);
  for (const uint64_t freeze : {uint64_t{0}, debugctl::kFreezePerfmonOnPmi}) {
    set(IA32_DEBUGCTL, freeze);
    set(IA32_PERF_GLOBAL_STATUS_RESET, 1);
    set(IA32_PMC0, ~uint64_t{0});
    retire(Signal::kLoads);
    EXPECT_EQ((get(IA32_PERF_GLOBAL_STATUS) & status::kCountersFrozen) != 0, freeze != 0);
  }
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), bit(0) | status::kCountersFrozen);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_CTRL), 1U);
  retire(Signal::kLoads);
  EXPECT_EQ(get(IA32_PMC0), 0U) << "frozen";
  set(IA32_PERF_GLOBAL_STATUS_RESET, status::kCountersFrozen);
  retire(Signal::kLoads);
  EXPECT_EQ(get(IA32_PMC0), 1U);
}

TEST_F(GenerationsTest, SkylakeSetsStatusAndShowsWhatIsInUse) {
  make(kSkylake);
  set(IA32_PERF_GLOBAL_STATUS_SET, bit(2) | bit(33));
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), bit(2) | bit(33));
  EXPECT_TRUE(faults(IA32_PERF_GLOBAL_STATUS_SET, status::kCondChgd));
  EXPECT_EQ(get(IA32_PERF_GLOBAL_INUSE), 0U);
  set(IA32_PERFEVTSEL0 + 1, 0xC4);
  set(IA32_FIXED_CTR_CTRL, fixed_ctrl::field(2, fixed_ctrl::kUsr));
  EXPECT_EQ(get(IA32_PERF_GLOBAL_INUSE), bit(1) | bit(34));
  set(IA32_PEBS_ENABLE, 4);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_INUSE), bit(1) | bit(34) | bit(63));
  EXPECT_TRUE(faults(IA32_PERF_GLOBAL_INUSE, 0));
  set(MSR_PEBS_FRONTEND, 0x401006);
  EXPECT_EQ(get(MSR_PEBS_FRONTEND), 0x401006U);
  EXPECT_TRUE(faults(MSR_PEBS_FRONTEND, 8));
}

TEST_F(GenerationsTest, BeforeVersionFourThoseRegistersAreAbsent) {
  make(kBroadwell);
  for (uint32_t msr : {IA32_PERF_GLOBAL_STATUS_SET, IA32_PERF_GLOBAL_INUSE, MSR_PEBS_FRONTEND}) {
    EXPECT_TRUE(faults(msr, 0)) << msr;
    EXPECT_FALSE(pmu_->rdmsr(msr)) << msr;
  }
  EXPECT_TRUE(faults(IA32_PERF_GLOBAL_OVF_CTRL, status::kCountersFrozen));
}

TEST_F(GenerationsTest, InTxCountsInsideTransactionsOnly) {
  make(kHaswell);
  const uint64_t select = 0x81D0 | evtsel::kOs | evtsel::kEnable;
  set(IA32_PERF_GLOBAL_CTRL, 4);
  set(IA32_PERFEVTSEL0 + 2, select | evtsel::kInTx);
  retire(Signal::kLoads);
  EXPECT_EQ(get(IA32_PMC0 + 2), 0U);
  set(IA32_PERFEVTSEL0 + 2, select | evtsel::kInTxCp);
  retire(Signal::kLoads);
  EXPECT_EQ(get(IA32_PMC0 + 2), 1U);
  EXPECT_TRUE(faults(IA32_PERFEVTSEL0 + 1, select | evtsel::kInTxCp));
}

// Qualifiers that published encodings use may mean nothing under PEBS: then every event counts.
TEST_F(GenerationsTest, IgnoredQualifiersFilterNothing) {
  unsigned combinations = 0;
  for (const Microarch* row : {&kSandyBridge, &kHaswell, &kSkylake, &kIceLake, &kSapphireRapids}) {
    for (unsigned c = 0; c < 16; ++c) {
      if (row->expectation(c) != Expectation::kClassify) continue;
      make(*row, [](Behaviour& b) { b.rough.disputed_qualifiers = 2; });
      sample(0,
             0x82D0 | (c & kQualifierEdge ? evtsel::kEdge : 0) |
                 (c & kQualifierInvert ? evtsel::kInvert : 0) |
                 (c & kQualifierCmask ? uint64_t{2} << evtsel::kCmaskShift : 0),
             1000);
      for (int i = 0; i < 5; ++i) retire(Signal::kStores, {}, {}, 1);
      EXPECT_EQ(get(IA32_PMC0), low_bits(48) - 994) << row->name << ", combination " << c;
      ++combinations;
    }
  }
  EXPECT_GE(combinations, 10u);
}

// --- Golden Cove's counters

// C0H is precise on PMC1 and above only: on PMC0 it is sampled at the next opportunity. [R61, R62]
TEST_F(GenerationsTest, GoldenCoveTakesInstructionsPreciselyAbovePmc0) {
  for (unsigned n = 0; n < 8; ++n) {
    make(kSapphireRapids);
    sample(n, 0x02C0, 1);  // INST_RETIRED.NOP
    retire(Signal::kNops);
    EXPECT_EQ(recorded_bytes(), 0u) << "PMC" << n;
    retire(Signal::kBranches);
    EXPECT_EQ(recorded_bytes() != 0, n == 0) << "PMC" << n;
    retire(Signal::kNops);
    EXPECT_NE(recorded_bytes(), 0u) << "PMC" << n;
  }
}

// What concerns PDIR does not concern the counters of PDist.
TEST_F(GenerationsTest, ACounterOfPdistRecordsTheOverflowingEvent) {
  for (unsigned n = 0; n < 4; ++n) {
    make(kSapphireRapids, [](Behaviour& b) { b.rough.pdir_next = 1; });
    sample(n, 0x82D0, 1);
    EXPECT_EQ(until_record(Signal::kStores), n == 0 ? 0u : 1u) << "PMC" << n;
    make(kSapphireRapids, [](Behaviour& b) { b.adaptive.pdist_counters = 0b100; });
    sample(n, 0x82D0, 1);
    EXPECT_EQ(until_record(Signal::kStores), n == 2 ? 0u : 1u) << "PMC" << n;
  }
}

// The event counts on its own counter and on those of the facility; only these say where the store went.
TEST_F(GenerationsTest, AStoreSampleIsTakenOnTheCountersOfTheFacility) {
  for (unsigned n = 0; n < 8; ++n) {
    SCOPED_TRACE(n);
    auto samples = [&](uint64_t event) {
      make(kSapphireRapids, [](Behaviour& b) { b.adaptive.store_sample_counters = 0b10010; });
      set(MSR_PEBS_DATA_CFG, adaptive::kMemory);
      sample(n, event | evtsel::kAdaptive, 1);
      for (int i = 0; i < 2; ++i) retire(Signal::kStores, {}, {.valid = true, .address = 0x7000});
      return recorded_bytes() != 0;
    };
    EXPECT_EQ(samples(0x02CD), n == 0 || n == 1 || n == 4);
    if (recorded_bytes() != 0) {
      EXPECT_EQ(record().data_address(), n == 0 ? 0u : 0x7000u);
    }
    EXPECT_EQ(samples(0x82D0), n < 4) << "another event";
  }
}

// --- Fixed counters that sample

// From its overflow on a counter casts a shadow, unless its events are distributed. [R15, R62]
TEST_F(GenerationsTest, AFixedCounterIsArmedBehindItsShadow) {
  const auto eight = [](Behaviour& b) { b.rough.arm_low = b.rough.arm_high = 8; };
  make(kIceLake, eight);
  sample_fixed(1);
  EXPECT_EQ(until_record(Signal::kCycles, 1), 8u);
  make(kIceLake, eight);
  sample_fixed(0);
  EXPECT_EQ(until_record(Signal::kInstructions, 0), 0u) << "the overflowing one";
  make(kSapphireRapids, eight);
  sample_fixed(0);
  EXPECT_EQ(until_record(Signal::kInstructions, 0), 1u) << "the next, in the same cycle";
}

// The one behind the overflow is an event of the counter, not any instruction.
TEST_F(GenerationsTest, ADistributedFixedCounterWaitsForItsNextEvent) {
  make(kSapphireRapids, [](Behaviour& b) { b.fixed_counters_swapped = true; });
  sample_fixed(0);
  retire(Signal::kCycles);
  retire(Signal::kInstructions);
  EXPECT_EQ(recorded_bytes(), 0u) << "no cycle passed";
  retire(Signal::kCycles);
  EXPECT_NE(recorded_bytes(), 0u);
}

// A lag of the distributed counter is so many instructions more, and no other counter's.
TEST_F(GenerationsTest, ALagDelaysTheDistributedFixedCounterAlone) {
  void (*const lags[])(Behaviour&) = {[](Behaviour& b) { b.adaptive.pdist_on_fixed_lag = 0; },
                                      [](Behaviour& b) { b.adaptive.pdist_on_fixed_lag = 1; },
                                      [](Behaviour& b) { b.adaptive.pdist_on_fixed_lag = 2; },
                                      [](Behaviour& b) {
                                        b.adaptive.pdist_on_fixed_lag = 3;
                                        b.rough.pdir_next = 1;
                                      }};
  for (unsigned lag = 0; lag < 4; ++lag) {
    make(kSapphireRapids, lags[lag]);
    sample_fixed(0);
    EXPECT_EQ(until_record(Signal::kInstructions), 1 + lag);
    make(kSapphireRapids, lags[lag]);
    sample_fixed(1);
    EXPECT_EQ(until_record(Signal::kCycles), 1u);
  }
}

// An armed counter stays armed whatever register is written.
TEST_F(GenerationsTest, AnArmedFixedCounterSurvivesAWrite) {
  const Signal signals[] = {Signal::kInstructions, Signal::kCycles, Signal::kReferenceCycles,
                            Signal::kSlots};
  for (unsigned i = 1; i < 4; ++i) {
    make(kIceLake);
    sample_fixed(i);
    retire(signals[i]);
    EXPECT_EQ(recorded_bytes(), 0u);
    set(IA32_PERFEVTSEL0, 0);
    EXPECT_EQ(pmu_->quiet_instructions(), 0u) << "fixed counter " << i;
    retire(signals[i]);
    EXPECT_NE(recorded_bytes(), 0u) << "fixed counter " << i;
  }
}

// A record of the overflowing event is that counter's, with the groups that are selected for it.
TEST_F(GenerationsTest, ADistributedRecordHasTheGroupsOfItsFixedCounter) {
  const Signal signals[] = {Signal::kInstructions, Signal::kCycles, Signal::kReferenceCycles};
  for (unsigned i = 0; i < 3; ++i) {
    make(kIceLake, [](Behaviour& b) { b.adaptive.pdir_fixed = 0b111; });
    set(MSR_PEBS_DATA_CFG, adaptive::kMemory);
    sample_fixed(i);
    set(IA32_FIXED_CTR_CTRL, get(IA32_FIXED_CTR_CTRL) | fixed_ctrl::adaptive(i));
    EXPECT_EQ(until_record(signals[i]), 0u);
    EXPECT_EQ(record().applicable_counters(), bit(32 + i));
    EXPECT_EQ(record().header() & adaptive::kGroups, adaptive::kMemory) << "fixed counter " << i;
    EXPECT_EQ(get(IA32_FIXED_CTR0 + i), low_bits(48) - 99);
  }
}

TEST_F(GenerationsTest, AfterPowerOnNothingIsSelectedForARecord) {
  make(kSapphireRapids);
  for (uint32_t msr : {MSR_PEBS_DATA_CFG, MSR_PERF_METRICS, MSR_ARCH_LBR_CTL}) {
    EXPECT_EQ(get(msr), 0u) << std::hex << msr;
  }
}

TEST_F(GenerationsTest, CoreTwoSamplesOnPmc0WithOneReset) {
  make(kCore2);
  sample(0, 0x1FC7, 1);
  retire(Signal::kSimd);
  retire(Signal::kSimd);
  EXPECT_EQ(recorded_bytes(), 0x90U);
  EXPECT_EQ(record().ip(), ip_);
  EXPECT_EQ(get(IA32_PMC0), (uint64_t{0} - 1000) & low_bits(40));
  EXPECT_TRUE(faults(IA32_PEBS_ENABLE, 2));
  EXPECT_TRUE(faults(IA32_PERFEVTSEL0 + 2, 0));
}

}  // namespace
}  // namespace skidproof::model
