// Pinning, clocks, noise and the watchdog: what can be said of them without asserting a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <future>
#include <thread>

#include "harness/run/clock.h"
#include "harness/run/native_identity.h"
#include "harness/run/noise.h"
#include "harness/run/pinning.h"
#include "harness/run/watchdog.h"

namespace skidproof {
namespace {

using std::chrono::milliseconds;

TEST(PinGuard, PinsAndRestores) {
  const auto allowed = allowed_cpus();
  ASSERT_TRUE(allowed);
  ASSERT_FALSE(allowed->empty());
  {
    auto guard = PinGuard::pin(allowed->front());
    ASSERT_TRUE(guard) << guard.error().text();
    const PinGuard moved = std::move(*guard);
    EXPECT_EQ(sched_getcpu(), allowed->front());
    EXPECT_THAT(*allowed_cpus(), testing::ElementsAre(allowed->front()));
  }
  EXPECT_EQ(*allowed_cpus(), *allowed);
}

TEST(AllowCpus, WidensWhatAPinLeft) {
  const auto allowed = allowed_cpus();
  ASSERT_TRUE(allowed);
  std::thread([&allowed] {
    auto guard = PinGuard::pin(allowed->front());
    ASSERT_TRUE(guard) << guard.error().text();
    EXPECT_EQ(allowed_cpus()->size(), 1u);
    EXPECT_TRUE(allow_cpus(*allowed));
    EXPECT_EQ(*allowed_cpus(), *allowed);
  }).join();
  EXPECT_EQ(allow_cpus({}).error().code, ErrorCode::kPermission);
  EXPECT_EQ(allow_cpus(std::vector{-1, CPU_SETSIZE}).error().code, ErrorCode::kPermission);
}

TEST(PinGuard, NamesTheCpusItCouldTake) {
  const auto guard = PinGuard::pin(-1);
  ASSERT_FALSE(guard);
  EXPECT_THAT(guard.error().advice, testing::HasSubstr("choose one of"));
}

TEST(Clock, TscCountsUpward) {
  const uint64_t first = fenced_tsc();
  EXPECT_GT(fenced_tsc(), first);
}

TEST(Clock, CalibratesToAPlausibleFrequency) {
  const auto hertz = calibrate_tsc(2);
  ASSERT_TRUE(hertz) << hertz.error().text();
  // No x86 with an invariant TSC has ticked slower or faster.
  EXPECT_GT(*hertz, 0.3e9);
  EXPECT_LT(*hertz, 10e9);
}

TEST(Noise, AddsUp) {
  const Noise sum = Noise{1, 2, 3, 0.5} + Noise{10, 20, 30, 0.25};
  EXPECT_EQ(sum.involuntary_switches, 11u);
  EXPECT_EQ(sum.migrations, 22u);
  EXPECT_EQ(sum.smi, 33u);
  EXPECT_EQ(sum.steal_s, 0.75);
  EXPECT_FALSE(quiet(sum));
  EXPECT_TRUE(quiet(Noise{}));
}

TEST(NoiseMeter, SeesAMigration) {
  const auto allowed = allowed_cpus();
  ASSERT_TRUE(allowed);
  if (allowed->size() < 2) GTEST_SKIP() << "one CPU only: nowhere to migrate to";
  auto guard = PinGuard::pin(allowed->front());
  ASSERT_TRUE(guard);
  NoiseMeter meter;
  meter.begin();
  EXPECT_EQ(meter.end().migrations, 0u);
  meter.begin();
  *guard = [&] {
    PinGuard released = std::move(*guard);
    { const PinGuard gone = std::move(released); }
    return *PinGuard::pin(allowed->back());
  }();
  EXPECT_EQ(meter.end().migrations, 1u);
}

TEST(Watchdog, CallsBackOnceAfterTheDeadline) {
  std::promise<void> called;
  std::atomic<int> calls{0};
  Watchdog watchdog(milliseconds(1), [&] {
    ++calls;
    called.set_value();
  });
  called.get_future().wait();
  watchdog.stop();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(watchdog.expired());
}

TEST(Sibling, IsTheOtherProcessorOfTheKernelsList) {
  EXPECT_EQ(sibling_in("3", 3), -1);
  EXPECT_EQ(sibling_in("3,67", 3), 67);
  EXPECT_EQ(sibling_in("3,67", 67), 3);
  EXPECT_EQ(sibling_in("2-3", 3), 2);
  EXPECT_EQ(sibling_in("2-3", 2), 3);
  EXPECT_EQ(sibling_in("1-2,65-66", 1), 2);
  for (const char* none : {"", "x", "-", "3-", ","}) EXPECT_EQ(sibling_in(none, 3), -1) << none;
}

TEST(Watchdog, StaysSilentWhenStoppedInTime) {
  std::atomic<int> calls{0};
  {
    Watchdog watchdog(std::chrono::hours(1), [&] { ++calls; });
    watchdog.stop();
    EXPECT_FALSE(watchdog.expired());
  }
  {
    const Watchdog destroyed(std::chrono::hours(1), [&] { ++calls; });
  }
  EXPECT_EQ(calls, 0);
}

TEST(Watchdog, RestartMovesTheDeadline) {
  std::promise<void> called;
  Watchdog watchdog(std::chrono::hours(1), [&] { called.set_value(); });
  watchdog.restart(milliseconds(1));
  called.get_future().wait();
  watchdog.stop();
  EXPECT_TRUE(watchdog.expired());
}

}  // namespace
}  // namespace skidproof
