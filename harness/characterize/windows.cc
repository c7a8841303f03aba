// How much a core holds while a load is on its way to memory: reorder buffer, registers, queues, scheduler, by two misses
// that overlap as long as all that stands between them fits (kernels/miss_window.cc).
#include "harness/characterize/windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <set>
#include <utility>

#include "harness/characterize/company.h"
#include "harness/characterize/parts.h"
#include "harness/characterize/plan.h"
#include "harness/run/noise.h"

namespace skidproof {
namespace {

constexpr uint64_t kMissPairs = 256;
constexpr uint64_t kMissStride = 256;
constexpr uint64_t kMissLine = 64;
constexpr uint64_t kMissHead = 4096;         // of the kernel's data, that its fillers use
constexpr Trust kTrust = Trust::kAllButFew;  // see middle_sample

struct Window {
  const char* filler;
  const char* shape;
  uint64_t own;   // places that the two loads themselves take
  uint64_t most;  // looked for up to here
  Effort from;    // who asks for it
  // Half of it is another thread's, whatever that does: so are reorder buffer and store queue on Intel's cores [Intel 64 and IA-32
  // Architectures Optimization Reference Manual, "Partitioned Resources"]. Where a core divides neither, they vouch for nothing,
  // and stand in the way of nothing.
  bool divided = false;
};

constexpr std::array kWindows = {
    // What is divided comes first: it tells whether the core is whole.
    Window{"store", "store_queue.size", 0, 512, Effort::kQuick, true},
    Window{"nop", nullptr, 2, 1536, Effort::kQuick, true},  // all three: judge_reorder_buffer
    Window{"mixed", nullptr, 2, 1024, Effort::kQuick},
    Window{"mixed_pairs", nullptr, 2, 1024, Effort::kQuick},
    Window{"integer", "int_registers.size", 2, 768, Effort::kQuick},
    Window{"vector", "vector_registers.size", 0, 768, Effort::kQuick},
    Window{"load", "load_queue.size", 2, 768, Effort::kQuick},
    Window{"waiting", "scheduler.size", 0, 512, Effort::kQuick},
    Window{"waiting_vector", "vector_scheduler.size", 0, 512, Effort::kDefault},
    Window{"vector256", "vector256_registers.size", 0, 768, Effort::kThorough},
};

// CLFLUSH by another address of the same memory empties all caches of it as well. [SDM vol. 2, "CLFLUSH"]
void flush_pairs(const Workpiece& piece) {
  for (size_t i = kMissHead; i < piece.program.data_bytes; i += kMissLine)
    __builtin_ia32_clflush(&piece.data.host[i]);
  __builtin_ia32_mfence();
}

// All programs use one block of data: from block to block a miss differed by up to a half, in one by 2 %.
struct Place {
  Memory data;
  std::shared_ptr<Company> company;
  // What a nanosecond is worth: cycles of the core at the clock that it had in the beginning. A miss takes its time by clocks of
  // its own, and in cycles of a core that goes from 3.6 to 4.2 GHz one miss would cost what two do a moment later. 0 where
  // cycles are no silicon's.
  double cycles_of_ns = 0;
};

// The middle one of three: in one run of a thousand half of the pairs find what was flushed in a cache, and so they do in some
// moments in all three.
Expected<Sample> middle_sample(const Workbench& bench, const Workbench::Once& once) {
  std::vector<Sample> samples;
  while (samples.size() < (on_silicon(bench) ? 3U : 1U))
    samples.push_back(SKIDPROOF_TRY(bench.sample(1, once)));
  std::ranges::sort(samples, {}, &Sample::ns);
  Sample middle = samples[samples.size() / 2];
  Noise all;
  for (const Sample& sample : samples) all = all + sample.noise;
  middle.noise = all;
  return middle;
}

Expected<Point> window_point(const Workbench& bench, const Window& window, uint64_t size,
                             const Place& place) {
  const bool quick = bench.effort() == Effort::kQuick;
  const uint64_t pairs = quick ? kMissPairs / 2 : kMissPairs;
  auto piece = std::make_shared<Workpiece>(SKIDPROOF_TRY(
      bench.prepare("miss_window",
                    fmt::format("filler={},count={},pairs={},stride={}", window.filler,
                                size - std::min(size, window.own), pairs, kMissStride),
                    place.data)));
  Point point;
  point.what = fmt::format("window, {} × {}", size, window.filler);
  point.sample = [&bench, piece, pairs, company = place.company,
                  cycles_of_ns = place.cycles_of_ns]() -> Expected<Sample> {
    const auto once = [&]() -> Expected<CountedRun> {
      flush_pairs(*piece);
      return bench.run(*piece, pairs);
    };
    const Sample watched =
        SKIDPROOF_TRY(company->watch([&] { return middle_sample(bench, once); }));
    Sample sample = watched.per(static_cast<double>(pairs));
    sample.spoiled = !company->alone(sample.probed);
    if (cycles_of_ns != 0) sample.cycles = sample.ns * cycles_of_ns;
    return sample;
  };
  return point;
}

bool window_asked(const Window& window, Effort effort) {
  if (std::string_view(window.filler) == "vector256" && !host_supports(Isa::kAvx2)) return false;
  return static_cast<int>(effort) >= static_cast<int>(window.from);
}

void emit_curve(const Workbench& bench, const Window& window, const Reach& reach) {
  for (const CurvePoint& at : reach.curve) {
    emit_curve_point(bench, "window.time", at, {{"filler", window.filler}, {"size", at.x}});
  }
}

void emit_size(const Workbench& bench, const std::string& shape, const std::string& filler,
               const WindowSize& found) {
  if (!found.clear) return bench.unclear("shape." + shape, found.why);
  emit_inferred(bench, {.name = shape,
                        .unit = "entries",
                        .value = static_cast<double>(found.size),
                        .low = static_cast<double>(found.low),
                        .high = static_cast<double>(found.high),
                        .n = found.sizes,
                        .interval = "last that overlaps, first that does not",
                        .parameters = {{"filler", filler}}});
}

constexpr size_t kWholeSamples = 6;
// With others, of the part's time again: while ends are looked for, and on each of two occasions while the core has to be whole.
constexpr double kPatience = 0.5, kOfEachOccasion = 0.4;

// What fits into a whole core, asked for what is cheapest to see first.
struct FitsWhole {
  std::vector<Point> points;
  std::vector<double> borders;
  Expected<bool> look() const {
    for (size_t i = 0; i < points.size(); ++i) {
      const Sample sample = SKIDPROOF_TRY(points[i].sample());
      if (sample.spoiled || sample.cycles >= borders[i]) return false;
    }
    return true;
  }
};

// Until there are enough, or it is time.
Expected<void> take_whole(const Workbench& bench, const ReachQuestion& question,
                          const FitsWhole& fits, uint64_t size,
                          std::chrono::steady_clock::time_point until, WholeSamples& whole) {
  const Point at = SKIDPROOF_TRY(question.point(size));
  std::vector<double>& taken = whole[size].cycles;
  bool before = false;
  while (taken.size() < kWholeSamples && !bench.cancelled() &&
         std::chrono::steady_clock::now() < until) {
    if (!before) {
      before = SKIDPROOF_TRY(fits.look());
      continue;
    }
    const Sample sample = SKIDPROOF_TRY(at.sample());
    before = !sample.spoiled && SKIDPROOF_TRY(fits.look());
    if (before) taken.push_back(sample.cycles);
  }
  return {};
}

// What a further look found of a size: what costs less is believed.
void take_over(std::vector<CurvePoint>& curve, const CurvePoint& found) {
  const auto known = std::ranges::lower_bound(curve, found.x, {}, &CurvePoint::x);
  if (known == curve.end() || known->x != found.x) {
    curve.insert(known, found);
  } else if (found.least < known->least) {
    *known = found;
  }
}

}  // namespace

bool known_whole(const WholeSamples& whole, uint64_t size) {
  const auto found = whole.find(size);
  return found != whole.end() && found->second.cycles.size() >= kWholeSamples;
}

Witness witness_of(const ReachQuestion& question, const WindowSize& edge) {
  return {.point = question.point, .size = edge.low - edge.low / 16, .border = edge.border};
}

Expected<void> look_closer(const Workbench& bench, const ReachQuestion& question, double miss,
                           const std::optional<Witness>& witness, double seconds,
                           WholeSamples& whole, Reach& reach) {
  constexpr int kCloserLooks = 24;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                     std::chrono::duration<double>(seconds));
  for (int round = 0; round < kCloserLooks && !bench.cancelled(); ++round) {
    std::vector<CurvePoint>& curve = reach.curve;
    const WindowSize edge = judge_window(curve, miss);
    if (edge.high == 0) return {};
    std::set<uint64_t> between, ends = {edge.high};
    for (size_t i = 1; i < curve.size(); ++i) {
      const uint64_t before = curve[i - 1].x, at = curve[i].x;
      if (before == edge.low) ends.insert(at);
      if ((before == edge.low || at == edge.high) && at - before > 2)
        between.insert((before + at) / 2);
    }
    std::vector<Point> points;
    for (uint64_t size : between) {
      points.push_back(SKIDPROOF_TRY(question.point(size)));
      points.back().tag = size;
    }
    SKIDPROOF_CHECK(
        take_by_turns(bench, points, {.most = 8, .seconds = 0.01 * bench.seconds_of_part()}));
    for (const Point& point : points) {
      if (!point.cycles.empty()) take_over(curve, curve_point(point.tag, point, kTrust));
    }
    if (!between.empty()) continue;
    std::erase_if(ends, [&](uint64_t size) { return known_whole(whole, size); });
    if (ends.empty() || Clock::now() >= until) return {};
    FitsWhole fits;
    for (const auto& one : {witness, std::optional(witness_of(question, edge))}) {
      if (!one) continue;
      fits.points.push_back(SKIDPROOF_TRY(one->point(one->size)));
      fits.borders.push_back(one->border);
    }
    for (uint64_t size : ends) {
      SKIDPROOF_CHECK(take_whole(bench, question, fits, size, until, whole));
      if (known_whole(whole, size)) take_over(curve, curve_point(size, whole[size], kTrust));
    }
  }
  return {};
}

