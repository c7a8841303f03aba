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

constexpr uint64_t kJumps = 0x7EC4 | evtsel::kOs | evtsel::kEnable;
constexpr uint32_t config(unsigned n) { return IA32_PMC_GP0_CFG_C + kBankStride * n; }
constexpr uint64_t kReload = 0xFFFF'0000;  // far from the next overflow
constexpr uint64_t kMemory = 0x10000, kBuffer = kMemory + 0x1000;

class PmuArchPebsTest : public testing::Test {
 protected:
  void make(void (*change)(Behaviour&) = [](Behaviour&) {}) {
    Behaviour behaviour = behaviour_of(kClearwaterForest);
    change(behaviour);
    memory_ = FlatMemory(kMemory);
    pmu_ = std::make_unique<Pmu>(kClearwaterForest, Topology{.sibling_thread = false}, memory_,
                                 behaviour, 1);
    // 4 KiB, far from the threshold.
    set(IA32_PEBS_BASE, kBuffer);
    set_index(0, 0x8000);
    ip_ = cycle_ = 0;
  }
  bool takes(uint32_t msr, uint64_t value) { return pmu_->wrmsr(msr, value).has_value(); }
  void set(uint32_t msr, uint64_t value) { ASSERT_TRUE(takes(msr, value)) << std::hex << msr; }
  uint64_t get(uint32_t msr) { return pmu_->rdmsr(msr).value(); }
  void set_index(uint64_t write, uint64_t threshold) {
    set(IA32_PEBS_INDEX, pebs_index::kEnable | write | pebs_index::threshold_field(threshold));
  }
  uint64_t written() { return pebs_index::write_bytes(get(IA32_PEBS_INDEX)); }
  // A counter that overflows with the next jump.
  void sample(unsigned n, uint64_t groups) {
    set(IA32_PERFEVTSEL0 + n, kJumps);
    set(IA32_A_PMC0 + n, low_bits(48));
    set(config(n), groups | kReload | cfg_c::kEnable);
  }
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

  FlatMemory memory_{kMemory};
  std::unique_ptr<Pmu> pmu_;
  Registers registers_;
  uint64_t ip_ = 0, cycle_ = 0;
};

}  // namespace
}  // namespace skidproof::model
