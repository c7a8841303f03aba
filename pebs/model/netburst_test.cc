// NetBurst's PMU alone, fed by hand. Each test states one rule of the manual.
#include "pebs/model/netburst.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/testing/decisions.h"
#include "pebs/model/testing/flat_memory.h"
#include "pebs/record.h"

namespace skidproof::model {
namespace {

using namespace arch;
namespace nb = arch::netburst;

constexpr uint64_t kLow40 = low_bits(nb::kCounterWidth);
constexpr unsigned kIq4 = 16;  // IQ_COUNTER4, the one that does PEBS

class NetBurstTest : public ::testing::Test {
 protected:
  static const Microarch& row() { return **find_microarch("netburst"); }

  void make(void (*change)(Behaviour&) = [](Behaviour&) {}) {
    Behaviour behaviour = behaviour_of(row());
    change(behaviour);
    memory_ = {};
    pmu_ = std::make_unique<NetBurst>(row(), memory_, behaviour, 1);
    ip_ = 0x1000;
    clock_ = 0;
  }
  void SetUp() override { make(); }

  void set(uint32_t msr, uint64_t value) {
    auto done = pmu_->wrmsr(msr, value);
    ASSERT_TRUE(done) << std::hex << msr << ": " << done.error().text();
  }
  uint64_t get(uint32_t msr) { return pmu_->rdmsr(msr).value(); }
  bool write_faults(uint32_t msr, uint64_t value) {
    auto done = pmu_->wrmsr(msr, value);
    return !done && done.error().code == ErrorCode::kGeneralProtection;
  }
  bool read_faults(uint32_t msr) {
    auto done = pmu_->rdmsr(msr);
    return !done && done.error().code == ErrorCode::kGeneralProtection;
  }

  static const nb::Metric& metric(std::string_view name) {
    return *std::ranges::find(nb::kMetrics, name, &nb::Metric::name);
  }
  static uint64_t escr(uint64_t event, uint64_t mask, uint64_t levels = nb::escr::kOs) {
    return event << nb::escr::kSelectShift | mask << nb::escr::kMaskShift | levels;
  }
  static uint64_t cccr(const nb::Metric& m) {
    return nb::cccr::kEnable | nb::cccr::kAnyThread | uint64_t{m.select} << nb::cccr::kEscrShift;
  }
  // Selects a metric for a counter, tags included.
  void select(unsigned n, std::string_view name, uint64_t cccr_bits = 0,
              uint64_t levels = nb::escr::kOs) {
    const nb::Metric& m = metric(name);
    if (m.upstream_select != 0xFF) {
      set(nb::escr_of(n, m.upstream_select), escr(m.upstream_event, m.upstream_mask, levels));
    }
    if (m.tagging == nb::Tagging::kReplay) {
      set(IA32_PEBS_ENABLE, m.enable | nb::pebs_enable::kUopTag | nb::pebs_enable::kEnable);
      set(nb::MSR_PEBS_MATRIX_VERT, m.matrix);
    }
    set(nb::escr_of(n, m.select), escr(m.event, m.mask, levels));
    set(nb::MSR_BPU_CCCR0 + n, cccr(m) | cccr_bits);
  }
  uint64_t record_bytes() const { return row().record->bytes; }
  void set_up_ds(uint64_t maximum_records, uint64_t threshold_records) {
    memory_.set_field(row().ds.pebs_base, FlatMemory::kBuffer);
    memory_.set_field(row().ds.pebs_index, FlatMemory::kBuffer);
    memory_.set_field(row().ds.pebs_maximum,
                      FlatMemory::kBuffer + maximum_records * record_bytes());
    memory_.set_field(row().ds.pebs_threshold,
                      FlatMemory::kBuffer + threshold_records * record_bytes());
    set(IA32_DS_AREA, FlatMemory::kBase);
  }
  // Samples stores on IQ_COUNTER4 with this period.
  void sample_stores(uint64_t period, uint64_t cccr_bits = 0) {
    memory_.set_field(row().ds.gp_reset(0), (uint64_t{0} - period) & kLow40);
    set(nb::MSR_BPU_COUNTER0 + kIq4, (uint64_t{0} - period) & kLow40);
    set(IA32_PEBS_ENABLE, nb::pebs_enable::kEnable);
    select(kIq4, "memory_stores", cccr_bits);
  }
  // Every register changes with every instruction.
  void retire(Signal signal = Signal::kInstructions, uint64_t cycles = 1000) {
    Retired r = instruction(signal, cycles);
    pmu_->retire(r);
  }
  Retired instruction(Signal signal, uint64_t cycles = 1000) {
    Retired r;
    r.ip = ip_;
    r.length = 4;
    r.counts[index(Signal::kInstructions)] = 1;
    if (signal != Signal::kInstructions) r.counts[index(signal)] = 1;
    r.cycle = clock_ += cycles;
    registers_.ip = ip_ += 4;
    for (uint64_t& gpr : registers_.gpr) gpr = ip_;
    r.after = &registers_;
    return r;
  }
  uint64_t records() {
    return (memory_.field(row().ds.pebs_index) - FlatMemory::kBuffer) / record_bytes();
  }
  Record record(size_t i) {
    return {memory_.at(FlatMemory::kBuffer + i * record_bytes()), row().record};
  }