namespace {

// Of what was looked at as a witness, and by which of its sizes.
struct Vouched {
  size_t by = 0;
  uint64_t size = 0;
};

struct Seen {
  WholeSamples whole;
  std::optional<Vouched> vouched;  // for these samples
};

struct Asked {
  Window window;
  ReachQuestion question;
  Reach reach;
  Seen seen = {};
};

// All windows of a look, and one miss in cycles.
struct Windows {
  const Workbench& bench;
  std::vector<Asked> asked = {};
  double miss = 0;

  WindowSize edge_of(size_t i) const { return judge_window(asked[i].reach.curve, miss); }
  bool known(size_t i) const { return known_whole(asked[i].seen.whole, edge_of(i).high); }
  // The first of the others that is divided between threads and has an edge.
  std::optional<size_t> witness_for(size_t one) const {
    for (size_t i = 0; i < asked.size(); ++i) {
      if (i != one && asked[i].window.divided && edge_of(i).clear) return i;
    }
    return std::nullopt;
  }
  Expected<void> look(size_t i, double seconds) {
    Asked& one = asked[i];
    if (outdated(i)) one.seen = {};
    std::optional<Witness> witness;
    if (const auto by = witness_for(i)) {
      witness = witness_of(asked[*by].question, edge_of(*by));
      one.seen.vouched = Vouched{*by, witness->size};
    }
    return look_closer(bench, one.question, miss, witness, seconds, one.seen.whole, one.reach);
  }
  // Whether more of the witness turned out to fit since, so that it fitted into half a core as well; or there is one now.
  bool outdated(size_t i) const {
    const std::optional<Vouched>& vouched = asked[i].seen.vouched;
    if (!vouched) return witness_for(i).has_value();
    return witness_of(asked[vouched->by].question, edge_of(vouched->by)).size >
           vouched->size + vouched->size / 16;
  }
  // Why an edge is not believed to be a whole core's.
  std::optional<std::string> doubt(size_t i) const {
    const Seen& seen = asked[i].seen;
    if (outdated(i)) {
      const size_t by = seen.vouched ? seen.vouched->by : *witness_for(i);
      return fmt::format(
          "half of the core may have been another thread's: {} of {} fit into it, and {} had been "
          "seen to when this was asked",
          edge_of(by).size, asked[by].window.filler, seen.vouched ? seen.vouched->size : 0);
    }
    if (known(i)) return std::nullopt;
    const uint64_t high = edge_of(i).high;
    const auto taken = seen.whole.find(high);
    return fmt::format(
        "another thread of this core was busy, which halves some: the core was whole beside {} of "
        "{} samples of {}",
        taken == seen.whole.end() ? 0 : taken->second.cycles.size(), kWholeSamples, high);
  }
  bool any_doubt() const {
    for (size_t i = 0; i < asked.size(); ++i) {
      if (edge_of(i).clear && doubt(i)) return true;
    }
    return false;
  }
  // One by one those that are not known, a little of the time each, until they are or it is over: who is there comes and goes.
  Expected<void> look_by_turns(double seconds) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point began = Clock::now();
    const auto left = [&] {
      return seconds - std::chrono::duration<double>(Clock::now() - began).count();
    };
    constexpr double kOfATurn = 0.04;
    for (bool open = true; open && left() > 0;) {
      open = false;
      for (size_t i = 0; i < asked.size() && left() > 0; ++i) {
        if (bench.cancelled()) return {};
        if (edge_of(i).high == 0 || (known(i) && !outdated(i))) continue;
        SKIDPROOF_CHECK(look(i, kOfATurn * seconds));
        open = open || !known(i);
      }
    }
    return {};
  }
  // Once more, on a second occasion: who has half of what is divided all the time that a look takes is not seen in that look, and
  // who sleeps keeps some registers, or does not (220 to 226 were left of 240). What was known stays so where nobody can tell now.
  Expected<void> look_again(double seconds) {
    std::vector<Seen> earlier;
    for (Asked& one : asked) earlier.push_back(std::exchange(one.seen, {}));
    SKIDPROOF_CHECK(look_by_turns(seconds));
    for (size_t i = 0; i < asked.size(); ++i) {
      if (!known(i) || outdated(i)) asked[i].seen = std::move(earlier[i]);
    }
    return {};
  }
};

