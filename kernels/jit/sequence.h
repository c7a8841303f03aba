// Code as data: a short list of items that can be written to a file, read back and shortened item by
// item, and assembled into a Program at any address.
#ifndef SKIDPROOF_KERNELS_JIT_SEQUENCE_H_
#define SKIDPROOF_KERNELS_JIT_SEQUENCE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "kernels/program.h"

namespace skidproof {

// What one item becomes. `a` and `b` name scratch registers, `value` is an immediate, a displacement
// into the data or a number of items. No item leaves a flag undefined but AF.
enum class Op : uint8_t {
  kNop,
  kSet,          // mov a, value
  kMove,         // mov a, b
  kAdd,          // add a, b
  kSub,          // sub a, b
  kAnd,          // and a, b
  kOr,           // or a, b
  kXor,          // xor a, b
  kInc,          // inc a
  kDec,          // dec a
  kLea,          // lea a, [b + value]
  kCompare,      // cmp a, b
  kTest,         // test a, b
  kLoad,         // mov a, [data + value]
  kAddLoad,      // add a, [data + value]
  kCompareLoad,  // cmp a, [data + value]
  kStore,        // mov [data + value], a
  kAddStore,     // add [data + value], a
  kLockAdd,      // lock add [data + value], a
  kPushPop,      // push a; pop b
  kDelay,        // mov a, value; dec a; jnz to the dec: many instructions of a short code
  kSkipIf,       // jcc over the next `value` items
  kSkip,         // jmp over the next `value` items
  kCall,         // call a function of the next `value` items, which stands behind the program's RET
};
inline constexpr size_t kOps = static_cast<size_t>(Op::kCall) + 1;
// "store": how files call it.
std::string_view name_of(Op op);

// Scratch registers by number: rax rcx rdx r8 r9 r10 r11.
inline constexpr unsigned kSequenceRegisters = 7;
// The same as general registers are encoded in instructions and indexed in records.
inline constexpr std::array<uint8_t, kSequenceRegisters> kSequenceRegisterNumbers = {0, 1,  2, 8,
                                                                                     9, 10, 11};
inline constexpr size_t kSequenceDataBytes = 4096;

struct CodeItem {
  Op op = Op::kNop;
  uint8_t a = 0, b = 0;   // below kSequenceRegisters
  uint8_t condition = 0;  // of kSkipIf: the low four bits of a jump's opcode
  uint32_t value = 0;
  bool operator==(const CodeItem&) const = default;
};

// Items, once or as often as the caller of the program says (RDI; then at least once).
struct Sequence {
  std::vector<CodeItem> items;
  bool loop = true;
  bool operator==(const Sequence&) const = default;
};

// Which scratch registers the items name: a program defines these, RDI and RSI, and no others.
std::array<bool, kSequenceRegisters> named_registers(const Sequence& sequence);

// What an item needs to be in range. Error: kInvalidArgument with the item's position.
Expected<void> check_sequence(const Sequence& sequence);

// The program: the registers that its items name are zeroed, then come the items (in a loop: SUB RDI,
// 1 and JNZ behind them), then RET. A skip ends with its list at the latest, and skips a NOP where it has
// nothing to skip, so that a jump taken ends elsewhere than one that is not. Each address is executed
// at most once an iteration but inside a delay. Expectations are not filled in: the path depends on
// data. `data_address` is only noted. Errors: those of check_sequence(), kInternal.
Expected<Program> assemble(const Sequence& sequence, uint64_t code_address, uint64_t data_address);

}  // namespace skidproof

#endif  // SKIDPROOF_KERNELS_JIT_SEQUENCE_H_
