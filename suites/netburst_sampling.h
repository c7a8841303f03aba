// What the NetBurst suites share: sampling loads or stores of the sparse_event kernel on IQ_COUNTER4.
#ifndef SKIDPROOF_SUITES_NETBURST_SAMPLING_H_
#define SKIDPROOF_SUITES_NETBURST_SAMPLING_H_

#include <cstdint>
#include <string_view>

#include "pebs/arch/netburst.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::suites {

namespace nb = arch::netburst;

inline constexpr unsigned kNetBurstSpacing = 64;
inline constexpr uint64_t kNetBurstPeriod = 40;
inline constexpr unsigned kIqCounter0 = 2;  // of netburst::kSessionCounters: 12

inline CounterSetup netburst_counter(const arch::Microarch& m, std::string_view event,
                                     uint64_t period, unsigned counter = 0, bool pebs = true) {
  return CounterSetup::of(counter, *m.event(event), period, pebs);
}

// Loads on IQ_COUNTER4.
inline SessionPlan netburst_loads(const arch::Microarch& m, Mode mode, size_t records) {
  SessionPlan plan = one_counter(netburst_counter(m, "memory_loads", kNetBurstPeriod), records);
  plan.mode = mode;
  return plan;
}

inline std::string netburst_kernel(std::string_view word = "load") {
  return sparse_parameters(word, kNetBurstSpacing);
}

}  // namespace skidproof::suites

#endif  // SKIDPROOF_SUITES_NETBURST_SAMPLING_H_
