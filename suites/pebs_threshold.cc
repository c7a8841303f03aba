// Threshold interrupt: raised when the index, after the record, has reached the threshold, and not
// before; what OvfBuffer, the LVT entry and the freeze do with it; and how late it arrives.
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "harness/check/check.h"
#include "harness/stats/histogram.h"
#include "pebs/arch/reserved.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_threshold {
namespace {

using namespace suites;
using arch::bit;
using arch::pebs_overflow;
using arch::Signal;

constexpr size_t kRoom = 12;  // records up to the maximum
constexpr uint64_t kWishedPeriod = 40;
constexpr uint64_t kPeriodWithHandlers = 500;

constexpr char kNoEvent[] = "no precise load event on PMC0";

// PMC0 on loads; the threshold behind so many records, or past the maximum.
SessionPlan threshold_plan(const arch::Microarch& microarch, const arch::Event& event,
                           std::optional<size_t> threshold) {
  SessionPlan plan =
      one_counter(0, event, usable_period(microarch, 0, event, kWishedPeriod), kRoom);
  plan.threshold_records = threshold;
  return plan;
}

// Runs until exactly so many records have been written.
Expected<Sampled> sample_records(Machine& machine, const SessionPlan& plan, const Program& code,
                                 uint64_t records) {
  const uint64_t period = plan.counters[0].period;
  const uint64_t each =
      events_a_record(*machine.identity().microarch, plan.counters[0].counter, period);
  return sample(machine, plan, code, records * each + period / 2);
}

}  // namespace

SKIDPROOF_SUITE(PebsThreshold, kInterrupt);

// The last of them fills the buffer, too.
SKIDPROOF_TEST_OVER(PebsThreshold, InterruptsWithTheThresholdRecordAndNotBefore,
                    over::numbers("threshold=", {1, 2, 5, kRoom}), clause::R44, clause::R21,
                    clause::D5, clause::D6, clause::D12, clause::D13a) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const size_t threshold = param().number();
  const SessionPlan plan = threshold_plan(uarch(), *event, threshold);
  {
    Sampled before = need(sample_records(machine(), plan, code, threshold - 1));
    VERIFY_EQ(before.records().size(), threshold - 1);
    VERIFY_EQ(before.run.log.pmis.size(), 0u) << "one record short of the threshold";
    VERIFY_EQ(before.run.global_status & pebs_overflow(uarch()), 0u);
  }

  Sampled sampled = need(sample_records(machine(), plan, code, threshold));

  evidence("records", sampled.records().size());
  evidence("interrupts", sampled.run.log.pmis.size());
  VERIFY_EQ(sampled.records().size(), threshold);
  VERIFY_EQ(sampled.run.log.pmis.size(), 1u);
  for (const Pmi& pmi : sampled.run.log.pmis) {
    VERIFY_EQ(pmi.pebs_index, sampled.session.threshold()) << "the index that the handler sees";
    VERIFY_EQ(pmi.global_status & pebs_overflow(uarch()), pebs_overflow(uarch()));
  }
}

// The threshold one record above the base, and a handler that takes the record away (D7). What the
// handlers load with the counters on is less than half a period in sum.
SKIDPROOF_TEST(PebsThreshold, InterruptsOnceForEachRecordThatTheHandlerTakes, clause::R44,
               clause::D7, clause::R49) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  SessionPlan plan = threshold_plan(uarch(), *event, 1);
  plan.counters[0].period = usable_period(uarch(), 0, *event, kPeriodWithHandlers);
  plan.pmi.rewind_index = true;

  Sampled sampled = need(sample_records(machine(), plan, code, 20));

  evidence("interrupts", sampled.run.log.pmis.size());
  VERIFY_EQ(sampled.run.log.pmis.size(), 20u);
  for (const Pmi& pmi : sampled.run.log.pmis) {
    VERIFY_EQ(pmi.pebs_index, sampled.session.threshold());
  }
  VERIFY_EQ(sampled.session.index(), sampled.session.base());
}

