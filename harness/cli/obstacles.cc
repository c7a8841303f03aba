#include "harness/cli/obstacles.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "pebs/arch/microarch.h"
#include "pebs/direct/claim.h"

namespace skidproof::cli {
namespace {

constexpr unsigned kCapSysRawio = 17, kCapSysAdmin = 21;  // linux/capability.h

}  // namespace

Obstacle obstacle_of(const Error& error) { return {error.message, error.advice}; }

std::string processor_words(const Identity& who) {
  return fmt::format("family {} model {:#x} stepping {}", who.family, who.model, who.stepping);
}

DriverFile driver_file(const Tree& tree) {
  DriverFile found;
  const std::string modules = "/lib/modules/" + tree.release();
  found.headers = modules + "/build";
  found.headers_present = tree.has(found.headers);
  std::ifstream list(tree.path(modules + "/modules.dep"));
  for (std::string line; std::getline(list, line);) {
    if (line.find("/skidproof.ko") == std::string::npos) continue;
    found.installed = fmt::format("{}/{}", modules, line.substr(0, line.find(':')));
  }
  found.modules_possible = tree.has("/proc/modules");
  // An EFI variable: four bytes of attributes, then the value.
  const std::string variable = read_all(
      tree.path("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"));
  found.secure_boot = variable.size() > 4 && variable[4] == 1;
  return found;
}

Obstacle driver_missing(const DriverFile& file) {
  constexpr char kAbsent[] = "there is no /dev/skidproof: ";
  std::string sign;
  if (file.secure_boot) sign = fmt::format("; Secure Boot is on: {}", kSign);
  if (!file.modules_possible) {
    return {std::string(kAbsent) + "this kernel takes no modules (CONFIG_MODULES)",
            "boot a distribution kernel"};
  }
  if (!file.installed.empty()) {
    return {std::string(kAbsent) + "the driver is installed, but not loaded",
            "modprobe skidproof" + sign};
  }
  if (!file.headers_present) {
    return {fmt::format("{}the driver is not built, and {} is missing", kAbsent, file.headers),
            "install the headers of the running kernel (apt-get install linux-headers-$(uname "
            "-r)), then: make -C pebs/direct/driver && insmod pebs/direct/driver/skidproof.ko" +
                sign};
  }
  return {std::string(kAbsent) + "the driver is not built",
          "make -C pebs/direct/driver && insmod pebs/direct/driver/skidproof.ko" + sign};
}

std::optional<Obstacle> against_vendor(const Identity& who) {
  if (who.vendor == "GenuineIntel") return std::nullopt;
  Obstacle obstacle = obstacle_of(direct::words_of(SKIDPROOF_NOT_INTEL));
  obstacle.what += fmt::format(": it is by {}", who.vendor);
  return obstacle;
}

// Which core of a hybrid part, or which processor, has no row.
std::optional<Obstacle> against_row(const Identity& who, int cpu) {
  if (who.microarch != nullptr) return std::nullopt;
  const bool other_core =
      !who.core_type.empty() && who.family <= 0xFF &&
      arch::covers_other_cores(static_cast<uint8_t>(who.family), static_cast<uint8_t>(who.model));
  if (other_core) {
    return Obstacle{
        fmt::format("CPU {} is {}-core of {} ({}), and no row of facts covers that type", cpu,
                    who.core_type == "E" ? "an E" : "a P", who.brand, processor_words(who)),
        fmt::format("choose a core of the other type: --core {}, or --cpu N",
                    who.core_type == "E" ? "P" : "E")};
  }
  return Obstacle{fmt::format("no row of facts covers {} ({})", processor_words(who), who.brand),
                  "use one of `skidproof list microarchs`"};
}

std::optional<Obstacle> against_perfmon(const Identity& who, const Cpuid& cpuid) {
  const uint32_t perfmon = cpuid(0xA, 0).eax;
  const uint32_t version = perfmon & 0xFF;  // CPUID.0AH:EAX[7:0]
  if (version == 0 && !who.hypervisor.empty()) {
    return Obstacle{
        fmt::format("the hypervisor ({}) shows no PMU: CPUID.0AH is zero", who.hypervisor),
        "let the hypervisor pass the PMU through (KVM: `-cpu host,pmu=on`), or run on bare "
        "metal"};
  }
  if (version < 2) return obstacle_of(direct::words_of(SKIDPROOF_NO_PERFMON, perfmon));
  return std::nullopt;
}

std::optional<Obstacle> against_debug_store(const Cpuid& cpuid) {
  const Machine::CpuidResult features = cpuid(1, 0);
  if ((features.edx >> 21 & 1) == 0) {
    return obstacle_of(direct::words_of(SKIDPROOF_NO_DEBUG_STORE));
  }
  if ((features.ecx >> 2 & 1) == 0) return obstacle_of(direct::words_of(SKIDPROOF_NO_DTES64));
  if ((features.ecx >> 15 & 1) == 0) return obstacle_of(direct::words_of(SKIDPROOF_NO_PDCM));
  return std::nullopt;
}

std::vector<Obstacle> processor_obstacles(const Identity& who, int cpu, const Cpuid& cpuid) {
  if (const auto vendor = against_vendor(who)) return {*vendor};
  std::vector<Obstacle> obstacles;
  const auto perfmon = against_perfmon(who, cpuid);
  const bool counters = (cpuid(0xA, 0).eax & 0xFF) != 0;
  if (perfmon) obstacles.push_back(*perfmon);
  if (const auto store = counters ? against_debug_store(cpuid) : std::nullopt) {
    obstacles.push_back(*store);
  }
  if (const auto row = against_row(who, cpu)) obstacles.push_back(*row);
  return obstacles;
}

// What the driver asks of whoever opens it.
bool has_capabilities(const Tree& tree) {
  std::ifstream status(tree.path("/proc/self/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("CapEff:")) {
      constexpr uint64_t kBoth = uint64_t{1} << kCapSysRawio | uint64_t{1} << kCapSysAdmin;
      return (std::strtoull(line.c_str() + 7, nullptr, 16) & kBoth) == kBoth;
    }
  }
  return tree.own() && ::geteuid() == 0;
}

}  // namespace skidproof::cli
