// The rules of arch/reserved.h applied to a sequence of writes.
#include "harness/fuzz/registers.h"

#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"

namespace skidproof::fuzz {

using namespace arch;

namespace {
// Eight is the most that any part has; those beyond the reported ones must raise #GP.
constexpr unsigned kMostCounters = 8;

bool in(uint32_t msr, uint32_t first, unsigned count) {
  return msr >= first && msr - first < count;
}
}  // namespace

RegisterFile::RegisterFile(const Microarch& microarch, unsigned gp_counters)
    : microarch_(microarch), gp_(gp_counters) {
  for (unsigned n = 0; n < kMostCounters; ++n) {
    watched_.push_back(IA32_PMC0 + n);
    watched_.push_back(IA32_A_PMC0 + n);
    watched_.push_back(IA32_PERFEVTSEL0 + n);
  }
  for (unsigned i = 0; i < microarch.fixed_counters; ++i) watched_.push_back(IA32_FIXED_CTR0 + i);
  for (uint32_t msr : {IA32_FIXED_CTR_CTRL, IA32_PERF_GLOBAL_STATUS, IA32_PERF_GLOBAL_CTRL,
                       IA32_PERF_GLOBAL_OVF_CTRL, IA32_DS_AREA, IA32_DEBUGCTL, IA32_X2APIC_LVT_PMI,
                       IA32_PERF_CAPABILITIES}) {
    watched_.push_back(msr);
  }
  if (microarch.pebs_in_ds_area()) watched_.push_back(IA32_PEBS_ENABLE);
  if (microarch.load_latency_event != 0) watched_.push_back(MSR_PEBS_LD_LAT_THRESHOLD);
  if (microarch.pebs_baseline) watched_.push_back(MSR_PEBS_DATA_CFG);
  values_[IA32_X2APIC_LVT_PMI] = kResetLvt;
  values_[IA32_PERF_CAPABILITIES] = perf_capabilities(microarch);
}

uint32_t RegisterFile::canonical(uint32_t msr) const {
  return in(msr, IA32_A_PMC0, kMostCounters) ? msr - IA32_A_PMC0 + IA32_PMC0 : msr;
}

uint64_t RegisterFile::at(uint32_t msr) const {
  auto found = values_.find(canonical(msr));
  return found == values_.end() ? 0 : found->second;
}

bool RegisterFile::exists(uint32_t msr) const {
  if (in(msr, IA32_PMC0, kMostCounters)) return msr - IA32_PMC0 < gp_;
  if (in(msr, IA32_PERFEVTSEL0, kMostCounters)) return msr - IA32_PERFEVTSEL0 < gp_;
  if (in(msr, IA32_A_PMC0, kMostCounters)) {
    return microarch_.full_width_writes && msr - IA32_A_PMC0 < gp_;
  }
  return true;
}

std::optional<uint64_t> RegisterFile::read(uint32_t msr) const {
  if (!exists(msr)) return std::nullopt;
  if (msr == IA32_PERF_GLOBAL_OVF_CTRL) return 0;  // a command, not a store
  return at(msr);
}

// The bits of a register that may be 1; empty: it cannot be written at all.
std::optional<uint64_t> RegisterFile::writable(uint32_t msr) const {
  const Microarch& m = microarch_;
  if (in(msr, IA32_PMC0, kMostCounters)) return ~uint64_t{0};  // EDX is ignored (R38)
  if (in(msr, IA32_A_PMC0, kMostCounters)) return gp_counter_mask(m);
  if (in(msr, IA32_PERFEVTSEL0, kMostCounters)) {
    return writable_perfevtsel(m, msr - IA32_PERFEVTSEL0);
  }
  if (in(msr, IA32_FIXED_CTR0, m.fixed_counters)) return fixed_counter_mask(m);
  switch (msr) {
    case IA32_FIXED_CTR_CTRL:
      return writable_fixed_ctr_ctrl(m);
    case IA32_PERF_GLOBAL_CTRL:
      return writable_global_ctrl(m, gp_);
    case IA32_PERF_GLOBAL_OVF_CTRL:
      return clearable_status(m, gp_);
    case IA32_PEBS_ENABLE:
      return writable_pebs_enable(m);
    case MSR_PEBS_DATA_CFG:
      return writable_pebs_data_cfg(m);
    case MSR_PEBS_LD_LAT_THRESHOLD:
      return kWritableLoadLatencyThreshold;
    case IA32_DEBUGCTL:
      return writable_debugctl(m);
    case IA32_X2APIC_LVT_PMI:
      return kWritableLvt | kReadOnlyLvt;
    default:
      return std::nullopt;
  }
}

bool RegisterFile::accepts(uint32_t msr, uint64_t value) const {
  if (!exists(msr)) return false;
  if (msr == IA32_DS_AREA) return arch::canonical(value, arch::linear_address_bits(microarch_));
  std::optional<uint64_t> bits = writable(msr);
  return bits.has_value() && (value & ~*bits) == 0;
}

void RegisterFile::write(uint32_t msr, uint64_t value) {
  if (in(msr, IA32_PMC0, kMostCounters)) value = legacy_write_value(microarch_, value);
  if (msr == IA32_X2APIC_LVT_PMI) value &= ~kReadOnlyLvt;  // ignored, not refused
  if (msr == IA32_PERF_GLOBAL_OVF_CTRL) {
    values_[IA32_PERF_GLOBAL_STATUS] &= ~value;
    return;
  }
  values_[canonical(msr)] = value;
}

}  // namespace skidproof::fuzz
