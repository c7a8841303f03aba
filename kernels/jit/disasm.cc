// What bytes are as instructions, by Zydis.
#include "kernels/jit/disasm.h"

#include <Zydis/Zydis.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace skidproof {
namespace {

// The condition families of a jump, (J, JN) together, as bits: the upper three bits of the
// condition code.
enum Family : uint8_t { kO, kB, kZ, kBe, kS, kP, kL, kLe };
constexpr unsigned bit(Family family) { return 1u << family; }
constexpr unsigned kAllFamilies = 0xFF;
constexpr unsigned kCompareFamilies = bit(kB) | bit(kBe) | bit(kZ) | bit(kL) | bit(kLe);
constexpr unsigned kCountFamilies = bit(kZ) | bit(kL) | bit(kLe);

struct Operands {
  ZydisDecodedOperand all[ZYDIS_MAX_OPERAND_COUNT];
};

// What the fusion rules ask of an instruction, beside what Instruction keeps.
struct FusionShape {
  unsigned first_families = 0;  // families that fuse after this one; 0: not a first
  unsigned second_family = 0;   // of a conditional jump; 0: not one
  bool memory_and_immediate = false;
};

unsigned families_after(ZydisMnemonic mnemonic) {
  switch (mnemonic) {
    case ZYDIS_MNEMONIC_TEST:
    case ZYDIS_MNEMONIC_AND:
      return kAllFamilies;
    case ZYDIS_MNEMONIC_CMP:
    case ZYDIS_MNEMONIC_ADD:
    case ZYDIS_MNEMONIC_SUB:
      return kCompareFamilies;
    case ZYDIS_MNEMONIC_INC:
    case ZYDIS_MNEMONIC_DEC:
      return kCountFamilies;
    default:
      return 0;
  }
}

unsigned family_of(ZydisMnemonic mnemonic) {
  switch (mnemonic) {
    case ZYDIS_MNEMONIC_JO:
    case ZYDIS_MNEMONIC_JNO:
      return bit(kO);
    case ZYDIS_MNEMONIC_JB:
    case ZYDIS_MNEMONIC_JNB:
      return bit(kB);
    case ZYDIS_MNEMONIC_JZ:
    case ZYDIS_MNEMONIC_JNZ:
      return bit(kZ);
    case ZYDIS_MNEMONIC_JBE:
    case ZYDIS_MNEMONIC_JNBE:
      return bit(kBe);
    case ZYDIS_MNEMONIC_JS:
    case ZYDIS_MNEMONIC_JNS:
      return bit(kS);
    case ZYDIS_MNEMONIC_JP:
    case ZYDIS_MNEMONIC_JNP:
      return bit(kP);
    case ZYDIS_MNEMONIC_JL:
    case ZYDIS_MNEMONIC_JNL:
      return bit(kL);
    case ZYDIS_MNEMONIC_JLE:
    case ZYDIS_MNEMONIC_JNLE:
      return bit(kLe);
    default:
      return 0;  // JRCXZ and LOOP are conditional but never fuse
  }
}

Flow flow_of(ZydisInstructionCategory category) {
  switch (category) {
    case ZYDIS_CATEGORY_COND_BR:
      return Flow::kConditional;
    case ZYDIS_CATEGORY_UNCOND_BR:
      return Flow::kJump;
    case ZYDIS_CATEGORY_CALL:
      return Flow::kCall;
    case ZYDIS_CATEGORY_RET:
      return Flow::kReturn;
    default:
      return Flow::kNone;
  }
}

bool touches_memory(const ZydisDecodedInstruction& instruction,
                    const ZydisDecodedOperand& operand) {
  // A multi-byte NOP carries a ModRM operand that the processor never reads, and a flush loads nothing.
  return operand.type == ZYDIS_OPERAND_TYPE_MEMORY && operand.mem.type == ZYDIS_MEMOP_TYPE_MEM &&
         instruction.mnemonic != ZYDIS_MNEMONIC_NOP &&
         instruction.mnemonic != ZYDIS_MNEMONIC_CLFLUSH;
}

GprMask written_by(const ZydisDecodedOperand& operand) {
  if (operand.type != ZYDIS_OPERAND_TYPE_REGISTER) return 0;
  if ((operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) == 0) return 0;
  ZydisRegister whole =
      ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, operand.reg.value);
  if (ZydisRegisterGetClass(whole) != ZYDIS_REGCLASS_GPR64) return 0;
  return gpr_bit(static_cast<unsigned>(ZydisRegisterGetId(whole)));
}

void describe_operands(const ZydisDecodedInstruction& raw, const Operands& operands, Decoded& out,
                       FusionShape& shape) {
  bool memory = false;
  bool immediate = false;
  for (unsigned i = 0; i < raw.operand_count; ++i) {
    const ZydisDecodedOperand& operand = operands.all[i];
    out.written |= written_by(operand);
    if (touches_memory(raw, operand)) {
      memory = true;
      if (operand.actions & ZYDIS_OPERAND_ACTION_MASK_READ) out.instruction.loads = true;
      if (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) out.instruction.stores = true;
    }
    immediate |= operand.type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
                 operand.visibility == ZYDIS_OPERAND_VISIBILITY_EXPLICIT;
  }
  shape.memory_and_immediate = memory && immediate;
}

