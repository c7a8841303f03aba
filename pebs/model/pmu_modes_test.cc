// RESET, INIT, system-management mode and machine checks, on the PMU alone.
#include <gtest/gtest.h>

#include <memory>

#include "pebs/arch/generations.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/pmu.h"
#include "pebs/model/testing/flat_memory.h"
#include "pebs/record.h"

namespace skidproof::model {
namespace {

using namespace arch;

class PmuModesTest : public ::testing::Test {
 protected:
  void make(
      std::string_view name, void (*change)(Behaviour&) = [](Behaviour&) {}) {
    uarch_ = *find_microarch(name);
    Behaviour behaviour = behaviour_of(*uarch_);
    change(behaviour);
    memory_ = {};
    pmu_ = std::make_unique<Pmu>(*uarch_, Topology{}, memory_, behaviour, 1);
    memory_.lay_out_pebs(uarch_->ds, 100 * record_bytes(), 101 * record_bytes());
  }
  uint64_t record_bytes() const { return uarch_->record->bytes; }
  void set(uint32_t msr, uint64_t value) {
    auto done = pmu_->wrmsr(msr, value);
    ASSERT_TRUE(done) << std::hex << msr << ": " << done.error().text();
  }
  uint64_t get(uint32_t msr) { return pmu_->rdmsr(msr).value(); }
  void retire(Signal signal = Signal::kInstructions, bool fused = false) {
    Retired r;
    r.ip = ip_;
    r.length = 4;
    r.counts[index(Signal::kInstructions)] = 1;
    r.counts[index(signal)] = 1;
    r.cycle = cycle_ += 100;
    r.fused_with_next = fused;
    registers_.ip = ip_ += 4;
    r.after = &registers_;
    pmu_->retire(r);
  }
  // Samples stores on PMC0; an overflow interrupts, too, where asked.
  void sample_stores(uint64_t period, uint64_t select_bits = 0) {
    memory_.set_field(uarch_->ds.gp_reset(0), (uint64_t{0} - period) & low_bits(48));
    set(IA32_DS_AREA, FlatMemory::kBase);
    set(IA32_PMC0, uint64_t{0} - period);
    set(IA32_PERFEVTSEL0, 0x82D0 | evtsel::kOs | evtsel::kEnable | select_bits);
    set(IA32_PEBS_ENABLE, 1);
    set(IA32_PERF_GLOBAL_CTRL, 1);
  }
  uint64_t records() {
    return (memory_.field(uarch_->ds.pebs_index) - FlatMemory::kBuffer) / record_bytes();
  }

  const Microarch* uarch_ = nullptr;
  FlatMemory memory_;
  std::unique_ptr<Pmu> pmu_;
  Registers registers_;
  uint64_t ip_ = 0x1000, cycle_ = 0;
};

// Every register that software can write, against the same one of a processor that was just powered on.
TEST_F(PmuModesTest, AfterResetEveryRegisterIsAsAfterPowerOn) {
  for (const char* name : {"core2", "sandy-bridge", "skylake", "ice-lake", "sapphire-rapids"}) {
    make(name);
    Pmu fresh(*uarch_, Topology{}, memory_, behaviour_of(*uarch_), 1);
    unsigned written = 0;
    for (uint32_t msr = 0; msr < 0x2000; ++msr) {
      const auto before = pmu_->rdmsr(msr);
      if (!before || msr == IA32_PERF_GLOBAL_CTRL) continue;
      for (const uint64_t value : {uint64_t{1}, uint64_t{0x400}, uint64_t{1} << 32}) {
        written += pmu_->wrmsr(msr, value).has_value() && pmu_->rdmsr(msr).value() != *before;
      }
    }
    EXPECT_GT(written, 10u) << name;
    pmu_->reset();
    for (uint32_t msr = 0; msr < 0x2000; ++msr) {
      const auto before = fresh.rdmsr(msr), after = pmu_->rdmsr(msr);
      ASSERT_EQ(before.has_value(), after.has_value()) << name << ", " << std::hex << msr;
      if (before) {
        EXPECT_EQ(*after, *before) << name << ", " << std::hex << msr;
      }
    }
    EXPECT_FALSE(pmu_->active()) << name;
    EXPECT_EQ(pmu_->quiet_instructions(), UINT64_MAX) << name;
    EXPECT_TRUE(pmu_->between_instructions()) << name;
  }
}

TEST_F(PmuModesTest, ResetForgetsWhatWasUnderWay) {
  make("sandy-bridge", [](Behaviour& b) { b.rough.pmi_low = b.rough.pmi_high = 5; });
  // Armed, with interrupts of the overflow and of the threshold to come.
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  memory_.set_field(uarch_->ds.pebs_threshold, FlatMemory::kBuffer);
  sample_stores(1, evtsel::kInt);
  retire(Signal::kStores);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_STATUS), 1u);
  pmu_->reset();
  EXPECT_FALSE(pmu_->interrupt_pending());
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  sample_stores(1000);
  retire(Signal::kStores);
  EXPECT_EQ(records(), 0u) << "not armed";
  EXPECT_FALSE(pmu_->interrupt_pending());

