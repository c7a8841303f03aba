// Narrow questions about counting: what one published erratum spoils and nothing else does, or what it leaves
// alone and another violation would not (pebs/arch/errata).
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "harness/check/check.h"
#include "pebs/arch/errata.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pmu_signatures {
namespace {

using namespace suites;
using arch::Signal;

constexpr char kNoEvent[] = "no such event";
constexpr char kNoSibling[] = "no other thread shares the core";
constexpr char kSibling[] = "another thread shares the core";

// Instructions by IA32_PMC0 and by IA32_FIXED_CTR0, started and stopped by one write.
struct Instructions {
  uint64_t pmc = 0, fixed = 0;
};
Expected<Instructions> count_both(Machine& machine, const arch::Event& event,
                                  const Program& program, uint64_t iterations) {
  SessionPlan plan = one_counter(plain_counter(0, event), 1);
  plan.fixed = {{.counter = 0}};
  const Sampled sampled = SKIDPROOF_TRY(sample(machine, plan, program, iterations));
  return Instructions{sampled.run.counters.at(0), sampled.run.fixed.at(0)};
}

}  // namespace

SKIDPROOF_SUITE(PmuSignatures, kCount);

// --- Instructions on a general-purpose counter and on the fixed one

// Of a program that is over at once: what a counter begins with shows, what it loses on the way does not.
SKIDPROOF_TEST_OVER(PmuSignatures, BeginAlikeOnFixedCounterZero,
                    over::words({"shared_core", "core_alone"}), clause::M18, clause::M47) {
  const bool shared = param().word() == "shared_core";
  const bool sibling = machine().identity().sibling_thread;
  SKIDPROOF_REQUIRE(sibling || !shared, SkipCategory::kNeedsSibling, kNoSibling);
  SKIDPROOF_REQUIRE(!sibling || shared, SkipCategory::kNeedsNoSibling, kSibling);
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("empty");
  const Instructions counted = need(count_both(machine(), *event, code, 1));
  evidence("pmc0", counted.pmc);
  evidence("fixed0", counted.fixed);
  VERIFY_THAT(difference(counted.fixed, counted.pmc),
              within(0, 2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions))));
}

// What a longer run has more than a shorter one: what a counter begins with is in both.
SKIDPROOF_TEST(PmuSignatures, AdvanceAlikeOnFixedCounterZero, clause::M18, clause::M47) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("nop_sled");
  const Instructions shorter = need(count_both(machine(), *event, code, 200));
  const Instructions longer = need(count_both(machine(), *event, code, 4000));
  const int64_t pmc = difference(longer.pmc, shorter.pmc);
  const int64_t fixed = difference(longer.fixed, shorter.fixed);
  evidence("pmc0", pmc);
  evidence("fixed0", fixed);
  VERIFY_THAT(fixed,
              within(pmc, 4 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions))));
}

// A counter that loses or gains a few is one that counts.
SKIDPROOF_TEST(PmuSignatures, AreWithinOnePercentOnFixedCounterZero, clause::M18) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("nop_sled");
  const Instructions counted = need(count_both(machine(), *event, code, 4000));
  evidence("pmc0", counted.pmc);
  evidence("fixed0", counted.fixed);
  VERIFY_GE(counted.pmc, code.total(4000).instructions);
  VERIFY_THAT(difference(counted.fixed, counted.pmc),
              within(0, counted.pmc / 100 +
                            2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions))));
}

// --- Interrupts and overflows of fixed counters

// One overflow, one interrupt, whether or not it freezes.
SKIDPROOF_TEST_OVER(PmuSignatures, InterruptOnceOnFixedCounterZero,
                    over::words({"freeze", "running"}), clause::M30, clause::R52) {
  const Program& code = program("nop_sled");
  SessionPlan plan;
  plan.buffer_records = 1;
  plan.fixed = {{.counter = 0, .interrupt = true, .period = 5000}};
  plan.freeze_on_pmi = param().word() == "freeze";

  const Sampled sampled = need(sample(machine(), plan, code, 4000));

  VERIFY_EQ(sampled.run.log.pmis.size(), 1u);
}

