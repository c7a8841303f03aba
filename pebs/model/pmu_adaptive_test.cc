// Which counters sample what, and what came with adaptive records: fixed counters, groups, store samples, branches.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "pebs/arch/data_source.h"
#include "pebs/arch/generations.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/branch_ring.h"
#include "pebs/model/pmu.h"
#include "pebs/model/testing/flat_memory.h"
#include "pebs/record.h"

namespace skidproof::model {
namespace {

using namespace arch;

class PmuSamplingTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kPhysical = 0x10000;    // the memory, of architectural PEBS
  static constexpr uint64_t kReload = 0xFFFF'FC18;  // a thousand events
  void make(const Microarch& row, const Rough& rough = {}) { make(row, behaviour_of(row, rough)); }
  void make(const Microarch& row, const Behaviour& behaviour) {
    uarch_ = row_of(row, behaviour.rough);
    memory_ = {};
    pmu_ = std::make_unique<Pmu>(row, Topology{.sibling_thread = false}, memory_, behaviour, 1);
    if (row.architectural_pebs()) {
      memory_ = FlatMemory(kPhysical);
      set(IA32_PEBS_BASE, kPhysical | 3);
      set(IA32_PEBS_INDEX, pebs_index::kEnable | pebs_index::threshold_field(0x9000));
    } else {
      memory_.lay_out_pebs(row.ds, 0x8000, 0x9000);
      set(IA32_DS_AREA, FlatMemory::kBase);
    }
    ip_ = 0x1000;
    cycle_ = 0;
  }
  void make(std::string_view name, const Rough& rough = {}) { make(**find_microarch(name), rough); }
  void set(uint32_t msr, uint64_t value) {
    auto done = pmu_->wrmsr(msr, value);
    ASSERT_TRUE(done) << std::hex << msr << ": " << done.error().text();
  }
  uint64_t get(uint32_t msr) { return pmu_->rdmsr(msr).value(); }
  // Samples an event on PMCn with this period; the slot says `reset` from the overflow.
  void sample(unsigned n, uint64_t select, uint64_t period, uint64_t reset = 1000) {
    memory_.set_field(uarch_.ds.gp_reset(n), (uint64_t{0} - reset) & gp_counter_mask(uarch_));
    set(IA32_PMC0 + n, uint64_t{0} - period);
    set(IA32_PERFEVTSEL0 + n, select | evtsel::kOs | evtsel::kEnable);
    start(bit(n));
  }
  void sample_fixed(unsigned i, uint64_t period, uint64_t reset = 1000, uint64_t bits = 0) {
    memory_.set_field(uarch_.ds.fixed_counter_reset(i), (uint64_t{0} - reset) & low_bits(48));
    set(IA32_FIXED_CTR0 + i, (uint64_t{0} - period) & low_bits(48));
    set(IA32_FIXED_CTR_CTRL,
        get(IA32_FIXED_CTR_CTRL) | fixed_ctrl::field(i, fixed_ctrl::kOs) | bits);
    start(bit(status::kFixedShift + i));
  }
  void start(uint64_t bits) {
    if (uarch_.architectural_pebs()) {
      for (unsigned n = 0; n < status::kFixedShift + 8; ++n) {
        if ((bits >> n & 1) == 0) continue;
        const bool fixed = n >= status::kFixedShift;
        set(fixed ? IA32_PMC_FX0_CFG_C + kBankStride * (n - status::kFixedShift)
                  : IA32_PMC_GP0_CFG_C + kBankStride * n,
            cfg_c::kEnable | kReload);
      }
      set(IA32_PERF_GLOBAL_CTRL, get(IA32_PERF_GLOBAL_CTRL) | bits);
      return;
    }
    const uint64_t able = uarch_.pebs_counters | uint64_t{uarch_.pebs_fixed_counters}
                                                     << pebs_enable::kFixedShift;
    set(IA32_PEBS_ENABLE, get(IA32_PEBS_ENABLE) | (bits & able));
    set(IA32_PERF_GLOBAL_CTRL, get(IA32_PERF_GLOBAL_CTRL) | bits);
  }
  // One instruction of four bytes with one event of the signal, by default a hundred cycles after the last.
  void retire(Signal signal, const Access& load = {}, const Access& store = {}, uint64_t events = 1,
              uint64_t cycles = 100) {
    Retired r;
    r.ip = ip_;
    r.length = 4;
    r.counts[index(Signal::kInstructions)] = 1;
    r.counts[index(Signal::kCycles)] = cycles;
    r.counts[index(signal)] = events;
    r.load = load;
    r.store = store;
    r.cycle = r.tsc = cycle_ += cycles;
    registers_.ip = ip_ += 4;
    r.after = &registers_;
    pmu_->retire(r);
  }
  uint64_t recorded_bytes() {
    if (uarch_.architectural_pebs()) return pebs_index::write_bytes(get(IA32_PEBS_INDEX));
    return memory_.field(uarch_.ds.pebs_index) - FlatMemory::kBuffer;
  }
  std::vector<Record> records() {
    std::vector<Record> all;
    for (const Record& r :
         Records({memory_.at(FlatMemory::kBuffer), recorded_bytes()}, uarch_.record)) {
      all.push_back(r);
    }
    return all;
  }
  uint64_t groups_of(const Record& r) { return r.header() & adaptive::kGroups; }

