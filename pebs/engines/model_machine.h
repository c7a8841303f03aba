// The model machine: the modelled PMU and core behind the Machine interface, executing the same
// bytes.
#ifndef SKIDPROOF_PEBS_ENGINES_MODEL_MACHINE_H_
#define SKIDPROOF_PEBS_ENGINES_MODEL_MACHINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/expected.h"
#include "pebs/machine.h"

namespace skidproof::engines {

struct ModelOptions {
  bool sibling_thread = true;        // a second logical processor on the core (R37)
  std::vector<std::string> defects;  // ids; each must apply to the microarch
  uint64_t seed = 1;
};

// A powered-on processor of this microarch. Named "model:<microarch>", with "+<defect>" for each
// defect, so that no result of a broken CPU is taken for one of a conforming one. Errors:
// kInvalidArgument for a defect that is unknown or does not apply; kNoMemory.
Expected<std::unique_ptr<Machine>> make_model_machine(const arch::Microarch& microarch,
                                                      const ModelOptions& options);

}  // namespace skidproof::engines

#endif  // SKIDPROOF_PEBS_ENGINES_MODEL_MACHINE_H_
