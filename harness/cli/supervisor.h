// Signals and deadlines while something runs: asks it to stop, and ends the process when it does not.
#ifndef SKIDPROOF_HARNESS_CLI_SUPERVISOR_H_
#define SKIDPROOF_HARNESS_CLI_SUPERVISOR_H_

#include <signal.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace skidproof::cli {

// Holds SIGINT, SIGTERM and SIGHUP back while it lives; a supervisor that comes to be meanwhile finds those that came. So
// that none ends the process between the first row on the disk and the supervisor.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_;
};

// While it lives, SIGINT, SIGTERM and SIGHUP no longer end the process. The first of them, or the
// deadline, calls `ask`, which asks what runs to stop. When that does not end it within the grace, or a
// second signal comes, `last_words` is called and the process exits with 2. Both run on the supervisor's
// own thread, with the reason: "interrupted by SIGINT", "deadline of 5 s passed".
class Supervisor {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kGrace{2000};

  using Ask = std::function<void(const std::string& reason, bool deadline)>;
  using LastWords = std::function<void(const std::string& reason)>;
  Supervisor(std::optional<std::chrono::milliseconds> deadline, Ask ask, LastWords last_words);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Empty while nothing came.
  std::string reason() const;

 private:
  void watch();
  void ask_to_stop(const std::string& reason, bool deadline);
  int milliseconds_to_wait() const;

  const std::optional<std::chrono::milliseconds> allowed_;
  const Ask ask_;
  const LastWords last_words_;
  std::optional<Clock::time_point> next_;  // the deadline, then the end of the grace
  sigset_t before_;
  int signals_ = -1;
  int done_ = -1;
  mutable std::mutex mutex_;
  std::string reason_;
  std::thread thread_;
};

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_SUPERVISOR_H_
