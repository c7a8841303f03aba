// Other CPUs at work beside the one that is measured.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_COMPANIONS_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_COMPANIONS_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/expected.h"
#include "harness/characterize/characterize.h"
#include "harness/characterize/workbench.h"

namespace skidproof {

// A thread on a CPU of its own, with a machine and a bench that nobody else uses, which does one job after another.
class Companion {
 public:
  // Runs on the companion's thread. One without an end of its own looks at `stop` every millisecond or so.
  using Job = std::function<Expected<void>(Workbench& bench, const std::atomic<bool>& stop)>;

  // Comes back when the thread stands on its CPU and the bench is made, or with the reason why not. `allowed` are the CPUs
  // that the process may use: the calling thread may be down to one.
  static Expected<std::unique_ptr<Companion>> start(int cpu, std::span<const int> allowed,
                                                    uint64_t seed);
  // Several, who come up together.
  static std::vector<Expected<std::unique_ptr<Companion>>> start_all(std::span<const int> cpus,
                                                                     std::span<const int> allowed,
                                                                     uint64_t seed);
  Companion(const Companion&) = delete;
  Companion& operator=(const Companion&) = delete;
  ~Companion();  // stops what runs, and joins

  int cpu() const { return cpu_; }
  // Begins a job; the one before has ended.
  void begin(Job job);
  // Whether what was begun has ended.
  bool idle() const;
  // Waits until it ends by itself, or asks it to once `bench` is cancelled; what it answered.
  Expected<void> wait(const Workbench& bench);
  // Asks it to end, and waits.
  Expected<void> stop();

 private:
  explicit Companion(int cpu) : cpu_(cpu) {}
  Expected<void> launch(std::span<const int> allowed, uint64_t seed);
  Expected<void> up();
  void live(std::vector<int> allowed, uint64_t seed);
  void serve(Workbench& bench);

  const int cpu_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Job job_;  // empty: idle
  Expected<void> answer_;
  bool leave_ = false;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// The CPUs in the order in which they come to help: `first`, then one of each core, then the other threads of cores.
// `siblings` gives the other thread of a CPU's core, or less than 0.
std::vector<int> order_of_help(std::span<const int> cpus, int first,
                               const std::function<int(int)>& siblings);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_COMPANIONS_H_
