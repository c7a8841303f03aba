// Handlers of the integer instructions that are neither arithmetic in two operands nor branches.
#include <bit>
#include <type_traits>

#include "pebs/engines/arithmetic_operations.h"
#include "pebs/engines/forms.h"

namespace skidproof::engines {
namespace {

constexpr uint16_t kAl = 0, kAh = 1;  // offsets into State: RAX comes first
constexpr uint16_t kRax = 0, kRcx = 8, kRdx = 16, kRbx = 24;

template <typename T>
using Signed = std::make_signed_t<T>;
template <typename T>
constexpr unsigned kBits = 8 * sizeof(T);

// ---- Moves.

template <typename T>
struct Move : Semantics<T> {
  static constexpr bool kReads = false;
  static T apply(State&, const Operation*, T, T b) { return b; }
};

template <typename T, typename S>
struct MoveZero : Semantics<T, S> {
  static constexpr bool kReads = false;
  static constexpr unsigned kForms = kRegisterRegister | kRegisterMemory;
  static T apply(State&, const Operation*, T, S b) { return b; }
};

template <typename T, typename S>
struct MoveSign : MoveZero<T, S> {
  static T apply(State&, const Operation*, T, S b) {
    return static_cast<T>(static_cast<Signed<T>>(static_cast<Signed<S>>(b)));
  }
};

template <typename T>
struct ConditionalMove : Semantics<T> {
  static constexpr unsigned kForms = kRegisterRegister | kRegisterMemory;
  static T apply(State& s, const Operation* op, T a, T b) {
    return s.flags.condition(op->detail) ? b : a;
  }
};

struct SetByte : Semantics<uint8_t> {
  static constexpr bool kReads = false;
  static constexpr unsigned kForms = kRegisterImmediate | kMemoryImmediate;
  static uint8_t apply(State& s, const Operation* op, uint8_t, uint8_t) {
    return s.flags.condition(op->detail);
  }
};

template <typename T>
struct ByteSwap : Semantics<T> {
  static constexpr unsigned kForms = kRegisterImmediate;
  static T apply(State&, const Operation*, T a, T) {
    return sizeof(T) == 8 ? static_cast<T>(__builtin_bswap64(a))
                          : static_cast<T>(__builtin_bswap32(static_cast<uint32_t>(a)));
  }
};

// The old first operand goes to the second, which is a register.
template <typename T>
struct Exchange : Semantics<T> {
  static constexpr unsigned kForms = kRegisterRegister | kMemoryRegister;
  static T apply(State& s, const Operation* op, T a, T b) {
    s.write<T>(op->source, a);
    return b;
  }
};

template <typename T>
struct ExchangeAdd : Exchange<T> {
  static T apply(State& s, const Operation* op, T a, T b) {
    T sum = static_cast<T>(a + b);
    s.flags.set<T>(FlagKind::kAdd, a, b, sum);
    s.write<T>(op->source, a);
    return sum;
  }
};

// Memory is written in either case [SDM vol. 2 "CMPXCHG"]; a register that does not compare equal is
// left alone, the upper half under a 32-bit operand included.
template <typename T>
struct CompareExchange : Semantics<T> {
  static constexpr unsigned kForms = kMemoryRegister;
  static T apply(State& s, const Operation*, T a, T b) {
    T expected = s.read<T>(kRax);
    s.flags.set<T>(FlagKind::kSub, expected, a, static_cast<T>(expected - a));
    if (expected == a) return b;
    s.write<T>(kRax, a);
    return a;
  }
};
template <typename T>
struct CompareExchangeRegister : Semantics<T> {
  static constexpr bool kWrites = false;
  static constexpr unsigned kForms = kRegisterRegister;
  static T apply(State& s, const Operation* op, T a, T b) {
    T kept = CompareExchange<T>::apply(s, op, a, b);
    if (s.flags.result == 0) s.write<T>(op->destination, b);
    return kept;
  }
};

// ---- NEG, NOT, shifts and rotates.

template <typename T>
struct Negate : Semantics<T> {
  static constexpr unsigned kForms = kRegisterImmediate | kMemoryImmediate;
  static T apply(State& s, const Operation*, T a, T) {
    T result = static_cast<T>(T{0} - a);
    s.flags.set<T>(FlagKind::kSub, 0, a, result);
    return result;
  }
};

template <typename T>
struct Complement : Negate<T> {
  static T apply(State&, const Operation*, T a, T) { return static_cast<T>(~a); }
};

enum class Shift : uint8_t { kLeft, kRight, kArithmetic };

// OF is defined for a count of 1 only, CF not beyond the operand's width; AF never. [SDM vol. 2
// "SAL/SAR/SHL/SHR"] Where undefined they are those of the last of `count` shifts by 1, as in the lab's emulator.
template <typename T, Shift kKind, bool kFlags = true>
struct ShiftOf : Semantics<T> {
  static constexpr unsigned kForms =
      kRegisterRegister | kRegisterImmediate | kMemoryRegister | kMemoryImmediate;
  static T apply(State& s, const Operation*, T a, T b) {
    unsigned count = static_cast<unsigned>(b) & (sizeof(T) == 8 ? 63 : 31);
    if (count == 0) return a;
    // One position more than the operand holds the bit that falls out last.
    unsigned inside = count < kBits<T> ? count : kBits<T>;
    T result = 0;
    bool carry = false, overflow = false;
    if constexpr (kKind == Shift::kLeft) {
      T before = static_cast<T>(a << (inside - 1));
      result = static_cast<T>(before << 1);
      carry = count <= kBits<T> && top(before);
      overflow = top(result) != carry;
    } else if constexpr (kKind == Shift::kRight) {
      T before = static_cast<T>(a >> (inside - 1));
      result = static_cast<T>(before >> 1);
      carry = count <= kBits<T> && (before & 1);
      overflow = top(before);
    } else {
      Signed<T> before = static_cast<Signed<T>>(static_cast<Signed<T>>(a) >> (inside - 1));
      result = static_cast<T>(before >> 1);
      carry = before & 1;
    }
    if constexpr (kFlags) {
      s.flags.set_result<T>((carry ? kCf : 0) | (overflow ? kOf : 0), result);
    }
    return result;
  }