  Microarch uarch_;
  FlatMemory memory_;
  std::unique_ptr<Pmu> pmu_;
  Registers registers_;
  uint64_t ip_ = 0x1000, cycle_ = 0;
};

// Every published event on every counter: where it counts, and where PEBS takes it.
TEST_F(PmuSamplingTest, EachEventCountsAndIsSampledWhereItIsPublished) {
  for (const Microarch* row : microarchs()) {
    if (!row->architectural_perfmon()) continue;
    for (const Event& event : row->events) {
      if (event.signal == Signal::kNone || event.kind == EventKind::kLoadLatency) continue;
      if (event.cmask != 0 || event.invert || event.kind == EventKind::kFrontend) continue;
      if (event.counters == 0) continue;  // fixed counters alone
      for (unsigned n = 0; n < row->gp_counters_alone; ++n) {
        make(*row);
        ASSERT_TRUE(row->pebs_in_ds_area() || (row->pebs_counters >> n & 1) != 0);
        const bool of_stores = event.kind == EventKind::kPreciseStore;
        const bool sampled_store = event.kind == EventKind::kStoreSample;
        sample(n, event.select_fields(), 1);
        if (of_stores) set(IA32_PEBS_ENABLE, get(IA32_PEBS_ENABLE) | pebs_enable::kPreciseStore);
        const uint16_t store_counters = of_stores       ? row->precise_store_counter
                                        : sampled_store ? row->store_sample_counter
                                                        : 0;
        const bool counts = ((event.counters | store_counters) >> n & 1) != 0;
        retire(event.signal);
        EXPECT_EQ(get(IA32_PMC0 + n) != gp_counter_mask(*row), counts)
            << row->name << " " << event.name << " PMC" << n;
        for (int i = 0; i < 3; ++i) retire(event.signal);
        if (!counts) {
          EXPECT_EQ(recorded_bytes(), 0u) << row->name << " " << event.name << " PMC" << n;
          continue;
        }
        const uint16_t taken =
            of_stores || sampled_store
                ? store_counters
                : static_cast<uint16_t>(event.pebs_counters & row->pebs_counters);
        const bool records_it = (row->pebs_any_event && (row->pebs_counters >> n & 1) != 0) ||
                                (event.precise() && (taken >> n & 1) != 0);
        EXPECT_EQ(recorded_bytes() != 0, records_it)
            << row->name << " " << event.name << " PMC" << n;
      }
    }
  }
}

// A counter of PDIR records the overflowing event itself, any other the one behind. [R13, R62]
TEST_F(PmuSamplingTest, PdirRecordsTheOverflowingEvent) {
  for (const Microarch* row : microarchs()) {
    if (!row->architectural_perfmon() || row->pebs_any_event) continue;
    for (const Event& event : row->events) {
      if (event.kind != EventKind::kPdir || event.signal != Signal::kInstructions) continue;
      for (unsigned n = 0; n < 4; ++n) {
        if ((event.counters >> n & 1) == 0) continue;
        make(*row);
        sample(n, event.select(), 2);
        retire(Signal::kInstructions);
        retire(Signal::kInstructions);
        EXPECT_EQ(recorded_bytes() != 0, (row->pdir_counter >> n & 1) != 0) << row->name << n;
      }
    }
  }
}

TEST_F(PmuSamplingTest, APrivilegeLevelThatDoesNotCountIsNotSampled) {
  make("sandy-bridge");
  sample(0, 0x82D0, 1);
  pmu_->set_user(true);
  for (int i = 0; i < 5; ++i) retire(Signal::kStores);
  EXPECT_EQ(recorded_bytes(), 0u);
  EXPECT_EQ(get(IA32_PMC0), low_bits(48));
}

// --- Fixed counters (R36, R60)

TEST_F(PmuSamplingTest, EachFixedCounterThatCanIsSampledAndReloadedFromItsOwnSlot) {
  constexpr Signal kSignals[] = {Signal::kInstructions, Signal::kCycles, Signal::kReferenceCycles,
                                 Signal::kSlots};
  for (const char* name : {"ice-lake", "alder-lake-p", "sapphire-rapids"}) {
    const Microarch& row = **find_microarch(name);
    for (unsigned i = 0; i < row.fixed_counters; ++i) {
      if ((row.pebs_fixed_counters >> i & 1) == 0) continue;
      make(row);
      for (unsigned other = 0; other < row.ds.fixed_resets; ++other) {
        memory_.set_field(row.ds.fixed_counter_reset(other), 0x1000 + other);
      }
      sample_fixed(i, 1, 5000 + i);
      for (int k = 0; k < 8 && recorded_bytes() == 0; ++k) retire(kSignals[i], {}, {}, 1);
      ASSERT_EQ(records().size(), 1u) << name << " fixed counter " << i;
      EXPECT_EQ(records()[0].applicable_counters(), bit(32 + i)) << name;
      EXPECT_GE(get(IA32_FIXED_CTR0 + i), low_bits(48) - (5000 + i)) << name;
      EXPECT_LE(get(IA32_FIXED_CTR0 + i), low_bits(48) - 3000) << name;
      EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS) & ~status::kOvfBuffer, 0u) << "cleared by the record";
      for (unsigned other = 0; other < row.fixed_counters; ++other) {
        if (other == i) continue;
        EXPECT_EQ(get(IA32_FIXED_CTR0 + other), 0u) << name << other;
      }
      const uint64_t bytes = recorded_bytes();
      for (int k = 0; k < 4; ++k) retire(kSignals[i], {}, {}, 1);
      EXPECT_EQ(recorded_bytes(), bytes) << "not armed again: " << name << i;
      set(IA32_PERFEVTSEL0, 0);
      retire(kSignals[i], {}, {}, 1);
      EXPECT_EQ(recorded_bytes(), bytes)
          << "nor by a write that is none of its business: " << name << i;
    }
  }
}

