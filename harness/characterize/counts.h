// What counters say while the parts' programs run, where a machine has a PMU: instructions, core cycles, and events that a
// part chooses. By them each figure is checked.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_COUNTS_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_COUNTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/expected.h"
#include "harness/characterize/measurement.h"
#include "kernels/program.h"
#include "pebs/arch/microarch.h"
#include "pebs/machine.h"
#include "pebs/session.h"

namespace skidproof {

// What parts count beside instructions and cycles, the most telling first: where loads were answered; how jumps went.
inline constexpr std::initializer_list<arch::Signal> kOfLoads = {
    arch::Signal::kLoadsL1Hit, arch::Signal::kLoadsL2Hit, arch::Signal::kStlbMissLoads,
    arch::Signal::kLoadsL3Miss};
inline constexpr std::initializer_list<arch::Signal> kOfJumps = {
    arch::Signal::kMispredicts, arch::Signal::kNearTaken, arch::Signal::kBranches};

// Of a run, or of a unit of its work. Default: nothing was counted.
struct Counts {
  static constexpr size_t kInstructions = 0, kCycles = 1, kMost = 6;

  std::array<double, kMost> values{};  // in the order of Counters::names()
  size_t size = 0;                     // so many of them; 0: nothing was counted
  double declared = 0;                 // instructions, by the kernel
  double timed = 0;                    // core cycles, by the TSC; 0: not known
  // Whether the run was undisturbed, so that the two agree or contradict one another.
  bool judged = false;
  bool instructions_agree = true, cycles_agree = true;

  bool any() const { return size != 0; }
  double instructions() const { return values[kInstructions]; }
  double cycles() const { return values[kCycles]; }
  Counts per(double units) const;
};
// The sum and the difference of two; it agrees where both do. Empty where one is.
Counts operator+(const Counts& a, const Counts& b);
Counts operator-(const Counts& a, const Counts& b);

// A run with what was counted during it.
struct CountedRun : RunInLaps {
  Counts counts;

  // Of the core: counted, or what its ticks are worth.
  double cycles(double per_tick) const {
    return counts.any() ? counts.cycles() : static_cast<double>(tsc) * per_tick;
  }
};

// How many of one part's runs, or samples, agree with their counters.
struct Agreements {
  uint64_t judged = 0, agree = 0;
  std::string first = {};  // the first that does not, in words

  Agreements& operator+=(Agreements other);
};

// An event on a general-purpose counter.
struct ChosenEvent {
  unsigned counter = 0;
  const arch::Event* event = nullptr;
};
// Plain events of a row that count these signals, each on a counter of its own below `counters`. Signals that the row has
// no event for are left out, and so are the last ones where counters do not suffice.
std::vector<ChosenEvent> choose_events(const arch::Microarch& row, unsigned counters,
                                       std::span<const arch::Signal> signals);

// Counts at ring 3 alone, so that what a machine does around a program is not counted. What still is (instructions that
// enter it and leave it, the cycles of both) is measured by the empty program and taken away, from ticks as well.
class Counters {
 public:
  // Instructions, cycles, and of these signals what the row has events for, up to four. The PMU is as before when this
  // goes. Errors: those of Session::open() and of runs; kUnsupported where instructions or cycles have no event.
  static Expected<std::unique_ptr<Counters>> open(Machine& machine,
                                                  std::span<const arch::Signal> beside,
                                                  const Program& empty);

  // As rows have them: "instructions", "cycles", then those of the signals, "l1_hit_loads".
  const std::vector<std::string>& names() const { return names_; }
  // The place of a signal among the counts; empty where it is not counted.
  std::optional<size_t> place(arch::Signal signal) const;
  // Cycles, and ticks, by which two runs of the same may differ without a reason of their own: how far runs of the empty
  // program did, twice over, since a few do not show all of it. Of instructions it is 0 on most machines.
  double cycles_apart() const { return apart_[Counts::kCycles]; }
  double ticks_apart() const { return ticks_apart_; }

  // Errors: those of Session::run().
  Expected<CountedRun> run(const Program& program, uint64_t iterations);

  // Of all undisturbed runs since the last call.
  Agreements take_agreements();

 private:
  Counters(Session session, std::vector<std::string> names, std::vector<arch::Signal> signals);
  Expected<CountedRun> run_raw(const Program& program, uint64_t iterations);
  Expected<void> measure_edge(const Program& empty);

  Session session_;
  const std::vector<std::string> names_;
  const std::vector<arch::Signal> signals_;  // of each name
  std::array<double, Counts::kMost> edge_{}, apart_{};
  uint64_t edge_ticks_ = 0;
  double ticks_apart_ = 0;
  Agreements agreements_;
};

// Whether nothing came into a run that counters see or that voids its time.
bool undisturbed_counts(const Noise& noise);

// What stands in a row: the counts of the sample that the figure is, by name, and whether all of them agree:
// instructions in every judged sample, cycles in half of those at least. Empty where nothing was counted.
std::optional<MeasuredCounts> measured_counts(const std::vector<std::string>& names,
                                              std::span<const Counts> samples,
                                              std::span<const double> values,
                                              Statistic statistic = Statistic::kMedian);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_COUNTS_H_
