// What programs cost, in relations that hold on any processor, and held against published figures. No PMU is needed: where
// counters answer, cycles of the core are counted, else ticks of the time stamp counter are.
//
// A sample is the least of several undisturbed runs, since whatever disturbs makes dearer. The two that are compared are
// sampled by turns, so that a slow drift of the clock meets both. Nothing is judged by a margin: a relation is broken where
// every sample of the one lies beyond every sample of the other, on the wrong side.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/check/check.h"
#include "harness/check/outcome.h"
#include "harness/check/set_aside.h"
#include "harness/stats/robust.h"
#include "pebs/arch/fusion.h"
#include "pebs/session.h"
#include "pebs/told.h"

namespace skidproof::check::timing {
namespace {

using stats::maximum;
using stats::minimum;

constexpr size_t kSamples = 7;
// Runs of a sample that count, and as many times that of runs for them at most.
constexpr unsigned kTries = 5, kPatience = 3;

constexpr uint64_t kLine = 64, kPage = 4096;
constexpr uint64_t kUnroll = 16;
constexpr uint64_t kLoads = 8192;  // of a run

struct Run {
  double cost = 0;  // cycles or ticks
  uint64_t result = 0;
  Noise noise;
};

// Something came in that is not the program's.
bool spoiled(const Noise& noise) {
  return noise.involuntary_switches + noise.migrations + noise.smi + noise.machine_checks +
                 noise.foreign_nmis !=
             0 ||
         noise.steal_s > 0;
}
// The system's own interrupts, which a run of some milliseconds can hardly be without.
bool interrupted(const Noise& noise) { return noise.interrupted + noise.slices != 0; }

// Counts core cycles where there is a counter for them (fixed counter 1), else ticks.
class Stopwatch {
 public:
  // SkipTest where neither is the machine's own time.
  static Expected<Stopwatch> on(Machine& machine) {
    const Identity& who = machine.identity();
    Stopwatch watch(machine);
    if (who.pmu && who.microarch != nullptr && who.microarch->architectural_perfmon() &&
        who.microarch->fixed_counters > 1) {
      watch.session_ = std::make_shared<Session>(
          SKIDPROOF_TRY(Session::open(machine, {.counters = {}, .fixed = {{.counter = 1}}})));
    } else if (who.provenance == Provenance::kVirtualLab) {
      throw SkipTest{SkipCategory::kMachineLimit,
                     "no counter of core cycles, and the time stamp counter is the emulator's"};
    }
    return watch;
  }

  const char* unit() const { return session_ ? "cycles" : "ticks"; }

  // What disturbed a run its noise says: sample() judges by that.
  Expected<Run> run(const Program& program, uint64_t iterations) const {
    if (session_) {
      const SessionRun run = SKIDPROOF_TRY(session_->run(program, iterations));
      set_aside(run.log);
      return Run{static_cast<double>(run.fixed.at(0)), run.log.result, run.log.noise};
    }
    RunPlan plan;
    plan.iterations = iterations;
    const RunLog log = SKIDPROOF_TRY(machine_->run(program, plan));
    set_aside(log);
    return Run{static_cast<double>(log.tsc), log.result, log.noise};
  }

 private:
  explicit Stopwatch(Machine& machine) : machine_(&machine) {}

