// The events of a microarchitecture's list count what their names say: loads by where their line was,
// accesses across lines and beyond the second-level TLB, branches and mispredictions by kind.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pmu_retired_events {
namespace {

using namespace suites;
using arch::Signal;

constexpr char kNoEvent[] = "the microarch publishes no such event";
// What a machine's own code between its writes of GLOBAL_CTRL may add.
constexpr uint64_t kOwn = 32;

Expected<uint64_t> counted(Machine& machine, Signal signal, const Program& program,
                           uint64_t iterations) {
  const arch::Event* event = counting_event(*machine.identity().microarch, signal);
  return count(machine, 0, *event, program, iterations);
}

// All of them in as few runs as there are counters for that: a line is found at one level in each run.
Expected<uint64_t> counted_in_all(Machine& machine, std::span<const Signal> signals,
                                  const Program& program, uint64_t iterations) {
  constexpr size_t kAtOnce = 4;  // as many as a thread has that shares its core
  const arch::Microarch& microarch = *machine.identity().microarch;
  const size_t at_once = std::min<size_t>(kAtOnce, reported_counters(machine));
  uint64_t all = 0;
  bool there = false;
  while (!signals.empty()) {
    SessionPlan plan;
    plan.buffer_records = 1;
    for (const arch::Event* event = nullptr;
         plan.counters.size() < std::min(at_once, signals.size());) {
      const auto counter = static_cast<unsigned>(plan.counters.size());
      event = counting_event(microarch, signals[counter], counter);
      if (event == nullptr) break;
      plan.counters.push_back(plain_counter(counter, *event));
    }
    signals = signals.subspan(plan.counters.size());
    if (plan.counters.empty()) return fail(ErrorCode::kInternal, "an event that no counter counts");
    Session session = SKIDPROOF_TRY(Session::open(machine, plan));
    // Before the first is counted the lines come to where the others find them.
    if (!std::exchange(there, true)) SKIDPROOF_CHECK(session.run(program, iterations));
    const SessionRun run = SKIDPROOF_TRY(session.run(program, iterations));
    for (uint64_t count : run.counters) all += count;
  }
  return all;
}

bool publishes(const arch::Microarch& microarch, std::initializer_list<Signal> signals) {
  for (Signal signal : signals) {
    if (counting_event(microarch, signal) == nullptr) return false;
  }
  return true;
}

uint64_t distance(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

std::string number(std::string_view name, uint64_t value) {
  return std::string(name) + "=" + std::to_string(value);
}

Param on(const char* label, const char* kernel, const char* parameters) {
  return {.label = label, .words = {kernel, parameters}};
}

// --- Exact numbers

struct ExactEvent {
  std::string_view name;
  Signal signal;
  std::string_view kernel, parameters;
  uint64_t (*each)(const Expectations& iteration);
};

template <uint64_t kEvents>
uint64_t fixed_number(const Expectations&) {
  return kEvents;
}

// What a word of the parameter stands for.
const ExactEvent& exact_event(std::string_view word) {
  constexpr auto kLoadsOf = [](const Expectations& e) { return e.loads; };
  constexpr auto kStoresOf = [](const Expectations& e) { return e.stores; };
  constexpr auto kBranchesOf = [](const Expectations& e) { return e.branches(); };
  constexpr auto kTakenOf = [](const Expectations& e) { return e.branches_taken; };
  constexpr auto kNotTakenOf = [](const Expectations& e) { return e.branches_not_taken; };
  constexpr const char* kNever = "pattern=never,length=64";
  static const std::vector<ExactEvent> kEvents = {
      {"loads", Signal::kLoads, "mixed", "loads=5,stores=3", kLoadsOf},
      {"stores", Signal::kStores, "mixed", "loads=5,stores=3", kStoresOf},
      {"branches", Signal::kBranches, "mixed", "taken=3,not_taken=2", kBranchesOf},
      {"taken", Signal::kNearTaken, "mixed", "taken=3,not_taken=2", kTakenOf},
      {"not_taken", Signal::kConditionalNotTaken, "branch_pattern", kNever, kNotTakenOf},
      {"conditional", Signal::kConditional, "branch_pattern", kNever, kBranchesOf},
      {"calls", Signal::kNearCalls, "call_return", "depth=3", fixed_number<3>},
      {"returns", Signal::kNearReturns, "call_return", "depth=3", fixed_number<3>},
      {"nops", Signal::kNops, "nop_sled", "count=48", fixed_number<48>},
      {"locked", Signal::kLockedLoads, "locked_rmw", "unroll=3", fixed_number<3>},
      {"split_loads", Signal::kSplitLoads, "split_access", "kind=load", kLoadsOf},
      {"split_stores", Signal::kSplitStores, "split_access", "kind=store", kStoresOf},
      {"split_pages", Signal::kSplitLoads, "split_access", "kind=load,border=page", kLoadsOf},
      {"whole_loads", Signal::kSplitLoads, "load_stream", "", fixed_number<0>},
      {"whole_stores", Signal::kSplitStores, "store_stream", "", fixed_number<0>},
      {"streamed", Signal::kSplitStores, "store_stream", "kind=nontemporal", fixed_number<0>},
      {"plain_loads", Signal::kLockedLoads, "load_stream", "", fixed_number<0>},
  };
  for (const ExactEvent& e : kEvents) {
    if (e.name == word) return e;
  }
  std::abort();  // the words of the test and of the table differ
}

// --- Loads by level

// A chase through random lines: the same line comes again only behind all the others, so that a level
// that is too small for them keeps none.
struct Level {
  Signal signal = Signal::kNone;
  uint64_t bytes = 0;
  uint64_t half_rounds = 0;
};

// By the caches that were measured or that CPUID.04H lists; no bytes where it does not.
Level level(std::string_view word, const MachineShape& shape) {
  // Half a level lies well beyond the level before it only where that is a quarter of it or less; else
  // as much as lies between the two, where there is room for twice the smaller. Four times the smaller is enough: of a
  // level that keeps whatever lines it likes a quarter at most are found in it.
  auto between = [](const SizeRange& before, const SizeRange& here) -> uint64_t {
    const uint64_t beyond = 2 * before.most;
    if (here.least < beyond) return 0;
    return std::max(std::min(std::bit_floor(here.least / 2), std::bit_ceil(4 * before.most)),
                    beyond);
  };
  if (word == "L1") return {Signal::kLoadsL1Hit, std::bit_floor(shape.l1d.least / 2), 32};
  if (word == "L2") return {Signal::kLoadsL2Hit, between(shape.l1d, shape.l2), 16};
  return {Signal::kLoadsL3Hit, between(shape.l2, shape.l3), 6};
}

}  // namespace

SKIDPROOF_SUITE(PmuRetiredEvents, kCount);

// Between twenty iterations and ten the machine's own code adds nothing.
SKIDPROOF_TEST_OVER(PmuRetiredEvents, CountEachOnce,
                    over::words({"loads", "stores", "branches", "taken", "not_taken", "conditional",
                                 "calls", "returns", "nops", "locked", "split_loads",
                                 "split_stores", "split_pages", "whole_loads", "whole_stores",
                                 "streamed", "plain_loads"}),
                    clause::M49) {
  const ExactEvent& wanted = exact_event(param().word());
  SKIDPROOF_REQUIRE(publishes(uarch(), {wanted.signal}), SkipCategory::kNotOnThisMicroarch,
                    kNoEvent);
  const Program& code = program(std::string(wanted.kernel), std::string(wanted.parameters));
  const uint64_t few = need(counted(machine(), wanted.signal, code, 10));
  const uint64_t more = need(counted(machine(), wanted.signal, code, 20));
  evidence("event", counting_event(uarch(), wanted.signal)->name);
  evidence("ten_iterations", few);
  evidence("twenty_iterations", more);
  VERIFY_EQ(more - few, 10 * wanted.each(code.per_iteration));
}

// Of several rounds through half a level at most the first finds the lines elsewhere.
SKIDPROOF_TEST_OVER(PmuRetiredEvents, CountLoadsByWhereTheirLineWas,
                    over::words({"L1", "L2", "L3"}), clause::M49) {
  const Level here = level(param().word(), shape());
  SKIDPROOF_REQUIRE(here.bytes != 0, SkipCategory::kMachineLimit,
                    "CPUID.04H lists no such cache, or one that is hardly larger than the one "
                    "before it");
  SKIDPROOF_REQUIRE(publishes(uarch(), {here.signal}), SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const uint64_t loads = here.bytes / 64 * here.half_rounds / 2;
  const Program& code = program("pointer_chase", number("bytes", here.bytes));
  const uint64_t served = need(counted(machine(), here.signal, code, loads));
  evidence("loads", loads);
  evidence("served", served);
  VERIFY_LE(served, loads + kOwn);
  VERIFY_GE(served, loads / 2);
}

// Every line was flushed behind the load before; every other one, so that none comes with its neighbour.
SKIDPROOF_TEST(PmuRetiredEvents, CountLoadsOfFlushedLinesAsMisses, clause::M49) {
  SKIDPROOF_REQUIRE(publishes(uarch(), {Signal::kLoadsL3Miss}), SkipCategory::kNotOnThisMicroarch,
                    kNoEvent);
  const Program& code = program("pointer_chase", "flush=1,granularity=128,bytes=1M");
  const uint64_t loads = 3 * code.data_bytes / 128;
  const uint64_t served = need(counted(machine(), Signal::kLoadsL3Miss, code, loads));
  evidence("loads", loads);
  evidence("served", served);
  VERIFY_LE(served, loads + kOwn);
  VERIFY_GE(served, loads / 2);
}

// Each load is counted at one level, and at one only.
SKIDPROOF_TEST_OVER(PmuRetiredEvents, CountEachLoadAtOneLevel,
                    (std::vector<Param>{
                        on("chase", "pointer_chase", "bytes=1M"),
                        on("words", "pointer_chase", "bytes=256K,granularity=8"),
                        on("stream", "load_stream", "stride=32,window=512K"),
                        on("split", "split_access", "kind=load,unroll=16"),
                    }),
                    clause::M49) {
  constexpr Signal kLevels[] = {Signal::kLoadsL1Hit, Signal::kLoadsFillBuffer, Signal::kLoadsL2Hit,
                                Signal::kLoadsL3Hit, Signal::kLoadsL3Miss};
  SKIDPROOF_REQUIRE(
      publishes(uarch(), {Signal::kLoadsL1Hit, Signal::kLoadsFillBuffer, Signal::kLoadsL2Hit,
                          Signal::kLoadsL3Hit, Signal::kLoadsL3Miss}),
      SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program(param().word(0), param().word(1));
  constexpr uint64_t kIterations = 40'000;
  const uint64_t loads = code.total(kIterations).loads;
  const uint64_t all = need(counted_in_all(machine(), kLevels, code, kIterations));
  evidence("served", all);
  evidence("loads", loads);
  // Several runs: a line may be found elsewhere in one than in the other.
  VERIFY_LE(distance(all, loads), loads / 20 + 5 * kOwn);
}

// Nearly every load of a chase that fits the L1 cache, and few of one that is many times as large.
SKIDPROOF_TEST(PmuRetiredEvents, CountHitsOfTheL1CacheByWhatFitsIt, clause::M49) {
  SKIDPROOF_REQUIRE(publishes(uarch(), {Signal::kLoadsL1Hit}), SkipCategory::kNotOnThisMicroarch,
                    kNoEvent);
  const Program& near = program("pointer_chase", "bytes=8K");
  const Program& far = program("pointer_chase", "bytes=1M");
  constexpr uint64_t kLoads = 40'000;
  const uint64_t fits = need(counted(machine(), Signal::kLoadsL1Hit, near, kLoads));
  const uint64_t beyond = need(counted(machine(), Signal::kLoadsL1Hit, far, kLoads));
  evidence("loads", kLoads);
  evidence("near", fits);
  evidence("far", beyond);
  VERIFY_GE(fits, kLoads * 3 / 4);
  VERIFY_LE(fits, kLoads + kOwn);
  VERIFY_LE(beyond, kLoads / 2) << "it does not fit";
}

// The same of a chase that no level below the third holds, and the third does. Twice through its lines: more would say
// the same again.
SKIDPROOF_TEST(PmuRetiredEvents, CountEachLoadOfAChaseBeyondL2, clause::M49) {
  const Level beyond = level("L3", shape());
  SKIDPROOF_REQUIRE(beyond.bytes != 0, SkipCategory::kMachineLimit,
                    "CPUID.04H lists no third level, or one that is hardly larger than the second");
  constexpr Signal kLevels[] = {Signal::kLoadsL1Hit, Signal::kLoadsFillBuffer, Signal::kLoadsL2Hit,
                                Signal::kLoadsL3Hit, Signal::kLoadsL3Miss};
  const Program& code = program("pointer_chase", number("bytes", beyond.bytes));
  const uint64_t loads = beyond.bytes / 64 * 2;
  for (Signal signal : kLevels) {
    SKIDPROOF_REQUIRE(publishes(uarch(), {signal}), SkipCategory::kNotOnThisMicroarch, kNoEvent);
  }
  const uint64_t all = need(counted_in_all(machine(), kLevels, code, loads));
  evidence("served", all);
  evidence("loads", loads);
  VERIFY_LE(distance(all, loads), loads / 20 + 5 * kOwn);
}

// Lines far apart, so many that no TLB holds their pages; and few of them.
SKIDPROOF_TEST_OVER(PmuRetiredEvents, CountAccessesBeyondTheSecondLevelTlb,
                    over::words({"load", "store"}), clause::M49) {
  const bool stores = param().word() == "store";
  const Signal signal = stores ? Signal::kStlbMissStores : Signal::kStlbMissLoads;
  SKIDPROOF_REQUIRE(publishes(uarch(), {signal}), SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& far =
      stores ? program("store_stream", "stride=4K,unroll=1,window=@beyond-stlb")
             : program("pointer_chase", "granularity=4K,stagger=1,bytes=@beyond-stlb");
  const uint64_t pages = far.data_bytes / 4096;
  const Program& near = stores ? program("store_stream", "stride=4K,unroll=1,window=64K")
                               : program("pointer_chase", "granularity=4K,stagger=1,bytes=64K");
  const uint64_t iterations = pages * 4;
  const uint64_t missing = need(counted(machine(), signal, far, iterations));
  const uint64_t present = need(counted(machine(), signal, near, iterations));
  evidence("accesses", iterations);
  evidence("far", missing);
  evidence("near", present);
  VERIFY_LE(missing, iterations + kOwn);
  VERIFY_GE(missing, iterations / 2);
  VERIFY_LE(present, iterations / 20);
}

// Ways that nobody can predict: the conditional jumps are what is mispredicted, as often taken as not.
SKIDPROOF_TEST(PmuRetiredEvents, CountMispredictionsByKind, clause::M49) {
  SKIDPROOF_REQUIRE(publishes(uarch(), {Signal::kMispredicts, Signal::kMispredictsConditional}),
                    SkipCategory::kNotOnThisMicroarch, kNoEvent);
  constexpr uint64_t kLength = 16384, kRounds = 2;
  const Program& random = program("branch_pattern", number("pattern=random,length", kLength));
  auto of = [&](Signal signal) -> Expected<uint64_t> {
    const uint64_t found = SKIDPROOF_TRY(counted(machine(), signal, random, kRounds));
    evidence(name_of(signal), found);
    return found;
  };
  const uint64_t all = need(of(Signal::kMispredicts));
  const uint64_t conditional = need(of(Signal::kMispredictsConditional));
  VERIFY_GE(all, kLength * kRounds / 4);
  VERIFY_LE(distance(conditional, all), all / 20);
  if (publishes(uarch(), {Signal::kMispredictsNotTaken})) {
    const uint64_t not_taken = need(of(Signal::kMispredictsNotTaken));
    VERIFY_LE(distance(not_taken, all / 2), all / 8);
  }
  if (publishes(uarch(), {Signal::kMispredictsTaken})) {
    const uint64_t taken = need(of(Signal::kMispredictsTaken));
    VERIFY_LE(distance(taken, all / 2), all / 8);
  }
  if (publishes(uarch(), {Signal::kMispredictsNearCall})) {
    const uint64_t calls = need(of(Signal::kMispredictsNearCall));
    VERIFY_LE(calls, kOwn);
  }
}

// Whether events of the assist that writes a record are counted, nothing says: the same run with records and
// without tells it.
SKIDPROOF_TEST_OVER(PmuRetiredEvents, MayIncludeThoseOfARecord,
                    over::words({"uops", "loads", "stores", "instructions"}), clause::M49) {
  const std::string& word = param().word();
  const Signal signal = word == "uops"     ? Signal::kUops
                        : word == "loads"  ? Signal::kLoads
                        : word == "stores" ? Signal::kStores
                                           : Signal::kInstructions;
  const unsigned sampling = arming_counter(uarch());
  const arch::Event* sampled_event = sparse_event(uarch(), "taken", sampling);
  const arch::Event* event = counting_event(uarch(), signal, sampling + 1);
  SKIDPROOF_REQUIRE(sampled_event != nullptr && event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), sampling, *sampled_event, 64);
  const size_t room = safe_records(uarch(), 32);
  SessionPlan plan;
  plan.buffer_records = room;
  plan.counters = {CounterSetup::of(sampling, *sampled_event, period),
                   plain_counter(sampling + 1, *event)};
  const uint64_t iterations = room * period * 3 / 4;
  const Sampled with = need(sample(machine(), plan, code, iterations));
  const uint64_t records = with.records().size();
  SKIDPROOF_REQUIRE(records != 0, SkipCategory::kMachineLimit, "nothing was recorded");
  const uint64_t counted = with.run.counters.at(1);
  plan.counters[0].pebs = false;
  const uint64_t without = need(sample(machine(), plan, code, iterations)).run.counters.at(1);
  evidence("event", event->name);
  evidence("records", records);
  observe(word + "-of-a-record",
          static_cast<double>(difference(counted, without)) / static_cast<double>(records));
}

}  // namespace skidproof::check::pmu_retired_events
