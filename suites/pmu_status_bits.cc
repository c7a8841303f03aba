// IA32_PERF_GLOBAL_STATUS, IA32_PERF_GLOBAL_OVF_CTRL, IA32_PERF_GLOBAL_CTRL and IA32_FIXED_CTR_CTRL
// bit by bit: each does its own part, and nothing of its neighbour's.
#include <cstdint>
#include <optional>
#include <vector>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pmu_status_bits {
namespace {

using namespace suites;
using arch::bit;
using arch::IA32_FIXED_CTR0;
using arch::IA32_FIXED_CTR_CTRL;
using arch::IA32_PERF_GLOBAL_CTRL;
using arch::IA32_PERF_GLOBAL_OVF_CTRL;
using arch::IA32_PERF_GLOBAL_STATUS;
using arch::IA32_PERFEVTSEL0;
using arch::IA32_PMC0;
using arch::Signal;

constexpr char kAbsent[] = "CPUID reports fewer counters";
constexpr char kNoEvent[] = "no instruction event";

// The overflow bits of every counter that exists.
uint64_t overflow_bits(const Machine& machine) {
  const Machine::CpuidResult leaf = machine.cpuid(0xA, 0);
  return arch::low_bits(leaf.eax >> 8 & 0xFF) | arch::low_bits(leaf.edx & 0x1F)
                                                    << arch::status::kFixedShift;
}

unsigned fixed_counters(const Machine& machine) { return machine.cpuid(0xA, 0).edx & 0x1F; }

// All counters on instructions, enabled for both levels, from 0; `global` decides which count.
Expected<RunLog> run_all(Machine& machine, const arch::Event& event, const Program& program,
                         uint64_t global, uint64_t fixed_control,
                         const std::vector<MsrWrite>& starts = {}) {
  const unsigned gp = reported_counters(machine);
  const unsigned fixed = fixed_counters(machine);
  Restore restore(machine, {IA32_FIXED_CTR_CTRL, IA32_PERF_GLOBAL_CTRL});
  RunPlan plan;
  plan.iterations = 100;
  plan.enable = {{IA32_PERF_GLOBAL_CTRL, 0}, {IA32_FIXED_CTR_CTRL, fixed_control}};
  CounterSetup setup = plain_counter(0, event);
  for (uint32_t n = 0; n < gp; ++n) {
    restore.add(IA32_PMC0 + n);
    restore.add(IA32_PERFEVTSEL0 + n);
    plan.enable.push_back({IA32_PMC0 + n, 0});
    plan.enable.push_back({IA32_PERFEVTSEL0 + n, setup.select_msr()});
    plan.read.push_back(IA32_PMC0 + n);
  }
  for (uint32_t i = 0; i < fixed; ++i) {
    restore.add(IA32_FIXED_CTR0 + i);
    plan.enable.push_back({IA32_FIXED_CTR0 + i, 0});
    plan.read.push_back(IA32_FIXED_CTR0 + i);
  }
  for (const MsrWrite& start : starts) plan.enable.push_back(start);
  plan.enable.push_back({IA32_PERF_GLOBAL_CTRL, global});
  plan.disable = {{IA32_PERF_GLOBAL_CTRL, 0}};
  plan.pmi.clear_status = false;
  plan.read.push_back(IA32_PERF_GLOBAL_STATUS);
  return machine.run(program, plan);
}

// Every fixed counter at both levels.
uint64_t all_fixed(unsigned counters) {
  uint64_t control = 0;
  for (unsigned i = 0; i < counters; ++i) {
    control |= arch::fixed_ctrl::field(i, arch::fixed_ctrl::kOs | arch::fixed_ctrl::kUsr);
  }
  return control;
}

// Overflows counter 0 of `session` and leaves the machine as the run ended: a counter without PEBS.
SessionPlan overflowing(unsigned counter, const arch::Event& event) {
  SessionPlan plan;
  plan.buffer_records = 1;
  plan.counters = {CounterSetup::of(counter, event, 500, false)};
  return plan;
}

}  // namespace

