// The LBR stack: which branches it holds, at which registers, and what freezes it.
#include "pebs/arch/last_branches.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "pebs/arch/msr.h"
#include "pebs/model/pmu.h"
#include "pebs/model/testing/flat_memory.h"

namespace skidproof::model {
namespace {

using namespace arch;

class LastBranchesTest : public ::testing::Test {
 protected:
  void make(std::string_view name, void (*change)(Behaviour&) = nullptr, const Rough& rough = {}) {
    uarch_ = find_microarch(name).value();
    Behaviour behaviour = behaviour_of(*uarch_, rough);
    if (change != nullptr) change(behaviour);
    pmu_ = std::make_unique<Pmu>(*uarch_, Topology{}, memory_, behaviour, 1);
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  }
  void set(uint32_t msr, uint64_t value) {
    auto done = pmu_->wrmsr(msr, value);
    ASSERT_TRUE(done) << std::hex << msr << ": " << done.error().text();
  }
  uint64_t get(uint32_t msr) { return pmu_->rdmsr(msr).value(); }
  void record(uint64_t also = 0) {
    if (uarch_->architectural_lbr()) {
      set(MSR_ARCH_LBR_CTL, lbr_ctl::kEnable | lbr_ctl::kOs | lbr_ctl::kUsr);
      set(IA32_DEBUGCTL, also);
    } else {
      set(IA32_DEBUGCTL, debugctl::kLbr | also);
    }
  }
  // A jump from 1000H + n to 2000H + n.
  void jump(uint64_t n, bool taken = true, bool mispredicted = false) {
    Registers after{};
    after.ip = 0x2000 + n;
    Retired r;
    r.ip = 0x1000 + n;
    r.cycle = cycle_ += 10;
    r.after = &after;
    r.counts[index(Signal::kInstructions)] = 1;
    r.counts[index(Signal::kBranches)] = 1;
    r.counts[index(taken ? Signal::kNearTaken : Signal::kConditionalNotTaken)] = 1;
    r.counts[index(Signal::kMispredicts)] = mispredicted ? 1 : 0;
    pmu_->retire(r);
  }
  // What the entries' from say, newest first: n of each jump; 0 where none stands.
  std::vector<uint64_t> held() {
    const LastBranches& stack = uarch_->last_branches;
    const auto top = static_cast<unsigned>(stack.tos == 0 ? 0 : get(stack.tos));
    std::vector<uint64_t> all;
    for (unsigned i = 0; i < stack.depth; ++i) {
      const unsigned entry = stack.entry(top, i);
      const uint64_t from = get(stack.from + entry) & ~bit(63);
      const uint64_t to = get(stack.to + entry);
      EXPECT_EQ(to, from == 0 ? 0 : from + 0x1000);
      all.push_back(from == 0 ? 0 : from - 0x1000);
    }
    return all;
  }
  // An interrupt of IA32_PMC0 with the next instruction.
  void overflow_next() {
    set(IA32_PMC0, ~uint64_t{0});
    set(IA32_PERFEVTSEL0, 0xC0 | evtsel::kUsr | evtsel::kOs | evtsel::kInt | evtsel::kEnable);
    set(IA32_PERF_GLOBAL_CTRL, 1);
  }

