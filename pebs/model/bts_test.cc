// The branch trace store and the modes, fed by hand: no engine, no program.
#include "pebs/model/bts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "pebs/arch/msr.h"
#include "pebs/model/pmu.h"
#include "pebs/model/testing/decisions.h"
#include "pebs/model/testing/flat_memory.h"

namespace skidproof::model {
namespace {

using namespace arch;

constexpr uint64_t kBtsArea = FlatMemory::kBase;
constexpr uint64_t kBtsBuffer = FlatMemory::kBuffer;
constexpr uint64_t kTrace = bit(6) | bit(7);  // TR, BTS
constexpr uint64_t kInterrupt = bit(8);       // BTINT

class BtsTest : public ::testing::Test {
 protected:
  void SetUp() override { make(behaviour_of(uarch())); }
  static const Microarch& uarch() { return **find_microarch("nehalem"); }

  void make(const Behaviour& behaviour) {
    pmu_ = std::make_unique<Pmu>(uarch(), Topology{}, memory_, behaviour, 1);
    buffer(8, 100);
    set(IA32_DS_AREA, kBtsArea);
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  }
  // So many records, by the manual's "multiple plus 1", and the threshold behind so many.
  void buffer(uint64_t records, uint64_t threshold) {
    memory_.set_field(0x00, kBtsBuffer);
    memory_.set_field(0x08, kBtsBuffer);
    memory_.set_field(0x10, kBtsBuffer + 24 * records + 1);
    memory_.set_field(0x18, kBtsBuffer + 24 * threshold);
  }
  void set(uint32_t msr, uint64_t value) {
    auto done = pmu_->wrmsr(msr, value);
    ASSERT_TRUE(done) << done.error().text();
  }
  uint64_t get(uint32_t msr) { return pmu_->rdmsr(msr).value(); }
  void retire(Signal signal, uint64_t ip, uint64_t to, bool mispredicted = false) {
    Retired r;
    r.ip = ip;
    r.length = 2;
    r.counts[index(Signal::kInstructions)] = 1;
    r.counts[index(signal)] = 1;
    r.counts[index(Signal::kMispredicts)] = mispredicted ? 1 : 0;
    r.cycle = ++cycle_;
    registers_.ip = to;
    r.after = &registers_;
    pmu_->retire(r);
  }
  void branch(uint64_t ip = 0x1000, uint64_t to = 0x2000) { retire(Signal::kNearTaken, ip, to); }
  uint64_t stored() { return (memory_.word(kBtsArea + 0x08) - kBtsBuffer) / 24; }
  uint64_t from(uint64_t i) { return memory_.word(kBtsBuffer + 24 * i); }
  uint64_t to(uint64_t i) { return memory_.word(kBtsBuffer + 24 * i + 8); }
  uint64_t flags(uint64_t i) { return memory_.word(kBtsBuffer + 24 * i + 16); }
  bool delivered() {
    for (int i = 0; i < 100; ++i) {
      if (pmu_->take_interrupt()) return true;
      retire(Signal::kNops, 0x1000, 0x1002);
    }
    return false;
  }

