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
  void make(const Microarch& row) {
    uarch_ = &row;
    pmu_ = std::make_unique<Pmu>(row, Topology{}, memory_, behaviour_of(row), 1);
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
  void sample(unsigned n, uint16_t select, uint64_t period) {
    memory_.set_field(uarch_->ds.gp_reset(n), (uint64_t{0} - 1000) & gp_counter_mask(*uarch_));
    set(IA32_PMC0 + n, uint64_t{0} - period);
    set(IA32_PERFEVTSEL0 + n, select | evtsel::kOs | evtsel::kEnable);
    set(IA32_PEBS_ENABLE, get(IA32_PEBS_ENABLE) | bit(n));
    set(IA32_PERF_GLOBAL_CTRL, get(IA32_PERF_GLOBAL_CTRL) | bit(n));
  }
  // One instruction of four bytes with one event of the signal, a hundred cycles after the last.
  void retire(Signal signal, const Access& load = {}, const Access& store = {}) {
    Retired r;
    r.ip = ip_;
    r.length = 4;
    r.counts[index(signal)] = 1;
    r.counts[index(Signal::kInstructions)] = 1;
    r.load = load;
    r.store = store;
    r.cycle = r.tsc = cycle_ += 100;
    registers_.ip = ip_ += 4;
    r.after = &registers_;
    pmu_->retire(r);
  }
  Record record() {
    return Records({memory_.at(TwoPages::kBuffer), uarch_->record->bytes}, uarch_->record).front();
  }
  uint64_t recorded_bytes() { return memory_.field(uarch_->ds.pebs_index) - TwoPages::kBuffer; }

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
  set(IA32_DEBUGCTL, debugctl::kFreezePerfmonOnPmi);
  set(IA32_PMC0, ~uint64_t{0});
  set(IA32_PERFEVTSEL0, 0x81D0 | evtsel::kOs | evtsel::kEnable | evtsel::kInt);
  set(IA32_PERF_GLOBAL_CTRL, 1);
  retire(Signal::kLoads);
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
