#include "pebs/model/decode.h"

#include <fmt/format.h>

#include <algorithm>

namespace skidproof::model {
namespace {

using arch::FusionFirst;
using arch::Signal;

// Latency and occupancy in cycles, fused-domain slots of the register form.
struct Cost {
  uint8_t latency = 1;
  uint8_t uops = 1;
  uint8_t occupancy = 0;
};

Cost division_cost(unsigned bits, bool is_signed) {
  switch (bits) {
    case 8:
      return {22, 10, 22};
    case 16:
      return {24, 11, 24};
    case 32:
      return {26, 10, 25};
    default:
      return {92, is_signed ? uint8_t{60} : uint8_t{36}, 90};
  }
}

Cost integer_cost(const ZydisDecodedInstruction& i) {
  switch (i.mnemonic) {
    case ZYDIS_MNEMONIC_IMUL:
      return i.operand_count_visible > 1 ? Cost{3} : Cost{3, 3};
    case ZYDIS_MNEMONIC_MUL:
      return {3, 3};
    case ZYDIS_MNEMONIC_DIV:
      return division_cost(i.operand_width, false);
    case ZYDIS_MNEMONIC_IDIV:
      return division_cost(i.operand_width, true);
    case ZYDIS_MNEMONIC_POPCNT:
    case ZYDIS_MNEMONIC_LZCNT:
    case ZYDIS_MNEMONIC_TZCNT:
    case ZYDIS_MNEMONIC_BSF:
    case ZYDIS_MNEMONIC_BSR:
      return {3};
    case ZYDIS_MNEMONIC_ADC:
    case ZYDIS_MNEMONIC_SBB:
      return {2, 2};
    case ZYDIS_MNEMONIC_XCHG:
    case ZYDIS_MNEMONIC_XADD:
      return {2, 3};
    case ZYDIS_MNEMONIC_CMPXCHG:
      return {5, 4};
    case ZYDIS_MNEMONIC_CALL:
    case ZYDIS_MNEMONIC_RET:
      return {1, 2};
    case ZYDIS_MNEMONIC_MFENCE:
      return {33, 3, 33};
    case ZYDIS_MNEMONIC_LFENCE:
      return {5, 2, 5};
    case ZYDIS_MNEMONIC_SFENCE:
      return {6, 2, 6};
    case ZYDIS_MNEMONIC_PAUSE:
      return {10, 7, 10};
    case ZYDIS_MNEMONIC_RDTSC:
      return {20, 21, 20};
    case ZYDIS_MNEMONIC_CPUID:
      return {100, 25, 100};
    case ZYDIS_MNEMONIC_MOV:
      return i.opcode == 0x8E ? Cost{20, 4, 20} : Cost{};  // to a segment register
    default:
      return i.meta.category == ZYDIS_CATEGORY_CMOV ? Cost{2, 2} : Cost{};
  }
}

Cost vector_cost(ZydisMnemonic mnemonic) {
  switch (mnemonic) {
    case ZYDIS_MNEMONIC_ADDSD:
    case ZYDIS_MNEMONIC_VADDSD:
    case ZYDIS_MNEMONIC_SUBSD:
    case ZYDIS_MNEMONIC_VSUBSD:
    case ZYDIS_MNEMONIC_ADDPS:
    case ZYDIS_MNEMONIC_VADDPS:
      return {3};
    case ZYDIS_MNEMONIC_MULSD:
    case ZYDIS_MNEMONIC_VMULSD:
    case ZYDIS_MNEMONIC_MULPS:
    case ZYDIS_MNEMONIC_VMULPS:
    case ZYDIS_MNEMONIC_PMULUDQ:
    case ZYDIS_MNEMONIC_VPMULUDQ:
    case ZYDIS_MNEMONIC_PMULLD:
    case ZYDIS_MNEMONIC_VPMULLD:
      return {5};
    case ZYDIS_MNEMONIC_DIVSD:
    case ZYDIS_MNEMONIC_VDIVSD:
    case ZYDIS_MNEMONIC_DIVPS:
    case ZYDIS_MNEMONIC_VDIVPS:
      return {22, 1, 20};
    case ZYDIS_MNEMONIC_SQRTSD:
    case ZYDIS_MNEMONIC_VSQRTSD:
    case ZYDIS_MNEMONIC_SQRTPS:
    case ZYDIS_MNEMONIC_VSQRTPS:
      return {21, 1, 21};
    case ZYDIS_MNEMONIC_VZEROUPPER:
      return {1, 4};
    default:
      return {1};
  }
}

bool is_prefetch(ZydisMnemonic mnemonic) {
  switch (mnemonic) {
    case ZYDIS_MNEMONIC_PREFETCHT0:
    case ZYDIS_MNEMONIC_PREFETCHT1:
    case ZYDIS_MNEMONIC_PREFETCHT2:
    case ZYDIS_MNEMONIC_PREFETCHNTA:
    case ZYDIS_MNEMONIC_PREFETCHW:
      return true;
    default:
      return false;
  }
}

bool is_non_temporal(ZydisMnemonic mnemonic) {
  switch (mnemonic) {
    case ZYDIS_MNEMONIC_MOVNTI:
    case ZYDIS_MNEMONIC_MOVNTPS:
    case ZYDIS_MNEMONIC_MOVNTPD:
    case ZYDIS_MNEMONIC_MOVNTDQ:
    case ZYDIS_MNEMONIC_VMOVNTPS:
    case ZYDIS_MNEMONIC_VMOVNTPD:
    case ZYDIS_MNEMONIC_VMOVNTDQ:
      return true;
    default:
      return false;
  }
}

FusionFirst fusion_class(ZydisMnemonic mnemonic) {
  switch (mnemonic) {
    case ZYDIS_MNEMONIC_CMP:
      return FusionFirst::kCmp;
    case ZYDIS_MNEMONIC_TEST:
      return FusionFirst::kTest;
    case ZYDIS_MNEMONIC_AND:
      return FusionFirst::kAnd;
    case ZYDIS_MNEMONIC_ADD:
      return FusionFirst::kAdd;
    case ZYDIS_MNEMONIC_SUB:
      return FusionFirst::kSub;
    case ZYDIS_MNEMONIC_INC:
      return FusionFirst::kInc;
    case ZYDIS_MNEMONIC_DEC:
      return FusionFirst::kDec;
    default:
      return FusionFirst::kNone;
  }
}

Branch branch_kind(const Decoded& d) {
  bool direct = d.operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE;
  switch (d.instruction.meta.category) {
    case ZYDIS_CATEGORY_COND_BR:
      return Branch::kConditional;
    case ZYDIS_CATEGORY_UNCOND_BR:
      return direct ? Branch::kJump : Branch::kIndirectJump;
    case ZYDIS_CATEGORY_CALL:
      return direct ? Branch::kCall : Branch::kIndirectCall;
    case ZYDIS_CATEGORY_RET:
      return Branch::kReturn;
    default:
      return Branch::kNone;
  }
}

// A register's bit in `writes` and number in `chain`: GPRs 0–15, vectors 16–31.
uint8_t dependency_number(ZydisRegister reg) {
  uint8_t gpr = gpr_number(reg);
  if (gpr != kNoRegister) return gpr;
  switch (ZydisRegisterGetClass(reg)) {
    case ZYDIS_REGCLASS_XMM:
    case ZYDIS_REGCLASS_YMM: {
      const auto id = static_cast<uint8_t>(ZydisRegisterGetId(reg));
      return id < 16 ? static_cast<uint8_t>(16 + id) : kNoRegister;
    }
    default:
      return kNoRegister;
  }
}

bool is_vector(ZydisRegister reg) {
  ZydisRegisterClass c = ZydisRegisterGetClass(reg);
  return c == ZYDIS_REGCLASS_XMM || c == ZYDIS_REGCLASS_YMM;
}

Address resolve(const ZydisDecodedOperand& operand, uint64_t next) {
  Address a;
  a.base = gpr_number(operand.mem.base);
  a.index = gpr_number(operand.mem.index);
  a.displacement = operand.mem.disp.has_displacement ? operand.mem.disp.value : 0;
  if (operand.mem.base == ZYDIS_REGISTER_RIP) a.displacement += static_cast<int64_t>(next);
  for (uint8_t s = operand.mem.scale; s > 1; s >>= 1) ++a.scale;
  a.bytes = static_cast<uint8_t>(operand.size / 8);
  return a;
}

void note_memory(const ZydisDecodedOperand& operand, InstructionFacts& f) {
  bool reads = operand.actions & ZYDIS_OPERAND_ACTION_MASK_READ;
  bool writes = operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE;
  f.loads += reads;
  f.stores += writes;
  // Hidden in Intel syntax: the stack's, and those of string instructions.
  const ZydisRegister base = operand.mem.base;
  const bool stack =
      base == ZYDIS_REGISTER_RSP || base == ZYDIS_REGISTER_ESP || base == ZYDIS_REGISTER_SP;
  if (operand.visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN && stack) {
    f.stack_load |= reads;
    f.stack_store |= writes;
    return;
  }
  // The second of two operands: a string instruction that moves.
  if (f.has_address) f.string_store = f.explicit_store;
  f.has_address = true;
  f.explicit_load = reads;
  f.explicit_store = writes;
  f.address_of = resolve(operand, f.end());
}

void note_operands(const Decoded& d, InstructionFacts& f) {
  bool touches_memory = !f.nop && !is_prefetch(d.instruction.mnemonic);
  f.flushes = d.instruction.mnemonic == ZYDIS_MNEMONIC_CLFLUSH;
  for (unsigned n = 0; n < d.instruction.operand_count; ++n) {
    const ZydisDecodedOperand& o = d.operands[n];
    if (o.type == ZYDIS_OPERAND_TYPE_MEMORY && o.mem.type == ZYDIS_MEMOP_TYPE_MEM &&
        touches_memory) {
      if (f.flushes) {
        f.has_address = true;
        f.address_of = resolve(o, f.end());
      } else {
        note_memory(o, f);
      }
    } else if (o.type == ZYDIS_OPERAND_TYPE_REGISTER) {
      f.simd |= is_vector(o.reg.value);
      uint8_t number = dependency_number(o.reg.value);
      if (number != kNoRegister && (o.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE)) {
        f.writes |= 1u << number;
      }
    } else if (o.type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
      f.immediate = true;
    }
  }
}

// XOR r,r and its kin, among those that write a register: the result does not depend on it.
bool is_zero_idiom(const Decoded& d) {
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_XOR:
    case ZYDIS_MNEMONIC_SUB:
    case ZYDIS_MNEMONIC_PXOR:
      return d.operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
             d.operands[0].reg.value == d.operands[1].reg.value;
    case ZYDIS_MNEMONIC_VPXOR:
      return d.operands[2].type == ZYDIS_OPERAND_TYPE_REGISTER &&
             d.operands[1].reg.value == d.operands[2].reg.value;
    default:
      return false;
  }
}

// The visible first operand, when it is a register that the instruction also reads.
uint8_t chain_register(const Decoded& d) {
  const ZydisDecodedOperand& first = d.operands[0];
  if (d.instruction.operand_count_visible == 0 || first.type != ZYDIS_OPERAND_TYPE_REGISTER ||
      !(first.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) || is_zero_idiom(d)) {
    return kNoRegister;
  }
  uint8_t number = dependency_number(first.reg.value);
  for (unsigned n = 0; n < d.instruction.operand_count_visible; ++n) {
    const ZydisDecodedOperand& o = d.operands[n];
    if (o.type == ZYDIS_OPERAND_TYPE_REGISTER && (o.actions & ZYDIS_OPERAND_ACTION_MASK_READ) &&
        dependency_number(o.reg.value) == number) {
      return number;
    }
  }
  return kNoRegister;
}

bool is_bit_scan(ZydisMnemonic mnemonic) {
  switch (mnemonic) {
    case ZYDIS_MNEMONIC_BSF:
    case ZYDIS_MNEMONIC_BSR:
    case ZYDIS_MNEMONIC_LZCNT:
    case ZYDIS_MNEMONIC_TZCNT:
      return true;
    default:
      return false;
  }
}

void note_flags(const Decoded& d, InstructionFacts& f) {
  if (d.instruction.cpu_flags == nullptr) return;
  const ZydisAccessedFlags& flags = *d.instruction.cpu_flags;
  f.flags_read = flags.tested;
  // A division leaves all of them undefined, that is unwritten by anyone who follows it.
  if (d.instruction.mnemonic == ZYDIS_MNEMONIC_DIV || d.instruction.mnemonic == ZYDIS_MNEMONIC_IDIV)
    return;
  uint32_t written = flags.modified | flags.set_0 | flags.set_1;
  // Bit scans leave what is undefined after them as it was, or not, as their operand is.
  if (!is_bit_scan(d.instruction.mnemonic)) written |= flags.undefined;
  // A shift or rotate by 0 leaves every flag: whether one by CL writes is known only when it runs.
  if (d.instruction.meta.category == ZYDIS_CATEGORY_SHIFT ||
      d.instruction.meta.category == ZYDIS_CATEGORY_ROTATE) {
    uint64_t mask = d.operands[0].size == 64 ? 63 : 31;
    bool sure =
        d.operands[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && (d.operands[1].imm.value.u & mask);
    if (!sure) written = 0;
  }
  f.flags_written = written;
}

// R74: two operands, the first a register that is read and written (or a store), and none of the
// exceptions.
bool keeps_indexed(const Decoded& d) {
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_ADC:
    case ZYDIS_MNEMONIC_SBB:
      return false;
    default:
      break;
  }
  return d.instruction.meta.category != ZYDIS_CATEGORY_CMOV &&
         d.instruction.operand_count_visible <= 2;
}

bool rip_relative(const Decoded& d) {
  for (unsigned n = 0; n < d.instruction.operand_count_visible; ++n) {
    const ZydisDecodedOperand& o = d.operands[n];
    if (o.type == ZYDIS_OPERAND_TYPE_MEMORY && o.mem.base == ZYDIS_REGISTER_RIP) return true;
  }
  return false;
}

void note_costs(const Decoded& d, InstructionFacts& f) {
  Cost cost = f.simd || d.instruction.mnemonic == ZYDIS_MNEMONIC_VZEROUPPER
                  ? vector_cost(d.instruction.mnemonic)
                  : integer_cost(d.instruction);
  bool stack = f.stack_load || f.stack_store;
  bool read_modify_write = f.explicit_load && f.explicit_store;
  if (read_modify_write || (stack && f.explicit_load)) ++cost.uops;
  if (f.locked) {
    cost.uops = static_cast<uint8_t>(std::max<unsigned>(cost.uops, 8));
    cost.occupancy = 18;
  }
  // A plain load has nothing to un-laminate; a load with an operation and a store do.
  bool moves = d.instruction.meta.category == ZYDIS_CATEGORY_DATAXFER && !f.explicit_store;
  f.indexed = f.has_address && f.address_of.index != kNoRegister && !moves;
  f.keeps_indexed = keeps_indexed(d);
  f.rip_immediate = f.has_address && f.immediate && rip_relative(d);
  f.uops = cost.uops;
  f.latency = cost.latency;
  f.occupancy = cost.occupancy;
}

// Instructions that set flags and never fuse.
void note_near_firsts(const Decoded& d, InstructionFacts& f) {
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_OR:
    case ZYDIS_MNEMONIC_XOR:
      f.bitwise = true;
      break;
    case ZYDIS_MNEMONIC_NEG:
    case ZYDIS_MNEMONIC_ADC:
    case ZYDIS_MNEMONIC_SBB:
      f.arithmetic = true;
      break;
    default:
      f.arithmetic = d.instruction.meta.category == ZYDIS_CATEGORY_SHIFT;
  }
}

