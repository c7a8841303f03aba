// Architectural version 6: CPUID leaf 23H, the bank of registers at 1900H, counters beyond eight, UMASK2, EQ, and metrics
// that RDPMC clears.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/check/check.h"
#include "pebs/arch/enumeration.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/capabilities.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pmu_version6 {
namespace {

using namespace suites;
using arch::bit;
using arch::IA32_FIXED_CTR0;
using arch::IA32_PERFEVTSEL0;
using arch::IA32_PMC0;
using arch::IA32_PMC_FX0_CTR;
using arch::IA32_PMC_GP0_CFG_A;
using arch::IA32_PMC_GP0_CTR;
using arch::kBankStride;
using arch::Signal;

constexpr char kNoVersion6[] = "there is no architectural version 6";
constexpr char kNotBeyond[] = "CPUID.23H lists no such counter beside those of CPUID.0AH";
constexpr char kNoEvent[] = "no such event on this counter";

// For how many counters the bank has room below the fixed ones.
constexpr uint32_t kBankCounters = 32, kBankFixed = 16;

Machine::CpuidResult extended_leaf(const Machine& machine, uint32_t subleaf) {
  return machine.cpuid(arch::cpuid::kExtendedPerfmon, subleaf);
}

// Counters 8 and up: none of them has a legacy address.
std::vector<Param> beyond_eight() { return over::counters({8, 9}); }

}  // namespace

SKIDPROOF_SUITE(PmuExtendedLeaf, kRead);
SKIDPROOF_SUITE(PmuVersion6, kCount);

// --- CPUID

SKIDPROOF_TEST(PmuExtendedLeaf, ExistsFromVersionSixOn, clause::V1) {
  const uint32_t version = machine().cpuid(arch::cpuid::kPerfmon, 0).eax & 0xFF;
  SKIDPROOF_REQUIRE(version >= 6, SkipCategory::kNotOnThisMicroarch, kNoVersion6);
  evidence("perf-capabilities", results::hex(need(machine().rdmsr(arch::IA32_PERF_CAPABILITIES))));
  VERIFY_GE(machine().cpuid(0, 0).eax, arch::cpuid::kExtendedPerfmon);
  VERIFY_GE(machine().cpuid(arch::cpuid::kFeatures, 0).eax, 1u) << "07H has a subleaf 1";
  VERIFY_EQ(machine().cpuid(arch::cpuid::kFeatures, 1).eax & arch::cpuid::kArchPerfmonExt,
            arch::cpuid::kArchPerfmonExt);
  const uint32_t subleaves = extended_leaf(machine(), arch::cpuid::kExtendedMain).eax;
  evidence("subleaves", results::hex(subleaves));
  VERIFY_EQ(subleaves >> arch::cpuid::kExtendedMain & 1, 1u);
  VERIFY_EQ(subleaves >> arch::cpuid::kExtendedCounters & 1, 1u) << "the counters";
}

SKIDPROOF_TEST(PmuExtendedLeaf, ListsWhateverLeaf0AhCounts, clause::V2, clause::V3) {
  const Capabilities found = capabilities_of(machine());
  SKIDPROOF_REQUIRE(found.perfmon_version >= 6, SkipCategory::kNotOnThisMicroarch, kNoVersion6);
  evidence("counters", results::hex(found.extended.gp));
  evidence("fixed-counters", results::hex(found.extended.fixed));
  VERIFY_THAT(contradictions(found), ::testing::IsEmpty());
  VERIFY_LE(found.gp_counters, 8u) << "CPUID.0AH:EAX[15:8]";
}

// Read only: no counter is started, and what a register holds stays.
SKIDPROOF_TEST(PmuExtendedLeaf, ListsExactlyTheRegistersOfTheBank, clause::V2, clause::V4) {
  SKIDPROOF_REQUIRE(uarch().perfmon_version >= 6, SkipCategory::kNotOnThisMicroarch, kNoVersion6);
  const auto listed = extended_leaf(machine(), arch::cpuid::kExtendedCounters);
  VERIFY_NE(listed.eax, 0u);
  for (uint32_t n = 0; n < kBankCounters; ++n) {
    const bool absent = (listed.eax >> n & 1) == 0;
    const uint32_t counter = IA32_PMC_GP0_CTR + kBankStride * n;
    const uint32_t select = IA32_PMC_GP0_CFG_A + kBankStride * n;
    VERIFY_EQ(need(refuses_to_read(machine(), counter)), absent) << "counter " << n;
    VERIFY_EQ(need(refuses_to_read(machine(), select)), absent) << "select " << n;
  }
  for (uint32_t m = 0; m < kBankFixed; ++m) {
    const bool absent = (listed.ebx >> m & 1) == 0;
    VERIFY_EQ(need(refuses_to_read(machine(), IA32_PMC_FX0_CTR + kBankStride * m)), absent)
        << "fixed counter " << m;
  }
}