SKIDPROOF_SUITE(PmuStatusBits, kCount);

// --- IA32_PERF_GLOBAL_STATUS

// One bit for each counter when all overflow together, and none for counters that do not exist.
SKIDPROOF_TEST(PmuStatusBits, ShowEveryCounterAndNothingElse, clause::M35, clause::M38,
               clause::R37) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const unsigned fixed = fixed_counters(machine());
  std::vector<MsrWrite> starts;
  uint64_t expected = 0;
  for (uint32_t n = 0; n < reported_counters(machine()); ++n) {
    if (counting_event(uarch(), Signal::kInstructions, n) != event) continue;
    starts.push_back({IA32_PMC0 + n, minus_period(50, uarch().gp_width)});
    expected |= bit(n);
  }
  // A top-down counter needs its own facilities; the first three count in every program.
  for (uint32_t i = 0; i < std::min(fixed, 3U); ++i) {
    starts.push_back({IA32_FIXED_CTR0 + i, minus_period(10, uarch().fixed_width)});
    expected |= bit(arch::status::kFixedShift + i);
  }
  const uint64_t all = overflow_bits(machine());
  RunLog log =
      need(run_all(machine(), *event, program("alu_chain"), all, all_fixed(fixed), starts));
  const uint64_t status = log.read.back();
  need(machine().wrmsr(IA32_PERF_GLOBAL_OVF_CTRL, all));
  evidence("status", results::hex(status));
  const uint64_t uncore = arch::status::kOvfUncore | arch::status::kCondChgd;  // not ours
  VERIFY_EQ(results::hex(status & ~uncore), results::hex(expected));
}

// --- IA32_PERF_GLOBAL_OVF_CTRL

SKIDPROOF_TEST_OVER(PmuStatusBits, AreClearedOneByOne,
                    over::numbers("bit", {0, 1, 2, 3, 4, 5, 6, 7, 32, 33, 34}), clause::M15,
                    clause::M39, clause::M38) {
  const auto cleared = static_cast<unsigned>(param().number());
  const uint64_t all = overflow_bits(machine());
  SKIDPROOF_REQUIRE((all & bit(cleared)) != 0, SkipCategory::kMachineLimit, kAbsent);
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const unsigned fixed = fixed_counters(machine());
  std::vector<MsrWrite> starts;
  for (uint32_t n = 0; n < reported_counters(machine()); ++n) {
    starts.push_back({IA32_PMC0 + n, minus_period(50, uarch().gp_width)});
  }
  for (uint32_t i = 0; i < fixed; ++i) {
    starts.push_back({IA32_FIXED_CTR0 + i, minus_period(10, uarch().fixed_width)});
  }
  need(run_all(machine(), *event, program("alu_chain"), all, all_fixed(fixed), starts));
  const uint64_t before = need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS)) & all;
  VERIFY_EQ(before & bit(cleared), bit(cleared)) << "it overflowed";

  need(machine().wrmsr(IA32_PERF_GLOBAL_OVF_CTRL, bit(cleared)));

  const uint64_t after = need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS)) & all;
  VERIFY_EQ(results::hex(after), results::hex(before & ~bit(cleared)));
  need(machine().wrmsr(IA32_PERF_GLOBAL_OVF_CTRL, all));
  VERIFY_EQ(need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS)) & all, 0u);
}

// Each bit that exists is taken, also where nothing is set that it could clear.
SKIDPROOF_TEST(PmuStatusBits, CanAllBeWrittenToOvfCtrl, clause::M39, clause::M16) {
  const uint64_t defined = arch::clearable_status(uarch(), reported_counters(machine()));
  for (unsigned b = 0; b < 64; ++b) {
    if ((defined & bit(b)) == 0) continue;
    const Expected<void> written = machine().wrmsr(IA32_PERF_GLOBAL_OVF_CTRL, bit(b));
    VERIFY_TRUE(written.has_value()) << "bit " << b;
    VERIFY_EQ(need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS)) & bit(b), 0u) << "bit " << b;
  }
}

