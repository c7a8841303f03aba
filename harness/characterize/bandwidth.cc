// Bandwidth of one CPU: loads, stores and copies of every width, and by repeated string instructions, through windows from the first-level cache to memory.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string_view>

#include "harness/characterize/company.h"
#include "harness/characterize/parts.h"
#include "harness/characterize/plan.h"
#include "pebs/told.h"

namespace skidproof {
namespace {

constexpr uint64_t kSharedWindow = uint64_t{16} << 20;  // a last level may hold it, for a while
// Of larger windows a run takes one such slice, each the one behind the last, whichever stream that was: what it meets was touched
// a whole window ago, as in a pass through all of it, which would take up to a tenth of a second.
constexpr uint64_t kWindowSlice = uint64_t{128} << 20;
constexpr uint64_t kWhole = 64 << 10;  // bytes; a slice is of whole turns of each stream
constexpr uint64_t kOfEveryWidth = uint64_t{64} << 20;  // by default

struct Stream {
  const char* measurement;
  const char* name;       // parameters.kind, before the width
  const char* kind;       // of the kernel
  bool repeated = false;  // one string instruction, which has no width
  uint64_t streams = 1;   // parts of the window that are walked side by side
  // Accesses of a turn, not as many as 2 KiB hold: what the ports do at most takes long bodies, while prefetchers that learn
  // by an access's address in the code have fewer to learn in a tight loop, and can double the bandwidth of 256 KiB.
  uint64_t tight = 0;
};

constexpr std::array<Stream, 14> kStreams = {{
    {"load.bandwidth", "regular", "load"},
    {"load.bandwidth", "tight", "load", false, 1, 4},
    {"load.bandwidth", "striped", "load", false, 8},
    {"store.bandwidth", "regular", "store"},
    {"store.bandwidth", "tight", "store", false, 1, 4},
    {"store.bandwidth", "non-temporal", "store-nontemporal"},
    {"store.bandwidth", "non-temporal-tight", "store-nontemporal", false, 1, 4},
    {"store.bandwidth", "rep-stosb", "stosb", true},
    {"copy.bandwidth", "regular", "copy"},
    {"copy.bandwidth", "tight", "copy", false, 1, 4},
    {"copy.bandwidth", "non-temporal", "copy-nontemporal"},
    {"copy.bandwidth", "non-temporal-tight", "copy-nontemporal", false, 1, 4},
    {"copy.bandwidth", "non-temporal-striped", "copy-nontemporal", false, 8},
    {"copy.bandwidth", "rep-movsb", "movsb", true},
}};
constexpr std::array<uint64_t, 4> kWidths = {8, 16, 32, 64};

// Where the streams of one window run.
struct WindowPlaces {
  uint64_t window = 0;
  uint64_t each = 0;   // bytes of a run's pass: the window, or a slice of it
  uint64_t least = 0;  // bytes of slices that settle a stream
  std::vector<Memory> memory;
  size_t turn = 0;  // of slices
  bool slices() const { return each < window; }
};

struct Flow {
  const Stream* stream = nullptr;
  uint64_t width = 0;
  std::vector<Workpiece> pieces;  // the same in each of them
  size_t turn = 0;
  uint64_t iterations = 1;
  uint64_t laps = 1;  // of a run
};

std::vector<uint64_t> default_windows(Effort effort) {
  std::vector<uint64_t> sizes = {16 << 10, 256 << 10, 4 << 20, 64 << 20};
  if (effort != Effort::kQuick) sizes.push_back(256 << 20);
  return sizes;
}

std::string kind_of(const Flow& flow) {
  return flow.stream->repeated ? flow.stream->name
                               : fmt::format("{}-{}", flow.stream->name, flow.width);
}

bool missing(const Error& error) { return error.code == ErrorCode::kUnsupported; }

// How long one run is. From memory one pass differs from the next by a tenth where others use it, too.
double run_ns(const Workbench& bench, uint64_t window) {
  constexpr double kOfMemory = 4e6;
  const bool steady = window <= kSharedWindow || bench.effort() == Effort::kQuick;
  return steady || !on_silicon(bench) ? usual_run_ns(bench) : kOfMemory;
}

Expected<WindowPlaces> make_places(const Workbench& bench, uint64_t window) {
  WindowPlaces places{.window = window, .each = window};
  const auto room = [](uint64_t bytes) { return 2 * bytes + 8192; };  // a copy's target, too
  if (on_silicon(bench) && window > kWindowSlice) {
    const uint64_t many = (window + kWindowSlice - 1) / kWindowSlice;
    places.each = window / many / kWhole * kWhole;
    if (const auto last = told_cache(bench.machine(), 3))
      places.least = std::min(last->bytes, window);
    const Memory all = SKIDPROOF_TRY(bench.allocate(many * room(places.each), true));
    for (uint64_t i = 0; i < many; ++i) {
      Memory slice = all;
      slice.host = all.host.subspan(i * room(places.each), room(places.each));
      slice.address += i * room(places.each);
      places.memory.push_back(std::move(slice));
    }
    return places;
  }
  // Of windows that a last level may hold as well: stores of 4 MiB gave 84, 94, 100 and 105 GB/s in four places, time and again.
  const size_t many = places_of(bench, window, kSharedWindow);
  while (places.memory.size() < many)
    places.memory.push_back(SKIDPROOF_TRY(bench.allocate(room(window), true)));
  return places;
}

Expected<std::shared_ptr<Flow>> make_flow(const Workbench& bench, const Stream& stream,
                                          uint64_t width, const WindowPlaces& places, Fill fill) {
  auto flow = std::make_shared<Flow>(Flow{.stream = &stream, .width = width});
  const std::string parameters =
      stream.repeated
          ? fmt::format("kind={},bytes={}", stream.kind, places.each)
          : fmt::format("kind={},width={},window={},unroll={},streams={}", stream.kind, width,
                        places.each,
                        stream.tight != 0 ? stream.tight
                                          : std::min<uint64_t>(64, 2048 / width) / stream.streams,
                        stream.streams);
  flow->pieces.push_back(SKIDPROOF_TRY(bench.prepare(
      stream.repeated ? "rep_string" : "memory_stream", parameters, places.memory[0], fill)));
  for (size_t i = 1; i < places.memory.size(); ++i)
    flow->pieces.push_back(SKIDPROOF_TRY(bench.elsewhere(flow->pieces[0], places.memory[i], fill)));
  if (places.slices()) return flow;
  flow->iterations =
      SKIDPROOF_TRY(bench.iterations_for(run_ns(bench, places.window), flow->pieces[0]));
  if (places.window <= kOfACore) flow->laps = usual_laps(bench, flow->iterations);
  return flow;
}

// Until caches hold of the window what this stream leaves in them. A core's own ones do after one pass. Shared ones may learn
// what is worth keeping of a window that is larger than they are: on Zen 5, loads of twice the last level got faster by two
// fifths over some fifteen passes, and lost that to a stream of another order. Of 4 MiB it keeps more for some sixty, where
// others want it, too. Of slices as many as a last level is said to hold, which the stream before left full of what it stored. The
// piece to be measured then.
Expected<const Workpiece*> settle(const Workbench& bench, Flow& flow, WindowPlaces& places) {
  constexpr int kPasses = 64;
  size_t& turn = places.slices() ? places.turn : flow.turn;
  const auto next = [&] { return &flow.pieces[turn++ % flow.pieces.size()]; };
  const auto most = std::chrono::milliseconds(bench.effort() == Effort::kQuick ? 1 : 12);
  const auto began = std::chrono::steady_clock::now();
  const int passes = places.window > kOfACore && on_silicon(bench) ? kPasses : 1;
  const Workpiece* piece = next();
  for (int i = 0; i < passes && !bench.cancelled(); ++i) {
    SKIDPROOF_CHECK(bench.run(*piece, 1));
    if (places.slices()) piece = next();
    const bool long_enough = std::chrono::steady_clock::now() - began > most;
    if (long_enough && (static_cast<uint64_t>(i) + 1) * places.each >= places.least) break;
  }
  return piece;
}

// Beyond a core's own caches every width waits for what is there, and each pass takes its time: the usual width alone.
bool usual_width_alone(const Workbench& bench, uint64_t window) {
  if (bench.effort() == Effort::kQuick) return window > kOfACore;
  return bench.effort() == Effort::kDefault && bench.options().bandwidth_bytes.empty() &&
         window > kOfEveryWidth;
}

// All streams of each window by turns, in the same places.
Expected<void> measure_window(Workbench& bench, Company& company, uint64_t window, double from,
                              double to, double seconds) {
  WindowPlaces places = SKIDPROOF_TRY(make_places(bench, window));
  std::vector<Point> points;
  std::vector<std::shared_ptr<Flow>> flows;
  for (const Stream& stream : kStreams) {
    for (uint64_t width : kWidths) {
      if (bench.cancelled()) return {};
      if (stream.repeated && width != kWidths[0]) continue;
      const uint64_t usual = host_supports(Isa::kAvx) ? 32 : 16;
      if (usual_width_alone(bench, window) && !stream.repeated && width != usual) continue;
      // Several streams are what prefetchers can follow at a time, which matters where they fetch from afar.
      if (stream.streams > 1 && (window <= kOfACore || width < usual)) continue;
      if (stream.tight != 0 && width < usual) continue;
      // None of them looks at what it moves.
      auto made =
          make_flow(bench, stream, width, places, flows.empty() ? Fill::kItsOwn : Fill::kAnothers);
      if (!made) {
        if (!missing(made.error()))
          bench.problem(made.error());  // what this CPU has not is no problem
        continue;
      }
      Point point;
      point.what = fmt::format("bandwidth, {} KiB", window >> 10);
      point.by_time = window > kOfACore;
      point.figure = Statistic::kLowerQuartile;  // of its time: the upper one of its bandwidth
      point.race = stream.measurement;
      point.tag = flows.size();
      point.sample = [&bench, &company, &places, flow = *made]() -> Expected<Sample> {
        const Workpiece* piece = SKIDPROOF_TRY(settle(bench, *flow, places));
        const bool own = places.window <= kOfACore;
        const unsigned tries = own ? 6 : places.window <= kSharedWindow ? 3 : 1;
        const auto once = [&] {
          return bench.sample(tries, *piece, flow->iterations, {.count = flow->laps});
        };
        const Sample sample = own ? SKIDPROOF_TRY(company.watch(once)) : SKIDPROOF_TRY(once());
        return sample.per(static_cast<double>(flow->iterations * places.each));
      };
      flows.push_back(*made);
      points.push_back(std::move(point));
    }
  }
  // Of what neighbours use, too, the best of a race are to have the interval of a quartile, even where all took the time.
  const bool shared = window > kOfACore && bench.effort() != Effort::kQuick;
  SKIDPROOF_CHECK(take_by_turns(bench, points,
                                {.relative = 0.01,
                                 .least = shared ? kOfAQuartile : Goal{}.least,
                                 .seconds = seconds,
                                 .span = usual_span(bench)},
                                from, to));
  const bool huge = std::ranges::all_of(places.memory, &Memory::huge_pages);
  for (Point& point : points) {
    company.drop_from(point);
    const Flow& flow = *flows[point.tag];
    const MeasurementParameters said = parameters_of(
        point, {{"bytes", window}, {"kind", kind_of(flow)}, {"page", huge ? "2MiB" : "4KiB"}});
    const auto emit_in = [&](const char* unit, const std::vector<double>& of_a_byte) {
      std::vector<double> rates;
      rates.reserve(of_a_byte.size());
      for (double cost : of_a_byte) rates.push_back(1 / cost);
      Measurement row = measurement_of(Statistic::kUpperQuartile, flow.stream->measurement, unit,
                                       rates, said, point.noise);
      row.counts = counts_of(bench, point, rates, Statistic::kUpperQuartile);
      bench.emit(std::move(row));
    };
    emit_in("GB/s", point.ns);  // bytes in a nanosecond
    // What a core's own caches give goes with its clock, which drifts.
    if (window <= kOfACore) emit_in("B/cycle", point.cycles);
  }
  return {};
}

}  // namespace

Expected<void> characterize_bandwidth(Workbench& bench) {
  SKIDPROOF_CHECK(bench.count(kOfLoads));
  std::vector<uint64_t> sizes = bench.options().bandwidth_bytes;
  if (sizes.empty()) sizes = default_windows(bench.options().effort);
  Company company = SKIDPROOF_TRY(Company::create(bench));
  company.set_patience(kPatienceShare * bench.seconds_of_part(), kSamplePatience);
  const auto count = static_cast<double>(sizes.size());
  for (size_t i = 0; i < sizes.size() && !bench.cancelled(); ++i) {
    const double from = static_cast<double>(i) / count;
    const double seconds =
        std::max(0.0, bench.seconds_left()) / static_cast<double>(sizes.size() - i);
    const auto measured = measure_window(bench, company, sizes[i], from, from + 1 / count, seconds);
    if (!measured) bench.problem(measured.error());
  }
  return {};
}

}  // namespace skidproof
