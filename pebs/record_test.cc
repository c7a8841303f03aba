// Records read in place, against buffers written byte by byte.
#include "pebs/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

namespace skidproof {
namespace {

using arch::kRecordFormat4;
using arch::kRecordFormat5;
using arch::RecordLayout;

// A record whose every quadword (doubleword) is a base plus its own offset.
std::vector<std::byte> numbered(size_t bytes, uint64_t base, size_t field = 8) {
  std::vector<std::byte> record(bytes);
  for (size_t at = 0; at + field <= bytes; at += field) {
    uint64_t value = base + at;
    std::memcpy(record.data() + at, &value, field);
  }
  return record;
}

// An adaptive record: the header's size is that of the groups unless given.
std::vector<std::byte> adaptive(uint64_t groups, uint64_t base, size_t size = 0,
                                uint64_t retire_latency = 0) {
  const size_t bytes = arch::adaptive::record_bytes(groups);
  std::vector<std::byte> record = numbered(bytes, base);
  uint64_t header = groups | retire_latency << 32 | uint64_t{size != 0 ? size : bytes} << 48;
  std::memcpy(record.data(), &header, sizeof header);
  return record;
}

std::vector<std::byte> operator+(std::vector<std::byte> a, const std::vector<std::byte>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Record, FormatThreeHasItsFieldsAndNoStatus) {
  const std::vector<std::byte> bytes = numbered(0xC8, 0x1000);
  const Record record(bytes.data(), &arch::kRecordFormat3);
  EXPECT_EQ(record.applicable_counters(), 0x1090U);
  EXPECT_EQ(record.global_status(), 0U);
  EXPECT_FALSE(record.has(&RecordLayout::global_status));
  EXPECT_TRUE(record.has(&RecordLayout::tsc));
  EXPECT_EQ(record.eventing_ip(), 0x10B0U);
  EXPECT_EQ(record.tx_information(), 0x10B8U);
  EXPECT_EQ(record.tsc(), 0x10C0U);
  EXPECT_EQ(record.latency(), 0x10A8U);
}

// The doublewords of the 32-bit form, and no more than they hold.
TEST(Record, LegacyFormReadsDoublewords) {
  const std::vector<std::byte> bytes = numbered(0x28, 0x8000'0000, 4);
  const Record record(bytes.data(), &arch::kRecordFormat0Legacy);
  EXPECT_EQ(record.flags(), 0x8000'0000U);
  EXPECT_EQ(record.ip(), 0x8000'0004U);
  EXPECT_EQ(record.gpr(arch::Gpr::kRsp), 0x8000'0024U);
  EXPECT_EQ(record.gpr(arch::Gpr::kR9), 0U);
}

TEST(Record, AdaptiveGroupsAreReadWhereTheHeaderPutsThem) {
  const std::vector<std::byte> bytes = adaptive(0x0100000F, 0x1000);  // two branches
  const Records records(bytes, &kRecordFormat4);
  ASSERT_EQ(records.size(), 1U);
  const Record record = records.front();
  EXPECT_EQ(record.eventing_ip(), 0x1008U);
  EXPECT_EQ(record.applicable_counters(), 0x1010U);
  EXPECT_EQ(record.tsc(), 0x1018U);
  EXPECT_EQ(record.data_address(), 0x1020U);
  EXPECT_EQ(record.ip(), 0x1048U);
  EXPECT_EQ(record.gpr(arch::Gpr::kRdi), 0x1088U);
  EXPECT_THAT(record.xmm(1), testing::ElementsAre(0x10E0U, 0x10E8U));
  ASSERT_EQ(record.branches(), 2U);
  EXPECT_EQ(record.branch(1).from, 0x11E8U);
  EXPECT_EQ(record.branch(1).info, 0x11F8U);
  EXPECT_EQ(record.branch(2).from, 0U);
  EXPECT_EQ(record.bytes().size(), bytes.size());
}

TEST(Record, FormatFiveSplitsLatenciesAndHasTheRetireLatency) {
  std::vector<std::byte> bytes = adaptive(0x1, 0x1000, 0, 0x1234);
  const uint64_t latencies = 0x0000'0077'0000'0155;
  std::memcpy(bytes.data() + 0x30, &latencies, sizeof latencies);
  const Record five = Records(bytes, &kRecordFormat5).front();
  EXPECT_EQ(five.retire_latency(), 0x1234U);
  EXPECT_EQ(five.latency(), 0x155U);
  EXPECT_EQ(five.cache_latency(), 0x77U);
  const Record four = Records(bytes, &kRecordFormat4).front();
  EXPECT_EQ(four.retire_latency(), 0U);
  EXPECT_EQ(four.latency(), 0x155U);
  EXPECT_EQ(four.cache_latency(), 0U);
}

// A memory group and the group of counters behind it: PMC0 and PMC2, fixed counter 1, the metrics.
std::vector<std::byte> with_counters(uint64_t gp, uint64_t fixed, uint64_t metrics, size_t size) {
  std::vector<std::byte> record = numbered(size, 0x1000);
  const uint64_t words[] = {uint64_t{size} << 48 | 0x31, gp | fixed << 32, metrics};
  std::memcpy(record.data(), &words[0], 8);
  std::memcpy(record.data() + 0x40, &words[1], 16);
  return record;
}

TEST(Record, CountersAreReadByTheVectorsOfTheirGroup) {
  const std::vector<std::byte> bytes = with_counters(0x5, 0x2, 0x3, 0x40 + 16 + 5 * 8);
  const Records records(bytes, &arch::kRecordFormat6);
  ASSERT_EQ(records.size(), 1U);
  const Record record = records.front();
  EXPECT_EQ(record.data_address(), 0x1020U);
  const auto vectors = record.snapshot();
  ASSERT_TRUE(vectors.has_value());
  EXPECT_EQ(vectors->gp, 5U);
  EXPECT_EQ(vectors->fixed, 2U);
  EXPECT_EQ(vectors->metrics, 3U);
  for (unsigned i = 0; i < 5; ++i) EXPECT_EQ(record.snapshot_value(i), 0x1050U + 8 * i) << i;
  EXPECT_EQ(record.snapshot_value(5), 0U);
  EXPECT_EQ(record.bytes().size(), bytes.size());
  EXPECT_FALSE(Records(bytes, &kRecordFormat5).front().snapshot().has_value());
}

TEST(Record, VectorsThatTheSizeContradictsAreNone) {
  for (const uint64_t gp : {uint64_t{0x7}, uint64_t{0x1}, uint64_t{0xFFFF'FFFF}}) {
    const std::vector<std::byte> bytes = with_counters(gp, 0x2, 0x3, 0x40 + 16 + 5 * 8);
    const Record record = Records(bytes, &arch::kRecordFormat6).front();
    EXPECT_FALSE(record.snapshot().has_value()) << gp;
    EXPECT_EQ(record.snapshot_value(0), 0U);
    EXPECT_EQ(record.bytes().size(), 0x40U) << "without it";
  }
  // No room for the vectors: read as the basic group, whose bytes stand where the vectors would.
  const std::vector<std::byte> none = with_counters(0x5, 0x2, 0x3, 0x58);
  std::vector<std::byte> shorter(none.begin(), none.begin() + 0x48);
  const uint64_t header = uint64_t{0x48} << 48 | 0x31;
  std::memcpy(shorter.data(), &header, sizeof header);
  EXPECT_FALSE(Records(shorter, &arch::kRecordFormat6).front().snapshot().has_value());
}

// Whatever a buffer holds, nothing behind it is read.
TEST(Records, AnyBytesAreReadWithinThem) {
  uint64_t state = 1;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes(8 * (4 + state % 64));
    for (size_t at = 0; at < bytes.size(); at += 8) {
      state = state * 6364136223846793005 + 1442695040888963407;
      // Small vectors and sizes that mostly fit, so that the walk goes on.
      const uint64_t value = state >> 60 < 6
                                 ? (state >> 20 & 0x3F) | (0x20 + (state >> 30 & 0xF8)) << 48
                                 : state >> 24 & 0x0000'000F'0000'001F;
      std::memcpy(bytes.data() + at, &value, sizeof value);
    }
    for (Record record : Records(bytes, &arch::kRecordFormat6)) {
      const std::span<const std::byte> own = record.bytes();
      ASSERT_LE(own.data() + own.size(), bytes.data() + bytes.size());
      if (const auto vectors = record.snapshot()) {
        ASSERT_EQ(own.size(), arch::adaptive::size_field(record.header()));
        ASSERT_EQ(record.snapshot_value(vectors->values()), 0U);
      }
    }
  }
}

// Fragments of architectural records: words that are a base and their own offset.
std::vector<std::byte> fragment(uint64_t groups, size_t size, uint64_t base) {
  std::vector<std::byte> bytes = numbered(size, base);
  const uint64_t header = groups | size;
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

TEST(Record, ArchitecturalGroupsAreReadWhereverTheirFragmentStands) {
  namespace architectural = arch::architectural;
  const uint64_t aux = arch::cfg_c::kAux, gprs = arch::cfg_c::kGprs;
  const std::vector<std::byte> whole =
      fragment(architectural::kBasic | aux | gprs, 16 + 48 + 64 + 160, 0x1000);
  const std::vector<std::byte> parted =
      fragment(architectural::kBasic | architectural::kContinued, 64, 0x2000) + fragment(0, 16, 0) +
      fragment(gprs | architectural::kContinued, 176, 0x3000) + fragment(aux, 80, 0x4000);
  const std::vector<std::byte> orphan = fragment(gprs, 176, 0x9000);
  const std::vector<std::byte> bytes = orphan + whole + orphan + parted + orphan;
  const Records records(bytes, &arch::kArchitecturalRecord);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records.remainder_bytes(), 0U);
  const Record one = records[0], two = records.back();
  EXPECT_EQ(one.bytes().size(), whole.size());
  EXPECT_EQ(one.eventing_ip(), 0x1010U);
  EXPECT_EQ(one.data_address(), 0x1040U);
  EXPECT_EQ(one.data_source(), 0x1068U);
  EXPECT_EQ(one.flags(), 0x1080U);
  EXPECT_EQ(one.gpr(arch::Gpr::kR15), 0x1108U);
  EXPECT_EQ(two.bytes().size(), parted.size());
  EXPECT_EQ(two.eventing_ip(), 0x2010U);
  EXPECT_EQ(two.data_address(), 0x4010U);
  EXPECT_EQ(two.flags(), 0x3010U);
  EXPECT_EQ(two.gpr(arch::Gpr::kR15), 0x3098U);
  EXPECT_EQ(two.groups(), architectural::kBasic | aux | gprs);
  EXPECT_FALSE(two.has(&RecordLayout::xmm));
  EXPECT_EQ(std::distance(records.begin(), records.end()), 2);
}

TEST(Record, ArchitecturalRetireLatencyIsThereWhereItSaysSo) {
  std::vector<std::byte> bytes = fragment(arch::architectural::kBasic, 64, 0);
  for (const auto& [word, latency] :
       {std::pair<uint64_t, uint64_t>{0x1'0123, 0x123}, {0x0123, 0}, {0xFF01'FFFF, 0xFFFF}}) {
    std::memcpy(bytes.data() + 0x28, &word, sizeof word);
    EXPECT_EQ(Records(bytes, &arch::kArchitecturalRecord).front().retire_latency(), latency);
  }
}

TEST(Records, AnyBytesAreReadAsArchitecturalRecordsWithinThem) {
  uint64_t state = 1;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes(8 * (2 + state % 96));
    for (size_t at = 0; at < bytes.size(); at += 8) {
      state = state * 6364136223846793005 + 1442695040888963407;
      const uint64_t small = (state >> 20 & 0x1F8) | (state & 0xE7E3'03F8'8000'0000);
      const uint64_t value = state >> 60 < 8 ? small : state >> 24 & 0x0000'000F'0000'001F;
      std::memcpy(bytes.data() + at, &value, sizeof value);
    }
    size_t seen = 0;
    for (Record record : Records(bytes, &arch::kArchitecturalRecord)) {
      const std::span<const std::byte> own = record.bytes();
      ASSERT_LE(own.data() + own.size(), bytes.data() + bytes.size());
      static_cast<void>(record.ip() + record.tsc() + record.data_address() + record.xmm(15)[1] +
                        record.branch(record.branches() - 1).info + record.snapshot_value(0) +
                        record.gpr(arch::Gpr::kR15));
      ++seen;
    }
    ASSERT_EQ(seen, Records(bytes, &arch::kArchitecturalRecord).size());
  }
}

TEST(Records, AdaptiveOnesAreWalkedByTheirOwnSize) {
  const std::vector<std::byte> bytes =
      adaptive(0x0, 0x1000) + adaptive(0x3, 0x2000) + adaptive(0x04000008, 0x3000);
  const Records records(bytes, &kRecordFormat4);
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records.remainder_bytes(), 0U);
  std::vector<uint64_t> ips;
  for (Record record : records) ips.push_back(record.eventing_ip());
  EXPECT_THAT(ips, testing::ElementsAre(0x1008U, 0x2008U, 0x3008U));
  EXPECT_EQ(records[1].ip(), 0x2048U);
  EXPECT_EQ(records.back().branches(), 5U);
}

TEST(Records, ASizeThatCannotBeEndsTheWalk) {
  const std::vector<std::byte> whole = adaptive(0x3, 0x1000);
  for (size_t size : {size_t{0x18}, size_t{0x400}}) {  // below the basic group; past the end
    const std::vector<std::byte> bytes = whole + adaptive(0x0, 0x2000, size);
    const Records records(bytes, &kRecordFormat4);
    EXPECT_EQ(records.size(), 1U) << size;
    EXPECT_EQ(records.remainder_bytes(), 0x20U) << size;
  }
  const std::vector<std::byte> fill(0x40, std::byte{0xA5});
  EXPECT_TRUE(Records(fill, &kRecordFormat4).empty());
}

// The size says where the next one starts, whatever the groups would need.
TEST(Records, ASizeThatIsNotTheGroupsIsReadAsBasic) {
  std::vector<std::byte> odd = adaptive(0x1, 0x1000, 0x30);
  odd.resize(0x30);
  const std::vector<std::byte> bytes = odd + adaptive(0x0, 0x2000);
  const Records records(bytes, &kRecordFormat4);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_FALSE(records[0].has(&RecordLayout::data_address));
  EXPECT_EQ(records[0].eventing_ip(), 0x1008U);
  EXPECT_EQ(records[1].eventing_ip(), 0x2008U);
}

TEST(Records, FixedOnesByTheirStride) {
  const std::vector<std::byte> bytes =
      numbered(0xB0, 0x1000) + numbered(0xB0, 0x2000) + numbered(0x10, 0);
  const Records records(bytes, &arch::kRecordFormat1);
  EXPECT_EQ(records.size(), 2U);
  EXPECT_EQ(records.remainder_bytes(), 0x10U);
  EXPECT_EQ(records[1].ip(), 0x2008U);
  EXPECT_EQ(records.back().latency(), 0x20A8U);
}

}  // namespace
}  // namespace skidproof
