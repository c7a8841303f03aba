// What the caches and TLBs are, inferred from what lines and pages cost that get into one another's way.
//
// Lines a multiple of a cache's sets apart share a set: as many fit as there are ways, whatever replaces them, since
// nothing else is touched meanwhile. So one question, how many lines of a stride still cost what few do, gives ways (no
// more fit however far apart they are), the size of a way (the smallest stride at which only that many fit) and the line
// (the smallest displacement that moves half of them into another set). No prefetcher has a say in it: what is loaded is
// what is there already. The method goes back to Saavedra and Smith, "Measuring Cache and TLB Performance and Their Effect
// on Benchmark Runtimes" (IEEE Transactions on Computers, 1995).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "harness/characterize/last_level.h"
#include "harness/characterize/parts.h"
#include "harness/characterize/plan.h"
#include "harness/characterize/reach.h"
#include "harness/run/noise.h"
#include "pebs/told.h"

namespace skidproof {
namespace {

constexpr uint64_t kSmallest = 512;  // stride that is looked at
constexpr uint64_t kMostWays = 48;   // of any cache that was ever built, with room
constexpr double kRunNs = 2e4;
constexpr unsigned kTriesEach = 6;
constexpr uint64_t kUnrolled = 16;

// A chase over lines of one stride.
struct Conflict {
  uint64_t stride = 0, lines = 0, shift = 0;
  bool huge = false;
  bool apart = false;  // each line in another set, in the same pages
};

// Where the next chase's lines begin in their memory: some caches look lines up by a hash of their address first (AMD's
// "utag"), and two of one set that share it are never both found. Elsewhere others share it.
class Places {
 public:
  static constexpr int kEnough = 3;             // in all of which one would have to lie badly
  static constexpr uint64_t kMost = 64 * 4096;  // bytes
  explicit Places(const Workbench& bench) : random_(derive_seed(bench.options().seed, "places")) {}
  uint64_t next() { return random_.below(kMost / 4096) * 4096; }

