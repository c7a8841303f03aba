// What this computer offers and what stands in the way, each with the command that mends it.
#ifndef SKIDPROOF_HARNESS_CLI_HOST_H_
#define SKIDPROOF_HARNESS_CLI_HOST_H_

#include <vector>

#include "harness/cli/findings.h"

namespace skidproof::cli {

// Sections "processor", "machines", "timing", "driver", "tools".
std::vector<Finding> examine_host();

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_HOST_H_
