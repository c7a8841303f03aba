// A run that stops when asked, and one that does not.
#include "harness/cli/supervisor.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

namespace skidproof::cli {
namespace {

using std::chrono::milliseconds;

void wait_for(const std::atomic<bool>& flag) {
  for (int i = 0; i < 3000 && !flag; ++i) std::this_thread::sleep_for(milliseconds(10));
}

TEST(Supervisor, IsSilentWhenNothingComes) {
  bool asked = false;
  {
    Supervisor supervisor(
        {}, [&asked](const std::string&, bool) { asked = true; }, [](const std::string&) {});
    EXPECT_EQ(supervisor.reason(), "");
  }
  EXPECT_FALSE(asked);
}

TEST(Supervisor, AsksAtTheDeadline) {
  std::atomic<bool> asked = false;
  std::atomic<bool> late = false;
  Supervisor supervisor(
      milliseconds(20),
      [&](const std::string&, bool deadline) {
        late = deadline;
        asked = true;
      },
      [](const std::string&) {});
  wait_for(asked);
  EXPECT_TRUE(late);
  EXPECT_EQ(supervisor.reason(), "deadline of 0.02 s passed");
}

TEST(Supervisor, AsksAtASignal) {
  std::atomic<bool> asked = false;
  Supervisor supervisor(
      {}, [&asked](const std::string&, bool deadline) { asked = !deadline; },
      [](const std::string&) {});
  ::kill(::getpid(), SIGINT);
  wait_for(asked);
  EXPECT_TRUE(asked);
  EXPECT_EQ(supervisor.reason(), "interrupted by SIGINT");
}

TEST(Supervisor, FindsTheSignalThatWasHeldBack) {
  std::atomic<bool> asked = false;
  const HeldSignals held;
  ::kill(::getpid(), SIGINT);  // before there is anybody to hear it
  const Supervisor supervisor(
      {}, [&asked](const std::string&, bool) { asked = true; }, [](const std::string&) {});
  wait_for(asked);
  EXPECT_EQ(supervisor.reason(), "interrupted by SIGINT");
}

// What runs ignores the request: its process ends all the same, with its last words said.
void refuse_to_stop(int words) {
  Supervisor supervisor(
      milliseconds(10), [](const std::string&, bool) {},
      [words](const std::string& reason) {
        [[maybe_unused]] const auto ignored = ::write(words, reason.data(), reason.size());
      });
  ::sleep(100);
}

TEST(Supervisor, EndsAProcessThatDoesNotStop) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    refuse_to_stop(ends[1]);
    ::_exit(0);
  }
  ::close(ends[1]);
  char words[100] = {};
  EXPECT_GT(::read(ends[0], words, sizeof words - 1), 0);
  ::close(ends[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 2);
  EXPECT_STREQ(words, "deadline of 0.01 s passed");
}

}  // namespace
}  // namespace skidproof::cli
