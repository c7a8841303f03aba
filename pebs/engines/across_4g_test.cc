// The end of 4 GiB and the page at 0: one block, found at its linear addresses alone.
#include "pebs/engines/across_4g.h"

#include <gtest/gtest.h>

#include <array>

namespace skidproof::engines {
namespace {

constexpr uint64_t kEnd = Across4G::kEnd;

TEST(Across4G, HasWholePagesBelowTheEndAndOneAtZero) {
  Across4G across;
  const Memory memory = across.allocate(5000).value();
  EXPECT_EQ(memory.address, kEnd - 8192);
  EXPECT_EQ(memory.host.size(), 3u * 4096);
  for (uint64_t address : {kEnd - 8192, kEnd - 1, uint64_t{0}, uint64_t{4095}}) {
    EXPECT_TRUE(across.holds(address)) << address;
  }
  for (uint64_t address : {kEnd - 8193, kEnd, uint64_t{4096}, kEnd + 1, uint64_t{0} - 1}) {
    EXPECT_FALSE(across.holds(address)) << address;
  }
}

TEST(Across4G, GoesOnAtZero) {
  Across4G across;
  const Memory memory = across.allocate(4096).value();
  const std::array bytes = {std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_TRUE(across.write(kEnd - 2, bytes));
  EXPECT_EQ(memory.host[4095], std::byte{2});
  EXPECT_EQ(memory.host[4096], std::byte{3});
  std::array<std::byte, 1> one{};
  ASSERT_TRUE(across.read(0, one));
  EXPECT_EQ(one[0], std::byte{3});
  EXPECT_FALSE(across.write(4095, bytes));
  EXPECT_FALSE(across.read(kEnd - 4097, one));
  EXPECT_EQ(memory.host.back(), std::byte{0});
}

TEST(Across4G, IsGoneWithItsHandle) {
  Across4G across;
  EXPECT_FALSE(across.holds(0));
  {
    const Memory memory = across.allocate(1).value();
    EXPECT_EQ(across.allocate(1).error().code, ErrorCode::kNoMemory);
  }
  EXPECT_FALSE(across.holds(0));
  std::array<std::byte, 1> one{};
  EXPECT_FALSE(across.read(0, one));
  EXPECT_TRUE(across.allocate(1));
  for (size_t bytes : {size_t{0}, size_t{2} << 20}) {
    EXPECT_EQ(across.allocate(bytes).error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace skidproof::engines
