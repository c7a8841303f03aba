// What an earlier `characterize` found of a machine's caches and TLBs.
#ifndef SKIDPROOF_HARNESS_CLI_MEASURED_SHAPE_H_
#define SKIDPROOF_HARNESS_CLI_MEASURED_SHAPE_H_

#include <string>

#include "base/expected.h"
#include "harness/cli/machines.h"
#include "pebs/footprint.h"

namespace skidproof::cli {

// From its result file; what was not clear stays unknown. Errors: kIo, kPermission where the file cannot be read;
// kInvalidArgument where it has no shape, or that of another processor (provenance, vendor, family and model differ: a
// stepping or a microcode has the caches of its like).
Expected<MachineShape> measured_shape(const std::string& path, const OpenMachine& machine);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_MEASURED_SHAPE_H_
