// Handlers of ADD … TEST, INC and DEC: the part of select_integer that makes most of the code.
#ifndef SKIDPROOF_PEBS_ENGINES_ARITHMETIC_OPERATIONS_H_
#define SKIDPROOF_PEBS_ENGINES_ARITHMETIC_OPERATIONS_H_

#include "pebs/engines/operation.h"

namespace skidproof::engines {

// Null when the instruction is none of them.
Handler select_arithmetic(const model::Decoded& decoded, const Selection& selection);

}  // namespace skidproof::engines

#endif  // SKIDPROOF_PEBS_ENGINES_ARITHMETIC_OPERATIONS_H_