// The shadow of the overflow is of a fixed counter, too. [R15]
TEST_F(PmuSamplingTest, AnArmedFixedCounterTakesNothingInTheShadow) {
  Rough rough;
  rough.arm_low = rough.arm_high = 20;
  make("ice-lake", rough);
  sample_fixed(1, 1);
  retire(Signal::kCycles);
  retire(Signal::kStores, {}, {}, 1, 19);
  EXPECT_EQ(recorded_bytes(), 0u);
  retire(Signal::kStores, {}, {}, 1, 1);
  EXPECT_EQ(records().size(), 1u);
}

// What is armed stays so until PEBS is disabled for it, and then for good. [R39]
TEST_F(PmuSamplingTest, DisablingPebsDisarmsAFixedCounterAndNoOtherWriteDoes) {
  for (const bool disabled : {false, true}) {
    make("ice-lake");
    sample_fixed(1, 1);
    retire(Signal::kCycles);
    set(IA32_PERFEVTSEL0, 0);
    if (disabled) {
      set(IA32_PEBS_ENABLE, 0);
      set(IA32_PEBS_ENABLE, bit(33));
    }
    retire(Signal::kStores);
    EXPECT_EQ(records().size(), disabled ? 0u : 1u);
  }
}

// The decision is a mask of fixed counters: those record the overflowing event, the others the next one.
TEST_F(PmuSamplingTest, TheDistributedFixedCountersAreThoseOfTheMask) {
  constexpr Signal kSignals[] = {Signal::kInstructions, Signal::kCycles, Signal::kReferenceCycles,
                                 Signal::kSlots};
  const Microarch& row = **find_microarch("ice-lake");
  for (unsigned distributed = 0; distributed < row.fixed_counters; ++distributed) {
    for (unsigned i = 0; i < row.fixed_counters; ++i) {
      Behaviour behaviour = behaviour_of(row);
      behaviour.adaptive.pdir_fixed = static_cast<uint8_t>(1 << distributed);
      make(row, behaviour);
      sample_fixed(i, 1);
      retire(kSignals[i]);
      EXPECT_EQ(records().size(), i == distributed ? 1u : 0u) << i << " by " << distributed;
    }
  }
}

