// Pre-defined architectural events, and the fixed counters beside them: they count what Table 18-1
// names, and two ways to count the same agree.
#include <cstdint>
#include <string>
#include <string_view>

#include "harness/check/check.h"
#include "pebs/capabilities.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pmu_events {
namespace {

using namespace suites;
using arch::Signal;

constexpr char kNoEvent[] = "the row models no such event";

// Table 18-1 in the order of CPUID.0AH:EBX.
constexpr uint16_t kSelects[] = {0x003C, 0x00C0, 0x013C, 0x4F2E, 0x412E, 0x00C4, 0x00C5};
constexpr unsigned kInstructionsRetired = 1, kReferenceCycles = 2, kReferences = 3, kMisses = 4,
                   kBranchesRetired = 5, kMispredictsRetired = 6;

bool available(const Machine& machine, unsigned event) {
  const Machine::CpuidResult leaf = machine.cpuid(0xA, 0);
  return event < (leaf.eax >> 24) && (leaf.ebx >> event & 1) == 0;
}

// The row's event of that encoding, if its events happen in what a program does.
const arch::Event* architectural(const arch::Microarch& microarch, unsigned event) {
  const uint16_t select = kSelects[event];
  const arch::Event* found =
      microarch.event(static_cast<uint8_t>(select), static_cast<uint8_t>(select >> 8));
  return found != nullptr && found->signal != Signal::kNone ? found : nullptr;
}

}  // namespace

SKIDPROOF_SUITE(PmuEvents, kCount);

SKIDPROOF_TEST_OVER(PmuEvents, CountWhereCpuidAnnouncesThem,
                    over::numbers("event", {0, 1, 2, 5, 6}), clause::M2, clause::M47) {
  const auto number = static_cast<unsigned>(param().number());
  const arch::Event* event = architectural(uarch(), number);
  SKIDPROOF_REQUIRE(available(machine(), number) && event != nullptr,
                    SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("branch_pattern", "pattern=random,length=4096");
  const uint64_t counted = need(count(machine(), 0, *event, code, 4));
  evidence("event", event->name);
  evidence("counted", counted);
  VERIFY_GT(counted, 0u);
}

SKIDPROOF_TEST(PmuEvents, CountEveryInstructionAndEveryBranch, clause::M47, clause::M2) {
  const Program& code = program("branch_pattern", "pattern=alternating,length=256");
  for (unsigned number : {kInstructionsRetired, kBranchesRetired}) {
    const arch::Event* event = architectural(uarch(), number);
    SKIDPROOF_REQUIRE(available(machine(), number) && event != nullptr,
                      SkipCategory::kNotOnThisMicroarch, kNoEvent);
    const int64_t gained = difference(need(count(machine(), 0, *event, code, 20)),
                                      need(count(machine(), 0, *event, code, 10)));
    const Expectations ten = code.per_iteration * 10;
    const bool instructions = number == kInstructionsRetired;
    const uint64_t edge =
        instructions ? 2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions)) : 0;
    VERIFY_THAT(
        gained,
        within(static_cast<int64_t>(instructions ? ten.instructions : ten.branches()), edge))
        << event->name;
  }
}

