// Stores and loads that meet: what a load of just stored bytes costs and where it must wait for the cache, addresses that
// look alike in their low bits, and accesses that lie across a border.
#include "harness/characterize/forwarding.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <utility>

#include "harness/characterize/parts.h"
#include "harness/characterize/plan.h"

namespace skidproof {
namespace {

constexpr uint64_t kTrips = 16;
constexpr double kTripNs = 6e3;
constexpr unsigned kTripTries = 4;
constexpr int kBorderAt =
    1024;  // a line's border in the data; the widest cases reach 128 bytes to either side
// The shares of the part's time.
constexpr double kMatrixShare = 0.8, kAliasShare = 0.1;

struct Meeting {
  ForwardingCase at;
  const char* address = "two registers";
  Workpiece piece;  // shares code and data with others of its widths
  uint64_t iterations = 1;
};

std::vector<int> widths_here(Effort effort) {
  std::vector<int> widths = effort == Effort::kThorough  ? std::vector{1, 2, 4, 8, 16}
                            : effort == Effort::kDefault ? std::vector{1, 4, 8, 16}
                                                         : std::vector{4, 8, 16};
  if (host_supports(Isa::kAvx)) widths.push_back(32);
  if (host_supports(Isa::kAvx512) && effort != Effort::kQuick) widths.push_back(64);
  return widths;
}

std::string forward_parameters(const ForwardingCase& c, int store_at, std::string_view more) {
  return fmt::format("store={},load={},store_at={},load_at={},trips={}{}", c.store_bytes,
                     c.load_bytes, store_at, store_at + c.offset, kTrips, more);
}

// One program for each pair of widths, generated for the farthest place.
Expected<Workpiece> prepare_widths(const Workbench& bench, const ForwardingCase& c) {
  return bench.prepare(
      "store_forward",
      fmt::format("store={},load={},store_at={},load_at={},trips={}", c.store_bytes, c.load_bytes,
                  2 * kBorderAt, 2 * kBorderAt, kTrips));
}

Point trip_point(const Workbench& bench, const std::shared_ptr<Meeting>& meeting, size_t tag) {
  Point point;
  point.what =
      fmt::format("forwarding, {} to {} bytes", meeting->at.store_bytes, meeting->at.load_bytes);
  point.tag = tag;
  point.sample = [&bench, meeting]() -> Expected<Sample> {
    SKIDPROOF_CHECK(bench.refill(meeting->piece, bench.options().seed));
    const Sample sample =
        SKIDPROOF_TRY(bench.sample(kTripTries, meeting->piece, meeting->iterations));
    return sample.per(static_cast<double>(meeting->iterations * kTrips));
  };
  return point;
}

// The places of a case are data of a program that others share.
Expected<std::shared_ptr<Meeting>> meet(const Workbench& bench, const ForwardingCase& c,
                                        const Workpiece& shared) {
  auto meeting = std::make_shared<Meeting>(Meeting{.at = c, .piece = shared});
  meeting->piece.params = SKIDPROOF_TRY(
      Params::parse(shared.kernel->parameters, forward_parameters(c, c.store_at(kBorderAt), "")));
  SKIDPROOF_CHECK(bench.refill(meeting->piece, bench.options().seed));
  meeting->iterations = SKIDPROOF_TRY(bench.iterations_for(kTripNs, meeting->piece));
  return meeting;
}

// The same address by the same register: what processors that rename memory see before either is executed.
Expected<std::shared_ptr<Meeting>> meet_by_one_register(const Workbench& bench, int bytes) {
  auto meeting =
      std::make_shared<Meeting>(Meeting{.at = {bytes, bytes, 0, false}, .address = "one register"});
  meeting->piece = SKIDPROOF_TRY(bench.prepare(
      "store_forward",
      forward_parameters(meeting->at, meeting->at.store_at(kBorderAt), ",bases=one")));
  meeting->iterations = SKIDPROOF_TRY(bench.iterations_for(kTripNs, meeting->piece));
  return meeting;
}

Expected<void> measure_matrix(Workbench& bench) {
  const std::vector<int> widths = widths_here(bench.effort());
  std::vector<std::shared_ptr<Meeting>> meetings;
  Workpiece shared;
  ForwardingCase last{0, 0, 0, false};
  for (const ForwardingCase& c : forwarding_cases(widths, bench.effort() != Effort::kQuick,
                                                  bench.effort() == Effort::kThorough)) {
    if (bench.cancelled()) return {};
    if (c.store_bytes != last.store_bytes || c.load_bytes != last.load_bytes) {
      shared = SKIDPROOF_TRY(prepare_widths(bench, c));
      last = c;
    }
    meetings.push_back(SKIDPROOF_TRY(meet(bench, c, shared)));
  }
  for (int bytes : widths) meetings.push_back(SKIDPROOF_TRY(meet_by_one_register(bench, bytes)));
  std::vector<Point> points;
  for (size_t i = 0; i < meetings.size(); ++i) points.push_back(trip_point(bench, meetings[i], i));
  SKIDPROOF_CHECK(take_by_turns(
      bench, points, {.relative = 0.02, .seconds = kMatrixShare * bench.seconds_of_part()}, 0,
      kMatrixShare));
  std::vector<Measurement> rows;
  std::vector<ForwardingCost> costs;
  for (const Point& point : points) {
    if (point.cycles.empty()) continue;
    const Meeting& meeting = *meetings[point.tag];
    const ForwardingCase& c = meeting.at;
    rows.push_back(median_measurement("store.forwarding", "cycles", point.cycles,
                                      {{"store_bytes", static_cast<uint64_t>(c.store_bytes)},
                                       {"load_bytes", static_cast<uint64_t>(c.load_bytes)},
                                       {"offset", static_cast<double>(c.offset)},
                                       {"place", c.across ? "across lines" : "line"},
                                       {"address", meeting.address}},
                                      point.noise));
    rows.back().counts = counts_of(bench, point, point.cycles);
    // By one register is no level of the others: it may cost nothing at all.
    const bool judged = meeting.piece.params.word("bases") == "two";
    if (judged) costs.push_back({c, rows.back().value, rows.back().low, rows.back().high});
  }
  const std::vector<std::string> verdicts = judge_forwarding(costs);
  size_t next = 0;
  for (Measurement& row : rows) {
    if (std::get<std::string>(row.parameters["address"]) == "two registers")
      row.parameters["verdict"] = verdicts[next++];
    bench.emit(std::move(row));
  }
  return {};
}

// Loads, each behind a store to another address, which agrees with it in its low bits or not. Where only those are compared at
// first, such a load comes later (a chain of loads by their addresses shows it) or waits for the store's data, which come
// from the load before (a chain by data, which is none otherwise).
Expected<void> measure_alias(Workbench& bench) {
  std::vector<uint64_t> offsets = {2048,     4096 - 64, 4096 - 8, 4096,
                                   4096 + 8, 4096 + 64, 8192,     65536};
  if (bench.effort() == Effort::kQuick) offsets = {2048, 4096, 4096 + 64, 65536};
  if (bench.effort() == Effort::kThorough) {
    for (uint64_t delta : {1, 2, 4, 7, 16, 32})
      offsets.insert(offsets.end(), {4096 - delta, 4096 + delta});
    offsets.insert(offsets.end(), {16384, 32768, 131072, 524288});
  }
  std::vector<Point> points;
  std::vector<MeasurementParameters> parameters;
  for (const char* chain : {"address", "data"}) {
    for (uint64_t offset : offsets) {
      if (bench.cancelled()) return {};
      const ForwardingCase c{8, 8, static_cast<int>(offset), false};
      auto meeting = std::make_shared<Meeting>(Meeting{.at = c});
      meeting->piece = SKIDPROOF_TRY(bench.prepare(
          "store_forward", forward_parameters(c, kBorderAt, fmt::format(",chain={}", chain))));
      meeting->iterations = SKIDPROOF_TRY(bench.iterations_for(kTripNs, meeting->piece));
      points.push_back(trip_point(bench, meeting, parameters.size()));
      points.back().what = fmt::format("aliases, {} bytes apart", offset);
      parameters.push_back({{"offset", offset}, {"chain", chain}});
    }
  }
  SKIDPROOF_CHECK(take_by_turns(
      bench, points, {.relative = 0.02, .seconds = kAliasShare * bench.seconds_of_part()},
      kMatrixShare, kMatrixShare + kAliasShare));
  for (const Point& point : points) {
    emit_point(bench, point, "store.alias_4k", parameters[point.tag], In::kCycles);
  }
  return {};
}

struct Split {
  const char* kind;
  const char* border;
  uint64_t bytes;
  Workpiece piece;
  uint64_t iterations = 1, unroll = 1;
};

// Few where each has a page of its own: their lines share the sets of a cache.
uint64_t splits_of(std::string_view border) { return border == "page" ? 4 : 16; }

Expected<void> measure_splits(Workbench& bench) {
  std::vector<Point> points;
  std::vector<std::shared_ptr<Split>> splits;
  for (const char* kind : {"load", "store"}) {
    for (const char* border : {"none", "line", "page"}) {
      for (int width : widths_here(bench.effort())) {
        if (width < 8) continue;
        if (bench.cancelled()) return {};
        auto split = std::make_shared<Split>(
            Split{.kind = kind, .border = border, .bytes = static_cast<uint64_t>(width)});
        split->unroll = splits_of(border);
        split->piece = SKIDPROOF_TRY(
            bench.prepare("split_access", fmt::format("kind={},border={},width={},unroll={}", kind,
                                                      border, width, split->unroll)));
        split->iterations = SKIDPROOF_TRY(bench.iterations_for(kTripNs, split->piece));
        Point point;
        point.what = fmt::format("split {}s, {} bytes", kind, width);
        point.tag = splits.size();
        point.sample = [&bench, split]() -> Expected<Sample> {
          const Sample sample =
              SKIDPROOF_TRY(bench.sample(kTripTries, split->piece, split->iterations));
          return sample.per(static_cast<double>(split->iterations * split->unroll));
        };
        points.push_back(std::move(point));
        splits.push_back(std::move(split));
      }
    }
  }
  const double before = kMatrixShare + kAliasShare;
  SKIDPROOF_CHECK(take_by_turns(
      bench, points, {.relative = 0.02, .seconds = (1 - before) * bench.seconds_of_part()}, before,
      1));
  for (const Point& point : points) {
    const Split& split = *splits[point.tag];
    emit_point(bench, point, fmt::format("split.{}", split.kind),
               {{"border", split.border}, {"bytes", split.bytes}}, In::kCycles);
  }
  return {};
}

}  // namespace

Expected<void> characterize_forwarding(Workbench& bench) {
  SKIDPROOF_CHECK(bench.count({arch::Signal::kLoads, arch::Signal::kStores,
                               arch::Signal::kSplitLoads, arch::Signal::kSplitStores}));
  SKIDPROOF_CHECK(measure_matrix(bench));
  if (bench.cancelled()) return {};
  SKIDPROOF_CHECK(measure_alias(bench));
  if (bench.cancelled()) return {};
  return measure_splits(bench);
}

}  // namespace skidproof