// --- The bank

SKIDPROOF_TEST_OVER(PmuVersion6, HasOneCounterAtBothAddresses,
                    over::counters({0, 1, 2, 3, 4, 5, 6, 7}), clause::V4, clause::R38) {
  SKIDPROOF_REQUIRE(uarch().perfmon_version >= 6, SkipCategory::kNotOnThisMicroarch, kNoVersion6);
  const auto n = static_cast<uint32_t>(param().number());
  SKIDPROOF_REQUIRE(n < reported_counters(machine()), SkipCategory::kMachineLimit,
                    "CPUID reports fewer counters");
  const uint32_t counter = IA32_PMC_GP0_CTR + kBankStride * n;
  const uint32_t select = IA32_PMC_GP0_CFG_A + kBankStride * n;
  Restore restore(machine(), {IA32_PERFEVTSEL0 + n, IA32_PMC0 + n});
  need(machine().wrmsr(IA32_PERFEVTSEL0 + n, 0));
  for (int i = 0; i < 8; ++i) {
    const uint64_t value = random().next() & arch::gp_counter_mask(uarch());
    need(machine().wrmsr(counter, value));
    VERIFY_EQ(results::hex(need(machine().rdmsr(counter))), results::hex(value)) << "full width";
    VERIFY_EQ(results::hex(need(machine().rdmsr(IA32_PMC0 + n))), results::hex(value));
    const uint64_t low = random().next() & 0xFFFF'FFFF;
    need(machine().wrmsr(IA32_PMC0 + n, low));
    VERIFY_EQ(results::hex(need(machine().rdmsr(counter))),
              results::hex(arch::legacy_write_value(uarch(), low)));
  }
  VERIFY_TRUE(need(refuses(machine(), counter, bit(uarch().gp_width)))) << "above its width";
  const uint64_t a = 0xC0 | arch::evtsel::kOs, b = 0x3C | arch::evtsel::kUsr;
  need(machine().wrmsr(select, a));
  VERIFY_EQ(results::hex(need(machine().rdmsr(IA32_PERFEVTSEL0 + n))), results::hex(a));
  need(machine().wrmsr(IA32_PERFEVTSEL0 + n, b));
  VERIFY_EQ(results::hex(need(machine().rdmsr(select))), results::hex(b));
}

SKIDPROOF_TEST_OVER(PmuVersion6, HasOneFixedCounterAtBothAddresses,
                    over::numbers("fixed", {0, 1, 2}), clause::V4) {
  SKIDPROOF_REQUIRE(uarch().perfmon_version >= 6, SkipCategory::kNotOnThisMicroarch, kNoVersion6);
  const auto m = static_cast<uint32_t>(param().number());
  SKIDPROOF_REQUIRE(m < (machine().cpuid(arch::cpuid::kPerfmon, 0).edx & 0x1F),
                    SkipCategory::kMachineLimit, "CPUID reports fewer fixed counters");
  Restore restore(machine(), {arch::IA32_FIXED_CTR_CTRL, IA32_FIXED_CTR0 + m});
  need(machine().wrmsr(arch::IA32_FIXED_CTR_CTRL, 0));
  const uint32_t banked = IA32_PMC_FX0_CTR + kBankStride * m;
  for (int i = 0; i < 8; ++i) {
    const uint64_t first = random().next() & arch::fixed_counter_mask(uarch());
    need(machine().wrmsr(banked, first));
    VERIFY_EQ(results::hex(need(machine().rdmsr(IA32_FIXED_CTR0 + m))), results::hex(first));
    const uint64_t second = random().next() & arch::fixed_counter_mask(uarch());
    need(machine().wrmsr(IA32_FIXED_CTR0 + m, second));
    VERIFY_EQ(results::hex(need(machine().rdmsr(banked))), results::hex(second));
  }
}

