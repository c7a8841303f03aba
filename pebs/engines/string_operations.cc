// Handlers of STOS and MOVS, alone and repeated. The direction flag is always clear: nothing here sets it.
#include <type_traits>

#include "pebs/engines/operation.h"

namespace skidproof::engines {
namespace {

constexpr uint16_t kRax = 0, kRcx = 1 * sizeof(uint64_t), kRsi = 6 * sizeof(uint64_t),
                   kRdi = 7 * sizeof(uint64_t);

// Whether the `count` elements from here on may be accessed so, page by page; else a fault at the first that may not.
bool accessible(State& s, const Operation* op, Fault fault, uint64_t address, uint64_t count,
                uint64_t size, uint64_t now) {
  const auto allowed = [&](uint64_t at) {
    return fault == Fault::kStore ? s.memory->writable(at, size) : s.memory->mapped(at, size);
  };
  const uint64_t last = address + (count - 1) * size;
  for (uint64_t page = address; page <= last; page += GuestMemory::kPageBytes) {
    if (allowed(page) && allowed(last)) continue;
    refuse(s, op, fault, page, now);
    return false;
  }
  return true;
}

// All elements at once. The core model sees the first of them: a repeated instruction retires once, and
// what its memory operations count as is microcode's own.
template <class M, typename T, bool kRepeated>
void store_string(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  const uint64_t count = kRepeated ? s.read<uint64_t>(kRcx) : 1;
  uint64_t address = s.read<uint64_t>(kRdi);
  const T value = s.read<T>(kRax);
  if (count > 0) {
    if (!accessible(s, op, Fault::kStore, address, count, sizeof(T), clock + op->slots)) return;
    if (!M::store_is_quick(s, address, sizeof(T))) {
      const uint64_t stall = M::store(s, op, address, sizeof(T), clock + op->slots);
      if (stall == kFaulted) return;
      clock += stall;
    }
  }
  for (uint64_t i = 0; i < count; ++i, address += sizeof(T)) s.store<T>(address, value);
  s.write<uint64_t>(kRdi, address);
  if constexpr (kRepeated) s.write<uint64_t>(kRcx, 0);
  s.extra_instructions += op->detail != 0 ? count - 1 : 0;
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

// Likewise. One element after the other: where the two overlap, what was written is read again.
template <class M, typename T, bool kRepeated>
void move_string(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  const uint64_t count = kRepeated ? s.read<uint64_t>(kRcx) : 1;
  uint64_t from = s.read<uint64_t>(kRsi), to = s.read<uint64_t>(kRdi);
  if (count > 0) {
    if (!accessible(s, op, Fault::kLoad, from, count, sizeof(T), clock + op->slots)) return;
    if (!accessible(s, op, Fault::kStore, to, count, sizeof(T), clock + op->slots)) return;
    if (!M::load_is_quick(s, from, sizeof(T))) {
      const uint64_t stall = M::load(s, op, from, sizeof(T), clock + op->slots);
      if (stall == kFaulted) return;
      clock += stall;
    }
    if (!M::store_is_quick(s, to, sizeof(T))) {
      const uint64_t stall = M::store(s, op, to, sizeof(T), clock + op->slots);
      if (stall == kFaulted) return;
      clock += stall;
    }
  }
  for (uint64_t i = 0; i < count; ++i, from += sizeof(T), to += sizeof(T))
    s.store<T>(to, s.load<T>(from));
  s.write<uint64_t>(kRsi, from);
  s.write<uint64_t>(kRdi, to);
  if constexpr (kRepeated) s.write<uint64_t>(kRcx, 0);
  s.extra_instructions += op->detail != 0 ? count - 1 : 0;
  SKIDPROOF_NEXT(s, op, clock, remaining);
}

template <class M, typename T>
Handler string_of(bool moves, bool repeated) {
  if (moves) return repeated ? move_string<M, T, true> : move_string<M, T, false>;
  return repeated ? store_string<M, T, true> : store_string<M, T, false>;
}

template <typename T>
Handler select_width(bool modelled, bool moves, bool repeated) {
  return modelled ? string_of<Modelled, T>(moves, repeated) : string_of<Bare, T>(moves, repeated);
}

bool is_move(const model::Decoded& d) {
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_MOVSB:
    case ZYDIS_MNEMONIC_MOVSW:
    case ZYDIS_MNEMONIC_MOVSQ:
      return true;
    case ZYDIS_MNEMONIC_MOVSD:  // SSE2 has one of the same name
      return d.instruction.meta.category == ZYDIS_CATEGORY_STRINGOP;
    default:
      return false;
  }
}

bool overrides_segment(const model::Decoded& d) {
  return (d.instruction.attributes & (ZYDIS_ATTRIB_HAS_SEGMENT_FS | ZYDIS_ATTRIB_HAS_SEGMENT_GS)) !=
         0;
}

}  // namespace

bool is_string(const model::Decoded& d) {
  if (d.instruction.address_width != 64) return false;
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_STOSB:
    case ZYDIS_MNEMONIC_STOSW:
    case ZYDIS_MNEMONIC_STOSD:
    case ZYDIS_MNEMONIC_STOSQ:
      return true;
    default:
      return is_move(d) && !overrides_segment(d);
  }
}

Handler select_string(const model::Decoded& d, const Selection& selection) {
  const bool repeated = (d.instruction.attributes & ZYDIS_ATTRIB_HAS_REP) != 0, moves = is_move(d);
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_STOSB:
    case ZYDIS_MNEMONIC_MOVSB:
      return select_width<uint8_t>(selection.modelled, moves, repeated);
    case ZYDIS_MNEMONIC_STOSW:
    case ZYDIS_MNEMONIC_MOVSW:
      return select_width<uint16_t>(selection.modelled, moves, repeated);
    case ZYDIS_MNEMONIC_STOSD:
    case ZYDIS_MNEMONIC_MOVSD:
      return select_width<uint32_t>(selection.modelled, moves, repeated);
    default:
      return select_width<uint64_t>(selection.modelled, moves, repeated);
  }
}

}  // namespace skidproof::engines
