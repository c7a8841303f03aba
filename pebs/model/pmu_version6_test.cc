// Architectural version 6 in the model: its registers, its selects, its metrics, its records.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "pebs/arch/enumeration.h"
#include "pebs/arch/generations.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/counter.h"
#include "pebs/model/pmu.h"
#include "pebs/model/testing/decisions.h"
#include "pebs/model/testing/flat_memory.h"
#include "pebs/record.h"

namespace skidproof::model {
namespace {

using namespace arch;

constexpr uint32_t gp(unsigned n) { return IA32_PMC_GP0_CTR + kBankStride * n; }
constexpr uint32_t select_of(unsigned n) { return IA32_PMC_GP0_CFG_A + kBankStride * n; }
constexpr uint32_t fx(unsigned m) { return IA32_PMC_FX0_CTR + kBankStride * m; }

class PmuVersion6Test : public testing::Test {
 protected:
  void make(
      const Microarch& row, void (*change)(Behaviour&) = [](Behaviour&) {}) {
    Behaviour behaviour = behaviour_of(row);
    change(behaviour);
    memory_ = {};
    pmu_ = std::make_unique<Pmu>(row, Topology{.sibling_thread = false}, memory_, behaviour, 1);
    memory_.lay_out_pebs(row.ds, 0x8000, 0x9000);
    set(IA32_DS_AREA, FlatMemory::kBase);
    ip_ = cycle_ = 0;
  }
  bool answers(uint32_t msr) { return pmu_->rdmsr(msr).has_value(); }
  bool takes(uint32_t msr, uint64_t value) { return pmu_->wrmsr(msr, value).has_value(); }
  void set(uint32_t msr, uint64_t value) { ASSERT_TRUE(takes(msr, value)) << std::hex << msr; }
  uint64_t get(uint32_t msr) { return pmu_->rdmsr(msr).value(); }
  void retire(Signal signal, uint64_t cycles = 100) {
    Retired r;
    r.ip = ip_;
    r.length = 4;
    r.counts[index(Signal::kInstructions)] = 1;
    r.counts[index(Signal::kCycles)] = cycles;
    r.counts[index(signal)] = 1;
    r.cycle = r.tsc = cycle_ += cycles;
    registers_.ip = ip_ += 4;
    r.after = &registers_;
    pmu_->retire(r);
  }
  // Samples conditional jumps on PMCn until there are so many records of this size.
  void sample(unsigned n, uint64_t config, uint64_t adaptive_bit = evtsel::kAdaptive) {
    memory_.set_field(kLunarLakeP.ds.gp_reset(n), low_bits(48) - 999);
    set(MSR_PEBS_DATA_CFG, config);
    set(gp(n), low_bits(48) - 1);
    set(select_of(n), 0x100'0000'11C4 | adaptive_bit | evtsel::kOs | evtsel::kEnable);
    set(IA32_PEBS_ENABLE, bit(n));
    set(IA32_PERF_GLOBAL_CTRL, bit(n));
    for (int i = 0; i < 4; ++i) retire(Signal::kConditional);
    set(IA32_PERF_GLOBAL_CTRL, 0);
  }
  Records records() {
    const uint64_t bytes = memory_.field(kLunarLakeP.ds.pebs_index) - FlatMemory::kBuffer;
    return {{memory_.at(FlatMemory::kBuffer), bytes}, kLunarLakeP.record};
  }

