// The characterization's shape: which rows come, that they are sane, and that it can be stopped. No
// test here expects a time.
#include "harness/characterize/characterize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "harness/characterize/testing/machine_over.h"
#include "harness/characterize/testing/native_bench.h"
#include "harness/run/clock.h"
#include "kernels/program.h"

namespace skidproof {
namespace {

using testing::HasSubstr;

class CharacterizeTest : public NativeBench {
 protected:
  void SetUp() override {
    NativeBench::SetUp();
    options_.repetitions = 3;
  }
};

std::string text(const Measurement& m, std::string_view parameter) {
  const auto it = m.parameters.find(parameter);
  return it == m.parameters.end() ? "" : std::get<std::string>(it->second);
}

TEST_F(CharacterizeTest, ClockGivesBothClocksAndWhatReadingTheTimeCosts) {
  options_.parts = {"clock"};
  const Characterization out = measure();
  std::map<std::string, std::string> units;
  for (const Measurement& m : out.measurements) {
    units[m.name] = m.unit;
    EXPECT_EQ(m.n, 3u);
    EXPECT_EQ(m.interval, "75% of the median");
    EXPECT_GT(m.value, 0) << m.name;
  }
  std::map<std::string, std::string> wanted = {
      {"clock.tsc", "GHz"}, {"clock.core", "GHz"}, {"clock.rdtsc", "cycles"}};
  if (has_rdtscp()) wanted["clock.rdtscp"] = "cycles";
  EXPECT_EQ(units, wanted);
}

TEST_F(CharacterizeTest, SeveralPartsTellHowFarTheClockMoved) {
  options_.parts = {"clock", "misprediction"};
  const Measurement drift = measure().measurements.back();
  EXPECT_EQ(drift.name, "clock.drift");
  EXPECT_EQ(drift.unit, "%");
  EXPECT_GE(drift.value, 0);
  EXPECT_GT(drift.n, 2u);
}

TEST_F(CharacterizeTest, LatencyHasEverySizeOnBothPagesOrSaysWhyNot) {
  options_.parts = {"latency"};
  options_.latency_bytes = {4096, 65536, 32 << 20};  // the last is not brought in
  const Characterization out = measure();
  std::set<std::pair<uint64_t, std::string>> seen;
  for (const Measurement& m : out.measurements) {
    EXPECT_EQ(m.name, "memory.latency");
    EXPECT_GT(m.value, 0);
    if (m.unit == "ns") seen.emplace(std::get<uint64_t>(m.parameters.at("bytes")), text(m, "page"));
  }
  EXPECT_TRUE(seen.contains({4096, "4KiB"}));
  EXPECT_TRUE(seen.contains({65536, "4KiB"}));
  EXPECT_TRUE(seen.contains({32 << 20, "4KiB"}));
  EXPECT_EQ(seen.size() + out.problems.size(), 6u);
  EXPECT_EQ(out.measurements.size(), 2 * seen.size()) << "ns and cycles each";
}

TEST_F(CharacterizeTest, BandwidthHasEveryStream) {
  options_.parts = {"bandwidth"};
  options_.bandwidth_bytes = {16384};
  const Characterization out = measure();
  std::map<std::string, int> kinds, by_cycle;
  for (const Measurement& m : out.measurements) {
    EXPECT_GT(m.value, 0);
    (m.unit == "GB/s" ? kinds : by_cycle)[m.name + " " + text(m, "kind")] += 1;
    if (m.unit != "GB/s") {
      EXPECT_EQ(m.unit, "B/cycle");
    }
  }
  EXPECT_EQ(kinds, by_cycle) << "16 KiB: a core's own caches";
  EXPECT_TRUE(out.problems.empty());
  const size_t widths =
      2 + (host_supports(Isa::kAvx) ? 1 : 0) + (host_supports(Isa::kAvx512) ? 1 : 0);
  const size_t usual = host_supports(Isa::kAvx512) ? 2 : 1;  // and wider
  EXPECT_EQ(kinds.size(), 5 * (widths + usual) + 2)
      << "loads; stores and copies, regular and non-temporal, in long turns and in tight ones, and "
         "repeated strings";
  EXPECT_EQ(kinds["store.bandwidth rep-stosb"], 1);
  EXPECT_EQ(kinds["copy.bandwidth rep-movsb"], 1);
  EXPECT_EQ(kinds["store.bandwidth regular-8"], 1);
  EXPECT_EQ(kinds["store.bandwidth non-temporal-16"], 1);
  EXPECT_EQ(kinds["load.bandwidth regular-8"], 1);
  const std::string width = host_supports(Isa::kAvx) ? "32" : "16";
  EXPECT_EQ(kinds["copy.bandwidth tight-" + width], 1);
  EXPECT_EQ(kinds["store.bandwidth non-temporal-tight-" + width], 1);
}

TEST_F(CharacterizeTest, BandwidthBeyondACoresOwnCachesHasStripesToo) {
  options_.parts = {"bandwidth"};
  options_.bandwidth_bytes = {4 << 20, 256 << 20};  // whole, and by slices
  options_.repetitions = 1;
  options_.effort = Effort::kQuick;
  const Characterization out = measure();
  EXPECT_TRUE(out.problems.empty());
  const std::string width = host_supports(Isa::kAvx) ? "32" : "16";
  for (const char* stream : {"load.bandwidth striped-", "copy.bandwidth non-temporal-striped-"}) {
    const std::string wanted = stream + width;
    EXPECT_EQ(std::count_if(
                  out.measurements.begin(), out.measurements.end(),
                  [&](const Measurement& m) { return m.name + " " + text(m, "kind") == wanted; }),
              2)
        << wanted;
  }
}

TEST_F(CharacterizeTest, FusionReportsAGainForEachPairAndAVerdictWhereItIsClear) {
  options_.parts = {"fusion"};
  options_.repetitions = 1;
  const Characterization out = measure();
  std::set<std::string> gains, verdicts, clear;
  for (const Measurement& m : out.measurements) {
    if (m.name == "fusion.gain") {
      EXPECT_TRUE(gains.insert(text(m, "pair")).second) << text(m, "pair") << " twice";
      if (text(m, "verdict") != "unclear") clear.insert(text(m, "pair"));
    } else {
      EXPECT_EQ(m.name, "fusion.fused");
      EXPECT_EQ(m.value, text(m, "verdict") == "fused" ? 1 : 0);
      verdicts.insert(text(m, "pair"));
    }
  }
  EXPECT_THAT(gains, testing::IsSupersetOf({"cmp+je", "test+je", "or+je", "cmp[mem_imm]+je"}));
  EXPECT_EQ(verdicts, clear);
  EXPECT_TRUE(out.problems.empty()) << out.problems.front().text();
}

TEST_F(CharacterizeTest, MispredictionIsInCyclesAndTime) {
  options_.parts = {"misprediction"};
  const Characterization out = measure();
  ASSERT_EQ(out.measurements.size(), 2u);
  for (const Measurement& m : out.measurements) {
    EXPECT_EQ(m.name, "branch.mispredict_penalty");
  }
  EXPECT_EQ(out.measurements[0].unit, "ns");
  EXPECT_EQ(out.measurements[1].unit, "cycles");
}

TEST_F(CharacterizeTest, StreamsMeasurementsAndProgressAsItGoes) {
  options_.parts = {"clock", "misprediction"};
  std::vector<std::string> streamed;
  std::vector<double> fractions;
  options_.on_measurement = [&](const Measurement& m) { streamed.push_back(m.name); };
  options_.progress = [&](double fraction, std::string_view) { fractions.push_back(fraction); };
  const Characterization out = measure();
  EXPECT_EQ(streamed.size(), out.measurements.size());
  ASSERT_FALSE(fractions.empty());
  EXPECT_TRUE(std::is_sorted(fractions.begin(), fractions.end()));
  EXPECT_EQ(fractions.back(), 1);
}

TEST_F(CharacterizeTest, StopsWhenCancelled) {
  std::atomic<bool> cancel{false};
  options_.cancel = &cancel;
  options_.on_measurement = [&](const Measurement&) { cancel = true; };
  const Characterization out = measure();
  EXPECT_TRUE(out.cancelled);
  EXPECT_FALSE(out.measurements.empty()) << "what was measured before stays";
  for (const Measurement& m : out.measurements) {
    EXPECT_TRUE(m.name.starts_with("clock.")) << m.name << " is of a later part";
  }
}

TEST_F(CharacterizeTest, RefusesWhatHasNoMeaning) {
  options_.parts = {"latencies"};
  auto out = characterize(*machine_, options_);
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(out.error().advice, HasSubstr("latency"));
  options_.parts = {"latency"};
  options_.latency_bytes = {100};
  EXPECT_EQ(characterize(*machine_, options_).error().code, ErrorCode::kInvalidArgument);
  options_.parts = {"bandwidth"};
  options_.bandwidth_bytes = {12288};
  EXPECT_EQ(characterize(*machine_, options_).error().code, ErrorCode::kInvalidArgument)
      << "the latency's size, which means nothing, is not asked for";
}

// A machine that calls itself a model, or has little memory, whatever runs its programs.
class Another : public MachineOver {
 public:
  explicit Another(Machine& machine, Provenance provenance, size_t most_bytes = SIZE_MAX)
      : MachineOver(machine), identity_(machine.identity()), most_bytes_(most_bytes) {
    identity_.provenance = provenance;
  }
  const Identity& identity() const override { return identity_; }
  Expected<Memory> allocate(const MemoryRequest& request) override {
    if (request.bytes > most_bytes_) return fail(ErrorCode::kNoMemory, "no room", "ask for less");
    return MachineOver::allocate(request);
  }

