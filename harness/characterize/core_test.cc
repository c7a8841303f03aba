// The core's parts: judgement over curves that are made up, and the rows of a quick look.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "harness/characterize/characterize.h"
#include "harness/characterize/code.h"
#include "harness/characterize/instructions.h"
#include "harness/characterize/testing/native_bench.h"
#include "harness/characterize/windows.h"

namespace skidproof {
namespace {

// One miss takes 400 cycles; from `size` on a second one comes, within `soft` further sizes.
std::vector<CurvePoint> window_curve(uint64_t size, uint64_t soft, double slope = 0) {
  std::vector<CurvePoint> curve;
  const auto add = [&](uint64_t x) {
    const double over =
        x <= size ? 0
                  : std::min(1.0, static_cast<double>(x - size) / static_cast<double>(soft + 1));
    const double cost = 400 + 300 * over + slope * static_cast<double>(x);
    curve.push_back(
        {.x = x, .value = cost, .low = cost - 5, .high = cost + 5, .least = cost - 3, .n = 6});
  };
  for (uint64_t x = 16; x < 1000; x += x / 4) add(x);
  for (uint64_t x = size - std::min<uint64_t>(size, 4); x < size + soft + 4; ++x) add(x);
  return curve;
}

TEST(JudgeWindow, FindsASharpEdgeExactly) {
  for (uint64_t size : {40, 56, 112, 192, 512}) {
    const WindowSize found = judge_window(window_curve(size, 0), 400);
    EXPECT_TRUE(found.clear) << found.why;
    EXPECT_EQ(found.size, size);
    EXPECT_EQ(found.low, size);
    EXPECT_EQ(found.high, size + 1);
  }
}

TEST(JudgeWindow, TakesTheMiddleOfASoftEdgeAndTellsItsEnds) {
  const WindowSize found = judge_window(window_curve(240, 6, 0.05), 400);
  EXPECT_TRUE(found.clear) << found.why;
  EXPECT_GE(found.size, 241u);
  EXPECT_LE(found.size, 245u);
  EXPECT_LT(found.low, found.size);
  EXPECT_GT(found.high, found.size);
}

TEST(JudgeWindow, IsNotClearWithoutASecondMissOrOverASlope) {
  std::vector<CurvePoint> flat = window_curve(2000, 0);
  std::erase_if(flat, [](const CurvePoint& at) { return at.x > 1000; });
  const WindowSize none = judge_window(flat, 400);
  EXPECT_FALSE(none.clear);
  EXPECT_GT(none.at_least, 700u);
  EXPECT_FALSE(judge_window(window_curve(100, 200), 400).clear);
  EXPECT_FALSE(judge_window({}, 400).clear);
  // A second plateau that is no miss higher: something else ends there.
  std::vector<CurvePoint> low = window_curve(100, 0);
  for (CurvePoint& at : low) at.least = 400 + (at.least - 400) / 4;
  EXPECT_FALSE(judge_window(low, 400).clear);
}

// A core that holds 192 of something, half of which another thread has while it is there.
class WindowEdge : public NativeBench {
 protected:
  static constexpr double kMiss = 400;
  void SetUp() override {
    NativeBench::SetUp();
    open_bench();
    bench_->begin_part(0, 1, 2);
    question_.what = "load";
    question_.point = [this](uint64_t size) {
      Point point;
      point.what = "window";
      point.sample = [this, size]() -> Expected<Sample> {
        const bool company = company_(samples_++);
        Sample sample;
        sample.ns = sample.cycles = size <= (company ? 192 - taken_ : 192u) ? kMiss : 700;
        sample.spoiled = company && issues_;
        return sample;
      };
      return point;
    };
    // In company but for the moment in which 170 were looked at.
    for (uint64_t x : {16, 32, 64, 96, 128, 170, 171, 182, 195, 250, 350})
      reach_.curve.push_back({.x = x, .least = x <= 170 ? kMiss : 700, .n = 6});
  }
  WindowSize closer() {
    EXPECT_TRUE(look_closer(*bench_, question_, kMiss, witness_, 0.1, whole_, reach_));
    return judge_window(reach_.curve, kMiss);
  }