  FlatMemory memory_;
  std::unique_ptr<NetBurst> pmu_;
  Registers registers_;
  uint64_t ip_ = 0x1000;
  uint64_t clock_ = 0;
};

// --- Registers (N1, N2)

TEST_F(NetBurstTest, HasEighteenCountersAndTheirCccrs) {
  for (unsigned n = 0; n < nb::kCounters; ++n) {
    EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + n), 0u);
    EXPECT_EQ(get(nb::MSR_BPU_CCCR0 + n), 0u);
    set(nb::MSR_BPU_COUNTER0 + n, 0xFFFF'FF00'0000'0000 | (0x80'1234'5600 + n));
    set(nb::MSR_BPU_CCCR0 + n, nb::cccr::kOvfPmi | uint64_t{n % 8} << nb::cccr::kEscrShift);
  }
  for (unsigned n = 0; n < nb::kCounters; ++n) {
    EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + n), 0x80'1234'5600 + n) << "40 bits";
    EXPECT_EQ(get(nb::MSR_BPU_CCCR0 + n),
              nb::cccr::kOvfPmi | uint64_t{n % 8} << nb::cccr::kEscrShift);
  }
  for (const uint32_t first : {nb::MSR_BPU_COUNTER0, nb::MSR_BPU_CCCR0}) {
    for (const uint32_t beyond : {first - 1, first + nb::kCounters}) {
      EXPECT_TRUE(read_faults(beyond));
      EXPECT_TRUE(write_faults(beyond, 0));
    }
  }
}

TEST_F(NetBurstTest, HasFortyFiveEscrs) {
  unsigned found = 0;
  for (uint32_t msr = 0x3A0; msr <= 0x3E1; ++msr) {
    EXPECT_EQ(!read_faults(msr), nb::is_escr(msr)) << std::hex << msr;
    EXPECT_EQ(!write_faults(msr, msr), nb::is_escr(msr)) << std::hex << msr;
    found += nb::is_escr(msr);
  }
  EXPECT_EQ(found, nb::kEscrs);
  for (uint32_t msr = 0x3A0; msr <= 0x3E1; ++msr) {
    if (nb::is_escr(msr)) {
      EXPECT_EQ(get(msr), msr);
    }
  }
}

TEST_F(NetBurstTest, ReservedBitsFaultAndChangeNothing) {
  const struct {
    uint32_t msr;
    uint64_t writable;
  } registers[] = {{nb::MSR_IQ_CCCR4, nb::cccr::kDefined},
                   {nb::MSR_CRU_ESCR2, nb::escr::kDefined},
                   {IA32_PEBS_ENABLE, nb::pebs_enable::kDefined},
                   {nb::MSR_PEBS_MATRIX_VERT, 0x13},
                   {nb::MSR_TC_PRECISE_EVENT, 0xFFFFFFFF}};
  for (const auto& [msr, writable] : registers) {
    set(msr, writable);
    for (unsigned b = 0; b < 64; ++b) {
      if ((writable & bit(b)) != 0) continue;
      EXPECT_TRUE(write_faults(msr, bit(b))) << std::hex << msr;
    }
    EXPECT_EQ(get(msr), writable);
  }
  EXPECT_TRUE(write_faults(IA32_DS_AREA, uint64_t{1} << 63)) << "not canonical";
  set(IA32_DS_AREA, FlatMemory::kBase);
  EXPECT_EQ(get(IA32_DS_AREA), FlatMemory::kBase);
}

TEST_F(NetBurstTest, ArchitecturalRegistersAreAbsent) {
  for (const uint32_t msr :
       {IA32_PMC0, IA32_PERFEVTSEL0, IA32_FIXED_CTR_CTRL, IA32_PERF_GLOBAL_CTRL,
        IA32_PERF_GLOBAL_STATUS, IA32_PERF_GLOBAL_OVF_CTRL}) {
    EXPECT_TRUE(read_faults(msr)) << std::hex << msr;
    EXPECT_TRUE(write_faults(msr, 0)) << std::hex << msr;
  }
}

TEST_F(NetBurstTest, MiscEnableSaysWhatThereIsAndIsReadOnly) {
  EXPECT_EQ(get(IA32_MISC_ENABLE), misc_enable::kPerfmonAvailable);
  set(IA32_MISC_ENABLE, ~uint64_t{0});
  EXPECT_EQ(get(IA32_MISC_ENABLE), misc_enable::kPerfmonAvailable);
  make([](Behaviour& b) { b.pebs_announced = b.bts.announced = false; });
  EXPECT_EQ(get(IA32_MISC_ENABLE), misc_enable::kPerfmonAvailable | misc_enable::kPebsUnavailable |
                                       misc_enable::kBtsUnavailable);
}

TEST_F(NetBurstTest, TheLvtEntryKeepsItsDeliveryStatus) {
  EXPECT_EQ(get(IA32_X2APIC_LVT_PMI), lvt::kMasked);
  set(IA32_X2APIC_LVT_PMI, kWritableLvt | kReadOnlyLvt);
  EXPECT_EQ(get(IA32_X2APIC_LVT_PMI), kWritableLvt);
  EXPECT_TRUE(write_faults(IA32_X2APIC_LVT_PMI, uint64_t{1} << 40));
}