  FlatMemory memory_;
  std::unique_ptr<Pmu> pmu_;
  Registers registers_;
  uint64_t cycle_ = 0;
};

TEST_F(BtsTest, StoresATakenBranchWithBothBitsOnly) {
  for (uint64_t bits : {uint64_t{0}, bit(6), bit(7)}) {
    set(IA32_DEBUGCTL, bits);
    branch();
    EXPECT_EQ(stored(), 0u) << bits;
    EXPECT_FALSE(pmu_->active());
  }
  set(IA32_DEBUGCTL, kTrace);
  EXPECT_TRUE(pmu_->active());
  EXPECT_EQ(pmu_->quiet_instructions(), 0u);
  branch(0x1234, 0x5678);
  retire(Signal::kConditionalNotTaken, 0x1000, 0x1002);
  ASSERT_EQ(stored(), 1u);
  EXPECT_EQ(from(0), 0x1234u);
  EXPECT_EQ(to(0), 0x5678u);
}

TEST_F(BtsTest, TellsPredictedFromMispredicted) {
  set(IA32_DEBUGCTL, kTrace);
  retire(Signal::kNearTaken, 0x10, 0x20);
  retire(Signal::kNearTaken, 0x10, 0x20, true);
  EXPECT_EQ(flags(0), kBranchPredicted);
  EXPECT_EQ(flags(1), 0u);
}

TEST_F(BtsTest, StopsAtTheMaximumWithBtintAndResumesWhenRewound) {
  buffer(3, 100);
  set(IA32_DEBUGCTL, kTrace | kInterrupt);
  for (uint64_t i = 0; i < 5; ++i) branch(0x100 + i);
  EXPECT_EQ(stored(), 3u);
  EXPECT_EQ(from(2), 0x102u);
  EXPECT_EQ(from(3), 0u) << "nothing behind the maximum";
  EXPECT_EQ(get(IA32_DEBUGCTL), kTrace | kInterrupt);
  memory_.set_field(0x08, kBtsBuffer);
  branch(0x200);
  EXPECT_EQ(stored(), 1u);
  EXPECT_EQ(from(0), 0x200u);
}

// B8: a whole number of records below the maximum, or that and one byte; behind any other a record may go on.
TEST_F(BtsTest, OnlyAnUnalignedMaximumIsOverrun) {
  for (const bool overrun : {false, true}) {
    Behaviour behaviour = behaviour_of(uarch());
    behaviour.bts.unaligned_overrun = overrun;
    for (const auto& [more, fit] :
         {std::pair{0, 2u}, {1, 2u}, {2, 2u + overrun}, {23, 2u + overrun}, {24, 3u}}) {
      make(behaviour);
      memory_.set_field(0x10, kBtsBuffer + 2 * 24 + static_cast<uint64_t>(more));
      set(IA32_DEBUGCTL, kTrace | kInterrupt);
      for (uint64_t i = 0; i < 5; ++i) branch(0x100 + i);
      EXPECT_EQ(stored(), fit) << more << (overrun ? ", overrun" : "");
    }
  }
}

// Jumps, calls and returns alike. [SDM 17.4.5 "Branch Trace Store (BTS)"]
TEST_F(BtsTest, StoresEveryKindOfTakenBranchAndNoOther) {
  set(IA32_DEBUGCTL, kTrace);
  uint64_t expected = 0;
  for (const Signal kind : {Signal::kNearCalls, Signal::kNearReturns, Signal::kConditional,
                            Signal::kConditionalTaken, Signal::kBranches}) {
    for (const bool taken : {true, false}) {
      Retired r;
      r.ip = 0x1000 + expected;
      r.length = 2;
      r.counts[index(kind)] = 1;
      r.counts[index(Signal::kNearTaken)] = taken ? 1 : 0;
      r.cycle = ++cycle_;
      registers_.ip = 0x2000;
      r.after = &registers_;
      pmu_->retire(r);
      expected += taken ? 1 : 0;
      EXPECT_EQ(stored(), expected);
    }
    EXPECT_EQ(from(expected - 1), 0x1000 + expected - 1);
  }
}

// With either overrun a full buffer is full: nothing is stored at the maximum itself.
TEST_F(BtsTest, NothingIsStoredAtTheMaximum) {
  for (const bool overrun : {false, true}) {
    for (const bool must_fit : {false, true}) {
      Behaviour behaviour = behaviour_of(uarch());
      behaviour.bts.unaligned_overrun = overrun;
      behaviour.bts.record_must_fit = must_fit;
      make(behaviour);
      const uint64_t maximum = kBtsBuffer + 24 * 3 + 12;
      memory_.set_field(0x10, maximum);
      memory_.set_field(0x08, maximum);
      set(IA32_DEBUGCTL, kTrace | kInterrupt);
      branch();
      EXPECT_EQ(memory_.field(0x08), maximum) << overrun << must_fit;
    }
  }
}

TEST_F(BtsTest, BeginsAnewWithoutBtint) {
  buffer(3, 100);
  set(IA32_DEBUGCTL, kTrace);
  for (uint64_t i = 0; i < 5; ++i) branch(0x100 + i);
  EXPECT_EQ(stored(), 2u);
  EXPECT_EQ(from(0), 0x103u);
  EXPECT_EQ(from(1), 0x104u);
  EXPECT_EQ(from(2), 0x102u);
  EXPECT_FALSE(pmu_->interrupt_pending());
}

TEST_F(BtsTest, InterruptsAtTheThreshold) {
  buffer(8, 3);
  set(IA32_DEBUGCTL, kTrace | kInterrupt);
  branch();
  branch();
  EXPECT_FALSE(pmu_->interrupt_pending());
  branch();
  EXPECT_TRUE(pmu_->interrupt_pending());
  EXPECT_TRUE(delivered());
  EXPECT_EQ(get(IA32_X2APIC_LVT_PMI) & lvt::kMasked, lvt::kMasked);
}

TEST_F(BtsTest, ThresholdFreezesWhereAsked) {
  for (bool freeze : {false, true}) {
    buffer(8, 1);
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
    set(IA32_PERF_GLOBAL_CTRL, 1);
    set(IA32_DEBUGCTL, kTrace | kInterrupt | (freeze ? debugctl::kFreezePerfmonOnPmi : 0));
    branch();
    EXPECT_EQ(get(IA32_PERF_GLOBAL_CTRL), freeze ? 0u : 1u);
  }
}

TEST_F(BtsTest, FiltersByPrivilege) {
  struct {
    bool user, off_os, off_usr, stores;
  } const cases[] = {{false, false, false, true}, {true, false, false, true},
                     {false, true, false, false}, {true, true, false, true},
                     {false, false, true, true},  {true, false, true, false},
                     {false, true, true, false},  {true, true, true, false}};
  for (const auto& c : cases) {
    buffer(8, 100);
    pmu_->set_user(c.user);
    set(IA32_DEBUGCTL, kTrace | (c.off_os ? bit(9) : 0) | (c.off_usr ? bit(10) : 0));
    branch();
    EXPECT_EQ(stored(), c.stores ? 1u : 0u) << c.user << c.off_os << c.off_usr;
  }
}

TEST_F(BtsTest, StoresInterruptsLikeBranches) {
  set(IA32_DEBUGCTL, kTrace);
  pmu_->transfer(0x1111, 0x2222);
  ASSERT_EQ(stored(), 1u);
  EXPECT_EQ(from(0), 0x1111u);
  EXPECT_EQ(to(0), 0x2222u);
}

TEST_F(BtsTest, IgnoresAnAreaThatIsNotMapped) {
  set(IA32_DS_AREA, 0x5000);
  set(IA32_DEBUGCTL, kTrace);
  branch();
  set(IA32_DS_AREA, kBtsArea);
  EXPECT_EQ(stored(), 0u);
}

TEST_F(BtsTest, IsNotSettableWhereItIsUnavailable) {
  Behaviour behaviour = behaviour_of(uarch());
  behaviour.bts.announced = behaviour.bts.settable = false;
  make(behaviour);
  EXPECT_EQ(get(IA32_MISC_ENABLE) & misc_enable::kBtsUnavailable, misc_enable::kBtsUnavailable);
  EXPECT_FALSE(pmu_->wrmsr(IA32_DEBUGCTL, bit(7)));
  EXPECT_FALSE(pmu_->wrmsr(IA32_DEBUGCTL, bit(8)));
}

TEST_F(BtsTest, SmmStoresNothingAndRsmGoesOn) {
  for (uint64_t freeze : {uint64_t{0}, debugctl::kFreezeWhileSmm}) {
    buffer(8, 100);
    set(IA32_DEBUGCTL, kTrace | freeze);
    set(IA32_PERF_GLOBAL_CTRL, 0x7);
    branch(1);
    pmu_->enter_smm();
    branch(2);
    EXPECT_EQ(get(IA32_PERF_GLOBAL_CTRL), freeze != 0 ? 0u : 0x7u);
    pmu_->leave_smm();
    EXPECT_EQ(get(IA32_PERF_GLOBAL_CTRL), 0x7u);
    EXPECT_EQ(get(IA32_DEBUGCTL), kTrace | freeze);
    branch(3);
    ASSERT_EQ(stored(), 2u);
    EXPECT_EQ(from(1), 3u);
  }
}

TEST_F(BtsTest, MachineCheckInitAndResetClearTheEnables) {
  for (int which = 0; which < 3; ++which) {
    set(IA32_DEBUGCTL, kTrace | kInterrupt);
    set(IA32_PEBS_ENABLE, 1);
    switch (which) {
      case 0:
        pmu_->machine_check();
        break;
      case 1:
        pmu_->init();
        break;
      default:
        pmu_->reset();
        break;
    }
    EXPECT_EQ(get(IA32_PEBS_ENABLE), 0u) << which;
    EXPECT_EQ(get(IA32_DEBUGCTL), 0u) << which;
    branch();
    EXPECT_EQ(stored(), 0u) << which;
  }
}

// Every decision shows where it is taken, and nothing of it where it is not.
TEST_F(BtsTest, EachDecisionShows) {
  auto branches = [this](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) branch(0x100 + i, 0x2000 + i);
    return stored();
  };
  const uint64_t kStop = kTrace | kInterrupt;
  const Decision<BtsBehaviour> decisions[] = {
      {"the threshold stops nothing", [](BtsBehaviour& b) { b.stops_at_threshold = true; },
       [&] {
         buffer(5, 2);
         set(IA32_DEBUGCTL, kStop);
         return branches(8);
       },
       5, 2},
      {"nor does it end a circular buffer", [](BtsBehaviour& b) { b.wraps_at_threshold = true; },
       [&] {
         buffer(5, 2);
         set(IA32_DEBUGCTL, kTrace);
         return branches(4);
       },
       4, 2},
      {"nor one that interrupts", [](BtsBehaviour& b) { b.wraps_at_threshold = true; },
       [&] {
         buffer(5, 2);
         set(IA32_DEBUGCTL, kStop);
         return branches(4);
       },
       4, 4},
      {"TR is needed", [](BtsBehaviour& b) { b.needs_messages = false; },
       [&] {
         set(IA32_DEBUGCTL, bit(7));
         return branches(2);
       },
       0, 2},
      {"BTS is needed", [](BtsBehaviour& b) { b.needs_store = false; },
       [&] {
         set(IA32_DEBUGCTL, bit(6));
         return branches(2);
       },
       0, 2},
      {"without both nothing is stored",
       [](BtsBehaviour& b) { b.needs_messages = b.needs_store = false; },
       [&] {
         set(IA32_DEBUGCTL, 0);
         return branches(2);
       },
       0, 0},
      {"a branch not taken is none", [](BtsBehaviour& b) { b.not_taken = true; },
       [&] {
         set(IA32_DEBUGCTL, kTrace);
         for (int i = 0; i < 2; ++i) retire(Signal::kNops, 0x1000, 0x1002);
         retire(Signal::kConditionalNotTaken, 0x1002, 0x1004);
         return stored();
       },
       0, 1},
      {"a buffer that ends inside its second record holds one",
       [](BtsBehaviour& b) { b.least_records = 2; },
       [&] {
         buffer(2, 9);
         memory_.set_field(0x10, kBtsBuffer + 24 * 2 - 1);
         set(IA32_DEBUGCTL, kStop);
         return branches(4);
       },
       1, 0},
      {"a small buffer is one", [](BtsBehaviour& b) { b.least_records = 3; },
       [&] {
         buffer(2, 9);
         set(IA32_DEBUGCTL, kStop);
         return branches(4);
       },
       2, 0},
      {"and three are enough", [](BtsBehaviour& b) { b.least_records = 3; },
       [&] {
         buffer(3, 9);
         set(IA32_DEBUGCTL, kStop);
         return branches(4);
       },
       3, 3},
      {"a full buffer is not begun anew", [](BtsBehaviour& b) { b.wraps_with_interrupt = true; },
       [&] {
         buffer(3, 9);
         set(IA32_DEBUGCTL, kStop);
         return branches(4);
       },
       3, 1},
      {"a circular one is", [](BtsBehaviour& b) { b.wraps_circular = false; },
       [&] {
         buffer(3, 9);
         set(IA32_DEBUGCTL, kTrace);
         return branches(4);
       },
       1, 3},
      {"rewound, it goes on", [](BtsBehaviour& b) { b.resumes_after_rewind = false; },
       [&] {
         buffer(3, 9);
         set(IA32_DEBUGCTL, kStop);
         branches(4);
         memory_.set_field(0x08, kBtsBuffer);
         return branches(2);
       },
       2, 0},
      {"a buffer that is not full never stands",
       [](BtsBehaviour& b) { b.resumes_after_rewind = false; },
       [&] {
         buffer(3, 9);
         set(IA32_DEBUGCTL, kStop);
         branches(3);
         memory_.set_field(0x08, kBtsBuffer);
         return branches(2);
       },
       2, 2},
      {"a full buffer keeps the enables", [](BtsBehaviour& b) { b.full_disables = true; },
       [&] {
         buffer(3, 9);
         set(IA32_DEBUGCTL, kStop);
         branches(4);
         return get(IA32_DEBUGCTL);
       },
       kStop, kInterrupt},
      {"one with room always does", [](BtsBehaviour& b) { b.full_disables = true; },
       [&] {
         buffer(3, 9);
         set(IA32_DEBUGCTL, kStop);
         branches(3);
         return get(IA32_DEBUGCTL);
       },
       kStop, kStop},
      {"from is the branch", [](BtsBehaviour& b) { b.from_is_branch = false; },
       [&] {
         set(IA32_DEBUGCTL, kTrace);
         branches(1);
         return from(0);
       },
       0x100, 0x102},
      {"to is the target", [](BtsBehaviour& b) { b.to_is_target = false; },
       [&] {
         set(IA32_DEBUGCTL, kTrace);
         branches(1);
         return to(0);
       },
       0x2000, 0x102},
      {"with a filter, too", [](BtsBehaviour& b) { b.filtered_from_stale = true; },
       [&] {
         set(IA32_DEBUGCTL, kTrace | bit(10));
         branches(2);
         return from(1);
       },
       0x101, 0x100},
      {"and without one", [](BtsBehaviour& b) { b.filtered_from_stale = true; },
       [&] {
         set(IA32_DEBUGCTL, kTrace);
         branches(2);
         return from(1);
       },
       0x101, 0x101},
      {"the threshold interrupts when it is reached",
       [](BtsBehaviour& b) { b.threshold = BranchThreshold::kOneLate; },
       [&] {
         buffer(8, 2);
         set(IA32_DEBUGCTL, kStop);
         uint64_t n = 0;
         for (; n < 8 && !pmu_->interrupt_pending(); ++n) branch();
         return n;
       },
       2, 3},
      {"not before", [](BtsBehaviour& b) { b.threshold = BranchThreshold::kOneEarly; },
       [&] {
         buffer(8, 2);
         set(IA32_DEBUGCTL, kStop);
         uint64_t n = 0;
         for (; n < 8 && !pmu_->interrupt_pending(); ++n) branch();
         return n;
       },
       2, 1},
      {"and not never", [](BtsBehaviour& b) { b.threshold = BranchThreshold::kNever; },
       [&] {
         buffer(8, 2);
         set(IA32_DEBUGCTL, kStop);
         branches(5);
         return uint64_t{pmu_->interrupt_pending()};
       },
       1, 0},
      {"beginning anew interrupts nothing", [](BtsBehaviour& b) { b.wrap_interrupts = true; },
       [&] {
         buffer(3, 9);
         set(IA32_DEBUGCTL, kTrace);
         branches(3);
         const bool early = pmu_->interrupt_pending();
         branches(1);
         return uint64_t{early} * 10 + pmu_->interrupt_pending();
       },
       0, 1},
      {"a mispredicted branch is marked so", [](BtsBehaviour& b) { b.predicted = false; },
       [&] {
         set(IA32_DEBUGCTL, kTrace);
         branches(1);
         return flags(0);
       },
       kBranchPredicted, 0},
      {"every one of them", [](BtsBehaviour& b) { b.predicted_wrong = 2; },
       [&] {
         set(IA32_DEBUGCTL, kTrace);
         branches(3);
         return (flags(0) << 16 | flags(1) << 8 | flags(2)) / kBranchPredicted;
       },
       0x10101, 0x10001},
      {"branches of 32-bit code are stored", [](BtsBehaviour& b) { b.legacy_stores = false; },
       [&] {
         pmu_->set_mode(Mode::kProtected32);
         set(IA32_DEBUGCTL, kTrace);
         return branches(2);
       },
       2, 0},
      {"with 24 bytes each", [](BtsBehaviour& b) { b.legacy_index_step = 24; },
       [&] {
         pmu_->set_mode(Mode::kProtected32);
         set(IA32_DEBUGCTL, kTrace);
         return branches(2);
       },
       2, 4},
      {"as in IA-32e mode", [](BtsBehaviour& b) { b.legacy_index_step = 24; },
       [&] {
         set(IA32_DEBUGCTL, kTrace);
         return branches(2);
       },
       2, 2},
      {"with DTES64", [](BtsBehaviour& b) { b.legacy_narrow = true; },
       [&] {
         pmu_->set_mode(Mode::kProtected32);
         set(IA32_DEBUGCTL, kTrace);
         return branches(2);
       },
       2, 1},
      {"and with their prediction", [](BtsBehaviour& b) { b.legacy_predicted = false; },
       [&] {
         pmu_->set_mode(Mode::kProtected32);
         set(IA32_DEBUGCTL, kTrace);
         branches(1);
         return flags(0);
       },
       kBranchPredicted, 0},
      {"back in IA-32e mode all is as before",
       [](BtsBehaviour& b) {
         b.legacy_sticks = true;
         b.legacy_stores = false;
       },
       [&] {
         pmu_->set_mode(Mode::kProtected32);
         pmu_->set_mode(Mode::kLong);
         set(IA32_DEBUGCTL, kTrace);
         return branches(2);
       },
       2, 0},
  };
  expect_each_shows<BtsBehaviour>(decisions, [this](auto change) {
    Behaviour behaviour = behaviour_of(uarch());
    change(behaviour.bts);
    make(behaviour);
  });
}

// RESET begins with a buffer that takes records, whatever was held or spoilt.
TEST_F(BtsTest, ResetForgets) {
  Behaviour behaviour = behaviour_of(uarch());
  behaviour.bts.resumes_after_rewind = false;
  behaviour.modes.rsm_spoils_branch = true;
  make(behaviour);
  buffer(1, 9);
  set(IA32_DEBUGCTL, kTrace | kInterrupt);
  branch();
  branch();
  pmu_->enter_smm();
  pmu_->leave_smm();
  pmu_->reset();
  set(IA32_DS_AREA, kBtsArea);
  buffer(3, 9);
  set(IA32_DEBUGCTL, kTrace | kInterrupt);
  branch(0x1234);
  ASSERT_EQ(stored(), 1u);
  EXPECT_EQ(from(0), 0x1234u);

  behaviour = behaviour_of(uarch());
  behaviour.bts.after_interrupt = true;
  make(behaviour);
  buffer(8, 1);
  set(IA32_DEBUGCTL, kTrace | kInterrupt);
  branch(0x1);
  ASSERT_TRUE(pmu_->interrupt_pending());
  branch(0x2);
  EXPECT_EQ(stored(), 1u) << "held back";
  pmu_->reset();
  set(IA32_DS_AREA, kBtsArea);
  set(IA32_DEBUGCTL, kTrace);
  branch(0x3);
  EXPECT_EQ(stored(), 2u);
  EXPECT_EQ(from(1), 0x3u);
}

// NetBurst outside IA-32e mode: doublewords, and MSR_DEBUGCTLA. [SDM Figures 17-5, 17-6, 17-12]
class NetBurstBtsTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kLowArea = 0x80010000, kLowBuffer = kLowArea + 0x1000;
  static constexpr uint64_t kTrBts = bit(2) | bit(3), kBtint = bit(4);

