// Real-address mode on an interpreter of 32-bit code.
#ifndef SKIDPROOF_PEBS_ENGINES_REAL_MODE_H_
#define SKIDPROOF_PEBS_ENGINES_REAL_MODE_H_

#include "base/expected.h"
#include "kernels/program.h"

namespace skidproof::engines {

// Whether a program's code does in real-address mode what it does as 32-bit code, so that the one
// interpreter serves both: every instruction has the same bytes and name with 16-bit and 32-bit
// defaults, and none has a memory operand but the near return. Registers keep to their lower 16 bits
// if the program's values do; the caller sees to that. Segments and the 1 MiB limit are not modelled:
// the code stands where 32-bit code does. kNotAvailable, with the instruction, when it does not.
Expected<void> check_real_mode(const Program& program);

}  // namespace skidproof::engines

#endif  // SKIDPROOF_PEBS_ENGINES_REAL_MODE_H_
