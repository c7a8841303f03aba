// Blocks between guard pages.
#include "harness/run/guarded_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace skidproof {
namespace {

TEST(GuardedMemory, IsZeroedAlignedAndOurs) {
  const auto memory = allocate_guarded({.bytes = 10'000});
  ASSERT_TRUE(memory) << memory.error().text();
  EXPECT_EQ(memory->host.size(), 10'000u);
  EXPECT_EQ(memory->address, reinterpret_cast<uint64_t>(memory->host.data()));
  EXPECT_EQ(memory->address % kSmallPage, 0u);
  EXPECT_FALSE(memory->huge_pages);
  EXPECT_EQ(std::count(memory->host.begin(), memory->host.end(), std::byte{0}), 10'000);
}

TEST(GuardedMemory, TouchingAGuardPageKillsOurOwnCode) {
  const auto memory = allocate_guarded({.bytes = kSmallPage});
  ASSERT_TRUE(memory);
  volatile std::byte* begin = memory->host.data();
  EXPECT_DEATH(begin[-1] = std::byte{1}, "");
  EXPECT_DEATH(begin[kSmallPage] = std::byte{1}, "");
}

TEST(GuardedMemory, HugePagesAreAlignedAndTheClaimIsTheKernels) {
  const auto memory = allocate_guarded({.bytes = kHugePage + 1, .huge_pages = true});
  ASSERT_TRUE(memory) << memory.error().text();
  EXPECT_EQ(memory->host.size(), kHugePage + 1);
  EXPECT_EQ(memory->address % kHugePage, 0u);
  EXPECT_EQ(memory->huge_pages, huge_page_bytes(memory->address) >= 2 * kHugePage);
}

TEST(GuardedMemory, SmallPagesStaySmall) {
  const auto memory = allocate_guarded({.bytes = 4 * kHugePage});
  ASSERT_TRUE(memory);
  EXPECT_EQ(huge_page_bytes(memory->address), 0u);
}

TEST(GuardedMemory, RefusesNothingAndTooMuch) {
  EXPECT_EQ(allocate_guarded({.bytes = 0}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(allocate_guarded({.bytes = SIZE_MAX}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(allocate_guarded({.bytes = size_t{1} << 46}).error().code, ErrorCode::kNoMemory)
      << "more than this machine has";
}

TEST(AvailableMemory, IsKnown) { EXPECT_GT(available_memory(), size_t{1} << 20); }

}  // namespace
}  // namespace skidproof
