// A kernel: a recipe that generates a Program from parameters. One file each; see CONTRIBUTING.
#ifndef SKIDPROOF_KERNELS_KERNEL_H_
#define SKIDPROOF_KERNELS_KERNEL_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "kernels/program.h"

namespace skidproof {

class Emitter;  // kernels/jit/emitter.h: the assembler that bodies write to

// One parameter of a kernel: a number in [low, high], or one of a list of words.
struct Parameter {
  std::string name;
  std::string brief;
  uint64_t fallback = 0;  // default; an index into `words` where there are words
  uint64_t low = 0;
  uint64_t high = UINT64_MAX;
  std::vector<std::string> words = {};
};

// The values of a kernel's parameters, defaults filled in and checked.
class Params {
 public:
  // Parses "key=value,key=value"; unknown keys and values out of range are errors that list what is
  // allowed. Numbers are decimal or 0x…, with an optional suffix K, M or G (powers of 1024).
  static Expected<Params> parse(std::span<const Parameter> declared, std::string_view text);

  // The number, or the index into the words. An undeclared name is the kernel author's mistake:
  // abort.
  uint64_t operator[](std::string_view name) const;
  const std::string& word(std::string_view name) const;
  std::string text() const;  // "key=value,…" in the order of declaration, every parameter present

 private:
  std::span<const Parameter> declared_;
  std::map<std::string, uint64_t, std::less<>> values_;
};

struct Kernel {
  std::string name = {};  // set by registration
  std::string brief;
  std::vector<Parameter> parameters = {};
  // Refuses combinations that the ranges alone cannot; nullptr: every combination has a meaning.
  Expected<void> (*check)(const Params&) = nullptr;
  std::vector<Isa> (*needs)(const Params&) = nullptr;  // nullptr: the x86-64 baseline
  size_t (*data_bytes)(const Params&) = nullptr;       // nullptr: the program touches no data
  // Fills the data arena, zeroed, before the first run. `host` is our view, `address` what the
  // program sees. Call it through prepare_data().
  void (*fill)(const Params&, std::span<std::byte> host, uint64_t address, uint64_t seed) = nullptr;
  Expectations (*per_iteration)(const Params&) = nullptr;  // required
  // Writes what runs once before the loop (constants into scratch registers); straight-line code.
  void (*setup)(Emitter&, const Params&) = nullptr;
  // Writes one iteration. generate() closes the loop around it and adds the loop's own two
  // instructions to the expectations, unless `loop` is false: then the body runs once whatever the
  // number of iterations. See kernels/jit/emitter.h for registers and marks.
  void (*body)(Emitter&, const Params&) = nullptr;  // required
  bool loop = true;
  // The body uses registers or values that 64-bit mode alone has. Elsewhere a body serves 32-bit mode
  // as well: see kernels/jit/emitter.h.
  bool long_mode_only = false;
  // The body uses string instructions: it may change RSI and RDI, and puts them back itself. How many
  // loads and stores a repeated one counts as is not promised by anybody; the expectations take one.
  bool string_instructions = false;
  // The body reads what is one environment's and not another's, a selector or CPUID: registers hold other values there.
  bool reads_environment = false;
  // CPUID overwrites RBX, which is the caller's: the body keeps it elsewhere and puts it back itself.
  bool restores_rbx = false;
};

// Where a program is to stand: addresses in the machine's address space.
struct Placement {
  uint64_t code_address = 0;  // a multiple of 64: the loop starts a cache line
  uint64_t data_address = 0;  // a multiple of 4096 where the kernel has data
  uint64_t seed = 1;
  Mode mode = Mode::kLong;  // kLong or kProtected32
};

// Generates the program for these addresses. Fails when the kernel refuses the parameters or the mode
// (kUnsupported), when an address does not fit the mode, when the assembler rejects an instruction, when the code writes a register that is not its own, or when
// the generated code's static counts contradict the kernel's own expectations. (Those counts decide
// where the body is straight-line; with branches in it, the kernels' test counts what the CPU
// really executes.)
Expected<Program> generate(const Kernel& kernel, const Params& params, const Placement& placement);

// Makes the arena what the kernel wants it to be before a run: zeroes it, then calls `fill`. `host`
// is our view of program.data_address; an arena smaller than program.data_bytes is an error.
Expected<void> prepare_data(const Kernel& kernel, const Params& params, const Program& program,
                            std::span<std::byte> host, uint64_t seed);

// All registered kernels by name.
const std::map<std::string, Kernel, std::less<>>& kernels();
// The kernel of that name; an unknown name is an error that lists near names.
Expected<const Kernel*> find_kernel(std::string_view name);

namespace internal {
struct KernelName {
  const char* name;
};
struct KernelRegistration {};
KernelRegistration operator+(KernelName name, Kernel kernel);
}  // namespace internal

// SKIDPROOF_KERNEL(name) { .brief = "…", … };
#define SKIDPROOF_KERNEL(id)                                                            \
  [[maybe_unused]] static const ::skidproof::internal::KernelRegistration kernel_##id = \
      ::skidproof::internal::KernelName{#id} + ::skidproof::Kernel

}  // namespace skidproof

#endif  // SKIDPROOF_KERNELS_KERNEL_H_
