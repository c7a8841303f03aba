#include "suites/branches.h"

#include <utility>

namespace skidproof::suites {

SessionPlan trace_plan(const BranchTraceSetup& setup, Mode mode) {
  SessionPlan plan;
  plan.buffer_records = 1;
  plan.branches = setup;
  plan.mode = mode;
  return plan;
}

void interrupt_after(SessionPlan& plan, const arch::Microarch& microarch, uint64_t instructions) {
  if (microarch.fixed_counters > 0) {
    plan.fixed = {{.counter = 0, .interrupt = true, .period = instructions}};
    return;
  }
  const arch::Event& event = *counting_event(microarch, arch::Signal::kInstructions);
  plan.counters = {CounterSetup::of(0, event, instructions, false)};
  plan.counters[0].interrupt = true;
}

Direction looping(const Program& program, uint64_t iterations, Direction others) {
  uint64_t loop = program.mark("loop.jnz");
  return [loop, iterations, others = std::move(others)](const Instruction& jump, uint64_t nth) {
    return jump.address == loop ? nth < iterations : others(jump, nth);
  };
}

uint64_t indirect_target(const Program& program, uint64_t address) {
  for (const auto& [name, at] : program.marks) {
    if (at != address) continue;
    if (uint64_t target = program.mark(name + ".target"); target != 0) return target;
  }
  return 0;
}

std::vector<Branch> taken_branches(const Program& program, const Direction& direction) {
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

std::vector<Branch> stream_branches(const Program& program, uint64_t iterations, uint64_t trips) {
  auto others = [&program, trips](const Instruction& jump, uint64_t nth) {
    if (jump.address == program.mark("inner.jnz")) return nth % trips != trips - 1;
    return jump.address == program.mark("taken");
  };
  return taken_branches(program, looping(program, iterations, others));
}

std::vector<BranchRecord> all_of(const BranchRecords& records) {
  std::vector<BranchRecord> all;
  for (size_t i = 0; i < records.size(); ++i) all.push_back(records[i]);
  return all;
}

Trace trace_of(const Program& program, const std::vector<BranchRecord>& records) {
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

size_t agreeing(const std::vector<Branch>& expected, const std::vector<Branch>& recorded,
                size_t first) {
  size_t n = 0;
  while (n < recorded.size() && first + n < expected.size() &&
         same(expected[first + n], recorded[n])) {
    ++n;
  }
  return n;
}

}  // namespace skidproof::suites
