// Verdicts over curves that are known.
#include "harness/characterize/reach.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>

#include "harness/characterize/testing/native_bench.h"

namespace skidproof {
namespace {

std::vector<CurvePoint> curve_of(const std::vector<std::pair<uint64_t, double>>& values,
                                 double spread = 0.1) {
  std::vector<CurvePoint> curve;
  for (const auto& [x, y] : values) curve.push_back({x, y, y - spread, y + spread, y, 9});
  return curve;
}

TEST(ShortOfTold, BelievesMoreThanCpuidTellsAndNeverLess) {
  EXPECT_EQ(short_of_told(49152, 49152, "bytes", "CPUID.04H"), "");
  EXPECT_EQ(short_of_told(65536, 49152, "bytes", "CPUID.04H"), "") << "nobody adds to a cache";
  const std::string why = short_of_told(40960, 49152, "bytes", "CPUID.04H");
  EXPECT_NE(why.find("40960 bytes answer of the 49152 that CPUID.04H tells"), std::string::npos)
      << why;
  EXPECT_NE(short_of_told(11, 12, "ways", "CPUID.04H"), "");
  EXPECT_NE(short_of_told(15, 16, "ways", "CPUID.04H"), "") << "one of many is one too few";
  EXPECT_EQ(short_of_told(1472, 1536, "entries", "CPUID.18H", 96), "") << "other pages' entries";
  EXPECT_NE(short_of_told(1408, 1536, "entries", "CPUID.18H", 96), "");
}

TEST(TakenByOthers, WhereMostSamplesOfTheLastSizeAreDearer) {
  const auto found = [](size_t cheap, size_t dear) {
    Reach reach{.curve = curve_of({{8, 5}, {16, 5}, {24, 15}}), .clear = true, .last_within = 16};
    reach.within = 5;
    reach.curve[1].cycles.assign(cheap, 5.5);
    reach.curve[1].cycles.resize(cheap + dear, 12);
    return taken_by_others(reach, 2);
  };
  EXPECT_EQ(found(51, 49), "");
  EXPECT_NE(found(20, 80).find("20 % of the samples at 16 "), std::string::npos) << found(20, 80);
  EXPECT_EQ(found(0, 0), "") << "samples of a curve that is there already are not known";
}

TEST(CurvePoint, TrustsTheLeastOrForgivesAFew) {
  Point point;
  for (int i = 0; i < 40; ++i) point.cycles.push_back(i < 2 ? 300 : 700 + i);
  point.control.assign(40, 50);
  EXPECT_EQ(curve_point(1, point).least, 250);
  const CurvePoint most = curve_point(1, point, Trust::kAllButFew);
  EXPECT_EQ(most.least, 652) << "two of forty are forgiven";
  EXPECT_EQ(most.control, 50);
  EXPECT_EQ(most.value, curve_point(1, point).value);
  EXPECT_EQ(forgiven(Trust::kAllButFew, 5), 0u) << "of few each is needed";
  EXPECT_EQ(forgiven(Trust::kAllButFew, 6), 1u);
  EXPECT_EQ(forgiven(Trust::kLeast, 1000), 0u);
}

TEST(JudgeReach, AStepIsClear) {
  const Reach reach = judge_reach(curve_of({{1, 5}, {2, 5.05}, {4, 4.95}, {8, 12}, {16, 13}}), 2);
  EXPECT_TRUE(reach.clear) << reach.why;
  EXPECT_EQ(reach.last_within, 4u);
  EXPECT_EQ(reach.first_beyond, 8u);
  EXPECT_NEAR(reach.within, 5, 0.1);
  EXPECT_EQ(reach.beyond, 12);
}

TEST(JudgeReach, AFlatCurveHasNone) {
  const Reach reach = judge_reach(curve_of({{1, 5}, {2, 5.5}, {4, 4.8}, {8, 5.9}}), 2);
  EXPECT_FALSE(reach.clear);
  EXPECT_EQ(reach.first_beyond, 0u);
  EXPECT_NE(reach.why.find("up to 8"), std::string::npos) << reach.why;
}

TEST(JudgeReach, AnOutlierIsNoStep) {
  const Reach reach =
      judge_reach(curve_of({{1, 5}, {2, 5}, {3, 30}, {4, 5}, {5, 5}, {6, 11}, {7, 11}}), 2);
  EXPECT_EQ(reach.last_within, 5u) << "the outlier is not where it ends …";
  EXPECT_FALSE(reach.clear) << "… and leaves nothing clear";
}

TEST(JudgeReach, WhatFewSamplesFindUndisturbedEndsNowhere) {
  const auto judged = [](int lucky, int disturbed, int beyond) {
    auto curve = curve_of({{1, 5}, {2, 5}, {3, 5}, {4, 20}, {5, 20}});
    curve[2].cycles.assign(static_cast<size_t>(lucky), 5);
    curve[2].cycles.insert(curve[2].cycles.end(), static_cast<size_t>(disturbed), 20);
    curve[3].cycles.assign(static_cast<size_t>(beyond), 20);
    return judge_reach(curve, 2);
  };
  const Reach luck = judged(2, 123, 57);
  EXPECT_FALSE(luck.clear);
  EXPECT_EQ(luck.last_within, 3u);
  EXPECT_NE(luck.why.find("all 57 at 4"), std::string::npos) << luck.why;
  EXPECT_TRUE(judged(20, 20, 30).clear) << "half are undisturbed, and of thirty none";
  EXPECT_TRUE(judged(6, 0, 6).clear);
}

TEST(JudgeReach, ASlopeIsNotClear) {
  EXPECT_FALSE(judge_reach(curve_of({{1, 5}, {2, 5}, {3, 6.5}, {4, 8}, {5, 10}}, 0.5), 2).clear);
}

TEST(JudgeReach, ASlowRiseIsNoSharpEnd) {
  const auto slow =
      curve_of({{8, 5}, {16, 5}, {17, 7}, {20, 9}, {24, 14}, {32, 25}, {40, 25}, {100, 40}});
  EXPECT_TRUE(judge_reach(slow, 1).clear);
  EXPECT_FALSE(judge_reach(slow, 1, true).clear);
  const auto fast = curve_of({{8, 5}, {16, 5}, {17, 13}, {20, 25}, {40, 25}, {100, 80}});
  EXPECT_TRUE(judge_reach(fast, 1, true).clear) << "what rises far behind it is another end";
}

// 96 entries in sixteen sets of six: with eight pages more half of the sets have one too many, with sixteen all.
TEST(JudgeReach, ARiseSetBySetIsAnEnd) {
  const auto rise = [](double at_last, double at_each) {
    return judge_reach(
        curve_of({{64, 0}, {80, 0.01}, {96, at_last}, {104, 2.2}, {120, at_each}, {160, 7}}), 1,
        true);
  };
  EXPECT_TRUE(rise(0.05, 7).clear);
  EXPECT_EQ(rise(0.05, 7).last_within, 96u);
  EXPECT_FALSE(rise(0.05, 5).clear) << "it goes on rising";
  EXPECT_FALSE(rise(0.4, 7).clear) << "it rose before";
  EXPECT_FALSE(judge_reach(curve_of({{64, 0}, {96, 0}, {104, 2.2}, {160, 7}}), 1, true).clear)
      << "nobody looked at one more in each set";
}

TEST(JudgeReach, WhatDisturbsMakesDearerAndIsNotJudged) {
  auto curve = curve_of({{1, 5}, {2, 5}, {4, 8}, {8, 8}});
  curve[1].value = curve[1].high = 20;
  const Reach reach = judge_reach(curve, 2);
  EXPECT_TRUE(reach.clear) << reach.why;
  EXPECT_EQ(reach.last_within, 2u);
}

TEST(JudgeReach, AFallBehindTheRiseIsNotClear) {
  EXPECT_FALSE(judge_reach(curve_of({{1, 5}, {2, 5}, {4, 9}, {8, 9}, {16, 5}}), 2).clear);
}

// A cost that is known: no machine is timed.
class FindReach : public NativeBench {
 protected:
  void SetUp() override {
    NativeBench::SetUp();
    options_.effort = Effort::kDefault;
    open_bench();
  }

