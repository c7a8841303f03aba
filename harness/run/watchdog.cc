// A thread that sleeps until the deadline.
#include "harness/run/watchdog.h"

#include <utility>

namespace skidproof {

Watchdog::Watchdog(std::chrono::milliseconds deadline, std::function<void()> expired)
    : callback_(std::move(expired)),
      deadline_(Clock::now() + deadline),
      thread_([this] { watch(); }) {}

Watchdog::~Watchdog() { stop(); }

void Watchdog::restart(std::chrono::milliseconds deadline) {
  const std::lock_guard lock(mutex_);
  deadline_ = Clock::now() + deadline;
  changed_.notify_all();
}

void Watchdog::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

bool Watchdog::expired() const {
  const std::lock_guard lock(mutex_);
  return expired_;
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  while (!stopped_ && Clock::now() < deadline_) {
    // A copy: restart() may move the member while wait_until() sleeps on it.
    const Clock::time_point deadline = deadline_;
    changed_.wait_until(lock, deadline);
  }
  if (stopped_) return;
  expired_ = true;
  lock.unlock();
  callback_();
}

}  // namespace skidproof
