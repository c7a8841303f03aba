// IA32_PERF_GLOBAL_STATUS: one bit for each counter, read-only, cleared by software bit by bit and
// by a record for its own counters alone.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pmu_status {
namespace {

using namespace suites;
using arch::bit;
using arch::IA32_PERF_GLOBAL_OVF_CTRL;
using arch::IA32_PERF_GLOBAL_STATUS;
using arch::Signal;

constexpr uint64_t kFixed0 = bit(arch::status::kFixedShift);
constexpr char kNoEvent[] = "no instruction event";

// What of the status these tests look at: all counters, general-purpose and fixed. The uncore may
// raise a bit of its own (R29).
constexpr uint64_t kCounters = 0xFF | uint64_t{7} << arch::status::kFixedShift;

// Counters that overflow early in a run of the nop sled, without PEBS or interrupt.
SessionPlan overflowing(const arch::Event& event, const std::vector<unsigned>& counters) {
  SessionPlan plan;
  plan.buffer_records = 1;
  for (unsigned n : counters) plan.counters.push_back(CounterSetup::of(n, event, 500, false));
  return plan;
}
FixedSetup overflowing_fixed(const arch::Microarch& microarch, unsigned i) {
  return {.counter = i, .initial = minus_period(5, microarch.fixed_width)};
}

}  // namespace

SKIDPROOF_SUITE(PmuStatus, kCount);

SKIDPROOF_TEST_OVER(PmuStatus, HasABitForEachCounter, over::counters({0, 1, 2, 3, 4, 5, 6, 7}),
                    clause::M35, clause::M33, clause::R4) {
  const auto counter = static_cast<unsigned>(param().number());
  SKIDPROOF_REQUIRE(reported_counters(machine()) > counter, SkipCategory::kMachineLimit,
                    "CPUID reports fewer counters");
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);

  Sampled sampled =
      need(sample(machine(), overflowing(*event, {counter}), program("nop_sled"), 50));

  evidence("status", results::hex(sampled.run.global_status));
  VERIFY_EQ(sampled.run.global_status & kCounters, bit(counter));
}

SKIDPROOF_TEST_OVER(PmuStatus, HasABitForEachFixedCounter, over::numbers("fixed", {0, 1, 2}),
                    clause::M35, clause::M33, clause::M18) {
  const auto counter = static_cast<unsigned>(param().number());
  SessionPlan plan;
  plan.buffer_records = 1;
  plan.fixed = {overflowing_fixed(uarch(), counter)};

  Sampled sampled = need(sample(machine(), plan, program("nop_sled"), 200));

  evidence("status", results::hex(sampled.run.global_status));
  VERIFY_EQ(sampled.run.global_status & kCounters, kFixed0 << counter);
  VERIFY_GT(sampled.run.fixed[0], 0u) << "it counts on from its overflow";
  VERIFY_LT(sampled.run.fixed[0], bit(32));
}

SKIDPROOF_TEST(PmuStatus, IsReadOnly, clause::M14, clause::R37) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  Sampled sampled = need(sample(machine(), overflowing(*event, {0}), program("nop_sled"), 50));

  for (uint64_t value : {uint64_t{0}, bit(0), bit(1), bit(4), kFixed0, bit(62), bit(63)}) {
    const Expected<void> written = machine().wrmsr(IA32_PERF_GLOBAL_STATUS, value);
    VERIFY_FALSE(written.has_value()) << "a write of " << results::hex(value);
    if (!written) {
      VERIFY_EQ(written.error().code, ErrorCode::kGeneralProtection);
    }
    VERIFY_EQ(need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS)) & kCounters, bit(0));
  }
}

SKIDPROOF_TEST(PmuStatus, LosesExactlyTheBitsWrittenToOvfCtrl, clause::M15, clause::M34) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const unsigned last = std::min(reported_counters(machine()), 4U) - 1;
  SessionPlan plan = overflowing(*event, {0, last});
  plan.fixed = {overflowing_fixed(uarch(), 0), overflowing_fixed(uarch(), 1)};
  Sampled sampled = need(sample(machine(), plan, program("nop_sled"), 50));
  uint64_t expected = bit(0) | bit(last) | kFixed0 | kFixed0 << 1;
  VERIFY_EQ(sampled.run.global_status & kCounters, expected);

  for (uint64_t clear : {uint64_t{0}, kFixed0 << 2, kFixed0, bit(0) | kFixed0 << 1, bit(last)}) {
    need(machine().wrmsr(IA32_PERF_GLOBAL_OVF_CTRL, clear));
    expected &= ~clear;
    VERIFY_EQ(need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS)) & kCounters, expected)
        << "after a write of " << results::hex(clear);
  }
}

SKIDPROOF_TEST(PmuStatus, KeepsTheBitOfACounterWithoutPebs, clause::M34, clause::R17) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("nop_sled");
  const unsigned counter = std::min(reported_counters(machine()), 3U) - 1;
  Sampled sampled = need(sample(machine(), overflowing(*event, {counter}), code, 50));
  VERIFY_EQ(sampled.run.global_status & kCounters, bit(counter));

  const SessionRun later = need(sampled.session.resume(code, 200));

  VERIFY_EQ(later.global_status & kCounters, bit(counter))
      << "it stays while the counter counts on";
  need(machine().wrmsr(IA32_PERF_GLOBAL_OVF_CTRL, bit(counter)));
  VERIFY_EQ(need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS)) & kCounters, 0u);
}

// PMC0 or another samples; the next counter and fixed counter 0 overflow without PEBS.
SKIDPROOF_TEST_OVER(PmuStatus, LosesOnlyTheRecordsOwnBits, over::counters({0, 1, 2, 3}),
                    clause::R17, clause::R18, clause::D10) {
  const auto counter = static_cast<unsigned>(param().number());
  const unsigned other = (counter + 1) % std::min(reported_counters(machine()), 4U);
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "no precise store event on this counter");
  const uint64_t period = usable_period(uarch(), 40);
  SessionPlan plan = one_counter(counter, *event, period, 8);
  plan.counters.push_back(CounterSetup::of(other, *event, period / 2, false));
  plan.fixed = {overflowing_fixed(uarch(), 0)};

  Sampled sampled =
      need(sample(machine(), plan, program("sparse_event", sparse_parameters(uarch(), "taken")),
                  iterations_for_exactly(2, period)));

  evidence("status", results::hex(sampled.run.global_status));
  VERIFY_EQ(sampled.records().size(), 2u);
  VERIFY_EQ(sampled.run.global_status & kCounters, bit(other) | kFixed0);
}

}  // namespace skidproof::check::pmu_status
