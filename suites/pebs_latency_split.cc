// Latencies in adaptive records: the instruction's and the caches' share of a load's (A12), the time
// since the retirement before (R63), and how load latency is enabled (A19).
#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "harness/check/check.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/capabilities.h"
#include "suites/adaptive.h"
#include "suites/exact.h"
#include "suites/load_latency.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_latency_split {
namespace {

using namespace suites;
using arch::bit;
using arch::EventKind;

constexpr size_t kRecords = 50;
constexpr char kResident[] = "bytes=8K";
constexpr char kPages[] = "bytes=8M,granularity=4K,stagger=1";
// Thousands of pages, the lines in few sets of each cache: a load waits for hundreds of cycles.
constexpr char kFarPages[] = "bytes=@beyond-l3,granularity=4K";

SessionPlan latency_plan(const arch::Microarch& microarch, unsigned counter) {
  return suites::latency_plan(microarch, counter, kRecords);
}
#define SKIDPROOF_TAGGING calibrated(calibrate::Quantity::kLoadsATag)

double mean(const std::vector<double>& sorted, size_t of) {
  return std::accumulate(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(of), 0.0) /
         static_cast<double>(of);
}
// Without the largest eighth: few have what is not usual, as an interrupt or the mispredicted end of the loop.
double usual_mean(const std::vector<double>& sorted) {
  return mean(sorted, sorted.size() - sorted.size() / 8);
}

}  // namespace

SKIDPROOF_SUITE(PebsLatencySplit, kOneRecord);

SKIDPROOF_TEST_OVER(PebsLatencySplit, HoldsBothLatenciesOfALoad,
                    over::words({kResident, "bytes=1M", kPages}), clause::A12, clause::P12) {
  SKIDPROOF_REQUIRE(uarch().record->cache_latency_shift != 0, SkipCategory::kNotOnThisMicroarch,
                    "the record does not split the latency");
  const Program& chase = program("pointer_chase", param().word());
  TaggedLoads sampled = need(sample_tagged(
      machine(), latency_plan(uarch(), latency_counter(uarch())), chase, SKIDPROOF_TAGGING));
  SKIDPROOF_REQUIRE_TAGS(sampled);
  uint64_t all = 0, caches = 0;
  for (Record record : sampled.records()) {
    VERIFY_GT(record.cache_latency(), 0u) << "a load of " << record.latency() << " cycles";
    VERIFY_LE(record.cache_latency(), record.latency());
    VERIFY_GT(record.latency(), least_threshold(uarch())) << "the threshold";
    all += record.latency();
    caches += record.cache_latency();
  }
  evidence("instruction-latency", all);
  evidence("cache-latency", caches);
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
  TaggedLoads sampled = need(sample_tagged(machine(), plan, chase, SKIDPROOF_TAGGING));
  if (!sampled.enough()) {
    // Whether it needs the bit that other generations have, where that can be set at all.
    need(sampled.session.close());
    const uint64_t enable = bit(counter) | bit(arch::pebs_enable::kLoadLatencyShift + counter);
    plan.pebs_enable = enable & arch::writable_pebs_enable(uarch());
    const size_t more = need(sample(machine(), plan, chase, sampled.iterations)).records().size();
    if (more > sampled.recorded + sampled.wanted) {
      VERIFY_EQ(sampled.recorded, more) << "without and with bit 32 + n";
    }
  }
  SKIDPROOF_REQUIRE_TAGS(sampled);
  uint64_t found = 0;
  for (Record record : sampled.records()) {
    VERIFY_EQ(record.applicable_counters(), bit(counter));
    VERIFY_GT(record.latency(), least_threshold(uarch())) << "the threshold";
    const uint64_t address = record.data_address();
    found += address >= chase.data_address && address < chase.data_address + chase.data_bytes;
  }
  evidence("records", found);
  VERIFY_GE(found, kRecords / 2);
  plan.pebs_enable = bit(arch::pebs_enable::kFixedShift);  // fixed counter 0, which does not run
  need(sampled.session.close());
  Sampled without = need(sample(machine(), plan, chase, sampled.iterations));
  VERIFY_EQ(without.records().size(), 0u);
}

// --- Retire latency

