// The signals' names, for messages and results.
#include "pebs/arch/signal.h"

namespace skidproof::arch {

namespace {

// One name for each signal, in the enumeration's order.
constexpr const char* kNames[] = {
    "none",
    "instructions",
    "uops",
    "macro-fused pairs",
    "nops",
    "SIMD instructions",
    "cycles",
    "reference cycles",
    "bus cycles",
    "slots",
    "branches",
    "conditional branches",
    "conditional branches taken",
    "conditional branches not taken",
    "near calls",
    "near returns",
    "near branches taken",
    "mispredicted branches",
    "mispredicted conditional branches",
    "mispredicted near calls",
    "mispredicted branches taken",
    "mispredicted branches not taken",
    "loads",
    "stores",
    "locked loads",
    "split loads",
    "split stores",
    "STLB-miss loads",
    "STLB-miss stores",
    "L1-hit loads",
    "fill-buffer-hit loads",
    "L2-hit loads",
    "L3-hit loads",
    "L3-miss loads",
    "last-level cache references",
    "last-level cache misses",
};
static_assert(sizeof(kNames) / sizeof(kNames[0]) == kSignals, "one name for each signal");

}  // namespace

const char* name_of(Signal signal) {
  return index(signal) < kSignals ? kNames[index(signal)] : "unknown signal";
}

}  // namespace skidproof::arch
