// Branches: what a taken jump costs, how many a core keeps in mind, how far back and how long a pattern it remembers, how
// deep its stack of returns is and how many targets of one jump it tells apart.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "harness/characterize/branch_curves.h"
#include "harness/characterize/company.h"
#include "harness/characterize/parts.h"
#include "harness/characterize/plan.h"
#include "harness/characterize/reach.h"

namespace skidproof {
namespace {

constexpr unsigned kBranchTries = 4;
constexpr unsigned kDifferenceTries = 10;  // of two programs that differ by some cycles
constexpr double kBranchNs = 1e4;
constexpr double kLearningNs = 4e4;  // of what learns: many times through all that is to be learned
// A misprediction costs more than ten cycles on every core with a pipeline worth the name, a jump that is predicted two or
// three: what lies between tells the two apart.
constexpr double kOneMisprediction = 5;
// Of learned directions and targets: one in ten mispredicted, or fewer, and one in three or so.
constexpr double kFewMispredictions = 1, kManyMispredictions = 3;
// A jump whose target comes from a slower table costs a cycle or more; on the way there the cost rises by this in an octave
// at least.
constexpr double kRisePerOctave = 2;
// Of the time of what is sampled alone, if it can be: what may go into waiting for that.
constexpr double kBranchPatience = 0.3;

struct JumpPlan {
  std::vector<uint64_t> few;       // jumps of branch.taken
  std::vector<uint64_t> spacings;  // bytes
  uint64_t most = 0;               // jumps of branch.btb
  double growth = 1.2;
  uint64_t longest_pattern = 0, most_targets = 0;
  double coarse = 1.42;  // growth of those
};

JumpPlan jump_plan(Effort effort) {
  if (effort == Effort::kQuick) {
    return {.few = {4, 16, 64},
            .spacings = {8, 32},
            .most = 16 << 10,
            .growth = 1.42,
            .longest_pattern = 8192,
            .most_targets = 2048,
            .coarse = 2};
  }
  const bool thorough = effort == Effort::kThorough;
  return {.few = {1, 2, 4, 8, 16, 32, 64, 128, 256},
          .spacings = {8, 16, 32, 64},
          .most = thorough ? uint64_t{64} << 10 : uint64_t{24} << 10,
          .growth = thorough ? 1.1 : 1.2,
          .longest_pattern = 32 << 10,
          .most_targets = 8192,
          .coarse = 1.42};
}

// Even numbers, since half of a pattern is taken.
std::vector<uint64_t> growing(uint64_t from, uint64_t to, double growth) {
  std::vector<uint64_t> out;
  for (auto size = static_cast<double>(from); size < static_cast<double>(to) * 0.999;
       size *= growth) {
    const uint64_t even = std::max<uint64_t>(2, 2 * static_cast<uint64_t>(std::llround(size / 2)));
    if (out.empty() || even > out.back()) out.push_back(even);
  }
  out.push_back(to);
  return out;
}

// One unit of work in a program that has run once before it is timed.
Point warm_point(const Workbench& bench, std::string what, const std::shared_ptr<Workpiece>& piece,
                 uint64_t iterations, double units) {
  Point point;
  point.what = std::move(what);
  point.sample = [&bench, piece, iterations, units]() -> Expected<Sample> {
    SKIDPROOF_CHECK(bench.run(*piece, iterations));
    const Sample sample = SKIDPROOF_TRY(bench.sample(kBranchTries, *piece, iterations));
    return sample.per(static_cast<double>(iterations) * units);
  };
  return point;
}

// All points of the part that are no search, sampled by turns, and what becomes of each.
class BranchPoints {
 public:
  explicit BranchPoints(const Workbench& bench) : bench_(bench) {}

  void add(Point point, std::string row, MeasurementParameters parameters, uint64_t x,
           uint64_t group) {
    point.tag = rows_.size();
    points_.push_back(std::move(point));
    rows_.push_back({std::move(row), std::move(parameters), x, group});
  }
  // A program that cannot be made is a problem, and a point less.
  void add(std::string_view kernel, const std::string& parameters, double units, double ns,
           const std::string& row, MeasurementParameters what, uint64_t x) {
    auto made = bench_.prepare(kernel, parameters);
    const auto iterations =
        made ? bench_.iterations_for(ns, *made) : tl::make_unexpected(made.error());
    if (!iterations) return bench_.problem(iterations.error());
    const auto piece = std::make_shared<Workpiece>(std::move(*made));
    add(warm_point(bench_, fmt::format("branches, {} {}", row, x), piece, *iterations, units), row,
        std::move(what), x, 0);
  }

  Expected<void> measure(double seconds, double from, double to) {
    return take_by_turns(bench_, points_, {.seconds = seconds}, from, to);
  }

