// Reaches of jumps out of curves.
#include "harness/characterize/branch_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/stats/robust.h"

namespace skidproof {
namespace {

constexpr double kSoftest = 3;     // of first_beyond over last_within
constexpr double kAsMany = 1.25;   // two sizes that are the same
constexpr uint64_t kFarApart = 4;  // one distance over another
constexpr double kLeastRise = 1;

void sort_by_size(std::vector<CurvePoint>& curve) {
  std::sort(curve.begin(), curve.end(),
            [](const CurvePoint& a, const CurvePoint& b) { return a.x < b.x; });
}

struct FoundRise {
  uint64_t spacing = 0;
  Rise rise;
  uint64_t size(bool in_bytes) const { return rise.last_within * (in_bytes ? spacing : 1); }
};

bool as_many(uint64_t a, uint64_t b) {
  const auto [low, high] = std::minmax(a, b);
  return static_cast<double>(high) <= kAsMany * static_cast<double>(low);
}

// Those that begin where this one does, itself among them.
std::vector<FoundRise> companions(const FoundRise& of, const std::vector<FoundRise>& all,
                                  bool in_bytes) {
  std::vector<FoundRise> out;
  for (const FoundRise& other : all) {
    if (as_many(of.size(in_bytes), other.size(in_bytes))) out.push_back(other);
  }
  return out;
}

bool far_apart(const std::vector<FoundRise>& rises) {
  const auto [least, most] = std::minmax_element(
      rises.begin(), rises.end(),
      [](const FoundRise& a, const FoundRise& b) { return a.spacing < b.spacing; });
  return least != rises.end() && most->spacing >= kFarApart * least->spacing;
}

double median_of(const std::vector<CurvePoint>& curve, size_t from, size_t to) {
  std::vector<double> values;
  for (size_t i = from; i < to; ++i) values.push_back(curve[i].value);
  return stats::median(values);
}

// What is left when each side of `split` is its median.
double left_over(const std::vector<CurvePoint>& curve, size_t split) {
  const double below = median_of(curve, 0, split), above = median_of(curve, split, curve.size());
  double sum = 0;
  for (size_t i = 0; i < curve.size(); ++i)
    sum += std::abs(curve[i].value - (i < split ? below : above));
  return sum;
}

JumpLevel level_of(const std::vector<FoundRise>& rises) {
  JumpLevel level;
  std::vector<uint64_t> within;
  for (const FoundRise& found : rises) {
    within.push_back(found.rise.last_within);
    level.first_beyond = std::max(level.first_beyond, found.rise.first_beyond);
    level.spacings.push_back(found.spacing);
  }
  std::ranges::sort(within);
  std::ranges::sort(level.spacings);
  level.least = within.front();
  level.most_within = within.back();
  level.agreed = as_many(level.least, level.most_within);
  level.jumps = within[within.size() - std::min<size_t>(2, within.size())];
  return level;
}

}  // namespace

CurvePoint quartile_point(uint64_t x, const Point& point) {
  return {.x = x,
          .value = stats::quantile(point.cycles, 0.25),
          .low = stats::minimum(point.cycles),
          .high = stats::median(point.cycles),
          .n = point.cycles.size()};
}

Reach soft_reach(std::vector<CurvePoint> curve, double some, double more) {
  sort_by_size(curve);
  Reach reach;
  std::vector<double> small;
  size_t within = 0;  // points
  for (; within < curve.size(); ++within) {
    if (!small.empty() && curve[within].value >= stats::median(small) + some) break;
    small.push_back(curve[within].value);
  }
  reach.curve = std::move(curve);
  if (reach.curve.empty()) {
    reach.why = "nothing was measured";
    return reach;
  }
  reach.within = stats::median(small);
  reach.last_within = reach.curve[within - 1].x;
  if (within == reach.curve.size()) {
    reach.why = fmt::format("the cost does not rise up to {}", reach.last_within);
    return reach;
  }
  size_t beyond = reach.curve.size();
  while (beyond > within && reach.curve[beyond - 1].low >= reach.within + more) --beyond;
  if (beyond == reach.curve.size()) {
    reach.why = fmt::format("the cost rises beyond {}, but not by {:.3g} cycles for good",
                            reach.last_within, more);
    return reach;
  }
  reach.first_beyond = reach.curve[beyond].x;
  reach.beyond = reach.curve[beyond].value;
  if (static_cast<double>(reach.first_beyond) > kSoftest * static_cast<double>(reach.last_within)) {
    reach.why =
        fmt::format("the cost rises slowly from {} to {}", reach.last_within, reach.first_beyond);
    return reach;
  }
  for (size_t i = 0; i < within; ++i) {
    if (reach.curve[i].high < reach.within + more) continue;
    reach.why = fmt::format("the cost of {} is {:.3g} to {:.3g} cycles", reach.curve[i].x,
                            reach.curve[i].low, reach.curve[i].high);
    return reach;
  }
  reach.clear = true;
  return reach;
}

Reach step_reach(std::vector<CurvePoint> curve, double least_step, uint64_t grain) {
  sort_by_size(curve);
  Reach reach;
  reach.curve = std::move(curve);
  const std::vector<CurvePoint>& all = reach.curve;
  constexpr size_t kLeastPoints = 2;  // on either side
  if (all.size() < 2 * kLeastPoints) {
    reach.why = "too few sizes were measured";
    return reach;
  }
  size_t split = kLeastPoints;
  for (size_t at = split; at + kLeastPoints <= all.size(); ++at) {
    if (left_over(all, at) < left_over(all, split)) split = at;
  }
  reach.within = median_of(all, 0, split);
  reach.beyond = median_of(all, split, all.size());
  reach.last_within = all[split - 1].x;
  reach.first_beyond = all[split].x;
  if (reach.beyond - reach.within < least_step) {
    reach.first_beyond = 0;
    reach.last_within = all.back().x;
    reach.why =
        fmt::format("the cost does not rise by {:.3g} cycles up to {}", least_step, all.back().x);
    return reach;
  }
  const double middle = (reach.within + reach.beyond) / 2;
  size_t wrong = 0;
  for (size_t i = 0; i < all.size(); ++i) wrong += (all[i].value < middle) == (i < split) ? 0 : 1;
  if (all[split - 1].high >= middle || all[split].low <= middle) {
    reach.why = fmt::format(
        "the costs of {} ({:.3g} to {:.3g}) and {} ({:.3g} to {:.3g}) do not lie on either side of "
        "{:.3g}",
        all[split - 1].x, all[split - 1].low, all[split - 1].high, all[split].x, all[split].low,
        all[split].high, middle);
  } else if (10 * wrong > all.size()) {
    reach.why = fmt::format("{} of {} sizes lie on the wrong side of {:.3g} cycles", wrong,
                            all.size(), middle);
  } else if (reach.first_beyond - reach.last_within > grain) {
    reach.why = fmt::format("between {} and {}", reach.last_within, reach.first_beyond);
  } else {
    reach.clear = true;
  }
  return reach;
}

std::vector<Rise> rises_of(const std::vector<CurvePoint>& curve, double per_octave) {
  std::vector<Rise> rises;
  double risen = 0;
  bool rising = false;
  const auto end = [&] {
    if (rising && risen < kLeastRise) rises.pop_back();
    rising = false;
    risen = 0;
  };
  for (size_t i = 0; i + 1 < curve.size(); ++i) {
    const CurvePoint &a = curve[i], &b = curve[i + 1];
    const double octaves = std::log2(static_cast<double>(b.x) / static_cast<double>(a.x));
    if (b.value - a.value < per_octave * octaves || b.low <= a.high) {
      end();
      continue;
    }
    if (!rising) rises.push_back({a.x, b.x});
    rising = true;
    risen += b.value - a.value;
  }
  end();
  return rises;
}

std::vector<JumpLevel> jump_levels(const std::map<uint64_t, std::vector<CurvePoint>>& curves,
                                   double per_octave) {
  std::vector<FoundRise> all;
  for (const auto& [spacing, curve] : curves) {
    for (const Rise& rise : rises_of(curve, per_octave)) all.push_back({spacing, rise});
  }

  std::vector<JumpLevel> levels;
  std::vector<FoundRise> jumps;
  for (const FoundRise& found : all) {
    if (far_apart(companions(found, all, false)) && !far_apart(companions(found, all, true)))
      jumps.push_back(found);
  }
  // The largest group first.
  while (!jumps.empty()) {
    std::vector<FoundRise> best;
    for (const FoundRise& found : jumps) {
      std::vector<FoundRise> group = companions(found, jumps, false);
      if (group.size() > best.size()) best = std::move(group);
    }
    if (far_apart(best)) levels.push_back(level_of(best));
    std::erase_if(jumps, [&](const FoundRise& found) {
      return std::any_of(best.begin(), best.end(), [&](const FoundRise& taken) {
        return taken.spacing == found.spacing && taken.rise.last_within == found.rise.last_within;
      });
    });
  }
  std::sort(levels.begin(), levels.end(),
            [](const JumpLevel& a, const JumpLevel& b) { return a.jumps < b.jumps; });
  return levels;
}

}  // namespace skidproof