  static void expect_192(const WindowSize& found) {
    EXPECT_TRUE(found.clear) << found.why;
    EXPECT_LE(found.low, 192u);
    EXPECT_GT(found.high, 192u);
    EXPECT_LE(found.high - found.low, 2u);
  }
  // By samples that nobody disturbed.
  void expect_192_alone(const WindowSize& found) const {
    expect_192(found);
    EXPECT_TRUE(known_whole(whole_, found.high));
    for (const auto& [size, point] : whole_)
      EXPECT_THAT(point.cycles, testing::Each(size <= 192 ? kMiss : 700)) << size;
  }

  ReachQuestion question_;
  Reach reach_;
  WholeSamples whole_;
  std::optional<Witness> witness_;
  unsigned taken_ = 96;
  std::function<bool(unsigned sample)> company_;
  unsigned samples_ = 0;
  bool issues_ = true;
};

TEST_F(WindowEdge, MovesToWhereItIsOnceTheCoreIsWhole) {
  company_ = [](unsigned) { return false; };
  const WindowSize found = closer();
  expect_192(found);
  EXPECT_TRUE(known_whole(whole_, found.high));
}

TEST_F(WindowEdge, IsNotKnownWhileAnotherThreadStays) {
  company_ = [](unsigned) { return true; };
  for (const bool issues : {true, false}) {
    issues_ = issues;  // or it waits, and keeps its half
    EXPECT_FALSE(known_whole(whole_, closer().high)) << issues;
  }
}

TEST_F(WindowEdge, CountsSamplesBetweenTwoThatSawNobody) {
  issues_ = false;
  company_ = [](unsigned sample) { return sample % 16 < 8; };  // comes and goes
  expect_192_alone(closer());
}

// As of registers, which are given by need: of a store queue half is gone.
TEST_F(WindowEdge, OfWhichAWaitingThreadHasAFewIsKnownWhileAWitnessFits) {
  issues_ = false;
  taken_ = 10;
  company_ = [](unsigned sample) { return sample % 64 < 32; };
  const auto of_the_store_queue = [this](uint64_t size) {
    Point point;
    point.what = "witness";
    point.sample = [this, size]() -> Expected<Sample> {
      Sample sample;
      sample.ns = sample.cycles = size <= (company_(samples_++) ? 56u : 112u) ? kMiss : 700;
      return sample;
    };
    return point;
  };
  witness_ = witness_of({.point = of_the_store_queue}, {.low = 112, .border = 550});
  EXPECT_LE(witness_->size, 112u);
  expect_192_alone(closer());
}

TEST_F(WindowEdge, IsNotKnownWhileTheWitnessDoesNotFit) {
  issues_ = false;
  taken_ = 10;
  company_ = [](unsigned) { return true; };
  witness_ = {.point = question_.point, .size = 190, .border = 550};
  EXPECT_FALSE(known_whole(whole_, closer().high));
}

WindowSize sized(uint64_t size) {
  return {.clear = true, .size = size, .low = size, .high = size + 1, .at_least = size};
}
using Windows = std::map<std::string, WindowSize, std::less<>>;

TEST(JudgeWindowsTogether, KeepsWhatEndsFirst) {
  Windows windows = {{"nop", sized(512)},    {"mixed", sized(480)}, {"integer", sized(280)},
                     {"vector", sized(240)}, {"load", sized(192)},  {"store", sized(112)},
                     {"waiting", sized(100)}};
  judge_windows_together(windows);
  for (const auto& [filler, one] : windows) EXPECT_TRUE(one.clear) << filler << ": " << one.why;
}

TEST(JudgeWindowsTogether, DoesNotTakeTheReorderBufferForRegisters) {
  Windows windows = {{"nop", sized(224)},
                     {"integer", sized(222)},
                     {"vector", sized(140)},
                     {"waiting", sized(139)}};
  judge_windows_together(windows);
  EXPECT_TRUE(windows["nop"].clear);
  EXPECT_TRUE(windows["vector"].clear);
  EXPECT_FALSE(windows["integer"].clear);
  EXPECT_TRUE(windows["waiting"].clear);
  Windows short_of_registers = {
      {"nop", sized(512)}, {"integer", sized(140)}, {"waiting", sized(139)}};
  judge_windows_together(short_of_registers);
  EXPECT_FALSE(short_of_registers["waiting"].clear) << "a register each, and there are no more";
}

TEST(MoreOf, TakesTheOrderOfWhichMoreAreHeld) {
  EXPECT_EQ(more_of(sized(237), sized(318)).size, 318u);
  EXPECT_EQ(more_of(sized(318), sized(237)).size, 318u);
  WindowSize unclear;
  unclear.at_least = 300;
  EXPECT_FALSE(more_of(sized(237), unclear).clear) << "it may be larger";
  EXPECT_FALSE(more_of(unclear, sized(237)).clear);
  EXPECT_EQ(more_of(unclear, sized(310)).size, 310u) << "no smaller than what the other says";
  WindowSize neither;
  neither.at_least = 100;
  EXPECT_EQ(more_of(neither, unclear).at_least, 300u);
}

TEST(JudgeReorderBuffer, BelievesNoOperationsOnlyBesideOthers) {
  const auto judged = [](const WindowSize& nops, const WindowSize& mixed) {
    return judge_reorder_buffer({{"nop", nops}, {"mixed", mixed}});
  };
  EXPECT_EQ(judged(sized(498), sized(480)).size, 498u);
  EXPECT_EQ(judged(sized(640), sized(320)).size, 320u) << "two to an entry";
  WindowSize unclear;
  unclear.why = "it never settles";
  EXPECT_FALSE(judged(sized(512), unclear).clear);
  EXPECT_FALSE(judged(unclear, sized(512)).clear);
}

TEST(JudgeReorderBuffer, DoesNotBelieveAMixtureWhoseOrderDecides) {
  const auto judged = [](uint64_t nops, uint64_t by_turns, uint64_t in_pairs) {
    return judge_reorder_buffer(
        {{"nop", sized(nops)}, {"mixed", sized(by_turns)}, {"mixed_pairs", sized(in_pairs)}});
  };
  EXPECT_EQ(judged(640, 315, 320).size, 320u);
  const WindowSize packed = judged(1260, 237, 362);
  EXPECT_FALSE(packed.clear);
  EXPECT_EQ(packed.at_least, 237u);
  EXPECT_NE(packed.why.find("237 of a mixture"), std::string::npos) << packed.why;
  EXPECT_NE(packed.why.find("362"), std::string::npos) << packed.why;
  EXPECT_EQ(judged(330, 237, 320).size, 330u) << "no-operations stand beside one order";
}

TEST(JudgeReorderBuffer, DoesNotBelieveAMixtureOfWhichFewerAreHeldThanOfOneKind) {
  const auto judged = [](uint64_t nops, uint64_t vectors) {
    return judge_reorder_buffer(
        {{"nop", sized(nops)}, {"mixed", sized(368)}, {"vector", sized(vectors)}});
  };
  EXPECT_EQ(judged(446, 429).size, 446u);
  EXPECT_EQ(judged(446, 300).size, 368u) << "registers end before the buffer does";
  const WindowSize neither = judged(900, 429);
  EXPECT_FALSE(neither.clear) << "two to an entry, and the mixture is no witness";
  EXPECT_EQ(neither.at_least, 429u);
  EXPECT_NE(neither.why.find("429 of vector"), std::string::npos) << neither.why;
}

TEST(JudgeWindowsTogether, AMixtureThatEndsEarlyIsNoWitness) {
  Windows windows = {
      {"nop", sized(446)}, {"mixed", sized(368)}, {"vector", sized(429)}, {"load", sized(360)}};
  judge_windows_together(windows);
  EXPECT_FALSE(windows["vector"].clear) << "nearly as many as there are entries";
  EXPECT_TRUE(windows["load"].clear) << windows["load"].why;
}

TEST(FreeOfCost, IsSureOnBothSidesAndNotBetween) {
  EXPECT_EQ(free_of_cost(0.16, 0.18, 1), true);
  EXPECT_EQ(free_of_cost(0.24, 0.26, 1), true);
  EXPECT_EQ(free_of_cost(0.99, 1.01, 1), false);
  EXPECT_EQ(free_of_cost(0.5, 0.9, 1), std::nullopt);
  EXPECT_EQ(free_of_cost(0.1, 1.2, 1), std::nullopt);
}

std::vector<CurvePoint> code_curve(std::initializer_list<double> costs) {
  std::vector<CurvePoint> curve;
  for (double cost : costs)
    curve.push_back({.x = 4096 * (curve.size() + 1), .value = cost, .least = cost, .n = 6});
  return curve;
}

TEST(JudgeDecoded, WantsOneStep) {
  const Reach step = judge_decoded(code_curve({0.17, 0.17, 0.171, 0.25, 0.251, 0.25}));
  EXPECT_TRUE(step.clear) << step.why;
  EXPECT_EQ(step.last_within, 3u * 4096);
  EXPECT_FALSE(judge_decoded(code_curve({0.19, 0.20, 0.21, 0.23, 0.25, 0.27, 0.30})).clear);
  EXPECT_FALSE(judge_decoded(code_curve({0.25, 0.25, 0.25, 0.25})).clear);
  EXPECT_FALSE(judge_decoded({}).clear);
}

class CoreTest : public NativeBench {
 protected:
  void SetUp() override {
    NativeBench::SetUp();
    options_.repetitions = 1;
  }
  std::multimap<std::string, Measurement> rows_of(const char* part) {
    const Characterization out = measure(part);
    std::multimap<std::string, Measurement> rows;
    for (const Error& problem : out.problems) ADD_FAILURE() << problem.text();
    for (const Measurement& m : out.measurements) rows.emplace(m.name, m);
    for (const Unclear& one : out.unclear) {
      EXPECT_FALSE(one.reason.empty()) << one.name;
      unclear_.insert(one.name);
    }
    return rows;
  }
  bool answered(const std::multimap<std::string, Measurement>& rows,
                const std::string& name) const {
    return (rows.count(name) == 1) != unclear_.contains(name);
  }