// JRCXZ and LOOP are conditional branches as well, but by the count register: no condition is in their opcodes.
bool is_jcc(const ZydisDecodedInstruction& i) {
  return i.meta.category == ZYDIS_CATEGORY_COND_BR &&
         (i.opcode_map == ZYDIS_OPCODE_MAP_0F || (i.opcode & 0xF0) == 0x70);
}

uint8_t condition_code(const ZydisDecodedInstruction& i) {
  if (is_jcc(i)) return i.opcode & 0xF;
  switch (i.meta.category) {
    case ZYDIS_CATEGORY_SETCC:
    case ZYDIS_CATEGORY_CMOV:
      return i.opcode & 0xF;  // 0F 90+cc, 0F 40+cc
    default:
      return 0;
  }
}

Special special_of(const Decoded& d) {
  switch (d.instruction.mnemonic) {
    case ZYDIS_MNEMONIC_CPUID:
      return Special::kCpuid;
    case ZYDIS_MNEMONIC_MFENCE:
      return Special::kMfence;
    case ZYDIS_MNEMONIC_WRMSR:
      return Special::kWrmsr;
    case ZYDIS_MNEMONIC_STI:
      return Special::kShadow;
    case ZYDIS_MNEMONIC_MOV:
      return d.operands[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
                     d.operands[0].reg.value == ZYDIS_REGISTER_SS
                 ? Special::kShadow
                 : Special::kNone;
    default:
      return Special::kNone;
  }
}

ZydisDecoder make_decoder(ZydisMachineMode mode, ZydisStackWidth stack) {
  ZydisDecoder made;
  ZydisDecoderInit(&made, mode, stack);
  return made;
}

const ZydisDecoder& decoder(Mode mode) {
  static const ZydisDecoder of_64_bit =
      make_decoder(ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  static const ZydisDecoder of_32_bit =
      make_decoder(ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32);
  return mode == Mode::kLong ? of_64_bit : of_32_bit;
}

}  // namespace

uint8_t gpr_number(ZydisRegister reg) {
  switch (ZydisRegisterGetClass(reg)) {
    case ZYDIS_REGCLASS_GPR8:
    case ZYDIS_REGCLASS_GPR16:
    case ZYDIS_REGCLASS_GPR32:
    case ZYDIS_REGCLASS_GPR64:
      break;
    default:
      return kNoRegister;
  }
  ZydisRegister wide = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);
  return static_cast<uint8_t>(ZydisRegisterGetId(wide));
}

