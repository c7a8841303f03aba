// Instructions per second of the interpreter over typical kernels: bare, with the core model, and one
// step at a time.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "kernels/kernel.h"
#include "pebs/arch/microarch.h"
#include "pebs/engines/guest_memory.h"
#include "pebs/engines/interpreter.h"
#include "pebs/model/core.h"

namespace skidproof::engines {
namespace {

template <typename T>
T must(Expected<T> value) {
  if (value) return std::move(value).value();
  fmt::print(stderr, "{}\n", value.error().text());
  std::abort();
}

// A kernel in guest memory with everything that executes it.
struct Bench {
  Bench(const char* kernel_name, const char* parameters, Accounting accounting)
      : memory(must(GuestMemory::create())),
        kernel(*must(find_kernel(kernel_name))),
        params(must(Params::parse(kernel.parameters, parameters))),
        microarch(*must(arch::find_microarch("sandy-bridge"))),
        core(microarch.caches, 1),
        interpreter(*memory, core, microarch, accounting) {
    code = must(memory->allocate(1 << 20, MemoryUse::kCode, false));
    size_t bytes = kernel.data_bytes != nullptr ? kernel.data_bytes(params) : 0;
    data = must(memory->allocate(std::max<size_t>(bytes, 4096), MemoryUse::kData, false));
    stack = must(memory->allocate(64 << 10, MemoryUse::kData, false));
    Placement placement{.code_address = code.address, .data_address = data.address};
    program = must(generate(kernel, params, placement));
    if (kernel.fill != nullptr)
      kernel.fill(params, data.host.first(bytes), data.address, placement.seed);
    if (!interpreter.load(program)) std::abort();
  }
  void call(uint64_t iterations) {
    interpreter.call(program.entry, iterations, data.address, stack.address + stack.host.size());
  }

  std::unique_ptr<GuestMemory> memory;
  const Kernel& kernel;
  Params params;
  const arch::Microarch& microarch;
  model::Core core;
  Interpreter interpreter;
  Memory code, data, stack;
  Program program;
};

enum class Way { kRun, kStep };

void execute(benchmark::State& state, const char* kernel, const char* parameters,
             Accounting accounting, Way way) {
  Bench bench(kernel, parameters, accounting);
  const uint64_t per_iteration = std::max<uint64_t>(bench.program.per_iteration.instructions, 1);
  const uint64_t iterations = (way == Way::kRun ? 4'000'000 : 100'000) / per_iteration + 1;
  uint64_t instructions = 0;
  model::Retired retired;
  for (auto _ : state) {
    bench.call(iterations);
    while (!bench.interpreter.finished()) {
      if (way == Way::kRun) {
        instructions += must(bench.interpreter.run(1 << 20));
      } else {
        if (!bench.interpreter.step(retired)) std::abort();
        ++instructions;
      }
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(instructions));
}

struct Subject {
  const char* name;
  const char* kernel;
  const char* parameters;
};
constexpr Subject kSubjects[] = {
    {"chase_1MiB", "pointer_chase", "bytes=1M"},
    {"chase_16KiB", "pointer_chase", "bytes=16K"},
    {"store_stream", "store_stream", ""},
    {"store_stream_1MiB", "store_stream", "stride=8,window=1M,unroll=8"},
    {"alu_fused_branch", "fused_branch", ""},
    {"straight_line_4000", "straight_line", "instructions=4000"},
};

void register_all() {
  for (const Subject& s : kSubjects) {
    auto add = [&](const char* mode, Accounting accounting, Way way) {
      benchmark::RegisterBenchmark(fmt::format("{}/{}", s.name, mode).c_str(), execute, s.kernel,
                                   s.parameters, accounting, way);
    };
    add("bare", Accounting::kBare, Way::kRun);
    add("core", Accounting::kCore, Way::kRun);
    add("step", Accounting::kCore, Way::kStep);
  }
}

}  // namespace
}  // namespace skidproof::engines

int main(int argc, char** argv) {
  skidproof::engines::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 64;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
