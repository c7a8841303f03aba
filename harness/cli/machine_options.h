// The options by which verbs choose what a model plays, and which CPU `direct` claims.
#ifndef SKIDPROOF_HARNESS_CLI_MACHINE_OPTIONS_H_
#define SKIDPROOF_HARNESS_CLI_MACHINE_OPTIONS_H_

#include "harness/cli/machines.h"

namespace skidproof::cli {

class Command;

// --defect, --rough, --cpu, --core, --part, --microcode, --sibling and --no-sibling.
void add_model_and_cpu(Command verb, MachineOptions& machine);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_MACHINE_OPTIONS_H_