// A clock of a fixed frequency, whatever the core does and however fast: the core's crystal, the bus or the TSC,
// none of them faster than the TSC. Which of them no text says for a part. [SDM 18.2.1.2]
SKIDPROOF_TEST(PmuEvents, CountReferenceCyclesAtOneRate, clause::M47, clause::M2) {
  const arch::Event* event = architectural(uarch(), kReferenceCycles);
  SKIDPROOF_REQUIRE(available(machine(), kReferenceCycles) && event != nullptr,
                    SkipCategory::kNotOnThisMicroarch, kNoEvent);
  auto rate = [&](const Program& code, uint64_t iterations) {
    const Sampled sampled =
        need(sample(machine(), one_counter(plain_counter(0, *event), 1), code, iterations));
    return static_cast<double>(sampled.run.counters.at(0)) /
           static_cast<double>(sampled.run.log.tsc);
  };
  const double waiting = rate(program("pointer_chase", "bytes=@beyond-l1"), 50'000);
  const double busy = rate(program("alu_chain"), 10'000);
  evidence("event", event->name);
  evidence("a-tick-of-the-tsc-waiting", waiting);
  evidence("a-tick-of-the-tsc-busy", busy);
  // An eighth: what a timer interrupt or two may take of a run.
  VERIFY_GT(busy, 0.0);
  VERIFY_LE(busy, waiting * 9 / 8);
  VERIFY_LE(waiting, busy * 9 / 8);
  VERIFY_LE(waiting, 9.0 / 8);
  observe("ticks-of-the-tsc-a-count", 1 / waiting);
}

// A chase through lines that were flushed, every other one, so that none comes with its neighbour, asks the last level
// for each of them and lacks it; one that fits L1 hardly ever asks. What silicon asks besides, for code, page tables and
// prefetches, only adds.
SKIDPROOF_TEST(PmuEvents, CountWhatTheLastLevelCacheIsAskedForAndLacks, clause::M47, clause::M2) {
  const arch::Event* references = architectural(uarch(), kReferences);
  const arch::Event* misses = architectural(uarch(), kMisses);
  SKIDPROOF_REQUIRE(available(machine(), kReferences) && available(machine(), kMisses) &&
                        references != nullptr && misses != nullptr,
                    SkipCategory::kNotOnThisMicroarch, "CPUID announces no such events");
  constexpr uint64_t kLoads = 20'000;
  const Program& near = program("pointer_chase", "bytes=8K");
  const uint64_t asked_near = need(count(machine(), 0, *references, near, kLoads));
  const Program& far = program("pointer_chase", "flush=1,granularity=128,bytes=1M");
  SessionPlan plan;
  plan.buffer_records = 1;
  plan.counters = {plain_counter(0, *references), plain_counter(1, *misses)};
  const Sampled sampled = need(sample(machine(), plan, far, kLoads));
  const uint64_t asked_far = sampled.run.counters.at(0), missed_far = sampled.run.counters.at(1);
  evidence("references-of-8-KiB", asked_near);
  evidence("references", asked_far);
  evidence("misses", missed_far);
  VERIFY_LE(asked_near, kLoads / 8);
  VERIFY_GE(asked_far, kLoads / 2);
  VERIFY_GE(missed_far, kLoads / 4);
}

// A branch that always goes the same way is predicted after a few times; one whose ways are random
// cannot be, half of the time. Never are more branches mispredicted than there are.
SKIDPROOF_TEST(PmuEvents, CountMispredictionsOfWhatCannotBePredicted, clause::M47) {
  const arch::Event* event = architectural(uarch(), kMispredictsRetired);
  SKIDPROOF_REQUIRE(available(machine(), kMispredictsRetired) && event != nullptr,
                    SkipCategory::kNotOnThisMicroarch, kNoEvent);
  constexpr uint64_t kLength = 16384;
  const Program& steady = program("branch_pattern", "pattern=always,length=16384");
  const uint64_t expected_never = need(count(machine(), 0, *event, steady, 1));
  const Program& random = program("branch_pattern", "pattern=random,length=16384");
  const uint64_t expected_half = need(count(machine(), 0, *event, random, 1));
  evidence("steady", expected_never);
  evidence("random", expected_half);
  evidence("branches", kLength);
  // Random ways: a count of fair coins, mean 8192 and deviation 64; a quarter lies 64 of them off.
  VERIFY_GT(expected_half, kLength / 4);
  VERIFY_LT(expected_half, 3 * kLength / 4);
  VERIFY_LT(expected_never, kLength / 64);
}

// However often it repeats, and also when it does not at all.
SKIDPROOF_TEST_OVER(PmuEvents, CountARepeatedInstructionOnce,
                    over::product(over::words({"PMC0", "fixed0"}),
                                  over::numbers("elements", {0, 1, 2, 3, 16, 512})),
                    clause::R60) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("string_fill", "elements=" + std::to_string(param().number()));
  auto counted = [&](uint64_t iterations) {
    SessionPlan plan = one_counter(plain_counter(0, *event), 1);
    plan.fixed = {{.counter = 0}};
    const Sampled sampled = need(sample(machine(), plan, code, iterations));
    return param().word() == "PMC0" ? sampled.run.counters[0] : sampled.run.fixed[0];
  };
  // More than what starting and stopping may add, if each repetition counted.
  constexpr uint64_t kMore = 200;
  VERIFY_THAT(difference(counted(2 * kMore), counted(kMore)),
              within(static_cast<int64_t>(kMore * code.per_iteration.instructions),
                     2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions))));
}

