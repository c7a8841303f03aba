// Skid: how far behind the instruction that caused the event the recorded IP lies, along the path
// that was executed.
//
// Each kernel's loop holds the event at known instructions with others between, so that the nearest
// one before a recorded IP is the one that caused it, and an IP that lies one too far shows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/check/check.h"
#include "suites/sampling.h"

namespace skidproof::pebs_skid {

SKIDPROOF_SUITE(PebsSkid, kOneRecord);

namespace {

using namespace suites;
using arch::Signal;
using check::Param;
using check::SkipCategory;
namespace over = check::over;

// One defect in 32 records must not slip through: 216 records miss it once in 900 tests, and every
// promise is tested by many programs.
constexpr size_t kRecordsARun = 54;
constexpr uint64_t kRuns = 4;
constexpr uint64_t kRecordsExpected = 200;
constexpr uint64_t kPeriod = 32;  // the smallest that every microarch sustains (R41)

constexpr bool kTaken = true, kFalls = false;

// A program, the event that is sampled on it, and which way its forward jumps go.
Param on(const char* label, Signal signal, const char* kernel, const char* parameters = "",
         bool forward_jump = kTaken) {
  return {.label = label,
          .numbers = {arch::index(signal), forward_jump},
          .words = {kernel, parameters}};
}
// numbers: counter, signal, forward jump; words: kernel, parameters.
std::vector<Param> over_counters(const std::vector<Param>& cases) {
  return over::product(over::counters({0, 1, 2, 3}), cases);
}

// A test's parameter, understood.
struct Case {
  explicit Case(const Param& p)
      : counter(static_cast<unsigned>(p.number(0))),
        signal(static_cast<Signal>(p.number(1))),
        taken(forward_jumps(p.number(2) != 0)),
        cause(causes(signal, taken)),
        kernel(p.word(0)),
        parameters(p.word(1)) {}

