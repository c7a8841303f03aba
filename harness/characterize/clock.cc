// The clocks: the TSC against the kernel's raw monotonic clock, the core's against the TSC; what reading the TSC costs.
#include "harness/run/clock.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "harness/characterize/parts.h"
#include "harness/characterize/plan.h"

namespace skidproof {

namespace {

constexpr int kReadings = 64;  // one after another
constexpr int kReadingTries = 40;

uint64_t ticks_of_rdtsc() {
  const uint64_t before = fenced_tsc();
  asm volatile(".rept 64\n\trdtsc\n\t.endr" : : : "eax", "edx");
  return fenced_tsc() - before;
}
uint64_t ticks_of_rdtscp() {
  const uint64_t before = fenced_tsc();
  asm volatile(".rept 64\n\trdtscp\n\t.endr" : : : "eax", "ecx", "edx");
  return fenced_tsc() - before;
}
uint64_t ticks_of_nothing() {
  const uint64_t before = fenced_tsc();
  asm volatile("");
  return fenced_tsc() - before;
}
uint64_t least_of(uint64_t (*ticks)()) {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < kReadingTries; ++i) least = std::min(least, ticks());
  return least;
}

}  // namespace

Expected<void> characterize_clock(Workbench& bench) {
  if (!on_silicon(bench)) {
    return fail(ErrorCode::kUnsupported,
                "the clocks here are this computer's, and not what is measured");
  }
  const unsigned repetitions = bench.options().repetitions == 0 ? 9 : bench.options().repetitions;
  std::vector<double> tsc, core, rdtsc, rdtscp;
  for (unsigned i = 0; i < repetitions && !bench.cancelled(); ++i) {
    bench.progress(static_cast<double>(i) / repetitions, "clocks");
    const double hertz = SKIDPROOF_TRY(calibrate_tsc(5));
    tsc.push_back(hertz / 1e9);
    const double ratio = SKIDPROOF_TRY(bench.core_cycles_per_tick());
    core.push_back(ratio * hertz / 1e9);
    const auto nothing = static_cast<double>(least_of(ticks_of_nothing));
    rdtsc.push_back((static_cast<double>(least_of(ticks_of_rdtsc)) - nothing) * ratio / kReadings);
    if (!has_rdtscp()) continue;
    rdtscp.push_back((static_cast<double>(least_of(ticks_of_rdtscp)) - nothing) * ratio /
                     kReadings);
  }
  if (bench.cancelled()) return {};
  bench.emit(median_measurement("clock.tsc", "GHz", tsc, {}, {}));
  bench.emit(median_measurement("clock.core", "GHz", core, {}, {}));
  bench.emit(median_measurement("clock.rdtsc", "cycles", rdtsc, {}, {}));
  if (rdtscp.empty()) return {};
  bench.emit(median_measurement("clock.rdtscp", "cycles", rdtscp, {}, {}));
  return {};
}

}  // namespace skidproof
