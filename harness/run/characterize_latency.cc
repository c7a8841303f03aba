// The latency staircase: one dependent load after another through a random cycle of cache lines,
// over working sets from the first-level cache to memory, on 4 KiB and on 2 MiB pages.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "harness/run/guarded_memory.h"
#include "harness/run/noise.h"
#include "harness/run/workbench.h"

namespace skidproof {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kChaseUnroll = 16;
// Working sets up to this are all alive at once and sampled in turns; larger ones one size at a
// time.
constexpr uint64_t kTogether = uint64_t{16} << 20;
// Before each sample the working set is walked once, as far as this: beyond, it fits in no cache
// that a walk could warm.
constexpr uint64_t kMostWarmingLoads = 256 << 10;
constexpr double kChaseNs = 3e5;
// Up to about here a core's own caches answer. What disturbs them (a sibling thread, of another
// guest too) comes and goes, so that more short runs find a quiet one.
constexpr uint64_t kPrivate = uint64_t{2} << 20;

struct Footprint {
  uint64_t bytes = 0;
  bool huge = false;
  Workpiece piece;
  uint64_t iterations = 1;
  std::vector<double> ns, cycles;
  Noise noise;
};

std::string size_text(uint64_t bytes) {
  if (bytes >= (1 << 20) && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} KiB", static_cast<double>(bytes) / 1024);
}

std::vector<uint64_t> default_footprints(bool quick) {
  std::vector<uint64_t> sizes;
  const uint64_t largest = uint64_t{quick ? 64u : 256u} << 20;
  for (uint64_t bytes = 4096; bytes <= largest; bytes *= 2) {
    sizes.push_back(bytes);
    if (!quick && bytes < kTogether) sizes.push_back(bytes + bytes / 2);
  }
  return sizes;
}

// Walks on from where the last run stopped: from the start again, a short walk through a large set
// would only meet what the last one left in the caches. The result of a chase is its next pointer.
Expected<RunLog> walk(const Workbench& bench, Footprint& point, uint64_t iterations) {
  const RunLog log = SKIDPROOF_TRY(bench.run(point.piece, iterations));
  point.piece.program.data_address = log.result;
  point.piece.program.data_bytes = sizeof(uint64_t);
  return log;
}

Expected<void> warm(const Workbench& bench, Footprint& point) {
  const uint64_t loads = std::min(point.bytes / kLine, kMostWarmingLoads);
  SKIDPROOF_CHECK(walk(bench, point, loads / kChaseUnroll + 1));
  return {};
}

Expected<Footprint> make_footprint(const Workbench& bench, uint64_t bytes, bool huge) {
  const Memory memory = SKIDPROOF_TRY(bench.allocate(bytes, huge));
  if (huge && !memory.huge_pages) {
    return fail(ErrorCode::kNotAvailable,
                fmt::format("the kernel gave no 2 MiB pages for {}", size_text(bytes)),
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; echo 1 > "
                "/proc/sys/vm/compact_memory");
  }
  Footprint point{.bytes = bytes, .huge = huge};
  point.piece = SKIDPROOF_TRY(bench.prepare(
      "pointer_chase", fmt::format("bytes={},granularity={},unroll={}", bytes, kLine, kChaseUnroll),
      memory));
  SKIDPROOF_CHECK(warm(bench, point));
  const auto some = [&](uint64_t iterations) { return walk(bench, point, iterations); };
  point.iterations = SKIDPROOF_TRY(iterations_for(bench, kChaseNs, some));
  return point;
}

Expected<void> sample_chase(const Workbench& bench, Footprint& point) {
  SKIDPROOF_CHECK(warm(bench, point));
  const Sample sample = SKIDPROOF_TRY(bench.sample(
      point.bytes <= kPrivate ? 10 : 5, [&] { return walk(bench, point, point.iterations); }));
  const auto loads = static_cast<double>(point.iterations * kChaseUnroll);
  point.ns.push_back(sample.ns / loads);
  point.cycles.push_back(sample.cycles / loads);
  point.noise = point.noise + sample.noise;
  return {};
}

void emit(const Workbench& bench, const Footprint& point) {
  const MeasurementParameters parameters = {{"bytes", point.bytes},
                                            {"page", point.huge ? "2MiB" : "4KiB"}};
  bench.emit(median_measurement("memory.latency", "ns", point.ns, parameters, point.noise));
  bench.emit(median_measurement("memory.latency", "cycles", point.cycles, parameters, point.noise));
}

// Samples these sizes, on both kinds of page, in turns.
Expected<void> measure_together(Workbench& bench, const std::vector<uint64_t>& sizes, double from,
                                double to) {
  std::vector<Footprint> points;
  for (uint64_t bytes : sizes) {
    for (bool huge : {false, true}) {
      if (bench.cancelled()) return {};
      auto point = make_footprint(bench, bytes, huge);
      if (!point) {
        bench.problem(point.error());
        continue;
      }
      points.push_back(std::move(*point));
    }
  }
  const unsigned repetitions = bench.repetitions();
  for (unsigned i = 0; i < repetitions; ++i) {
    for (Footprint& point : points) {
      if (bench.cancelled()) return {};
      bench.progress(from + (to - from) * i / repetitions,
                     fmt::format("latency, {}", size_text(point.bytes)));
      SKIDPROOF_CHECK(sample_chase(bench, point));
    }
  }
  for (const Footprint& point : points) emit(bench, point);
  return {};
}

}  // namespace

Expected<void> characterize_latency(Workbench& bench) {
  std::vector<uint64_t> sizes = bench.options().latency_bytes;
  if (sizes.empty()) sizes = default_footprints(bench.options().quick);
  std::sort(sizes.begin(), sizes.end());
  const auto large = std::upper_bound(sizes.begin(), sizes.end(), kTogether);
  const auto groups = static_cast<double>(sizes.end() - large + 1);
  SKIDPROOF_CHECK(measure_together(bench, {sizes.begin(), large}, 0, 1 / groups));
  for (auto size = large; size != sizes.end() && !bench.cancelled(); ++size) {
    const double done = static_cast<double>(size - large + 1) / groups;
    SKIDPROOF_CHECK(measure_together(bench, {*size}, done, done + 1 / groups));
  }
  return {};
}

}  // namespace skidproof
