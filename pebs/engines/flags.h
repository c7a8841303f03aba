// Lazy arithmetic flags: what the last instructions did, from which EFLAGS is computed when somebody asks.
#ifndef SKIDPROOF_PEBS_ENGINES_FLAGS_H_
#define SKIDPROOF_PEBS_ENGINES_FLAGS_H_

#include <bit>
#include <cstdint>

namespace skidproof::engines {

// EFLAGS bits. [SDM vol. 1, 3.4.3 "EFLAGS Register"]
inline constexpr uint32_t kCf = 1u << 0, kPf = 1u << 2, kAf = 1u << 4, kZf = 1u << 6, kSf = 1u << 7,
                          kOf = 1u << 11;
inline constexpr uint32_t kStatusFlags = kCf | kPf | kAf | kZf | kSf | kOf;

// What kind of instruction set the flags; the operand size is added (see flag_kind).
enum class FlagKind : uint16_t {
  kImage,   // `a` is the image of all six
  kAdd,     // a + b (+ carry) = result
  kSub,     // a - b (- borrow) = result
  kLogic,   // CF, OF, AF 0
  kResult,  // ZF, SF, PF from the result; CF, OF, AF from the image in `a`
  kInc,     // overlay: all but CF
  kDec,
};

template <typename T>
constexpr uint16_t flag_kind(FlagKind kind) {
  return static_cast<uint16_t>((static_cast<unsigned>(kind) << 2) | std::countr_zero(sizeof(T)));
}

// INC and DEC leave CF alone: they overlay the five others, and the base keeps CF. Setting the base by one
// 32-bit store of `word` also removes the overlay.
struct LazyFlags {
  union {
    uint32_t word = 0;  // a base kind without an overlay
    struct {
      uint16_t kind;
      uint16_t overlay;
    };
  };
  uint64_t a = 0, b = 0, result = 0, overlay_result = 0;

  template <typename T>
  void set(FlagKind k, uint64_t first, uint64_t second, T value) {
    word = flag_kind<T>(k);
    a = first;
    b = second;
    result = value;
  }
  template <typename T>
  void set_result(uint32_t image, T value) {
    word = flag_kind<T>(FlagKind::kResult);
    a = image;
    result = value;
  }
  template <typename T>
  void set_overlay(FlagKind k, T value) {
    overlay = flag_kind<T>(k);
    overlay_result = value;
  }
  void set_image(uint32_t image) {
    word = static_cast<uint32_t>(FlagKind::kImage) << 2;
    a = image & kStatusFlags;
  }

  // The six status flags.
  uint32_t image() const {
    uint32_t flags = base_image();
    if (overlay == 0) return flags;
    bool increment = static_cast<FlagKind>(overlay >> 2) == FlagKind::kInc;
    unsigned size = overlay & 3;
    uint64_t low = low_mask(size), top = top_bit(size), value = overlay_result & low;
    uint32_t five = zero_sign_parity(value, size);
    if (value == (increment ? top : top - 1)) five |= kOf;
    if ((value & 0xF) == (increment ? 0u : 0xFu)) five |= kAf;
    return (flags & kCf) | five;
  }
  bool carry() const { return base_image() & kCf; }

  // Whether the condition with encoding `tttn` holds. [SDM vol. 1, table B-1 "EFLAGS Condition Codes"]
  bool condition(unsigned tttn) const {
    uint32_t f = image();
    bool holds = false;
    switch (tttn >> 1) {
      case 0:
        holds = f & kOf;
        break;
      case 1:
        holds = f & kCf;
        break;
      case 2:
        holds = f & kZf;
        break;
      case 3:
        holds = f & (kCf | kZf);
        break;
      case 4:
        holds = f & kSf;
        break;
      case 5:
        holds = f & kPf;
        break;
      case 6:
        holds = !(f & kSf) != !(f & kOf);
        break;
      default:
        holds = (f & kZf) || !(f & kSf) != !(f & kOf);
        break;
    }
    return holds != static_cast<bool>(tttn & 1);
  }

 private:
  static constexpr uint64_t low_mask(unsigned size) { return ~uint64_t{0} >> (64 - (8u << size)); }
  static constexpr uint64_t top_bit(unsigned size) { return uint64_t{1} << ((8u << size) - 1); }
  static uint32_t zero_sign_parity(uint64_t value, unsigned size) {
    uint32_t flags = value == 0 ? kZf : 0;
    if (value & top_bit(size)) flags |= kSf;
    if ((std::popcount(value & 0xFF) & 1) == 0) flags |= kPf;
    return flags;
  }
  uint32_t base_image() const {
    FlagKind k = static_cast<FlagKind>(kind >> 2);
    if (k == FlagKind::kImage) return static_cast<uint32_t>(a);
    unsigned size = kind & 3;
    uint64_t top = top_bit(size), value = result & low_mask(size);
    uint32_t flags = zero_sign_parity(value, size);
    if (k == FlagKind::kLogic) return flags;
    if (k == FlagKind::kResult) return flags | static_cast<uint32_t>(a);
    // Carry and overflow out of the top bit, with or without a carry in.
    uint64_t carries =
        k == FlagKind::kAdd ? (a & b) | ((a | b) & ~value) : (~a & b) | ((~a | b) & value);
    uint64_t overflows = k == FlagKind::kAdd ? (a ^ value) & (b ^ value) : (a ^ b) & (a ^ value);
    if (carries & top) flags |= kCf;
    if (overflows & top) flags |= kOf;
    if ((a ^ b ^ value) & 0x10) flags |= kAf;
    return flags;
  }
};

}  // namespace skidproof::engines

#endif  // SKIDPROOF_PEBS_ENGINES_FLAGS_H_