  Machine* machine_;
  std::shared_ptr<Session> session_;
};

using Once = std::function<Expected<Run>()>;

Expected<double> sample(const Once& once) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  double quiet = kNone, any = kNone;
  unsigned counted = 0;
  for (unsigned i = 0; i < kPatience * kTries && counted < kTries; ++i) {
    const Run run = SKIDPROOF_TRY(once());
    if (spoiled(run.noise)) continue;
    double& least = interrupted(run.noise) ? any : quiet;
    least = std::min(least, run.cost);
    if (!interrupted(run.noise)) ++counted;
  }
  if (quiet == kNone && any == kNone) {
    throw SkipTest{SkipCategory::kNoise,
                   fmt::format("each of {} runs was interrupted by a switch, by stolen time or by "
                               "an SMI",
                               kPatience * kTries)};
  }
  return quiet != kNone ? quiet : any;
}

// One side of a comparison: what brings its data where they belong before each sample, and a run.
struct Side {
  Once run;
  std::function<Expected<void>()> warm = {};
};

struct Both {
  std::vector<double> first, second;
};

Expected<Both> sample_by_turns(const Side& first, const Side& second) {
  Both both;
  const auto take = [](const Side& side, std::vector<double>& into) -> Expected<void> {
    if (side.warm) SKIDPROOF_CHECK(side.warm());
    into.push_back(SKIDPROOF_TRY(sample(side.run)));
    return {};
  };
  for (size_t i = 0; i < kSamples; ++i) {
    SKIDPROOF_CHECK(take(first, both.first));
    SKIDPROOF_CHECK(take(second, both.second));
  }
  return both;
}

Side running(const Stopwatch& watch, const Program& program, uint64_t iterations) {
  return {.run = [&watch, &program, iterations] { return watch.run(program, iterations); }};
}

// A chase that goes on where its last run stopped, whose result is the next pointer: from the start again a run would
// meet only what the one before left in the caches.
class Walk {
 public:
  Walk(const Stopwatch& watch, const Program& program)
      : watch_(&watch),
        program_(std::make_shared<Program>(program)),
        loads_(program.per_iteration.loads) {}

  Expected<Run> operator()(uint64_t loads) const {
    Run run = SKIDPROOF_TRY(watch_->run(*program_, (loads + loads_ - 1) / loads_));
    program_->data_address = run.result;
    program_->data_bytes = sizeof(uint64_t);
    return run;
  }
  // `all`: the loads of a whole round, by which a footprint that fits comes where it belongs.
  Side side(uint64_t all, uint64_t loads = kLoads) const {
    return {.run = [walk = *this, loads] { return walk(loads); },
            .warm = [walk = *this, all]() -> Expected<void> {
              SKIDPROOF_CHECK(walk(all));
              return {};
            }};
  }
  // The same lines from memory, whatever the caches hold: `flush`, a chase that flushes each line behind its load, goes
  // the same way ahead of each run, of no more loads than there are lines.
  Side flushed(const Program& flush, uint64_t loads) const {
    return {.run = [walk = *this, ahead = Walk(*watch_, flush), loads]() -> Expected<Run> {
      ahead.program_->data_address = walk.program_->data_address;
      ahead.program_->data_bytes = walk.program_->data_bytes;
      SKIDPROOF_CHECK(ahead(loads));
      return walk(loads);
    }};
  }

 private:
  const Stopwatch* watch_;
  std::shared_ptr<Program> program_;
  uint64_t loads_;
};

ToldCache told(const Machine& machine, unsigned level) {
  const auto cache = told_cache(machine, level);
  if (cache) return *cache;
  throw SkipTest{SkipCategory::kMachineLimit, fmt::format("CPUID tells of no L{}", level)};
}

constexpr unsigned kMemory = 4;  // as a level
unsigned level_of(std::string_view word) {
  return word == "memory" ? kMemory : static_cast<unsigned>(word[1] - '0');
}

// So much that the level holds it well, and the one before it does not: half of it, or four times the one before.
uint64_t footprint_in(const Machine& machine, unsigned level) {
  uint64_t bytes = told(machine, level).bytes / 2;
  if (level > 1) {
    const uint64_t before = told(machine, level - 1).bytes;
    bytes = std::min(bytes, 4 * before);
    if (bytes < 2 * before) {
      throw SkipTest{SkipCategory::kMachineLimit,
                     fmt::format("L{} is less than four times as large as L{}: no working set is "
                                 "clearly its own",
                                 level, level - 1)};
    }
  }
  return bytes / kLine * kLine;
}

// Where there is no third level, memory stands behind the second.
std::vector<Param> neighbours() {
  std::vector<Param> pairs;
  for (const auto& [near, far] :
       {std::pair{"L1", "L2"}, {"L2", "L3"}, {"L3", "memory"}, {"L2", "memory"}})
    pairs.push_back({.label = fmt::format("{}.{}", near, far), .words = {near, far}});
  return pairs;
}

// So many lines over so many bytes, evenly over the sets of the caches.
std::string chase_parameters(uint64_t lines, uint64_t bytes) {
  const uint64_t granularity = bytes / lines / kLine * kLine;
  return fmt::format("bytes={},granularity={},stagger=3,unroll={}", lines * granularity,
                     granularity, kUnroll);
}

// What a cycle of the core is in the stopwatch's unit: that of a chain of additions, each of which takes one.
class Cycle {
 public:
  Cycle(const Stopwatch& watch, const Program& chain) : watch_(&watch), chain_(&chain) {}
  static constexpr char kParameters[] = "operation=add,length=256";

