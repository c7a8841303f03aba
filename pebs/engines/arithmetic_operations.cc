// Handlers of ADD … TEST, INC and DEC.
#include "pebs/engines/arithmetic_operations.h"

#include "pebs/engines/arithmetic.h"

namespace skidproof::engines {
namespace {

template <Arithmetic kKind>
Handler arithmetic(unsigned bits, unsigned form, const Selection& selection) {
  bool modelled = selection.modelled;
  if (selection.flags_dead && !(form & (kMemoryRegister | kMemoryImmediate))) {
    if (bits == 64) return choose<ArithmeticOf<uint64_t, kKind, false>>(form, modelled);
    if (bits == 32) return choose<ArithmeticOf<uint32_t, kKind, false>>(form, modelled);
  }
  return SKIDPROOF_BY_SIZE(bits, ArithmeticOf, kKind);
}

template <bool kIncrement>
Handler step(unsigned bits, unsigned form, const Selection& selection) {
  bool modelled = selection.modelled;
  if (selection.flags_dead && bits == 64 && form == kRegisterImmediate) {
    return choose<Step<uint64_t, kIncrement, false>>(form, modelled);
  }
  return SKIDPROOF_BY_SIZE(bits, Step, kIncrement);
}

}  // namespace

Handler select_arithmetic(const model::Decoded& decoded, const Selection& selection) {
  unsigned form = form_of(decoded);
  unsigned bits = decoded.operands[0].size;
  switch (decoded.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_ADD:
      return arithmetic<Arithmetic::kAdd>(bits, form, selection);
    case ZYDIS_MNEMONIC_OR:
      return arithmetic<Arithmetic::kOr>(bits, form, selection);
    case ZYDIS_MNEMONIC_ADC:
      return arithmetic<Arithmetic::kAdc>(bits, form, selection);
    case ZYDIS_MNEMONIC_SBB:
      return arithmetic<Arithmetic::kSbb>(bits, form, selection);
    case ZYDIS_MNEMONIC_AND:
      return arithmetic<Arithmetic::kAnd>(bits, form, selection);
    case ZYDIS_MNEMONIC_SUB:
      return arithmetic<Arithmetic::kSub>(bits, form, selection);
    case ZYDIS_MNEMONIC_XOR:
      return arithmetic<Arithmetic::kXor>(bits, form, selection);
    case ZYDIS_MNEMONIC_CMP:
      return arithmetic<Arithmetic::kCmp>(bits, form, selection);
    case ZYDIS_MNEMONIC_TEST:
      return arithmetic<Arithmetic::kTest>(bits, form, selection);
    case ZYDIS_MNEMONIC_INC:
      return step<true>(bits, form, selection);
    case ZYDIS_MNEMONIC_DEC:
      return step<false>(bits, form, selection);
    default:
      return nullptr;
  }
}

}  // namespace skidproof::engines
