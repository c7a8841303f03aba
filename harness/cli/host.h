// What this computer offers and what stands in the way, each with the command that mends it.
#ifndef SKIDPROOF_HARNESS_CLI_HOST_H_
#define SKIDPROOF_HARNESS_CLI_HOST_H_

#include <string>
#include <vector>

namespace skidproof::cli {

enum class Health { kGood, kNote, kBad };  // kNote: works, with a loss that `mend` takes away
const char* name_of(Health health);        // "good", "note", "bad"

struct Finding {
  std::string section;  // "processor", "machines", "timing", "driver", "tools"
  std::string name;
  Health health = Health::kGood;
  std::string value;
  std::string mend;  // a command or an action; empty when nothing needs mending
};

std::vector<Finding> examine_host();

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_HOST_H_
