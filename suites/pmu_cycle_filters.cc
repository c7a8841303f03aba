// Edge, CMASK and INV: cycles instead of events. What a program's cycles look like nobody promises;
// that every cycle is counted on one side of the comparison, and what sums follow from that, the
// manual does.
#include <cstdint>
#include <string>
#include <vector>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pmu_cycle_filters {
namespace {

using namespace suites;
using arch::Signal;

constexpr char kNoEvent[] = "no instruction event";
constexpr uint64_t kIterations = 400;

// Counters start and stop with one write, but not with one cycle: the first and the last cycle of a
// run may be on either side of a comparison. What more than that a machine shows is measured on it.
constexpr uint64_t kEnds = 4;
#define SKIDPROOF_ENDS (kEnds + margin_of(calibrated(calibrate::Quantity::kEdgeCycles)))
// Where the ends are blurred, five times as much stands between them.
uint64_t iterations_between(uint64_t ends) {
  return ends <= 4 * kEnds ? kIterations : 5 * kIterations;
}

struct Filter {
  uint8_t cmask = 0;
  bool invert = false;
  bool edge = false;
};

// What two filtered counters and fixed counter 1 (cycles) count in one run.
struct Pair {
  uint64_t first = 0, second = 0, cycles = 0;
};

CounterSetup filtered(unsigned counter, const arch::Event& event, Filter filter) {
  CounterSetup setup = plain_counter(counter, event);
  setup.cmask = filter.cmask;
  setup.invert = filter.invert;
  setup.edge = filter.edge;
  return setup;
}

Expected<Pair> count_pair(Machine& machine, const arch::Event& event, Filter first, Filter second,
                          const Program& program, uint64_t iterations, bool usr = true,
                          bool os = true) {
  SessionPlan plan;
  plan.buffer_records = 1;
  plan.counters = {filtered(0, event, first), filtered(1, event, second)};
  for (CounterSetup& setup : plan.counters) {
    setup.usr = usr;
    setup.os = os;
  }
  plan.fixed = {{.counter = 1, .usr = usr, .os = os}};
  Session session = SKIDPROOF_TRY(Session::open(machine, plan));
  SessionRun run = SKIDPROOF_TRY(session.run(program, iterations));
  return Pair{run.counters.at(0), run.counters.at(1), run.fixed.at(0)};
}

uint64_t distance(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

// Programs with long gaps between events, with none, and with both.
std::vector<Param> programs() {
  return {{.label = "chase", .words = {"pointer_chase", "bytes=@beyond-l1"}},
          {.label = "chain", .words = {"alu_chain", ""}},
          {.label = "sled", .words = {"nop_sled", ""}},
          {.label = "mixed", .words = {"mixed", ""}},
          {.label = "stores", .words = {"store_stream", ""}}};
}

}  // namespace

SKIDPROOF_SUITE(PmuCycleFilters, kCount);

// --- CMASK and INV

SKIDPROOF_TEST_OVER(PmuCycleFilters, SplitEveryCycleByCmask,
                    over::product(programs(), over::words({"both_levels", "one_level"})),
                    clause::M29) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const bool both_levels = param().word(2) == "both_levels";  // programs run in ring 0 here
  const Program& code = program(param().word(0), param().word(1));
  const uint64_t ends = SKIDPROOF_ENDS, iterations = iterations_between(ends);
  for (uint8_t cmask : {1, 2, 3, 4, 8}) {
    const Pair split =
        need(count_pair(machine(), *event, {.cmask = cmask}, {.cmask = cmask, .invert = true}, code,
                        iterations, both_levels));
    VERIFY_LE(distance(split.first + split.second, split.cycles), ends)
        << split.first << " cycles with " << int{cmask} << " instructions or more, " << split.second
        << " with fewer, " << split.cycles << " in all";
  }
}

