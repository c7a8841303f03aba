// The findings of `doctor`, read from CPUID, /proc, /sys and the tools themselves.
#include "harness/cli/host.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "harness/cli/driver_checks.h"
#include "harness/cli/kernel_files.h"
#include "harness/cli/machines.h"
#include "harness/cli/python.h"
#include "harness/cli/text.h"
#include "harness/cli/verb.h"
#include "harness/run/cpu_choice.h"
#include "harness/run/native_identity.h"
#include "harness/run/native_machine.h"
#include "harness/run/pinning.h"
#include "pebs/arch/microarch.h"

namespace skidproof::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kCpu[] = "/sys/devices/system/cpu";

void examine_processor(Findings& found, const Identity& who) {
  found.section("processor");
  found.good("identity", fmt::format("{} ({}, family {} model {:#x} stepping {})", who.brand,
                                     who.vendor, who.family, who.model, who.stepping));
  if (const std::string old = microcode_note(who); !old.empty()) {
    found.bad("microcode", old, "update it: the intel-microcode package, or the firmware");
  } else {
    found.good("microcode",
               who.microcode == 0 ? "not readable" : fmt::format("{:#x}", who.microcode));
  }
  if (!who.core_type.empty()) found.good("core type", who.core_type);
  if (who.microarch != nullptr) {
    found.good("microarch", std::string(who.microarch->title));
  } else {
    found.note("microarch", "no row of facts covers it: timing only",
               "skidproof list microarchs shows those that are covered");
  }
  found.good("instruction sets", joined(who.capabilities, " "));
  found.good("hypervisor", who.hypervisor.empty() ? "none" : who.hypervisor);
  const uint32_t perfmon = host_cpuid(0xA, 0).eax;
  const unsigned version = perfmon & 0xFF, counters = perfmon >> 8 & 0xFF,
                 width = perfmon >> 16 & 0xFF;
  if (who.vendor != "GenuineIntel") {
    found.bad("PMU", "PEBS is Intel's", "use a machine with an Intel processor");
  } else if (version == 0) {
    found.bad("PMU", "CPUID.0AH reports none",
              who.hypervisor.empty()
                  ? "enable performance monitoring in the firmware setup"
                  : "let the hypervisor pass the PMU through, or use bare metal");
  } else {
    found.good("PMU", fmt::format("version {}, {} counters of {} bits", version, counters, width));
  }
}

void examine_machines(Findings& found) {
  found.section("machines");
  const std::vector<Obstacle> obstacles = direct_obstacles();
  if (obstacles.empty()) found.good("direct", "works");
  for (const Obstacle& obstacle : obstacles) found.bad("direct", obstacle.what, obstacle.mend);
  if (auto native = NativeMachine::create(); native) {
    found.good("native", fmt::format("works, on CPU {}: skidproof characterize", (*native)->cpu()));
  } else {
    found.bad("native", native.error().message, native.error().advice);
  }
  std::vector<std::string> models;
  for (const arch::Microarch* microarch : arch::microarchs()) {
    models.push_back(fmt::format("model:{}", microarch->name));
  }
  found.good("model", joined(models));
  const std::string automatic = obstacles.empty() ? "direct" : "model:sandy-bridge";
  found.good("auto", fmt::format("chooses {} for `run`", automatic));
}

