// What a mispredicted conditional jump costs: the same code over directions that cannot be known
// and over directions that are learned at once.
#include <vector>

#include "base/random.h"
#include "harness/run/noise.h"
#include "harness/run/workbench.h"

namespace skidproof {
namespace {

// Directions in one pass. Every sample draws them anew, so that no predictor has seen them.
constexpr uint64_t kLength = 16 << 10;
constexpr unsigned kTries = 7;

}  // namespace

Expected<void> characterize_misprediction(Workbench& bench) {
  const std::string length = fmt::format(",length={}", kLength);
  Workpiece random = SKIDPROOF_TRY(bench.prepare("branch_pattern", "pattern=random" + length));
  const Workpiece learned =
      SKIDPROOF_TRY(bench.prepare("branch_pattern", "pattern=alternating" + length));
  std::vector<double> cycles, ns;
  Noise noise;
  uint64_t draw = derive_seed(bench.options().seed, "misprediction");
  const unsigned repetitions = 2 * bench.repetitions();
  for (unsigned i = 0; i < repetitions; ++i) {
    if (bench.cancelled()) return {};
    bench.progress(static_cast<double>(i) / repetitions, "misprediction");
    // Apart, since SKIDPROOF_TRY does not nest.
    const auto surprise = [&]() -> Expected<RunLog> {
      SKIDPROOF_CHECK(bench.refill(random, ++draw));
      return bench.run(random, 1);
    };
    const Sample unknown = SKIDPROOF_TRY(bench.sample(kTries, surprise));
    const Sample known = SKIDPROOF_TRY(bench.sample(kTries, [&] { return bench.run(learned, 1); }));
    // Half of the directions are taken, in an order that no history tells: every predictor is wrong
    // on half of them. Both patterns take the same number of jumps, so nothing else differs.
    const double mispredicted = static_cast<double>(kLength) / 2;
    cycles.push_back((unknown.cycles - known.cycles) / mispredicted);
    ns.push_back((unknown.ns - known.ns) / mispredicted);
    noise = noise + unknown.noise + known.noise;
  }
  const MeasurementParameters parameters = {{"branches", kLength}, {"baseline", "alternating"}};
  bench.emit(median_measurement("branch.mispredict_penalty", "cycles", cycles, parameters, noise));
  bench.emit(median_measurement("branch.mispredict_penalty", "ns", ns, parameters, noise));
  return {};
}

}  // namespace skidproof
