// Counters and metrics in a record: which ones, where they stand, what they show, and what recording them clears.
#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/check/check.h"
#include "harness/check/outcome.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "suites/adaptive.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_snapshot {
namespace {

using namespace suites;
using arch::bit;
using arch::Signal;
namespace adaptive = arch::adaptive;

constexpr char kNoGroup[] = "no record has counters";
constexpr char kNoEvent[] = "no precise event of jumps on this counter";
constexpr unsigned kEntries = 3;  // of the branch group
constexpr size_t kRecords = 3;

// MSR_PEBS_DATA_CFG: these groups, and these counters.
constexpr uint64_t config_of(uint64_t groups, uint64_t gp, uint64_t fixed) {
  return data_config(groups, kEntries) | gp << adaptive::kIncludeShift |
         fixed << adaptive::kIncludeFixedShift;
}

// A counter that samples jumps of the sparse kernel; every other one stands still and holds a value of its own.
struct Still {
  unsigned sampling = 0;
  const arch::Event* event = nullptr;
  uint64_t period = 0;
};
Still still_of(const arch::Microarch& microarch) {
  const unsigned counter = arming_counter(microarch);
  const arch::Event* event = precise_event(microarch, Signal::kConditional, counter);
  return {counter, event, usable_period(microarch, 40)};
}
// With bits above 31, which every counter shows.
constexpr uint64_t gp_value(unsigned n) { return (uint64_t{0x5A00} + n) << 32 | (0x100 + n); }
constexpr uint64_t fixed_value(unsigned m) { return (uint64_t{0x3C00} + m) << 32 | (0x200 + m); }

uint32_t full_width(const arch::Microarch& microarch, unsigned n) {
  const uint32_t msr = arch::counter_msr(microarch, n);
  return msr == arch::IA32_PMC0 + n ? arch::IA32_A_PMC0 + n : msr;
}

// What the counters hold that do not sample, put back at the end.
class Values {
 public:
  Values(Machine& machine, const arch::Microarch& microarch) : restore_(machine, {}) {
    for (unsigned n = 0; n < 16; ++n) {
      if ((arch::gp_bits(microarch, microarch.gp_counters) >> n & 1) == 0) continue;
      set(machine, full_width(microarch, n), gp_value(n));
    }
    for (unsigned m = 0; m < arch::kMostFixed; ++m) {
      if ((arch::fixed_bits(microarch) >> m & 1) == 0) continue;
      set(machine, arch::fixed_counter_msr(microarch, m), fixed_value(m));
    }
  }
  const Expected<void>& written() const { return written_; }

 private:
  void set(Machine& machine, uint32_t msr, uint64_t value) {
    restore_.add(msr);
    const Expected<void> done = machine.wrmsr(msr, value);
    if (written_ && !done) written_ = done;
  }
  Restore restore_;
  Expected<void> written_;
};

SessionPlan plan_of(const Still& still, uint64_t config) {
  SessionPlan plan = one_counter(still.sampling, *still.event, still.period, 16);
  plan.pebs_data_cfg = config;
  return plan;
}

struct Choice {
  std::string_view label;
  uint64_t groups;
  bool every_gp, every_fixed;
};
constexpr Choice kChoices[] = {
    {"one", adaptive::kCounters, false, false},
    {"general-purpose", adaptive::kCounters, true, false},
    {"fixed", adaptive::kCounters | adaptive::kMemory, false, true},
    {"all", adaptive::kCounters | adaptive::kGprs, true, true},
    {"all-behind-branches", adaptive::kCounters | adaptive::kGroups, true, true},
};
std::vector<Param> choices() {
  std::vector<Param> params;
  for (uint64_t i = 0; i < std::size(kChoices); ++i) {
    params.push_back({.label = std::string(kChoices[i].label), .numbers = {i}});
  }
  return params;
}

}  // namespace

SKIDPROOF_SUITE(PebsSnapshot, kOneRecord);

