// Workers that answer, crash, hang and talk much.
#include "harness/cli/worker_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <stdexcept>
#include <string>

namespace skidproof::cli {
namespace {

using ::testing::HasSubstr;

void say(int descriptor, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(descriptor, text.data() + done, text.size() - done);
    if (written <= 0) return;
    done += static_cast<size_t>(written);
  }
}

std::map<size_t, WorkDone> wait_for_all(WorkerPool& pool) {
  std::map<size_t, WorkDone> all;
  while (!pool.idle()) {
    for (WorkDone& done : pool.wait()) all[done.id] = std::move(done);
  }
  return all;
}

TEST(WorkerPool, GathersWhatEachWorkerSays) {
  WorkerPool pool(2, std::chrono::seconds(60));
  for (size_t id : {0, 1, 2}) {
    ASSERT_TRUE(pool.start(id, [id](int out) { say(out, std::string(300'000, 'a' + char(id))); }));
  }
  const auto all = wait_for_all(pool);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all.at(2).output, std::string(300'000, 'c'));
  EXPECT_EQ(all.at(2).problem, "");
}

TEST(WorkerPool, HasRoomForSoManyAtATime) {
  WorkerPool pool(1, std::chrono::seconds(60));
  EXPECT_TRUE(pool.room());
  ASSERT_TRUE(pool.start(0, [](int) {}));
  EXPECT_FALSE(pool.room());
  wait_for_all(pool);
  EXPECT_TRUE(pool.room());
}

TEST(WorkerPool, ACrashIsReportedWithWhatCameBefore) {
  WorkerPool pool(2, std::chrono::seconds(60));
  ASSERT_TRUE(pool.start(0, [](int out) {
    say(out, "before");
    ::raise(SIGKILL);
  }));
  ASSERT_TRUE(pool.start(1, [](int) { throw std::runtime_error("no machine"); }));
  const auto all = wait_for_all(pool);
  EXPECT_EQ(all.at(0).output, "before");
  EXPECT_THAT(all.at(0).problem, HasSubstr("signal 9"));
  EXPECT_EQ(all.at(1).problem, "ended with 1");
}

TEST(WorkerPool, AHangEndsAtTheLimit) {
  WorkerPool pool(1, std::chrono::seconds(1));
  ASSERT_TRUE(pool.start(0, [](int) { ::sleep(100); }));
  const auto all = wait_for_all(pool);
  EXPECT_EQ(all.at(0).problem, "said nothing for 1 s");
  EXPECT_LT(all.at(0).seconds, 30);
}

TEST(WorkerPool, ASignalEndsTheWaitingAndTheWorkers) {
  const auto began = std::chrono::steady_clock::now();
  {
    WorkerPool pool(1, std::chrono::seconds(60));
    ASSERT_TRUE(pool.start(0, [](int) { ::sleep(100); }));
    ::kill(::getpid(), SIGTERM);
    EXPECT_TRUE(pool.wait().empty());
    EXPECT_EQ(pool.interrupted(), "interrupted by SIGTERM");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(30));
}

}  // namespace
}  // namespace skidproof::cli