TEST_F(NetBurstTest, RdpmcReadsAllOrTheLowHalf) {
  for (uint32_t n = 0; n < nb::kCounters; ++n) {
    set(nb::MSR_BPU_COUNTER0 + n, 0xAB'0000'0000 + n);
    EXPECT_EQ(pmu_->rdpmc(n, false, false).value(), 0xAB'0000'0000 + n);
    EXPECT_EQ(pmu_->rdpmc(n | 0x8000'0000, false, false).value(), n);
    EXPECT_EQ(pmu_->rdpmc(n, true, true).value(), 0xAB'0000'0000 + n);
    EXPECT_FALSE(pmu_->rdpmc(n, true, false)) << "CR4.PCE is clear";
  }
  EXPECT_FALSE(pmu_->rdpmc(nb::kCounters, false, false));
  EXPECT_FALSE(pmu_->rdpmc(0x4000'0000, false, false));
}

// --- What is counted (N3, N5, N10)

TEST_F(NetBurstTest, ACounterOfEachBlockCountsWhatItsEscrSelects) {
  for (const unsigned n : {12u, 13u, 14u, 15u, 16u, 17u}) {
    make();
    EXPECT_FALSE(pmu_->active());
    select(n, "instr_retired");
    EXPECT_TRUE(pmu_->active());
    for (int i = 0; i < 5; ++i) retire();
    SignalCounts ten{};
    ten[index(Signal::kInstructions)] = 10;
    pmu_->advance(ten, 10);
    for (unsigned other = 0; other < nb::kCounters; ++other) {
      EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + other), other == n ? 15u : 0u) << n << ", " << other;
    }
  }
  for (const unsigned n : {0u, 1u, 2u, 3u}) {
    make();
    select(n, "global_power_events");
    retire(Signal::kCycles);
    SignalCounts ten{};
    ten[index(Signal::kCycles)] = 10;
    pmu_->advance(ten, 10);
    EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + n), 11u);
  }
}

TEST_F(NetBurstTest, AMetricCountsTheSumOfItsSignals) {
  select(12, "2nd_level_load_miss_retired");
  for (const Signal signal : {Signal::kLoadsL3Hit, Signal::kLoadsL3Miss, Signal::kLoadsL2Hit}) {
    retire(signal);
  }
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 12), 2u);
}

TEST_F(NetBurstTest, CountsNothingUnlessAllOfItIsSelected) {
  const nb::Metric& m = metric("instr_retired");
  const uint32_t selecting = nb::escr_of(12, m.select), control = nb::MSR_BPU_CCCR0 + 12;
  const std::pair<uint64_t, uint64_t> wrong[] = {
      {escr(m.event, m.mask), cccr(m) & ~nb::cccr::kEnable},
      {escr(m.event, m.mask), cccr(m) | nb::cccr::kCompare},
      {escr(m.event, m.mask), cccr(m) | nb::cccr::kEdge},
      {escr(m.event, m.mask), cccr(m) | nb::cccr::kForceOvf},
      {escr(m.event, m.mask), cccr(m) | nb::cccr::kCascade},
      {escr(m.event, m.mask), cccr(m) ^ uint64_t{1} << nb::cccr::kEscrShift},
      {escr(m.event, m.mask), cccr(m) | uint64_t{7} << nb::cccr::kEscrShift},
      {escr(m.event, m.mask + 1u), cccr(m)},
      {escr(m.event + 0x10u, m.mask), cccr(m)},
      {escr(m.event, m.mask, nb::escr::kUsr), cccr(m)},
      {escr(m.event, m.mask, 0), cccr(m)},
  };
  for (const auto& [select_value, control_value] : wrong) {
    make();
    set(selecting, select_value);
    set(control, control_value);
    EXPECT_FALSE(pmu_->active()) << std::hex << select_value << " " << control_value;
    retire();
    EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 12), 0u);
  }
  // The event of one ESCR in another that this counter can select as well.
  make();
  const uint64_t other = cccr(m) ^ uint64_t { 1 } << nb::cccr::kEscrShift;
  set(nb::escr_of(12, static_cast<unsigned>(other >> nb::cccr::kEscrShift) & 7),
      escr(m.event, m.mask));
  set(control, other);
  EXPECT_FALSE(pmu_->active());
  make();
  set(selecting, escr(m.event, m.mask));
  set(control, cccr(m));
  retire();
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 12), 1u);
}

TEST_F(NetBurstTest, CountsAtTheLevelsThatTheEscrSelects) {
  for (const uint64_t levels : {nb::escr::kUsr, nb::escr::kOs, nb::escr::kUsr | nb::escr::kOs}) {
    make();
    select(12, "instr_retired", 0, levels);
    pmu_->set_user(true);
    retire();
    EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 12), (levels & nb::escr::kUsr) != 0 ? 1u : 0u);
    pmu_->set_user(false);
    retire();
    EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 12), levels == (nb::escr::kUsr | nb::escr::kOs) ? 2u : 1u);
  }
}

// Uops are tagged by another ESCR, or by tables that MSR_PEBS_ENABLE and MSR_PEBS_MATRIX_VERT choose. [18.15.6]
TEST_F(NetBurstTest, AtRetirementEventsCountTaggedUopsAlone) {
  select(12, "memory_stores");
  retire(Signal::kStores);
  retire(Signal::kLoads);
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 12), 1u);
  set(nb::MSR_RAT_ESCR0, escr(nb::kUopType, nb::kTagLoads));
  retire(Signal::kStores);
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 12), 1u) << "loads are tagged now";
  retire(Signal::kLoads);
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 12), 2u);
  set(nb::MSR_RAT_ESCR0, 0);
  EXPECT_FALSE(pmu_->active());

  make();
  select(12, "split_store_retired");
  const uint64_t tables = get(IA32_PEBS_ENABLE);
  EXPECT_TRUE(pmu_->active());
  retire(Signal::kSplitStores);
  retire(Signal::kSplitLoads);
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 12), 1u);
  set(nb::MSR_PEBS_MATRIX_VERT, 1);
  retire(Signal::kSplitStores);
  retire(Signal::kSplitLoads);
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 12), 2u) << "split loads now";
  for (const uint64_t without : {tables & ~nb::pebs_enable::kUopTag, tables & ~uint64_t{0x400},
                                 tables | 0x200, tables | nb::pebs_enable::kMispredicts}) {
    set(IA32_PEBS_ENABLE, without);
    EXPECT_FALSE(pmu_->active()) << std::hex << without;
  }
  set(IA32_PEBS_ENABLE, tables & ~nb::pebs_enable::kEnable);
  EXPECT_TRUE(pmu_->active()) << "it counts without PEBS";
}