void examine_huge_pages(Findings& found) {
  const std::string reserved =
      read_line("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  const std::string transparent = chosen(read_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  const std::string value =
      fmt::format("{} of 2 MiB free, transparent: {}", reserved.empty() ? "none" : reserved,
                  transparent.empty() ? "not offered" : transparent);
  if ((reserved.empty() || reserved == "0") && (transparent.empty() || transparent == "never")) {
    found.note("huge pages", value, "sysctl vm.nr_hugepages=160");
  } else {
    found.good("huge pages", value);
  }
}

void examine_frequency(Findings& found) {
  const std::string governor = read_line(fmt::format("{}/cpu0/cpufreq/scaling_governor", kCpu));
  if (governor.empty()) {
    found.good("frequency governor",
               "not visible: the clock is calibrated around each measurement");
  } else if (governor != "performance") {
    found.note("frequency governor", governor, "cpupower frequency-set -g performance");
  } else {
    found.good("frequency governor", governor);
  }
}

void examine_timing(Findings& found) {
  found.section("timing");
  const bool invariant =
      host_cpuid(0x80000000, 0).eax >= 0x80000007 && (host_cpuid(0x80000007, 0).edx >> 8 & 1) != 0;
  if (invariant) {
    found.good("TSC", "invariant");
  } else {
    found.note("TSC", "not reported invariant (CPUID.80000007H:EDX[8])",
               "fix the clock frequency while measuring");
  }
  const std::string source =
      read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  found.good("clock source", source.empty() ? "unknown" : source);
  const auto cpus = allowed_cpus();
  found.good("CPUs",
             cpus ? fmt::format("{} usable by this process", cpus->size()) : cpus.error().message);
  const std::string siblings =
      read_line(fmt::format("{}/cpu0/topology/thread_siblings_list", kCpu));
  const bool shared = siblings.find_first_of(",-") != std::string::npos;
  found.good("sibling threads",
             shared ? fmt::format("CPU 0 shares its core: {}", siblings) : "none seen");
  const std::string isolated = read_line(fmt::format("{}/isolated", kCpu));
  if (isolated.empty()) {
    found.note("isolated CPUs", "none: other work shares the measured CPU",
               "boot with isolcpus=N nohz_full=N, then characterize --cpu N");
  } else {
    found.good("isolated CPUs", isolated);
  }
  examine_huge_pages(found);
  examine_frequency(found);
  const std::string watchdog = read_line("/proc/sys/kernel/nmi_watchdog");
  if (watchdog == "1") {
    found.note("nmi_watchdog", "on: it takes a PMU counter", "sysctl kernel.nmi_watchdog=0");
  } else {
    found.good("nmi_watchdog", "off");
  }
  rlimit locked{};
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  const bool enough = locked.rlim_cur == RLIM_INFINITY || locked.rlim_cur >= 64u << 20;
  const std::string limit =
      locked.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{} KiB", locked.rlim_cur >> 10);
  if (enough) {
    found.good("locked memory", limit);
  } else {
    found.note("locked memory", limit,
               "ulimit -l unlimited, or memlock in /etc/security/limits.conf");
  }
}

void examine_driver(Findings& found) {
  found.section("driver");
  utsname os{};
  ::uname(&os);
  found.good("kernel", fmt::format("{} {}", os.sysname, os.release));
  if (fs::exists(kDevice)) {
    found.good(kDevice, "present");
  } else {
    const Obstacle obstacle = driver_missing(driver_file());
    found.bad(kDevice, obstacle.what, obstacle.mend);
  }
  if (fs::exists("/proc/modules")) {
    found.good("loadable modules", "the kernel takes them");
  } else {
    found.bad("loadable modules", "the kernel was built without them (CONFIG_MODULES)",
              "boot a distribution kernel");
  }
  const std::string build = fmt::format("/lib/modules/{}/build", os.release);
  if (fs::exists(build)) {
    found.good("kernel headers", build);
  } else {
    found.note("kernel headers", build + " is missing",
               fmt::format("apt-get install linux-headers-{}", os.release));
  }
  judge_secure_boot(found, driver_file().secure_boot);
  judge_lockdown(found, read_line("/sys/kernel/security/lockdown"));
  const std::string meltdown = read_line(fmt::format("{}/vulnerabilities/meltdown", kCpu));
  // Programs run under page tables of the driver's, where it does not matter.
  found.good("page-table isolation", meltdown.empty() ? "unknown" : meltdown);
}

void examine_tools(Findings& found) {
  found.section("tools");
  if (const auto python = find_python("matplotlib"); python) {
    found.good("report", *python + " with matplotlib");
  } else {
    found.bad("report", python.error().message, python.error().advice);
  }
  const std::string package = shipped("results/skidproof");
  if (package.empty()) {
    found.bad("report package", "missing", "install skidproof whole: cmake --install");
  } else {
    found.good("report package", package);
  }
}

}  // namespace

std::vector<Finding> examine_host() {
  std::vector<Finding> all;
  Findings found(all);
  // Of the CPU that `direct` would claim.
  const auto cpus = host_cpus();
  const auto chosen = cpus ? choose_cpu(*cpus, {}) : tl::make_unexpected(cpus.error());
  {
    const int cpu = chosen ? chosen->number : 0;
    const auto pinned = PinGuard::pin(cpu);
    examine_processor(found, native_identity(cpu));
  }
  examine_machines(found);
  examine_timing(found);
  examine_driver(found);
  examine_tools(found);
  return all;
}

}  // namespace skidproof::cli
