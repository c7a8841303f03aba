// What bytes are as instructions: the static list of a Program, and its listing for people.
#ifndef SKIDPROOF_KERNELS_JIT_DISASM_H_
#define SKIDPROOF_KERNELS_JIT_DISASM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/expected.h"
#include "kernels/program.h"

namespace skidproof {

// The general-purpose registers in their encoding order, as bits of a mask: RAX, RCX, RDX, RBX,
// RSP, RBP, RSI, RDI, R8 … R15.
using GprMask = uint16_t;
constexpr GprMask gpr_bit(unsigned encoding) { return static_cast<GprMask>(1u << encoding); }

struct Decoded {
  Instruction instruction;
  GprMask written =
      0;  // general-purpose registers written, whole or in part, the implicit ones too
};

// Decodes all of `code`, of 64-bit or 32-bit mode, the first byte of which stands at `address`,
// without gaps. Loads and
// stores include the implicit ones of the stack; NOP and LEA name memory but touch none.
// `fuses_with_next` is set by the Sandy Bridge rules (semantics R64, R67, R69): the pair is
// adjacent, CMP with the C, BE, Z, L and LE families, TEST and AND with all, ADD and SUB as CMP,
// INC and DEC with Z, L and LE; never with a memory destination, nor with a memory operand and an
// immediate together. Error: kInternal with the address and the bytes that are no instruction.
Expected<std::vector<Decoded>> disassemble(std::span<const std::byte> code, uint64_t address,
                                           Mode mode = Mode::kLong);

// The program for people and for golden files: identity, counts, and one line for each instruction
// with its marks, address, bytes, text and flags (L load, S store, F first of a fusible pair).
std::string listing(const Program& program);

}  // namespace skidproof

#endif  // SKIDPROOF_KERNELS_JIT_DISASM_H_