  void emit(const std::string& row) const {
    for (const Point& point : points_) {
      const Row& of = rows_[point.tag];
      if (of.row == row) emit_point(bench_, point, row, of.parameters, In::kCycles);
    }
  }
  std::map<uint64_t, std::vector<CurvePoint>> curves(const std::string& row) const {
    std::map<uint64_t, std::vector<CurvePoint>> out;
    for (const Point& point : points_) {
      const Row& of = rows_[point.tag];
      if (of.row == row && !point.cycles.empty())
        out[of.group].push_back(quartile_point(of.x, point));
    }
    return out;
  }

 private:
  struct Row {
    std::string row;
    MeasurementParameters parameters;
    uint64_t x = 0, group = 0;
  };
  const Workbench& bench_;
  std::vector<Point> points_;
  std::vector<Row> rows_;
};

// ---- Taken jumps.

// The loop's own jump is one of them.
void add_few_jumps(BranchPoints& points, const JumpPlan& plan) {
  for (uint64_t spacing : plan.spacings) {
    for (uint64_t jumps : plan.few) {
      points.add("taken_jumps", fmt::format("jumps={},spacing={}", jumps, spacing),
                 static_cast<double>(jumps + 1), kBranchNs, "branch.taken",
                 {{"branches", jumps}, {"spacing", spacing}}, jumps);
    }
  }
}

// Who uses what predicts branches, too, while something is sampled: each sample waits for a moment alone, for a while.
struct Beside {
  Company company;
  std::vector<double> probed;
  Expected<Sample> watch(const std::function<Expected<Sample>()>& sample) {
    const Sample watched = SKIDPROOF_TRY(company.watch(sample));
    probed.push_back(watched.probed);
    return watched;
  }
  // Why nothing is clear that was sampled so; empty where half of the samples or more were taken alone.
  std::string too_busy() const {
    constexpr double kLeastAlone = 0.5;
    const auto alone = std::ranges::count_if(probed, [&](double p) { return company.alone(p); });
    const double share =
        probed.empty() ? 1 : static_cast<double>(alone) / static_cast<double>(probed.size());
    if (share >= kLeastAlone) return {};
    return fmt::format(
        "another thread of this core was busy, which predicts its branches by the same: {:.0f} % "
        "of "
        "the samples were taken alone",
        100 * share);
  }
};

// One program for each distance: an iteration enters the chain where as many jumps are left as the point has.
Expected<void> add_many_jumps(const Workbench& bench, BranchPoints& points, const JumpPlan& plan,
                              Beside& beside) {
  for (uint64_t spacing : plan.spacings) {
    const std::string all = fmt::format("jumps={},spacing={},entry=data", plan.most, spacing);
    const auto piece =
        std::make_shared<Workpiece>(SKIDPROOF_TRY(bench.prepare("taken_jumps", all)));
    piece->program.instructions
        .clear();  // tens of megabytes that only name a place where it would fault
    const Expectations whole = piece->program.per_iteration;
    for (uint64_t jumps : growing(256, plan.most, plan.growth)) {
      const Params params = SKIDPROOF_TRY(Params::parse(
          piece->kernel->parameters, fmt::format("{},skip={}", all, plan.most - jumps)));
      Point point;
      point.what = fmt::format("branches, {} jumps", jumps);
      // As fewer jumps are in the data, fewer are declared.
      Expectations declared = whole;
      declared.instructions -= plan.most - jumps;
      declared.branches_taken -= plan.most - jumps;
      point.sample = [&bench, &beside, piece, params, jumps, declared]() -> Expected<Sample> {
        piece->params = params;
        piece->program.per_iteration = declared;
        SKIDPROOF_CHECK(bench.refill(*piece, bench.options().seed));
        const uint64_t iterations = std::max<uint64_t>(4, 8192 / jumps);
        const Sample sample = SKIDPROOF_TRY(beside.watch([&]() -> Expected<Sample> {
          SKIDPROOF_CHECK(bench.run(*piece, 2));
          return bench.sample(kBranchTries, *piece, iterations);
        }));
        return sample.per(static_cast<double>(iterations * jumps));
      };
      points.add(std::move(point), "branch.btb", {{"branches", jumps}, {"spacing", spacing}}, jumps,
                 spacing);
    }
  }
  return {};
}

void emit_jump_levels(const Workbench& bench, const BranchPoints& points, const Beside& beside) {
  points.emit("branch.btb");
  const std::vector<JumpLevel> levels = jump_levels(points.curves("branch.btb"), kRisePerOctave);
  if (levels.empty()) {
    bench.unclear("shape.btb.reach",
                  "no rise begins at the same number of jumps at distances of which one is four "
                  "times another");
  }
  // A core that is shared has fewer for each thread, and not at all distances the same.
  const auto apart = std::ranges::find(levels, false, &JumpLevel::agreed);
  if (apart != levels.end()) {
    bench.unclear("shape.btb.reach",
                  fmt::format("by the distance of the jumps a rise begins behind {} to {} of them",
                              apart->least, apart->most_within));
    return;
  }
  if (const std::string why = beside.too_busy(); !levels.empty() && !why.empty()) {
    bench.unclear("shape.btb.reach", why);
    return;
  }
  uint64_t number = 0;
  for (const JumpLevel& level : levels) {
    emit_inferred(bench, {.name = "btb.reach",
                          .unit = "branches",
                          .value = static_cast<double>(level.jumps),
                          .low = static_cast<double>(level.least),
                          .high = static_cast<double>(level.first_beyond),
                          .n = level.spacings.size(),
                          .interval = "over the distances: least within, first beyond",
                          .parameters = {{"level", ++number}, {"of", uint64_t{levels.size()}}}});
  }
}

// ---- Where in its line a target begins.

void add_alignments(BranchPoints& points) {
  constexpr uint64_t kJumps = 16, kStep = 4, kOfLine = 64;
  for (uint64_t offset = 0; offset < kOfLine; offset += kStep) {
    points.add("taken_jumps", fmt::format("jumps={},spacing=128,run=8,offset={}", kJumps, offset),
               static_cast<double>(kJumps), kBranchNs, "branch.alignment",
               {{"offset", offset}, {"instructions", uint64_t{9}}}, offset);
  }
}

// ---- What learns.

void add_learned(BranchPoints& points, const JumpPlan& plan) {
  for (uint64_t length : growing(2, plan.longest_pattern, plan.coarse)) {
    points.add("repeated_pattern", fmt::format("pattern=random,length={}", length), 1,
               std::max(kLearningNs, 8.0 * static_cast<double>(length)), "branch.pattern",
               {{"length", length}}, length);
  }
  for (uint64_t targets : growing(2, plan.most_targets, plan.coarse)) {
    points.add("indirect_jumps", fmt::format("targets={}", targets), 1,
               std::max(kLearningNs, 24.0 * static_cast<double>(targets)), "branch.indirect",
               {{"targets", targets}}, targets);
  }
}

void emit_learned(const Workbench& bench, const BranchPoints& points) {
  const auto reach_of = [&](const std::string& row) {
    points.emit(row);
    auto curves = points.curves(row);
    return soft_reach(std::move(curves[0]), kFewMispredictions, kManyMispredictions);
  };
  emit_end(bench, reach_of("branch.pattern"), "pattern.length", "directions");
  emit_end(bench, reach_of("branch.indirect"), "indirect.targets", "targets");
}

// ---- Returns: what one more call and its return cost. Each call comes from one of two places by random data, so that only
// a stack of returns knows where it goes back to: some cores fall back on other predictors, which learn fixed places. Random
// jumps in the innermost function keep the next iteration away, which would hide the first misprediction.

Expected<void> measure_return_stack(const Workbench& bench, Beside beside, double seconds,
                                    double from, double to) {
  beside.probed.clear();
  beside.company.set_patience(kBranchPatience * seconds);
  static constexpr uint64_t kNests = 200;
  ReachQuestion question;
  question.what = "return stack";
  question.from = 4;
  question.to = bench.effort() == Effort::kThorough ? 200 : 80;
  question.growth = bench.effort() == Effort::kQuick ? 1.5 : 1.3;
  question.least_rise = kOneMisprediction;
  auto draw = std::make_shared<uint64_t>(derive_seed(bench.options().seed, "returns"));
  question.point = [&bench, &beside, draw](uint64_t depth) -> Expected<Point> {
    const auto piece_of = [&](uint64_t calls) {
      return bench.prepare("random_returns", fmt::format("depth={},choices=256,shuffles=8", calls));
    };
    const auto deep = std::make_shared<Workpiece>(SKIDPROOF_TRY(piece_of(depth)));
    const auto less = std::make_shared<Workpiece>(SKIDPROOF_TRY(piece_of(depth - 1)));
    Point point;
    point.what = fmt::format("branches, {} calls", depth);
    point.scale = 20 * kOneMisprediction;  // to a tenth of one
    point.sample = [&bench, &beside, draw, deep, less]() -> Expected<Sample> {
      // Both with the same directions.
      uint64_t first = *draw, second = *draw;
      const auto run = [&bench](Workpiece& piece, uint64_t seed) -> Expected<CountedRun> {
        SKIDPROOF_CHECK(bench.refill(piece, seed));
        return bench.run(piece, kNests);
      };
      const Sample more = SKIDPROOF_TRY(beside.watch([&]() -> Expected<Sample> {
        const auto both = SKIDPROOF_TRY(bench.sample_both(
            kDifferenceTries, [&] { return run(*deep, ++first); },
            [&] { return run(*less, ++second); }));
        return both.first - both.second;
      }));
      *draw = first;
      return more.per(kNests);
    };
    return point;
  };
  Reach reach = SKIDPROOF_TRY(find_reach(bench, question, seconds, from, to));
  reach = step_reach(std::move(reach.curve), kOneMisprediction, 1);
  if (const std::string why = beside.too_busy(); reach.clear && !why.empty()) {
    reach.clear = false;
    reach.why = why;
  }
  emit_reach(bench, reach, "branch.return_stack", "depth", {}, "return_stack.depth", "calls");
  return {};
}

// ---- History: what is gained by a jump's going as one before it went. Below 0 while that is remembered.

Expected<void> measure_history(const Workbench& bench, double seconds, double from, double to) {
  static constexpr uint64_t kHistoryDirections = 512;
  ReachQuestion question;
  question.what = "history";
  question.from = 8;
  question.to = bench.effort() == Effort::kThorough ? 1500 : 500;
  question.growth = bench.effort() == Effort::kQuick ? 1.7 : 1.3;
  auto draw = std::make_shared<uint64_t>(derive_seed(bench.options().seed, "history"));
  question.point = [&bench, draw](uint64_t between) -> Expected<Point> {
    const std::string text = fmt::format("length={},between={}", kHistoryDirections, between);
    const auto same =
        std::make_shared<Workpiece>(SKIDPROOF_TRY(bench.prepare("branch_history", text)));
    const auto alone = std::make_shared<Workpiece>(
        SKIDPROOF_TRY(bench.prepare("branch_history", text + ",second=independent")));
    // Every run draws the directions anew.
    const auto run = [&bench,
                      draw](const std::shared_ptr<Workpiece>& piece) -> Expected<CountedRun> {
      SKIDPROOF_CHECK(bench.refill(*piece, ++*draw));
      return bench.run(*piece, kHistoryDirections);
    };
    Point point;
    point.what = fmt::format("branches, history of {}", between);
    point.scale = kOneMisprediction * 10;
    point.sample = [&bench, run, same, alone]() -> Expected<Sample> {
      const auto both = SKIDPROOF_TRY(bench.sample_both(
          kDifferenceTries / 2, [&] { return run(same); }, [&] { return run(alone); }));
      return (both.first - both.second).per(kHistoryDirections);
    };
    return point;
  };
  // Half of the second jumps are mispredicted where nothing is remembered: what that costs shows where everything is.
  std::vector<Point> near;
  near.push_back(SKIDPROOF_TRY(question.point(question.from)));
  SKIDPROOF_CHECK(take_by_turns(bench, near, {.most = 12, .seconds = seconds / 10}, from, from));
  const double gain = near.empty() || near[0].cycles.empty() ? 0 : -near[0].median_cycles();
  if (gain < kOneMisprediction / 2) {
    bench.unclear("shape.history.length", fmt::format("a jump that goes as one {} jumps before it "
                                                      "costs {:.3g} cycles less than one by itself",
                                                      question.from, gain));
    return {};
  }
  question.least_rise = 0.6 * gain;
  Reach reach = SKIDPROOF_TRY(find_reach(bench, question, seconds, from, to));
  reach = step_reach(std::move(reach.curve), question.least_rise / 2, 1);
  emit_reach(bench, reach, "branch.history", "length", {}, "history.length", "taken jumps");
  return {};
}

}  // namespace

Expected<void> characterize_branches(Workbench& bench) {
  SKIDPROOF_CHECK(bench.count(kOfJumps));
  const JumpPlan plan = jump_plan(bench.effort());
  BranchPoints points(bench);
  bench.progress(0, "branches");
  add_few_jumps(points, plan);
  add_alignments(points);
  add_learned(points, plan);
  Beside beside{SKIDPROOF_TRY(Company::create(bench)), {}};
  SKIDPROOF_CHECK(add_many_jumps(bench, points, plan, beside));
  const double seconds = bench.seconds_of_part();
  beside.company.set_patience(kBranchPatience * seconds * 0.4);
  SKIDPROOF_CHECK(points.measure(seconds * 0.4, 0, 0.5));
  if (bench.cancelled()) return {};
  points.emit("branch.taken");
  emit_jump_levels(bench, points, beside);
  points.emit("branch.alignment");
  emit_learned(bench, points);
  SKIDPROOF_CHECK(measure_return_stack(bench, beside, seconds * 0.25, 0.5, 0.7));
  if (bench.cancelled()) return {};
  return measure_history(bench, seconds * 0.25, 0.7, 1);
}

}  // namespace skidproof
