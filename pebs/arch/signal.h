// Signals: what a retiring instruction does, in the units that event selects count.
#ifndef SKIDPROOF_PEBS_ARCH_SIGNAL_H_
#define SKIDPROOF_PEBS_ARCH_SIGNAL_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace skidproof::arch {

// An event of the manual selects one signal. The core model produces signals; no event code appears
// in it, and no microarchitectural structure in the event tables.
enum class Signal : uint8_t {
  kNone,          // an event that never happens in this model
  kInstructions,  // instructions retired; REP counts once (R60)
  kUops,          // fused-domain uops retired
  kMacroFused,    // macro-fused pairs retired (R71)
  kNops,
  kSimd,             // instructions that use xmm or ymm registers
  kCycles,           // core clock cycles
  kReferenceCycles,  // at the TSC's rate
  kBusCycles,        // at the bus's, or the crystal's
  kSlots,            // places for a uop at allocation, used or not
  kBranches,
  kConditional,
  kConditionalTaken,
  kConditionalNotTaken,
  kNearCalls,
  kNearReturns,
  kNearTaken,  // every taken near branch
  kMispredicts,
  kMispredictsConditional,
  kMispredictsNearCall,
  kMispredictsTaken,
  kMispredictsNotTaken,
  kLoads,   // load operations retired
  kStores,  // store operations retired
  kLockedLoads,
  kSplitLoads,  // crosses a cache line
  kSplitStores,
  kStlbMissLoads,
  kStlbMissStores,
  kLoadsL1Hit,
  kLoadsFillBuffer,  // the line is already on its way
  kLoadsL2Hit,
  kLoadsL3Hit,
  kLoadsL3Miss,
  kLlcReferences,  // lines asked of the last-level cache
  kLlcMisses,      // … that it did not have
  kCount,
};
inline constexpr size_t kSignals = static_cast<size_t>(Signal::kCount);

using SignalCounts = std::array<uint64_t, kSignals>;
constexpr size_t index(Signal signal) { return static_cast<size_t>(signal); }

const char* name_of(Signal signal);

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_SIGNAL_H_