TEST_F(PmuSamplingTest, AFixedCounterWithoutPebsCountsAndRecordsNothing) {
  make("ice-lake");
  set(IA32_FIXED_CTR0, low_bits(48));
  set(IA32_FIXED_CTR_CTRL, 1);
  set(IA32_PERF_GLOBAL_CTRL, bit(32));
  for (int k = 0; k < 5; ++k) retire(Signal::kInstructions);
  EXPECT_EQ(recorded_bytes(), 0u);
  EXPECT_EQ(get(IA32_FIXED_CTR0), 4u);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), bit(32));
}

TEST_F(PmuSamplingTest, AFixedCounterInterruptsWhereItIsAskedTo) {
  for (const bool asked : {false, true}) {
    for (unsigned i = 0; i < 3; ++i) {
      make("sandy-bridge");
      set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
      set(IA32_FIXED_CTR0 + i, low_bits(48));
      set(IA32_FIXED_CTR_CTRL,
          fixed_ctrl::field(i, fixed_ctrl::kOs | (asked ? fixed_ctrl::kPmi : 0)));
      set(IA32_PERF_GLOBAL_CTRL, bit(32 + i));
      retire(Signal::kReferenceCycles);
      EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), bit(32 + i));
      EXPECT_EQ(pmu_->interrupt_pending(), asked) << i;
    }
  }
}

TEST_F(PmuSamplingTest, ReferenceCyclesCountOneForOne) {
  make("sandy-bridge");
  set(IA32_FIXED_CTR_CTRL, 0x111);
  set(IA32_PERF_GLOBAL_CTRL, bit(32) | bit(33) | bit(34));
  for (int k = 0; k < 7; ++k) retire(Signal::kReferenceCycles, {}, {}, 13);
  EXPECT_EQ(get(IA32_FIXED_CTR0), 7u);
  EXPECT_EQ(get(IA32_FIXED_CTR0 + 1), 700u);
  EXPECT_EQ(get(IA32_FIXED_CTR0 + 2), 91u);
}

// --- Groups (A4)

TEST_F(PmuSamplingTest, ARecordHasTheGroupsWhereItsCountersAdaptiveBitIsSet) {
  constexpr uint64_t kAsked = adaptive::kMemory | adaptive::kGprs;
  make("ice-lake");
  const unsigned counters = uarch_.gp_counters_alone;
  for (unsigned n = 0; n < counters; ++n) {
    for (const bool own : {false, true}) {
      make("ice-lake");
      set(MSR_PEBS_DATA_CFG, kAsked);
      // The bits of the others say nothing.
      for (unsigned other = 0; other < counters; ++other) {
        set(IA32_PERFEVTSEL0 + other, own ? 0 : evtsel::kAdaptive);
      }
      set(IA32_FIXED_CTR_CTRL, own ? 0 : fixed_ctrl::adaptive(0) | fixed_ctrl::adaptive(1));
      sample(n, 0x00C4 | (own ? evtsel::kAdaptive : 0), 1);
      retire(Signal::kBranches);
      retire(Signal::kBranches);
      ASSERT_EQ(records().size(), 1u) << "PMC" << n;
      EXPECT_EQ(groups_of(records()[0]), own ? kAsked : 0u) << "PMC" << n;
      EXPECT_EQ(recorded_bytes(), adaptive::record_bytes(own ? kAsked : 0)) << "PMC" << n;
      EXPECT_EQ(records()[0].applicable_counters(), bit(n));
    }
  }
  for (unsigned i = 0; i < 2; ++i) {
    for (const bool own : {false, true}) {
      make("ice-lake");
      set(MSR_PEBS_DATA_CFG, kAsked);
      sample_fixed(i, 1, 100000, own ? fixed_ctrl::adaptive(i) : fixed_ctrl::adaptive(1 - i));
      for (int k = 0; k < 4; ++k) retire(Signal::kStores);
      ASSERT_GE(records().size(), 1u) << i;
      EXPECT_EQ(groups_of(records()[0]), own ? kAsked : 0u) << i;
    }
  }
}

// The bounds check is of the record's own size. [A5]
TEST_F(PmuSamplingTest, ARecordIsWrittenWhereAllOfItsGroupsFit) {
  for (uint64_t groups = 0; groups <= adaptive::kGroups; ++groups) {
    const uint64_t config = groups | uint64_t{31} << adaptive::kBranchEntriesShift;
    for (const bool own : {false, true}) {
      const uint64_t bytes = adaptive::record_bytes(own ? config : 0);
      for (const uint64_t room : {bytes - 1, bytes}) {
        make("ice-lake");
        memory_.set_field(uarch_.ds.pebs_maximum, FlatMemory::kBuffer + room);
        set(MSR_PEBS_DATA_CFG, config);
        sample(0, 0x82D0 | (own ? evtsel::kAdaptive : 0), 1);
        for (int k = 0; k < 2; ++k) retire(Signal::kStores);
        EXPECT_EQ(recorded_bytes(), room < bytes ? 0 : bytes) << groups << own;
      }
    }
  }
}

