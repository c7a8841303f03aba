// Counters: what a write leaves in them, when they count, and that they count exactly what the
// kernels declare.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pmu_counters {
namespace {

using namespace suites;
using arch::bit;
using arch::IA32_A_PMC0;
using arch::IA32_FIXED_CTR0;
using arch::IA32_PERF_GLOBAL_CTRL;
using arch::IA32_PERFEVTSEL0;
using arch::IA32_PMC0;
using arch::Signal;

constexpr char kAbsent[] = "CPUID reports fewer counters";

// Bit patterns on both sides of bit 31.
std::vector<uint64_t> words(Random& random) {
  std::vector<uint64_t> out = {0, 1, 0x7FFF'FFFF, 0x8000'0000, 0xFFFF'FFFF, 0x1234'5678};
  for (int i = 0; i < 8; ++i) out.push_back(random.next() & 0xFFFF'FFFF);
  return out;
}

// One way of counting, and what of a kernel's expectations it must equal.
struct Measure {
  Signal signal;
  uint64_t Expectations::*plain;       // nullptr: all branches
  std::optional<unsigned> fixed = {};  // instead of a general-purpose counter
};
Measure measure_of(std::string_view word) {
  if (word == "fixed0") return {Signal::kInstructions, &Expectations::instructions, 0};
  if (word == "instructions") return {Signal::kInstructions, &Expectations::instructions};
  if (word == "loads") return {Signal::kLoads, &Expectations::loads};
  if (word == "stores") return {Signal::kStores, &Expectations::stores};
  if (word == "taken") return {Signal::kNearTaken, &Expectations::branches_taken};
  return {Signal::kBranches, nullptr};
}
uint64_t declared(const Measure& measure, const Program& program, uint64_t iterations) {
  const Expectations total = program.total(iterations);
  return measure.plain == nullptr ? total.branches() : total.*measure.plain;
}

SessionPlan fixed_plan(const FixedSetup& fixed) {
  SessionPlan plan;
  plan.buffer_records = 1;
  plan.fixed = {fixed};
  return plan;
}
Expected<uint64_t> count_fixed(Machine& machine, const FixedSetup& fixed, const Program& program,
                               uint64_t iterations, Ring ring = Ring::kKernel) {
  SessionPlan plan = fixed_plan(fixed);
  plan.ring = ring;
  Session session = SKIDPROOF_TRY(Session::open(machine, plan));
  SessionRun run = SKIDPROOF_TRY(session.run(program, iterations));
  return run.fixed.at(0);
}

// PMC0 under these two registers, from 0.
Expected<uint64_t> count_raw(Machine& machine, uint64_t select, uint64_t global_ctrl,
                             const Program& program, uint64_t iterations) {
  Restore restore(machine, {IA32_PMC0, IA32_PERFEVTSEL0, IA32_PERF_GLOBAL_CTRL});
  RunPlan plan;
  plan.iterations = iterations;
  plan.enable = {{IA32_PERF_GLOBAL_CTRL, 0},
                 {IA32_PMC0, 0},
                 {IA32_PERFEVTSEL0, select},
                 {IA32_PERF_GLOBAL_CTRL, global_ctrl}};
  plan.disable = {{IA32_PERF_GLOBAL_CTRL, 0}, {IA32_PERFEVTSEL0, 0}};
  plan.read = {IA32_PMC0};
  RunLog log = SKIDPROOF_TRY(machine.run(program, plan));
  return log.read.at(0);
}

}  // namespace

SKIDPROOF_SUITE(PmuCounters, kCount);

// --- Writes

SKIDPROOF_TEST_OVER(PmuCounters, SignExtendsALegacyWriteFromBit31,
                    over::counters({0, 1, 2, 3, 4, 5, 6, 7}), clause::M6, clause::R38) {
  const auto counter = static_cast<uint32_t>(param().number());
  SKIDPROOF_REQUIRE(reported_counters(machine()) > counter, SkipCategory::kMachineLimit, kAbsent);
  Restore restore(machine(), {IA32_PMC0 + counter});
  for (uint64_t value : words(random())) {
    need(machine().wrmsr(IA32_PMC0 + counter, value));
    VERIFY_EQ(need(machine().rdmsr(IA32_PMC0 + counter)), arch::legacy_write_value(uarch(), value))
        << "after " << results::hex(value);
  }
}

SKIDPROOF_TEST_OVER(PmuCounters, IgnoresEdxInALegacyWrite, over::counters({0, 1, 2, 3}), clause::M6,
                    clause::R38) {
  const auto counter = static_cast<uint32_t>(param().number());
  SKIDPROOF_REQUIRE(reported_counters(machine()) > counter, SkipCategory::kMachineLimit, kAbsent);
  Restore restore(machine(), {IA32_PMC0 + counter});
  for (uint64_t low : words(random())) {
    const uint64_t value = random().next() << 32 | low;
    need(machine().wrmsr(IA32_PMC0 + counter, value));
    VERIFY_EQ(need(machine().rdmsr(IA32_PMC0 + counter)), arch::legacy_write_value(uarch(), low))
        << "after " << results::hex(value);
  }
}

SKIDPROOF_TEST_OVER(PmuCounters, HasAFullWidthAliasExactlyWithFwWrite,
                    over::counters({0, 1, 2, 3, 4, 5, 6, 7}), clause::M7, clause::R38) {
  const auto counter = static_cast<uint32_t>(param().number());
  SKIDPROOF_REQUIRE(reported_counters(machine()) > counter, SkipCategory::kMachineLimit, kAbsent);
  const uint64_t capabilities = need(machine().rdmsr(arch::IA32_PERF_CAPABILITIES));
  const bool announced = (capabilities & arch::capabilities::kFullWidthWrite) != 0;
  evidence("fw-write", announced);
  VERIFY_EQ(announced, uarch().full_width_writes);
  if (!announced) {
    VERIFY_TRUE(need(refuses_to_read(machine(), IA32_A_PMC0 + counter)));
    VERIFY_TRUE(need(refuses(machine(), IA32_A_PMC0 + counter, 0)));
    return;
  }
  const bool absent = need(refuses_to_read(machine(), IA32_A_PMC0 + counter));
  VERIFY_FALSE(absent) << "announced, and does not answer";
  if (absent) return;
  Restore restore(machine(), {IA32_PMC0 + counter});
  for (int i = 0; i < 16; ++i) {
    const uint64_t value = random().next() & arch::gp_counter_mask(uarch());
    need(machine().wrmsr(IA32_A_PMC0 + counter, value));
    VERIFY_EQ(need(machine().rdmsr(IA32_A_PMC0 + counter)), value);
    VERIFY_EQ(need(machine().rdmsr(IA32_PMC0 + counter)), value) << "one counter, two addresses";
    need(machine().wrmsr(IA32_PMC0 + counter, value));
    VERIFY_EQ(need(machine().rdmsr(IA32_A_PMC0 + counter)),
              arch::legacy_write_value(uarch(), value));
  }
}

SKIDPROOF_TEST_OVER(PmuCounters, RefusesBitsAboveItsWidthInTheFullWidthAlias,
                    over::counters({0, 1, 2, 3}), clause::M8) {
  const auto counter = static_cast<uint32_t>(param().number());
  SKIDPROOF_REQUIRE(uarch().full_width_writes, SkipCategory::kNotOnThisMicroarch,
                    "no full-width writes");
  Restore restore(machine(), {IA32_PMC0 + counter});
  need(machine().wrmsr(IA32_A_PMC0 + counter, 0x1234));
  for (unsigned b = uarch().gp_width; b < 64; ++b) {
    VERIFY_TRUE(need(refuses(machine(), IA32_A_PMC0 + counter, bit(b)))) << "bit " << b;
    VERIFY_EQ(need(machine().rdmsr(IA32_A_PMC0 + counter)), 0x1234u);
  }
}

SKIDPROOF_TEST_OVER(PmuCounters, TakesAFixedCounterAtFullWidth, over::numbers("fixed", {0, 1, 2}),
                    clause::M19, clause::M3) {
  const uint32_t msr = IA32_FIXED_CTR0 + static_cast<uint32_t>(param().number());
  Restore restore(machine(), {msr});
  for (uint64_t low : words(random())) {
    const uint64_t value = (random().next() << 32 | low) & arch::fixed_counter_mask(uarch());
    for (uint64_t written : {low, value}) {
      need(machine().wrmsr(msr, written));
      VERIFY_EQ(need(machine().rdmsr(msr)), written) << "no sign extension, nothing cut off";
    }
  }
  for (unsigned b = uarch().fixed_width; b < 64; ++b) {
    VERIFY_TRUE(need(refuses(machine(), msr, bit(b)))) << "bit " << b;
  }
}

// --- Counting

// The machine's own instructions around the call are what an empty program shows.
SKIDPROOF_TEST_OVER(PmuCounters, CountsWhatEveryKernelDeclares,
                    over::words({"fixed0", "instructions", "loads", "stores", "branches", "taken"}),
                    clause::M18, clause::M13, clause::R60, clause::M33) {
  const Measure measure = measure_of(param().word());
  const arch::Event* event = counting_event(uarch(), measure.signal);
  SKIDPROOF_REQUIRE(measure.fixed || event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "no event for this");
  auto counted = [&](const Program& code, uint64_t iterations) {
    return need(measure.fixed
                    ? count_fixed(machine(), {.counter = *measure.fixed}, code, iterations)
                    : count(machine(), 0, *event, code, iterations));
  };
  const Program& empty = program("empty");
  const uint64_t own = counted(empty, 0) - declared(measure, empty, 0);
  const bool instructions = measure.signal == Signal::kInstructions;
  const uint64_t edge =
      instructions ? 2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions)) : 0;
  uint64_t tried = 0;
  uint64_t total = 0;
  for (const auto& [name, kernel] : kernels()) {
    const Params defaults = need(Params::parse(kernel.parameters, ""));
    if (kernel.needs != nullptr && !kernel.needs(defaults).empty()) continue;
    const bool memory = measure.signal == Signal::kLoads || measure.signal == Signal::kStores;
    if (memory && kernel.string_instructions) continue;
    const Program& code = program(name);
    for (uint64_t iterations : {0, 1, 7, 14}) {
      const uint64_t expected = declared(measure, code, iterations);
      VERIFY_THAT(difference(counted(code, iterations), own),
                  within(static_cast<int64_t>(expected), edge))
          << name << ", " << iterations << " iterations";
      total += expected;
    }
    ++tried;
  }
  evidence("kernels", tried);
  evidence("declared", total);
  evidence("machine-own", own);
  VERIFY_GT(tried, 0u);
  VERIFY_GT(total, 0u);
}

