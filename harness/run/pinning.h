// Pinning the calling thread to one logical CPU.
#ifndef SKIDPROOF_HARNESS_RUN_PINNING_H_
#define SKIDPROOF_HARNESS_RUN_PINNING_H_

#include <sched.h>

#include <span>
#include <vector>

#include "base/expected.h"

namespace skidproof {

// The CPUs that this thread may run on, ascending.
Expected<std::vector<int>> allowed_cpus();

// Lets the calling thread run on these CPUs and no others, for good: what a new thread inherits may be one CPU alone.
// kPermission where the system gives none of them (a cpuset that shrank).
Expected<void> allow_cpus(std::span<const int> cpus);

// Keeps the calling thread on one CPU; its affinity is what it was before when the guard goes, if
// it goes on the same thread.
class PinGuard {
 public:
  // kInvalidArgument: this thread may not run on that CPU (the error lists those it may).
  static Expected<PinGuard> pin(int cpu);

  PinGuard(PinGuard&& other) noexcept;
  PinGuard& operator=(PinGuard&& other) noexcept;
  ~PinGuard();

  int cpu() const { return cpu_; }

 private:
  PinGuard() = default;
  void restore();

  int cpu_ = -1;
  int thread_ = 0;  // kernel thread id; 0 in a moved-from guard
  cpu_set_t before_ = {};
};

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_RUN_PINNING_H_
