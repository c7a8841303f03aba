// Macro-fusion rules against a matrix written by hand from R64-R69.
#include "pebs/arch/fusion.h"

#include <gtest/gtest.h>

#include <array>
#include <string_view>

namespace skidproof::arch {
namespace {

// One row for each first instruction; one column for each condition family in the order
// O B E BE S P L LE. 'x' fuses.
struct Row {
  FusionFirst first;
  std::string_view nehalem;
  std::string_view sandy_bridge;
  std::string_view ice_lake;
  std::string_view core2;  // outside 64-bit code
};

constexpr std::array<Row, 8> kMatrix = {{
    //                      OBEbSPLl    OBEbSPLl    OBEbSPLl    OBEbSPLl
    {FusionFirst::kNone, "........", "........", "........", "........"},
    {FusionFirst::kCmp, ".xxx..xx", ".xxx..xx", ".xxx..xx", ".xxx...."},
    {FusionFirst::kTest, "xxxxxxxx", "xxxxxxxx", "xxxxxxxx", "xxxxxxxx"},
    {FusionFirst::kAnd, "........", "xxxxxxxx", "xxxxxxxx", "........"},
    {FusionFirst::kAdd, "........", ".xxx..xx", ".xxx..xx", "........"},
    {FusionFirst::kSub, "........", ".xxx..xx", ".xxx..xx", "........"},
    {FusionFirst::kInc, "........", "..x...xx", "........", "........"},
    {FusionFirst::kDec, "........", "..x...xx", "........", "........"},
}};

void expect_matrix(const FusionRules& rules, std::string_view Row::*column, bool long_mode = true) {
  for (const Row& row : kMatrix) {
    for (unsigned family = 0; family < 8; ++family) {
      EXPECT_EQ(
          rules.fuses(row.first, static_cast<Condition>(family), false, false, false, long_mode),
          (row.*column)[family] == 'x')
          << "first " << static_cast<int>(row.first) << ", family " << family;
    }
  }
}

TEST(Fusion, NehalemMatrix) { expect_matrix(kNehalemFusion, &Row::nehalem); }

TEST(Fusion, SandyBridgeMatrix) { expect_matrix(kSandyBridgeFusion, &Row::sandy_bridge); }

TEST(Fusion, IceLakeMatrix) {
  expect_matrix(kIceLakeFusion, &Row::ice_lake);
  EXPECT_FALSE(kIceLakeFusion.fuses(FusionFirst::kCmp, Condition::kE, true, false, false));
}

// R65: not in 64-bit code.
TEST(Fusion, CoreTwoMatrix) {
  expect_matrix(kCore2Fusion, &Row::core2, false);
  for (const Row& row : kMatrix) {
    EXPECT_FALSE(kCore2Fusion.fuses(row.first, Condition::kE, false, false, false));
    EXPECT_FALSE(kNoFusion.fuses(row.first, Condition::kE, false, false, false, false));
  }
}

TEST(Fusion, MemoryOperandsOfTheFirst) {
  for (const FusionRules& rules : {kNehalemFusion, kSandyBridgeFusion}) {
    EXPECT_TRUE(rules.fuses(FusionFirst::kCmp, Condition::kE, true, false, false));
    EXPECT_FALSE(rules.fuses(FusionFirst::kCmp, Condition::kE, true, false, true));
    EXPECT_TRUE(rules.fuses(FusionFirst::kCmp, Condition::kE, false, false, true));
    EXPECT_FALSE(rules.fuses(FusionFirst::kTest, Condition::kE, true, true, false));
  }
  EXPECT_FALSE(kSandyBridgeFusion.fuses(FusionFirst::kAdd, Condition::kE, true, true, false));
}

TEST(Fusion, WithoutMemoryOperandFusionOnlyRegistersFuse) {
  FusionRules rules = kSandyBridgeFusion;
  rules.memory_operand = false;
  EXPECT_FALSE(rules.fuses(FusionFirst::kCmp, Condition::kE, true, false, false));
  EXPECT_TRUE(rules.fuses(FusionFirst::kCmp, Condition::kE, false, false, false));
}

TEST(Fusion, BothHalvesOfAFamilyShareIt) {
  EXPECT_EQ(condition_of_code(0x4), Condition::kE);   // JE
  EXPECT_EQ(condition_of_code(0x5), Condition::kE);   // JNE
  EXPECT_EQ(condition_of_code(0x2), Condition::kB);   // JB
  EXPECT_EQ(condition_of_code(0x7), Condition::kBe);  // JA
  EXPECT_EQ(condition_of_code(0xD), Condition::kL);   // JGE
  EXPECT_EQ(condition_of_code(0xF), Condition::kLe);  // JG
  EXPECT_EQ(condition_of_code(0x9), Condition::kS);   // JNS
}

}  // namespace
}  // namespace skidproof::arch
