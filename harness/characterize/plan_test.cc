// Plans over points whose samples are known: what drops out, what goes on, what ends.
#include "harness/characterize/plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "harness/characterize/testing/machine_over.h"
#include "harness/characterize/testing/native_bench.h"

namespace skidproof {
namespace {

class PlanTest : public NativeBench {
 protected:
  void SetUp() override {
    NativeBench::SetUp();
    open_bench();
  }
  // Its samples are `steady`, or jump between that and three times as much.
  Point point(size_t tag, bool steady) {
    Point made;
    made.tag = tag;
    made.what = "point " + std::to_string(tag);
    made.sample = [this, tag, steady]() -> Expected<Sample> {
      order_.push_back(tag);
      const double cycles = steady || taken(tag) % 2 == 0 ? 4 : 12;
      return Sample{cycles / 2, cycles, {.repeats = 1}};
    };
    return made;
  }
  size_t taken(size_t tag) const {
    return static_cast<size_t>(std::count(order_.begin(), order_.end(), tag));
  }

  std::vector<size_t> order_;
};

TEST_F(PlanTest, WhatIsNarrowDropsOutAndTheRestGoesOn) {
  std::vector<Point> points = {point(0, true), point(1, false)};
  ASSERT_TRUE(take_by_turns(*bench_, points, {.most = 20, .seconds = 60}));
  EXPECT_EQ(taken(0), 6u) << "as many as an interval needs";
  EXPECT_EQ(taken(1), 20u) << "never narrow";
  EXPECT_TRUE(points[0].narrow);
  EXPECT_FALSE(points[1].narrow);
  EXPECT_EQ(points[0].median_cycles(), 4);
  EXPECT_EQ(points[0].median_ns(), 2);
  EXPECT_EQ(points[0].noise.repeats, 6u);
}

TEST_F(PlanTest, APointMayAskForMoreSamplesThanTheGoal) {
  std::vector<Point> points = {point(0, true), point(1, true)};
  points[0].least = 15;
  points[1].least = 2;
  ASSERT_TRUE(take_by_turns(*bench_, points, {.most = 20, .seconds = 60}));
  EXPECT_EQ(taken(0), 15u);
  EXPECT_EQ(taken(1), 6u) << "and not for fewer";
}

TEST_F(PlanTest, AProgramElsewhereRunsOverMemoryOfItsOwn) {
  const auto pages = bench_->allocate(8192, false);
  ASSERT_TRUE(pages) << pages.error().text();
  Memory first = *pages, second = *pages;
  first.host = first.host.first(4096);
  second.host = second.host.subspan(4096);
  second.address += 4096;
  const auto chase = bench_->prepare("pointer_chase", "bytes=4096,granularity=64", first);
  ASSERT_TRUE(chase) << chase.error().text();
  const auto there = bench_->elsewhere(*chase, second);
  ASSERT_TRUE(there) << there.error().text();
  EXPECT_EQ(there->program.code_address, chase->program.code_address);
  // A chase's result is its next pointer.
  const auto within = [&](const Workpiece& piece) {
    const auto run = bench_->run(piece, 5);
    return run && run->result >= piece.data.address && run->result < piece.data.address + 4096;
  };
  EXPECT_TRUE(within(*chase));
  EXPECT_TRUE(within(*there));
}

// Their samples take no time themselves: 10 ms are what was waited for.
TEST_F(PlanTest, APointIsSampledOverTheSpanHoweverNarrow) {
  using Clock = std::chrono::steady_clock;
  std::vector<Point> points = {point(0, true), point(1, false)};
  const auto began = Clock::now();
  ASSERT_TRUE(take_by_turns(*bench_, points, {.most = 20, .seconds = 60, .span = 0.01}));
  EXPECT_GE(Clock::now() - began, std::chrono::milliseconds(10));
  EXPECT_GE(taken(0), 6u);
  EXPECT_GE(taken(1), 20u);
}

TEST_F(PlanTest, ASpanLongerThanTheTimeIsTheTime) {
  std::vector<Point> points = {point(0, true)};
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(take_by_turns(*bench_, points, {.seconds = 0.01, .span = 1e6}));
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(10));
  EXPECT_TRUE(points[0].narrow);
}

// Most samples are disturbed, so that the median says what neighbours do; the quartile what the machine does.
TEST_F(PlanTest, AQuartileIsWhatFewUndisturbedSamplesAgreeOn) {
  options_.effort = Effort::kDefault;
  std::vector<Point> points = {point(0, true), point(1, true)};
  points[0].figure = Statistic::kLowerQuartile;
  points[1].figure = Statistic::kLowerQuartile;
  points[1].sample = [this]() -> Expected<Sample> {
    order_.push_back(1);
    const auto at = static_cast<double>(taken(1));
    const double cycles = taken(1) % 5 < 2 ? 4 : 5 + at;
    return Sample{.ns = cycles / 2, .cycles = cycles};
  };
  ASSERT_TRUE(take_by_turns(*bench_, points, {.most = 100, .seconds = 60}));
  EXPECT_EQ(taken(0), 11u) << "as many as an interval of a quartile needs";
  EXPECT_TRUE(points[1].narrow);
  EXPECT_GT(points[1].median_cycles(), 10);
  emit_point(*bench_, points[1], "quartile", {}, In::kNs);
  const Measurement& row = out_.measurements.back();
  EXPECT_EQ(row.value, 2);
  EXPECT_EQ(row.low, 2);
  EXPECT_EQ(row.high, 2);
  EXPECT_EQ(row.statistic, "lower quartile");
  EXPECT_EQ(row.interval, "95% of the lower quartile");
}

// Rounds of four billion samples fit into no minute.
TEST_F(PlanTest, WhereTimeIsShortALoserOfARaceDropsOut) {
  std::vector<Point> points = {point(0, true), point(1, false), point(2, true), point(3, true)};
  for (size_t i = 0; i < points.size(); ++i) {
    points[i].race = i == 3 ? "alone" : "three";  // nobody is beside the last
    points[i].enough = [this, i] { return taken(i) >= 30; };
  }
  // 4, by turns 4 and 12, and 5 cycles, in one race; 5 alone.
  for (size_t i : {2, 3}) {
    points[i].sample = [this, i]() -> Expected<Sample> {
      order_.push_back(i);
      return Sample{.ns = 2.5, .cycles = 5};
    };
  }
  const Goal goal{.most = 4'000'000'000, .seconds = 60};
  ASSERT_TRUE(take_by_turns(*bench_, points, goal));
  EXPECT_EQ(taken(0), 30u);
  EXPECT_EQ(taken(1), 30u) << "it may be as good";
  EXPECT_EQ(taken(2), 6u);
  EXPECT_EQ(taken(3), 30u);

  order_.clear();
  for (Point& again : points) again.cycles.clear();
  ASSERT_TRUE(take_by_turns(*bench_, points, {.most = 40, .seconds = 60}));
  EXPECT_EQ(taken(2), 30u) << "there is time for all";
}

// So near to one another that none is surely the slower.
TEST_F(PlanTest, WhereTimeIsShortTheWorseHalfOfARaceDropsOutDownToThree) {
  std::vector<Point> points;
  for (size_t i = 0; i < 13; ++i) {
    points.push_back(point(i, true));
    points[i].race = "thirteen";
    points[i].figure = Statistic::kLowerQuartile;
    points[i].sample = [this, i]() -> Expected<Sample> {
      order_.push_back(i);
      const double cycles = 4 + 1e-3 * static_cast<double>(i);
      return Sample{.ns = cycles / 2, .cycles = cycles};
    };
    points[i].enough = [this, i] { return taken(i) >= 30; };
  }
  const Goal short_of_time{.most = 4'000'000'000, .seconds = 60};
  ASSERT_TRUE(take_by_turns(*bench_, points, short_of_time));
  std::vector<size_t> found;
  for (size_t i = 0; i < points.size(); ++i) found.push_back(taken(i));
  EXPECT_THAT(found, testing::ElementsAre(30, 30, 30, 8, 7, 7, 7, 6, 6, 6, 6, 6, 6));

  // The time is over from the start: three rounds tell.
  bench_->begin_part(0, 1, 60);
  order_.clear();
  for (Point& again : points) again.cycles.clear();
  ASSERT_TRUE(take_by_turns(*bench_, points, {.most = 40, .seconds = 1e-9}));
  EXPECT_EQ(taken(0), 6u);
  EXPECT_EQ(taken(2), 6u);
  EXPECT_EQ(taken(12), 3u);
}

TEST_F(PlanTest, SaysHowManySamplesOthersSpoiled) {
  std::vector<Point> points = {point(0, true)};
  points[0].sample = [this]() -> Expected<Sample> {
    order_.push_back(0);
    return Sample{.ns = 2, .cycles = 4, .spoiled = taken(0) % 2 == 0};
  };
  ASSERT_TRUE(take_by_turns(*bench_, points, {.seconds = 60}));
  EXPECT_EQ(points[0].spoiled, 3u);
  EXPECT_EQ(std::get<uint64_t>(parameters_of(points[0], {}).at("disturbed")), 3u);
  points[0].spoiled = 0;
  EXPECT_TRUE(parameters_of(points[0], {}).empty());
}

// Of a machine whose runs are all preempted, and of one that the timer interrupts only.
TEST_F(PlanTest, ARunIsSpoiledByOthersAndNotByTheTimer) {
  const auto with = [](const Noise& noise) {
    return [noise]() -> Expected<CountedRun> {
      CountedRun log;
      log.tsc = 100;
      log.noise = noise;
      return log;
    };
  };
  EXPECT_TRUE(bench_->sample(2, with({.involuntary_switches = 1}))->spoiled);
  EXPECT_FALSE(bench_->sample(2, with({.interrupted = 1}))->spoiled);
  EXPECT_FALSE(bench_->sample(2, with({}))->spoiled);
  const auto both = bench_->sample_both(2, with({.migrations = 1}), with({}));
  EXPECT_TRUE(both->first.spoiled);
  EXPECT_FALSE(both->second.spoiled);
  EXPECT_TRUE((both->first - both->second).spoiled);
  EXPECT_TRUE(both->first.per(4).spoiled);
}

TEST_F(PlanTest, WhatADifferenceIsComparedWithMakesItNarrow) {
  std::vector<Point> points = {point(0, false)};
  points[0].scale = 1e6;
  ASSERT_TRUE(take_by_turns(*bench_, points, {.most = 20, .seconds = 60}));
  EXPECT_EQ(taken(0), 6u);
}

TEST_F(PlanTest, WhenTheTimeIsOverEachHasTheLeast) {
  std::vector<Point> points = {point(0, false), point(1, false)};
  ASSERT_TRUE(take_by_turns(*bench_, points, {.most = 1000, .seconds = 1e-9}));
  bench_->begin_part(0, 1, 60);
  order_.clear();
  points = {point(0, false), point(1, false)};
  ASSERT_TRUE(take_by_turns(*bench_, points, {.most = 1000, .seconds = 1e-9}));
  EXPECT_EQ(taken(0), 6u);
  EXPECT_EQ(taken(1), 6u);
}

TEST_F(PlanTest, SaidRepetitionsAreThatMany) {
  options_.repetitions = 3;
  std::vector<Point> points = {point(0, true), point(1, false)};
  ASSERT_TRUE(take_by_turns(*bench_, points, {.seconds = 1e-9}));
  EXPECT_EQ(taken(0), 3u);
  EXPECT_EQ(taken(1), 3u);
}

TEST_F(PlanTest, TheSeedDrawsTheOrderOfEachRoundAnew) {
  const auto order_with = [this](uint64_t seed) {
    options_.seed = seed;
    options_.repetitions = 4;
    order_.clear();
    std::vector<Point> points;
    for (size_t tag = 0; tag < 8; ++tag) points.push_back(point(tag, true));
    EXPECT_TRUE(take_by_turns(*bench_, points, {}));
    return order_;
  };
  const std::vector<size_t> one = order_with(1);
  EXPECT_EQ(one, order_with(1)) << "the same seed is the same plan";
  EXPECT_NE(one, order_with(2));
  const std::set<std::vector<size_t>> rounds = {{one.begin(), one.begin() + 8},
                                                {one.begin() + 8, one.begin() + 16}};
  EXPECT_EQ(rounds.size(), 2u) << "no two rounds alike";
}

TEST_F(PlanTest, APointThatFailsIsAProblemAndTheOthersGoOn) {
  std::vector<Point> points = {point(0, true), point(1, true)};
  points[0].sample = []() -> Expected<Sample> { return fail(ErrorCode::kNotAvailable, "none"); };
  ASSERT_TRUE(take_by_turns(*bench_, points, {.seconds = 60}));
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].tag, 1u);
  ASSERT_EQ(out_.problems.size(), 1u);
  EXPECT_EQ(out_.problems[0].message, "point 0: none");
}

TEST_F(PlanTest, CancelledItReturns) {
  std::atomic<bool> cancel{true};
  options_.cancel = &cancel;
  std::vector<Point> points = {point(0, true)};
  ASSERT_TRUE(take_by_turns(*bench_, points, {.seconds = 60}));
  EXPECT_TRUE(order_.empty());
}

TEST(KeepSamples, DropsOfEachWhatIsNotWanted) {
  Point point;
  point.ns = {1, 2, 3, 4};
  point.cycles = {10, 20, 30, 40};
  point.control = {0, 1, 0, 2};
  point.probed = {1, 2, 3, 4};
  point.counts.resize(4);
  point.noise.repeats = 7;
  point.spoiled = 3;
  keep_samples(point, {false, true, false, true});
  EXPECT_THAT(point.ns, testing::ElementsAre(2, 4));
  EXPECT_THAT(point.cycles, testing::ElementsAre(20, 40));
  EXPECT_THAT(point.control, testing::ElementsAre(1, 2));
  EXPECT_EQ(point.counts.size(), 2u);
  EXPECT_EQ(point.noise.repeats, 7u);
  EXPECT_EQ(point.spoiled, 2u) << "of two there are no three";
  keep_samples(point, {false, false});
  EXPECT_TRUE(point.ns.empty());
}

TEST(DropCompany, KeepsAllWhereTooFewWereAlone) {
  Point few;
  few.ns = few.cycles = few.control = {1, 2, 3, 4, 5, 6, 7};
  few.counts.resize(7);
  few.probed = {0.2, 0.4, 0.2, 0.4, 0.2, 0.2, 0.2};
  Point many = few;
  many.probed = {0.2, 0.4, 0.2, 0.2, 0.2, 0.2, 0.2};
  Point asked = many;
  drop_company(few, 0.23);
  EXPECT_EQ(few.ns.size(), 7u);
  EXPECT_EQ(few.in_company, 2u);
  EXPECT_EQ(std::get<uint64_t>(parameters_of(few, {}).at("in_company")), 2u);
  drop_company(many, 0.23);
  EXPECT_THAT(many.ns, testing::ElementsAre(1, 3, 4, 5, 6, 7));
  EXPECT_EQ(many.probed.size(), 6u);
  EXPECT_FALSE(parameters_of(many, {}).contains("in_company"));
  drop_company(asked, 0.23, 8);
  EXPECT_EQ(asked.ns.size(), 7u);
  EXPECT_EQ(asked.in_company, 1u);
}

TEST(DropCompany, TakesWhatNobodyAskedForAlone) {
  Point point;
  point.ns = point.cycles = point.control = {1, 2, 3, 4, 5, 6};
  point.counts.resize(6);
  point.probed.resize(6, 0);
  drop_company(point, 0.23);
  EXPECT_EQ(point.ns.size(), 6u);
  EXPECT_EQ(point.in_company, 0u);
  Point none;
  drop_company(none, 0.23);
  EXPECT_EQ(none.in_company, 0u);
}

TEST(ShareOfPlan, IsWholeWhileARunGoesAsPlanned) {
  EXPECT_EQ(share_of_plan(0, 0.2, 56, 57), 1);
  EXPECT_EQ(share_of_plan(28, 28, 28, 57), 1);
  EXPECT_EQ(share_of_plan(50, 30, 6, INFINITY), 1);
  // A first part that took six times as long is too short to tell.
  EXPECT_EQ(share_of_plan(0.03, 0.2, 6.1, 9.5), 1);
}

TEST(ShareOfPlan, LeavesToThoseToComeWhatThoseBeforeDidNotTake) {
  // Twenty seconds late, and what is left takes as much longer: (12 + 40) / (12 + 20) of twenty seconds' plan, in seventeen.
  EXPECT_NEAR(share_of_plan(20, 40, 20, 57), 17.0 / (20 * 52.0 / 32), 1e-9);
  // The later, the less; and never so little that nothing is answered.
  EXPECT_LT(share_of_plan(40, 50, 16, 57), share_of_plan(40, 48, 16, 57));
  EXPECT_EQ(share_of_plan(40, 56.9, 16, 57), kLeastShare);
  EXPECT_EQ(share_of_plan(40, 80, 16, 57), kLeastShare);
}

TEST_F(PlanTest, ACyclesWorthInTicksIsPlausible) {
  const auto ratio = bench_->core_cycles_per_tick();
  ASSERT_TRUE(ratio) << ratio.error().text();
  EXPECT_GT(*ratio, 0.02);
  EXPECT_LT(*ratio, 50);
  EXPECT_FALSE(bench_->ratios().empty());
}

TEST_F(PlanTest, RunsIntoWhichAnInterruptCameAreThrownAway) {
  int calls = 0;
  const auto sample = bench_->sample(2, [&]() -> Expected<CountedRun> {
    CountedRun log;
    log.tsc = ++calls == 1 ? 10 : 1000;
    log.noise.interrupted = calls == 1 ? 1 : 0;
    return log;
  });
  ASSERT_TRUE(sample) << sample.error().text();
  EXPECT_GE(sample->ns, 999 / bench_->tsc_hz() * 1e9) << "not the interrupted one, short as it was";
  EXPECT_GE(sample->noise.repeats, 1u);
  EXPECT_GE(sample->noise.interrupted, 1u);
}

// What takes the CPU away for a moment, unseen, is in one lap or another of each run.
TEST_F(PlanTest, OfRunsInLapsTheSampleIsTheSumOfEachLapsLeast) {
  const std::vector<std::vector<uint64_t>> runs = {
      {1000, 900, 2000}, {3000, 1000, 1000}, {1, 1, 1}};
  size_t calls = 0;
  const auto sample = bench_->sample(2, [&]() -> Expected<CountedRun> {
    CountedRun log;
    // The third of each three is disturbed, and counts for nothing.
    log.laps = runs[calls % 3];
    log.noise.involuntary_switches = calls++ % 3 == 2 ? 1 : 0;
    log.tsc = log.laps[0] + log.laps[1] + log.laps[2];
    return log;
  });
  ASSERT_TRUE(sample) << sample.error().text();
  EXPECT_NEAR(sample->ns * bench_->tsc_hz() / 1e9, 1000 + 900 + 1000, 0.01);
}

// Its core runs at a pace of the test's: the chain's ADDs, one cycle each, take so many ticks.
class PacedMachine : public MachineOver {
 public:
  using MachineOver::MachineOver;
  Expected<RunLog> run(const Program& program, const RunPlan& plan) override {
    RunLog log = SKIDPROOF_TRY(MachineOver::run(program, plan));
    log.noise = {};
    log.tsc = static_cast<uint64_t>(256.0 * static_cast<double>(plan.iterations) * ticks_a_cycle);
    return log;
  }
  double ticks_a_cycle = 1;
};

// Before the calls the core is at one pace, in them at another: their cycles are those of theirs.
TEST_F(PlanTest, OfCallsInLapsTheClockIsReadBesideThem) {
  PacedMachine paced(*machine_);
  auto bench = Workbench::create(paced, options_, out_);
  ASSERT_TRUE(bench) << bench.error().text();
  const auto sample_with = [&](std::vector<double> paces) {
    paced.ticks_a_cycle = 2;
    EXPECT_NEAR(*bench->core_cycles_per_tick(), 0.5, 1e-4);
    size_t calls = 0;
    return bench->sample(static_cast<unsigned>(paces.size()), [&]() -> Expected<CountedRun> {
      paced.ticks_a_cycle = paces[calls++ % paces.size()];
      CountedRun log;
      log.tsc = static_cast<uint64_t>(3000 * paced.ticks_a_cycle);
      log.laps = {log.tsc / 3, log.tsc / 3, log.tsc / 3};
      return log;
    });
  };
  const auto slow = sample_with({1, 1});
  ASSERT_TRUE(slow) << slow.error().text();
  EXPECT_NEAR(slow->cycles, 3000, 1);
  const auto once_fast = sample_with({1, 0.5, 1});
  ASSERT_TRUE(once_fast) << once_fast.error().text();
  EXPECT_NEAR(once_fast->cycles, 3000, 1);
  EXPECT_NEAR(once_fast->ns * bench->tsc_hz() / 1e9, 1500, 1);
}

// The timer comes into each that lasts milliseconds, and takes microseconds of it.
TEST_F(PlanTest, OfLongRunsAnInterruptIsNoDisturbanceAndASwitchIs) {
  const auto repeats_with = [&](const Noise& noise) {
    const auto sample = bench_->sample(1, [&]() -> Expected<CountedRun> {
      CountedRun log;
      log.tsc = static_cast<uint64_t>(bench_->tsc_hz() * 5e-3);
      log.noise = noise;
      return log;
    });
    EXPECT_TRUE(sample);
    return sample->noise.repeats;
  };
  EXPECT_EQ(repeats_with({.interrupted = 1}), 0u);
  EXPECT_GE(repeats_with({.involuntary_switches = 1, .interrupted = 1}), 3u);
}

}  // namespace
}  // namespace skidproof
