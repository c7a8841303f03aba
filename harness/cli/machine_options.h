// The options by which verbs choose what a model plays, and which CPU `direct` claims.
#ifndef SKIDPROOF_HARNESS_CLI_MACHINE_OPTIONS_H_
#define SKIDPROOF_HARNESS_CLI_MACHINE_OPTIONS_H_

#include <string>

#include "harness/cli/machines.h"

namespace skidproof::cli {

class Command;

// --defect, --rough, --cpu, --core, --part, --microcode, --sibling and --no-sibling. `cpu`: what --cpu chooses, where
// it is not only what `direct` claims.
void add_model_and_cpu(Command verb, MachineOptions& machine, const std::string& cpu = "");

// --perfmon.
void add_perfmon(Command verb, std::string& folder);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_MACHINE_OPTIONS_H_