  // A record that waits for the rest of a fused pair.
  sample_stores(1);
  retire(Signal::kStores);
  retire(Signal::kStores, /*fused=*/true);
  EXPECT_FALSE(pmu_->between_instructions());
  pmu_->reset();
  EXPECT_TRUE(pmu_->between_instructions());
  retire();
  EXPECT_EQ(records(), 0u);

  // Two interrupts, of which the second waits for the first.
  sample_stores(1, evtsel::kInt);
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  retire(Signal::kStores);
  retire(Signal::kStores);
  EXPECT_TRUE(pmu_->interrupt_pending());
  pmu_->reset();
  for (int i = 0; i < 10; ++i) retire();
  EXPECT_FALSE(pmu_->take_interrupt());
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  memory_.set_field(uarch_->ds.pebs_threshold, FlatMemory::kBuffer + 50 * record_bytes());
  sample_stores(1);
  for (int i = 0; i < 20; ++i) retire(Signal::kStores);
  EXPECT_FALSE(pmu_->take_interrupt()) << "nothing of before is due behind a record";
}

TEST_F(PmuModesTest, StoppingAllCountersForgetsARecordThatWaits) {
  make("sandy-bridge");
  sample_stores(1);
  retire(Signal::kStores);
  retire(Signal::kStores, /*fused=*/true);
  EXPECT_FALSE(pmu_->between_instructions());
  set(IA32_PERF_GLOBAL_CTRL, 0);
  EXPECT_TRUE(pmu_->between_instructions());
  retire();
  EXPECT_EQ(records(), 0u);
}

// The record still comes where another counter goes on.
TEST_F(PmuModesTest, ARecordThatWaitsComesWhereSomethingCounts) {
  for (const uint64_t other : {bit(1), bit(32)}) {
    make("sandy-bridge");
    set(IA32_PERFEVTSEL0 + 1, 0xC0 | evtsel::kOs | evtsel::kEnable);
    set(IA32_FIXED_CTR_CTRL, 1);
    sample_stores(1);
    set(IA32_PERF_GLOBAL_CTRL, 1 | other);
    retire(Signal::kStores);
    retire(Signal::kStores, /*fused=*/true);
    set(IA32_PERF_GLOBAL_CTRL, other);
    EXPECT_FALSE(pmu_->between_instructions());
    retire();
    EXPECT_EQ(records(), 1u);
  }
}

// INIT leaves counters and selects, and resets the local APIC. [SDM 18.4, note; R57]
TEST_F(PmuModesTest, InitStopsRecordingAndKeepsTheCounters) {
  make("sandy-bridge");
  set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  set(IA32_DEBUGCTL, bit(6) | bit(7));
  sample_stores(1, evtsel::kInt);
  set(IA32_PERFEVTSEL0 + 1, 0xC0 | evtsel::kOs | evtsel::kEnable | evtsel::kInt);
  set(IA32_PMC0 + 1, ~uint64_t{0});
  set(IA32_PERF_GLOBAL_CTRL, 3);
  retire(Signal::kStores);
  ASSERT_TRUE(pmu_->interrupt_pending());
  pmu_->init();
  EXPECT_FALSE(pmu_->interrupt_pending());
  EXPECT_EQ(get(IA32_X2APIC_LVT_PMI), kResetLvt);
  EXPECT_EQ(get(IA32_PEBS_ENABLE), 0u);
  EXPECT_EQ(get(IA32_DEBUGCTL), 0u);
  EXPECT_EQ(get(IA32_PERF_GLOBAL_CTRL), 3u);
  retire(Signal::kStores);
  EXPECT_EQ(records(), 0u) << "disarmed";
  EXPECT_EQ(get(IA32_PMC0), 1u);
  EXPECT_EQ(get(IA32_PMC0 + 1), 1u);
}

