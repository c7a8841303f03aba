// One thread that waits for signals, the deadline and the end.
#include "harness/cli/supervisor.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "harness/check/listener.h"

namespace skidproof::cli {
namespace {

std::string name_of_signal(uint32_t number) {
  if (number == SIGINT) return "SIGINT";
  if (number == SIGTERM) return "SIGTERM";
  return number == SIGHUP ? "SIGHUP" : fmt::format("signal {}", number);
}

sigset_t watched_signals() {
  sigset_t watched;
  sigemptyset(&watched);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&watched, signal);
  return watched;
}

}  // namespace

HeldSignals::HeldSignals() {
  const sigset_t watched = watched_signals();
  pthread_sigmask(SIG_BLOCK, &watched, &before_);
}
HeldSignals::~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

Supervisor::Supervisor(std::optional<std::chrono::milliseconds> deadline, Ask ask,
                       LastWords last_words)
    : allowed_(deadline), ask_(std::move(ask)), last_words_(std::move(last_words)) {
  if (allowed_) next_ = Clock::now() + *allowed_;
  const sigset_t watched = watched_signals();
  // Blocked here so that every later thread inherits it and the signals reach the descriptor only.
  pthread_sigmask(SIG_BLOCK, &watched, &before_);
  signals_ = ::signalfd(-1, &watched, SFD_CLOEXEC);
  done_ = ::eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { watch(); });
}

Supervisor::~Supervisor() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(done_, &one, sizeof one);
  thread_.join();
  ::close(signals_);
  ::close(done_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::string Supervisor::reason() const {
  std::lock_guard lock(mutex_);
  return reason_;
}

int Supervisor::milliseconds_to_wait() const {
  if (!next_) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next_ - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

void Supervisor::ask_to_stop(const std::string& reason, bool deadline) {
  {
    std::lock_guard lock(mutex_);
    reason_ = reason;
  }
  ask_(reason, deadline);
  next_ = Clock::now() + kGrace;
}

void Supervisor::watch() {
  while (true) {
    pollfd waits[] = {{done_, POLLIN, 0}, {signals_, POLLIN, 0}};
    ::poll(waits, 2, milliseconds_to_wait());
    if (waits[0].revents != 0) return;
    std::string event;
    signalfd_siginfo info;
    if (waits[1].revents != 0 && ::read(signals_, &info, sizeof info) == sizeof info) {
      event = "interrupted by " + name_of_signal(info.ssi_signo);
    } else if (next_ && Clock::now() >= *next_) {
      event = fmt::format("deadline of {} s passed",
                          static_cast<double>(allowed_.value_or(kGrace).count()) / 1000);
    } else {
      continue;
    }
    if (reason().empty()) {
      ask_to_stop(event, waits[1].revents == 0);
    } else {
      last_words_(reason());
      ::_exit(check::kExitHarnessFailed);
    }
  }
}

}  // namespace skidproof::cli
