// The latency staircase: one dependent load after another through a random cycle of cache lines,
// over working sets from the first-level cache to memory, on 4 KiB and on 2 MiB pages.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "harness/characterize/company.h"
#include "harness/characterize/parts.h"
#include "harness/characterize/plan.h"
#include "harness/run/guarded_memory.h"
#include "harness/run/noise.h"
#include "pebs/told.h"

namespace skidproof {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kChaseUnroll = 16;
// Half steps below, doubling from here.
constexpr uint64_t kFineBelow = uint64_t{16} << 20;
constexpr uint64_t kLargest = uint64_t{1} << 30;  // of the kernel
// Working sets up to this are brought in by so many fast passes before each sample, and walked whole; of larger ones each page
// is touched, then as many times each line of the page tables, and so many lines are walked.
constexpr uint64_t kBroughtIn = uint64_t{16} << 20;
constexpr uint64_t kPasses = 4, kTablePasses = 2;
// A line of a page table is of so many pages.
constexpr uint64_t kPagesOfALine = 8;
constexpr uint64_t kChasedLoads = 32 << 10;
constexpr uint64_t kQuicklyChasedLoads = 8 << 10;
// Runs of a sample. What disturbs a core's own caches (a sibling thread, of another guest too) comes and goes, so that more runs
// find a quiet one.
constexpr unsigned kOwnTries = 10, kSharedTries = 4;
// A run may be so many times as long as is usual for it to be of whole rounds.
constexpr uint64_t kLongestOfRounds = 4;

struct WalkedPlace {
  std::optional<Workpiece> stream;  // of sets that are brought in, or whose pages are
  std::optional<Workpiece> tables;  // of these, what brings in their page tables
  Workpiece chase;
};

struct Footprint {
  uint64_t bytes = 0;
  bool huge = false;
  std::vector<WalkedPlace> places;
  size_t next = 0;  // of the places
  uint64_t iterations = 1;
  uint64_t laps = 1;  // of a run
};

std::string size_text(uint64_t bytes) {
  if (bytes >= (1 << 20) && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} KiB", static_cast<double>(bytes) / 1024);
}

// Up to half as much again as the last-level cache is said to hold, where that is more than usual.
std::vector<uint64_t> default_footprints(const Workbench& bench) {
  std::vector<uint64_t> sizes;
  const bool quick = bench.effort() == Effort::kQuick;
  const auto last = told_cache(bench.machine(), 3);
  uint64_t largest = uint64_t{quick ? 64u : 256u} << 20;
  while (!quick && last && largest < last->bytes + last->bytes / 2 && largest < kLargest)
    largest *= 2;
  for (uint64_t bytes = 4096; bytes <= largest; bytes *= 2) {
    sizes.push_back(bytes);
    if (!quick && bytes < kFineBelow) sizes.push_back(bytes + bytes / 2);
  }
  return sizes;
}

// Walks on from where the last run stopped: from the start again, a short walk through a large set
// would only meet what the last one left in the caches. The result of a chase is its next pointer.
Expected<CountedRun> walk(const Workbench& bench, Workpiece& chase, uint64_t iterations,
                          uint64_t laps = 1) {
  const CountedRun log =
      SKIDPROOF_TRY(bench.run(chase, iterations, {.count = laps, .onward = true}));
  chase.program.data_address = log.result;
  chase.program.data_bytes = sizeof(uint64_t);
  return log;
}

// By the chase itself, which leaves the caches as the measurement would. Small sets once through, of the largest some.
// What others drove out of a shared level a chase does not bring back: it comes round so slowly, with each line from memory,
// that others drive that out again, and goes on at the price of memory; a set that is there is met often enough to stay.
// Independent loads bring it back at once. So they do with translations, a hypervisor's too: beneath one of those the first
// load of each page after a while cost microseconds, and those of 256 MiB 2600 ns in place of 290. A lasting walk keeps the page
// tables in a cache, since a line of these is of many of its lines, but takes some ten thousand loads to bring them there, and a
// touch of each page drives them out again: 1 GiB cost 250 to 330 ns by what had been walked between, in place of 225.
Expected<void> warm(const Workbench& bench, WalkedPlace& place, uint64_t bytes) {
  const bool whole = bytes <= kBroughtIn;
  const uint64_t some = bench.effort() == Effort::kQuick ? kQuicklyChasedLoads : kChasedLoads;
  if (place.stream) SKIDPROOF_CHECK(bench.run(*place.stream, whole ? kPasses : 1));
  if (place.tables) SKIDPROOF_CHECK(bench.run(*place.tables, kTablePasses));
  SKIDPROOF_CHECK(walk(bench, place.chase, (whole ? bytes / kLine : some) / kChaseUnroll + 1));
  return {};
}

// How places of a set stand in memory: many small ones in one large page.
struct Room {
  uint64_t each = 0;  // bytes, of whole pages
  size_t of_a_block = 1, places = 1;
};
Room room_of(const Workbench& bench, uint64_t bytes) {
  Room room;
  room.each = (bytes + kPage - 1) / kPage * kPage;
  room.of_a_block = std::max<size_t>(1, kHugePage / room.each);
  room.places = places_of(bench, bytes);
  return room;
}

Expected<WalkedPlace> make_place(const Workbench& bench, uint64_t bytes, const Memory& memory) {
  WalkedPlace place;
  const auto each = [&](uint64_t stride) {
    return bench.prepare(
        "memory_stream",
        fmt::format("kind=load,stride={},window={},unroll=1", stride, bytes / stride * stride),
        memory, Fill::kAnothers);
  };
  if (on_silicon(bench)) {
    const bool whole = bytes <= kBroughtIn;
    place.stream = SKIDPROOF_TRY(each(whole ? kLine : kPage));
    if (!whole) place.tables = SKIDPROOF_TRY(each(kPagesOfALine * kPage));
  }
  place.chase = SKIDPROOF_TRY(bench.prepare(
      "pointer_chase", fmt::format("bytes={},granularity={},unroll={}", bytes, kLine, kChaseUnroll),
      memory));
  return place;
}

Expected<WalkedPlace> another_place(const Workbench& bench, const WalkedPlace& like,
                                    const Memory& memory) {
  WalkedPlace place;
  if (like.stream)
    place.stream = SKIDPROOF_TRY(bench.elsewhere(*like.stream, memory, Fill::kAnothers));
  if (like.tables)
    place.tables = SKIDPROOF_TRY(bench.elsewhere(*like.tables, memory, Fill::kAnothers));
  place.chase = SKIDPROOF_TRY(bench.elsewhere(like.chase, memory));
  return place;
}

Expected<std::shared_ptr<Footprint>> make_footprint(const Workbench& bench, uint64_t bytes,
                                                    bool huge) {
  auto point = std::make_shared<Footprint>(Footprint{.bytes = bytes, .huge = huge});
  const Room room = room_of(bench, bytes);
  Memory block;
  for (size_t i = 0; i < room.places; ++i) {
    const uint64_t at = i % room.of_a_block * room.each;
    if (at == 0) {
      const size_t here = std::min(room.of_a_block, room.places - i);
      block = SKIDPROOF_TRY(huge ? bench.allocate_huge(room.each, here)
                                 : bench.allocate(room.each * here, false));
    }
    Memory memory = block;
    memory.host = memory.host.subspan(at, room.each);
    memory.address += at;
    point->places.push_back(i == 0 ? SKIDPROOF_TRY(make_place(bench, bytes, memory))
                                   : SKIDPROOF_TRY(another_place(bench, point->places[0], memory)));
  }
  WalkedPlace& first = point->places[0];
  SKIDPROOF_CHECK(warm(bench, first, bytes));
  point->iterations = SKIDPROOF_TRY(bench.iterations_for(
      usual_run_ns(bench),
      [&bench, &first](uint64_t iterations) { return walk(bench, first.chase, iterations); }));
  if (bytes > kOfACore) return point;
  // Whole rounds through the set, so that a lap is of the same lines in each run.
  const uint64_t lines = bytes / kLine, round = lines / std::gcd(lines, kChaseUnroll);
  const uint64_t rounds = (point->iterations + round - 1) / round;
  if (rounds * round > kLongestOfRounds * point->iterations) return point;
  point->iterations = rounds * round;
  point->laps = usual_laps(bench, point->iterations);
  return point;
}

Point chase_point(const Workbench& bench, const std::shared_ptr<Footprint>& at,
                  const std::shared_ptr<Company>& company) {
  Point point;
  point.what = fmt::format("latency, {}", size_text(at->bytes));
  point.by_time = at->bytes > kOfACore;
  // What disturbs only makes dearer, and a busy sibling thread stays for more than half of the samples at times.
  point.figure = Statistic::kLowerQuartile;
  if (at->places.size() > 1) point.least = static_cast<unsigned>(at->places.size());
  point.sample = [&bench, at, company]() -> Expected<Sample> {
    WalkedPlace& place = at->places[at->next++ % at->places.size()];
    SKIDPROOF_CHECK(warm(bench, place, at->bytes));
    const bool own = at->bytes <= kOfACore;
    const auto once = [&] {
      return bench.sample(own ? kOwnTries : kSharedTries,
                          [&] { return walk(bench, place.chase, at->iterations, at->laps); });
    };
    // Another thread of the core takes ways of its caches and slots of its issue.
    const Sample sample = own ? SKIDPROOF_TRY(company->watch(once)) : SKIDPROOF_TRY(once());
    return sample.per(static_cast<double>(at->iterations * kChaseUnroll));
  };
  return point;
}

// Samples these sizes, on both kinds of page, by turns.
Expected<void> measure_together(Workbench& bench, const std::vector<uint64_t>& sizes, double from,
                                double to) {
  std::vector<Point> points;
  std::vector<MeasurementParameters> parameters;
  const auto company = std::make_shared<Company>(SKIDPROOF_TRY(Company::create(bench)));
  company->set_patience(kPatienceShare * bench.seconds_of_part() * (to - from), kSamplePatience);
  for (uint64_t bytes : sizes) {
    for (bool huge : {false, true}) {
      if (bench.cancelled()) return {};
      bench.progress(from, fmt::format("latency, {}", size_text(bytes)));
      auto at = make_footprint(bench, bytes, huge);
      if (!at) {
        bench.problem(at.error());
        continue;
      }
      points.push_back(chase_point(bench, *at, company));
      points.back().tag = parameters.size();
      parameters.push_back({{"bytes", bytes}, {"page", huge ? "2MiB" : "4KiB"}});
    }
  }
  // The time that is left, by what remains to be done.
  const double seconds = std::max(0.0, bench.seconds_left()) * (to - from) / (1 - from);
  // Even where making large sets took the time.
  const unsigned least = bench.effort() == Effort::kQuick ? Goal{}.least : kOfAQuartile;
  SKIDPROOF_CHECK(take_by_turns(
      bench, points, {.least = least, .seconds = seconds, .span = usual_span(bench)}, from, to));
  for (Point& point : points) {
    company->drop_from(point);
    emit_point(bench, point, "memory.latency", parameters[point.tag]);
  }
  return {};
}

}  // namespace

