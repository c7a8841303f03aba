// What every machine asks that executes programs on the CPU in front of us.
#ifndef SKIDPROOF_KERNELS_JIT_EXECUTABLE_H_
#define SKIDPROOF_KERNELS_JIT_EXECUTABLE_H_

#include "base/expected.h"
#include "kernels/program.h"

namespace skidproof {

// Whether this CPU can take the program where it was placed. `code_held`: its code lies in a code block
// of the machine; `data_held`: its data lie in some block. Errors: kUnsupported for an instruction set
// that is missing, kInvalidArgument for a place that is wrong.
Expected<void> check_executable(const Program& program, bool code_held, bool data_held);

}  // namespace skidproof

#endif  // SKIDPROOF_KERNELS_JIT_EXECUTABLE_H_
