// Architectural version 4: STATUS_SET and STATUS_RESET, INUSE, the streamlined freeze; and the
// registers that Haswell and Skylake add beside it.
#include <cstdint>
#include <vector>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pmu_version4 {
namespace {

using namespace suites;
using arch::bit;
using arch::IA32_FIXED_CTR_CTRL;
using arch::IA32_PEBS_ENABLE;
using arch::IA32_PERF_GLOBAL_CTRL;
using arch::IA32_PERF_GLOBAL_INUSE;
using arch::IA32_PERF_GLOBAL_STATUS;
using arch::IA32_PERF_GLOBAL_STATUS_RESET;
using arch::IA32_PERF_GLOBAL_STATUS_SET;
using arch::IA32_PERFEVTSEL0;
using arch::MSR_PEBS_FRONTEND;
using arch::Signal;
namespace status = arch::status;

constexpr char kBefore[] = "before architectural version 4";
constexpr char kNoTransactions[] = "CPUID.07H:EBX[11] reports no transactions";
constexpr char kNoEvent[] = "no event for this";
constexpr uint64_t kFixed0 = bit(status::kFixedShift);

bool version4(const arch::Microarch& microarch) { return microarch.perfmon_version >= 4; }

// PMC0 on sparse loads, the threshold behind three records, the freeze on.
SessionPlan freezing(const arch::Microarch& microarch, const arch::Event& event) {
  SessionPlan plan = one_counter(0, event, usable_period(microarch, 0, event, 40), 12);
  plan.threshold_records = 3;
  plan.freeze_on_pmi = true;
  plan.pmi.clear_status = false;
  return plan;
}

}  // namespace

SKIDPROOF_SUITE(PmuVersion4, kWrite);
SKIDPROOF_SUITE(PmuFreeze, kInterrupt);

// --- STATUS_SET and STATUS_RESET

SKIDPROOF_TEST(PmuVersion4, SetsAndResetsEachStatusBitByItself, clause::G7, clause::M15) {
  SKIDPROOF_REQUIRE(version4(uarch()), SkipCategory::kNotOnThisMicroarch, kBefore);
  Restore restore(machine(), {IA32_PERF_GLOBAL_CTRL});
  need(machine().wrmsr(IA32_PERF_GLOBAL_CTRL, 0));
  std::vector<uint64_t> each = {status::kOvfBuffer, status::kLbrFrozen, status::kCountersFrozen};
  for (unsigned n = 0; n < reported_counters(machine()); ++n) each.push_back(bit(n));
  for (unsigned i = 0; i < uarch().fixed_counters; ++i) each.push_back(kFixed0 << i);
  uint64_t all = 0;
  for (uint64_t one : each) all |= one;
  need(machine().wrmsr(IA32_PERF_GLOBAL_STATUS_RESET, all));
  VERIFY_EQ(need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS)) & all, 0u);
  uint64_t expected = 0;
  for (uint64_t one : each) {
    need(machine().wrmsr(IA32_PERF_GLOBAL_STATUS_SET, one));
    expected |= one;
    VERIFY_EQ(need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS)) & all, expected)
        << "after setting " << results::hex(one);
  }
  for (uint64_t one : each) {
    need(machine().wrmsr(IA32_PERF_GLOBAL_STATUS_RESET, one));
    expected &= ~one;
    VERIFY_EQ(need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS)) & all, expected)
        << "after resetting " << results::hex(one);
  }
}

// Trace_ToPA_PMI, as every other.
SKIDPROOF_TEST(PmuVersion4, SetsAndResetsTheBitOfATracesPmi, clause::G7, clause::M15) {
  SKIDPROOF_REQUIRE(version4(uarch()), SkipCategory::kNotOnThisMicroarch, kBefore);
  SKIDPROOF_REQUIRE(uarch().processor_trace, SkipCategory::kMachineLimit,
                    "CPUID.07H:EBX[25] reports no processor trace");
  const Expected<void> written = machine().wrmsr(IA32_PERF_GLOBAL_STATUS_SET, status::kTraceToPa);
  VERIFY_TRUE(written.has_value()) << "it raises #GP";
  if (!written) return;
  VERIFY_EQ(need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS)) & status::kTraceToPa,
            status::kTraceToPa);
  need(machine().wrmsr(IA32_PERF_GLOBAL_STATUS_RESET, status::kTraceToPa));
  VERIFY_EQ(need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS)) & status::kTraceToPa, 0u);
}