 private:
  Random random_;
};

// So many bytes from a place on.
Expected<Memory> memory_at(const Workbench& bench, uint64_t place, uint64_t bytes, bool huge) {
  const uint64_t all = bytes + Places::kMost;
  Memory memory = SKIDPROOF_TRY(huge ? bench.allocate_huge(all) : bench.allocate(all, false));
  memory.host = memory.host.subspan(place);
  memory.address += place;
  return memory;
}

Expected<Workpiece> chase_of(const Workbench& bench, const Conflict& c, uint64_t place) {
  const uint64_t bytes = c.lines * c.stride;
  const Memory memory = SKIDPROOF_TRY(memory_at(bench, place, bytes, c.huge));
  return bench.prepare("pointer_chase",
                       fmt::format("bytes={},granularity={},shift={},stagger={},unroll={}", bytes,
                                   c.stride, c.shift, c.apart ? 2 : 0, kUnrolled),
                       memory);
}

// Cycles a load. `floor`: what a nearer level costs counts as no more than this.
Expected<Point> conflict_point(const Workbench& bench, const Conflict& c, uint64_t place,
                               double floor) {
  Point point;
  point.what = fmt::format("caches, {} lines {} apart", c.lines, c.stride);
  const Workpiece piece = SKIDPROOF_TRY(chase_of(bench, c, place));
  const uint64_t twice = 2 * c.lines / kUnrolled + 2;
  SKIDPROOF_CHECK(bench.run(piece, twice));
  const uint64_t iterations = SKIDPROOF_TRY(bench.iterations_for(kRunNs, piece));
  point.sample = [=, &bench]() -> Expected<Sample> {
    SKIDPROOF_CHECK(bench.run(piece, twice));
    Sample sample = SKIDPROOF_TRY(bench.sample(kTriesEach, piece, iterations))
                        .per(static_cast<double>(iterations) * kUnrolled);
    sample.cycles = std::max(sample.cycles, floor);
    return sample;
  };
  return point;
}

// The least cycles a load of one chase, of five samples.
Expected<double> cost_of(const Workbench& bench, const Conflict& c) {
  const Point point = SKIDPROOF_TRY(conflict_point(bench, c, 0, 0));
  double least = INFINITY;
  for (int i = 0; i < 5; ++i) least = std::min(least, SKIDPROOF_TRY(point.sample()).cycles);
  return least;
}

struct Level {
  unsigned number = 1;
  std::string name;         // "l1d"
  double floor = 0;         // what a nearer level costs counts as no more than this
  double least_rise = 0.8;  // cycles by which a line more than fit makes the average load dearer
  bool huge = false;
};

void emit_conflicts(const Workbench& bench, const Level& level, uint64_t stride,
                    const std::vector<CurvePoint>& curve) {
  for (const CurvePoint& point : curve) {
    emit_curve_point(bench, "cache.conflict", point,
                     {{"level", level.name}, {"stride", stride}, {"lines", point.x}});
  }
}

void emit_exact(const Workbench& bench, const std::string& name, uint64_t value,
                const std::string& unit, MeasurementParameters parameters) {
  const auto exact = static_cast<double>(value);
  emit_inferred(bench, {.name = name,
                        .unit = unit,
                        .value = exact,
                        .low = exact,
                        .high = exact,
                        .interval = "exact",
                        .parameters = std::move(parameters)});
}

MeasurementParameters told_as(std::optional<ToldCache> told, uint64_t ToldCache::*field) {
  if (!told) return {};
  return {{"told", (*told).*field}, {"source", told->leaf}};
}

// Loads that no cache up to this level answered, of a load.
Misses misses_of_level(const Workbench& bench, unsigned number) {
  if (bench.counters() == nullptr) return {};
  const auto first = bench.counters()->place(arch::Signal::kLoadsL1Hit);
  const auto second = bench.counters()->place(arch::Signal::kLoadsL2Hit);
  if (!first || (number == 2 && !second)) return {};
  return [=](const Counts& load) {
    return 1 - load.values[*first] - (number == 2 ? load.values[*second] : 0);
  };
}
Misses misses_of_pages(const Workbench& bench) {
  if (bench.counters() == nullptr) return {};
  const auto walks = bench.counters()->place(arch::Signal::kStlbMissLoads);
  if (!walks) return {};
  return [at = *walks](const Counts& load) { return load.values[at]; };
}

struct Geometry {
  uint64_t ways = 0, way_bytes = 0;
  double within = 0;  // cycles of a load while lines fit
  std::string why;    // where it is not clear
};

// What stands on a level's geometry is all that is behind it: there is time for it while half of the part's is left.
double patience(const Workbench& bench) {
  return std::max(bench.seconds_of_part() / 8, bench.seconds_left() - bench.seconds_of_part() / 2);
}

// How many lines fit that certainly share a set.
Expected<void> find_ways(const Workbench& bench, const Level& level, uint64_t stride,
                         double seconds, Places& places, Geometry& found) {
  ReachQuestion question;
  question.what = level.name;
  question.from = 2;
  question.to = kMostWays;
  question.growth = 1.2;
  question.least_rise = level.least_rise;
  question.patience = patience(bench);
  question.misses = misses_of_level(bench, level.number);
  question.anew = true;
  question.point = [&](uint64_t lines) {
    return conflict_point(bench, {.stride = stride, .lines = lines, .huge = level.huge},
                          places.next(), level.floor);
  };
  const Reach reach = SKIDPROOF_TRY(find_reach(bench, question, seconds));
  emit_conflicts(bench, level, stride, reach.curve);
  found.within = reach.within;
  if (reach.clear) {
    found.ways = reach.last_within;
  } else {
    const bool flat = level.huge && reach.first_beyond == 0;
    found.why = fmt::format("lines {} bytes apart: {}{}", stride, reach.why,
                            flat ? ": 2 MiB pages may be small ones beneath" : "");
  }
  return {};
}

// The curve once these were looked at. kNotAvailable where one could not be sampled: the report says why.
Expected<std::vector<CurvePoint>> look_at(Looks& looks, const std::vector<uint64_t>& xs,
                                          double seconds) {
  SKIDPROOF_CHECK(looks.at(xs, seconds));
  std::vector<CurvePoint> curve = looks.curve();
  if (curve.size() == xs.size()) return curve;
  return fail(ErrorCode::kNotAvailable, "loads of some lines could not be timed",
              "see the problems beside this, and run it to its end");
}

enum class Fit : uint8_t { kAsManyAsWays, kTwiceAsMany, kUnclear };

// Of four chases, over as many lines of a stride as there are ways, one more, twice as many, and two more.
Fit judge_fit(const Level& level, const Geometry& found, const std::vector<CurvePoint>& curve,
              const Misses& misses, std::string& why) {
  const double border = found.within + level.least_rise / 2;
  std::array<bool, 4> fits = {}, over = {};
  std::string counted;
  for (size_t i = 0; i < 4; ++i) {
    fits[i] = curve[i].least < border;
    over[i] = curve[i].least > border && !may_be_disturbed(curve[0], curve[i], border);
    if (const auto missed = misses ? least_misses(curve[i], misses) : std::nullopt) {
      // One line of each set that does not fit, of ways + 1.
      const double half = unavoidable_misses(found.ways, found.ways + 1) / 2;
      fits[i] = fits[i] && *missed < half;
      over[i] = over[i] && *missed > half;
      counted += fmt::format("{}{:.3g}", counted.empty() ? "; misses counted: " : ", ", *missed);
    }
  }
  if (fits[0] && over[1] && over[2] && over[3]) return Fit::kAsManyAsWays;
  if (fits[0] && fits[1] && fits[2] && over[3]) return Fit::kTwiceAsMany;
  why = fmt::format(
      "{} and {} of them cost {:.4g} and {:.4g} cycles each, {} and {} cost {:.4g} and {:.4g}: "
      "neither a way's multiple nor its half{}",
      curve[0].x, curve[1].x, curve[0].least, curve[1].least, curve[2].x, curve[3].x,
      curve[2].least, curve[3].least, counted);
  return Fit::kUnclear;
}

// Whether as many lines of this stride fit as there are ways, and not one more, or twice as many, and not one more in
// each of two sets.
Expected<Fit> fit_at(const Workbench& bench, const Level& level, uint64_t stride, double seconds,
                     Places& places, Geometry& found) {
  Looks looks(
      bench,
      [&](uint64_t lines) {
        return conflict_point(bench, {.stride = stride, .lines = lines, .huge = level.huge},
                              places.next(), level.floor);
      },
      true);
  const Misses misses = misses_of_level(bench, level.number);
  Fit fit = Fit::kUnclear;
  std::vector<CurvePoint> curve;
  std::string why;
  MoreLooks more(bench, patience(bench));
  for (int look = 0; (look < Places::kEnough || fit == Fit::kUnclear) && more.another(); ++look) {
    curve = SKIDPROOF_TRY(
        look_at(looks, {found.ways, found.ways + 1, 2 * found.ways, 2 * found.ways + 2}, seconds));
    fit = judge_fit(level, found, curve, misses, why);
  }
  emit_conflicts(bench, level, stride, curve);
  if (fit == Fit::kUnclear) found.why = fmt::format("lines {} bytes apart: {}", stride, why);
  return fit;
}

// Translation has sets as well. Lines in the same pages that share no set of a cache must cost what few do; where a
// hypervisor backs large pages with small ones, they do not, and nobody knows where lines stand.
Expected<void> check_translation(const Workbench& bench, const Level& level, uint64_t stride,
                                 double seconds, Places& places, Geometry& found) {
  constexpr uint64_t kFew = 2, kMany = kMostWays / 2;
  Looks looks(
      bench,
      [&](uint64_t lines) {
        return conflict_point(bench,
                              {.stride = stride, .lines = lines, .huge = level.huge, .apart = true},
                              places.next(), 0);
      },
      true);
  MoreLooks more(bench, patience(bench));
  while (more.another()) {
    const auto curve = SKIDPROOF_TRY(look_at(looks, {kFew, kMany}, seconds));
    const double dearer = curve[1].least - curve[0].least;
    found.why.clear();
    if (dearer <= Level{}.least_rise / 2) break;
    found.why = fmt::format(
        "translation of {} lines {} bytes apart costs {:.3g} cycles more than that of {}{}", kMany,
        stride, dearer, kFew, level.huge ? ": 2 MiB pages are small ones beneath" : "");
  }
  return {};
}

// Strides from the largest down: only as many lines fit as there are ways while every stride is a multiple of the way's
// size, and twice as many with the first that is not.
Expected<Geometry> geometry_of_level(const Workbench& bench, const Level& level, uint64_t largest,
                                     uint64_t smallest) {
  Geometry found;
  const double seconds = bench.seconds_of_part() / 8;
  Places places(bench);
  SKIDPROOF_CHECK(check_translation(bench, level, largest, seconds / 8, places, found));
  if (!found.why.empty()) return found;
  SKIDPROOF_CHECK(find_ways(bench, level, largest, seconds, places, found));
  unsigned multiples = 1;
  for (uint64_t stride = largest / 2; found.ways != 0 && stride >= smallest; stride /= 2) {
    const Fit fit = SKIDPROOF_TRY(fit_at(bench, level, stride, seconds / 8, places, found));
    if (fit == Fit::kUnclear) return found;
    if (fit == Fit::kAsManyAsWays) {
      ++multiples;
      continue;
    }
    if (multiples == 1) {
      // One stride alone might share its sets for another reason.
      found.why = fmt::format("only one stride, {}, was a multiple of the way", 2 * stride);
    } else {
      found.way_bytes = 2 * stride;
    }
    return found;
  }
  if (found.why.empty())
    found.why = fmt::format("{} lines fit at every stride down to {}", found.ways, smallest);
  return found;
}

// The line: ways + 1 lines of one set, half of them displaced, fit as soon as the displacement reaches another set.
Expected<std::optional<uint64_t>> line_of(const Workbench& bench, const Geometry& l1,
                                          std::string& why) {
  const uint64_t lines = l1.ways + (l1.ways % 2 == 0 ? 2 : 1);  // half of them fit
  std::vector<uint64_t> shifts;
  for (uint64_t shift = 8; shift <= 1024; shift *= 2) shifts.push_back(shift);
  Places places(bench);
  Looks looks(
      bench,
      [&](uint64_t shift) {
        return conflict_point(bench, {.stride = l1.way_bytes, .lines = lines, .shift = shift},
                              places.next(), 0);
      },
      true);
  const double border = l1.within + Level{}.least_rise / 2;
  MoreLooks more(bench, patience(bench));
  for (int look = 1; more.another(); ++look) {
    const auto curve = SKIDPROOF_TRY(look_at(looks, shifts, bench.seconds_of_part() / 64));
    const auto first = std::find_if(curve.begin(), curve.end(),
                                    [&](const CurvePoint& at) { return at.least < border; });
    if (first == curve.end()) {
      why = fmt::format("{} lines fit with no displacement", lines);
      continue;
    }
    const auto odd =
        std::find_if(first, curve.end(), [&](const CurvePoint& at) { return at.least >= border; });
    if (odd != curve.end()) {
      why = fmt::format("{} lines fit when half of them are displaced by {} bytes, but not by {}",
                        lines, first->x, odd->x);
    } else if (first != curve.begin() && may_be_disturbed(*first, *std::prev(first), border)) {
      why = fmt::format(
          "few samples say that {} lines fit when half of them are displaced by {} bytes", lines,
          first->x);
    } else if (look >= Places::kEnough) {
      return std::optional(first->x);
    }
  }
  return std::optional<uint64_t>{};
}

void emit_geometry(const Workbench& bench, const Level& level, const Geometry& g) {
  const auto told = told_cache(bench.machine(), level.number);
  std::string why = g.why;
  if (why.empty() && told) {
    why = short_of_told(g.ways * g.way_bytes, told->bytes, "bytes", told->leaf);
    if (why.empty()) why = short_of_told(g.ways, told->ways, "ways", told->leaf);
  }
  if (!why.empty() || g.way_bytes == 0) {
    bench.unclear("shape." + level.name + ".size", why);
    bench.unclear("shape." + level.name + ".ways", why);
    return;
  }
  emit_exact(bench, level.name + ".size", g.ways * g.way_bytes, "bytes",
             told_as(told, &ToldCache::bytes));
  emit_exact(bench, level.name + ".ways", g.ways, "ways", told_as(told, &ToldCache::ways));
}

// A load from one of so many pages, each with one line, in different sets of the caches; the control: as many lines side by
// side.
Expected<Point> pages_point(const Workbench& bench, uint64_t pages, uint64_t place, double floor) {
  const uint64_t bytes = pages * 4096;
  const Memory memory = SKIDPROOF_TRY(memory_at(bench, place, bytes, false));
  const Workpiece apart = SKIDPROOF_TRY(bench.prepare(
      "pointer_chase",
      fmt::format("bytes={},granularity=4096,stagger=2,unroll={}", bytes, kUnrolled), memory));
  const Workpiece beside = SKIDPROOF_TRY(bench.prepare(
      "pointer_chase", fmt::format("bytes={},granularity=64,unroll={}", pages * 64, kUnrolled)));
  Point point;
  point.what = fmt::format("translation, {} pages", pages);
  // Every page once in each run, twice before it.
  const uint64_t once = pages / kUnrolled + 1;
  const uint64_t iterations = std::max(once, SKIDPROOF_TRY(bench.iterations_for(kRunNs, beside)));
  point.sample = [=, &bench]() -> Expected<Sample> {
    SKIDPROOF_CHECK(bench.run(beside, 2 * once));
    const Sample near = SKIDPROOF_TRY(bench.sample(kTriesEach, beside, iterations));
    SKIDPROOF_CHECK(bench.run(apart, 2 * once));
    Sample sample = SKIDPROOF_TRY(bench.sample(kTriesEach, apart, iterations));
    sample.control = near.cycles;
    sample = sample.per(static_cast<double>(iterations) * kUnrolled);
    sample.cycles = std::max(sample.cycles, sample.control + floor);
    return sample;
  };
  return point;
}

struct Translation {
  std::string name;  // "dtlb"
  unsigned level = 1;
  uint64_t from = 8, to = 512, grain = 8;
  double floor = 0, least_rise = 1;  // cycles of translation
};

Expected<Reach> find_translation(Workbench& bench, const Translation& t, double seconds) {
  ReachQuestion question;
  question.what = t.name;
  question.from = t.from;
  question.to = t.to;
  question.grain = t.grain;
  question.growth = 1.25;
  question.sharp = true;
  question.least_rise = t.least_rise;
  // Rows have no event of loads that miss the first level alone.
  if (t.level == 2) question.misses = misses_of_pages(bench);
  Places places(bench);
  question.anew = true;
  question.point = [&](uint64_t pages) {
    return pages_point(bench, pages, places.next(), t.floor);
  };
  Reach reach = SKIDPROOF_TRY(find_reach(bench, question, seconds));
  MeasurementParameters parameters;
  if (const auto told = told_tlb(bench.machine(), t.level)) {
    parameters = {{"told", told->entries}, {"source", told->leaf}};
    // Code, stack and tables have pages, too.
    const std::string why =
        short_of_told(reach.last_within, told->entries, "entries", told->leaf, told->entries / 16);
    if (reach.clear && !why.empty()) {
      reach.clear = false;
      reach.why = why;
    }
    // A walk through the few pages of a first level is over before anybody comes.
  } else if (const std::string why = taken_by_others(reach, t.least_rise);
             t.level > 1 && reach.clear && !why.empty()) {
    reach.clear = false;
    reach.why = why;
  }
  emit_reach(bench, reach, "tlb.latency", "pages", parameters, t.name + ".reach", "entries");
  return reach;
}

// What an access adds that misses both TLBs while its page tables are in the core's own caches: four times the pages
// that the second level reaches, eight bytes of table each.
Expected<void> measure_walk(const Workbench& bench, const Reach& second) {
  constexpr unsigned kSamples = 7;
  if (!second.clear) {
    bench.unclear("shape.tlb.walk", "the reach of the second-level TLB is not clear");
    return {};
  }
  const uint64_t pages = 4 * second.first_beyond;
  const Point point = SKIDPROOF_TRY(pages_point(bench, pages, 0, 0));
  std::vector<double> cycles;
  Noise noise;
  for (unsigned i = 0; i < kSamples && !bench.cancelled(); ++i) {
    const Sample sample = SKIDPROOF_TRY(point.sample());
    cycles.push_back(sample.cycles - sample.control);
    noise = noise + sample.noise;
  }
  if (cycles.empty()) return {};
  bench.emit(median_measurement("tlb.walk", "cycles", cycles, {{"pages", pages}}, noise));
  return {};
}

Expected<void> translations(Workbench& bench) {
  const double seconds = bench.seconds_of_part() / 4;
  const Reach first = SKIDPROOF_TRY(find_translation(bench, {.name = "dtlb"}, seconds));
  if (!first.clear) {
    bench.unclear("shape.stlb.reach", "that of the first level is not clear");
    bench.unclear("shape.tlb.walk", "the reach of the first-level TLB is not clear");
    return {};
  }
  // What the second level adds, where it surely answers alone.
  const Point settled = SKIDPROOF_TRY(pages_point(bench, 2 * first.first_beyond, 0, 0));
  double least = INFINITY, control = INFINITY;
  for (int i = 0; i < 5; ++i) {
    const Sample sample = SKIDPROOF_TRY(settled.sample());
    least = std::min(least, sample.cycles);
    control = std::min(control, sample.control);
  }
  const Translation second = {.name = "stlb",
                              .level = 2,
                              .from = 2 * first.first_beyond / 64 * 64 + 64,
                              .to = 8192,
                              .grain = 64,
                              .floor = (least - control) * 1.1,
                              .least_rise = 2};
  const Reach found = SKIDPROOF_TRY(find_translation(bench, second, seconds));
  if (bench.cancelled()) return {};
  return measure_walk(bench, found);
}

Expected<void> last_level(Workbench& bench, const Geometry& l2) {
  if (l2.way_bytes == 0) {
    bench.unclear("shape.l3.size", "the second-level cache's size is not clear");
    return {};
  }
  if (bench.effort() == Effort::kQuick) {
    bench.unclear("shape.l3.size", "a quick look leaves it out");
    return {};
  }
  return find_last_level(bench, l2.ways * l2.way_bytes, bench.seconds_of_part() / 2);
}

// What stands on the first level's geometry: the line, and the second level.
Expected<Geometry> beyond_first_level(const Workbench& bench, const Geometry& l1) {
  if (l1.way_bytes == 0) {
    for (const char* name : {"line", "l2.size", "l2.ways"}) {
      bench.unclear(std::string("shape.") + name, "the first-level cache's geometry is not clear");
    }
    return Geometry{};
  }
  std::string why;
  if (const auto line = SKIDPROOF_TRY(line_of(bench, l1, why))) {
    emit_exact(bench, "line", *line, "bytes",
               told_as(told_cache(bench.machine(), 1), &ToldCache::line));
  } else if (!bench.cancelled()) {
    bench.unclear("shape.line", why);
  }
  // Lines of one set of the first level, but of many of the second: what it costs to hit that.
  const double next =
      SKIDPROOF_TRY(cost_of(bench, {.stride = l1.way_bytes, .lines = 2 * l1.ways + 2}));
  const Level second = {.number = 2,
                        .name = "l2",
                        .floor = next * 1.1,
                        .least_rise = std::max(2.0, next / 4),
                        .huge = true};
  const auto l2 = geometry_of_level(bench, second, 512 << 10, 2 * l1.way_bytes);
  if (bench.cancelled()) return Geometry{};
  if (!l2) {
    bench.unclear("shape.l2.size", l2.error().message);
    bench.unclear("shape.l2.ways", l2.error().message);
    return Geometry{};
  }
  emit_geometry(bench, second, *l2);
  return *l2;
}

}  // namespace

Expected<void> characterize_caches(Workbench& bench) {
  SKIDPROOF_CHECK(bench.count(kOfLoads));
  const Level first = {.number = 1, .name = "l1d"};
  const Geometry l1 = SKIDPROOF_TRY(geometry_of_level(bench, first, 8 << 10, kSmallest));
  if (bench.cancelled()) return {};
  emit_geometry(bench, first, l1);
  const Geometry l2 = SKIDPROOF_TRY(beyond_first_level(bench, l1));
  if (bench.cancelled()) return {};
  SKIDPROOF_CHECK(translations(bench));
  if (bench.cancelled()) return {};
  return last_level(bench, l2);
}

}  // namespace skidproof