  unsigned counter;
  Signal signal;
  InstructionTest taken;
  InstructionTest cause;
  std::string kernel, parameters;
};

std::string absent(const arch::Microarch& microarch, Signal signal) {
  return fmt::format("{} publishes no precise event for {}", microarch.title,
                     arch::name_of(signal));
}

// Samples the program with several periods, so that where events come twice an iteration both give
// records.
Expected<Placing> place_samples(Machine& machine, const Program& program, const Case& c,
                                const arch::Event& event, const calibrate::Figure& measured,
                                Ring ring = Ring::kKernel) {
  const calibrate::Figure arming = arming_by(*machine.identity().microarch, event, measured);
  LoopPath path = LoopPath::of(program, c.taken);
  const uint64_t events = events_of(path, c.signal, c.taken);
  Placing all;
  const size_t records = safe_records(*machine.identity().microarch, kRecordsARun);
  const uint64_t runs = (kRuns * kRecordsARun + records - 1) / records;
  uint64_t enough = 0;  // iterations that filled the buffer of the run before
  for (uint64_t i = 0; i < runs; ++i) {
    uint64_t period = usable_period(*machine.identity().microarch, c.counter, event, kPeriod) + i;
    SessionPlan plan = one_counter(c.counter, event, period, records);
    plan.ring = ring;
    const uint64_t most = most_iterations(records, period, path.size(), events, arming);
    enough = std::max(enough, usual_iterations(records, period, path.size(), events, arming));
    Sampled sampled =
        SKIDPROOF_TRY(sample_until_full(machine, plan, program, records, enough, most));
    all += place(program, path, sampled.records(), c.cause);
  }
  return all;
}

// Enough records, and every one of them on the path.
void verify_on_path(const Placing& placing) {
  VERIFY_GE(placing.on_path, kRecordsExpected) << "too few records on the executed path";
  VERIFY_EQ(placing.off_path, 0u) << "records name instructions that were never executed";
  VERIFY_LE(placing.at_exit, placing.runs) << "the loop is left once a run";
  VERIFY_LE(placing.foreign, placing.runs * kForeignAllowed) << "records outside the program";
}

void verify_skid(const Placing& placing, bool two_allowed) {
  verify_on_path(placing);
  for (auto [skid, count] : placing.skid) {
    if (two_allowed) {
      VERIFY_THAT(skid, ::testing::AnyOf(1, 2)) << count << " records lie there";
    } else {
      VERIFY_EQ(skid, 1) << count << " records lie there";
    }
  }
}

std::vector<int64_t> allowed_skids(bool two_allowed) {
  return two_allowed ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1};
}

// The loop's own jump is an event beside the one that a test is about. Where arming is over in front of the next of the
// two, that one is recorded (R2), and periods even and odd come to stand in front of each: at least a quarter of the
// records is of the one that the test is about. Where it is not, and the distances differ by a cycle, all may be of one.
constexpr uint64_t kOfEachJump = kRecordsExpected / 10;

// What stands between two jumps, so that arming is over: multiplications that wait for one another, of at least three
// cycles each, or sparse_event's own chain, of as many cycles as instructions.
std::string apart_by(const calibrate::Figure& arming, const std::string& kernel) {
  constexpr uint64_t kLeast = 16, kMultiplication = 3, kMost = 64;
  const auto cycles = arming.known() ? static_cast<uint64_t>(std::ceil(arming.high)) : 0;
  if (kernel == "sparse_event") return fmt::format(",spacing={}", std::max(kLeast, cycles));
  return fmt::format(",spacing={},chain={}", kLeast,
                     std::min(kMost, (cycles + kMultiplication - 1) / kMultiplication));
}

// --- One instruction, whatever the event

SKIDPROOF_TEST_OVER(PebsSkid, IsOneInstructionBehindTheEvent,
                    over_counters({
                        on("sparse_load", Signal::kLoads, "sparse_event", "event=load,spacing=16"),
                        on("sparse_store", Signal::kStores, "sparse_event",
                           "event=store,spacing=16"),
                        on("sparse_simd", Signal::kSimd, "sparse_event", "event=simd,spacing=16"),
                        on("load_stream", Signal::kLoads, "load_stream", "unroll=1"),
                        on("store_stream", Signal::kStores, "store_stream", "unroll=1"),
                        on("locked_load", Signal::kLoads, "locked_rmw"),
                        on("locked_store", Signal::kStores, "locked_rmw"),
                        // Fused with its load, and with no jump.
                        on("micro_fused", Signal::kLoads, "micro_fusion", "operation=add,copies=1"),
                        // Microcoded instructions around the event.
                        on("before_division", Signal::kConditional, "division_shadow"),
                    }),
                    clause::R12, clause::R5, clause::R1) {
  Case c(param());
  const arch::Event* event = precise_event(uarch(), c.signal, c.counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, absent(uarch(), c.signal));
  const Program& loop = program(c.kernel, c.parameters);
  Placing placing = need(
      place_samples(machine(), loop, c, *event, calibrated(calibrate::Quantity::kArmingCycles)));
  verify_skid(placing, false);
  histogram("skid", "instructions", placing.skid, allowed_skids(false));
  evidence("event", event->name);
}

// The same above ring 0, whatever the machine does on the way in and out; that all counters are alike is
// seen at ring 0.
SKIDPROOF_TEST_OVER(
    PebsSkid, IsTheSameInRing3,
    over::product(over::counters({0, 3}),
                  {
                      on("load", Signal::kLoads, "sparse_event", "event=load,spacing=4"),
                      on("store", Signal::kStores, "sparse_event", "event=store,spacing=4"),
                      on("simd", Signal::kSimd, "sparse_event", "event=simd,spacing=4"),
                      on("taken", Signal::kConditional, "fused_branch",
                         "first=cmp,condition=e,apart=1,taken=1"),
                      on("call", Signal::kNearCalls, "call_return"),
                      on("macro_fused", Signal::kConditional, "fused_branch",
                         "first=cmp,condition=e,taken=1"),
                      on("fused", Signal::kLoads, "fused_branch",
                         "first=cmp,condition=e,form=mem_reg,taken=1"),
                  }),
    clause::R12, clause::R5, clause::R9, clause::R72) {
  Case c(param());
  const arch::Event* event = precise_event(uarch(), c.signal, c.counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, absent(uarch(), c.signal));
  const Program& loop = program(c.kernel, c.parameters);
  Placing placing = need(place_samples(
      machine(), loop, c, *event, calibrated(calibrate::Quantity::kArmingCycles), Ring::kUser));
  const bool pair = c.signal == Signal::kLoads && c.kernel == "fused_branch" &&
                    first_of_fused_pair(uarch(), loop, *loop.at(loop.mark("first")));
  verify_skid(placing, pair);
  histogram("skid", "instructions", placing.skid, allowed_skids(pair));
  evidence("event", event->name);
}

// Each repetition of a string store is an event; instructions retired, of which the whole is one (R60), no counter
// samples sparsely. Between two repetitions the state is that before the instruction goes on, and the IP its own;
// behind the last it is that of the next one.
SKIDPROOF_TEST_OVER(PebsSkid, IsOneAtMostBehindARepeatedStore,
                    over_counters({on("one", Signal::kStores, "string_fill", "elements=1,copies=1"),
                                   on("many", Signal::kStores, "string_fill",
                                      "elements=64,copies=1")}),
                    clause::R12, clause::R5) {
  Case c(param());
  const arch::Event* event = precise_event(uarch(), c.signal, c.counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, absent(uarch(), c.signal));
  const Program& loop = program(c.kernel, c.parameters);
  const Placing placing = need(
      place_samples(machine(), loop, c, *event, calibrated(calibrate::Quantity::kArmingCycles)));
  // Counted along the path, the instruction itself lies a whole iteration behind itself.
  const auto itself = static_cast<int64_t>(LoopPath::of(loop, c.taken).size());
  verify_on_path(placing);
  uint64_t between = 0;
  for (auto [skid, count] : placing.skid) {
    VERIFY_THAT(skid, ::testing::AnyOf(1, itself)) << count << " records lie there";
    if (skid == itself) between += count;
  }
  histogram("skid", "instructions", placing.skid, {1, itself});
  observe("between-repetitions", between);
  evidence("event", event->name);
}

// --- Branches

SKIDPROOF_TEST_OVER(
    PebsSkid, LandsOnTheTargetOfATakenBranch,
    over_counters({
        on("loop_branch", Signal::kBranches, "sparse_event", "event=taken,spacing=16"),
        on("conditional", Signal::kConditional, "fused_branch", "first=test,condition=ne,taken=1"),
        on("memory_conditional", Signal::kConditional, "fused_branch",
           "first=cmp,condition=e,form=mem_reg,taken=1"),
        on("apart_conditional", Signal::kConditional, "fused_branch",
           "first=cmp,condition=e,apart=1,taken=1"),
        on("near_taken", Signal::kNearTaken, "fused_branch", "first=cmp,condition=l,taken=1"),
        on("call", Signal::kNearCalls, "call_return"),
        on("return", Signal::kNearReturns, "call_return"),
    }),
    clause::R9, clause::R12) {
  Case c(param());
  const arch::Event* event = precise_event(uarch(), c.signal, c.counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, absent(uarch(), c.signal));
  const Program& loop = program(c.kernel, c.parameters);
  Placing placing = need(
      place_samples(machine(), loop, c, *event, calibrated(calibrate::Quantity::kArmingCycles)));
  verify_skid(placing, false);
  histogram("skid", "instructions", placing.skid, allowed_skids(false));
  evidence("event", event->name);
}

SKIDPROOF_TEST_OVER(
    PebsSkid, LandsOnTheFallThroughOfABranchNotTaken,
    over_counters({
        on("sparse", Signal::kConditional, "sparse_event", "event=not_taken", kFalls),
        on("fused", Signal::kConditional, "fused_branch", "first=cmp,condition=e,taken=0", kFalls),
        on("apart", Signal::kBranches, "fused_branch", "first=test,condition=ne,apart=1,taken=0",
           kFalls),
    }),
    clause::R12, clause::R5) {
  Case c(param());
  const arch::Event* event = precise_event(uarch(), c.signal, c.counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, absent(uarch(), c.signal));
  const calibrate::Figure& arming = calibrated(calibrate::Quantity::kArmingCycles);
  const Program& loop =
      program(c.kernel, c.parameters + apart_by(arming_by(uarch(), *event, arming), c.kernel));
  Placing placing = need(place_samples(machine(), loop, c, *event, arming));
  verify_skid(placing, false);
  histogram("skid", "instructions", placing.skid, allowed_skids(false));
  const uint64_t records = placing.hits[loop.mark(c.kernel == "sparse_event" ? "after" : "next")];
  evidence("fall_through_records", records);
  VERIFY_GE(records, kOfEachJump) << "few records of the branch not taken";
}

// --- Fused pairs

std::vector<Param> fused_pairs() {
  return over_counters({
      on("cmp.taken", Signal::kLoads, "fused_branch", "first=cmp,condition=e,form=mem_reg"),
      on("cmp.falls", Signal::kLoads, "fused_branch", "first=cmp,condition=b,form=mem_reg,taken=0",
         kFalls),
      on("test.taken", Signal::kLoads, "fused_branch", "first=test,condition=ne,form=mem_reg"),
      on("test.falls", Signal::kLoads, "fused_branch",
         "first=test,condition=s,form=mem_reg,taken=0", kFalls),
      on("and.taken", Signal::kLoads, "fused_branch", "first=and,condition=ne,form=mem_reg"),
      on("add.taken", Signal::kLoads, "fused_branch", "first=add,condition=ne,form=mem_reg"),
      on("sub.falls", Signal::kLoads, "fused_branch", "first=sub,condition=l,form=mem_reg,taken=0",
         kFalls),
  });
}

SKIDPROOF_TEST_OVER(PebsSkid, IsTwoAtMostBehindAMicroAndMacroFusedPair, fused_pairs(), clause::R12,
                    clause::R72) {
  Case c(param());
  const arch::Event* event = precise_event(uarch(), c.signal, c.counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, absent(uarch(), c.signal));
  const Program& loop = program(c.kernel, c.parameters);
  Placing placing = need(
      place_samples(machine(), loop, c, *event, calibrated(calibrate::Quantity::kArmingCycles)));
  const bool fuses = first_of_fused_pair(uarch(), loop, *loop.at(loop.mark("first")));
  verify_skid(placing, fuses);
  histogram("skid", "instructions", placing.skid, allowed_skids(fuses));
  evidence("fuses", fuses);
  if (fuses && uarch().fused_pair_skid == 1) observe(kTwoBehindAPair, placing.skid[2]);
}

// A pair that is macro-fused only holds one event of its own, the jump, and is behind when that is: the IP is the
// jump's target or what follows it.
SKIDPROOF_TEST_OVER(
    PebsSkid, IsOneBehindAMacroFusedPair,
    over_counters({
        on("cmp.taken", Signal::kConditional, "fused_branch", "first=cmp,condition=e"),
        on("test.falls", Signal::kConditional, "fused_branch", "first=test,condition=s,taken=0",
           kFalls),
        on("sub.falls", Signal::kConditional, "fused_branch", "first=sub,condition=l,taken=0",
           kFalls),
        on("inc.taken", Signal::kConditional, "fused_branch", "first=inc,condition=ne"),
    }),
    clause::R12, clause::R9, clause::R72) {
  Case c(param());
  const arch::Event* event = precise_event(uarch(), c.signal, c.counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, absent(uarch(), c.signal));
  const calibrate::Figure& arming = calibrated(calibrate::Quantity::kArmingCycles);
  const Program& loop =
      program(c.kernel, c.parameters + apart_by(arming_by(uarch(), *event, arming), c.kernel));
  Placing placing = need(place_samples(machine(), loop, c, *event, arming));
  verify_skid(placing, false);
  histogram("skid", "instructions", placing.skid, allowed_skids(false));
  const uint64_t records = placing.hits[loop.mark(param().number(2) == kTaken ? "target" : "next")];
  evidence("records_of_the_pair", records);
  VERIFY_GE(records, kOfEachJump) << "few records of the pair";
  evidence("fuses", first_of_fused_pair(uarch(), loop, *loop.at(loop.mark("first"))));
}

// The control: the same instructions with a no-operation between the two, and pairs that nothing
// fuses.
SKIDPROOF_TEST_OVER(
    PebsSkid, IsOneWhereThePairDoesNotFuse,
    over_counters({
        on("apart.taken", Signal::kLoads, "fused_branch", "first=cmp,form=mem_reg,apart=1"),
        on("apart.falls", Signal::kLoads, "fused_branch",
           "first=test,condition=s,form=mem_reg,apart=1,taken=0", kFalls),
        on("or", Signal::kLoads, "fused_branch", "first=or,condition=ne,form=mem_reg"),
        on("cmp_sign", Signal::kLoads, "fused_branch", "first=cmp,condition=ns,form=mem_reg"),
        on("cmp_immediate", Signal::kLoads, "fused_branch", "first=cmp,condition=e,form=mem_imm"),
    }),
    clause::R12, clause::R69, clause::R72) {
  Case c(param());
  const arch::Event* event = precise_event(uarch(), c.signal, c.counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, absent(uarch(), c.signal));
  const Program& loop = program(c.kernel, c.parameters);
  Placing placing = need(
      place_samples(machine(), loop, c, *event, calibrated(calibrate::Quantity::kArmingCycles)));
  VERIFY_FALSE(first_of_fused_pair(uarch(), loop, *loop.at(loop.mark("first"))))
      << "the control would fuse";
  verify_skid(placing, false);
  histogram("skid", "instructions", placing.skid, allowed_skids(false));
}

// --- Uops

// Every instruction is an event, so the distance tells nothing; but the recorded IP is always that
// of an instruction which the loop executes next.
SKIDPROOF_TEST_OVER(
    PebsSkid, KeepsUopRecordsOnTheExecutedPath,
    over_counters({
        on("taken", Signal::kUops, "fused_branch", "first=cmp,condition=e,form=mem_reg,pairs=8"),
        on("apart", Signal::kUops, "fused_branch", "first=test,condition=ne,apart=1,pairs=8"),
        on("calls", Signal::kUops, "call_return", "depth=8"),
        on("loop", Signal::kUops, "empty"),
        on("macro_fused", Signal::kUops, "fused_branch", "first=cmp,condition=e,pairs=8"),
        on("microcoded", Signal::kUops, "division_shadow"),
        on("repeated", Signal::kUops, "string_fill", "elements=16,copies=4"),
    }),
    clause::R5, clause::R9) {
  Case c(param());
  const arch::Event* event = dense_event(uarch(), c.counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, absent(uarch(), c.signal));
  const Program& loop = program(c.kernel, c.parameters);
  Placing placing = need(
      place_samples(machine(), loop, c, *event, calibrated(calibrate::Quantity::kArmingCycles)));
  verify_on_path(placing);
  std::map<int64_t, uint64_t> positions;
  for (auto [ip, count] : placing.hits)
    positions[static_cast<int64_t>(instruction_index(loop, ip).value())] += count;
  histogram("position", "instructions", positions);
}

}  // namespace
}  // namespace skidproof::pebs_skid