// Both overflow within the first few instructions, and neither interrupts: with the freeze armed nothing is frozen.
SKIDPROOF_TEST_OVER(PmuSignatures, ShowBothFixedCountersThatOverflow,
                    over::words({"freeze", "running"}), clause::M33, clause::M35) {
  const Program& code = program("nop_sled");
  const uint64_t initial = minus_period(5, uarch().fixed_width);
  SessionPlan plan;
  plan.buffer_records = 1;
  plan.fixed = {{.counter = 0, .initial = initial}, {.counter = 1, .initial = initial}};
  plan.freeze_on_pmi = param().word() == "freeze";

  const Sampled sampled = need(sample(machine(), plan, code, 200));

  const uint64_t both = uint64_t{3} << arch::status::kFixedShift;
  evidence("status", results::hex(sampled.run.global_status));
  VERIFY_EQ(sampled.run.global_status & both, both);
}

// A counter that overflows so many events before the run ends, for each number of a range: where its status
// is set software clears it. The late ones are another counter's: a bit that stays for good is not that of the early.
SKIDPROOF_TEST_OVER(PmuSignatures, LoseTheStatusOfAnOverflowInTheEnd,
                    over::words({"late", "early"}), clause::M15, clause::M33) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("nop_sled");
  constexpr uint64_t kIterations = 50;
  const bool late = param().word() == "late";
  const unsigned counter = late ? 1 : 0;
  const uint64_t all = need(count(machine(), counter, *event, code, kIterations));
  const uint64_t first = late ? 0 : 200;
  uint64_t overflows = 0;
  for (uint64_t left = first; left < first + 32; ++left) {
    CounterSetup setup = plain_counter(counter, *event);
    setup.initial = minus_period(all - left, uarch().gp_width);
    const Sampled sampled = need(sample(machine(), one_counter(setup, 1), code, kIterations));
    overflows += (sampled.run.global_status >> counter) & 1;
    need(machine().wrmsr(arch::IA32_PERF_GLOBAL_OVF_CTRL, arch::bit(counter)));
    VERIFY_EQ((need(machine().rdmsr(arch::IA32_PERF_GLOBAL_STATUS)) >> counter) & 1, 0u)
        << left << " events from the end";
  }
  evidence("overflows", overflows);
  SKIDPROOF_REQUIRE(overflows != 0, SkipCategory::kNoise,
                    "a run counts less than the one before it, and nothing overflows");
}

