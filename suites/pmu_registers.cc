// Registers and enumeration: CPUID, IA32_PERF_CAPABILITIES and the MSRs say the same, absent
// counters and reserved bits raise #GP, and what is defined reads back.
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "harness/check/check.h"
#include "pebs/arch/names.h"
#include "suites/exact.h"

namespace skidproof::check::pmu_registers {
namespace {

using namespace suites;
using namespace arch;  // MSR names

// The bits of [low, high].
constexpr uint64_t bits(unsigned low, unsigned high) { return low_bits(high + 1) & ~low_bits(low); }

std::vector<unsigned> positions(uint64_t mask) {
  std::vector<unsigned> out;
  for (unsigned b = 0; b < 64; ++b) {
    if ((mask >> b & 1) != 0) out.push_back(b);
  }
  return out;
}

// The bits of a mask that a register accepts one at a time although it should refuse them all.
Expected<uint64_t> accepted_bits(Machine& machine, uint32_t msr, uint64_t mask) {
  const uint64_t before = SKIDPROOF_TRY(machine.rdmsr(msr));
  uint64_t accepted = 0;
  for (unsigned b : positions(mask)) {
    if (!SKIDPROOF_TRY(refuses(machine, msr, before | bit(b)))) accepted |= bit(b);
  }
  return accepted;
}

// Writes each value and says which did not read back.
Expected<std::vector<std::string>> lost_values(Machine& machine, uint32_t msr,
                                               const std::vector<uint64_t>& values) {
  Restore restore(machine, {msr});
  std::vector<std::string> lost;
  for (uint64_t value : values) {
    SKIDPROOF_CHECK(machine.wrmsr(msr, value));
    const uint64_t read = SKIDPROOF_TRY(machine.rdmsr(msr));
    if (read != value) lost.push_back(results::hex(value) + " read " + results::hex(read));
  }
  return lost;
}

// Words of a register's defined bits: each alone, all, none, and some random ones.
std::vector<uint64_t> defined_words(uint64_t defined, Random& random) {
  std::vector<uint64_t> words = {defined, 0};
  for (unsigned b : positions(defined)) words.push_back(bit(b));
  for (int i = 0; i < 8; ++i) words.push_back(random.next() & defined);
  return words;
}

// Those that CPUID.23H alone lists, where GLOBAL_CTRL has them.
uint64_t extended_counters(const arch::Microarch& microarch) {
  const arch::ExtendedPerfmon& x = microarch.extended;
  return uint64_t{x.gp} | uint64_t{x.fixed} << status::kFixedShift;
}

}  // namespace

SKIDPROOF_SUITE(PmuEnumeration, kRead);
SKIDPROOF_SUITE(PmuRegisters, kWrite);

// --- Enumeration

SKIDPROOF_TEST(PmuEnumeration, AnnounceDebugStoreAndCapabilities, clause::M4, clause::M25) {
  const Machine::CpuidResult features = machine().cpuid(1, 0);
  VERIFY_EQ(features.edx >> 21 & 1, 1u) << "DS";
  VERIFY_EQ(features.ecx >> 2 & 1, 1u) << "DTES64";
  VERIFY_EQ(features.ecx >> 15 & 1, 1u) << "PDCM";
  const uint64_t enable = need(machine().rdmsr(IA32_MISC_ENABLE));
  evidence("misc-enable", results::hex(enable));
  VERIFY_EQ(enable & misc_enable::kPerfmonAvailable, misc_enable::kPerfmonAvailable);
  VERIFY_EQ(enable & misc_enable::kPebsUnavailable, 0u);
}

SKIDPROOF_TEST(PmuEnumeration, NumberCountersByTheThreadsOfTheCore, clause::R37, clause::M1) {
  const uint32_t eax = machine().cpuid(0xA, 0).eax;
  const unsigned counters = reported_counters(machine());
  evidence("counters", counters);
  evidence("sibling-thread", machine().identity().sibling_thread);
  VERIFY_EQ(eax & 0xFF, uint32_t{uarch().perfmon_version});
  VERIFY_EQ(eax >> 16 & 0xFF, uint32_t{uarch().gp_width});
  VERIFY_FALSE(need(refuses_to_read(machine(), IA32_PMC0 + counters - 1))) << "the last of them";
  if (machine().identity().sibling_thread) {
    VERIFY_EQ(counters, unsigned{uarch().gp_counters});
  } else {  // some products report 4 whatever their threads (uarch.md)
    VERIFY_THAT(counters, ::testing::AnyOf(uarch().gp_counters, uarch().gp_counters_alone));
  }
}

SKIDPROOF_TEST(PmuEnumeration, AnnounceTheFixedCounters, clause::M3, clause::M2) {
  const Machine::CpuidResult leaf = machine().cpuid(0xA, 0);
  VERIFY_EQ(leaf.edx & 0x1F, uint32_t{uarch().fixed_counters});
  VERIFY_EQ(leaf.edx >> 5 & 0xFF, uint32_t{uarch().fixed_width});
  VERIFY_EQ(leaf.ebx >> 1 & 1, 0u) << "instructions retired is available";
  for (uint32_t i = 0; i < (leaf.edx & 0x1F); ++i) {
    VERIFY_FALSE(need(refuses_to_read(machine(), IA32_FIXED_CTR0 + i))) << "fixed counter " << i;
  }
}

SKIDPROOF_TEST(PmuRegisters, AnswerForEveryReportedCounter, clause::M1, clause::R37) {
  const unsigned counters = reported_counters(machine());
  VERIFY_GT(counters, 0u);
  for (uint32_t n = 0; n < counters; ++n) {
    const uint32_t counter = IA32_PMC0 + n;
    const uint32_t select = IA32_PERFEVTSEL0 + n;
    const bool absent =
        need(refuses_to_read(machine(), counter)) || need(refuses_to_read(machine(), select));
    VERIFY_FALSE(absent) << "counter " << n;
    if (absent) continue;
    VERIFY_THAT(need(lost_values(machine(), counter, {0x1234 + n, 0})), ::testing::IsEmpty());
    VERIFY_THAT(need(lost_values(machine(), select, {0xC0u | evtsel::kOs, 0})),
                ::testing::IsEmpty());
  }
}

SKIDPROOF_TEST(PmuRegisters, DescribePebsInPerfCapabilities, clause::M5, clause::R7, clause::M7) {
  const uint64_t value = need(machine().rdmsr(IA32_PERF_CAPABILITIES));
  evidence("perf-capabilities", results::hex(value));
  VERIFY_EQ(value & capabilities::kPebsTrap, capabilities::kPebsTrap);
  VERIFY_EQ(value & capabilities::kPebsArchReg, capabilities::kPebsArchReg);
  evidence("format", (value & capabilities::kFormat) >> capabilities::kFormatShift);
  evidence("format-of-the-row", row().record->format);
  VERIFY_EQ((value & capabilities::kFullWidthWrite) != 0,
            !need(refuses_to_read(machine(), IA32_A_PMC0)));
  VERIFY_TRUE(need(refuses(machine(), IA32_PERF_CAPABILITIES, value ^ capabilities::kPebsTrap)));
  VERIFY_EQ(need(machine().rdmsr(IA32_PERF_CAPABILITIES)), value);
}

// LBR_FMT and what facilities set; nothing else. Of 16, 18 and 19 (PEBS to Intel PT, the TSX address,
// RDPMC that clears the metrics) no row says which parts have them. [SDM Vol. 4 (335592-089), Table
// 2-2, IA32_PERF_CAPABILITIES]
SKIDPROOF_TEST(PmuEnumeration, SetNoOtherBitOfPerfCapabilities, clause::M46, clause::M5) {
  const uint64_t value = need(machine().rdmsr(IA32_PERF_CAPABILITIES));
  VERIFY_EQ(value & 0x3F, uint64_t{uarch().lbr_format}) << "LBR_FMT";
  VERIFY_EQ((value & capabilities::kSmmFreeze) != 0, uarch().smm_freeze);
  const uint64_t named =
      perf_capabilities(uarch()) | capabilities::kPebsTimingInfo | bit(16) | bit(18) | bit(19);
  VERIFY_EQ(results::hex(value & ~named), results::hex(0));
}

SKIDPROOF_TEST(PmuRegisters, KeepReadOnlyBitsOfMiscEnable, clause::M25, clause::M45) {
  const uint64_t before = need(machine().rdmsr(IA32_MISC_ENABLE));
  for (uint64_t fixed : {misc_enable::kPerfmonAvailable, misc_enable::kBtsUnavailable,
                         misc_enable::kPebsUnavailable}) {
    // Ignored or refused: the manual only says that software cannot change them.
    const Expected<void> written = machine().wrmsr(IA32_MISC_ENABLE, before ^ fixed);
    if (!written) {
      VERIFY_EQ(written.error().code, ErrorCode::kGeneralProtection);
    }
    const uint64_t after = need(machine().rdmsr(IA32_MISC_ENABLE));
    VERIFY_EQ(results::hex(after), results::hex(before));
    if (after != before) need(machine().wrmsr(IA32_MISC_ENABLE, before));
  }
}

SKIDPROOF_TEST(PmuRegisters, OfferTheSmmFreezeWhereItIsAnnounced, clause::M44, clause::M24) {
  const uint64_t freeze = bit(14);
  const bool announced =
      (need(machine().rdmsr(IA32_PERF_CAPABILITIES)) & capabilities::kSmmFreeze) != 0;
  evidence("announced", announced);
  const uint64_t before = need(machine().rdmsr(IA32_DEBUGCTL));
  VERIFY_EQ(need(refuses(machine(), IA32_DEBUGCTL, before | freeze)), !announced);
  if (announced) {
    VERIFY_THAT(need(lost_values(machine(), IA32_DEBUGCTL, {before | freeze, before & ~freeze})),
                ::testing::IsEmpty());
  }
}

// TR stays clear: no branch trace message is sent while the bits are looked at.
SKIDPROOF_TEST(PmuRegisters, OfferBtsWhereItIsAvailable, clause::M45, clause::M24) {
  const uint64_t unavailable =
      need(machine().rdmsr(IA32_MISC_ENABLE)) & misc_enable::kBtsUnavailable;
  const uint64_t before = need(machine().rdmsr(IA32_DEBUGCTL));
  constexpr uint64_t kBts = bit(7), kBtint = bit(8);
  evidence("bts-available", unavailable == 0);
  SKIDPROOF_REQUIRE(unavailable == 0, SkipCategory::kMachineLimit, "IA32_MISC_ENABLE[11] is set");
  VERIFY_THAT(need(lost_values(machine(), IA32_DEBUGCTL,
                               {before | kBts, before | kBtint, before | kBts | kBtint, before})),
              ::testing::IsEmpty());
}

// --- Absent counters

SKIDPROOF_TEST_OVER(PmuRegisters, RefuseTheUpperFourCountersWhereThereAreFour,
                    over::counters({4, 5, 6, 7}), clause::M10, clause::R37) {
  const auto n = static_cast<uint32_t>(param().number());
  SKIDPROOF_REQUIRE(reported_counters(machine()) <= n, SkipCategory::kNeedsSibling,
                    "this logical processor has eight counters");
  for (uint32_t msr : {IA32_PMC0 + n, IA32_PERFEVTSEL0 + n, IA32_A_PMC0 + n}) {
    VERIFY_TRUE(need(refuses_to_read(machine(), msr))) << msr_name(msr);
    VERIFY_TRUE(need(refuses(machine(), msr, 0))) << msr_name(msr);
  }
}

SKIDPROOF_TEST_OVER(PmuRegisters, RefuseTheUpperFourGlobalBitsWhereThereAreFour,
                    over::numbers("bit", {4, 5, 6, 7}), clause::M11, clause::R37) {
  const auto b = static_cast<unsigned>(param().number());
  SKIDPROOF_REQUIRE(reported_counters(machine()) <= b, SkipCategory::kNeedsSibling,
                    "this logical processor has eight counters");
  VERIFY_EQ(need(accepted_bits(machine(), IA32_PERF_GLOBAL_CTRL, bit(b))), 0u);
  VERIFY_EQ(need(accepted_bits(machine(), IA32_PERF_GLOBAL_OVF_CTRL, bit(b))), 0u);
}

SKIDPROOF_TEST(PmuRegisters, TakeTheUpperFourGlobalBitsWhereThereAreEight, clause::R37,
               clause::M1) {
  SKIDPROOF_REQUIRE(uarch().gp_counters_alone > 4, SkipCategory::kNotOnThisMicroarch,
                    "there are never eight counters");
  SKIDPROOF_REQUIRE(reported_counters(machine()) == 8, SkipCategory::kNeedsNoSibling,
                    "this logical processor has four counters");
  VERIFY_EQ(need(accepted_bits(machine(), IA32_PERF_GLOBAL_OVF_CTRL, 0xF0)), 0xF0u);
  VERIFY_THAT(need(lost_values(machine(), IA32_PERF_GLOBAL_CTRL, {0xF0, 0})), ::testing::IsEmpty());
}

// --- Reserved bits, one at a time on top of what the register holds

SKIDPROOF_TEST(PmuRegisters, RefuseReservedBitsOfGlobalCtrl, clause::M12) {
  uint64_t reserved =
      (bits(8, 31) | bits(32u + uarch().fixed_counters, 63)) & ~extended_counters(uarch());
  if (uarch().perf_metrics) reserved &= ~status::kPerfMetrics;
  VERIFY_EQ(results::hex(need(accepted_bits(machine(), IA32_PERF_GLOBAL_CTRL, reserved))),
            results::hex(0));
}

// Bit 55 is trace state from Broadwell on, 58 to 60 come with version 4; 61 to 63 can be cleared.
SKIDPROOF_TEST(PmuRegisters, RefuseReservedBitsOfOvfCtrl, clause::M16) {
  uint64_t reserved = bits(8, 31) | bits(32u + uarch().fixed_counters, 60);
  // What the generation has and CPUID hides on this part may be taken all the same.
  reserved &= ~(status_bits(row(), 8) | status_bits(uarch(), 8));
  VERIFY_EQ(results::hex(need(accepted_bits(machine(), IA32_PERF_GLOBAL_OVF_CTRL, reserved))),
            results::hex(0));
}

SKIDPROOF_TEST(PmuRegisters, RefuseReservedBitsOfFixedCtrCtrl, clause::M17) {
  uint64_t reserved = bits(4u * uarch().fixed_counters, 63);
  for (unsigned i = 0; i < kMostFixed; ++i) {
    if ((fixed_bits(uarch()) >> i & 1) == 0) continue;
    if (i >= uarch().fixed_counters) reserved &= ~fixed_ctrl::field(i, 0xF);
    if (uarch().pebs_baseline) reserved &= ~fixed_ctrl::adaptive(i);
  }
  VERIFY_EQ(results::hex(need(accepted_bits(machine(), IA32_FIXED_CTR_CTRL, reserved))),
            results::hex(0));
}

SKIDPROOF_TEST_OVER(PmuRegisters, RefuseReservedBitsOfPerfevtsel,
                    over::numbers("PERFEVTSEL", {0, 1, 2, 3, 4, 5, 6, 7}), clause::M9) {
  const auto n = static_cast<uint32_t>(param().number());
  SKIDPROOF_REQUIRE(reported_counters(machine()) > n, SkipCategory::kMachineLimit,
                    "CPUID reports fewer counters");
  // IN_TX where transactions are there and switched off: nothing says that it is refused.
  uint64_t reserved = ~(writable_perfevtsel(row(), n) | writable_perfevtsel(uarch(), n));
  if (!uarch().reserves_any_thread()) reserved &= ~evtsel::kAnyThread;
  VERIFY_EQ(results::hex(need(accepted_bits(machine(), IA32_PERFEVTSEL0 + n, reserved))),
            results::hex(0));
}

// Every defined bit reads back: alone, with all others, and as a word of random bits. Nothing counts
// meanwhile, since GLOBAL_CTRL is clear. Pin control has had no meaning since there are no pins for
// it: whether it stays is reported.
SKIDPROOF_TEST_OVER(PmuRegisters, KeepEveryDefinedBitOfPerfevtsel,
                    over::numbers("PERFEVTSEL", {0, 1, 2, 3, 4, 5, 6, 7}), clause::M43,
                    clause::M1) {
  const auto n = static_cast<uint32_t>(param().number());
  SKIDPROOF_REQUIRE(reported_counters(machine()) > n, SkipCategory::kMachineLimit,
                    "CPUID reports fewer counters");
  Restore restore(machine(), {IA32_PERF_GLOBAL_CTRL});
  need(machine().wrmsr(IA32_PERF_GLOBAL_CTRL, 0));
  const uint64_t defined = uarch().perfevtsel_defined & ~evtsel::kPinControl;
  VERIFY_THAT(need(lost_values(machine(), IA32_PERFEVTSEL0 + n, defined_words(defined, random()))),
              ::testing::IsEmpty());
  const bool taken = !need(refuses(machine(), IA32_PERFEVTSEL0 + n, evtsel::kPinControl));
  evidence("pin-control",
           !taken ? "refused"
           : need(lost_values(machine(), IA32_PERFEVTSEL0 + n, {evtsel::kPinControl})).empty()
               ? "stays"
               : "is dropped");
}

SKIDPROOF_TEST(PmuRegisters, KeepEveryDefinedBitOfTheGlobalControls, clause::M43, clause::M17,
               clause::M12) {
  const unsigned gp = reported_counters(machine());
  VERIFY_THAT(need(lost_values(machine(), IA32_PERF_GLOBAL_CTRL,
                               defined_words(writable_global_ctrl(uarch(), gp), random()))),
              ::testing::IsEmpty());
  VERIFY_THAT(need(lost_values(machine(), IA32_FIXED_CTR_CTRL,
                               defined_words(writable_fixed_ctr_ctrl(uarch()), random()))),
              ::testing::IsEmpty());
}

SKIDPROOF_TEST(PmuRegisters, KeepEveryDefinedBitOfPebsRegisters, clause::M20, clause::M22,
               clause::M21) {
  uint64_t enable = writable_pebs_enable(uarch());
  if (uarch().precise_store_counter != 0) {  // M21: which of the two is disputed, not that it stays
    const uint64_t disputed = bits(62, 63);
    const uint64_t taken = need(accepted_bits(machine(), IA32_PEBS_ENABLE, disputed));
    enable = (enable & ~disputed) | taken;
  }
  if (uarch().pebs_in_ds_area()) {
    VERIFY_THAT(need(lost_values(machine(), IA32_PEBS_ENABLE, defined_words(enable, random()))),
                ::testing::IsEmpty());
  }
  if (uarch().load_latency_event == 0) return;
  VERIFY_THAT(need(lost_values(machine(), MSR_PEBS_LD_LAT_THRESHOLD,
                               defined_words(kWritableLoadLatencyThreshold, random()))),
              ::testing::IsEmpty());
}

// The sources place PS_EN differently (M21): which of bits 62 and 63 is taken is reported. No source
// has both. With eight counters bits 7:4 are PebsPlacement's.
SKIDPROOF_TEST(PmuRegisters, RefuseReservedBitsOfPebsEnable, clause::M20, clause::M21,
               clause::E10) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch,
                    "PEBS is architectural");
  uint64_t reserved = bits(4, 31) | bits(36, 63);
  // Where records may go to Intel PT instead: which values of the field are refused nothing says.
  if (need(machine().rdmsr(IA32_PERF_CAPABILITIES)) & capabilities::kPebsOutputPt) {
    reserved &= ~pebs_enable::kOutputPt;
  }
  if (uarch().pebs_counters == 1) reserved |= bits(1, 3) | bits(32, 35);
  if (reported_counters(machine()) > 4) reserved &= ~bits(4, 7);
  reserved &= ~extended_counters(uarch());
  if (uarch().precise_store_counter != 0) {
    const uint64_t disputed = bits(62, 63);
    const uint64_t taken = need(accepted_bits(machine(), IA32_PEBS_ENABLE, disputed));
    evidence("ps-en", results::hex(taken));
    VERIFY_NE(results::hex(taken), results::hex(disputed)) << "one PS_EN at most";
    reserved &= ~disputed;
  }
  VERIFY_EQ(results::hex(need(accepted_bits(machine(), IA32_PEBS_ENABLE, reserved))),
            results::hex(0));
  VERIFY_THAT(
      need(lost_values(machine(), IA32_PEBS_ENABLE,
                       {uarch().pebs_counters, uint64_t{uarch().load_latency_enable} << 32, 0})),
      ::testing::IsEmpty());
}

