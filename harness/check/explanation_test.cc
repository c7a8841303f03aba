// Errata over outcomes, and the reproducers of the catalogue.
#include "harness/check/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "harness/check/check.h"
#include "pebs/arch/errata.h"
#include "pebs/arch/microarch.h"

namespace skidproof::check {

// Ids of the suites, for errata to be of: these are asked for, and never run.
SKIDPROOF_SUITE(PebsPeriods, kEdges);
SKIDPROOF_SUITE(PebsReprogramming, kInterrupt);
SKIDPROOF_SUITE(PebsReload, kBuffer);
SKIDPROOF_TEST_OVER(PebsPeriods, AreKeptByThePreciseDistribution,
                    over::numbers("period=", {32, 64, 99, 128}), clause::R41) {}
SKIDPROOF_TEST_OVER(PebsReprogramming, LeavesNoRecordBehindOnceStopped, over::counters({0}),
                    clause::R39) {}
SKIDPROOF_TEST_OVER(PebsReload, LoadsTheResetSlotAfterEveryRecord, over::words({"PMC0.taken"}),
                    clause::R19) {}

namespace {

using results::Status;
using ::testing::HasSubstr;
using ::testing::Not;

// A machine on which these tests fail and the others hold, and how often it was asked.
struct Fails {
  std::set<std::string> tests;
  Status others = Status::kPass;
  unsigned times = 0;

