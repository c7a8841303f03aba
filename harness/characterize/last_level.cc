// Walks through working sets: the least of some, since whatever disturbs makes dearer.
#include "harness/characterize/last_level.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "harness/characterize/reach.h"
#include "harness/run/guarded_memory.h"
#include "pebs/told.h"

namespace skidproof {
namespace {

constexpr double kFits = 0.125, kFitsNot = 0.7;  // of the way from within to beyond
constexpr uint64_t kLargestSet = uint64_t{512} << 20;
constexpr uint64_t kSetPage = 4096;
constexpr uint64_t kSetUnroll = 16;
constexpr unsigned kSetSamples = 6;
constexpr int kSetHalvings = 4;  // of each end: down to a sixteenth

std::string mebibytes(uint64_t bytes) {
  return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / (1 << 20));
}

// Walks on from where the last run stopped: the result of a chase is its next pointer.
Expected<CountedRun> walk_on(const Workbench& bench, Workpiece& chase, uint64_t iterations) {
  const CountedRun log = SKIDPROOF_TRY(bench.run(chase, iterations));
  chase.program.data_address = log.result;
  chase.program.data_bytes = sizeof(uint64_t);
  return log;
}

// The least cycles a load, once the whole set was walked through. Pieces are short, so that some of them have the CPU to
// themselves: where others take half of it, a whole round would cost twice as much as soon as it is longer than their turn.
// An error of kNotAvailable where none of them had.
Expected<double> least_cost(const Workbench& bench, const std::string& parameters, uint64_t lines,
                            const Memory& memory) {
  constexpr uint64_t kPiece = 256, kWarmPiece = 4096;  // iterations
  constexpr unsigned kPieces = 4;                      // of a sample
  Workpiece chase = SKIDPROOF_TRY(bench.prepare("pointer_chase", parameters, memory));
  const uint64_t round = (lines + kSetUnroll - 1) / kSetUnroll;
  for (uint64_t done = 0; done < round && !bench.cancelled(); done += kWarmPiece)
    SKIDPROOF_CHECK(walk_on(bench, chase, std::min(kWarmPiece, round - done)));
  const unsigned asked = bench.options().repetitions;
  double least = INFINITY;
  bool whole = false;
  for (unsigned i = 0; i < (asked != 0 ? asked : kSetSamples) && !bench.cancelled(); ++i) {
    const Sample sample =
        SKIDPROOF_TRY(bench.sample(kPieces, [&] { return walk_on(bench, chase, kPiece); }));
    least = std::min(least, sample.cycles / static_cast<double>(kPiece * kSetUnroll));
    whole |= !sample.spoiled;
  }
  if (!whole && !bench.cancelled()) {
    return fail(ErrorCode::kNotAvailable, "others have the CPU too often",
                "stop what runs beside it, or give another CPU with --cpu");
  }
  return least;
}

class Sets {
 public:
  // `before`: bytes of the level before, half of which the control's lines may fill.
  Sets(const Workbench& bench, uint64_t before) : bench_(bench), before_(before) {}

  // Looks at a set, unless it was looked at.
  Expected<void> look(uint64_t bytes) {
    if (costs_.contains(bytes) || bench_.cancelled()) return {};
    const Memory memory = SKIDPROOF_TRY(bench_.allocate(bytes, true));
    if (!memory.huge_pages) {
      return fail(ErrorCode::kNotAvailable,
                  fmt::format("the kernel gave no 2 MiB pages for {}", mebibytes(bytes)),
                  "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; echo 1 > "
                  "/proc/sys/vm/compact_memory");
    }
    const double loads = SKIDPROOF_TRY(
        least_cost(bench_, fmt::format("bytes={},granularity=64,unroll={}", bytes, kSetUnroll),
                   bytes / 64, memory));
    // One line in each page, as many as lie well inside the level before.
    const uint64_t pages = std::min(bytes / kSetPage, before_ / 2 / 64);
    const double translation =
        SKIDPROOF_TRY(least_cost(bench_,
                                 fmt::format("bytes={},granularity={},stagger=2,unroll={}",
                                             pages * kSetPage, kSetPage, kSetUnroll),
                                 pages, memory));
    if (translations_.empty()) few_ = translation;
    translations_[bytes] = translation;
    // Pages by turns miss a TLB that is little too small every time, pages at random now and then: so much is not taken away
    // that a larger set would be cheaper than the smallest.
    const double taken = loads - (translation - few_);
    costs_[bytes] = costs_.empty() ? taken : std::max(taken, costs_.begin()->second);
    return {};
  }
  std::vector<WorkingSetCost> curve() const {
    std::vector<WorkingSetCost> all;
    for (const auto& [bytes, cycles] : costs_) all.push_back({bytes, cycles});
    return all;
  }
  double cost(uint64_t bytes) const { return costs_.at(bytes); }
  // What the pages of the largest set cost more than those of the smallest.
  double most_translation() const {
    double most = 0;
    for (const auto& [bytes, cycles] : translations_) most = std::max(most, cycles - few_);
    return most;
  }

