// How many programs are generated in a second.
#include <benchmark/benchmark.h>

#include "kernels/kernel.h"

namespace skidproof {
namespace {

void generate_programs(benchmark::State& state, const char* name, const char* parameters) {
  auto kernel = find_kernel(name);
  if (!kernel) return state.SkipWithError(kernel.error().message.c_str());
  auto params = Params::parse((*kernel)->parameters, parameters);
  if (!params) return state.SkipWithError(params.error().message.c_str());
  const Placement placement{.code_address = 0x10000000, .data_address = 0x20000000};
  int64_t instructions = 0;
  for (auto _ : state) {
    auto program = generate(**kernel, *params, placement);
    if (!program) return state.SkipWithError(program.error().message.c_str());
    instructions += static_cast<int64_t>(program->instructions.size());
    benchmark::DoNotOptimize(program->code.data());
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["instructions"] =
      benchmark::Counter(static_cast<double>(instructions), benchmark::Counter::kIsRate);
}

BENCHMARK_CAPTURE(generate_programs, empty, "empty", "");
BENCHMARK_CAPTURE(generate_programs, pointer_chase, "pointer_chase", "");
BENCHMARK_CAPTURE(generate_programs, fused_branch, "fused_branch", "");
BENCHMARK_CAPTURE(generate_programs, mixed, "mixed", "");
BENCHMARK_CAPTURE(generate_programs, straight_line_4000, "straight_line", "instructions=4000");

}  // namespace
}  // namespace skidproof

BENCHMARK_MAIN();