// --- Two ways to count the same, started and stopped by one write

SKIDPROOF_TEST_OVER(PmuEvents, AgreeWithFixedCounterZero,
                    over::words({"mixed", "call_return", "alu_chain", "pointer_chase", "nop_sled"}),
                    clause::M18, clause::M47) {
  const arch::Event* event = architectural(uarch(), kInstructionsRetired);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program(param().word());
  SessionPlan plan = one_counter(plain_counter(0, *event), 1);
  plan.fixed = {{.counter = 0}};
  constexpr uint64_t kIterations = 4000;
  Sampled sampled = need(sample(machine(), plan, code, kIterations));
  VERIFY_GE(sampled.run.counters[0], code.total(kIterations).instructions);
  VERIFY_THAT(difference(sampled.run.fixed[0], sampled.run.counters[0]),
              within(0, 2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions))));
}

// Fixed counter 2 runs at the rate of the TSC while the core is not halted. The run's TSC interval
// lies around the counted one by the machine's own few instructions.
SKIDPROOF_TEST(PmuEvents, CountReferenceCyclesAtTheRateOfTheTsc, clause::M18) {
  const Program& code = program("pointer_chase", "bytes=@beyond-l1");
  SessionPlan plan;
  plan.buffer_records = 1;
  plan.fixed = {{.counter = 2}};
  Sampled sampled = need(sample(machine(), plan, code, 50'000));
  const uint64_t tsc = sampled.run.log.tsc;
  const uint64_t counted = sampled.run.fixed[0];
  evidence("tsc", tsc);
  evidence("reference-cycles", counted);
  VERIFY_GT(tsc, 0u);
  // An eighth: what a timer interrupt or two may take of either.
  VERIFY_LE(counted, tsc + tsc / 8);
  VERIFY_GE(counted, tsc - tsc / 8);
}

// Above ring 0 every instruction of a program counts, from the first on, on every counter.
SKIDPROOF_TEST_OVER(PmuEvents, CountARing3ProgramWhole,
                    over::product(over::counters({0, 1, 2, 3, 4, 5, 6, 7}),
                                  over::words({"usr", "both"})),
                    clause::M27, clause::M13, clause::M47) {
  const auto counter = static_cast<unsigned>(param().number());
  SKIDPROOF_REQUIRE(reported_counters(machine()) > counter, SkipCategory::kMachineLimit,
                    "CPUID reports fewer counters");
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  CounterSetup setup = plain_counter(counter, *event);
  setup.os = param().word() == "both";
  const Program& empty = program("empty");
  // Only a machine that says it has no ring 3 skips this: every other error is one.
  const uint64_t own = need(count(machine(), setup, empty, 0, Ring::kUser), "a program in ring 3");
  // Whatever the machine adds of its own, it adds to every program.
  VERIFY_GE(own, empty.total(0).instructions);
  const Program& code = program("mixed");
  const uint64_t counted = need(count(machine(), setup, code, 100, Ring::kUser));
  VERIFY_THAT(difference(counted, own - empty.total(0).instructions),
              within(static_cast<int64_t>(code.total(100).instructions),
                     2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions))));
}

}  // namespace skidproof::check::pmu_events
