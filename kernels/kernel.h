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
  // allowed.
  static Expected<Params> parse(std::span<const Parameter> declared, std::string_view text);

  uint64_t operator[](std::string_view name) const;  // asserts that the parameter is declared
  const std::string& word(std::string_view name) const;
  std::string text() const;  // "key=value,…" in the order of declaration, every parameter present

 private:
  std::span<const Parameter> declared_;
  std::map<std::string, uint64_t, std::less<>> values_;
};

// Instruction-set extensions that a kernel's code needs, checked against CPUID.
enum class Isa : uint8_t { kBaseline, kSse41, kAvx, kAvx2, kBmi2 };
const char* name_of(Isa isa);

struct Kernel {
  std::string name = {};  // set by registration
  std::string brief;
  std::vector<Parameter> parameters = {};
  std::vector<Isa> (*needs)(const Params&) = nullptr;     // nullptr: the x86-64 baseline
  size_t (*data_bytes)(const Params&) = nullptr;          // nullptr: the program touches no data
  // Fills the data arena before the first run. `host` is our view, `address` what the program sees.
  void (*fill)(const Params&, std::span<std::byte> host, uint64_t address, uint64_t seed) = nullptr;
  Expectations (*per_iteration)(const Params&) = nullptr; // required
  // Writes one iteration. The emitter closes the loop around it (and counts the loop's own two
  // instructions) unless `loop` is false; see kernels/jit/emitter.h for registers and marks.
  void (*body)(Emitter&, const Params&) = nullptr;        // required
  bool loop = true;
};

// Where a program is to stand: addresses in the machine's address space.
struct Placement {
  uint64_t code_address = 0;
  uint64_t data_address = 0;
  uint64_t seed = 1;
};

// Generates the program for these addresses. Fails when the assembler rejects an instruction or when
// the generated code's static counts contradict the kernel's own expectations.
Expected<Program> generate(const Kernel& kernel, const Params& params, const Placement& placement);

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
#define SKIDPROOF_KERNEL(id)                                                             \
  [[maybe_unused]] static const ::skidproof::internal::KernelRegistration kernel_##id = \
      ::skidproof::internal::KernelName{#id} + ::skidproof::Kernel

}  // namespace skidproof

#endif  // SKIDPROOF_KERNELS_KERNEL_H_
