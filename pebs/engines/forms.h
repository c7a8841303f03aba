// The operand forms of integer instructions: register or memory on either side, or an immediate. What an
// instruction computes (its semantics) is a template argument, so each pair becomes one small handler.
#ifndef SKIDPROOF_PEBS_ENGINES_FORMS_H_
#define SKIDPROOF_PEBS_ENGINES_FORMS_H_

#include <cstdint>

#include "pebs/engines/operation.h"

namespace skidproof::engines {

enum Form : unsigned {
  kRegisterRegister = 1,
  kRegisterImmediate = 2,  // and a lone register
  kRegisterMemory = 4,
  kMemoryRegister = 8,
  kMemoryImmediate = 16,  // and a lone memory operand
  kAllForms = 31,
};

// What semantics say of themselves: T apply(State&, const Operation*, T first, Source second), and
template <typename T, typename S = T>
struct Semantics {
  using Type = T;                         // of the first operand and the result
  using Source = S;                       // of the second
  static constexpr bool kReads = true;    // the first operand's old value matters
  static constexpr bool kWrites = true;   // the result goes to the first operand
  static constexpr bool kFaults = false;  // apply may refuse
  static constexpr unsigned kForms = kAllForms;
};

template <class Sem>
bool apply_to_register(State& s, const Operation* op, typename Sem::Source second, uint64_t clock) {
  using T = typename Sem::Type;
  T first{};
  if constexpr (Sem::kReads) first = s.read<T>(op->destination);
  T result = Sem::apply(s, op, first, second);
  if constexpr (Sem::kFaults) {
    if (s.fault != Fault::kNone) [[unlikely]] {
      s.clock = clock + op->slots;
      return false;
    }
  } else {
    (void)clock;
  }
  if constexpr (Sem::kWrites) s.write<T>(op->destination, result);
  return true;
}

template <class Sem>
void register_register(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  if (!apply_to_register<Sem>(s, op, s.read<typename Sem::Source>(op->source), clock)) return;
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

template <class Sem>
void register_immediate(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  if (!apply_to_register<Sem>(s, op, static_cast<typename Sem::Source>(op->immediate), clock))
    return;
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

// The rare half of each memory form is a handler of its own, reached by a tail call, so that the common
// half needs no stack frame.
template <class M, class Sem>
__attribute__((noinline)) void register_memory_slow(State& s, const Operation* op, uint64_t clock,
                                                    uint64_t remaining) {
  using S = typename Sem::Source;
  uint64_t address = s.effective(op);
  // The data will be needed after the model's work, and a chase waits for them.
  __builtin_prefetch(reinterpret_cast<const void*>(address + s.host_delta));
  uint64_t stall = M::load(s, op, address, sizeof(S), clock + op->slots, op->chase);
  if (stall == kFaulted) return;
  if (!apply_to_register<Sem>(s, op, s.load<S>(address), clock)) return;
  SKIDPROOF_NEXT(s, op, clock + stall, remaining);
}

template <class M, class Sem>
void register_memory(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  using S = typename Sem::Source;
  uint64_t address = s.effective(op);
  if (!M::load_is_quick(s, address, sizeof(S))) [[unlikely]] {
    SKIDPROOF_TAIL register_memory_slow<M, Sem>(s, op, clock, remaining);
  }
  if (!apply_to_register<Sem>(s, op, s.load<S>(address), clock)) return;
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

template <class Sem, bool kImmediate>
typename Sem::Source second_operand(const State& s, const Operation* op) {
  using S = typename Sem::Source;
  if constexpr (kImmediate) {
    return static_cast<S>(op->immediate);
  } else {
    return s.read<S>(op->source);
  }
}

template <class Sem, bool kImmediate>
void apply_to_memory(State& s, const Operation* op, uint64_t address) {
  using T = typename Sem::Type;
  T first{};
  if constexpr (Sem::kReads) first = s.load<T>(address);
  T result = Sem::apply(s, op, first, second_operand<Sem, kImmediate>(s, op));
  if constexpr (Sem::kWrites) s.store<T>(address, result);
}

template <class M, class Sem, bool kImmediate>
__attribute__((noinline)) void memory_first_slow(State& s, const Operation* op, uint64_t clock,
                                                 uint64_t remaining) {
  using T = typename Sem::Type;
  uint64_t address = s.effective(op);
  if constexpr (Sem::kReads) {
    uint64_t stall = M::load(s, op, address, sizeof(T), clock + op->slots);
    if (stall == kFaulted) return;
    clock += stall;
  }
  if constexpr (Sem::kWrites) {
    uint64_t stall = M::store(s, op, address, sizeof(T), clock + op->slots);
    if (stall == kFaulted) return;
    clock += stall;
  }
  apply_to_memory<Sem, kImmediate>(s, op, address);
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

template <class M, class Sem, bool kImmediate>
void memory_first(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  using T = typename Sem::Type;
  uint64_t address = s.effective(op);
  bool quick = Sem::kReads ? M::load_is_quick(s, address, sizeof(T))
                           : M::store_is_quick(s, address, sizeof(T));
  // Without the core model a quick load says nothing about stores.
  if constexpr (Sem::kReads && Sem::kWrites)
    quick = quick && M::store_is_quick(s, address, sizeof(T));
  if (!quick) [[unlikely]] {
    SKIDPROOF_TAIL memory_first_slow<M, Sem, kImmediate>(s, op, clock, remaining);
  }
  apply_to_memory<Sem, kImmediate>(s, op, address);
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

// The form of an instruction with one or two visible operands, as a Form bit; 0 for others.
unsigned form_of(const model::Decoded& decoded);

// The handler for these semantics in that form; null where they do not take it.
template <class Sem>
Handler choose(unsigned form, bool modelled) {
  if (!(Sem::kForms & form)) return nullptr;
  if constexpr (static_cast<bool>(Sem::kForms & kRegisterRegister)) {
    if (form == kRegisterRegister) return register_register<Sem>;
  }
  if constexpr (static_cast<bool>(Sem::kForms & kRegisterImmediate)) {
    if (form == kRegisterImmediate) return register_immediate<Sem>;
  }
  if constexpr (static_cast<bool>(Sem::kForms & kRegisterMemory)) {
    if (form == kRegisterMemory) {
      return modelled ? register_memory<Modelled, Sem> : register_memory<Bare, Sem>;
    }
  }
  if constexpr (static_cast<bool>(Sem::kForms & kMemoryRegister)) {
    if (form == kMemoryRegister) {
      return modelled ? memory_first<Modelled, Sem, false> : memory_first<Bare, Sem, false>;
    }
  }
  if constexpr (static_cast<bool>(Sem::kForms & kMemoryImmediate)) {
    if (form == kMemoryImmediate) {
      return modelled ? memory_first<Modelled, Sem, true> : memory_first<Bare, Sem, true>;
    }
  }
  return nullptr;
}

// Chooses for the operand size: of 16 to 64 bits, and of 8 to 64. `form` and `modelled` are in scope.
#define SKIDPROOF_BY_WORD(bits, name, ...)                                            \
  ((bits) == 64   ? choose<name<uint64_t __VA_OPT__(, ) __VA_ARGS__>>(form, modelled) \
   : (bits) == 32 ? choose<name<uint32_t __VA_OPT__(, ) __VA_ARGS__>>(form, modelled) \
   : (bits) == 16 ? choose<name<uint16_t __VA_OPT__(, ) __VA_ARGS__>>(form, modelled) \
                  : nullptr)
#define SKIDPROOF_BY_SIZE(bits, name, ...)                                        \
  ((bits) == 8 ? choose<name<uint8_t __VA_OPT__(, ) __VA_ARGS__>>(form, modelled) \
               : SKIDPROOF_BY_WORD(bits, name __VA_OPT__(, ) __VA_ARGS__))

}  // namespace skidproof::engines

#endif  // SKIDPROOF_PEBS_ENGINES_FORMS_H_
