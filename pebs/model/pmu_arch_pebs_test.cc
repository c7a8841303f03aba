// Architectural PEBS in the model: registers, the buffer, groups by counter, the group of counters.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "pebs/arch/architectural_record.h"
#include "pebs/arch/generations.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/pmu.h"
#include "pebs/model/testing/decisions.h"
#include "pebs/model/testing/flat_memory.h"

namespace skidproof::model {
namespace {

using namespace arch;

constexpr uint64_t kJumps = 0x07C4 | evtsel::kOs | evtsel::kEnable;
constexpr uint32_t config(unsigned n) { return IA32_PMC_GP0_CFG_C + kBankStride * n; }
constexpr uint32_t fixed_config(unsigned m) { return IA32_PMC_FX0_CFG_C + kBankStride * m; }
constexpr uint64_t kReload = 0xFFFF'0000;  // far from the next overflow
constexpr uint64_t kMemory = 0x10000, kBuffer = kMemory + 0x1000;
constexpr size_t kBasic = architectural::kHeaderBytes + architectural::kBasicBytes;

class PmuArchPebsTest : public testing::Test {
 protected:
  void make(void (*change)(Behaviour&) = [](Behaviour&) {}) { make(kClearwaterForest, change); }
  void make(
      const Microarch& row, void (*change)(Behaviour&) = [](Behaviour&) {}) {
    Behaviour behaviour = behaviour_of(row);
    change(behaviour);
    memory_ = FlatMemory(kMemory);
    pmu_ = std::make_unique<Pmu>(row, Topology{.sibling_thread = false}, memory_, behaviour, 1);
    ip_ = cycle_ = 0;
    if (!row.architectural_pebs()) return;
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
    // 4 KiB, far from the threshold.
    set(IA32_PEBS_BASE, kBuffer);
    set_index(0, 0x8000);
  }
  bool answers(uint32_t msr) { return pmu_->rdmsr(msr).has_value(); }
  bool takes(uint32_t msr, uint64_t value) { return pmu_->wrmsr(msr, value).has_value(); }
  void set(uint32_t msr, uint64_t value) { ASSERT_TRUE(takes(msr, value)) << std::hex << msr; }
  uint64_t get(uint32_t msr) { return pmu_->rdmsr(msr).value(); }
  // The bits that a register takes, one by one.
  uint64_t taken(uint32_t msr) {
    uint64_t bits = 0;
    for (unsigned b = 0; b < 64; ++b) {
      if (!takes(msr, bit(b))) continue;
      bits |= bit(b);
      EXPECT_EQ(get(msr), bit(b)) << std::hex << msr;
    }
    if (bits != 0) {
      EXPECT_TRUE(takes(msr, 0)) << std::hex << msr;
    }
    return bits;
  }
  void set_index(uint64_t write, uint64_t threshold) {
    set(IA32_PEBS_INDEX, pebs_index::kEnable | write | pebs_index::threshold_field(threshold));
  }
  uint64_t written() { return pebs_index::write_bytes(get(IA32_PEBS_INDEX)); }
  // A counter that overflows with the next jump; the record is that of the one after it.
  void sample(unsigned n, uint64_t groups) {
    set(IA32_PERFEVTSEL0 + n, kJumps);
    set(IA32_A_PMC0 + n, low_bits(48));
    set(config(n), groups | kReload | cfg_c::kEnable);
  }
  void start(uint64_t counters) { set(IA32_PERF_GLOBAL_CTRL, counters); }
  void jump(int times = 1) {
    for (int i = 0; i < times; ++i) {
      Retired r;
      r.ip = ip_;
      r.length = 4;
      for (Signal s : {Signal::kInstructions, Signal::kConditional}) r.counts[index(s)] = 1;
      r.counts[index(Signal::kCycles)] = 100;
      r.cycle = r.tsc = cycle_ += 100;
      registers_.ip = ip_ += 4;
      r.after = &registers_;
      pmu_->retire(r);
    }
  }
  architectural::Parts parts(uint64_t at = 0) {
    return architectural::parts_of({memory_.at(kBuffer) + at, static_cast<size_t>(written() - at)});
  }
  uint64_t word(uint64_t at) { return memory_.word(kBuffer + at); }
  // The counters of a record, as they stand in its group.
  uint64_t counted(const architectural::Parts& parts, unsigned k) {
    return word(parts.starts[architectural::kCounterGroup] + adaptive::kSnapshotHeaderBytes +
                8 * k);
  }