TEST_F(PmuSamplingTest, OneCounterOfARecordIsEnoughForItsGroups) {
  for (unsigned with = 0; with < 2; ++with) {
    make("ice-lake");
    set(MSR_PEBS_DATA_CFG, adaptive::kGprs);
    for (unsigned n = 0; n < 2; ++n) sample(n, 0x82D0 | (n == with ? evtsel::kAdaptive : 0), 1);
    retire(Signal::kStores);
    retire(Signal::kStores);
    ASSERT_EQ(records().size(), 1u);
    EXPECT_EQ(groups_of(records()[0]), adaptive::kGprs);
    EXPECT_EQ(records()[0].applicable_counters(), 3u);
  }
}

TEST_F(PmuSamplingTest, ARecordHoldsTheRegistersBehindTheSampledInstruction) {
  make("ice-lake");
  set(MSR_PEBS_DATA_CFG, adaptive::kGprs);
  registers_.flags = 0x246;
  for (unsigned g = 0; g < kGprs; ++g) registers_.gpr[g] = 0x1111 * (g + 1);
  sample(0, 0x82D0 | evtsel::kAdaptive, 1);
  retire(Signal::kStores);
  const uint64_t sampled = ip_;
  retire(Signal::kStores);
  ASSERT_EQ(records().size(), 1u);
  const Record r = records()[0];
  EXPECT_EQ(r.flags(), 0x246u);
  EXPECT_EQ(r.ip(), sampled + 4);
  EXPECT_EQ(r.eventing_ip(), sampled);
  EXPECT_EQ(r.tsc(), cycle_);
  for (unsigned g = 0; g < kGprs; ++g) EXPECT_EQ(r.gpr(static_cast<Gpr>(g)), 0x1111 * (g + 1)) << g;
}

TEST_F(PmuSamplingTest, ARecordOfGoldenCoveMayHoldTheRetireLatency) {
  Rough rough;
  rough.retire_latency = 1;
  make("sapphire-rapids", rough);
  set(MSR_PEBS_DATA_CFG, 0);
  sample(1, 0x82D0, 1);
  retire(Signal::kStores);
  retire(Signal::kStores);
  ASSERT_EQ(records().size(), 1u);
  EXPECT_EQ(records()[0].retire_latency(), 100u);
}

TEST_F(PmuSamplingTest, ARecordOfASlowLoadSaysWhereItWentAndHowLongItTook) {
  Rough rough;
  rough.tagging = 1;
  make("sapphire-rapids", rough);
  set(MSR_PEBS_DATA_CFG, adaptive::kMemory);
  set(MSR_PEBS_LD_LAT_THRESHOLD, 30);
  sample(1, uarch_.load_latency_event | evtsel::kAdaptive, 1);
  const Access load{
      .valid = true, .source = 4, .latency = 77, .cache_latency = 55, .address = 0x7FFF'1234'5678};
  for (int k = 0; k < 3; ++k) retire(Signal::kLoads, load);
  ASSERT_EQ(records().size(), 1u);
  const Record r = records()[0];
  EXPECT_EQ(r.data_address(), load.address);
  EXPECT_EQ(r.data_source(), 4u);
  EXPECT_EQ(r.latency(), 77u);
  EXPECT_EQ(r.cache_latency(), 55u);
}

// --- Store samples

TEST_F(PmuSamplingTest, AStoreSampleSaysWhereTheStoreWentAndHowLongItTook) {
  const Microarch& row = **find_microarch("sapphire-rapids");
  const auto event = std::ranges::find(row.events, EventKind::kStoreSample, &Event::kind);
  ASSERT_NE(event, row.events.end());
  const auto n = static_cast<unsigned>(__builtin_ctz(row.store_sample_counter));
  for (const bool missed : {false, true}) {
    for (const bool locked : {false, true}) {
      make(row);
      set(MSR_PEBS_DATA_CFG, adaptive::kMemory);
      sample(n, event->select() | evtsel::kAdaptive, 1);
      const Access store{.valid = true,
                         .stlb_miss = missed,
                         .locked = locked,
                         .source = 6,
                         .latency = 77,
                         .cache_latency = 55,
                         .address = 0x7FFF'1234'5678};
      for (int k = 0; k < 3; ++k) retire(event->signal, {}, store);
      ASSERT_EQ(records().size(), 1u);
      const Record r = records()[0];
      EXPECT_EQ(r.data_address(), store.address);
      EXPECT_EQ(r.data_source(),
                6u | (missed ? row.access.stlb_miss : 0) | (locked ? row.access.locked : 0));
      EXPECT_EQ(r.latency(), 77u);
      EXPECT_EQ(r.cache_latency(), 55u);
    }
  }
}

