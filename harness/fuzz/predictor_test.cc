// The prediction agrees with conforming models and contradicts broken ones, each in the check and with the
// clause that fits; and what an instruction causes is what its bytes say.
#include "harness/fuzz/predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/fuzz/execute.h"
#include "harness/fuzz/generator.h"
#include "pebs/arch/msr.h"
#include "pebs/engines/model_machine.h"
#include "pebs/session.h"

namespace skidproof::fuzz {
namespace {

using namespace arch;

const Microarch& row(const char* name) { return **find_microarch(name); }

// One store an iteration, far from the next; PMC0 samples stores, PMC1 counts them.
Case sparse_stores() {
  Case c;
  c.machine = "model:sandy-bridge";
  c.code.items = {{.op = Op::kSet, .a = 1, .value = 77},
                  {.op = Op::kStore, .a = 1, .value = 64},
                  {.op = Op::kDelay, .a = 2, .value = 48}};
  c.ds = {.index = 0, .maximum = 8 * 0xB0, .threshold = 2 * 0xB0, .resets = {}};
  c.ds.resets = {minus_period(4, 64), minus_period(9, 64), 0, 0};
  const uint64_t stores = 0x82D0 | evtsel::kUsr | evtsel::kOs | evtsel::kEnable;
  auto write = [&](uint32_t msr, uint64_t value) {
    c.steps.push_back({.kind = Step::Kind::kWrite, .msr = msr, .value = value});
  };
  write(IA32_PERFEVTSEL0, stores);
  write(IA32_PERFEVTSEL0 + 1, stores);
  write(IA32_PMC0, minus_period(3, 48));
  write(IA32_PMC0 + 1, minus_period(5, 48));
  write(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  write(IA32_PEBS_ENABLE, 1);
  c.steps.push_back({.kind = Step::Kind::kRun, .value = 3, .iterations = 25});
  return c;
}

Outcome run(const Case& c, const std::vector<std::string>& defects = {},
            const char* microarch = "sandy-bridge") {
  auto machine = engines::make_model_machine(
      row(microarch),
      {.sibling_thread = c.sibling_thread, .defects = defects, .seed = c.machine_seed});
  EXPECT_TRUE(machine) << machine.error().text();
  auto executor = Executor::create(row(microarch));
  EXPECT_TRUE(executor);
  auto outcome = (*executor)->run(**machine, c);
  EXPECT_TRUE(outcome) << outcome.error().text();
  return *outcome;
}

std::string text_of(const Outcome& outcome) {
  if (!outcome.violation) return "";
  const Violation& v = *outcome.violation;
  return std::string(name_of(v.check)) + " " + std::string(v.clause->id) + ": expected " +
         v.expected + "; seen " + v.seen;
}

TEST(Predictor, ComparesEveryRecordOfASparseEvent) {
  const Outcome outcome = run(sparse_stores());
  EXPECT_EQ(text_of(outcome), "");
  // The first record at store 4, then one every 5: 4, 9, 14, 19, 24.
  EXPECT_EQ(outcome.tally.records, 5u);
  EXPECT_EQ(outcome.tally.exact_records, 5u);
  EXPECT_EQ(outcome.tally.exact_runs, 1u);
  EXPECT_EQ(outcome.tally.interrupts, 1u);
}

struct Expectation {
  const char* defect;
  Check check;
};
TEST(Predictor, ContradictsBrokenModelsInTheCheckThatFits) {
  const Expectation kExpected[] = {
      {"record-on-overflow", Check::kExtra},
      {"record-one-event-late", Check::kRecord},
      {"record-without-event", Check::kExtra},
      {"skid-one-too-many", Check::kRecord},
      {"skid-none", Check::kExtra},
      {"record-swaps-rbx-rcx", Check::kPlace},
      {"record-without-flags", Check::kPlace},
      {"record-status-after-assist", Check::kStatus},
      {"record-status-pebs-only", Check::kStatus},
      {"reset-off-by-one", Check::kExtra},
      {"reset-next-slot", Check::kRecord},
      {"reset-never", Check::kRecord},
      {"reset-counters-without-pebs", Check::kCount},
      {"counts-lose-events", Check::kRecord},
      {"status-survives-record", Check::kStatus},
      {"ovf-buffer-not-set", Check::kStatus},
      {"pmi-one-record-early", Check::kStatus},
      {"pmi-one-record-late", Check::kStatus},
      {"pmi-leaves-lvt-unmasked", Check::kInterrupts},
      {"index-steps-too-far", Check::kIndex},
      {"index-stands-still", Check::kMemory},
  };
  for (const Expectation& e : kExpected) {
    const Outcome outcome = run(sparse_stores(), {e.defect});
    ASSERT_TRUE(outcome.violation) << e.defect;
    EXPECT_EQ(outcome.violation->check, e.check) << e.defect << ": " << text_of(outcome);
  }
}

TEST(Predictor, HoldsTheBufferToItsMaximum) {
  Case c = sparse_stores();
  c.ds.maximum = 2 * 0xB0 + 8;
  c.ds.threshold = kMaximumBufferBytes;
  EXPECT_EQ(text_of(run(c)), "");
  EXPECT_EQ(run(c).tally.records, 2u);
  for (const char* defect : {"writes-past-maximum", "last-record-hangs-over"}) {
    const Outcome outcome = run(c, {defect});
    ASSERT_TRUE(outcome.violation) << defect;
    EXPECT_EQ(outcome.violation->check, Check::kIndex);
    EXPECT_EQ(outcome.violation->clause, &clause::R48);
  }
}

// PMC2 overflows with the last store of the first run: the interrupt that INT asks for waits for an
// assist (R34), and comes with that of PMC0 in the second, far below the threshold.
TEST(Predictor, GrantsAnInterruptThatWaitedForAnAssistOfALaterRun) {
  Case c = sparse_stores();
  c.ds.threshold = kMaximumBufferBytes;
  c.steps.resize(2);
  auto write = [&](uint32_t msr, uint64_t value) {
    c.steps.push_back({.kind = Step::Kind::kWrite, .msr = msr, .value = value});
  };
  write(IA32_PERFEVTSEL0 + 2, c.steps[0].value | evtsel::kInt);
  write(IA32_PMC0, minus_period(3, 48));
  write(IA32_PMC0 + 2, minus_period(25, 48));
  write(IA32_X2APIC_LVT_PMI, lvt::kNmi);
  write(IA32_PEBS_ENABLE, 5);
  c.steps.push_back({.kind = Step::Kind::kRun, .value = 4, .iterations = 25});
  c.steps.push_back({.kind = Step::Kind::kRun, .value = 1, .iterations = 25});
  const Outcome outcome = run(c);
  EXPECT_EQ(text_of(outcome), "");
  EXPECT_GT(outcome.tally.records, 0u);
  EXPECT_EQ(outcome.tally.interrupts, 1u);
}

// A store on each side of the overflow, nearer than arming may take: the manual does not say which of
// them is recorded, and either is taken.
TEST(Predictor, GrantsTheShadowAndNoMore) {
  Case c = sparse_stores();
  c.code.items = {{.op = Op::kStore, .a = 1, .value = 64},
                  {.op = Op::kStore, .a = 1, .value = 128},
                  {.op = Op::kDelay, .a = 2, .value = 48}};
  EXPECT_EQ(text_of(run(c)), "");
  EXPECT_GT(run(c).tally.exact_records, 0u);
  const Outcome late = run(sparse_stores(), {"record-one-event-late"});
  ASSERT_TRUE(late.violation);
  EXPECT_EQ(late.violation->clause, &clause::R2);
}

TEST(Predictor, ReportsWhatWasExpectedAndSeen) {
  const Outcome outcome = run(sparse_stores(), {"skid-one-too-many"});
  ASSERT_TRUE(outcome.violation);
  EXPECT_THAT(outcome.violation->expected, ::testing::HasSubstr("a record of PMC0"));
  EXPECT_THAT(outcome.violation->seen, ::testing::HasSubstr("record 0 with IP +0x"));
  EXPECT_EQ(outcome.violation->step, sparse_stores().steps.size() - 1);
}

TEST(Predictor, AgreesWithEveryConformingModelItKnows) {
  for (const char* name : {"nehalem", "westmere", "sandy-bridge", "ivy-bridge"}) {
    auto executor = Executor::create(row(name));
    ASSERT_TRUE(executor);
    Tally tally;
    for (uint64_t seed = 0; seed < 150; ++seed) {
      const bool sibling = seed % 2 == 0;
      auto first = engines::make_model_machine(row(name), {.sibling_thread = sibling});
      const unsigned gp = (*first)->cpuid(0xA, 0).eax >> 8 & 0xFF;
      const Case c = generate_case((*first)->identity(), gp, seed);
      auto machine = engines::make_model_machine(
          row(name), {.sibling_thread = sibling, .seed = c.machine_seed});
      auto outcome = (*executor)->run(**machine, c);
      ASSERT_TRUE(outcome) << outcome.error().text();
      EXPECT_EQ(text_of(*outcome), "") << name << ", seed " << seed;
      tally += outcome->tally;
    }
    EXPECT_GT(tally.exact_runs, tally.runs / 2) << name;
    EXPECT_GT(tally.exact_records, 50u) << name;
  }
}

TEST(Trace, SaysWhatAnInstructionCauses) {
  const StaticInstruction call{.flow = Flow::kCall, .stores = true};
  EXPECT_EQ(events_of(Signal::kNearCalls, call, true), 1u);
  EXPECT_EQ(events_of(Signal::kNearTaken, call, true), 1u);
  EXPECT_EQ(events_of(Signal::kStores, call, true), 1u);
  EXPECT_EQ(events_of(Signal::kLoads, call, true), 0u);
  const StaticInstruction jump{.flow = Flow::kConditional};
  EXPECT_EQ(events_of(Signal::kNearTaken, jump, false), 0u);
  EXPECT_EQ(events_of(Signal::kConditionalNotTaken, jump, false), 1u);
  EXPECT_EQ(events_of(Signal::kBranches, jump, false), 1u);
  EXPECT_FALSE(events_of(Signal::kCycles, jump, false).has_value());
  EXPECT_FALSE(architectural(Signal::kLoadsL1Hit));
  EXPECT_FALSE(architectural(Signal::kNone)) << "it may happen on silicon";
}

}  // namespace
}  // namespace skidproof::fuzz
