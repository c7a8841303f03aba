// Semantics of the two-operand arithmetic and logic instructions, shared by their plain handlers and by
// macro-fused pairs.
#ifndef SKIDPROOF_PEBS_ENGINES_ARITHMETIC_H_
#define SKIDPROOF_PEBS_ENGINES_ARITHMETIC_H_

#include <cstdint>

#include "pebs/engines/forms.h"

namespace skidproof::engines {

enum class Arithmetic : uint8_t { kAdd, kOr, kAdc, kSbb, kAnd, kSub, kXor, kCmp, kTest };

// kFlags false: nobody will look at the flags that it sets.
template <typename T, Arithmetic kKind, bool kFlags = true>
struct ArithmeticOf : Semantics<T> {
  static constexpr bool kWrites = kKind != Arithmetic::kCmp && kKind != Arithmetic::kTest;

  static T apply(State& s, const Operation*, T a, T b) {
    if constexpr (kKind == Arithmetic::kAdd) return noted(s, FlagKind::kAdd, a, b, T(a + b));
    if constexpr (kKind == Arithmetic::kSub || kKind == Arithmetic::kCmp) {
      return noted(s, FlagKind::kSub, a, b, T(a - b));
    }
    if constexpr (kKind == Arithmetic::kAdc) {
      return noted(s, FlagKind::kAdd, a, b, T(a + b + T(s.flags.carry())));
    }
    if constexpr (kKind == Arithmetic::kSbb) {
      return noted(s, FlagKind::kSub, a, b, T(a - b - T(s.flags.carry())));
    }
    if constexpr (kKind == Arithmetic::kOr) return noted(s, FlagKind::kLogic, a, b, T(a | b));
    if constexpr (kKind == Arithmetic::kXor) return noted(s, FlagKind::kLogic, a, b, T(a ^ b));
    if constexpr (kKind == Arithmetic::kAnd || kKind == Arithmetic::kTest) {
      return noted(s, FlagKind::kLogic, a, b, T(a & b));
    }
  }

 private:
  static T noted(State& s, FlagKind kind, T a, T b, T result) {
    if constexpr (kFlags) s.flags.set<T>(kind, a, b, result);
    return result;
  }
};

// INC, DEC.
template <typename T, bool kIncrement, bool kFlags = true>
struct Step : Semantics<T> {
  static constexpr unsigned kForms = kRegisterImmediate | kMemoryImmediate;
  static T apply(State& s, const Operation*, T a, T) {
    T result = T(kIncrement ? a + 1 : a - 1);
    if constexpr (kFlags) {
      s.flags.set_overlay<T>(kIncrement ? FlagKind::kInc : FlagKind::kDec, result);
    }
    return result;
  }
};

}  // namespace skidproof::engines

#endif  // SKIDPROOF_PEBS_ENGINES_ARITHMETIC_H_
