// Work for the other logical processor of the core under test.
#ifndef SKIDPROOF_PEBS_DIRECT_SIBLING_LOAD_H_
#define SKIDPROOF_PEBS_DIRECT_SIBLING_LOAD_H_

#include <atomic>
#include <cstdint>
#include <thread>

namespace skidproof::direct {

// Executes instructions, branches and loads on one CPU for as long as it lives.
class SiblingLoad {
 public:
  // `cpu`: the operating system's number. Returns when the load executes there, or cannot.
  explicit SiblingLoad(int cpu);
  ~SiblingLoad();
  SiblingLoad(const SiblingLoad&) = delete;
  SiblingLoad& operator=(const SiblingLoad&) = delete;

  // Whether it executes there: not where the CPU is offline or not allowed to this process.
  bool running() const { return state_ == State::kRunning; }
  // How many loads it has executed.
  uint64_t loads() const { return loads_.load(std::memory_order_relaxed); }

 private:
  enum class State : uint8_t { kStarting, kRunning, kRefused };

  void execute(int cpu);

  std::atomic<State> state_ = State::kStarting;
  std::atomic<bool> stop_ = false;
  std::atomic<uint64_t> loads_ = 0;
  std::thread thread_;  // last: it uses the others
};

}  // namespace skidproof::direct

#endif  // SKIDPROOF_PEBS_DIRECT_SIBLING_LOAD_H_
