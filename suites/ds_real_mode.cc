// DS recording in real-address mode.
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "harness/check/check.h"
#include "suites/branches.h"
#include "suites/sampling.h"

namespace skidproof::check::ds_real_mode {
namespace {

using namespace suites;
using arch::Signal;

constexpr uint64_t kWishedPeriod = 20;
constexpr uint8_t kNops = 40;  // between branches: more than arming takes
constexpr char kNoRealMode[] = "this machine does not run code in real-address mode";

// A loop that counts DI down. Its bytes are the same instructions with 16-bit and 32-bit defaults:
//   top:  sub di, 1
//         nop …
//         jnz top
//         ret
struct RealProgram {
  Memory code;
  Program program;
};

Expected<RealProgram> count_down(Machine& machine) {
  RealProgram out;
  out.code =
      SKIDPROOF_TRY(machine.allocate({.bytes = 4096, .use = MemoryUse::kCode, .below_4g = true}));
  Program& program = out.program;
  program.mode = Mode::kReal;
  program.kernel = "count_down";
  program.code_address = program.entry = out.code.address;
  auto put = [&program](std::initializer_list<uint8_t> bytes, Flow flow, uint64_t target) {
    Instruction instruction;
    instruction.address = program.code_address + program.code.size();
    instruction.length = static_cast<uint8_t>(bytes.size());
    instruction.flow = flow;
    instruction.target = target;
    for (uint8_t b : bytes) program.code.push_back(std::byte{b});
    program.instructions.push_back(instruction);
    return instruction.address;
  };
  put({0x83, 0xEF, 0x01}, Flow::kNone, 0);
  for (uint8_t i = 0; i < kNops; ++i) put({0x90}, Flow::kNone, 0);
  constexpr uint8_t kBack = 3 + kNops + 2;
  program.marks["loop.jnz"] = put({0x75, uint8_t{256 - kBack}}, Flow::kConditional, program.entry);
  program.marks["return"] = put({0xC3}, Flow::kReturn, 0);
  return out;
}

// A loop of n goes takes its jump once less.
std::vector<Branch> expected_stream(const Program& program, uint64_t goes) {
  return taken_branches(program,
                        [goes](const Instruction&, uint64_t nth) { return nth + 1 < goes; });
}

}  // namespace

SKIDPROOF_SUITE(DsRealMode, kEdges);

SKIDPROOF_COMMON_TEST(DsRealMode, StoresBranches, clause::R57, clause::B1) {
  SKIDPROOF_REQUIRE(has_branch_trace(machine()), SkipCategory::kNotOnThisMicroarch, kNoBranchTrace);
  SKIDPROOF_REQUIRE(machine().identity().runs(Mode::kReal), SkipCategory::kMachineLimit,
                    kNoRealMode);
  constexpr uint64_t kGoes = 50;
  const RealProgram real = need(count_down(machine()));
  SessionPlan plan = trace_plan();
  plan.mode = Mode::kReal;
  Session session = need(Session::open(machine(), plan));

  need(session.run(real.program, kGoes));

  const std::vector<Branch> expected = expected_stream(real.program, kGoes);
  const Trace trace = trace_of(real.program, session.branch_records());
  evidence("records", session.branch_records().size());
  VERIFY_EQ(expected.size(), kGoes);
  VERIFY_EQ(trace.branches.size(), expected.size());
  VERIFY_EQ(agreeing(expected, trace.branches), expected.size());
}

SKIDPROOF_TEST(DsRealMode, RecordsEvents, clause::R57, clause::R2) {
  SKIDPROOF_REQUIRE(machine().identity().runs(Mode::kReal), SkipCategory::kMachineLimit,
                    kNoRealMode);
  const arch::Event* event = precise_event(uarch(), Signal::kConditional);
  const bool jumps = event != nullptr;
  if (!jumps) event = precise_event(uarch(), Signal::kInstructions);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "neither conditional branches nor instructions are sampled on PMC0");
  const RealProgram real = need(count_down(machine()));
  SessionPlan plan = one_counter(0, *event, usable_period(uarch(), 0, *event, kWishedPeriod),
                                 safe_records(uarch(), 64));
  plan.mode = Mode::kReal;
  Session session = need(Session::open(machine(), plan));

  const uint64_t period = plan.counters[0].period;
  need(session.run(real.program, 6 * events_a_record(uarch(), 0, period) + period / 2));

  evidence("records", session.records().size());
  if (jumps) {
    // Jumps follow close on one another: some may pass while PEBS is being armed.
    const uint64_t passing = passing_events(calibrated(calibrate::Quantity::kArmingCycles));
    const uint64_t events = 6 * events_a_record(uarch(), 0, period) + period / 2;
    VERIFY_LE(session.records().size(), 6u);
    VERIFY_GE(session.records().size(), std::min<uint64_t>(6, events / (period + 1 + passing)));
    VERIFY_GE(session.records().size(), 1u);
  } else {
    VERIFY_GE(session.records().size(), 6u) << "instructions pass while PEBS is being armed";
  }
  for (Record record : session.records()) {
    VERIFY_TRUE(inside(real.program, record.ip()) || inside(real.program, record.eventing_ip()));
  }
}

}  // namespace skidproof::check::ds_real_mode
