// The way up through the stages: what failed on which, and what that makes of the later ones.
#ifndef SKIDPROOF_HARNESS_CHECK_LADDER_H_
#define SKIDPROOF_HARNESS_CHECK_LADDER_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "harness/check/stage.h"
#include "results/row.h"

namespace skidproof::check {

class Ladder {
 public:
  // What became of a test: only `fail` and `error` break the ground that later stages stand on.
  void note(Stage stage, const std::string& id, results::Status status);
  // Why a test of this stage is not to run; nullopt: the ground below it held.
  std::optional<std::string> broken_below(Stage stage) const;
  // The run begins anew, from the ground.
  void reset() { broken_ = {}; }

 private:
  struct Rung {
    uint64_t broken = 0;
    std::string first;  // "PmuRegisters.AgreeWithCpuid failed"
  };
  std::array<Rung, kStages.size()> broken_;
};

}  // namespace skidproof::check

#endif  // SKIDPROOF_HARNESS_CHECK_LADDER_H_
