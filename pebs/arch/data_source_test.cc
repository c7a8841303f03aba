// Data source and store status, against values written from SDM Tables 18-24, 18-33, 18-34.
#include "pebs/arch/data_source.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

namespace skidproof::arch {
namespace {

TEST(DataSource, DecodesTheLowFourBits) {
  EXPECT_EQ(kAccessInfo.source_of(0x01), DataSource::kL1Hit);
  EXPECT_EQ(kAccessInfo.source_of(0x33), DataSource::kL2Hit);  // L2 hit, STLB miss, locked
  EXPECT_EQ(kAccessInfo.source_of(0x0A), DataSource::kLocalDramShared);
  EXPECT_EQ(kAccessInfo.source_of(0x0F), DataSource::kUncached);
}

TEST(DataSource, TlbAndLockBits) {
  EXPECT_EQ(kAccessInfo.stlb_miss, 0x10U);
  EXPECT_EQ(kAccessInfo.locked, 0x20U);
  EXPECT_EQ(kAccessInfoGracemont.stlb_miss, 0x20U);
  EXPECT_EQ(kAccessInfoGracemont.locked, 0x10U);
  EXPECT_EQ(kAccessInfoCrestmont.source_of(0x11), static_cast<DataSource>(0x11)) << "five bits";
  EXPECT_EQ(store_status::kDefined, 0x31U);
}

TEST(DataSource, SixteenDifferentNames) {
  std::set<std::string_view> names;
  for (uint64_t value = 0; value < 16; ++value) names.insert(name_of(kAccessInfo.source_of(value)));
  EXPECT_EQ(names.size(), 16U);
  EXPECT_EQ(names.count("unknown"), 0U);
}

// SDM 089 Table 21-107.
TEST(DataSource, LionCoveHasEncodingsOfItsOwn) {
  const AccessInfo& info = kAccessInfoLionCove;
  for (uint64_t encoding : {uint64_t{1}, uint64_t{2}}) {
    EXPECT_EQ(info.source_of(encoding), DataSource::kL1Hit);
  }
  EXPECT_EQ(info.source_of(0xC03), DataSource::kFillBuffer) << "flags do not matter";
  EXPECT_EQ(info.source_of(0x05), DataSource::kL2Hit);
  EXPECT_EQ(info.source_of(0x08), DataSource::kL3Hit);
  EXPECT_EQ(info.source_of(0x11), DataSource::kUnknownL3Miss);
  EXPECT_EQ(info.source_of(0x00), DataSource::kUnknownL3Miss);
  EXPECT_EQ(info.source_of(0x04), DataSource::kReserved9) << "none has it";
  for (DataSource source : {DataSource::kL1Hit, DataSource::kFillBuffer, DataSource::kL2Hit,
                            DataSource::kL3Hit, DataSource::kUnknownL3Miss}) {
    EXPECT_EQ(info.source_of(info.encoding_of(source)), source);
  }
  EXPECT_EQ(info.encoding_of(DataSource::kUncached), 0U);
  constexpr AccessInfo kOlder;
  EXPECT_EQ(kOlder.source_of(0x33), DataSource::kL2Hit);
  EXPECT_EQ(kOlder.encoding_of(DataSource::kUncached), 0xFU);
}

}  // namespace
}  // namespace skidproof::arch