// A counter that stands just below its overflow, may interrupt and does not count: writing it is no overflow. It is
// written where an interrupt would be seen, in the handler of another counter's.
SKIDPROOF_TEST_OVER(PmuSignatures, InterruptForNoWriteOfAFixedCounter,
                    over::numbers("fixed", {0, 1, 2}), clause::M30, clause::M19) {
  using namespace arch;  // MSR names
  const auto counter = static_cast<unsigned>(param().number());
  const uint32_t msr = IA32_FIXED_CTR0 + counter;
  const Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  Restore restore(machine(), {IA32_PERF_GLOBAL_CTRL, IA32_PERFEVTSEL0, IA32_PMC0,
                              IA32_FIXED_CTR_CTRL, msr, IA32_X2APIC_LVT_PMI});
  RunPlan plan;
  plan.iterations = 4000;
  plan.enable = {
      {IA32_PERF_GLOBAL_CTRL, 0},
      {msr, 0},
      {IA32_FIXED_CTR_CTRL, fixed_ctrl::field(counter, fixed_ctrl::kOs | fixed_ctrl::kPmi)},
      {IA32_PMC0, minus_period(10'000, 32)},
      {IA32_PERFEVTSEL0, event->select() | evtsel::kOs | evtsel::kInt | evtsel::kEnable},
      {IA32_X2APIC_LVT_PMI, lvt::kNmi},
      {msr, minus_period(0x10, uarch().fixed_width)},
      {IA32_PERF_GLOBAL_CTRL, 1}};
  plan.pmi.acknowledge = {{IA32_X2APIC_LVT_PMI, lvt::kNmi}, {msr, 0x1234}};
  plan.disable = {{IA32_PERF_GLOBAL_CTRL, 0}, {IA32_FIXED_CTR_CTRL, 0}};
  plan.read = {msr};

  const RunLog log = need(machine().run(program("nop_sled"), plan));

  VERIFY_EQ(log.read.at(0), 0x1234u) << "the write has its effect, and nothing counts";
  VERIFY_EQ(log.pmis.size(), 1u) << "the other counter's alone";
}

// --- Rates

// Too often is not twice as often, and never too seldom.
SKIDPROOF_TEST_OVER(PmuSignatures, CountNeitherFewerNorManyMore,
                    over::words({"instructions", "branches"}), clause::M47) {
  const bool instructions = param().word() == "instructions";
  const arch::Event* event =
      counting_event(uarch(), instructions ? Signal::kInstructions : Signal::kBranches);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("branch_pattern", "pattern=alternating,length=256");
  constexpr uint64_t kIterations = 20;
  const uint64_t counted = need(count(machine(), 0, *event, code, kIterations));
  const Expectations all = code.total(kIterations);
  const uint64_t expected = instructions ? all.instructions : all.branches();
  evidence("counted", counted);
  VERIFY_GE(counted, expected);
  VERIFY_LE(counted, expected + expected / 16 +
                         2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions)));
}

// At the highest ratio of core to bus clock, at most twice the one at boot, it is not slower than the TSC.
SKIDPROOF_TEST(PmuSignatures, CountReferenceCyclesNoSlowerThanTheTsc, clause::M18) {
  const Program& code = program("pointer_chase", "bytes=@beyond-l1");
  SessionPlan plan;
  plan.buffer_records = 1;
  plan.fixed = {{.counter = 2}};
  const Sampled sampled = need(sample(machine(), plan, code, 50'000));
  const uint64_t tsc = sampled.run.log.tsc, counted = sampled.run.fixed.at(0);
  evidence("tsc", tsc);
  evidence("reference-cycles", counted);
  VERIFY_GE(counted, tsc - tsc / 8);
  VERIFY_LE(counted, 2 * tsc);
}

// --- What is counted as something else

// What so many of an instruction, and the no-operations behind them, make an event count.
struct Counted {
  int64_t gained = 0;  // by 400 iterations more
  int64_t each = 0;    // iterations
};
Expected<Counted> count_special(Machine& machine, const arch::Event& event, const Program& code) {
  constexpr uint64_t kMore = 400;
  const uint64_t few = SKIDPROOF_TRY(count(machine, 0, event, code, kMore));
  const uint64_t many = SKIDPROOF_TRY(count(machine, 0, event, code, 2 * kMore));
  return Counted{difference(many, few), kMore};
}

SKIDPROOF_TEST_OVER(PmuSignatures, CountNoOtherInstructionAsABranch,
                    over::words({"cpuid", "mfence", "mov_ss"}), clause::M47) {
  const arch::Event* event = counting_event(uarch(), Signal::kBranches);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("special_instruction", "instruction=" + param().word());
  const Counted counted = need(count_special(machine(), *event, code));
  VERIFY_EQ(counted.gained, counted.each) << "the loop's own jump";
}

SKIDPROOF_TEST_OVER(PmuSignatures, CountNoOtherInstructionAsAStore,
                    over::words({"mfence", "mov_ss"}), clause::M49) {
  const arch::Event* event = counting_event(uarch(), Signal::kStores);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("special_instruction", "instruction=" + param().word());
  const Counted counted = need(count_special(machine(), *event, code));
  VERIFY_EQ(counted.gained, 0);
}

// In lines that the first level has, and in more than it holds.
SKIDPROOF_TEST_OVER(PmuSignatures, CountLockedLoadsWhereverTheyHit,
                    over::numbers("lines=", {8, 1024}), clause::M49) {
  const arch::Event* event = counting_event(uarch(), Signal::kLockedLoads);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("locked_rmw", "unroll=" + std::to_string(param().number()));
  const uint64_t few = need(count(machine(), 0, *event, code, 5));
  const uint64_t many = need(count(machine(), 0, *event, code, 25));
  VERIFY_EQ(many - few, 20 * param().number());
}

// --- Triggers

// A program without loads, however long: what is counted all the same comes from the other thread.
SKIDPROOF_TEST(PmuSignatures, CountNoLoadOfTheSibling, clause::M13, clause::M36) {
  SKIDPROOF_REQUIRE(machine().identity().sibling_thread, SkipCategory::kNeedsSibling, kNoSibling);
  const arch::Event* event = counting_event(uarch(), Signal::kLoads);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("alu_chain");
  const CountedBeside shorter = need(count_beside(machine(), 0, *event, code, 100));
  const CountedBeside longer = need(count_beside(machine(), 0, *event, code, 2000));
  evidence("shorter", shorter.events);
  evidence("longer", longer.events);
  VERIFY_THAT(difference(longer.events, shorter.events),
              within(0, 2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions))));
  SKIDPROOF_REQUIRE(shorter.busy && longer.busy, SkipCategory::kMachineLimit, kSiblingIdle);
}

