// What takes more than one CPU: bandwidth of several together, how long a line of the cache takes from one to another, and
// what memory's latency becomes when the others are at it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>
#include <span>
#include <thread>
#include <utility>

#include "base/random.h"
#include "harness/characterize/companions.h"
#include "harness/characterize/parts.h"
#include "harness/characterize/plan.h"
#include "harness/run/clock.h"
#include "harness/run/guarded_memory.h"
#include "harness/run/native_identity.h"
#include "harness/run/native_machine.h"
#include "harness/run/noise.h"
#include "harness/stats/robust.h"

namespace skidproof {
namespace {

constexpr double kTransferShare = 0.2, kScalingShare = 0.45;
constexpr double kChunkNs = 3e5;
constexpr uint64_t kTransferLine = 64;

using Companions = std::vector<std::unique_ptr<Companion>>;

// ---- One line of the cache from CPU to CPU.

// Two that write a line by turns: each value is one more than the one before.
class PingPong {
 public:
  static constexpr size_t kLines =
      32;  // a page each: how far away a line's home is depends on its physical address
  static constexpr unsigned kBatches = 4, kTripsOfBatch = 16;

  // First touched by the thread of `from`, so that it is near that CPU.
  Expected<void> place(Workbench& bench) {
    memory_ = SKIDPROOF_TRY(bench.allocate(kLines * kApart, false));
    return {};
  }
  void reset() {
    for (size_t i = 0; i < kLines; ++i) line(i).store(0, std::memory_order_relaxed);
  }

  // Ticks of one way: the fewest of some batches on each line, over all lines. Negative: stopped.
  double serve(const std::atomic<bool>& stop) {
    double sum = 0;
    for (size_t i = 0; i < kLines; ++i) {
      double least = INFINITY;
      uint64_t value = 0;
      // The first batch waits for the other to come.
      for (unsigned batch = 0; batch <= kBatches; ++batch) {
        const uint64_t begin = fenced_tsc();
        for (unsigned trip = 0; trip < kTripsOfBatch; ++trip, value += 2) {
          line(i).store(value + 1, std::memory_order_release);
          if (!await(i, value + 2, stop)) return -1;
        }
        const auto ticks = static_cast<double>(fenced_tsc() - begin);
        if (batch > 0) least = std::min(least, ticks);
      }
      sum += least / (2 * kTripsOfBatch);
    }
    return sum / kLines;
  }
  void answer(const std::atomic<bool>& stop) {
    for (size_t i = 0; i < kLines; ++i) {
      for (uint64_t value = 1; value < 2 * uint64_t{kBatches + 1} * kTripsOfBatch; value += 2) {
        if (!await(i, value, stop)) return;
        line(i).store(value + 1, std::memory_order_release);
      }
    }
  }

 private:
  static constexpr size_t kApart = 4096 + 4 * kTransferLine;  // not in one set of a cache

  std::atomic_ref<uint64_t> line(size_t i) const {
    return std::atomic_ref(*reinterpret_cast<uint64_t*>(memory_.host.data() + i * kApart));
  }
  bool await(size_t i, uint64_t value, const std::atomic<bool>& stop) const {
    while (line(i).load(std::memory_order_acquire) != value) {
      if (stop.load(std::memory_order_relaxed)) return false;  // nobody writes it meanwhile: a hit
    }
    return true;
  }