SKIDPROOF_TEST_OVER(PmuVersion4, RefusesToSetCondChgdAndReservedBits,
                    over::words({"condchgd", "others"}), clause::G7) {
  if (!version4(uarch())) {
    VERIFY_TRUE(need(refuses(machine(), IA32_PERF_GLOBAL_STATUS_SET, 0))) << "there is none";
    return;
  }
  const uint64_t before = need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS));
  const uint64_t settable = arch::settable_status(uarch(), reported_counters(machine()));
  for (unsigned b = 0; b < 64; ++b) {
    if ((settable & bit(b)) != 0) continue;
    if ((bit(b) == status::kCondChgd) != (param().word() == "condchgd")) continue;
    const Expected<void> written = machine().wrmsr(IA32_PERF_GLOBAL_STATUS_SET, bit(b));
    VERIFY_FALSE(written.has_value()) << "bit " << b;
    VERIFY_EQ(need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS)), before) << "bit " << b;
    if (written) static_cast<void>(machine().wrmsr(IA32_PERF_GLOBAL_STATUS_RESET, bit(b)));
  }
}

// --- INUSE

SKIDPROOF_TEST(PmuVersion4, ShowsWhatIsInUse, clause::G8) {
  SKIDPROOF_REQUIRE(version4(uarch()), SkipCategory::kNotOnThisMicroarch, kBefore);
  const unsigned counters = reported_counters(machine());
  Restore restore(machine(), {IA32_PERF_GLOBAL_CTRL, IA32_FIXED_CTR_CTRL});
  const bool has_enable = uarch().pebs_in_ds_area();
  if (has_enable) restore.add(IA32_PEBS_ENABLE);
  for (uint32_t n = 0; n < counters; ++n) restore.add(IA32_PERFEVTSEL0 + n);
  need(machine().wrmsr(IA32_PERF_GLOBAL_CTRL, 0));
  need(machine().wrmsr(IA32_FIXED_CTR_CTRL, 0));
  if (has_enable) need(machine().wrmsr(IA32_PEBS_ENABLE, 0));
  for (uint32_t n = 0; n < counters; ++n) need(machine().wrmsr(IA32_PERFEVTSEL0 + n, 0));
  auto in_use = [&] { return need(machine().rdmsr(IA32_PERF_GLOBAL_INUSE)); };
  VERIFY_EQ(in_use(), 0u);

  for (uint32_t n = 0; n < counters; ++n) {
    const uint32_t select = IA32_PERFEVTSEL0 + n;
    need(machine().wrmsr(select, 0xC0));
    VERIFY_EQ(in_use(), bit(n)) << "an event alone, not enabled";
    need(machine().wrmsr(select, 0xC0 | arch::evtsel::kInt));
    VERIFY_EQ(in_use(), bit(n) | arch::in_use::kPmi) << "with INT";
    need(machine().wrmsr(select, 0x0100));
    VERIFY_EQ(in_use(), 0u) << "a umask alone";
    need(machine().wrmsr(select, 0));
  }
  for (unsigned i = 0; i < uarch().fixed_counters; ++i) {
    namespace fixed_ctrl = arch::fixed_ctrl;
    for (uint64_t ring : {fixed_ctrl::kOs, fixed_ctrl::kUsr, fixed_ctrl::kOs | fixed_ctrl::kUsr}) {
      need(machine().wrmsr(IA32_FIXED_CTR_CTRL, fixed_ctrl::field(i, ring)));
      VERIFY_EQ(in_use(), kFixed0 << i) << "fixed counter " << i;
    }
    need(machine().wrmsr(IA32_FIXED_CTR_CTRL,
                         fixed_ctrl::field(i, fixed_ctrl::kOs | fixed_ctrl::kPmi)));
    VERIFY_EQ(in_use(), (kFixed0 << i) | arch::in_use::kPmi) << "with its PMI bit";
  }
  need(machine().wrmsr(IA32_FIXED_CTR_CTRL, 0));
  if (!has_enable) return;  // what architectural PEBS shows there no source says
  need(machine().wrmsr(IA32_PEBS_ENABLE, bit(0)));
  VERIFY_EQ(in_use(), arch::in_use::kPmi) << "PEBS may interrupt";
}

