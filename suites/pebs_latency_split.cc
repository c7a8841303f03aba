// Latencies in adaptive records: the instruction's and the caches' share of a load's (A12), the time
// since the retirement before (R63), and how load latency is enabled (A19).
#include <cstdint>
#include <map>
#include <vector>

#include "harness/check/check.h"
#include "pebs/arch/msr.h"
#include "suites/adaptive.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check {
namespace {

using namespace suites;
using arch::bit;
using arch::EventKind;

constexpr uint64_t kPeriod = 32;
constexpr size_t kRecords = 50;
constexpr uint64_t kLoadsATag = 8;  // as pebs_load_latency has it
constexpr char kResident[] = "bytes=8K";
constexpr char kPages[] = "bytes=8M,granularity=4K,stagger=1";

unsigned latency_counter(const arch::Microarch& microarch) {
  return static_cast<unsigned>(__builtin_ctz(microarch.load_latency_counters));
}
SessionPlan latency_plan(const arch::Microarch& microarch, unsigned counter) {
  const arch::Event& event = *facility_event(microarch, EventKind::kLoadLatency);
  return one_counter(counter, event, usable_period(microarch, kPeriod), kRecords);
}
uint64_t iterations_of(const arch::Microarch& microarch) {
  return iterations_for(kRecords, usable_period(microarch, kPeriod)) * kLoadsATag;
}

}  // namespace

SKIDPROOF_TEST_OVER(PebsLatencySplit, HoldsBothLatenciesOfALoad,
                    over::words({kResident, "bytes=1M", kPages}), clause::A12, clause::P12) {
  SKIDPROOF_REQUIRE(uarch().record->cache_latency_shift != 0, SkipCategory::kNotOnThisMicroarch,
                    "the record does not split the latency");
  const Program& chase = program("pointer_chase", param().word());
  Sampled sampled = need(sample(machine(), latency_plan(uarch(), latency_counter(uarch())), chase,
                                iterations_of(uarch())));
  uint64_t all = 0, caches = 0;
  for (Record record : sampled.records()) {
    VERIFY_GT(record.cache_latency(), 0u) << "a load of " << record.latency() << " cycles";
    VERIFY_LE(record.cache_latency(), record.latency());
    VERIFY_GT(record.latency(), 3u) << "the threshold";
    all += record.latency();
    caches += record.cache_latency();
  }
  evidence("instruction-latency", all);
  evidence("cache-latency", caches);
  VERIFY_GE(sampled.records().size(), kRecords / 2);
  if (param().word() == kPages) {
    VERIFY_LT(caches, all) << "2048 pages: translation takes its part";
  }
}

// On every counter that is published, with no other bit set than the counter's own.
SKIDPROOF_TEST_OVER(PebsLatencySplit, NeedsNoOtherEnableBit,
                    over::counters({0, 1, 2, 3, 4, 5, 6, 7}), clause::A19, clause::A14,
                    clause::A11) {
  SKIDPROOF_REQUIRE(uarch().load_latency_event != 0 && uarch().load_latency_enable == 0,
                    SkipCategory::kNotOnThisMicroarch, "load latency has its own enable bits");
  const auto counter = static_cast<unsigned>(param().number());
  SKIDPROOF_REQUIRE((uarch().load_latency_counters >> counter & 1) != 0,
                    SkipCategory::kNotOnThisMicroarch, "not published on this counter");
  const Program& chase = program("pointer_chase", kResident);
  SessionPlan plan = latency_plan(uarch(), counter);
  plan.pebs_enable = bit(counter);
  Sampled sampled = need(sample(machine(), plan, chase, iterations_of(uarch())));
  uint64_t found = 0;
  for (Record record : sampled.records()) {
    VERIFY_EQ(record.applicable_counters(), bit(counter));
    VERIFY_GT(record.latency(), 3u) << "the threshold";
    const uint64_t address = record.data_address();
    found += address >= chase.data_address && address < chase.data_address + chase.data_bytes;
  }
  evidence("records", found);
  VERIFY_GE(found, kRecords / 2);
  plan.pebs_enable = bit(arch::pebs_enable::kFixedShift);  // fixed counter 0, which does not run
  need(sampled.session.close());
  Sampled without = need(sample(machine(), plan, chase, iterations_of(uarch())));
  VERIFY_EQ(without.records().size(), 0u);
}