  FlatMemory memory_;
  const Microarch* uarch_ = nullptr;
  std::unique_ptr<Pmu> pmu_;
  uint64_t cycle_ = 0;
};

TEST_F(LastBranchesTest, HoldTheTakenBranchesNewestFirst) {
  for (const char* name : {"core2", "nehalem", "haswell", "skylake", "ice-lake", "alder-lake-p"}) {
    SCOPED_TRACE(name);
    make(name);
    jump(1);
    EXPECT_EQ(held().front(), 0u) << "not enabled";
    record();
    const unsigned depth = uarch_->last_branches.depth;
    for (uint64_t n = 1; n <= depth + 3; ++n) jump(n);
    jump(99, false);
    std::vector<uint64_t> expected;
    for (uint64_t n = 0; n < depth; ++n) expected.push_back(depth + 3 - n);
    EXPECT_EQ(held(), expected);
  }
}

TEST_F(LastBranchesTest, HaveTheRegistersOfTheirRow) {
  struct Case {
    const char* name;
    std::vector<uint32_t> there, absent;
  };
  const Case cases[] = {
      {"core2", {0x40, 0x43, 0x60, 0x63, 0x1C9}, {0x44, 0x64, 0x1C8, 0x680, 0xDC0}},
      {"nehalem", {0x680, 0x68F, 0x6C0, 0x6CF, 0x1C8, 0x1C9}, {0x40, 0x690, 0x6D0, 0xDC0}},
      {"skylake", {0x680, 0x69F, 0x6DF, 0xDC0, 0xDDF}, {0x40, 0x6A0, 0x1500}},
      {"sapphire-rapids", {0x1200, 0x1500, 0x151F, 0x1600, 0x161F}, {0x1520, 0x680, 0x1C8, 0x1C9}},
  };
  for (const Case& c : cases) {
    make(c.name);
    for (uint32_t msr : c.there) {
      EXPECT_TRUE(pmu_->rdmsr(msr)) << c.name << std::hex << msr;
      EXPECT_TRUE(pmu_->wrmsr(msr, 3)) << c.name << std::hex << msr;
      EXPECT_EQ(get(msr), 3u) << c.name << std::hex << msr;
      EXPECT_TRUE(uarch_->last_branches.has(msr));
    }
    for (uint32_t msr : c.absent) {
      EXPECT_EQ(pmu_->rdmsr(msr).error().code, ErrorCode::kGeneralProtection)
          << c.name << std::hex << msr;
      EXPECT_EQ(pmu_->wrmsr(msr, 0).error().code, ErrorCode::kGeneralProtection)
          << c.name << std::hex << msr;
      EXPECT_FALSE(uarch_->last_branches.has(msr));
    }
  }
  make("netburst");
  EXPECT_FALSE(uarch_->last_branches.has(0));
}

TEST_F(LastBranchesTest, SayWhereABranchWasMispredicted) {
  make("core2");
  record();
  jump(1, true, true);
  EXPECT_EQ(get(0x40 + get(0x1C9)), 0x1001u) << "LBR_FMT 2 has no flags";
  make("sandy-bridge");
  record();
  jump(1, true, true);
  EXPECT_EQ(get(0x680 + get(0x1C9)), 0x1001u | bit(63));
  jump(2);
  EXPECT_EQ(get(0x680 + get(0x1C9)), 0x1002u);
  make("skylake");
  record();
  jump(1, true, true);
  EXPECT_EQ(get(0x680 + get(0x1C9)), 0x1001u);
  EXPECT_EQ(get(0xDC0 + get(0x1C9)) >> 63, 1u);
}

TEST_F(LastBranchesTest, AreFilteredByPrivilege) {
  make("nehalem");
  record();
  set(MSR_LBR_SELECT, lbr_select::kNotAtRing0);
  jump(1);
  pmu_->set_user(true);
  jump(2);
  set(MSR_LBR_SELECT, lbr_select::kNotAboveRing0);
  jump(3);
  pmu_->set_user(false);
  jump(4);
  EXPECT_EQ(held()[0], 4u);
  EXPECT_EQ(held()[1], 2u);
  EXPECT_EQ(held()[2], 0u);
  make("sapphire-rapids");
  set(MSR_ARCH_LBR_CTL, lbr_ctl::kEnable | lbr_ctl::kUsr);
  jump(5);
  EXPECT_EQ(held()[0], 0u);
  pmu_->set_user(true);
  jump(6);
  EXPECT_EQ(held()[0], 6u);
}

// By clearing LBR before version 4, by LBR_Frz from then on, until that is cleared.
TEST_F(LastBranchesTest, AreFrozenByAnInterrupt) {
  for (const char* name : {"core2", "haswell", "skylake", "sapphire-rapids"}) {
    for (const bool asked : {true, false}) {
      SCOPED_TRACE(std::string(name) + (asked ? ", asked for" : ""));
      make(name);
      record(asked ? debugctl::kFreezeLbrsOnPmi : 0);
      jump(1);
      overflow_next();
      jump(2);
      jump(3);
      EXPECT_EQ(held()[0], asked ? 2u : 3u);
      const bool streamlined = uarch_->streamlined_freeze();
      EXPECT_EQ((get(IA32_PERF_GLOBAL_STATUS) & status::kLbrFrozen) != 0, asked && streamlined);
      if (!uarch_->architectural_lbr()) {
        EXPECT_EQ(get(IA32_DEBUGCTL) & debugctl::kLbr, asked && !streamlined ? 0 : debugctl::kLbr);
      }
      if (!asked || !streamlined) continue;
      set(IA32_PERF_GLOBAL_OVF_CTRL, status::kLbrFrozen);
      jump(4);
      EXPECT_EQ(held()[0], 4u);
    }
  }
}

TEST_F(LastBranchesTest, MayBeFrozenWithTheDeliveryOnly) {
  Rough rough;
  rough.lbr_frozen_at_delivery = 1;
  rough.pmi_low = rough.pmi_high = 3;
  make("haswell", nullptr, rough);
  record(debugctl::kFreezeLbrsOnPmi);
  overflow_next();
  uint64_t n = 0;
  do {
    jump(++n);
  } while (!pmu_->take_interrupt() && n < 100);
  EXPECT_GT(n, 2u);
  jump(100);
  EXPECT_EQ(held()[0], n);
}

TEST_F(LastBranchesTest, MayBeWrong) {
  struct Case {
    const char* what;
    void (*change)(Behaviour&);
    uint64_t newest;
  };
  const Case cases[] = {
      {"nothing", [](Behaviour&) {}, 5},
      {"lost", [](Behaviour& b) { b.last_branches.lost = 5; }, 4},
      {"TOS", [](Behaviour& b) { b.last_branches.tos_behind = 1; }, 4},
      {"not frozen", [](Behaviour& b) { b.last_branches.freezes = false; }, 6},
  };
  for (const Case& c : cases) {
    make("nehalem", c.change);
    record(debugctl::kFreezeLbrsOnPmi);
    for (uint64_t n = 1; n <= 4; ++n) jump(n);
    overflow_next();
    jump(5);
    jump(6);
    EXPECT_EQ(held()[0], c.newest) << c.what;
  }
  make("nehalem", [](Behaviour& b) { b.last_branches.swapped = true; });
  record();
  jump(1);
  EXPECT_EQ(get(0x680 + get(0x1C9)), 0x2001u);
  EXPECT_EQ(get(0x6C0 + get(0x1C9)), 0x1001u);
}

// Erratum AM94: of the overflow whose record interrupts, and of no other.
TEST_F(LastBranchesTest, MayBeFrozenBeforeTheRecordThatInterrupts) {
  for (const bool early : {false, true}) {
    for (const uint64_t threshold : {1, 2}) {
      SCOPED_TRACE(std::to_string(early) + " " + std::to_string(threshold));
      make(
          "core2", early ? [](Behaviour& b) { b.last_branches.frozen_at_overflow = true; }
                         : [](Behaviour&) {});
      const uint64_t bytes = uarch_->record->bytes;
      memory_.lay_out_pebs(uarch_->ds, 10 * bytes, threshold * bytes);
      memory_.set_field(uarch_->ds.gp_reset(0), uint64_t{0} - 1000);
      set(IA32_DS_AREA, FlatMemory::kBase);
      record(debugctl::kFreezeLbrsOnPmi);
      set(IA32_PEBS_ENABLE, 1);
      overflow_next();
      set(IA32_PERFEVTSEL0, 0xC0 | evtsel::kUsr | evtsel::kOs | evtsel::kEnable);
      for (uint64_t n = 1; n <= 20; ++n) jump(n);
      const uint64_t newest = held()[0];
      const uint64_t recorded =
          (memory_.field(uarch_->ds.pebs_index) - FlatMemory::kBuffer) / bytes;
      EXPECT_EQ(recorded, 1u);
      if (threshold == 2) {
        EXPECT_EQ(newest, 20u) << "no interrupt";
      } else {
        EXPECT_EQ(newest == 1, early) << "the first jump overflows";
        EXPECT_LT(newest, 20u);
      }
    }
  }
}

}  // namespace
}  // namespace skidproof::model
