// EventingIP: from Haswell to Skylake each record names the sampled instruction at B0H, beside the
// instruction after it at 08H.
#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "harness/check/check.h"
#include "suites/sampling.h"

namespace skidproof::pebs_eventing_ip {
namespace {

using namespace suites;
using arch::Signal;
using check::Param;
using check::SkipCategory;
namespace over = check::over;

constexpr size_t kRecordsARun = 54;
constexpr uint64_t kRuns = 4;
constexpr uint64_t kRecordsExpected = 200;
constexpr uint64_t kPeriod = 32;

// Both IPs stand at fixed places, so that their distance is a fact of the record alone.
bool holds_both(const arch::Microarch& microarch) {
  return microarch.record->eventing_ip != arch::kAbsent && microarch.record->ip != arch::kAbsent;
}
constexpr char kAbsent[] = "the record does not hold both IPs";

// A program, the event sampled on it, and which way its forward jumps go.
Param on(const char* label, Signal signal, const char* kernel, const char* parameters = "",
         bool forward_jump = true) {
  return {.label = label,
          .numbers = {arch::index(signal), forward_jump},
          .words = {kernel, parameters}};
}
std::vector<Param> over_counters(const std::vector<Param>& cases) {
  return over::product(over::counters({0, 1, 2, 3}), cases);
}

// Whether an instruction of a path causes an event.
bool causes(Signal signal, const Instruction& i) {
  switch (signal) {
    case Signal::kLoads:
      return i.loads;
    case Signal::kStores:
      return i.stores;
    case Signal::kConditional:
      return i.flow == Flow::kConditional;
    case Signal::kNearCalls:
      return i.flow == Flow::kCall;
    case Signal::kNearReturns:
      return i.flow == Flow::kReturn;
    default:
      return signal == Signal::kUops;
  }
}

struct Case {
  explicit Case(const Param& p)
      : counter(static_cast<unsigned>(p.number(0))),
        signal(static_cast<Signal>(p.number(1))),
        taken(forward_jumps(p.number(2) != 0)) {}