TEST_F(PmuModesTest, AMachineCheckStopsRecordingUntilSoftwareEnablesItAgain) {
  make("sandy-bridge");
  sample_stores(1);
  retire(Signal::kStores);
  pmu_->machine_check();
  EXPECT_EQ(get(IA32_PEBS_ENABLE), 0u);
  retire(Signal::kStores);
  EXPECT_EQ(records(), 0u);
  sample_stores(1);
  retire(Signal::kStores);
  retire(Signal::kStores);
  EXPECT_EQ(records(), 1u);

  make("sandy-bridge", [](Behaviour& b) { b.modes.machine_check_reversible = false; });
  pmu_->machine_check();
  sample_stores(1);
  for (int i = 0; i < 4; ++i) retire(Signal::kStores);
  EXPECT_EQ(records(), 0u) << "where software cannot";
}

TEST_F(PmuModesTest, ResetStopsTheTraceUnlessItLeavesTheControlRegister) {
  for (const bool clears : {true, false}) {
    make(
        "sandy-bridge",
        clears ? [](Behaviour&) {} : [](Behaviour& b) { b.modes.reset_clears_branches = false; });
    const uint64_t trace = uarch_->branch_trace.messages | uarch_->branch_trace.store;
    set(IA32_DEBUGCTL, trace);
    EXPECT_TRUE(pmu_->active());
    pmu_->reset();
    EXPECT_EQ(get(IA32_DEBUGCTL), clears ? 0 : trace);
    EXPECT_EQ(pmu_->active(), !clears);
  }
}

// An event in SMM means nothing to a counter that is frozen; a processor may let it pend until RSM.
TEST_F(PmuModesTest, AnEventThatAFrozenCounterDoesNotCountIsNotRecordedBehindSmm) {
  for (const bool pends : {false, true}) {
    for (const bool freezes : {false, true}) {
      make(
          "sandy-bridge",
          pends ? [](Behaviour& b) { b.modes.frozen_event_pends = true; } : [](Behaviour&) {});
      set(IA32_DEBUGCTL, freezes ? debugctl::kFreezeWhileSmm : 0);
      sample_stores(1);
      retire(Signal::kStores);
      const auto recorded_behind = [&](Signal in_smm) {
        const uint64_t before = records();
        pmu_->enter_smm();
        retire(in_smm);
        pmu_->leave_smm();
        EXPECT_EQ(pmu_->between_instructions(), !(pends && freezes && in_smm == Signal::kStores));
        retire();
        return records() - before;
      };
      EXPECT_EQ(recorded_behind(Signal::kLoads), 0u);
      EXPECT_EQ(recorded_behind(Signal::kStores), pends && freezes ? 1u : 0u);
      EXPECT_EQ(recorded_behind(Signal::kLoads), 0u);
    }
  }
}

