// The PMU's registers: which exist, what a write keeps, what raises #GP.
#include <fmt/format.h>

#include "pebs/arch/msr.h"
#include "pebs/arch/names.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/pmu_state.h"

namespace skidproof::model {

namespace {

tl::unexpected<Error> general_protection(const char* instruction, uint32_t msr, uint64_t value) {
  return fail(ErrorCode::kGeneralProtection, fmt::format("#GP from {} of {} ({:X}H) with {:#x}",
                                                         instruction, msr_name(msr), msr, value));
}

// Which counter of an MSR range of eight, or -1.
int in_range(uint32_t msr, uint32_t first) {
  return msr >= first && msr < first + kMaxCounters ? static_cast<int>(msr - first) : -1;
}

}  // namespace

uint64_t Pmu::State::counter_bits() const {
  return low_bits(behaviour.absent_global_bits_fault ? visible : kMaxCounters);
}

Expected<uint64_t> Pmu::State::read(uint32_t msr) const {
  if (int n = in_range(msr, IA32_PMC0); n >= 0 && present(n)) return counters[n].count.value;
  if (int n = in_range(msr, IA32_A_PMC0); n >= 0 && present(n) && uarch.full_width_writes) {
    return counters[n].count.value;
  }
  if (int n = in_range(msr, IA32_PERFEVTSEL0); n >= 0 && present(n)) return counters[n].select;
  if (msr >= IA32_FIXED_CTR0 && msr < IA32_FIXED_CTR0 + fixed_visible) {
    return fixed[msr - IA32_FIXED_CTR0].value;
  }
  switch (msr) {
    case IA32_FIXED_CTR_CTRL:
      return fixed_ctrl;
    case IA32_PERF_GLOBAL_CTRL:
      return global_ctrl;
    case IA32_PERF_GLOBAL_STATUS:
      return global_status;
    case IA32_PERF_GLOBAL_OVF_CTRL:
      return 0;
    case IA32_PEBS_ENABLE:
      return pebs_enable;
    case MSR_PEBS_LD_LAT_THRESHOLD:
      return load_latency_threshold;
    case IA32_DS_AREA:
      return ds_area;
    case IA32_DEBUGCTL:
      return debugctl;
    case IA32_MISC_ENABLE:
      return misc_enable;
    case IA32_PERF_CAPABILITIES:
      return perf_capabilities(uarch) & ~behaviour.hidden_capabilities;
    case IA32_X2APIC_LVT_PMI:
      return lvt_pmi;
    default:
      return general_protection("RDMSR", msr, 0);
  }
}

Expected<void> Pmu::State::write(uint32_t msr, uint64_t value) {
  auto refuse = [&] { return general_protection("WRMSR", msr, value); };
  // Takes a register whose reserved bits fault.
  auto assign = [&](uint64_t& target, uint64_t writable) -> Expected<void> {
    if (!checked(value, writable)) return refuse();
    target = value & writable;
    refresh();
    return {};
  };

  if (int n = in_range(msr, IA32_PMC0); n >= 0 && present(n)) {
    uint64_t low = value & 0xFFFFFFFF;
    uint64_t extended = behaviour.legacy_write_sign_extends
                            ? static_cast<uint64_t>(int64_t{static_cast<int32_t>(low)})
                            : low;
    if (behaviour.legacy_write_takes_edx) extended = value;
    counters[n].count.value = extended & counters[n].count.mask;
    return {};
  }
  if (int n = in_range(msr, IA32_A_PMC0); n >= 0 && present(n) && uarch.full_width_writes) {
    uint64_t writable = counters[n].count.mask;
    if (behaviour.excess_bits_fault && (value & ~writable) != 0) return refuse();
    counters[n].count.value = value & writable & low_bits(behaviour.full_width_bits);
    return {};
  }
  if (int n = in_range(msr, IA32_PERFEVTSEL0); n >= 0 && present(n)) {
    return assign(counters[n].select, writable_perfevtsel(uarch));
  }
  if (msr >= IA32_FIXED_CTR0 && msr < IA32_FIXED_CTR0 + fixed_visible) {
    CountRegister& f = fixed[msr - IA32_FIXED_CTR0];
    if (behaviour.excess_bits_fault && (value & ~f.mask) != 0) return refuse();
    f.value = value & f.mask;
    return {};
  }
  uint64_t beyond = counter_bits() & ~low_bits(visible);  // only under a defect
  switch (msr) {
    case IA32_FIXED_CTR_CTRL:
      return assign(fixed_ctrl, writable_fixed_ctr_ctrl(uarch));
    case IA32_PERF_GLOBAL_CTRL:
      return assign(global_ctrl, writable_global_ctrl(uarch, visible) | beyond);
    case IA32_PERF_GLOBAL_STATUS:
      if (behaviour.status_write_faults) return refuse();
      global_status = value;
      return {};
    case IA32_PERF_GLOBAL_OVF_CTRL: {
      uint64_t writable = clearable_status(uarch, visible) | beyond;
      if (!checked(value, writable)) return refuse();
      uint64_t clear = behaviour.ovf_ctrl_clears_all ? ~uint64_t{0} : value & writable;
      if (!behaviour.ovf_buffer_clears) clear &= ~status::kOvfBuffer;
      if (behaviour.ovf_ctrl_clears) global_status &= ~clear;
      return {};
    }
    case IA32_PEBS_ENABLE:
      return assign(pebs_enable,
                    writable_pebs_enable(uarch) | (behaviour.pebs_counters & counter_bits()));
    case MSR_PEBS_LD_LAT_THRESHOLD:
      return assign(load_latency_threshold, kWritableLoadLatencyThreshold);
    case IA32_DS_AREA:
      if (behaviour.reserved_bits_fault && !canonical(value)) return refuse();
      ds_area = value;
      return {};
    case IA32_DEBUGCTL:
      return assign(debugctl, writable_debugctl(uarch) &
                                  ~(behaviour.bts.settable ? 0 : uarch.branch_trace.all()));
    case IA32_MISC_ENABLE:
      return {};  // bits 7, 11 and 12 are read-only; nothing else is modelled
    case IA32_X2APIC_LVT_PMI:
      if (!behaviour.lvt_status_read_only) return assign(lvt_pmi, kWritableLvt | kReadOnlyLvt);
      value &= ~kReadOnlyLvt;  // ignored, not refused
      return assign(lvt_pmi, kWritableLvt);
    default:
      return refuse();
  }
}

}  // namespace skidproof::model