  FlatMemory memory_;
  std::unique_ptr<Pmu> pmu_;
  Registers registers_;
  uint64_t ip_ = 0, cycle_ = 0;
};

TEST_F(PmuVersion6Test, TheBankHasWhatLeaf23HLists) {
  make(kLunarLakeP);
  for (unsigned n = 0; n < 32; ++n) {
    const bool listed = n < 10;
    EXPECT_EQ(answers(gp(n)), listed) << n;
    EXPECT_EQ(answers(select_of(n)), listed) << n;
    EXPECT_EQ(takes(gp(n), 5), listed) << n;
    EXPECT_EQ(answers(IA32_PMC0 + n), n < 8) << n;
    EXPECT_FALSE(answers(gp(n) + 2)) << "no reload configuration, " << n;
  }
  for (unsigned m = 0; m < 16; ++m) {
    EXPECT_EQ(answers(fx(m)), m < 4) << m;
    EXPECT_EQ(takes(fx(m), 5), m < 4) << m;
    EXPECT_FALSE(answers(fx(m) + 1)) << "no select, " << m;
  }
  EXPECT_FALSE(answers(IA32_FIXED_CTR0 + 3)) << "CPUID.0AH does not have it";
  make(kGraniteRapids);
  EXPECT_FALSE(answers(gp(0)) || answers(select_of(0)) || answers(fx(0))) << "version 5";
}

TEST_F(PmuVersion6Test, OneRegisterHasTwoAddresses) {
  make(kLunarLakeP);
  for (unsigned n = 0; n < 8; ++n) {
    const uint64_t wide = 0x1234'8000'0000 + n;
    set(gp(n), wide);
    EXPECT_EQ(get(IA32_PMC0 + n), wide);
    set(IA32_A_PMC0 + n, wide + 16);
    EXPECT_EQ(get(gp(n)), wide + 16);
    EXPECT_FALSE(takes(gp(n), bit(48)));
    set(select_of(n), 0xC4 | evtsel::kOs);
    EXPECT_EQ(get(IA32_PERFEVTSEL0 + n), 0xC4 | evtsel::kOs);
  }
  for (unsigned m = 0; m < 3; ++m) {
    set(fx(m), 0x1234'8000'0000 + m);
    EXPECT_EQ(get(IA32_FIXED_CTR0 + m), 0x1234'8000'0000 + m);
    EXPECT_FALSE(takes(fx(m), bit(48)));
  }
}

TEST_F(PmuVersion6Test, CountersBeyondEightCountAndOverflow) {
  make(kLunarLakeP);
  for (unsigned n : {8u, 9u}) {
    set(select_of(n), 0xC0 | evtsel::kOs | evtsel::kEnable);
    set(gp(n), low_bits(48));
  }
  set(IA32_PERF_GLOBAL_CTRL, 0x300);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_INUSE), 0x300u);
  retire(Signal::kNops);
  EXPECT_EQ(get(gp(8)), 0u);
  EXPECT_EQ(get(gp(9)), 0u);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 0x300u);
  EXPECT_EQ(pmu_->rdpmc(9).value(), 0u);
  EXPECT_FALSE(pmu_->rdpmc(10).has_value());
}

TEST_F(PmuVersion6Test, Umask2IsPartOfTheEvent) {
  make(kLunarLakeP);
  const auto counted = [&](uint64_t select) {
    set(gp(0), 0);
    set(select_of(0), select | evtsel::kOs | evtsel::kEnable);
    set(IA32_PERF_GLOBAL_CTRL, 1);
    retire(Signal::kConditional);
    set(IA32_PERF_GLOBAL_CTRL, 0);
    return get(gp(0));
  };
  EXPECT_EQ(counted(0x100'0000'11C4), 1u);
  EXPECT_EQ(counted(0x200'0000'11C4), 0u);
  EXPECT_EQ(counted(0x11C4), 0u);
  EXPECT_EQ(counted(0xC0), 1u);
  EXPECT_EQ(counted(0x100'0000'00C0), 0u);
  make(kGraniteRapids);
  EXPECT_FALSE(takes(IA32_PERFEVTSEL0, bit(40)));
  EXPECT_FALSE(takes(IA32_PERFEVTSEL0, evtsel::kEqual));
}

// SDM 089 21.2.6.3, cycle by cycle.
TEST(CycleFilterTest, EqCountsCyclesWithExactlySoMany) {
  const uint64_t events[] = {0, 1, 2, 3, 2, 0, 5};
  const auto gained = [&](uint64_t select, const Version6Behaviour& how = {}) {
    CycleFilter filter;
    filter.configure(select, {}, how);
    uint64_t gain = 0, cycle = 1;
    for (uint64_t n : events) gain += filter.feed(cycle++, n);
    return filter.used() ? gain + filter.feed(cycle, 0) : uint64_t{99};
  };
  constexpr uint64_t kTwo = uint64_t{2} << evtsel::kCmaskShift;
  EXPECT_EQ(gained(kTwo), 4u);
  EXPECT_EQ(gained(kTwo | evtsel::kEqual), 2u);
  EXPECT_EQ(gained(kTwo | evtsel::kInvert), 3u);
  EXPECT_EQ(gained(kTwo | evtsel::kInvert | evtsel::kEqual), 1u) << "fewer, and not none";
  EXPECT_EQ(gained(evtsel::kEqual), 99u) << "no filter at all";
  Version6Behaviour how;
  how.equal_compares = false;
  EXPECT_EQ(gained(kTwo | evtsel::kEqual, how), 4u);
  how = {};
  how.equal_inverts_zero = true;
  EXPECT_EQ(gained(kTwo | evtsel::kInvert | evtsel::kEqual, how), 3u);
  how = {};
  how.equal_without_cmask = true;
  EXPECT_EQ(gained(evtsel::kEqual, how), 1u);
}

