// Votes on a pair of instructions.
#include "harness/characterize/verdict.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>

#include "harness/stats/robust.h"

namespace skidproof {
namespace {

const double kStep = std::log(3.0);  // of the likelihood ratio, by a vote
const double kDecided = std::log(1e8);
// Of a slot: a median gain that is none, and one that is one and not yet nearer to two. Of a share: a slot that is worth an
// instruction (some take two).
constexpr double kMostNothing = 0.3, kLeastWhole = 0.7, kMostGain = 1.5, kMostWhole = 1.4;

int votes_of(const std::vector<double>& values, const std::function<double(size_t)>& border) {
  int votes = 0;
  for (size_t i = 0; i < values.size(); ++i) votes += values[i] > border(i) ? 1 : -1;
  return votes;
}

// Those that were tried.
std::vector<const std::vector<double>*> slots_of(const PairSamples& samples) {
  std::vector<const std::vector<double>*> slots = {&samples.slot_apart, &samples.slot_together};
  for (const auto* next : {&samples.next_apart, &samples.next_together}) {
    if (!next->empty()) slots.push_back(next);
  }
  return slots;
}

// The fewest votes of a slot.
int slot_votes(const PairSamples& samples) {
  const auto half = [&](size_t i) { return samples.share[i] / 2; };
  int fewest = std::numeric_limits<int>::max();
  for (const auto* slot : slots_of(samples)) fewest = std::min(fewest, votes_of(*slot, half));
  return fewest;
}

bool decided(int votes) { return std::abs(votes) * kStep >= kDecided; }

bool no_gain(double gain, double slot) { return std::abs(gain) <= kMostNothing * slot; }
bool one_slot(double gain, double slot) {
  return gain >= kLeastWhole * slot && gain <= kMostGain * slot;
}

// With one instruction less, and with two, the pair gains as it does with none less: what goes by whole cycles, as a core does that
// a busy sibling thread takes every other cycle of, hides a slot in one of them and shows two in another.
bool gains_everywhere(const PairSamples& samples, bool fused) {
  for (const auto* gain : {&samples.slot_gain, &samples.next_gain}) {
    if (!gain->empty() && (stats::median(*gain) > samples.slot() / 2) != fused) return false;
  }
  return true;
}

bool issue_limits(const PairSamples& samples) {
  const double share = stats::median(samples.share);
  return std::ranges::all_of(slots_of(samples), [share](const std::vector<double>* slot) {
    const double median = stats::median(*slot);
    return median >= kLeastWhole * share && median <= kMostWhole * share;
  });
}

}  // namespace

double PairSamples::slot() const {
  return (stats::median(slot_apart) + stats::median(slot_together)) / 2;
}

PairSamples& PairSamples::operator+=(const PairSamples& more) {
  for (const auto member :
       {&PairSamples::gain, &PairSamples::slot_apart, &PairSamples::slot_together,
        &PairSamples::slot_gain, &PairSamples::next_apart, &PairSamples::next_together,
        &PairSamples::next_gain, &PairSamples::share}) {
    std::vector<double>& here = this->*member;
    here.insert(here.end(), (more.*member).begin(), (more.*member).end());
  }
  return *this;
}

PairVerdict judge_pair(const PairSamples& samples) {
  const int issue = slot_votes(samples);
  if (!decided(issue)) return PairVerdict::kOpen;
  if (issue < 0) return PairVerdict::kNotIssue;
  const double slot = samples.slot(), gain = stats::median(samples.gain);
  const int votes = votes_of(samples.gain, [slot](size_t) { return slot / 2; });
  if (!decided(votes) || !issue_limits(samples)) return PairVerdict::kOpen;
  const bool fused = votes > 0;
  if (!(fused ? one_slot(gain, slot) : no_gain(gain, slot))) return PairVerdict::kOpen;
  if (!gains_everywhere(samples, fused)) return PairVerdict::kOpen;
  return fused ? PairVerdict::kFused : PairVerdict::kNoGain;
}

bool leaning(const PairSamples& samples) {
  const double slot = samples.slot(), gain = stats::median(samples.gain);
  return issue_limits(samples) && ((no_gain(gain, slot) && gains_everywhere(samples, false)) ||
                                   (one_slot(gain, slot) && gains_everywhere(samples, true)));
}

}  // namespace skidproof
