// Decisions of the core model that a defect or a rough machine changes, a part of Behaviour: which pairs
// fuse, what un-laminates, what the caches are. They are taken once for each decoded block or core, so
// nothing of them is on the hot path.
#ifndef SKIDPROOF_PEBS_MODEL_CORE_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_CORE_BEHAVIOUR_H_

#include <cstdint>

#include "pebs/arch/fusion.h"
#include "pebs/arch/microarch.h"
#include "pebs/model/rough.h"

namespace skidproof::model {

struct CoreBehaviour {
  arch::CacheGeometry caches;
  double prefetch = 0;               // share of misses behind which the next line comes too
  uint32_t reference_percent = 100;  // the TSC's rate, of the core clock
  uint32_t fusion_border = 0;        // a pair over a multiple of it does not fuse; 0: all do
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
  // Time (T1 to T7): cycles more than a conforming core takes.
  uint32_t dtlb_latency = 0;     // where the first TLB has the page
  uint32_t fused_stall = 0;      // of a fused pair
  uint32_t l1_stall = 0;         // of a load that the first level serves
  uint32_t apart_stall = 0;      // of a load behind a store to other bytes,
  uint32_t forwarded_stall = 0;  // of one of bytes that the store wrote,
  uint32_t blocked_stall = 0;    // and of one of other bytes beside these
  bool chains_overlap = false;   // dependent loads overlap, and independent ones do not
  // Whether the core has to look at every access for that.
  bool watches_accesses() const {
    return l1_stall != 0 || apart_stall != 0 || forwarded_stall != 0 || blocked_stall != 0 ||
           chains_overlap;
  }
  // REP.
  bool rep_counts_iterations = false;  // R60
};

inline CoreBehaviour core_behaviour_of(const arch::Microarch& microarch, const Rough& rough = {}) {
  CoreBehaviour b;
  b.caches = geometry_of(microarch, rough);
  b.prefetch = rough.prefetch;
  b.reference_percent = rough.reference_percent;
  b.fusion_border = rough.fusion_border;
  const bool unpublished = !microarch.fusion_published && rough.unpublished_fusion != 0;
  b.fusion = unpublished ? arch::kSandyBridgeFusion : microarch.fusion;
  b.indexed = microarch.indexed_fusion;
  return b;
}

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_CORE_BEHAVIOUR_H_
