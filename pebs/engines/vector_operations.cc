// Handlers of the SSE and AVX instructions: moves, non-temporal stores, integer and scalar double.
#include <immintrin.h>

#include <cstring>

#include "pebs/engines/operation.h"

namespace skidproof::engines {
namespace {

template <unsigned kBytes>
struct Bytes {
  uint64_t part[kBytes / 8];
};

// What a write to a vector register does to the bits above it: legacy SSE keeps them, VEX clears them.
// [SDM vol. 1, 14.1.2 "Instruction Syntax Enhancements" and 2.3.10 of vol. 2]
enum class Upper : uint8_t { kKeep, kClear };

constexpr unsigned kRegisterBytes = 32;

template <Upper kUpper, class T>
void write_vector(State& s, uint16_t offset, const T& value) {
  auto* to = reinterpret_cast<std::byte*>(&s) + offset;
  std::memcpy(to, &value, sizeof(T));
  if constexpr (kUpper == Upper::kClear && sizeof(T) < kRegisterBytes) {
    std::memset(to + sizeof(T), 0, kRegisterBytes - sizeof(T));
  }
}

// Moves between the low T of a vector register and memory. `kTo` is what is written of the register: a
// MOVQ load clears the rest of the low 16 bytes.
template <class T, class To>
To widen(const T& value) {
  To wide{};
  std::memcpy(&wide, &value, sizeof(T));
  return wide;
}

// Each memory handler comes twice: quick, while its access is, and the slow rest, which it leaves to by a
// tail call before it has done anything.
enum class Speed : uint8_t { kQuick, kSlow };

template <class M, class T, class To, Upper kUpper, bool kAligned, Speed kSpeed = Speed::kQuick>
void vector_load(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  uint64_t address = s.effective(op);
  if constexpr (kSpeed == Speed::kSlow) {
    if (kAligned && address % sizeof(T) != 0) {
      refuse(s, op, Fault::kAlignment, address, clock + op->slots);
      return;
    }
    uint64_t stall = M::load(s, op, address, sizeof(T), clock + op->slots);
    if (stall == kFaulted) return;
    clock += stall;
  } else if ((kAligned && address % sizeof(T) != 0) || !M::load_is_quick(s, address, sizeof(T))) {
    SKIDPROOF_TAIL vector_load<M, T, To, kUpper, kAligned, Speed::kSlow>(s, op, clock, remaining);
  }
  write_vector<kUpper>(s, op->destination, widen<T, To>(s.load<T>(address)));
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

enum class Store : uint8_t { kUnaligned, kAligned, kStream };

template <class M, class T, Store kStore, Speed kSpeed = Speed::kQuick>
void vector_store(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  constexpr bool kStream = kStore == Store::kStream;
  uint64_t address = s.effective(op);
  const bool misplaced = kStore != Store::kUnaligned && address % sizeof(T) != 0;
  if constexpr (kSpeed == Speed::kSlow) {
    uint64_t now = clock + op->slots;
    if (misplaced) {
      refuse(s, op, Fault::kAlignment, address, now);
      return;
    }
    uint64_t stall = kStream ? M::stream(s, op, address, sizeof(T), now)
                             : M::store(s, op, address, sizeof(T), now);
    if (stall == kFaulted) return;
    clock += stall;
  } else if (misplaced || !(kStream ? M::stream_is_quick(s, address, sizeof(T))
                                    : M::store_is_quick(s, address, sizeof(T)))) {
    SKIDPROOF_TAIL vector_store<M, T, kStore, Speed::kSlow>(s, op, clock, remaining);
  }
  s.store<T>(address, s.read<T>(op->source));
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

// Between registers: also MOVD and MOVQ into a vector register.
template <class T, class To, Upper kUpper>
void vector_move(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  write_vector<kUpper>(s, op->destination, widen<T, To>(s.read<T>(op->source)));
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

// MOVD and MOVQ into a general register.
template <class T>
void vector_to_general(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  s.write<T>(op->destination, s.read<T>(op->source));
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

void zero_upper(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  for (auto& v : s.vectors) v[2] = v[3] = 0;
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

// ---- Computation. first op second; of a scalar, only the low element, the rest comes from `first`.

enum class Compute : uint8_t {
  kXor,
  kOr,
  kAnd,
  kAddQuads,
  kAddDoubles,
  kSubQuads,
  kSubDoubles,
  kMultiplyEvenDoubles,
  kMultiplyDoubles,
};

constexpr uint64_t add_halves(uint64_t a, uint64_t b) {
  uint64_t low = static_cast<uint32_t>(a + b);
  return low | ((a >> 32) + (b >> 32)) << 32;
}
constexpr uint64_t subtract_halves(uint64_t a, uint64_t b) {
  uint64_t low = static_cast<uint32_t>(a - b);
  return low | ((a >> 32) - (b >> 32)) << 32;
}

constexpr uint64_t multiply_halves(uint64_t a, uint64_t b) {
  uint64_t low = static_cast<uint32_t>(a * b);
  return low | ((a >> 32) * (b >> 32)) << 32;
}

template <Compute kKind, class T>
struct Packed {
  using Source = T;
  static T apply(T a, const T& b) {
    for (unsigned n = 0; n < sizeof(T) / 8; ++n) {
      uint64_t& x = a.part[n];
      if constexpr (kKind == Compute::kXor) x ^= b.part[n];
      if constexpr (kKind == Compute::kOr) x |= b.part[n];
      if constexpr (kKind == Compute::kAnd) x &= b.part[n];
      if constexpr (kKind == Compute::kAddQuads) x += b.part[n];
      if constexpr (kKind == Compute::kSubQuads) x -= b.part[n];
      if constexpr (kKind == Compute::kAddDoubles) x = add_halves(x, b.part[n]);
      if constexpr (kKind == Compute::kSubDoubles) x = subtract_halves(x, b.part[n]);
      if constexpr (kKind == Compute::kMultiplyEvenDoubles)
        x = (x & UINT32_MAX) * (b.part[n] & UINT32_MAX);
      if constexpr (kKind == Compute::kMultiplyDoubles) x = multiply_halves(x, b.part[n]);
    }
    return a;
  }
  static constexpr bool kAligned = true;
};

// The processor's own instruction, so that rounding and NaN payloads are the CPU's.
enum class Scalar : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kRoot };

template <Scalar kKind>
struct ScalarDouble {
  using Source = double;
  static Bytes<16> apply(Bytes<16> a, double b) {
    double x;
    std::memcpy(&x, &a, sizeof(x));
    if constexpr (kKind == Scalar::kAdd) asm("addsd %1, %0" : "+x"(x) : "x"(b));
    if constexpr (kKind == Scalar::kSubtract) asm("subsd %1, %0" : "+x"(x) : "x"(b));
    if constexpr (kKind == Scalar::kMultiply) asm("mulsd %1, %0" : "+x"(x) : "x"(b));
    if constexpr (kKind == Scalar::kDivide) asm("divsd %1, %0" : "+x"(x) : "x"(b));
    if constexpr (kKind == Scalar::kRoot) asm("sqrtsd %1, %0" : "+x"(x) : "x"(b));
    std::memcpy(&a, &x, sizeof(x));
    return a;
  }
  static constexpr bool kAligned = false;
};

// Four floats, or eight as twice four: elements know nothing of one another.
template <Scalar kKind, class T>
struct PackedSingle {
  using Source = T;
  static T apply(T a, const T& b) {
    for (unsigned n = 0; n < sizeof(T); n += 16) {
      __m128 x, y;
      std::memcpy(&x, reinterpret_cast<const std::byte*>(&a) + n, sizeof(x));
      std::memcpy(&y, reinterpret_cast<const std::byte*>(&b) + n, sizeof(y));
      if constexpr (kKind == Scalar::kAdd) asm("addps %1, %0" : "+x"(x) : "x"(y));
      if constexpr (kKind == Scalar::kMultiply) asm("mulps %1, %0" : "+x"(x) : "x"(y));
      if constexpr (kKind == Scalar::kDivide) asm("divps %1, %0" : "+x"(x) : "x"(y));
      if constexpr (kKind == Scalar::kRoot) asm("sqrtps %1, %0" : "+x"(x) : "x"(y));
      std::memcpy(reinterpret_cast<std::byte*>(&a) + n, &x, sizeof(x));
    }
    return a;
  }
  static constexpr bool kAligned = true;
};

// PSHUFD between registers: each of four fields of the immediate chooses a double-word, in either half alike. [SDM vol. 2,
// "PSHUFD"]
template <class T, Upper kUpper>
void shuffle_doubles(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  const T from = s.read<T>(op->source);
  T to{};
  for (unsigned n = 0; n < sizeof(T) / 4; ++n) {
    const unsigned chosen = (n & ~3u) + (op->immediate >> (2 * (n & 3)) & 3);
    const uint64_t value = from.part[chosen / 2] >> (32 * (chosen & 1)) & UINT32_MAX;
    to.part[n / 2] |= value << (32 * (n & 1));
  }
  write_vector<kUpper>(s, op->destination, to);
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

// `source` is the first source, `base` the second where it is a register.
template <class Sem, class T, Upper kUpper>
void compute_registers(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  write_vector<kUpper>(s, op->destination,
                       Sem::apply(s.read<T>(op->source), s.read<typename Sem::Source>(op->base)));
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

template <class M, class Sem, class T, Upper kUpper, Speed kSpeed = Speed::kQuick>
void compute_memory(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  using S = typename Sem::Source;
  uint64_t address = s.effective(op);
  // VEX lifts the requirement.
  const bool misplaced = Sem::kAligned && kUpper == Upper::kKeep && address % sizeof(S) != 0;
  if constexpr (kSpeed == Speed::kSlow) {
    if (misplaced) {
      refuse(s, op, Fault::kAlignment, address, clock + op->slots);
      return;
    }
    uint64_t stall = M::load(s, op, address, sizeof(S), clock + op->slots);
    if (stall == kFaulted) return;
    clock += stall;
  } else if (misplaced || !M::load_is_quick(s, address, sizeof(S))) {
    SKIDPROOF_TAIL compute_memory<M, Sem, T, kUpper, Speed::kSlow>(s, op, clock, remaining);
  }
  write_vector<kUpper>(s, op->destination, Sem::apply(s.read<T>(op->source), s.load<S>(address)));
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

template <class Sem, class T, Upper kUpper>
Handler computation_of(const model::Decoded& d, bool modelled) {
  if (!d.facts.explicit_load) return compute_registers<Sem, T, kUpper>;
  return modelled ? compute_memory<Modelled, Sem, T, kUpper> : compute_memory<Bare, Sem, T, kUpper>;
}

bool is_vex(const model::Decoded& d) {
  return d.instruction.encoding == ZYDIS_INSTRUCTION_ENCODING_VEX;
}

template <Compute kKind>
Handler packed(const model::Decoded& d, bool modelled) {
  if (d.operands[0].size == 256) {
    return computation_of<Packed<kKind, Bytes<32>>, Bytes<32>, Upper::kClear>(d, modelled);
  }
  if (d.operands[0].size != 128) return nullptr;  // MMX
  using Sem = Packed<kKind, Bytes<16>>;
  return is_vex(d) ? computation_of<Sem, Bytes<16>, Upper::kClear>(d, modelled)
                   : computation_of<Sem, Bytes<16>, Upper::kKeep>(d, modelled);
}

template <Scalar kKind>
Handler packed_single(const model::Decoded& d, bool modelled) {
  if (d.operands[0].size == 256) {
    return computation_of<PackedSingle<kKind, Bytes<32>>, Bytes<32>, Upper::kClear>(d, modelled);
  }
  using Sem = PackedSingle<kKind, Bytes<16>>;
  return is_vex(d) ? computation_of<Sem, Bytes<16>, Upper::kClear>(d, modelled)
                   : computation_of<Sem, Bytes<16>, Upper::kKeep>(d, modelled);
}

bool shuffles_doubles(const model::Decoded& d) {
  return d.instruction.mnemonic == ZYDIS_MNEMONIC_PSHUFD ||
         d.instruction.mnemonic == ZYDIS_MNEMONIC_VPSHUFD;
}

Handler shuffle(const model::Decoded& d) {
  if (d.facts.explicit_load) return nullptr;
  if (d.operands[0].size == 256) return shuffle_doubles<Bytes<32>, Upper::kClear>;
  return is_vex(d) ? shuffle_doubles<Bytes<16>, Upper::kClear>
                   : shuffle_doubles<Bytes<16>, Upper::kKeep>;
}

template <Scalar kKind>
Handler scalar(const model::Decoded& d, bool modelled) {
  using Sem = ScalarDouble<kKind>;
  return is_vex(d) ? computation_of<Sem, Bytes<16>, Upper::kClear>(d, modelled)
                   : computation_of<Sem, Bytes<16>, Upper::kKeep>(d, modelled);
}

template <class T, bool kAligned>
Handler whole_load(const model::Decoded& d, bool modelled) {
  if (is_vex(d)) {
    return modelled ? vector_load<Modelled, T, T, Upper::kClear, kAligned>
                    : vector_load<Bare, T, T, Upper::kClear, kAligned>;
  }
  return modelled ? vector_load<Modelled, T, T, Upper::kKeep, kAligned>
                  : vector_load<Bare, T, T, Upper::kKeep, kAligned>;
}

template <class T, Store kStore>
Handler whole_store(bool modelled) {
  return modelled ? vector_store<Modelled, T, kStore> : vector_store<Bare, T, kStore>;
}

// MOVAPS, MOVUPS and their kin.
template <class T, bool kAligned>
Handler whole_move(const model::Decoded& d, bool modelled) {
  if (d.facts.explicit_store) {
    return whole_store < T, kAligned ? Store::kAligned : Store::kUnaligned > (modelled);
  }
  if (d.facts.explicit_load) return whole_load<T, kAligned>(d, modelled);
  return is_vex(d) ? vector_move<T, T, Upper::kClear> : vector_move<T, T, Upper::kKeep>;
}

template <bool kAligned>
Handler whole_move(const model::Decoded& d, bool modelled) {
  unsigned bits =
      d.operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER ? d.operands[0].size : d.operands[1].size;
  if (bits == 256) return whole_move<Bytes<32>, kAligned>(d, modelled);
  return bits == 128 ? whole_move<Bytes<16>, kAligned>(d, modelled) : nullptr;
}

Handler stream_store(const model::Decoded& d, bool modelled) {
  if (d.operands[1].size == 256) return whole_store<Bytes<32>, Store::kStream>(modelled);
  return d.operands[1].size == 128 ? whole_store<Bytes<16>, Store::kStream>(modelled) : nullptr;
}

bool is_vector_register(const ZydisDecodedOperand& o) {
  return o.type == ZYDIS_OPERAND_TYPE_REGISTER &&
         (ZydisRegisterGetClass(o.reg.value) == ZYDIS_REGCLASS_XMM ||
          ZydisRegisterGetClass(o.reg.value) == ZYDIS_REGCLASS_YMM);
}

// MOVD, MOVQ, and MOVSD with memory: the low T, everything else of the 16 bytes cleared.
template <class T, Upper kUpper>
Handler low_move(const model::Decoded& d, bool modelled) {
  using To = Bytes<16>;
  if (d.facts.explicit_store) return whole_store<T, Store::kUnaligned>(modelled);
  if (d.facts.explicit_load) {
    return modelled ? vector_load<Modelled, T, To, kUpper, false>
                    : vector_load<Bare, T, To, kUpper, false>;
  }
  if (is_vector_register(d.operands[0])) return vector_move<T, To, kUpper>;
  return vector_to_general<T>;
}

template <class T>
Handler low_move(const model::Decoded& d, bool modelled) {
  return is_vex(d) ? low_move<T, Upper::kClear>(d, modelled)
                   : low_move<T, Upper::kKeep>(d, modelled);
}

Handler select_vector_move(const model::Decoded& d, bool modelled) {
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_MOVAPS:
    case ZYDIS_MNEMONIC_MOVAPD:
    case ZYDIS_MNEMONIC_MOVDQA:
    case ZYDIS_MNEMONIC_VMOVAPS:
    case ZYDIS_MNEMONIC_VMOVAPD:
    case ZYDIS_MNEMONIC_VMOVDQA:
      return whole_move<true>(d, modelled);
    case ZYDIS_MNEMONIC_MOVUPS:
    case ZYDIS_MNEMONIC_MOVUPD:
    case ZYDIS_MNEMONIC_MOVDQU:
    case ZYDIS_MNEMONIC_VMOVUPS:
    case ZYDIS_MNEMONIC_VMOVUPD:
    case ZYDIS_MNEMONIC_VMOVDQU:
      return whole_move<false>(d, modelled);
    case ZYDIS_MNEMONIC_MOVNTPS:
    case ZYDIS_MNEMONIC_MOVNTPD:
    case ZYDIS_MNEMONIC_MOVNTDQ:
    case ZYDIS_MNEMONIC_VMOVNTPS:
    case ZYDIS_MNEMONIC_VMOVNTPD:
    case ZYDIS_MNEMONIC_VMOVNTDQ:
      return stream_store(d, modelled);
    case ZYDIS_MNEMONIC_MOVD:
    case ZYDIS_MNEMONIC_VMOVD:
      return low_move<uint32_t>(d, modelled);
    case ZYDIS_MNEMONIC_MOVQ:
    case ZYDIS_MNEMONIC_VMOVQ:
      return low_move<uint64_t>(d, modelled);
    case ZYDIS_MNEMONIC_MOVSD:
    case ZYDIS_MNEMONIC_VMOVSD:
      return d.facts.has_address ? low_move<uint64_t>(d, modelled) : nullptr;
    case ZYDIS_MNEMONIC_VZEROUPPER:
      return zero_upper;
    default:
      return nullptr;
  }
}

bool has_mmx_or_wide(const model::Decoded& d) {
  for (unsigned n = 0; n < d.instruction.operand_count; ++n) {
    if (d.operands[n].type != ZYDIS_OPERAND_TYPE_REGISTER) continue;
    ZydisRegisterClass c = ZydisRegisterGetClass(d.operands[n].reg.value);
    if (c == ZYDIS_REGCLASS_MMX || c == ZYDIS_REGCLASS_ZMM || c == ZYDIS_REGCLASS_MASK) return true;
  }
  return false;
}

}  // namespace

Handler select_vector(const model::Decoded& d, const Selection& selection) {
  bool modelled = selection.modelled;
  if (has_mmx_or_wide(d)) return nullptr;
  if (Handler h = select_vector_move(d, modelled)) return h;
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_PXOR:
    case ZYDIS_MNEMONIC_VPXOR:
    case ZYDIS_MNEMONIC_XORPS:
    case ZYDIS_MNEMONIC_VXORPS:
    case ZYDIS_MNEMONIC_XORPD:
    case ZYDIS_MNEMONIC_VXORPD:
      return packed<Compute::kXor>(d, modelled);
    case ZYDIS_MNEMONIC_POR:
    case ZYDIS_MNEMONIC_VPOR:
      return packed<Compute::kOr>(d, modelled);
    case ZYDIS_MNEMONIC_PAND:
    case ZYDIS_MNEMONIC_VPAND:
      return packed<Compute::kAnd>(d, modelled);
    case ZYDIS_MNEMONIC_PADDQ:
    case ZYDIS_MNEMONIC_VPADDQ:
      return packed<Compute::kAddQuads>(d, modelled);
    case ZYDIS_MNEMONIC_PADDD:
    case ZYDIS_MNEMONIC_VPADDD:
      return packed<Compute::kAddDoubles>(d, modelled);
    case ZYDIS_MNEMONIC_PSUBQ:
    case ZYDIS_MNEMONIC_VPSUBQ:
      return packed<Compute::kSubQuads>(d, modelled);
    case ZYDIS_MNEMONIC_PSUBD:
    case ZYDIS_MNEMONIC_VPSUBD:
      return packed<Compute::kSubDoubles>(d, modelled);
    case ZYDIS_MNEMONIC_PMULUDQ:
    case ZYDIS_MNEMONIC_VPMULUDQ:
      return packed<Compute::kMultiplyEvenDoubles>(d, modelled);
    case ZYDIS_MNEMONIC_PMULLD:
    case ZYDIS_MNEMONIC_VPMULLD:
      return packed<Compute::kMultiplyDoubles>(d, modelled);
    case ZYDIS_MNEMONIC_ADDPS:
    case ZYDIS_MNEMONIC_VADDPS:
      return packed_single<Scalar::kAdd>(d, modelled);
    case ZYDIS_MNEMONIC_MULPS:
    case ZYDIS_MNEMONIC_VMULPS:
      return packed_single<Scalar::kMultiply>(d, modelled);
    case ZYDIS_MNEMONIC_DIVPS:
    case ZYDIS_MNEMONIC_VDIVPS:
      return packed_single<Scalar::kDivide>(d, modelled);
    case ZYDIS_MNEMONIC_SQRTPS:
    case ZYDIS_MNEMONIC_VSQRTPS:
      return packed_single<Scalar::kRoot>(d, modelled);
    case ZYDIS_MNEMONIC_PSHUFD:
    case ZYDIS_MNEMONIC_VPSHUFD:
      return shuffle(d);
    case ZYDIS_MNEMONIC_ADDSD:
    case ZYDIS_MNEMONIC_VADDSD:
      return scalar<Scalar::kAdd>(d, modelled);
    case ZYDIS_MNEMONIC_SUBSD:
    case ZYDIS_MNEMONIC_VSUBSD:
      return scalar<Scalar::kSubtract>(d, modelled);
    case ZYDIS_MNEMONIC_MULSD:
    case ZYDIS_MNEMONIC_VMULSD:
      return scalar<Scalar::kMultiply>(d, modelled);
    case ZYDIS_MNEMONIC_DIVSD:
    case ZYDIS_MNEMONIC_VDIVSD:
      return scalar<Scalar::kDivide>(d, modelled);
    case ZYDIS_MNEMONIC_SQRTSD:
    case ZYDIS_MNEMONIC_VSQRTSD:
      return scalar<Scalar::kRoot>(d, modelled);
    default:
      return nullptr;
  }
}

void arrange_vector(const model::Decoded& d, Operation& op) {
  const auto& o = d.operands;
  if (d.instruction.operand_count_visible == 0) return;
  if (o[0].type == ZYDIS_OPERAND_TYPE_REGISTER) op.destination = offset_of(o[0].reg.value);
  if (shuffles_doubles(d)) op.immediate = o[2].imm.value.u;
  if (select_vector_move(d, true) != nullptr || shuffles_doubles(d)) {
    if (o[1].type == ZYDIS_OPERAND_TYPE_REGISTER) op.source = offset_of(o[1].reg.value);
    return;
  }
  // A computation of two sources: VEX names both, legacy SSE takes the destination as the first.
  bool three = d.instruction.operand_count_visible == 3;
  op.source = offset_of(o[three ? 1 : 0].reg.value);
  const ZydisDecodedOperand& second = o[three ? 2 : 1];
  if (second.type == ZYDIS_OPERAND_TYPE_REGISTER) op.base = offset_of(second.reg.value);
}

}  // namespace skidproof::engines
