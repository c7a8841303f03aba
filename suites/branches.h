// Branch traces: the branches that a program takes, in order, and what of a branch trace store's
// records is the program's.
#ifndef SKIDPROOF_SUITES_BRANCHES_H_
#define SKIDPROOF_SUITES_BRANCHES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/calibrate/calibration.h"
#include "kernels/program.h"
#include "pebs/arch/msr.h"
#include "pebs/machine.h"
#include "pebs/session.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::suites {

// --- Enabling

inline constexpr char kNoBranchTrace[] = "IA32_MISC_ENABLE[11] says that there is no BTS";

inline bool has_branch_trace(Machine& machine) {
  Expected<uint64_t> misc = machine.rdmsr(arch::IA32_MISC_ENABLE);
  return misc && (*misc & arch::misc_enable::kBtsUnavailable) == 0;
}

// A branch trace store and no counter.
SessionPlan trace_plan(const BranchTraceSetup& setup = {}, Mode mode = Mode::kLong);

// A counter that interrupts once so many instructions have retired: fixed counter 0, or a
// general-purpose one where there is none.
void interrupt_after(SessionPlan& plan, const arch::Microarch& microarch, uint64_t instructions);

// Instructions that a program still has to go where an interrupt is asked for, so that it comes amid them:
// twice as many as the machine's latest took when it was calibrated.
inline uint64_t instructions_for_interrupt(const calibrate::Figure& lateness) {
  constexpr double kUnknown = 4000, kMost = 40'000;
  return static_cast<uint64_t>(lateness.known() ? std::min(2 * lateness.high, kMost) : kUnknown);
}

// --- What a program takes

struct Branch {
  uint64_t from = 0;
  uint64_t to = 0;           // 0: where the machine called the program from
  uint64_t instruction = 0;  // its number in the run, the first being 1
};

// Which way the nth execution (from 0) of a conditional jump goes.
using Direction = std::function<bool(const Instruction& jump, uint64_t nth)>;

// The loop's own jump goes back so many times; all others are `others`'.
Direction looping(const Program& program, uint64_t iterations, Direction others);

// Where a call or jump through a register goes: the mark NAME.target of the branch marked NAME.
uint64_t indirect_target(const Program& program, uint64_t address);

// Every taken branch of a run from the program's entry to its final return, that one included.
// Empty when the path leaves the program.
std::vector<Branch> taken_branches(const Program& program, const Direction& direction);

// What so many iterations of the branch_stream kernel take.
std::vector<Branch> stream_branches(const Program& program, uint64_t iterations,
                                    uint64_t trips = 3);

// --- What was recorded

inline bool inside(const Program& program, uint64_t ip) { return program.at(ip) != nullptr; }

// Whether a record is a branch of the program and not an interrupt out of it.
inline bool of_program(const Program& program, const BranchRecord& record) {
  return inside(program, record.from()) &&
         (inside(program, record.to()) || record.from() == program.mark("return"));
}

std::vector<BranchRecord> all_of(const BranchRecords& records);

// The program's records, and what stands between them that is not the program's: the machine's own
// code before and behind the program takes branches too.
struct Trace {
  std::vector<Branch> branches;
  uint64_t unpredicted = 0;  // of the program's
  uint64_t foreign = 0;      // between the program's
};

Trace trace_of(const Program& program, const std::vector<BranchRecord>& records);
inline Trace trace_of(const Program& program, const BranchRecords& records) {
  return trace_of(program, all_of(records));
}

inline bool same(const Branch& expected, const Branch& recorded) {
  return expected.from == recorded.from && (expected.to == 0 || expected.to == recorded.to);
}

// How many of the recorded branches are the expected ones from `first` on, before the first that is
// not.
size_t agreeing(const std::vector<Branch>& expected, const std::vector<Branch>& recorded,
                size_t first = 0);

}  // namespace skidproof::suites

#endif  // SKIDPROOF_SUITES_BRANCHES_H_