uint64_t direct_target(const ZydisDecodedInstruction& raw, const Operands& operands,
                       uint64_t address) {
  ZyanU64 target = 0;
  if (raw.operand_count == 0 || operands.all[0].type != ZYDIS_OPERAND_TYPE_IMMEDIATE) return 0;
  if (!operands.all[0].imm.is_relative) return 0;
  return ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(&raw, &operands.all[0], address, &target)) ? target
                                                                                          : 0;
}

bool fuse(const Decoded& first, const FusionShape& a, const FusionShape& b) {
  return !first.instruction.stores && !a.memory_and_immediate &&
         (a.first_families & b.second_family) != 0;
}

std::string bytes_of(std::span<const std::byte> code) {
  std::string out;
  for (std::byte value : code)
    fmt::format_to(std::back_inserter(out), "{:02x}", std::to_integer<int>(value));
  return out;
}

class Disassembler {
 public:
  explicit Disassembler(Mode mode) {
    if (mode == Mode::kLong) {
      ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    } else {
      ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32);
    }
    ZydisFormatterInit(&formatter_, ZYDIS_FORMATTER_STYLE_INTEL);
    ZydisFormatterSetProperty(&formatter_, ZYDIS_FORMATTER_PROP_FORCE_SIZE, ZYAN_TRUE);
    ZydisFormatterSetProperty(&formatter_, ZYDIS_FORMATTER_PROP_ADDR_PADDING_ABSOLUTE,
                              ZYDIS_PADDING_DISABLED);
  }

  Expected<Decoded> decode(std::span<const std::byte> code, uint64_t address,
                           FusionShape& shape) const {
    ZydisDecodedInstruction raw;
    Operands operands;
    if (!ZYAN_SUCCESS(
            ZydisDecoderDecodeFull(&decoder_, code.data(), code.size(), &raw, operands.all))) {
      return fail(ErrorCode::kInternal,
                  fmt::format("no instruction at {:#x}: {}", address,
                              bytes_of(code.first(std::min<size_t>(code.size(), 15)))));
    }
    Decoded out;
    out.instruction.address = address;
    out.instruction.length = raw.length;
    out.instruction.flow = flow_of(raw.meta.category);
    if (out.instruction.flow != Flow::kNone) {
      out.instruction.target = direct_target(raw, operands, address);
    }
    shape = {.first_families = families_after(raw.mnemonic),
             .second_family = family_of(raw.mnemonic)};
    describe_operands(raw, operands, out, shape);
    char text[128] = "";
    ZydisFormatterFormatInstruction(&formatter_, &raw, operands.all, raw.operand_count_visible,
                                    text, sizeof(text), address, nullptr);
    out.instruction.text = text;
    return out;
  }

 private:
  ZydisDecoder decoder_;
  ZydisFormatter formatter_;
};

std::string counts(const char* title, const Expectations& e) {
  return fmt::format(
      "; {}: {} instructions, {} loads, {} stores, {} taken, {} not taken, {} fusible pairs\n",
      title, e.instructions, e.loads, e.stores, e.branches_taken, e.branches_not_taken,
      e.fusible_pairs);
}

}  // namespace

Expected<std::vector<Decoded>> disassemble(std::span<const std::byte> code, uint64_t address,
                                           Mode mode) {
  const Disassembler disassembler(mode);
  std::vector<Decoded> out;
  FusionShape previous;
  for (size_t offset = 0; offset < code.size();) {
    FusionShape shape;
    Decoded decoded =
        SKIDPROOF_TRY(disassembler.decode(code.subspan(offset), address + offset, shape));
    if (!out.empty()) out.back().instruction.fuses_with_next = fuse(out.back(), previous, shape);
    offset += decoded.instruction.length;
    out.push_back(std::move(decoded));
    previous = shape;
  }
  return out;
}

std::string listing(const Program& program) {
  std::string out = fmt::format("; {}\n", program.id());
  out += fmt::format("; code {:#x}, data {:#x}, {} data bytes\n", program.code_address,
                     program.data_address, program.data_bytes);
  if (program.mode != Mode::kLong) out += fmt::format("; {}\n", name_of(program.mode));
  std::vector<std::string> needs;
  for (Isa isa : program.needs) needs.emplace_back(name_of(isa));
  if (!needs.empty()) out += fmt::format("; needs {}\n", fmt::join(needs, ", "));
  out += counts("each iteration", program.per_iteration);
  out += counts("once", program.once);
  std::multimap<uint64_t, std::string> marks;
  for (const auto& [name, address] : program.marks) marks.emplace(address, name);
  for (const Instruction& instruction : program.instructions) {
    auto [begin, end] = marks.equal_range(instruction.address);
    for (auto it = begin; it != end; ++it) out += it->second + ":\n";
    auto bytes = std::span(program.code)
                     .subspan(instruction.address - program.code_address, instruction.length);
    std::string flags =
        fmt::format("{}{}{}", instruction.loads ? "L" : "", instruction.stores ? "S" : "",
                    instruction.fuses_with_next ? "F" : "");
    std::string line = fmt::format("  {:x}  {:<20}  {:<3}  {}", instruction.address,
                                   bytes_of(bytes), flags, instruction.text);
    out += line + "\n";
  }
  return out;
}

}  // namespace skidproof