  Expected<double> now() const {
    constexpr uint64_t kIterations = 120;
    if (std::string_view(watch_->unit()) == "cycles") return 1.0;
    const double cost = SKIDPROOF_TRY(sample(running(*watch_, *chain_, kIterations).run));
    return cost / static_cast<double>(chain_->per_iteration.instructions * kIterations);
  }

 private:
  const Stopwatch* watch_;
  const Program* chain_;
};

results::Json json_of(const Both& cost, const char* first, const char* second) {
  return {{first, cost.first}, {second, cost.second}};
}

// Iterations of 16 round trips through memory.
constexpr uint64_t kTrips = 512;

// Whether the instruction, of two registers, and JE are one of the pairs that a row of facts says to fuse. Without a
// row: CMP and TEST, which fuse wherever anything does.
bool fuses(const arch::Microarch* microarch, std::string_view first) {
  using arch::FusionFirst;
  constexpr std::pair<std::string_view, FusionFirst> kFirsts[] = {
      {"cmp", FusionFirst::kCmp}, {"test", FusionFirst::kTest}, {"and", FusionFirst::kAnd},
      {"add", FusionFirst::kAdd}, {"sub", FusionFirst::kSub},   {"inc", FusionFirst::kInc},
      {"dec", FusionFirst::kDec}};
  if (microarch == nullptr) return first == "cmp" || first == "test";
  for (const auto& [word, kind] : kFirsts) {
    if (word == first)
      return microarch->fusion.fuses(kind, arch::Condition::kE, false, false, false);
  }
  return false;
}

// Lines of one set of the first level, four for each of its ways: none is in it when its turn comes again, whatever else a
// prefetcher brings there.
uint64_t lines_of_a_set(const Machine& machine) { return 4 * told(machine, 1).ways; }
std::string parameters_of_a_set(const Machine& machine, uint64_t lines) {
  const ToldCache first = told(machine, 1);
  const uint64_t way = first.bytes / first.ways;
  return fmt::format("bytes={},granularity={},unroll={}", lines * way, way, kUnroll);
}

}  // namespace

SKIDPROOF_SUITE(Timing, kCount);

SKIDPROOF_TIMING_TEST_OVER(Timing, AnswersNoSoonerFromTheLevelBehind, neighbours(), clause::T1) {
  const unsigned near = level_of(param().word(0)), far = level_of(param().word(1));
  const Stopwatch watch = need(Stopwatch::on(machine()));
  const auto footprint = [&](unsigned level) {
    const uint64_t bytes = footprint_in(machine(), level);
    evidence(fmt::format("bytes in L{}", level), bytes);
    return bytes;
  };
  const uint64_t lines = footprint(near) / kLine;
  const auto judge = [&](const Side& nearer, const Side& further) {
    const Both cost = need(sample_by_turns(nearer, further));
    evidence(watch.unit(), json_of(cost, "nearer", "further"));
    VERIFY_LE(minimum(cost.first), maximum(cost.second)) << watch.unit();
  };
  if (far == kMemory) {
    // Every other line, so that none is brought in beside its neighbour.
    const Walk walk(watch, program("pointer_chase", chase_parameters(lines, 2 * lines * kLine)));
    const Program& flush = program("pointer_chase", fmt::format("flush=1,unroll={}", kUnroll));
    const uint64_t loads = std::min(kLoads, lines / kUnroll * kUnroll);
    judge(walk.side(lines, loads), walk.flushed(flush, loads));
    return;
  }
  // The lines of the nearer level lie as far apart as it takes to be on as many pages as those of the further one.
  const uint64_t all = footprint(far);
  const Program& dense = program("pointer_chase", chase_parameters(all / kLine, all));
  const Program& sparse = program("pointer_chase", chase_parameters(lines, all));
  judge(Walk(watch, sparse).side(lines), Walk(watch, dense).side(all / kLine));
}

