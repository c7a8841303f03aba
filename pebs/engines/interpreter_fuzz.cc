// Arbitrary bytes as a program: the engine executes them or refuses, and never touches what is not the
// guest's. Runs and steps must agree on the way.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "pebs/arch/microarch.h"
#include "pebs/engines/guest_memory.h"
#include "pebs/engines/interpreter.h"
#include "pebs/model/core.h"

namespace {

using namespace skidproof;
using engines::GuestMemory;
using engines::Interpreter;

// One guest with the bytes loaded, executed by runs (true) or steps (false) of a few instructions.
struct Guest {
  std::unique_ptr<GuestMemory> memory = GuestMemory::create(GuestMemory::kBase, 64 << 20).value();
  Memory code = memory->allocate(8192, MemoryUse::kCode, false).value();
  Memory data = memory->allocate(4096, MemoryUse::kData, false).value();
  Memory stack = memory->allocate(4096, MemoryUse::kData, false).value();
  const arch::Microarch& uarch = **arch::find_microarch("sandy-bridge");
  model::Core core{uarch};
  Interpreter interpreter{*memory, core, uarch};

  bool start(const uint8_t* bytes, size_t size) {
    Program program;
    program.kernel = "fuzz";
    program.code.resize(size);
    std::memcpy(program.code.data(), bytes, size);
    program.code_address = program.entry = code.address;
    if (!interpreter.load(program)) return false;
    interpreter.call(program.entry, 3, data.address, stack.address + stack.host.size());
    return true;
  }
};

constexpr uint64_t kInstructions = 2000;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size == 0 || size > 4096) return 0;
  Guest runs, steps;
  if (!runs.start(bytes, size) || !steps.start(bytes, size)) return 0;
  uint64_t executed = 0;
  bool failed = false;
  while (executed < kInstructions && !runs.interpreter.finished()) {
    auto some = runs.interpreter.run(7);
    if (!some) {
      failed = true;
      break;
    }
    executed += *some;
  }
  model::Retired retired;
  for (uint64_t i = 0; i < executed; ++i) {
    if (!steps.interpreter.step(retired)) std::abort();  // run() got past this instruction
  }
  if (failed) return 0;
  if (steps.interpreter.registers().gpr != runs.interpreter.registers().gpr) std::abort();
  if (steps.core.totals() != runs.core.totals()) std::abort();
  return 0;
}