 private:
  static bool top(T value) { return value >> (kBits<T> - 1) & 1; }
};

// ZF, SF, PF and AF stay; OF is defined for a count of 1 only. [SDM vol. 2 "RCL/RCR/ROL/ROR"]
template <typename T, bool kLeft>
struct Rotate : ShiftOf<T, Shift::kLeft> {
  static T apply(State& s, const Operation*, T a, T b) {
    unsigned masked = static_cast<unsigned>(b) & (sizeof(T) == 8 ? 63 : 31);
    if (masked == 0) return a;
    unsigned count = masked % kBits<T>;
    T result =
        kLeft ? std::rotl(a, static_cast<int>(count)) : std::rotr(a, static_cast<int>(count));
    bool top = result >> (kBits<T> - 1) & 1;
    bool carry = kLeft ? result & 1 : top;
    bool overflow = kLeft ? top != carry : top != (result >> (kBits<T> - 2) & 1);
    uint32_t kept = s.flags.image() & ~(kCf | kOf);
    s.flags.set_image(kept | (carry ? kCf : 0) | (overflow ? kOf : 0));
    return result;
  }
};

// ---- Multiplication and division.

template <typename T>
struct Wider;
template <>
struct Wider<uint8_t> {
  using Type = uint16_t;
  using Signed = int16_t;
};
template <>
struct Wider<uint16_t> {
  using Type = uint32_t;
  using Signed = int32_t;
};
template <>
struct Wider<uint32_t> {
  using Type = uint64_t;
  using Signed = int64_t;
};
template <>
struct Wider<uint64_t> {
  using Type = unsigned __int128;
  using Signed = __int128;
};

template <typename T>
T signed_product(State& s, T a, T b, bool flags) {
  using W = typename Wider<T>::Signed;
  W product = static_cast<W>(static_cast<W>(static_cast<Signed<T>>(a)) * static_cast<Signed<T>>(b));
  T low = static_cast<T>(product);
  if (flags) {
    bool lost = static_cast<W>(static_cast<Signed<T>>(low)) != product;
    s.flags.set_result<T>(lost ? kCf | kOf : 0, low);
  }
  return low;
}

// IMUL in two operands; in three, `first` is not the destination's old value.
template <typename T, bool kFlags = true>
struct Multiply : Semantics<T> {
  static constexpr unsigned kForms = kRegisterRegister | kRegisterMemory;
  static T apply(State& s, const Operation*, T a, T b) {
    return signed_product<T>(s, a, b, kFlags);
  }
};

template <typename T>
struct MultiplyImmediate : Semantics<T> {
  static constexpr bool kReads = false;
  static constexpr unsigned kForms = kRegisterRegister | kRegisterMemory;
  static T apply(State& s, const Operation* op, T, T b) {
    return signed_product<T>(s, b, static_cast<T>(op->immediate), true);
  }
};

// The accumulator pair: AH:AL for bytes, xDX:xAX for the others.
template <typename T>
void write_pair(State& s, T low, T high) {
  if constexpr (sizeof(T) == 1) {
    s.write<uint8_t>(kAl, low);
    s.write<uint8_t>(kAh, high);
  } else {
    s.write<T>(kRax, low);
    s.write<T>(kRdx, high);
  }
}
template <typename T>
typename Wider<T>::Type read_pair(const State& s) {
  using W = typename Wider<T>::Type;
  T low = s.read<T>(kRax);
  T high = sizeof(T) == 1 ? static_cast<T>(s.read<uint8_t>(kAh)) : s.read<T>(kRdx);
  return static_cast<W>(static_cast<W>(high) << kBits<T> | low);
}

// One-operand instructions take it as the second operand of a form that writes nothing.
template <typename T>
struct Accumulator : Semantics<T> {
  static constexpr bool kReads = false, kWrites = false;
  static constexpr unsigned kForms = kRegisterRegister | kRegisterMemory;
};

template <typename T, bool kSigned>
struct MultiplyWide : Accumulator<T> {
  static T apply(State& s, const Operation*, T, T b) {
    using W = typename Wider<T>::Type;
    using I = typename Wider<T>::Signed;
    T a = s.read<T>(kRax);
    W product =
        kSigned
            ? static_cast<W>(static_cast<I>(static_cast<Signed<T>>(a)) * static_cast<Signed<T>>(b))
            : static_cast<W>(static_cast<W>(a) * b);
    T low = static_cast<T>(product), high = static_cast<T>(product >> kBits<T>);
    T trivial = kSigned && (low >> (kBits<T> - 1)) ? static_cast<T>(~T{0}) : T{0};
    s.flags.set_result<T>(high != trivial ? kCf | kOf : 0, low);
    write_pair<T>(s, low, high);
    return 0;
  }
};

template <typename T>
struct Divide : Accumulator<T> {
  static constexpr bool kFaults = true;
  static T apply(State& s, const Operation* op, T, T b) {
    using W = typename Wider<T>::Type;
    W dividend = read_pair<T>(s);
    if (static_cast<T>(dividend >> kBits<T>) >= b) {  // also when b is 0: the quotient does not fit
      refuse(s, op, Fault::kDivide, 0, 0);
      return 0;
    }
    write_pair<T>(s, static_cast<T>(dividend / b), static_cast<T>(dividend % b));
    return 0;
  }
};

template <typename T>
struct DivideSigned : Divide<T> {
  static T apply(State& s, const Operation* op, T, T b) {
    using I = typename Wider<T>::Signed;
    using W = typename Wider<T>::Type;
    I dividend = static_cast<I>(read_pair<T>(s));
    I divisor =
        static_cast<Signed<T>>(b);  // NOLINT(bugprone-signed-char-misuse): the sign is meant
    // The most negative dividend has no positive counterpart to divide.
    bool unrepresentable = dividend == static_cast<I>(W{1} << (2 * kBits<T> - 1)) && divisor == -1;
    I quotient = divisor == 0 || unrepresentable ? I{0} : static_cast<I>(dividend / divisor);
    if (divisor == 0 || unrepresentable || quotient != static_cast<Signed<T>>(quotient)) {
      refuse(s, op, Fault::kDivide, 0, 0);
      return 0;
    }
    write_pair<T>(s, static_cast<T>(quotient), static_cast<T>(dividend % divisor));
    return 0;
  }
};

// ---- Bit counts and scans. Undefined flags are as the lab's emulator leaves them.

template <typename T>
struct PopulationCount : Semantics<T> {
  static constexpr bool kReads = false;
  static constexpr unsigned kForms = kRegisterRegister | kRegisterMemory;
  static T apply(State& s, const Operation*, T, T b) {
    s.flags.set_image(b == 0 ? kZf : 0);
    return static_cast<T>(std::popcount(b));
  }
};

// LZCNT, TZCNT.
template <typename T, bool kLeading>
struct CountZeros : PopulationCount<T> {
  static T apply(State& s, const Operation*, T, T b) {
    T result = static_cast<T>(kLeading ? std::countl_zero(b) : std::countr_zero(b));
    const uint32_t kept = s.flags.image() & ~(kCf | kZf);
    s.flags.set_image(kept | (b == 0 ? kCf : 0) | (result == 0 ? kZf : 0));
    return result;
  }
};

// BSF, BSR. Of 0 they leave the destination alone, the upper half under a 32-bit operand included, as
// processors do whose behaviour is published; the manual calls it undefined.
template <typename T, bool kReverse>
struct Scan : PopulationCount<T> {
  static constexpr bool kWrites = false;
  static T apply(State& s, const Operation* op, T, T b) {
    if (b == 0) {
      s.flags.set_image(s.flags.image() | kZf);
      return 0;
    }
    unsigned position = kReverse ? kBits<T> - 1 - static_cast<unsigned>(std::countl_zero(b))
                                 : static_cast<unsigned>(std::countr_zero(b));
    s.flags.set_image(std::popcount(position) % 2 == 0 ? kPf : 0);
    s.write<T>(op->destination, static_cast<T>(position));
    return 0;
  }
};

// ---- Instructions without ordinary operands.

template <typename T>
void load_address(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  s.write<T>(op->destination, static_cast<T>(s.effective(op)));
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

void nothing(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

// CBW, CWDE, CDQE: the accumulator's lower half sign-extended.
template <typename T, typename Half>
void extend_accumulator(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  s.write<T>(kRax,
             static_cast<T>(static_cast<Signed<T>>(static_cast<Signed<Half>>(s.read<Half>(kRax)))));
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

// CWD, CDQ, CQO: xDX filled with the accumulator's sign.
template <typename T>
void spread_sign(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  s.write<T>(kRdx, s.read<T>(kRax) >> (kBits<T> - 1) ? static_cast<T>(~T{0}) : T{0});
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

enum class Carry : uint8_t { kClear, kSet, kFlip };
template <Carry kKind>
void change_carry(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  uint32_t image = s.flags.image();
  if (kKind == Carry::kFlip) image ^= kCf;
  if (kKind == Carry::kSet) image |= kCf;
  if (kKind == Carry::kClear) image &= ~kCf;
  s.flags.set_image(image);
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

// EDX:EAX = the model's time-stamp counter.
void read_time_stamp(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  uint64_t tsc = (clock + op->slots) / s.core->width();
  s.write<uint32_t>(kRax, static_cast<uint32_t>(tsc));
  s.write<uint32_t>(kRdx, static_cast<uint32_t>(tsc >> 32));
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

// A leaf that has nothing: what it says of the processor is not for a program to know.
void identify(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  for (uint16_t n : {kRax, kRcx, kRdx, kRbx}) s.write<uint32_t>(n, 0);
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

// Linux' selector of user data. [Linux asm/segment.h]
void read_stack_segment(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  constexpr uint32_t kUserData = 0x2B;
  s.write<uint32_t>(op->destination, kUserData);
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

// A non-temporal store of a general register.
template <class M, typename T>
void store_stream(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  uint64_t address = s.effective(op);
  if (!M::stream_is_quick(s, address, sizeof(T))) [[unlikely]] {
    uint64_t stall = M::stream(s, op, address, sizeof(T), clock + op->slots);
    if (stall == kFaulted) return;
    clock += stall;
  }
  s.store<T>(address, s.read<T>(op->source));
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

template <class M>
void flush_line(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  if (M::flush(s, op, s.effective(op), clock + op->slots) == kFaulted) return;
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

template <template <typename, typename> class Sem>
Handler extension(const model::Decoded& d, unsigned form, bool modelled) {
  unsigned to = d.operands[0].size, from = d.operands[1].size;
  if (from == 8 && to == 16) return choose<Sem<uint16_t, uint8_t>>(form, modelled);
  if (from == 8 && to == 32) return choose<Sem<uint32_t, uint8_t>>(form, modelled);
  if (from == 8 && to == 64) return choose<Sem<uint64_t, uint8_t>>(form, modelled);
  if (from == 16 && to == 32) return choose<Sem<uint32_t, uint16_t>>(form, modelled);
  if (from == 16 && to == 64) return choose<Sem<uint64_t, uint16_t>>(form, modelled);
  if (from == 32 && to == 64) return choose<Sem<uint64_t, uint32_t>>(form, modelled);
  return nullptr;
}

template <Shift kKind>
Handler shift(unsigned bits, unsigned form, const Selection& selection) {
  bool modelled = selection.modelled;
  if (selection.flags_dead && bits == 64 && form == kRegisterImmediate) {
    return choose<ShiftOf<uint64_t, kKind, false>>(form, modelled);
  }
  return SKIDPROOF_BY_SIZE(bits, ShiftOf, kKind);
}

// One-operand instructions on the accumulator.
unsigned accumulator_form(const model::Decoded& d) {
  return d.facts.has_address ? kRegisterMemory : kRegisterRegister;
}

Handler select_multiply(const model::Decoded& d, const Selection& selection) {
  bool modelled = selection.modelled;
  unsigned bits = d.operands[0].size;
  unsigned operands = d.instruction.operand_count_visible;
  if (operands == 1) {
    unsigned form = accumulator_form(d);
    return SKIDPROOF_BY_SIZE(bits, MultiplyWide, true);
  }
  unsigned form = d.facts.has_address ? kRegisterMemory : kRegisterRegister;
  if (operands == 3) {
    return SKIDPROOF_BY_WORD(bits, MultiplyImmediate);
  }
  if (selection.flags_dead && bits == 64) return choose<Multiply<uint64_t, false>>(form, modelled);
  return SKIDPROOF_BY_WORD(bits, Multiply);
}

Handler select_accumulator(const model::Decoded& d, bool modelled) {
  unsigned bits = d.operands[0].size;
  unsigned form = accumulator_form(d);
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_MUL:
      return SKIDPROOF_BY_SIZE(bits, MultiplyWide, false);
    case ZYDIS_MNEMONIC_DIV:
      return SKIDPROOF_BY_SIZE(bits, Divide);
    case ZYDIS_MNEMONIC_IDIV:
      return SKIDPROOF_BY_SIZE(bits, DivideSigned);
    case ZYDIS_MNEMONIC_CBW:
      return extend_accumulator<uint16_t, uint8_t>;
    case ZYDIS_MNEMONIC_CWDE:
      return extend_accumulator<uint32_t, uint16_t>;
    case ZYDIS_MNEMONIC_CDQE:
      return extend_accumulator<uint64_t, uint32_t>;
    case ZYDIS_MNEMONIC_CWD:
      return spread_sign<uint16_t>;
    case ZYDIS_MNEMONIC_CDQ:
      return spread_sign<uint32_t>;
    case ZYDIS_MNEMONIC_CQO:
      return spread_sign<uint64_t>;
    default:
      return nullptr;
  }
}

Handler select_shift(const model::Decoded& d, const Selection& selection) {
  unsigned bits = d.operands[0].size;
  unsigned form = form_of(d);
  bool modelled = selection.modelled;
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_SHL:
      return shift<Shift::kLeft>(bits, form, selection);
    case ZYDIS_MNEMONIC_SHR:
      return shift<Shift::kRight>(bits, form, selection);
    case ZYDIS_MNEMONIC_SAR:
      return shift<Shift::kArithmetic>(bits, form, selection);
    case ZYDIS_MNEMONIC_ROL:
      return SKIDPROOF_BY_SIZE(bits, Rotate, true);
    case ZYDIS_MNEMONIC_ROR:
      return SKIDPROOF_BY_SIZE(bits, Rotate, false);
    default:
      return nullptr;
  }
}

Handler select_bits(const model::Decoded& d, bool modelled) {
  unsigned bits = d.operands[0].size;
  unsigned form = form_of(d);
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_POPCNT:
      return SKIDPROOF_BY_WORD(bits, PopulationCount);
    case ZYDIS_MNEMONIC_LZCNT:
      return SKIDPROOF_BY_WORD(bits, CountZeros, true);
    case ZYDIS_MNEMONIC_TZCNT:
      return SKIDPROOF_BY_WORD(bits, CountZeros, false);
    case ZYDIS_MNEMONIC_BSF:
      return SKIDPROOF_BY_WORD(bits, Scan, false);
    case ZYDIS_MNEMONIC_BSR:
      return SKIDPROOF_BY_WORD(bits, Scan, true);
    case ZYDIS_MNEMONIC_BSWAP:
      return bits == 64   ? choose<ByteSwap<uint64_t>>(form, modelled)
             : bits == 32 ? choose<ByteSwap<uint32_t>>(form, modelled)
                          : nullptr;
    default:
      return nullptr;
  }
}

Handler select_move(const model::Decoded& d, bool modelled) {
  unsigned bits = d.operands[0].size;
  unsigned form = form_of(d);
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_MOV:
      return SKIDPROOF_BY_SIZE(bits, Move);
    case ZYDIS_MNEMONIC_MOVZX:
      return extension<MoveZero>(d, form, modelled);
    case ZYDIS_MNEMONIC_MOVSX:
    case ZYDIS_MNEMONIC_MOVSXD:
      return extension<MoveSign>(d, form, modelled);
    case ZYDIS_MNEMONIC_XCHG:
      return SKIDPROOF_BY_SIZE(bits, Exchange);
    case ZYDIS_MNEMONIC_XADD:
      return SKIDPROOF_BY_SIZE(bits, ExchangeAdd);
    case ZYDIS_MNEMONIC_CMPXCHG:
      return form == kRegisterRegister ? SKIDPROOF_BY_SIZE(bits, CompareExchangeRegister)
                                       : SKIDPROOF_BY_SIZE(bits, CompareExchange);
    case ZYDIS_MNEMONIC_LEA:
      return bits == 64   ? load_address<uint64_t>
             : bits == 32 ? load_address<uint32_t>
                          : load_address<uint16_t>;
    case ZYDIS_MNEMONIC_MOVNTI:
      if (bits == 64)
        return modelled ? store_stream<Modelled, uint64_t> : store_stream<Bare, uint64_t>;
      return modelled ? store_stream<Modelled, uint32_t> : store_stream<Bare, uint32_t>;
    default:
      return nullptr;
  }
}

Handler select_other(const model::Decoded& d, bool modelled) {
  unsigned bits = d.operands[0].size;
  unsigned form = form_of(d);
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_NEG:
      return SKIDPROOF_BY_SIZE(bits, Negate);
    case ZYDIS_MNEMONIC_NOT:
      return SKIDPROOF_BY_SIZE(bits, Complement);
    case ZYDIS_MNEMONIC_CLC:
      return change_carry<Carry::kClear>;
    case ZYDIS_MNEMONIC_STC:
      return change_carry<Carry::kSet>;
    case ZYDIS_MNEMONIC_CMC:
      return change_carry<Carry::kFlip>;
    case ZYDIS_MNEMONIC_RDTSC:
      return read_time_stamp;
    case ZYDIS_MNEMONIC_CPUID:
      return identify;
    case ZYDIS_MNEMONIC_CLFLUSH:
      return modelled ? flush_line<Modelled> : flush_line<Bare>;
    case ZYDIS_MNEMONIC_NOP:
    case ZYDIS_MNEMONIC_PAUSE:
    case ZYDIS_MNEMONIC_MFENCE:
    case ZYDIS_MNEMONIC_LFENCE:
    case ZYDIS_MNEMONIC_SFENCE:
    case ZYDIS_MNEMONIC_PREFETCHT0:
    case ZYDIS_MNEMONIC_PREFETCHT1:
    case ZYDIS_MNEMONIC_PREFETCHT2:
    case ZYDIS_MNEMONIC_PREFETCHNTA:
    case ZYDIS_MNEMONIC_PREFETCHW:
      return nothing;
    default:
      return nullptr;
  }
}

}  // namespace

Handler select_stack_segment(const model::Decoded& decoded) {
  return decoded.facts.special == model::Special::kShadow ? nothing : read_stack_segment;
}

unsigned form_of(const model::Decoded& decoded) {
  if (decoded.instruction.operand_count_visible == 0) return 0;
  auto kind = [&](unsigned n) { return decoded.operands[n].type; };
  bool lone = decoded.instruction.operand_count_visible == 1;
  bool immediate = lone || kind(1) == ZYDIS_OPERAND_TYPE_IMMEDIATE;
  bool memory_second = !lone && kind(1) == ZYDIS_OPERAND_TYPE_MEMORY;
  if (kind(0) == ZYDIS_OPERAND_TYPE_MEMORY) return immediate ? kMemoryImmediate : kMemoryRegister;
  if (kind(0) != ZYDIS_OPERAND_TYPE_REGISTER) return 0;
  return immediate ? kRegisterImmediate : memory_second ? kRegisterMemory : kRegisterRegister;
}

Handler select_integer(const model::Decoded& d, const Selection& selection) {
  bool modelled = selection.modelled;
  switch (d.instruction.meta.category) {
    case ZYDIS_CATEGORY_CMOV: {
      unsigned bits = d.operands[0].size, form = form_of(d);
      return SKIDPROOF_BY_WORD(bits, ConditionalMove);
    }
    case ZYDIS_CATEGORY_SETCC:
      return choose<SetByte>(form_of(d), modelled);
    default:
      break;
  }
  if (d.instruction.mnemonic == ZYDIS_MNEMONIC_IMUL) return select_multiply(d, selection);
  if (Handler h = select_arithmetic(d, selection)) return h;
  if (Handler h = select_move(d, modelled)) return h;
  if (Handler h = select_shift(d, selection)) return h;
  if (Handler h = select_accumulator(d, modelled)) return h;
  if (Handler h = select_bits(d, modelled)) return h;
  return select_other(d, modelled);
}

}  // namespace skidproof::engines
