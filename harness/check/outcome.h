// What happened in the test that runs now, shared between the test, its machine and the listener.
#ifndef SKIDPROOF_HARNESS_CHECK_OUTCOME_H_
#define SKIDPROOF_HARNESS_CHECK_OUTCOME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "results/row.h"

namespace skidproof::check {

struct Outcome {
  bool began = false;        // false to the end: GoogleTest passed the test over
  uint64_t executed = 0;     // MSR accesses that the processor answered and program iterations
  uint64_t comparisons = 0;  // values that went through VERIFY_…
  std::optional<results::SkipCategory> skip;
  std::string skip_reason;
  std::vector<std::string> errors;  // of the harness: "file:line: message"
  results::Json evidence = results::Json::object();
};

// Of the test that runs, or of the last one. One test runs at a time.
Outcome& outcome();

// What GoogleTest is told of a harness error begins with this, so that the listener can tell it
// from a property that failed.
inline constexpr char kHarnessPrefix[] = "harness error: ";

// Ends a test from any depth.
struct SkipTest {
  results::SkipCategory category;
  std::string reason;
};

// Asks the run to end: the test that runs stops at its next program run, and no other begins. May
// be called from any thread; the first call decides.
void request_stop(results::SkipCategory category, std::string reason);
bool stop_requested();
// Why; meaningless before stop_requested().
SkipTest stop_reason();

}  // namespace skidproof::check

#endif  // SKIDPROOF_HARNESS_CHECK_OUTCOME_H_
