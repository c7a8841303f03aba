// The assembler that kernels write to. The only door to asmjit: only files of kernels/ include
// this.
//
// Registers (SysV call, uint64_t entry(uint64_t iterations, void* data)):
//   kCounter  rdi  counts down; in the i-th of n iterations (i = 1 … n) it holds n − i + 1. Read
//   only. kData     rsi  the data arena's address. Read only. scratch   rax rcx rdx r8 r9 r10 r11,
//   xmm0–xmm15: the kernel's. The general-purpose ones are zero when
//             `setup` begins, so that a program computes the same on every machine; rax is its
//             result.
//   rsp       only through CALL, RET, PUSH and POP.
//   rbx rbp r12–r15 are the caller's. Nothing saves them, so nothing may write them; generate()
//   refuses
//             code that writes a register other than its own.
//
// In 32-bit mode the 64-bit registers that bodies name stand for the 32-bit registers that they
// contain, and accesses of general registers are 4 bytes wide; a register that does not exist there is
// refused. Of the scratch registers there are rax, rcx and rdx. Immediate operands must fit 32 bits:
// native() cuts them.
//
// The code around a body, with the marks that generate() sets itself:
//   entry:       lea rdi, [rdi+1]      one more than n, since the count is tested first
//                xor …                 zero the scratch registers
//                                      (the kernel's setup)
//                jmp loop.sub          so that no iteration at all is possible, and every count
//                exact
//                                      (never executed: no-operations up to the next cache line)
//   loop.first:                        (the kernel's body)
//   loop.sub:    sub rdi, 1            the two of them a fusible pair from Sandy Bridge on
//   loop.jnz:    jnz loop.first
//                vzeroupper            where the kernel needs AVX
//   return:      ret
// n iterations take loop.jnz n times and leave it once. A kernel without a loop has only entry, the
// zeroing, setup, body and return.
#ifndef SKIDPROOF_KERNELS_JIT_EMITTER_H_
#define SKIDPROOF_KERNELS_JIT_EMITTER_H_

#include <asmjit/x86.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/expected.h"
#include "kernels/kernel.h"

namespace skidproof {

namespace x86 = asmjit::x86;

inline constexpr x86::Gp kCounter = x86::rdi;
inline constexpr x86::Gp kData = x86::rsi;

// asmjit's assembler, which refuses instead of skipping, with named instruction addresses.
class Emitter : public x86::Assembler {
 public:
  explicit Emitter(const Placement& placement);
  ~Emitter() override;

  // Names the next instruction. A name given twice is an error of generate().
  void mark(std::string_view name);
  // The i-th of several: "name" for 0, "name.i" from 1 on.
  void mark(std::string_view name, uint64_t index);

  // Another name for a mark, set before or after this; the loop's own marks too.
  void alias(std::string_view name, std::string_view existing);

  // Code that stands after the final RET, for the functions that a body calls.
  void after_return(std::function<void()> write);

  // One no-operation of 1 to 9 bytes. [SDM vol. 2, NOP, "Recommended Multi-Byte Sequence of NOP Instruction"]
  void nop_of(uint64_t bytes);
  // No-operations up to this address, as long ones as there are.
  void nops_until(uint64_t address);
  // The same where nothing comes by: as few as there can be, of which some are slow to decode.
  void unreached_until(uint64_t address);

  uint64_t address() const;  // of the next instruction
  uint64_t seed() const { return placement_.seed; }
  Mode mode() const { return placement_.mode; }
  uint32_t word_bytes() const { return mode() == Mode::kLong ? 8 : 4; }  // of a general register
  // The part of a value that a general register holds.
  uint64_t native(uint64_t value) const {
    return mode() == Mode::kLong ? value : static_cast<uint32_t>(value);
  }

  // For generate(): writes the after_return() code, resolves labels and returns the relocated
  // bytes. Error: kInternal, with the first refused instruction, label or mark.
  Expected<std::vector<std::byte>> finish();
  const std::map<std::string, uint64_t, std::less<>>& marks() const { return marks_; }

 protected:
  asmjit::Error _emit(asmjit::InstId id, const asmjit::Operand_& o0, const asmjit::Operand_& o1,
                      const asmjit::Operand_& o2, const asmjit::Operand_* more) override;

 private:
  class Refusals : public asmjit::ErrorHandler {
   public:
    void handleError(asmjit::Error error, const char* message,
                     asmjit::BaseEmitter* origin) override;
    std::string first;
  };

  void refuse(std::string reason);
  void resolve_aliases();
  asmjit::Operand_ narrowed(const asmjit::Operand_& operand, bool vector);

  Placement placement_;
  Refusals refusals_;
  asmjit::CodeHolder holder_;
  std::map<std::string, uint64_t, std::less<>> marks_;
  std::vector<std::pair<std::string, std::string>> aliases_;
  std::vector<std::function<void()>> after_return_;
};

// [rsi + displacement] and [rsi + index + displacement], `size` bytes wide.
x86::Mem data_at(int32_t displacement, uint32_t size = 8);
x86::Mem data_at(const x86::Gp& index, int32_t displacement, uint32_t size = 8);

}  // namespace skidproof

#endif  // SKIDPROOF_KERNELS_JIT_EMITTER_H_