SKIDPROOF_TEST_OVER(PmuCounters, CountsAlikeOnEveryCounter,
                    over::counters({0, 1, 2, 3, 4, 5, 6, 7}), clause::M1, clause::R37,
                    clause::M13) {
  const auto counter = static_cast<unsigned>(param().number());
  SKIDPROOF_REQUIRE(reported_counters(machine()) > counter, SkipCategory::kMachineLimit, kAbsent);
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, "no instruction event");
  const Program& code = program("mixed");

  const uint64_t once = need(count(machine(), counter, *event, code, 100));
  const uint64_t twice = need(count(machine(), counter, *event, code, 200));

  VERIFY_THAT(difference(twice, once),
              within(static_cast<int64_t>(code.per_iteration.instructions * 100),
                     2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions))));
}

// --- Enables

SKIDPROOF_TEST(PmuCounters, NeedsItsGlobalBitAndItsOwnEnable, clause::M13, clause::M31) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, "no instruction event");
  const Program& code = program("alu_chain");
  const uint64_t select = plain_counter(0, *event).select_msr();
  const uint64_t stopped = select & ~arch::evtsel::kEnable;

  const uint64_t both = need(count_raw(machine(), select, bit(0), code, 50));
  VERIFY_GE(both, code.total(50).instructions);
  VERIFY_EQ(need(count_raw(machine(), select, 0, code, 50)), 0u) << "without its GLOBAL_CTRL bit";
  VERIFY_EQ(need(count_raw(machine(), select, bit(1), code, 50)), 0u) << "with another's";
  VERIFY_EQ(need(count_raw(machine(), stopped, bit(0), code, 50)), 0u) << "with EN clear";
}

