// The direct machine: the processor in front of us through the Linux driver.
#ifndef SKIDPROOF_PEBS_DIRECT_DIRECT_MACHINE_H_
#define SKIDPROOF_PEBS_DIRECT_DIRECT_MACHINE_H_

#include <functional>
#include <memory>

#include "base/expected.h"
#include "pebs/direct/claim.h"
#include "pebs/direct/device.h"
#include "pebs/machine.h"
#include "pebs/undisturbed.h"

namespace skidproof::direct {

struct DirectOptions {
  int cpu = 0;           // the logical processor to claim
  int sibling_cpu = -1;  // the other one of its core, if it is online; -1: none
  Identity host;         // of that processor, as far as user space knows it
  // CPUID as that processor answers it.
  std::function<Machine::CpuidResult(uint32_t leaf, uint32_t subleaf)> cpuid;
  WhoHolds who = {};  // asked where the claim is refused
  bool dry_run =
      false;  // also where the driver was loaded with dry_run=1: programs run, nothing counts
  int attempts =
      kUndisturbedAttempts;  // of a run that SMIs, machine checks or foreign NMIs disturb
};

// Claims the processor for as long as the machine lives. Programs run at ring 0 or ring 3 in 64-bit
// mode with interrupts off, at the same addresses. One thread uses it at a time.
//
// A run that was disturbed is repeated, where its plan restarts the PMU, with the debug store as it was
// before: Noise::repeats counts. What still disturbed the last one stands there as well.
//
// Errors of create(): kNotAvailable and kPermission with what mends it.
Expected<std::unique_ptr<Machine>> make_direct_machine(std::shared_ptr<Device> device,
                                                       const DirectOptions& options);

// The hypervisor's signature by which a virtual lab is told from silicon.
inline constexpr char kVirtualLab[] = "SkidproofLab";

}  // namespace skidproof::direct

#endif  // SKIDPROOF_PEBS_DIRECT_DIRECT_MACHINE_H_
