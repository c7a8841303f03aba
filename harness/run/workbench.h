// What the parts of the characterization share: programs made and timed, samples taken, results
// handed on.
#ifndef SKIDPROOF_HARNESS_RUN_WORKBENCH_H_
#define SKIDPROOF_HARNESS_RUN_WORKBENCH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/expected.h"
#include "harness/run/characterize.h"
#include "kernels/kernel.h"

namespace skidproof {

// A generated program with the memory that it stands in.
struct Workpiece {
  const Kernel* kernel = nullptr;
  Params params;
  Program program;
  Memory code;
  Memory data;
};

// The best of several runs, with the core clock measured before and after them.
struct Sample {
  double ticks = 0;   // of the TSC
  double ns = 0;      // the same time
  double cycles = 0;  // core cycles in it
  Noise noise;        // of all its runs, those set aside included
};

class Workbench {
 public:
  // Runs the empty program once, so that this thread is pinned before the clock is calibrated.
  static Expected<Workbench> create(Machine& machine, const CharacterizeOptions& options,
                                    Characterization& out);

  const CharacterizeOptions& options() const { return *options_; }
  unsigned repetitions() const;
  double tsc_hz() const { return tsc_hz_; }
  bool cancelled() const;

  Expected<Memory> allocate(size_t bytes, bool huge_pages) const;
  // Generates the kernel for its own code block and this data block (which several may share), and
  // fills the data. The kernel's parameters are text: "key=value,…".
  Expected<Workpiece> prepare(std::string_view kernel, std::string_view parameters,
                              const Memory& data = {}) const;
  // Fills the data anew.
  Expected<void> refill(Workpiece& piece, uint64_t seed) const;
  Expected<RunLog> run(const Workpiece& piece, uint64_t iterations) const;

  // One sample: the fewest ticks of `tries` calls. When the core clock moved by more than 2 %
  // meanwhile, again, up to three times; a kTimeout or kExecution ends it.
  using Once = std::function<Expected<RunLog>()>;
  Expected<Sample> sample(unsigned tries, const Once& once) const;
  // Turns ticks taken between two calibrations into a sample.
  Sample convert(double ticks, double ratio_before, double ratio_after, const Noise& noise) const;

  void emit(Measurement measurement) const;
  void problem(Error error) const;
  // `fraction` of the part that is running.
  void progress(double fraction, std::string_view what) const;
  void begin_part(double from, double to);

 private:
  Workbench() = default;

  Machine* machine_ = nullptr;
  const CharacterizeOptions* options_ = nullptr;
  Characterization* out_ = nullptr;
  double tsc_hz_ = 0;
  double from_ = 0, to_ = 1;
};

// Iterations that take about `ns`, by a short pilot of doubling length; at least one.
// `once` runs as many as it is given.
using RunSome = std::function<Expected<RunLog>(uint64_t iterations)>;
Expected<uint64_t> iterations_for(const Workbench& bench, double ns, const RunSome& once);

// The parts, one file each. An error ends the part only; those of single points are problems.
Expected<void> characterize_clock(Workbench& bench);
Expected<void> characterize_latency(Workbench& bench);
Expected<void> characterize_bandwidth(Workbench& bench);
Expected<void> characterize_fusion(Workbench& bench);
Expected<void> characterize_misprediction(Workbench& bench);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_RUN_WORKBENCH_H_
