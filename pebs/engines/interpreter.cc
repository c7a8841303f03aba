#include "pebs/engines/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "pebs/engines/block_builder.h"
#include "pebs/engines/operation.h"
#include "pebs/engines/retired_accesses.h"

namespace skidproof::engines {
namespace {

constexpr auto kRsp = static_cast<size_t>(arch::Gpr::kRsp);

// The most that a block executed once adds to each signal; of what its instructions do not decide, nothing.
arch::SignalCounts most_of(const Block& block) {
  using arch::Signal;
  arch::SignalCounts most{};
  auto at = [&](Signal s) -> uint64_t& { return most[arch::index(s)]; };
  for (const auto& [signal, count] : block.counts) most[arch::index(signal)] = count;
  at(Signal::kNearTaken) += at(Signal::kConditional);
  for (Signal s : {Signal::kConditionalTaken, Signal::kConditionalNotTaken})
    at(s) = at(Signal::kConditional);
  for (Signal s :
       {Signal::kMispredicts, Signal::kMispredictsConditional, Signal::kMispredictsNearCall,
        Signal::kMispredictsTaken, Signal::kMispredictsNotTaken})
    at(s) = at(Signal::kBranches);
  for (Signal s :
       {Signal::kSplitLoads, Signal::kStlbMissLoads, Signal::kLoadsL1Hit, Signal::kLoadsFillBuffer,
        Signal::kLoadsL2Hit, Signal::kLoadsL3Hit, Signal::kLoadsL3Miss})
    at(s) = at(Signal::kLoads);
  for (Signal s : {Signal::kSplitStores, Signal::kStlbMissStores}) at(s) = at(Signal::kStores);
  return most;
}

// Of no code at all: no event, but nothing is known of those that instructions alone do not decide.
model::CodeBounds bounds_of_nothing() {
  using arch::Signal;
  model::CodeBounds bounds;
  bounds.fill({.once = 0, .apart = UINT64_MAX});
  for (Signal s : {Signal::kCycles, Signal::kReferenceCycles, Signal::kBusCycles, Signal::kSlots,
                   Signal::kLlcReferences, Signal::kLlcMisses})
    bounds[arch::index(s)] = {};
  return bounds;
}

}  // namespace

// Where execution stands is a block and the index of an instruction in it: what an instruction costs
// depends on its neighbours in the block, so a block that was entered is finished, however the
// execution is cut into runs and steps.
struct Interpreter::Machinery {
  Machinery(GuestMemory& guest, model::Core& the_core, const model::CoreBehaviour& behaviour,
            Accounting a, Mode m)
      : memory(guest),
        core(the_core),
        accounting(a),
        mode(m),
        return_address(m == Mode::kLong ? kSentinel : kSentinel32),
        builder(guest, behaviour, a, m) {
    if (m != Mode::kLong) state.address_mask = UINT32_MAX;
    state.host_delta = guest.host_delta();
    state.core = &the_core;
    state.memory = &guest;
    sentinel.instructions = UINT64_MAX;  // fits no budget, so execution stops in front of it
    sentinel.ip = sentinel.end = return_address;
    generation = guest.generation();
    bounds = nothing = behaviour.rep_counts_iterations ? model::CodeBounds{} : bounds_of_nothing();
  }

  Expected<Block*> find(uint64_t ip);
  Expected<void> resolve();
  void forget_blocks();
  void widen_bounds(const Block& block);
  void take_up_changes();
  void publish();
  void move_on(Block& from);
  Expected<void> execute_one(arch::SignalCounts& counts, uint64_t& clock);
  Expected<void> execute_blocks(arch::SignalCounts& counts, uint64_t& clock, uint64_t& remaining);
  void collect(arch::SignalCounts& counts);
  Error fault(arch::SignalCounts& counts);
  void settle(arch::SignalCounts& counts, uint64_t clock) {
    if (accounting == Accounting::kCore) core.settle(counts, clock);
  }

  GuestMemory& memory;
  model::Core& core;
  Accounting accounting;
  Mode mode;
  uint64_t return_address;  // of the called function
  BlockBuilder builder;
  State state;
  std::unordered_map<uint64_t, std::unique_ptr<Block>> blocks;
  Block sentinel;

