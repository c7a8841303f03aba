// A deadline for a whole process: when it passes, a callback runs on a thread of its own.
#ifndef SKIDPROOF_HARNESS_RUN_WATCHDOG_H_
#define SKIDPROOF_HARNESS_RUN_WATCHDOG_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace skidproof {

// Calls `expired` once, from its own thread, when the deadline passes before stop() or destruction.
// The callback decides what that means: write the end row, then _exit. It must not destroy the
// watchdog. Create it before pinning the thread that measures: the watchdog's thread inherits the
// affinity of its creator.
class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;

  Watchdog(std::chrono::milliseconds deadline, std::function<void()> expired);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  // A new deadline, counted from now. Without effect once stopped or expired.
  void restart(std::chrono::milliseconds deadline);
  // No callback after this returns, and none is running. Not to be called from the callback.
  void stop();
  bool expired() const;

 private:
  void watch();

  const std::function<void()> callback_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Clock::time_point deadline_;
  bool stopped_ = false;
  bool expired_ = false;
  std::thread thread_;
};

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_RUN_WATCHDOG_H_
