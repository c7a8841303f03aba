#include "pebs/direct/sibling_load.h"

#include <pthread.h>
#include <sched.h>

namespace skidproof::direct {

SiblingLoad::SiblingLoad(int cpu) : thread_([this, cpu] { execute(cpu); }) {
  state_.wait(State::kStarting);
}

SiblingLoad::~SiblingLoad() {
  stop_ = true;
  thread_.join();
}

void SiblingLoad::execute(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool in_range = cpu >= 0 && cpu < CPU_SETSIZE;
  if (in_range) CPU_SET(static_cast<size_t>(cpu), &set);
  const bool pinned = in_range && pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
  state_ = pinned ? State::kRunning : State::kRefused;
  state_.notify_all();
  while (pinned && !stop_.load(std::memory_order_relaxed)) {
    loads_.store(loads_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
}

}  // namespace skidproof::direct
