// Verdicts from attempts: what check_test's programs cannot bring about.
#include "harness/check/trial.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace skidproof::check {
namespace {

using results::Status;

Outcome attempt(char kind) {
  Outcome outcome;
  outcome.began = true;
  outcome.executed = outcome.comparisons = 1;
  switch (kind) {
    case 'f':
      outcome.failures = {"suite.cc:1: it failed"};
      break;
    case 'n':  // failed under noise
      outcome.failures = {"suite.cc:1: it failed"};
      outcome.disturbed = 1;
      break;
    case 's':
      outcome.skip = results::SkipCategory::kNoResource;
      outcome.skip_reason = "no room";
      break;
    case 'e':
      outcome.errors = {"harness.cc:1: broken"};
      break;
    case 't':
      outcome.errors = {"harness.cc:2: too late"};
      outcome.timed_out = true;
      break;
    case 'o':
      outcome.comparisons = 0;
      outcome.observed = true;
      break;
    default:  // 'h'eld
      break;
  }
  return outcome;
}

// The verdict of these attempts; all of them have to be wanted, and no more.
Outcome verdict(std::string_view attempts, bool rate = true) {
  Trial trial(rate);
  for (char kind : attempts) {
    EXPECT_TRUE(trial.wants_another()) << attempts;
    trial.take(attempt(kind));
  }
  EXPECT_FALSE(trial.wants_another()) << attempts;
  return trial.verdict();
}

TEST(Trial, WhatDoesNotFailIsNotRunAgain) {
  EXPECT_EQ(verdict("h").status, Status::kPass);
  EXPECT_EQ(verdict("o").status, Status::kObserved);
  EXPECT_EQ(verdict("s").status, Status::kSkip);
  EXPECT_EQ(verdict("e").status, Status::kError);
  EXPECT_EQ(verdict("h").repetitions.n, 1u);
  EXPECT_EQ(verdict("s").repetitions.n, 0u);
  EXPECT_FALSE(verdict("s").repetitions.low);
}

TEST(Trial, AFailureCountsWhereItComesAgain) {
  for (const char* attempts : {"ffff", "fhhf", "fhhhhhhhhhhf", "fhff"}) {
    EXPECT_EQ(verdict(attempts).status, Status::kFail) << attempts;
  }
  EXPECT_EQ(verdict("fhhhhhhhhhhf").repetitions.n, 12u);
  EXPECT_EQ(verdict("ff", false).status, Status::kFail);
  EXPECT_EQ(verdict("fhf", false).repetitions.n, 3u);
  const Outcome never = verdict("fhhhhhhhhhhh");
  EXPECT_EQ(never.status, Status::kDisturbed);
  EXPECT_EQ(never.failures.size(), 1u);
}

TEST(Trial, NoiseVoidsAFailureOnly) {
  EXPECT_EQ(verdict("nh").status, Status::kPass);
  EXPECT_EQ(verdict("nffff").status, Status::kFail);
  EXPECT_EQ(verdict("nffff").repetitions.voided, 1u);
  EXPECT_EQ(verdict("fnfff").repetitions.k, 4u);
  EXPECT_EQ(verdict("nnnnnnnn").status, Status::kDisturbed);
  EXPECT_EQ(verdict("fnnnnnnnn").status, Status::kDisturbed);
}

TEST(Trial, NobodyTalksHimselfInnocent) {
  const Outcome skipped = verdict("fsss");
  EXPECT_EQ(skipped.status, Status::kFail);
  EXPECT_FALSE(skipped.skip);
  EXPECT_EQ(verdict("feee").status, Status::kFail);
  EXPECT_EQ(verdict("fsfhh").status, Status::kFail);
  EXPECT_EQ(verdict("ns").status, Status::kDisturbed) << "it had failed, if under noise";
  EXPECT_EQ(verdict("ne").status, Status::kError);
}

TEST(Trial, TimeoutsAreTriedAgainThreeTimes) {
  EXPECT_EQ(verdict("th").status, Status::kPass);
  EXPECT_EQ(verdict("ttt").status, Status::kError);
  EXPECT_EQ(verdict("tffff").status, Status::kFail);
}

TEST(Trial, ARunThatEndsLeavesAFailureUndecided) {
  Trial trial;
  trial.take(attempt('f'));
  trial.take(attempt('h'));
  trial.stop("deadline of 5 s passed");
  EXPECT_FALSE(trial.wants_another());
  const Outcome outcome = trial.verdict();
  EXPECT_EQ(outcome.status, Status::kDisturbed);
  EXPECT_EQ(
      outcome.reason,
      "failed in 1 of 2 attempts, and the run ended before it could come again: deadline of 5 "
      "s passed");
  Trial certain;
  certain.take(attempt('f'));
  certain.take(attempt('f'));
  certain.stop("interrupted by SIGINT");
  EXPECT_EQ(certain.verdict().status, Status::kFail);
}

}  // namespace
}  // namespace skidproof::check