  unsigned counter;
  Signal signal;
  InstructionTest taken;
};

// A record's two IPs, both inside the loop.
struct Pair {
  const Instruction* eventing;
  uint64_t ip;
  uint64_t distance;  // along the path, from the eventing instruction to the recorded IP
};
struct Pairs {
  std::vector<Pair> inside;
  uint64_t elsewhere = 0;  // on the way in and out
};

Expected<Pairs> sample_pairs(Machine& machine, const Program& loop, const Case& c,
                             const arch::Event& event, const calibrate::Figure& arming) {
  LoopPath path = LoopPath::of(loop, c.taken);
  const uint64_t events = events_of(path, event.signal, c.taken);
  Pairs pairs;
  uint64_t enough = 0;  // iterations that filled the buffer of the run before
  for (uint64_t run = 0; run < kRuns; ++run) {
    const uint64_t period = usable_period(*machine.identity().microarch, kPeriod) + run;
    const uint64_t most = most_iterations(kRecordsARun, period, path.size(), events, arming);
    enough = std::max(enough, usual_iterations(kRecordsARun, period, path.size(), events, arming));
    Sampled sampled = SKIDPROOF_TRY(
        sample_until_full(machine, one_counter(c.counter, event, period, kRecordsARun), loop,
                          kRecordsARun, enough, most));
    for (Record record : sampled.records()) {
      std::optional<size_t> at = path.position(record.eventing_ip());
      std::optional<size_t> next = path.position(record.ip());
      if (foreign(loop, record.ip()) || (at && !next)) {
        ++pairs.elsewhere;
        continue;
      }
      uint64_t distance = at && next ? (*next + path.size() - *at) % path.size() : 0;
      if (at && next && distance == 0) distance = path.size();
      pairs.inside.push_back({loop.at(record.eventing_ip()), record.ip(), distance});
    }
  }
  return pairs;
}

}  // namespace

SKIDPROOF_SUITE(PebsEventingIp, kOneRecord);

// The instruction at B0H is one that causes the event, and 08H lies one instruction behind it, or two
// where it begins a fused pair.
SKIDPROOF_TEST_OVER(
    PebsEventingIp, NamesTheSampledInstruction,
    over_counters({
        on("sparse_load", Signal::kLoads, "sparse_event", "event=load,spacing=16"),
        on("sparse_store", Signal::kStores, "sparse_event", "event=store,spacing=16"),
        on("load_stream", Signal::kLoads, "load_stream"),
        on("store_stream", Signal::kStores, "store_stream"),
        on("locked_load", Signal::kLoads, "locked_rmw"),
        on("calls", Signal::kNearCalls, "call_return"),
        on("returns", Signal::kNearReturns, "call_return"),
        on("fused_taken", Signal::kLoads, "fused_branch", "first=cmp,condition=e,form=mem_reg"),
        on("fused_falls", Signal::kLoads, "fused_branch",
           "first=cmp,condition=b,form=mem_reg,taken=0", false),
        on("not_taken", Signal::kConditional, "sparse_event", "event=not_taken,spacing=16", false),
        on("uops", Signal::kUops, "call_return", "depth=8"),
    }),
    clause::R8, clause::R12, clause::G1) {
  SKIDPROOF_REQUIRE(holds_both(uarch()), SkipCategory::kNotOnThisMicroarch, kAbsent);
  Case c(param());
  const arch::Event* event = precise_event(uarch(), c.signal, c.counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    fmt::format("no precise event for {}", arch::name_of(c.signal)));
  const Program& loop = program(param().word(0), param().word(1));

  Pairs pairs = need(
      sample_pairs(machine(), loop, c, *event, calibrated(calibrate::Quantity::kArmingCycles)));

  VERIFY_GE(pairs.inside.size(), kRecordsExpected);
  VERIFY_LE(pairs.elsewhere, kRuns * (kForeignAllowed + 1));
  std::map<int64_t, uint64_t> distances;
  bool fused = false;
  for (const Pair& pair : pairs.inside) {
    VERIFY_TRUE(pair.eventing != nullptr) << "B0H is no instruction of the program";
    if (pair.eventing == nullptr) return;
    VERIFY_TRUE(causes(c.signal, *pair.eventing)) << pair.eventing->text;
    const bool two = first_of_fused_pair(uarch(), loop, *pair.eventing);
    fused |= two;
    if (two) {
      VERIFY_THAT(pair.distance, ::testing::AnyOf(1u, 2u)) << "after " << pair.eventing->text;
    } else {
      VERIFY_EQ(pair.distance, 1u) << "after " << pair.eventing->text;
    }
    ++distances[static_cast<int64_t>(pair.distance)];
  }
  histogram("distance", "instructions", distances, {1, 2});
  if (fused && uarch().fused_pair_skid == 1) observe(kTwoBehindAPair, distances[2]);
}

// On a taken branch 08H is its target and B0H the branch itself.
SKIDPROOF_TEST_OVER(PebsEventingIp, IsTheBranchWhoseTargetIsTheIp,
                    over_counters({
                        on("loop", Signal::kConditional, "sparse_event", "event=taken,spacing=16"),
                        on("apart", Signal::kConditional, "fused_branch",
                           "first=test,condition=ne,apart=1"),
                        on("calls", Signal::kNearCalls, "call_return"),
                    }),
                    clause::R9, clause::R8) {
  SKIDPROOF_REQUIRE(holds_both(uarch()), SkipCategory::kNotOnThisMicroarch, kAbsent);
  Case c(param());
  const arch::Event* event = precise_event(uarch(), c.signal, c.counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    fmt::format("no precise event for {}", arch::name_of(c.signal)));
  const Program& loop = program(param().word(0), param().word(1));

  Pairs pairs = need(
      sample_pairs(machine(), loop, c, *event, calibrated(calibrate::Quantity::kArmingCycles)));

  VERIFY_GE(pairs.inside.size(), kRecordsExpected);
  for (const Pair& pair : pairs.inside) {
    VERIFY_TRUE(pair.eventing != nullptr && pair.eventing->flow != Flow::kNone)
        << "B0H is no branch of the program";
    if (pair.eventing == nullptr) return;
    VERIFY_EQ(pair.ip, pair.eventing->target) << "after " << pair.eventing->text;
  }
  evidence("records", pairs.inside.size());
}

// What HSD167 leaves standing, and a processor that has another instruction there does not.
SKIDPROOF_TEST_OVER(
    PebsEventingIp, NamesTheSampledInstructionMostly,
    over::product(over::counters({0}),
                  {on("load", Signal::kLoads, "sparse_event", "event=load,spacing=16"),
                   on("taken", Signal::kConditional, "sparse_event", "event=taken,spacing=16")}),
    clause::R8) {
  SKIDPROOF_REQUIRE(holds_both(uarch()), SkipCategory::kNotOnThisMicroarch, kAbsent);
  Case c(param());
  const arch::Event* event = precise_event(uarch(), c.signal, c.counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    fmt::format("no precise event for {}", arch::name_of(c.signal)));
  const Program& loop = program(param().word(0), param().word(1));

  const Pairs pairs = need(
      sample_pairs(machine(), loop, c, *event, calibrated(calibrate::Quantity::kArmingCycles)));

  VERIFY_GE(pairs.inside.size(), kRecordsExpected);
  uint64_t right = 0;
  for (const Pair& pair : pairs.inside)
    right += pair.eventing != nullptr && causes(c.signal, *pair.eventing) && pair.distance == 1;
  evidence("records", pairs.inside.size());
  evidence("right", right);
  VERIFY_GE(2 * right, pairs.inside.size());
}

// No program here is ever inside a transaction.
SKIDPROOF_TEST_OVER(PebsEventingIp, LeavesTheTransactionFieldZeroOutsideTransactions,
                    over::counters({0, 1, 2, 3}), clause::G2) {
  SKIDPROOF_REQUIRE(uarch().record->tx_information != arch::kAbsent,
                    SkipCategory::kNotOnThisMicroarch, "the record has no such field");
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = precise_event(uarch(), Signal::kLoads, counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, "no precise load event");
  const uint64_t period = usable_period(uarch(), kPeriod);

  Sampled sampled = need(sample(machine(), one_counter(counter, *event, period, kRecordsARun),
                                program("mixed"), iterations_for(kRecordsARun, period)));

  VERIFY_GE(sampled.records().size(), kRecordsARun / 2);
  for (Record record : sampled.records()) VERIFY_EQ(record.tx_information(), 0u);
}

}  // namespace skidproof::pebs_eventing_ip