  FlatMemory memory_{kMemory};
  std::unique_ptr<Pmu> pmu_;
  Registers registers_;
  uint64_t ip_ = 0, cycle_ = 0;
};

TEST_F(PmuArchPebsTest, AConfigurationForEachCounterThatHasIt) {
  const struct {
    const Microarch& row;
    uint64_t all;                       // of a counter with architectural PEBS
    uint32_t gp, fixed;                 // counters with all of it
    uint32_t reloaded, fixed_reloaded;  // … with a reload value alone
  } rows[] = {
      {kClearwaterForest,
       cfg_c::kEnable | cfg_c::kAux | cfg_c::kGprs | cfg_c::kXmm | cfg_c::kYmmHigh |
           cfg_c::kBranches | cfg_c::kAllow | cfg_c::kCountersGp | cfg_c::kCountersFixed |
           cfg_c::kReload,
       0xFF, 0x77, 0, 0},
      {kPantherLakeP,
       cfg_c::kEnable | cfg_c::kAux | cfg_c::kGprs | cfg_c::kXmm | cfg_c::kYmmHigh |
           cfg_c::kBranches | cfg_c::kAllow | cfg_c::kCountersGp | cfg_c::kCountersFixed |
           cfg_c::kMetrics | cfg_c::kReload,
       0x3FF, 0x0F, 0, 0},
      {kLunarLakeE, 0, 0, 0, 0xFC, 0x03},
      {kLunarLakeP, 0, 0, 0, 0, 0},
  };
  const auto of = [](const auto& r, bool all, bool reloaded) {
    return all ? r.all : reloaded ? cfg_c::kReload : uint64_t{0};
  };
  for (const auto& r : rows) {
    SCOPED_TRACE(r.row.name);
    make(r.row);
    for (unsigned n = 0; n < 12; ++n) {
      const uint64_t bits = of(r, (r.gp >> n & 1) != 0, (r.reloaded >> n & 1) != 0);
      EXPECT_EQ(taken(config(n)), bits) << n;
      EXPECT_EQ(answers(config(n)), bits != 0) << n;
    }
    for (unsigned m = 0; m < 9; ++m) {
      const uint64_t bits = of(r, (r.fixed >> m & 1) != 0, (r.fixed_reloaded >> m & 1) != 0);
      EXPECT_EQ(taken(fixed_config(m)), bits) << m;
      EXPECT_EQ(answers(fixed_config(m)), bits != 0) << m;
    }
  }
}

TEST_F(PmuArchPebsTest, BaseAndIndexInPlaceOfTheOlderRegisters) {
  make();
  EXPECT_EQ(taken(IA32_PEBS_BASE), 0x000F'FFFF'FFFF'F01Fu);
  EXPECT_EQ(taken(IA32_PEBS_INDEX), 0x07FF'FFF1'87FF'FFF0u);
  EXPECT_FALSE(answers(MSR_PEBS_DATA_CFG) || takes(MSR_PEBS_DATA_CFG, 0));
  EXPECT_FALSE(answers(IA32_PEBS_ENABLE) || takes(IA32_PEBS_ENABLE, 0));
  for (const Microarch* row : {&kLunarLakeE, &kLunarLakeP}) {
    make(*row);
    EXPECT_FALSE(answers(IA32_PEBS_BASE) || takes(IA32_PEBS_BASE, 0)) << row->name;
    EXPECT_FALSE(answers(IA32_PEBS_INDEX) || takes(IA32_PEBS_INDEX, 0)) << row->name;
  }
}

TEST_F(PmuArchPebsTest, ARecordStandsAtWrAndMovesIt) {
  make();
  set_index(0x40, 0x8000);
  sample(2, 0);
  start(4);
  jump(2);
  EXPECT_EQ(written(), 0x40 + kBasic);
  const architectural::Parts record = parts(0x40);
  EXPECT_EQ(record.bytes, kBasic);
  EXPECT_EQ(record.groups, architectural::kBasic);
  EXPECT_EQ(word(0x40), architectural::kBasic | architectural::kMode64 | kBasic);
  EXPECT_EQ(word(0x50), 4u) << "of the second jump";
  EXPECT_EQ(word(0x58), 4u) << "for this counter";
  EXPECT_EQ(word(0x60), 200u);
  EXPECT_EQ(word(0x68), 100 | architectural::kRetireValid) << "cycles since the one before";
  EXPECT_EQ(get(IA32_A_PMC0 + 2), 0xFFFF'FFFF'0000u) << "31:0 above bit 31 with ones";
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 0u);
}

TEST_F(PmuArchPebsTest, WithoutEnableThereIsNone) {
  for (const uint64_t index : {uint64_t{0}, pebs_index::kEnable}) {
    for (const uint64_t enable : {uint64_t{0}, cfg_c::kEnable}) {
      make();
      set(IA32_PEBS_INDEX, index | pebs_index::threshold_field(0x8000));
      sample(2, 0);
      set(config(2), kReload | enable);
      start(4);
      jump(2);
      EXPECT_EQ(written() != 0, index != 0 && enable != 0) << index << " " << enable;
    }
  }
}

// WR, THRESH and FULL.
TEST_F(PmuArchPebsTest, TheThresholdSetsABitOfItsOwnAndInterrupts) {
  make();
  set_index(0, kBasic);
  sample(2, 0);
  start(4);
  jump();
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 4u);
  jump();
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), status::kPebsThreshold);
  EXPECT_TRUE(pmu_->interrupt_pending());
  set(IA32_PERF_GLOBAL_STATUS_RESET, status::kPebsThreshold);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 0u);
}

