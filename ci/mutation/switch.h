// The switch between mutants. Only the mutated copy of the sources sees this file: the compiler is told to
// include it first everywhere (ci/mutation/tree.py).
#ifndef SKIDPROOF_CI_MUTATION_SWITCH_H_
#define SKIDPROOF_CI_MUTATION_SWITCH_H_

// The number of the mutant that runs; 0: none. kTrace: none, and every mutant is noted that would make a difference
// where it stands: whose site is reached, and of an operator also, whose result would be another.
extern "C" unsigned skidproof_active_mutant;
extern "C" unsigned char* skidproof_reached_mutants;  // 2^16 of them, while tracing

namespace skidproof::mutants {

#define SKIDPROOF_MUTANTS_INLINE [[gnu::always_inline]] inline
inline constexpr unsigned kTrace = 0xFFFFFFFF;
inline constexpr unsigned kProbe =
    1U << 16;  // with the number of a site's first mutant: its operator is to be traced

SKIDPROOF_MUTANTS_INLINE void note(unsigned mutant) {
  skidproof_reached_mutants[mutant % kProbe] = 1;
}

// Which of `n` mutants from number `first` on is active, from 1; 0: none of them.
SKIDPROOF_MUTANTS_INLINE unsigned which(unsigned first, unsigned n) {
  const unsigned active = skidproof_active_mutant;
  if (active - first < n) [[unlikely]]
    return active - first + 1;
  if (active == kTrace) [[unlikely]] {
    for (unsigned i = 0; i < n; ++i) note(first + i);
  }
  return 0;
}
// The same for an operator.
SKIDPROOF_MUTANTS_INLINE unsigned probe(unsigned first, unsigned n) {
  if (skidproof_active_mutant == kTrace) [[unlikely]]
    return kProbe | first;
  return which(first, n);
}
// The same in functions that may also be evaluated by the compiler: there nothing is mutated.
SKIDPROOF_MUTANTS_INLINE constexpr unsigned which_at_run_time(unsigned first, unsigned n) {
  return __builtin_is_constant_evaluated() ? 0 : which(first, n);
}
SKIDPROOF_MUTANTS_INLINE constexpr unsigned probe_at_run_time(unsigned first, unsigned n) {
  return __builtin_is_constant_evaluated() ? 0 : probe(first, n);
}

template <typename T>
SKIDPROOF_MUTANTS_INLINE constexpr T constant(unsigned which, T value) {
  return which == 0 ? value : which == 1 ? static_cast<T>(value + 1) : T{};
}

#define SKIDPROOF_MUTANTS_BINARY(name, original, first, second)                   \
  template <typename L, typename R>                                               \
  SKIDPROOF_MUTANTS_INLINE constexpr auto name(unsigned which, L l, R r) {        \
    if (which == 1) [[unlikely]]                                                  \
      return static_cast<decltype(original)>(first);                              \
    if (which == 2) [[unlikely]]                                                  \
      return static_cast<decltype(original)>(second);                             \
    if (which >= kProbe) [[unlikely]] {                                           \
      if (static_cast<decltype(original)>(first) != (original)) note(which);      \
      if (static_cast<decltype(original)>(second) != (original)) note(which + 1); \
    }                                                                             \
    return original;                                                              \
  }
SKIDPROOF_MUTANTS_BINARY(less, l < r, l <= r, l >= r)
SKIDPROOF_MUTANTS_BINARY(less_equal, l <= r, (l < r), (l > r))
SKIDPROOF_MUTANTS_BINARY(greater, l > r, l >= r, l <= r)
SKIDPROOF_MUTANTS_BINARY(greater_equal, l >= r, l > r, l < r)
SKIDPROOF_MUTANTS_BINARY(equal, l == r, l != r, l == r)
SKIDPROOF_MUTANTS_BINARY(not_equal, l != r, l == r, l != r)
SKIDPROOF_MUTANTS_BINARY(plus, l + r, l - r, l + r + 1)
SKIDPROOF_MUTANTS_BINARY(minus, l - r, r - l, l - r + 1)
// Of a division the changed result is not asked for while tracing: it may not exist.
SKIDPROOF_MUTANTS_BINARY(divide, l / r, which >= kProbe ? l / r + 1 : r / l, l / r)
SKIDPROOF_MUTANTS_BINARY(modulo, l % r, which >= kProbe ? l % r + 1 : r % l, l % r)
SKIDPROOF_MUTANTS_BINARY(shift_left, l << r, l >> r, l << r)
SKIDPROOF_MUTANTS_BINARY(shift_right, l >> r, l << r, l >> r)
SKIDPROOF_MUTANTS_BINARY(bit_and, (l & r), (l | r), (l & r))
SKIDPROOF_MUTANTS_BINARY(bit_or, (l | r), (l & r), (l | r))
#undef SKIDPROOF_MUTANTS_BINARY

#define SKIDPROOF_MUTANTS_ASSIGN(name, original, first)                   \
  template <typename L, typename R>                                       \
  SKIDPROOF_MUTANTS_INLINE constexpr L& name(unsigned which, L& l, R r) { \
    if (which == 1) [[unlikely]]                                          \
      return first;                                                       \
    return original;                                                      \
  }
SKIDPROOF_MUTANTS_ASSIGN(plus_assign, l += r, l += r + 1)
SKIDPROOF_MUTANTS_ASSIGN(minus_assign, l -= r, l -= r + 1)
SKIDPROOF_MUTANTS_ASSIGN(and_assign, l &= r, l |= r)
SKIDPROOF_MUTANTS_ASSIGN(or_assign, l |= r, l &= r)
#undef SKIDPROOF_MUTANTS_ASSIGN

template <typename T>
SKIDPROOF_MUTANTS_INLINE constexpr auto complement(unsigned which, T value) {
  return which == 0 ? ~value : static_cast<decltype(~value)>(value);
}
template <typename T>
SKIDPROOF_MUTANTS_INLINE constexpr auto negative(unsigned which, T value) {
  return which == 0 ? -value : static_cast<decltype(-value)>(value);
}

}  // namespace skidproof::mutants

#endif  // SKIDPROOF_CI_MUTATION_SWITCH_H_
