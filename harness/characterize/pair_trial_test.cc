#include "harness/characterize/pair_trial.h"

#include <gtest/gtest.h>

#include <functional>
#include <string_view>
#include <vector>

namespace skidproof {
namespace {

using enum PairVerdict;
// What a layout says in one place, after one sample that leads nowhere.
using Says = std::function<PairVerdict(size_t layout, unsigned place)>;

Says always(std::vector<PairVerdict> each) {
  return [each](size_t layout, unsigned) { return each[layout]; };
}

struct Heard {
  PairVerdict verdict = kOpen;
  bool ended = false;
  std::vector<size_t> asked;  // the layout, by place
};

// So many samples at most, of which the second in each place tells.
Heard ask(PairTrial& trial, const Says& says, const LayoutRecords& records,
          unsigned samples = 1000) {
  Heard heard;
  unsigned of_place = 0;
  for (unsigned i = 0; i < samples && !heard.ended; ++i) {
    if (trial.take_new_place()) {
      heard.asked.push_back(trial.at());
      of_place = 0;
    }
    const auto place = static_cast<unsigned>(heard.asked.size() - 1);
    heard.ended = trial.hear(++of_place == 2 ? says(trial.at(), place) : kOpen, false, records);
  }
  heard.verdict = trial.verdict(records);
  return heard;
}

LayoutRecords after_scouts(size_t layouts, bool taken, const std::vector<Says>& pairs) {
  LayoutRecords records(layouts);
  for (const Says& says : pairs) {
    PairTrial scout(std::vector<bool>(layouts, true), taken, true, false);
    EXPECT_TRUE(ask(scout, says, LayoutRecords(layouts)).ended);
    records.add(taken, scout.shown(), scout.said());
  }
  return records;
}

PairTrial pair_of(size_t layouts, bool taken = false) {
  return {std::vector<bool>(layouts, true), taken, false, false};
}

TEST(PairTrial, WhatMissedPairsThatFuseIsNotBelieved) {
  // The first layout sees nothing.
  const Says fuses = always({kNoGain, kFused, kFused}),
             gains_nothing = always({kNoGain, kNoGain, kNoGain});
  const LayoutRecords records = after_scouts(3, false, {fuses, gains_nothing, fuses});
  EXPECT_FALSE(records.trusted(0, false));
  EXPECT_TRUE(records.trusted(1, false));
  EXPECT_TRUE(records.better(1, 0, false));

  PairTrial fusing = pair_of(3);
  fusing.begin(records);
  EXPECT_EQ(ask(fusing, fuses, records).verdict, kFused);
  PairTrial other = pair_of(3);
  other.begin(records);
  const Heard heard = ask(other, gains_nothing, records);
  EXPECT_EQ(heard.verdict, kNoGain);
  EXPECT_EQ(heard.asked, (std::vector<size_t>{1, 2}));

  // What the blind one alone can speak of stays open.
  PairTrial open = pair_of(3);
  const Heard blind = ask(open, always({kNoGain, kOpen, kOpen}), records);
  EXPECT_TRUE(blind.ended);
  EXPECT_EQ(blind.verdict, kOpen);
  // A gain is believed of any.
  PairTrial seen = pair_of(3);
  EXPECT_EQ(ask(seen, always({kFused, kOpen, kOpen}), records).verdict, kFused);
}

TEST(PairTrial, OneMissAmongManyIsForgiven) {
  std::vector<Says> pairs(8, always({kFused, kFused}));
  pairs.push_back(always({kNoGain, kFused}));
  EXPECT_TRUE(after_scouts(2, false, pairs).trusted(0, false));
  pairs.push_back(always({kNoGain, kFused}));
  EXPECT_FALSE(after_scouts(2, false, pairs).trusted(0, false));
}

TEST(PairTrial, TakenJumpsAreAMatterOfTheirOwn) {
  LayoutRecords records = after_scouts(2, false, {always({kFused, kFused})});
  // Until one is shown to fuse, those that are not taken say which layouts see.
  EXPECT_TRUE(records.trusted(0, true));
  PairTrial scout({true, true}, true, true, false);
  ask(scout, always({kFused, kNoGain}), records);
  records.add(true, scout.shown(), scout.said());
  EXPECT_TRUE(records.trusted(0, true));
  EXPECT_FALSE(records.trusted(1, true));
  EXPECT_TRUE(records.trusted(1, false));
}

TEST(PairTrial, WhereNothingFusesAllAreBelieved) {
  const Says nothing = always({kNoGain, kNoGain});
  const LayoutRecords records = after_scouts(2, false, {nothing, nothing});
  PairTrial pair = pair_of(2);
  const Heard heard = ask(pair, nothing, records);
  EXPECT_EQ(heard.verdict, kNoGain);
  EXPECT_EQ(heard.asked.size(), 2U);
}

TEST(PairTrial, OneThatAloneCanTellTellsInTwoPlaces) {
  const LayoutRecords records(3);
  PairTrial pair = pair_of(3);
  const Heard heard = ask(pair, always({kNotIssue, kNoGain, kOpen}), records);
  EXPECT_EQ(heard.verdict, kNoGain);
  EXPECT_EQ(pair.said()[1].no_gain, 2U);
}

TEST(PairTrial, APlaceThatMisleadsIsOutvoted) {
  const LayoutRecords records(2);
  PairTrial pair = pair_of(2);
  const Heard heard = ask(
      pair, [](size_t, unsigned place) { return place == 0 ? kFused : kNoGain; }, records);
  EXPECT_EQ(heard.verdict, kNoGain);
  EXPECT_EQ(heard.asked.size(), 4U);
}

TEST(PairTrial, AScoutThatFusesIsShownInTwoPlaces) {
  PairTrial scout({true, true}, false, true, false);
  const Heard heard = ask(
      scout,
      [](size_t layout, unsigned place) { return layout == 0 && place == 0 ? kFused : kNoGain; },
      LayoutRecords(2));
  EXPECT_EQ(heard.asked, (std::vector<size_t>{0, 0, 1}));
  EXPECT_EQ(scout.shown(), kNoGain);
}

TEST(PairTrial, WhatNothingTellsOfEndsAndHasAnotherGo) {
  const LayoutRecords records(2);
  PairTrial pair = pair_of(2);
  const Says nothing = always({kOpen, kOpen});
  const Heard heard = ask(pair, nothing, records);
  EXPECT_TRUE(heard.ended);
  EXPECT_EQ(heard.verdict, kOpen);
  EXPECT_EQ(heard.asked, (std::vector<size_t>{0, 1, 0, 1}));
  pair.at_the_end();
  pair.begin(records);
  EXPECT_FALSE(ask(pair, nothing, records).ended);
  EXPECT_EQ(ask(pair, always({kFused, kOpen}), records).verdict, kFused);
}

TEST(PairTrial, ALayoutThatCouldNotTellIsAskedInFourPlacesMoreAtTheEnd) {
  const LayoutRecords records(2);
  PairTrial pair = pair_of(2);
  const Says none_can = always({kNotIssue, kNotIssue});
  const Heard heard = ask(pair, none_can, records);
  EXPECT_TRUE(heard.ended);
  EXPECT_EQ(heard.asked, (std::vector<size_t>{0, 1}));
  PairTrial truly = pair;
  pair.at_the_end();
  pair.begin(records);
  EXPECT_EQ(ask(pair, always({kFused, kNotIssue}), records).verdict, kFused);
  truly.at_the_end();
  truly.begin(records);
  const Heard again = ask(truly, none_can, records);
  EXPECT_TRUE(again.ended);
  EXPECT_EQ(again.asked.size(), 8U) << "four places of each";
  EXPECT_EQ(again.verdict, kOpen);
}

TEST(PairTrial, NoPlaceIsHeardTwice) {
  const LayoutRecords records(1);
  PairTrial pair = pair_of(1);
  EXPECT_TRUE(pair.take_new_place());
  EXPECT_FALSE(pair.hear(kNoGain, false, records));
  EXPECT_TRUE(pair.take_new_place());
  // Its visits are over, with one place that says so.
  for (unsigned i = 0; i < 8; ++i) EXPECT_EQ(pair.hear(kOpen, false, records), i == 7);
  EXPECT_EQ(pair.verdict(records), kOpen);
  pair.at_the_end();
  pair.begin(records);
  EXPECT_TRUE(pair.take_new_place());
  EXPECT_TRUE(pair.hear(kNoGain, false, records));
  EXPECT_EQ(pair.verdict(records), kNoGain);
}

TEST(PairTrial, WhereNothingDisturbsTheFirstIsBelieved) {
  for (const PairVerdict says : {kFused, kNoGain}) {
    PairTrial pair({true, true}, false, true, true);
    const Heard heard = ask(pair, always({says, kOpen}), LayoutRecords(2));
    EXPECT_EQ(heard.verdict, says);
    EXPECT_EQ(heard.asked.size(), 1U);
  }
}

}  // namespace
}  // namespace skidproof