// The times between retirements add up to the time of an iteration, and the instruction that the loop
// waits for takes nearly all of it: the others retire one a cycle at least. On a general-purpose
// counter: of fixed counter 0 the field is undefined. [SDM Vol. 3 (325384-089), 21.9]
SKIDPROOF_TEST_OVER(PebsLatencySplit, RetireLatenciesAddUpToTheCycles,
                    (std::vector<Param>{
                        {.label = "division",
                         .numbers = {arch::index(arch::Signal::kInstructions), 2000},
                         .words = {"division_shadow", "operation=div", "div"}},
                        {.label = "chase",
                         .numbers = {arch::index(arch::Signal::kLoads), 2000},
                         .words = {"pointer_chase", kPages, "load"}},
                        {.label = "far_chase",
                         .numbers = {arch::index(arch::Signal::kLoads), 16'384},
                         .words = {"pointer_chase", kFarPages, "load"}},
                    }),
                    clause::R63) {
  SKIDPROOF_REQUIRE(capabilities_of(machine()).timing_info, SkipCategory::kMachineLimit,
                    "IA32_PERF_CAPABILITIES[17] announces no retire latency");
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event =
      precise_event(uarch(), static_cast<arch::Signal>(param().number()), counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, "no such precise event");
  const Program& loop = program(param().word(0), param().word(1));
  const LoopPath path = LoopPath::of(loop, forward_jumps(true));
  const uint64_t iterations = param().number(1);
  // Counted without a record, since each takes hundreds of cycles; the second time, as the sampled runs
  // meet what the one before left in the caches.
  SessionPlan counting;
  counting.fixed = {{.counter = 1}};
  uint64_t cycles = 0;
  for (int time = 0; time < 2; ++time) {
    cycles = need(sample(machine(), counting, loop, iterations)).run.fixed.at(0);
  }
  // Records from all of the run, not of its beginning alone. A period of its own for each: one for all could
  // keep step with the loop.
  const bool loads = event->signal == arch::Signal::kLoads;
  const Expectations all = loop.total(iterations);
  const uint64_t events = loads ? all.loads : all.instructions;
  std::map<uint64_t, std::vector<double>> of;  // cycles, by instruction
  for (int run = 0; run < 8; ++run) {
    const uint64_t wish = std::max<uint64_t>(97, events * 9 / 8 / kRecords) + random().below(64);
    const uint64_t period = usable_period(uarch(), counter, *event, wish);
    const Sampled sampled =
        need(sample(machine(), one_counter(counter, *event, period, kRecords), loop, iterations));
    for (Record record : sampled.records()) {
      if (!path.position(record.eventing_ip())) continue;
      of[record.eventing_ip()].push_back(static_cast<double>(record.retire_latency()));
    }
  }
  double sum = 0;
  for (auto& [ip, found] : of) {
    constexpr size_t kEnough = 8;  // to tell what is usual
    std::sort(found.begin(), found.end());
    if (found.size() >= kEnough) sum += usual_mean(found);
  }
  const auto slow = of.find(loop.mark(param().word(2)));
  VERIFY_TRUE(slow != of.end()) << "the instruction that the loop waits for was sampled";
  if (slow == of.end()) return;
  const double waited = mean(slow->second, slow->second.size());
  const double expected = static_cast<double>(cycles) / static_cast<double>(iterations);
  evidence("sum-of-retire-latencies", sum);
  evidence("of-the-slow-instruction", waited);
  evidence("cycles-an-iteration", expected);
  VERIFY_GE(waited, 0.9 * expected - static_cast<double>(path.size()));
  VERIFY_LE(sum, 1.1 * expected + 1);
}

SKIDPROOF_TEST(PebsLatencySplit, HasNoRetireLatencyWhereNoneIsAnnounced, clause::R63, clause::A2) {
  SKIDPROOF_REQUIRE(uarch().pebs_baseline, SkipCategory::kNotOnThisMicroarch, kNoAdaptiveRecords);
  const bool announced = (need(machine().rdmsr(arch::IA32_PERF_CAPABILITIES)) &
                          arch::capabilities::kPebsTimingInfo) != 0;
  evidence("announced", announced);
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

}  // namespace skidproof::check::pebs_latency_split