SKIDPROOF_TEST_OVER(PebsSnapshot, HasTheCountersThatAreIncludedInTheirOrder, choices(), clause::V8,
                    clause::V9, clause::V10, clause::A2) {
  SKIDPROOF_REQUIRE(uarch().pebs_counters_group, SkipCategory::kNotOnThisMicroarch, kNoGroup);
  const Still still = still_of(uarch());
  SKIDPROOF_REQUIRE(still.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Choice& choice = kChoices[param().number()];
  const uint64_t every_gp = arch::gp_bits(uarch(), reported_counters(machine()));
  const uint64_t every_fixed = arch::fixed_bits(uarch());
  const uint64_t gp = choice.every_gp ? every_gp : bit(still.sampling);
  const uint64_t fixed = choice.every_fixed ? every_fixed : 0;
  const uint64_t config = config_of(choice.groups, gp, fixed);
  const Values values(machine(), uarch());
  need(values.written());
  const Program& code = program("sparse_event", sparse_parameters("taken"));

  const Sampled sampled = need(sample(machine(), plan_of(still, config), code,
                                      iterations_for_exactly(kRecords, still.period)));

  const size_t size =
      adaptive::record_bytes(choice.groups) +
      (choice.groups & adaptive::kBranches ? (kEntries - 1) * adaptive::kBranchEntryBytes : 0) +
      16 + 8 * static_cast<size_t>(std::popcount(gp) + std::popcount(fixed));
  evidence("record-bytes", size);
  VERIFY_EQ(sampled.session.index() - sampled.session.base(), kRecords * size);
  VERIFY_EQ(sampled.records().size(), kRecords);
  for (Record record : sampled.records()) {
    VERIFY_EQ(adaptive::size_field(record.header()), size);
    VERIFY_EQ(record.header() & (adaptive::kGroups | adaptive::kSnapshot), choice.groups);
    const auto vectors = record.snapshot();
    VERIFY_TRUE(vectors.has_value()) << "a group whose vectors are as large as the record says";
    if (!vectors) return;
    VERIFY_EQ(results::hex(vectors->gp), results::hex(gp));
    VERIFY_EQ(results::hex(vectors->fixed), results::hex(fixed));
    VERIFY_EQ(vectors->metrics, 0u);
    unsigned at = 0;
    for (unsigned n = 0; n < 16; ++n) {
      if ((gp >> n & 1) == 0) continue;
      const uint64_t value = record.snapshot_value(at++);
      if (n == still.sampling) {
        VERIFY_LT(value, still.period) << "it has overflowed and is not loaded yet";
      } else {
        VERIFY_EQ(results::hex(value), results::hex(gp_value(n))) << "counter " << n;
      }
    }
    for (unsigned m = 0; m < arch::kMostFixed; ++m) {
      if ((fixed >> m & 1) == 0) continue;
      VERIFY_EQ(results::hex(record.snapshot_value(at++)), results::hex(fixed_value(m)))
          << "fixed counter " << m;
    }
    VERIFY_EQ(record.eventing_ip(), code.mark("loop.jnz"));
  }
}

// With the includes and without bits 4 and 5, and with both and without the Adaptive bit.
SKIDPROOF_TEST_OVER(PebsSnapshot, HasNoneUnlessAsked, over::words({"no-bit", "not-adaptive"}),
                    clause::V8, clause::A4) {
  SKIDPROOF_REQUIRE(uarch().pebs_counters_group, SkipCategory::kNotOnThisMicroarch, kNoGroup);
  const Still still = still_of(uarch());
  SKIDPROOF_REQUIRE(still.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const bool adaptive_bit = param().word() == "no-bit";
  const uint64_t asked = adaptive_bit ? 0 : adaptive::kCounters;
  SessionPlan plan = plan_of(still, config_of(asked, 0xFF, 7));
  plan.counters.front().adaptive = adaptive_bit;
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  const Sampled sampled =
      need(sample(machine(), plan, code, iterations_for_exactly(kRecords, still.period)));
  VERIFY_EQ(sampled.session.index() - sampled.session.base(), kRecords * adaptive::kBasicBytes);
  VERIFY_EQ(sampled.records().size(), kRecords);
  for (Record record : sampled.records()) {
    VERIFY_EQ(record.header() & (adaptive::kGroups | adaptive::kSnapshot), 0u);
    VERIFY_FALSE(record.snapshot().has_value());
  }
}

// Counters that count: what two of the same event gained between two records.
SKIDPROOF_TEST(PebsSnapshot, ShowsWhatCountersGainedBetweenRecords, clause::V10) {
  SKIDPROOF_REQUIRE(uarch().pebs_counters_group, SkipCategory::kNotOnThisMicroarch, kNoGroup);
  const Still still = still_of(uarch());
  SKIDPROOF_REQUIRE(still.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const unsigned other = still.sampling + 1;
  const arch::Event* instructions = counting_event(uarch(), Signal::kInstructions, other);
  SKIDPROOF_REQUIRE(instructions != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  SessionPlan plan = plan_of(still, config_of(adaptive::kCounters, bit(other), 1));
  plan.counters.push_back(plain_counter(other, *instructions));
  plan.fixed = {{.counter = 0}};
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  const Sampled sampled =
      need(sample(machine(), plan, code, iterations_for_exactly(8, still.period)));
  VERIFY_EQ(sampled.records().size(), 8u);
  constexpr uint64_t kTogether = 16;  // that retire with the one that is recorded
  // One event in `period` and one of the sparse kernel's iterations.
  const uint64_t between = (still.period + 1) * code.per_iteration.instructions;
  uint64_t counted = 0, fixed = 0;
  for (Record record : sampled.records()) {
    const uint64_t counted_now = record.snapshot_value(0), fixed_now = record.snapshot_value(1);
    if (counted != 0) {
      VERIFY_THAT(difference(counted_now - counted, between), within(0, kTogether));
      VERIFY_THAT(difference(fixed_now - fixed, between), within(0, kTogether));
    }
    counted = counted_now;
    fixed = fixed_now;
  }
  VERIFY_LE(counted, sampled.run.counters.at(1)) << "behind the last record it counts on";
}

// --- Metrics

struct Metrics {
  Sampled sampled;
  uint64_t held = 0;  // MSR_PERF_METRICS before the run
};
// Metrics and their base hold what software wrote, and nothing counts them. A disturbed run that was made again met
// what its records had cleared: that is begun anew.
Expected<Metrics> sample_metrics(Machine& machine, const arch::Microarch& microarch,
                                 const Still& still, uint64_t config, const Program& code) {
  constexpr unsigned kTries = 16;
  const uint32_t base = arch::fixed_counter_msr(microarch, adaptive::kMetricsBaseCounter);
  for (unsigned i = 0; i < kTries; ++i) {
    SKIDPROOF_CHECK(machine.wrmsr(base, fixed_value(adaptive::kMetricsBaseCounter)));
    SKIDPROOF_CHECK(machine.wrmsr(arch::MSR_PERF_METRICS, 0x11'22'33'44));
    const uint64_t held = SKIDPROOF_TRY(machine.rdmsr(arch::MSR_PERF_METRICS));
    Sampled sampled = SKIDPROOF_TRY(sample(machine, plan_of(still, config), code,
                                           iterations_for_exactly(kRecords, still.period)));
    if (sampled.run.log.noise.repeats == 0)
      return Metrics{.sampled = std::move(sampled), .held = held};
  }
  throw SkipTest{SkipCategory::kNoise, fmt::format("each of {} runs was disturbed", kTries)};
}

SKIDPROOF_TEST_OVER(PebsSnapshot, RecordsAndClearsTheMetrics,
                    over::words({"alone", "with-counters"}), clause::V11, clause::V12, clause::V9) {
  SKIDPROOF_REQUIRE(uarch().pebs_counters_group && uarch().perf_metrics,
                    SkipCategory::kNotOnThisMicroarch, kNoGroup);
  const Still still = still_of(uarch());
  SKIDPROOF_REQUIRE(still.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const bool counters = param().word() == "with-counters";
  const uint64_t groups = adaptive::kMetrics | (counters ? adaptive::kCounters : 0);
  const uint64_t config =
      config_of(groups, bit(still.sampling), bit(adaptive::kMetricsBaseCounter));
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  Restore restore(machine(), {arch::MSR_PERF_METRICS});
  const Values values(machine(), uarch());
  need(values.written());
  const Metrics found = need(sample_metrics(machine(), uarch(), still, config, code));
  evidence("metrics", results::hex(found.held));
  VERIFY_EQ(found.sampled.records().size(), kRecords);
  bool first = true;
  for (Record record : found.sampled.records()) {
    const auto vectors = record.snapshot();
    VERIFY_TRUE(vectors.has_value());
    if (!vectors) return;
    VERIFY_EQ(vectors->metrics, 3u);
    VERIFY_EQ(vectors->fixed, counters ? uint32_t{1} << adaptive::kMetricsBaseCounter : 0u);
    const unsigned last = vectors->values() - 1;
    VERIFY_EQ(results::hex(record.snapshot_value(last - 1)),
              results::hex(first ? fixed_value(adaptive::kMetricsBaseCounter) : 0))
        << "the base";
    VERIFY_EQ(results::hex(record.snapshot_value(last)), results::hex(first ? found.held : 0));
    first = false;
  }
  VERIFY_EQ(need(machine().rdmsr(arch::MSR_PERF_METRICS)), 0u);
  VERIFY_EQ(need(machine().rdmsr(arch::fixed_counter_msr(uarch(), adaptive::kMetricsBaseCounter))),
            0u);
}

// Bit 5 without the base among the counters, and the base among them without bit 5.
SKIDPROOF_TEST_OVER(PebsSnapshot, LeavesTheMetricsUnlessBothBitsAreSet,
                    over::words({"without-base", "without-metrics"}), clause::V11, clause::V12) {
  SKIDPROOF_REQUIRE(uarch().pebs_counters_group && uarch().perf_metrics,
                    SkipCategory::kNotOnThisMicroarch, kNoGroup);
  const Still still = still_of(uarch());
  SKIDPROOF_REQUIRE(still.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const bool base = param().word() == "without-metrics";
  const uint64_t config =
      config_of(adaptive::kCounters | (base ? 0 : adaptive::kMetrics), bit(still.sampling),
                base ? bit(adaptive::kMetricsBaseCounter) : 0);
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  Restore restore(machine(), {arch::MSR_PERF_METRICS});
  const Values values(machine(), uarch());
  need(values.written());
  const Metrics found = need(sample_metrics(machine(), uarch(), still, config, code));
  VERIFY_EQ(found.sampled.records().size(), kRecords);
  for (Record record : found.sampled.records()) {
    const auto vectors = record.snapshot();
    VERIFY_TRUE(vectors.has_value());
    if (!vectors) return;
    VERIFY_EQ(vectors->metrics, 0u);
    VERIFY_EQ(vectors->values(), base ? 2u : 1u);
    if (base) {
      VERIFY_EQ(results::hex(record.snapshot_value(1)),
                results::hex(fixed_value(adaptive::kMetricsBaseCounter)));
    }
  }
  VERIFY_EQ(results::hex(need(machine().rdmsr(arch::MSR_PERF_METRICS))), results::hex(found.held));
  VERIFY_EQ(results::hex(need(
                machine().rdmsr(arch::fixed_counter_msr(uarch(), adaptive::kMetricsBaseCounter)))),
            results::hex(fixed_value(adaptive::kMetricsBaseCounter)));
}

}  // namespace skidproof::check::pebs_snapshot