  Memory memory_;
};

struct CpuPair {
  Companion* from = nullptr;
  Companion* to = nullptr;
};

Expected<Sample> sample_pair(const Workbench& bench, const CpuPair& pair, PingPong& lines) {
  lines.reset();
  Sample sample;
  pair.to->begin([&lines](Workbench&, const std::atomic<bool>& stop) -> Expected<void> {
    lines.answer(stop);
    return {};
  });
  pair.from->begin(
      [&lines, &sample](Workbench& own, const std::atomic<bool>& stop) -> Expected<void> {
        NoiseMeter meter;
        meter.begin();
        const double ratio = SKIDPROOF_TRY(own.core_cycles_per_tick());
        const double ticks = lines.serve(stop);
        if (ticks < 0) return fail(ErrorCode::kTimeout, "interrupted");
        sample = {ticks / own.tsc_hz() * 1e9, ticks * ratio, meter.end()};
        return {};
      });
  const Expected<void> served = pair.from->wait(bench);
  // Where one was stopped the other waits for nobody.
  const Expected<void> answered = pair.to->stop();
  SKIDPROOF_CHECK(served);
  SKIDPROOF_CHECK(answered);
  return sample;
}

// Pairs in an order that the seed draws, so that the first of them are a fair choice.
std::vector<std::pair<size_t, size_t>> drawn_pairs(size_t count, uint64_t seed) {
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = a + 1; b < count; ++b) pairs.emplace_back(a, b);
  }
  Random random(derive_seed(seed, "core.transfer"));
  for (size_t i = pairs.size(); i-- > 1;) std::swap(pairs[i], pairs[random.below(i + 1)]);
  return pairs;
}

Expected<void> measure_transfer(Workbench& bench, const Companions& all, double seconds,
                                double to) {
  constexpr unsigned kLeast = 6;
  const auto pairs = drawn_pairs(all.size(), bench.options().seed);
  std::vector<Point> points;
  const auto began = std::chrono::steady_clock::now();
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (bench.cancelled()) return {};
    const CpuPair pair{all[pairs[i].first].get(), all[pairs[i].second].get()};
    auto lines = std::make_shared<PingPong>();
    pair.from->begin(
        [&lines](Workbench& own, const std::atomic<bool>&) { return lines->place(own); });
    SKIDPROOF_CHECK(pair.from->wait(bench));
    Point point;
    point.what = fmt::format("line from CPU {} to {}", pair.from->cpu(), pair.to->cpu());
    point.by_time = true;
    point.tag = i;
    point.sample = [&bench, pair, lines] { return sample_pair(bench, pair, *lines); };
    // A sample of each before the rounds says how many the time is enough for.
    if (auto first = point.sample(); !first) {
      if (bench.cancelled()) return {};
      bench.problem(first.error());
      continue;
    }
    points.push_back(std::move(point));
    const double spent =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (spent * (kLeast + 1) > seconds) break;
  }
  SKIDPROOF_CHECK(
      take_by_turns(bench, points, {.relative = 0.02, .least = kLeast, .seconds = seconds}, 0, to));
  if (bench.cancelled()) return {};
  for (const Point& point : points) {
    const auto& [a, b] = pairs[point.tag];
    emit_point(bench, point, "core.transfer",
               {{"from", static_cast<uint64_t>(all[a]->cpu())},
                {"to", static_cast<uint64_t>(all[b]->cpu())}});
  }
  if (points.size() < pairs.size()) {
    bench.unclear(
        "core.transfer",
        fmt::format("{} of {} pairs of CPUs left out for want of time, those that are there drawn "
                    "at random",
                    pairs.size() - points.size(), pairs.size()));
  }
  return {};
}

// ---- Streams on several CPUs.

// What one CPU streams, and how fast it was while it was looked at. Of large windows it streams slice after slice, one in each
// run: a pass through all of them would seldom end undisturbed.
struct Flood {
  Workpiece piece;  // of a slice
  uint64_t iterations = 1;
  uint64_t bytes = 0;  // of an iteration
  uint64_t slices = 1, apart = 0, next = 0;

  std::atomic<bool> flows{false};
  std::atomic<unsigned> chunks{0};  // looked at
  double rate = 0;                  // bytes a nanosecond, in the end
  Noise noise;
};

Expected<CountedRun> run_flood(const Workbench& bench, Flood& at, uint64_t iterations) {
  at.next = (at.next + 1) % at.slices;
  at.piece.program.data_address = at.piece.data.address + at.next * at.apart;
  return bench.run(at.piece, iterations);
}