TEST_F(NetBurstTest, AnOverflowSetsOvfAndInterruptsWhereOvfPmiAsksForIt) {
  for (const uint64_t asked : {uint64_t{0}, nb::cccr::kOvfPmi}) {
    make();
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
    set(nb::MSR_BPU_COUNTER0 + 12, kLow40 - 1);
    select(12, "instr_retired", asked);
    retire();
    EXPECT_EQ(get(nb::MSR_BPU_CCCR0 + 12) & nb::cccr::kOvf, 0u);
    retire();
    EXPECT_EQ(get(nb::MSR_BPU_CCCR0 + 12) & nb::cccr::kOvf, nb::cccr::kOvf);
    EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 12), 0u);
    EXPECT_EQ(pmu_->interrupt_pending(), asked != 0);
    retire();
    EXPECT_EQ(get(nb::MSR_BPU_CCCR0 + 12) & nb::cccr::kOvf, nb::cccr::kOvf) << "it stays";
    EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 12), 1u);
  }
}

TEST_F(NetBurstTest, AMaskedEntryDeliversNothingAndDeliveryMasksIt) {
  for (const bool masked : {true, false}) {
    make([](Behaviour& b) { b.rough.pmi_low = b.rough.pmi_high = 3; });
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi | (masked ? lvt::kMasked : 0));
    set(nb::MSR_BPU_COUNTER0 + 12, kLow40);
    select(12, "instr_retired", nb::cccr::kOvfPmi);
    retire();
    EXPECT_EQ(pmu_->interrupt_pending(), !masked);
    if (masked) {
      EXPECT_FALSE(pmu_->take_interrupt());
      continue;
    }
    for (int i = 0; i < 3; ++i) {
      EXPECT_FALSE(pmu_->take_interrupt()) << "it is on its way";
      retire();
    }
    EXPECT_EQ(get(IA32_X2APIC_LVT_PMI) & lvt::kMasked, 0u);
    EXPECT_TRUE(pmu_->take_interrupt());
    EXPECT_EQ(get(IA32_X2APIC_LVT_PMI), lvt::kNmi | lvt::kMasked);
    EXPECT_FALSE(pmu_->interrupt_pending());
    EXPECT_FALSE(pmu_->take_interrupt());
  }
}

TEST_F(NetBurstTest, APendingInterruptIsNotRaisedAgain) {
  make([](Behaviour& b) { b.rough.pmi_low = b.rough.pmi_high = 3; });
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  for (const unsigned n : {12u, 14u}) {
    set(nb::MSR_BPU_COUNTER0 + n, kLow40 - (n - 12));
    select(n, "instr_retired", nb::cccr::kOvfPmi);
  }
  for (int i = 0; i < 4; ++i) retire();
  EXPECT_TRUE(pmu_->take_interrupt()) << "by the first, three instructions ago";
  EXPECT_FALSE(pmu_->interrupt_pending());
}

// What a WRMSR starts counts from the next instruction on.
TEST_F(NetBurstTest, TheWriteThatStartsACounterIsNotCounted) {
  select(14, "instr_retired");
  const nb::Metric& m = metric("instr_retired");
  set(nb::escr_of(12, m.select), escr(m.event, m.mask));
  set(nb::MSR_BPU_CCCR0 + 12, cccr(m));
  pmu_->retire_write(instruction(Signal::kInstructions));
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 12), 0u);
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 14), 1u) << "one that counted before counts it";
  // The entry of the local APIC stands between no write and its retirement.
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  pmu_->retire_write(instruction(Signal::kInstructions));
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 12), 0u);
  set(IA32_DS_AREA, FlatMemory::kBase);
  pmu_->retire_write(instruction(Signal::kInstructions));
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 12), 1u) << "a write that starts nothing is counted";
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 14), 3u);
}

// --- Sampling (N7, N8)

TEST_F(NetBurstTest, RecordsTheEventBehindTheOverflow) {
  set_up_ds(100, 101);
  sample_stores(3);
  for (int i = 0; i < 3; ++i) retire(Signal::kStores);
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + kIq4), 0u);
  EXPECT_EQ(records(), 0u) << "armed";
  retire();
  EXPECT_EQ(records(), 0u) << "no store";
  const uint64_t sampled = ip_;
  retire(Signal::kStores);
  ASSERT_EQ(records(), 1u);
  EXPECT_EQ(record(0).ip(), sampled + 4) << "behind it";
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + kIq4), kLow40 + 1 - 3) << "reloaded";
  for (int i = 0; i < 8; ++i) retire(Signal::kStores);
  EXPECT_EQ(records(), 3u) << "one of four stores: three overflow, the next is recorded";
}

TEST_F(NetBurstTest, IsArmedSomeCyclesBehindTheOverflow) {
  make([](Behaviour& b) { b.rough.arm_low = b.rough.arm_high = 20; });
  set_up_ds(100, 101);
  sample_stores(1);
  retire(Signal::kStores);
  retire(Signal::kStores, 19);
  EXPECT_EQ(records(), 0u);
  retire(Signal::kStores, 1);
  EXPECT_EQ(records(), 1u);
}

