// What system-management mode, machine checks, INIT, RESET and real-address mode do to the modelled
// PMU, decision by decision: the part of Behaviour that only
// pmu_modes.cc and netburst.cc ask for.
#ifndef SKIDPROOF_PEBS_MODEL_MODE_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_MODE_BEHAVIOUR_H_

namespace skidproof::model {

struct ModeBehaviour {
  // System-management mode (R56).
  bool smm_stops_pebs = true;
  bool smm_stops_branches = true;
  bool freezes_in_smm = true;          // FREEZE_WHILE_SMM_EN
  bool always_freezes_in_smm = false;  // without it, too (B21)
  bool rsm_restores_counting = true;   // what the freeze cleared of GLOBAL_CTRL
  bool rsm_restores_branches = true;   // what it cleared of DEBUGCTL
  bool frozen_event_pends = false;  // an event in SMM pends a PEBS although the counter is frozen
  bool smi_clears_freeze = false;   // FREEZE_PERFMON_ON_PMI (HSD52)
  bool rsm_enables_again = true;    // without the freeze; what SMM entry disabled (R56)
  bool rsm_spoils_branch = false;   // from of the next branch record is invalid

  // Machine check, INIT, RESET (R57).
  bool machine_check_stops_pebs = true;
  bool machine_check_stops_branches = true;
  bool machine_check_reversible = true;  // software enables recording again
  bool init_clears_pebs = true;
  bool init_clears_branches = true;
  bool reset_clears_pebs = true;
  bool reset_clears_branches = true;

  // Real-address mode (R57).
  bool real_mode_pebs = true;
  bool real_mode_branches = true;
};

// What of these the processor is in, and what may be recorded there.
struct RecordingModes {
  bool smm = false;
  bool real_mode = false;
  bool locked = false;  // by a machine check, under a defect

  bool pebs(const ModeBehaviour& b) const {
    return !(smm && b.smm_stops_pebs) && !(real_mode && !b.real_mode_pebs) && !locked;
  }
  bool branches(const ModeBehaviour& b) const {
    return !(smm && b.smm_stops_branches) && !(real_mode && !b.real_mode_branches) && !locked;
  }
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_MODE_BEHAVIOUR_H_
