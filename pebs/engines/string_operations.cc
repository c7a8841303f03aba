// Handlers of STOS, alone and repeated. The direction flag is always clear: nothing here sets it.
#include <type_traits>

#include "pebs/engines/operation.h"

namespace skidproof::engines {
namespace {

constexpr uint16_t kRax = 0, kRcx = 1 * sizeof(uint64_t), kRdi = 7 * sizeof(uint64_t);

// All elements at once. The core model sees the first of them: a repeated instruction retires once, and
// what its memory operations count as is microcode's own.
template <class M, typename T, bool kRepeated>
void store_string(State& s, const Operation* op, uint64_t clock, uint64_t remaining) {
  const uint64_t count = kRepeated ? s.read<uint64_t>(kRcx) : 1;
  uint64_t address = s.read<uint64_t>(kRdi);
  const T value = s.read<T>(kRax);
  if (count > 0) {
    const uint64_t last = address + (count - 1) * sizeof(T);
    for (uint64_t page = address; page <= last; page += GuestMemory::kPageBytes) {
      if (s.memory->writable(page, sizeof(T)) && s.memory->writable(last, sizeof(T))) continue;
      refuse(s, op, Fault::kStore, page, clock + op->slots);
      return;
    }
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

template <class M, typename T>
Handler store_of(bool repeated) {
  return repeated ? store_string<M, T, true> : store_string<M, T, false>;
}

template <typename T>
Handler select_width(bool modelled, bool repeated) {
  return modelled ? store_of<Modelled, T>(repeated) : store_of<Bare, T>(repeated);
}

}  // namespace

bool is_string(const model::Decoded& d) {
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_STOSB:
    case ZYDIS_MNEMONIC_STOSW:
    case ZYDIS_MNEMONIC_STOSD:
    case ZYDIS_MNEMONIC_STOSQ:
      return d.instruction.address_width == 64;
    default:
      return false;
  }
}

Handler select_string(const model::Decoded& d, const Selection& selection) {
  const bool repeated = (d.instruction.attributes & ZYDIS_ATTRIB_HAS_REP) != 0;
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_STOSB:
      return select_width<uint8_t>(selection.modelled, repeated);
    case ZYDIS_MNEMONIC_STOSW:
      return select_width<uint16_t>(selection.modelled, repeated);
    case ZYDIS_MNEMONIC_STOSD:
      return select_width<uint32_t>(selection.modelled, repeated);
    default:
      return select_width<uint64_t>(selection.modelled, repeated);
  }
}

}  // namespace skidproof::engines