// The registers as the sampled instruction found them, or with its results in some of them (R6).
TEST_F(NetBurstTest, RegistersAreThoseBeforeOrBehindTheSampledInstruction) {
  set_up_ds(300, 301);
  sample_stores(1);
  bool before = false, behind = false;
  for (int i = 0; i < 400; ++i) retire(Signal::kStores);
  ASSERT_EQ(records(), 200u);
  for (size_t i = 0; i < 200; ++i) {
    const uint64_t after = record(i).ip();
    for (unsigned g = 0; g < kGprs; ++g) {
      const uint64_t value = record(i).gpr(static_cast<Gpr>(g));
      EXPECT_TRUE(value == after || value == after - 4) << i << ", " << g;
      (value == after ? behind : before) = true;
    }
  }
  EXPECT_TRUE(before);
  EXPECT_TRUE(behind);
}

// Where a record comes later than it should, its instruction is the one that it comes behind.
TEST_F(NetBurstTest, ALongerSkidRecordsALaterInstruction) {
  for (const int skid : {0, 1, 2, 4}) {
    make();
    Behaviour behaviour = behaviour_of(row());
    behaviour.skid_instructions = skid;
    pmu_ = std::make_unique<NetBurst>(row(), memory_, behaviour, 1);
    set_up_ds(100, 101);
    sample_stores(4);
    for (int i = 0; i < 4; ++i) retire(Signal::kStores);
    const uint64_t sampled = ip_;
    retire(Signal::kStores);
    for (int waiting = 1; waiting < skid; ++waiting) {
      EXPECT_EQ(records(), 0u);
      EXPECT_EQ(pmu_->quiet_instructions(1), 0u) << "a record is due";
      set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
      retire();
    }
    ASSERT_EQ(records(), 1u) << skid;
    EXPECT_EQ(record(0).ip(), sampled + 4 * static_cast<uint64_t>(skid));
  }
}

TEST_F(NetBurstTest, ALateRecordIsLostWhenCountingStops) {
  make([](Behaviour& b) { b.skid_instructions = 4; });
  set_up_ds(100, 101);
  sample_stores(1);
  for (int i = 0; i < 2; ++i) retire(Signal::kStores);
  set(nb::MSR_BPU_CCCR0 + kIq4, 0);
  for (int i = 0; i < 4; ++i) retire(Signal::kStores);
  EXPECT_EQ(records(), 0u);
}

// Between an overflow and its record every instruction matters; behind it none does until the next overflow is near.
TEST_F(NetBurstTest, IsQuietUnlessItIsArmed) {
  set_up_ds(100, 101);
  sample_stores(50);
  EXPECT_GT(pmu_->quiet_instructions(1), 10u);
  for (int i = 0; i < 50; ++i) retire(Signal::kStores);
  EXPECT_EQ(pmu_->quiet_instructions(1), 0u);
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  EXPECT_EQ(pmu_->quiet_instructions(1), 0u) << "no register that was written disarmed it";
  retire(Signal::kStores);
  ASSERT_EQ(records(), 1u);
  EXPECT_GT(pmu_->quiet_instructions(1), 10u);
}