  Block* at = nullptr;  // null: not yet looked up; then the ip is `ip`
  size_t index = 0;
  uint64_t ip = 0;
  Block** link = nullptr;  // to be filled once `ip` is looked up
  uint64_t published_flags = 0;
  uint64_t generation = 0;
  uint64_t most_uops = 1;             // of one instruction, in all code decoded so far
  model::CodeBounds bounds, nothing;  // of all code decoded so far, and of none
  bool raised_most = false;           // by a block that was not yet executed: uops, or also bounds
  bool by_bounds = false;
  arch::SignalCounts gained{};  // by the last run()
};

Expected<Block*> Interpreter::Machinery::find(uint64_t target) {
  Block* found = nullptr;
  if (target == return_address) {
    found = &sentinel;
  } else if (auto known = blocks.find(target); known != blocks.end()) {
    found = known->second.get();
  } else {
    auto built = builder.build(target);
    if (!built) return tl::make_unexpected(std::move(built).error());
    found = built->get();
    for (const model::InstructionFacts& facts : found->facts) {
      if (facts.slots <= most_uops) continue;
      most_uops = facts.slots;
      raised_most = true;
    }
    widen_bounds(*found);
    blocks.emplace(target, std::move(*built));
  }
  state.targets[State::slot_of(target)] = {target, found};
  return found;
}

// Makes `at` a block.
Expected<void> Interpreter::Machinery::resolve() {
  if (at != nullptr) return {};
  at = SKIDPROOF_TRY(find(ip));
  index = 0;
  if (link != nullptr) *link = at;
  link = nullptr;
  return {};
}

// A stretch of execution is the end of a block, whole ones, and the beginning of one.
void Interpreter::Machinery::widen_bounds(const Block& block) {
  const arch::SignalCounts most = most_of(block);
  for (size_t n = 0; n < arch::kSignals; ++n) {
    model::EventBound& bound = bounds[n];
    if (most[n] == 0 || bound.apart == 0) continue;
    const model::EventBound wider{.once = std::max(bound.once, 2 * most[n]),
                                  .apart = std::min(bound.apart, block.instructions / most[n])};
    raised_most |= by_bounds && (wider.once != bound.once || wider.apart != bound.apart);
    bound = wider;
  }
}

void Interpreter::Machinery::forget_blocks() {
  if (at != nullptr && at != &sentinel) {
    ip = at->facts[index].address;
    at = nullptr;
  }
  link = nullptr;
  blocks.clear();
  bounds = nothing;
  state.touched = nullptr;
  state.targets = State::nobody();
}

// What happened since the last call: registers written from outside, memory allocated or freed.
void Interpreter::Machinery::take_up_changes() {
  if (state.registers.ip != ip) {
    at = nullptr;
    link = nullptr;
    ip = state.registers.ip;
  }
  if (state.registers.flags != published_flags) {
    state.flags.set_image(static_cast<uint32_t>(state.registers.flags));
  }
  if (generation == memory.generation()) return;
  generation = memory.generation();
  if (accounting == Accounting::kCore) core.forget_translations();
  bool stale = std::any_of(blocks.begin(), blocks.end(), [&](const auto& entry) {
    return !memory.executable(entry.second->ip, entry.second->end - entry.second->ip);
  });
  if (stale) forget_blocks();
}

void Interpreter::Machinery::publish() {
  if (at != nullptr) ip = at == &sentinel ? return_address : at->facts[index].address;
  state.registers.ip = ip;
  state.registers.flags = (state.registers.flags & ~uint64_t{kStatusFlags}) | state.flags.image();
  published_flags = state.registers.flags;
}

// After a branch, or off the end of a block: where handlers left to.
void Interpreter::Machinery::move_on(Block& from) {
  index = 0;
  if (from.facts.back().branch == model::Branch::kNone) {
    at = from.successor[0];
    ip = from.successor_ip[0];
    link = at == nullptr ? &from.successor[0] : nullptr;
  } else {
    at = state.next;
    ip = at != nullptr ? at->ip : state.next_ip;
    link = state.link;
  }
}

// The current instruction, by itself.
Expected<void> Interpreter::Machinery::execute_one(arch::SignalCounts& counts, uint64_t& clock) {
  Block& block = *at;
  const Operation* op = &block.single[2 * index];
  const model::InstructionFacts& facts = block.facts[index];
  op->handler(state, op, clock, 0);
  if (state.fault != Fault::kNone) [[unlikely]] {
    clock = state.clock;
    return tl::make_unexpected(fault(counts));
  }
  model::add_static_counts(facts, counts);
  clock = state.clock + facts.slots + facts.stall;
  if (index + 1 < block.facts.size()) {
    ++index;
  } else {
    move_on(block);
  }
  return {};
}

// Whole blocks while the budget holds the next one.
Expected<void> Interpreter::Machinery::execute_blocks(arch::SignalCounts& counts, uint64_t& clock,
                                                      uint64_t& remaining) {
  while (remaining > 0) {
    SKIDPROOF_CHECK(resolve());
    if (at->instructions > remaining || raised_most) break;
    at->entry->handler(state, at->entry, clock, remaining);
    clock = state.clock;
    if (state.fault != Fault::kNone) [[unlikely]]
      return tl::make_unexpected(fault(counts));
    remaining = state.remaining;
    at = state.next;
    index = 0;
    ip = at != nullptr ? at->ip : state.next_ip;
    link = state.link;
  }
  return {};
}

// The static counts of the blocks that ran whole.
void Interpreter::Machinery::collect(arch::SignalCounts& counts) {
  for (Block* block = state.touched; block != nullptr; block = block->next_touched) {
    for (const auto& [signal, count] : block->counts) {
      counts[arch::index(signal)] += block->executions * count;
    }
    block->executions = 0;
  }
  state.touched = nullptr;
  counts[arch::index(arch::Signal::kInstructions)] += std::exchange(state.extra_instructions, 0);
}

// Puts execution in front of the instruction that faulted and says what happened.
Error Interpreter::Machinery::fault(arch::SignalCounts& counts) {
  Fault kind = std::exchange(state.fault, Fault::kNone);
  const Operation* op = state.fault_at;
  auto holds = [&](const std::vector<Operation>& code) {
    return !code.empty() && op >= code.data() && op < code.data() + code.size();
  };
  for (auto& [start, block] : blocks) {
    bool whole = holds(block->whole);
    if (!whole && !holds(block->single)) continue;
    at = block.get();
    index = op->position;
    for (size_t n = 0; whole && n < index; ++n) model::add_static_counts(at->facts[n], counts);
    return builder.explain(kind, at->facts[index].address, state.fault_address);
  }
  return Error{ErrorCode::kInternal, "a fault outside every block", {}};
}

Interpreter::Interpreter(GuestMemory& memory, model::Core& core, const arch::Microarch& microarch,
                         Accounting accounting, Mode mode)
    : Interpreter(memory, core, model::core_behaviour_of(microarch), accounting, mode) {}
Interpreter::Interpreter(GuestMemory& memory, model::Core& core,
                         const model::CoreBehaviour& behaviour, Accounting accounting, Mode mode)
    : machinery_(std::make_unique<Machinery>(memory, core, behaviour, accounting, mode)) {}
Interpreter::~Interpreter() = default;

Expected<void> Interpreter::load(const Program& program) {
  Machinery& m = *machinery_;
  if (program.mode != m.mode) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("program {} is code of {}, the interpreter's mode is {}", program.id(),
                            name_of(program.mode), name_of(m.mode)));
  }
  if (!m.memory.executable(program.code_address, program.code.size())) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("program {} has {} bytes of code at {:#x}, which is not inside a code block",
                    program.id(), program.code.size(), program.code_address),
        "allocate a block of MemoryUse::kCode and generate the program for its address");
  }
  std::byte* place = m.memory.host(program.code_address);
  if (std::memcmp(place, program.code.data(), program.code.size()) == 0) return {};
  std::memcpy(place, program.code.data(), program.code.size());
  m.forget_blocks();
  return {};
}

