// The clocks: the TSC against the kernel's raw monotonic clock, the core's against the TSC.
#include "harness/run/clock.h"
#include "harness/run/workbench.h"

namespace skidproof {

Expected<void> characterize_clock(Workbench& bench) {
  std::vector<double> tsc, core;
  for (unsigned i = 0; i < bench.repetitions() && !bench.cancelled(); ++i) {
    bench.progress(static_cast<double>(i) / bench.repetitions(), "clocks");
    const double hertz = SKIDPROOF_TRY(calibrate_tsc(5));
    tsc.push_back(hertz / 1e9);
    core.push_back(core_cycles_per_tick() * hertz / 1e9);
  }
  if (bench.cancelled()) return {};
  bench.emit(median_measurement("clock.tsc", "GHz", tsc, {}, {}));
  bench.emit(median_measurement("clock.core", "GHz", core, {}, {}));
  return {};
}

}  // namespace skidproof