TEST_F(PmuVersion6Test, RdpmcClearsMetricsWhereAsked) {
  const auto prepare = [&](uint64_t control) {
    set(IA32_FIXED_CTR_CTRL, control);
    set(MSR_PERF_METRICS, 0x1234);
    set(fx(3), 77);
  };
  make(kLunarLakeP);
  prepare(0);
  EXPECT_EQ(pmu_->rdpmc(1u << 29).value(), 0x1234u);
  EXPECT_EQ(get(MSR_PERF_METRICS), 0x1234u);
  EXPECT_EQ(get(fx(3)), 77u);
  prepare(fixed_ctrl::kMetricsClear);
  EXPECT_EQ(pmu_->rdpmc(1u << 29).value(), 0x1234u);
  EXPECT_EQ(get(MSR_PERF_METRICS), 0u);
  EXPECT_EQ(get(fx(3)), 0u);
  make(kGraniteRapids);
  EXPECT_FALSE(takes(IA32_FIXED_CTR_CTRL, fixed_ctrl::kMetricsClear));
}

TEST_F(PmuVersion6Test, DataCfgTakesTheCountersThatLeaf23HLists) {
  make(kLunarLakeP);
  const uint64_t counters = uint64_t{0x3FF} << adaptive::kIncludeShift |
                            uint64_t{0x0F} << adaptive::kIncludeFixedShift | adaptive::kSnapshot;
  set(MSR_PEBS_DATA_CFG, counters);
  EXPECT_EQ(get(MSR_PEBS_DATA_CFG), counters);
  for (unsigned b : {6u, 23u, 42u, 47u, 52u, 55u, 56u, 63u}) {
    EXPECT_FALSE(takes(MSR_PEBS_DATA_CFG, bit(b))) << b;
  }
  make(kGraniteRapids);
  EXPECT_FALSE(takes(MSR_PEBS_DATA_CFG, adaptive::kCounters));
}

TEST_F(PmuVersion6Test, ARecordShowsCountersBeforeTheirReload) {
  make(kLunarLakeP);
  set(gp(9), 0x5678'0000'0000);
  sample(2, adaptive::kCounters | uint64_t{0x204} << adaptive::kIncludeShift);
  ASSERT_EQ(records().size(), 1u);
  const Record record = records().front();
  ASSERT_TRUE(record.snapshot().has_value());
  EXPECT_EQ(record.snapshot_value(0), 1u) << "two events overflowed it, and one more was recorded";
  EXPECT_EQ(record.snapshot_value(1), 0x5678'0000'0000u);
  EXPECT_GT(get(gp(2)), bit(47)) << "reloaded";
}

TEST_F(PmuVersion6Test, ARecordOfTheMetricsClearsThem) {
  for (const bool included : {false, true}) {
    make(kLunarLakeP);
    set(MSR_PERF_METRICS, 0x1234);
    set(fx(3), 77);
    const uint64_t base = included ? bit(adaptive::kIncludeFixedShift + 3) : 0;
    sample(2, adaptive::kMetrics | base);
    ASSERT_EQ(records().size(), 1u);
    EXPECT_EQ(records().front().snapshot()->metrics, included ? 3u : 0u);
    EXPECT_EQ(get(MSR_PERF_METRICS), included ? 0u : 0x1234u);
    EXPECT_EQ(get(fx(3)), included ? 0u : 77u);
    if (included) {
      EXPECT_EQ(records().front().snapshot_value(0), 77u);
      EXPECT_EQ(records().front().snapshot_value(1), 0x1234u);
    }
  }
}

