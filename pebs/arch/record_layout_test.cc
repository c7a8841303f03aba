// PEBS record format 1 and the DS management area, against SDM Table 18-23 and Figure 18-22.
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

}  // namespace
}  // namespace skidproof::arch
