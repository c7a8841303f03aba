// Which registers answer on each row, to the last of each range, and what some of them show.
#include <gtest/gtest.h>

#include <memory>

#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/pmu.h"
#include "pebs/model/testing/decisions.h"
#include "pebs/model/testing/flat_memory.h"

namespace skidproof::model {
namespace {

using namespace arch;

class PmuRegistersTest : public ::testing::Test {
 protected:
  void make(
      const Microarch& row, bool sibling = false, void (*change)(Behaviour&) = [](Behaviour&) {}) {
    Behaviour behaviour = behaviour_of(row);
    change(behaviour);
    pmu_ = std::make_unique<Pmu>(row, Topology{.sibling_thread = sibling}, memory_, behaviour, 1);
  }
  void make(std::string_view name) { make(**find_microarch(name)); }
  bool answers(uint32_t msr) {
    const auto value = pmu_->rdmsr(msr);
    return value.has_value();
  }
  bool takes(uint32_t msr, uint64_t value) { return pmu_->wrmsr(msr, value).has_value(); }
  void set(uint32_t msr, uint64_t value) { ASSERT_TRUE(takes(msr, value)) << std::hex << msr; }
  uint64_t get(uint32_t msr) { return pmu_->rdmsr(msr).value(); }

  FlatMemory memory_;
  std::unique_ptr<Pmu> pmu_;
};

TEST_F(PmuRegistersTest, AsManyCountersAnswerAsCpuidReports) {
  for (const Microarch* row : microarchs()) {
    if (!row->architectural_perfmon()) continue;
    for (const bool sibling : {false, true}) {
      make(*row, sibling);
      const unsigned gp = gp_counters(*row, sibling);
      for (unsigned n = 0; n < 16; ++n) {
        const bool there = n < gp;
        SCOPED_TRACE(std::string(row->name) + " " + std::to_string(n));
        EXPECT_EQ(answers(IA32_PMC0 + n), there);
        EXPECT_EQ(takes(IA32_PMC0 + n, 5), there);
        EXPECT_EQ(answers(IA32_PERFEVTSEL0 + n), there);
        EXPECT_EQ(takes(IA32_PERFEVTSEL0 + n, 0), there);
        EXPECT_EQ(answers(IA32_A_PMC0 + n), there && row->full_width_writes);
        EXPECT_EQ(takes(IA32_A_PMC0 + n, 5), there && row->full_width_writes);
        const bool listed = there || (row->extended.gp >> n & 1) != 0;
        EXPECT_EQ(pmu_->rdpmc(n, false, false).has_value(), listed);
        EXPECT_EQ(takes(IA32_PERF_GLOBAL_CTRL, bit(n)), listed);
        EXPECT_EQ(takes(IA32_PERF_GLOBAL_OVF_CTRL, bit(n)), listed);
        if (there) {
          EXPECT_EQ(get(IA32_PMC0 + n), 5u);
        }
      }
      for (unsigned i = 0; i < 8; ++i) {
        const bool there = i < row->fixed_counters;
        SCOPED_TRACE(std::string(row->name) + " fixed " + std::to_string(i));
        EXPECT_EQ(answers(IA32_FIXED_CTR0 + i), there);
        EXPECT_EQ(takes(IA32_FIXED_CTR0 + i, 7), there);
        const bool listed = there || (row->extended.fixed >> i & 1) != 0;
        EXPECT_EQ(pmu_->rdpmc((1u << 30) + i, false, false).has_value(), listed);
        EXPECT_EQ(takes(IA32_PERF_GLOBAL_CTRL, bit(32 + i)), listed);
        if (there) {
          EXPECT_EQ(get(IA32_FIXED_CTR0 + i), 7u);
          EXPECT_EQ(pmu_->rdpmc((1u << 30) + i, false, false).value(), 7u);
        }
      }
    }
  }
}

// What came with a generation raises #GP before it.
TEST_F(PmuRegistersTest, ARegisterAnswersFromItsGenerationOn) {
  for (const Microarch* row : microarchs()) {
    if (!row->architectural_perfmon()) continue;
    make(*row);
    SCOPED_TRACE(row->name);
    EXPECT_EQ(answers(MSR_PEBS_DATA_CFG), row->pebs_baseline);
    EXPECT_EQ(takes(MSR_PEBS_DATA_CFG, 1), row->pebs_baseline);
    EXPECT_EQ(answers(MSR_PERF_METRICS), row->perf_metrics);
    EXPECT_EQ(takes(MSR_PERF_METRICS, ~uint64_t{0}), row->perf_metrics);
    EXPECT_EQ(pmu_->rdpmc(1u << 29, false, false).has_value(), row->perf_metrics);
    EXPECT_EQ(answers(MSR_ARCH_LBR_CTL), row->architectural_lbr());
    EXPECT_EQ(takes(MSR_ARCH_LBR_CTL, 1), row->architectural_lbr());
    EXPECT_EQ(answers(MSR_PEBS_FRONTEND), row->frontend_defined != 0);
    EXPECT_EQ(answers(IA32_PERF_GLOBAL_INUSE), row->perfmon_version >= 4);
    EXPECT_EQ(answers(IA32_PERF_GLOBAL_STATUS_SET), row->perfmon_version >= 4);
    if (row->perf_metrics) {
      EXPECT_EQ(get(MSR_PERF_METRICS), ~uint64_t{0});
      EXPECT_EQ(pmu_->rdpmc(1u << 29, false, false).value(), ~uint64_t{0});
    }
    if (row->perfmon_version >= 4) {
      EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS_SET), 0u);
    }
    EXPECT_EQ(get(IA32_PERF_GLOBAL_OVF_CTRL), 0u);
    EXPECT_EQ(get(IA32_PERF_CAPABILITIES), perf_capabilities(*row));
    EXPECT_FALSE(takes(IA32_PERF_CAPABILITIES, 0));
  }
}