TEST_F(PmuArchPebsTest, ARecordThatDoesNotFitSetsFull) {
  constexpr uint64_t kGroups = cfg_c::kCountersGp | cfg_c::kGprs;
  for (const bool fits : {true, false}) {
    make();
    set(config(1), cfg_c::kAllow);
    sample(2, kGroups);
    // One counter: eight bytes of the last unit are none of its.
    const uint64_t bytes = kBasic + architectural::kGprBytes + 0x10 + 0x8 + 0x8;
    const uint64_t at = 0x1000 - bytes + (fits ? 0 : 0x10);
    set_index(at, 0x8000);
    start(4);
    jump(2);
    EXPECT_EQ(written(), fits ? 0x1000 : at);
    EXPECT_EQ((get(IA32_PEBS_INDEX) & pebs_index::kFull) != 0, !fits);
    EXPECT_EQ(parts(at).bytes, fits ? bytes : 0);
  }
}

TEST_F(PmuArchPebsTest, TheGroupsAreThoseOfTheCountersOfTheRecord) {
  constexpr uint64_t kAll = cfg_c::kAux | cfg_c::kGprs | cfg_c::kXmm | cfg_c::kYmmHigh;
  make();
  sample(2, cfg_c::kAux);
  sample(3, cfg_c::kGprs);
  set(IA32_A_PMC0 + 3, 0);
  start(0xC);
  jump(2);
  EXPECT_EQ(parts().groups, architectural::kBasic | cfg_c::kAux) << "of two that are enabled";
  make();
  sample(2, cfg_c::kAux);
  sample(3, cfg_c::kGprs);
  start(0xC);
  jump(2);
  EXPECT_EQ(parts().groups, architectural::kBasic | cfg_c::kAux | cfg_c::kGprs)
      << "of two that overflowed together";
  EXPECT_EQ(written(), parts().bytes) << "one record of both";
  make();
  sample(7, kAll | cfg_c::kAllow);
  start(bit(7));
  jump(2);
  EXPECT_EQ(parts().groups, architectural::kBasic | kAll) << "ALLOW_IN_RECORD is no group";
  EXPECT_EQ(parts().bytes, kBasic + 0x40 + 0xA0 + 0x10 + 0x100 + 0x100);
  // A fixed counter has its own, too: instructions.
  make();
  set(fixed_config(0), kReload | cfg_c::kEnable | cfg_c::kGprs);
  set(IA32_FIXED_CTR0, low_bits(48));
  set(IA32_FIXED_CTR_CTRL, fixed_ctrl::field(0, fixed_ctrl::kOs));
  start(bit(32));
  jump(4);
  EXPECT_EQ(parts().groups, architectural::kBasic | cfg_c::kGprs);
  EXPECT_EQ(word(0x18), bit(32)) << "for this counter";
}

