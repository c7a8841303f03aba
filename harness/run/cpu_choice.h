// Which logical CPU is claimed where the user may have several: by number, by the type of its core, or
// the one that is best for measuring.
#ifndef SKIDPROOF_HARNESS_RUN_CPU_CHOICE_H_
#define SKIDPROOF_HARNESS_RUN_CPU_CHOICE_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/expected.h"
#include "pebs/arch/microarch.h"

namespace skidproof {

// What the user asked for.
struct CpuWish {
  std::optional<int> cpu = {};  // its number
  std::string core = {};        // "P" or "E"; empty: any

  bool any() const { return !cpu && core.empty(); }
};

struct HostCpu {
  int number = 0;
  arch::CoreType core = arch::CoreType::kUnstated;  // on hybrid parts
};

// The CPUs that this thread may run on, ascending. On a hybrid part each is asked for its type, on
// itself.
Expected<std::vector<HostCpu>> host_cpus();

// The one that fits the wish: the highest, since the lowest takes most interrupts, and on hybrid parts
// a P-core unless the wish says otherwise. kInvalidArgument where none fits, with those that there are.
Expected<HostCpu> choose_cpu(std::span<const HostCpu> cpus, const CpuWish& wish);

// "P", "E", or empty for a core whose type CPUID does not tell.
std::string letter_of(arch::CoreType core);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_RUN_CPU_CHOICE_H_