  Asked ask() {
    return [this](const TestInfo& test) {
      ++times;
      return tests.contains(test.id()) ? Status::kFail : others;
    };
  }
};

constexpr char kOwn[] = "PebsPeriods.AreKeptByThePreciseDistribution/period=64";
constexpr char kOtherOwn[] = "PebsPeriods.AreKeptByThePreciseDistribution/period=99";
constexpr char kControl[] = "PebsPeriods.AreKeptByThePreciseDistribution/period=128";
constexpr char kConsequence[] = "PebsPeriods.AreKeptByThePreciseDistribution/period=32";

constexpr arch::Part kSandyBridge = {.family = 6, .model = 0x2A, .stepping = 7, .microcode = 0x28};
constexpr arch::Part kSandyBridgeServer = {.family = 6, .model = 0x2D, .stepping = 7};

Outcome explained(const std::string& test, Status status, Fails& machine,
                  const arch::Part& part = kSandyBridge) {
  Outcome outcome;
  outcome.part = part;
  outcome.status = status;
  Signatures signatures;
  explain_by_errata(test, outcome, signatures, machine.ask());
  return outcome;
}

// Shows BJ103, the only one of Sandy Bridge's that these tests are of.
Fails shows() { return {.tests = {kOwn, kOtherOwn, kConsequence}}; }

TEST(Errata, AListedOneThatShowsExplainsAFailureAndNamesThePart) {
  Fails machine = shows();
  const Outcome failed = explained(kOwn, Status::kFail, machine);
  EXPECT_EQ(failed.status, Status::kXfail);
  EXPECT_EQ(failed.erratum, "BJ103");
  EXPECT_THAT(failed.reason, HasSubstr("BJ103 is listed for 06_2A_7: "));
  EXPECT_EQ(explained(kOwn, Status::kFail, machine, kSandyBridgeServer).status, Status::kFail);
}

TEST(Errata, AFailingControlEndsTheExcuse) {
  Fails machine = shows();
  machine.tests.insert(kControl);
  for (const char* test : {kOwn, kConsequence}) {
    const Outcome failed = explained(test, Status::kFail, machine);
    EXPECT_EQ(failed.status, Status::kFail);
    EXPECT_EQ(failed.erratum, "");
    EXPECT_THAT(failed.reason, HasSubstr("does not explain this: its control "));
    EXPECT_THAT(failed.reason, HasSubstr(std::string(kControl) + " ended `fail` here"));
  }
}

TEST(Errata, HalfOfASignatureIsNone) {
  Fails machine = {.tests = {kOwn, kConsequence}};
  const Outcome failed = explained(kConsequence, Status::kFail, machine);
  EXPECT_EQ(failed.status, Status::kFail);
  EXPECT_THAT(failed.reason, HasSubstr(std::string(kOtherOwn) + " ended `pass` here"));
}

TEST(Errata, WhatCannotBeAskedExplainsNothing) {
  Fails machine = shows();
  machine.others = Status::kSkip;
  const Outcome failed = explained(kOwn, Status::kFail, machine);
  EXPECT_EQ(failed.status, Status::kFail);
  EXPECT_THAT(failed.reason, HasSubstr("its control cannot be asked here"));
}

TEST(Errata, AnErrorOrNoiseIsNoControlThatHeld) {
  for (Status status : {Status::kError, Status::kDisturbed}) {
    Fails machine = shows();
    machine.others = status;
    EXPECT_EQ(explained(kOwn, Status::kFail, machine).status, Status::kFail);
  }
}

TEST(Errata, WhatOneDragsAlongIsExplainedWhereItShows) {
  Fails machine = shows();
  const Outcome failed = explained(kConsequence, Status::kFail, machine);
  EXPECT_EQ(failed.status, Status::kXfail);
  EXPECT_THAT(failed.reason, HasSubstr("BJ103 is listed for 06_2A_7 and drags this along: "));
  EXPECT_EQ(explained(kConsequence, Status::kPass, machine).status, Status::kPass)
      << "that was not to be expected to fail";
}

TEST(Errata, WhatHoldsInSpiteOfOneIsSaidWithoutAsking) {
  Fails machine;
  const Outcome held = explained(kOwn, Status::kPass, machine);
  EXPECT_EQ(held.status, Status::kXpass);
  EXPECT_THAT(held.reason, HasSubstr("did not show"));
  EXPECT_EQ(explained(kOwn, Status::kPass, machine, kSandyBridgeServer).status, Status::kPass);
  EXPECT_EQ(machine.times, 0u);
}

TEST(Errata, AMachineIsAskedOnce) {
  Fails machine = shows();
  Signatures signatures;
  unsigned first = 0;
  for (const char* test : {kConsequence, kOwn, kOtherOwn}) {
    Outcome outcome;
    outcome.part = kSandyBridge;
    outcome.status = Status::kFail;
    explain_by_errata(test, outcome, signatures, machine.ask());
    EXPECT_EQ(outcome.status, Status::kXfail);
    if (first == 0) first = machine.times;
  }
  EXPECT_GT(first, 2u);
  EXPECT_EQ(machine.times, first);
}

TEST(Errata, OtherOutcomesStayWhatTheyAre) {
  for (Status status : {Status::kError, Status::kSkip, Status::kObserved, Status::kDisturbed}) {
    Fails machine = shows();
    const Outcome same = explained(kOwn, status, machine);
    EXPECT_EQ(same.status, status);
    EXPECT_EQ(same.erratum, "");
    EXPECT_EQ(machine.times, 0u);
  }
}

TEST(Errata, AMicrocodeThatMendsOneEndsTheExcuse) {
  const std::string test = "PebsReprogramming.LeavesNoRecordBehindOnceStopped/PMC0";
  Fails machine = {.tests = {test}};
  arch::Part part = {.family = 6, .model = 0x3C, .stepping = 3, .microcode = 0x1E};
  EXPECT_EQ(explained(test, Status::kFail, machine, part).status, Status::kXfail);
  part.microcode = 0x1F;
  EXPECT_EQ(explained(test, Status::kFail, machine, part).status, Status::kFail);
  part.microcode = 0;
  const Outcome unknown = explained(test, Status::kFail, machine, part);
  EXPECT_EQ(unknown.status, Status::kXfail);
  EXPECT_THAT(unknown.reason, HasSubstr("cannot be read"));
  part.stepping = 2;
  EXPECT_THAT(explained(test, Status::kFail, machine, part).reason,
              Not(HasSubstr("cannot be read")))
      << "no revision is known that mends this stepping";
}

TEST(Errata, EveryReproducerIsNarrowAndOfAPartThatARowCovers) {
  size_t reproducers = 0;
  for (const arch::Erratum& one : arch::errata()) {
    if (!one.reproducer) continue;
    ++reproducers;
    const arch::Reproducer& reproducer = *one.reproducer;
    EXPECT_FALSE(matches_filter(reproducer.tests, "NoSuchSuite.NoSuchTest")) << one.id;
    EXPECT_FALSE(matches_filter(reproducer.controls, "NoSuchSuite.NoSuchTest")) << one.id;
    EXPECT_TRUE(std::any_of(one.parts.begin(), one.parts.end(),
                            [](const arch::AffectedParts& parts) {
                              return arch::identify(parts.family, parts.model) != nullptr;
                            }))
        << one.id;
  }
  EXPECT_GT(reproducers, 30u);
}

}  // namespace
}  // namespace skidproof::check