Expected<Decoded> decode(std::span<const std::byte> bytes, uint64_t address, Mode mode) {
  Decoded d{};
  ZyanStatus status = ZydisDecoderDecodeFull(&decoder(mode), bytes.data(), bytes.size(),
                                             &d.instruction, d.operands.data());
  if (ZYAN_FAILED(status)) {
    return fail(ErrorCode::kExecution,
                fmt::format("no instruction at {:#x}: bytes {:02x}", address,
                            fmt::join(reinterpret_cast<const uint8_t*>(bytes.data()),
                                      reinterpret_cast<const uint8_t*>(bytes.data()) +
                                          std::min<size_t>(bytes.size(), 15),
                                      " ")));
  }
  InstructionFacts& f = d.facts;
  f.mode = mode;
  f.address = address;
  f.length = d.instruction.length;
  f.branch = branch_kind(d);
  if (d.operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE && d.operands[0].imm.is_relative) {
    ZydisCalcAbsoluteAddress(&d.instruction, &d.operands[0], address, &f.target);
  }
  f.condition = condition_code(d.instruction);
  f.jcc = is_jcc(d.instruction);
  f.nop = d.instruction.mnemonic == ZYDIS_MNEMONIC_NOP;
  f.special = special_of(d);
  f.non_temporal = is_non_temporal(d.instruction.mnemonic);
  f.fusion = fusion_class(d.instruction.mnemonic);
  note_near_firsts(d, f);
  note_operands(d, f);
  f.locked = (d.instruction.attributes & ZYDIS_ATTRIB_HAS_LOCK) ||
             (d.instruction.mnemonic == ZYDIS_MNEMONIC_XCHG && f.has_address);
  note_flags(d, f);
  note_costs(d, f);
  f.chain = chain_register(d);
  const Address& a = f.address_of;
  f.dependent_load = f.explicit_load && !f.string_store &&
                     ((a.base != kNoRegister && (f.writes >> a.base & 1)) ||
                      (a.index != kNoRegister && (f.writes >> a.index & 1)));
  return d;
}

std::string text_of(const Decoded& decoded) {
  static const ZydisFormatter formatter = [] {
    ZydisFormatter made;
    ZydisFormatterInit(&made, ZYDIS_FORMATTER_STYLE_INTEL);
    return made;
  }();
  std::array<char, 128> text{};
  ZydisFormatterFormatInstruction(&formatter, &decoded.instruction, decoded.operands.data(),
                                  decoded.instruction.operand_count_visible, text.data(),
                                  text.size(), decoded.facts.address, nullptr);
  return text.data();
}

}  // namespace skidproof::model
