// What becomes of counting and recording in system-management mode, at a machine check, at INIT and
// RESET. [SDM 17.4.9 "BTS and DS Save Area", notes; 18.18.1 "Filtering of SMM Handler Overhead"]
#include <utility>

#include "pebs/arch/msr.h"
#include "pebs/model/pmu_state.h"

namespace skidproof::model {

namespace {

// LBR and BTF, which the SMM freeze clears beside TR and BTS.
constexpr uint64_t kLastBranch = bit(0) | bit(1);

}  // namespace

void Pmu::State::enter_smm() {
  modes.smm = true;
  if (behaviour.modes.smi_clears_freeze) debugctl &= ~debugctl::kFreezePerfmonOnPmi;
  const bool asked = (debugctl & debugctl::kFreezeWhileSmm) != 0;
  smm_frozen = (asked && behaviour.modes.freezes_in_smm) || behaviour.modes.always_freezes_in_smm;
  if (smm_frozen) {
    const BranchTrace& bits = uarch.branch_trace;
    saved_global_ctrl = std::exchange(global_ctrl, 0);
    saved_debugctl = debugctl;
    debugctl &= ~(kLastBranch | bits.messages | bits.store);
  }
  refresh();
}

// The events that armed counters see while they stand still, noted only for a defect.
void Pmu::State::note_frozen_events(const Retired& r) {
  if (!behaviour.modes.frozen_event_pends || !smm_frozen) return;
  for (uint32_t rest = armed; rest != 0; rest &= rest - 1) {
    unsigned n = static_cast<unsigned>(__builtin_ctz(rest));
    if (r.counts[index(counters[n].signal)] != 0) pended_in_smm |= 1u << n;
  }
}

// RSM.
void Pmu::State::leave_smm() {
  modes.smm = false;
  if (std::exchange(smm_frozen, false)) {
    if (behaviour.modes.rsm_restores_counting) global_ctrl = saved_global_ctrl;
    if (behaviour.modes.rsm_restores_branches) debugctl = saved_debugctl;
  }
  if (!behaviour.modes.rsm_enables_again) {
    stop_pebs();
    stop_branches();
  }
  if (behaviour.modes.rsm_spoils_branch) tracer.spoil_next();
  refresh();
  if (uint32_t pended = std::exchange(pended_in_smm, 0); pended != 0) {
    pending = {.instructions = 1, .triggers = pended};
  }
}

void Pmu::State::stop_pebs() {
  pebs_enable = 0;
  for (uint64_t& config : pebs_registers.config) config &= ~cfg_c::kEnable;
}

void Pmu::State::stop_branches() {
  const BranchTrace& bits = uarch.branch_trace;
  debugctl &= ~(bits.messages | bits.store | bits.interrupt);
}

// Software enables recording again by writing the registers.
void Pmu::State::machine_check() {
  if (behaviour.modes.machine_check_stops_pebs) stop_pebs();
  if (behaviour.modes.machine_check_stops_branches) stop_branches();
  modes.locked = !behaviour.modes.machine_check_reversible;
  refresh();
}

// Counters and selects are undefined after INIT [SDM 18.4, note]: here they stay. The local APIC is
// reset with the processor. It does not come in SMM: there the processor holds it back until RSM.
void Pmu::State::init() {
  if (behaviour.modes.init_clears_pebs) stop_pebs();
  if (behaviour.modes.init_clears_branches) debugctl = 0;
  lvt_pmi = kResetLvt;
  pmi_pending = false;
  refresh();
}

// RESET: as after power-on.
void Pmu::State::hard_reset() {
  const uint64_t enabled = pebs_enable, controlled = debugctl;
  reset();
  if (!behaviour.modes.reset_clears_pebs) pebs_enable = enabled;
  if (!behaviour.modes.reset_clears_branches) debugctl = controlled;
  refresh();
}

}  // namespace skidproof::model
