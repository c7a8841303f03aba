#include "harness/run/cpu_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/run/native_identity.h"
#include "harness/run/pinning.h"
#include "pebs/arch/enumeration.h"
#include "pebs/capabilities.h"

namespace skidproof {
namespace {

// "0 to 7", "0, 2".
std::string numbers(std::span<const HostCpu> cpus) {
  const bool in_a_row = cpus.size() > 2 && cpus.back().number - cpus.front().number ==
                                               static_cast<int>(cpus.size()) - 1;
  if (in_a_row) return fmt::format("{} to {}", cpus.front().number, cpus.back().number);
  std::vector<int> all;
  for (const HostCpu& each : cpus) all.push_back(each.number);
  return fmt::format("{}", fmt::join(all, ", "));
}

std::vector<HostCpu> of_type(std::span<const HostCpu> cpus, arch::CoreType core) {
  std::vector<HostCpu> found;
  for (const HostCpu& each : cpus) {
    if (each.core == core) found.push_back(each);
  }
  return found;
}

}  // namespace

std::string letter_of(arch::CoreType core) {
  switch (core) {
    case arch::CoreType::kCore:
      return "P";
    case arch::CoreType::kAtom:
      return "E";
    case arch::CoreType::kUnstated:
      break;
  }
  return {};
}

Expected<std::vector<HostCpu>> host_cpus() {
  std::vector<HostCpu> cpus;
  for (int number : SKIDPROOF_TRY(allowed_cpus())) cpus.push_back({.number = number});
  const bool hybrid = (host_cpuid(arch::cpuid::kFeatures, 0).edx & arch::cpuid::kHybrid) != 0;
  if (!hybrid) return cpus;
  for (HostCpu& each : cpus) {
    const PinGuard there = SKIDPROOF_TRY(PinGuard::pin(each.number));
    each.core = core_type_of(host_cpuid);
  }
  return cpus;
}

Expected<HostCpu> choose_cpu(std::span<const HostCpu> cpus, const CpuWish& wish) {
  if (cpus.empty()) return fail(ErrorCode::kInternal, "no CPU is allowed to this process");
  std::vector<HostCpu> fitting(cpus.begin(), cpus.end());
  if (!wish.core.empty()) {
    fitting = of_type(cpus, wish.core == "E" ? arch::CoreType::kAtom : arch::CoreType::kCore);
    if (fitting.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("none of the CPUs {} is a {}-core", numbers(cpus), wish.core),
                  "leave --core away: CPUID.07H:EDX[15] tells which parts have several types");
    }
  }
  if (wish.cpu) {
    for (const HostCpu& each : fitting) {
      if (each.number == *wish.cpu) return each;
    }
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("CPU {} is not one that this process may run on{}", *wish.cpu,
                            wish.core.empty() ? "" : " and of that type"),
                fmt::format("there are: {}", numbers(fitting)));
  }
  if (wish.core.empty()) {
    std::vector<HostCpu> performance = of_type(fitting, arch::CoreType::kCore);
    if (!performance.empty()) fitting = std::move(performance);
  }
  return fitting.back();
}

}  // namespace skidproof