  Expected<Reach> find(uint64_t ends_at, uint64_t to, uint64_t grain = 1) {
    ReachQuestion question;
    question.what = "something";
    question.from = grain;
    question.to = to;
    question.grain = grain;
    question.least_rise = 1;
    question.point = [&, ends_at](uint64_t size) -> Expected<Point> {
      looked_at_.insert(size);
      Point point;
      point.what = "something";
      point.sample = [=, this]() -> Expected<Sample> {
        const double wobble = 0.01 * static_cast<double>(++calls_ % 7);
        return Sample{1, (size <= ends_at ? 4 : 9) + wobble, {}};
      };
      return point;
    };
    return find_reach(*bench_, question, 0.5);
  }

  std::set<uint64_t> looked_at_;
  unsigned calls_ = 0;
};

TEST_F(FindReach, EveryEndToTheLastSize) {
  for (uint64_t end : {2, 3, 16, 17, 63, 64, 100, 511, 512}) {
    const auto reach = find(end, 700);
    ASSERT_TRUE(reach) << reach.error().text();
    EXPECT_TRUE(reach->clear) << end << ": " << reach->why;
    EXPECT_EQ(reach->last_within, end);
    EXPECT_EQ(reach->first_beyond, end + 1);
  }
}

TEST_F(FindReach, AsFineAsTheGrain) {
  const auto reach = find(48 << 10, 1 << 20, 4096);
  ASSERT_TRUE(reach) << reach.error().text();
  EXPECT_TRUE(reach->clear) << reach->why;
  EXPECT_EQ(reach->last_within, 48u << 10);
  EXPECT_EQ(reach->first_beyond, 52u << 10);
  for (uint64_t size : looked_at_) EXPECT_EQ(size % 4096, 0u);
  EXPECT_LT(looked_at_.size(), 40u) << "not every size";
}

TEST_F(FindReach, WhatDoesNotEndIsNotClear) {
  const auto reach = find(1000, 700);
  ASSERT_TRUE(reach) << reach.error().text();
  EXPECT_FALSE(reach->clear);
  EXPECT_TRUE(looked_at_.contains(700)) << "the last size is looked at";
}

// Some sizes lie badly in the first places that memory gives them.
TEST_F(FindReach, PlacesThatAreBadMoveNoEnd) {
  for (const bool anew : {true, false}) {
    std::map<uint64_t, int> places;
    ReachQuestion question;
    question.what = "something";
    question.to = 48;
    question.least_rise = 1;
    question.anew = anew;
    question.point = [&](uint64_t size) -> Expected<Point> {
      const bool bad = size >= 11 && ++places[size] <= 2;
      Point point;
      point.what = "something";
      point.sample = [=] { return Expected<Sample>(Sample{1, size > 16 || bad ? 9.0 : 4.0, {}}); };
      return point;
    };
    const auto reach = find_reach(*bench_, question, 0.5);
    ASSERT_TRUE(reach) << reach.error().text();
    EXPECT_TRUE(reach->clear) << reach->why;
    EXPECT_EQ(reach->last_within, anew ? 16u : 10u) << "anew: " << anew;
    EXPECT_EQ(reach->first_beyond, anew ? 17u : 11u);
  }
}

TEST_F(FindReach, LooksAddUpBySizeAndAreMadeAgainWhereAsked) {
  for (const bool anew : {true, false}) {
    int made = 0;
    Looks looks(
        *bench_,
        [&](uint64_t size) -> Expected<Point> {
          ++made;
          Point point;
          point.sample = [=] { return Expected<Sample>(Sample{1, static_cast<double>(size), {}}); };
          return point;
        },
        anew);
    ASSERT_TRUE(looks.at({3, 1}, 0.01));
    ASSERT_TRUE(looks.at({3}, 0.01));
    const auto curve = looks.curve();
    ASSERT_EQ(curve.size(), 2u);
    EXPECT_EQ(curve[0].x, 1u);
    EXPECT_EQ(curve[1].least, 3);
    EXPECT_EQ(curve[1].n, 2 * curve[0].n);
    EXPECT_EQ(made, anew ? 3 : 2);
  }
}

TEST_F(FindReach, MoreLooksEndWithTheirTime) {
  MoreLooks none(*bench_, 0);
  EXPECT_TRUE(none.another()) << "one in any case";
  EXPECT_FALSE(none.another());
  MoreLooks some(*bench_, 1e9);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(some.another());
}

TEST_F(FindReach, RowsOfBothEnds) {
  const auto reach = find(17, 100);
  ASSERT_TRUE(reach) << reach.error().text();
  emit_reach(*bench_, *reach, "branch.something", "jumps", {{"spacing", uint64_t{64}}}, "something",
             "entries");
  const Measurement& shape = out_.measurements.back();
  EXPECT_EQ(shape.name, "shape.something");
  EXPECT_EQ(shape.value, 17);
  EXPECT_EQ(shape.low, 17);
  EXPECT_EQ(shape.high, 18);
  EXPECT_EQ(out_.measurements.size(), reach->curve.size() + 1);
  const auto none = find(1000, 100);
  ASSERT_TRUE(none);
  emit_reach(*bench_, *none, "branch.something", "jumps", {}, "something", "entries");
  ASSERT_EQ(out_.unclear.size(), 1u);
  EXPECT_EQ(out_.unclear[0].name, "shape.something");
}

}  // namespace
}  // namespace skidproof
