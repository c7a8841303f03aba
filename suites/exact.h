// Counting exactly: how many events a machine sees in a run, and what a counter and the buffer must
// then hold.
#ifndef SKIDPROOF_SUITES_EXACT_H_
#define SKIDPROOF_SUITES_EXACT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "harness/check/check.h"
#include "kernels/program.h"
#include "pebs/arch/event.h"
#include "pebs/arch/microarch.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/machine.h"
#include "pebs/session.h"
#include "suites/sampling.h"

namespace skidproof::suites {

// --- Sparse events: one an iteration of the sparse_event kernel, so far from the next that the
// record belongs to the event behind the overflow and the reload is done before the next one.

// The signal of a word of the kernel's `event` parameter: "load", "store", "simd", or "taken", the
// loop's own conditional jump.
arch::Signal sparse_signal(std::string_view word);

inline std::string sparse_parameters(std::string_view word, unsigned spacing = 64) {
  return "event=" + std::string(word) + ",spacing=" + std::to_string(spacing);
}

// The word that a test wishes, or "simd" where the microarch samples no such event: Core 2 samples
// neither loads nor stores nor jumps.
inline std::string_view sparse_word(const arch::Microarch& microarch, std::string_view wish) {
  return precise_event(microarch, sparse_signal(wish)) != nullptr ? wish : "simd";
}
inline std::string sparse_parameters(const arch::Microarch& microarch, std::string_view wish,
                                     unsigned spacing = 64) {
  return sparse_parameters(sparse_word(microarch, wish), spacing);
}
// The precise event of that word on IA32_PMCn, or nullptr.
inline const arch::Event* sparse_event(const arch::Microarch& microarch, std::string_view wish,
                                       unsigned counter = 0) {
  return precise_event(microarch, sparse_signal(sparse_word(microarch, wish)), counter);
}

// How many of these events the program itself makes in n iterations. The loop's conditional jump is
// executed once more than the body.
uint64_t sparse_events(std::string_view word, const Program& program, uint64_t iterations);

// Iterations after which `records` records are written and the next overflow is half a period away:
// a few events of the machine's own around the program change neither. The counter overflows after
// `period` events, and the one behind gives the record and the reload (R2). Where the overflowing event
// itself does (R62), fewer than half a period of records are the same number.
inline uint64_t iterations_for_exactly(uint64_t records, uint64_t period) {
  return records * (period + 1) + period / 2;
}

// What `events` sparse events leave of one PEBS counter that starts at −first and is loaded with
// −period by each record.
struct Exact {
  uint64_t records = 0;
  uint64_t counter = 0;  // its value afterwards
};
Exact exact(const arch::Microarch& microarch, uint64_t events, uint64_t first, uint64_t period,
            unsigned counter = 0);

// --- Margins, from what was measured on the machine under test

// How far apart two counts of the same may lie because counters neither start nor stop with the program:
// the spread that was seen, twice over, since a few samples do not show all of it.
inline uint64_t margin_of(const calibrate::Figure& edges) {
  return edges.known() ? static_cast<uint64_t>(2 * (edges.high - edges.low)) : 0;
}
// A count that lies no further than that from another.
::testing::Matcher<int64_t> within(int64_t expected, uint64_t margin);
inline int64_t difference(uint64_t a, uint64_t b) { return static_cast<int64_t>(a - b); }

// Whether counters see the accesses of the assist that writes a record: then nothing is exact that counts
// loads or stores while records are written.
inline bool records_count(const calibrate::Figure& accesses) {
  return accesses.known() && accesses.high > 0;
}
// In a test: whether the loads or stores of a word are counted exactly for all that.
#define SKIDPROOF_EXACT(word)                                                             \
  (!((word) == "load" && records_count(calibrated(calibrate::Quantity::kRecordLoads))) && \
   !((word) == "store" && records_count(calibrated(calibrate::Quantity::kRecordStores))))
// Ends a test of them as skipped where they are not.
#define SKIDPROOF_REQUIRE_EXACT(word)                  \
  SKIDPROOF_REQUIRE(                                   \
      SKIDPROOF_EXACT(word), SkipCategory::kNoPromise, \
      "the assist's own accesses are counted as such events here, which nothing forbids")

// --- Buffers

// Whether a maximum so many bytes past the last whole record is as the texts want it: a multiple of the
// record size, or that and one (D3, D4, B8). Else alignment is software's mistake, and nothing is
// promised of the last record.
inline bool aligned_maximum(uint64_t bytes_over) { return bytes_over <= 1; }

// --- Plain counting

// The plain event (no CMASK, no INV, no facility of its own) that counts a signal on IA32_PMCn,
// precise or not; nullptr where the microarch publishes none.
const arch::Event* counting_event(const arch::Microarch& microarch, arch::Signal signal,
                                  unsigned counter = 0);

// A counter that counts from 0 and does nothing else.
inline CounterSetup plain_counter(unsigned counter, const arch::Event& event) {
  return CounterSetup::of(counter, event, 0, false);
}

// What a counter counts from 0 in a run: the program's events and those of the machine's own code
// between its writes of GLOBAL_CTRL. Without PEBS and interrupts.
Expected<SessionRun> counting_run(Machine& machine, const CounterSetup& setup,
                                  const Program& program, uint64_t iterations, Ring ring,
                                  bool keep_sibling_busy);
Expected<uint64_t> count(Machine& machine, const CounterSetup& setup, const Program& program,
                         uint64_t iterations, Ring ring = Ring::kKernel);
inline Expected<uint64_t> count(Machine& machine, unsigned counter, const arch::Event& event,
                                const Program& program, uint64_t iterations) {
  return count(machine, plain_counter(counter, event), program, iterations);
}

// The same while the core's other thread executes code, as far as the machine can have it so.
struct CountedBeside {
  uint64_t events = 0;
  bool busy = false;  // the other thread is known to have executed code
};
Expected<CountedBeside> count_beside(Machine& machine, unsigned counter, const arch::Event& event,
                                     const Program& program, uint64_t iterations);
// Where it could not, a comparison that holds says nothing of that thread.
inline constexpr char kSiblingIdle[] =
    "the other thread could not be kept busy, so that nothing of it could be seen: put it online "
    "and "
    "allow it to this process (`taskset -p`)";

// --- Registers

// Puts registers back at the end of a scope, in reverse order: what a test of single registers
// changes, it leaves as it found it. Registers that do not answer are left out.
class Restore {
 public:
  Restore(Machine& machine, std::initializer_list<uint32_t> msrs);
  ~Restore();
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

  void add(uint32_t msr);

 private:
  Machine& machine_;
  std::vector<MsrWrite> saved_;
};

// Whether the processor refuses a write with #GP. An accepted one is undone. Any other error is the
// machine's.
Expected<bool> refuses(Machine& machine, uint32_t msr, uint64_t value);
// Whether it refuses to read.
Expected<bool> refuses_to_read(Machine& machine, uint32_t msr);

// How many general-purpose counters CPUID.0AH reports. [SDM 18.2.1.1]
inline unsigned reported_counters(const Machine& machine) {
  return (machine.cpuid(0xA, 0).eax >> 8) & 0xFF;
}

}  // namespace skidproof::suites

#endif  // SKIDPROOF_SUITES_EXACT_H_