TEST_F(PmuArchPebsTest, TheBranchesAreAsManyAsTheCodeSays) {
  for (const uint64_t code : {1u, 2u, 3u}) {
    make();
    set(MSR_ARCH_LBR_CTL, lbr_ctl::kEnable | lbr_ctl::kOs);
    sample(2, code << cfg_c::kBranchesShift);
    start(4);
    jump(2);
    const unsigned entries = code == 3 ? 32 : static_cast<unsigned>(8 * code);
    EXPECT_EQ(parts().entries, entries);
    EXPECT_EQ(parts().bytes, kBasic + 0x30 + 24 * entries);
    EXPECT_EQ(written(), parts().bytes);
    EXPECT_EQ(word(kBasic + 8), lbr_ctl::kEnable | lbr_ctl::kOs);
    EXPECT_EQ(word(kBasic + 0x10), 32u);
  }
}

TEST_F(PmuArchPebsTest, TheGroupOfCountersHasThoseThatAllowIt) {
  const uint64_t chosen[] = {cfg_c::kCountersGp, cfg_c::kCountersFixed,
                             cfg_c::kCountersGp | cfg_c::kCountersFixed};
  for (const uint64_t groups : chosen) {
    make();
    for (unsigned n : {1u, 5u}) {
      set(config(n), cfg_c::kAllow);
      set(IA32_A_PMC0 + n, 0x5678'0000'0000 + n);
    }
    for (unsigned m : {0u, 2u}) {
      set(fixed_config(m), cfg_c::kAllow);
      set(IA32_FIXED_CTR0 + m, 0x1234'0000'0000 + m);
    }
    sample(2, groups | cfg_c::kAllow);
    start(4);
    jump(2);
    const architectural::Parts record = parts();
    const bool gp = (groups & cfg_c::kCountersGp) != 0;
    EXPECT_EQ(record.groups, architectural::kBasic | groups);
    EXPECT_EQ(record.counters.gp, gp ? 0x26u : 0u);
    EXPECT_EQ(record.counters.fixed, groups & cfg_c::kCountersFixed ? 5u : 0u);
    EXPECT_EQ(record.counters.metrics, 0u);
    unsigned k = 0;
    if (gp) {
      EXPECT_EQ(counted(record, k++), 0x5678'0000'0001u);
      EXPECT_EQ(counted(record, k++), 1u) << "its own, before it is loaded";
      EXPECT_EQ(counted(record, k++), 0x5678'0000'0005u);
    }
    if (groups & cfg_c::kCountersFixed) {
      EXPECT_EQ(counted(record, k++), 0x1234'0000'0000u);
      EXPECT_EQ(counted(record, k++), 0x1234'0000'0002u);
    }
  }
}

TEST_F(PmuArchPebsTest, ARecordOfTheMetricsClearsThem) {
  for (const bool included : {false, true}) {
    make(kPantherLakeP);
    set(MSR_PERF_METRICS, 0x1234);
    set(IA32_PMC_FX0_CTR + kBankStride * 3, 77);
    sample(2, included ? cfg_c::kMetrics : cfg_c::kCountersGp);
    start(4);
    jump(2);
    ASSERT_NE(parts().bytes, 0u);
    EXPECT_EQ(parts().counters.metrics, included ? 3u : 0u);
    EXPECT_EQ(get(MSR_PERF_METRICS), included ? 0u : 0x1234u);
    EXPECT_EQ(get(IA32_PMC_FX0_CTR + kBankStride * 3), included ? 0u : 77u);
    if (included) {
      EXPECT_EQ(counted(parts(), 0), 77u);
      EXPECT_EQ(counted(parts(), 1), 0x1234u);
    }
  }
}

TEST_F(PmuArchPebsTest, WithoutMemoryAtTheBaseThereIsNoRecord) {
  make();
  set(IA32_PEBS_BASE, kBuffer << 8);
  sample(2, 0);
  start(4);
  jump(2);
  EXPECT_EQ(written(), 0u);
  EXPECT_EQ(get(IA32_A_PMC0 + 2), 1u) << "nor is the counter loaded";
}

