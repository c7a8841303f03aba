// Characterization of a machine: clocks, caches and memory, branches, the core. By the TSC alone where there is no PMU, by
// counters too where there is one.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_CHARACTERIZE_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_CHARACTERIZE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "harness/characterize/measurement.h"
#include "harness/run/control_groups.h"
#include "pebs/machine.h"

namespace skidproof {

// The parts, in the order in which they run. What each measures: parts.h.
std::vector<std::string_view> characterization_parts();

// How much time may go into narrow intervals and fine steps.
enum class Effort : uint8_t {
  kQuick,     // under 10 s in all
  kDefault,   // under 60 s
  kThorough,  // some minutes
};

// What was asked of the machine and is not clear, so that there is no number.
struct Unclear {
  std::string name;  // "shape.l2.size"
  std::string reason;
};

struct CharacterizeOptions {
  Effort effort = Effort::kDefault;
  std::vector<std::string> parts;  // empty: all
  // Working sets of the latency staircase and windows of the bandwidth streams, in bytes; empty:
  // the defaults (quick or full). Latency sizes are multiples of 64, bandwidth sizes powers of two.
  std::vector<uint64_t> latency_bytes;
  std::vector<uint64_t> bandwidth_bytes;
  // Samples behind each median; 0: until its interval is narrow or the time is over. Below 6 no 95 % interval exists.
  unsigned repetitions = 0;
  uint64_t seed = 1;  // of the random cycles, directions and orders
  std::function<void(const Measurement&)> on_measurement;  // as soon as each is there
  std::function<void(const Unclear&)> on_unclear;
  // Overall progress from 0 to 1 and what is being measured.
  std::function<void(double fraction, std::string_view what)> progress;
  // Also a machine whose time is not silicon's: a model, a virtual lab.
  bool any_time = false;
  const std::atomic<bool>* cancel = nullptr;  // set from a signal handler: stop between two runs
};

struct Characterization {
  std::vector<Measurement> measurements;
  std::vector<Unclear> unclear;
  std::vector<Error> problems;  // what could not be measured, and why; the rest still was
  bool cancelled = false;
  std::optional<CpuQuota> quota;  // of CPU time, under which all this was measured …
  Throttled throttled;            // … and how often and how long it stopped us meanwhile
};

// Measures on the CPU that `machine` runs on. A sample is the best of several short runs, each without an interrupt,
// between two calibrations of the core clock; the points of a part are sampled by turns, in an order that the seed draws,
// until their intervals are narrow or the part's time is over; each number is the median of its samples. On a machine with a
// PMU figures carry what was counted beside them, and rows check.… say how much of that agrees. Errors: kUnsupported for a
// machine whose time is not silicon's, unless that is asked for; kInvalidArgument for an unknown part or a size that a kernel
// refuses; kNotAvailable without a usable TSC; whatever the first run answers.
Expected<Characterization> characterize(Machine& machine, const CharacterizeOptions& options);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_CHARACTERIZE_H_