// IA32_PERF_GLOBAL_INUSE, counter by counter. [SDM 18.2.4.3]
TEST_F(PmuRegistersTest, InUseShowsEverySelectFieldAndInterrupt) {
  for (unsigned n = 0; n < 8; ++n) {
    make("skylake");
    set(IA32_PERFEVTSEL0 + n, 0xC4);
    EXPECT_EQ(get(IA32_PERF_GLOBAL_INUSE), bit(n));
    set(IA32_PERFEVTSEL0 + n, 0xC4 | evtsel::kInt);
    EXPECT_EQ(get(IA32_PERF_GLOBAL_INUSE), bit(n) | bit(63));
    set(IA32_PERFEVTSEL0 + n, 0x0100 | evtsel::kInt);
    EXPECT_EQ(get(IA32_PERF_GLOBAL_INUSE), bit(63)) << "no event is selected";
  }
  for (unsigned i = 0; i < 3; ++i) {
    make("skylake");
    for (const uint64_t ring : {fixed_ctrl::kOs, fixed_ctrl::kUsr}) {
      set(IA32_FIXED_CTR_CTRL, fixed_ctrl::field(i, ring));
      EXPECT_EQ(get(IA32_PERF_GLOBAL_INUSE), bit(32 + i));
    }
    set(IA32_FIXED_CTR_CTRL, fixed_ctrl::field(i, fixed_ctrl::kPmi));
    EXPECT_EQ(get(IA32_PERF_GLOBAL_INUSE), bit(63));
  }
  for (unsigned n = 0; n < 4; ++n) {
    make("skylake");
    set(IA32_PEBS_ENABLE, bit(n));
    EXPECT_EQ(get(IA32_PERF_GLOBAL_INUSE), bit(63));
  }
}

TEST_F(PmuRegistersTest, OvfCtrlClearsWhatItIsAskedToAndNothingElse) {
  make("skylake");
  const uint64_t bits[] = {bit(0),
                           bit(3),
                           bit(7),
                           bit(32),
                           bit(34),
                           status::kOvfBuffer,
                           status::kCountersFrozen,
                           status::kLbrFrozen};
  uint64_t all = 0;
  for (uint64_t one : bits) all |= one;
  for (uint64_t one : bits) {
    set(IA32_PERF_GLOBAL_STATUS_SET, all);
    EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), all);
    set(IA32_PERF_GLOBAL_OVF_CTRL, one);
    EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), all & ~one) << std::hex << one;
    set(IA32_PERF_GLOBAL_OVF_CTRL, all);
    EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 0u);
  }
}

// Counters stand while they are frozen, and go on with the clearing of CTR_Frz.
TEST_F(PmuRegistersTest, ClearingCtrFrzLetsTheCountersGoOn) {
  make("skylake");
  set(IA32_PERFEVTSEL0, 0xC0 | evtsel::kOs | evtsel::kEnable);
  set(IA32_PERF_GLOBAL_CTRL, 1);
  EXPECT_TRUE(pmu_->active());
  set(IA32_PERF_GLOBAL_STATUS_SET, status::kCountersFrozen);
  EXPECT_FALSE(pmu_->active());
  set(IA32_PERF_GLOBAL_OVF_CTRL, status::kOvfBuffer);
  EXPECT_FALSE(pmu_->active());
  set(IA32_PERF_GLOBAL_OVF_CTRL, status::kCountersFrozen);
  EXPECT_TRUE(pmu_->active());
}

