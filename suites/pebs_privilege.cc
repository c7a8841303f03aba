// Privilege: a PEBS counter with OS alone or USR alone records the events of its own level, each in
// its place, and none of the other's.
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_privilege {
namespace {

using namespace suites;
using arch::Signal;

constexpr uint64_t kWishedPeriod = 40;
constexpr char kNoEvent[] = "no precise event for this signal on this counter";

// words: what happens; numbers: counter, whether it counts OS, whether USR, the ring that runs.
std::vector<Param> levels() {
  std::vector<Param> params;
  for (uint64_t ring : {0u, 3u}) {
    for (auto [label, os, usr] :
         {std::tuple{"OS", true, false}, {"USR", false, true}, {"OS+USR", true, true}}) {
      params.push_back({.label = std::string(label) + ".ring" + std::to_string(ring),
                        .numbers = {os, usr, ring}});
    }
  }
  return over::product(over::words({"load", "store", "taken"}), params);
}

}  // namespace

SKIDPROOF_SUITE(PmuPrivilege, kCount);
SKIDPROOF_SUITE(PebsPrivilege, kOneRecord);

SKIDPROOF_TEST_OVER(PebsPrivilege, RecordsTheEventsOfItsLevelAlone,
                    over::product(over::counters({0, 3}), levels()), clause::M27, clause::R2,
                    clause::R12) {
  const auto counter = static_cast<unsigned>(param().number(0));
  const arch::Event* event = sparse_event(uarch(), param().word(), counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), param().word()));
  const uint64_t period = usable_period(uarch(), counter, *event, kWishedPeriod);
  const uint64_t iterations = iterations_for_exactly(8, period);
  const bool os = param().number(1) != 0, usr = param().number(2) != 0;
  const Ring ring = param().number(3) == 0 ? Ring::kKernel : Ring::kUser;
  CounterSetup setup = CounterSetup::of(counter, *event, period);
  setup.os = os;
  setup.usr = usr;
  CounterSetup counted = setup;
  counted.pebs = false;
  counted.initial = 0;
  const uint64_t own = sparse_events(sparse_word(uarch(), param().word()), code, iterations);
  const uint64_t events = need(count(machine(), counted, code, iterations, ring));
  const bool counts = ring == Ring::kKernel ? os : usr;
  if (counts) {
    VERIFY_GE(events, own);
  } else {
    // What the machine's own code does at the other level is little.
    VERIFY_LT(events, period);
  }

  SessionPlan plan = one_counter(setup, 16);
  plan.ring = ring;
  Sampled sampled = need(sample(machine(), plan, code, iterations));

  const Exact expected = exact(uarch(), events, period, period, counter);
  evidence("records", sampled.records().size());
  // Where the assist's accesses are counted too the number is open, and the last record may come behind the loop.
  const bool exactly = !counts || SKIDPROOF_EXACT(param().word());
  if (exactly) {
    VERIFY_EQ(sampled.records().size(), expected.records);
    VERIFY_EQ(sampled.run.counters[0], expected.counter);
  }
  LoopPath path = LoopPath::of(code, forward_jumps(true));
  const Instruction* eventing = code.at(code.mark("event"));
  SKIDPROOF_REQUIRE(eventing != nullptr && !path.empty(), SkipCategory::kMachineLimit,
                    "the kernel marks no event");
  // The loop's own pair of SUB and JNZ fuses; nothing else of these programs does.
  const bool fused = first_of_fused_pair(uarch(), code, *eventing);
  size_t outside = 0;
  for (Record record : sampled.records()) {
    std::optional<size_t> skid = path.skid(
        record.ip(), [&](const Instruction& i) { return i.address == eventing->address; });
    if (!skid) {
      ++outside;
      continue;
    }
    VERIFY_LE(*skid, fused ? 2u : 1u);
  }
  VERIFY_LE(outside, exactly ? 0u : 1u) << "records outside the loop";
  if (!exactly) {
    VERIFY_GT(sampled.records().size(), outside) << "records of the loop";
  }
}

// USR alone, on every counter that there is: each counts ring 3, and alike.
SKIDPROOF_TEST_OVER(PmuPrivilege, CountsUserCodeOnEveryCounter,
                    over::counters({0, 1, 2, 3, 4, 5, 6, 7}), clause::M27) {
  const auto counter = static_cast<unsigned>(param().number());
  SKIDPROOF_REQUIRE(reported_counters(machine()) > counter, SkipCategory::kMachineLimit,
                    "CPUID reports fewer counters");
  const arch::Event* event = counting_event(uarch(), Signal::kConditional, counter);
  if (event == nullptr) event = counting_event(uarch(), Signal::kInstructions, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters("taken"));
  constexpr uint64_t kIterations = 200;
  CounterSetup setup = plain_counter(counter, *event);
  setup.os = false;

  const uint64_t user = need(count(machine(), setup, code, kIterations, Ring::kUser));
  const uint64_t kernel = need(count(machine(), setup, code, kIterations, Ring::kKernel));

  evidence("event", event->name);
  VERIFY_GE(user, kIterations) << "one an iteration at least";
  VERIFY_LT(kernel, kIterations / 10) << "ring 0 is not USR's";
}

}  // namespace skidproof::check::pebs_privilege
