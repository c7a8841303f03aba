#include "pebs/engines/real_mode.h"

#include <Zydis/Zydis.h>
#include <fmt/format.h>

#include <array>
#include <cstddef>

namespace skidproof::engines {
namespace {

struct Decoded {
  ZydisDecodedInstruction instruction;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
};

bool decode(ZydisMachineMode mode, ZydisStackWidth width, const std::byte* bytes, size_t length,
            Decoded& out) {
  ZydisDecoder decoder;
  return ZYAN_SUCCESS(ZydisDecoderInit(&decoder, mode, width)) &&
         ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, bytes, length, &out.instruction,
                                             out.operands.data()));
}

bool touches_memory(const Decoded& decoded) {
  for (unsigned i = 0; i < decoded.instruction.operand_count; ++i) {
    if (decoded.operands.at(i).type == ZYDIS_OPERAND_TYPE_MEMORY) return true;
  }
  return false;
}

}  // namespace

Expected<void> check_real_mode(const Program& program) {
  for (size_t at = 0; at < program.code.size();) {
    const std::byte* bytes = program.code.data() + at;
    const size_t left = program.code.size() - at;
    Decoded narrow;
    Decoded wide;
    bool alike = decode(ZYDIS_MACHINE_MODE_REAL_16, ZYDIS_STACK_WIDTH_16, bytes, left, narrow) &&
                 decode(ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32, bytes, left, wide) &&
                 narrow.instruction.length == wide.instruction.length &&
                 narrow.instruction.mnemonic == wide.instruction.mnemonic;
    bool returns = alike && wide.instruction.mnemonic == ZYDIS_MNEMONIC_RET;
    if (!alike || (touches_memory(wide) && !returns)) {
      return fail(ErrorCode::kNotAvailable,
                  fmt::format("the instruction at {:#x} of {} is another one in real-address mode, "
                              "which the interpreter executes as 32-bit code",
                              program.code_address + at, program.id()),
                  "use register operands, immediates of 8 bits and short jumps only");
    }
    at += wide.instruction.length;
  }
  return {};
}

}  // namespace skidproof::engines
