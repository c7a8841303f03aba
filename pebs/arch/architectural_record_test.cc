// The architectural record: sizes, groups, fragments, and what is none.
#include "pebs/arch/architectural_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

namespace skidproof::arch::architectural {
namespace {

using testing::ElementsAre;

// A fragment of so many bytes whose words are a base and their own offset, behind this header.
std::vector<std::byte> fragment(uint64_t groups, size_t bytes, uint64_t base = 0) {
  std::vector<std::byte> all(bytes);
  for (size_t at = 0; at < bytes; at += 8) {
    const uint64_t value = at == 0 ? groups | bytes : base + at;
    std::memcpy(all.data() + at, &value, sizeof value);
  }
  return all;
}
void put(std::vector<std::byte>& bytes, size_t at, uint64_t value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}
std::vector<std::byte> operator+(std::vector<std::byte> a, const std::vector<std::byte>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(ArchitecturalRecord, SizesOfTheGroups) {
  constexpr unsigned kDepth = 32;
  EXPECT_EQ(record_bytes(0, kDepth), 64u);
  EXPECT_EQ(record_bytes(cfg_c::kAux, kDepth), 128u);
  EXPECT_EQ(record_bytes(cfg_c::kGprs, kDepth), 224u);
  EXPECT_EQ(record_bytes(cfg_c::kXmm, kDepth), 64u + 16 + 256);
  EXPECT_EQ(record_bytes(
                cfg_c::kXmm | cfg_c::kYmmHigh | cfg_c::kOpmask | cfg_c::kZmmHigh | cfg_c::kHighZmm,
                kDepth),
            64u + 16 + 256 + 256 + 64 + 512 + 1024);
  for (const auto& [entries, code] : {std::pair{8u, 1u}, {16u, 2u}, {32u, 3u}}) {
    const uint64_t field = branch_field(entries, kDepth);
    EXPECT_EQ(branch_code(field), code);
    EXPECT_EQ(branch_entries(field, kDepth), entries);
    EXPECT_EQ(record_bytes(field, kDepth), 64u + 48 + 24 * entries);
  }
  EXPECT_EQ(branch_field(5, kDepth), 0u);
  EXPECT_EQ(whole_units(64), 64u);
  EXPECT_EQ(whole_units(65), 80u);
}

TEST(ArchitecturalRecord, TheTableHasTheGroupsBehindOneAnother) {
  const RecordLayout& all = kArchitecturalRecord.variants[15];
  EXPECT_TRUE(all.architectural);
  EXPECT_THAT(all.starts, ElementsAre(0x10, 0x40, 0x80, 0x120, 0x230, 0));
  EXPECT_EQ(all.eventing_ip, 0x10);
  EXPECT_EQ(all.applicable_counters, 0x18);
  EXPECT_EQ(all.tsc, 0x20);
  EXPECT_EQ(all.retire, 0x28);
  EXPECT_EQ(all.data_address, 0x40);
  EXPECT_EQ(all.data_source, 0x68);
  EXPECT_EQ(all.latency, 0x70);
  EXPECT_EQ(all.tx_information, 0x78);
  EXPECT_EQ(all.flags, 0x80);
  EXPECT_EQ(all.ip, 0x88);
  EXPECT_EQ(all.gpr[static_cast<size_t>(Gpr::kRax)], 0x90);
  EXPECT_EQ(all.gpr[static_cast<size_t>(Gpr::kRcx)], 0x98);
  EXPECT_EQ(all.gpr[static_cast<size_t>(Gpr::kR15)], 0x108);
  EXPECT_EQ(all.xmm, 0x130);
  EXPECT_EQ(all.lbr, 0x260);
  EXPECT_EQ(kArchitecturalRecord.data_address, kAbsent);
}

TEST(ArchitecturalRecord, OneFragment) {
  auto bytes = fragment(kBasic | cfg_c::kAux | cfg_c::kCountersGp, 64 + 64 + 16 + 24);
  put(bytes, 128, 0x1'0000'0003);
  put(bytes, 136, 0);
  const Parts parts = parts_of(bytes);
  EXPECT_EQ(parts.bytes, bytes.size());
  EXPECT_EQ(parts.groups, kBasic | cfg_c::kAux | cfg_c::kCountersGp);
  EXPECT_THAT(parts.starts, ElementsAre(16, 64, 0, 0, 0, 128));
  EXPECT_EQ(parts.counters.gp, 3u);
  EXPECT_EQ(parts.counters.fixed, 1u);
}

// Registers in a fragment of their own, and a null record between.
TEST(ArchitecturalRecord, FragmentsAreOneRecord) {
  const auto bytes = fragment(kBasic | kContinued, 64) + fragment(0, 32) +
                     fragment(cfg_c::kGprs, 16 + 160) + fragment(kBasic, 64);
  const Parts parts = parts_of(bytes);
  EXPECT_EQ(parts.bytes, 64u + 32 + 176);
  EXPECT_EQ(parts.groups, kBasic | cfg_c::kGprs);
  EXPECT_THAT(parts.starts, ElementsAre(16, 0, 64 + 32 + 16, 0, 0, 0));
}

TEST(ArchitecturalRecord, TheDepthSaysHowManyBranches) {
  auto bytes = fragment(kBasic | cfg_c::kBranches, 64 + 48 + 5 * 24);
  put(bytes, 64 + kBranchDepth, 5);
  EXPECT_EQ(parts_of(bytes).entries, 5u);
  for (uint64_t depth : {uint64_t{6}, uint64_t{1} << 40}) {
    put(bytes, 64 + kBranchDepth, depth);
    EXPECT_EQ(parts_of(bytes).bytes, 0u) << depth;
  }
}

TEST(ArchitecturalRecord, WhatIsNone) {
  const std::vector<std::vector<std::byte>> none = {
      {},
      std::vector<std::byte>(8),
      fragment(0, 64),                                           // no basic group
      fragment(kBasic | kContinued, 64),                         // nothing follows
      fragment(kBasic | kContinued, 64) + fragment(kBasic, 64),  // a second basic group
      fragment(kBasic | cfg_c::kGprs, 64),                       // no room for the registers
      fragment(kBasic | cfg_c::kCountersGp, 64),                 // … nor for the vectors
  };
  for (size_t i = 0; i < none.size(); ++i) {
    EXPECT_EQ(parts_of(none[i]).bytes, 0u) << i;
  }
  auto sized = fragment(kBasic, 64);
  for (uint64_t size : {0u, 8u, 12u, 60u, 72u, 0xFFF8u}) {
    put(sized, 0, kBasic | size);
    EXPECT_EQ(parts_of(sized).bytes, 0u) << size;
  }
}

}  // namespace
}  // namespace skidproof::arch::architectural
