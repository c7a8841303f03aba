// What is counted beside time, on models: a clean one agrees in everything that it can run, a broken one or one whose time is
// wrong is told.
#include "harness/characterize/counts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/characterize/characterize.h"
#include "harness/characterize/reach.h"
#include "harness/characterize/testing/machine_over.h"
#include "harness/characterize/workbench.h"
#include "pebs/arch/microarch.h"
#include "pebs/engines/model_machine.h"

namespace skidproof {
namespace {

using arch::Signal;
using testing::AllOf;
using testing::HasSubstr;

const arch::Microarch& row_named(const char* name) {
  const auto row = arch::find_microarch(name);
  EXPECT_TRUE(row) << row.error().text();
  return **row;
}

std::unique_ptr<Machine> model_of(const char* microarch, std::vector<std::string> defects = {}) {
  auto machine = engines::make_model_machine(row_named(microarch), {.defects = std::move(defects)});
  EXPECT_TRUE(machine) << machine.error().text();
  return std::move(*machine);
}

CharacterizeOptions of_parts(std::vector<std::string> parts) {
  CharacterizeOptions options;
  options.effort = Effort::kQuick;
  options.parts = std::move(parts);
  options.latency_bytes = {16 << 10};
  options.bandwidth_bytes = {16 << 10};
  options.repetitions = 1;  // a model answers alike
  options.any_time = true;
  return options;
}

Characterization measure_on(Machine& machine, const CharacterizeOptions& options) {
  auto out = characterize(machine, options);
  EXPECT_TRUE(out) << out.error().text();
  return out ? std::move(*out) : Characterization{};
}

const Measurement* row_of(const Characterization& all, std::string_view name) {
  for (const Measurement& m : all.measurements) {
    if (m.name == name) return &m;
  }
  return nullptr;
}

TEST(ChooseEvents, GivesEachItsOwnCounterOnEveryRow) {
  for (const arch::Microarch* row : arch::microarchs()) {
    const auto chosen = choose_events(*row, row->gp_counters, kOfLoads);
    std::set<unsigned> counters;
    for (const ChosenEvent& one : chosen) {
      EXPECT_TRUE(counters.insert(one.counter).second) << row->name;
      EXPECT_LT(one.counter, row->gp_counters) << row->name;
      EXPECT_NE((one.event->counters >> one.counter) & 1, 0) << row->name;
      EXPECT_NE(std::find(kOfLoads.begin(), kOfLoads.end(), one.event->signal), kOfLoads.end());
    }
  }
  EXPECT_EQ(choose_events(row_named("sandy-bridge"), 4, kOfLoads).size(), 4u);
}

TEST(ChooseEvents, LeavesOutWhatHasNoEventAndTheLastOnesFirst) {
  const arch::Microarch& row = row_named("sandy-bridge");
  EXPECT_TRUE(choose_events(row, 4, std::vector{Signal::kNops}).empty());
  const auto two = choose_events(row, 2, kOfLoads);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].event->signal, *kOfLoads.begin());
  EXPECT_EQ(two[1].event->signal, *(kOfLoads.begin() + 1));
}

class CountedModels : public testing::TestWithParam<const char*> {};

TEST_P(CountedModels, AgreeInEveryPartThatTheyRun) {
  const auto machine = model_of(GetParam());
  std::vector<std::string> parts = {"latency", "misprediction", "forwarding", "code"};
  if (std::string_view(GetParam()) == "sandy-bridge")
    for (const char* part : {"strides", "bandwidth", "branches", "instructions"})
      parts.emplace_back(part);
  const Characterization out = measure_on(*machine, of_parts(parts));
  std::set<std::string> checked, timed;
  uint64_t counted = 0;
  for (const Measurement& m : out.measurements) {
    if (m.name == "check.instructions" || m.name == "check.cycles") {
      EXPECT_EQ(m.value, 1) << m.name;
      (m.name == "check.cycles" ? timed : checked)
          .insert(std::get<std::string>(m.parameters.at("part")));
    }
    if (!m.counts) continue;
    EXPECT_TRUE(m.counts->agree.value_or(true)) << m.name << ": " << m.counts->differ;
    counted += m.counts->each.contains("instructions") ? 1 : 0;
  }
  EXPECT_EQ(checked, std::set<std::string>(parts.begin(), parts.end()));
  EXPECT_EQ(timed, checked);
  EXPECT_GT(counted, 50u);
}

INSTANTIATE_TEST_SUITE_P(Each, CountedModels,
                         testing::Values("netburst", "core2", "sandy-bridge", "alder-lake-p"));

// Whose counters start and stop some instructions early or late, as nothing forbids.
TEST(CountedModel, AMachineAsUntidyAsSiliconIsNotAccused) {
  for (const char* seed : {"2", "3", "4", "5"}) {
    auto machine = engines::make_model_machine(row_named("sandy-bridge"), {.rough = seed});
    ASSERT_TRUE(machine) << machine.error().text();
    const Characterization out = measure_on(**machine, of_parts({"latency", "forwarding", "code"}));
    for (const Measurement& m : out.measurements) {
      if (m.counts) {
        EXPECT_TRUE(m.counts->agree.value_or(true))
            << "rough " << seed << ", " << m.name << ": " << m.counts->differ;
      }
    }
  }
}