// A record of the basic group alone has no metrics, whatever the configuration selects.
TEST_F(PmuVersion6Test, ARecordWithoutTheAdaptiveBitLeavesTheMetrics) {
  make(kLunarLakeP);
  set(MSR_PERF_METRICS, 0x1234);
  set(fx(3), 77);
  sample(2, adaptive::kMetrics | bit(adaptive::kIncludeFixedShift + 3), 0);
  ASSERT_EQ(records().size(), 1u);
  EXPECT_FALSE(records().front().snapshot().has_value());
  EXPECT_EQ(get(MSR_PERF_METRICS), 0x1234u);
  EXPECT_EQ(get(fx(3)), 77u);
}

// What CPUID says, of the row and of broken processors.
TEST(ExtendedLeaf, SaysWhatTheRowSaysButForDecisions) {
  using namespace cpuid;
  const Microarch& m = kLunarLakeP;
  EXPECT_EQ(extended_leaf(m, {}, kExtendedMain).eax, 0xBu);
  EXPECT_EQ(extended_leaf(m, {}, kExtendedMain).ebx, kUmask2 | kEqual);
  EXPECT_EQ(extended_leaf(m, {}, kExtendedMain).ecx, 8u);
  EXPECT_EQ(extended_leaf(m, {}, kExtendedCounters).eax, 0x3FFu);
  EXPECT_EQ(extended_leaf(m, {}, kExtendedCounters).ebx, 0xFu);
  EXPECT_EQ(extended_leaf(m, {}, kExtendedEvents).eax, 0xFFFu);
  EXPECT_EQ(extended_leaf(m, {}, 2).eax, 0u);
  EXPECT_EQ(extended_leaf(kGraniteRapids, {.wrong_gp = 1}, kExtendedCounters).eax, 0u);
  EXPECT_EQ(extended_leaf(m, {.wrong_gp = 0x401}, kExtendedCounters).eax, 0x7FEu);
  EXPECT_EQ(extended_leaf(m, {.wrong_fixed = 2}, kExtendedCounters).ebx, 0xDu);
  EXPECT_EQ(extended_leaf(m, {.wrong_subleaves = 2}, kExtendedMain).eax, 0x9u);
  EXPECT_EQ(extended_leaf(m, {.slots_more = 2}, kExtendedMain).ecx, 10u);
}

// The counters of architectural PEBS: EAX, EBX of the general-purpose ones, ECX, EDX of the fixed ones.
TEST(ExtendedLeaf, SaysWhichCountersHaveArchitecturalPebs) {
  const auto leaf = [](const ExtendedLeafBehaviour& how) {
    const CpuidLeaf l = extended_leaf(kPantherLakeP, how, cpuid::kExtendedPebsCounters);
    return std::array{l.eax, l.ebx, l.ecx, l.edx};
  };
  using Four = std::array<uint32_t, 4>;
  EXPECT_EQ(leaf({}), (Four{0x3FF, 0x003, 0x0F, 0x01}));
  EXPECT_EQ(leaf({.wrong_pebs_gp = 8}), (Four{0x3F7, 0x003, 0x0F, 0x01}));
  EXPECT_EQ(leaf({.wrong_pdist_gp = 8}), (Four{0x3FF, 0x00B, 0x0F, 0x01}));
  EXPECT_EQ(leaf({.wrong_pebs_fixed = 8}), (Four{0x3FF, 0x003, 0x07, 0x01}));
  EXPECT_EQ(leaf({.wrong_pdist_fixed = 8}), (Four{0x3FF, 0x003, 0x0F, 0x09}));
  const CpuidLeaf none = extended_leaf(kLunarLakeP, {.wrong_pebs_gp = 8, .wrong_pdist_fixed = 8},
                                       cpuid::kExtendedPebsCounters);
  EXPECT_EQ(none.eax | none.ebx | none.ecx | none.edx, 0u);
}