 private:
  Identity identity_;
  size_t most_bytes_;
};

// An error ends a part early: what it was to infer has a reason all the same.
TEST_F(CharacterizeTest, AnswersWhatAnErrorLeftOpen) {
  Another poor(*machine_, Provenance::kSilicon, 64 << 10);
  options_.parts = {"caches"};
  std::set<std::string> answered;
  options_.on_unclear = [&](const Unclear& unclear) { answered.insert(unclear.name); };
  options_.on_measurement = [&](const Measurement& m) { answered.insert(m.name); };
  const auto out = characterize(poor, options_);
  ASSERT_TRUE(out) << out.error().text();
  for (const char* name :
       {"shape.l1d.size", "shape.line", "shape.l2.size", "shape.l3.size", "shape.stlb.reach"}) {
    EXPECT_TRUE(answered.contains(name)) << name;
  }
}

// Of a core that issues four instructions a cycle, a fused pair as one; but until another part's programs run, pairs take the same
// time however many instructions stand beside them, as where a neighbour has the core. It says what programs take, and runs none.
class HiddenPairs : public MachineOver {
 public:
  using MachineOver::MachineOver;
  Expected<RunLog> run(const Program& program, const RunPlan& plan) override {
    const bool pairs = program.kernel == "fused_branch", chain = program.kernel == "alu_chain";
    hidden_ = hidden_ && program.kernel != "branch_pattern";
    asked_again += pairs && !hidden_ ? 1 : 0;
    const Expectations& each = program.per_iteration;
    const double ticks = chain ? static_cast<double>(each.instructions)
                         : pairs && hidden_
                             ? 100
                             : 0.25 * static_cast<double>(each.instructions - each.fusible_pairs);
    RunLog log;
    log.tsc = static_cast<uint64_t>(std::max(1.0, ticks * static_cast<double>(plan.iterations)));
    return log;
  }
  unsigned asked_again = 0;  // runs of pairs behind another part's

