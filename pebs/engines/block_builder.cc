#include "pebs/engines/block_builder.h"

#include <fmt/format.h>

#include <algorithm>

namespace skidproof::engines {
namespace {

using model::Branch;
using model::Decoded;

constexpr uint64_t kLongestInstruction = 15;

bool is_general(ZydisRegister reg) { return model::gpr_number(reg) != model::kNoRegister; }

bool uses_vectors(const Decoded& d) {
  return d.facts.simd || d.instruction.mnemonic == ZYDIS_MNEMONIC_VZEROUPPER;
}

// Prefixes and operands that no handler looks at, so that they must not be there.
bool is_plain(const Decoded& d) {
  if (d.instruction.address_width != (d.facts.mode == Mode::kLong ? 64 : 32)) return false;
  if (d.instruction.attributes &
      (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE |
       ZYDIS_ATTRIB_HAS_XACQUIRE | ZYDIS_ATTRIB_HAS_XRELEASE)) {
    return false;
  }
  for (unsigned n = 0; n < d.instruction.operand_count_visible; ++n) {
    const ZydisDecodedOperand& o = d.operands[n];
    if (o.type == ZYDIS_OPERAND_TYPE_MEMORY &&
        (o.mem.segment == ZYDIS_REGISTER_FS || o.mem.segment == ZYDIS_REGISTER_GS)) {
      return false;
    }
    if (o.type == ZYDIS_OPERAND_TYPE_REGISTER && !uses_vectors(d) && !is_general(o.reg.value))
      return false;
  }
  return true;
}

// MOV from SS into a general register of 32 bits, and MOV from any into SS, which takes its low 16 bits.
bool moves_stack_segment(const Decoded& d) {
  const ZydisDecodedOperand &to = d.operands[0], &from = d.operands[1];
  if (d.instruction.mnemonic != ZYDIS_MNEMONIC_MOV || to.type != ZYDIS_OPERAND_TYPE_REGISTER ||
      from.type != ZYDIS_OPERAND_TYPE_REGISTER) {
    return false;
  }
  if (to.reg.value == ZYDIS_REGISTER_SS) return true;
  return from.reg.value == ZYDIS_REGISTER_SS && to.size == 32;
}

Handler select(const Decoded& d, const Selection& selection) {
  if (moves_stack_segment(d)) return select_stack_segment(d);
  if (is_string(d)) return select_string(d, selection);
  if (!is_plain(d)) return nullptr;
  if (uses_vectors(d)) return select_vector(d, selection);
  bool stack =
      d.instruction.mnemonic == ZYDIS_MNEMONIC_PUSH || d.instruction.mnemonic == ZYDIS_MNEMONIC_POP;
  if (d.facts.branch != Branch::kNone || stack) return select_branch(d, selection);
  return select_integer(d, selection);
}

void place_address(const Decoded& d, Operation& op) {
  for (unsigned n = 0; n < d.instruction.operand_count_visible; ++n) {
    const ZydisDecodedOperand& o = d.operands[n];
    if (o.type != ZYDIS_OPERAND_TYPE_MEMORY) continue;
    op.displacement = o.mem.disp.has_displacement ? o.mem.disp.value : 0;
    if (o.mem.base == ZYDIS_REGISTER_RIP) {
      op.displacement += static_cast<int64_t>(d.facts.end());
    } else if (o.mem.base != ZYDIS_REGISTER_NONE) {
      op.base = offset_of(o.mem.base);
    }
    if (o.mem.index != ZYDIS_REGISTER_NONE) op.index = offset_of(o.mem.index);
    for (unsigned scale = o.mem.scale; scale > 1; scale >>= 1) ++op.scale;
  }
}

void place_registers(const Decoded& d, Operation& op) {
  unsigned count = d.instruction.operand_count_visible;
  auto is_register = [&](unsigned n) {
    return n < count && d.operands[n].type == ZYDIS_OPERAND_TYPE_REGISTER;
  };
  if (is_register(0)) op.destination = op.source = offset_of(d.operands[0].reg.value);
  if (is_register(1)) op.source = offset_of(d.operands[1].reg.value);
  for (unsigned n = 0; n < count; ++n) {
    if (d.operands[n].type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
      op.immediate = d.operands[n].imm.value.u;
  }
}

// Everything but the handler and the static slots.
Operation encode(const Decoded& d, size_t position) {
  Operation op;
  op.base = op.index = offsetof(State, zero);
  op.position = static_cast<uint8_t>(position);
  op.detail = d.facts.condition;
  op.chase = d.facts.dependent_load;
  place_address(d, op);
  if (uses_vectors(d)) {
    arrange_vector(d, op);
  } else {
    place_registers(d, op);
  }
  if (d.facts.branch == Branch::kCall || d.facts.branch == Branch::kIndirectCall) {
    op.immediate = d.facts.end();
  }
  return op;
}

// For each instruction: can nobody see the flags that it sets? At the end of the block all are alive.
std::vector<bool> dead_flags(const std::vector<model::InstructionFacts>& facts) {
  std::vector<bool> dead(facts.size());
  uint32_t alive = kStatusFlags;
  for (size_t n = facts.size(); n-- > 0;) {
    uint32_t written = facts[n].flags_written & kStatusFlags;
    dead[n] = written != 0 && (written & alive) == 0;
    alive = (alive & ~written) | (facts[n].flags_read & kStatusFlags);
  }
  return dead;
}

// What stands behind the last operation: the block, and the branch's key for the predictor.
Operation trailer(Block& block) {
  Operation end;
  end.block = &block;
  end.slots = model::Predictor::key(block.facts.back().address);
  return end;
}

// A fused pair of which one handler may do both halves.
bool is_pair(const std::vector<model::InstructionFacts>& facts, size_t n) {
  const model::InstructionFacts& first = facts[n];
  return first.fused_with_next && facts[n + 1].fused_with_previous && !first.explicit_store &&
         !(first.explicit_load && first.immediate);
}

void emit_whole(Block& block, const std::vector<Decoded>& code, bool modelled) {
  std::vector<bool> dead = dead_flags(block.facts);
  uint64_t slots = 0;
  for (size_t n = 0; n < code.size(); ++n) {
    const model::InstructionFacts& facts = block.facts[n];
    Operation op = encode(code[n], n);
    op.slots = static_cast<uint32_t>(slots);
    slots += facts.slots + facts.stall;
    Handler pair = is_pair(block.facts, n)
                       ? select_pair(code[n], code[n + 1], {.modelled = modelled})
                       : nullptr;
    if (pair != nullptr) {
      op.handler = pair;
      op.detail = block.facts[n + 1].condition & 1;
      ++n;
      slots += block.facts[n].slots + block.facts[n].stall;
    } else {
      op.handler = select(code[n], {.modelled = modelled, .flags_dead = dead[n]});
    }
    block.whole.push_back(op);
  }
  if (block.facts.back().branch == Branch::kNone) {
    Operation end;
    end.handler = end_of_block();
    end.position = static_cast<uint8_t>(code.size() - 1);
    block.whole.push_back(end);
  }
  block.whole.push_back(trailer(block));
  block.slots = slots;
}

void emit_single(Block& block, const std::vector<Decoded>& code, bool modelled) {
  for (size_t n = 0; n < code.size(); ++n) {
    Operation op = encode(code[n], n);
    op.handler = select(code[n], {.modelled = modelled, .single = true});
    block.single.push_back(op);
    if (code[n].facts.branch != Branch::kNone) {
      block.single.push_back(trailer(block));
    } else {
      Operation end;
      end.handler = end_of_single();
      block.single.push_back(end);
    }
  }
}

// Tells string handlers that each repetition counts.
void mark_strings(Block& block, const std::vector<Decoded>& code) {
  for (std::vector<Operation>* operations : {&block.whole, &block.single}) {
    for (Operation& op : *operations) {
      if (is_string(code[op.position])) op.detail = 1;
    }
  }
}

void count(Block& block) {
  arch::SignalCounts counts{};
  for (const model::InstructionFacts& facts : block.facts) model::add_static_counts(facts, counts);
  for (size_t n = 0; n < arch::kSignals; ++n) {
    if (counts[n] != 0) {
      block.counts.emplace_back(static_cast<arch::Signal>(n), static_cast<uint32_t>(counts[n]));
    }
  }
}

}  // namespace

uint16_t offset_of(ZydisRegister reg) {
  uint8_t gpr = model::gpr_number(reg);
  if (gpr == model::kNoRegister) {
    return static_cast<uint16_t>(offsetof(State, vectors) +
                                 32u * static_cast<unsigned>(ZydisRegisterGetId(reg)));
  }
  bool high = reg == ZYDIS_REGISTER_AH || reg == ZYDIS_REGISTER_BH || reg == ZYDIS_REGISTER_CH ||
              reg == ZYDIS_REGISTER_DH;
  return static_cast<uint16_t>(8u * gpr + high);
}

Expected<model::Decoded> BlockBuilder::decode(uint64_t ip) const {
  uint64_t length = kLongestInstruction;
  if (!memory_.executable(ip, length)) {  // not up to the end of the page, perhaps
    length = std::min(length, GuestMemory::kPageBytes - ip % GuestMemory::kPageBytes);
  }
  if (!memory_.executable(ip, length)) {
    return fail(ErrorCode::kExecution,
                fmt::format("the program left its code: there is none at {:#x}", ip),
                "a wrong branch target or a damaged return address; see the instruction before it");
  }
  return model::decode({memory_.host(ip), length}, ip, mode_);
}

Expected<std::unique_ptr<Block>> BlockBuilder::build(uint64_t ip) const {
  std::vector<Decoded> code;
  uint64_t next = ip;
  while (code.size() < kMaximumInstructions) {
    auto decoded = decode(next);
    bool known = decoded && select(*decoded, {.modelled = modelled_}) != nullptr;
    if (!known && code.empty()) {
      if (!decoded) return tl::make_unexpected(std::move(decoded).error());
      return tl::make_unexpected(explain(Fault::kUnknown, ip, 0));
    }
    if (!known) break;  // an error only if it is ever reached
    code.push_back(*decoded);
    next = decoded->facts.end();
    if (decoded->facts.branch != Branch::kNone) break;
  }
  auto block = std::make_unique<Block>();
  block->ip = ip;
  block->end = next;
  block->instructions = code.size();
  for (const Decoded& d : code) block->facts.push_back(d.facts);
  model::place(block->facts, behaviour_);
  block->successor_ip[0] = next;
  block->successor_ip[1] = code.back().facts.target;
  emit_whole(*block, code, modelled_);
  emit_single(*block, code, modelled_);
  if (behaviour_.rep_counts_iterations) mark_strings(*block, code);
  count(*block);
  block->entry = block->whole.data();
  return block;
}

Error BlockBuilder::explain(Fault fault, uint64_t ip, uint64_t data_address) const {
  auto decoded = decode(ip);
  std::string text = decoded ? model::text_of(*decoded) : "?";
  std::string at = fmt::format("`{}` at {:#x}", text, ip);
  switch (fault) {
    case Fault::kLoad:
      return {ErrorCode::kExecution,
              fmt::format("{} reads {:#x}, which is not mapped", at, data_address),
              "the program left its data"};
    case Fault::kStore:
      if (memory_.mapped(data_address, 1)) {
        return {ErrorCode::kExecution,
                fmt::format("{} writes {:#x}, which is code", at, data_address),
                "programs that modify code are not supported"};
      }
      return {ErrorCode::kExecution,
              fmt::format("{} writes {:#x}, which is not mapped", at, data_address),
              "the program left its data"};
    case Fault::kDivide:
      return {ErrorCode::kExecution,
              fmt::format("{}: #DE, a division by zero or a quotient that does not fit", at),
              {}};
    case Fault::kAlignment:
      return {ErrorCode::kExecution,
              fmt::format("{} accesses {:#x}, which is not aligned as it demands (#GP)", at,
                          data_address),
              {}};
    case Fault::kUnknown:
    case Fault::kNone:
      break;
  }
  return {ErrorCode::kUnsupported, fmt::format("the interpreter does not know {}", at),
          "add a handler to pebs/engines and cases to its oracle test"};
}

}  // namespace skidproof::engines