// Every decision shows where it is taken.
TEST_F(PmuVersion6Test, EachDecisionShows) {
  const auto metrics_after_record = [&] {
    set(MSR_PERF_METRICS, 0x1234);
    set(fx(3), 77);
    sample(2, adaptive::kSnapshot | bit(adaptive::kIncludeFixedShift + 3));
    return get(MSR_PERF_METRICS) << 8 | get(fx(3));
  };
  const auto counted_beyond = [&] {
    set(select_of(9), 0xC0 | evtsel::kOs | evtsel::kEnable);
    set(gp(9), low_bits(48));
    set(IA32_PERF_GLOBAL_CTRL, 0x200);
    retire(Signal::kNops);
    return get(gp(9)) << 16 | get(IA32_PERF_GLOBAL_STATUS);
  };
  const auto rdpmc_clears = [&](uint64_t control) {
    set(IA32_FIXED_CTR_CTRL, control);
    set(MSR_PERF_METRICS, 0x1234);
    set(fx(3), 77);
    static_cast<void>(pmu_->rdpmc(1u << 29));
    return get(MSR_PERF_METRICS) << 8 | get(fx(3));
  };
  constexpr uint64_t kKept = 0x1234 << 8 | 77;
  const Decision<Behaviour> decisions[] = {
      {"no counter answers in the bank", [](Behaviour& b) { b.version6.counters_answer = false; },
       [&] { return uint64_t{answers(gp(0))} + uint64_t{answers(select_of(0))}; }, 2, 1},
      {"a write in the bank is extended",
       [](Behaviour& b) { b.version6.counter_write_sign_extends = true; },
       [&] {
         set(gp(1), 0x1'8000'0000);
         return get(gp(1));
       },
       0x1'8000'0000, 0xFFFF'8000'0000},
      {"a write in the bank is lost", [](Behaviour& b) { b.version6.counter_write_lost = true; },
       [&] {
         set(gp(1), 5);
         return get(IA32_PMC0 + 1);
       },
       5, 0},
      {"… of a select", [](Behaviour& b) { b.version6.select_write_lost = true; },
       [&] {
         set(select_of(1), 5);
         return get(IA32_PERFEVTSEL0 + 1);
       },
       5, 0},
      {"… of a fixed counter", [](Behaviour& b) { b.version6.fixed_write_lost = true; },
       [&] {
         set(fx(1), 5);
         return get(IA32_FIXED_CTR0 + 1);
       },
       5, 0},
      {"counters beyond eight have legacy addresses",
       [](Behaviour& b) { b.version6.legacy_beyond = true; },
       [&] {
         uint64_t answering = 0;
         for (unsigned n = 0; n < 16; ++n) answering += answers(IA32_PMC0 + n);
         return answering;
       },
       8, 10},
      {"a counter stands still", [](Behaviour& b) { b.version6.dead_counters = 0x200; },
       counted_beyond, 0x200, low_bits(48) << 16},
      {"an overflow shows nowhere", [](Behaviour& b) { b.version6.silent_status = 0x200; },
       counted_beyond, 0x200, 0},
      {"UMASK2 decides nothing", [](Behaviour& b) { b.version6.umask2_selects = false; },
       [&] {
         set(select_of(0), 0x100'0000'00C0 | evtsel::kOs | evtsel::kEnable);
         set(IA32_PERF_GLOBAL_CTRL, 1);
         retire(Signal::kNops);
         return get(gp(0));
       },
       0, 1},
      {"RDPMC clears nothing", [](Behaviour& b) { b.version6.rdpmc_clears = false; },
       [&] { return rdpmc_clears(fixed_ctrl::kMetricsClear); }, 0, kKept},
      {"RDPMC always clears", [](Behaviour& b) { b.version6.rdpmc_clears_always = true; },
       [&] { return rdpmc_clears(0); }, kKept, 0},
      {"RDPMC leaves the base", [](Behaviour& b) { b.version6.rdpmc_clears_base = false; },
       [&] { return rdpmc_clears(fixed_ctrl::kMetricsClear); }, 0, 77},
      {"a record shows the reset value",
       [](Behaviour& b) { b.version6.snapshot_after_reload = true; },
       [&] {
         sample(2, adaptive::kCounters | uint64_t{4} << adaptive::kIncludeShift);
         return records().front().snapshot_value(0);
       },
       1, low_bits(48) - 999},
      {"a record leaves the metrics", [](Behaviour& b) { b.version6.metrics_cleared = false; },
       metrics_after_record, 0, 0x1234 << 8},
      {"… and their base", [](Behaviour& b) { b.version6.metrics_base_cleared = false; },
       metrics_after_record, 0, 77},
      {"a record of counters clears the metrics",
       [](Behaviour& b) { b.version6.metrics_cleared_by_counters = true; },
       [&] {
         set(MSR_PERF_METRICS, 0x1234);
         sample(2, adaptive::kCounters | uint64_t{4} << adaptive::kIncludeShift);
         return get(MSR_PERF_METRICS);
       },
       0x1234, 0},
  };
  expect_each_shows<Behaviour>(decisions, [this](auto change) { make(kLunarLakeP, change); });
}

}  // namespace
}  // namespace skidproof::model