// What software does when it is to clear: the processor does not do it for it.
SKIDPROOF_TEST_OVER(PmuStatusBits, StayWhenSoftwareReprogrammes,
                    over::product(over::words({"select", "counter", "alias", "disable", "enable"}),
                                  over::counters({0, 1, 2, 3})),
                    clause::M40, clause::M34) {
  const auto counter = static_cast<unsigned>(param().number());
  const std::string& step = param().word();
  SKIDPROOF_REQUIRE(reported_counters(machine()) > counter, SkipCategory::kMachineLimit, kAbsent);
  SKIDPROOF_REQUIRE(step != "alias" || uarch().full_width_writes, SkipCategory::kNotOnThisMicroarch,
                    "no full-width writes");
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  Sampled sampled = need(sample(machine(), overflowing(counter, *event), program("nop_sled"), 50));
  VERIFY_EQ(sampled.run.global_status & overflow_bits(machine()), bit(counter));

  Restore restore(machine(), {IA32_PERFEVTSEL0 + counter});
  if (step == "select") {
    need(machine().wrmsr(IA32_PERFEVTSEL0 + counter, 0));
    need(machine().wrmsr(IA32_PERFEVTSEL0 + counter, 0xC4 | arch::evtsel::kUsr));
  } else if (step == "counter") {
    need(machine().wrmsr(IA32_PMC0 + counter, 0x1234));
  } else if (step == "alias") {
    need(machine().wrmsr(arch::IA32_A_PMC0 + counter, 0x1234));
  } else if (step == "disable") {
    need(machine().wrmsr(IA32_PERFEVTSEL0 + counter, 0));
    need(machine().wrmsr(IA32_PERF_GLOBAL_CTRL, 0));
  } else {
    need(machine().wrmsr(IA32_PERFEVTSEL0 + counter, 0));
    need(machine().wrmsr(IA32_PERF_GLOBAL_CTRL, bit(counter)));
    need(machine().wrmsr(IA32_PERF_GLOBAL_CTRL, 0));
  }
  VERIFY_EQ(need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS)) & overflow_bits(machine()),
            bit(counter));
  need(machine().wrmsr(IA32_PERF_GLOBAL_OVF_CTRL, bit(counter)));
  VERIFY_EQ(need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS)) & overflow_bits(machine()), 0u);
}

// --- IA32_PERF_GLOBAL_CTRL, IA32_FIXED_CTR_CTRL

SKIDPROOF_TEST_OVER(PmuStatusBits, EnableOneCounterEach,
                    over::numbers("bit", {0, 1, 2, 3, 4, 5, 6, 7, 32, 33, 34}), clause::M41,
                    clause::M13) {
  const auto enabled = static_cast<unsigned>(param().number());
  SKIDPROOF_REQUIRE((overflow_bits(machine()) & bit(enabled)) != 0, SkipCategory::kMachineLimit,
                    kAbsent);
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const unsigned gp = reported_counters(machine());
  const unsigned fixed = fixed_counters(machine());
  RunLog log =
      need(run_all(machine(), *event, program("alu_chain"), bit(enabled), all_fixed(fixed)));
  for (unsigned n = 0; n < gp + fixed; ++n) {
    const unsigned position = n < gp ? n : arch::status::kFixedShift + n - gp;
    if (position == enabled) {
      VERIFY_GT(log.read.at(n), 0u) << "bit " << position;
    } else {
      VERIFY_EQ(log.read.at(n), 0u) << "bit " << position;
    }
  }
}

