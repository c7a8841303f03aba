// Coarse looks, then halving, then a verdict.
#include "harness/characterize/reach.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "harness/stats/robust.h"

namespace skidproof {
namespace {

CurvePoint summary_of(uint64_t x, const std::vector<double>& samples) {
  const stats::Summary summary = stats::summarize(samples);
  return {.x = x,
          .value = summary.median,
          .low = summary.interval.low,
          .high = summary.interval.high,
          .n = summary.n};
}

// Where the curve leaves its plateau: the first point that lies `least_rise` above the median of all before it, and whose
// successor does so too.
std::optional<size_t> first_above(const std::vector<CurvePoint>& curve, double least_rise) {
  std::vector<double> plateau;
  for (size_t i = 0; i < curve.size(); ++i) {
    if (!plateau.empty()) {
      const double border = stats::median(plateau) + least_rise;
      const bool stays = i + 1 == curve.size() || curve[i + 1].value > border;
      if (curve[i].value > border && stays) return i;
    }
    plateau.push_back(curve[i].value);
  }
  return std::nullopt;
}

double plateau_before(const std::vector<CurvePoint>& curve, size_t end) {
  std::vector<double> values;
  for (size_t i = 0; i < end; ++i) values.push_back(curve[i].value);
  return stats::median(values);
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

// What is known of each size: samples add up when it is looked at again.
class Looks {
 public:
  Looks(const Workbench& bench, const ReachQuestion& question) : bench_(bench), question_(question) {}

  Expected<void> at(const std::vector<uint64_t>& sizes, double seconds, double from, double to) {
    std::vector<Point> points;
    for (uint64_t size : sizes) {
      auto& known = points_[size];
      if (!known) known = SKIDPROOF_TRY(question_.point(size));
      known->tag = size;
      points.push_back(*known);
      points.back().ns.clear();
      points.back().cycles.clear();
    }
    SKIDPROOF_CHECK(take_by_turns(bench_, points, {.seconds = seconds}, from, to));
    for (const Point& point : points) {
      auto& samples = samples_[point.tag];
      samples.insert(samples.end(), point.cycles.begin(), point.cycles.end());
    }
    return {};
  }

  std::vector<CurvePoint> curve() const {
    std::vector<CurvePoint> curve;
    for (const auto& [size, samples] : samples_) {
      if (!samples.empty()) curve.push_back(summary_of(size, samples));
    }
    return curve;
  }

 private:
  const Workbench& bench_;
  const ReachQuestion& question_;
  std::map<uint64_t, std::optional<Point>> points_;
  std::map<uint64_t, std::vector<double>> samples_;
};

}  // namespace

Reach judge_reach(std::vector<CurvePoint> curve, double least_rise) {
  std::sort(curve.begin(), curve.end(), [](const CurvePoint& a, const CurvePoint& b) { return a.x < b.x; });
  Reach reach;
  const auto above = first_above(curve, least_rise);
  if (!above) {
    if (!curve.empty()) reach.last_within = curve.back().x;
    reach.why = fmt::format("the cost does not rise up to {}", reach.last_within);
    reach.curve = std::move(curve);
    return reach;
  }
  reach.within = plateau_before(curve, *above);
  reach.beyond = curve[*above].value;
  reach.last_within = curve[*above - 1].x;
  reach.first_beyond = curve[*above].x;
  // The middle between the plateau and what the next sizes rise to: halfway up a slope nothing ends.
  const double middle = reach.within + least_rise / 2;
  reach.clear = true;
  for (size_t i = 0; i < curve.size() && reach.clear; ++i) {
    const bool before = i < *above;
    if (before ? curve[i].high < middle : curve[i].low > middle) continue;
    reach.clear = false;
    reach.why = fmt::format("the cost of {} is {:.3g} ({:.3g} to {:.3g}), neither that of smaller sizes ({:.3g}) nor at "
                            "least {:.3g} more",
                            curve[i].x, curve[i].value, curve[i].low, curve[i].high, reach.within, least_rise / 2);
  }
  reach.curve = std::move(curve);
  return reach;
}

Expected<Reach> find_reach(const Workbench& bench, const ReachQuestion& question, double seconds, double from,
                           double to) {
  Looks looks(bench, question);
  const double step = (to - from) / 4;
  SKIDPROOF_CHECK(looks.at(coarse_sizes(question), seconds / 2, from, from + 2 * step));
  const uint64_t grain = std::max<uint64_t>(1, question.grain);
  Reach reach = judge_reach(looks.curve(), question.least_rise);
  // Each halving a look at one more size, together with both ends.
  for (int halvings = 0; halvings < 24 && !bench.cancelled(); ++halvings) {
    if (reach.first_beyond == 0 || reach.first_beyond - reach.last_within <= grain) break;
    const uint64_t middle = (reach.last_within + reach.first_beyond) / 2 / grain * grain;
    const uint64_t at = std::max(middle, reach.last_within + grain);
    SKIDPROOF_CHECK(looks.at({reach.last_within, at, reach.first_beyond}, seconds / 24, from + 2 * step, from + 3 * step));
    reach = judge_reach(looks.curve(), question.least_rise);
  }
  if (reach.first_beyond == 0 || bench.cancelled()) return reach;
  SKIDPROOF_CHECK(looks.at({reach.last_within, reach.first_beyond}, seconds / 8, from + 3 * step, to));
  reach = judge_reach(looks.curve(), question.least_rise);
  if (reach.clear && reach.first_beyond - reach.last_within > grain) {
    reach.clear = false;
    reach.why = fmt::format("between {} and {}", reach.last_within, reach.first_beyond);
  }
  return reach;
}

void emit_reach(const Workbench& bench, const Reach& reach, const std::string& curve, const std::string& size_key,
                const MeasurementParameters& parameters, const std::string& shape, const std::string& unit) {
  for (const CurvePoint& point : reach.curve) {
    Measurement row;
    row.name = curve;
    row.value = point.value;
    row.unit = "cycles";
    row.statistic = "median";
    row.n = std::max<uint64_t>(1, point.n);
    row.low = point.low;
    row.high = point.high;
    row.interval = "95% of the median";
    row.parameters = parameters;
    row.parameters[size_key] = point.x;
    bench.emit(std::move(row));
  }
  if (!reach.clear) return bench.unclear("shape." + shape, reach.why);
  Measurement row;
  row.name = "shape." + shape;
  row.value = static_cast<double>(reach.last_within);
  row.unit = unit;
  row.statistic = "inferred";
  row.n = reach.curve.size();
  row.low = static_cast<double>(reach.last_within);
  row.high = static_cast<double>(reach.first_beyond);
  row.interval = "last within, first beyond";
  row.parameters = parameters;
  bench.emit(std::move(row));
}

}  // namespace skidproof
