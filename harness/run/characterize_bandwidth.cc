// Bandwidth of streams: regular stores of 8, 16 and 32 bytes, non-temporal stores, and loads,
// through windows from the first-level cache to memory.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "harness/run/noise.h"
#include "harness/run/workbench.h"

namespace skidproof {
namespace {

constexpr uint64_t kUnroll = 32;
constexpr double kRunNs = 3e5;

struct Stream {
  const char* measurement;
  const char* kind;  // parameters.kind
  const char* kernel;
  const char* choice;  // of the kernel
  uint64_t width;      // bytes
};

constexpr std::array<Stream, 9> kStreams = {{
    {"store.bandwidth", "regular-8", "store_stream", "kind=regular", 8},
    {"store.bandwidth", "regular-16", "store_stream", "kind=regular", 16},
    {"store.bandwidth", "regular-32", "store_stream", "kind=regular", 32},
    {"store.bandwidth", "non-temporal-8", "store_stream", "kind=nontemporal", 8},
    {"store.bandwidth", "non-temporal-16", "store_stream", "kind=nontemporal", 16},
    {"store.bandwidth", "non-temporal-32", "store_stream", "kind=nontemporal", 32},
    {"load.bandwidth", "regular-8", "load_stream", "", 8},
    {"load.bandwidth", "regular-16", "load_stream", "", 16},
    {"load.bandwidth", "regular-32", "load_stream", "", 32},
}};

struct Point {
  const Stream* stream = nullptr;
  Workpiece piece;
  uint64_t iterations = 1;
  std::vector<double> gigabytes;  // per second
  Noise noise;
};

std::vector<uint64_t> default_sizes(bool quick) {
  std::vector<uint64_t> sizes = {16 << 10, 256 << 10, 4 << 20, 64 << 20};
  if (!quick) sizes.push_back(256 << 20);
  return sizes;
}

Expected<Point> make_point(const Workbench& bench, const Stream& stream, uint64_t bytes,
                           const Memory& memory) {
  Point point{.stream = &stream};
  const std::string choice = *stream.choice == '\0' ? "" : fmt::format(",{}", stream.choice);
  point.piece =
      SKIDPROOF_TRY(bench.prepare(stream.kernel,
                                  fmt::format("width={},stride={},window={},unroll={}{}",
                                              stream.width, stream.width, bytes, kUnroll, choice),
                                  memory));
  // Whole passes, so that every part of the window counts alike.
  const uint64_t pass = std::max<uint64_t>(1, bytes / (kUnroll * stream.width));
  const auto some = [&](uint64_t iterations) { return bench.run(point.piece, iterations); };
  const uint64_t iterations = SKIDPROOF_TRY(iterations_for(bench, kRunNs, some));
  point.iterations = (iterations + pass - 1) / pass * pass;
  return point;
}

Expected<void> take_sample(const Workbench& bench, Point& point) {
  // Once to bring the window where it will stay: another stream has had the caches since. A single
  // pass over a window beyond the caches is long, and two of them are enough.
  SKIDPROOF_CHECK(bench.run(point.piece, point.iterations));
  const unsigned tries = point.piece.params["window"] > (16 << 20) ? 2 : 5;
  const Sample sample =
      SKIDPROOF_TRY(bench.sample(tries, [&] { return bench.run(point.piece, point.iterations); }));
  const auto bytes = static_cast<double>(point.iterations * kUnroll * point.stream->width);
  point.gigabytes.push_back(bytes / sample.ns);
  point.noise = point.noise + sample.noise;
  return {};
}

// All streams through one window, in turns, over the same memory.
Expected<void> measure_window(Workbench& bench, uint64_t bytes, double from, double to) {
  constexpr size_t kTail = 64 << 10;  // what the kernels touch beyond the window
  const Memory memory = SKIDPROOF_TRY(bench.allocate(bytes + kTail, true));
  std::vector<Point> points;
  for (const Stream& stream : kStreams) {
    if (bench.cancelled()) return {};
    auto point = make_point(bench, stream, bytes, memory);
    if (!point) {
      bench.problem(point.error());
      continue;
    }
    points.push_back(std::move(*point));
  }
  const unsigned repetitions = bench.repetitions();
  for (unsigned i = 0; i < repetitions; ++i) {
    for (Point& point : points) {
      if (bench.cancelled()) return {};
      bench.progress(from + (to - from) * i / repetitions,
                     fmt::format("bandwidth, {} KiB", bytes >> 10));
      SKIDPROOF_CHECK(take_sample(bench, point));
    }
  }
  for (const Point& point : points) {
    bench.emit(median_measurement(point.stream->measurement, "GB/s", point.gigabytes,
                                  {{"bytes", bytes},
                                   {"kind", point.stream->kind},
                                   {"page", memory.huge_pages ? "2MiB" : "4KiB"}},
                                  point.noise));
  }
  return {};
}

}  // namespace

Expected<void> characterize_bandwidth(Workbench& bench) {
  std::vector<uint64_t> sizes = bench.options().bandwidth_bytes;
  if (sizes.empty()) sizes = default_sizes(bench.options().quick);
  const auto count = static_cast<double>(sizes.size());
  for (size_t i = 0; i < sizes.size() && !bench.cancelled(); ++i) {
    const double from = static_cast<double>(i) / count;
    const auto measured = measure_window(bench, sizes[i], from, from + 1 / count);
    if (!measured) bench.problem(measured.error());
  }
  return {};
}

}  // namespace skidproof
