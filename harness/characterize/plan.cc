// Rounds over the points of a plan.
#include "harness/characterize/plan.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/random.h"
#include "harness/run/noise.h"
#include "harness/stats/robust.h"

namespace skidproof {
namespace {

constexpr double kConfidence = 0.95;
constexpr unsigned kRaceTells = 3;  // rounds, where the time is over before

const std::vector<double>& values_of(const Point& point) {
  return point.by_time ? point.ns : point.cycles;
}

stats::QuantileInterval interval_of(const Point& point) {
  return stats::quantile_interval(values_of(point), share_below(point.figure), kConfidence);
}

// What the interval must cover at least. A quick look is content with six samples of a quartile.
double coverage_of(Effort effort) { return effort == Effort::kQuick ? 0.8 : kConfidence; }

bool narrow_enough(const Point& point, const Goal& goal, double coverage) {
  const std::vector<double>& values = values_of(point);
  if (point.enough) return values.size() >= std::max(goal.least, 1u) && point.enough();
  if (values.size() < std::max({goal.least, point.least, 1u})) return false;
  const stats::QuantileInterval interval = interval_of(point);
  if (interval.coverage < coverage) return false;
  const double figure = stats::quantile(values, share_below(point.figure));
  const double scale = std::max(std::abs(figure), point.scale);
  return (interval.high - interval.low) / 2 <= goal.relative * scale;
}

// Those whose interval lies beyond that of another in their race, by more than the figures are to be known to: which of two
// that are closer is the best, few samples do not say.
std::vector<size_t> losers(const std::vector<Point>& points, double relative) {
  std::map<std::string_view, double> best;  // of each race: the least upper end
  for (const Point& point : points) {
    if (point.race.empty() || values_of(point).empty()) continue;
    double& least = best.try_emplace(point.race, INFINITY).first->second;
    least = std::min(least, interval_of(point).high);
  }
  std::vector<size_t> found;
  for (size_t i = 0; i < points.size(); ++i) {
    const Point& point = points[i];
    if (point.race.empty() || values_of(point).empty()) continue;
    if (interval_of(point).low > best[point.race] * (1 + relative)) found.push_back(i);
  }
  return found;
}

// Of each race's points that are still sampled, the worse half by their figures, but three of them go on at least.
std::vector<size_t> worse_half(const std::vector<Point>& points, const std::vector<bool>& done) {
  constexpr size_t kGoOn = 3;
  std::map<std::string_view, std::vector<size_t>> fields;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!done[i] && !points[i].race.empty()) fields[points[i].race].push_back(i);
  }
  const auto figure = [&](size_t i) {
    return stats::quantile(values_of(points[i]), share_below(points[i].figure));
  };
  std::vector<size_t> found;
  for (auto& [race, field] : fields) {
    std::ranges::stable_sort(field, {}, figure);
    const size_t stay = std::max(kGoOn, (field.size() + 1) / 2);
    for (size_t i = stay; i < field.size(); ++i) found.push_back(field[i]);
  }
  return found;
}

std::vector<size_t> order_of_round(size_t points, uint64_t seed, unsigned round) {
  std::vector<size_t> order(points);
  std::iota(order.begin(), order.end(), size_t{0});
  Random random(derive_seed(seed + round, "plan"));
  for (size_t i = points; i-- > 1;) std::swap(order[i], order[random.below(i + 1)]);
  return order;
}

}  // namespace

double Point::median_ns() const { return stats::median(ns); }
double Point::median_cycles() const { return stats::median(cycles); }

bool on_silicon(const Workbench& bench) {
  return bench.machine().identity().provenance == Provenance::kSilicon;
}

MoreLooks::MoreLooks(const Workbench& bench, double seconds) : bench_(bench), seconds_(seconds) {}

double MoreLooks::spent() const {
  return std::chrono::duration<double>(Clock::now() - began_).count();
}

bool MoreLooks::another() {
  constexpr int kMostUndisturbed = 8;
  constexpr auto kNap = std::chrono::milliseconds(10);  // after which Ctrl-C is noticed
  if (bench_.cancelled()) return false;
  if (looks_ != 0) {
    if (spent() > seconds_) return false;
    if (!on_silicon(bench_)) {
      if (looks_ == kMostUndisturbed) return false;
    } else {
      const auto due = last_ + (Clock::now() - began_) / 16;
      while (Clock::now() < due && !bench_.cancelled())
        std::this_thread::sleep_until(std::min(due, Clock::now() + kNap));
      if (bench_.cancelled()) return false;
    }
  }
  ++looks_;
  last_ = Clock::now();
  return true;
}

double usual_span(const Workbench& bench) {
  return on_silicon(bench) && bench.effort() != Effort::kQuick ? 3 : 0;
}

double usual_run_ns(const Workbench& bench) {
  if (!on_silicon(bench)) return 5e4;
  return bench.effort() == Effort::kQuick ? 1e5 : 3e5;
}

uint64_t usual_laps(const Workbench& bench, uint64_t iterations) {
  constexpr double kLapNs = 2e4;
  if (!on_silicon(bench)) return 1;
  return std::clamp<uint64_t>(static_cast<uint64_t>(usual_run_ns(bench) / kLapNs), 1, iterations);
}

double share_of_plan(double planned_before, double elapsed, double planned_rest, double limit) {
  // The first parts are too short to tell: three tenths of the plan count as if they had gone as planned.
  const double unproven = 0.3 * (planned_before + planned_rest);
  const double pace = std::max(1.0, (unproven + elapsed) / (unproven + planned_before));
  return std::clamp((limit - elapsed) / (planned_rest * pace), kLeastShare, 1.0);
}