// --- Counters that leaf 23H alone lists

SKIDPROOF_TEST_OVER(PmuVersion6, HasNoLegacyAddressForACounterBeyondLeaf0Ah, beyond_eight(),
                    clause::V3) {
  const auto n = static_cast<uint32_t>(param().number());
  SKIDPROOF_REQUIRE((uarch().extended.gp >> n & 1) != 0 && n >= reported_counters(machine()),
                    SkipCategory::kNotOnThisMicroarch, kNotBeyond);
  for (uint32_t msr : {IA32_PMC0 + n, IA32_PERFEVTSEL0 + n, arch::IA32_A_PMC0 + n}) {
    VERIFY_TRUE(need(refuses_to_read(machine(), msr))) << results::hex(msr);
  }
}

SKIDPROOF_TEST_OVER(PmuVersion6, CountsOnACounterBeyondLeaf0Ah, beyond_eight(), clause::V2) {
  const auto n = static_cast<unsigned>(param().number());
  SKIDPROOF_REQUIRE((uarch().extended.gp >> n & 1) != 0, SkipCategory::kNotOnThisMicroarch,
                    kNotBeyond);
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions, n);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("alu_chain");
  constexpr uint64_t kIterations = 400;
  const uint64_t own = code.total(kIterations).instructions;
  SessionPlan plan;
  plan.buffer_records = 1;
  plan.counters = {plain_counter(n, *event), plain_counter(0, *event)};
  const SessionRun both = need(need(Session::open(machine(), plan)).run(code, kIterations));
  evidence("instructions", both.counters.at(0));
  VERIFY_GE(both.counters.at(0), own);
  VERIFY_THAT(difference(both.counters.at(0), both.counters.at(1)),
              within(0, 2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions))));
  VERIFY_EQ(both.global_status & (bit(n) | bit(0)), 0u) << "nothing overflowed";

  plan.counters = {CounterSetup::of(n, *event, own / 2, false)};
  const SessionRun over = need(need(Session::open(machine(), plan)).run(code, kIterations));
  evidence("status", results::hex(over.global_status));
  VERIFY_EQ(results::hex(over.global_status & arch::low_bits(16)), results::hex(bit(n)));
}

SKIDPROOF_TEST_OVER(PmuVersion6, RecordsOnACounterBeyondLeaf0Ah, beyond_eight(), clause::V2,
                    clause::A6, clause::A14) {
  const auto n = static_cast<unsigned>(param().number());
  SKIDPROOF_REQUIRE((uarch().extended.gp >> n & 1) != 0, SkipCategory::kNotOnThisMicroarch,
                    kNotBeyond);
  const arch::Event* event = precise_event(uarch(), Signal::kConditional, n);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  const uint64_t period = usable_period(uarch(), n, *event, 40);
  const Sampled sampled = need(sample(machine(), one_counter(n, *event, period, 16), code,
                                      iterations_for_exactly(3, period)));
  VERIFY_EQ(sampled.records().size(), 3u);
  for (Record record : sampled.records()) {
    VERIFY_EQ(results::hex(record.applicable_counters()), results::hex(bit(n)));
    VERIFY_EQ(record.eventing_ip(), code.mark("loop.jnz"));
  }
  VERIFY_LT(sampled.run.counters.at(0) - minus_period(period, uarch().gp_width), period)
      << "loaded after the last record";
}

// --- IA32_PERFEVTSELx

SKIDPROOF_TEST_OVER(PmuVersion6, TakesUmask2AndEqWhereTheyAreListed, over::counters({0, 3, 7}),
                    clause::V5, clause::V6, clause::M9) {
  SKIDPROOF_REQUIRE(uarch().perfmon_version >= 6, SkipCategory::kNotOnThisMicroarch, kNoVersion6);
  const auto n = static_cast<uint32_t>(param().number());
  const uint32_t select = IA32_PMC_GP0_CFG_A + kBankStride * n;
  const uint32_t listed = extended_leaf(machine(), arch::cpuid::kExtendedMain).ebx;
  Restore restore(machine(), {select});
  const auto check = [&](uint64_t field, bool there) {
    VERIFY_EQ(need(refuses(machine(), select, field)), !there) << results::hex(field);
    if (!there) return;
    need(machine().wrmsr(select, field));
    VERIFY_EQ(results::hex(need(machine().rdmsr(select))), results::hex(field));
  };
  check(arch::evtsel::kUmask2, (listed & arch::cpuid::kUmask2) != 0);
  check(uint64_t{0x5A} << arch::evtsel::kUmask2Shift, (listed & arch::cpuid::kUmask2) != 0);
  check(arch::evtsel::kEqual, (listed & arch::cpuid::kEqual) != 0);
}

