// /proc/self/cgroup says which groups, /proc/self/mountinfo where they stand.
#include "harness/run/control_groups.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

namespace skidproof {
namespace {

namespace fs = std::filesystem;

// Version 1 says "no limit" by the largest multiple of a page.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

std::string text_of_file(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The number behind `key` at the start of a line; of the only line where there is no key.
std::optional<uint64_t> number_in(const std::string& text, std::string_view key = {}) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (!line.starts_with(key)) continue;
    uint64_t value = 0;
    if (std::sscanf(line.c_str() + key.size(), "%" SCNu64, &value) == 1) return value;
  }
  return std::nullopt;
}

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (list.substr(0, end) == word) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

struct Mount {
  std::string root, point;  // which group stands there, and where
  bool second = false;
  std::string options;  // of version 1: its controllers
};

// proc(5), /proc/pid/mountinfo: "36 35 98:0 ROOT POINT OPTIONS … - TYPE SOURCE SUPER-OPTIONS".
std::vector<Mount> mounts_of(const fs::path& root) {
  std::vector<Mount> mounts;
  std::istringstream lines(text_of_file(root / "proc/self/mountinfo"));
  std::string line;
  while (std::getline(lines, line)) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line), after(line.substr(dash + 3));
    std::string skipped, type, source;
    Mount mount;
    before >> skipped >> skipped >> skipped >> mount.root >> mount.point;
    after >> type >> source >> mount.options;
    if (type != "cgroup" && type != "cgroup2") continue;
    mount.second = type == "cgroup2";
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

std::optional<CpuQuota> quota_of(const fs::path& folder, const std::string& name, bool second) {
  int64_t quota = -1, period = 0;  // us
  if (second) {
    // "max 100000", "30000 100000"
    if (std::sscanf(text_of_file(folder / "cpu.max").c_str(), "%" SCNd64 " %" SCNd64, &quota,
                    &period) != 2) {
      return std::nullopt;
    }
  } else {
    std::sscanf(text_of_file(folder / "cpu.cfs_quota_us").c_str(), "%" SCNd64, &quota);
    std::sscanf(text_of_file(folder / "cpu.cfs_period_us").c_str(), "%" SCNd64, &period);
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return CpuQuota{static_cast<double>(quota) / 1e6, static_cast<double>(period) / 1e6, name};
}

}  // namespace

Throttled operator-(const Throttled& later, const Throttled& earlier) {
  return {later.times - std::min(later.times, earlier.times),
          std::max(0.0, later.seconds - earlier.seconds)};
}

ControlGroups ControlGroups::of_this_process(const fs::path& root) {
  ControlGroups groups;
  const std::vector<Mount> mounts = mounts_of(root);
  // "4:memory:/a/b" of version 1, "0::/a/b" of version 2.
  std::istringstream lines(text_of_file(root / "proc/self/cgroup"));
  std::string line;
  while (std::getline(lines, line)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    for (const auto& [controller, folders] :
         {std::pair{"cpu", &groups.cpu_}, std::pair{"memory", &groups.memory_}}) {
      if (!controllers.empty() && !has_word(controllers, controller)) continue;
      const auto mount =
          std::find_if(mounts.begin(), mounts.end(), [&, wanted = controller](const Mount& m) {
            return m.second == controllers.empty() && (m.second || has_word(m.options, wanted));
          });
      if (mount == mounts.end()) continue;
      // A container may see the mount from its own group on.
      fs::path below = group.lexically_relative(mount->root);
      if (below.empty() || *below.begin() == "..") below = ".";
      const fs::path top = root / fs::path(mount->point).relative_path();
      for (fs::path at = (top / below).lexically_normal();; at = at.parent_path()) {
        if (!at.has_filename()) continue;  // "…/."
        const fs::path name = at.lexically_relative(top);
        folders->push_back({at, name == "." ? "/" : "/" + name.string(), mount->second});
        if (name == "." || !at.has_parent_path() || name.empty()) break;
      }
    }
  }
  return groups;
}

std::optional<CpuQuota> ControlGroups::cpu_quota() const {
  std::optional<CpuQuota> tightest;
  for (const Folder& folder : cpu_) {
    auto quota = quota_of(folder.path, folder.name, folder.second);
    if (quota && (!tightest || quota->cpus() < tightest->cpus())) tightest = std::move(quota);
  }
  return tightest;
}

Throttled ControlGroups::throttled() const {
  Throttled sum;
  for (const Folder& folder : cpu_) {
    if (!quota_of(folder.path, folder.name, folder.second)) continue;
    const std::string text = text_of_file(folder.path / "cpu.stat");
    sum.times += number_in(text, "nr_throttled ").value_or(0);
    sum.seconds += folder.second
                       ? static_cast<double>(number_in(text, "throttled_usec ").value_or(0)) / 1e6
                       : static_cast<double>(number_in(text, "throttled_time ").value_or(0)) / 1e9;
  }
  return sum;
}

std::optional<uint64_t> ControlGroups::memory_left() const {
  std::optional<uint64_t> least;
  for (const Folder& folder : memory_) {
    const bool second = folder.second;
    const auto limit =
        number_in(text_of_file(folder.path / (second ? "memory.max" : "memory.limit_in_bytes")));
    if (!limit || *limit >= kNoLimit) continue;  // "max" is no number
    const uint64_t used =
        number_in(text_of_file(folder.path / (second ? "memory.current" : "memory.usage_in_bytes")))
            .value_or(0);
    const std::string stat = text_of_file(folder.path / "memory.stat");
    const std::string total = second ? "" : "total_";
    const uint64_t cache = number_in(stat, total + "inactive_file ").value_or(0) +
                           number_in(stat, total + "active_file ").value_or(0);
    const uint64_t kept = used - std::min(used, cache);
    const uint64_t left = *limit - std::min(*limit, kept);
    least = std::min(left, least.value_or(left));
  }
  return least;
}

}  // namespace skidproof
