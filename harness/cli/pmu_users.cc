#include "harness/cli/pmu_users.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

namespace skidproof::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPerfEvent = "anon_inode:[perf_event]";
constexpr std::string_view kGuest = "anon_inode:kvm-vm";

// The number that a folder of /proc has for a name.
std::optional<int> number_of(const std::string& name) {
  int pid = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, pid);
  return error == std::errc() && stop == end && pid > 0 ? std::optional(pid) : std::nullopt;
}

// A mapping of perf events behind their ring buffer: where a hardware trace goes.
// [perf_event_open(2), aux_offset]
bool maps_trace(const std::string& maps) {
  std::ifstream file(maps);
  for (std::string line; std::getline(file, line);) {
    if (line.find(kPerfEvent) == std::string::npos) continue;
    const std::vector<std::string> fields = words_in(line);  // range, permissions, offset, …
    if (fields.size() > 2 && fields[2].find_first_not_of('0') != std::string::npos) return true;
  }
  return false;
}

struct Held {
  bool perf = false, guest = false, seen = true;
};

Held held_by(const std::string& descriptors) {
  Held held;
  std::error_code error;
  fs::directory_iterator each(descriptors, error);
  held.seen = !error;
  for (; !error && each != fs::directory_iterator(); each.increment(error)) {
    std::error_code gone;
    const std::string target = fs::read_symlink(each->path(), gone).string();
    held.perf |= target == kPerfEvent;
    held.guest |= target == kGuest;
  }
  return held;
}

}  // namespace

std::string named(const std::vector<Process>& processes) {
  constexpr size_t kNamed = 4;
  std::string words = processes.size() == 1 ? "process " : "processes ";
  for (size_t i = 0; i < std::min(processes.size(), kNamed); ++i) {
    const Process& one = processes[i];
    words += fmt::format("{}{}", i == 0 ? "" : ", ", one.pid);
    if (!one.command.empty()) words += fmt::format(" ({})", one.command);
  }
  if (processes.size() > kNamed) words += fmt::format(" and {} more", processes.size() - kNamed);
  return words;
}

std::string doing(const std::vector<Process>& processes, const char* one, const char* several) {
  if (processes.empty()) return {};
  return fmt::format("{} {}", named(processes), processes.size() == 1 ? one : several);
}

Process process_at(const Tree& tree, int pid) {
  return {pid, tree.line(fmt::format("/proc/{}/comm", pid))};
}

PmuUsers find_pmu_users(const Tree& tree) {
  PmuUsers users;
  users.nmi_watchdog = tree.line("/proc/sys/kernel/nmi_watchdog") == "1";
  users.kvm_intel = tree.has("/sys/module/kvm_intel");
  users.vmx_always =
      users.kvm_intel && tree.line("/sys/module/kvm/parameters/enable_virt_at_load") == "Y";
  for (const char* module : {"vboxdrv", "vmmon"}) {
    if (tree.has(fmt::format("/sys/module/{}", module))) users.hypervisors.emplace_back(module);
  }
  std::error_code error;
  fs::directory_iterator each(tree.path("/proc"), error);
  for (; !error && each != fs::directory_iterator(); each.increment(error)) {
    const auto pid = number_of(each->path().filename().string());
    if (!pid) continue;
    const Held held = held_by(each->path().string() + "/fd");
    // One that has ended meanwhile holds nothing.
    users.all_seen &= held.seen || !tree.has(fmt::format("/proc/{}/comm", *pid));
    if (held.guest) users.guests.push_back(process_at(tree, *pid));
    if (!held.perf) continue;
    users.perf.push_back(process_at(tree, *pid));
    if (maps_trace(each->path().string() + "/maps")) users.traces.push_back(users.perf.back());
  }
  const auto by_pid = [](const Process& a, const Process& b) { return a.pid < b.pid; };
  for (auto* list : {&users.perf, &users.traces, &users.guests}) {
    std::sort(list->begin(), list->end(), by_pid);
  }
  return users;
}

std::string holder_of(const skidproof_claim& claim, const Tree& tree) {
  const auto open_events = [&](const std::vector<Process>& processes) {
    return doing(processes, "has perf events open", "have perf events open");
  };
  switch (claim.refusal) {
    case SKIDPROOF_COUNTERS_HELD: {
      const PmuUsers users = find_pmu_users(tree);
      std::string perf = open_events(users.perf);
      if (!users.nmi_watchdog) return perf;
      return perf.empty() ? "nmi_watchdog is on" : "nmi_watchdog is on; " + perf;
    }
    case SKIDPROOF_TRACES: {
      const PmuUsers users = find_pmu_users(tree);
      if (users.traces.empty()) return open_events(users.perf);
      return doing(users.traces, "records a hardware trace", "record hardware traces");
    }
    case SKIDPROOF_VIRTUALIZES: {
      const PmuUsers users = find_pmu_users(tree);
      if (!users.guests.empty()) return doing(users.guests, "runs a guest", "run guests");
      if (users.vmx_always) return "kvm_intel turns VMX on when it is loaded";
      return users.hypervisors.empty()
                 ? ""
                 : "loaded: " + fmt::format("{}", fmt::join(users.hypervisors, ", "));
    }
    case SKIDPROOF_CPU_OWNED: {
      const Process owner = process_at(tree, static_cast<int>(claim.detail));
      return owner.command.empty() ? "" : fmt::format("that is {}", owner.command);
    }
    default:
      return {};
  }
}

}  // namespace skidproof::cli