// Every decision shows where it is taken, and nothing of it where it is not.
TEST_F(NetBurstTest, EachDecisionShows) {
  constexpr uint64_t kTrBts = bit(2) | bit(3);
  auto sample = [this](int stores) {
    set_up_ds(100, 101);
    sample_stores(5);
    for (int i = 0; i < stores; ++i) retire(Signal::kStores);
  };
  auto trace = [&] {
    memory_.set_field(row().ds.bts_base, FlatMemory::kBuffer + 0x4000);
    memory_.set_field(row().ds.bts_index, FlatMemory::kBuffer + 0x4000);
    memory_.set_field(row().ds.bts_maximum, FlatMemory::kBuffer + 0x5000);
    memory_.set_field(row().ds.bts_threshold, FlatMemory::kBuffer + 0x6000);
    set(IA32_DS_AREA, FlatMemory::kBase);
    set(nb::MSR_DEBUGCTLA, kTrBts);
  };
  auto traced = [&] {
    return (memory_.field(row().ds.bts_index) - FlatMemory::kBuffer - 0x4000) /
           row().branch_record_in(Mode::kLong).bytes;
  };
  const Decision<Behaviour> decisions[] = {
      {"architectural registers answer",
       [](Behaviour& b) { b.netburst.architectural_registers = true; },
       [&] {
         uint64_t answers = 0;
         for (const uint32_t msr :
              {IA32_PMC0, IA32_PERFEVTSEL0, IA32_FIXED_CTR_CTRL, IA32_PERF_GLOBAL_STATUS,
               IA32_PERF_GLOBAL_CTRL, IA32_PERF_GLOBAL_OVF_CTRL, IA32_PERF_GLOBAL_OVF_CTRL + 1}) {
           answers += pmu_->wrmsr(msr, 3) && pmu_->rdmsr(msr).value_or(3) == 0;
         }
         return answers;
       },
       0, 6},
      {"a write takes effect at once", [](Behaviour& b) { b.netburst.first_write_carries = true; },
       [&] {
         set(nb::MSR_BPU_COUNTER0 + kIq4, 0x1'0000'0000);
         sample_stores(5);
         set(nb::MSR_BPU_COUNTER0 + kIq4, 0x2'0000'0000);
         const uint64_t once = get(nb::MSR_BPU_COUNTER0 + kIq4) >> 32;
         set(nb::MSR_BPU_COUNTER0 + kIq4, 0x2'0000'0000);
         return once * 10 + (get(nb::MSR_BPU_COUNTER0 + kIq4) >> 32);
       },
       22, 32},
      {"without an event, too", [](Behaviour& b) { b.netburst.first_write_carries = true; },
       [&] {
         set(nb::MSR_BPU_COUNTER0 + kIq4, 0x2'0000'0000);
         return get(nb::MSR_BPU_COUNTER0 + kIq4) >> 32;
       },
       2, 2},
      {"the overflow itself is recorded", [](Behaviour& b) { b.record_on_overflow = true; },
       [&] {
         sample(5);
         return records();
       },
       0, 1},
      {"no reload", [](Behaviour& b) { b.reload = Reload::kNone; },
       [&] {
         sample(6);
         return get(nb::MSR_BPU_COUNTER0 + kIq4);
       },
       kLow40 + 1 - 5, 1},
      {"one reload", [](Behaviour& b) { b.reload = Reload::kOnlyOnce; },
       [&] {
         sample(12);
         return get(nb::MSR_BPU_COUNTER0 + kIq4);
       },
       kLow40 + 1 - 5, 1},
      {"the state behind", [](Behaviour& b) { b.netburst.late_state = true; },
       [&] {
         sample(6);
         return ip_ - record(0).ip();
       },
       0, 4},
      {"no branch record beside a PEBS record", [](Behaviour& b) { b.bts.beside_pebs = false; },
       [&] {
         trace();
         sample(5);
         for (int i = 0; i < 2; ++i) {
           Retired r = instruction(Signal::kStores);
           r.counts[index(Signal::kNearTaken)] = 1;
           pmu_->retire(r);
         }
         return records() * 10 + traced();
       },
       12, 11},
      {"interrupts are no branches", [](Behaviour& b) { b.bts.interrupts = false; },
       [&] {
         trace();
         pmu_->transfer(0x1111, 0x2222);
         return traced();
       },
       1, 0},
      {"nothing is traced in real-address mode",
       [](Behaviour& b) { b.modes.real_mode_branches = false; },
       [&] {
         set(nb::MSR_DEBUGCTLA, kTrBts);
         EXPECT_TRUE(pmu_->active());
         pmu_->set_mode(Mode::kReal);
         return uint64_t{pmu_->active()};
       },
       1, 0},
      {"RESET keeps MSR_PEBS_ENABLE", [](Behaviour& b) { b.modes.reset_clears_pebs = false; },
       [&] {
         set(IA32_PEBS_ENABLE, nb::pebs_enable::kEnable);
         pmu_->reset();
         return get(IA32_PEBS_ENABLE);
       },
       0, nb::pebs_enable::kEnable},
      {"RESET keeps MSR_DEBUGCTLA", [](Behaviour& b) { b.modes.reset_clears_branches = false; },
       [&] {
         set(nb::MSR_DEBUGCTLA, kTrBts);
         pmu_->reset();
         return get(nb::MSR_DEBUGCTLA) | (pmu_->active() ? 1 : 0);
       },
       0, kTrBts | 1},
      {"RESET forgets that the branch trace store was full",
       [](Behaviour& b) { b.modes.reset_clears_branches = b.bts.resumes_after_rewind = false; },
       [&] {
         trace();
         memory_.set_field(row().ds.bts_maximum, FlatMemory::kBuffer + 0x4000);
         set(nb::MSR_DEBUGCTLA, kTrBts | bit(4));
         pmu_->transfer(0x1111, 0x2222);
         pmu_->reset();
         trace();
         pmu_->transfer(0x1111, 0x2222);
         return traced();
       },
       1, 1},
      {"a machine check ends it for good",
       [](Behaviour& b) { b.modes.machine_check_reversible = false; },
       [&] {
         pmu_->machine_check();
         sample(6);
         return records();
       },
       1, 0},
  };
  expect_each_shows<Behaviour>(decisions, [this](auto change) { make(change); });
}

TEST_F(NetBurstTest, OtherCountersDoNoPebs) {
  for (const unsigned n : {12u, 17u}) {
    make();
    set_up_ds(100, 101);
    set(IA32_PEBS_ENABLE, nb::pebs_enable::kEnable);
    set(nb::MSR_BPU_COUNTER0 + n, kLow40);
    select(n, "memory_stores");
    for (int i = 0; i < 5; ++i) retire(Signal::kStores);
    EXPECT_EQ(records(), 0u);
    EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + n), 4u) << "not reloaded";
  }
}

TEST_F(NetBurstTest, OnlyAtRetirementEventsDoPebs) {
  set_up_ds(100, 101);
  set(IA32_PEBS_ENABLE, nb::pebs_enable::kEnable);
  set(nb::MSR_BPU_COUNTER0 + kIq4, kLow40);
  select(kIq4, "instr_retired");
  for (int i = 0; i < 5; ++i) retire();
  EXPECT_EQ(records(), 0u);
}

TEST_F(NetBurstTest, DisablingPebsDisarms) {
  set_up_ds(100, 101);
  sample_stores(1);
  retire(Signal::kStores);
  set(IA32_PEBS_ENABLE, nb::pebs_enable::kUopTag);
  retire(Signal::kStores);
  EXPECT_EQ(records(), 0u);
  set(IA32_PEBS_ENABLE, nb::pebs_enable::kEnable);
  retire(Signal::kStores);
  EXPECT_EQ(records(), 0u) << "it waits for the next overflow";
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + kIq4), 2u);
}

TEST_F(NetBurstTest, OnlyThePebsCounterIsReloaded) {
  set_up_ds(100, 101);
  sample_stores(5);
  set(nb::MSR_BPU_COUNTER0 + 12, 1000);
  select(12, "instr_retired");
  for (int i = 0; i < 6; ++i) retire(Signal::kStores);
  ASSERT_EQ(records(), 1u);
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 12), 1006u);
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + kIq4), kLow40 + 1 - 5);
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + 0), 0u);
}