// In ring 0 OS alone counts all and USR alone nothing; in ring 3 the other way round. An empty
// program shows what the machine itself adds.
SKIDPROOF_TEST_OVER(PmuCounters, FiltersByPrivilegeLevel,
                    over::product(over::words({"ring0", "ring3"}), over::words({"PMC0", "fixed0"})),
                    clause::M27, clause::M13, clause::M17) {
  const Ring ring = param().word(0) == "ring0" ? Ring::kKernel : Ring::kUser;
  const bool fixed = param().word(1) == "fixed0";
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, "no instruction event");
  const Program& code = program("mixed");
  auto counted = [&](bool usr, bool os, uint64_t iterations) {
    CounterSetup setup = plain_counter(0, *event);
    setup.usr = usr;
    setup.os = os;
    return fixed ? count_fixed(machine(), {.counter = 0, .usr = usr, .os = os}, code, iterations,
                               ring)
                 : count(machine(), setup, code, iterations, ring);
  };
  // Only a machine that says it has no such ring skips this: every other error is one.
  need(counted(true, true, 1), ring == Ring::kUser ? "a program in ring 3" : "a program in ring 0");
  auto gained = [&](bool usr, bool os) {
    return difference(need(counted(usr, os, 200)), need(counted(usr, os, 100)));
  };
  const auto all = static_cast<int64_t>(code.per_iteration.instructions * 100);
  const uint64_t edge = 2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions));
  const bool kernel = ring == Ring::kKernel;
  VERIFY_THAT(gained(true, true), within(all, edge));
  VERIFY_THAT(gained(true, false), within(kernel ? 0 : all, edge)) << "USR alone";
  VERIFY_THAT(gained(false, true), within(kernel ? all : 0, edge)) << "OS alone";
  VERIFY_EQ(need(counted(false, false, 100)), 0u) << "neither";
}