size_t places_of(const Workbench& bench, uint64_t window, uint64_t shared) {
  constexpr size_t kOwn = 32, kQuickOwn = 6, kShared = 8, kQuickShared = 2;
  if (!on_silicon(bench)) return 1;
  const bool quick = bench.effort() == Effort::kQuick;
  if (window <= kOfACore) return quick ? kQuickOwn : kOwn;
  return window > shared ? 1 : quick ? kQuickShared : kShared;
}

Expected<void> take_by_turns(const Workbench& bench, std::vector<Point>& points, const Goal& goal,
                             double from, double to) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  // A number of samples that was asked for is that number, however long it takes.
  const unsigned fixed = bench.options().repetitions;
  const unsigned least = fixed != 0 ? fixed : std::max(goal.least, 1u);
  const unsigned most = fixed != 0 ? fixed : std::max(goal.most, least);
  const double seconds = fixed != 0          ? INFINITY
                         : goal.seconds != 0 ? goal.seconds
                                             : std::max(0.0, bench.seconds_left());
  const double at_most = seconds + std::max(seconds, bench.seconds_of_part());
  const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - began).count(); };
  std::vector<std::optional<Error>> failed(points.size());
  std::vector<bool> done(points.size(), false);
  size_t open = points.size();
  const double span = fixed != 0 ? 0 : std::min(goal.span, seconds);
  for (unsigned round = 0; open != 0; ++round) {
    if (round >= least && spent() > seconds) break;
    if (round >= most && spent() >= span) break;
    const bool short_of_time = round >= least && spent() / round * most > seconds;
    if (short_of_time || (round >= kRaceTells && spent() > seconds)) {
      const auto drop = [&](const std::vector<size_t>& behind) {
        for (const size_t i : behind) {
          open -= done[i] ? 0 : 1;
          done[i] = true;
        }
      };
      drop(losers(points, goal.relative));
      drop(worse_half(points, done));
    }
    for (const size_t i : order_of_round(points.size(), bench.options().seed, round)) {
      if (bench.cancelled()) return {};
      if (done[i]) continue;
      if (round > 0 && spent() > at_most) break;
      Point& point = points[i];
      const double rounds = static_cast<double>(round) / least;
      bench.progress(from + (to - from) * std::max(std::min(rounds, 1.0) / 2,
                                                   spent() / std::max(seconds, 1e-9)),
                     point.what);
      const Expected<Sample> sample = point.sample();
      if (!sample) {
        if (bench.cancelled()) return {};
        failed[i] = sample.error();
        done[i] = true;
        --open;
        continue;
      }
      point.ns.push_back(sample->ns);
      point.cycles.push_back(sample->cycles);
      point.control.push_back(sample->control);
      point.probed.push_back(sample->probed);
      point.counts.push_back(sample->counts);
      point.noise = point.noise + sample->noise;
      if (sample->spoiled) ++point.spoiled;
      point.narrow = narrow_enough(point, goal, coverage_of(bench.effort()));
      if (!point.narrow || round + 1 < least || spent() < span) continue;
      done[i] = true;
      --open;
    }
  }
  for (size_t i = points.size(); i-- > 0;) {
    if (!failed[i]) continue;
    failed[i]->message = points[i].what + ": " + failed[i]->message;
    bench.problem(std::move(*failed[i]));
    points.erase(points.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return {};
}

void keep_samples(Point& point, const std::vector<bool>& which) {
  const auto keep = [&](auto& values) {
    size_t to = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      if (which[i]) values[to++] = values[i];
    }
    values.resize(to);
  };
  keep(point.ns);
  keep(point.cycles);
  keep(point.control);
  keep(point.probed);
  keep(point.counts);
  point.spoiled =
      std::min<uint64_t>(point.spoiled, point.ns.size());  // which they were is not known
}

void drop_company(Point& point, double alone, size_t enough) {
  std::vector<bool> which;
  which.reserve(point.probed.size());
  for (double probed : point.probed) which.push_back(probed <= alone);
  const auto many = static_cast<size_t>(std::ranges::count(which, true));
  if (many >= enough) return keep_samples(point, which);
  point.in_company = which.size() - many;
}

std::optional<MeasuredCounts> counts_of(const Workbench& bench, const Point& point,
                                        std::span<const double> values, Statistic statistic) {
  if (bench.counters() == nullptr) return std::nullopt;
  return measured_counts(bench.counters()->names(), point.counts, values, statistic);
}

MeasurementParameters parameters_of(const Point& point, MeasurementParameters parameters) {
  if (point.spoiled != 0) parameters["disturbed"] = point.spoiled;
  if (point.in_company != 0) parameters["in_company"] = point.in_company;
  return parameters;
}

void emit_point(const Workbench& bench, const Point& point, const std::string& name,
                const MeasurementParameters& parameters, In in) {
  if (point.ns.empty()) return;
  const MeasurementParameters said = parameters_of(point, parameters);
  const auto emit_in = [&](const char* unit, const std::vector<double>& values, Statistic figure) {
    Measurement row = measurement_of(figure, name, unit, values, said, point.noise);
    row.counts = counts_of(bench, point, values, figure);
    bench.emit(std::move(row));
  };
  const Statistic in_ns = point.by_time ? point.figure : Statistic::kLowerQuartile;
  if (in != In::kCycles) emit_in("ns", point.ns, in_ns);
  if (in != In::kNs) emit_in("cycles", point.cycles, point.figure);
}

}  // namespace skidproof
