// A run that something from outside disturbed is thrown away and made again.
#ifndef SKIDPROOF_PEBS_UNDISTURBED_H_
#define SKIDPROOF_PEBS_UNDISTURBED_H_

#include <algorithm>
#include <cstdint>

#include "base/expected.h"
#include "pebs/arch/msr.h"
#include "pebs/machine.h"

namespace skidproof {

inline constexpr int kUndisturbedAttempts = 3;

// Whether the plan begins the PMU's state anew, so that it can be run a second time.
inline bool restarts(const RunPlan& plan) {
  return std::any_of(plan.enable.begin(), plan.enable.end(),
                     [](const MsrWrite& w) { return w.msr == arch::IA32_PERF_GLOBAL_OVF_CTRL; });
}

// Runs a plan that restarts() until neither an SMI nor a machine check nor a foreign NMI came, at the most so many
// times. `once` runs a plan, `restore` puts the debug store back to what it was before the first. The LVT entry is as
// before the first as well: delivery masks it (R51), and a plan may want no handler to clear the mask. Noise::repeats
// counts what was thrown away; what disturbed the last run stands in its log. Errors: those of `once`, of RDMSR and
// of WRMSR.
template <class Once, class Restore>
Expected<RunLog> run_undisturbed(Machine& machine, const RunPlan& plan, int attempts, Once once,
                                 Restore restore) {
  RunPlan repeated = plan;
  uint64_t lvt_entry = 0;
  if (!plan.pmi.unmask) lvt_entry = SKIDPROOF_TRY(machine.rdmsr(arch::IA32_X2APIC_LVT_PMI));
  for (int attempt = 1;; ++attempt) {
    RunLog log = SKIDPROOF_TRY(once(repeated));
    const Noise& noise = log.noise;
    log.noise.repeats = static_cast<uint64_t>(attempt - 1);
    const bool disturbed = noise.smi + noise.machine_checks + noise.foreign_nmis != 0;
    if (!disturbed || attempt >= attempts) return log;
    restore();
    if (!plan.pmi.unmask) SKIDPROOF_CHECK(machine.wrmsr(arch::IA32_X2APIC_LVT_PMI, lvt_entry));
    // The run has left more bits set than those that the plan clears.
    const uint64_t left = SKIDPROOF_TRY(machine.rdmsr(arch::IA32_PERF_GLOBAL_STATUS));
    for (MsrWrite& w : repeated.enable) {
      if (w.msr == arch::IA32_PERF_GLOBAL_OVF_CTRL) w.value |= left;
    }
  }
}

}  // namespace skidproof

#endif  // SKIDPROOF_PEBS_UNDISTURBED_H_
