// Threads that work on other CPUs.
#include "harness/characterize/companions.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <system_error>
#include <utility>

#include "harness/run/native_machine.h"
#include "harness/run/pinning.h"

namespace skidproof {
namespace {

constexpr std::chrono::milliseconds kLookEvery{5};

// Ctrl-C and its kin are the main thread's. What a thread brings upon itself, and the deadline's timer, stay.
void leave_signals_to_others() {
  sigset_t others;
  sigemptyset(&others);
  for (int signal :
       {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD, SIGALRM, SIGWINCH, SIGPIPE, SIGUSR1, SIGUSR2}) {
    sigaddset(&others, signal);
  }
  pthread_sigmask(SIG_BLOCK, &others, nullptr);
}

}  // namespace

Expected<void> Companion::launch(std::span<const int> allowed, uint64_t seed) {
  // Until the thread has come up it is busy with that.
  job_ = [](Workbench&, const std::atomic<bool>&) -> Expected<void> { return {}; };
  try {
    thread_ =
        std::thread(&Companion::live, this, std::vector<int>(allowed.begin(), allowed.end()), seed);
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kNoMemory, fmt::format("no thread for CPU {}: {}", cpu_, error.what()),
                "raise `ulimit -u`");
  }
  return {};
}

Expected<void> Companion::up() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return job_ == nullptr; });
  return answer_;
}

std::vector<Expected<std::unique_ptr<Companion>>> Companion::start_all(std::span<const int> cpus,
                                                                       std::span<const int> allowed,
                                                                       uint64_t seed) {
  std::vector<Expected<std::unique_ptr<Companion>>> all;
  for (int cpu : cpus) {
    std::unique_ptr<Companion> made(new Companion(cpu));
    const Expected<void> launched = made->launch(allowed, seed);
    launched ? all.emplace_back(std::move(made))
             : all.emplace_back(tl::make_unexpected(launched.error()));
  }
  for (auto& companion : all) {
    if (!companion) continue;
    if (const Expected<void> up = (*companion)->up(); !up)
      companion = tl::make_unexpected(up.error());
  }
  return all;
}

Expected<std::unique_ptr<Companion>> Companion::start(int cpu, std::span<const int> allowed,
                                                      uint64_t seed) {
  return std::move(start_all(std::span(&cpu, 1), allowed, seed).front());
}

Companion::~Companion() {
  {
    const std::lock_guard lock(mutex_);
    leave_ = true;
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Companion::begin(Job job) {
  {
    const std::lock_guard lock(mutex_);
    stop_ = false;
    answer_ = {};
    job_ = std::move(job);
  }
  changed_.notify_all();
}

bool Companion::idle() const {
  const std::lock_guard lock(mutex_);
  return job_ == nullptr;
}

Expected<void> Companion::wait(const Workbench& bench) {
  std::unique_lock lock(mutex_);
  while (job_ != nullptr) {
    if (bench.cancelled()) stop_ = true;
    changed_.wait_for(lock, kLookEvery);
  }
  return answer_;
}

Expected<void> Companion::stop() {
  std::unique_lock lock(mutex_);
  stop_ = true;
  changed_.wait(lock, [&] { return job_ == nullptr; });
  return answer_;
}

void Companion::live(std::vector<int> allowed, uint64_t seed) {
  leave_signals_to_others();
  const auto give_up = [this](Error error) {
    const std::lock_guard lock(mutex_);
    answer_ = tl::make_unexpected(std::move(error));
    job_ = nullptr;
    changed_.notify_all();
  };
  if (auto moved = allow_cpus(allowed); !moved) return give_up(moved.error());
  auto machine = NativeMachine::create({.cpu = cpu_});
  if (!machine) return give_up(machine.error());
  CharacterizeOptions options;
  options.effort = Effort::kQuick;
  options.seed = seed;
  Characterization nothing;
  auto bench = Workbench::create(**machine, options, nothing);
  if (!bench) return give_up(bench.error());
  serve(*bench);
}

void Companion::serve(Workbench& bench) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return job_ != nullptr || leave_; });
    if (leave_) break;
    const Job job = job_;
    lock.unlock();
    Expected<void> answer = job(bench, stop_);
    lock.lock();
    answer_ = std::move(answer);
    job_ = nullptr;
    changed_.notify_all();
  }
  job_ = nullptr;
  changed_.notify_all();
}

std::vector<int> order_of_help(std::span<const int> cpus, int first,
                               const std::function<int(int)>& siblings) {
  std::vector<int> order = {first}, later;
  std::set<int> in_use = {first};
  for (int cpu : cpus) {
    if (cpu == first) continue;
    const int other = siblings(cpu);
    (in_use.contains(other) ? later : order).push_back(cpu);
    if (!in_use.contains(other)) in_use.insert(cpu);
  }
  order.insert(order.end(), later.begin(), later.end());
  return order;
}

}  // namespace skidproof