  void SetUp() override { make(behaviour_of(uarch())); }
  static const Microarch& uarch() { return **find_microarch("netburst"); }

  void make(const Behaviour& behaviour) {
    pmu_ = std::make_unique<Pmu>(uarch(), Topology{}, memory_, behaviour, 1);
    set_field(0x00, kLowBuffer);
    set_field(0x04, kLowBuffer);
    set_field(0x08, kLowBuffer + 12 * 4 + 1);
    set_field(0x0C, kLowBuffer + 12 * 100);
    set(IA32_DS_AREA, kLowArea);
    set(IA32_X2APIC_LVT_PMI, lvt::kNmi);
    pmu_->set_mode(Mode::kProtected32);
  }
  void set(uint32_t msr, uint64_t value) {
    auto done = pmu_->wrmsr(msr, value);
    ASSERT_TRUE(done) << done.error().text();
  }
  uint32_t field(uint64_t offset) { return static_cast<uint32_t>(memory_.word(kLowArea + offset)); }
  void set_field(uint64_t offset, uint64_t value) {
    const auto narrow = static_cast<uint32_t>(value);
    memory_.write(kLowArea + offset, std::as_bytes(std::span(&narrow, 1)));
  }
  void branch(uint64_t ip, uint64_t to, bool mispredicted = false) {
    Retired r;
    r.ip = ip;
    r.length = 2;
    r.counts[index(Signal::kNearTaken)] = 1;
    r.counts[index(Signal::kMispredicts)] = mispredicted ? 1 : 0;
    registers_.ip = to;
    r.after = &registers_;
    pmu_->retire(r);
  }

