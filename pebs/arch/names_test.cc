// MSR names.
#include "pebs/arch/names.h"

#include <gtest/gtest.h>

namespace skidproof::arch {
namespace {

TEST(MsrName, NumberedOnesCarryTheirNumber) {
  EXPECT_EQ(msr_name(0x0C1), "IA32_PMC0");
  EXPECT_EQ(msr_name(0x0C8), "IA32_PMC7");
  EXPECT_EQ(msr_name(0x189), "IA32_PERFEVTSEL3");
  EXPECT_EQ(msr_name(0x30B), "IA32_FIXED_CTR2");
  EXPECT_EQ(msr_name(0x4C8), "IA32_A_PMC7");
}

TEST(MsrName, SingleOnes) {
  EXPECT_EQ(msr_name(0x345), "IA32_PERF_CAPABILITIES");
  EXPECT_EQ(msr_name(0x38E), "IA32_PERF_GLOBAL_STATUS");
  EXPECT_EQ(msr_name(0x390), "IA32_PERF_GLOBAL_OVF_CTRL");
  EXPECT_EQ(msr_name(0x3F1), "IA32_PEBS_ENABLE");
  EXPECT_EQ(msr_name(0x3F6), "MSR_PEBS_LD_LAT_THRESHOLD");
  EXPECT_EQ(msr_name(0x391), "IA32_PERF_GLOBAL_STATUS_SET");
  EXPECT_EQ(msr_name(0x392), "IA32_PERF_GLOBAL_INUSE");
  EXPECT_EQ(msr_name(0x3F2), "MSR_PEBS_DATA_CFG");
  EXPECT_EQ(msr_name(0x3F7), "MSR_PEBS_FRONTEND");
  EXPECT_EQ(msr_name(0x600), "IA32_DS_AREA");
}

TEST(MsrName, OfTheBankByCounterAndPart) {
  EXPECT_EQ(msr_name(0x1900), "IA32_PMC_GP0_CTR");
  EXPECT_EQ(msr_name(0x1925), "IA32_PMC_GP9_CFG_A");
  EXPECT_EQ(msr_name(0x190A), "IA32_PMC_GP2_CFG_B");
  EXPECT_EQ(msr_name(0x1983), "IA32_PMC_FX0_CFG_C");
  EXPECT_EQ(msr_name(0x1998), "IA32_PMC_FX6_CTR");
  EXPECT_EQ(msr_name(0x18FF), "MSR 18FFH");
  EXPECT_EQ(msr_name(0x19C0), "MSR 19C0H");
}

TEST(MsrName, UnknownOnesGiveTheirAddress) {
  EXPECT_EQ(msr_name(0x0C9), "MSR C9H");
  EXPECT_EQ(msr_name(0x30D), "MSR 30DH");
  EXPECT_EQ(msr_name(0x0), "MSR 0H");
}

}  // namespace
}  // namespace skidproof::arch
