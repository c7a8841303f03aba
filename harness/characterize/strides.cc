// What prefetchers do for loads at a constant distance, and what they do not for random ones: the same dependent loads over
// a working set that no private cache holds, in order and in none, by distance.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "harness/characterize/parts.h"
#include "harness/characterize/plan.h"
#include "pebs/told.h"

namespace skidproof {
namespace {

constexpr double kStrideRunNs = 2e5;

struct Walk {
  uint64_t stride = 64;
  const char* order = "forward";
  Workpiece chase;
  uint64_t iterations = 1;
};

Expected<CountedRun> go_on(const Workbench& bench, Walk& walk, uint64_t iterations) {
  const CountedRun log = SKIDPROOF_TRY(bench.run(walk.chase, iterations));
  walk.chase.program.data_address = log.result;
  walk.chase.program.data_bytes = sizeof(uint64_t);
  return log;
}

// Four times the second-level cache, where it is said how large that is.
uint64_t working_set(const Workbench& bench) {
  const auto l2 = told_cache(bench.machine(), 2);
  uint64_t bytes = uint64_t{16} << 20;
  while (l2 && bytes < 4 * l2->bytes && bytes < uint64_t{256} << 20) bytes *= 2;
  return bytes;
}

}  // namespace

Expected<void> characterize_strides(Workbench& bench) {
  SKIDPROOF_CHECK(bench.count(kOfLoads));
  const uint64_t bytes = working_set(bench);
  const bool quick = bench.effort() == Effort::kQuick;
  std::vector<Point> points;
  std::vector<std::shared_ptr<Walk>> walks;
  bool huge = true;
  for (uint64_t stride = 64; stride <= 4096; stride *= quick ? 8 : 2) {
    for (const char* order : {"forward", "backward", "random"}) {
      if (bench.cancelled()) return {};
      // A set of its own for each: pointers of several cannot share one.
      const Memory memory = SKIDPROOF_TRY(bench.allocate(bytes, true));
      huge = huge && memory.huge_pages;
      auto walk = std::make_shared<Walk>(Walk{.stride = stride, .order = order});
      walk->chase = SKIDPROOF_TRY(bench.prepare(
          "pointer_chase",
          fmt::format("bytes={},granularity={},order={},unroll=16", bytes, stride, order), memory));
      walk->iterations = SKIDPROOF_TRY(
          bench.iterations_for(kStrideRunNs, [&](uint64_t n) { return go_on(bench, *walk, n); }));
      Point point;
      point.what = fmt::format("strides, {} bytes, {}", stride, order);
      point.by_time = true;
      point.tag = walks.size();
      point.sample = [&bench, walk]() -> Expected<Sample> {
        const Sample sample =
            SKIDPROOF_TRY(bench.sample(3, [&] { return go_on(bench, *walk, walk->iterations); }));
        return sample.per(static_cast<double>(walk->iterations) * 16);
      };
      points.push_back(std::move(point));
      walks.push_back(std::move(walk));
    }
  }
  SKIDPROOF_CHECK(take_by_turns(bench, points, {.relative = 0.02}));
  for (const Point& point : points) {
    const Walk& walk = *walks[point.tag];
    emit_point(bench, point, "memory.stride_latency",
               {{"bytes", bytes},
                {"stride", walk.stride},
                {"order", walk.order},
                {"page", huge ? "2MiB" : "4KiB"}});
  }
  return {};
}

}  // namespace skidproof