TEST_F(NetBurstTest, InterruptsWhenTheIndexReachesTheThreshold) {
  set_up_ds(8, 2);
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  sample_stores(1);
  for (int i = 0; i < 3; ++i) retire(Signal::kStores);
  EXPECT_EQ(records(), 1u);
  EXPECT_FALSE(pmu_->interrupt_pending());
  retire(Signal::kStores);
  EXPECT_EQ(records(), 2u);
  EXPECT_TRUE(pmu_->interrupt_pending());
}

TEST_F(NetBurstTest, AFullBufferTakesNothingAndReloadsNothing) {
  set_up_ds(2, 9);
  sample_stores(1);
  for (int i = 0; i < 12; ++i) retire(Signal::kStores);
  EXPECT_EQ(records(), 2u);
  EXPECT_LT(get(nb::MSR_BPU_COUNTER0 + kIq4), 100u) << "it counts on from the overflow";
}

TEST_F(NetBurstTest, AnAreaThatIsNotMappedTakesNothing) {
  sample_stores(1);
  set(IA32_DS_AREA, 0x1000);
  for (int i = 0; i < 4; ++i) retire(Signal::kStores);
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + kIq4), 3u) << "not reloaded";
  EXPECT_EQ(pmu_->take_stall(), 0u);
}

TEST_F(NetBurstTest, ARecordTakesItsTime) {
  make([](Behaviour& b) { b.rough.assist_cycles = 700; });
  set_up_ds(8, 9);
  sample_stores(1);
  retire(Signal::kStores);
  EXPECT_EQ(pmu_->take_stall(), 0u);
  for (int i = 0; i < 3; ++i) retire(Signal::kStores);
  ASSERT_EQ(records(), 2u);
  EXPECT_EQ(pmu_->take_stall(), 1400u);
  EXPECT_EQ(pmu_->take_stall(), 0u);
}

// Outside IA-32e mode DS area and record have doublewords. [Figures 17-5, 17-7]
TEST_F(NetBurstTest, OutsideIa32eModeTheAreaHasDoublewords) {
  constexpr uint64_t kLowArea = 0x80010000, kLowBuffer = kLowArea + 0x1000;
  const DsLayout& ds = row().ds_in(Mode::kProtected32);
  const RecordLayout& layout = row().record_in(Mode::kProtected32);
  ASSERT_EQ(ds.field_bytes, 4u);
  FlatMemory low(kLowArea);
  NetBurst pmu(row(), low, behaviour_of(row()), 1);
  auto put = [&](uint32_t offset, uint64_t value) {
    const auto narrow = static_cast<uint32_t>(value);
    low.write(kLowArea + offset, std::as_bytes(std::span(&narrow, 1)));
  };
  put(ds.pebs_base, kLowBuffer);
  put(ds.pebs_index, kLowBuffer);
  put(ds.pebs_maximum, kLowBuffer + 10 * layout.bytes);
  put(ds.pebs_threshold, kLowBuffer + 11 * layout.bytes);
  pmu.set_mode(Mode::kProtected32);
  const nb::Metric& m = metric("memory_stores");
  for (const auto& [msr, value] : std::initializer_list<std::pair<uint32_t, uint64_t>>{
           {IA32_DS_AREA, kLowArea},
           {nb::MSR_BPU_COUNTER0 + kIq4, kLow40},
           {IA32_PEBS_ENABLE, nb::pebs_enable::kEnable},
           {nb::escr_of(kIq4, m.upstream_select), escr(m.upstream_event, m.upstream_mask)},
           {nb::escr_of(kIq4, m.select), escr(m.event, m.mask)},
           {nb::MSR_BPU_CCCR0 + kIq4, cccr(m)}}) {
    ASSERT_TRUE(pmu.wrmsr(msr, value));
  }
  for (int i = 0; i < 2; ++i) pmu.retire(instruction(Signal::kStores));
  EXPECT_EQ(static_cast<uint32_t>(low.word(kLowArea + ds.pebs_index)), kLowBuffer + layout.bytes);
  EXPECT_EQ(Record(low.at(kLowBuffer), &layout).ip(), ip_);
}

// A buffer of two records and a byte, which ends seven bytes below the end of the address space: 4 GiB, or 2^64 in
// IA-32e mode. What would cross both is not written, but on a CPU that lets it wrap (P79).
TEST_F(NetBurstTest, KeepsItsMaximumAtTheEndOfTheAddressSpace) {
  for (const Mode mode : {Mode::kProtected32, Mode::kLong}) {
    const DsLayout& ds = row().ds_in(mode);
    const size_t bytes = row().record_in(mode).bytes;
    const uint64_t end = mode == Mode::kLong ? 0 : uint64_t{1} << 32;
    const uint64_t base = end - 8 - 2 * bytes;
    for (const bool end_wraps : {false, true}) {
      constexpr uint64_t kArea = 0x80010000;
      // The area, and how much of each write lies elsewhere.
      class Memory : public Bus {
       public:
        bool read(uint64_t address, std::span<std::byte> into) override {
          return area.read(address, into);
        }
        bool write(uint64_t address, std::span<const std::byte> from) override {
          if (!area.write(address, from)) elsewhere.emplace_back(address, from.size());
          return true;
        }
        FlatMemory area{kArea};
        std::vector<std::pair<uint64_t, size_t>> elsewhere;
      } memory;
      auto put = [&](uint32_t offset, uint64_t value) {
        memory.write(kArea + offset,
                     {reinterpret_cast<const std::byte*>(&value), size_t{ds.field_bytes}});
      };
      Behaviour behaviour = behaviour_of(row());
      behaviour.end_wraps = end_wraps;
      NetBurst pmu(row(), memory, behaviour, 1);
      pmu.set_mode(mode);
      put(ds.pebs_base, base);
      put(ds.pebs_index, base);
      put(ds.pebs_maximum, end - 7);
      put(ds.pebs_threshold, end - 1);
      put(ds.gp_reset(0), 0);
      const nb::Metric& m = metric("memory_stores");
      for (const auto& [msr, value] : std::initializer_list<std::pair<uint32_t, uint64_t>>{
               {IA32_DS_AREA, kArea},
               {IA32_PEBS_ENABLE, nb::pebs_enable::kEnable},
               {nb::escr_of(kIq4, m.upstream_select), escr(m.upstream_event, m.upstream_mask)},
               {nb::escr_of(kIq4, m.select), escr(m.event, m.mask)},
               {nb::MSR_BPU_CCCR0 + kIq4, cccr(m)}}) {
        ASSERT_TRUE(pmu.wrmsr(msr, value));
      }
      for (int i = 0; i < 4; ++i) {
        ASSERT_TRUE(pmu.wrmsr(nb::MSR_BPU_COUNTER0 + kIq4, low_bits(40)));
        for (int n = 0; n < 2; ++n) pmu.retire(instruction(Signal::kStores));
      }
      std::vector<std::pair<uint64_t, size_t>> expected = {{base, bytes}, {base + bytes, bytes}};
      if (end_wraps) {
        expected.emplace_back(0, bytes - 8);
        expected.emplace_back(end - 8, 8);
      }
      EXPECT_EQ(memory.elsewhere, expected) << name_of(mode);
    }
  }
}