void Interpreter::call(uint64_t entry, uint64_t iterations, uint64_t data, uint64_t stack_top) {
  Machinery& m = *machinery_;
  model::Registers& r = m.state.registers;
  r = {};
  m.state.flags.set_image(0);
  m.state.vectors = {};
  r.gpr[static_cast<size_t>(arch::Gpr::kRdi)] = iterations;
  r.gpr[static_cast<size_t>(arch::Gpr::kRsi)] = data;
  const unsigned word = m.mode == Mode::kLong ? 8 : 4;
  const uint64_t rsp = r.gpr[kRsp] = stack_top - word;
  r.ip = entry;
  // Where this fails the first stack access of the program will say so.
  if (m.memory.writable(rsp, word)) std::memcpy(m.memory.host(rsp), &m.return_address, word);
  m.at = nullptr;
  m.link = nullptr;
  m.ip = entry;
  m.publish();
  m.take_up_changes();
}

void Interpreter::return_to(uint64_t address) {
  Machinery& m = *machinery_;
  m.return_address = m.sentinel.ip = m.sentinel.end = address;
}

const model::CodeBounds& Interpreter::code_bounds() const { return machinery_->bounds; }

const arch::SignalCounts& Interpreter::gained() const { return machinery_->gained; }

uint64_t Interpreter::most_uops() const { return machinery_->most_uops; }

