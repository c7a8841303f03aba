// What the sparse_event kernel's registers hold where its event stands: its chain, computed again.
#ifndef SKIDPROOF_SUITES_SPARSE_STATE_H_
#define SKIDPROOF_SUITES_SPARSE_STATE_H_

#include <cstdint>

namespace skidproof::suites {

inline constexpr uint64_t kSparseFactor = 0x9E3779B97F4A7C15;  // in RDX; its low half in EDX

// The accumulator in front of the event of the iteration with this count in RDI (the first of n has
// n), as wide as the mode's registers: uint32_t or uint64_t. [kernels/sparse_event.cc]
template <typename Word>
Word sparse_chain(uint64_t iterations, uint64_t count, unsigned spacing) {
  Word value = 3;
  const auto factor = static_cast<Word>(kSparseFactor);
  auto chain = [&](unsigned steps) {
    for (unsigned i = 0; i < steps; ++i) value = i % 2 == 0 ? value * factor : value + factor;
  };
  for (uint64_t i = iterations; i > count; --i) {
    chain(spacing / 2);
    chain(spacing - spacing / 2);
  }
  chain(spacing / 2);
  return value;
}

}  // namespace skidproof::suites

#endif  // SKIDPROOF_SUITES_SPARSE_STATE_H_