// Runs chunks for as long as it is told; those that began and ended while `looking` count.
Expected<void> flood(Workbench& bench, Flood& at, const std::atomic<bool>& looking,
                     const std::atomic<bool>& stop) {
  std::vector<double> quiet_ticks, ticks;
  at.noise = {};
  while (!stop.load(std::memory_order_relaxed)) {
    const bool looked = looking.load(std::memory_order_acquire);
    const CountedRun log = SKIDPROOF_TRY(run_flood(bench, at, at.iterations));
    at.flows.store(true, std::memory_order_release);
    if (!looked || !looking.load(std::memory_order_acquire)) continue;
    (quiet(log.noise) ? quiet_ticks : ticks).push_back(static_cast<double>(log.tsc));
    at.noise = at.noise + log.noise;
    at.chunks.fetch_add(1, std::memory_order_release);
  }
  const std::vector<double>& used = quiet_ticks.empty() ? ticks : quiet_ticks;
  at.rate = used.empty() ? 0
                         : static_cast<double>(at.iterations * at.bytes) / stats::median(used) *
                               bench.tsc_hz() / 1e9;
  return {};
}

// Of `kernel` over a window of `bytes`, of which a slice takes `kSlice` at most and lies, with all that it touches, `apart`.
constexpr uint64_t kSlice = 2 << 20;

Expected<void> prepare_flood(Workbench& bench, Flood& at, std::string_view kernel,
                             const std::string& parameters, uint64_t bytes, uint64_t apart,
                             const Memory& memory) {
  at.bytes = std::min(bytes, kSlice);
  at.slices = bytes / at.bytes;
  at.apart = apart;
  at.piece = SKIDPROOF_TRY(
      bench.prepare(kernel, fmt::format("window={},{}", at.bytes, parameters), memory));
  if (at.slices > 1) return {};
  at.iterations = SKIDPROOF_TRY(bench.iterations_for(kChunkNs, at.piece));
  return {};
}

// Companions that flood while this lives; their floods stay the caller's.
class Flooding {
 public:
  Flooding(std::span<Companion* const> who, std::span<Flood* const> what) : who_(who) {
    for (size_t i = 0; i < who.size(); ++i) {
      Flood* at = what[i];
      at->flows = false;
      at->chunks = 0;
      who[i]->begin([this, at](Workbench& bench, const std::atomic<bool>& stop) {
        return flood(bench, *at, looking_, stop);
      });
    }
    floods_.assign(what.begin(), what.end());
  }
  Flooding(const Flooding&) = delete;
  Flooding& operator=(const Flooding&) = delete;
  ~Flooding() { static_cast<void>(end()); }

  // Until all of them flow, or one has failed.
  bool wait_to_flow(const Workbench& bench) {
    return wait(bench, [](const Flood& at) { return at.flows.load(std::memory_order_acquire); });
  }
  void look() { looking_.store(true, std::memory_order_release); }
  // Whether each was looked at for `chunks` chunks.
  bool seen(unsigned chunks) const {
    return std::all_of(floods_.begin(), floods_.end(),
                       [chunks](Flood* at) { return at->chunks.load() >= chunks; });
  }
  // What each of them answered; rates are there from now on.
  Expected<void> end() {
    looking_.store(false, std::memory_order_release);
    Expected<void> first;
    for (Companion* companion : who_) {
      Expected<void> answer = companion->stop();
      if (first && !answer) first = std::move(answer);
    }
    who_ = {};
    return first;
  }

