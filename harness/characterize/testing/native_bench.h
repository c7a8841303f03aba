// A test's machine: the CPU in front of us, looked at quickly.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_TESTING_NATIVE_BENCH_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_TESTING_NATIVE_BENCH_H_

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "harness/characterize/characterize.h"
#include "harness/characterize/workbench.h"
#include "harness/run/native_machine.h"

namespace skidproof {

class NativeBench : public testing::Test {
 protected:
  void SetUp() override {
    auto created = NativeMachine::create();
    ASSERT_TRUE(created) << created.error().text();
    machine_ = std::move(*created);
    options_.effort = Effort::kQuick;
  }

  // For parts of parts, and plans of the test's own.
  void open_bench() {
    auto bench = Workbench::create(*machine_, options_, out_);
    ASSERT_TRUE(bench) << bench.error().text();
    bench_.emplace(std::move(*bench));
  }

  // The parts in `options_`. Every row is sane.
  Characterization measure() {
    auto out = characterize(*machine_, options_);
    EXPECT_TRUE(out) << out.error().text();
    if (!out) return {};
    for (const Measurement& m : out->measurements) {
      EXPECT_TRUE(std::isfinite(m.value)) << m.name;
      EXPECT_LE(m.low, m.value) << m.name;
      EXPECT_GE(m.high, m.value) << m.name;
      EXPECT_GT(m.n, 0u) << m.name;
      EXPECT_FALSE(m.unit.empty()) << m.name;
      EXPECT_FALSE(m.statistic.empty()) << m.name;
    }
    return *out;
  }
  Characterization measure(const char* part) {
    options_.parts = {part};
    return measure();
  }

  std::unique_ptr<NativeMachine> machine_;
  CharacterizeOptions options_;
  Characterization out_;  // of `bench_`
  std::optional<Workbench> bench_;
};

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_TESTING_NATIVE_BENCH_H_
