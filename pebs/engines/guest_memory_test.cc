// Guest memory: fixed addresses, guard pages, and bytes that outlive their handles safely.
#include "pebs/engines/guest_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace skidproof::engines {
namespace {

constexpr uint64_t kSmall = 16 << 20;

std::unique_ptr<GuestMemory> memory_of(uint64_t bytes = kSmall) {
  return GuestMemory::create(GuestMemory::kBase, bytes).value();
}

TEST(GuestMemory, AddressesAreTheSameInEveryRun) {
  std::vector<uint64_t> first, second;
  for (auto* addresses : {&first, &second}) {
    auto memory = memory_of();
    std::vector<Memory> blocks;
    for (size_t bytes : {1u, 4096u, 5000u, 100'000u}) {
      blocks.push_back(memory->allocate(bytes, MemoryUse::kData, false).value());
      addresses->push_back(blocks.back().address);
    }
    blocks.erase(blocks.begin() + 1);
    addresses->push_back(memory->allocate(4096, MemoryUse::kCode, false).value().address);
  }
  EXPECT_EQ(first, second);
  EXPECT_EQ(first[1], first[4]);  // the freed place is used again
  EXPECT_GE(first[0], GuestMemory::kBase);
}

TEST(GuestMemory, BlocksHaveGuardPagesOnBothSides) {
  auto memory = memory_of();
  Memory a = memory->allocate(4096, MemoryUse::kData, false).value();
  Memory b = memory->allocate(4097, MemoryUse::kData, false).value();
  for (const Memory* m : {&a, &b}) {
    uint64_t pages = (m->host.size() + 4095) / 4096 * 4096;
    EXPECT_TRUE(memory->mapped(m->address, pages));
    EXPECT_FALSE(memory->mapped(m->address - 1, 1));
    EXPECT_FALSE(memory->mapped(m->address + pages, 1));
    EXPECT_FALSE(memory->mapped(m->address, pages + 1));
    EXPECT_FALSE(memory->mapped(m->address + pages - 4, 8));
  }
}

TEST(GuestMemory, BlocksStandWhereTheyAreAskedFor) {
  auto memory = memory_of();
  const uint64_t address = GuestMemory::kBase + (1 << 20);
  const Memory m = memory->allocate_at(address, 5000, MemoryUse::kData).value();
  EXPECT_EQ(m.address, address);
  EXPECT_EQ(m.host.size(), 5000u);
  EXPECT_TRUE(memory->writable(address, 8192));
  // With no guard page between them, but never on one another.
  EXPECT_TRUE(memory->allocate_at(address + 8192, 4096, MemoryUse::kCode));
  EXPECT_FALSE(memory->allocate_at(address - 4096, 8192, MemoryUse::kData));
  EXPECT_FALSE(memory->allocate_at(address + 16384 + 1, 4096, MemoryUse::kData));
  EXPECT_FALSE(memory->allocate_at(GuestMemory::kBase + kSmall - 4096, 8192, MemoryUse::kData));
  EXPECT_FALSE(memory->allocate_at(GuestMemory::kBase - 4096, 4096, MemoryUse::kData));
}

TEST(GuestMemory, HostAndGuestSeeTheSameBytes) {
  auto memory = memory_of();
  Memory m = memory->allocate(8192, MemoryUse::kDebugStore, false).value();
  EXPECT_TRUE(
      std::all_of(m.host.begin(), m.host.end(), [](std::byte b) { return b == std::byte{0}; }));
  std::array<std::byte, 8> out, in = {std::byte{1}, std::byte{2}};
  EXPECT_TRUE(memory->write(m.address + 4092, in));
  EXPECT_EQ(std::memcmp(m.host.data() + 4092, in.data(), 8), 0);
  EXPECT_TRUE(memory->read(m.address + 4092, out));
  EXPECT_EQ(in, out);
  EXPECT_EQ(memory->host(m.address), m.host.data());
  EXPECT_FALSE(memory->write(m.address + 8188, in));
  EXPECT_FALSE(memory->read(m.address - 4, out));
  EXPECT_FALSE(memory->read(0x1000, out));
  EXPECT_FALSE(memory->read(UINT64_MAX - 3, out));
}

TEST(GuestMemory, UsesDecideRights) {
  auto memory = memory_of();
  Memory code = memory->allocate(4096, MemoryUse::kCode, false).value();
  Memory data = memory->allocate(4096, MemoryUse::kData, false).value();
  EXPECT_TRUE(memory->executable(code.address, 4096));
  EXPECT_FALSE(memory->writable(code.address, 1));
  EXPECT_TRUE(memory->writable(data.address, 4096));
  EXPECT_FALSE(memory->executable(data.address, 1));
  EXPECT_EQ(memory->rights(data.address + 4092, 8) & GuestMemory::kMapped, 0u);
  EXPECT_NE(memory->rights(data.address + 4088, 8) & GuestMemory::kWritable, 0u);
}

TEST(GuestMemory, HugeBlocksStandAtTwoMegabytes) {
  auto memory = memory_of();
  memory->allocate(4096, MemoryUse::kData, false).value();
  Memory m = memory->allocate(3 << 20, MemoryUse::kData, true).value();
  EXPECT_EQ(m.address % GuestMemory::kHugePageBytes, 0u);
  EXPECT_TRUE(m.huge_pages);
}

TEST(GuestMemory, FreedBlocksComeBackAsZeroesUnderANewGeneration) {
  auto memory = memory_of();
  Memory m = memory->allocate(4096, MemoryUse::kData, false).value();
  uint64_t address = m.address, before = memory->generation();
  std::fill(m.host.begin(), m.host.end(), std::byte{0xFF});
  Memory copy = m;
  m = {};
  EXPECT_TRUE(memory->mapped(address, 1));  // a copy of the handle keeps it
  copy = {};
  EXPECT_FALSE(memory->mapped(address, 1));
  EXPECT_NE(memory->generation(), before);
  m = memory->allocate(4096, MemoryUse::kData, false).value();
  EXPECT_EQ(m.address, address);
  EXPECT_EQ(m.host[0], std::byte{0});
}

// Whatever the size: small blocks are cleared, large ones given back, and what is left stands ready for the next.
TEST(GuestMemory, TheNextFindsZerosAndNothingMapped) {
  constexpr size_t kSizes[] = {100, 4096, 64 << 10, 128 << 10, (128 << 10) + 1, 4 << 20};
  std::vector<uint64_t> before;
  for (int again = 0; again < 3; ++again) {
    auto memory = memory_of();
    for (uint64_t address : before) EXPECT_FALSE(memory->mapped(address, 1));
    before.clear();
    std::vector<Memory> blocks;
    for (size_t size : kSizes) {
      blocks.push_back(memory->allocate(size, MemoryUse::kData, false).value());
      const auto& host = blocks.back().host;
      EXPECT_TRUE(
          std::all_of(host.begin(), host.end(), [](std::byte b) { return b == std::byte{0}; }));
      before.push_back(blocks.back().address);
    }
    for (Memory& block : blocks) std::fill(block.host.begin(), block.host.end(), std::byte{0xFF});
    if (again == 1) memory.reset();  // the handles go last
  }
}

TEST(GuestMemory, HandlesMayOutliveIt) {
  auto memory = memory_of();
  Memory m = memory->allocate(4096, MemoryUse::kData, false).value();
  memory.reset();
  m.host[0] = std::byte{1};
  EXPECT_EQ(m.host[0], std::byte{1});
}

TEST(GuestMemory, RefusesWhatItCannotGive) {
  auto memory = memory_of();
  EXPECT_EQ(memory->allocate(0, MemoryUse::kData, false).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(memory->allocate(kSmall, MemoryUse::kData, false).error().code, ErrorCode::kNoMemory);
  EXPECT_EQ(memory->allocate(SIZE_MAX, MemoryUse::kData, true).error().code, ErrorCode::kNoMemory);
  EXPECT_EQ(GuestMemory::create(GuestMemory::kBase + 4096, kSmall).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(GuestMemory::create(GuestMemory::kBase, 0).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(GuestMemory::create(GuestMemory::kBase, uint64_t{1} << 46).error().code,
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace skidproof::engines
