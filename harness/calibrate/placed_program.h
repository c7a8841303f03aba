// A kernel's program in memory of its own on a machine.
#ifndef SKIDPROOF_HARNESS_CALIBRATE_PLACED_PROGRAM_H_
#define SKIDPROOF_HARNESS_CALIBRATE_PLACED_PROGRAM_H_

#include <cstdint>
#include <string_view>

#include "base/expected.h"
#include "kernels/program.h"
#include "pebs/machine.h"

namespace skidproof::calibrate {

struct PlacedProgram {
  Program program;
  Memory code;
  Memory data;  // empty where the kernel has none
};

// Generates a registered kernel's program of 64-bit mode for blocks that the machine allocates, and fills
// its data. `parameters` is "key=value,…". Errors: those of the kernel's parameters, of the machine's
// memory, and of generation.
Expected<PlacedProgram> place_program(Machine& machine, std::string_view kernel,
                                      std::string_view parameters, uint64_t seed);

}  // namespace skidproof::calibrate

#endif  // SKIDPROOF_HARNESS_CALIBRATE_PLACED_PROGRAM_H_
