// Work in forked processes, a few at a time: a model that was broken on purpose must not take others with it.
#ifndef SKIDPROOF_HARNESS_CLI_WORKER_POOL_H_
#define SKIDPROOF_HARNESS_CLI_WORKER_POOL_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/expected.h"

namespace skidproof::cli {

// What a worker left behind.
struct WorkDone {
  size_t id = 0;
  std::string output;  // everything that it wrote to its descriptor
  std::string
      problem;  // "ended by signal 11 (Segmentation fault)", "said nothing for 120 s"; or empty
  double seconds = 0;
};

// A worker that says nothing for the limit is ended. The caller has one thread. While the pool lives, SIGINT, SIGTERM and
// SIGHUP end the waiting, not the process; workers die with it.
class WorkerPool {
 public:
  WorkerPool(unsigned workers, std::chrono::seconds limit);
  ~WorkerPool();  // kills what still runs
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  bool room() const { return running_.size() < workers_; }
  bool idle() const { return running_.empty(); }
  // Starts `work` in a process of its own; it writes to the descriptor and returns. Errors: kIo.
  Expected<void> start(size_t id, const std::function<void(int descriptor)>& work);
  // Waits for one worker to end, or for a signal: then the result is empty and interrupted() says which.
  std::vector<WorkDone> wait();
  const std::string& interrupted() const { return interrupted_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    size_t id;
    pid_t process;
    int descriptor;
    Clock::time_point began, heard;
    std::string output;
    bool late = false;
  };
  bool read_some(Running& running);
  WorkDone reap(const Running& running) const;
  int milliseconds_to_wait() const;

  const unsigned workers_;
  const std::chrono::seconds limit_;
  std::vector<Running> running_;
  std::string interrupted_;
  int signals_ = -1;
};

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_WORKER_POOL_H_
