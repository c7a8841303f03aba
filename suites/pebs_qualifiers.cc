// Qualifiers: AnyThread, Edge, Invert and CMask of a PEBS counter, alone and together.
//
// The manual calls PEBS valid only while all four fields are zero (R33). Public practice contradicts
// it for a few combinations: there the outcome is reported, elsewhere a record fails the test. Each
// test has its control: the same plan with no qualifier records, and the qualified counter overflows,
// so that what is missing are the records and not the events.
#include <fmt/format.h>

#include "harness/check/check.h"
#include "pebs/arch/msr.h"
#include "suites/sampling.h"

namespace skidproof {
namespace {

using namespace suites;
using arch::Expectation;
using arch::Signal;
using check::Param;
using check::SkipCategory;
namespace over = check::over;

constexpr size_t kRecords = 20;
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

// CMASK 1 asks for a cycle with an event. With INV, 16 asks for one with fewer than any has: every
// cycle, as public practice does; but with Edge as well that would never change.
uint8_t cmask_for(unsigned combination) {
  if ((combination & arch::kQualifierCmask) == 0) return 0;
  bool every_cycle =
      (combination & arch::kQualifierInvert) != 0 && (combination & arch::kQualifierEdge) == 0;
  return every_cycle ? 16 : 1;
}

CounterSetup qualified(CounterSetup setup, unsigned combination) {
  setup.any_thread = (combination & arch::kQualifierAnyThread) != 0;
  setup.edge = (combination & arch::kQualifierEdge) != 0;
  setup.invert = (combination & arch::kQualifierInvert) != 0;
  setup.cmask = cmask_for(combination);
  return setup;
}

// Cycles with an event and cycles without follow one another in all of them.
struct Workload {
  Signal signal;
  const char* kernel;
  const char* parameters;
};
constexpr Workload kWorkloads[] = {
    {Signal::kLoads, "sparse_event", "event=load,spacing=8"},
    {Signal::kStores, "sparse_event", "event=store,spacing=8"},
    {Signal::kConditional, "sparse_event", "event=taken,spacing=8"},
    {Signal::kSimd, "sparse_event", "event=simd,spacing=8"},
};

SKIDPROOF_TEST_OVER(PebsQualifiers, Invalidate,
                    over::product(over::counters({0, 1, 2, 3}), combinations()), clause::R33) {
  auto counter = static_cast<unsigned>(param().number(0));
  auto combination = static_cast<unsigned>(param().number(1));
  bool must_hold = uarch().expectation(combination) == Expectation::kMustHold;
  uint64_t period = usable_period(uarch(), kPeriod);
  uint64_t iterations = iterations_for(kRecords, period);
  SKIDPROOF_REQUIRE((combination & arch::kQualifierAnyThread) == 0 || uarch().any_thread,
                    SkipCategory::kNotOnThisMicroarch, "AnyThread does not exist");
  uint64_t total = 0, workloads = 0;
  for (const Workload& work : kWorkloads) {
    const arch::Event* event = precise_event(uarch(), work.signal, counter);
    if (event == nullptr) continue;
    ++workloads;
    const Program& loop = program(work.kernel, work.parameters);
    CounterSetup plain = CounterSetup::of(counter, *event, period);
    size_t control =
        need(sample(machine(), one_counter(plain, kRecords), loop, iterations)).records().size();
    VERIFY_EQ(control, kRecords) << "the control, " << event->name << " without a qualifier";

    Sampled sampled = need(
        sample(machine(), one_counter(qualified(plain, combination), kRecords), loop, iterations));
    size_t records = sampled.records().size();
    total += records;
    if (!must_hold) continue;
    VERIFY_EQ(records, 0u) << event->name << " records although qualified";
    VERIFY_TRUE((sampled.run.global_status & arch::bit(counter)) != 0)
        << "the qualified counter never overflowed: nothing was to be recorded";
  }
  SKIDPROOF_REQUIRE(workloads > 0, SkipCategory::kNotOnThisMicroarch,
                    "no precise event for any of the workloads on this counter");
  evidence("expectation", must_hold ? "no records" : "classified");
  evidence("outcome", total == 0 ? "no records" : "records");
  evidence("records", total);
}

}  // namespace
}  // namespace skidproof