TEST_F(PmuRegistersTest, MiscEnableAndTheLvtEntryKeepTheirReadOnlyBits) {
  make("sandy-bridge");
  const uint64_t before = get(IA32_MISC_ENABLE);
  EXPECT_EQ(before, misc_enable::kPerfmonAvailable);
  set(IA32_MISC_ENABLE, before ^ (misc_enable::kPebsUnavailable | misc_enable::kBtsUnavailable |
                                  misc_enable::kPerfmonAvailable));
  EXPECT_EQ(get(IA32_MISC_ENABLE), before);
  set(IA32_X2APIC_LVT_PMI, kWritableLvt | kReadOnlyLvt);
  EXPECT_EQ(get(IA32_X2APIC_LVT_PMI), kWritableLvt);
  Behaviour hidden = behaviour_of(**find_microarch("sandy-bridge"));
  hidden.pebs_announced = hidden.bts.announced = false;
  Pmu other(**find_microarch("sandy-bridge"), Topology{}, memory_, hidden, 1);
  EXPECT_EQ(other.rdmsr(IA32_MISC_ENABLE).value(), misc_enable::kPerfmonAvailable |
                                                       misc_enable::kPebsUnavailable |
                                                       misc_enable::kBtsUnavailable);
}

TEST_F(PmuRegistersTest, TheDsAreaIsCanonical) {
  for (const char* name : {"sandy-bridge", "ice-lake"}) {
    make(name);
    for (const uint64_t address : {uint64_t{0x10000}, uint64_t{0xFFFF'8880'0001'0000}}) {
      set(IA32_DS_AREA, address);
      EXPECT_EQ(get(IA32_DS_AREA), address);
    }
    EXPECT_FALSE(takes(IA32_DS_AREA, uint64_t{1} << 60));
    EXPECT_EQ(get(IA32_DS_AREA), 0xFFFF'8880'0001'0000);
  }
}

// Every decision shows where it is taken, and nothing of it where it is not.
TEST_F(PmuRegistersTest, EachDecisionShows) {
  constexpr uint64_t kBeyond = uint64_t{1} << 62;  // not canonical
  const Decision<Behaviour> decisions[] = {
      {"a write extends to bit 39", [](Behaviour& b) { b.legacy_extends_to = 40; },
       [&] {
         set(IA32_PMC0, 0x8000'0000);
         return get(IA32_PMC0);
       },
       0xFFFF'8000'0000, 0xFF'8000'0000},
      {"the aliases of the upper counters are absent",
       [](Behaviour& b) { b.counting.upper_aliases = false; },
       [&] {
         uint64_t answering = 0;
         for (unsigned n = 0; n < 8; ++n) answering += answers(IA32_A_PMC0 + n);
         return answering;
       },
       8, 4},
      {"starting counters clears their status",
       [](Behaviour& b) { b.counting.enabling_clears_status = true; },
       [&] {
         set(IA32_PERF_GLOBAL_STATUS_SET, bit(0) | status::kOvfBuffer);
         set(IA32_PERF_GLOBAL_CTRL, 0);
         EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), bit(0) | status::kOvfBuffer);
         set(IA32_PERF_GLOBAL_CTRL, 2);
         return get(IA32_PERF_GLOBAL_STATUS);
       },
       bit(0) | status::kOvfBuffer, status::kOvfBuffer},
      {"reserved bits of IA32_DS_AREA are taken",
       [](Behaviour& b) {
         b.counting.lax = {IA32_DS_AREA, kBeyond};
       },
       [&] {
         EXPECT_FALSE(takes(IA32_DS_AREA, kBeyond | bit(61)));
         return uint64_t{takes(IA32_DS_AREA, kBeyond)};
       },
       0, 1},
      {"those of another register are its own",
       [](Behaviour& b) {
         b.counting.lax = {IA32_FIXED_CTR_CTRL, kBeyond};
       },
       [&] { return uint64_t{takes(IA32_DS_AREA, kBeyond)}; }, 0, 0},
      {"bits of IA32_DS_AREA are lost",
       [](Behaviour& b) {
         b.counting.lost = {IA32_DS_AREA, 0xF000};
       },
       [&] {
         set(IA32_DS_AREA, 0x1'F678);
         return get(IA32_DS_AREA);
       },
       0x1'F678, 0x1'0678},
      {"those of another register are lost there",
       [](Behaviour& b) {
         b.counting.lost = {MSR_PEBS_LD_LAT_THRESHOLD, 0xF000};
       },
       [&] {
         set(IA32_DS_AREA, 0x1'F678);
         return get(IA32_DS_AREA);
       },
       0x1'F678, 0x1'F678},
  };
  expect_each_shows<Behaviour>(decisions, [this](auto change) {
    make(**find_microarch("skylake"), /*sibling=*/false, change);
  });
}

// With a sibling thread half of the counters are there; the bits of the others are reserved.
TEST_F(PmuRegistersTest, BitsOfAbsentCountersAreTakenOnlyByDecision) {
  for (const bool taken : {false, true}) {
    make(
        **find_microarch("skylake"), true,
        taken ? [](Behaviour& b) { b.absent_global_bits_fault = false; } : [](Behaviour&) {});
    for (unsigned n = 0; n < 8; ++n) {
      EXPECT_EQ(takes(IA32_PERF_GLOBAL_CTRL, bit(n)), n < 4 || taken) << n;
      EXPECT_EQ(takes(IA32_PERF_GLOBAL_OVF_CTRL, bit(n)), n < 4 || taken) << n;
    }
  }
}

}  // namespace
}  // namespace skidproof::model