// --- Branches

TEST_F(PmuSamplingTest, ARecordHoldsTheLastBranchesTakenWhileLbrsRecord) {
  for (const char* name : {"ice-lake", "sapphire-rapids"}) {
    for (const bool recording : {true, false}) {
      make(name);
      const bool own = uarch_.architectural_lbr();
      const uint32_t control = own ? MSR_ARCH_LBR_CTL : IA32_DEBUGCTL;
      const uint64_t every = own ? lbr_ctl::kEnable | lbr_ctl::kOs | lbr_ctl::kUsr : debugctl::kLbr;
      set(MSR_PEBS_DATA_CFG, adaptive::kBranches | uint64_t{3} << adaptive::kBranchEntriesShift);
      set(control, recording ? every : 0);
      sample(0, 0x82D0 | evtsel::kAdaptive, 1);
      const uint64_t first = ip_;
      retire(Signal::kNearTaken);
      retire(Signal::kBranches);  // falls through
      Retired r;
      r.ip = ip_;
      r.length = 4;
      r.counts[index(Signal::kNearTaken)] = r.counts[index(Signal::kMispredicts)] = 1;
      r.cycle = cycle_ += 40;
      registers_.ip = 0x9000;
      r.after = &registers_;
      pmu_->retire(r);
      const uint64_t second = ip_;
      ip_ = 0x9000;
      retire(Signal::kStores);
      retire(Signal::kStores);
      ASSERT_EQ(records().size(), 1u) << name;
      const Record record = records()[0];
      ASSERT_EQ(record.branches(), 4u);
      const BranchEntry newest = record.branch(0), older = record.branch(1);
      EXPECT_EQ(newest.from, recording ? second : 0u) << name;
      EXPECT_EQ(newest.to, recording ? 0x9000u : 0u) << name;
      EXPECT_EQ(newest.info, recording ? branch_info::kMispredicted | 140 : 0u) << name;
      EXPECT_EQ(older.from, recording ? first : 0u) << name;
      EXPECT_EQ(older.to, recording ? first + 4 : 0u) << name;
      EXPECT_EQ(older.info, 0u) << "the first: nothing came before";
      EXPECT_EQ(record.branch(2).from, 0u);
    }
  }
}

TEST_F(PmuSamplingTest, LastBranchesNeedEachInstruction) {
  make("ice-lake");
  set(MSR_PEBS_DATA_CFG, adaptive::kBranches);
  set(IA32_DEBUGCTL, 1);
  sample(0, 0x82D0, 100000);
  EXPECT_EQ(pmu_->quiet_instructions(), 0u);
  set(IA32_DEBUGCTL, 0);
  EXPECT_GT(pmu_->quiet_instructions(), 0u) << "no LBRs";
  set(IA32_DEBUGCTL, 1);
  set(IA32_PERF_GLOBAL_CTRL, 0);
  EXPECT_EQ(pmu_->quiet_instructions(), 0u) << "the stack is not only the record's";
}

TEST_F(PmuSamplingTest, TheRingKeepsTheLastThirtyTwo) {
  BranchRing ring;
  EXPECT_EQ(ring.back(0).from, 0u);
  for (uint64_t i = 1; i <= 100; ++i) ring.add(i, 2 * i, i % 3 == 0, 10 * i * i);
  for (unsigned i = 0; i < BranchRing::kDepth; ++i) {
    const uint64_t which = 100 - i;
    EXPECT_EQ(ring.back(i).from, which);
    EXPECT_EQ(ring.back(i).to, 2 * which);
    EXPECT_EQ(ring.back(i).info & branch_info::kMostCycles, 10 * (2 * which - 1));
    EXPECT_EQ((ring.back(i).info & branch_info::kMispredicted) != 0, which % 3 == 0);
  }
  ring.add(1, 2, false, 10 * 100 * 100 + 0x12345);
  EXPECT_EQ(ring.back(0).info, branch_info::kMostCycles) << "it saturates";
  ring.clear();
  EXPECT_EQ(ring.back(0).from, 0u);
  ring.add(7, 8, false, 500);
  EXPECT_EQ(ring.back(0).info, 0u) << "the first";
  EXPECT_EQ(ring.back(1).from, 0u);
}