// Intel's list has conditional branches of Lion Cove with UMASK2 alone.
SKIDPROOF_TEST(PmuVersion6, CountsWhatUmask2Selects, clause::V5) {
  const auto& events = uarch().events;
  const auto found = std::find_if(events.begin(), events.end(), [](const arch::Event& e) {
    return e.umask2 != 0 && e.signal == Signal::kConditional && (e.counters & 1) != 0;
  });
  SKIDPROOF_REQUIRE(uarch().extended.umask2 && found != events.end(),
                    SkipCategory::kNotOnThisMicroarch,
                    "no published event of conditional branches has UMASK2");
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  constexpr uint64_t kIterations = 500;
  const uint64_t own = sparse_events("taken", code, kIterations);
  const uint64_t counted = need(count(machine(), 0, *found, code, kIterations));
  evidence("conditional-branches", counted);
  VERIFY_GE(counted, own);
  VERIFY_LE(counted, own + 2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions)) + 8);
}

// --- EQ: the cycles of one program on three counters

namespace {

// The first and last cycle of a run may be on either side of a comparison.
constexpr uint64_t kEnds = 4;
#define SKIDPROOF_EQ_ENDS (kEnds + margin_of(calibrated(calibrate::Quantity::kEdgeCycles)))

struct Condition {
  uint8_t cmask = 0;
  bool equal = false, invert = false;
};
Expected<std::vector<uint64_t>> count_cycles(Machine& machine, const arch::Event& event,
                                             const std::vector<Condition>& conditions,
                                             const Program& program, uint64_t iterations) {
  SessionPlan plan;
  plan.buffer_records = 1;
  for (unsigned n = 0; n < conditions.size(); ++n) {
    CounterSetup setup = plain_counter(n, event);
    setup.cmask = conditions[n].cmask;
    setup.equal = conditions[n].equal;
    setup.invert = conditions[n].invert;
    plan.counters.push_back(setup);
  }
  Session session = SKIDPROOF_TRY(Session::open(machine, plan));
  return SKIDPROOF_TRY(session.run(program, iterations)).counters;
}

uint64_t distance(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

// Programs with long gaps between instructions, with none, and with both.
std::vector<Param> programs() {
  return {{.label = "chase", .words = {"pointer_chase", "bytes=@beyond-l1"}},
          {.label = "chain", .words = {"alu_chain", ""}},
          {.label = "sled", .words = {"nop_sled", ""}},
          {.label = "mixed", .words = {"mixed", ""}}};
}

}  // namespace

SKIDPROOF_TEST_OVER(PmuVersion6, CountsCyclesWithExactlySoManyEvents, programs(), clause::V6) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(uarch().extended.equal && event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "there is no EQ flag");
  const Program& code = program(param().word(0), param().word(1));
  const uint64_t ends = SKIDPROOF_EQ_ENDS, iterations = ends <= 4 * kEnds ? 400 : 2000;
  for (uint8_t cmask : {1, 2, 4}) {
    const auto more = static_cast<uint8_t>(cmask + 1);
    const std::vector<uint64_t> split = need(count_cycles(
        machine(), *event, {{.cmask = cmask, .equal = true}, {.cmask = cmask}, {.cmask = more}},
        code, iterations));
    VERIFY_LE(distance(split[0] + split[2], split[1]), ends)
        << split[0] << " cycles with exactly " << int{cmask} << " instructions, " << split[2]
        << " with more, " << split[1] << " with so many or more";
    const std::vector<uint64_t> below = need(count_cycles(
        machine(), *event,
        {{.cmask = more, .equal = true, .invert = true}, {.cmask = 1}, {.cmask = more}}, code,
        iterations));
    VERIFY_LE(distance(below[0] + below[2], below[1]), ends)
        << below[0] << " cycles with fewer than " << int{more} << " instructions and not none, "
        << below[2] << " with so many or more, " << below[1] << " with any";
  }
}

