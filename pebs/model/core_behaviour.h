// Decisions of the core model that a defect changes, a part of Behaviour: which pairs fuse, what
// un-laminates. They are taken once for each decoded block, so nothing of it is on the hot path.
#ifndef SKIDPROOF_PEBS_MODEL_CORE_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_CORE_BEHAVIOUR_H_

#include <cstdint>

#include "pebs/arch/fusion.h"

namespace skidproof::model {

struct CoreBehaviour {
  arch::FusionRules fusion;        // of the microarch
  bool fuses_bitwise = false;      // OR and XOR fuse as TEST does (R69)
  bool fuses_arithmetic = false;   // NEG, ADC, SBB and shifts fuse as TEST does (R69)
  bool fuses_apart = false;        // a no-operation between the two does not keep them apart (R64)
  bool fuses_immediates = false;   // memory together with an immediate (R65)
  bool fuses_memory_write = false;  // a first that writes memory (R64)
  bool rep_counts_iterations = false;  // R60
  uint8_t indexed_uops = 1;        // more slots of a split instruction; see arch::IndexedFusion
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_CORE_BEHAVIOUR_H_
