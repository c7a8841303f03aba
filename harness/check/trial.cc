// How often an attempt is made again, and what the attempts together say.
#include "harness/check/trial.h"

#include <fmt/core.h>

#include <utility>

#include "harness/stats/binomial.h"

namespace skidproof::check {
namespace {

using results::Status;

// What one attempt would be by itself; `fail` before anything, since what failed stays failed whatever
// the harness met later.
Status status_of(const Outcome& attempt) {
  if (!attempt.failures.empty()) return Status::kFail;
  if (!attempt.errors.empty()) return Status::kError;
  if (attempt.skip) return Status::kSkip;
  return attempt.comparisons == 0 ? Status::kObserved : Status::kPass;
}

std::string why(const Outcome& attempt) {
  if (!attempt.errors.empty()) return in_lines(attempt.errors);
  if (!attempt.skip) return {};
  return attempt.skip_reason.empty() ? results::name_of(*attempt.skip) : attempt.skip_reason;
}

}  // namespace

void Trial::take(Outcome attempt) {
  if (!attempt.off_tape.empty()) {  // then the others were of another test as well
    off_tape_ = std::move(attempt);
    done_ = true;
    return;
  }
  if (status_of(attempt) == Status::kFail) {
    take_failure(std::move(attempt));
  } else {
    take_other(std::move(attempt));
  }
  settle();
}

void Trial::take_failure(Outcome attempt) {
  if (attempt.disturbed != 0) {
    ++voided_;
    if (!first_voided_) first_voided_ = std::move(attempt);
    return;
  }
  ++judged_;
  ++failed_;
  if (!first_failure_) first_failure_ = std::move(attempt);
}

void Trial::take_other(Outcome attempt) {
  const Status status = status_of(attempt);
  const bool spoiled = status == Status::kError && (attempt.timed_out || attempt.disturbed != 0);
  if (status == Status::kPass || status == Status::kObserved) {
    ++judged_;
  } else if (spoiled) {
    ++voided_;
    if (attempt.timed_out) ++timeouts_;
  } else {
    ++unjudged_;
  }
  // An error that may not come again ends nothing; anything else does, where nothing had failed.
  if (failed_ == 0 && !spoiled) done_ = true;
  other_ = std::move(attempt);
}

void Trial::settle() {
  if (voided_ >= kMostVoided || timeouts_ >= kMostTimeouts || unjudged_ >= kMostUnjudged)
    done_ = true;
  if (failed_ >= 2 && (!rate_ || judged_ > kFurther)) done_ = true;
  if (judged_ >= kMost) done_ = true;
}

void Trial::stop(std::string reason) {
  done_ = true;
  stopped_ = std::move(reason);
}

Outcome Trial::with(const Outcome& outcome, Status status, std::string reason) const {
  Outcome judged = outcome;
  judged.status = status;
  judged.reason = std::move(reason);
  if (status != Status::kSkip) judged.skip.reset();
  results::Repetitions& repetitions = judged.repetitions;
  repetitions.n = judged_;
  repetitions.k = failed_;
  repetitions.voided = voided_;
  if (judged_ == 0) return judged;
  repetitions.rate = static_cast<double>(failed_) / static_cast<double>(judged_);
  const stats::Interval interval = stats::binomial_interval(failed_, judged_);
  repetitions.low = interval.low;
  repetitions.high = interval.high;
  return judged;
}

Outcome Trial::verdict() const {
  if (off_tape_) return with(*off_tape_, Status::kError, off_tape_->off_tape);
  if (failed_ >= 2) {
    return with(*first_failure_, Status::kFail, "");
  }
  if (failed_ == 1) {
    const std::string once = fmt::format("failed in 1 of {} attempts", judged_);
    if (!stopped_.empty()) {
      return with(
          *first_failure_, Status::kDisturbed,
          fmt::format("{}, and the run ended before it could come again: {}", once, stopped_));
    }
    if (unjudged_ >= kMostUnjudged) {
      return with(
          *first_failure_, Status::kFail,
          fmt::format("{}; {} more could not be judged: {}", once, unjudged_, why(*other_)));
    }
    if (voided_ > 0 && judged_ < kMost) {
      return with(*first_failure_, Status::kDisturbed,
                  fmt::format("{}, and {} more were spoiled by noise or a timeout", once, voided_));
    }
    return with(*first_failure_, Status::kDisturbed, once + ", and never again");
  }
  if (other_ && judged_ == 1) {
    return with(*other_, status_of(*other_), "");
  }
  const bool skipped = other_ && status_of(*other_) == Status::kSkip;
  if (first_voided_ && (!other_ || skipped)) {
    std::string reason = fmt::format("failed under noise, in {} spoiled attempts", voided_);
    if (skipped) reason += ", and then could not be judged: " + why(*other_);
    if (!stopped_.empty()) reason += ", and the run ended: " + stopped_;
    return with(*first_voided_, Status::kDisturbed, reason);
  }
  return with(*other_, status_of(*other_), why(*other_));
}

}  // namespace skidproof::check
