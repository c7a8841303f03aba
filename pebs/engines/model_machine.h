// The model machine: the modelled PMU and core behind the Machine interface, executing the same
// bytes.
#ifndef SKIDPROOF_PEBS_ENGINES_MODEL_MACHINE_H_
#define SKIDPROOF_PEBS_ENGINES_MODEL_MACHINE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/expected.h"
#include "pebs/arch/part.h"
#include "pebs/engines/journal.h"
#include "pebs/machine.h"
#include "pebs/model/rough.h"

namespace skidproof::engines {

// Another machine's circumstances, so that what runs there runs here in the same: where memory stands, and what a
// driver executes around a program and in its interrupt handler while the counters run.
struct Circumstances {
  std::vector<uint64_t>
      blocks;              // addresses of the blocks to come, in the order of their allocation
  uint64_t stack_top = 0;  // RSP before the program's return address is pushed
  uint64_t return_address = 0;
  lab::Journal driver;
};

struct ModelOptions {
  bool sibling_thread = true;        // a second logical processor on the core (R37)
  std::vector<std::string> defects;  // ids; each must apply to the microarch
  std::string rough;                 // a seed or FIELD=VALUE,… (model/rough.h); empty: noiseless
  uint64_t seed = 1;
  // Which of the row's processors CPUID.1 names, with which microcode; nullopt: the row's first.
  std::optional<arch::Part> part = {};
  // For one run, of a program of 64-bit mode at ring 0; empty: memory as it comes, and no driver.
  std::shared_ptr<const Circumstances> circumstances = {};
};

// A powered-on processor of this microarch. Named "model:<microarch>", with "+<defect>" for each
// defect and "~<rough>" for a rough one, so that no result of a broken CPU is taken for one of a
// conforming one. Errors: kInvalidArgument for a defect that is unknown or does not apply, or a rough
// field out of range; kNoMemory.
Expected<std::unique_ptr<Machine>> make_model_machine(const arch::Microarch& microarch,
                                                      const ModelOptions& options);

}  // namespace skidproof::engines

#endif  // SKIDPROOF_PEBS_ENGINES_MODEL_MACHINE_H_