bool Interpreter::finished() const {
  return machinery_->state.registers.ip == machinery_->return_address;
}

Expected<uint64_t> Interpreter::run(uint64_t budget, bool by_bounds) {
  Machinery& m = *machinery_;
  m.take_up_changes();
  arch::SignalCounts& counts = m.gained = {};
  uint64_t clock = m.core.clock(), remaining = budget;
  m.raised_most = false;
  m.by_bounds = by_bounds;
  Expected<void> outcome;
  // What is left of a block that was entered, then whole blocks, then the part that still fits.
  while (remaining > 0 && outcome && m.at != nullptr && m.index > 0) {
    outcome = m.execute_one(counts, clock);
    --remaining;
  }
  if (remaining > 0 && outcome) outcome = m.execute_blocks(counts, clock, remaining);
  while (remaining > 0 && outcome && m.at != &m.sentinel && !m.raised_most) {
    outcome = m.execute_one(counts, clock);
    if (--remaining > 0 && outcome) outcome = m.resolve();
  }
  m.collect(counts);
  m.settle(counts, clock);
  m.publish();
  if (!outcome) return tl::make_unexpected(std::move(outcome).error());
  return budget - remaining;
}

Expected<void> Interpreter::step(model::Retired& retired) {
  Machinery& m = *machinery_;
  m.take_up_changes();
  if (finished()) {
    return fail(ErrorCode::kInvalidArgument,
                "the program has returned: there is no instruction to step", "call() it again");
  }
  SKIDPROOF_CHECK(m.resolve());
  const model::InstructionFacts& facts = m.at->facts[m.index];
  const bool accesses = (facts.loads | facts.stores) != 0;
  uint64_t load = 0, store = 0;
  if (accesses) {
    load = load_address(facts, m.state.registers);
    store = store_address(facts, m.state.registers);
    if (m.accounting == Accounting::kCore) m.core.arm_probe(store);
  }
  retired.ip = facts.address;
  retired.length = facts.length;
  retired.fused_with_next = facts.fused_with_next;
  retired.special = facts.special;
  uint64_t clock = m.core.clock();
  retired.counts = {};
  auto outcome = m.execute_one(retired.counts, clock);
  retired.counts[arch::index(arch::Signal::kInstructions)] +=
      std::exchange(m.state.extra_instructions, 0);
  m.settle(retired.counts, clock);
  m.publish();
  SKIDPROOF_CHECK(std::move(outcome));
  if (accesses) {
    note_accesses(facts, m.core, load, store, retired);
  } else {
    retired.load = retired.store = {};
  }
  retired.cycle = m.core.cycle();
  retired.tsc = m.core.tsc();
  retired.after = &m.state.registers;
  retired.vectors = &m.state.vectors;
  return {};
}

model::Registers& Interpreter::registers() { return machinery_->state.registers; }
const model::Registers& Interpreter::registers() const { return machinery_->state.registers; }
std::array<Interpreter::Vector, 16>& Interpreter::vectors() { return machinery_->state.vectors; }

}  // namespace skidproof::engines