// FREEZE_WHILE_SMM_EN clears GLOBAL_CTRL, and LBR, BTF, TR and BTS, for the time in SMM. [18.18.1]
TEST_F(PmuModesTest, SmmFreezesWhereAsked) {
  constexpr uint64_t kBranches = bit(0) | bit(1) | bit(6) | bit(7);
  for (const bool asked : {false, true}) {
    make("sandy-bridge");
    const uint64_t debugctl = kBranches | bit(8) | (asked ? debugctl::kFreezeWhileSmm : 0);
    set(IA32_DEBUGCTL, debugctl);
    sample_stores(1);
    pmu_->enter_smm();
    EXPECT_EQ(get(IA32_PERF_GLOBAL_CTRL), asked ? 0u : 1u);
    EXPECT_EQ(get(IA32_DEBUGCTL), asked ? debugctl & ~kBranches : debugctl);
    for (int i = 0; i < 3; ++i) retire(Signal::kStores);
    EXPECT_EQ(records(), 0u);
    EXPECT_EQ(get(IA32_PMC0), asked ? low_bits(48) : 2u);
    pmu_->leave_smm();
    EXPECT_EQ(get(IA32_PERF_GLOBAL_CTRL), 1u);
    EXPECT_EQ(get(IA32_DEBUGCTL), debugctl);
    retire(Signal::kStores);
    EXPECT_EQ(records(), asked ? 0u : 1u) << "armed in SMM";
    // What was frozen once is not given back again.
    set(IA32_DEBUGCTL, 0);
    set(IA32_PERF_GLOBAL_CTRL, 2);
    pmu_->enter_smm();
    pmu_->leave_smm();
    EXPECT_EQ(get(IA32_PERF_GLOBAL_CTRL), 2u);
    EXPECT_EQ(get(IA32_DEBUGCTL), 0u);
  }
}

