// Auto counter reload in the model: registers, which overflow loads what, PEBS. [SDM Vol. 3 (325384-089) 21.10]
#include <gtest/gtest.h>

#include <memory>

#include "pebs/arch/generations.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/pmu.h"
#include "pebs/model/testing/decisions.h"
#include "pebs/model/testing/flat_memory.h"

namespace skidproof::model {
namespace {

using namespace arch;

constexpr uint64_t kInstructionEvent = 0xC0 | evtsel::kOs | evtsel::kEnable;
constexpr uint64_t kJumpEvent = 0x7EC4 | evtsel::kOs | evtsel::kEnable;
constexpr uint64_t kValue = 0x8000'1234;
constexpr uint64_t kLoaded = 0xFFFF'8000'1234;
constexpr uint32_t reload(unsigned n) { return kBankStride * n; }

class PmuAutoReloadTest : public testing::Test {
 protected:
  void make(void (*change)(Behaviour&) = [](Behaviour&) {}) {
    Behaviour behaviour = behaviour_of(kLunarLakeE);
    change(behaviour);
    memory_ = {};
    pmu_ = std::make_unique<Pmu>(kLunarLakeE, Topology{.sibling_thread = false}, memory_, behaviour,
                                 1);
    const DsLayout& ds = kLunarLakeE.ds;
    memory_.set_field(ds.pebs_base, FlatMemory::kBuffer);
    memory_.set_field(ds.pebs_index, FlatMemory::kBuffer);
    memory_.set_field(ds.pebs_maximum, FlatMemory::kBuffer + 0x8000);
    memory_.set_field(ds.pebs_threshold, FlatMemory::kBuffer + 0x9000);
    set(IA32_DS_AREA, FlatMemory::kBase);
    ip_ = cycle_ = 0;
  }
  bool takes(uint32_t msr, uint64_t value) { return pmu_->wrmsr(msr, value).has_value(); }
  void set(uint32_t msr, uint64_t value) { ASSERT_TRUE(takes(msr, value)) << std::hex << msr; }
  uint64_t get(uint32_t msr) { return pmu_->rdmsr(msr).value(); }
  void count(unsigned n, uint64_t select, uint64_t from, uint64_t causes = 0) {
    set(IA32_A_PMC0 + n, from & low_bits(48));
    set(IA32_PERFEVTSEL0 + n, select);
    set(IA32_PMC_GP0_CFG_C + reload(n), kValue);
    set(IA32_PMC_GP0_CFG_B + reload(n), causes);
  }
  void retire(Signal signal, int times = 1) {
    for (int i = 0; i < times; ++i) {
      Retired r;
      r.ip = ip_;
      r.length = 4;
      r.counts[index(Signal::kInstructions)] = 1;
      r.counts[index(Signal::kCycles)] = 100;
      r.counts[index(signal)] = 1;
      r.cycle = r.tsc = cycle_ += 100;
      registers_.ip = ip_ += 4;
      r.after = &registers_;
      pmu_->retire(r);
    }
  }

