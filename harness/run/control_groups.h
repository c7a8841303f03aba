// What control groups leave to this process: a quota of CPU time, a limit of memory.
#ifndef SKIDPROOF_HARNESS_RUN_CONTROL_GROUPS_H_
#define SKIDPROOF_HARNESS_RUN_CONTROL_GROUPS_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace skidproof {

// CPU time that a group may use: `runtime_s` in each `period_s`, of all its CPUs together.
struct CpuQuota {
  double runtime_s = 0, period_s = 0;
  std::string group;  // that says so: "/batch.slice"
  double cpus() const { return runtime_s / period_s; }
};

// How often a quota stopped us, and for how long in all.
struct Throttled {
  uint64_t times = 0;
  double seconds = 0;
};
Throttled operator-(const Throttled& later, const Throttled& earlier);

// The process's own groups and all above them that can be seen, of both versions of the interface (Linux,
// Documentation/admin-guide/cgroup-v2.rst, "Controllers"; Documentation/scheduler/sched-bwc.rst; .../cgroup-v1/memory.rst).
// The CPUs of a cpuset need no look here: the affinity holds to them.
class ControlGroups {
 public:
  // `root`: where /proc and the mounts stand, for tests. A system without groups has no limits.
  static ControlGroups of_this_process(const std::filesystem::path& root = "/");

  // The tightest.
  std::optional<CpuQuota> cpu_quota() const;
  // Of every group with a quota together; counters of the kernel, since the group was made.
  Throttled throttled() const;
  // Bytes that may still be used before a limit is met, page cache that can be dropped counted as free; nothing where
  // there is no limit.
  std::optional<uint64_t> memory_left() const;

 private:
  struct Folder {
    std::filesystem::path path;
    std::string name;    // "/batch.slice"
    bool second = true;  // of version 2
  };
  std::vector<Folder> cpu_, memory_;  // from our own upwards
};

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_RUN_CONTROL_GROUPS_H_
