// Where linear addresses begin anew.
#include "pebs/model/linear.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

namespace skidproof::model {
namespace {

constexpr uint64_t kEnd32 = uint64_t{1} << 32;

TEST(Linear, OnlyWhatLiesOnBothSidesOfTheEndCrossesIt) {
  EXPECT_FALSE(crosses_end(kEnd32 - 8, 8, false));
  EXPECT_TRUE(crosses_end(kEnd32 - 7, 8, false));
  EXPECT_TRUE(crosses_end(kEnd32 - 1, 2, false));
  EXPECT_FALSE(crosses_end(kEnd32 - 1, 1, false));
  EXPECT_FALSE(crosses_end(kEnd32 - 1, 0, false));
  EXPECT_FALSE(crosses_end(0, 64, false));
  EXPECT_FALSE(crosses_end(kEnd32, 64, false)) << "no address outside IA-32e mode";
  EXPECT_FALSE(crosses_end(kEnd32 - 7, 8, true));
  EXPECT_FALSE(crosses_end(uint64_t{0} - 8, 8, true));
  EXPECT_TRUE(crosses_end(uint64_t{0} - 7, 8, true));
}

// Notes what is written, and has no memory but where it is told.
class Notes : public Bus {
 public:
  bool read(uint64_t, std::span<std::byte>) override { return false; }
  bool write(uint64_t address, std::span<const std::byte> from) override {
    if (address == absent) return false;
    writes.emplace_back(address, from.size());
    last = from.back();
    return true;
  }
  uint64_t absent = 1;
  std::vector<std::pair<uint64_t, size_t>> writes;
  std::byte last{};
};

TEST(Linear, WritesGoOnAtZero) {
  using Writes = std::vector<std::pair<uint64_t, size_t>>;
  const std::array bytes = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  for (const bool ia32e : {false, true}) {
    const uint64_t end = ia32e ? 0 : kEnd32;
    Notes bus;
    EXPECT_TRUE(write_linear(bus, end - 4, bytes, ia32e));
    EXPECT_EQ(bus.writes, (Writes{{end - 4, 4}}));
    bus.writes.clear();
    EXPECT_TRUE(write_linear(bus, end - 3, bytes, ia32e));
    EXPECT_EQ(bus.writes, (Writes{{0, 1}, {end - 3, 3}}));
    EXPECT_EQ(bus.last, std::byte{3});
    bus.writes.clear();
    bus.absent = 0;
    EXPECT_FALSE(write_linear(bus, end - 3, bytes, ia32e));
    EXPECT_TRUE(bus.writes.empty());
  }
}

}  // namespace
}  // namespace skidproof::model
