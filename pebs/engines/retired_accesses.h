// What every engine says of a retired instruction's memory operations.
#ifndef SKIDPROOF_PEBS_ENGINES_RETIRED_ACCESSES_H_
#define SKIDPROOF_PEBS_ENGINES_RETIRED_ACCESSES_H_

#include <cstddef>
#include <cstdint>

#include "base/mode.h"
#include "pebs/arch/record_layout.h"
#include "pebs/model/core.h"
#include "pebs/model/decode.h"
#include "pebs/model/retired.h"

namespace skidproof::engines {

// An address as the mode leaves it.
inline uint64_t linear(const model::InstructionFacts& facts, uint64_t address) {
  return facts.mode == Mode::kLong ? address : static_cast<uint32_t>(address);
}

// What a memory operand's address will be.
inline uint64_t address_of(const model::InstructionFacts& facts,
                           const model::Registers& registers) {
  const model::Address& a = facts.address_of;
  uint64_t address = static_cast<uint64_t>(a.displacement);
  if (a.base != model::kNoRegister) address += registers.gpr[a.base];
  if (a.index != model::kNoRegister) address += registers.gpr[a.index] << a.scale;
  return linear(facts, address);
}

// Where an instruction that begins with these registers loads and stores: its operand, a string's target, or the stack.
inline uint64_t load_address(const model::InstructionFacts& facts,
                             const model::Registers& registers) {
  return facts.explicit_load ? address_of(facts, registers)
                             : registers.gpr[static_cast<size_t>(arch::Gpr::kRsp)];
}
inline uint64_t store_address(const model::InstructionFacts& facts,
                              const model::Registers& registers) {
  const uint64_t word = facts.mode == Mode::kLong ? 8 : 4;
  if (facts.string_store) return linear(facts, registers.gpr[static_cast<size_t>(arch::Gpr::kRdi)]);
  return facts.explicit_store
             ? address_of(facts, registers)
             : linear(facts, registers.gpr[static_cast<size_t>(arch::Gpr::kRsp)] - word);
}

// Fills `load` and `store` of `retired` once the core model has seen them.
inline void note_accesses(const model::InstructionFacts& facts, const model::Core& core,
                          uint64_t load, uint64_t store, model::Retired& retired) {
  retired.load = facts.loads > 0 ? core.probe().load : model::Access{};
  retired.store = facts.stores > 0 ? core.probe().store : model::Access{};
  retired.load.valid = facts.loads > 0;
  retired.store.valid = facts.stores > 0;
  retired.load.locked = retired.load.valid && facts.locked;
  retired.store.locked = retired.store.valid && facts.locked;
  retired.load.address = retired.load.valid ? load : 0;
  retired.store.address = retired.store.valid ? store : 0;
}

}  // namespace skidproof::engines

#endif  // SKIDPROOF_PEBS_ENGINES_RETIRED_ACCESSES_H_
