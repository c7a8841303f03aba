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
inline SessionPlan trace_plan(const BranchTraceSetup& setup = {}, Mode mode = Mode::kLong) {
  SessionPlan plan;
  plan.buffer_records = 1;
  plan.branches = setup;
  plan.mode = mode;
  return plan;
}

// A counter that interrupts once so many instructions have retired: fixed counter 0, or a
// general-purpose one where there is none.
inline void interrupt_after(SessionPlan& plan, const arch::Microarch& microarch,
                            uint64_t instructions) {
  if (microarch.fixed_counters > 0) {
    plan.fixed = {{.counter = 0, .interrupt = true, .period = instructions}};
    return;
  }
  const arch::Event& event = *counting_event(microarch, arch::Signal::kInstructions);
  plan.counters = {CounterSetup::of(0, event, instructions, false)};
  plan.counters[0].interrupt = true;
}

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
inline Direction looping(const Program& program, uint64_t iterations, Direction others) {
  uint64_t loop = program.mark("loop.jnz");
  return [loop, iterations, others = std::move(others)](const Instruction& jump, uint64_t nth) {
    return jump.address == loop ? nth < iterations : others(jump, nth);
  };
}

// Where a call or jump through a register goes: the mark NAME.target of the branch marked NAME.
inline uint64_t indirect_target(const Program& program, uint64_t address) {
  for (const auto& [name, at] : program.marks) {
    if (at != address) continue;
    if (uint64_t target = program.mark(name + ".target"); target != 0) return target;
  }
  return 0;
}

// Every taken branch of a run from the program's entry to its final return, that one included.
// Empty when the path leaves the program.
inline std::vector<Branch> taken_branches(const Program& program, const Direction& direction) {
  std::vector<Branch> taken;
  std::map<uint64_t, uint64_t> executions;
  std::vector<uint64_t> returns;
  uint64_t ip = program.entry;
  for (uint64_t n = 1;; ++n) {
    const Instruction* at = program.at(ip);
    if (at == nullptr) return {};
    uint64_t next = at->end();
    bool jumps = at->flow != Flow::kNone;
    switch (at->flow) {
      case Flow::kNone:
        break;
      case Flow::kConditional:
        jumps = direction(*at, executions[ip]++);
        if (jumps) next = at->target;
        break;
      case Flow::kCall:
        returns.push_back(at->end());
        [[fallthrough]];
      case Flow::kJump:
        next = at->target != 0 ? at->target : indirect_target(program, ip);
        break;
      case Flow::kReturn:
        if (returns.empty()) {
          taken.push_back({.from = ip, .to = 0, .instruction = n});
          return taken;
        }
        next = returns.back();
        returns.pop_back();
        break;
    }
    if (jumps) taken.push_back({.from = ip, .to = next, .instruction = n});
    ip = next;
  }
}

// What so many iterations of the branch_stream kernel take.
inline std::vector<Branch> stream_branches(const Program& program, uint64_t iterations,
                                           uint64_t trips = 3) {
  auto others = [&program, trips](const Instruction& jump, uint64_t nth) {
    if (jump.address == program.mark("inner.jnz")) return nth % trips != trips - 1;
    return jump.address == program.mark("taken");
  };
  return taken_branches(program, looping(program, iterations, others));
}

// --- What was recorded

inline bool inside(const Program& program, uint64_t ip) { return program.at(ip) != nullptr; }

// Whether a record is a branch of the program and not an interrupt out of it.
inline bool of_program(const Program& program, const BranchRecord& record) {
  return inside(program, record.from()) &&
         (inside(program, record.to()) || record.from() == program.mark("return"));
}

inline std::vector<BranchRecord> all_of(const BranchRecords& records) {
  std::vector<BranchRecord> all;
  for (size_t i = 0; i < records.size(); ++i) all.push_back(records[i]);
  return all;
}

// The program's records, and what stands between them that is not the program's: the machine's own
// code before and behind the program takes branches too.
struct Trace {
  std::vector<Branch> branches;
  uint64_t unpredicted = 0;  // of the program's
  uint64_t foreign = 0;      // between the program's
};

inline Trace trace_of(const Program& program, const std::vector<BranchRecord>& records) {
  Trace trace;
  uint64_t foreign = 0;
  for (const BranchRecord& record : records) {
    if (!of_program(program, record)) {
      foreign += trace.branches.empty() ? 0 : 1;
      continue;
    }
    trace.foreign += foreign;
    foreign = 0;
    trace.unpredicted += record.predicted() ? 0 : 1;
    trace.branches.push_back({.from = record.from(), .to = record.to()});
  }
  return trace;
}
inline Trace trace_of(const Program& program, const BranchRecords& records) {
  return trace_of(program, all_of(records));
}

inline bool same(const Branch& expected, const Branch& recorded) {
  return expected.from == recorded.from && (expected.to == 0 || expected.to == recorded.to);
}

// How many of the recorded branches are the expected ones from `first` on, before the first that is
// not.
inline size_t agreeing(const std::vector<Branch>& expected, const std::vector<Branch>& recorded,
                       size_t first = 0) {
  size_t n = 0;
  while (n < recorded.size() && first + n < expected.size() &&
         same(expected[first + n], recorded[n])) {
    ++n;
  }
  return n;
}

}  // namespace skidproof::suites

#endif  // SKIDPROOF_SUITES_BRANCHES_H_