  FlatMemory memory_;
  std::unique_ptr<Pmu> pmu_;
  Registers registers_;
  uint64_t ip_ = 0, cycle_ = 0;
};

TEST_F(PmuAutoReloadTest, RegistersOfTheCountersThatCanBeReloaded) {
  make();
  for (unsigned n = 0; n < 10; ++n) {
    const bool there = n >= 2 && n < 8;
    EXPECT_EQ(takes(IA32_PMC_GP0_CFG_B + reload(n), 0x3'0000'00FC), there) << n;
    EXPECT_EQ(takes(IA32_PMC_GP0_CFG_C + reload(n), 0xFFFF'FFFF), there) << n;
    if (!there) continue;
    EXPECT_EQ(get(IA32_PMC_GP0_CFG_B + reload(n)), 0x3'0000'00FCu);
    EXPECT_EQ(get(IA32_PMC_GP0_CFG_C + reload(n)), 0xFFFF'FFFFu);
    for (unsigned b : {0u, 1u, 8u, 34u, 63u}) {
      EXPECT_FALSE(takes(IA32_PMC_GP0_CFG_B + reload(n), bit(b))) << b;
    }
    EXPECT_FALSE(takes(IA32_PMC_GP0_CFG_C + reload(n), bit(32)));
  }
  for (unsigned m = 0; m < 8; ++m) {
    EXPECT_EQ(takes(IA32_PMC_FX0_CFG_B + reload(m), 4), m < 2) << m;
    EXPECT_EQ(takes(IA32_PMC_FX0_CFG_C + reload(m), 4), m < 2) << m;
  }
}

TEST_F(PmuAutoReloadTest, AnOverflowLoadsAllThatNameIt) {
  make();
  count(2, kJumpEvent, uint64_t{0} - 2);
  count(3, kInstructionEvent, 0, bit(2));
  count(4, kInstructionEvent, 0, bit(2) | bit(5));
  count(5, kInstructionEvent, 0, bit(4));
  set(IA32_PMC_FX0_CFG_C + reload(1), kValue);
  set(IA32_PMC_FX0_CFG_B + reload(1), bit(2));
  set(IA32_FIXED_CTR_CTRL, fixed_ctrl::field(1, fixed_ctrl::kOs));
  set(IA32_PERF_GLOBAL_CTRL, 0x3C | bit(33));
  retire(Signal::kConditional);
  EXPECT_EQ(get(IA32_PMC0 + 3), 1u);
  retire(Signal::kConditional);
  EXPECT_EQ(get(IA32_PMC0 + 2), 0u);
  EXPECT_EQ(get(IA32_PMC0 + 3), kLoaded);
  EXPECT_EQ(get(IA32_PMC0 + 4), kLoaded);
  EXPECT_EQ(get(IA32_PMC0 + 5), 2u);
  EXPECT_EQ(get(IA32_FIXED_CTR0 + 1), kLoaded);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), bit(2));
  retire(Signal::kNops);
  EXPECT_EQ(get(IA32_PMC0 + 3), kLoaded + 1) << "it counts on from there";
}

TEST_F(PmuAutoReloadTest, OneThatOverflowedWithItOrBeforeIsLeft) {
  make();
  count(2, kJumpEvent, uint64_t{0} - 2);
  count(3, kInstructionEvent, uint64_t{0} - 2, bit(2));  // in the same cycle
  count(4, kInstructionEvent, uint64_t{0} - 1, bit(2));  // one before
  set(IA32_PERF_GLOBAL_CTRL, 0x1C);
  retire(Signal::kConditional, 2);
  EXPECT_EQ(get(IA32_PMC0 + 3), 0u);
  EXPECT_EQ(get(IA32_PMC0 + 4), 1u);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 0x1Cu);
}

TEST_F(PmuAutoReloadTest, OfAFixedCounterAndOfItself) {
  make();
  count(3, kInstructionEvent, 0, bit(32));
  count(4, kInstructionEvent, uint64_t{0} - 3, bit(4));
  set(IA32_FIXED_CTR0, low_bits(48) - 1);
  set(IA32_FIXED_CTR_CTRL, fixed_ctrl::field(0, fixed_ctrl::kOs));
  set(IA32_PERF_GLOBAL_CTRL, 0x18 | bit(32));
  retire(Signal::kNops, 2);
  EXPECT_EQ(get(IA32_PMC0 + 3), kLoaded);
  retire(Signal::kNops);
  EXPECT_EQ(get(IA32_PMC0 + 4), kLoaded);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), bit(32)) << "its own never shows";
}

// The overflow shows until the record is written; others are loaded then, too.
TEST_F(PmuAutoReloadTest, WithPebsBehindTheRecord) {
  make();
  memory_.set_field(kLunarLakeE.ds.gp_reset(2), 0x7777);
  count(2, kJumpEvent, uint64_t{0} - 1, bit(2));
  count(3, kInstructionEvent, 0, bit(2));
  set(IA32_PEBS_ENABLE, 4);
  set(IA32_PERF_GLOBAL_CTRL, 0xC);
  retire(Signal::kConditional);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), bit(2));
  EXPECT_EQ(get(IA32_PMC0 + 3), 1u);
  retire(Signal::kConditional);
  EXPECT_EQ(memory_.field(kLunarLakeE.ds.pebs_index) - FlatMemory::kBuffer, 0x20u);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 0u);
  EXPECT_EQ(get(IA32_PMC0 + 2), kLoaded) << "not the reset value of the DS area";
  EXPECT_EQ(get(IA32_PMC0 + 3), kLoaded);
}