// All sizes together where memory allows; else those that do, and the largest in groups of their own.
Expected<void> characterize_latency(Workbench& bench) {
  SKIDPROOF_CHECK(bench.count(kOfLoads));
  std::vector<uint64_t> sizes = bench.options().latency_bytes;
  if (sizes.empty()) sizes = default_footprints(bench);
  std::sort(sizes.begin(), sizes.end());
  const uint64_t memory = available_memory() / 4;
  std::vector<std::vector<uint64_t>> groups(1);
  uint64_t used = 0, all = 0;
  for (uint64_t bytes : sizes) {
    const Room of = room_of(bench, bytes);
    const uint64_t blocks = (of.places + of.of_a_block - 1) / of.of_a_block;
    const uint64_t wanted = of.places * of.each + blocks * std::max<uint64_t>(of.each, kHugePage);
    if (used != 0 && used + wanted > memory) {
      groups.emplace_back();
      used = 0;
    }
    groups.back().push_back(bytes);
    used += wanted;
    all += bytes;
  }
  double done = 0;
  for (const auto& group : groups) {
    double share = 0;
    for (uint64_t bytes : group) share += static_cast<double>(bytes) / static_cast<double>(all);
    if (bench.cancelled()) break;
    SKIDPROOF_CHECK(measure_together(bench, group, done, done + share));
    done += share;
  }
  return {};
}

}  // namespace skidproof
