// Auto counter reload: what the registers take, which overflow loads which counter with what, and PEBS beside it.
#include <bit>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "harness/check/check.h"
#include "pebs/arch/enumeration.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "suites/adaptive.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pmu_auto_reload {
namespace {

using namespace suites;
using arch::bit;
using arch::kBankStride;
using arch::Signal;

constexpr char kNone[] = "CPUID.23H.02H lists no counter that can be reloaded";
// Of what is promised: "a small number" of events may be lost between an overflow and its reload.
constexpr uint64_t kLost = 64;
// Far from any overflow, with bit 31 set and bits that show where it is cut.
constexpr uint64_t kFar = 0x8123'4560;

uint32_t causes_msr(unsigned n) { return arch::IA32_PMC_GP0_CFG_B + kBankStride * n; }
uint32_t value_msr(unsigned n) { return arch::IA32_PMC_GP0_CFG_C + kBankStride * n; }
uint32_t fixed_causes_msr(unsigned m) { return arch::IA32_PMC_FX0_CFG_B + kBankStride * m; }
uint32_t fixed_value_msr(unsigned m) { return arch::IA32_PMC_FX0_CFG_C + kBankStride * m; }

// What a reload value becomes.
uint64_t loaded(uint64_t value, unsigned width) {
  return (value | ~uint64_t{0xFFFF'FFFF}) & arch::low_bits(width);
}

// Counters that can be reloaded and whose overflows can reload, without PDist: four of them.
struct Four {
  unsigned cause = 0, first = 0, second = 0, third = 0;
  const arch::Event* jumps = nullptr;         // on every one of them, precise on the cause
  const arch::Event* instructions = nullptr;  // on every one of them
};
std::optional<Four> four_of(const arch::Microarch& microarch) {
  const arch::ExtendedPerfmon& x = microarch.extended;
  uint32_t able = x.reloaded_gp & x.reloading_gp & microarch.pebs_counters &
                  ~uint32_t{microarch.pdist_counters};
  if (std::popcount(able) < 4) return std::nullopt;
  const auto take = [&able] {
    const auto n = static_cast<unsigned>(std::countr_zero(able));
    able &= able - 1;
    return n;
  };
  Four four;
  for (unsigned* n : {&four.cause, &four.first, &four.second, &four.third}) *n = take();
  four.jumps = precise_event(microarch, Signal::kConditional, four.cause);
  four.instructions = counting_event(microarch, Signal::kInstructions, four.first);
  if (four.jumps == nullptr || four.instructions == nullptr) return std::nullopt;
  return four;
}

// Reload registers as a test sets them, put back behind it.
class Reloads {
 public:
  explicit Reloads(Machine& machine) : machine_(machine), restore_(machine, {}) {}
  Expected<void> set(uint32_t causes_at, uint64_t causes, uint32_t value_at, uint64_t value) {
    restore_.add(causes_at);
    restore_.add(value_at);
    SKIDPROOF_CHECK(machine_.wrmsr(value_at, value));
    return machine_.wrmsr(causes_at, causes);
  }
  Expected<void> set(unsigned n, uint64_t causes, uint64_t value) {
    return set(causes_msr(n), causes, value_msr(n), value);
  }

 private:
  Machine& machine_;
  Restore restore_;
};

constexpr uint64_t kPeriod = 200, kIterations = 500;

SessionPlan plan_of(std::vector<CounterSetup> counters) {
  SessionPlan plan;
  plan.buffer_records = 16;
  plan.counters = std::move(counters);
  return plan;
}

}  // namespace

SKIDPROOF_SUITE(PmuAutoReload, kOneRecord);

// --- Registers

SKIDPROOF_TEST(PmuAutoReload, HasTheRegistersOfTheCountersThatAreListed, clause::V16) {
  const arch::ExtendedPerfmon& x = uarch().extended;
  SKIDPROOF_REQUIRE(x.auto_reload(), SkipCategory::kNotOnThisMicroarch, kNone);
  const auto leaf = machine().cpuid(arch::cpuid::kExtendedPerfmon, arch::cpuid::kExtendedReload);
  const uint64_t defined = uint64_t{leaf.ecx} | uint64_t{leaf.edx} << 32;
  evidence("causes", results::hex(defined));
  const auto check = [&](uint32_t causes, uint32_t value, bool pebs) {
    Restore restore(machine(), {causes, value});
    for (uint64_t word : {defined, defined & random().next(), uint64_t{0}}) {
      const bool refused = need(refuses(machine(), causes, word));
      VERIFY_FALSE(refused) << results::hex(causes) << " of " << results::hex(word);
      if (refused) continue;
      need(machine().wrmsr(causes, word));
      VERIFY_EQ(results::hex(need(machine().rdmsr(causes))), results::hex(word));
    }
    // 48 clears the metrics, where there are any.
    for (unsigned b = 0; b < 64; ++b) {
      if ((defined >> b & 1) != 0 || b == 48) continue;
      VERIFY_TRUE(need(refuses(machine(), causes, bit(b)))) << results::hex(causes) << " bit " << b;
    }
    const uint64_t low = random().next() & 0xFFFF'FFFF;
    need(machine().wrmsr(value, low));
    VERIFY_EQ(results::hex(need(machine().rdmsr(value))), results::hex(low));
    for (unsigned b : {32u, 47u, 48u, 63u}) {
      if ((arch::writable_cfg_c(uarch(), pebs) >> b & 1) != 0) continue;  // architectural PEBS
      VERIFY_TRUE(need(refuses(machine(), value, bit(b)))) << results::hex(value) << " bit " << b;
    }
  };
  for (unsigned n = 0; n < 32; ++n) {
    if ((leaf.eax >> n & 1) != 0) check(causes_msr(n), value_msr(n), (x.pebs_gp >> n & 1) != 0);
  }
  for (unsigned m = 0; m < 16; ++m) {
    if ((leaf.ebx >> m & 1) == 0) continue;
    check(fixed_causes_msr(m), fixed_value_msr(m), (x.pebs_fixed >> m & 1) != 0);
  }
}

// --- Which overflow loads what

// Every one that names the counter that overflows is loaded at that moment; one that names another is not.
SKIDPROOF_TEST(PmuAutoReload, LoadsEveryCounterThatNamesTheOverflow, clause::V17) {
  const std::optional<Four> four = four_of(uarch());
  SKIDPROOF_REQUIRE(four.has_value(), SkipCategory::kNotOnThisMicroarch, kNone);
  Reloads reloads(machine());
  need(reloads.set(four->first, bit(four->cause), kFar));
  need(reloads.set(four->second, bit(four->cause) | bit(four->third), kFar + 0x1000));
  need(reloads.set(four->third, bit(four->second), kFar));
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  SessionPlan plan = plan_of({CounterSetup::of(four->cause, *four->jumps, kPeriod, false),
                              plain_counter(four->first, *four->instructions),
                              plain_counter(four->second, *four->instructions),
                              plain_counter(four->third, *four->instructions)});
  const SessionRun run = need(need(Session::open(machine(), plan)).run(code, kIterations));
  const unsigned width = uarch().gp_width;
  VERIFY_EQ(run.global_status & bit(four->cause), bit(four->cause)) << "it overflowed, once";
  // What the program executed since the overflow.
  const uint64_t jumps_since = run.counters.at(0);
  const uint64_t since = jumps_since * code.per_iteration.instructions;
  const uint64_t spared = kLost + 2 * code.per_iteration.instructions;
  evidence("instructions-since", since);
  VERIFY_THAT(difference(run.counters.at(1), loaded(kFar, width) + since), within(0, spared));
  VERIFY_THAT(difference(run.counters.at(2), loaded(kFar + 0x1000, width) + since),
              within(0, spared));
  VERIFY_THAT(difference(run.counters.at(2) - 0x1000, run.counters.at(1)), within(0, kLost))
      << "both at once";
  VERIFY_GE(run.counters.at(3), code.total(kIterations).instructions) << "it names another";
  VERIFY_LT(run.counters.at(3), loaded(kFar, width));
}

SKIDPROOF_TEST(PmuAutoReload, LoadsByAndIntoFixedCounters, clause::V17) {
  const std::optional<Four> four = four_of(uarch());
  const arch::ExtendedPerfmon& x = uarch().extended;
  SKIDPROOF_REQUIRE(four.has_value() && (x.reloading_fixed & 1) != 0 && (x.reloaded_fixed & 2) != 0,
                    SkipCategory::kNotOnThisMicroarch, kNone);
  Reloads reloads(machine());
  need(reloads.set(four->first, bit(32), kFar));
  need(reloads.set(fixed_causes_msr(1), bit(four->cause), fixed_value_msr(1), kFar));
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  const uint64_t half = code.total(kIterations).instructions / 2;
  SessionPlan plan = plan_of({CounterSetup::of(four->cause, *four->jumps, kPeriod, false),
                              plain_counter(four->first, *four->instructions)});
  plan.fixed = {{.counter = 0, .period = half}, {.counter = 1}};
  const SessionRun run = need(need(Session::open(machine(), plan)).run(code, kIterations));
  const uint64_t since = run.fixed.at(0);  // instructions since fixed counter 0 overflowed
  VERIFY_EQ(run.global_status >> 32 & 1, 1u) << "fixed counter 0 overflowed";
  VERIFY_THAT(difference(run.counters.at(1), loaded(kFar, uarch().gp_width) + since),
              within(0, kLost));
  VERIFY_GE(run.fixed.at(1), loaded(kFar, uarch().fixed_width)) << "cycles since the reload";
}

// It overflows long before the cause, or counts the same event from the same value and so overflows with it.
SKIDPROOF_TEST_OVER(PmuAutoReload, LeavesACounterWhoseOwnOverflowShows,
                    over::words({"before", "in-the-same-cycle"}), clause::V17) {
  const std::optional<Four> four = four_of(uarch());
  SKIDPROOF_REQUIRE(four.has_value(), SkipCategory::kNotOnThisMicroarch, kNone);
  Reloads reloads(machine());
  need(reloads.set(four->first, bit(four->cause), kFar));
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  const bool together = param().word() == "in-the-same-cycle";
  const uint64_t period = together ? kPeriod : 500;
  const arch::Event& event = together ? *four->jumps : *four->instructions;
  const uint64_t counted = together ? kIterations : code.total(kIterations).instructions;
  SessionPlan plan = plan_of({CounterSetup::of(four->cause, *four->jumps, kPeriod, false),
                              CounterSetup::of(four->first, event, period, false)});
  const SessionRun run = need(need(Session::open(machine(), plan)).run(code, kIterations));
  const uint64_t both = bit(four->cause) | bit(four->first);
  VERIFY_EQ(results::hex(run.global_status & both), results::hex(both));
  VERIFY_GE(run.counters.at(1), counted - period);
  VERIFY_LT(run.counters.at(1), loaded(kFar, uarch().gp_width));
}

// --- By its own overflow

SKIDPROOF_TEST(PmuAutoReload, LoadsItselfAndShowsNoOverflow, clause::V18, clause::V17) {
  const std::optional<Four> four = four_of(uarch());
  SKIDPROOF_REQUIRE(four.has_value(), SkipCategory::kNotOnThisMicroarch, kNone);
  Reloads reloads(machine());
  need(reloads.set(four->cause, bit(four->cause), (uint64_t{0} - kPeriod) & 0xFFFF'FFFF));
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  constexpr uint64_t kRuns = 5 * kPeriod + kPeriod / 2;
  SessionPlan plan = plan_of({CounterSetup::of(four->cause, *four->jumps, kPeriod, false),
                              plain_counter(four->first, *four->jumps)});
  const SessionRun run = need(need(Session::open(machine(), plan)).run(code, kRuns));
  const uint64_t events = run.counters.at(1);
  evidence("events", events);
  VERIFY_GE(events, 5 * kPeriod);
  const uint64_t expected = minus_period(kPeriod, uarch().gp_width) + events % kPeriod;
  VERIFY_THAT(difference(expected, run.counters.at(0)), within(kLost / 2, kLost / 2))
      << "a few events are lost at each of five reloads, none is counted twice";
  VERIFY_EQ(results::hex(run.global_status & bit(four->cause)), results::hex(0));
}

// --- PEBS

// The record of the cause shows what the other counter held before: at first what it had counted from 0.
SKIDPROOF_TEST(PmuAutoReload, RecordsTheValuesBeforeTheReload, clause::V19, clause::V10) {
  const std::optional<Four> four = four_of(uarch());
  SKIDPROOF_REQUIRE(four.has_value() && uarch().records_counters(),
                    SkipCategory::kNotOnThisMicroarch, kNone);
  Reloads reloads(machine());
  need(reloads.set(four->first, bit(four->cause), kFar));
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  SessionPlan plan = plan_of({CounterSetup::of(four->cause, *four->jumps, kPeriod),
                              plain_counter(four->first, *four->instructions)});
  plan.pebs_data_cfg = arch::adaptive::kCounters | bit(arch::adaptive::kIncludeShift + four->first);
  const Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(3, kPeriod)));
  VERIFY_EQ(sampled.records().size(), 3u);
  const uint64_t far = loaded(kFar, uarch().gp_width);
  const uint64_t between = (kPeriod + 1) * code.per_iteration.instructions;
  uint64_t start = 0;
  for (Record record : sampled.records()) {
    VERIFY_THAT(difference(record.snapshot_value(0), start + between),
                within(0, kLost + 2 * code.per_iteration.instructions));
    start = far;
  }
  VERIFY_GE(sampled.run.counters.at(1), far) << "loaded behind the last record";
}

// The reset value of the DS area is far away, the reload value a period.
SKIDPROOF_TEST(PmuAutoReload, LoadsItselfBehindItsRecord, clause::V19, clause::V18) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const std::optional<Four> four = four_of(uarch());
  SKIDPROOF_REQUIRE(four.has_value(), SkipCategory::kNotOnThisMicroarch, kNone);
  Reloads reloads(machine());
  need(reloads.set(four->cause, bit(four->cause), (uint64_t{0} - kPeriod) & 0xFFFF'FFFF));
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  CounterSetup setup = CounterSetup::of(four->cause, *four->jumps, kPeriod);
  setup.reset = minus_period(1'000'000, uarch().gp_width);
  const Sampled sampled =
      need(sample(machine(), plan_of({setup}), code, iterations_for_exactly(4, kPeriod)));
  VERIFY_EQ(sampled.records().size(), 4u);
  VERIFY_EQ(results::hex(sampled.run.global_status & bit(four->cause)), results::hex(0));
  VERIFY_GE(sampled.run.counters.at(0), minus_period(kPeriod, uarch().gp_width));
}

}  // namespace skidproof::check::pmu_auto_reload
