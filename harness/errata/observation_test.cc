#include "harness/errata/observation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace skidproof::errata {
namespace {

using results::Observed;
using results::Status;
using ::testing::HasSubstr;

arch::Erratum erratum() {
  arch::Erratum one;
  one.id = "ZZ1";
  one.aliases = {"ZZ2"};
  one.reproducer = arch::Reproducer{.tests = "Own.*", .controls = "Control.*", .consequences = ""};
  return one;
}

results::TestRow row(const char* id, Status status, const char* by = "") {
  results::TestRow made;
  made.id = id;
  made.status = status;
  made.erratum = by;
  made.reason = "because";
  return made;
}

Observation of(std::initializer_list<results::TestRow> rows) {
  Seen seen;
  for (const results::TestRow& one : rows) seen.add(one);
  return observe(erratum(), seen, {});
}

TEST(Observation, ItShowsWhereAllOfItsOwnFailAndItsControlsHold) {
  const Observation shown = of({row("Own.A", Status::kFail), row("Own.B", Status::kXfail, "ZZ2"),
                                row("Own.C", Status::kSkip), row("Control.A", Status::kPass)});
  EXPECT_EQ(shown.verdict, Observed::kReproduced);
  EXPECT_EQ(shown.tries, 1u);
  EXPECT_EQ(shown.shown, 1u);
  EXPECT_FALSE(shown.excluded_rate);
}

TEST(Observation, TriesWithoutItExcludeARate) {
  const Observation held =
      of({row("Own.A", Status::kPass), row("Own.A", Status::kXpass), row("Own.A", Status::kPass),
          row("Own.B", Status::kPass), row("Own.B", Status::kPass)});
  EXPECT_EQ(held.verdict, Observed::kNotReproduced);
  EXPECT_EQ(held.tries, 2u) << "of the test that was tried least";
  EXPECT_NEAR(*held.excluded_rate, 0.776, 0.001);
  EXPECT_NEAR(excluded_rate(59), 0.05, 0.001);
  EXPECT_NEAR(excluded_rate(1), 0.95, 1e-9);
}

TEST(Observation, NowAndThenIsShown) {
  const Observation shown = of({row("Own.A", Status::kPass), row("Own.A", Status::kFail),
                                row("Own.A", Status::kPass), row("Control.A", Status::kPass)});
  EXPECT_EQ(shown.verdict, Observed::kReproduced);
  EXPECT_EQ(shown.tries, 3u);
  EXPECT_EQ(shown.shown, 1u);
}

TEST(Observation, AFailingControlOrHalfASignatureTellsNothing) {
  const Observation other = of({row("Own.A", Status::kFail), row("Control.A", Status::kFail),
                                row("Control.B", Status::kPass)});
  EXPECT_EQ(other.verdict, Observed::kError);
  EXPECT_THAT(other.why, HasSubstr("Control.A"));
  const Observation half = of(
      {row("Own.A", Status::kFail), row("Own.B", Status::kPass), row("Control.A", Status::kPass)});
  EXPECT_EQ(half.verdict, Observed::kError);
  EXPECT_THAT(half.why, HasSubstr("half"));
  EXPECT_EQ(of({row("Own.A", Status::kFail), row("Control.A", Status::kSkip)}).verdict,
            Observed::kError);
}

TEST(Observation, WhatAnotherErratumExplainsIsNotThisOne) {
  const Observation other =
      of({row("Own.A", Status::kXfail, "YY7"), row("Control.A", Status::kPass)});
  EXPECT_EQ(other.verdict, Observed::kNotRun);
  EXPECT_THAT(other.why, HasSubstr("YY7"));
}

TEST(Observation, WhatDidNotRunSaysWhy) {
  EXPECT_THAT(of({}).why, HasSubstr("nothing was run"));
  EXPECT_THAT(of({row("Other.A", Status::kPass)}).why, HasSubstr("not among those"));
  EXPECT_THAT(of({row("Own.A", Status::kSkip)}).why, HasSubstr("because"));
  EXPECT_EQ(of({row("Own.A", Status::kSkip)}).verdict, Observed::kNotRun);
  EXPECT_EQ(of({row("Own.A", Status::kDisturbed)}).verdict, Observed::kNotRun);
  EXPECT_EQ(of({row("Own.A", Status::kError)}).verdict, Observed::kError);
  arch::Erratum without;
  without.no_reproducer = "needs a VM entry";
  EXPECT_EQ(observe(without, Seen(), {}).why, "needs a VM entry");
}

// Tries on a processor without a second thread say nothing of what needs one; a failure there still does.
TEST(Observation, WhereItCannotShowNothingIsExcluded) {
  arch::Erratum shared = erratum();
  shared.needs = {"hyper-threading"};
  const auto observed = [&](Status status, std::optional<bool> hyper_threading) {
    Seen seen;
    seen.add(row("Own.A", status));
    seen.add(row("Control.A", Status::kPass));
    Subject subject;
    subject.hyper_threading = hyper_threading;
    return observe(shared, seen, subject);
  };
  EXPECT_EQ(observed(Status::kPass, false).verdict, Observed::kNotRun);
  EXPECT_THAT(observed(Status::kPass, false).why, HasSubstr("hyper-threading"));
  EXPECT_FALSE(observed(Status::kPass, false).excluded_rate);
  EXPECT_EQ(observed(Status::kPass, true).verdict, Observed::kNotReproduced);
  EXPECT_EQ(observed(Status::kPass, std::nullopt).verdict, Observed::kNotReproduced);
  EXPECT_EQ(observed(Status::kFail, false).verdict, Observed::kReproduced);
}

TEST(Observation, AFilterPicksWhatTheReproducersNeed) {
  const arch::Erratum one = erratum();
  arch::Erratum without;
  EXPECT_EQ(filter_for({&one, &without}), "Own.*:Control.*");
  EXPECT_EQ(filter_for({&without}), "");
}

}  // namespace
}  // namespace skidproof::errata
