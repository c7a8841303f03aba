// Forking, reading and reaping.
#include "harness/cli/worker_pool.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

namespace skidproof::cli {
namespace {

sigset_t pool_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  return set;
}

[[noreturn]] void become_worker(int descriptor, const std::function<void(int)>& work) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setpgid(0, 0);  // Ctrl-C is for the parent, which ends us
  const sigset_t watched = pool_signals();
  ::sigprocmask(SIG_UNBLOCK, &watched, nullptr);
  try {
    work(descriptor);
  } catch (const std::exception& exception) {
    fmt::print(stderr, "skidproof worker: {}\n", exception.what());
    ::_exit(1);
  }
  ::_exit(0);
}

}  // namespace

WorkerPool::WorkerPool(unsigned workers, std::chrono::seconds limit)
    : workers_(std::max(workers, 1u)), limit_(limit) {
  const sigset_t watched = pool_signals();
  ::sigprocmask(SIG_BLOCK, &watched, nullptr);
  signals_ = ::signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
}

WorkerPool::~WorkerPool() {
  for (Running& running : running_) {
    ::kill(running.process, SIGKILL);
    ::close(running.descriptor);
    ::waitpid(running.process, nullptr, 0);
  }
  ::close(signals_);
  const sigset_t watched = pool_signals();
  ::sigprocmask(SIG_UNBLOCK, &watched, nullptr);
}

Expected<void> WorkerPool::start(size_t id, const std::function<void(int)>& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return fail(ErrorCode::kIo, fmt::format("cannot open a pipe: {}", std::strerror(errno)));
  }
  std::fflush(nullptr);  // or the worker would print our buffers again
  const pid_t process = ::fork();
  if (process == 0) {
    ::close(ends[0]);
    become_worker(ends[1], work);
  }
  const int error = errno;
  ::close(ends[1]);
  if (process < 0) {
    ::close(ends[0]);
    return fail(ErrorCode::kIo, fmt::format("cannot start a worker: {}", std::strerror(error)),
                "try fewer with --jobs");
  }
  const auto now = Clock::now();
  running_.push_back({.id = id,
                      .process = process,
                      .descriptor = ends[0],
                      .began = now,
                      .heard = now,
                      .output = {}});
  return {};
}

int WorkerPool::milliseconds_to_wait() const {
  auto next = Clock::now() + limit_;
  for (const Running& running : running_) next = std::min(next, running.heard + limit_);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(left, 0));
}

// False at the end of the worker's output.
bool WorkerPool::read_some(Running& running) {
  char buffer[65536];
  const ssize_t got = ::read(running.descriptor, buffer, sizeof buffer);
  if (got > 0) {
    running.output.append(buffer, static_cast<size_t>(got));
    running.heard = Clock::now();
  }
  return got > 0 || (got < 0 && errno == EINTR);
}

WorkDone WorkerPool::reap(const Running& running) const {
  ::close(running.descriptor);
  int status = 0;
  while (::waitpid(running.process, &status, 0) < 0 && errno == EINTR) {
  }
  WorkDone done{.id = running.id, .output = running.output, .problem = {}};
  done.seconds = std::chrono::duration<double>(Clock::now() - running.began).count();
  if (running.late) {
    done.problem = fmt::format("said nothing for {} s", limit_.count());
  } else if (WIFSIGNALED(status)) {
    done.problem =
        fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  } else if (WEXITSTATUS(status) != 0) {
    done.problem = fmt::format("ended with {}", WEXITSTATUS(status));
  }
  return done;
}

std::vector<WorkDone> WorkerPool::wait() {
  while (!running_.empty()) {
    std::vector<pollfd> waits = {{signals_, POLLIN, 0}};
    for (const Running& running : running_) waits.push_back({running.descriptor, POLLIN, 0});
    ::poll(waits.data(), waits.size(), milliseconds_to_wait());
    signalfd_siginfo info;
    if (waits[0].revents != 0 && ::read(signals_, &info, sizeof info) == sizeof info) {
      const char* name = ::sigabbrev_np(static_cast<int>(info.ssi_signo));
      interrupted_ = fmt::format("interrupted by SIG{}", name == nullptr ? "NAL" : name);
      return {};
    }
    std::vector<WorkDone> done;
    std::vector<Running> still;
    for (size_t i = 0; i < running_.size(); ++i) {
      Running& running = running_[i];
      if (!running.late && Clock::now() >= running.heard + limit_) {
        running.late = true;
        ::kill(running.process, SIGKILL);
      }
      const bool more = waits[i + 1].revents == 0 || read_some(running);
      if (more) {
        still.push_back(std::move(running));
      } else {
        done.push_back(reap(running));
      }
    }
    running_ = std::move(still);
    if (!done.empty()) return done;
  }
  return {};
}

}  // namespace skidproof::cli