TEST_F(PmuArchPebsTest, TheHeaderTells64BitCode) {
  for (const Mode mode : {Mode::kLong, Mode::kProtected32}) {
    make();
    pmu_->set_mode(mode);
    sample(2, 0);
    start(4);
    jump(2);
    ASSERT_EQ(written(), kBasic);
    EXPECT_EQ((word(0) & architectural::kMode64) != 0, mode == Mode::kLong);
  }
}

// Every decision shows where it is taken.
TEST_F(PmuArchPebsTest, EachDecisionShows) {
  const auto kept = [this](uint32_t msr, uint64_t value) {
    set(msr, value);
    return get(msr);
  };
  const auto sampled = [this](uint64_t groups) {
    sample(2, groups);
    start(4);
    jump(2);
  };
  const auto status_at_threshold = [&] {
    set_index(0, kBasic);
    sampled(0);
    return get(IA32_PERF_GLOBAL_STATUS) >> 54;
  };
  const auto two = [&] {
    sample(1, cfg_c::kGprs);
    set(IA32_A_PMC0 + 1, 0);
    sample(2, cfg_c::kAux);
    start(6);
    jump(2);
    return parts().groups & ~architectural::kBasic;
  };
  const auto recorded = [&] {
    set(config(1), cfg_c::kAllow);
    sampled(cfg_c::kCountersGp | cfg_c::kCountersFixed | cfg_c::kAllow);
    return uint64_t{parts().counters.gp} | uint64_t{parts().counters.fixed} << 32;
  };
  const auto after_full = [&] {
    set_index(0, 0x8000);
    set(IA32_PEBS_INDEX, get(IA32_PEBS_INDEX) | pebs_index::kFull);
    sampled(0);
    return written();
  };
  constexpr uint64_t kReloaded = 0xFFFF'FFFF'0000;
  const Decision<Behaviour> decisions[] = {
      {"a bit of the base is lost", [](Behaviour& b) { b.arch_pebs.base_lost = 1; },
       [&] { return kept(IA32_PEBS_BASE, kBuffer | 3); }, kBuffer | 3, kBuffer | 2},
      {"… of the index", [](Behaviour& b) { b.arch_pebs.index_lost = 0x20; },
       [&] { return kept(IA32_PEBS_INDEX, 0x30); }, 0x30, 0x10},
      {"… of a configuration", [](Behaviour& b) { b.arch_pebs.config_lost = cfg_c::kAux; },
       [&] { return kept(config(3), cfg_c::kAux | cfg_c::kGprs); }, cfg_c::kAux | cfg_c::kGprs,
       cfg_c::kGprs},
      {"… is refused", [](Behaviour& b) { b.arch_pebs.config_refused = cfg_c::kAux; },
       [&] { return uint64_t{takes(config(3), cfg_c::kAux)}; }, 1, 0},
      {"a reserved one is taken", [](Behaviour& b) { b.auto_reload.values_taken = bit(33); },
       [&] { return uint64_t{takes(config(3), bit(33))}; }, 0, 1},
      {"a counter is deaf", [](Behaviour& b) { b.arch_pebs.deaf_counters = 4; },
       [&] {
         sampled(0);
         return written();
       },
       kBasic, 0},
      {"… another is not", [](Behaviour& b) { b.arch_pebs.deaf_counters = 8; },
       [&] {
         sampled(0);
         sample(3, 0);
         start(8);
         jump(2);
         return written();
       },
       2 * kBasic, kBasic},
      {"the older register answers",
       [](Behaviour& b) { b.arch_pebs.older_registers_answer = true; },
       [&] { return uint64_t{answers(MSR_PEBS_DATA_CFG)} + uint64_t{takes(MSR_PEBS_DATA_CFG, 0)}; },
       0, 2},
      {"WR counts 8 bytes", [](Behaviour& b) { b.arch_pebs.write_shift = 1; },
       [&] {
         set_index(0x80, 0x8000);
         sampled(0);
         return written() << 32 | size_t{word(0x40) != 0} << 1 | size_t{word(0x80) != 0};
       },
       (0x80 + kBasic) << 32 | 1, (0x80 + 2 * kBasic) << 32 | 2},
      {"THRESH counts 8 bytes", [](Behaviour& b) { b.arch_pebs.threshold_shift = 1; },
       [&] {
         set_index(0, 2 * kBasic);
         sampled(0);
         return uint64_t{pmu_->interrupt_pending()};
       },
       0, 1},
      {"the buffer is twice as long", [](Behaviour& b) { b.arch_pebs.size_scale = 2; },
       [&] {
         set_index(0x1000, 0x8000);
         sampled(0);
         return written();
       },
       0x1000, 0x1000 + kBasic},
      {"EN is not needed", [](Behaviour& b) { b.arch_pebs.index_enable_needed = false; },
       [&] {
         set(IA32_PEBS_INDEX, pebs_index::threshold_field(0x8000));
         sampled(0);
         return written();
       },
       0, kBasic},
      {"FULL stops nothing", [](Behaviour& b) { b.arch_pebs.full_stops = false; }, after_full, 0,
       kBasic},
      {"the threshold is silent", [](Behaviour& b) { b.arch_pebs.threshold_interrupts = false; },
       [&] {
         status_at_threshold();
         return uint64_t{pmu_->interrupt_pending()};
       },
       1, 0},
      {"… and has no bit of its own",
       [](Behaviour& b) { b.arch_pebs.threshold_sets_own_bit = false; }, status_at_threshold, 1, 0},
      {"… but that of the DS buffer",
       [](Behaviour& b) { b.arch_pebs.threshold_sets_ovf_buffer = true; }, status_at_threshold, 1,
       0x101},
      {"… or of the trace", [](Behaviour& b) { b.arch_pebs.threshold_sets_trace_bit = true; },
       status_at_threshold, 1, 3},
      {"the reload value is extended by zeros",
       [](Behaviour& b) { b.arch_pebs.reload_extends_ones = false; },
       [&] {
         sampled(0);
         return get(IA32_A_PMC0 + 2);
       },
       kReloaded, kReload},
      {"the groups of all", [](Behaviour& b) { b.arch_pebs.groups_of_all = true; }, two,
       cfg_c::kAux, cfg_c::kAux | cfg_c::kGprs},
      {"the groups of the lowest", [](Behaviour& b) { b.arch_pebs.groups_of_lowest = true; }, two,
       cfg_c::kAux, cfg_c::kGprs},
      {"a group is missing", [](Behaviour& b) { b.arch_pebs.groups_missing = cfg_c::kAux; }, two,
       cfg_c::kAux, 0},
      {"every counter is recorded", [](Behaviour& b) { b.arch_pebs.allow_ignored = true; },
       recorded, 6, 0x77'0000'00FF},
      {"only its own", [](Behaviour& b) { b.arch_pebs.allow_own_only = true; }, recorded, 6, 4},
      {"only those that do PEBS", [](Behaviour& b) { b.arch_pebs.allow_needs_enable = true; },
       recorded, 6, 4},
      {"after the reload", [](Behaviour& b) { b.arch_pebs.snapshot_after_reload = true; },
       [&] {
         sampled(cfg_c::kCountersGp | cfg_c::kAllow);
         return counted(parts(), 0);
       },
       1, kReloaded},
      {"… another stays", [](Behaviour& b) { b.arch_pebs.snapshot_after_reload = true; },
       [&] {
         set(IA32_A_PMC0 + 1, 7);
         set(config(1), cfg_c::kAllow);
         sampled(cfg_c::kCountersGp | cfg_c::kAllow);
         return counted(parts(), 0) << 48 | counted(parts(), 1);
       },
       uint64_t{7} << 48 | 1, uint64_t{7} << 48 | kReloaded},
      {"the counters that are enabled are named",
       [](Behaviour& b) { b.adaptive.applicable_all_enabled = true; },
       [&] {
         sample(5, 0);
         set(IA32_A_PMC0 + 5, 0);
         sampled(0);
         return word(0x18);
       },
       4, 0x24},
      {"flags are not recorded", [](Behaviour& b) { b.flags_recorded = false; },
       [&] {
         registers_.flags = 0x246;
         sampled(cfg_c::kGprs);
         return word(kBasic);
       },
       0x246, 0},
  };
  expect_each_shows<Behaviour>(decisions, [this](auto change) { make(change); });
}

}  // namespace
}  // namespace skidproof::model
