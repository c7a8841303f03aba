// From a case that violates a check to a small one that violates the same check.
#ifndef SKIDPROOF_HARNESS_FUZZ_SHRINK_H_
#define SKIDPROOF_HARNESS_FUZZ_SHRINK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "harness/fuzz/case.h"
#include "harness/fuzz/violation.h"

namespace skidproof::fuzz {

// Runs a case on a fresh machine; empty when it holds, and when it cannot be run at all.
using Judge = std::function<std::optional<Violation>(const Case&)>;

struct Shrunk {
  Case smallest;
  Violation violation;       // of `smallest`
  uint64_t evaluations = 0;  // how often the judge was asked
};

// Drops steps, items of code, iterations and counters, and makes numbers smaller, as long as the judge
// still finds a violation of the same check. Ends when nothing smaller does, or when the time is up. A
// case whose verdict hangs on the machine's chance is tried with several seeds.
Shrunk shrink(const Case& c, const Violation& violation, const Judge& judge,
              std::chrono::milliseconds allowed);

}  // namespace skidproof::fuzz

#endif  // SKIDPROOF_HARNESS_FUZZ_SHRINK_H_
