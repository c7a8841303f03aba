// What keeps this computer from being the direct machine, one by one.
#ifndef SKIDPROOF_HARNESS_CLI_OBSTACLES_H_
#define SKIDPROOF_HARNESS_CLI_OBSTACLES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/expected.h"
#include "harness/cli/kernel_files.h"
#include "pebs/machine.h"

namespace skidproof::cli {

// Something that keeps direct access from working.
struct Obstacle {
  std::string what;  // "no /dev/skidproof"
  std::string mend;  // what to do
};
Obstacle obstacle_of(const Error& error);

// What there is against a processor itself: no row for it, or for this type of core, no PMU.
using Cpuid = std::function<Machine::CpuidResult(uint32_t leaf, uint32_t subleaf)>;
std::vector<Obstacle> processor_obstacles(const Identity& who, int cpu, const Cpuid& cpuid);
// One by one; nullopt: nothing.
std::optional<Obstacle> against_vendor(const Identity& who);
std::optional<Obstacle> against_row(const Identity& who, int cpu);
std::optional<Obstacle> against_perfmon(const Identity& who, const Cpuid& cpuid);
std::optional<Obstacle> against_debug_store(const Cpuid& cpuid);

// Whether this process, or the one of /proc/self in a tree, may open the driver.
bool has_capabilities(const Tree& tree = {});

// What there is of the driver for the kernel of a tree.
struct DriverFile {
  std::string installed;  // its path, where depmod knows it; else empty
  std::string headers;    // where the kernel's headers belong
  bool headers_present = false;
  bool modules_possible = false;
  bool secure_boot = false;
};
DriverFile driver_file(const Tree& tree = {});
// Why there is no device, and what mends that.
Obstacle driver_missing(const DriverFile& file);
// What a module must have under Secure Boot.
inline constexpr char kSign[] =
    "sign it with a key of yours (kmodsign, mokutil --import), or turn Secure Boot off in the "
    "firmware";

// "family 6 model 0x2a stepping 7".
std::string processor_words(const Identity& who);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_OBSTACLES_H_
