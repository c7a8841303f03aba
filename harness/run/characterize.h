// Timing characterization of real silicon: clocks, memory latency and bandwidth, macro-fusion, and
// the price of a misprediction, all by the TSC.
#ifndef SKIDPROOF_HARNESS_RUN_CHARACTERIZE_H_
#define SKIDPROOF_HARNESS_RUN_CHARACTERIZE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "harness/run/measurement.h"
#include "pebs/machine.h"

namespace skidproof {

// The parts, in the order in which they run:
//   clock           clock.core, clock.tsc                      GHz
//   latency         memory.latency                             ns and cycles; bytes, page
//   bandwidth       store.bandwidth, load.bandwidth            GB/s; bytes, kind, page
//   fusion          fusion.gain                                cycles a pair; pair, first, condition,
//                   form, taken, slot_cycles, verdict ("fused", "no gain", "unclear")
//                   fusion.fused                               bool, where the verdict is clear
//   misprediction   branch.mispredict_penalty                  cycles and ns
std::vector<std::string_view> characterization_parts();

struct CharacterizeOptions {
  bool quick = false;              // fewer sizes and pairs: seconds instead of half a minute
  std::vector<std::string> parts;  // empty: all
  // Working sets of the latency staircase and windows of the bandwidth streams, in bytes; empty:
  // the defaults (quick or full). Latency sizes are multiples of 64, bandwidth sizes powers of two.
  std::vector<uint64_t> latency_bytes;
  std::vector<uint64_t> bandwidth_bytes;
  unsigned repetitions = 0;  // samples behind each median; 0: 9. Below 6 no 95 % interval exists
  uint64_t seed = 1;         // of the random cycles and directions
  std::function<void(const Measurement&)> on_measurement;  // as soon as each is there
  // Overall progress from 0 to 1 and what is being measured.
  std::function<void(double fraction, std::string_view what)> progress;
  const std::atomic<bool>* cancel = nullptr;  // set from a signal handler: stop between two runs
};

struct Characterization {
  std::vector<Measurement> measurements;
  std::vector<Error> problems;  // what could not be measured, and why; the rest still was
  bool cancelled = false;
};

// Measures on the CPU that `machine` runs on. Every sample is the best of several short runs
// between two calibrations of the core clock; samples of the points of one part are taken in turns,
// so that drift falls on all alike; each number is the median of its samples. Errors: kUnsupported
// for a machine whose time is not silicon's; kInvalidArgument for an unknown part or a size that a
// kernel refuses; kNotAvailable without a usable TSC; whatever the first run answers.
Expected<Characterization> characterize(Machine& machine, const CharacterizeOptions& options);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_RUN_CHARACTERIZE_H_
