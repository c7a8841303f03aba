#include "harness/calibrate/placed_program.h"

#include <utility>

#include "kernels/kernel.h"

namespace skidproof::calibrate {
namespace {

// A loop and its frame fit; unrolled kernels ask again with what they turned out to need.
constexpr size_t kFirstCodeBytes = 16 << 10;

}  // namespace

Expected<PlacedProgram> place_program(Machine& machine, std::string_view kernel_name,
                                      std::string_view parameters, uint64_t seed) {
  const Kernel& kernel = *SKIDPROOF_TRY(find_kernel(kernel_name));
  const Params params = SKIDPROOF_TRY(Params::parse(kernel.parameters, parameters));
  PlacedProgram placed;
  Placement placement{.seed = seed};
  const size_t data_bytes = kernel.data_bytes == nullptr ? 0 : kernel.data_bytes(params);
  if (data_bytes != 0) {
    placed.data = SKIDPROOF_TRY(machine.allocate({.bytes = data_bytes, .use = MemoryUse::kData}));
    placement.data_address = placed.data.address;
    if (kernel.fill != nullptr) {
      kernel.fill(params, placed.data.host.first(data_bytes), placed.data.address, seed);
    }
  }
  for (size_t bytes = kFirstCodeBytes;;) {
    placed.code = SKIDPROOF_TRY(machine.allocate({.bytes = bytes, .use = MemoryUse::kCode}));
    placement.code_address = placed.code.address;
    placed.program = SKIDPROOF_TRY(generate(kernel, params, placement));
    bytes = placed.program.code.size();
    if (bytes <= placed.code.host.size()) return placed;
  }
}

}  // namespace skidproof::calibrate
