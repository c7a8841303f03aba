#include "harness/characterize/verdict.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/random.h"

namespace skidproof {
namespace {

constexpr double kShare = 0.25;

PairSamples samples_of(size_t n, const std::function<double(size_t)>& gain,
                       const std::function<double(size_t)>& slot) {
  PairSamples out;
  for (size_t i = 0; i < n; ++i) {
    out.gain.push_back(gain(i) * kShare);
    out.slot_apart.push_back(slot(i) * kShare);
    out.slot_together.push_back(slot(i) * kShare);
    out.share.push_back(kShare);
  }
  return out;
}

double one(size_t) { return 1; }
double none(size_t) { return 0; }

// In [low, high), by the seed.
std::function<double(size_t)> uniform(double low, double high, uint64_t seed) {
  return [=](size_t i) {
    Random random(derive_seed(seed + i, "verdict"));
    return low + (high - low) * static_cast<double>(random.below(1'000'000)) / 1e6;
  };
}

TEST(PairVerdict, WantsEnoughVotes) {
  EXPECT_EQ(judge_pair({}), PairVerdict::kOpen);
  EXPECT_EQ(judge_pair(samples_of(16, one, one)), PairVerdict::kOpen);
  EXPECT_EQ(judge_pair(samples_of(17, one, one)), PairVerdict::kFused);
  EXPECT_EQ(judge_pair(samples_of(17, none, one)), PairVerdict::kNoGain);
}

TEST(PairVerdict, IsOfAllSamplesTogether) {
  PairSamples samples = samples_of(9, one, one);
  EXPECT_EQ(judge_pair(samples), PairVerdict::kOpen);
  samples += samples_of(8, one, one);
  EXPECT_EQ(judge_pair(samples), PairVerdict::kFused);
  samples.next_gain = samples.next_apart = samples.next_together = {1};
  PairSamples twice = samples;
  twice += samples;
  EXPECT_EQ(twice.slot_gain.size(), 2 * samples.slot_gain.size());
  for (const auto* next : {&twice.next_gain, &twice.next_apart, &twice.next_together})
    EXPECT_EQ(next->size(), 2u);
}

TEST(PairVerdict, SaysNothingWhereAnInstructionLessSavesNothing) {
  EXPECT_EQ(judge_pair(samples_of(40, none, none)), PairVerdict::kNotIssue);
  EXPECT_EQ(judge_pair(samples_of(40, one, none)), PairVerdict::kNotIssue);
}

// Where the code in which they are apart is slow by itself, both its gain and its slot are large.
TEST(PairVerdict, StaysOpenWhereTheTwoCodesDiffer) {
  PairSamples samples = samples_of(
      200, [](size_t) { return 1.7; }, [](size_t) { return 1.85; });
  for (double& slot : samples.slot_together) slot = kShare;
  EXPECT_EQ(judge_pair(samples), PairVerdict::kOpen);
  EXPECT_FALSE(leaning(samples));
}

// Code whose time rises by steps may rise by one where an instruction goes, and not where the next does.
TEST(PairVerdict, WantsEachInstructionToBeASlot) {
  PairSamples samples = samples_of(40, none, one);
  samples.next_apart = samples.slot_apart;
  samples.next_together = samples.slot_together;
  EXPECT_EQ(judge_pair(samples), PairVerdict::kNoGain);
  for (double& slot : samples.next_together) slot = 0;
  EXPECT_EQ(judge_pair(samples), PairVerdict::kNotIssue);
  for (double& slot : samples.next_together) slot = 2 * kShare;
  EXPECT_EQ(judge_pair(samples), PairVerdict::kOpen);
}

// The gain that is met in the code as it stands is met with an instruction less, too, and with two.
TEST(PairVerdict, WantsTheGainWithAnInstructionLessToo) {
  for (const bool fused : {false, true}) {
    PairSamples samples = samples_of(40, fused ? one : none, one);
    const PairVerdict verdict = fused ? PairVerdict::kFused : PairVerdict::kNoGain;
    for (auto* gain : {&samples.slot_gain, &samples.next_gain}) {
      *gain = samples.gain;
      EXPECT_EQ(judge_pair(samples), verdict);
      EXPECT_TRUE(leaning(samples));
      for (double& value : *gain) value = kShare - value;
      EXPECT_EQ(judge_pair(samples), PairVerdict::kOpen);
      EXPECT_FALSE(leaning(samples));
      *gain = samples.gain;
    }
  }
}

TEST(PairVerdict, StaysOpenBetweenASlotAndNothing) {
  EXPECT_EQ(judge_pair(samples_of(
                500, [](size_t) { return 0.5; }, one)),
            PairVerdict::kOpen);
  EXPECT_EQ(judge_pair(samples_of(
                500, [](size_t) { return 2.0; }, one)),
            PairVerdict::kOpen);
}

TEST(PairVerdict, TakesWhatIsNearerToOneSlotThanToTwo) {
  const auto gaining = [](double slots) {
    return judge_pair(samples_of(
        100, [slots](size_t i) { return slots + (i % 2 == 0 ? 0.1 : -0.1); }, one));
  };
  EXPECT_EQ(gaining(1.45), PairVerdict::kFused);
  EXPECT_EQ(gaining(0.65), PairVerdict::kOpen);
  EXPECT_EQ(gaining(0.75), PairVerdict::kFused);
  EXPECT_EQ(gaining(1.65), PairVerdict::kOpen);
}

TEST(PairVerdict, IsNotCarriedAwayByAThirdOfSpoiledSamples) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto spoiled = uniform(-5, 5, seed * 1000);
    const auto mostly = [&](double value) {
      return [&spoiled, value](size_t i) { return i % 3 == 0 ? spoiled(i) : value; };
    };
    EXPECT_EQ(judge_pair(samples_of(100, mostly(1), mostly(1))), PairVerdict::kFused) << seed;
    EXPECT_EQ(judge_pair(samples_of(100, mostly(0), mostly(1))), PairVerdict::kNoGain) << seed;
  }
}

