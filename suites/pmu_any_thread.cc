// AnyThread: both logical processors of a core on one counter (M36).
#include <cstdint>
#include <string_view>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pmu_any_thread {
namespace {

using namespace suites;
using arch::bit;
using arch::Signal;

constexpr char kNone[] = "AnyThread does not exist here";
constexpr char kPerhapsIdle[] =
    "the other thread could not be kept busy, and nothing of it was counted: put it online and "
    "allow it to this "
    "process (`taskset -p`) to have AnyThread judged";

Signal signal_of(std::string_view word) {
  if (word == "loads") return Signal::kLoads;
  if (word == "branches") return Signal::kBranches;
  return Signal::kInstructions;
}

// A program that does more of it than a neighbour is likely to: half of both, or the neighbour's part
// alone, would be less than its own.
const char* program_of(std::string_view word) {
  if (word == "loads") return "load_stream";
  if (word == "branches") return "call_return";
  return "nop_sled";
}

// IA32_PMC0 with AnyThread and IA32_PMC1 without, in one run.
struct Both {
  uint64_t any = 0, own = 0;
  bool busy = false;  // the other thread
};
Expected<Both> count_both(Machine& machine, const arch::Event& event, const Program& program,
                          bool usr, bool os) {
  SessionPlan plan;
  plan.buffer_records = 1;
  plan.counters = {plain_counter(0, event), plain_counter(1, event)};
  plan.counters[0].any_thread = true;
  plan.keep_sibling_busy = true;
  for (CounterSetup& setup : plan.counters) {
    setup.usr = usr;
    setup.os = os;
  }
  Session session = SKIDPROOF_TRY(Session::open(machine, plan));
  SessionRun run = SKIDPROOF_TRY(session.run(program, 500));
  return Both{run.counters.at(0), run.counters.at(1), run.log.sibling_busy};
}

}  // namespace

SKIDPROOF_SUITE(PmuAnyThread, kCount);

// What this thread does is counted whatever the other one does; alone on the core, nothing else is.
SKIDPROOF_TEST_OVER(PmuAnyThread, CountsBothThreadsOfTheCore,
                    over::product(over::words({"instructions", "branches", "loads"}),
                                  over::words({"both_levels", "one_level"})),
                    clause::M36) {
  SKIDPROOF_REQUIRE(uarch().any_thread, SkipCategory::kNotOnThisMicroarch, kNone);
  const arch::Event* event = counting_event(uarch(), signal_of(param().word(0)));
  SKIDPROOF_REQUIRE(event != nullptr && (event->counters & 2) != 0,
                    SkipCategory::kNotOnThisMicroarch, "no such event on two counters");
  const bool both_levels = param().word(1) == "both_levels";  // programs run in ring 0 here
  const Program& code = program(program_of(param().word(0)));

  const Both counted = need(count_both(machine(), *event, code, both_levels, true));

  const uint64_t edge = 2 * margin_of(calibrated(signal_of(param().word(0)) == Signal::kCycles
                                                     ? calibrate::Quantity::kEdgeCycles
                                                     : calibrate::Quantity::kEdgeInstructions));
  evidence("any-thread", counted.any);
  evidence("own", counted.own);
  VERIFY_GT(counted.own, 0u);
  if (!machine().identity().sibling_thread) {
    VERIFY_THAT(difference(counted.any, counted.own), within(0, edge))
        << "there is no other thread";
  } else if (counted.busy) {
    VERIFY_GT(counted.any, counted.own + edge) << "the other thread is busy";
  } else {
    VERIFY_GE(counted.any + edge, counted.own);
    SKIDPROOF_REQUIRE(counted.any > counted.own + edge, SkipCategory::kMachineLimit, kPerhapsIdle);
  }
}

// A miscount that is an average of both threads still counts half of this one's; what counts the other
// thread alone does not, of a program that does more than a neighbour is likely to.
SKIDPROOF_TEST_OVER(PmuAnyThread, LosesNoMoreThanHalfOfItsOwn,
                    over::words({"instructions", "branches"}), clause::M36) {
  SKIDPROOF_REQUIRE(uarch().any_thread, SkipCategory::kNotOnThisMicroarch, kNone);
  const arch::Event* event = counting_event(uarch(), signal_of(param().word()));
  SKIDPROOF_REQUIRE(event != nullptr && (event->counters & 2) != 0,
                    SkipCategory::kNotOnThisMicroarch, "no such event on two counters");
  const Program& code = program(program_of(param().word()));
  const Both counted = need(count_both(machine(), *event, code, true, true));
  const uint64_t edge = 2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions));
  evidence("any-thread", counted.any);
  evidence("own", counted.own);
  VERIFY_GT(counted.own, 0u);
  VERIFY_GE(counted.any + edge, counted.own / 2);
}

