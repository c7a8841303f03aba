// Companions, and the part that measures several CPUs: shape and what holds on any machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "harness/characterize/characterize.h"
#include "harness/characterize/companions.h"
#include "harness/characterize/testing/native_bench.h"
#include "harness/run/pinning.h"

namespace skidproof {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(OrderOfHelp, TakesOneOfEachCoreFirst) {
  const auto alone = [](int) { return -1; };
  EXPECT_THAT(order_of_help(std::vector{0, 1, 2, 3}, 3, alone), ElementsAre(3, 0, 1, 2));
  const auto neighbours = [](int cpu) { return cpu ^ 1; };
  EXPECT_THAT(order_of_help(std::vector{0, 1, 2, 3, 4, 5}, 2, neighbours),
              ElementsAre(2, 0, 4, 1, 3, 5));
  const auto halves = [](int cpu) { return (cpu + 2) % 4; };
  EXPECT_THAT(order_of_help(std::vector{0, 1, 2, 3}, 0, halves), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(order_of_help(std::vector{7}, 7, alone), ElementsAre(7));
}

class CoresTest : public NativeBench {
 protected:
  void SetUp() override {
    NativeBench::SetUp();
    open_bench();
  }
};

TEST_F(CoresTest, ACompanionWorksOnItsCpuThoughWeAreBoundToOurs) {
  for (int cpu : machine_->allowed()) {
    auto companion = Companion::start(cpu, machine_->allowed(), 1);
    ASSERT_TRUE(companion) << companion.error().text();
    int seen = -1;
    for (int time = 0; time < 3; ++time) {
      (*companion)->begin([&seen](Workbench& bench, const std::atomic<bool>&) -> Expected<void> {
        const Workpiece empty = SKIDPROOF_TRY(bench.prepare("empty", ""));
        SKIDPROOF_CHECK(bench.run(empty, 1));
        seen = sched_getcpu();
        return {};
      });
      EXPECT_TRUE((*companion)->wait(*bench_));
      EXPECT_EQ(seen, cpu);
      EXPECT_TRUE((*companion)->idle());
    }
  }
}

TEST_F(CoresTest, ACompanionAnswersStopsAndIsJoined) {
  auto companion = Companion::start(machine_->cpu(), machine_->allowed(), 1);
  ASSERT_TRUE(companion) << companion.error().text();
  const auto endless = [](Workbench&, const std::atomic<bool>& stop) -> Expected<void> {
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return fail(ErrorCode::kTimeout, "as asked");
  };
  (*companion)->begin(endless);
  EXPECT_FALSE((*companion)->idle());
  EXPECT_EQ((*companion)->stop().error().message, "as asked");
  std::atomic<bool> cancel{true};
  options_.cancel = &cancel;  // the bench reads it where it is
  (*companion)->begin(endless);
  EXPECT_EQ((*companion)->wait(*bench_).error().message, "as asked");
  (*companion)->begin(endless);
  companion->reset();  // while it runs
}

TEST_F(CoresTest, ACompanionThatCannotBeIsAnError) {
  const auto nowhere = Companion::start(1023, machine_->allowed(), 1);
  ASSERT_FALSE(nowhere);
  EXPECT_THAT(nowhere.error().message, HasSubstr("1023"));
  const auto forbidden = Companion::start(machine_->cpu(), {}, 1);
  ASSERT_FALSE(forbidden);
  EXPECT_EQ(forbidden.error().code, ErrorCode::kPermission);
}

TEST_F(CoresTest, AllCpusAreMeasuredAndALineTakesLongerThanAHit) {
  options_.parts = {"latency", "cores"};
  options_.latency_bytes = {4096};
  const Characterization out = measure();
  EXPECT_TRUE(out.problems.empty() ||
              out.problems.front().message.find("2 MiB pages") != std::string::npos)
      << out.problems.front().text();
  const uint64_t cpus = machine_->allowed().size();
  double hit = INFINITY, transfer = INFINITY;
  std::map<std::string, std::set<uint64_t>> counts;
  std::set<std::pair<uint64_t, uint64_t>> pairs;
  uint64_t loaded = 0;
  for (const Measurement& m : out.measurements) {
    EXPECT_GE(m.value, m.name == "clock.drift" ? 0 : 1e-6) << m.name;
    const auto number = [&m](const char* key) { return std::get<uint64_t>(m.parameters.at(key)); };
    if (m.name == "memory.latency" && m.unit == "ns") hit = std::min(hit, m.value);
    if (m.name.starts_with("scaling.")) counts[m.name].insert(number("cpus"));
    if (m.name == "core.transfer" && m.unit == "ns") {
      EXPECT_TRUE(pairs.emplace(number("from"), number("to")).second);
      EXPECT_NE(number("from"), number("to"));
      transfer = std::min(transfer, m.value);
    }
    if (m.name == "memory.loaded_latency") {
      ++loaded;
      EXPECT_EQ(m.unit, "ns");
      EXPECT_EQ(number("streams") == 0, std::get<double>(m.parameters.at("bandwidth")) == 0);
    }
  }
  for (const char* name : {"scaling.load", "scaling.store", "scaling.copy"}) {
    EXPECT_TRUE(counts[name].contains(1)) << name;
    EXPECT_TRUE(counts[name].contains(cpus)) << name;
  }
  if (cpus == 1) return;
  EXPECT_FALSE(pairs.empty());
  EXPECT_EQ(loaded, 2u);
  EXPECT_GT(transfer, hit);
  EXPECT_EQ(pairs.size() < cpus * (cpus - 1) / 2, !out.unclear.empty())
      << "pairs left out are told";
}

TEST_F(CoresTest, OneCpuAloneIsSaid) {
  bench_.reset();
  const int cpu = machine_->cpu();
  machine_.reset();
  const auto pinned = PinGuard::pin(cpu);
  ASSERT_TRUE(pinned) << pinned.error().text();
  machine_ = std::move(*NativeMachine::create());
  ASSERT_EQ(machine_->allowed().size(), 1u);
  const Characterization out = measure("cores");
  EXPECT_TRUE(out.problems.empty()) << out.problems.front().text();
  std::set<std::string> names, unclear;
  for (const Measurement& m : out.measurements) {
    names.insert(m.name);
    EXPECT_EQ(std::get<uint64_t>(m.parameters.at("cpus")), 1u);
  }
  for (const Unclear& u : out.unclear) {
    unclear.insert(u.name);
    EXPECT_THAT(u.reason, HasSubstr("alone"));
  }
  EXPECT_THAT(names, ElementsAre("scaling.copy", "scaling.load", "scaling.store"));
  EXPECT_THAT(unclear, ElementsAre("shape.core.transfer", "shape.memory.loaded_latency"));
}

TEST_F(CoresTest, StopsInTheMiddleOfEachThing) {
  using namespace std::chrono_literals;
  for (const auto after : {0ms, 30ms, 100ms, 300ms, 600ms}) {
    std::atomic<bool> cancel{false};
    options_.cancel = &cancel;
    std::thread later([&] {
      std::this_thread::sleep_for(after);
      cancel = true;
    });
    options_.parts.clear();
    const auto began = std::chrono::steady_clock::now();
    const Characterization out = measure("cores");
    later.join();
    EXPECT_TRUE(out.problems.empty()) << out.problems.front().text();
    EXPECT_LT(std::chrono::steady_clock::now() - began, 60s);
  }
}

}  // namespace
}  // namespace skidproof
