// What a mispredicted conditional jump costs: the same code over directions that cannot be known
// and over directions that are learned at once.
#include <fmt/format.h>

#include <memory>

#include "base/random.h"
#include "harness/characterize/parts.h"
#include "harness/characterize/plan.h"

namespace skidproof {
namespace {

// Directions in one pass. Every run draws them anew, so that no predictor has seen them.
constexpr uint64_t kDirections = 16 << 10;
constexpr unsigned kPassTries = 5;

}  // namespace

Expected<void> characterize_misprediction(Workbench& bench) {
  SKIDPROOF_CHECK(bench.count(kOfJumps));
  const std::string length = fmt::format(",length={}", kDirections);
  Workpiece random = SKIDPROOF_TRY(bench.prepare("branch_pattern", "pattern=random" + length));
  const Workpiece learned =
      SKIDPROOF_TRY(bench.prepare("branch_pattern", "pattern=alternating" + length));
  uint64_t draw = derive_seed(bench.options().seed, "misprediction");
  const auto surprise = [&]() -> Expected<CountedRun> {
    SKIDPROOF_CHECK(bench.refill(random, ++draw));
    return bench.run(random, 1);
  };
  std::vector<Point> points(1);
  points[0].what = "misprediction";
  points[0].sample = [&]() -> Expected<Sample> {
    const auto both = SKIDPROOF_TRY(
        bench.sample_both(kPassTries, surprise, [&] { return bench.run(learned, 1); }));
    // Half of the directions are taken, in an order that no history tells: every predictor is wrong
    // on half of them. Both patterns take the same number of jumps, so nothing else differs.
    return (both.first - both.second).per(static_cast<double>(kDirections) / 2);
  };
  SKIDPROOF_CHECK(take_by_turns(bench, points, {}));
  for (const Point& point : points) {
    emit_point(bench, point, "branch.mispredict_penalty",
               {{"branches", kDirections}, {"baseline", "alternating"}});
  }
  return {};
}

}  // namespace skidproof