TEST(CountedModel, SaysWhereLoadsWereAnswered) {
  const auto machine = model_of("sandy-bridge");
  CharacterizeOptions options = of_parts({"latency"});
  options.latency_bytes = {16 << 10, 128 << 10};
  for (const Measurement& m : measure_on(*machine, options).measurements) {
    if (m.name != "memory.latency") continue;
    const bool near = std::get<uint64_t>(m.parameters.at("bytes")) == 16 << 10;
    ASSERT_TRUE(m.counts);
    EXPECT_NEAR(m.counts->each.at("l1_hit_loads"), near ? 1 : 0, 0.1);
    EXPECT_NEAR(m.counts->each.at("l2_hit_loads"), near ? 0 : 1, 0.1);
  }
}

TEST(CountedModel, PairsThatFuseByTheirTimeSaveAUop) {
  const auto machine = model_of("sandy-bridge");
  CharacterizeOptions options = of_parts({"fusion"});
  options.repetitions = 8;  // for a verdict, however long they take
  std::map<std::string, int> verdicts;
  for (const Measurement& m : measure_on(*machine, options).measurements) {
    if (m.name != "fusion.fused") continue;
    ASSERT_TRUE(m.counts);
    EXPECT_EQ(m.counts->agree, true) << m.counts->differ;
    EXPECT_NEAR(m.counts->each.at("uops_saved"), m.value, 0.1);
    ++verdicts[m.value == 1 ? "fused" : "no gain"];
  }
  EXPECT_GT(verdicts["fused"], 5);
  EXPECT_GT(verdicts["no gain"], 5);
}

TEST(CountedModel, LeavesTheMachineAsItWas) {
  const auto machine = model_of("sandy-bridge");
  const auto select = machine->rdmsr(arch::IA32_PERFEVTSEL0);
  const auto control = machine->rdmsr(arch::IA32_FIXED_CTR_CTRL);
  measure_on(*machine, of_parts({"misprediction"}));
  ASSERT_TRUE(select && control);
  EXPECT_EQ(machine->rdmsr(arch::IA32_PERFEVTSEL0).value_or(1), *select);
  EXPECT_EQ(machine->rdmsr(arch::IA32_FIXED_CTR_CTRL).value_or(1), *control);
  EXPECT_EQ(machine->rdmsr(arch::IA32_PERF_GLOBAL_CTRL).value_or(1), 0u);
}

TEST(CountedModel, ACounterThatCountsASiblingToo) {
  const auto machine = model_of("sandy-bridge", {"any-thread-always-on"});
  const Characterization out = measure_on(*machine, of_parts({"latency"}));
  const Measurement* check = row_of(out, "check.instructions");
  ASSERT_NE(check, nullptr);
  EXPECT_EQ(check->value, 0);
  EXPECT_THAT(check->counts->differ, AllOf(HasSubstr("pointer_chase"), HasSubstr("declares")));
  const Measurement* latency = row_of(out, "memory.latency");
  ASSERT_NE(latency, nullptr);
  EXPECT_EQ(latency->counts->agree, false);
  EXPECT_THAT(latency->counts->differ, HasSubstr("declared"));
}

TEST(CountedModel, AnEndThatItsMissesContradictIsNotClear) {
  const auto machine = model_of("sandy-bridge", {"l1-hits-count-every-load"});
  CharacterizeOptions options = of_parts({"caches"});
  options.repetitions = 2;
  const Characterization out = measure_on(*machine, options);
  EXPECT_EQ(row_of(out, "shape.l1d.size"), nullptr);
  const auto why = std::find_if(out.unclear.begin(), out.unclear.end(),
                                [](const Unclear& u) { return u.name == "shape.l1d.size"; });
  ASSERT_NE(why, out.unclear.end());
  EXPECT_THAT(why->reason, HasSubstr("counted"));
}

// A model whose time stamp counter runs a twentieth faster while one kernel runs.
class FastClock : public MachineOver {
 public:
  FastClock(std::unique_ptr<Machine> machine, std::string kernel)
      : MachineOver(*machine), machine_(std::move(machine)), kernel_(std::move(kernel)) {}
  Expected<RunLog> run(const Program& program, const RunPlan& plan) override {
    auto log = MachineOver::run(program, plan);
    if (log && program.kernel == kernel_) log->tsc += log->tsc / 20;
    return log;
  }

 private:
  const std::unique_ptr<Machine> machine_;
  const std::string kernel_;
};

