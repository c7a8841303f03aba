// Sampling by load latency. Which loads the hardware tags is random, and how often it does no document
// says [SDM 18.8.1.2, 18.9.4.2]: perhaps by time, so that a fast loop has fewer tags a load than a slow one.
#ifndef SKIDPROOF_SUITES_LOAD_LATENCY_H_
#define SKIDPROOF_SUITES_LOAD_LATENCY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/expected.h"
#include "harness/calibrate/calibration.h"
#include "harness/check/check.h"
#include "kernels/program.h"
#include "pebs/arch/reserved.h"
#include "pebs/session.h"
#include "suites/sampling.h"

namespace skidproof::suites {

// The lowest counter for which load latency is published, and without PDist where there is one; the row must have one.
inline unsigned latency_counter(const arch::Microarch& microarch) {
  const unsigned all = microarch.load_latency_counters;
  const unsigned plain = all & ~unsigned{microarch.pdist_counters};
  return static_cast<unsigned>(__builtin_ctz(plain != 0 ? plain : all));
}

// That may be programmed.
inline uint64_t least_threshold(const arch::Microarch& microarch) {
  return arch::minimum_load_latency_threshold(microarch);
}

// So many records of loads above the threshold on IA32_PMCn, and nothing else.
SessionPlan latency_plan(const arch::Microarch& microarch, unsigned counter, size_t records,
                         uint64_t threshold);
// … above the least threshold that may be programmed.
inline SessionPlan latency_plan(const arch::Microarch& microarch, unsigned counter,
                                size_t records) {
  return latency_plan(microarch, counter, records, least_threshold(microarch));
}

// What load latency gave of a program.
struct TaggedLoads {
  Session session;
  SessionRun run;
  uint64_t iterations = 0;
  size_t recorded = 0;
  size_t wanted = 0;        // records that are enough to judge by
  uint64_t period = 0;      // of the counter
  uint64_t unrecorded = 0;  // loads that it counted behind the last record; 0 with a full buffer
  double promised = 0;      // records at the rate of the calibration; 0 where that is not known

  Records records() const { return session.records(); }
  bool enough() const { return recorded >= wanted; }
  // Whether the counter went on without a record: the first tag behind an overflow gives one (R2).
  bool lost() const { return unrecorded >= 2 * (period + 1); }
  // Whether the loop would have to be tagged more than a hundred times as sparsely as the chase of the
  // calibration. A chase that takes a hundredth of the time a load may be, where tags come by time.
  bool suspicious() const { return promised > 100 * static_cast<double>(wanted); }
  std::string words() const;
};

// The longest run that waits for records, of any program and of a chase: a second of a slow machine.
inline constexpr uint64_t kMostInstructions = 6'000'000;
inline constexpr uint64_t kMostTaggedLoads = kMostInstructions / 3;
// The same where the calibration found next to no tag: it ran longer than a test is worth.
inline constexpr uint64_t kMostOfUnknown = kMostTaggedLoads / 8;

// Runs the program until there are three quarters of the plan's records, longer each time, up to 64 times
// as long as the calibration asks for. The plan's first counter is the one of load latency.
Expected<TaggedLoads> sample_tagged(Machine& machine, const SessionPlan& plan,
                                    const Program& program, const calibrate::Figure& tagging);

// Ends a test's body where too few loads were tagged to judge by, with what was observed; as a failure only
// where the counter itself says that they were tagged, or where hundreds of times as many were to come.
#define SKIDPROOF_REQUIRE_TAGS(found)                                                          \
  do {                                                                                         \
    const ::skidproof::suites::TaggedLoads& tags_ = (found);                                   \
    if (!tags_.enough()) {                                                                     \
      if (tags_.lost()) {                                                                      \
        VERIFY_LT(tags_.unrecorded, 2 * (tags_.period + 1)) << "loads counted, and no record"; \
      } else if (tags_.suspicious()) {                                                         \
        VERIFY_GE(tags_.recorded, tags_.wanted)                                                \
            << "of " << tags_.promised << " by the rate of another chase";                     \
      } else {                                                                                 \
        observe("tagging", tags_.words());                                                     \
      }                                                                                        \
      return;                                                                                  \
    }                                                                                          \
  } while (false)

}  // namespace skidproof::suites

#endif  // SKIDPROOF_SUITES_LOAD_LATENCY_H_
