// Parts by their names.
#include "pebs/arch/part.h"

#include <gtest/gtest.h>

namespace skidproof::arch {
namespace {

TEST(Part, NamesGoThereAndBack) {
  const Part part = {.family = 6, .model = 0x2D, .stepping = 7};
  EXPECT_EQ(name_of(part), "06_2D_7");
  EXPECT_EQ(parse_part("06_2D_7"), part);
  EXPECT_EQ(parse_part("6_2d_7"), part);
  EXPECT_EQ(name_of({.family = 15, .model = 4, .stepping = 10}), "0F_04_A");
  EXPECT_EQ(parse_part("06_2D")->stepping, 0u);
}

TEST(Part, AnythingElseIsRefusedWithAnExample) {
  for (const char* text : {"", "6", "06_", "06_2D_", "06_2D_7_1", "06-2D-7", "06_2D_10", "06_100",
                           "06_2DH", "x_2D", "-6_2D"}) {
    const auto part = parse_part(text);
    ASSERT_FALSE(part) << text;
    EXPECT_EQ(part.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(part.error().advice.find("06_2A_7"), std::string::npos);
  }
}

}  // namespace
}  // namespace skidproof::arch