  FlatMemory memory_{kLowArea};
  std::unique_ptr<Pmu> pmu_;
  Registers registers_;
};

TEST_F(NetBurstBtsTest, StoresTwelveBytes) {
  EXPECT_EQ(pmu_->rdmsr(IA32_MISC_ENABLE).value() & misc_enable::kBtsUnavailable, 0u);
  EXPECT_FALSE(pmu_->active());
  set(IA32_DEBUGCTL, kTrBts | kBtint);
  EXPECT_TRUE(pmu_->active());
  EXPECT_EQ(pmu_->quiet_instructions(), 0u);
  branch(0x80001234, 0x80005678);
  branch(0x80001235, 0x80005679, true);
  EXPECT_EQ(field(0x04), kLowBuffer + 24);
  const uint32_t expected[] = {0x80001234, 0x80005678, 0x10, 0x80001235, 0x80005679, 0};
  for (size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(field(0x1000 + 4 * i), expected[i]);
  for (int i = 0; i < 5; ++i) branch(0x80001236, 0x8000567A);
  EXPECT_EQ(field(0x04), kLowBuffer + 48) << "full";
  EXPECT_FALSE(pmu_->interrupt_pending());
}

TEST_F(NetBurstBtsTest, IsCircularAndInterruptsLikeLaterParts) {
  set(IA32_DEBUGCTL, kTrBts);
  for (int i = 0; i < 5; ++i) branch(0x80001000, 0x80002000);
  EXPECT_EQ(field(0x04), kLowBuffer + 12);
  EXPECT_FALSE(pmu_->interrupt_pending());
  set_field(0x0C, kLowBuffer + 24);
  set(IA32_DEBUGCTL, kTrBts | kBtint);
  branch(0x80001000, 0x80002000);
  EXPECT_TRUE(pmu_->interrupt_pending());
}

// A buffer that ends seven bytes below 4 GiB, a byte behind its last record: what would cross both is not stored, but
// on a CPU that lets it wrap (P79).
TEST_F(NetBurstBtsTest, KeepsItsMaximumAtTheEndOfTheAddressSpace) {
  constexpr uint64_t kEnd = uint64_t{1} << 32;
  class Ring : public Bus {  // the area, and what lies on both sides of the end
   public:
    bool read(uint64_t address, std::span<std::byte> into) override {
      return area.read(address, into);
    }
    bool write(uint64_t address, std::span<const std::byte> from) override {
      if (area.write(address, from)) return true;
      for (size_t i = 0; i < from.size(); ++i) {
        if (address + i >= kEnd) return false;
        written[address + i] = from[i];
      }
      return true;
    }
    FlatMemory area{kLowArea};
    std::map<uint64_t, std::byte> written;
  };
  struct Case {
    bool end_wraps;
    uint64_t maximum;  // bytes below the end
    bool overruns;
  };
  for (const auto& [end_wraps, maximum, overruns] :
       {Case{false, 7, false}, Case{true, 7, true}, Case{true, 8, false}, Case{true, 1, true}}) {
    SCOPED_TRACE(maximum);
    Ring ring;
    Behaviour behaviour = behaviour_of(uarch());
    behaviour.bts.end_wraps = end_wraps;
    Pmu pmu(uarch(), Topology{}, ring, behaviour, 1);
    pmu.set_mode(Mode::kProtected32);
    const uint64_t base = kEnd - 8 - 2 * 12;
    const uint64_t fields[] = {base, base, kEnd - maximum, kEnd - 1};
    for (size_t i = 0; i < std::size(fields); ++i) {
      const auto narrow = static_cast<uint32_t>(fields[i]);
      ring.write(kLowArea + 4 * i, std::as_bytes(std::span(&narrow, 1)));
    }
    ASSERT_TRUE(pmu.wrmsr(IA32_DS_AREA, kLowArea));
    ASSERT_TRUE(pmu.wrmsr(IA32_DEBUGCTL, kTrBts | kBtint));
    Retired r;
    r.counts[index(Signal::kNearTaken)] = 1;
    registers_.ip = 0x80002000;
    r.after = &registers_;
    for (int i = 0; i < 3; ++i) pmu.retire(r);
    EXPECT_EQ(ring.written.size(), overruns ? 36u : 24u);
    EXPECT_EQ(ring.written.count(kEnd - 1), overruns ? 1u : 0u);
    EXPECT_EQ(ring.written.count(3), overruns ? 1u : 0u);
    EXPECT_EQ(ring.written.count(4), 0u);
    EXPECT_EQ(static_cast<uint32_t>(ring.area.word(kLowArea + 4)), overruns ? 4u : kEnd - 8);
  }
}

TEST_F(NetBurstBtsTest, TakesTheBitsOfLaterPartsOnlyUnderADefect) {
  EXPECT_FALSE(pmu_->wrmsr(IA32_DEBUGCTL, bit(7)));
  Behaviour behaviour = behaviour_of(uarch());
  behaviour.netburst.later_debugctl = true;
  make(behaviour);
  set(IA32_DEBUGCTL, bit(6) | bit(7) | bit(8));
  branch(0x80001000, 0x80002000);
  EXPECT_EQ(field(0x04), kLowBuffer + 12);
}

TEST_F(NetBurstBtsTest, IsNotSettableWhereItIsUnavailable) {
  Behaviour behaviour = behaviour_of(uarch());
  behaviour.bts.announced = behaviour.bts.settable = false;
  make(behaviour);
  EXPECT_NE(pmu_->rdmsr(IA32_MISC_ENABLE).value() & misc_enable::kBtsUnavailable, 0u);
  EXPECT_FALSE(pmu_->wrmsr(IA32_DEBUGCTL, bit(3)));
  EXPECT_FALSE(pmu_->wrmsr(IA32_DEBUGCTL, kBtint));
}

TEST_F(NetBurstBtsTest, ModesDisableAndClear) {
  set(IA32_DEBUGCTL, kTrBts);
  pmu_->enter_smm();
  branch(0x80001000, 0x80002000);
  EXPECT_EQ(field(0x04), kLowBuffer);
  pmu_->leave_smm();
  branch(0x80001000, 0x80002000);
  EXPECT_EQ(field(0x04), kLowBuffer + 12);
  for (void (Pmu::*clear)() : {&Pmu::machine_check, &Pmu::init, &Pmu::reset}) {
    set(IA32_DEBUGCTL, kTrBts);
    set(IA32_PEBS_ENABLE, bit(25));
    (*pmu_.*clear)();
    EXPECT_EQ(pmu_->rdmsr(IA32_DEBUGCTL).value(), 0u);
    EXPECT_EQ(pmu_->rdmsr(IA32_PEBS_ENABLE).value(), 0u);
  }
}

}  // namespace
}  // namespace skidproof::model