// The cycles with at least 1, at least 2, … events add up to the events: one that has k of them is
// counted k times. Loads of a chase come one after the other.
SKIDPROOF_TEST(PmuCycleFilters, AddUpToTheEvents, clause::M29) {
  const arch::Event* event = counting_event(uarch(), Signal::kLoads);
  if (event == nullptr) event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr && (event->counters & 2) != 0,
                    SkipCategory::kNotOnThisMicroarch, "no such event on two counters");
  const Program& code = program("pointer_chase", "bytes=@beyond-l1");
  const uint64_t ends = SKIDPROOF_ENDS, iterations = iterations_between(ends);
  const uint64_t events = need(count(machine(), 0, *event, code, iterations));
  uint64_t sum = 0;
  for (uint8_t cmask = 1; cmask <= 8; cmask = static_cast<uint8_t>(cmask + 2)) {
    const Pair counted =
        need(count_pair(machine(), *event, {.cmask = cmask},
                        {.cmask = static_cast<uint8_t>(cmask + 1)}, code, iterations));
    VERIFY_LE(counted.second, counted.first) << "cmask " << int{cmask} << " and one more";
    sum += counted.first + counted.second;
  }
  evidence("events", events);
  evidence("sum", sum);
  VERIFY_LE(distance(sum, events), ends);
}

SKIDPROOF_TEST_OVER(PmuCycleFilters, IgnoreInvWithoutCmask, programs(), clause::M29) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program(param().word(0), param().word(1));
  const Pair both = need(count_pair(machine(), *event, {}, {.invert = true}, code, kIterations));
  VERIFY_GE(both.first, code.total(kIterations).instructions);
  VERIFY_THAT(difference(both.second, both.first),
              within(0, 2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions))));
}

// --- Edge

// A condition is asserted in some cycles and not in the others, so it rises as often as it falls:
// with INV the same edges are counted from the other side.
SKIDPROOF_TEST_OVER(PmuCycleFilters, CountEdgesFromBothSidesAlike, programs(), clause::M28,
                    clause::M29) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program(param().word(0), param().word(1));
  const uint64_t ends = SKIDPROOF_ENDS, iterations = iterations_between(ends);
  for (uint8_t cmask : {1, 2}) {
    const Filter level{.cmask = cmask}, below{.cmask = cmask, .invert = true};
    const Filter rising{.cmask = cmask, .edge = true};
    const Filter falling{.cmask = cmask, .invert = true, .edge = true};
    const Pair edges = need(count_pair(machine(), *event, rising, falling, code, iterations));
    VERIFY_LE(distance(edges.first, edges.second), 1 + ends) << "cmask " << int{cmask};
    const Pair up = need(count_pair(machine(), *event, rising, level, code, iterations));
    VERIFY_LE(up.first, up.second) << "no more edges than cycles, cmask " << int{cmask};
    const Pair down = need(count_pair(machine(), *event, rising, below, code, iterations));
    VERIFY_LE(down.first, down.second + ends)
        << "between two edges the condition is not met, cmask " << int{cmask};
    evidence("edges-" + std::to_string(cmask), edges.first);
  }
}

// In a chase of misses nothing retires for a long time behind each load.
SKIDPROOF_TEST(PmuCycleFilters, SeeAnEdgeBehindEveryGap, clause::M28) {
  const arch::Event* event = counting_event(uarch(), Signal::kLoads);
  SKIDPROOF_REQUIRE(event != nullptr && (event->counters & 2) != 0,
                    SkipCategory::kNotOnThisMicroarch, "no load event on two counters");
  const Program& code = program("pointer_chase", "bytes=@beyond-l1");
  const Pair chase =
      need(count_pair(machine(), *event, {.edge = true}, {.cmask = 1}, code, kIterations));
  evidence("edges", chase.first);
  evidence("cycles", chase.second);
  VERIFY_GE(2 * chase.first, code.total(kIterations).loads);
  VERIFY_LE(chase.first, chase.second);
}

}  // namespace skidproof::check::pmu_cycle_filters
