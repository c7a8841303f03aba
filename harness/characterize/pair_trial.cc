// Which layout is asked next, and when its answers are a verdict.
#include "harness/characterize/pair_trial.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace skidproof {
namespace {

// After so many samples that do not even lean to a verdict another layout has its turn.
constexpr unsigned kVisit = 8;
// So often each layout is asked before the others have their turn.
constexpr unsigned kVisitsEach = 2;
// In so many places a layout may be unable to tell, once time alone ends a trial; before, in one.
constexpr unsigned kRefusalsAtTheEnd = 4;
// Places that say so beyond those that say the other.
constexpr unsigned kLead = 2;
// Of so many pairs that it showed to fuse, a layout may have missed one.
constexpr unsigned kOfWhichOneMissed = 8;

bool told(PairVerdict verdict) {
  return verdict == PairVerdict::kFused || verdict == PairVerdict::kNoGain;
}

}  // namespace

void LayoutRecords::add(bool taken, PairVerdict verdict, const std::vector<Sayings>& said) {
  for (size_t i = 0; i < said.size(); ++i) {
    Record& record = of_[i][taken ? 1 : 0];
    const bool fused = said[i].fused > said[i].no_gain, no_gain = said[i].no_gain > said[i].fused;
    if (verdict == PairVerdict::kFused && fused) ++record.fused;
    if (verdict == PairVerdict::kFused && no_gain) ++record.missed;
    if (verdict == PairVerdict::kNoGain && no_gain) ++record.no_gain;
  }
}

bool LayoutRecords::any_fused(bool taken) const {
  return std::ranges::any_of(of_, [taken](const auto& of) { return of[taken ? 1 : 0].fused != 0; });
}

bool LayoutRecords::trusted(size_t layout, bool taken) const {
  // Where no such pair was shown to fuse, as it does with those whose jump goes the other way.
  if (!any_fused(taken)) taken = !taken;
  if (!any_fused(taken)) return true;
  const Record& record = of_[layout][taken ? 1 : 0];
  return record.fused != 0 && record.missed * kOfWhichOneMissed <= record.fused;
}

bool LayoutRecords::better(size_t layout, size_t than, bool taken) const {
  const auto rank = [&](size_t i) {
    const Record &same = of_[i][taken ? 1 : 0], &other = of_[i][taken ? 0 : 1];
    return std::tuple(trusted(i, taken), same.fused, other.fused, same.no_gain + other.no_gain);
  };
  return rank(layout) > rank(than);
}

PairTrial::PairTrial(std::vector<bool> usable, bool taken, bool scout, bool certain)
    : of_this_core_(std::move(usable)),
      usable_(of_this_core_),
      taken_(taken),
      scout_(scout && !certain),
      certain_(certain),
      visits_(usable_.size()),
      refusals_(usable_.size()),
      said_(usable_.size()) {
  at_ = static_cast<size_t>(std::ranges::find(usable_, true) - usable_.begin());
}

bool PairTrial::take_new_place() { return std::exchange(new_place_, false); }

PairVerdict PairTrial::shown() const {
  const auto shows = [](const Sayings& s) { return s.fused >= kLead && s.no_gain == 0; };
  if (std::ranges::any_of(said_, shows)) return PairVerdict::kFused;
  const auto denies = [](const Sayings& s) { return s.no_gain != 0; };
  return std::ranges::any_of(said_, denies) ? PairVerdict::kNoGain : PairVerdict::kOpen;
}

void PairTrial::begin(const LayoutRecords& records) {
  if (std::ranges::any_of(said_, [](const Sayings& s) { return s.fused + s.no_gain != 0; })) return;
  move_on(records);
}

bool PairTrial::believed(size_t layout, const LayoutRecords& records) const {
  return certain_ || records.trusted(layout, taken_);
}

PairVerdict PairTrial::verdict(const LayoutRecords& records) const {
  unsigned fused = 0, no_gain = 0, layouts = 0;
  bool another = false;  // may say so too
  for (size_t i = 0; i < said_.size(); ++i) {
    fused += said_[i].fused;
    if (!believed(i, records)) continue;
    no_gain += said_[i].no_gain;
    layouts += said_[i].no_gain != 0 ? 1 : 0;
    another = another || (usable_[i] && said_[i].no_gain == 0 && visits_[i] < kVisitsEach);
  }
  const unsigned lead = certain_ ? 1 : kLead;
  if (fused >= no_gain + lead) return PairVerdict::kFused;
  if (no_gain >= fused + lead && (certain_ || layouts > 1 || !another)) return PairVerdict::kNoGain;
  return PairVerdict::kOpen;
}

// The same layout again, in the new place.
bool PairTrial::stay() {
  samples_ = 0;
  return false;
}

bool PairTrial::hear(PairVerdict judged, bool leaning, const LayoutRecords& records) {
  ++samples_;
  if (told(judged)) new_place_ = true;  // this one has said what it says
  if (judged == PairVerdict::kFused) ++said_[at_].fused;
  if (judged == PairVerdict::kNoGain) ++said_[at_].no_gain;
  if (judged == PairVerdict::kNotIssue && ++refusals_[at_] >= (at_the_end_ ? kRefusalsAtTheEnd : 1))
    usable_[at_] = false;
  if (!told(judged) && judged != PairVerdict::kNotIssue && (samples_ < kVisit || leaning))
    return false;
  if (scout_) {
    // That it fuses is asked again elsewhere, since other layouts are judged by it.
    const Sayings& here = said_[at_];
    if (judged == PairVerdict::kFused && here.fused < kLead && here.no_gain == 0) return stay();
    return !move_on(records);
  }
  if (told(verdict(records))) return true;
  return judged == PairVerdict::kFused ? stay() : !move_on(records);
}

bool PairTrial::move_on(const LayoutRecords& records) {
  if (samples_ != 0) ++visits_[at_];
  samples_ = 0;
  new_place_ = true;
  // Whom one layout told that it gains nothing, only those that are believed can say more.
  const bool no_gain =
      !scout_ && std::ranges::any_of(said_, [](const Sayings& s) { return s.no_gain != 0; });
  const unsigned most = scout_ ? 1 : at_the_end_ ? ~0U : kVisitsEach;
  std::optional<size_t> best;
  for (size_t i = 0; i < usable_.size(); ++i) {
    if (!usable_[i] || visits_[i] >= most || (no_gain && !believed(i, records))) continue;
    if (!best || visits_[i] < visits_[*best] ||
        (visits_[i] == visits_[*best] && records.better(i, *best, taken_))) {
      best = i;
    }
  }
  if (!best) return false;
  at_ = *best;
  return true;
}

}  // namespace skidproof
