// Who else uses the performance monitoring of this computer: processes by number and command, the NMI
// watchdog, hypervisors.
#ifndef SKIDPROOF_HARNESS_CLI_PMU_USERS_H_
#define SKIDPROOF_HARNESS_CLI_PMU_USERS_H_

#include <string>
#include <vector>

#include "harness/cli/kernel_files.h"
#include "pebs/direct/driver/skidproof_uapi.h"

namespace skidproof::cli {

struct Process {
  int pid = 0;
  std::string command;
};
// "process 812 (perf)", "processes 812 (perf), 901 (perf)"; of more than four how many more.
std::string named(const std::vector<Process>& processes);
// "process 812 (perf) runs a guest", "processes 812 (perf), 901 (perf) run guests"; empty of none.
std::string doing(const std::vector<Process>& processes, const char* one, const char* several);
// A process by its number; without a command where it has gone.
Process process_at(const Tree& tree, int pid);

// Who uses what the driver wants for itself.
struct PmuUsers {
  std::vector<Process> perf;    // have perf events open
  std::vector<Process> traces;  // of those, map the buffer of a hardware trace
  std::vector<Process> guests;  // run a virtual machine of KVM's
  bool all_seen = true;         // false: some processes could not be looked into
  bool nmi_watchdog = false;
  bool kvm_intel = false;                // the module is there
  bool vmx_always = false;               // CR4.VMXE is set from its load on, with or without guests
  std::vector<std::string> hypervisors;  // modules of others that are there
};
PmuUsers find_pmu_users(const Tree& tree);

// Who holds what this claim was refused for; empty where nobody is found.
std::string holder_of(const skidproof_claim& claim, const Tree& tree);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_PMU_USERS_H_
