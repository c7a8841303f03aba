// The clock of timing: the TSC, and its frequency.
#ifndef SKIDPROOF_HARNESS_RUN_CLOCK_H_
#define SKIDPROOF_HARNESS_RUN_CLOCK_H_

#include <cstdint>

#include "base/expected.h"

namespace skidproof {

// The TSC now. `begin` does not let later instructions start before it; `end` waits until all
// earlier ones have executed (Intel SDM vol. 2, RDTSC and RDTSCP: LFENCE on either side).
inline uint64_t tsc_begin() {
  uint32_t low, high;
  asm volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high)::"memory");
  return (static_cast<uint64_t>(high) << 32) | low;
}
inline uint64_t tsc_end() {
  uint32_t low, high, aux;
  asm volatile("rdtscp\n\tlfence" : "=a"(low), "=d"(high), "=c"(aux)::"memory");
  return (static_cast<uint64_t>(high) << 32) | low;
}

// TSC ticks per second, against CLOCK_MONOTONIC_RAW over `milliseconds` (at least 1). Each reading
// of the two clocks is the tightest of several, so that an interrupt between them does not count.
// kNotAvailable: the CPU has no RDTSCP, or its TSC stops or changes speed (CPUID.80000007H:EDX[8]
// clear).
Expected<double> calibrate_tsc(unsigned milliseconds = 20);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_RUN_CLOCK_H_
