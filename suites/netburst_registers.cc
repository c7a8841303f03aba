// NetBurst's counters, CCCRs and ESCRs: what they keep, what they count, when they interrupt.
#include <cstdint>

#include "harness/check/check.h"
#include "suites/netburst_sampling.h"

namespace skidproof::check::netburst_registers {
namespace {

using namespace suites;
using arch::bit;

constexpr uint64_t kMask = (uint64_t{1} << nb::kCounterWidth) - 1;

// What a plain counter of the IQ block counts from 0.
Expected<uint64_t> counted(Machine& machine, const CounterSetup& setup, const Program& code,
                           uint64_t iterations, Ring ring = Ring::kKernel) {
  SessionPlan plan = one_counter(setup, 1);
  plan.ring = ring;
  Sampled sampled = SKIDPROOF_TRY(sample(machine, plan, code, iterations));
  return sampled.run.counters.at(0);
}

}  // namespace

SKIDPROOF_SUITE(NetBurstEnumeration, kRead);
SKIDPROOF_SUITE(NetBurstRegisters, kCount);

SKIDPROOF_NETBURST_TEST(NetBurstRegisters, HoldsFortyBitsInEachOfEighteenCounters, clause::N1,
                        clause::N2) {
  for (unsigned n = 0; n < nb::kCounters; ++n) {
    const uint32_t msr = nb::MSR_BPU_COUNTER0 + n;
    const bool absent = need(refuses_to_read(machine(), msr));
    VERIFY_FALSE(absent) << "counter " << n;
    if (absent) continue;
    Restore restore(machine(), {msr});
    for (uint64_t value : {kMask, uint64_t{0x8000000000}, uint64_t{0x80000000},
                           uint64_t{0x123456789A}, uint64_t{0xFFFFFFFF}, uint64_t{0}}) {
      need(machine().wrmsr(msr, value));
      VERIFY_EQ(need(machine().rdmsr(msr)), value) << "counter " << n;
    }
  }
}

// Of what is written all but the low half, which may already count on. Linux writes each counter twice [Linux 6.12,
// arch/x86/events/intel/p4.c].
SKIDPROOF_NETBURST_TEST_OVER(NetBurstRegisters, KeepsTheUpperBitsOfAWrite,
                             over::words({"once", "twice", "without_an_event"}), clause::N2) {
  const uint32_t escr = nb::MSR_CRU_ESCR0, counter = nb::MSR_BPU_COUNTER0 + 12,
                 cccr = nb::MSR_BPU_CCCR0 + 12;
  Restore restore(machine(), {escr, counter, cccr});
  const bool selected = param().word() != "without_an_event";
  const uint64_t instructions = (uint64_t{0x02} << nb::escr::kSelectShift) |
                                (uint64_t{1} << nb::escr::kMaskShift) | nb::escr::kOs |
                                nb::escr::kUsr;
  for (uint64_t upper : {0x12, 0x34, 0x00, 0xFE}) {
    need(machine().wrmsr(
        cccr, (uint64_t{4} << nb::cccr::kEscrShift) | nb::cccr::kAnyThread | nb::cccr::kEnable));
    need(machine().wrmsr(escr, selected ? instructions : 0));
    for (unsigned n = 0; n < (param().word() == "twice" ? 2U : 1U); ++n) {
      need(machine().wrmsr(counter, upper << 32));
    }
    VERIFY_EQ(need(machine().rdmsr(counter)) >> 32, upper);
    need(machine().wrmsr(escr, 0));
  }
}

SKIDPROOF_NETBURST_TEST(NetBurstRegisters, ReadsACounterWholeOrItsLowHalfWithRdpmc, clause::N2,
                        clause::M37) {
  Restore restore(machine(), {nb::MSR_IQ_COUNTER4});
  need(machine().wrmsr(nb::MSR_IQ_COUNTER4, 0xA5DEADBEEF));
  constexpr uint32_t kNumber = nb::MSR_IQ_COUNTER4 - nb::MSR_BPU_COUNTER0;
  auto whole = machine().rdpmc({.index = kNumber});
  SKIDPROOF_REQUIRE(whole || whole.error().code != ErrorCode::kNotAvailable,
                    SkipCategory::kMachineLimit, "this machine cannot execute RDPMC");
  VERIFY_EQ(need(std::move(whole)), 0xA5DEADBEEFu);
  VERIFY_EQ(need(machine().rdpmc({.index = kNumber | (1U << 31)})), 0xDEADBEEFu);
  auto absent = machine().rdpmc({.index = nb::kCounters});
  VERIFY_FALSE(absent) << "there are 18";
  // Ring 0 may always; above it CR4.PCE decides.
  VERIFY_TRUE(machine().rdpmc({.index = kNumber, .cr4_pce = false}));
  auto user = machine().rdpmc({.index = kNumber, .ring = Ring::kUser, .cr4_pce = false});
  SKIDPROOF_REQUIRE(user || user.error().code != ErrorCode::kNotAvailable,
                    SkipCategory::kMachineLimit, "this machine cannot execute it above ring 0");
  VERIFY_TRUE(!user && user.error().code == ErrorCode::kGeneralProtection);
}

SKIDPROOF_NETBURST_TEST(NetBurstRegisters, HasACccrForEachCounterAndFortyFiveEscrs, clause::N1) {
  unsigned escrs = 0;
  for (uint32_t msr = 0x3A0; msr <= 0x3E1; ++msr) {
    if (!nb::is_escr(msr)) continue;
    ++escrs;
    const bool absent = need(refuses_to_read(machine(), msr));
    VERIFY_FALSE(absent) << "ESCR " << results::hex(msr);
    if (absent) continue;
    Restore restore(machine(), {msr});
    const uint64_t value =
        (uint64_t{0x2A} << nb::escr::kSelectShift) | (uint64_t{0x5555} << nb::escr::kMaskShift);
    need(machine().wrmsr(msr, value));
    VERIFY_EQ(need(machine().rdmsr(msr)), value) << "ESCR " << results::hex(msr);
  }
  VERIFY_EQ(escrs, nb::kEscrs);
  for (unsigned n = 0; n < nb::kCounters; ++n) {
    const uint32_t msr = nb::MSR_BPU_CCCR0 + n;
    const bool absent = need(refuses_to_read(machine(), msr));
    VERIFY_FALSE(absent) << "CCCR " << n;
    if (absent) continue;
    Restore restore(machine(), {msr});
    const uint64_t value = nb::cccr::kAnyThread | nb::cccr::kOvfPmi | (uint64_t{5} << 13);
    need(machine().wrmsr(msr, value));
    VERIFY_EQ(need(machine().rdmsr(msr)), value) << "CCCR " << n;
  }
}

SKIDPROOF_NETBURST_TEST(NetBurstEnumeration, HasNoArchitecturalPerformanceMonitoring, clause::N1) {
  VERIFY_LT(machine().cpuid(0, 0).eax, 0xAu);
  for (uint32_t msr : {arch::IA32_PMC0, arch::IA32_PERFEVTSEL0, arch::IA32_PERF_GLOBAL_CTRL,
                       arch::IA32_PERF_GLOBAL_STATUS, arch::IA32_FIXED_CTR_CTRL}) {
    VERIFY_TRUE(need(refuses_to_read(machine(), msr))) << results::hex(msr);
  }
}

SKIDPROOF_NETBURST_TEST(NetBurstEnumeration, AnnouncesTheDebugStoreAndPebs, clause::N16) {
  constexpr uint32_t kDs = 1U << 21, kDtes64 = 1U << 2;
  const auto one = machine().cpuid(1, 0);
  VERIFY_EQ(one.edx & kDs, kDs);
  VERIFY_EQ((one.ecx & kDtes64) != 0, uarch().dtes64);
  const uint64_t misc = need(machine().rdmsr(arch::IA32_MISC_ENABLE));
  VERIFY_EQ(misc & arch::misc_enable::kPerfmonAvailable, arch::misc_enable::kPerfmonAvailable);
  VERIFY_EQ(misc & arch::misc_enable::kPebsUnavailable, 0u);
}

SKIDPROOF_NETBURST_TEST(NetBurstRegisters, KeepsTheTagsOfReplayEvent, clause::N9) {
  Restore restore(machine(), {arch::IA32_PEBS_ENABLE, nb::MSR_PEBS_MATRIX_VERT});
  for (const nb::Metric& metric : nb::kMetrics) {
    if (metric.tagging != nb::Tagging::kReplay) continue;
    const uint64_t enable = metric.enable | nb::pebs_enable::kUopTag;
    need(machine().wrmsr(arch::IA32_PEBS_ENABLE, enable));
    need(machine().wrmsr(nb::MSR_PEBS_MATRIX_VERT, metric.matrix));
    VERIFY_EQ(need(machine().rdmsr(arch::IA32_PEBS_ENABLE)), enable);
    VERIFY_EQ(need(machine().rdmsr(nb::MSR_PEBS_MATRIX_VERT)), metric.matrix);
  }
}

// Differences of two runs: what the machine's own code around the program counts is in both.
SKIDPROOF_NETBURST_TEST_OVER(NetBurstRegisters, CountsInstructionsAndBranchesExactly,
                             over::words({"instr_retired", "branch_retired"}), clause::N5) {
  const Program& code = program("mixed");
  const CounterSetup setup = netburst_counter(uarch(), param().word(), 0, kIqCounter0, false);
  const uint64_t few = need(counted(machine(), setup, code, 100));
  const uint64_t many = need(counted(machine(), setup, code, 1100));
  const Expectations one = code.per_iteration;
  const uint64_t each = param().word() == "instr_retired" ? one.instructions : one.branches();
  VERIFY_EQ(many - few, 1000 * each);
}

SKIDPROOF_NETBURST_TEST(NetBurstRegisters, CountsCyclesOnTheBpuCounters, clause::N5, clause::N1) {
  const Program& code = program("mixed");
  constexpr unsigned kBpuCounter0 = 6;
  const CounterSetup setup =
      netburst_counter(uarch(), "global_power_events", 0, kBpuCounter0, false);
  const uint64_t few = need(counted(machine(), setup, code, 100));
  const uint64_t many = need(counted(machine(), setup, code, 10'000));
  evidence("cycles", many);
  VERIFY_GT(few, 0u);
  VERIFY_GT(many, 10 * few);
}

SKIDPROOF_NETBURST_TEST(NetBurstRegisters, CountsNothingWithoutTheEnableOfItsCccr, clause::N5) {
  const Program& code = program("mixed");
  const uint32_t escr = nb::MSR_CRU_ESCR0, counter = nb::MSR_BPU_COUNTER0 + 12,
                 cccr = nb::MSR_BPU_CCCR0 + 12;
  Restore restore(machine(), {escr, counter, cccr});
  const uint64_t select = (uint64_t{4} << nb::cccr::kEscrShift) | nb::cccr::kAnyThread;
  const uint64_t instructions = (uint64_t{0x02} << nb::escr::kSelectShift) |
                                (uint64_t{1} << nb::escr::kMaskShift) | nb::escr::kOs |
                                nb::escr::kUsr;
  for (bool enabled : {true, false}) {
    RunPlan plan;
    plan.iterations = 50;
    plan.enable = {
        {counter, 0}, {cccr, select | (enabled ? nb::cccr::kEnable : 0)}, {escr, instructions}};
    plan.disable = {{escr, 0}, {cccr, 0}};
    plan.read = {counter};
    const RunLog log = need(machine().run(code, plan));
    if (enabled) {
      VERIFY_GE(log.read.at(0), code.total(50).instructions);
    } else {
      VERIFY_EQ(log.read.at(0), 0u);
    }
  }
}

SKIDPROOF_NETBURST_TEST(NetBurstRegisters, CountsAtThePrivilegeLevelsOfItsEscr, clause::N6) {
  const Program& code = program("mixed");
  const uint64_t instructions = code.total(200).instructions;
  CounterSetup setup = netburst_counter(uarch(), "instr_retired", 0, kIqCounter0, false);
  for (Ring ring : {Ring::kKernel, Ring::kUser}) {
    const bool user = ring == Ring::kUser;
    setup.usr = user;
    setup.os = !user;
    VERIFY_GE(need(counted(machine(), setup, code, 200, ring)), instructions);
    setup.usr = !user;
    setup.os = user;
    VERIFY_LT(need(counted(machine(), setup, code, 200, ring)), instructions);
  }
}

SKIDPROOF_NETBURST_TEST(NetBurstRegisters, SetsOvfWithAnOverflowAndKeepsIt, clause::N3) {
  const Program& code = program("mixed");
  CounterSetup setup = netburst_counter(uarch(), "instr_retired", 1'000'000, kIqCounter0, false);
  {
    Sampled before = need(sample(machine(), one_counter(setup, 1), code, 100));
    VERIFY_EQ(before.run.global_status & bit(kIqCounter0), 0u);
  }
  setup.period = 500;
  Sampled sampled = need(sample(machine(), one_counter(setup, 1), code, 1000));
  VERIFY_EQ(sampled.run.global_status & bit(kIqCounter0), bit(kIqCounter0));
  const SessionRun again = need(sampled.session.resume(code, 1));
  VERIFY_EQ(again.global_status & bit(kIqCounter0), bit(kIqCounter0)) << "software clears it";
  constexpr uint32_t kCccr = nb::MSR_BPU_CCCR0 + 12;
  need(machine().wrmsr(kCccr, need(machine().rdmsr(kCccr)) & ~nb::cccr::kOvf));
  VERIFY_EQ(need(machine().rdmsr(kCccr)) & nb::cccr::kOvf, 0u);
}

SKIDPROOF_NETBURST_TEST(NetBurstRegisters, InterruptsOnOverflowWithOvfPmiOnly, clause::N4,
                        clause::N3) {
  const Program& code = program("mixed");
  CounterSetup setup = netburst_counter(uarch(), "instr_retired", 5000, kIqCounter0, false);
  Sampled silent = need(sample(machine(), one_counter(setup, 1), code, 1000));
  VERIFY_EQ(silent.run.log.pmis.size(), 0u);
  need(silent.session.close());
  setup.interrupt = true;
  Sampled sampled = need(sample(machine(), one_counter(setup, 1), code, 1000));
  VERIFY_EQ(sampled.run.log.pmis.size(), 1u) << "one overflow";
  for (const Pmi& pmi : sampled.run.log.pmis) {
    VERIFY_EQ(pmi.global_status & nb::cccr::kOvf, nb::cccr::kOvf) << "what the handler sees";
  }
}

SKIDPROOF_NETBURST_TEST(NetBurstRegisters, DeliversOnceThroughTheLvtEntryAndMasksIt, clause::R51,
                        clause::N4) {
  const Program& code = program("mixed");
  CounterSetup setup = netburst_counter(uarch(), "instr_retired", 500, kIqCounter0, false);
  setup.interrupt = true;
  SessionPlan plan = one_counter(setup, 1);
  plan.mask_interrupts = true;
  {
    Sampled masked = need(sample(machine(), plan, code, 1000));
    VERIFY_EQ(masked.run.log.pmis.size(), 0u);
  }
  plan.mask_interrupts = false;
  plan.pmi.unmask = false;
  Sampled sampled = need(sample(machine(), plan, code, 1000));
  VERIFY_EQ(sampled.run.log.pmis.size(), 1u);
  const uint64_t entry = need(machine().rdmsr(arch::IA32_X2APIC_LVT_PMI));
  VERIFY_EQ(entry & arch::lvt::kMasked, arch::lvt::kMasked);
}

}  // namespace skidproof::check::netburst_registers
