// Handlers of branches, macro-fused pairs and the stack, and how execution passes from block to block.
#include "pebs/engines/arithmetic.h"
#include "pebs/engines/operation.h"

namespace skidproof::engines {
namespace {

constexpr uint16_t kRsp = 4 * sizeof(uint64_t);

// ---- Leaving a block.

void leave(State& s, uint64_t clock, uint64_t remaining, Block* next, uint64_t ip, Block** link) {
  s.clock = clock;
  s.remaining = remaining;
  s.next = next;
  s.next_ip = ip;
  s.link = link;
}

// The bottom of a block that ran whole. Nothing in a handler may take the address of its clock or
// budget: a call that could see them would make the tail call impossible.
inline void note_execution(State& s, Block& block) {
  if (block.executions++ == 0) [[unlikely]] {
    block.next_touched = s.touched;
    s.touched = &block;
  }
}

#if SKIDPROOF_CHAINS_BLOCKS
#define SKIDPROOF_ENTER(state, next_block, clock, remaining)                                    \
  do {                                                                                          \
    if ((next_block)->instructions <= (remaining)) [[likely]] {                                 \
      SKIDPROOF_TAIL(next_block)->entry->handler(state, (next_block)->entry, clock, remaining); \
    }                                                                                           \
    return leave(state, clock, remaining, next_block, 0, nullptr);                              \
  } while (false)
#else
#define SKIDPROOF_ENTER(state, next_block, clock, remaining) \
  return leave(state, clock, remaining, next_block, 0, nullptr)
#endif

// Single: the instruction ran alone, so its costs are the dispatcher's to add.
struct Whole {
  static constexpr bool kSingle = false;
};
struct Single {
  static constexpr bool kSingle = true;
};

// To one of the block's static successors.
#define SKIDPROOF_SUCCESSOR(Mode, state, op, clock, remaining, taken)                   \
  do {                                                                                  \
    Block& from = *(op)[1].block;                                                       \
    if constexpr (!Mode::kSingle) {                                                     \
      note_execution(state, from);                                                      \
      (clock) += from.slots;                                                            \
      (remaining) -= from.instructions;                                                 \
    }                                                                                   \
    Block* to = from.successor[taken];                                                  \
    if (to == nullptr) [[unlikely]] {                                                   \
      return leave(state, clock, remaining, nullptr, from.successor_ip[taken],          \
                   &from.successor[taken]);                                             \
    }                                                                                   \
    if constexpr (Mode::kSingle) return leave(state, clock, remaining, to, 0, nullptr); \
    SKIDPROOF_ENTER(state, to, clock, remaining);                                       \
  } while (false)

// To an address that the instruction computed.
#define SKIDPROOF_COMPUTED(Mode, state, op, clock, remaining, destination)                       \
  do {                                                                                           \
    if constexpr (!Mode::kSingle) {                                                              \
      Block& from = *(op)[1].block;                                                              \
      note_execution(state, from);                                                               \
      (clock) += from.slots;                                                                     \
      (remaining) -= from.instructions;                                                          \
    }                                                                                            \
    const State::Target& known = (state).targets[State::slot_of(destination)];                   \
    if (known.ip != (destination)) [[unlikely]] {                                                \
      return leave(state, clock, remaining, nullptr, destination, nullptr);                      \
    }                                                                                            \
    if constexpr (Mode::kSingle) return leave(state, clock, remaining, known.block, 0, nullptr); \
    SKIDPROOF_ENTER(state, known.block, clock, remaining);                                       \
  } while (false)

void fall_through(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  // This operation stands in the place of a branch: the block follows it.
  SKIDPROOF_SUCCESSOR(Whole, s, op, clock, remaining, 0);
}

void stop(State& s, const Operation*, uint64_t clock, uint64_t remaining) {
  leave(s, clock, remaining, nullptr, 0, nullptr);
}

// ---- Conditional jumps.

template <class M, class Mode>
void jump_if(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  bool taken = s.flags.condition(op->detail);
  clock += M::conditional(s, op, taken);
  SKIDPROOF_SUCCESSOR(Mode, s, op, clock, remaining, taken);
}

// The condition family straight from the operands and the result.
template <arch::Condition kCondition, Arithmetic kKind, typename T>
bool holds(T a, T b, T result) {
  using I = std::make_signed_t<T>;
  constexpr bool kLogic = kKind == Arithmetic::kAnd || kKind == Arithmetic::kTest;
  constexpr bool kSubtracts = kKind == Arithmetic::kSub || kKind == Arithmetic::kCmp;
  bool carry = kLogic ? false : kSubtracts ? a < b : result < a;
  I overflowing = kLogic       ? I{0}
                  : kSubtracts ? static_cast<I>((a ^ b) & (a ^ result))
                               : static_cast<I>((a ^ result) & (b ^ result));
  bool negative = static_cast<I>(result) < 0;
  switch (kCondition) {
    case arch::Condition::kB:
      return carry;
    case arch::Condition::kE:
      return result == 0;
    case arch::Condition::kBe:
      return carry || result == 0;
    case arch::Condition::kS:
      return negative;
    case arch::Condition::kL:
      return kSubtracts ? static_cast<I>(a) < static_cast<I>(b) : negative != (overflowing < 0);
    case arch::Condition::kLe:
      return kSubtracts ? static_cast<I>(a) <= static_cast<I>(b)
                        : result == 0 || negative != (overflowing < 0);
    default:
      return false;
  }
}

// A pair of the first operand, the second (a register, memory or an immediate), and a condition whose
// sense op->detail inverts. Flags are set as well: whatever follows the block may look at them.
template <class M, Arithmetic kKind, typename T, arch::Condition kCondition>
bool run_pair(State& s, const Operation* op, T b) {
  using Sem = ArithmeticOf<T, kKind>;
  T a = s.read<T>(op->destination);
  T result = Sem::apply(s, op, a, b);
  if constexpr (Sem::kWrites) s.write<T>(op->destination, result);
  constexpr bool kWritten = kKind == Arithmetic::kCmp;
  T difference = kWritten ? static_cast<T>(a - b) : result;
  return holds<kCondition, kKind, T>(a, b, difference) != static_cast<bool>(op->detail);
}

template <class M, Arithmetic kKind, typename T, arch::Condition kCondition>
void pair_register(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  bool taken = run_pair<M, kKind, T, kCondition>(s, op, s.read<T>(op->source));
  clock += M::conditional(s, op, taken);
  SKIDPROOF_SUCCESSOR(Whole, s, op, clock, remaining, taken);
}

template <class M, Arithmetic kKind, typename T, arch::Condition kCondition>
void pair_immediate(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  bool taken = run_pair<M, kKind, T, kCondition>(s, op, static_cast<T>(op->immediate));
  clock += M::conditional(s, op, taken);
  SKIDPROOF_SUCCESSOR(Whole, s, op, clock, remaining, taken);
}

template <class M, Arithmetic kKind, typename T, arch::Condition kCondition>
__attribute__((noinline)) void pair_memory_slow(State& s, const Operation* op, uint64_t clock,
                                                uint64_t remaining) {
  uint64_t address = s.effective(op);
  uint64_t stall = M::load(s, op, address, sizeof(T), clock + op->slots, op->chase);
  if (stall == kFaulted) return;
  clock += stall;
  bool taken = run_pair<M, kKind, T, kCondition>(s, op, s.load<T>(address));
  clock += M::conditional(s, op, taken);
  SKIDPROOF_SUCCESSOR(Whole, s, op, clock, remaining, taken);
}

template <class M, Arithmetic kKind, typename T, arch::Condition kCondition>
void pair_memory(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  uint64_t address = s.effective(op);
  if (!M::load_is_quick(s, address, sizeof(T))) [[unlikely]] {
    SKIDPROOF_TAIL pair_memory_slow<M, kKind, T, kCondition>(s, op, clock, remaining);
  }
  bool taken = run_pair<M, kKind, T, kCondition>(s, op, s.load<T>(address));
  clock += M::conditional(s, op, taken);
  SKIDPROOF_SUCCESSOR(Whole, s, op, clock, remaining, taken);
}

// INC or DEC with a jump on zero, sign-against-overflow, or both and zero.
template <class M, bool kIncrement, typename T, arch::Condition kCondition>
void pair_step(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  using I = std::make_signed_t<T>;
  T a = s.read<T>(op->destination);
  T result = Step<T, kIncrement>::apply(s, op, a, 0);
  s.write<T>(op->destination, result);
  // SF xor OF is the sign of the exact sum.
  I before = static_cast<I>(a);
  bool less = kIncrement ? before < -1 : before < 1;
  bool met = kCondition == arch::Condition::kE   ? result == 0
             : kCondition == arch::Condition::kL ? less
                                                 : less || result == 0;
  bool taken = met != static_cast<bool>(op->detail);
  clock += M::conditional(s, op, taken);
  SKIDPROOF_SUCCESSOR(Whole, s, op, clock, remaining, taken);
}

template <class M, Arithmetic kKind, typename T, arch::Condition kCondition>
Handler pair_in_form(const model::Decoded& first) {
  if (first.facts.explicit_load) {
    // Only register, memory: CMP and TEST with the memory operand first swap their roles.
    return form_of(first) == kRegisterMemory ? pair_memory<M, kKind, T, kCondition> : nullptr;
  }
  return form_of(first) == kRegisterImmediate ? pair_immediate<M, kKind, T, kCondition>
                                              : pair_register<M, kKind, T, kCondition>;
}

template <class M, Arithmetic kKind, typename T>
Handler pair_with(const model::Decoded& first, arch::Condition condition) {
  using arch::Condition;
  switch (condition) {
    case Condition::kB:
      return pair_in_form<M, kKind, T, Condition::kB>(first);
    case Condition::kE:
      return pair_in_form<M, kKind, T, Condition::kE>(first);
    case Condition::kBe:
      return pair_in_form<M, kKind, T, Condition::kBe>(first);
    case Condition::kS:
      return pair_in_form<M, kKind, T, Condition::kS>(first);
    case Condition::kL:
      return pair_in_form<M, kKind, T, Condition::kL>(first);
    case Condition::kLe:
      return pair_in_form<M, kKind, T, Condition::kLe>(first);
    default:
      return nullptr;  // O and P stay two operations
  }
}

template <class M, bool kIncrement, typename T>
Handler step_with(arch::Condition condition) {
  using arch::Condition;
  switch (condition) {
    case Condition::kE:
      return pair_step<M, kIncrement, T, Condition::kE>;
    case Condition::kL:
      return pair_step<M, kIncrement, T, Condition::kL>;
    case Condition::kLe:
      return pair_step<M, kIncrement, T, Condition::kLe>;
    default:
      return nullptr;
  }
}

template <class M, typename T>
Handler pair_of(const model::Decoded& first, arch::Condition condition) {
  switch (first.facts.fusion) {
    case arch::FusionFirst::kCmp:
      return pair_with<M, Arithmetic::kCmp, T>(first, condition);
    case arch::FusionFirst::kTest:
      return pair_with<M, Arithmetic::kTest, T>(first, condition);
    case arch::FusionFirst::kAnd:
      return pair_with<M, Arithmetic::kAnd, T>(first, condition);
    case arch::FusionFirst::kAdd:
      return pair_with<M, Arithmetic::kAdd, T>(first, condition);
    case arch::FusionFirst::kSub:
      return pair_with<M, Arithmetic::kSub, T>(first, condition);
    case arch::FusionFirst::kInc:
      return first.facts.explicit_load ? nullptr : step_with<M, true, T>(condition);
    case arch::FusionFirst::kDec:
      return first.facts.explicit_load ? nullptr : step_with<M, false, T>(condition);
    case arch::FusionFirst::kNone:
      return nullptr;
  }
  return nullptr;
}

// ---- Jumps, calls, returns and the stack.

template <class Mode>
void jump(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  SKIDPROOF_SUCCESSOR(Mode, s, op, clock, remaining, 1);
}

// The branch's target or pushed value: a register, memory, or an immediate.
enum class Operand : uint8_t { kRegister, kMemory, kImmediate };

// Each of these handlers comes twice: quick, while all its accesses are, and the slow rest, which it
// leaves to by a tail call before it has done anything.
enum class Speed : uint8_t { kQuick, kSlow };

// `Word` is what the stack and near branches are wide: 8 bytes in 64-bit mode, 4 in 32-bit mode.
template <class Word>
Word pushed_at(const State& s) {
  return static_cast<Word>(s.read<Word>(kRsp) - sizeof(Word));
}

template <class Word>
void push_value(State& s, Word value) {
  Word address = pushed_at<Word>(s);
  s.store<Word>(address, value);
  s.write<Word>(kRsp, address);
}

template <class Word>
Word operand_at(const State& s, const Operation* op) {
  return static_cast<Word>(s.effective(op));
}
template <class M, class Word, Operand kOperand>
bool operand_is_quick(State& s, const Operation* op) {
  return kOperand != Operand::kMemory || M::load_is_quick(s, operand_at<Word>(s, op), sizeof(Word));
}
// The stall, or kFaulted.
template <class M, class Word, Operand kOperand>
uint64_t reach_operand(State& s, const Operation* op, uint64_t now) {
  if constexpr (kOperand != Operand::kMemory) return 0;
  uint64_t address = operand_at<Word>(s, op);
  return M::load(s, op, address, sizeof(Word), now, op->chase);
}
template <class Word, Operand kOperand>
Word operand_value(const State& s, const Operation* op) {
  if constexpr (kOperand == Operand::kMemory) return s.load<Word>(operand_at<Word>(s, op));
  return kOperand == Operand::kRegister ? s.read<Word>(op->source)
                                        : static_cast<Word>(op->immediate);
}

template <class M, class Word>
uint64_t reach_stack(State& s, const Operation* op, uint64_t now) {
  uint64_t address = pushed_at<Word>(s);
  return M::store(s, op, address, sizeof(Word), now);
}
// The stall of an operand and a push after it, or kFaulted.
template <class M, class Word, Operand kOperand>
uint64_t reach_operand_and_push(State& s, const Operation* op, uint64_t now) {
  uint64_t first = reach_operand<M, Word, kOperand>(s, op, now);
  if (first == kFaulted) return kFaulted;
  uint64_t second = reach_stack<M, Word>(s, op, now + first);
  return second == kFaulted ? kFaulted : first + second;
}

template <class M, class Word, Operand kOperand, Speed kSpeed = Speed::kQuick>
void push(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  if constexpr (kSpeed == Speed::kSlow) {
    uint64_t stall = reach_operand_and_push<M, Word, kOperand>(s, op, clock + op->slots);
    if (stall == kFaulted) return;
    clock += stall;
  } else if (!operand_is_quick<M, Word, kOperand>(s, op) ||
             !M::store_is_quick(s, pushed_at<Word>(s), sizeof(Word))) {
    SKIDPROOF_TAIL push<M, Word, kOperand, Speed::kSlow>(s, op, clock, remaining);
  }
  push_value<Word>(s, operand_value<Word, kOperand>(s, op));
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

template <class M, class Word, Speed kSpeed = Speed::kQuick>
void pop(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  uint64_t address = s.read<Word>(kRsp);
  if constexpr (kSpeed == Speed::kSlow) {
    uint64_t stall = M::load(s, op, address, sizeof(Word), clock + op->slots);
    if (stall == kFaulted) return;
    clock += stall;
  } else if (!M::load_is_quick(s, address, sizeof(Word))) {
    SKIDPROOF_TAIL pop<M, Word, Speed::kSlow>(s, op, clock, remaining);
  }
  s.write<Word>(kRsp, static_cast<Word>(address + sizeof(Word)));
  s.write<Word>(op->destination, s.load<Word>(address));
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

// immediate: the return address.
template <class M, class Mode, class Word, Speed kSpeed = Speed::kQuick>
void call(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  if constexpr (kSpeed == Speed::kSlow) {
    uint64_t stall = reach_stack<M, Word>(s, op, clock + op->slots);
    if (stall == kFaulted) return;
    clock += stall;
  } else if (!M::store_is_quick(s, pushed_at<Word>(s), sizeof(Word))) {
    SKIDPROOF_TAIL call<M, Mode, Word, Speed::kSlow>(s, op, clock, remaining);
  }
  push_value<Word>(s, static_cast<Word>(op->immediate));
  if constexpr (std::is_same_v<M, Modelled>) s.core->call(op->immediate);
  SKIDPROOF_SUCCESSOR(Mode, s, op, clock, remaining, 1);
}

template <class M, class Mode, class Word, Operand kOperand, Speed kSpeed = Speed::kQuick>
void call_indirect(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  if constexpr (kSpeed == Speed::kSlow) {
    uint64_t stall = reach_operand_and_push<M, Word, kOperand>(s, op, clock + op->slots);
    if (stall == kFaulted) return;
    clock += stall;
  } else if (!operand_is_quick<M, Word, kOperand>(s, op) ||
             !M::store_is_quick(s, pushed_at<Word>(s), sizeof(Word))) {
    SKIDPROOF_TAIL call_indirect<M, Mode, Word, kOperand, Speed::kSlow>(s, op, clock, remaining);
  }
  uint64_t target = operand_value<Word, kOperand>(s, op);
  push_value<Word>(s, static_cast<Word>(op->immediate));
  if constexpr (std::is_same_v<M, Modelled>) {
    clock += s.core->call_indirect(op[1].slots, target, op->immediate);
  }
  SKIDPROOF_COMPUTED(Mode, s, op, clock, remaining, target);
}

template <class M, class Mode, class Word, Operand kOperand, Speed kSpeed = Speed::kQuick>
void jump_indirect(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  if constexpr (kSpeed == Speed::kSlow) {
    uint64_t stall = reach_operand<M, Word, kOperand>(s, op, clock + op->slots);
    if (stall == kFaulted) return;
    clock += stall;
  } else if (!operand_is_quick<M, Word, kOperand>(s, op)) {
    SKIDPROOF_TAIL jump_indirect<M, Mode, Word, kOperand, Speed::kSlow>(s, op, clock, remaining);
  }
  uint64_t target = operand_value<Word, kOperand>(s, op);
  if constexpr (std::is_same_v<M, Modelled>) clock += s.core->jump_indirect(op[1].slots, target);
  SKIDPROOF_COMPUTED(Mode, s, op, clock, remaining, target);
}

// immediate: bytes of arguments to release.
template <class M, class Mode, class Word, Speed kSpeed = Speed::kQuick>
void give_back(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  uint64_t address = s.read<Word>(kRsp);
  if constexpr (kSpeed == Speed::kSlow) {
    uint64_t stall = M::load(s, op, address, sizeof(Word), clock + op->slots);
    if (stall == kFaulted) return;
    clock += stall;
  } else if (!M::load_is_quick(s, address, sizeof(Word))) {
    SKIDPROOF_TAIL give_back<M, Mode, Word, Speed::kSlow>(s, op, clock, remaining);
  }
  uint64_t target = s.load<Word>(address);
  s.write<Word>(kRsp, static_cast<Word>(address + sizeof(Word) + op->immediate));
  if constexpr (std::is_same_v<M, Modelled>) clock += s.core->give_back(target);
  SKIDPROOF_COMPUTED(Mode, s, op, clock, remaining, target);
}

template <class M, class Mode, class Word>
Handler branch_of(const model::Decoded& d) {
  bool memory = d.facts.explicit_load;
  switch (d.facts.branch) {
    case model::Branch::kConditional:
      return jump_if<M, Mode>;
    case model::Branch::kJump:
      return jump<Mode>;
    case model::Branch::kIndirectJump:
      return memory ? jump_indirect<M, Mode, Word, Operand::kMemory>
                    : jump_indirect<M, Mode, Word, Operand::kRegister>;
    case model::Branch::kCall:
      return call<M, Mode, Word>;
    case model::Branch::kIndirectCall:
      return memory ? call_indirect<M, Mode, Word, Operand::kMemory>
                    : call_indirect<M, Mode, Word, Operand::kRegister>;
    case model::Branch::kReturn:
      return give_back<M, Mode, Word>;
    case model::Branch::kNone:
      return nullptr;
  }
  return nullptr;
}

template <class M, class Word>
Handler stack_of(const model::Decoded& d) {
  if (d.instruction.mnemonic == ZYDIS_MNEMONIC_POP)
    return d.facts.explicit_store ? nullptr : pop<M, Word>;
  if (d.facts.explicit_load) return push<M, Word, Operand::kMemory>;
  return d.operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE ? push<M, Word, Operand::kImmediate>
                                                            : push<M, Word, Operand::kRegister>;
}

// By whether the core model takes part, and by what becomes of the block.
template <class Word>
Handler of_width(const model::Decoded& d, const Selection& selection) {
  if (d.instruction.mnemonic == ZYDIS_MNEMONIC_PUSH ||
      d.instruction.mnemonic == ZYDIS_MNEMONIC_POP) {
    if (d.instruction.operand_width != 8 * sizeof(Word)) return nullptr;
    return selection.modelled ? stack_of<Modelled, Word>(d) : stack_of<Bare, Word>(d);
  }
  if (d.facts.branch == model::Branch::kConditional && !d.facts.jcc) return nullptr;
  if (d.instruction.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR) return nullptr;
  if (selection.single) {
    return selection.modelled ? branch_of<Modelled, Single, Word>(d)
                              : branch_of<Bare, Single, Word>(d);
  }
  return selection.modelled ? branch_of<Modelled, Whole, Word>(d) : branch_of<Bare, Whole, Word>(d);
}

}  // namespace

Handler select_branch(const model::Decoded& d, const Selection& selection) {
  if (d.facts.mode == skidproof::Mode::kLong) return of_width<uint64_t>(d, selection);
  // An operand-size prefix would cut EIP to 16 bits.
  return d.instruction.operand_width == 32 ? of_width<uint32_t>(d, selection) : nullptr;
}

Handler select_pair(const model::Decoded& first, const model::Decoded& second,
                    const Selection& selection) {
  arch::Condition condition = arch::condition_of_code(second.facts.condition);
  switch (first.operands[0].size) {
    case 64:
      return selection.modelled ? pair_of<Modelled, uint64_t>(first, condition)
                                : pair_of<Bare, uint64_t>(first, condition);
    case 32:
      return selection.modelled ? pair_of<Modelled, uint32_t>(first, condition)
                                : pair_of<Bare, uint32_t>(first, condition);
    default:
      return nullptr;
  }
}

Handler end_of_block() { return fall_through; }
Handler end_of_single() { return stop; }

}  // namespace skidproof::engines
