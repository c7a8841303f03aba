// A Program: one generated microbenchmark, the same bytes for every machine.
#ifndef SKIDPROOF_KERNELS_PROGRAM_H_
#define SKIDPROOF_KERNELS_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/mode.h"

namespace skidproof {

// What one iteration (or the code around the loop) does architecturally. Counts, not rates.
struct Expectations {
  uint64_t instructions = 0;
  uint64_t loads = 0;               // load operations: a read-modify-write has one, RET has one
  uint64_t stores = 0;              // store operations: CALL and PUSH have one
  uint64_t branches_taken = 0;      // near JMP, CALL, RET and taken conditional jumps
  uint64_t branches_not_taken = 0;  // conditional jumps that fall through
  uint64_t fusible_pairs = 0;  // adjacent first + conditional jump by the Sandy Bridge rules (R67)

  uint64_t branches() const { return branches_taken + branches_not_taken; }
  bool operator==(const Expectations&) const = default;
  Expectations& operator+=(const Expectations& other) {
    instructions += other.instructions;
    loads += other.loads;
    stores += other.stores;
    branches_taken += other.branches_taken;
    branches_not_taken += other.branches_not_taken;
    fusible_pairs += other.fusible_pairs;
    return *this;
  }
};
inline Expectations operator*(Expectations one, uint64_t n) {
  one.instructions *= n;
  one.loads *= n;
  one.stores *= n;
  one.branches_taken *= n;
  one.branches_not_taken *= n;
  one.fusible_pairs *= n;
  return one;
}
inline Expectations operator+(Expectations a, const Expectations& b) { return a += b; }

// Flow kinds that matter when a path through the code is followed.
enum class Flow : uint8_t { kNone, kConditional, kJump, kCall, kReturn };

// One instruction of the static list, decoded by Zydis.
struct Instruction {
  uint64_t address = 0;
  uint8_t length = 0;
  Flow flow = Flow::kNone;
  uint64_t target = 0;  // of a direct branch; 0 otherwise
  bool loads = false;   // reads memory (explicitly or through the stack)
  bool stores = false;  // writes memory (explicitly or through the stack)
  bool fuses_with_next =
      false;         // first of a macro-fusible pair by the Sandy Bridge rules (R64, R67, R69)
  std::string text;  // Intel syntax

  uint64_t end() const { return address + length; }
};

// Instruction-set extensions that a program's code may need beyond x86-64's baseline.
enum class Isa : uint8_t {
  kBaseline,
  kSse41,
  kAvx,
  kAvx2,
  kBmi2,
  kAvx512,
  kPopcnt,
  kLzcnt,
  kBmi1,
  kFma
};
const char* name_of(Isa isa);
// Whether CPUID, and the operating system's enabled state, of the CPU in front of us offer it.
bool host_supports(Isa isa);

// How a machine calls a program: a SysV function
//   uint64_t entry(uint64_t iterations /*rdi*/, void* data /*rsi*/)
// that preserves the callee-saved registers and executes `once` plus iterations times
// `per_iteration`; exactly so for every number of iterations, none included. The call itself is the
// machine's and is not part of the expectations; the final RET is in `once`. In 32-bit mode the same
// registers' lower halves carry the arguments, and all of the program's addresses, the stack's too,
// are below 4 GiB.
struct Program {
  Mode mode = Mode::kLong;
  std::string kernel;  // name of the kernel
  std::string
      parameters;  // "key=value,…" as given and defaulted; with the kernel's name it is the id
  std::vector<std::byte> code;
  uint64_t code_address = 0;  // address of code[0], in the machine's address space
  uint64_t entry = 0;         // address to call
  uint64_t data_address = 0;  // what the machine passes as `data`
  size_t data_bytes = 0;      // how much of it the program touches
  std::map<std::string, uint64_t, std::less<>> marks;  // named instruction addresses
  std::vector<Instruction> instructions;               // in address order
  Expectations per_iteration;
  Expectations once;  // everything outside the loop, the final RET included
  std::vector<Isa>
      needs;  // beyond the baseline; the machine checks them before it runs the program

  std::string id() const { return parameters.empty() ? kernel : kernel + "(" + parameters + ")"; }
  Expectations total(uint64_t iterations) const { return per_iteration * iterations + once; }
  // The address of a mark; 0 when there is none (tests assert on it).
  uint64_t mark(std::string_view name) const {
    auto it = marks.find(name);
    return it == marks.end() ? 0 : it->second;
  }
  // The instruction that starts at this address, or nullptr.
  const Instruction* at(uint64_t address) const {
    size_t low = 0;
    size_t high = instructions.size();
    while (low < high) {
      size_t middle = (low + high) / 2;
      if (instructions[middle].address < address) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low < instructions.size() && instructions[low].address == address ? &instructions[low]
                                                                             : nullptr;
  }
};

}  // namespace skidproof

#endif  // SKIDPROOF_KERNELS_PROGRAM_H_
