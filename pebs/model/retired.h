// What an engine tells the PMU about one retired instruction.
#ifndef SKIDPROOF_PEBS_MODEL_RETIRED_H_
#define SKIDPROOF_PEBS_MODEL_RETIRED_H_

#include <array>
#include <cstdint>

#include "pebs/arch/record_layout.h"
#include "pebs/arch/signal.h"

namespace skidproof::model {

struct Registers {
  std::array<uint64_t, arch::kGprs> gpr{};  // indexed by arch::Gpr
  uint64_t flags = 0x2;
  uint64_t ip = 0;
};

// XMM0 to XMM15 in the low two quadwords of each.
using VectorRegisters = std::array<std::array<uint64_t, 4>, 16>;

// Instructions that errata mistake for others.
enum class Special : uint8_t {
  kNone,
  kCpuid,
  kMfence,
  kWrmsr,
  kShadow,  // MOV SS, STI: nothing comes between them and the next instruction
};

// One data access, as the core model saw it.
struct Access {
  bool valid = false;
  bool l1_hit = false;
  bool stlb_miss = false;
  bool locked = false;
  uint8_t source = 0;          // data source encoding, bits 3:0 [SDM Table 18-24]
  uint16_t latency = 0;        // core cycles from first dispatch to data
  uint16_t cache_latency = 0;  // … of these in the caches and memory
  uint64_t address = 0;        // linear
};

// One instruction's architectural effects and events.
struct Retired {
  uint64_t ip = 0;
  uint8_t length = 0;            // in bytes: the fall-through is ip + length
  arch::SignalCounts counts{};   // what this instruction added to each signal
  uint64_t cycle = 0;            // core clock after it retired
  uint64_t tsc = 0;              // the TSC then
  bool fused_with_next = false;  // first half of a macro-fused pair: retires together with the next
  Special special = Special::kNone;
  Access load, store;
  const Registers* after = nullptr;  // registers after it; after->ip is the next instruction
  const VectorRegisters* vectors = nullptr;  // after it; nullptr where the engine has none
};

// The most that one instruction can add to a signal: what lets the PMU promise quiet instructions.
// Engines must stay within it; the core model clamps its cycle costs accordingly.
inline constexpr uint64_t kMaxCyclesPerInstruction = 1024;
inline constexpr uint64_t kMaxSlotsPerCycle = 8;
constexpr uint64_t max_per_instruction(arch::Signal signal) {
  switch (signal) {
    case arch::Signal::kNone:
      return 0;
    case arch::Signal::kCycles:
    case arch::Signal::kReferenceCycles:
      return kMaxCyclesPerInstruction;
    case arch::Signal::kBusCycles:
      return kMaxCyclesPerInstruction;
    case arch::Signal::kSlots:
      return kMaxCyclesPerInstruction * kMaxSlotsPerCycle;
    case arch::Signal::kUops:
      return 64;
    case arch::Signal::kLoads:
    case arch::Signal::kStores:
      return 2;
    case arch::Signal::kSplitLoads:
    case arch::Signal::kSplitStores:
    case arch::Signal::kStlbMissLoads:
    case arch::Signal::kStlbMissStores:
    case arch::Signal::kLoadsL1Hit:
    case arch::Signal::kLoadsFillBuffer:
    case arch::Signal::kLoadsL2Hit:
    case arch::Signal::kLoadsL3Hit:
    case arch::Signal::kLoadsL3Miss:
      return 2;
    case arch::Signal::kLlcReferences:
    case arch::Signal::kLlcMisses:
      return 8;  // two loads and two stores, of two lines each
    default:
      return 1;
  }
}

// How many events a stretch of n instructions of some code brings at most, where its instructions decide that: `once` and
// n / `apart`. `apart` is 0 where nothing is known.
struct EventBound {
  uint64_t once = 0;
  uint64_t apart = 0;

  // How many instructions surely bring no more than so many.
  uint64_t within(uint64_t events) const {
    uint64_t n = 0;
    if (apart == 0 || events < once) return 0;
    return __builtin_mul_overflow(events - once, apart, &n) ? UINT64_MAX : n;
  }
};
// By signal.
using CodeBounds = std::array<EventBound, arch::kSignals>;

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_RETIRED_H_