// --- Retire latency

// The times between retirements add up to the time of an iteration, whatever the loop waits for.
SKIDPROOF_TEST_OVER(PebsLatencySplit, RetireLatenciesAddUpToTheCycles,
                    (std::vector<Param>{
                        {.label = "division", .words = {"division_shadow", "operation=div"}},
                        {.label = "chase", .words = {"pointer_chase", kPages}},
                    }),
                    clause::R63) {
  SKIDPROOF_REQUIRE(uarch().pebs_timing_info, SkipCategory::kNotOnThisMicroarch,
                    "the record has no retire latency");
  SKIDPROOF_REQUIRE(uarch().pdir_fixed_counter != 0, SkipCategory::kNotOnThisMicroarch,
                    "no precise distribution on a fixed counter");
  const Program& loop = program(param().word(0), param().word(1));
  const LoopPath path = LoopPath::of(loop, forward_jumps(true));
  const unsigned i = fixed_pdir(uarch());
  // Every instruction of the loop in turn: the records' distance is no multiple of its length.
  uint64_t each = std::max<uint64_t>(197, uarch().pdir_minimum_period);
  while (each % path.size() != 1) ++each;
  // So few loads that the chase comes to each of its pages for the first time.
  const uint64_t records = 10 * path.size();
  SessionPlan plan;
  plan.buffer_records = records + 16;
  plan.fixed = {
      {.counter = i, .pebs = true, .period = each - (instructions_a_record(uarch(), each) - each)},
      {.counter = 1}};
  const uint64_t iterations = records * each / path.size() + 1;
  Session session = need(Session::open(machine(), plan));
  const SessionRun run = need(session.run(loop, iterations));

  std::map<uint64_t, std::pair<double, double>> of;  // by instruction: cycles, records
  for (Record record : session.records()) {
    if (!path.position(record.eventing_ip())) continue;
    auto& [cycles, times] = of[record.eventing_ip()];
    cycles += static_cast<double>(record.retire_latency());
    times += 1;
  }
  double sum = 0;
  for (const auto& [ip, found] : of) sum += found.first / found.second;
  const double expected = static_cast<double>(run.fixed[1]) / static_cast<double>(iterations);
  evidence("sum-of-retire-latencies", sum);
  evidence("cycles-an-iteration", expected);
  // Of a fused pair, which retires together (R72), the walk may always meet the first half.
  VERIFY_GE(of.size() + 1, path.size()) << "every instruction of the loop was sampled";
  VERIFY_GE(sum, 0.9 * expected - 1);
  VERIFY_LE(sum, 1.1 * expected + 1);
}

SKIDPROOF_TEST(PebsLatencySplit, HasNoRetireLatencyWhereNoneIsAnnounced, clause::R63, clause::A2) {
  SKIDPROOF_REQUIRE(uarch().pebs_baseline, SkipCategory::kNotOnThisMicroarch, kNoAdaptiveRecords);
  const bool announced = (need(machine().rdmsr(arch::IA32_PERF_CAPABILITIES)) &
                          arch::capabilities::kPebsTimingInfo) != 0;
  VERIFY_EQ(announced, uarch().pebs_timing_info);
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = precise_event(uarch(), arch::Signal::kLoads, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, "no precise load event");
  const Program& chase = program("pointer_chase", kPages);
  Sampled sampled = need(sample(machine(), one_counter(counter, *event, 50, 16), chase, 4000));
  VERIFY_EQ(sampled.records().size(), 16u);
  for (Record record : sampled.records()) {
    const uint64_t field = record.header() >> arch::adaptive::kRetireLatencyShift & 0xFFFF;
    if (announced) {
      VERIFY_GT(field, 0u) << "a chase waits for each of its loads";
    } else {
      VERIFY_EQ(field, 0u);
    }
  }
}

}  // namespace skidproof::check
