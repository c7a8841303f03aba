// Coarse looks, then halving, then a verdict.
#include "harness/characterize/reach.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "harness/stats/robust.h"

namespace skidproof {
namespace {

constexpr int kMostHalvings = 48;  // of any 32-bit size, and of what is left where an end moves

// Where the curve leaves its plateau: the first point that lies `least_rise` above the median of all before it, and whose
// successor does so too.
std::optional<size_t> first_above(const std::vector<CurvePoint>& curve, double least_rise) {
  std::vector<double> plateau;
  for (size_t i = 0; i < curve.size(); ++i) {
    if (!plateau.empty()) {
      const double border = stats::median(plateau) + least_rise;
      const bool stays = i + 1 == curve.size() || curve[i + 1].least > border;
      if (curve[i].least > border && stays) return i;
    }
    plateau.push_back(curve[i].least);
  }
  return std::nullopt;
}

double plateau_before(const std::vector<CurvePoint>& curve, size_t end) {
  std::vector<double> values;
  for (size_t i = 0; i < end; ++i) values.push_back(curve[i].least);
  return stats::median(values);
}

double highest_up_to(const std::vector<CurvePoint>& curve, uint64_t most) {
  double highest = 0;
  for (const CurvePoint& point : curve) {
    if (point.x <= most) highest = std::max(highest, point.least);
  }
  return highest;
}

// Of `last` entries in sets of four ways or more, one more in each set is so many at most: then all of them miss.
uint64_t one_more_in_each_set(uint64_t last) { return last + (last + 3) / 4; }

// Whether the curve, flat up to its end, is at the top where each set has one more than it holds. In between some sets have, so
// that it may rise by little first, and by less where sets do not always replace the oldest.
bool rises_set_by_set(const std::vector<CurvePoint>& curve, size_t above, double within,
                      double top) {
  constexpr double kFlat = 0.02, kTop = 0.75, kNotFarBeyond = 1.4;
  const CurvePoint& last = curve[above - 1];
  if (last.least - within > kFlat * (top - within)) return false;
  const auto in_each = std::find_if(curve.begin(), curve.end(), [&](const CurvePoint& at) {
    return at.x >= one_more_in_each_set(last.x);
  });
  return in_each != curve.end() &&
         static_cast<double>(in_each->x) <= kNotFarBeyond * static_cast<double>(last.x) &&
         in_each->least - within >= kTop * (top - within);
}

std::vector<uint64_t> coarse_sizes(const ReachQuestion& question) {
  const uint64_t grain = std::max<uint64_t>(1, question.grain);
  std::vector<uint64_t> sizes;
  const uint64_t first = (std::max<uint64_t>(question.from, 1) + grain - 1) / grain * grain;
  for (uint64_t size = first; size <= question.to;) {
    sizes.push_back(size);
    const double grown = static_cast<double>(size) * question.growth / static_cast<double>(grain);
    size = std::max(size + grain, static_cast<uint64_t>(std::llround(grown)) * grain);
  }
  const uint64_t last = question.to / grain * grain;
  if (!sizes.empty() && sizes.back() != last) sizes.push_back(last);
  return sizes;
}

}  // namespace

Looks::Looks(const Workbench& bench, MakePoint make, bool anew, Trust trust)
    : bench_(bench), make_(std::move(make)), anew_(anew), trust_(trust) {}

Expected<void> Looks::at(const std::vector<uint64_t>& xs, double seconds, double from, double to) {
  std::vector<Point> points;
  for (uint64_t x : xs) {
    if (anew_ || !made_.contains(x)) made_[x] = SKIDPROOF_TRY(make_(x));
    made_[x].tag = x;
    points.push_back(made_[x]);
  }
  SKIDPROOF_CHECK(take_by_turns(bench_, points, {.seconds = seconds}, from, to));
  const auto append = [](auto& all, const auto& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const Point& point : points) {
    Point& known = samples_[point.tag];
    append(known.cycles, point.cycles);
    append(known.control, point.control);
    append(known.counts, point.counts);
  }
  return {};
}

std::vector<CurvePoint> Looks::curve() const {
  std::vector<CurvePoint> curve;
  for (const auto& [x, samples] : samples_) {
    if (!samples.cycles.empty()) curve.push_back(curve_point(x, samples, trust_));
  }
  return curve;
}

size_t forgiven(Trust trust, size_t n) {
  constexpr size_t kTooFew = 6, kOneIn = 32;
  return trust == Trust::kLeast || n < kTooFew ? 0 : 1 + n / kOneIn;
}

CurvePoint curve_point(uint64_t x, const Point& point, Trust trust) {
  const double control = point.control.empty() ? 0 : stats::minimum(point.control);
  const stats::Summary summary = stats::summarize(point.cycles);
  std::vector<double> sorted = point.cycles;
  std::ranges::sort(sorted);
  return {.x = x,
          .value = summary.median - control,
          .low = summary.interval.low - control,
          .high = summary.interval.high - control,
          .least = sorted[forgiven(trust, sorted.size())] - control,
          .n = summary.n,
          .interval = interval_name(Statistic::kMedian, summary.interval.coverage),
          .cycles = point.cycles,
          .counts = point.counts,
          .control = control};
}

namespace {

// Of the samples.
double share_cheaper(const CurvePoint& point, double border) {
  const auto below = std::ranges::count_if(
      point.cycles, [&](double cycles) { return cycles - point.control < border; });
  return static_cast<double>(below) / static_cast<double>(point.cycles.size());
}

}  // namespace

bool may_be_disturbed(const CurvePoint& within, const CurvePoint& beyond, double border) {
  constexpr double kLikely = 1e-4;
  if (within.cycles.empty() || beyond.cycles.empty()) return false;
  return std::pow(1 - share_cheaper(within, border), static_cast<double>(beyond.cycles.size())) >
         kLikely;
}

std::optional<double> least_misses(const CurvePoint& point, const Misses& misses) {
  std::optional<double> least;
  for (const Counts& counts : point.counts) {
    if (!counts.any() || !counts.judged) continue;
    const double found = misses(counts);
    least = least ? std::min(*least, found) : found;
  }
  return least;
}

double unavoidable_misses(uint64_t fit, uint64_t walked) {
  return walked <= fit ? 0 : static_cast<double>(walked - fit) / static_cast<double>(walked);
}

void ask_counters(Reach& reach, const Misses& misses) {
  if (!reach.clear || !misses) return;
  const auto misses_at = [&](uint64_t size) -> std::optional<double> {
    for (const CurvePoint& point : reach.curve) {
      if (point.x == size) return least_misses(point, misses);
    }
    return std::nullopt;
  };
  const auto within = misses_at(reach.last_within), beyond = misses_at(reach.first_beyond);
  if (!within || !beyond) return;
  const double border = unavoidable_misses(reach.last_within, reach.first_beyond) / 2;
  if (*within<border&& * beyond> border) return;
  reach.clear = false;
  reach.why = fmt::format(
      "by its time it ends at {}, but counted are {:.3g} misses of each there and {:.3g} at {}",
      reach.last_within, *within, *beyond, reach.first_beyond);
}

Reach judge_reach(std::vector<CurvePoint> curve, double least_rise, bool sharp) {
  std::sort(curve.begin(), curve.end(),
            [](const CurvePoint& a, const CurvePoint& b) { return a.x < b.x; });
  Reach reach;
  const auto above = first_above(curve, least_rise);
  if (!above) {
    if (!curve.empty()) reach.last_within = curve.back().x;
    reach.why = fmt::format("the cost does not rise up to {}", reach.last_within);
    reach.curve = std::move(curve);
    return reach;
  }
  reach.within = plateau_before(curve, *above);
  reach.beyond = curve[*above].least;
  reach.last_within = curve[*above - 1].x;
  reach.first_beyond = curve[*above].x;
  // The middle between the plateau and what the next sizes rise to: halfway up a slope nothing ends.
  const double middle = reach.within + least_rise / 2;
  reach.clear = true;
  for (size_t i = 0; i < curve.size() && reach.clear; ++i) {
    const bool before = i < *above;
    if ((curve[i].least < middle) == before) continue;
    reach.clear = false;
    reach.odd = curve[i].x;
    reach.why = fmt::format("it costs {:.3g} at {}, {:.3g} at {}, but {:.3g} at {}", reach.within,
                            reach.last_within, reach.beyond, reach.first_beyond, curve[i].least,
                            curve[i].x);
  }
  if (reach.clear && sharp) {
    const double top = highest_up_to(curve, 2 * reach.first_beyond);
    if (reach.beyond - reach.within < 0.4 * (top - reach.within) &&
        !rises_set_by_set(curve, *above, reach.within, top)) {
      reach.clear = false;
      reach.why =
          fmt::format("the cost rises slowly, from {:.3g} at {} over {:.3g} at {} to {:.3g}",
                      reach.within, reach.last_within, reach.beyond, reach.first_beyond, top);
    }
  }
  if (reach.clear && may_be_disturbed(curve[*above - 1], curve[*above], middle)) {
    reach.clear = false;
    reach.why = fmt::format(
        "few samples at {} cost what small sizes do, so that all {} at {} may be disturbed",
        reach.last_within, curve[*above].cycles.size(), reach.first_beyond);
  }
  reach.curve = std::move(curve);
  return reach;
}

Expected<Reach> find_reach(const Workbench& bench, const ReachQuestion& question, double seconds,
                           double from, double to) {
  MoreLooks again(bench, std::max(seconds, question.patience));
  Looks looks(bench, question.point, question.anew, question.trust);
  const double step = (to - from) / 4;
  SKIDPROOF_CHECK(looks.at(coarse_sizes(question), seconds / 2, from, from + 2 * step));
  const uint64_t grain = std::max<uint64_t>(1, question.grain);
  Reach reach = judge_reach(looks.curve(), question.least_rise, question.sharp);
  // Halvings, each a look at one more size together with both ends. Then both ends again, later, and in other places; while
  // that is not clear, or moves an end, what stands in the way may have been disturbed.
  const int enough = question.anew ? 3 : 1;
  std::pair<uint64_t, uint64_t> again_at;
  int times = 0;
  for (int halvings = 0; reach.first_beyond != 0 && !bench.cancelled();) {
    const std::pair ends(reach.last_within, reach.first_beyond);
    if (ends.second - ends.first > grain) {
      if (++halvings > kMostHalvings) break;
      const uint64_t middle = (ends.first + ends.second) / 2 / grain * grain;
      const uint64_t at = std::max(middle, ends.first + grain);
      SKIDPROOF_CHECK(
          looks.at({ends.first, at, ends.second}, seconds / 24, from + 2 * step, from + 3 * step));
    } else {
      if (ends != std::exchange(again_at, ends)) times = 0;
      if ((reach.clear && times >= enough) || !again.another()) break;
      std::vector<uint64_t> sizes = {ends.first, ends.second};
      if (reach.odd != 0 && reach.odd != ends.first && reach.odd != ends.second)
        sizes.push_back(reach.odd);
      const uint64_t in_each = (one_more_in_each_set(ends.first) + grain - 1) / grain * grain;
      if (question.sharp && in_each != ends.second && in_each <= question.to)
        sizes.push_back(in_each);
      SKIDPROOF_CHECK(looks.at(sizes, seconds / 8, from + 3 * step, to));
      ++times;
    }
    reach = judge_reach(looks.curve(), question.least_rise, question.sharp);
  }
  if (reach.first_beyond == 0 || bench.cancelled()) return reach;
  if (reach.clear && reach.first_beyond - reach.last_within > grain) {
    reach.clear = false;
    reach.why = fmt::format("between {} and {}", reach.last_within, reach.first_beyond);
  }
  ask_counters(reach, question.misses);
  return reach;
}

void emit_curve_point(const Workbench& bench, const std::string& name, const CurvePoint& point,
                      MeasurementParameters parameters) {
  Measurement row;
  row.name = name;
  row.value = point.value;
  row.unit = "cycles";
  row.statistic = "median";
  row.n = std::max<uint64_t>(1, point.n);
  row.low = point.low;
  row.high = point.high;
  row.interval = point.interval;
  row.parameters = std::move(parameters);
  if (bench.counters() != nullptr)
    row.counts = measured_counts(bench.counters()->names(), point.counts, point.cycles);
  bench.emit(std::move(row));
}

void emit_inferred(const Workbench& bench, Inferred inferred) {
  Measurement row;
  row.name = "shape." + inferred.name;
  row.value = inferred.value;
  row.unit = std::move(inferred.unit);
  row.statistic = "inferred";
  row.n = inferred.n;
  row.low = inferred.low;
  row.high = inferred.high;
  row.interval = std::move(inferred.interval);
  row.parameters = std::move(inferred.parameters);
  row.noise = inferred.noise;
  bench.emit(std::move(row));
}

std::string short_of_told(uint64_t found, uint64_t told, const std::string& unit,
                          const std::string& leaf, uint64_t spare) {
  if (found + spare >= told) return {};
  return fmt::format(
      "{} {} answer of the {} that {} tells: the rest is another thread's of this core, or not "
      "there",
      found, unit, told, leaf);
}

std::string taken_by_others(const Reach& reach, double least_rise) {
  const auto last = std::ranges::find(reach.curve, reach.last_within, &CurvePoint::x);
  if (last == reach.curve.end() || last->cycles.empty()) return {};
  const double share = share_cheaper(*last, reach.within + least_rise / 2);
  if (share > 0.5) return {};
  return fmt::format(
      "{:.0f} % of the samples at {} cost what small sizes do: another thread of this core takes "
      "some, and may of what lies beyond",
      100 * share, reach.last_within);
}

void emit_reach(const Workbench& bench, const Reach& reach, const std::string& curve,
                const std::string& size_key, const MeasurementParameters& parameters,
                const std::string& shape, const std::string& unit) {
  for (const CurvePoint& point : reach.curve) {
    MeasurementParameters at = parameters;
    at[size_key] = point.x;
    emit_curve_point(bench, curve, point, std::move(at));
  }
  emit_end(bench, reach, shape, unit, parameters);
}

void emit_end(const Workbench& bench, const Reach& reach, const std::string& shape,
              const std::string& unit, const MeasurementParameters& parameters) {
  if (!reach.clear) return bench.unclear("shape." + shape, reach.why);
  emit_inferred(bench, {.name = shape,
                        .unit = unit,
                        .value = static_cast<double>(reach.last_within),
                        .low = static_cast<double>(reach.last_within),
                        .high = static_cast<double>(reach.first_beyond),
                        .n = reach.curve.size(),
                        .parameters = parameters});
}

}  // namespace skidproof