// What counts, counts from the instruction behind the write that started it.
TEST_F(PmuModesTest, TheWriteThatStartsACounterIsNotCounted) {
  make("sandy-bridge");
  auto write = [&](uint32_t msr, uint64_t value) {
    set(msr, value);
    Retired r;
    r.ip = ip_;
    r.length = 2;
    r.counts[index(Signal::kInstructions)] = 1;
    r.cycle = cycle_ += 100;
    registers_.ip = ip_ += 2;
    r.after = &registers_;
    pmu_->retire_write(r);
  };
  set(IA32_FIXED_CTR_CTRL, 1);
  for (unsigned n = 0; n < 2; ++n) {
    set(IA32_PERFEVTSEL0 + n, 0xC0 | evtsel::kOs | evtsel::kEnable);
  }
  write(IA32_PERF_GLOBAL_CTRL, 1);
  EXPECT_EQ(get(IA32_PMC0), 0u);
  write(IA32_PERF_GLOBAL_CTRL, 3 | bit(32));
  EXPECT_EQ(get(IA32_PMC0), 1u) << "it counted before";
  EXPECT_EQ(get(IA32_PMC0 + 1), 0u);
  EXPECT_EQ(get(IA32_FIXED_CTR0), 0u);
  // The entry of the local APIC stands between no write and its retirement.
  set(IA32_PERF_GLOBAL_CTRL, 0);
  set(IA32_PERF_GLOBAL_CTRL, 3 | bit(32));
  write(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  EXPECT_EQ(get(IA32_PMC0 + 1), 0u);
  EXPECT_EQ(get(IA32_FIXED_CTR0), 0u);
  write(IA32_PERF_GLOBAL_CTRL, 3 | bit(32));
  EXPECT_EQ(get(IA32_PMC0), 2u);
  EXPECT_EQ(get(IA32_PMC0 + 1), 1u);
  EXPECT_EQ(get(IA32_FIXED_CTR0), 1u);
  retire();
  EXPECT_EQ(get(IA32_PMC0), 3u);
  EXPECT_EQ(get(IA32_PMC0 + 1), 2u);
  EXPECT_EQ(get(IA32_FIXED_CTR0), 2u);
}

// A freeze by the very write's retirement stops what it stops.
TEST_F(PmuModesTest, AFreezeAtAWriteHolds) {
  for (const bool by_fixed : {false, true}) {
    make("sandy-bridge");
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
    set(IA32_DEBUGCTL, debugctl::kFreezePerfmonOnPmi);
    set(IA32_PERFEVTSEL0, 0xC0 | evtsel::kOs | evtsel::kEnable | evtsel::kInt);
    set(IA32_FIXED_CTR_CTRL, 1 | fixed_ctrl::kPmi);
    set(by_fixed ? IA32_FIXED_CTR0 : IA32_PMC0, low_bits(by_fixed ? 48 : 32));
    set(IA32_PERF_GLOBAL_CTRL, by_fixed ? bit(32) : bit(0));
    set(IA32_DS_AREA, FlatMemory::kBase);
    Retired r;
    r.length = 2;
    r.counts[index(Signal::kInstructions)] = 1;
    r.after = &registers_;
    pmu_->retire_write(r);
    EXPECT_TRUE(pmu_->interrupt_pending());
    EXPECT_EQ(get(IA32_PERF_GLOBAL_CTRL), 0u);
    retire();
    EXPECT_EQ(get(by_fixed ? IA32_FIXED_CTR0 : IA32_PMC0), 0u) << "it stands";
  }
}

// --- Outside IA-32e mode (R58, R59)

TEST_F(PmuModesTest, OutsideIa32eModeUpperHalvesAreZeroOrWhatWasLeft) {
  for (const LegacyUpper upper : {LegacyUpper::kZero, LegacyUpper::kLeft, LegacyUpper::kSign}) {
    uarch_ = *find_microarch("haswell");
    Behaviour behaviour = behaviour_of(*uarch_);
    behaviour.legacy_gpr_upper = behaviour.legacy_flags_upper = behaviour.legacy_ip_upper =
        behaviour.legacy_address_upper = upper;
    make("haswell");
    pmu_ = std::make_unique<Pmu>(*uarch_, Topology{}, memory_, behaviour, 1);
    pmu_->set_mode(Mode::kProtected32);
    sample_stores(1);
    registers_.flags = 0x8000'0246;
    for (uint64_t& gpr : registers_.gpr) gpr = 0x9234'5678;
    ip_ = 0xF000'1000;
    for (int i = 0; i < 2; ++i) {
      Retired r;
      r.ip = ip_;
      r.length = 4;
      r.counts[index(Signal::kInstructions)] = r.counts[index(Signal::kStores)] = 1;
      r.store = {.valid = true, .address = 0xA000'5000};
      r.cycle = cycle_ += 100;
      registers_.ip = ip_ += 4;
      r.after = &registers_;
      pmu_->retire(r);
    }
    ASSERT_EQ(records(), 1u);
    const Record record{memory_.at(FlatMemory::kBuffer), uarch_->record};
    auto expect = [&](uint64_t value, uint32_t low, const char* what) {
      EXPECT_EQ(static_cast<uint32_t>(value), low) << what;
      const uint64_t high = value >> 32;
      if (upper == LegacyUpper::kZero) {
        EXPECT_EQ(high, 0u) << what;
      } else if (upper == LegacyUpper::kSign) {
        EXPECT_EQ(high, 0xFFFF'FFFFu) << what;
      } else {
        EXPECT_NE(high, 0u) << what;
        EXPECT_NE(high, 0xFFFF'FFFFu) << what;
      }
    };
    expect(record.ip(), 0xF000'1008, "IP");
    expect(record.eventing_ip(), 0xF000'1004, "eventing IP");
    expect(record.flags(), 0x8000'0246, "flags");
    expect(record.data_address(), 0xA000'5000, "data linear address");
    for (unsigned g = 0; g < 8; ++g) {
      expect(record.gpr(static_cast<Gpr>(g)), 0x9234'5678, "register");
    }
    for (unsigned g = 8; g < kGprs; ++g) {
      EXPECT_EQ(record.gpr(static_cast<Gpr>(g)), 0u) << "R" << g;
    }
    pmu_->set_mode(Mode::kLong);
    retire(Signal::kStores);
    retire(Signal::kStores);
    ASSERT_EQ(records(), 2u);
    const Record long_one{memory_.at(FlatMemory::kBuffer + record_bytes()), uarch_->record};
    EXPECT_EQ(long_one.gpr(Gpr::kR8), 0x9234'5678u) << "in IA-32e mode again";
    EXPECT_EQ(long_one.gpr(Gpr::kRax), 0x9234'5678u);
  }
}

TEST_F(PmuModesTest, RealAddressModeRecords) {
  make("sandy-bridge");
  pmu_->set_mode(Mode::kReal);
  sample_stores(1);
  retire(Signal::kStores);
  retire(Signal::kStores);
  EXPECT_EQ(records(), 1u);
}

}  // namespace
}  // namespace skidproof::model
