// Decisions of the core model that a defect changes, a part of Behaviour: which pairs fuse, what
// un-laminates. They are taken once for each decoded block, so nothing of them is on the hot path.
#ifndef SKIDPROOF_PEBS_MODEL_CORE_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_CORE_BEHAVIOUR_H_

#include <cstdint>

#include "pebs/arch/fusion.h"
#include "pebs/arch/microarch.h"

namespace skidproof::model {

struct CoreBehaviour {
  // Macro-fusion.
  arch::FusionRules fusion;       // of the microarch
  bool fuses_bitwise = false;     // OR and XOR fuse as TEST does (R69)
  bool fuses_arithmetic = false;  // NEG, ADC, SBB and shifts fuse as TEST does (R69)
  bool fuses_apart = false;       // also over a no-operation between the two (R64)
  bool fuses_immediates = false;  // a memory operand together with an immediate, too (R65)
  bool fuses_writes = false;      // a first that writes memory, too (R64)
  uint8_t line_end_uops = 0;      // more of a jump whose pair lies over two cache lines (R70)
  // Micro-fusion.
  arch::IndexedFusion indexed = arch::IndexedFusion::kUnstated;
  bool rip_immediate_splits = true;  // R75
  // REP.
  bool rep_counts_iterations = false;  // R60
};

inline CoreBehaviour core_behaviour_of(const arch::Microarch& microarch) {
  CoreBehaviour b;
  b.fusion = microarch.fusion;
  b.indexed = microarch.indexed_fusion;
  return b;
}

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_CORE_BEHAVIOUR_H_