// Two that overflow with the same instruction load what names either of them.
TEST_F(PmuAutoReloadTest, TwoAtOnceLoadWhatNamesEither) {
  make();
  count(2, kJumpEvent, uint64_t{0} - 1);
  count(6, kInstructionEvent, uint64_t{0} - 1);
  count(3, kInstructionEvent, 0, bit(2));
  count(4, kInstructionEvent, 0, bit(6));
  set(IA32_PERF_GLOBAL_CTRL, 0x5C);
  retire(Signal::kConditional);
  EXPECT_EQ(get(IA32_PMC0 + 3), kLoaded);
  EXPECT_EQ(get(IA32_PMC0 + 4), kLoaded);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 0x44u);
}

TEST_F(PmuAutoReloadTest, FixedCountersLoadOneAnotherAndThemselves) {
  make();
  set(IA32_FIXED_CTR_CTRL,
      fixed_ctrl::field(0, fixed_ctrl::kOs) | fixed_ctrl::field(1, fixed_ctrl::kOs));
  for (unsigned m : {0u, 1u}) set(IA32_PMC_FX0_CFG_C + reload(m), kValue + m);
  set(IA32_PMC_FX0_CFG_B + reload(0), bit(33));
  set(IA32_PMC_FX0_CFG_B + reload(1), bit(33));
  set(IA32_FIXED_CTR0 + 1, low_bits(48));
  set(IA32_PERF_GLOBAL_CTRL, bit(32) | bit(33));
  retire(Signal::kNops);
  EXPECT_EQ(get(IA32_FIXED_CTR0), kLoaded);
  EXPECT_EQ(get(IA32_FIXED_CTR0 + 1), kLoaded + 1);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 0u) << "its own never shows";
}

// The interrupt of the overflow has frozen the counters: they stand as they were.
TEST_F(PmuAutoReloadTest, NothingIsLoadedWhileCountersAreFrozen) {
  for (const bool freezes : {false, true}) {
    make();
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
    set(IA32_DEBUGCTL, freezes ? debugctl::kFreezePerfmonOnPmi : 0);
    count(2, kJumpEvent | evtsel::kInt, uint64_t{0} - 1);
    count(3, kInstructionEvent, 0, bit(2));
    set(IA32_PERF_GLOBAL_CTRL, 0xC);
    retire(Signal::kConditional);
    EXPECT_EQ((get(IA32_PERF_GLOBAL_STATUS) & status::kCountersFrozen) != 0, freezes);
    EXPECT_EQ(get(IA32_PMC0 + 3), freezes ? 1u : kLoaded);
  }
}