 private:
  template <class Done>
  bool wait(const Workbench& bench, Done done) {
    for (size_t i = 0; i < who_.size(); ++i) {
      while (!done(*floods_[i])) {
        if (bench.cancelled() || who_[i]->idle()) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
    return true;
  }

  std::span<Companion* const> who_;
  std::vector<Flood*> floods_;
  std::atomic<bool> looking_{false};
};

// ---- Bandwidth of several together.

constexpr std::array<const char*, 3> kScaled = {"load", "store", "copy"};
constexpr unsigned kLookedChunks = 6;

// All streams of one CPU at one size.
using Floods = std::array<std::shared_ptr<Flood>, kScaled.size()>;

uint64_t widest_here() { return host_supports(Isa::kAvx) ? 32 : 16; }

Expected<Floods> make_floods(Workbench& bench, uint64_t bytes) {
  // A copy's target lies behind its source, with some space in between.
  const uint64_t slice = std::min(bytes, kSlice), apart = 2 * slice + 4096;
  const Memory memory = SKIDPROOF_TRY(bench.allocate(bytes / slice * apart, true));
  const uint64_t width = widest_here();
  Floods made;
  for (size_t i = 0; i < kScaled.size(); ++i) {
    made[i] = std::make_shared<Flood>();
    SKIDPROOF_CHECK(
        prepare_flood(bench, *made[i], "memory_stream",
                      fmt::format("kind={},width={},unroll={}", kScaled[i], width, 2048 / width),
                      bytes, apart, memory));
  }
  return made;
}

// Of one, two, four … and all.
std::vector<size_t> counts_up_to(size_t all, Effort effort) {
  if (effort == Effort::kQuick)
    return all == 1 ? std::vector<size_t>{1} : std::vector<size_t>{1, all};
  std::vector<size_t> counts;
  for (size_t n = 1; n < all; n = n < 4 ? n + 1 : 2 * n) counts.push_back(n);
  counts.push_back(all);
  return counts;
}

// Runs of ours while the others flow: at least so many, and until each of the others was seen too, or half a second is over.
Expected<std::vector<double>> run_beside(const Workbench& bench, Flooding& others, unsigned least,
                                         Noise& noise, const Workbench::Once& once) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> quiet_ticks, ticks;
  if (others.wait_to_flow(bench)) {
    others.look();
    const auto until = Clock::now() + std::chrono::milliseconds(500);
    for (unsigned i = 0; i < least || !others.seen(2) || quiet_ticks.empty(); ++i) {
      if (bench.cancelled() || Clock::now() > until) break;
      const CountedRun log = SKIDPROOF_TRY(once());
      (quiet(log.noise) ? quiet_ticks : ticks).push_back(static_cast<double>(log.tsc));
      noise = noise + log.noise;
    }
  }
  SKIDPROOF_CHECK(others.end());
  if (bench.cancelled()) return fail(ErrorCode::kTimeout, "interrupted");
  return quiet_ticks.empty() ? ticks : quiet_ticks;
}

// What the others came to together, in bytes a nanosecond; 0 where one of them came to nothing.
double rate_of(std::span<Flood* const> floods, Noise& noise) {
  double sum = 0;
  for (const Flood* flood : floods) {
    if (flood->rate == 0) return 0;
    sum += flood->rate;
    noise = noise + flood->noise;
  }
  return sum;
}

tl::unexpected<Error> too_busy() {
  return fail(ErrorCode::kTimeout, "a CPU came to nothing meanwhile",
              "something else keeps it busy");
}

// How often a sample is tried in which a CPU did nothing.
constexpr int kBusyTries = 3;

// Nanoseconds a byte of all together: their rates while every one of them streams.
Expected<Sample> sample_together(const Workbench& bench, Flood& own,
                                 std::span<Companion* const> who, std::span<Flood* const> what) {
  Noise noise;
  for (int attempt = 0; attempt < kBusyTries; ++attempt) {
    SKIDPROOF_CHECK(run_flood(bench, own, 1));
    Flooding others(who, what);
    const std::vector<double> ticks =
        SKIDPROOF_TRY(run_beside(bench, others, kLookedChunks, noise,
                                 [&] { return run_flood(bench, own, own.iterations); }));
    const double theirs = rate_of(what, noise);
    if (ticks.empty() || (theirs == 0 && !what.empty())) continue;
    const double rate = theirs + static_cast<double>(own.iterations * own.bytes) /
                                     stats::median(ticks) * bench.tsc_hz() / 1e9;
    const double ratio = SKIDPROOF_TRY(bench.core_cycles_per_tick());
    return Sample{1 / rate, ratio * bench.tsc_hz() / 1e9 / rate, noise};
  }
  return too_busy();
}

Expected<void> measure_scaling_of(Workbench& bench, const Companions& others, uint64_t bytes,
                                  double seconds, double from, double to) {
  const Floods own = SKIDPROOF_TRY(make_floods(bench, bytes));
  std::vector<Floods> theirs(others.size());
  for (size_t i = 0; i < others.size(); ++i) {
    others[i]->begin([&floods = theirs[i], bytes](Workbench& bench_there,
                                                  const std::atomic<bool>&) -> Expected<void> {
      floods = SKIDPROOF_TRY(make_floods(bench_there, bytes));
      return {};
    });
  }
  Expected<void> made;
  for (const auto& other : others) {
    if (Expected<void> answer = other->wait(bench); !answer && made) made = std::move(answer);
  }
  SKIDPROOF_CHECK(made);
  std::vector<Companion*> who;
  who.reserve(others.size());
  for (const auto& other : others) who.push_back(other.get());
  const std::vector<size_t> counts = counts_up_to(others.size() + 1, bench.effort());
  std::vector<Point> points;
  for (size_t kind = 0; kind < kScaled.size(); ++kind) {
    std::vector<Flood*> what;
    what.reserve(theirs.size());
    for (const Floods& floods : theirs) what.push_back(floods[kind].get());
    for (size_t count : counts) {
      Point point;
      point.what = fmt::format("{} by {} CPUs", kScaled[kind], count);
      point.by_time = true;
      point.tag = kind * 10'000 + count;
      point.sample = [&bench, &own, &who, what, kind, count] {
        return sample_together(bench, *own[kind], std::span(who).first(count - 1),
                               std::span(what).first(count - 1));
      };
      points.push_back(std::move(point));
    }
  }
  SKIDPROOF_CHECK(take_by_turns(bench, points, {.relative = 0.01, .seconds = seconds}, from, to));
  for (const Point& point : points) {
    if (bench.cancelled()) return {};
    std::vector<double> gigabytes;
    for (double ns : point.ns) gigabytes.push_back(1 / ns);
    bench.emit(median_measurement(
        fmt::format("scaling.{}", kScaled[point.tag / 10'000]), "GB/s", gigabytes,
        parameters_of(point, {{"cpus", uint64_t{point.tag % 10'000}},
                              {"bytes", bytes},
                              {"kind", fmt::format("regular-{}", widest_here())}}),
        point.noise));
  }
  return {};
}

Expected<void> measure_scaling(Workbench& bench, const Companions& others, double seconds,
                               double from, double to) {
  std::vector<uint64_t> sizes = {16 << 10, 4 << 20, 64 << 20};
  if (bench.effort() == Effort::kQuick) sizes = {32 << 20};  // what CPUs share
  const uint64_t room = available_memory() / 4;
  const auto count = static_cast<double>(sizes.size());
  for (size_t i = 0; i < sizes.size() && !bench.cancelled(); ++i) {
    if (2 * sizes[i] * (others.size() + 1) > room) {
      bench.problem(
          {ErrorCode::kNoMemory,
           fmt::format("no room for {} windows of {} KiB", others.size() + 1, sizes[i] >> 10),
           "free memory, or give this process fewer CPUs with taskset"});
      continue;
    }
    const double at = from + (to - from) * static_cast<double>(i) / count;
    SKIDPROOF_CHECK(
        measure_scaling_of(bench, others, sizes[i], seconds / count, at, at + (to - from) / count));
  }
  return {};
}

// ---- Memory's latency under load.

// How the others load memory: how many of them, and how long each pauses between two groups of lines.
struct MemoryLoad {
  size_t streams = 0;
  uint64_t delay = 0;
  std::vector<double> rates;  // of all of them, GB/s, in each sample
};

std::vector<MemoryLoad> loads_of(size_t others, Effort effort) {
  std::vector<MemoryLoad> loads = {{0, 0, {}}};
  if (effort == Effort::kQuick) {
    loads.push_back({others, 0, {}});
    return loads;
  }
  for (size_t n = 1; n < others; n *= 2) loads.push_back({n, 0, {}});
  for (uint64_t delay : {0, 16, 64, 256, 1024}) loads.push_back({others, delay, {}});
  return loads;
}

struct LoadedChase {
  Workpiece piece;
  uint64_t iterations = 1;
  bool huge = false;
};

constexpr uint64_t kLoadedUnroll = 16;

// Goes on where the last run ended: what that left in the caches is not met again.
Expected<CountedRun> chase_on(const Workbench& bench, LoadedChase& chase, uint64_t iterations) {
  const CountedRun log = SKIDPROOF_TRY(bench.run(chase.piece, iterations));
  chase.piece.program.data_address = log.result;
  chase.piece.program.data_bytes = sizeof(uint64_t);
  return log;
}

Expected<std::shared_ptr<LoadedChase>> make_chase(const Workbench& bench, uint64_t bytes) {
  auto chase = std::make_shared<LoadedChase>();
  Memory memory = SKIDPROOF_TRY(bench.allocate(bytes, true));
  chase->huge = memory.huge_pages;
  chase->piece = SKIDPROOF_TRY(bench.prepare(
      "pointer_chase", fmt::format("bytes={},granularity=64,unroll={}", bytes, kLoadedUnroll),
      memory));
  chase->iterations = SKIDPROOF_TRY(bench.iterations_for(
      kChunkNs, [&](uint64_t iterations) { return chase_on(bench, *chase, iterations); }));
  return chase;
}

// The middle of some runs, not the fastest: that would be the one in which the others paused.
Expected<Sample> sample_loaded(const Workbench& bench, LoadedChase& chase,
                               std::span<Companion* const> who, std::span<Flood* const> what,
                               MemoryLoad& load) {
  Noise noise;
  for (int attempt = 0; attempt < kBusyTries; ++attempt) {
    Flooding others(who, what);
    const std::vector<double> ticks =
        SKIDPROOF_TRY(run_beside(bench, others, kLookedChunks, noise,
                                 [&] { return chase_on(bench, chase, chase.iterations); }));
    const double rate = rate_of(what, noise);
    if (ticks.empty() || (rate == 0 && !what.empty())) continue;
    load.rates.push_back(rate);
    const double ns = stats::median(ticks) / bench.tsc_hz() * 1e9;
    const double ratio = SKIDPROOF_TRY(bench.core_cycles_per_tick());
    return Sample{ns, stats::median(ticks) * ratio, noise}.per(
        static_cast<double>(chase.iterations * kLoadedUnroll));
  }
  return too_busy();
}

// A companion's floods, one for each delay, over one window.
Expected<void> make_loads(Workbench& bench, const std::vector<uint64_t>& delays, uint64_t bytes,
                          std::vector<std::shared_ptr<Flood>>& made) {
  const Memory memory = SKIDPROOF_TRY(bench.allocate(bytes, true));
  for (uint64_t delay : delays) {
    auto flood = std::make_shared<Flood>();
    SKIDPROOF_CHECK(prepare_flood(bench, *flood, "paced_stream",
                                  fmt::format("lines=8,pause={}", delay), bytes,
                                  std::min(bytes, kSlice), memory));
    made.push_back(std::move(flood));
  }
  return {};
}

Expected<void> measure_loaded(Workbench& bench, const Companions& others, double seconds,
                              double from) {
  const uint64_t room = available_memory() / 4 / (others.size() + 1);
  uint64_t bytes = uint64_t{bench.effort() == Effort::kQuick ? 32u : 128u} << 20;
  while (bytes > room && bytes > (1 << 20)) bytes /= 2;
  const uint64_t window = std::min<uint64_t>(bytes, 64 << 20);
  std::vector<MemoryLoad> loads = loads_of(others.size(), bench.effort());
  std::vector<uint64_t> delays;
  for (const MemoryLoad& load : loads) {
    if (std::find(delays.begin(), delays.end(), load.delay) == delays.end())
      delays.push_back(load.delay);
  }
  std::vector<std::vector<std::shared_ptr<Flood>>> floods(others.size());
  for (size_t i = 0; i < others.size(); ++i) {
    others[i]->begin(
        [&made = floods[i], &delays, window](Workbench& own, const std::atomic<bool>&) {
          return make_loads(own, delays, window, made);
        });
  }
  const auto chase = make_chase(bench, bytes);
  Expected<void> ready;
  for (const auto& other : others) {
    if (Expected<void> answer = other->wait(bench); !answer && ready) ready = std::move(answer);
  }
  SKIDPROOF_CHECK(ready);
  SKIDPROOF_CHECK(chase);
  std::vector<Companion*> who;
  who.reserve(others.size());
  for (const auto& other : others) who.push_back(other.get());
  std::vector<Point> points;
  for (size_t i = 0; i < loads.size(); ++i) {
    const auto place = static_cast<size_t>(std::find(delays.begin(), delays.end(), loads[i].delay) -
                                           delays.begin());
    std::vector<Flood*> what;
    for (size_t n = 0; n < loads[i].streams; ++n) what.push_back(floods[n][place].get());
    Point point;
    point.what = fmt::format("latency under {} streams", loads[i].streams);
    point.by_time = true;
    point.tag = i;
    point.sample = [&bench, &who, &loads, at = *chase, what, i] {
      return sample_loaded(bench, *at, std::span(who).first(what.size()), what, loads[i]);
    };
    points.push_back(std::move(point));
  }
  SKIDPROOF_CHECK(take_by_turns(bench, points, {.relative = 0.02, .seconds = seconds}, from, 1));
  for (const Point& point : points) {
    if (bench.cancelled()) return {};
    const MemoryLoad& load = loads[point.tag];
    emit_point(bench, point, "memory.loaded_latency",
               {{"bytes", bytes},
                {"page", (*chase)->huge ? "2MiB" : "4KiB"},
                {"streams", uint64_t{load.streams}},
                {"delay", load.delay},
                {"bandwidth", load.rates.empty() ? 0 : stats::median(load.rates)}},
               In::kNs);
  }
  return {};
}

}  // namespace

Expected<void> characterize_cores(Workbench& bench) {
  const auto* native = dynamic_cast<const NativeMachine*>(&bench.machine());
  if (native == nullptr) {
    return fail(ErrorCode::kUnsupported, "other CPUs work only beside the native machine",
                "use --machine native");
  }
  const std::vector<int> order =
      order_of_help(native->allowed(), native->cpu(), [](int cpu) { return sibling_of(cpu); });
  Companions others;
  for (auto& companion :
       Companion::start_all(std::span(order).subspan(1), native->allowed(), bench.options().seed)) {
    companion ? others.push_back(std::move(*companion)) : bench.problem(companion.error());
  }
  if (bench.cancelled()) return {};
  const double seconds = bench.seconds_of_part();
  if (others.empty()) {
    for (const char* name : {"shape.core.transfer", "shape.memory.loaded_latency"}) {
      bench.unclear(name, fmt::format("this process may use CPU {} alone", native->cpu()));
    }
    return measure_scaling(bench, others, seconds, 0, 1);
  }
  {
    // Ours too has a thread of its own; this one sleeps meanwhile.
    Companions all;
    all.push_back(
        SKIDPROOF_TRY(Companion::start(native->cpu(), native->allowed(), bench.options().seed)));
    std::move(others.begin(), others.end(), std::back_inserter(all));
    const Expected<void> measured =
        measure_transfer(bench, all, kTransferShare * seconds, kTransferShare);
    others.assign(std::make_move_iterator(all.begin() + 1), std::make_move_iterator(all.end()));
    if (!measured) bench.problem(measured.error());
  }
  if (bench.cancelled()) return {};
  const double before = kTransferShare + kScalingShare;
  if (auto measured =
          measure_scaling(bench, others, kScalingShare * seconds, kTransferShare, before);
      !measured) {
    bench.problem(measured.error());
  }
  if (bench.cancelled()) return {};
  return measure_loaded(bench, others, (1 - before) * seconds, before);
}

}  // namespace skidproof
