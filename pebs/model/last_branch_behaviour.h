// What the modelled LBR stack does, decision by decision: the part of Behaviour that only pmu_branches.cc and
// the interrupts ask for.
#ifndef SKIDPROOF_PEBS_MODEL_LAST_BRANCH_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_LAST_BRANCH_BEHAVIOUR_H_

#include <cstdint>

namespace skidproof::model {

struct LastBranchBehaviour {
  bool swapped = false;    // L1: from and to change places
  uint32_t lost = 0;       // L1: one branch in so many is not recorded; 0: none
  uint8_t tos_behind = 0;  // L1: TOS names an older entry
  bool freezes = true;     // L2
  bool frozen_at_overflow =
      false;  // L3: with the overflow of a PEBS counter instead of its interrupt
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_LAST_BRANCH_BEHAVIOUR_H_
