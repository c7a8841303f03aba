// Runs one kernel on this CPU, nothing around it: what other tools (a profiler, a simulator) can be put
// in front of when they are compared with the model machine on the same bytes.
//
//   native_kernel KERNEL PARAMETERS ITERATIONS [CALLS]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "harness/run/native_machine.h"
#include "kernels/kernel.h"

namespace skidproof {
namespace {

Expected<uint64_t> run(const std::string& name, const std::string& text, uint64_t iterations,
                       uint64_t calls) {
  const Kernel* kernel = SKIDPROOF_TRY(find_kernel(name));
  Params params = SKIDPROOF_TRY(Params::parse(kernel->parameters, text));
  std::unique_ptr<NativeMachine> machine = SKIDPROOF_TRY(NativeMachine::create());
  Memory code =
      SKIDPROOF_TRY(machine->allocate({.bytes = size_t{1} << 20, .use = MemoryUse::kCode}));
  size_t bytes = kernel->data_bytes != nullptr ? kernel->data_bytes(params) : 0;
  Memory data = SKIDPROOF_TRY(machine->allocate({.bytes = std::max<size_t>(bytes, 4096)}));
  Program program = SKIDPROOF_TRY(generate(*kernel, params, {code.address, data.address, 1}));
  SKIDPROOF_CHECK(prepare_data(*kernel, params, program, data.host, 1));
  for (uint64_t i = 0; i < calls; ++i) {
    SKIDPROOF_TRY(machine->run(program, {.iterations = iterations}));
  }
  return calls * program.total(iterations).instructions;
}

}  // namespace
}  // namespace skidproof

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: native_kernel KERNEL PARAMETERS ITERATIONS [CALLS]\n");
    return 64;
  }
  uint64_t calls = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 1;
  auto instructions = skidproof::run(argv[1], argv[2], std::strtoull(argv[3], nullptr, 10), calls);
  if (!instructions) {
    fmt::print(stderr, "error: {}\n", instructions.error().text());
    return 2;
  }
  fmt::print("{}\n", *instructions);
  return 0;
}
