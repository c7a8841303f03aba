#include "base/zeroed_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace skidproof::model {
namespace {

struct alignas(64) Element {
  uint32_t values[16];
};

bool all_zeros(const ZeroedMemory<Element>& memory, size_t size) {
  for (size_t n = 0; n < size; ++n) {
    const uint32_t* values = memory[n].values;
    if (!std::all_of(values, values + 16, [](uint32_t value) { return value == 0; })) return false;
  }
  return true;
}

// One that is allocated, one that is mapped and kept when it is given back, and one that is not kept.
class ZeroedMemoryOf : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ZeroedMemoryOf,
                         ::testing::Values(size_t{3}, size_t{5000}, size_t{20'000}));

TEST_P(ZeroedMemoryOf, IsZeroUntilItIsWrittenAndOnceItIsCleared) {
  const size_t size = GetParam();
  for (int again = 0; again < 2; ++again) {  // what was given back is zero again
    ZeroedMemory<Element> memory(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(&memory[0]) % alignof(Element), 0u);
    EXPECT_TRUE(all_zeros(memory, size));
    for (size_t n = 0; n < size; ++n) std::fill_n(memory[n].values, 16, 0xFFFF'FFFFu);
    memory[size - 1].values[15] = 7;
    EXPECT_EQ(memory[size - 1].values[15], 7u);
    memory.clear();
    EXPECT_TRUE(all_zeros(memory, size));
    std::fill_n(memory[0].values, 16, 1u);
  }
}

TEST_P(ZeroedMemoryOf, MovesWithWhatItHolds) {
  ZeroedMemory<Element> from(GetParam());
  from[1].values[2] = 3;
  const ZeroedMemory<Element> to(std::move(from));
  EXPECT_EQ(to[1].values[2], 3u);
}

}  // namespace
}  // namespace skidproof::model