// --- E-cores

// How many events of a signal, one each cycle, from the one that overflows to the recorded one.
TEST_F(PmuSamplingTest, ReducedSkidIsOneEventHoweverSoonItComes) {
  const auto distance = [&](const Microarch& row, unsigned n, uint64_t select, Signal signal,
                            void (*change)(Behaviour&) = nullptr) {
    Behaviour behaviour = behaviour_of(row);
    if (change != nullptr) change(behaviour);
    make(row, behaviour);
    sample(n, select, 1);
    unsigned events = 0;
    while (recorded_bytes() == 0 && events < 50) {
      retire(signal, {.valid = signal == Signal::kLoads}, {}, 1, 1);
      ++events;
    }
    return events - 1;
  };
  for (const Microarch* row : {&kGoldmont, &kGoldmontPlus, &kTremont}) {
    SCOPED_TRACE(std::string(row->name));
    EXPECT_EQ(distance(*row, 0, 0x81D0, Signal::kLoads), 1u);
    EXPECT_EQ(distance(*row, 0, 0xC0, Signal::kInstructions), 1u);
    EXPECT_GT(distance(*row, 0, 0xC2, Signal::kUops), 1u) << "UOPS_RETIRED";
    EXPECT_GT(distance(*row, 0, 0x81D0 | evtsel::kEdge, Signal::kLoads), 1u) << "with a qualifier";
    if (row->pebs_counters > 1) {
      EXPECT_GT(distance(*row, 1, 0x81D0, Signal::kLoads), 1u);
    }
    EXPECT_EQ(distance(*row, 0, 0x81D0, Signal::kLoads,
                       [](Behaviour& b) { b.efficient.reduced_skid_at_once = 1; }),
              0u);
    EXPECT_EQ(distance(*row, 0, 0x81D0, Signal::kLoads,
                       [](Behaviour& b) { b.efficient.reduced_skid_event_later = true; }),
              2u);
  }
  EXPECT_EQ(distance(kAlderLakeE, 0, 0x81D0, Signal::kLoads), 0u) << "PDist";
  EXPECT_GT(distance(kAlderLakeE, 0, 0xC2, Signal::kUops), 1u) << "which UOPS_RETIRED has not";
  EXPECT_GT(distance(kAlderLakeE, 1, 0x81D0, Signal::kLoads), 1u);
}

TEST_F(PmuSamplingTest, AnIndexOutsideTheBufferIsSignalledAndNothingIsLoaded) {
  constexpr uint64_t kMaximum = FlatMemory::kBuffer + 0x8000;
  const auto skips = [&](const Microarch& row, uint64_t index, const Behaviour& behaviour) {
    make(row, behaviour);
    memory_.set_field(row.ds.pebs_index, index);
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
    sample(0, 0x81D0, 1);
    set(IA32_PMC0 + 1, ~uint64_t{0});
    set(IA32_PERFEVTSEL0 + 1, 0x81D0 | evtsel::kOs | evtsel::kEnable);
    set(IA32_PERF_GLOBAL_CTRL, 3);
    set(IA32_PEBS_ENABLE, 1);
    for (int k = 0; k < 4; ++k) retire(Signal::kLoads, {.valid = true});
    EXPECT_EQ(memory_.field(row.ds.pebs_index), index);
    return get(IA32_PERF_GLOBAL_STATUS);
  };
  for (const Microarch* row : {&kGoldmont, &kGoldmontPlus, &kTremont}) {
    SCOPED_TRACE(std::string(row->name));
    Behaviour behaviour = behaviour_of(*row);
    for (const uint64_t index : {FlatMemory::kBuffer - 8, kMaximum + 8}) {
      EXPECT_EQ(skips(*row, index, behaviour), status::kOvfBuffer | bit(1)) << std::hex << index;
      EXPECT_EQ(get(IA32_PMC0), 3u) << "it counts on from its overflow";
      EXPECT_FALSE(pmu_->interrupt_pending());
    }
    EXPECT_EQ(skips(*row, kMaximum, behaviour) & status::kOvfBuffer, 0u) << "no more than full";
    behaviour.efficient.out_of_bounds = OutOfBounds::kBelow;
    EXPECT_EQ(skips(*row, kMaximum + 8, behaviour) & status::kOvfBuffer, 0u);
    EXPECT_NE(skips(*row, FlatMemory::kBuffer - 8, behaviour) & status::kOvfBuffer, 0u);
    behaviour.efficient.out_of_bounds = OutOfBounds::kAbove;
    EXPECT_NE(skips(*row, kMaximum + 8, behaviour) & status::kOvfBuffer, 0u);
    EXPECT_EQ(skips(*row, FlatMemory::kBuffer - 8, behaviour) & status::kOvfBuffer, 0u);
    behaviour = behaviour_of(*row, Rough{.out_of_bounds_interrupts = 1});
    skips(*row, kMaximum + 8, behaviour);
    EXPECT_TRUE(pmu_->interrupt_pending()) << "of a machine that does so";
  }
  EXPECT_EQ(skips(kAlderLakeE, kMaximum + 8, behaviour_of(kAlderLakeE)) & status::kOvfBuffer, 0u)
      << "nothing says so of it";
}

