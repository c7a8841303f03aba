// CPUID leaves out of the rows, read back field by field.
#include "pebs/arch/enumeration.h"

#include <gtest/gtest.h>

#include <string>

#include "pebs/arch/generations.h"

namespace skidproof::arch {
namespace {

TEST(EnumerationTest, CachesReadBackAsTheManualComputesTheirSize) {
  for (const Microarch* m : microarchs()) {
    SCOPED_TRACE(std::string(m->name));
    const uint32_t bytes[] = {m->caches.l1_bytes, m->caches.l2_bytes, m->caches.l3_bytes};
    for (uint32_t n = 0; n < 3; ++n) {
      const CpuidLeaf leaf = caches_leaf(m->caches, n);
      EXPECT_EQ(leaf.eax & 0x1F, n == 0 ? cpuid::kDataCache : cpuid::kUnifiedCache);
      EXPECT_EQ(leaf.eax >> 5 & 7, n + 1);
      // (ways + 1) * (partitions + 1) * (line + 1) * (sets + 1)
      EXPECT_EQ(((leaf.ebx >> 22) + 1) * ((leaf.ebx >> 12 & 0x3FF) + 1) * ((leaf.ebx & 0xFFF) + 1) *
                    (leaf.ecx + 1),
                bytes[n]);
    }
    EXPECT_EQ(caches_leaf(m->caches, 3).eax & 0x1F, cpuid::kNoCache);
  }
}

TEST(EnumerationTest, FeaturesAreTheRowsFacts) {
  EXPECT_EQ(features_leaf(kSandyBridge).ebx, 0U);
  EXPECT_EQ(features_leaf(kHaswell).ebx, cpuid::kRtm);
  EXPECT_EQ(features_leaf(kBroadwell).ebx, cpuid::kRtm | cpuid::kProcessorTrace);
  EXPECT_EQ(features_leaf(kSkylake).ebx, cpuid::kRtm | cpuid::kProcessorTrace | cpuid::kSgx);
  EXPECT_EQ(features_leaf(kSapphireRapids).ecx, cpuid::kLa57);
  EXPECT_EQ(features_leaf(kAlderLakeP).ecx, 0U);
  EXPECT_EQ(features_leaf(kAlderLakeP).edx, cpuid::kHybrid);
}

TEST(EnumerationTest, ArchitecturalPebsHasTwoSubleaves) {
  EXPECT_EQ(extended_perfmon_leaf(kPantherLakeP, 0).eax, 0x3Bu);
  EXPECT_EQ(extended_perfmon_leaf(kClearwaterForest, 0).eax, 0x3Fu) << "and that of auto reload";
  EXPECT_EQ(extended_perfmon_leaf(kPantherLakeP, 4).ebx, 0x6006'0378u);
  const CpuidLeaf counters = extended_perfmon_leaf(kPantherLakeP, 5);
  EXPECT_EQ(counters.eax, 0x3FFu);
  EXPECT_EQ(counters.ebx, 0x003u);
  EXPECT_EQ(counters.ecx, 0x00Fu);
  EXPECT_EQ(counters.edx, 0x001u);
  EXPECT_EQ(extended_perfmon_leaf(kLunarLakeP, 5).eax, 0u);
}

TEST(EnumerationTest, TheCoreTypeIsToldWhereThereAreSeveral) {
  EXPECT_EQ(core_leaf(kAlderLakeP).eax >> 24, 0x40U);
  EXPECT_EQ(core_leaf(kSapphireRapids).eax, 0U);
  EXPECT_EQ(highest_basic_leaf(kNetBurst), 0x5U);
  EXPECT_EQ(highest_basic_leaf(kSkylake), 0xAU);
  EXPECT_EQ(highest_basic_leaf(kAlderLakeP), 0x1AU);
}

}  // namespace
}  // namespace skidproof::arch