SKIDPROOF_TEST(PmuVersion4, LetsNobodyWriteInuse, clause::G8) {
  for (uint64_t value : {uint64_t{0}, bit(0), kFixed0, arch::in_use::kPmi}) {
    const Expected<void> written = machine().wrmsr(IA32_PERF_GLOBAL_INUSE, value);
    VERIFY_FALSE(written.has_value()) << results::hex(value);
  }
  VERIFY_EQ(need(refuses_to_read(machine(), IA32_PERF_GLOBAL_INUSE)), !version4(uarch()));
}

// --- Streamlined freeze

SKIDPROOF_TEST(PmuFreeze, FreezesByCtrFrzAndLeavesGlobalCtrl, clause::R52, clause::R53,
               clause::G9) {
  SKIDPROOF_REQUIRE(version4(uarch()), SkipCategory::kNotOnThisMicroarch, kBefore);
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const SessionPlan plan = freezing(uarch(), *event);
  const uint64_t period = plan.counters[0].period;

  Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(6, period)));

  evidence("status", results::hex(sampled.run.global_status));
  VERIFY_EQ(sampled.run.log.pmis.size(), 1u);
  for (const Pmi& pmi : sampled.run.log.pmis) {
    VERIFY_EQ(pmi.global_ctrl, bit(0)) << "GLOBAL_CTRL is left alone";
    VERIFY_EQ(pmi.global_status & status::kCountersFrozen, status::kCountersFrozen);
  }
  VERIFY_EQ(sampled.records().size(), 3u) << "nothing counts behind the freeze";
  VERIFY_EQ(sampled.run.global_status & status::kCountersFrozen, status::kCountersFrozen);

  // Still frozen in the next run, and no longer once the bit is cleared.
  const SessionRun frozen = need(sampled.session.resume(code, 3 * (period + 1)));
  VERIFY_EQ(frozen.counters[0], sampled.run.counters[0]) << "frozen";
  need(machine().wrmsr(IA32_PERF_GLOBAL_STATUS_RESET, status::kCountersFrozen));
  VERIFY_EQ(need(machine().rdmsr(IA32_PERF_GLOBAL_STATUS)) & status::kCountersFrozen, 0u);
  const SessionRun on = need(sampled.session.resume(code, period / 2));
  VERIFY_NE(on.counters[0], frozen.counters[0]) << "counting again";
}

SKIDPROOF_TEST(PmuFreeze, CountsNothingWhileSoftwareHoldsCtrFrz, clause::G9, clause::G7) {
  SKIDPROOF_REQUIRE(version4(uarch()), SkipCategory::kNotOnThisMicroarch, kBefore);
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("nop_sled");
  SessionPlan plan = one_counter(plain_counter(0, *event), 1);
  plan.fixed = {{.counter = 0}};
  Session session = need(Session::open(machine(), plan));
  const SessionRun free = need(session.run(code, 10));
  VERIFY_GE(free.counters[0], code.total(10).instructions);
  VERIFY_GE(free.fixed[0], code.total(10).instructions);

  need(machine().wrmsr(IA32_PERF_GLOBAL_STATUS_SET, status::kCountersFrozen));
  const SessionRun frozen = need(session.resume(code, 10));
  VERIFY_EQ(frozen.counters[0], free.counters[0]);
  VERIFY_EQ(frozen.fixed[0], free.fixed[0]);

  need(machine().wrmsr(IA32_PERF_GLOBAL_STATUS_RESET, status::kCountersFrozen));
  const SessionRun again = need(session.resume(code, 10));
  VERIFY_GE(again.counters[0] - frozen.counters[0], code.total(10).instructions);
  VERIFY_GE(again.fixed[0] - frozen.fixed[0], code.total(10).instructions);
}