// One line of each page against the same number of lines side by side; both fit the second level.
SKIDPROOF_TIMING_TEST(Timing, LoadsNoSoonerThroughMorePages, clause::T2) {
  constexpr uint64_t kMostPages = 4096;
  const Stopwatch watch = need(Stopwatch::on(machine()));
  const uint64_t lines = std::min(kMostPages, told(machine(), 2).bytes / 2 / kLine);
  evidence("lines", lines);
  const Program& few =
      program("pointer_chase", fmt::format("bytes={},unroll={}", lines * kLine, kUnroll));
  // Staggered, so that the lines do not all fall into the same few sets of the caches.
  const Program& many = program("pointer_chase", chase_parameters(lines, lines * kPage));
  const Both cost =
      need(sample_by_turns(Walk(watch, few).side(lines), Walk(watch, many).side(lines)));
  evidence(watch.unit(), json_of(cost, "few pages", "many pages"));
  VERIFY_LE(minimum(cost.first), maximum(cost.second)) << watch.unit();
}

// The same code over directions that were never seen before, and over two that alternate: as many jumps are taken, and
// half of the former are mispredicted by whatever means they are foreseen.
SKIDPROOF_TIMING_TEST(Timing, PaysForAMisprediction, clause::T3) {
  constexpr uint64_t kDirections = 8192, kFewest = kDirections / 4;  // mispredictions
  const Stopwatch watch = need(Stopwatch::on(machine()));
  const Program& chain = program("alu_chain", Cycle::kParameters);
  const std::string length = fmt::format(",length={}", kDirections);
  const Program& alternating = program("branch_pattern", "pattern=alternating" + length);
  const Program& unforeseen = program("branch_pattern", "pattern=random" + length);
  const Side surprise{.run = [&] {
    refill(unforeseen, random().next());
    return watch.run(unforeseen, 1);
  }};
  const Both cost = need(sample_by_turns(running(watch, alternating, 1), surprise));
  const double cycle = need(Cycle(watch, chain).now());
  evidence(watch.unit(), json_of(cost, "predicted", "half mispredicted"));
  // Free is what costs less than a cycle for each, if but every second is met that is to be expected.
  VERIFY_GE(maximum(cost.second), minimum(cost.first) + cycle * kFewest) << watch.unit();
  SKIDPROOF_REQUIRE(minimum(cost.second) > maximum(cost.first), SkipCategory::kNoise,
                    "samples with mispredictions are not told from those without");
}

// Adjacent and with the no-operation between them, that else stands before them: as many instructions in as many bytes.
// The pair lies within 32 bytes, so that no border of a fetch or of a line of decoded instructions comes into it; more
// than one distance is tried, since where a loop ends makes a difference of its own.
SKIDPROOF_TIMING_TEST_OVER(Timing, FusedIsNoSlowerThanApart,
                           over::words({"cmp", "test", "and", "add", "sub", "inc", "dec"}),
                           clause::T4) {
  constexpr uint64_t kIterations = 4096;
  const arch::Microarch* microarch = machine().identity().microarch;
  const std::string& first = param().word();
  SKIDPROOF_REQUIRE(fuses(microarch, first), SkipCategory::kNotOnThisMicroarch,
                    microarch == nullptr ? "no row of facts says that it fuses"
                                         : "it does not fuse with JE in 64-bit mode");
  const Stopwatch watch = need(Stopwatch::on(machine()));
  std::vector<double> excess;
  for (unsigned spacing : {0u, 2u, 4u}) {
    const auto code = [&](unsigned apart) -> const Program& {
      return program("fused_branch", fmt::format("first={},condition=e,taken=0,spacing={},apart={}",
                                                 first, spacing, apart));
    };
    const Program &together = code(0), &apart = code(1);
    const Both cost = need(
        sample_by_turns(running(watch, together, kIterations), running(watch, apart, kIterations)));
    evidence(fmt::format("{}, spacing {}", watch.unit(), spacing),
             json_of(cost, "together", "apart"));
    excess.push_back(minimum(cost.first) - maximum(cost.second));
  }
  VERIFY_LE(minimum(excess), 0.0) << watch.unit()
                                  << " by which the pair is slower, wherever it stands";
}

