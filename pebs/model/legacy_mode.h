// Records outside IA-32e mode (R59): 32-bit values in 64-bit fields, and registers that do not exist.
#ifndef SKIDPROOF_PEBS_MODEL_LEGACY_MODE_H_
#define SKIDPROOF_PEBS_MODEL_LEGACY_MODE_H_

#include "base/random.h"
#include "pebs/model/assist.h"
#include "pebs/model/behaviour.h"
#include "pebs/model/retired.h"

namespace skidproof::model {

// Arbitrary contents of every register.
Registers any_registers(Random& random);

// Makes of the processor's state what a record of 32-bit code holds. `left` is what 64-bit code left
// in the upper halves and in R8 to R15; only a defect lets it be seen.
void outside_ia32e(const Behaviour& behaviour, const Registers& left, Registers& registers,
                   RecordData& data);

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_LEGACY_MODE_H_