// --- Modes (R56, R57)

TEST_F(NetBurstTest, NothingIsRecordedInSmm) {
  set_up_ds(100, 101);
  sample_stores(1);
  retire(Signal::kStores);
  pmu_->enter_smm();
  retire(Signal::kStores);
  EXPECT_EQ(records(), 0u);
  EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + kIq4), 1u) << "it counts";
  pmu_->leave_smm();
  retire(Signal::kStores);
  EXPECT_EQ(records(), 1u) << "it stayed armed";
  EXPECT_EQ(get(IA32_PEBS_ENABLE), nb::pebs_enable::kEnable);
}

TEST_F(NetBurstTest, AMachineCheckDisablesPebsAndSoftwareEnablesItAgain) {
  set_up_ds(100, 101);
  sample_stores(1);
  retire(Signal::kStores);
  pmu_->machine_check();
  EXPECT_EQ(get(IA32_PEBS_ENABLE), 0u);
  retire(Signal::kStores);
  retire(Signal::kStores);
  EXPECT_EQ(records(), 0u);
  set(nb::MSR_BPU_COUNTER0 + kIq4, kLow40);
  set(IA32_PEBS_ENABLE, nb::pebs_enable::kEnable);
  retire(Signal::kStores);
  retire(Signal::kStores);
  EXPECT_EQ(records(), 1u);
}

// Counters, CCCRs and ESCRs keep their values through INIT; RESET is power-on.
TEST_F(NetBurstTest, InitKeepsTheCountersAndResetKeepsNothing) {
  for (const bool resets : {false, true}) {
    make();
    set_up_ds(100, 101);
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
    set(nb::MSR_TC_PRECISE_EVENT, 5);
    set(nb::MSR_DEBUGCTLA, bit(2) | bit(3));
    sample_stores(1, nb::cccr::kOvfPmi);
    set(nb::MSR_PEBS_MATRIX_VERT, 1);
    retire(Signal::kStores);
    ASSERT_TRUE(pmu_->interrupt_pending());
    resets ? pmu_->reset() : pmu_->init();
    EXPECT_FALSE(pmu_->interrupt_pending());
    EXPECT_EQ(get(IA32_X2APIC_LVT_PMI), lvt::kMasked);
    EXPECT_EQ(get(IA32_PEBS_ENABLE), 0u);
    EXPECT_EQ(get(nb::MSR_DEBUGCTLA), 0u);
    EXPECT_EQ(get(nb::MSR_BPU_CCCR0 + kIq4) != 0, !resets);
    EXPECT_EQ(get(nb::MSR_CRU_ESCR2) != 0, !resets);
    EXPECT_EQ(get(nb::MSR_RAT_ESCR0) != 0, !resets);
    EXPECT_EQ(get(nb::MSR_TC_PRECISE_EVENT) != 0, !resets);
    EXPECT_EQ(get(nb::MSR_PEBS_MATRIX_VERT) != 0, !resets);
    EXPECT_EQ(get(IA32_DS_AREA) != 0, !resets);
    EXPECT_EQ(pmu_->active(), !resets) << "tracing stopped; the counter counts on";
    retire(Signal::kStores);
    EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + kIq4), resets ? 0u : 1u);
    EXPECT_EQ(records(), 0u) << "not armed any more";
    set(nb::MSR_BPU_COUNTER0 + kIq4, ~uint64_t{0});
    EXPECT_EQ(get(nb::MSR_BPU_COUNTER0 + kIq4), kLow40);
  }
}

TEST_F(NetBurstTest, InitLeavesSmm) {
  set_up_ds(100, 101);
  pmu_->enter_smm();
  pmu_->init();
  sample_stores(1);
  retire(Signal::kStores);
  retire(Signal::kStores);
  EXPECT_EQ(records(), 1u);
  pmu_->enter_smm();
  pmu_->reset();
  set(IA32_DS_AREA, FlatMemory::kBase);
  sample_stores(1);
  retire(Signal::kStores);
  retire(Signal::kStores);
  EXPECT_EQ(records(), 2u);
}

}  // namespace
}  // namespace skidproof::model
