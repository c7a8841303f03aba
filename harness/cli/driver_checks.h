// What can go wrong with the driver at the first contact with a computer, in the order in which it is
// best looked at. Nothing here writes a register; only try_driver() speaks to the driver, and only where
// that was loaded with dry_run=1.
#ifndef SKIDPROOF_HARNESS_CLI_DRIVER_CHECKS_H_
#define SKIDPROOF_HARNESS_CLI_DRIVER_CHECKS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/expected.h"
#include "harness/cli/findings.h"
#include "harness/cli/kernel_files.h"
#include "harness/cli/obstacles.h"
#include "pebs/direct/device.h"
#include "pebs/machine.h"

namespace skidproof::cli {

// The computer that is looked at, and the CPU of it that `direct` would claim.
struct DriverSubject {
  Tree tree;
  int cpu = 0;
  Identity who;        // of that CPU
  Cpuid cpuid;         // as it answers
  std::string module;  // path of the driver that was built in this tree; empty: none was
  // Opens the device. Without it the driver is asked nothing, as where the tree is a copy.
  std::function<Expected<std::shared_ptr<direct::Device>>()> open = {};
};

// How far the driver is on its way.
enum class DriverState : uint8_t { kAbsent, kBuilt, kLoaded, kDry, kClaimed, kEntered };

struct DriverReport {
  std::vector<Finding> findings;
  DriverState state = DriverState::kAbsent;
  bool installed = false;  // where modprobe finds it

  bool bad() const;
};

// From the kernel's files and CPUID alone; the device is opened at the most for its version.
DriverReport check_driver(const DriverSubject& subject);

// What the driver says: claims the CPU and gives it back, and with `enter` also runs a program at ring 0
// and one at ring 3, with nothing armed. Before each `next` is told what comes, so that a hang has a name. Does
// nothing unless the state is kDry.
void try_driver(const DriverSubject& subject, bool enter,
                const std::function<void(const std::string&)>& next, DriverReport& report);

// The command that comes next in docs/first_night.md.
std::string next_step(const DriverReport& report, int cpu);

// Findings that `doctor` has as well.
void judge_secure_boot(Findings& found, bool on);
void judge_lockdown(Findings& found, const std::string& file);

// A copy of another computer's files, for the same checks: proc, sys and lib/modules of a folder, and cpuid.txt
// there, as `cpuid -1 -r` prints it. kInvalidArgument where the folder has no /proc/cpuinfo.
Expected<DriverSubject> subject_in(const std::string& folder, int cpu);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_DRIVER_CHECKS_H_
