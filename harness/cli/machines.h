// Machines by their command-line names, and what keeps this computer from being the direct one.
#ifndef SKIDPROOF_HARNESS_CLI_MACHINES_H_
#define SKIDPROOF_HARNESS_CLI_MACHINES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "harness/check/check.h"
#include "harness/cli/obstacles.h"
#include "harness/cli/perfmon_folder.h"
#include "harness/run/cpu_choice.h"
#include "pebs/arch/microarch.h"
#include "pebs/arch/part.h"
#include "pebs/machine.h"
#include "pebs/tape/reader.h"
#include "results/row.h"

namespace skidproof::cli {

struct MachineOptions {
  // auto, direct, native, model:<microarch>[+<defect>…][~<rough>], tape:FILE
  std::string name = "auto";
  bool sibling_thread = true;        // of a model's core
  std::vector<std::string> defects;  // of a model
  std::string rough;                 // of a model: a seed, or FIELD=VALUE,…; empty: noiseless
  CpuWish cpu = {};                  // which one of this computer's `direct` claims
  std::string part;                  // of a model: which of its row's, "06_2D_7"; empty: the first
  std::string microcode;             // of a model: its revision, "0x28"; empty: the part's own
  std::string perfmon;               // folder whose event list is taken; empty: the built-in list
};

// A machine that answered, and the source that hands it to tests.
struct OpenMachine {
  // The identity's row, where its event list was read at run time; outlives the machine.
  RenewedRow renewed = {};
  Identity identity;
  std::unique_ptr<check::MachineSource> source;
  std::vector<std::string> defects;  // armed in it
  std::string rough;                 // what of it is rough, as the user said it
  std::string why;                   // how `auto` chose; empty otherwise
  // What whoever reads the results must know of the processor: where it differs from its row, and
  // microcode that is too old.
  std::vector<std::string> notes;
  std::shared_ptr<const tape::TapeReader> tape = {};  // that is replayed; nullptr: none is
};

// Errors: kInvalidArgument for a name, microarch or defect that does not exist (with near ones), an
// option that the machine does not take, or an event list that is not as it should be; kNotAvailable with every reason
// where this computer cannot; kIo for a damaged tape.
Expected<OpenMachine> open_machine(const MachineOptions& options, uint64_t seed);

// The processor of a row that a model plays if it is told nothing else.
arch::Part first_part(const arch::Microarch& microarch);

inline constexpr char kDevice[] = "/dev/skidproof";

// In the order in which they matter; empty where `direct` works on the CPU that the wish chooses.
std::vector<Obstacle> direct_obstacles(const CpuWish& wish = {});
// That its microcode is below the oldest whose PEBS is to be trusted; empty where it is not, or not
// known.
std::string microcode_note(const Identity& who);

// The forms a machine can take, for lists.
std::vector<std::string> machine_names();

results::MachineRow machine_row(const OpenMachine& machine);

// "MODEL of Sandy Bridge, not silicon", "broken MODEL of …"; for silicon its brand.
std::string in_words(const OpenMachine& machine);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_MACHINES_H_
