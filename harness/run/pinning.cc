// sched_setaffinity as a guard.
#include "harness/run/pinning.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace skidproof {
namespace {

std::vector<int> members(const cpu_set_t& set) {
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

Expected<cpu_set_t> affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    return fail(ErrorCode::kPermission,
                fmt::format("cannot read the CPU affinity: {}", std::strerror(errno)),
                "more than 1024 CPUs, or a sandbox: start under `taskset -c N`");
  }
  return set;
}

}  // namespace

Expected<std::vector<int>> allowed_cpus() { return members(SKIDPROOF_TRY(affinity())); }

Expected<void> allow_cpus(std::span<const int> cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  }
  if (sched_setaffinity(0, sizeof set, &set) == 0) return {};
  return fail(
      ErrorCode::kPermission,
      fmt::format("cannot run on the CPUs {}: {}", fmt::join(cpus, ", "), std::strerror(errno)),
      "a cpuset that changed, or a sandbox, forbids them");
}

Expected<PinGuard> PinGuard::pin(int cpu) {
  PinGuard guard;
  guard.before_ = SKIDPROOF_TRY(affinity());
  const std::vector<int> allowed = members(guard.before_);
  if (std::find(allowed.begin(), allowed.end(), cpu) == allowed.end()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("this process may not run on CPU {}", cpu),
                fmt::format("choose one of {}", fmt::join(allowed, ", ")));
  }
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  if (sched_setaffinity(0, sizeof only, &only) != 0) {
    return fail(ErrorCode::kPermission,
                fmt::format("cannot pin this thread to CPU {}: {}", cpu, std::strerror(errno)),
                "a sandbox or cpuset forbids it; start under `taskset -c N`");
  }
  guard.cpu_ = cpu;
  guard.thread_ = gettid();
  return guard;
}

PinGuard::PinGuard(PinGuard&& other) noexcept
    : cpu_(other.cpu_), thread_(std::exchange(other.thread_, 0)), before_(other.before_) {}

PinGuard& PinGuard::operator=(PinGuard&& other) noexcept {
  if (this == &other) return *this;
  restore();
  cpu_ = other.cpu_;
  thread_ = std::exchange(other.thread_, 0);
  before_ = other.before_;
  return *this;
}

PinGuard::~PinGuard() { restore(); }

void PinGuard::restore() {
  if (thread_ == gettid()) sched_setaffinity(0, sizeof before_, &before_);
  thread_ = 0;
}

}  // namespace skidproof