// The control: without AnyThread a busy neighbour adds nothing.
SKIDPROOF_TEST(PmuAnyThread, IsNeededToSeeTheOtherThread, clause::M36, clause::M13) {
  const arch::Event* event = counting_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, "no instruction event");
  const Program& code = program("pointer_chase", "bytes=65536");
  const CountedBeside once = need(count_beside(machine(), 0, *event, code, 100));
  const CountedBeside twice = need(count_beside(machine(), 0, *event, code, 200));
  evidence("sibling-busy", once.busy && twice.busy);
  VERIFY_THAT(difference(twice.events, once.events),
              within(static_cast<int64_t>(code.per_iteration.instructions * 100),
                     2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions))));
  SKIDPROOF_REQUIRE(!machine().identity().sibling_thread || (once.busy && twice.busy),
                    SkipCategory::kMachineLimit, kSiblingIdle);
}

// Bit 2 of each field of IA32_FIXED_CTR_CTRL.
SKIDPROOF_TEST(PmuAnyThread, WorksOnFixedCounterZero, clause::M36, clause::M17) {
  SKIDPROOF_REQUIRE(uarch().any_thread, SkipCategory::kNotOnThisMicroarch, kNone);
  const Program& code = program("nop_sled");
  using namespace arch;  // MSR names
  Restore restore(machine(), {IA32_FIXED_CTR_CTRL, IA32_FIXED_CTR0, IA32_PERF_GLOBAL_CTRL});
  bool busy = true;
  auto counted = [&](uint64_t field) {
    RunPlan plan;
    plan.keep_sibling_busy = true;
    plan.iterations = 500;
    plan.enable = {{IA32_PERF_GLOBAL_CTRL, 0},
                   {IA32_FIXED_CTR0, 0},
                   {IA32_FIXED_CTR_CTRL, field},
                   {IA32_PERF_GLOBAL_CTRL, bit(status::kFixedShift)}};
    plan.disable = {{IA32_PERF_GLOBAL_CTRL, 0}};
    plan.read = {IA32_FIXED_CTR0};
    const RunLog log = need(machine().run(code, plan));
    busy &= log.sibling_busy;
    return log.read.at(0);
  };
  const uint64_t own = counted(fixed_ctrl::kOs);
  const uint64_t any = counted(fixed_ctrl::kOs | fixed_ctrl::kAnyThread);
  evidence("any-thread", any);
  evidence("own", own);
  const uint64_t edge = 2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions));
  if (!machine().identity().sibling_thread) {
    VERIFY_THAT(difference(any, own), within(0, edge));
  } else if (busy) {
    VERIFY_GT(any, own + edge) << "the other thread is busy";
  } else {
    VERIFY_GE(any + edge, own);
    SKIDPROOF_REQUIRE(any > own + edge, SkipCategory::kMachineLimit, kPerhapsIdle);
  }
}

// CPUID says so where AnyThread is deprecated, and from version 5 on its bits are reserved exactly there. On Goldmont
// Plus they have no effect, and nothing says whether they are taken.
SKIDPROOF_TEST(PmuAnyThread, ExistsExactlyWhereItIsNotDeprecated, clause::M48, clause::M17,
               clause::E11) {
  const Machine::CpuidResult leaf = machine().cpuid(0xA, 0);
  const unsigned version = leaf.eax & 0xFF;
  const bool deprecated = (leaf.edx >> 15 & 1) != 0;
  evidence("version", version);
  evidence("deprecated", deprecated);
  VERIFY_EQ(uarch().any_thread, version >= 3 && !deprecated);
  const uint64_t field = arch::fixed_ctrl::field(0, arch::fixed_ctrl::kAnyThread);
  const bool refuses_field = need(refuses(machine(), arch::IA32_FIXED_CTR_CTRL, field));
  const bool refuses_bit =
      need(refuses(machine(), arch::IA32_PERFEVTSEL0, arch::evtsel::kAnyThread));
  if (uarch().deprecates_any_thread() && !uarch().reserves_any_thread()) {
    observe("any-thread-bits", refuses_field || refuses_bit ? "refused" : "taken");
    return;
  }
  VERIFY_EQ(refuses_field, !uarch().any_thread);
  VERIFY_EQ(refuses_bit, !uarch().any_thread);
}

}  // namespace skidproof::check::pmu_any_thread
