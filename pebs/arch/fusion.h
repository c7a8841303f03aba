// Which instruction pairs a microarch macro-fuses.
#ifndef SKIDPROOF_PEBS_ARCH_FUSION_H_
#define SKIDPROOF_PEBS_ARCH_FUSION_H_

#include <cstdint>

namespace skidproof::arch {

// The first instruction of a candidate pair, by class.
enum class FusionFirst : uint8_t { kNone, kCmp, kTest, kAnd, kAdd, kSub, kInc, kDec };

// The condition families of a jump: (J, JN) pairs share one.
enum class Condition : uint8_t { kO, kB, kE, kBe, kS, kP, kL, kLe };
constexpr Condition condition_of_code(unsigned tttn) {
  return static_cast<Condition>((tttn & 0xF) >> 1);
}

// What a micro-fused instruction with an indexed address does at issue. (R73, R74)
enum class IndexedFusion : uint8_t {
  kUnstated,     // no source says; the model splits it in two
  kNever,        // always split in two
  kTwoOperands,  // stays fused when its destination is read and written; three-operand VEX forms, ADC,
                 // SBB and CMOVcc are split
};

// For each first class, the set of condition families that it fuses with (bit n = Condition n), and
// the operand forms in which it does. [semantics R64–R69]
struct FusionRules {
  uint8_t cmp = 0, test = 0, logic_and = 0, add_sub = 0, inc_dec = 0;
  bool memory_operand = true;  // first may read memory (never memory together with an immediate)
  bool long_mode = true;       // also in 64-bit code

  constexpr uint8_t conditions(FusionFirst first) const {
    switch (first) {
      case FusionFirst::kCmp:
        return cmp;
      case FusionFirst::kTest:
        return test;
      case FusionFirst::kAnd:
        return logic_and;
      case FusionFirst::kAdd:
      case FusionFirst::kSub:
        return add_sub;
      case FusionFirst::kInc:
      case FusionFirst::kDec:
        return inc_dec;
      case FusionFirst::kNone:
        return 0;
    }
    return 0;
  }
  // `reads_memory`, `writes_memory` and `immediate` describe the first instruction's operands.
  constexpr bool fuses(FusionFirst first, Condition condition, bool reads_memory,
                       bool writes_memory, bool immediate, bool in_64_bit_code = true) const {
    if (writes_memory || (in_64_bit_code && !long_mode)) return false;
    if (reads_memory && (immediate || !memory_operand)) return false;
    return (conditions(first) >> static_cast<unsigned>(condition)) & 1;
  }
};

namespace internal {
constexpr uint8_t mask(Condition c) { return static_cast<uint8_t>(1u << static_cast<unsigned>(c)); }
inline constexpr uint8_t kAll = 0xFF;
inline constexpr uint8_t kCarryZero =
    mask(Condition::kB) | mask(Condition::kBe) | mask(Condition::kE);
inline constexpr uint8_t kSigned = mask(Condition::kL) | mask(Condition::kLe);
}  // namespace internal

// NetBurst and the time before it.
inline constexpr FusionRules kNoFusion{};
// R65: outside 64-bit mode only.
inline constexpr FusionRules kCore2Fusion{
    .cmp = internal::kCarryZero, .test = internal::kAll, .long_mode = false};
// R66: Core 2's rules, CMP with the signed families too, and in 64-bit mode.
inline constexpr FusionRules kNehalemFusion{.cmp = internal::kCarryZero | internal::kSigned,
                                            .test = internal::kAll,
                                            .logic_and = 0,
                                            .add_sub = 0,
                                            .inc_dec = 0};
// R67.
inline constexpr FusionRules kSandyBridgeFusion{
    .cmp = internal::kCarryZero | internal::kSigned,
    .test = internal::kAll,
    .logic_and = internal::kAll,
    .add_sub = internal::kCarryZero | internal::kSigned,
    .inc_dec = internal::mask(Condition::kE) | internal::kSigned};
// R68: Sandy Bridge's without INC and DEC, and without memory operands.
inline constexpr FusionRules kIceLakeFusion{.cmp = internal::kCarryZero | internal::kSigned,
                                            .test = internal::kAll,
                                            .logic_and = internal::kAll,
                                            .add_sub = internal::kCarryZero | internal::kSigned,
                                            .inc_dec = 0,
                                            .memory_operand = false};

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_FUSION_H_