 private:
  const Workbench& bench_;
  const uint64_t before_;
  std::map<uint64_t, double> costs_, translations_;
  double few_ = 0;  // translation of the smallest
};

// Up to where two sizes in turn cost the same, well above the first. False where no such was met.
Expected<bool> climb(const Workbench& bench, Sets& sets, uint64_t first, uint64_t largest,
                     const std::function<bool()>& in_time) {
  double last = 0, least = INFINITY;
  for (uint64_t bytes = first; bytes <= largest && in_time(); bytes *= 2) {
    bench.progress(0.9, fmt::format("last level, {}", mebibytes(bytes)));
    SKIDPROOF_CHECK(sets.look(bytes));
    if (bench.cancelled()) return false;
    const double cost = sets.cost(bytes);
    least = std::min(least, cost);
    if (last > 1.5 * least && cost > 1.5 * least && std::abs(cost - last) < 0.1 * (cost - least))
      return true;
    last = cost;
  }
  return false;
}

// Two sizes of the curve, between which something ends; 0 where it does not.
struct Between {
  uint64_t below = 0, above = 0;
};
Between first_dear(const std::vector<WorkingSetCost>& curve, double border) {
  for (size_t i = 1; i < curve.size(); ++i) {
    if (curve[i].cycles > border) return {curve[i - 1].bytes, curve[i].bytes};
  }
  return {};
}
Between last_cheap(const std::vector<WorkingSetCost>& curve, double border) {
  for (size_t i = curve.size(); i-- > 1;) {
    if (curve[i - 1].cycles < border) return {curve[i - 1].bytes, curve[i].bytes};
  }
  return {};
}

// Halves what lies between sizes that fit and those that do not any more, then between those that do not all miss and those
// that do.
Expected<void> narrow(Sets& sets, const std::function<bool()>& in_time) {
  constexpr uint64_t kGrain = 64 << 10;
  for (const bool at_low : {true, false}) {
    for (int i = 0; i < kSetHalvings && in_time(); ++i) {
      const std::vector<WorkingSetCost> curve = sets.curve();
      const LastLevel found = judge_last_level(curve);
      const double rise = found.beyond - found.within;
      const Between end = at_low ? first_dear(curve, found.within + kFits * rise)
                                 : last_cheap(curve, found.within + kFitsNot * rise);
      const uint64_t middle = (end.below + end.above) / 2 / kGrain * kGrain;
      if (middle <= end.below || (end.above - end.below) * 16 <= end.above) break;
      SKIDPROOF_CHECK(sets.look(middle));
    }
  }
  return {};
}

}  // namespace

