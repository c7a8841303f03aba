// Narrow questions about records: what one published erratum spoils and nothing else does, or what it leaves
// alone and another violation would not (pebs/arch/errata).
#include <algorithm>
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

// Cycles, sampled as public practice does. A record that follows another within a few iterations has no period
// behind it: unless the counter that is sampled sees the cycles of its own records, and these are as many.
SKIDPROOF_TEST_OVER(PebsSignatures, RecordAPeriodOfCyclesOnce,
                    over::numbers("period=", {900, 1000}), clause::R1, clause::R33) {
  constexpr unsigned kInvertedCmask = arch::kQualifierInvert | arch::kQualifierCmask;
  SKIDPROOF_REQUIRE(uarch().architectural_perfmon() &&
                        uarch().expectation(kInvertedCmask) == arch::Expectation::kClassify,
                    SkipCategory::kNotOnThisMicroarch, "nobody samples cycles so");
  const unsigned counter = arming_counter(uarch());
  const uint64_t period = param().number();
  SKIDPROOF_REQUIRE(every_cycle(uarch(), counter, period).has_value(),
                    SkipCategory::kNotOnThisMicroarch, "no event samples nearly every instruction");
  // Loads one after the other, of which none comes in fewer cycles than it has instructions.
  const Program& code = program("pointer_chase", "bytes=1K");
  const size_t room = safe_records(uarch(), 128);
  const auto run = [&](uint64_t each, bool pebs, uint64_t iterations) {
    CounterSetup setup = *every_cycle(uarch(), counter, each);
    setup.pebs = pebs;
    SessionPlan plan = one_counter(setup, room);
    plan.fixed = {{.counter = 1}};
    return need(sample(machine(), plan, code, iterations));
  };
  constexpr uint64_t kIterations = 10'000, kLong = 4000;
  const uint64_t alone = run(kLong, false, kIterations).run.fixed.at(0);
  const uint64_t each = std::max<uint64_t>(alone / kIterations, 1);
  const uint64_t iterations = room * kLong / 2 / each;
  const uint64_t undisturbed = run(kLong, false, iterations).run.fixed.at(0);
  const Sampled rarely = run(kLong, true, iterations);
  const uint64_t few = rarely.records().size();
  observe("cycles-sampled", few != 0);
  SKIDPROOF_REQUIRE(few != 0, SkipCategory::kNoPromise, "no record with these qualifiers");
  const uint64_t cycles = std::max(rarely.run.fixed.at(0), undisturbed);
  const bool sees = few * kLong > undisturbed + (cycles - undisturbed) / 2;
  evidence("cycles-a-record", (cycles - undisturbed) / few);
  evidence("sees-its-own-records", sees);
  constexpr uint64_t kClose = 4;  // iterations
  SKIDPROOF_REQUIRE(!sees || (cycles - undisturbed) / few + 4 * kClose * each < period,
                    SkipCategory::kNoPromise, "a record takes a period, and the counter sees it");

  const Sampled often = run(period, true, room * period / 4 / each);
  uint64_t close = 0, before = 0;
  for (Record record : often.records()) {
    const uint64_t left = record.gpr(arch::Gpr::kRdi);
    close += before != 0 && before - left < kClose ? 1 : 0;
    before = left;
  }
  evidence("records", often.records().size());
  evidence("close", close);
  VERIFY_GE(often.records().size(), 5u);
  VERIFY_LE(close, often.records().size() / 8);
}

}  // namespace skidproof::check
