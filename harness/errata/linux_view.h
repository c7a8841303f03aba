// What Linux says of the same processor: its own verdicts, the microcode, and what it printed of the PMU.
#ifndef SKIDPROOF_HARNESS_ERRATA_LINUX_VIEW_H_
#define SKIDPROOF_HARNESS_ERRATA_LINUX_VIEW_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "results/row.h"

namespace skidproof::errata {

struct LinuxView {
  std::string release;                                 // "6.12.3-amd64"
  std::map<std::string, std::string> vulnerabilities;  // of /sys/devices/system/cpu/vulnerabilities
  std::map<uint32_t, unsigned> microcode;              // revision to CPUs that run it
  std::optional<bool> hyper_threading;                 // of smt/active
  std::vector<std::string> pmu_lines;  // of the kernel's log, that speak of the PMU's quirks
  std::map<std::string, std::string> switches;  // of the PMU's device: allow_tsx_force_abort …
  std::vector<std::string> core_pmus;           // "cpu_core", "cpu_atom": the part is hybrid
  std::vector<std::string> notes;               // what could not be read, and why

  // The lowest revision that some CPU runs; 0: none is readable.
  uint32_t oldest_microcode() const { return microcode.empty() ? 0 : microcode.begin()->first; }
};

// `root`: "" for this computer's /proc and /sys. `kernel_log`: a file of the kernel's messages; /dev/kmsg is read
// without waiting.
LinuxView linux_view(const std::string& root = "", const std::string& kernel_log = "/dev/kmsg");

results::Json json_of(const LinuxView& view);

}  // namespace skidproof::errata

#endif  // SKIDPROOF_HARNESS_ERRATA_LINUX_VIEW_H_
