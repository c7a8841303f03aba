// What system-management mode, machine checks, INIT, RESET and real-address mode do to the modelled
// PMU, decision by decision: the part of Behaviour that only pmu_modes.cc asks for.
#ifndef SKIDPROOF_PEBS_MODEL_MODE_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_MODE_BEHAVIOUR_H_

namespace skidproof::model {

struct ModeBehaviour {
  // System-management mode (R56).
  bool smm_stops_pebs = true;
  bool smm_stops_branches = true;
  bool freezes_in_smm = true;         // FREEZE_WHILE_SMM_EN
  bool rsm_restores_counting = true;  // what the freeze cleared of GLOBAL_CTRL
  bool rsm_restores_branches = true;  // what it cleared of DEBUGCTL
  bool frozen_event_pends = false;    // an event in SMM pends a PEBS although the counter is frozen
  bool rsm_enables_again = true;      // without the freeze; what SMM entry disabled (R56)
  bool rsm_spoils_branch = false;     // from of the next branch record is invalid

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

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_MODE_BEHAVIOUR_H_