SKIDPROOF_TEST(PmuRegisters, RefuseReservedBitsOfTheLoadLatencyThreshold, clause::M22) {
  VERIFY_EQ(results::hex(need(accepted_bits(machine(), MSR_PEBS_LD_LAT_THRESHOLD, bits(16, 63)))),
            results::hex(0));
  VERIFY_THAT(need(lost_values(machine(), MSR_PEBS_LD_LAT_THRESHOLD, {3, 4, 128, 0xFFFF})),
              ::testing::IsEmpty());
}

SKIDPROOF_TEST(PmuRegisters, RefuseANonCanonicalDsArea, clause::M23) {
  const unsigned width = linear_address_bits(uarch());
  evidence("linear-address-bits", width);
  const unsigned top = width - 1;
  const uint64_t low = random().next() & low_bits(top) & ~uint64_t{63};
  for (uint64_t address :
       {bit(top), bit(top) | low, bit(62), bit(63), bit(63) | low, bits(width, 63) | low}) {
    VERIFY_TRUE(need(refuses(machine(), IA32_DS_AREA, address))) << results::hex(address);
  }
  VERIFY_THAT(need(lost_values(machine(), IA32_DS_AREA, {low, bits(top, 63) | low, 0})),
              ::testing::IsEmpty());
}