TEST(CountedModel, CyclesThatTheClockContradicts) {
  FastClock machine(model_of("sandy-bridge"), "pointer_chase");
  const Characterization out = measure_on(machine, of_parts({"latency"}));
  const Measurement* check = row_of(out, "check.cycles");
  ASSERT_NE(check, nullptr);
  EXPECT_EQ(check->value, 0);
  EXPECT_EQ(row_of(out, "check.instructions")->value, 1);
  for (const Measurement& m : out.measurements) {
    if (m.name != "memory.latency" || m.unit != "cycles") continue;
    EXPECT_EQ(m.counts->agree, false);
    EXPECT_THAT(m.counts->differ, HasSubstr("by the TSC"));
    EXPECT_NEAR(m.value, 4, 0.1) << "counted, whatever the clock says";
  }
}

TEST(Counts, AddUpAndDiffer) {
  const auto counted = [](double instructions, bool judged, bool agree) {
    Counts counts;
    counts.size = 2;
    counts.values = {instructions, 10 * instructions};
    counts.declared = instructions + 1;
    counts.timed = 20 * instructions;
    counts.judged = judged;
    counts.cycles_agree = agree;
    return counts;
  };
  const Counts sum = counted(5, true, true) + counted(2, true, false);
  EXPECT_EQ(sum.instructions(), 7);
  EXPECT_EQ(sum.cycles(), 70);
  EXPECT_EQ(sum.declared, 9);
  EXPECT_EQ(sum.timed, 140);
  EXPECT_TRUE(sum.judged && sum.instructions_agree);
  EXPECT_FALSE(sum.cycles_agree);
  const Counts difference = counted(5, true, true) - counted(2, false, true);
  EXPECT_EQ(difference.instructions(), 3);
  EXPECT_EQ(difference.declared, 3);
  EXPECT_FALSE(difference.judged);
  EXPECT_TRUE(difference.cycles_agree);
  EXPECT_FALSE((counted(5, true, true) + Counts{}).any());
}

TEST(MeasuredCounts, AreOfTheMedianSampleAndJudgeTheUndisturbed) {
  const std::vector<std::string> names = {"instructions", "cycles"};
  const auto sample = [](double instructions, bool judged, bool cycles_agree) {
    Counts counts;
    counts.size = 2;
    counts.values = {instructions, 10 * instructions};
    counts.declared = 2;
    counts.judged = judged;
    counts.instructions_agree = instructions == 2;
    counts.cycles_agree = cycles_agree;
    return counts;
  };
  EXPECT_FALSE(measured_counts(names, std::vector<Counts>(3), std::vector<double>{1, 2, 3}));
  std::vector<Counts> samples = {sample(2, true, true), sample(2, true, false),
                                 sample(3, false, true)};
  const std::vector<double> values = {5, 1, 9};
  auto found = measured_counts(names, samples, values);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->each.at("cycles"), 20) << "that of the sample of 5";
  EXPECT_EQ(found->agree, true) << "one of two, and a disturbed one is not judged";
  samples[2].judged = true;
  found = measured_counts(names, samples, values);
  EXPECT_EQ(found->agree, false);
  EXPECT_THAT(found->differ, HasSubstr("3 counted, 2 declared, in 1 of 3"));
  for (Counts& counts : samples) counts.judged = false;
  EXPECT_FALSE(measured_counts(names, samples, values)->agree.has_value());

  const std::vector<double> five = {5, 1, 4, 2, 3};
  samples.clear();
  for (double value : five) samples.push_back(sample(value, false, true));
  const auto cycles_of = [&](Statistic statistic) {
    return measured_counts(names, samples, five, statistic)->each.at("cycles");
  };
  EXPECT_EQ(cycles_of(Statistic::kLowerQuartile), 20);
  EXPECT_EQ(cycles_of(Statistic::kMedian), 30);
  EXPECT_EQ(cycles_of(Statistic::kUpperQuartile), 40);
}

TEST(AskCounters, WantsFewMissesWithinAndManyBeyond) {
  const Misses misses = [](const Counts& unit) { return unit.values[2]; };
  const auto judged = [&](double within, double beyond) {
    Reach reach;
    reach.clear = true;
    reach.last_within = 8;
    reach.first_beyond = 9;
    for (const auto& [x, missed] : {std::pair{8u, within}, std::pair{9u, beyond}}) {
      CurvePoint point{.x = x};
      Counts counts;
      counts.size = 3;
      counts.values[2] = missed;
      counts.judged = true;
      point.counts = {counts};
      reach.curve.push_back(point);
    }
    ask_counters(reach, misses);
    return reach.clear;
  };
  EXPECT_TRUE(judged(0, 1));
  EXPECT_TRUE(judged(0.01, 0.2)) << "of nine lines one at least misses each round";
  EXPECT_FALSE(judged(0.2, 1)) << "lines that fit do not miss";
  EXPECT_FALSE(judged(0, 0.01)) << "lines that do not fit do";
  EXPECT_EQ(unavoidable_misses(8, 8), 0);
  EXPECT_NEAR(unavoidable_misses(8, 9), 1.0 / 9, 1e-9);
}

}  // namespace
}  // namespace skidproof