void emit_windows(const Windows& all) {
  std::map<std::string, WindowSize, std::less<>> found;
  for (size_t i = 0; i < all.asked.size(); ++i) {
    WindowSize size = all.edge_of(i);
    if (const auto doubt = all.doubt(i); size.clear && doubt) {
      // What costs a second miss may do so in half a core alone; what costs none does so in any case.
      size.clear = false;
      size.at_least = size.low;
      size.why = *doubt;
    }
    found[all.asked[i].question.what] = std::move(size);
  }
  const WindowSize reorder_buffer = judge_reorder_buffer(found);
  // What others are held against is the order of the mixture of which more are held.
  found["mixed"] = more_of(found["mixed"], found["mixed_pairs"]);
  found.erase("mixed_pairs");
  judge_windows_together(found);
  for (const Asked& one : all.asked) emit_curve(all.bench, one.window, one.reach);
  emit_size(all.bench, "rob.size", "nop", reorder_buffer);
  for (const Asked& one : all.asked) {
    if (one.window.shape != nullptr)
      emit_size(all.bench, one.window.shape, one.window.filler, found[one.window.filler]);
  }
}

}  // namespace

Expected<void> characterize_windows(Workbench& bench) {
  SKIDPROOF_CHECK(bench.count({arch::Signal::kUops}));
  std::vector<Window> windows;
  for (const Window& window : kWindows) {
    if (window_asked(window, bench.effort())) windows.push_back(window);
  }
  Place place;
  place.data = SKIDPROOF_TRY(bench.allocate(kMissHead + 2 * kMissPairs * kMissStride, false));
  place.company = std::make_shared<Company>(SKIDPROOF_TRY(Company::create(bench)));
  if (on_silicon(bench))
    place.cycles_of_ns = SKIDPROOF_TRY(bench.core_cycles_per_tick()) * bench.tsc_hz() / 1e9;
  // One miss: the pair alone.
  std::vector<Point> alone;
  alone.push_back(SKIDPROOF_TRY(window_point(bench, windows[0], windows[0].own, place)));
  SKIDPROOF_CHECK(
      take_by_turns(bench, alone, {.seconds = 0.05 * bench.seconds_of_part()}, 0, 0.05));
  if (bench.cancelled() || alone.empty()) return {};
  const auto all =
      std::make_shared<Windows>(Windows{.bench = bench, .miss = alone[0].median_cycles()});
  for (const Window& window : windows) {
    ReachQuestion question;
    question.what = window.filler;
    question.from = 16;
    question.to = window.most;
    question.growth = bench.effort() == Effort::kQuick ? 1.6 : 1.3;
    question.least_rise = all->miss / 3;
    question.trust = kTrust;
    question.point = [&bench, window, place](uint64_t size) {
      return window_point(bench, window, size, place);
    };
    place.company->set_patience(kPatience * bench.seconds_of_part() /
                                static_cast<double>(windows.size()));
    const double part = 0.85 / static_cast<double>(windows.size()),
                 from = 0.05 + part * static_cast<double>(all->asked.size());
    Reach reach = SKIDPROOF_TRY(
        find_reach(bench, question, bench.seconds_of_part() * part, from, from + part));
    if (bench.cancelled()) return {};
    all->asked.push_back({window, std::move(question), std::move(reach)});
  }
  place.company->set_patience(0);
  const double seconds = kOfEachOccasion * bench.seconds_of_part();
  const bool again = on_silicon(bench) && bench.effort() != Effort::kQuick;
  SKIDPROOF_CHECK(all->look_by_turns(seconds));
  if (again) SKIDPROOF_CHECK(all->look_again(seconds));
  if (bench.cancelled()) return {};
  const auto end = [all](Workbench& now, double more) -> Expected<void> {
    Expected<void> looked = {};
    if (more > 0) looked = now.count({arch::Signal::kUops});
    if (more > 0 && looked) looked = all->look_again(more);
    emit_windows(*all);
    return looked;
  };
  if (!again || !all->any_doubt()) return end(bench, 0);
  bench.set_later(end);
  return {};
}

}  // namespace skidproof
