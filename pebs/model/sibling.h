// The other logical processor of the core, as far as AnyThread sees it (M36).
//
// Its activity is the model's own choice: it repeats a loop of eight instructions in eight cycles for
// as long as this logical processor runs. What it does is a function of the core clock alone, so a
// run is the same however it was cut into pieces.
#ifndef SKIDPROOF_PEBS_MODEL_SIBLING_H_
#define SKIDPROOF_PEBS_MODEL_SIBLING_H_

#include <cstdint>

#include "pebs/arch/signal.h"

namespace skidproof::model {

class Sibling {
 public:
  static constexpr uint64_t kLoopCycles = 8;

  // How often a signal comes in one loop: at most once a cycle. A core clock cycle is the same for
  // both threads, so the sibling adds none.
  static constexpr uint64_t each_loop(arch::Signal signal) {
    switch (signal) {
      case arch::Signal::kInstructions:
      case arch::Signal::kUops:
        return 8;
      case arch::Signal::kLoads:
      case arch::Signal::kLoadsL1Hit:
        return 2;
      case arch::Signal::kStores:
      case arch::Signal::kBranches:
      case arch::Signal::kConditional:
      case arch::Signal::kConditionalTaken:
      case arch::Signal::kNearTaken:
        return 1;
      default:
        return 0;
    }
  }
  // In the cycles from one reading of the clock to another.
  static constexpr uint64_t events(arch::Signal signal, uint64_t from, uint64_t to) {
    return each_loop(signal) * to / kLoopCycles - each_loop(signal) * from / kLoopCycles;
  }
  // The most in so many cycles: of instructions, one in each.
  static constexpr uint64_t most(uint64_t cycles) { return cycles; }
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_SIBLING_H_
