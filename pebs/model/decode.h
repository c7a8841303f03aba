// Instruction facts: what the core model must know of one instruction before it runs.
//
// Costs are the model's own choices, of the order that published tables give for Sandy Bridge; no suite
// asserts them on silicon. Fused-domain slots: 1 for a simple operation, with or without a load; 1 for a
// store; 2 for a read-modify-write, ADC, SBB, CMOVcc, CALL, RET; more for microcoded instructions. An
// indexed address un-laminates a micro-fused instruction by the generation's rules (R73, R74), and an
// immediate beside a RIP-relative operand everywhere (R75): +1.
#ifndef SKIDPROOF_PEBS_MODEL_DECODE_H_
#define SKIDPROOF_PEBS_MODEL_DECODE_H_

#include <Zydis/Zydis.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/expected.h"
#include "base/mode.h"
#include "pebs/arch/fusion.h"
#include "pebs/arch/microarch.h"
#include "pebs/arch/signal.h"
#include "pebs/model/core_behaviour.h"
#include "pebs/model/retired.h"

namespace skidproof::model {

enum class Branch : uint8_t {
  kNone,
  kConditional,
  kJump,
  kIndirectJump,
  kCall,
  kIndirectCall,
  kReturn,
};

inline constexpr uint8_t kNoRegister = 0xFF;

// An explicit memory operand. RIP-relative ones are resolved: no base, absolute displacement.
struct Address {
  uint8_t base = kNoRegister;  // number of the 64-bit register
  uint8_t index = kNoRegister;
  uint8_t scale = 0;  // log2
  uint8_t bytes = 0;  // of the access
  int64_t displacement = 0;
};

struct InstructionFacts {
  // Of the instruction alone.
  Mode mode = Mode::kLong;
  uint64_t address = 0;
  uint64_t target = 0;  // of a direct branch
  uint8_t length = 0;
  Branch branch = Branch::kNone;
  uint8_t condition = 0;          // tttn of Jcc, SETcc or CMOVcc
  bool jcc = false;               // a conditional jump by flags: not JRCXZ, not LOOP
  uint8_t loads = 0, stores = 0;  // memory operations, the stack's included
  uint8_t uops = 1;               // fused domain
  uint8_t latency = 1;            // cycles from the operands to the result
  uint8_t occupancy = 0;          // cycles that the instruction always holds retirement (DIV, LOCK)
  bool locked = false;
  bool nop = false;
  Special special = Special::kNone;
  bool simd = false;          // uses xmm or ymm
  bool non_temporal = false;  // store
  bool flushes = false;       // CLFLUSH: neither a load nor a store
  bool has_address =
      false;  // `address_of` names an explicit memory operand that is accessed or flushed
  bool explicit_load = false, explicit_store = false;  // that operand is read, written
  bool stack_load = false, stack_store = false;        // POP, RET; PUSH, CALL
  bool string_store = false;  // MOVS: what its operand names it reads, and writes where RDI points
  bool dependent_load = false;  // its destination is its own base or index: a pointer chase
  bool indexed = false;         // indexed address in a micro-fused instruction
  bool keeps_indexed = false;   // … whose destination is read and written (R74)
  bool rip_immediate =
      false;             // RIP-relative, with an immediate, where that keeps two uops apart (R75)
  bool bitwise = false;  // OR, XOR: set flags, never fuse (R69)
  bool arithmetic = false;  // NEG, ADC, SBB, shifts: likewise
  bool immediate = false;
  arch::FusionFirst fusion = arch::FusionFirst::kNone;
  uint8_t chain =
      kNoRegister;             // a register that is both source and destination; vectors are 16 + n
  uint32_t writes = 0;         // registers written: bit n a GPR, bit 16 + n a vector register
  uint32_t flags_read = 0;     // EFLAGS bits
  uint32_t flags_written = 0;  // … that it always overwrites, undefined ones included
  Address address_of;

  // In its basic block (see place).
  bool fused_with_next = false;      // first of a macro-fused pair
  bool fused_with_previous = false;  // second
  uint8_t slots = 1;                 // retirement slots: `uops`, 0 for the second of a pair
  uint16_t stall = 0;                // further slots: latency that nothing hides

  uint64_t end() const { return address + length; }
};

// One decoded instruction with its operands.
struct Decoded {
  ZydisDecodedInstruction instruction;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
  InstructionFacts facts;
};

// Decodes the instruction of 64-bit or 32-bit mode that starts `bytes` and stands at `address`.
// kExecution when the bytes are no instruction.
Expected<Decoded> decode(std::span<const std::byte> bytes, uint64_t address,
                         Mode mode = Mode::kLong);

// The number 0–15 of the 64-bit register that contains a general register; kNoRegister for others.
uint8_t gpr_number(ZydisRegister reg);

// Intel syntax, for messages.
std::string text_of(const Decoded& decoded);

// Fills the facts that depend on the neighbours and the generation, for the instructions of one basic
// block in order.
void place(std::span<InstructionFacts> block, const CoreBehaviour& behaviour);
inline void place(std::span<InstructionFacts> block, const arch::Microarch& microarch) {
  place(block, core_behaviour_of(microarch));
}

// Adds what one placed instruction does to the signals whatever the data: everything but time, cache
// levels, splits, TLB misses and the outcome of conditional jumps.
void add_static_counts(const InstructionFacts& facts, arch::SignalCounts& counts);

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_DECODE_H_