TEST_F(PmuAutoReloadTest, EachDecisionShows) {
  const auto two = [&](uint64_t causes) {
    count(2, kJumpEvent, uint64_t{0} - 1);
    count(3, kInstructionEvent, 0, causes);
    count(4, kInstructionEvent, 0, causes);
    set(IA32_PERF_GLOBAL_CTRL, 0x1C);
    retire(Signal::kConditional);
    return (get(IA32_PMC0 + 3) >> 44) << 4 | get(IA32_PMC0 + 4) >> 44;
  };
  const auto itself = [&] {
    count(4, kInstructionEvent, uint64_t{0} - 1, bit(4));
    set(IA32_PERF_GLOBAL_CTRL, 0x10);
    retire(Signal::kNops);
    return (get(IA32_PMC0 + 4) >> 44) << 8 | get(IA32_PERF_GLOBAL_STATUS);
  };
  const auto fixed = [&] {
    count(3, kInstructionEvent, 0, bit(32));
    set(IA32_PMC_FX0_CFG_C + reload(1), kValue);
    set(IA32_PMC_FX0_CFG_B + reload(1), bit(32));
    set(IA32_FIXED_CTR0, low_bits(48));
    set(IA32_FIXED_CTR_CTRL,
        fixed_ctrl::field(0, fixed_ctrl::kOs) | fixed_ctrl::field(1, fixed_ctrl::kOs));
    set(IA32_PERF_GLOBAL_CTRL, 8 | bit(32) | bit(33));
    retire(Signal::kNops);
    return (get(IA32_PMC0 + 3) >> 44) << 4 | get(IA32_FIXED_CTR0 + 1) >> 44;
  };
  const Decision<Behaviour> decisions[] = {
      {"a reserved bit of a configuration is taken",
       [](Behaviour& b) { b.auto_reload.causes_taken = 1; },
       [&] { return uint64_t{takes(IA32_PMC_GP0_CFG_B + reload(2), 1)}; }, 0, 1},
      {"a defined one is refused", [](Behaviour& b) { b.auto_reload.causes_refused = 4; },
       [&] { return uint64_t{takes(IA32_PMC_GP0_CFG_B + reload(2), 4)}; }, 1, 0},
      {"… or lost", [](Behaviour& b) { b.auto_reload.causes_lost = 4; },
       [&] {
         set(IA32_PMC_GP0_CFG_B + reload(2), 0xC);
         return get(IA32_PMC_GP0_CFG_B + reload(2));
       },
       0xC, 8},
      {"a wide value is taken", [](Behaviour& b) { b.auto_reload.values_taken = bit(40); },
       [&] { return uint64_t{takes(IA32_PMC_GP0_CFG_C + reload(2), bit(40))}; }, 0, 1},
      {"others are not loaded", [](Behaviour& b) { b.auto_reload.others = false; },
       [&] { return two(bit(2)); }, 0xFF, 0},
      {"what names another is", [](Behaviour& b) { b.auto_reload.by_any = true; },
       [&] { return two(bit(5)); }, 0, 0xFF},
      {"one at a time", [](Behaviour& b) { b.auto_reload.one_at_a_time = true; },
       [&] { return two(bit(2)); }, 0xFF, 0xF0},
      {"without ones", [](Behaviour& b) { b.auto_reload.extends_ones = false; },
       [&] { return two(bit(2)); }, 0xFF, 0},
      {"a fixed counter loads none", [](Behaviour& b) { b.auto_reload.by_fixed = false; }, fixed,
       0xFF, 0},
      {"a fixed counter is not loaded", [](Behaviour& b) { b.auto_reload.fixed = false; }, fixed,
       0xFF, 0xF0},
      {"one whose overflow shows is loaded",
       [](Behaviour& b) { b.auto_reload.overflowed_too = true; },
       [&] {
         count(2, kJumpEvent, uint64_t{0} - 1);
         count(3, kInstructionEvent, uint64_t{0} - 1, bit(2));
         set(IA32_PERF_GLOBAL_CTRL, 0xC);
         retire(Signal::kConditional);
         return get(IA32_PMC0 + 3);
       },
       0, kLoaded},
      {"none loads itself", [](Behaviour& b) { b.auto_reload.self = false; }, itself, 0xF00, 0x10},
      {"its own overflow shows", [](Behaviour& b) { b.auto_reload.self_sets_status = true; },
       itself, 0xF00, 0xF10},
      {"before the record", [](Behaviour& b) { b.auto_reload.after_record = false; },
       [&] {
         count(2, kJumpEvent, uint64_t{0} - 1);
         count(3, kInstructionEvent, 0, bit(2));
         set(IA32_PEBS_ENABLE, 4);
         set(IA32_PERF_GLOBAL_CTRL, 0xC);
         retire(Signal::kConditional);
         return get(IA32_PMC0 + 3);
       },
       1, kLoaded},
  };
  expect_each_shows<Behaviour>(decisions, [this](auto change) { make(change); });
}

}  // namespace
}  // namespace skidproof::model