// Cores that rename memory hand on what was stored in no time, and the load is spared: forwarded, both cost a twelfth less than
// apart on one with Redwood Cove's sizes. The store is left, and it takes no less than the load.
SKIDPROOF_TIMING_TEST(Timing, ForwardsNoSoonerThanNothingWaits, clause::T5) {
  const Stopwatch watch = need(Stopwatch::on(machine()));
  const Program& apart = program("store_forward", "load_at=192,trips=16");
  const Program& forwarded = program("store_forward", "trips=16");
  const Both cost =
      need(sample_by_turns(running(watch, apart, kTrips), running(watch, forwarded, kTrips)));
  evidence(watch.unit(), json_of(cost, "apart", "forwarded"));
  VERIFY_LE(minimum(cost.first) / 2, maximum(cost.second)) << watch.unit();
}

// Blocked is a load that needs seven bytes beside the one that was stored.
SKIDPROOF_TIMING_TEST(Timing, ForwardsNoLaterThanWhereItIsBlocked, clause::T6) {
  const Stopwatch watch = need(Stopwatch::on(machine()));
  const Program& forwarded = program("store_forward", "trips=16");
  const Program& blocked = program("store_forward", "store=1,trips=16");
  const Both cost =
      need(sample_by_turns(running(watch, forwarded, kTrips), running(watch, blocked, kTrips)));
  evidence(watch.unit(), json_of(cost, "forwarded", "blocked"));
  VERIFY_LE(minimum(cost.first), maximum(cost.second)) << watch.unit();
}

SKIDPROOF_TIMING_TEST(Timing, LoadsThatWaitForNothingCostNoMore, clause::T7) {
  const Stopwatch watch = need(Stopwatch::on(machine()));
  const uint64_t bytes = std::bit_floor(footprint_in(machine(), 2));
  evidence("bytes", bytes);
  const Program& stream =
      program("load_stream", fmt::format("window={},unroll={}", bytes, kUnroll));
  const Program& chase = program("pointer_chase", chase_parameters(bytes / kLine, bytes));
  const uint64_t lines = bytes / kLine;
  Side independent = running(watch, stream, kLoads / kUnroll);
  independent.warm = [&]() -> Expected<void> {
    SKIDPROOF_CHECK(watch.run(stream, lines / kUnroll));
    return {};
  };
  const Both cost = need(sample_by_turns(independent, Walk(watch, chase).side(lines)));
  evidence(watch.unit(), json_of(cost, "independent", "dependent"));
  VERIFY_LE(minimum(cost.first), maximum(cost.second)) << watch.unit();
}

// Published is the fastest that a level can be. Figures are whole cycles: less than half a cycle is none.
SKIDPROOF_TIMING_TEST_OVER(Timing, AnswersNoSoonerThanIsPublished, over::words({"L1", "L2"}),
                           clause::T8) {
  const arch::Microarch* microarch = machine().identity().microarch;
  const unsigned level = level_of(param().word());
  const arch::FastestLatency* published =
      microarch == nullptr ? nullptr : microarch->fastest_latency(level);
  SKIDPROOF_REQUIRE(published != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "no figure is published of it, or of this processor");
  const Stopwatch watch = need(Stopwatch::on(machine()));
  const Cycle cycle(watch, program("alu_chain", Cycle::kParameters));
  const uint64_t loads =
      level == 1 ? footprint_in(machine(), 1) / kLine : lines_of_a_set(machine());
  const Program& chase =
      program("pointer_chase", level == 1 ? chase_parameters(loads, loads * kLine)
                                          : parameters_of_a_set(machine(), loads));
  const Side side = Walk(watch, chase).side(loads);
  std::vector<double> latency;
  for (size_t i = 0; i < kSamples; ++i) {
    need(side.warm());
    const double cost = need(sample(side.run));
    latency.push_back(cost / static_cast<double>(kLoads) / need(cycle.now()));
  }
  evidence("cycles", results::Json(latency));
  evidence("published",
           results::Json{{"cycles", published->cycles}, {"source", published->source}});
  VERIFY_GE(maximum(latency), published->cycles - 0.5) << published->source;
}

}  // namespace skidproof::check::timing
