// Qualifiers: AnyThread, Edge, Invert and CMask of a PEBS counter, alone and together.
//
// The manual calls PEBS valid only while all four fields are zero (R33). Published encodings of that
// part contradict it for a few combinations: there the outcome is reported, elsewhere a record fails the
// test. Each plan has its control: the same without a qualifier records. Where the event comes
// now and then, the qualified counter overflows as well, so that what is missing are the records
// and not the events.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/check/check.h"
#include "pebs/arch/msr.h"
#include "suites/sampling.h"

namespace skidproof::pebs_qualifiers {

SKIDPROOF_SUITE(PebsQualifiers, kOneRecord);

namespace {

using namespace suites;
using arch::Expectation;
using arch::Signal;
using check::Param;
using check::SkipCategory;
namespace over = check::over;

constexpr size_t kRecords = 8;
constexpr uint64_t kPeriod = 32;

// All combinations but none at all, in the numbers of arch::qualifiers().
std::vector<Param> combinations() {
  std::vector<Param> params;
  for (unsigned c = 1; c < 16; ++c) {
    std::string label;
    auto add = [&](unsigned which, const char* name) {
      if ((c & which) != 0) label += (label.empty() ? "" : "+") + std::string(name);
    };
    add(arch::kQualifierAnyThread, "AnyThread");
    add(arch::kQualifierEdge, "Edge");
    add(arch::kQualifierInvert, "Invert");
    add(arch::kQualifierCmask, "CMask");
    params.push_back({.label = label, .numbers = {c}});
  }
  return params;
}

// CMASK 1 asks for a cycle with an event. Beside it one more value, another on each counter: a cycle
// with two; what Intel's lists and Linux write with INV to sample every cycle, 10 and 16, more than
// any part retires; all bits.
std::vector<uint8_t> cmasks_for(unsigned combination, unsigned counter, size_t workload) {
  if ((combination & arch::kQualifierCmask) == 0) return {0};
  constexpr uint8_t kMore[] = {2, 10, 16, 255};
  return {1, kMore[(counter + workload) % std::size(kMore)]};
}

CounterSetup qualified(CounterSetup setup, unsigned combination, uint8_t cmask) {
  setup.any_thread = (combination & arch::kQualifierAnyThread) != 0;
  setup.edge = (combination & arch::kQualifierEdge) != 0;
  setup.invert = (combination & arch::kQualifierInvert) != 0;
  setup.cmask = cmask;
  return setup;
}

// Sparse ones make one event an iteration: cycles with an event and cycles without follow one another.
// The others make several a cycle, so that it shows whether CMASK was applied.
struct Workload {
  Signal signal;
  const char* kernel;
  const char* parameters;
  uint64_t events;  // an iteration
  bool sparse = true;
};
constexpr Workload kWorkloads[] = {
    {Signal::kLoads, "sparse_event", "event=load,spacing=8", 1},
    {Signal::kStores, "sparse_event", "event=store,spacing=8", 1},
    {Signal::kConditional, "sparse_event", "event=taken,spacing=8", 1},
    {Signal::kSimd, "sparse_event", "event=simd,spacing=8", 1},
    {Signal::kLoads, "load_stream", "window=4K,unroll=8", 8, false},
    {Signal::kNearCalls, "call_return", "depth=4", 4, false},
    {Signal::kUops, "nop_sled", "count=14", 16, false},
    {Signal::kInstructions, "nop_sled", "count=14", 16, false},
};

// Whether such a counter overflows for certain: CMASK above what a cycle brings asks for nothing, or, with
// INV, for every cycle, of which Edge then sees no change.
bool surely_overflows(const Workload& work, unsigned combination, uint8_t cmask) {
  const bool edge = (combination & arch::kQualifierEdge) != 0;
  const bool invert = (combination & arch::kQualifierInvert) != 0;
  return work.sparse && (cmask <= 1 || (invert && !edge));
}

// What a counter recorded, and whether it overflowed.
struct Seen {
  size_t records = 0;
  std::set<uint64_t> ips;
  bool overflowed = false;
};

Expected<Seen> see(Machine& machine, const CounterSetup& setup, size_t room, const Program& loop,
                   uint64_t iterations) {
  const Sampled sampled =
      SKIDPROOF_TRY(sample(machine, one_counter(setup, room), loop, iterations));
  Seen seen;
  seen.records = sampled.records().size();
  for (Record record : sampled.records()) seen.ips.insert(record.ip());
  seen.overflowed =
      seen.records != 0 || (sampled.run.global_status & arch::bit(setup.counter)) != 0;
  return seen;
}

// As if the fields were zero: as many records, and of a sparse event in the same places.
const char* outcome(const Workload& work, const Seen& plain, const Seen& found) {
  if (plain.records == 0) return "nothing recorded, without a qualifier neither";
  if (found.records == 0) return found.overflowed ? "nothing recorded" : "nothing to record";
  const size_t margin = std::max<size_t>(1, plain.records / 8);
  const bool as_many =
      found.records + margin >= plain.records && found.records <= plain.records + margin;
  const bool there = !work.sparse || std::includes(plain.ips.begin(), plain.ips.end(),
                                                   found.ips.begin(), found.ips.end());
  return as_many && there ? "recorded as if the fields were zero" : "recorded otherwise";
}

SKIDPROOF_TEST_OVER(PebsQualifiers, Invalidate,
                    over::product(over::counters({0, 1, 2, 3}), combinations()), clause::R33) {
  auto counter = static_cast<unsigned>(param().number(0));
  auto combination = static_cast<unsigned>(param().number(1));
  const bool must_hold = uarch().expectation(combination) == Expectation::kMustHold;
  SKIDPROOF_REQUIRE((combination & arch::kQualifierAnyThread) == 0 || uarch().any_thread,
                    SkipCategory::kNotOnThisMicroarch, "AnyThread does not exist");
  const uint64_t passing = passing_events(calibrated(calibrate::Quantity::kArmingCycles));
  std::map<std::string, std::vector<std::string>> outcomes;  // outcome -> programs
  for (size_t i = 0; i < std::size(kWorkloads); ++i) {
    const Workload& work = kWorkloads[i];
    const arch::Event* event = precise_event(uarch(), work.signal, counter);
    if (event == nullptr) continue;
    const uint64_t period = usable_period(uarch(), counter, *event, kPeriod);
    const uint64_t iterations =
        iterations_for(kRecords, period, work.events, work.sparse ? 0 : passing);
    const size_t room = safe_records(uarch(), 4 * kRecords);
    const Program& loop = program(work.kernel, work.parameters);
    const CounterSetup setup = CounterSetup::of(counter, *event, period);
    const Seen plain = need(see(machine(), setup, room, loop, iterations));
    if (must_hold) {
      VERIFY_GE(plain.records, kRecords / 4)
          << "the control, " << event->name << " without a qualifier";
    }
    for (uint8_t cmask : cmasks_for(combination, counter, i)) {
      const Seen found =
          need(see(machine(), qualified(setup, combination, cmask), room, loop, iterations));
      const char* what = outcome(work, plain, found);
      outcomes[what].push_back(fmt::format("{} on {}, CMASK {}", event->name, work.kernel, cmask));
      if (!must_hold) continue;
      VERIFY_EQ(found.records, 0u) << event->name << ", CMASK " << int{cmask} << ": " << what;
      if (surely_overflows(work, combination, cmask)) {
        VERIFY_TRUE(found.overflowed)
            << "the qualified counter never overflowed: nothing was to be recorded";
      }
    }
  }
  SKIDPROOF_REQUIRE(!outcomes.empty(), SkipCategory::kNotOnThisMicroarch,
                    "no precise event for any of the workloads on this counter");
  if (must_hold) {
    evidence("outcomes", outcomes);
  } else {
    observe("outcomes", outcomes);
  }
}

}  // namespace
}  // namespace skidproof::pebs_qualifiers
