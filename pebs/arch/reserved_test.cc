// Writable masks and enumeration values, against figures worked out by hand from the manual.
#include "pebs/arch/reserved.h"

#include <gtest/gtest.h>

#include "pebs/arch/generations.h"

namespace skidproof::arch {
namespace {

// SDM 18.9.2: 4 with a sibling thread, 8 without, on Sandy Bridge; always 4 before.
TEST(Reserved, CounterCoalescence) {
  for (const Microarch* m : {&kSandyBridge, &kIvyBridge}) {
    EXPECT_EQ(gp_counters(*m, true), 4U);
    EXPECT_EQ(gp_counters(*m, false), 8U);
  }
  for (const Microarch* m : {&kNehalem, &kWestmere}) {
    EXPECT_EQ(gp_counters(*m, true), 4U);
    EXPECT_EQ(gp_counters(*m, false), 4U);
  }
}

// Figure 18-33, 18-34: PMC0-3 (0-7 when present), fixed 32-34, 61, 62, 63; bits 7:4 reserved
// with 4.
TEST(Reserved, GlobalRegistersWithFourCounters) {
  for (const Microarch* m : microarchs()) {
    EXPECT_EQ(writable_global_ctrl(*m, 4), 0x0000'0007'0000'000FU) << m->name;
    EXPECT_EQ(clearable_status(*m, 4), 0xE000'0007'0000'000FU) << m->name;
    EXPECT_EQ(status_bits(*m, 4), 0xE000'0007'0000'000FU) << m->name;
  }
}

TEST(Reserved, GlobalRegistersWithEightCounters) {
  EXPECT_EQ(writable_global_ctrl(kSandyBridge, 8), 0x0000'0007'0000'00FFU);
  EXPECT_EQ(clearable_status(kSandyBridge, 8), 0xE000'0007'0000'00FFU);
}

// Figure 18-21: 3:0 and 35:32. Figure 18-35 adds 63.
TEST(Reserved, PebsEnable) {
  EXPECT_EQ(writable_pebs_enable(kNehalem), 0x0000'000F'0000'000FU);
  EXPECT_EQ(writable_pebs_enable(kWestmere), 0x0000'000F'0000'000FU);
  EXPECT_EQ(writable_pebs_enable(kSandyBridge), 0x8000'000F'0000'000FU);
  EXPECT_EQ(writable_pebs_enable(kIvyBridge), 0x8000'000F'0000'000FU);
}

TEST(Reserved, SelectsFixedControlAndThreshold) {
  for (const Microarch* m : microarchs()) {
    EXPECT_EQ(writable_perfevtsel(*m), 0xFFFF'FFFFU) << m->name;
    EXPECT_EQ(writable_fixed_ctr_ctrl(*m), 0xFFFU) << m->name;
    EXPECT_EQ(gp_counter_mask(*m), 0xFFFF'FFFF'FFFFU) << m->name;
    EXPECT_EQ(fixed_counter_mask(*m), 0xFFFF'FFFF'FFFFU) << m->name;
  }
  EXPECT_EQ(kWritableLoadLatencyThreshold, 0xFFFFU);
  EXPECT_EQ(kMinimumLoadLatencyThreshold, 3U);
}

// SDM 18.9.3: the legacy alias sign-extends EAX; EDX does not matter.
TEST(Reserved, LegacyWriteSignExtends) {
  EXPECT_EQ(legacy_write_value(kSandyBridge, 0x8000'0000U), 0xFFFF'8000'0000U);
  EXPECT_EQ(legacy_write_value(kSandyBridge, 0x7FFF'FFFFU), 0x7FFF'FFFFU);
  EXPECT_EQ(legacy_write_value(kSandyBridge, 0xFFFF'FFFF'0123'4567U), 0x0123'4567U);
  EXPECT_EQ(legacy_write_value(kNehalem, 0xFFFF'FFFFU), 0xFFFF'FFFF'FFFFU);
}

TEST(Reserved, DebugctlAndLvt) {
  for (const Microarch* m : microarchs()) {
    EXPECT_EQ(writable_debugctl(*m), 0x7FC3U) << m->name;
  }
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
}

TEST(Enumeration, PerfmonLeaf) {
  const PerfmonLeaf shared = perfmon_leaf(kSandyBridge, true);
  EXPECT_EQ(shared.eax, 0x0730'0403U);
  EXPECT_EQ(shared.ebx, 0U);
  EXPECT_EQ(shared.ecx, 0U);
  EXPECT_EQ(shared.edx, 0x603U);
  EXPECT_EQ(perfmon_leaf(kSandyBridge, false).eax, 0x0730'0803U);
  EXPECT_EQ(perfmon_leaf(kNehalem, false).eax, 0x0730'0403U);
}

// LBR_FMT 3, PEBS_TRAP, PEBS_ARCH_REG, format 1, SMM_FREEZE, and FW_WRITE from Sandy Bridge on.
TEST(Enumeration, PerfCapabilities) {
  EXPECT_EQ(perf_capabilities(kNehalem), 0x11C3U);
  EXPECT_EQ(perf_capabilities(kWestmere), 0x11C3U);
  EXPECT_EQ(perf_capabilities(kSandyBridge), 0x31C3U);
  EXPECT_EQ(perf_capabilities(kIvyBridge), 0x31C3U);
}

}  // namespace
}  // namespace skidproof::arch