 private:
  bool hidden_ = true;
};

TEST_F(CharacterizeTest, WhatWasHiddenAllThroughAPartIsAskedAgainAtTheEnd) {
  HiddenPairs hidden(*machine_);
  options_.repetitions = 0;
  options_.parts = {"fusion", "misprediction"};
  const auto out = characterize(hidden, options_);
  ASSERT_TRUE(out) << out.error().text();
  std::map<std::string, unsigned> verdicts;
  bool between = false;
  for (const Measurement& m : out->measurements) {
    between |= m.name == "branch.mispredict_penalty";
    if (m.name != "fusion.gain") continue;
    EXPECT_TRUE(between) << "nothing can be told before";
    ++verdicts[text(m, "verdict")];
    const bool fuses = text(m, "pair") == "cmp+je", never = text(m, "pair") == "cmp+jo";
    EXPECT_FALSE(fuses && text(m, "verdict") == "no gain");
    EXPECT_FALSE(never && text(m, "verdict") == "fused");
  }
  EXPECT_GT(hidden.asked_again, 0u);  // how many of them are told then is a matter of time
  EXPECT_GT(verdicts["fused"] + verdicts["no gain"] + verdicts["unclear"], 60u);
}

TEST_F(CharacterizeTest, RefusesAModelsTime) {
  Another model(*machine_, Provenance::kModel);
  const auto out = characterize(model, options_);
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace skidproof
