// PEBS record formats and the DS management area, against the SDM's tables and Figure 18-22, and
// the adaptive groups against Linux's structures.
#include "pebs/arch/record_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "pebs/arch/ds_area.h"

namespace skidproof::arch {
namespace {

std::vector<int> present_fields(const RecordLayout& layout) {
  std::vector<int> offsets = {layout.flags,         layout.ip,
                              layout.global_status, layout.data_address,
                              layout.data_source,   layout.latency,
                              layout.eventing_ip,   layout.tx_information,
                              layout.tsc,           layout.applicable_counters};
  offsets.insert(offsets.end(), layout.gpr.begin(), layout.gpr.end());
  std::erase(offsets, kAbsent);
  std::sort(offsets.begin(), offsets.end());
  return offsets;
}

TEST(RecordLayout, FormatOneIsFullOfQuadwordsWithoutGapOrOverlap) {
  std::vector<int> quadwords;
  for (int offset = 0; offset < 0xB0; offset += 8) quadwords.push_back(offset);
  EXPECT_EQ(kRecordFormat1.bytes, 0xB0);
  EXPECT_EQ(present_fields(kRecordFormat1), quadwords);
}

TEST(RecordLayout, FormatOneFieldsAreWhereTheTableHasThem) {
  const RecordLayout& r = kRecordFormat1;
  EXPECT_EQ(r.format, 1);
  EXPECT_EQ(r.flags, 0x00);
  EXPECT_EQ(r.ip, 0x08);
  EXPECT_EQ(r.global_status, 0x90);
  EXPECT_EQ(r.data_address, 0x98);
  EXPECT_EQ(r.data_source, 0xA0);
  EXPECT_EQ(r.latency, 0xA8);
  EXPECT_EQ(r.eventing_ip, kAbsent);
  EXPECT_EQ(r.tsc, kAbsent);
}

TEST(RecordLayout, FormatOneRegistersInTheTablesOrder) {
  const auto at = [](Gpr gpr) { return kRecordFormat1.gpr[static_cast<size_t>(gpr)]; };
  EXPECT_EQ(at(Gpr::kRax), 0x10);
  EXPECT_EQ(at(Gpr::kRbx), 0x18);
  EXPECT_EQ(at(Gpr::kRcx), 0x20);
  EXPECT_EQ(at(Gpr::kRdx), 0x28);
  EXPECT_EQ(at(Gpr::kRsi), 0x30);
  EXPECT_EQ(at(Gpr::kRdi), 0x38);
  EXPECT_EQ(at(Gpr::kRbp), 0x40);
  EXPECT_EQ(at(Gpr::kRsp), 0x48);
  EXPECT_EQ(at(Gpr::kR8), 0x50);
  EXPECT_EQ(at(Gpr::kR15), 0x88);
}

// SDM Figures 17-7 and 17-10: flags, IP and the registers, nothing more.
TEST(RecordLayout, FormatZeroInBothForms) {
  std::vector<int> doublewords, quadwords;
  for (int offset = 0; offset < 0x28; offset += 4) doublewords.push_back(offset);
  for (int offset = 0; offset < 0x90; offset += 8) quadwords.push_back(offset);
  EXPECT_EQ(kRecordFormat0Legacy.bytes, 0x28);
  EXPECT_EQ(kRecordFormat0Legacy.field_bytes, 4);
  EXPECT_EQ(present_fields(kRecordFormat0Legacy), doublewords);
  EXPECT_EQ(kRecordFormat0Legacy.gpr[static_cast<size_t>(Gpr::kRax)], 0x08);
  EXPECT_EQ(kRecordFormat0Legacy.gpr[static_cast<size_t>(Gpr::kRbx)], 0x0C);
  EXPECT_EQ(kRecordFormat0Legacy.gpr[static_cast<size_t>(Gpr::kRdi)], 0x1C);
  EXPECT_EQ(kRecordFormat0Legacy.gpr[static_cast<size_t>(Gpr::kRsp)], 0x24);
  EXPECT_EQ(kRecordFormat0Legacy.gpr[static_cast<size_t>(Gpr::kR8)], kAbsent);
  EXPECT_EQ(kRecordFormat0.bytes, 0x90);
  EXPECT_EQ(kRecordFormat0.field_bytes, 8);
  EXPECT_EQ(present_fields(kRecordFormat0), quadwords);
}

// SDM Tables 18-44 and 18-55.
TEST(RecordLayout, FormatsTwoAndThreeAddToOne) {
  const auto full = [](int bytes) {
    std::vector<int> offsets;
    for (int offset = 0; offset < bytes; offset += 8) offsets.push_back(offset);
    return offsets;
  };
  EXPECT_EQ(kRecordFormat2.format, 2);
  EXPECT_EQ(kRecordFormat2.bytes, 0xC0);
  EXPECT_EQ(present_fields(kRecordFormat2), full(0xC0));
  EXPECT_EQ(kRecordFormat2.global_status, 0x90);
  EXPECT_EQ(kRecordFormat2.eventing_ip, 0xB0);
  EXPECT_EQ(kRecordFormat2.tx_information, 0xB8);
  EXPECT_EQ(kRecordFormat3.format, 3);
  EXPECT_EQ(kRecordFormat3.bytes, 0xC8);
  EXPECT_EQ(present_fields(kRecordFormat3), full(0xC8));
  EXPECT_EQ(kRecordFormat3.global_status, kAbsent);
  EXPECT_EQ(kRecordFormat3.applicable_counters, 0x90);
  EXPECT_EQ(kRecordFormat3.tsc, 0xC0);
  EXPECT_EQ(kRecordFormat3.gpr, kRecordFormat1.gpr);
}

// The header word is a field of its own.
std::vector<int> adaptive_fields(const RecordLayout& layout) {
  std::vector<int> offsets = present_fields(layout);
  offsets.insert(offsets.begin(), layout.header);
  return offsets;
}

TEST(AdaptiveLayout, BasicGroupAlone) {
  for (const RecordLayout* format : {&kRecordFormat4, &kRecordFormat5}) {
    EXPECT_TRUE(format->adaptive());
    EXPECT_EQ(format->bytes, 0x20);
    EXPECT_THAT(adaptive_fields(*format), testing::ElementsAre(0x00, 0x08, 0x10, 0x18));
    EXPECT_EQ(format->eventing_ip, 0x08);
    EXPECT_EQ(format->applicable_counters, 0x10);
    EXPECT_EQ(format->tsc, 0x18);
    EXPECT_EQ(format->ip, kAbsent) << "the next instruction's is in the register group only";
  }
  EXPECT_FALSE(kRecordFormat3.adaptive());
}

TEST(AdaptiveLayout, GroupsFollowInOrderWithoutPadding) {
  const RecordLayout& all = *layout_of(kRecordFormat4, uint64_t{0x4D0} << 48 | 0x1F00000F);
  EXPECT_EQ(all.data_address, 0x20);
  EXPECT_EQ(all.data_source, 0x28);
  EXPECT_EQ(all.latency, 0x30);
  EXPECT_EQ(all.tx_information, 0x38);
  EXPECT_EQ(all.flags, 0x40);
  EXPECT_EQ(all.ip, 0x48);
  EXPECT_EQ(all.gpr[static_cast<size_t>(Gpr::kRax)], 0x50);
  EXPECT_EQ(all.gpr[static_cast<size_t>(Gpr::kRcx)], 0x58);
  EXPECT_EQ(all.gpr[static_cast<size_t>(Gpr::kRsp)], 0x70);
  EXPECT_EQ(all.gpr[static_cast<size_t>(Gpr::kR15)], 0xC8);
  EXPECT_EQ(all.xmm, 0xD0);
  EXPECT_EQ(all.lbr, 0x1D0);
  const RecordLayout& xmm = *layout_of(kRecordFormat4, uint64_t{0x120} << 48 | 0x4);
  EXPECT_EQ(xmm.xmm, 0x20);
  EXPECT_EQ(xmm.data_address, kAbsent);
  EXPECT_EQ(xmm.ip, kAbsent);
  for (unsigned groups = 0; groups < 16; ++groups) {
    const RecordLayout& one = kRecordFormat5.variants[groups];
    EXPECT_EQ(one.bytes, adaptive::record_bytes(groups & ~adaptive::kBranches)) << groups;
    EXPECT_EQ(one.latency >= 0, (groups & 1) != 0) << groups;
    EXPECT_EQ(one.ip >= 0, (groups & 2) != 0) << groups;
    EXPECT_EQ(one.xmm >= 0, (groups & 4) != 0) << groups;
    EXPECT_EQ(one.lbr >= 0, (groups & 8) != 0) << groups;
  }
}

// 20H, 20H, 90H, 100H and 18H for each of 32 branches.
TEST(AdaptiveLayout, SizeByGroups) {
  EXPECT_EQ(adaptive::record_bytes(0), 0x20U);
  EXPECT_EQ(adaptive::record_bytes(0x1), 0x40U);
  EXPECT_EQ(adaptive::record_bytes(0x3), 0xD0U);
  EXPECT_EQ(adaptive::record_bytes(0x7), 0x1D0U);
  EXPECT_EQ(adaptive::record_bytes(0x8), 0x38U) << "one branch entry";
  EXPECT_EQ(adaptive::record_bytes(0x1F00000F), 1232U);
  EXPECT_EQ(adaptive::record_bytes(0x1F000007), 0x1D0U) << "entries without the group";
}

// SDM 089 21.9.2.3.1: 16 bytes, and 8 for each bit of the vectors.
TEST(AdaptiveLayout, TheGroupOfCountersByWhatIsIncluded) {
  using namespace adaptive;
  const uint64_t includes = uint64_t{0x09} << kIncludeFixedShift | uint64_t{0x305} << kIncludeShift;
  EXPECT_EQ(configured_bytes(includes), 0x20U) << "neither bit 4 nor 5";
  EXPECT_EQ(configured_bytes(includes | kCounters), 0x20U + 16 + 8 * (4 + 2));
  EXPECT_EQ(configured_bytes(includes | kMetrics), 0x20U + 16 + 8 * 2);
  EXPECT_EQ(configured_bytes(includes | kSnapshot | kMemory), 0x40U + 16 + 8 * (4 + 2 + 2));
  EXPECT_EQ(configured_bytes(kSnapshot), 0x20U + 16) << "a header without values";
  const SnapshotVectors vectors = snapshot_vectors(includes | kSnapshot);
  EXPECT_EQ(vectors.gp, 0x305U);
  EXPECT_EQ(vectors.fixed, 0x09U);
  EXPECT_EQ(vectors.metrics, 3U);
  EXPECT_EQ(snapshot_vectors(kSnapshot | uint64_t{7} << kIncludeFixedShift).metrics, 0U)
      << "without their base";
}

TEST(AdaptiveLayout, AGroupOfCountersNeedsRoomForItsHeader) {
  using namespace adaptive;
  const auto of = [](const RecordLayout& format, uint64_t size, uint64_t groups) {
    return layout_of(format, size << 48 | groups);
  };
  EXPECT_EQ(of(kRecordFormat6, 0x30, kCounters), &kRecordFormat6.variants[0]);
  EXPECT_EQ(of(kRecordFormat6, 0x58, kCounters | kMemory), &kRecordFormat6.variants[1]);
  EXPECT_EQ(of(kRecordFormat6, 0x48, kCounters | kMemory), &kRecordFormat6.variants[0]);
  EXPECT_EQ(of(kRecordFormat6, 0x5C, kCounters | kMemory), &kRecordFormat6.variants[0]);
  EXPECT_EQ(of(kRecordFormat6, 0x40, kMemory), &kRecordFormat6.variants[1]);
  EXPECT_EQ(of(kRecordFormat5, 0x58, kCounters | kMemory), &kRecordFormat5.variants[0]);
}

TEST(AdaptiveLayout, ASizeThatIsNotTheGroupsIsReadAsBasic) {
  EXPECT_EQ(layout_of(kRecordFormat4, uint64_t{0x40} << 48 | 0x3), &kRecordFormat4.variants[0]);
  EXPECT_EQ(layout_of(kRecordFormat4, uint64_t{0xD0} << 48 | 0x3), &kRecordFormat4.variants[3]);
  EXPECT_EQ(layout_of(kRecordFormat5, uint64_t{0x20} << 48), &kRecordFormat5.variants[0]);
  EXPECT_EQ(layout_of(kRecordFormat3, uint64_t{0xD0} << 48 | 0x3), &kRecordFormat3);
}

TEST(AdaptiveLayout, TheLatencySplitAndTheRetireLatencyAreFactsOfTheirOwn) {
  for (const RecordLayout* whole : {&kRecordFormat4, adaptive_record({.format = 5})}) {
    EXPECT_EQ(whole->latency_mask, 0xFFFFFFFFU);
    EXPECT_EQ(whole->cache_latency_shift, 0);
    EXPECT_FALSE(whole->retire_latency);
  }
  for (const RecordLayout* split : {&kRecordFormat4Split, &kRecordFormat5}) {
    EXPECT_EQ(split->latency_mask, 0xFFFFU);
    EXPECT_EQ(split->cache_latency_shift, 32);
  }
  EXPECT_FALSE(kRecordFormat4Split.retire_latency);
  EXPECT_TRUE(kRecordFormat5.retire_latency);
  EXPECT_EQ(kRecordFormat4Split.format, 4);
}

TEST(AdaptiveLayout, ByItsForm) {
  EXPECT_EQ(adaptive_record({.format = 4}), &kRecordFormat4);
  EXPECT_EQ(adaptive_record({.format = 4, .splits_latency = true}), &kRecordFormat4Split);
  EXPECT_EQ(adaptive_record({.format = 5, .splits_latency = true, .retire_latency = true}),
            &kRecordFormat5);
  for (uint8_t format : {uint8_t{4}, uint8_t{5}}) {
    for (bool splits : {false, true}) {
      for (bool retires : {false, true}) {
        const RecordLayout* found = adaptive_record({format, splits, retires});
        EXPECT_EQ(found->format, format);
        EXPECT_EQ(found->cache_latency_shift != 0, splits);
        EXPECT_EQ(found->retire_latency, retires);
        EXPECT_EQ(found->variants[3].retire_latency, retires) << "of every choice of groups";
      }
    }
  }
  EXPECT_EQ(adaptive_record({.format = 3}), nullptr);
  EXPECT_EQ(adaptive_record({.format = 6, .splits_latency = true, .retire_latency = true}),
            &kRecordFormat6);
  EXPECT_TRUE(kRecordFormat6.snapshot);
  EXPECT_FALSE(kRecordFormat5.snapshot);
  const RecordLayout* arrow_lake = adaptive_record(
      {.format = 5, .splits_latency = true, .retire_latency = true, .snapshot = true});
  EXPECT_EQ(arrow_lake->format, 5);
  EXPECT_TRUE(arrow_lake->variants[5].snapshot);
  EXPECT_EQ(adaptive_record({.format = 7}), nullptr);
}

TEST(RecordLayout, FixedFormatsByNumber) {
  EXPECT_EQ(fixed_record(0), &kRecordFormat0);
  EXPECT_EQ(fixed_record(3), &kRecordFormat3);
  EXPECT_EQ(fixed_record(4), nullptr);
}

TEST(DsLayout, FourResetsAsTheFigureHasThem) {
  const DsLayout& ds = kDsFourResets;
  const std::array<uint32_t, 8> fields = {ds.bts_base,      ds.bts_index,     ds.bts_maximum,
                                          ds.bts_threshold, ds.pebs_base,     ds.pebs_index,
                                          ds.pebs_maximum,  ds.pebs_threshold};
  EXPECT_THAT(fields, testing::ElementsAre(0x00, 0x08, 0x10, 0x18, 0x20, 0x28, 0x30, 0x38));
  EXPECT_EQ(ds.reset, 0x40U);
  EXPECT_EQ(ds.reset + 3 * ds.reset_stride, 0x58U);
  EXPECT_EQ(ds.resets, 4U);
  EXPECT_EQ(ds.bytes, 0x68U);
  EXPECT_GE(kDsAllocation, ds.bytes);
}

// SDM Figure 17-5: doublewords, and the 40 bits of the reset value in two of them.
TEST(DsLayout, LegacyAsTheFigureHasIt) {
  const DsLayout& ds = kDsLegacy;
  const std::array<uint32_t, 8> fields = {ds.bts_base,      ds.bts_index,     ds.bts_maximum,
                                          ds.bts_threshold, ds.pebs_base,     ds.pebs_index,
                                          ds.pebs_maximum,  ds.pebs_threshold};
  EXPECT_THAT(fields, testing::ElementsAre(0x00, 0x04, 0x08, 0x0C, 0x10, 0x14, 0x18, 0x1C));
  EXPECT_EQ(ds.field_bytes, 4U);
  EXPECT_EQ(ds.gp_reset(0), 0x20U);
  EXPECT_EQ(ds.resets, 1U);
  EXPECT_EQ(ds.bytes, 0x30U);
}

TEST(DsLayout, ResetArraysOfTheOtherGenerations) {
  EXPECT_EQ(kDsOneReset.gp_reset(0), 0x40U);
  EXPECT_EQ(kDsOneReset.resets, 1U);
  EXPECT_EQ(kDsFourResets.fixed_resets, 0U);
  EXPECT_EQ(kDsEightResets.gp_reset(7), 0x78U);
  EXPECT_EQ(kDsEightResets.fixed_counter_reset(0), 0x80U);
  EXPECT_EQ(kDsEightResets.fixed_counter_reset(3), 0x98U);
  EXPECT_EQ(ds_of_adaptive_format(4).fixed_counter_reset(0), 0x80U);
  EXPECT_EQ(ds_of_adaptive_format(5).fixed_counter_reset(0), 0x140U);
  EXPECT_EQ(ds_of_adaptive_format(6).fixed_counter_reset(0), 0x140U);
  EXPECT_EQ(kDsThirtyTwoResets.gp_reset(31), 0x138U);
  EXPECT_EQ(kDsThirtyTwoResets.fixed_counter_reset(0), 0x140U);
  EXPECT_EQ(kDsThirtyTwoResets.fixed_counter_reset(15) + 8, kDsThirtyTwoResets.bytes);
  for (const DsLayout* ds :
       {&kDsLegacy, &kDsOneReset, &kDsFourResets, &kDsEightResets, &kDsThirtyTwoResets}) {
    EXPECT_LE(ds->bytes, kDsAllocation);
  }
}

}  // namespace
}  // namespace skidproof::arch
