// What the curves of the two-miss method say, each by itself and beside the others.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "harness/characterize/windows.h"
#include "harness/stats/robust.h"

namespace skidproof {
namespace {

double median_of_least(const std::vector<CurvePoint>& curve, size_t begin, size_t end) {
  std::vector<double> values;
  for (size_t i = begin; i < end; ++i) values.push_back(curve[i].least);
  return stats::median(values);
}

double distance_of_least(const std::vector<CurvePoint>& curve, size_t begin, size_t end) {
  const double middle = median_of_least(curve, begin, end);
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += std::abs(curve[i].least - middle);
  return sum;
}

// Where two plateaus explain the curve best, by the sum of absolute deviations from their medians.
size_t split_of_window(const std::vector<CurvePoint>& curve) {
  size_t best = 1;
  for (size_t i = 2; i < curve.size(); ++i) {
    const auto both = [&](size_t at) {
      return distance_of_least(curve, 0, at) + distance_of_least(curve, at, curve.size());
    };
    if (both(i) < both(best)) best = i;
  }
  return best;
}

}  // namespace

WindowSize judge_window(std::vector<CurvePoint> curve, double miss) {
  std::sort(curve.begin(), curve.end(),
            [](const CurvePoint& a, const CurvePoint& b) { return a.x < b.x; });
  WindowSize out;
  const auto unclear = [&](std::string why) {
    out.why = std::move(why);
    return out;
  };
  if (curve.size() < 4) return unclear("too few sizes");
  const size_t split = split_of_window(curve);
  constexpr size_t kNear = 7;
  const double within = median_of_least(curve, 0, split);
  const double rise = median_of_least(curve, split, std::min(split + kNear, curve.size())) - within;
  out.at_least = curve.back().x;
  out.sizes = curve.size();
  if (rise < 0.4 * miss)
    return unclear(fmt::format("up to {} no second miss shows", curve.back().x));
  // Where each quarter of the rise is passed for good, and where it was first passed.
  const auto last_below = [&](double level) {
    size_t i = curve.size();
    while (i > 0 && curve[i - 1].least >= level) --i;
    return i;
  };
  const auto first_above = [&](double level) {
    size_t i = 0;
    while (i < curve.size() && curve[i].least < level) ++i;
    return i;
  };
  const size_t low = first_above(within + rise / 4), middle = first_above(within + rise / 2),
               high = last_below(within + rise * 3 / 4);
  out.at_least = low == 0 ? 0 : curve[low - 1].x;
  if (low == 0 || high == curve.size()) return unclear("it never settles");
  out.size = middle == 0 ? 0 : curve[middle - 1].x;
  out.low = curve[low - 1].x;
  out.high = curve[high].x;
  out.border = within + rise / 2;
  if (out.high - out.low > std::max<uint64_t>(8, out.size / 16) + 1) {
    return unclear(
        fmt::format("the second miss comes slowly, between {} and {}", out.low, out.high));
  }
  if (last_below(within + rise / 2) != middle) {
    // Inside of the soft edge sizes may change places.
    out.size = (out.low + out.high) / 2;
  }
  out.clear = true;
  out.at_least = out.low;
  return out;
}

namespace {

// The filler of which most are held, of those that take a place in the reorder buffer each, and cannot be told to.
const std::pair<const std::string, WindowSize>* most_of_a_kind(
    const std::map<std::string, WindowSize, std::less<>>& windows) {
  const std::pair<const std::string, WindowSize>* most = nullptr;
  for (const auto& window : windows) {
    if (window.first == "nop" || window.first == "mixed" || !window.second.clear) continue;
    if (most == nullptr || window.second.size > most->second.size) most = &window;
  }
  return most;
}

// Something else than the reorder buffer ends the mixture.
bool ends_early(const WindowSize& mixed, const WindowSize& other) {
  return static_cast<double>(other.size) > 17.0 / 16 * static_cast<double>(mixed.size);
}

}  // namespace

WindowSize more_of(const WindowSize& one, const WindowSize& other) {
  if (one.clear && other.clear) return one.size >= other.size ? one : other;
  if (!one.clear && !other.clear) return one.at_least >= other.at_least ? one : other;
  const WindowSize& clear = one.clear ? one : other;
  const WindowSize& unclear = one.clear ? other : one;
  return unclear.at_least < clear.high ? clear : unclear;
}

WindowSize judge_reorder_buffer(const std::map<std::string, WindowSize, std::less<>>& windows) {
  const auto measured = [&](const char* filler) {
    const auto found = windows.find(filler);
    return found == windows.end() ? WindowSize{.why = "not measured"} : found->second;
  };
  const WindowSize by_turns = measured("mixed"), in_pairs = measured("mixed_pairs");
  WindowSize nops = measured("nop"), mixed = more_of(by_turns, in_pairs);
  if (!nops.clear || !mixed.clear) {
    WindowSize out = nops.clear ? mixed : nops;
    out.why = (nops.clear ? "the mixture: " : "no-operations: ") + out.why;
    return out;
  }
  const auto beside = [&](const WindowSize& other) {
    return static_cast<double>(nops.size) <= 1.1 * static_cast<double>(other.size);
  };
  if (beside(mixed)) return nops;
  const auto* most = most_of_a_kind(windows);
  WindowSize out;
  if (most == nullptr || !ends_early(mixed, most->second)) {
    if (!by_turns.clear || !in_pairs.clear ||
        !(ends_early(by_turns, in_pairs) || ends_early(in_pairs, by_turns)))
      return mixed;
    out.at_least = std::min(by_turns.size, in_pairs.size);
    out.sizes = mixed.sizes;
    out.why = fmt::format(
        "{} of a mixture are held where its kinds change with each instruction, and {} where two "
        "of "
        "a kind stand in a row: what shares an entry depends on its neighbours",
        by_turns.size, in_pairs.size);
    return out;
  }
  if (beside(most->second)) return nops;
  out.at_least = most->second.size;
  out.sizes = nops.sizes;
  out.why = fmt::format("{} of the mixture are held, but {} of {} alone and {} no-operations",
                        mixed.size, most->second.size, most->first, nops.size);
  return out;
}

void judge_windows_together(std::map<std::string, WindowSize, std::less<>>& windows) {
  const std::map<std::string, WindowSize, std::less<>> measured = windows;
  struct Need {
    const char* filler;
    const char* other;
    double share;  // of `other` that one of `filler` takes
    const char* name;
  };
  constexpr double kMargin = 15.0 / 16;
  constexpr std::array kNeeds = {
      Need{"mixed", "integer", 8.0 / 16, "the general registers"},
      Need{"mixed", "vector", 6.0 / 16, "the vector registers"},
      Need{"mixed", "store", 2.0 / 16, "the store queue"},
      Need{"load", "integer", 0.5, "the general registers"},
      Need{"load", "vector", 0.5, "the vector registers"},
      Need{"waiting", "integer", 1, "the general registers"},
      Need{"waiting_vector", "vector", 1, "the vector registers"},
      Need{"integer", "nop", 1, "the reorder buffer"},
      Need{"vector", "nop", 1, "the reorder buffer"},
      Need{"vector256", "nop", 1, "the reorder buffer"},
      Need{"load", "nop", 1, "the reorder buffer"},
      Need{"store", "nop", 1, "the reorder buffer"},
      Need{"waiting", "nop", 1, "the reorder buffer"},
      Need{"waiting_vector", "nop", 1, "the reorder buffer"},
      // The mixture has no no-operations, which some cores keep two to an entry or nowhere.
      Need{"integer", "mixed", 1, "the reorder buffer"},
      Need{"vector", "mixed", 1, "the reorder buffer"},
      Need{"vector256", "mixed", 1, "the reorder buffer"},
      Need{"load", "mixed", 1, "the reorder buffer"},
      Need{"store", "mixed", 1, "the reorder buffer"},
      Need{"waiting", "mixed", 1, "the reorder buffer"},
      Need{"waiting_vector", "mixed", 1, "the reorder buffer"},
  };
  constexpr std::string_view mixture = "mixed";
  const auto mixed = measured.find(mixture);
  const auto* most = most_of_a_kind(measured);
  const bool early = mixed != measured.end() && most != nullptr && mixed->second.clear &&
                     ends_early(mixed->second, most->second);
  for (const Need& need : kNeeds) {
    if (early && need.other == mixture) continue;
    const auto one = windows.find(need.filler);
    const auto other = measured.find(need.other);
    if (one == windows.end() || other == measured.end() || !one->second.clear) continue;
    const double taken = static_cast<double>(one->second.size) * need.share;
    const uint64_t there = other->second.clear ? other->second.size : other->second.at_least;
    if (taken <= static_cast<double>(there) * kMargin) continue;
    one->second.clear = false;
    one->second.at_least = one->second.low;
    one->second.why =
        fmt::format("at {} it takes {:.0f} of {}, of which there are {}{}", one->second.size, taken,
                    need.name, other->second.clear ? "" : "at least ", there);
  }
}

}  // namespace skidproof
