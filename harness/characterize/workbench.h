// What the parts of the characterization share: programs made and timed, ticks turned into time and cycles, results
// handed on.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_WORKBENCH_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_WORKBENCH_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/expected.h"
#include "harness/characterize/characterize.h"
#include "harness/characterize/counts.h"
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

// What stands in a piece's memory: what its kernel puts there, or what another piece in the same memory does, which is to be done
// once where it takes a second (1 GiB).
enum class Fill : uint8_t { kItsOwn, kAnothers };

// What one repetition took.
struct Sample {
  double ns = 0;
  double cycles = 0;  // of the core: counted, or else ticks at the frequency that it had
  Noise noise;        // of its tries; `repeats` of them were disturbed and thrown away
  // Cycles of a control that was run beside it, of which the curves of reach.h are the excess; 0 without one.
  double control = 0;
  Counts counts = {};
  bool spoiled =
      false;  // in each of its runs another had the CPU: the least is too much, nobody knows by how much
  double probed = 0;  // cycles of a no-operation beside it (company.h); 0 where nobody asked
  Sample per(double units) const {
    return {ns / units, cycles / units, noise, control / units, counts.per(units), spoiled, probed};
  }
};
// The sum and the difference of two; noise adds up in both. Of a difference the control is lost.
Sample operator+(const Sample& a, const Sample& b);
Sample operator-(const Sample& a, const Sample& b);

// Whether a run was interrupted, moved or had its CPU taken away.
bool disturbed(const Noise& noise);

class Workbench {
 public:
  // Runs the empty program once, so that this thread is pinned before the clock is calibrated. On a machine whose time is
  // not silicon's, a tick is a nanosecond. Where there is a PMU, instructions and cycles are counted from here on.
  static Expected<Workbench> create(Machine& machine, const CharacterizeOptions& options,
                                    Characterization& out);

  Machine& machine() const { return *machine_; }
  const CharacterizeOptions& options() const { return *options_; }
  double tsc_hz() const { return tsc_hz_; }
  bool cancelled() const;
  double seconds_left() const;  // of the part's budget; negative when overspent
  double seconds_of_part() const { return budget_; }
  Effort effort() const { return options_->effort; }

  // `huge_pages`: on 2 MiB pages where the machine gives them.
  Expected<Memory> allocate(size_t bytes, bool huge_pages) const;
  // On 2 MiB pages, so many side by side of so many bytes each. kNotAvailable where the machine gives none.
  Expected<Memory> allocate_huge(size_t bytes, size_t many = 1) const;
  // Generates the kernel for its own code block and this data block (which several may share), and
  // fills the data. The kernel's parameters are text: "key=value,…".
  Expected<Workpiece> prepare(std::string_view kernel, std::string_view parameters,
                              const Memory& data = {}, Fill fill = Fill::kItsOwn) const;
  // The same program over another block, as large: no code more.
  Expected<Workpiece> elsewhere(const Workpiece& piece, const Memory& data,
                                Fill fill = Fill::kItsOwn) const;
  // Fills the data anew.
  Expected<void> refill(Workpiece& piece, uint64_t seed) const;
  // With what was counted, where something is. What entering and leaving the program takes is then no part of its ticks, and
  // it runs in one lap.
  Expected<CountedRun> run(const Workpiece& piece, uint64_t iterations,
                           const Laps& laps = {}) const;

  // Counts these as well from here on, as far as the machine can: the row has events for them and counters for those.
  // Nothing on a machine without a PMU.
  Expected<void> count(std::initializer_list<arch::Signal> signals);
  const Counters* counters() const;  // nullptr: nothing is counted
  // Rows check.instructions and check.cycles (shares of the part's undisturbed runs and samples that agree with what
  // programs declare, and with the TSC) of all that was counted since the last call.
  void emit_checks(std::string_view part) const;
  // Row check.chain: cycles counted for an ADD of the chain that says what a tick is worth. By the TSC alone it is taken
  // for 1.
  void emit_chain() const;

  // One sample: the fewest ticks (of calls in laps the sum of each lap's fewest) of `tries` calls into which no interrupt,
  // switch, migration or theft came; of up to three times as many calls, those with such are thrown away, unless there is
  // nothing else. The core clock is read before and after, and when it moved by more than 1 %, again, up to three times; of
  // calls in laps it is read beside each of them.
  using Once = std::function<Expected<CountedRun>()>;
  Expected<Sample> sample(unsigned tries, const Once& once) const;
  Expected<Sample> sample(unsigned tries, const Workpiece& piece, uint64_t iterations,
                          const Laps& laps = {}) const;
  // Two that are to be compared, their calls by turns: either under the other's circumstances.
  Expected<std::pair<Sample, Sample>> sample_both(unsigned tries, const Once& first,
                                                  const Once& second) const;
  // Core cycles in a tick now: a chain of dependent ADDs, one cycle each where cycles are not counted. ADD reg,imm would be
  // wrong: some cores do it at rename. Not measured again within half a millisecond; on what is not silicon, never.
  Expected<double> core_cycles_per_tick() const;
  // Every reading of it so far.
  const std::vector<double>& ratios() const;

  // Iterations that take about `ns`, by a short pilot of growing length; at least one.
  Expected<uint64_t> iterations_for(double ns, const Workpiece& piece) const;
  using RunSome = std::function<Expected<CountedRun>(uint64_t iterations)>;
  Expected<uint64_t> iterations_for(double ns, const RunSome& once) const;

  void emit(Measurement measurement) const;
  void unclear(std::string name, std::string reason) const;
  const Characterization& so_far() const { return *out_; }
  void problem(Error error) const;
  // `fraction` of the part that is running.
  void progress(double fraction, std::string_view what) const;
  // The part that runs from here on: where it stands in the whole, and the seconds that it may take.
  void begin_part(double from, double to, double seconds);
  // What others hid all through a part has a second occasion when all parts are done: this part's measuring goes on there, for as
  // many seconds as are left for it, none where the run was cancelled.
  using Later = std::function<Expected<void>(Workbench& bench, double seconds)>;
  void set_later(Later later) { later_ = std::move(later); }
  Later take_later() { return std::exchange(later_, {}); }

 private:
  Workbench() = default;
  Expected<double> measure_ratio() const;
  Expected<double> ratio_afterwards() const;  // of a sample
  Expected<void> open_counters(std::vector<arch::Signal> signals);
  // Of the least run, with the cycles that its ticks are worth at this ratio.
  Sample sample_of(double ticks, double ratio, const Noise& noise, Counts counts) const;

  Machine* machine_ = nullptr;
  const CharacterizeOptions* options_ = nullptr;
  Characterization* out_ = nullptr;
  double tsc_hz_ = 0;
  double from_ = 0, to_ = 1;
  double budget_ = 0;
  std::chrono::steady_clock::time_point began_;
  Later later_;
  struct Clock;  // the chain, and what it last gave
  std::shared_ptr<Clock> clock_;
  struct Counting;  // the session, and how samples agreed
  std::shared_ptr<Counting> counting_;
};

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_WORKBENCH_H_