SKIDPROOF_TEST_OVER(PmuVersion6, IgnoresEqWithoutCmask, programs(), clause::V6) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(uarch().extended.equal && event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "there is no EQ flag");
  const Program& code = program(param().word(0), param().word(1));
  constexpr uint64_t kIterations = 400;
  const std::vector<uint64_t> both =
      need(count_cycles(machine(), *event, {{}, {.equal = true}}, code, kIterations));
  VERIFY_GE(both[0], code.total(kIterations).instructions);
  VERIFY_THAT(difference(both[1], both[0]),
              within(0, 2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions))));
}

// --- Metrics

// Nothing counts meanwhile: what the registers hold was written there.
SKIDPROOF_TEST(PmuVersion6, ClearsMetricsByRdpmcWhereAsked, clause::V7, clause::A20) {
  constexpr uint32_t kMetricsIndex = uint32_t{1} << 29;
  constexpr uint64_t kMetrics = 0x10'20'30'40, kSlots = 0x1234'5678;
  SKIDPROOF_REQUIRE(uarch().perf_metrics && (arch::fixed_bits(uarch()) >> 3 & 1) != 0,
                    SkipCategory::kNotOnThisMicroarch, "there are no metrics");
  const Expected<uint64_t> trial = machine().rdpmc({.index = kMetricsIndex});
  SKIDPROOF_REQUIRE(trial || trial.error().code != ErrorCode::kNotAvailable,
                    SkipCategory::kMachineLimit, "this machine has no way to execute RDPMC");
  const bool announced = (need(machine().rdmsr(arch::IA32_PERF_CAPABILITIES)) &
                          arch::capabilities::kRdpmcMetricsClear) != 0;
  evidence("announced", announced);
  const uint32_t base = arch::fixed_counter_msr(uarch(), 3);
  Restore restore(machine(), {arch::IA32_FIXED_CTR_CTRL, arch::MSR_PERF_METRICS, base});
  VERIFY_EQ(need(refuses(machine(), arch::IA32_FIXED_CTR_CTRL, arch::fixed_ctrl::kMetricsClear)),
            !announced);
  for (const bool asked : {false, true}) {
    if (asked && !announced) continue;
    need(machine().wrmsr(arch::IA32_FIXED_CTR_CTRL, asked ? arch::fixed_ctrl::kMetricsClear : 0));
    need(machine().wrmsr(base, kSlots));
    need(machine().wrmsr(arch::MSR_PERF_METRICS, kMetrics));
    const uint64_t held = need(machine().rdmsr(arch::MSR_PERF_METRICS));
    evidence(asked ? "metrics-to-clear" : "metrics-to-keep", results::hex(held));
    VERIFY_EQ(results::hex(need(machine().rdpmc({.index = kMetricsIndex}))), results::hex(held));
    VERIFY_EQ(results::hex(need(machine().rdmsr(arch::MSR_PERF_METRICS))),
              results::hex(asked ? 0 : held));
    VERIFY_EQ(results::hex(need(machine().rdmsr(base))), results::hex(asked ? 0 : kSlots));
  }
}

SKIDPROOF_TEST_OVER(PmuVersion6, TellsHowManySlotsACycleHas,
                    over::words({"nop_sled", "pointer_chase", "mixed"}), clause::V13, clause::A21) {
  const unsigned slots = extended_leaf(machine(), arch::cpuid::kExtendedMain).ecx & 0xFF;
  SKIDPROOF_REQUIRE(
      uarch().extended.leaf && slots != 0 && (arch::fixed_bits(uarch()) >> 3 & 1) != 0,
      SkipCategory::kNotOnThisMicroarch, "no slots are counted, or it is not told");
  SKIDPROOF_REQUIRE(!machine().identity().sibling_thread, SkipCategory::kNeedsNoSibling,
                    "the threads of the core share its slots");
  SessionPlan plan;
  plan.fixed = {{.counter = 1}, {.counter = 3}};
  const Sampled counted = need(sample(machine(), plan, program(param().word()), 2000));
  const uint64_t cycles = counted.run.fixed.at(0), counts = counted.run.fixed.at(1);
  evidence("slots-per-cycle", slots);
  evidence("cycles", cycles);
  evidence("slots", counts);
  VERIFY_GT(cycles, 0u);
  VERIFY_LE(distance(counts, slots * cycles), slots * SKIDPROOF_EQ_ENDS);
}

}  // namespace skidproof::check::pmu_version6