SKIDPROOF_TEST(PmuFreeze, FreezesNothingWithoutDebugctl, clause::R52) {
  SKIDPROOF_REQUIRE(version4(uarch()), SkipCategory::kNotOnThisMicroarch, kBefore);
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  SessionPlan plan = freezing(uarch(), *event);
  plan.freeze_on_pmi = false;

  Sampled sampled =
      need(sample(machine(), plan, code, iterations_for_exactly(6, plan.counters[0].period)));

  VERIFY_EQ(sampled.run.global_status & status::kCountersFrozen, 0u);
  VERIFY_EQ(sampled.records().size(), 6u);
}

// --- MSR_PEBS_FRONTEND, and the transactional bits of the selects

SKIDPROOF_TEST(PmuVersion4, KeepsTheDefinedBitsOfPebsFrontend, clause::G10) {
  const uint64_t defined = uarch().frontend_defined;
  if (defined == 0) {
    VERIFY_TRUE(need(refuses_to_read(machine(), MSR_PEBS_FRONTEND)));
    VERIFY_TRUE(need(refuses(machine(), MSR_PEBS_FRONTEND, 0)));
    return;
  }
  Restore restore(machine(), {MSR_PEBS_FRONTEND});
  // DSB_MISS, STLB_MISS, LATENCY_GE_16, all.
  for (uint64_t value : {uint64_t{0x11}, uint64_t{0x15}, uint64_t{0x401006}, defined}) {
    need(machine().wrmsr(MSR_PEBS_FRONTEND, value));
    VERIFY_EQ(need(machine().rdmsr(MSR_PEBS_FRONTEND)), value);
  }
  for (unsigned b = 0; b < 64; ++b) {
    if ((defined & bit(b)) == 0) {
      VERIFY_TRUE(need(refuses(machine(), MSR_PEBS_FRONTEND, bit(b)))) << "bit " << b;
    }
  }
}

SKIDPROOF_TEST(PmuVersion4, TakesInTxcpOnSelect2Alone, clause::G11) {
  SKIDPROOF_REQUIRE(uarch().tsx, SkipCategory::kMachineLimit, kNoTransactions);
  for (uint32_t n = 0; n < reported_counters(machine()); ++n) {
    VERIFY_FALSE(need(refuses(machine(), IA32_PERFEVTSEL0 + n, arch::evtsel::kInTx)))
        << "IN_TX of select " << n;
    VERIFY_EQ(need(refuses(machine(), IA32_PERFEVTSEL0 + n, arch::evtsel::kInTxCp)),
              n != arch::evtsel::kInTxCpCounter)
        << "IN_TXCP of select " << n;
  }
}

// No program here is ever inside a transaction: IN_TX counts nothing, IN_TXCP everything.
SKIDPROOF_TEST(PmuVersion4, CountsNothingInTransactionsOutsideThem, clause::G11) {
  SKIDPROOF_REQUIRE(uarch().tsx, SkipCategory::kMachineLimit, kNoTransactions);
  constexpr uint32_t kCounter = arch::evtsel::kInTxCpCounter;
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions, kCounter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("mixed");
  const uint64_t select = plain_counter(kCounter, *event).select_msr();
  auto counted = [&](uint64_t value) {
    Restore restore(machine(), {arch::IA32_PMC0 + kCounter, IA32_PERFEVTSEL0 + kCounter,
                                IA32_PERF_GLOBAL_CTRL});
    RunPlan plan;
    plan.iterations = 50;
    plan.enable = {{IA32_PERF_GLOBAL_CTRL, 0},
                   {arch::IA32_PMC0 + kCounter, 0},
                   {IA32_PERFEVTSEL0 + kCounter, value},
                   {IA32_PERF_GLOBAL_CTRL, bit(kCounter)}};
    plan.disable = {{IA32_PERF_GLOBAL_CTRL, 0}};
    plan.read = {arch::IA32_PMC0 + kCounter};
    return need(machine().run(code, plan)).read.at(0);
  };
  const uint64_t plain = counted(select);
  VERIFY_GE(plain, code.total(50).instructions);
  VERIFY_EQ(counted(select | arch::evtsel::kInTx), 0u);
  VERIFY_THAT(difference(counted(select | arch::evtsel::kInTxCp), plain),
              within(0, 2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions))));
}

}  // namespace skidproof::check::pmu_version4