TEST(PairVerdict, LeansWhereVotesPrevail) {
  EXPECT_TRUE(leaning(samples_of(8, one, one)));
  EXPECT_TRUE(leaning(samples_of(8, none, one)));
  EXPECT_FALSE(leaning(samples_of(8, none, none)));
  EXPECT_FALSE(leaning(samples_of(
      8, [](size_t) { return 0.5; }, one)));
}

// Where spreads are wider than what is asked for, a verdict takes more samples, and is still the right one.
TEST(PairVerdict, IsRightOrOpenInNoise) {
  int told = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const auto noise = uniform(-1.5, 1.5, seed * 1000),
               other = uniform(-1.5, 1.5, seed * 1000 + 500'000);
    const bool fused = seed % 2 == 0;
    const PairSamples samples = samples_of(
        150, [&](size_t i) { return (fused ? 1 : 0) + noise(i); },
        [&](size_t i) { return 1 + other(i); });
    const PairVerdict verdict = judge_pair(samples);
    if (verdict == PairVerdict::kOpen) continue;
    ++told;
    EXPECT_EQ(verdict, fused ? PairVerdict::kFused : PairVerdict::kNoGain) << seed;
  }
  EXPECT_GT(told, 500);
}

TEST(PairVerdict, IsHardlyEverMadeOfNoiseAlone) {
  int verdicts = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const PairSamples noise =
        samples_of(150, uniform(-5, 6, seed * 1000), uniform(-5, 6, seed * 1000 + 500'000));
    verdicts +=
        judge_pair(noise) == PairVerdict::kFused || judge_pair(noise) == PairVerdict::kNoGain ? 1
                                                                                              : 0;
  }
  EXPECT_LE(verdicts, 10);
}

}  // namespace
}  // namespace skidproof
