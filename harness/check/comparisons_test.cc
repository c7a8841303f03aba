// What is kept of comparisons: enough to see what was judged, and never much.
#include "harness/check/comparisons.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness/check/check.h"

namespace skidproof::check {
namespace {

using results::Json;

enum class Colour : uint8_t { kRed = 1, kBlue = 7 };

struct Opaque {
  const void* where;
};

TEST(Comparisons, OneValueIsItself) {
  Comparisons all;
  all.add("a", "==", "b", 6, 6u);
  EXPECT_EQ(all.json(), Json::parse(R"({"a == b": {"times": 1, "seen": 6, "expected": 6}})"));
}

TEST(Comparisons, NumbersThatDifferHaveTheirEnds) {
  Comparisons all;
  constexpr char kLeft[] = "skid", kLess[] = "<=", kRight[] = "2";
  for (int64_t skid : {2, -1, 5, 3}) all.add(kLeft, kLess, kRight, skid, 2);
  EXPECT_EQ(all.total(), 4u);
  EXPECT_EQ(all.json()["skid <= 2"]["seen"],
            Json::parse(R"({"first": 2, "last": 3, "least": -1, "most": 5})"));
  EXPECT_EQ(all.json()["skid <= 2"]["expected"], 2);
}

TEST(Comparisons, EveryKindOfValueHasItsForm) {
  Comparisons all;
  all.add("big", "==", "x", uint64_t{0xFFFF'8880'0000'1000}, uint64_t{0});
  all.add("enum", "==", "x", Colour::kBlue, Colour::kRed);
  all.add("text", "==", "x", std::string("0x0"), "0x1");
  all.add("pointer", "!=", "nullptr", &all, nullptr);
  all.add("real", ">", "x", 0.5, 0.25);
  all.add("flag", "", "", true);
  all.add("refused", "is false", "", false);
  all.add("list", "matches", "IsEmpty()", std::vector<int>{1, 2});
  all.add("object", "matches", "x", Opaque{&all});
  const Json json = all.json();
  EXPECT_EQ(json["big == x"]["seen"], "0xffff888000001000");
  EXPECT_EQ(json["enum == x"]["seen"], 7);
  EXPECT_EQ(json["text == x"]["expected"], "0x1");
  EXPECT_EQ(json["pointer != nullptr"]["seen"], "not null") << "an address differs from run to run";
  EXPECT_EQ(json["pointer != nullptr"]["expected"], "null");
  EXPECT_EQ(json["real > x"]["seen"], 0.5);
  EXPECT_EQ(json["flag"], Json::parse(R"({"times": 1, "seen": true})"));
  EXPECT_EQ(json["refused is false"]["seen"], false);
  EXPECT_EQ(json["list matches IsEmpty()"]["seen"], "{ 1, 2 }");
  EXPECT_EQ(json["object matches x"]["seen"], "an object") << "its bytes would hold an address";
}

TEST(Comparisons, AreFewAndShort) {
  Comparisons all;
  std::vector<std::string> texts;
  for (int i = 0; i < 30; ++i) texts.push_back("expression " + std::to_string(i));
  for (const std::string& text : texts) {
    all.add(text.c_str(), "==", "x", std::string(1000, 'x'), 1);
  }
  const Json json = all.json();
  EXPECT_EQ(json.size(), Comparisons::kShown + 1);
  EXPECT_EQ(json["others"], 30 - Comparisons::kShown);
  EXPECT_LT(json.dump().size(), 4000u);
}

TEST(Wholes, CompareByWhatTheyAreWorth) {
  EXPECT_TRUE(Whole(-1) < Whole(0u));
  EXPECT_TRUE(Whole(-2) < Whole(-1));
  EXPECT_TRUE(Whole(uint64_t{1} << 63) > Whole(INT64_MAX)) << "not negative";
  EXPECT_TRUE((Whole(int16_t{7}) <=> Whole(uint64_t{7})) == 0);
  EXPECT_FALSE((Whole(-1) <=> Whole(UINT64_MAX)) == 0) << "the same bits";
}

TEST(Wholes, FailInGoogleTestsWords) {
  const int64_t three = 3;
  EXPECT_TRUE(internal::verify_eq("a", "b", 3, three));
  EXPECT_TRUE(internal::verify_ge("a", "b", 0u, -1));
  const auto words = [](auto verify, auto... values) {
    return std::string(verify("a", "b", values...).message());
  };
  EXPECT_EQ(words(internal::verify_eq<int, unsigned>, -3, 5u),
            words(::testing::internal::EqHelper::Compare<int, int>, -3, 5));
  EXPECT_EQ(words(internal::verify_eq<uint64_t, uint64_t>, 1, UINT64_MAX),
            words(::testing::internal::EqHelper::Compare<uint64_t, uint64_t>, 1, UINT64_MAX));
  EXPECT_EQ(words(internal::verify_ne<int, int>, 4, 4),
            words(::testing::internal::CmpHelperNE<int, int>, 4, 4));
  EXPECT_EQ(words(internal::verify_le<int, int>, 4, -4),
            words(::testing::internal::CmpHelperLE<int, int>, 4, -4));
  EXPECT_EQ(words(internal::verify_lt<int, int>, 4, -4),
            words(::testing::internal::CmpHelperLT<int, int>, 4, -4));
  EXPECT_EQ(words(internal::verify_ge<int, int>, -4, 4),
            words(::testing::internal::CmpHelperGE<int, int>, -4, 4));
  EXPECT_EQ(words(internal::verify_gt<int, int>, -4, 4),
            words(::testing::internal::CmpHelperGT<int, int>, -4, 4));
}

}  // namespace
}  // namespace skidproof::check
