// Writable masks and enumeration values, against figures worked out by hand from the manual.
#include "pebs/arch/reserved.h"

#include <gtest/gtest.h>

#include "pebs/arch/generations.h"

namespace skidproof::arch {
namespace {

// SDM 18.9.2: 4 with a sibling thread, 8 without, on Sandy Bridge; always 4 before.
TEST(Reserved, CounterCoalescence) {
  for (const Microarch* m : {&kSandyBridge, &kIvyBridge, &kHaswell, &kBroadwell, &kSkylake}) {
    EXPECT_EQ(gp_counters(*m, true), 4U);
    EXPECT_EQ(gp_counters(*m, false), 8U);
  }
  for (const Microarch* m : {&kNehalem, &kWestmere}) {
    EXPECT_EQ(gp_counters(*m, true), 4U);
    EXPECT_EQ(gp_counters(*m, false), 4U);
  }
  for (const Microarch* m : {&kIceLake, &kAlderLakeP, &kSapphireRapids}) {
    EXPECT_EQ(gp_counters(*m, true), 8U);
    EXPECT_EQ(gp_counters(*m, false), 8U);
  }
  EXPECT_EQ(gp_counters(kCore2, true), 2U);
  EXPECT_EQ(gp_counters(kCore2, false), 2U);
}

// Figure 18-33, 18-34: PMC0-3 (0-7 when present), fixed 32-34, 61, 62, 63; bits 7:4 reserved
// with 4.
TEST(Reserved, GlobalRegistersWithFourCounters) {
  for (const Microarch* m : {&kNehalem, &kWestmere, &kSandyBridge, &kIvyBridge, &kHaswell}) {
    EXPECT_EQ(writable_global_ctrl(*m, 4), 0x0000'0007'0000'000FU) << m->name;
    EXPECT_EQ(clearable_status(*m, 4), 0xE000'0007'0000'000FU) << m->name;
    EXPECT_EQ(status_bits(*m, 4), 0xE000'0007'0000'000FU) << m->name;
  }
}

TEST(Reserved, GlobalRegistersWithEightCounters) {
  EXPECT_EQ(writable_global_ctrl(kSandyBridge, 8), 0x0000'0007'0000'00FFU);
  EXPECT_EQ(clearable_status(kSandyBridge, 8), 0xE000'0007'0000'00FFU);
}

// Version 2 has no uncore; Broadwell adds 55, version 4 adds 58, 59 and with SGX 60; Ice Lake adds a
// fixed counter and 48.
TEST(Reserved, GlobalRegistersOfTheOtherVersions) {
  EXPECT_EQ(writable_global_ctrl(kCore2, 2), 0x0000'0007'0000'0003U);
  EXPECT_EQ(status_bits(kCore2, 2), 0xC000'0007'0000'0003U);
  EXPECT_EQ(status_bits(kBroadwell, 4), 0xE080'0007'0000'000FU);
  EXPECT_EQ(status_bits(kSkylake, 4), 0xFC80'0007'0000'000FU);
  EXPECT_EQ(writable_global_ctrl(kIceLake, 8), 0x0001'000F'0000'00FFU);
  EXPECT_EQ(status_bits(kIceLake, 8), 0xFC81'000F'0000'00FFU);
  EXPECT_EQ(status_bits(kAlderLakeP, 8), 0xEC81'000F'0000'00FFU) << "no SGX";
  EXPECT_EQ(settable_status(kHaswell, 4), 0U);
  EXPECT_EQ(settable_status(kSkylake, 4), 0x7C80'0007'0000'000FU) << "all but CondChgd";
}

// Figure 18-21: 3:0 and 35:32. Figure 18-35 adds 63.
TEST(Reserved, PebsEnable) {
  EXPECT_EQ(writable_pebs_enable(kNehalem), 0x0000'000F'0000'000FU);
  EXPECT_EQ(writable_pebs_enable(kWestmere), 0x0000'000F'0000'000FU);
  EXPECT_EQ(writable_pebs_enable(kSandyBridge), 0x8000'000F'0000'000FU);
  EXPECT_EQ(writable_pebs_enable(kIvyBridge), 0x8000'000F'0000'000FU);
  EXPECT_EQ(writable_pebs_enable(kCore2), 0x1U);
  for (const Microarch* m : {&kHaswell, &kBroadwell, &kSkylake}) {
    EXPECT_EQ(writable_pebs_enable(*m), 0x0000'000F'0000'000FU) << m->name;
  }
  // The same bits 35:32, now the fixed counters'.
  for (const Microarch* m : {&kIceLake, &kAlderLakeP, &kSapphireRapids}) {
    EXPECT_EQ(writable_pebs_enable(*m), 0x0000'000F'0000'00FFU) << m->name;
  }
}

TEST(Reserved, SelectsFixedControlAndThreshold) {
  for (const Microarch* m : {&kNehalem, &kWestmere, &kSandyBridge, &kIvyBridge}) {
    for (unsigned n = 0; n < 4; ++n) EXPECT_EQ(writable_perfevtsel(*m, n), 0xFFFF'FFFFU) << m->name;
    EXPECT_EQ(writable_fixed_ctr_ctrl(*m), 0xFFFU) << m->name;
    EXPECT_EQ(gp_counter_mask(*m), 0xFFFF'FFFF'FFFFU) << m->name;
    EXPECT_EQ(fixed_counter_mask(*m), 0xFFFF'FFFF'FFFFU) << m->name;
  }
  EXPECT_EQ(gp_counter_mask(kCore2), 0xFF'FFFF'FFFFU);
  EXPECT_EQ(fixed_counter_mask(kCore2), 0xFF'FFFF'FFFFU);
  EXPECT_EQ(writable_perfevtsel(kCore2, 0), 0xFFDF'FFFFU) << "AnyThread comes with version 3";
  EXPECT_EQ(writable_fixed_ctr_ctrl(kCore2), 0xBBBU);
  EXPECT_EQ(kWritableLoadLatencyThreshold, 0xFFFFU);
  EXPECT_EQ(minimum_load_latency_threshold(kCore2), 3U);
}

// 18.11.5: IN_TX on every select, IN_TXCP on IA32_PERFEVTSEL2 alone. Version 5 drops AnyThread;
// Adaptive is bit 34, and 32, 36, 40, 44 of the fixed control.
TEST(Reserved, SelectsOfTransactionalAndAdaptiveParts) {
  for (const Microarch* m : {&kHaswell, &kBroadwell, &kSkylake}) {
    EXPECT_EQ(writable_perfevtsel(*m, 0), 0x1'FFFF'FFFFU) << m->name;
    EXPECT_EQ(writable_perfevtsel(*m, 2), 0x3'FFFF'FFFFU) << m->name;
    EXPECT_EQ(writable_perfevtsel(*m, 3), 0x1'FFFF'FFFFU) << m->name;
    EXPECT_EQ(writable_fixed_ctr_ctrl(*m), 0xFFFU) << m->name;
  }
  EXPECT_EQ(writable_perfevtsel(kIceLake, 1), 0x5'FFDF'FFFFU);
  EXPECT_EQ(writable_perfevtsel(kIceLake, 2), 0x7'FFDF'FFFFU);
  EXPECT_EQ(writable_perfevtsel(kAlderLakeP, 2), 0x4'FFDF'FFFFU) << "no transactions";
  EXPECT_EQ(writable_perfevtsel(kSapphireRapids, 2), 0x7'FFDF'FFFFU);
  for (const Microarch* m : {&kIceLake, &kAlderLakeP, &kSapphireRapids}) {
    EXPECT_EQ(writable_fixed_ctr_ctrl(*m), 0x1111'0000'BBBBU) << m->name;
    EXPECT_EQ(writable_pebs_data_cfg(*m), 0xFF00'000FU) << m->name;
  }
  EXPECT_EQ(writable_pebs_data_cfg(kSkylake), 0U);
  EXPECT_EQ(kSkylake.frontend_defined, 0x7F'FF17U);
  EXPECT_EQ(kSapphireRapids.frontend_defined, 0x7F'FF1FU);
  EXPECT_EQ(kBroadwell.frontend_defined, 0U);
}

// SDM 18.9.3: the legacy alias sign-extends EAX; EDX does not matter.
TEST(Reserved, LegacyWriteSignExtends) {
  EXPECT_EQ(legacy_write_value(kSandyBridge, 0x8000'0000U), 0xFFFF'8000'0000U);
  EXPECT_EQ(legacy_write_value(kSandyBridge, 0x7FFF'FFFFU), 0x7FFF'FFFFU);
  EXPECT_EQ(legacy_write_value(kSandyBridge, 0xFFFF'FFFF'0123'4567U), 0x0123'4567U);
  EXPECT_EQ(legacy_write_value(kNehalem, 0xFFFF'FFFFU), 0xFFFF'FFFF'FFFFU);
}

TEST(Reserved, DebugctlAndLvt) {
  for (const Microarch* m : {&kNehalem, &kWestmere, &kSandyBridge, &kIvyBridge, &kAlderLakeP}) {
    EXPECT_EQ(writable_debugctl(*m), 0x7FC3U) << m->name;
  }
  for (const Microarch* m : {&kHaswell, &kBroadwell, &kSkylake, &kIceLake, &kSapphireRapids}) {
    EXPECT_EQ(writable_debugctl(*m), 0xFFC3U) << m->name;
  }
  EXPECT_EQ(writable_debugctl(kCore2), 0x1FC3U);
  Microarch without_smm_freeze = kNehalem;
  without_smm_freeze.smm_freeze = false;
  EXPECT_EQ(writable_debugctl(without_smm_freeze), 0x3FC3U);
  EXPECT_EQ(kWritableLvt, 0x107FFU);
  EXPECT_EQ(kReadOnlyLvt, 0x1000U);
  EXPECT_EQ(kResetLvt, 0x10000U);
}

TEST(Reserved, CanonicalAddresses) {
  EXPECT_TRUE(canonical(0));
  EXPECT_TRUE(canonical(0x0000'7FFF'FFFF'FFFFU));
  EXPECT_TRUE(canonical(0xFFFF'8000'0000'0000U));
  EXPECT_FALSE(canonical(0x0000'8000'0000'0000U));
  EXPECT_FALSE(canonical(0x8000'0000'0000'0000U));
  const unsigned wide = linear_address_bits(kSapphireRapids);
  EXPECT_EQ(wide, 57U);
  EXPECT_EQ(linear_address_bits(kAlderLakeP), 48U);
  EXPECT_TRUE(canonical(0x0000'8000'0000'0000U, wide));
  EXPECT_TRUE(canonical(0x00FF'FFFF'FFFF'FFFFU, wide));
  EXPECT_TRUE(canonical(0xFF00'0000'0000'0000U, wide));
  EXPECT_FALSE(canonical(0x0100'0000'0000'0000U, wide));
  EXPECT_FALSE(canonical(0xFE00'0000'0000'0000U, wide));
}

TEST(Enumeration, PerfmonLeaf) {
  const PerfmonLeaf shared = perfmon_leaf(kSandyBridge, true);
  EXPECT_EQ(shared.eax, 0x0730'0403U);
  EXPECT_EQ(shared.ebx, 0U);
  EXPECT_EQ(shared.ecx, 0U);
  EXPECT_EQ(shared.edx, 0x603U);
  EXPECT_EQ(perfmon_leaf(kSandyBridge, false).eax, 0x0730'0803U);
  EXPECT_EQ(perfmon_leaf(kNehalem, false).eax, 0x0730'0403U);
  EXPECT_EQ(perfmon_leaf(kCore2, false).eax, 0x0728'0202U);
  EXPECT_EQ(perfmon_leaf(kCore2, false).edx, 0x503U);
  EXPECT_EQ(perfmon_leaf(kSkylake, true).eax, 0x0730'0404U);
  const PerfmonLeaf five = perfmon_leaf(kIceLake, true);
  EXPECT_EQ(five.eax, 0x0730'0805U);
  EXPECT_EQ(five.ecx, 0xFU);
  EXPECT_EQ(five.edx, 0x8604U);
}

// LBR_FMT 3, PEBS_TRAP, PEBS_ARCH_REG, format 1, SMM_FREEZE, and FW_WRITE from Sandy Bridge on.
TEST(Reserved, ArchitecturalPebs) {
  const Microarch& p = kPantherLakeP;
  EXPECT_EQ(writable_cfg_c(p, true), 0xE006'0378'FFFF'FFFFu);
  EXPECT_EQ(writable_cfg_c(p, false), 0xFFFF'FFFFu) << "auto reload alone";
  EXPECT_EQ(writable_cfg_c(kClearwaterForest, true), 0xE006'0338'FFFF'FFFFu) << "no metrics";
  EXPECT_EQ(writable_cfg_c(kLunarLakeE, true), 0xFFFF'FFFFu);
  EXPECT_EQ(pebs_overflow(p), bit(54));
  EXPECT_EQ(pebs_overflow(kLunarLakeP), bit(62));
  EXPECT_NE(status_bits(p, 8) & bit(54), 0u);
  EXPECT_EQ(status_bits(kLunarLakeP, 8) & bit(54), 0u);
  EXPECT_EQ(perf_capabilities(p) & capabilities::kFormat, capabilities::kFormat);
  EXPECT_EQ(pebs_base::bytes(0x1000), 4096u);
  EXPECT_EQ(pebs_base::bytes(0x1004), 65536u);
  EXPECT_EQ(pebs_base::bytes(0), 0u) << "off";
  EXPECT_EQ(pebs_index::write_bytes(pebs_index::kDefined), 0x7FF'FFF0u);
  EXPECT_EQ(pebs_index::threshold_bytes(pebs_index::threshold_field(0x1230)), 0x1230u);
}

TEST(Enumeration, PerfCapabilities) {
  EXPECT_EQ(perf_capabilities(kNehalem), 0x11C3U);
  EXPECT_EQ(perf_capabilities(kWestmere), 0x11C3U);
  EXPECT_EQ(perf_capabilities(kSandyBridge), 0x31C3U);
  EXPECT_EQ(perf_capabilities(kIvyBridge), 0x31C3U);
  EXPECT_EQ(perf_capabilities(kCore2), 0x00C2U);
  EXPECT_EQ(perf_capabilities(kHaswell), 0x32C4U);
  EXPECT_EQ(perf_capabilities(kBroadwell), 0x32C4U);
  EXPECT_EQ(perf_capabilities(kSkylake), 0x33C5U);
  EXPECT_EQ(perf_capabilities(kIceLake), 0xF4C5U);
  EXPECT_EQ(perf_capabilities(kAlderLakeP), 0xF4FFU);
  EXPECT_EQ(perf_capabilities(kSapphireRapids), 0xF4FFU);
  Microarch redwood = kSapphireRapids;  // Redwood Cove's three differences
  redwood.record = &kRecordFormat5;
  redwood.pebs_timing_info = true;
  EXPECT_EQ(perf_capabilities(redwood), 0x2'F5FFU);
}

}  // namespace
}  // namespace skidproof::arch