// CTR_Frz stops them all, whatever GLOBAL_CTRL enables, until it is reset: IA32_PMC0 to IA32_PMC3 and the fixed ones,
// and those that a core has besides when it is not shared.
SKIDPROOF_TEST_OVER(PmuStatusBits, StopEveryCounterWhileFrozen, over::words({"lower", "upper"}),
                    clause::R52, clause::M41) {
  SKIDPROOF_REQUIRE(uarch().streamlined_freeze(), SkipCategory::kNotOnThisMicroarch,
                    "before architectural version 4");
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  constexpr unsigned kLower = 4;
  const bool upper = param().word() == "upper";
  const unsigned gp = reported_counters(machine());
  SKIDPROOF_REQUIRE(!upper || gp > kLower, SkipCategory::kMachineLimit, "four counters or fewer");
  const unsigned fixed = fixed_counters(machine());
  const uint64_t all = overflow_bits(machine());
  const Program& code = program("alu_chain");
  need(machine().wrmsr(arch::IA32_PERF_GLOBAL_STATUS_SET, arch::status::kCountersFrozen));
  RunLog frozen = need(run_all(machine(), *event, code, all, all_fixed(fixed)));
  need(machine().wrmsr(arch::IA32_PERF_GLOBAL_STATUS_RESET, arch::status::kCountersFrozen));
  RunLog thawed = need(run_all(machine(), *event, code, all, all_fixed(fixed)));
  for (unsigned n = 0; n < gp + fixed; ++n) {
    if (upper != (n >= kLower && n < gp)) continue;
    VERIFY_EQ(frozen.read.at(n), 0u) << "counter " << n << " of both kinds";
    VERIFY_GT(thawed.read.at(n), 0u) << "counter " << n << " of both kinds";
  }
}

// One field of the fixed counters' control register at a time, its four bits each.
SKIDPROOF_TEST_OVER(PmuStatusBits, GovernOneFixedCounterEach, over::numbers("fixed", {0, 1, 2}),
                    clause::M42, clause::M17, clause::M30) {
  const auto governed = static_cast<unsigned>(param().number());
  const unsigned fixed = fixed_counters(machine());
  SKIDPROOF_REQUIRE(governed < fixed, SkipCategory::kMachineLimit, "fewer fixed counters");
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const unsigned gp = reported_counters(machine());
  const uint64_t global = overflow_bits(machine());
  using arch::fixed_ctrl::field;
  using arch::fixed_ctrl::kOs;
  using arch::fixed_ctrl::kPmi;
  using arch::fixed_ctrl::kUsr;
  struct Case {
    uint64_t value;
    bool counts, interrupts;
  };
  // Programs run in ring 0 here.
  for (Case c : {Case{0, false, false}, Case{kOs, true, false}, Case{kUsr, false, false},
                 Case{kPmi, false, false}, Case{kOs | kPmi, true, true}}) {
    std::vector<MsrWrite> starts;
    for (uint32_t i = 0; i < fixed; ++i) {
      starts.push_back({IA32_FIXED_CTR0 + i, minus_period(10, uarch().fixed_width)});
    }
    Restore lvt(machine(), {arch::IA32_X2APIC_LVT_PMI});
    starts.push_back({arch::IA32_X2APIC_LVT_PMI, arch::lvt::kNmi});
    RunLog log = need(
        run_all(machine(), *event, program("alu_chain"), global, field(governed, c.value), starts));
    const uint64_t status = log.read.back() >> arch::status::kFixedShift & arch::low_bits(fixed);
    need(machine().wrmsr(IA32_PERF_GLOBAL_OVF_CTRL, global));
    VERIFY_EQ(status, c.counts ? bit(governed) : 0) << "field " << c.value;
    VERIFY_EQ(log.pmis.size(), c.interrupts ? 1u : 0u) << "field " << c.value;
    for (unsigned i = 0; i < fixed; ++i) {
      const bool moved = log.read.at(gp + i) != minus_period(10, uarch().fixed_width);
      VERIFY_EQ(moved, i == governed && c.counts) << "fixed counter " << i << ", " << c.value;
    }
  }
}

}  // namespace skidproof::check::pmu_status_bits