SKIDPROOF_TEST(PebsThreshold, KeepsOvfBufferUntilSoftwareClearsBit62, clause::R22, clause::R21,
               clause::M15) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  SessionPlan plan = threshold_plan(uarch(), *event, 2);
  plan.pmi.clear_status = false;
  Sampled sampled = need(sample_records(machine(), plan, code, 2));
  VERIFY_EQ(sampled.run.global_status & pebs_overflow(uarch()), pebs_overflow(uarch()));

  // One more record, short of the threshold again.
  sampled.session.rewind();
  const SessionRun again = need(sampled.session.resume(code, plan.counters[0].period + 1));
  VERIFY_EQ(sampled.records().size(), 1u);
  VERIFY_EQ(again.global_status & pebs_overflow(uarch()), pebs_overflow(uarch()))
      << "a record does not clear it";

  need(machine().wrmsr(arch::IA32_PERF_GLOBAL_OVF_CTRL, bit(0)));
  VERIFY_EQ(need(machine().rdmsr(arch::IA32_PERF_GLOBAL_STATUS)) & pebs_overflow(uarch()),
            pebs_overflow(uarch()))
      << "another bit's clearing does not clear it";
  need(machine().wrmsr(arch::IA32_PERF_GLOBAL_OVF_CTRL, pebs_overflow(uarch())));
  VERIFY_EQ(need(machine().rdmsr(arch::IA32_PERF_GLOBAL_STATUS)) & pebs_overflow(uarch()), 0u);
}

SKIDPROOF_TEST(PebsThreshold, IsSilentWithTheThresholdPastTheMaximum, clause::R50, clause::D8,
               clause::R44) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));

  Sampled sampled =
      need(sample_records(machine(), threshold_plan(uarch(), *event, {}), code, kRoom + 3));

  evidence("records", sampled.records().size());
  VERIFY_EQ(sampled.records().size(), kRoom);
  VERIFY_EQ(sampled.run.log.pmis.size(), 0u);
}

// With INT clear neither the overflow nor the record of a PEBS counter interrupts (R35).
SKIDPROOF_TEST_OVER(PebsThreshold, IsTheOnlyInterruptOfAPebsCounter, over::counters({0, 1, 2, 3}),
                    clause::R35, clause::M30) {
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "no precise store event on this counter");
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  SessionPlan plan =
      one_counter(counter, *event, usable_period(uarch(), counter, *event, kWishedPeriod), kRoom);
  plan.threshold_records = 6;

  Sampled below = need(sample_records(machine(), plan, code, 5));
  VERIFY_EQ(below.records().size(), 5u);
  VERIFY_EQ(below.run.log.pmis.size(), 0u);
  need(below.session.close());

  Sampled at = need(sample_records(machine(), plan, code, 6));
  VERIFY_EQ(at.records().size(), 6u);
  VERIFY_EQ(at.run.log.pmis.size(), 1u);
}

SKIDPROOF_TEST(PebsThreshold, IsHeldBackByAMaskedLvtEntry, clause::R51, clause::M26) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  SessionPlan plan = threshold_plan(uarch(), *event, 2);
  plan.mask_interrupts = true;

  Sampled sampled = need(sample_records(machine(), plan, code, 4));

  VERIFY_EQ(sampled.records().size(), 4u);
  VERIFY_EQ(sampled.run.global_status & pebs_overflow(uarch()), pebs_overflow(uarch()))
      << "the threshold was reached";
  VERIFY_EQ(sampled.run.log.pmis.size(), 0u);
}

SKIDPROOF_TEST(PebsThreshold, MasksTheLvtEntryOnDelivery, clause::R51) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  SessionPlan plan = threshold_plan(uarch(), *event, 1);
  plan.pmi.unmask = false;

  Sampled sampled = need(sample_records(machine(), plan, code, 4));

  VERIFY_EQ(sampled.records().size(), 4u);
  VERIFY_EQ(sampled.run.log.pmis.size(), 1u) << "the second one finds the entry masked";
  const uint64_t entry = need(machine().rdmsr(arch::IA32_X2APIC_LVT_PMI));
  evidence("lvt", results::hex(entry));
  VERIFY_EQ(entry & arch::lvt::kMasked, arch::lvt::kMasked);
}

// At whichever record it comes.
SKIDPROOF_TEST(PebsThreshold, SaysWhyWhenItArrives, clause::R21, clause::R55) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));

  Sampled sampled = need(sample_records(machine(), threshold_plan(uarch(), *event, 2), code, 6));

  const std::vector<Pmi>& pmis = sampled.run.log.pmis;
  const uint64_t status = pmis.empty() ? 0 : pmis.front().global_status;
  VERIFY_GE(pmis.size(), 1u);
  VERIFY_EQ(status & pebs_overflow(uarch()), pebs_overflow(uarch()));
}