// Whatever was selected before. The sequence is the one that Linux writes once on these parts, with
// counting off [Linux 6.12, arch/x86/events/intel/core.c, intel_pmu_nhm_workaround].
SKIDPROOF_TEST(PmuSignatures, CountAfterTheSelectsThatLinuxWrites, clause::M13, clause::M47) {
  SKIDPROOF_REQUIRE(arch::has_erratum(uarch(), "AAK100"), SkipCategory::kNotOnThisMicroarch,
                    "no erratum asks for that sequence here");
  const arch::Event* branches = counting_event(uarch(), Signal::kBranches);
  const arch::Event* instructions = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(branches != nullptr && instructions != nullptr,
                    SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("branch_pattern", "pattern=alternating,length=256");
  constexpr std::array<uint64_t, 4> kSelects = {0x4300B5, 0x4300D2, 0x4300B1, 0x4300B1};
  {
    using namespace arch;  // MSR names
    Restore restore(machine(), {IA32_PERF_GLOBAL_CTRL, IA32_PERFEVTSEL0, IA32_PERFEVTSEL0 + 1,
                                IA32_PERFEVTSEL0 + 2, IA32_PERFEVTSEL0 + 3});
    need(machine().wrmsr(IA32_PERF_GLOBAL_CTRL, 0));
    for (unsigned n = 0; n < kSelects.size(); ++n) {
      need(machine().wrmsr(IA32_PERFEVTSEL0 + n, kSelects[n]));
    }
  }
  const auto gained = [&](const arch::Event& event) {
    const uint64_t more = need(count(machine(), 0, event, code, 20));
    return difference(more, need(count(machine(), 0, event, code, 10)));
  };
  const auto ten = code.per_iteration * 10;
  VERIFY_EQ(gained(*branches), static_cast<int64_t>(ten.branches()));
  VERIFY_THAT(gained(*instructions),
              within(static_cast<int64_t>(ten.instructions),
                     2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions))));
}

// What a ring 3 program has more when it runs longer: it comes from ring 0 and goes back in both.
SKIDPROOF_TEST(PmuSignatures, AdvanceExactlyInRing3, clause::M27, clause::M47) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("nop_sled");
  CounterSetup setup = plain_counter(0, *event);
  setup.os = false;
  constexpr uint64_t kMore = 400;
  const uint64_t shorter = need(count(machine(), setup, code, kMore, Ring::kUser));
  const uint64_t longer = need(count(machine(), setup, code, 2 * kMore, Ring::kUser));
  VERIFY_THAT(difference(longer, shorter),
              within(static_cast<int64_t>((code.per_iteration * kMore).instructions),
                     2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions))));
}

}  // namespace skidproof::check::pmu_signatures
