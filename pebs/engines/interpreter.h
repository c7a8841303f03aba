// The in-process engine: a threaded interpreter over basic blocks that Zydis decoded once.
#ifndef SKIDPROOF_PEBS_ENGINES_INTERPRETER_H_
#define SKIDPROOF_PEBS_ENGINES_INTERPRETER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/expected.h"
#include "base/mode.h"
#include "kernels/program.h"
#include "pebs/arch/microarch.h"
#include "pebs/arch/signal.h"
#include "pebs/engines/guest_memory.h"
#include "pebs/model/core.h"
#include "pebs/model/core_behaviour.h"
#include "pebs/model/retired.h"

namespace skidproof::engines {

// Whether instructions go through the core model. kBare executes them alone (no caches, no predictor,
// no counts): what the core model costs is measured against it.
enum class Accounting : uint8_t { kCore, kBare };

// Executes programs of one mode, 64-bit or 32-bit, out of guest memory. What a program does to registers, memory, core.totals() and
// core.cycle() is the same whichever mixture of run() and step() executed it.
//
// Not emulated, each a hard error that names the instruction: privileged and system instructions but
// CPUID, which says nothing, and MOV of SS, which holds Linux' user data; x87,
// string instructions but STOS and MOVS, segment overrides, AVX-512, exceptions (a #DE, an unaligned MOVAPS). A program that writes
// its own code, or any code block, is an error too.
class Interpreter {
 public:
  // `memory`, `core` and `microarch` must outlive the interpreter. In 32-bit mode all of the memory
  // lies below 4 GiB.
  Interpreter(GuestMemory& memory, model::Core& core, const arch::Microarch& microarch,
              Accounting accounting = Accounting::kCore, Mode mode = Mode::kLong);
  // The same on a core that decides otherwise than its microarch says.
  Interpreter(GuestMemory& memory, model::Core& core, const model::CoreBehaviour& behaviour,
              Accounting accounting = Accounting::kCore, Mode mode = Mode::kLong);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Copies the program's bytes to program.code_address, which must lie in a code block of the guest
  // memory (kInvalidArgument, also for a program of another mode), and forgets what was decoded there before. Code that reaches the block in
  // another way after it ran once is not noticed.
  Expected<void> load(const Program& program);

  // Prepares a call of `entry`: RDI = iterations, RSI = data, RSP = stack_top with the sentinel return
  // address pushed (the machine's push: not counted), RIP = entry; other registers 0. In 32-bit mode
  // the lower halves of these. Align stack_top to 16. A stack that is not mapped shows as an error of the first run() or step().
  void call(uint64_t entry, uint64_t iterations, uint64_t data, uint64_t stack_top);

  // Called functions return there instead of to the sentinel; to be said before the first call().
  void return_to(uint64_t address);

  // True when the called function returned.
  bool finished() const;

  // Executes at most `budget` instructions; returns how many. It stops early when the program has
  // finished, and in front of code with an instruction of more uops than most_uops() said before the call
  // (which then says more), so that a caller who planned with that number can plan again; `by_bounds`: also in front of
  // code with more events than code_bounds() said.
  // After an error the registers are those of some instruction at or before the faulting one.
  // Errors: kExecution (left its code or data, #DE, misaligned), kUnsupported (unknown instruction).
  Expected<uint64_t> run(uint64_t budget, bool by_bounds = false);

  // What the last run() added to core.totals().
  const arch::SignalCounts& gained() const;

  // The most fused-domain uops of one instruction in the code met so far.
  uint64_t most_uops() const;
  // How many events the code met so far brings. Nothing is known of events that caches, the clock or another thread
  // decide.
  const model::CodeBounds& code_bounds() const;

  // Executes exactly one instruction and fills every field of `retired`; retired.after points into this
  // interpreter and is valid until the next call. kInvalidArgument when finished.
  Expected<void> step(model::Retired& retired);

  // Registers between calls; ip is the next instruction. May be written: a new ip or new flags are taken
  // up by the next run() or step().
  model::Registers& registers();
  const model::Registers& registers() const;

  // Vector registers, 32 bytes each.
  using Vector = std::array<uint64_t, 4>;
  std::array<Vector, 16>& vectors();

  // Where a called function returns to; never a mapped address.
  static constexpr uint64_t kSentinel = 0xffff'f000'dead'0000;
  static constexpr uint64_t kSentinel32 = 0xdead'0000;

 private:
  struct Machinery;
  std::unique_ptr<Machinery> machinery_;
};

}  // namespace skidproof::engines

#endif  // SKIDPROOF_PEBS_ENGINES_INTERPRETER_H_