// Only the freezes: the other defined bits would start branch tracing.
SKIDPROOF_TEST(PmuRegisters, KeepTheFreezeBitsOfDebugctl, clause::M24) {
  const uint64_t before = need(machine().rdmsr(IA32_DEBUGCTL));
  VERIFY_THAT(need(lost_values(machine(), IA32_DEBUGCTL,
                               {before ^ bit(11), before ^ debugctl::kFreezePerfmonOnPmi,
                                before ^ bit(11) ^ debugctl::kFreezePerfmonOnPmi})),
              ::testing::IsEmpty());
  VERIFY_EQ(need(machine().rdmsr(IA32_DEBUGCTL)), before);
  VERIFY_EQ(results::hex(need(accepted_bits(machine(), IA32_DEBUGCTL, bits(16, 63)))),
            results::hex(0));
}

// Always masked: no interrupt of another vector may come of this test.
SKIDPROOF_COMMON_TEST(PmuRegisters, KeepVectorModeAndMaskOfTheLvtEntry, clause::M26) {
  Restore restore(machine(), {IA32_X2APIC_LVT_PMI});
  VERIFY_THAT(need(lost_values(machine(), IA32_X2APIC_LVT_PMI,
                               {lvt::kMasked | 0x55, lvt::kMasked | 0xFE, lvt::kMasked | lvt::kNmi,
                                lvt::kMasked | lvt::kNmi | 0x20})),
              ::testing::IsEmpty());
  need(machine().wrmsr(IA32_X2APIC_LVT_PMI, lvt::kMasked | lvt::kNmi | lvt::kDeliveryStatus));
  VERIFY_EQ(need(machine().rdmsr(IA32_X2APIC_LVT_PMI)), lvt::kMasked | lvt::kNmi)
      << "the delivery status is read-only";
}

}  // namespace skidproof::check::pmu_registers
