// Calibration of the TSC.
#include "harness/run/clock.h"

#include <cpuid.h>
#include <time.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace skidproof {
namespace {

struct Reading {
  double nanoseconds = 0;
  double ticks = 0;
};

double raw_nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

Reading read_both(uint64_t origin) {
  Reading best;
  uint64_t tightest = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < 16; ++i) {
    const uint64_t before = fenced_tsc();
    const double nanoseconds = raw_nanoseconds();
    const uint64_t after = fenced_tsc();
    if (after - before >= tightest) continue;
    tightest = after - before;
    best = {nanoseconds, static_cast<double>(before - origin) + static_cast<double>(tightest) / 2};
  }
  return best;
}

// CPUID says so, or, since hypervisors often hide that bit, Linux does.
bool steady_tsc() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) != 0 && (edx >> 8 & 1) != 0) return true;
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line)) {
    if (line.starts_with("flags")) return line.find(" constant_tsc") != std::string::npos;
  }
  return false;
}

}  // namespace

bool has_rdtscp() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) != 0 && (edx >> 27 & 1) != 0;
}

Expected<double> calibrate_tsc(unsigned milliseconds) {
  if (!steady_tsc()) {
    return fail(ErrorCode::kNotAvailable,
                "the TSC is not invariant (CPUID.80000007H:EDX[8] is clear, no constant_tsc)",
                "ticks cannot be turned into time here; under a hypervisor, expose invtsc");
  }
  const uint64_t origin = fenced_tsc();
  const Reading first = read_both(origin);
  const double wait = std::max(1u, milliseconds) * 1e6;
  while (raw_nanoseconds() - first.nanoseconds < wait) {
  }
  const Reading last = read_both(origin);
  return (last.ticks - first.ticks) / (last.nanoseconds - first.nanoseconds) * 1e9;
}

}  // namespace skidproof
