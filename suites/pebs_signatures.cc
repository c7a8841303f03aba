// Narrow questions about records: what one published erratum spoils and nothing else does, or what it leaves
// alone and another violation would not (pebs/arch/errata_tests.inc).
#include <cstdint>
#include <optional>
#include <set>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/load_latency.h"
#include "suites/sampling.h"

namespace skidproof::check {
namespace {

using namespace suites;
using arch::EventKind;

// What samples every cycle: a published encoding, or an event of nearly every instruction of which no cycle has
// sixteen.
std::optional<CounterSetup> every_cycle(const arch::Microarch& microarch, unsigned counter,
                                        uint64_t period) {
  for (const arch::Event& e : microarch.events) {
    if (e.precise() && e.cmask >= 10 && e.invert && ((e.pebs_counters >> counter) & 1) != 0) {
      return CounterSetup::of(counter, e, period);
    }
  }
  const arch::Event* event = dense_event(microarch, counter);
  if (event == nullptr) return std::nullopt;
  CounterSetup setup = CounterSetup::of(counter, *event, period);
  setup.cmask = 16;
  setup.invert = true;
  return setup;
}

}  // namespace

SKIDPROOF_SUITE(PebsSignatures, kOneRecord);

// Of the program alone, whatever the other thread loads.
SKIDPROOF_TEST(PebsSignatures, RecordLoadLatencyOnASharedCore, clause::P11) {
  SKIDPROOF_REQUIRE(machine().identity().sibling_thread, SkipCategory::kNeedsSibling,
                    "no other thread shares the core");
  const arch::Event* event = facility_event(uarch(), EventKind::kLoadLatency);
  SKIDPROOF_REQUIRE(event != nullptr && uarch().load_latency_counters != 0,
                    SkipCategory::kNotOnThisMicroarch, "no load latency facility");
  const Program& chase = program("pointer_chase", "bytes=8K");
  SessionPlan plan = latency_plan(uarch(), latency_counter(uarch()), 32);
  plan.keep_sibling_busy = true;

  TaggedLoads sampled =
      need(sample_tagged(machine(), plan, chase, calibrated(calibrate::Quantity::kLoadsATag)));

  evidence("records", sampled.recorded);
  SKIDPROOF_REQUIRE_TAGS(sampled);
  VERIFY_GE(sampled.recorded, sampled.wanted);
  SKIDPROOF_REQUIRE(sampled.run.log.sibling_busy, SkipCategory::kMachineLimit, kSiblingIdle);
}

// Half of the instructions are MOV SS, which keep the processor longer than the other half, no-operations.
SKIDPROOF_TEST(PebsSignatures, RecordTheInstructionBehindAMovSs, clause::R5, clause::R12) {
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = dense_event(uarch(), counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "no event samples nearly every instruction");
  const Program& code = program("special_instruction", "instruction=mov_ss,unroll=16");
  std::set<uint64_t> behind;
  for (const auto& [name, address] : code.marks) {
    if (name.starts_with("behind")) behind.insert(address);
  }
  uint64_t records = 0, directly = 0;
  for (uint64_t run = 0; run < 8; ++run) {
    const uint64_t period = usable_period(uarch(), counter, *event, 61 + run);
    const SessionPlan plan = one_counter(counter, *event, period, safe_records(uarch(), 20));
    const Sampled sampled = need(sample(machine(), plan, code, 400));
    for (Record record : sampled.records()) {
      ++records;
      directly += behind.contains(record.ip()) ? 1 : 0;
    }
  }
  evidence("records", records);
  evidence("directly-behind", directly);
  VERIFY_GE(records, 50u);
  VERIFY_GT(directly, 0u);
}

// Cycles, sampled as public practice does: by an event that no cycle has ten of, inverted. No more records than
// there were periods.
SKIDPROOF_TEST_OVER(PebsSignatures, RecordAPeriodOfCyclesOnce,
                    over::numbers("period=", {500, 1000}), clause::R1, clause::R33) {
  constexpr unsigned kInvertedCmask = arch::kQualifierInvert | arch::kQualifierCmask;
  SKIDPROOF_REQUIRE(uarch().architectural_perfmon() &&
                        uarch().expectation(kInvertedCmask) == arch::Expectation::kClassify,
                    SkipCategory::kNotOnThisMicroarch, "nobody samples cycles so");
  const unsigned counter = arming_counter(uarch());
  const uint64_t period = param().number();
  const std::optional<CounterSetup> setup = every_cycle(uarch(), counter, period);
  SKIDPROOF_REQUIRE(setup.has_value(), SkipCategory::kNotOnThisMicroarch,
                    "no event samples nearly every instruction");
  const size_t room = safe_records(uarch(), 256);
  SessionPlan plan = one_counter(*setup, room);
  plan.fixed = {{.counter = 1}};
  // Loads one after the other, of which none comes in fewer cycles than it has instructions.
  const Program& code = program("pointer_chase", "bytes=1K");
  uint64_t cycles = 0, records = 0;
  for (uint64_t run = 0; run < 8; ++run) {
    // Less than half the room, if a period is recorded once.
    const uint64_t iterations = room * period / 32;
    const Sampled sampled = need(sample(machine(), plan, code, iterations));
    cycles += sampled.run.fixed.at(0);
    records += sampled.records().size();
  }

  evidence("cycles", cycles);
  evidence("records", records);
  observe("cycles-sampled", records != 0);
  SKIDPROOF_REQUIRE(records != 0, SkipCategory::kNoPromise, "no record with these qualifiers");
  VERIFY_LE(records, cycles / period + 8);
}

}  // namespace skidproof::check
