// Working sets by their meaning, of machines whose sizes are known.
#include "pebs/footprint.h"

#include <gtest/gtest.h>

#include <string>

#include "pebs/arch/generations.h"
#include "pebs/engines/model_machine.h"

namespace skidproof {
namespace {

constexpr uint64_t kKi = 1024, kMi = 1024 * kKi;

SizeRange exactly(uint64_t size) { return {size, size}; }

TEST(FootprintTest, LiesBeyondOneLevelAndInsideTheNext) {
  const MachineShape shape = {.l1d = exactly(48 * kKi),
                              .l2 = exactly(2 * kMi),
                              .l3 = {8 * kMi, 16 * kMi},
                              .dtlb = exactly(96),
                              .stlb = exactly(3072)};
  EXPECT_EQ(bytes_of(Footprint::kInL1, shape), 16 * kKi);
  EXPECT_EQ(bytes_of(Footprint::kBeyondL1, shape), 128 * kKi);
  EXPECT_EQ(bytes_of(Footprint::kBeyondL2, shape), 4 * kMi);
  EXPECT_EQ(bytes_of(Footprint::kBeyondL3, shape), 64 * kMi) << "by little, 32";
  EXPECT_EQ(bytes_of(Footprint::kBeyondDtlb, shape), 8 * kMi);
  EXPECT_EQ(bytes_of(Footprint::kBeyondStlb, shape), 4096u * 16384);
}

// A cache of the size that literals once missed.
TEST(FootprintTest, GrowsWithTheCache) {
  MachineShape shape = {.l1d = exactly(64 * kKi), .l2 = exactly(256 * kKi)};
  EXPECT_EQ(bytes_of(Footprint::kBeyondL1, shape), 128 * kKi);
  shape.l1d = exactly(32 * kKi);
  EXPECT_EQ(bytes_of(Footprint::kBeyondL1, shape), 64 * kKi);
  shape.l3 = exactly(60 * kMi);
  EXPECT_EQ(bytes_of(Footprint::kBeyondL3, shape), 128 * kMi);
  shape.l3 = exactly(300 * kMi);
  EXPECT_EQ(bytes_of(Footprint::kBeyondL3, shape), 256 * kMi) << "no more than this";
}

TEST(FootprintTest, IsNoneWhereThereIsNoRoomOrNothingIsKnown) {
  EXPECT_FALSE(bytes_of(Footprint::kInL1, {}));
  EXPECT_FALSE(bytes_of(Footprint::kBeyondL1, {}));
  const MachineShape close = {
      .l1d = exactly(48 * kKi), .l2 = exactly(64 * kKi), .l3 = exactly(96 * kKi)};
  EXPECT_FALSE(bytes_of(Footprint::kBeyondL1, close));
  EXPECT_FALSE(bytes_of(Footprint::kBeyondL2, close));
  // Pages are never too many.
  EXPECT_EQ(bytes_of(Footprint::kBeyondStlb, {}), 32 * kMi);
}

TEST(FootprintTest, TextsComeBack) {
  const MachineShape shape = {
      .l1d = exactly(49152), .l3 = {8 * kMi, 16 * kMi}, .dtlb = exactly(96)};
  EXPECT_EQ(text_of(shape), "l1d=49152 l3=8388608..16777216 dtlb=96");
  EXPECT_EQ(*shape_of_text(text_of(shape)), shape);
  EXPECT_EQ(*shape_of_text(""), MachineShape{});
  for (const char* bad : {"l1d", "l1d=", "l1d=0", "l1d=x", "l9=4", "l1d=5..4", "l1d=4.5",
                          "l1d=4 "
                          " l2=5"}) {
    EXPECT_FALSE(shape_of_text(bad)) << bad;
  }
}

TEST(FootprintTest, RowsHaveTheNamesOfTheCharacterization) {
  MachineShape shape;
  EXPECT_EQ(size_named(shape, "shape.l3.size"), &shape.l3);
  EXPECT_EQ(size_named(shape, "shape.stlb.reach"), &shape.stlb);
  EXPECT_EQ(size_named(shape, "shape.rob.size"), nullptr);
}

TEST(FootprintTest, EveryModelTellsItsCaches) {
  for (const arch::Microarch* row : arch::microarchs()) {
    SCOPED_TRACE(std::string(row->name));
    const auto machine = engines::make_model_machine(*row, {});
    ASSERT_TRUE(machine);
    const MachineShape told = told_shape(**machine), all = filled(told, shape_of_row(*row));
    if (told.l1d.known()) {
      EXPECT_EQ(told.l1d.most, row->caches.l1_bytes);
    }
    EXPECT_EQ(all.dtlb, exactly(row->caches.dtlb_entries));
    for (const Footprint each : {Footprint::kInL1, Footprint::kBeyondL1, Footprint::kBeyondDtlb})
      EXPECT_TRUE(bytes_of(each, all)) << name_of(each);
  }
}

}  // namespace
}  // namespace skidproof
