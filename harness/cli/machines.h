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
#include "pebs/machine.h"
#include "results/row.h"

namespace skidproof::cli {

struct MachineOptions {
  std::string name = "auto";         // auto, direct, native, model:<microarch>[+<defect>…]
  bool sibling_thread = true;        // of a model's core
  std::vector<std::string> defects;  // of a model
};

// A machine that answered, and the source that hands it to tests.
struct OpenMachine {
  Identity identity;
  std::unique_ptr<check::MachineSource> source;
  std::vector<std::string> defects;  // armed in it
  std::string why;                   // how `auto` chose; empty otherwise
};

// Errors: kInvalidArgument for a name, microarch or defect that does not exist (with near ones) or an
// option that the machine does not take; kNotAvailable with every reason where this computer cannot.
Expected<OpenMachine> open_machine(const MachineOptions& options, uint64_t seed);

inline constexpr char kDevice[] = "/dev/skidproof";

// What there is of the driver for the running kernel.
struct DriverFile {
  std::string installed;  // its path, where depmod knows it; else empty
  std::string headers;    // where the kernel's headers belong
  bool headers_present = false;
  bool modules_possible = false;
  bool secure_boot = false;
};
DriverFile driver_file();
// Why there is no device, and what mends that.
struct Obstacle;
Obstacle driver_missing();

// Something that keeps direct access from working.
struct Obstacle {
  std::string what;  // "no /dev/skidproof"
  std::string mend;  // what to do
};
// In the order in which they matter; empty where `direct` works.
std::vector<Obstacle> direct_obstacles();

// The forms a machine can take, for lists.
std::vector<std::string> machine_names();

results::MachineRow machine_row(const OpenMachine& machine);

// "MODEL of Sandy Bridge, not silicon", "broken MODEL of …"; for silicon its brand.
std::string in_words(const OpenMachine& machine);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_MACHINES_H_
