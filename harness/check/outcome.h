// What happened in the test that runs now, shared between the test, its machine and the listener.
#ifndef SKIDPROOF_HARNESS_CHECK_OUTCOME_H_
#define SKIDPROOF_HARNESS_CHECK_OUTCOME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/check/comparisons.h"
#include "pebs/arch/part.h"
#include "results/row.h"

namespace skidproof::check {

// Of one attempt, until the attempts were judged: then of the one that the verdict stands on.
struct Outcome {
  bool left_out = false;     // not this process' to run: no row, no touch
  bool began = false;        // false to the end: GoogleTest passed the test over
  uint64_t executed = 0;     // MSR accesses that the processor answered and program iterations
  uint64_t comparisons = 0;  // values that went through VERIFY_…
  Comparisons compared;
  bool observed = false;      // observe() was called
  uint64_t disturbed = 0;     // runs with noise of a kind that can change what they show
  bool timed_out = false;     // an error that may not come again
  std::string access_failed;  // the first answer of the machine that was neither one nor #GP
  std::optional<results::SkipCategory> skip;
  std::string skip_reason;
  std::vector<std::string> failures;  // of properties: "file:line: message"
  std::vector<std::string> errors;    // of the harness: the same
  std::string off_tape;  // the first difference from the tape that is replayed; empty: none
  results::Json evidence = results::Json::object();
  arch::Part part;  // the processor that answered

  // The verdict.
  results::Status status = results::Status::kError;
  std::string reason;
  std::string erratum;
  results::Repetitions repetitions;
};

// Failures or errors, a line or more each.
std::string in_lines(const std::vector<std::string>& messages);

// Of the test that runs, or of the last one. One test runs at a time.
Outcome& outcome();

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