// --- Overflow

SKIDPROOF_TEST_OVER(PmuCounters, WrapsAtItsWidthAndSaysSo, over::counters({0, 1, 2, 3}),
                    clause::M33, clause::R1) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, "no instruction event");
  const Program& code = program("alu_chain");
  const uint64_t events = need(count(machine(), counter, *event, code, 20));

  const uint64_t edge = 2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions));
  for (uint64_t start : {events + 1 + edge, events - edge, events - 1 - edge, events / 2}) {
    const SessionPlan plan = one_counter(CounterSetup::of(counter, *event, start, false), 1);
    Sampled sampled = need(sample(machine(), plan, code, 20));
    const uint64_t unsigned_left =
        (sampled.run.counters[0] + start) & arch::gp_counter_mask(uarch());
    VERIFY_THAT(difference(unsigned_left, events), within(0, edge));
    VERIFY_EQ(sampled.run.global_status & bit(counter), start <= events ? bit(counter) : 0)
        << "started at -" << start << " for " << events << " events";
  }
}

SKIDPROOF_TEST_OVER(PmuCounters, InterruptsOnOverflowExactlyWithInt,
                    over::words({"PMC0", "PMC3", "fixed0"}), clause::M30, clause::R35) {
  const bool fixed = param().word() == "fixed0";
  const unsigned counter = param().word() == "PMC3" ? 3 : 0;
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, "no instruction event");
  const Program& code = program("nop_sled");
  const uint64_t overflow = code.total(50).instructions;
  const uint64_t status = fixed ? bit(arch::status::kFixedShift) : bit(counter);
  for (bool interrupt : {true, false}) {
    CounterSetup setup = CounterSetup::of(counter, *event, overflow, false);
    setup.interrupt = interrupt;
    SessionPlan plan = fixed ? fixed_plan({.counter = 0,
                                           .interrupt = interrupt,
                                           .initial = minus_period(overflow, uarch().fixed_width)})
                             : one_counter(setup, 1);
    plan.pmi.clear_status = false;

    Sampled sampled = need(sample(machine(), plan, code, 100));

    VERIFY_EQ(sampled.run.log.pmis.size(), interrupt ? 1u : 0u);
    for (const Pmi& pmi : sampled.run.log.pmis) VERIFY_EQ(pmi.global_status & status, status);
    VERIFY_EQ(sampled.run.global_status & status, status) << "it did overflow";
  }
}

}  // namespace skidproof::check::pmu_counters
