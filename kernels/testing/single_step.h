// The oracle of tests: a program run by the CPU in front of us, one instruction at a time under the
// trap flag.
#ifndef SKIDPROOF_KERNELS_TESTING_SINGLE_STEP_H_
#define SKIDPROOF_KERNELS_TESTING_SINGLE_STEP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/expected.h"
#include "kernels/program.h"

namespace skidproof {

// The processor's state before the instruction at `rip` executes.
struct Step {
  uint64_t rip = 0;
  uint64_t rflags = 0;  // without the trap flag
  std::array<uint64_t, 16> gpr =
      {};  // in encoding order: RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 …
};

// Writable and executable memory for a program, and memory for its data, page-aligned.
class NativeArena {
 public:
  // Error: kNoMemory, with the operating system's reason.
  static Expected<NativeArena> create(size_t code_bytes, size_t data_bytes);

  std::span<std::byte> code() const { return {code_.get(), code_bytes_}; }
  std::span<std::byte> data() const { return {data_.get(), data_bytes_}; }
  uint64_t code_address() const { return reinterpret_cast<uint64_t>(code_.get()); }
  uint64_t data_address() const { return reinterpret_cast<uint64_t>(data_.get()); }

  // Copies the code, which must have been generated for code_address(). Error: kInvalidArgument.
  Expected<void> load(const Program& program) const;

 private:
  std::shared_ptr<std::byte> code_, data_;
  size_t code_bytes_ = 0, data_bytes_ = 0;
};

// Runs a loaded program and calls `before` for each instruction, in program order; returns RAX.
// `before` runs in a signal handler that interrupted only the program, so it may allocate, but must
// not throw. One program at a time in a process. Errors: kExecution when the program faults,
// kTimeout after `limit` instructions.
Expected<uint64_t> single_step(const Program& program, uint64_t iterations, uint64_t limit,
                               const std::function<void(const Step&)>& before);

// Calls a loaded program at full speed; returns RAX.
uint64_t call_native(const Program& program, uint64_t iterations);

}  // namespace skidproof

#endif  // SKIDPROOF_KERNELS_TESTING_SINGLE_STEP_H_