// The word of a store's access, by rows: where lock and STLB miss stand, and what memory is called.
TEST_F(PmuSamplingTest, TheWordOfAnAccessIsTheRows) {
  constexpr uint8_t kFromMemory = 0xC;
  const Access store{.valid = true,
                     .stlb_miss = true,
                     .locked = false,
                     .source = kFromMemory,
                     .latency = 300,
                     .address = 0x7FFF'1234'5678};
  const auto word = [&](const Microarch& row, const Rough& rough = {}) {
    make(row, rough);
    set(MSR_PEBS_DATA_CFG, adaptive::kMemory);
    sample(0, row.event("MEM_UOPS_RETIRED.STORE_LATENCY")->select() | evtsel::kAdaptive, 256);
    for (int k = 0; k < 257; ++k) retire(Signal::kStores, {}, store);
    return records().empty() ? ~uint64_t{0} : records()[0].data_source();
  };
  EXPECT_EQ(word(kAlderLakeE), 0xAu | bit(5));
  EXPECT_EQ(word(kMeteorLakeE), 0xAu | bit(6));
  EXPECT_EQ(word(kSierraForest), 0xAu | bit(6));
  EXPECT_EQ(word(kAlderLakeE, Rough{.unknown_sources = 1}), bit(5)) << "the source is not known";
}

TEST_F(PmuSamplingTest, GoldmontMayTellOfTheAccessOfAnyEvent) {
  for (const uint32_t tells : {0u, 1u}) {
    make(kGoldmont, Rough{.addresses_of_any_event = tells});
    sample(0, 0xC4, 1);
    for (int k = 0; k < 2; ++k) {
      retire(Signal::kBranches, {.valid = true, .latency = 9, .address = 0xABCD});
    }
    ASSERT_EQ(records().size(), 1u);
    EXPECT_EQ(records()[0].data_address(), tells != 0 ? 0xABCDu : 0u);
    EXPECT_EQ(records()[0].latency(), 0u);
  }
}

TEST_F(PmuSamplingTest, GoldmontPlusNamesAndLoadsItsFixedCounters) {
  for (const bool named : {true, false}) {
    Behaviour behaviour = behaviour_of(kGoldmontPlus);
    behaviour.efficient.applicable_fixed = named;
    make(kGoldmontPlus, behaviour);
    sample_fixed(0, 1, 500);
    for (int k = 0; k < 3; ++k) retire(Signal::kBranches);
    ASSERT_EQ(records().size(), 1u);
    EXPECT_EQ(records()[0].applicable_counters(), named ? bit(32) : 0u);
    EXPECT_EQ((get(IA32_FIXED_CTR0) + 500) & low_bits(48), 1u) << "80H";
  }
}

// Of what is not precise the next opportunity is a record's, where the machine is one of those that do so.
TEST_F(PmuSamplingTest, AnOverflowThatSoftwareSetsIsRecordedPerhaps) {
  for (const uint32_t records_it : {0u, 1u}) {
    make(kGoldmontPlus, Rough{.set_overflow_records = records_it});
    sample(1, 0x3C, 1000);
    retire(Signal::kBranches);
    set(IA32_PERF_GLOBAL_STATUS_SET, bit(1));
    retire(Signal::kBranches);
    EXPECT_EQ(records().size(), records_it);
    make(kGoldmontPlus, Rough{.set_overflow_records = records_it});
    sample(1, 0x81D0, 1000);
    set(IA32_PERF_GLOBAL_STATUS_SET, bit(1));
    retire(Signal::kBranches);
    EXPECT_EQ(records().size(), 0u) << "a precise event waits for itself";
  }
}

}  // namespace
}  // namespace skidproof::model
