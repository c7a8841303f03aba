#include "pebs/engines/observer.h"

#include <algorithm>
#include <optional>

#include "pebs/engines/retired_accesses.h"
#include "pebs/model/predictor.h"

namespace skidproof::engines {
namespace {

using arch::Signal;
using model::Branch;
using model::InstructionFacts;

constexpr size_t kLongestInstruction = 15;
// Interrupts in interrupts: more deeply nested ones are forgotten.
constexpr size_t kDeepest = 16;
// Blocks of a whole operating system do not fit; then all are forgotten.
constexpr size_t kMostBlocks = 1 << 16;

// Leaves an interrupt, by a branch that is none of the near ones.
bool returns_from_interrupt(const model::Decoded& d) {
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_IRET:
    case ZYDIS_MNEMONIC_IRETD:
    case ZYDIS_MNEMONIC_IRETQ:
      return true;
    default:
      return false;
  }
}

// Far branches, system calls, software interrupts and the returns from them: the core model predicts none,
// and no event is about them.
bool is_far(const model::Decoded& d) {
  switch (d.instruction.meta.category) {
    case ZYDIS_CATEGORY_SYSCALL:
    case ZYDIS_CATEGORY_SYSRET:
    case ZYDIS_CATEGORY_INTERRUPT:
      return true;
    default:
      return returns_from_interrupt(d) || d.instruction.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR;
  }
}

}  // namespace

Observer::Observer(model::Core& core, const model::CoreBehaviour& behaviour, CodeMemory& memory)
    : core_(core), behaviour_(behaviour), memory_(memory) {}

void Observer::reset(const model::CoreBehaviour& behaviour) {
  behaviour_ = behaviour;
  forget();
}

// Code and where it was.
void Observer::forget() {
  blocks_.clear();
  interrupted_.clear();
  cursor_ = {};
  returned_ = false;
}

void Observer::set_mode(Mode mode) {
  if (mode == mode_) return;
  mode_ = mode;
  forget();
}

// The instructions that stand from `ip` on, up to a branch, to bytes that are none, or to the longest block.
std::unique_ptr<Observer::Block> Observer::decode(uint64_t ip) {
  auto block = std::make_unique<Block>();
  block->ip = ip;
  block->checked = generation_;
  block->bytes.resize(kLongestBlock * kLongestInstruction);
  block->bytes.resize(memory_.code(ip, block->bytes));
  size_t used = 0;
  while (block->facts.size() < kLongestBlock && used < block->bytes.size()) {
    const auto rest = std::span<const std::byte>(block->bytes).subspan(used);
    auto decoded =
        model::decode(rest.first(std::min(rest.size(), kLongestInstruction)), ip + used, mode_);
    if (!decoded) break;
    InstructionFacts& facts = decoded->facts;
    const bool far = is_far(*decoded);
    const bool branches = facts.branch != Branch::kNone;
    if (far) facts.branch = Branch::kNone;
    block->ends_in_return_from_interrupt = returns_from_interrupt(*decoded);
    used += facts.length;
    block->facts.push_back(facts);
    if (far || branches) break;
  }
  block->bytes.resize(used);
  model::place(block->facts, behaviour_);
  return block;
}

// Whether the block's bytes still stand where they stood.
bool Observer::is_fresh(Block& block) {
  if (block.checked == generation_) return true;
  std::array<std::byte, kLongestBlock * kLongestInstruction> now;
  const auto bytes = std::span(now).first(block.bytes.size());
  if (memory_.code(block.ip, bytes) != bytes.size()) return false;
  if (!std::equal(bytes.begin(), bytes.end(), block.bytes.begin())) return false;
  block.checked = generation_;
  return true;
}

// The block that begins at `ip`; null where no instruction can be decoded.
Observer::Block* Observer::enter(uint64_t ip) {
  auto known = blocks_.find(ip);
  if (known != blocks_.end() && is_fresh(*known->second)) return known->second.get();
  // What is forgotten may be where an interrupt came.
  if (known != blocks_.end() || blocks_.size() >= kMostBlocks) {
    Block* stale = known != blocks_.end() ? known->second.get() : nullptr;
    std::erase_if(interrupted_,
                  [&](const Cursor& c) { return stale == nullptr || c.block == stale; });
    if (stale == nullptr) blocks_.clear();
  }
  auto block = decode(ip);
  if (block->facts.empty()) return nullptr;
  return (blocks_[ip] = std::move(block)).get();
}

// An instruction of which nothing is known: one uop, with the accesses that were seen.
const InstructionFacts& Observer::undescribed(const Executed& executed) {
  unknown_ = {};
  unknown_.mode = mode_;
  unknown_.address = executed.ip;
  const uint64_t length = executed.next_ip - executed.ip;
  unknown_.length = length <= kLongestInstruction ? static_cast<uint8_t>(length) : uint8_t{0};
  for (const SeenAccess& access : executed.accesses) {
    if (access.load && unknown_.loads < 2) ++unknown_.loads;
    if (access.store && unknown_.stores < 2) ++unknown_.stores;
  }
  return unknown_;
}

// Goes on in the block that an interrupt left at `ip`, if one did.
void Observer::resume(uint64_t ip) {
  while (!interrupted_.empty()) {
    const Cursor last = interrupted_.back();
    interrupted_.pop_back();
    if (last.ip() != ip) continue;
    cursor_ = last;
    return;
  }
}