SKIDPROOF_TEST(PebsThreshold, FreezesTheCountersWhereDebugctlSaysSo, clause::R52, clause::R53,
               clause::R21) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  SKIDPROOF_REQUIRE(uarch().perfmon_version < 4, SkipCategory::kNotOnThisMicroarch,
                    "from version 4 on the freeze sets CTR_Frz instead");
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  SessionPlan plan = threshold_plan(uarch(), *event, 3);
  plan.freeze_on_pmi = true;

  Sampled sampled = need(sample_records(machine(), plan, code, 6));

  VERIFY_EQ(sampled.run.log.pmis.size(), 1u);
  for (const Pmi& pmi : sampled.run.log.pmis) {
    VERIFY_EQ(pmi.global_ctrl, 0u);
    VERIFY_EQ(pmi.global_status & pebs_overflow(uarch()), pebs_overflow(uarch()))
        << "the freeze hides no reason";
  }
  VERIFY_EQ(sampled.records().size(), 3u) << "nothing counts behind the freeze";
}

SKIDPROOF_TEST(PebsThreshold, CountsOnWhenTheHandlerUndoesTheFreeze, clause::R52) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  SKIDPROOF_REQUIRE(uarch().perfmon_version < 4, SkipCategory::kNotOnThisMicroarch,
                    "from version 4 on the freeze sets CTR_Frz instead");
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  SessionPlan plan = threshold_plan(uarch(), *event, 3);
  plan.freeze_on_pmi = true;
  plan.pmi.restore_global_ctrl = true;

  Sampled sampled = need(sample_records(machine(), plan, code, 6));

  VERIFY_GE(sampled.run.log.pmis.size(), 1u);
  for (const Pmi& pmi : sampled.run.log.pmis) VERIFY_EQ(pmi.global_ctrl, 0u);
  VERIFY_GT(sampled.records().size(), 3u);
}

SKIDPROOF_TEST(PebsThreshold, LeavesTheCountersRunningWithoutTheFreeze, clause::R52) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));

  Sampled sampled = need(sample_records(machine(), threshold_plan(uarch(), *event, 3), code, 6));

  VERIFY_GE(sampled.run.log.pmis.size(), 1u);
  for (const Pmi& pmi : sampled.run.log.pmis) VERIFY_EQ(pmi.global_ctrl, bit(0));
  VERIFY_EQ(sampled.records().size(), 6u);
}

// A PEBS counter with INT clear freezes nothing before its threshold.
SKIDPROOF_TEST(PebsThreshold, FreezesNothingBeforeTheThreshold, clause::R52, clause::R50) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  SessionPlan plan = threshold_plan(uarch(), *event, {});
  plan.freeze_on_pmi = true;

  Sampled sampled = need(sample_records(machine(), plan, code, 6));

  VERIFY_EQ(sampled.run.log.pmis.size(), 0u);
  VERIFY_EQ(sampled.records().size(), 6u);
}

// One-byte no-operations make the distance in bytes the distance in instructions: from the IP of
// the threshold record to where the interrupt found the program. The manual bounds no lateness; it
// forbids an interrupt before its record (R44).
SKIDPROOF_TEST(PebsThreshold, ArrivesBehindItsRecord, clause::R44, clause::R28) {
  const arch::Event* event = dense_event(uarch());
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "no precise uop or instruction event on PMC0");
  constexpr size_t kThreshold = 2;
  const Program& code = program("nop_sled", "count=8192");
  const uint64_t first_nop = code.mark("nop");
  const uint64_t end = first_nop + 8192;
  stats::Histogram instructions;
  stats::Histogram records;
  uint64_t behind_the_sled = 0;
  for (int i = 0; i < 48; ++i) {
    SessionPlan plan = one_counter(0, *event, random().between(800, 2500), 16);
    plan.threshold_records = kThreshold;
    Sampled sampled = need(sample(machine(), plan, code, 1));
    VERIFY_GE(sampled.records().size(), kThreshold);
    VERIFY_GE(sampled.run.log.pmis.size(), 1u);
    if (sampled.records().size() < kThreshold || sampled.run.log.pmis.empty()) return;
    const Pmi& pmi = sampled.run.log.pmis.front();
    VERIFY_GE(pmi.pebs_index, sampled.session.threshold()) << "an interrupt before its record";
    if (pmi.ip < first_nop || pmi.ip >= end) {
      ++behind_the_sled;
      continue;
    }
    const uint64_t recorded = sampled.records()[kThreshold - 1].ip();
    VERIFY_GE(pmi.ip, recorded);
    instructions.add(static_cast<int64_t>(pmi.ip - recorded));
    records.add(static_cast<int64_t>((pmi.pebs_index - sampled.session.threshold()) /
                                     record_bytes(uarch())));
  }
  histogram("pmi-lateness", "instructions", instructions.counts());
  histogram("pmi-lateness-records", "records", records.counts());
  evidence("behind-the-sled", behind_the_sled);
  VERIFY_GT(instructions.total(), 0u) << "no interrupt arrived within the sled";
}

}  // namespace skidproof::check::pebs_threshold
