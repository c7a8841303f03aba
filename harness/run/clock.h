// The clock of timing: the TSC, and its frequency.
#ifndef SKIDPROOF_HARNESS_RUN_CLOCK_H_
#define SKIDPROOF_HARNESS_RUN_CLOCK_H_

#include <cstdint>

#include "base/expected.h"

namespace skidproof {

// The TSC now: when all earlier instructions have executed, and before later ones start (Intel SDM Vol. 2, RDTSC: LFENCE
// before it and behind it; RDTSCP, which waits for the earlier ones itself, some hypervisors do not offer).
inline uint64_t fenced_tsc() {
  uint32_t low, high;
  asm volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high)::"memory");
  return (static_cast<uint64_t>(high) << 32) | low;
}

// CPUID.80000001H:EDX[27].
bool has_rdtscp();

// TSC ticks per second, against CLOCK_MONOTONIC_RAW over `milliseconds` (at least 1). Each reading
// of the two clocks is the tightest of several, so that an interrupt between them does not count.
// kNotAvailable: the TSC stops or changes speed (CPUID.80000007H:EDX[8] clear).
Expected<double> calibrate_tsc(unsigned milliseconds = 20);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_RUN_CLOCK_H_