// The facts of the instruction that was executed, as its block has them.
const InstructionFacts& Observer::locate(const Executed& executed) {
  if (cursor_.block != nullptr && cursor_.ip() != executed.ip) {
    // Left in the middle, without a branch. A cursor at the top of a block is not worth keeping.
    if (cursor_.index > 0) {
      if (interrupted_.size() == kDeepest) interrupted_.erase(interrupted_.begin());
      interrupted_.push_back(cursor_);
    }
    cursor_ = {};
  }
  if (cursor_.block == nullptr && returned_) resume(executed.ip);
  if (cursor_.block == nullptr && mode_ != Mode::kReal) cursor_ = {enter(executed.ip), 0};
  return cursor_.block == nullptr ? undescribed(executed) : cursor_.block->facts[cursor_.index];
}

// To the next instruction of the block, or out of it.
void Observer::move_on() {
  returned_ = false;
  if (cursor_.block == nullptr) return;
  const Block& block = *cursor_.block;
  if (++cursor_.index < block.facts.size()) return;
  returned_ = block.ends_in_return_from_interrupt;
  cursor_ = {};
}

// The accesses, in the order in which the interpreter does them; returns their stall. A quick access changes
// nothing, so that it is left out, unless another one of the instruction is not quick.
uint64_t Observer::reach(const InstructionFacts& facts, const Executed& executed, uint64_t now) {
  if (facts.flushes) [[unlikely]] {
    for (const SeenAccess& a : executed.accesses) core_.flush(a.address);
    return 0;
  }
  const bool stream = facts.non_temporal && facts.explicit_store;
  const bool chase = facts.dependent_load && !facts.explicit_store;
  auto each = [&](auto&& load, auto&& store) {
    unsigned loads = facts.loads, stores = facts.stores;
    for (const SeenAccess& a : executed.accesses) {
      if (a.load && loads > 0) --loads, load(a);
      if (a.store && stores > 0) --stores, store(a);
    }
  };
  bool quick = true;
  each([&](const SeenAccess& a) { quick &= core_.load_is_quick(a.address, a.bytes); },
       [&](const SeenAccess& a) {
         quick &= stream ? core_.stream_is_quick(a.address, a.bytes)
                         : core_.store_is_quick(a.address, a.bytes);
       });
  if (quick) return 0;
  uint64_t stall = 0;
  each(
      [&](const SeenAccess& a) {
        stall += core_.load(a.address, a.bytes, now + stall, chase, false);
      },
      [&](const SeenAccess& a) {
        stall += stream ? core_.store_stream(a.address, a.bytes, now + stall, false)
                        : core_.store(a.address, a.bytes, now + stall, false);
      });
  return stall;
}

// What the predictor makes of it; returns the stall.
uint64_t Observer::branch(const InstructionFacts& facts, const Executed& executed) {
  const auto key = [&] { return model::Predictor::key(facts.address); };
  switch (facts.branch) {
    case Branch::kConditional:
      return core_.conditional(key(), executed.taken);
    case Branch::kIndirectJump:
      return core_.jump_indirect(key(), executed.next_ip);
    case Branch::kCall:
      core_.call(facts.end());
      return 0;
    case Branch::kIndirectCall:
      return core_.call_indirect(key(), executed.next_ip, facts.end());
    case Branch::kReturn:
      return core_.give_back(executed.next_ip);
    case Branch::kJump:
    case Branch::kNone:
      break;
  }
  return 0;
}

void Observer::apply(const InstructionFacts& facts, const Executed& executed,
                     arch::SignalCounts& counts, uint64_t& clock) {
  clock += reach(facts, executed, clock);
  clock += branch(facts, executed);
  model::add_static_counts(facts, counts);
  if (behaviour_.rep_counts_iterations && executed.repetitions != 1) [[unlikely]] {
    counts[arch::index(Signal::kInstructions)] += executed.repetitions - 1;
  }
  clock += facts.slots + uint64_t{facts.stall};
}

void Observer::follow(const Executed& executed, arch::SignalCounts& counts, uint64_t& clock) {
  apply(locate(executed), executed, counts, clock);
  move_on();
}

void Observer::retire(const Executed& executed, const model::Registers& after,
                      model::Retired& retired) {
  const InstructionFacts& facts = locate(executed);
  std::optional<uint64_t> load, store;
  for (const SeenAccess& a : executed.accesses) {
    if (a.load && !load) load = a.address;
    if (a.store && !store) store = a.address;
  }
  // Where nothing was accessed, as by a REP of no repetition: where it would have been.
  if (!load) load = load_address(facts, after);
  if (!store) store = store_address(facts, after);
  core_.arm_probe(*store);
  retired.ip = facts.address;
  retired.length = facts.length;
  retired.fused_with_next = facts.fused_with_next;
  retired.special = facts.special;
  retired.counts = {};
  uint64_t clock = core_.clock();
  apply(facts, executed, retired.counts, clock);
  core_.settle(retired.counts, clock);
  note_accesses(facts, core_, *load, *store, retired);
  retired.cycle = core_.cycle();
  retired.tsc = core_.tsc();
  retired.after = &after;
  move_on();
}

}  // namespace skidproof::engines
