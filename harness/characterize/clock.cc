// The clocks: the TSC against the kernel's raw monotonic clock, the core's against the TSC; what reading the TSC costs.
#include "harness/run/clock.h"

#include "harness/characterize/parts.h"
#include "harness/characterize/plan.h"

namespace skidproof {

Expected<void> characterize_clock(Workbench& bench) {
  const unsigned repetitions = bench.options().repetitions == 0 ? 9 : bench.options().repetitions;
  std::vector<double> tsc, core;
  for (unsigned i = 0; i < repetitions && !bench.cancelled(); ++i) {
    bench.progress(static_cast<double>(i) / repetitions, "clocks");
    const double hertz = SKIDPROOF_TRY(calibrate_tsc(5));
    tsc.push_back(hertz / 1e9);
    core.push_back(SKIDPROOF_TRY(bench.core_cycles_per_tick()) * hertz / 1e9);
  }
  if (bench.cancelled()) return {};
  bench.emit(median_measurement("clock.tsc", "GHz", tsc, {}, {}));
  bench.emit(median_measurement("clock.core", "GHz", core, {}, {}));
  return {};
}

}  // namespace skidproof
