// The branch predictor of the core model: gshare, a return stack, and last targets.
#ifndef SKIDPROOF_PEBS_MODEL_PREDICTOR_H_
#define SKIDPROOF_PEBS_MODEL_PREDICTOR_H_

#include <array>
#include <cstdint>

#include "base/random.h"

namespace skidproof::model {

// Sizes are the model's own choice: large enough that short patterns are learned, small enough that a
// random direction is not.
class Predictor {
 public:
  static constexpr unsigned kHistoryBits = 12;
  static constexpr unsigned kReturns = 16;
  static constexpr unsigned kTargets = 512;

  explicit Predictor(uint64_t seed = 0) { clear(seed); }
  // Whatever ran before left its counters somewhere: weakly one way or the other, by the seed.
  void clear(uint64_t seed) {
    Random random(seed);
    for (uint8_t& counter : counters_) counter = random.chance(1, 2) ? 1 : 2;
    returns_.fill(0);
    targets_.fill(0);
    history_ = top_ = 0;
  }

  // What depends on the branch's address alone, computed once at decoding.
  static uint32_t key(uint64_t address) {
    return static_cast<uint32_t>((address ^ (address >> kHistoryBits)) * 0x9E37'79B1u >> 7);
  }

  // Each learns the outcome and returns whether it was mispredicted.
  bool conditional(uint32_t branch, bool taken) {
    uint8_t& counter = counters_[(branch ^ history_) & (kCounters - 1)];
    bool predicted = counter >= 2;
    counter = kNextCounter[taken][counter];
    history_ = history_ << 1 | static_cast<uint32_t>(taken);
    return predicted != taken;
  }
  bool indirect(uint32_t branch, uint64_t target) {
    uint64_t& last = targets_[branch % kTargets];
    bool wrong = last != target;
    last = target;
    return wrong;
  }
  void call(uint64_t return_address) { returns_[++top_ % kReturns] = return_address; }
  bool give_back(uint64_t target) { return returns_[top_-- % kReturns] != target; }

 private:
  static constexpr unsigned kCounters = 1u << kHistoryBits;
  static constexpr uint8_t kNextCounter[2][4] = {{0, 0, 1, 2}, {1, 2, 3, 3}};

  std::array<uint8_t, kCounters> counters_;
  std::array<uint64_t, kReturns> returns_;
  std::array<uint64_t, kTargets> targets_;
  uint32_t history_ = 0;
  uint32_t top_ = 0;
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_PREDICTOR_H_
