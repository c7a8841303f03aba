// What the program really does, instruction by instruction: executed one at a time without any PMU, and
// read out of the instructions' bytes.
#ifndef SKIDPROOF_HARNESS_FUZZ_TRACE_H_
#define SKIDPROOF_HARNESS_FUZZ_TRACE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/expected.h"
#include "kernels/program.h"
#include "pebs/arch/microarch.h"
#include "pebs/arch/record_layout.h"

namespace skidproof::fuzz {

// One instruction of the program, as its bytes say.
struct StaticInstruction {
  uint64_t address = 0;  // as the machine under test sees it
  uint8_t length = 0;
  Flow flow = Flow::kNone;
  bool loads = false, stores = false, locked = false, nop = false;
  bool fuses = false;  // first of a pair that this microarch fuses (R64 to R69)
};

// A data access as the machine under test sees it. The machine's stack is its own, so that accesses to
// it are known relative to the RSP of the call only.
struct DataAccess {
  bool valid = false;
  bool stack = false;
  uint64_t address = 0;  // or the distance from RSP at entry, modulo 2^64
};

// One retired instruction and the state after it.
struct Retirement {
  uint32_t instruction = 0;  // index of the static list
  bool taken = false;        // control left for elsewhere than the next address
  uint64_t next_ip = 0;      // in the machine's address space; 0: back to the machine's own code
  std::array<uint64_t, arch::kGprs> gpr{};  // RSP: its distance from RSP at entry
  uint64_t flags = 0;
  DataAccess load, store;
};

// How often an instruction causes an event; empty where that depends on more than the instruction:
// caches, predictors, cycles, or a part of the processor that programs here do not use.
std::optional<unsigned> events_of(arch::Signal signal, const StaticInstruction& instruction,
                                  bool taken);
// Whether events_of() knows the signal at all.
bool architectural(arch::Signal signal);

struct Trace {
  std::vector<StaticInstruction> code;
  std::vector<Retirement> retired;

  const StaticInstruction& at(size_t position) const { return code[retired[position].instruction]; }
};

// Executes programs the way the machine under test does: one after the other on the same data.
class Tracer {
 public:
  // Errors: kNoMemory.
  static Expected<std::unique_ptr<Tracer>> create(const arch::Microarch& microarch);
  virtual ~Tracer() = default;

  // Takes a program for the machine under test, and the data that it finds there. The code must not
  // depend on where it stands, and must not copy RSI or RSP.
  virtual Expected<void> load(const Program& program, std::span<const std::byte> data) = 0;
  // One run. The trace is valid until the next call. Errors: kExecution, kUnsupported from the engine;
  // kInvalidArgument for a run of more than kMaximumTrace instructions.
  virtual Expected<const Trace*> run(uint64_t iterations) = 0;
};

}  // namespace skidproof::fuzz

#endif  // SKIDPROOF_HARNESS_FUZZ_TRACE_H_