  std::set<std::string> unclear_;
};

TEST_F(CoreTest, InstructionsHaveLatencyAndThroughput) {
  options_.repetitions = 3;
  const auto rows = rows_of("instructions");
  std::map<std::string, double> latency, throughput;
  for (const auto& [name, m] : rows) {
    if (!m.parameters.contains("instruction")) continue;
    const auto& instruction = std::get<std::string>(m.parameters.at("instruction"));
    if (name == "instruction.latency") latency[instruction] = m.value;
    if (name == "instruction.throughput") throughput[instruction] = m.value;
  }
  for (const char* name : {"add", "imul", "div64", "mov", "mulps", "paddd"}) {
    EXPECT_GT(latency[name], 0) << name;
    EXPECT_GT(throughput[name], 0) << name;
  }
  EXPECT_GT(throughput["load"], 0);
  EXPECT_FALSE(latency.contains("load"));
  EXPECT_GT(latency["div64"], latency["add"]);
  EXPECT_GT(latency["imul"], 1.5 * latency["add"]) << "on no CPU is a product as quick as a sum";
  for (const char* name : {"shape.move_elimination.mov", "shape.zeroing_idiom.xor"})
    EXPECT_TRUE(answered(rows, name)) << name;
}

TEST_F(CoreTest, WindowsAreSizesOrNotClear) {
  const auto rows = rows_of("windows");
  EXPECT_GT(rows.count("window.time"), 20u);
  for (const char* name :
       {"shape.rob.size", "shape.int_registers.size", "shape.vector_registers.size",
        "shape.load_queue.size", "shape.store_queue.size", "shape.scheduler.size"}) {
    EXPECT_TRUE(answered(rows, name)) << name;
  }
}

TEST_F(CoreTest, CodeHasAReachOrNone) {
  const auto rows = rows_of("code");
  EXPECT_GT(rows.count("code.footprint"), 4u);
  EXPECT_TRUE(answered(rows, "shape.code.reach"));
  EXPECT_TRUE(answered(rows, "shape.uop_cache.reach"));
}

}  // namespace
}  // namespace skidproof
