// One test's attempts on their way to a verdict: a failure counts only where it comes again.
#ifndef SKIDPROOF_HARNESS_CHECK_TRIAL_H_
#define SKIDPROOF_HARNESS_CHECK_TRIAL_H_

#include <cstdint>
#include <optional>
#include <string>

#include "harness/check/outcome.h"

namespace skidproof::check {

// Takes the outcomes of attempts, each made with fresh seeds on a fresh machine, and says when there are
// enough of them.
//
// What holds, is skipped or errs at first is not run again. What fails is, kFurther times: one failure
// more, and it is `fail` with its rate. Where none comes, up to kMost attempts in all; then the failure
// never came again and is `disturbed`. A failure under noise, and an error by a timeout, are thrown
// away and the attempt is made again. Once a property has failed undisturbed, an attempt that is
// skipped or errs takes nothing of that back: it is not judged. One that went off the tape makes
// all of the test an error.
class Trial {
 public:
  static constexpr uint64_t kFurther = 3;
  static constexpr uint64_t kMost = 12;
  static constexpr uint64_t kMostVoided = 8;
  static constexpr uint64_t kMostTimeouts = 3;
  static constexpr uint64_t kMostUnjudged = 3;

  // `rate`: false where only the verdict is wanted, as by `qualify`: it ends with the second failure.
  explicit Trial(bool rate = true) : rate_(rate) {}

  void take(Outcome attempt);
  bool wants_another() const { return !done_; }
  // Nothing more may run: what there is has to do.
  void stop(std::string reason);
  // Attempts taken so far; the next one's number.
  uint64_t attempts() const { return judged_ + voided_ + unjudged_; }

  // The outcome that the verdict stands on, with status, reason and repetitions.
  Outcome verdict() const;

 private:
  void take_failure(Outcome attempt);
  void take_other(Outcome attempt);
  void settle();
  Outcome with(const Outcome& outcome, results::Status status, std::string reason) const;

  const bool rate_;
  bool done_ = false;
  uint64_t judged_ = 0, failed_ = 0, voided_ = 0, timeouts_ = 0, unjudged_ = 0;
  std::optional<Outcome> first_failure_;  // undisturbed
  std::optional<Outcome> first_voided_;   // that failed under noise
  std::optional<Outcome> other_;          // the last that did neither
  std::optional<Outcome> off_tape_;       // that asked what the tape does not answer
  std::string stopped_;
};

}  // namespace skidproof::check

#endif  // SKIDPROOF_HARNESS_CHECK_TRIAL_H_