LastLevel judge_last_level(std::vector<WorkingSetCost> curve) {
  LastLevel found;
  std::sort(curve.begin(), curve.end(),
            [](const WorkingSetCost& a, const WorkingSetCost& b) { return a.bytes < b.bytes; });
  if (curve.size() < 3) {
    found.why = "too few working sets were looked at";
    return found;
  }
  found.within = INFINITY;
  for (const WorkingSetCost& at : curve) found.within = std::min(found.within, at.cycles);
  found.beyond = curve.back().cycles;
  const double rise = found.beyond - found.within;
  if (rise < found.within / 2) {
    found.why = fmt::format("the cost does not rise between {} and {}: {:.3g} and {:.3g} cycles",
                            mebibytes(curve.front().bytes), mebibytes(curve.back().bytes),
                            found.within, found.beyond);
    return found;
  }
  // The largest that is half as large as the last, or less.
  const auto half = std::find_if(curve.rbegin(), curve.rend(), [&](const WorkingSetCost& at) {
    return 2 * at.bytes <= curve.back().bytes;
  });
  if (half == curve.rend() || std::abs(found.beyond - half->cycles) > 0.1 * rise) {
    found.why = fmt::format("the cost still rises at {}: memory does not yet answer alone",
                            mebibytes(curve.back().bytes));
    return found;
  }
  uint64_t fits = 0;
  for (const WorkingSetCost& at : curve) {
    if (at.cycles > found.within + kFits * rise) break;
    fits = at.bytes;
  }
  for (auto at = curve.rbegin(); at != curve.rend(); ++at) {
    if (at->cycles < found.within + kFitsNot * rise) break;
    found.high = at->bytes;
  }
  if (fits == 0 || found.high == 0) {
    found.why = fmt::format("no working set from {} on fits", mebibytes(curve.front().bytes));
    return found;
  }
  found.low = fits - fits / 8;
  if (found.high > 4 * found.low) {
    found.why = fmt::format("the cost rises slowly, from {:.3g} cycles at {} to {:.3g} at {}",
                            found.within, mebibytes(fits), found.beyond, mebibytes(found.high));
    return found;
  }
  found.clear = true;
  return found;
}

LastLevel held_against(LastLevel found, std::optional<uint64_t> told) {
  if (!found.clear || !told || (found.low <= *told && *told <= found.high)) return found;
  found.clear = false;
  found.why = *told > found.high
                  ? fmt::format(
                        "{} to {} answer of the {} that CPUID tells: the rest is others', "
                        "or kept from this CPU",
                        mebibytes(found.low), mebibytes(found.high), mebibytes(*told))
                  : fmt::format("{} to {} seem to answer, more than the {} that CPUID tells",
                                mebibytes(found.low), mebibytes(found.high), mebibytes(*told));
  return found;
}

Expected<void> find_last_level(Workbench& bench, uint64_t before, double seconds) {
  const std::string name = "shape.l3.size";
  const auto began = std::chrono::steady_clock::now();
  const auto in_time = [&] {
    return !bench.cancelled() &&
           std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() <
               seconds;
  };
  const auto told = told_cache(bench.machine(), 3);
  const uint64_t room = available_memory() / 2;
  uint64_t largest = kLargestSet;
  while (room != 0 && largest > room) largest /= 2;
  Sets sets(bench, before);
  const auto reached = climb(bench, sets, 2 * before, largest, in_time);
  if (!reached) {
    bench.unclear(name, reached.error().message);
    return {};
  }
  if (bench.cancelled()) return {};
  if (*reached) {
    if (auto narrowed = narrow(sets, in_time); !narrowed) bench.problem(narrowed.error());
    if (bench.cancelled()) return {};
  }
  for (const WorkingSetCost& at : sets.curve()) {
    emit_curve_point(bench, "cache.last_level",
                     {.x = at.bytes,
                      .value = at.cycles,
                      .low = at.cycles,
                      .high = at.cycles,
                      .n = kSetSamples,
                      .interval = "least of the samples"},
                     {{"bytes", at.bytes}});
  }
  LastLevel found = held_against(judge_last_level(sets.curve()),
                                 told ? std::optional(told->bytes) : std::nullopt);
  if (!*reached && !in_time() && !found.clear)
    found.why = "the time was over before memory answered alone: " + found.why;
  // Translation is taken away, but where it is worth as much as what is looked for, that is no measurement.
  if (found.clear && sets.most_translation() > (found.beyond - found.within) / 2) {
    found.clear = false;
    found.why = fmt::format(
        "translation adds {:.3g} cycles on the way: 2 MiB pages are small ones "
        "beneath",
        sets.most_translation());
  }
  if (!found.clear) {
    bench.unclear(name, found.why);
    return {};
  }
  MeasurementParameters parameters;
  if (told) parameters = {{"told", told->bytes}, {"source", told->leaf}};
  emit_inferred(bench, {.name = "l3.size",
                        .unit = "bytes",
                        .value = static_cast<double>(found.low),
                        .low = static_cast<double>(found.low),
                        .high = static_cast<double>(found.high),
                        .n = sets.curve().size(),
                        .interval = "surely fits, surely does not",
                        .parameters = std::move(parameters)});
  return {};
}

}  // namespace skidproof
