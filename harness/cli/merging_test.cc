// Shards that were never run, made by hand: what one program would have written, and what is refused.
#include "harness/cli/merging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "harness/cli/shard.h"
#include "results/writer.h"

namespace skidproof::cli {
namespace {

using results::Row;
using results::Status;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kMachine[] = "model:sandy-bridge";

struct Planned {
  std::string id;
  std::string stage;
  Status status = Status::kPass;
};

results::TestRow test_row(const Planned& planned) {
  results::TestRow row;
  row.machine = kMachine;
  row.microarch = "sandy-bridge";
  row.id = planned.id;
  row.stage = planned.stage;
  row.status = planned.status;
  row.seed = 1;
  row.iterations = row.comparisons = 1;
  row.duration_s = 0.5;
  row.evidence = {{"records", 1}};
  if (planned.status == Status::kFail) row.failures = {"a.cc:1: wrong"};
  if (planned.status == Status::kError) row.reason = "the harness failed";
  return row;
}

results::TestStartRow start_row(const Planned& planned) {
  return {.machine = kMachine,
          .microarch = "sandy-bridge",
          .id = planned.id,
          .clauses = {},
          .seed = 1,
          .repetition = 0,
          .started = "2026-11-25T10:00:00Z"};
}

results::RunRow run_row_of(const std::string& verb, uint64_t index, uint64_t of,
                           const std::vector<std::string>& names) {
  results::RunRow run;
  run.id = "run-" + std::to_string(index);
  run.started = "2026-11-25T10:00:0" + std::to_string(index) + "Z";
  run.command = {"skidproof", verb, "--shard", std::to_string(index) + "/" + std::to_string(of),
                 "--seed",    "1",  "--out",   "s" + std::to_string(index)};
  run.seed = 1;
  run.version = "0.1.0";
  run.machine = kMachine;
  run.shard = {.index = index, .of = of, .planned = names.size(), .plan = plan_hash(names)};
  return run;
}

results::MachineRow machine_row() {
  results::MachineRow row;
  row.machine = kMachine;
  row.microarch = "sandy-bridge";
  return row;
}

results::EndRow end_row(int exit = 0) {
  results::EndRow end;
  end.machine = kMachine;
  end.finished = "2026-11-25T11:00:00Z";
  end.exit = exit;
  end.reason = "completed";
  end.duration_s = 2;
  return end;
}

// What shards of this plan write, where no shard skips anything.
std::vector<ShardRows> shards_of(const std::vector<Planned>& plan, uint64_t of) {
  std::vector<std::string> names;
  for (const Planned& planned : plan) names.push_back(planned.id);
  std::vector<ShardRows> shards;
  for (uint64_t index = 1; index <= of; ++index) {
    ShardRows shard;
    shard.path = "s" + std::to_string(index);
    shard.run = run_row_of("run", index, of, names);
    shard.machines = {machine_row()};
    for (size_t i = 0; i < plan.size(); ++i) {
      if (shard_of(i, of) != index) continue;
      shard.rows.emplace_back(start_row(plan[i]));
      shard.rows.emplace_back(test_row(plan[i]));
    }
    shard.end = end_row();
    shards.push_back(std::move(shard));
  }
  return shards;
}

std::vector<results::TestRow> tests_in(const Merged& merged) {
  std::vector<results::TestRow> tests;
  for (const Row& row : merged.rows) {
    if (const auto* test = std::get_if<results::TestRow>(&row)) tests.push_back(*test);
  }
  return tests;
}

std::vector<std::string> ids_in(const Merged& merged) {
  std::vector<std::string> ids;
  for (const results::TestRow& test : tests_in(merged)) ids.push_back(test.id);
  return ids;
}

const std::vector<Planned> kPlan = {
    {"A.a", "read"}, {"A.b", "read"}, {"B.a", "count"}, {"B.b", "count"}, {"C.a", "edges"}};

TEST(Merge, TheOrderIsThePlansWhateverThatOfTheShards) {
  auto shards = shards_of(kPlan, 3);
  std::swap(shards[0], shards[2]);
  const auto merged = merge_shards(shards, "whole", false);
  ASSERT_TRUE(merged) << merged.error().text();
  EXPECT_THAT(ids_in(*merged), ElementsAre("A.a", "A.b", "B.a", "B.b", "C.a"));
  EXPECT_EQ(merged->exit, 0);
  const auto& run = std::get<results::RunRow>(merged->rows.front());
  EXPECT_EQ(run.id, "whole");
  EXPECT_EQ(run.started, "2026-11-25T10:00:01Z");
  EXPECT_FALSE(run.shard);
  EXPECT_THAT(run.command, ElementsAre("skidproof", "run", "--seed", "1"));
  EXPECT_THAT(run.merged_from, ElementsAre("run-1", "run-2", "run-3"));
  const auto& end = std::get<results::EndRow>(merged->rows.back());
  EXPECT_EQ(end.counts[Status::kPass], 5u);
  EXPECT_EQ(end.duration_s, 6);
}

TEST(Merge, GroundThatAnotherShardFoundBrokenIsBrokenForAll) {
  auto plan = kPlan;
  plan[0].status = Status::kFail;
  plan[2].status = Status::kFail;  // would not have run, and breaks nothing
  const auto merged = merge_shards(shards_of(plan, 2), "whole", false);
  ASSERT_TRUE(merged) << merged.error().text();
  const auto tests = tests_in(*merged);
  EXPECT_EQ(tests[1].status, Status::kPass) << "of the same stage";
  for (size_t i = 2; i < tests.size(); ++i) {
    EXPECT_EQ(tests[i].status, Status::kSkip);
    EXPECT_EQ(tests[i].skip_category, results::SkipCategory::kGroundBroken);
    EXPECT_EQ(tests[i].reason, "stage `read` did not hold: A.a failed; --all goes on");
    EXPECT_EQ(tests[i].iterations, 0u);
    EXPECT_TRUE(tests[i].evidence.empty());
  }
  EXPECT_EQ(merged->exit, 1);
  auto all = shards_of(plan, 2);
  for (ShardRows& shard : all) shard.run.shard->all = true;
  const auto goes_on = merge_shards(all, "whole", false);
  ASSERT_TRUE(goes_on);
  EXPECT_EQ(tests_in(*goes_on)[2].status, Status::kFail);
}

TEST(Merge, WhatEachShardMeasuredStandsThereOnce) {
  auto shards = shards_of(kPlan, 2);
  for (ShardRows& shard : shards) {
    const results::UnmeasuredRow unmeasured{.machine = kMachine,
                                            .microarch = "sandy-bridge",
                                            .name = "calibration.pmi-lateness",
                                            .reason = shard.path};
    const results::MeasurementStartRow start{.machine = kMachine,
                                             .microarch = "sandy-bridge",
                                             .name = unmeasured.name,
                                             .started = "2026-11-25T10:00:00Z"};
    shard.rows.insert(shard.rows.begin(), {Row(start), Row(unmeasured)});
  }
  const auto merged = merge_shards(shards, "whole", false);
  ASSERT_TRUE(merged) << merged.error().text();
  ASSERT_EQ(merged->rows.size(), 1 + 1 + 2 + 10 + 1u);
  EXPECT_EQ(std::get<results::UnmeasuredRow>(merged->rows[3]).reason, "s1");
}

TEST(Merge, AShardThatIsMissingTwiceThereOrCutShortIsNamed) {
  const auto refusal = [](std::vector<ShardRows> shards) {
    const auto merged = merge_shards(shards, "whole", false);
    return merged ? std::string() : merged.error().message;
  };
  auto shards = shards_of(kPlan, 3);
  shards.erase(shards.begin() + 1);
  EXPECT_EQ(refusal(shards), "shard 2 of 3 is missing");
  shards.push_back(shards.front());
  EXPECT_THAT(refusal(shards), HasSubstr("shard 1 of 3 is there twice: 's1' and 's1'"));
  shards = shards_of(kPlan, 3);
  shards[1].end.reset();
  EXPECT_THAT(refusal(shards), HasSubstr("shard 2 of 3 ('s2') was cut short"));
  shards = shards_of(kPlan, 3);
  shards[1].rows.resize(2);
  shards[1].end->reason = "deadline";
  EXPECT_THAT(refusal(shards), HasSubstr("1 of 2 tests ended; its end says 'deadline'"));
}

TEST(Merge, APartSaysWhatIsLackingAndNamesTheLostTest) {
  auto shards = shards_of(kPlan, 3);
  shards[0].rows.pop_back();  // in the middle of its last test
  shards[0].end.reset();
  shards.erase(shards.begin() + 2);
  const auto merged = merge_shards(shards, "whole", true);
  ASSERT_TRUE(merged) << merged.error().text();
  EXPECT_EQ(merged->exit, 2);
  EXPECT_THAT(merged->lacking, ElementsAre("shard 3 of 3 is missing",
                                           HasSubstr("shard 1 of 3 ('s1') was cut short")));
  EXPECT_THAT(std::get<results::EndRow>(merged->rows.back()).reason,
              HasSubstr("merged in part: shard 3 of 3 is missing; shard 1 of 3"));
  size_t lost = 0;
  for (const results::TestRow& test : tests_in(*merged)) {
    if (!test.reason.starts_with("machine lost")) continue;
    EXPECT_EQ(test.status, Status::kError);
    ++lost;
  }
  EXPECT_EQ(lost, shards_of(kPlan, 3)[0].rows.empty() ? 0u : 1u);
}

TEST(Merge, ShardsOfTwoRunsDoNotMerge) {
  const auto refusal = [](auto change) {
    auto shards = shards_of(kPlan, 2);
    change(shards[1]);
    const auto merged = merge_shards(shards, "whole", true);
    return merged ? std::string() : merged.error().message;
  };
  EXPECT_THAT(refusal([](auto& s) { s.run.seed = 2; }), HasSubstr("seeds: '1' and '2'"));
  EXPECT_THAT(refusal([](auto& s) { s.run.version = "9"; }), HasSubstr("versions"));
  EXPECT_THAT(refusal([](auto& s) { s.run.machine = "model:nehalem"; }), HasSubstr("machines"));
  EXPECT_THAT(refusal([](auto& s) { s.run.shard->of = 3; }), HasSubstr("numbers of shards"));
  EXPECT_THAT(refusal([](auto& s) { s.run.shard->plan = "0x1"; }), HasSubstr("plans"));
  EXPECT_THAT(refusal([](auto& s) { s.run.command.push_back("--all"); }), HasSubstr("commands"));
  EXPECT_THAT(refusal([](auto& s) { s.machines[0].stepping = 3; }), HasSubstr("two machines"));
  EXPECT_THAT(refusal([](auto& s) { s.machines[0].event_list = "intel/perfmon SNB V20"; }),
              HasSubstr("event lists"));
  EXPECT_EQ(refusal([](auto& s) { s.machines[0].host = "other"; }), "") << "a model is the same";
  EXPECT_THAT(refusal([](auto& s) {
                auto& first = s.rows;
                std::swap(first[0], first[2]);
                std::swap(first[1], first[3]);
              }),
              HasSubstr("in its order"));
  EXPECT_THAT(refusal([](auto& s) { s.rows.erase(s.rows.begin()); }), HasSubstr("has no start"));
  EXPECT_THAT(refusal([](auto& s) {
                s.rows.push_back(s.rows[0]);
                s.rows.push_back(s.rows[1]);
              }),
              HasSubstr("more tests"));
  EXPECT_THAT(refusal([](auto& s) { s.rows.emplace_back(results::DefectRow{}); }),
              HasSubstr("has no place there"));
}

// One conforming model and two broken ones, for two shards.
std::vector<ShardRows> qualification() {
  const std::vector<std::string> names = {"model:sandy-bridge, seed 1", "model:sandy-bridge+a",
                                          "model:sandy-bridge+b"};
  std::vector<ShardRows> shards;
  for (uint64_t index : {1u, 2u}) {
    ShardRows shard;
    shard.path = "q" + std::to_string(index);
    shard.run = run_row_of("qualify", index, 2, names);
    shard.machines = {machine_row()};
    results::QualificationShardRow sum;
    sum.machine = kMachine;
    sum.microarchs = {"sandy-bridge"};
    sum.seeds = sum.seed = 1;
    results::Json conforming = results::Json::array(), verdicts = results::Json::array();
    for (uint64_t position = index - 1; position < 3; position += 2) {
      results::Json unit = {{"position", position}, {"name", names[position]}, {"rows", 0u}};
      if (position == 0) {
        conforming.push_back(unit);
        continue;
      }
      results::DefectRow row;
      row.machine = names[position];
      row.microarch = "sandy-bridge";
      row.id = names[position].back();
      row.caught = true;
      row.caught_by = {row.id == "a" ? "A.a" : "A.b"};
      row.tests_run = 1;
      unit.update({{"rows", 1u},
                   {"missed", ""},
                   {"id", row.id},
                   {"microarch", "sandy-bridge"},
                   {"rough", nullptr},
                   {"caught", true},
                   {"caught_by", row.caught_by}});
      verdicts.push_back(unit);
      shard.rows.emplace_back(row);
    }
    sum.units = {{"conforming", conforming}, {"verdicts", verdicts}};
    shard.rows.emplace_back(sum);
    shard.end = end_row();
    shards.push_back(std::move(shard));
  }
  return shards;
}

const results::QualificationRow* sum_in(const Merged& merged) {
  for (const Row& row : merged.rows) {
    if (const auto* sum = std::get_if<results::QualificationRow>(&row)) return sum;
  }
  return nullptr;
}

TEST(Merge, AQualificationIsSaidByAllShardsTogether) {
  const auto merged = merge_shards(qualification(), "whole", false);
  ASSERT_TRUE(merged) << merged.error().text();
  ASSERT_NE(sum_in(*merged), nullptr);
  EXPECT_TRUE(sum_in(*merged)->held);
  EXPECT_EQ(sum_in(*merged)->defects, 2u);
  EXPECT_EQ(merged->exit, 0);
  ASSERT_EQ((*merged->matrix)["defects"].size(), 2u);
  EXPECT_EQ((*merged->matrix)["defects"][0]["id"], "a");
  EXPECT_FALSE((*merged->matrix)["defects"][0].contains("position"));
}

TEST(Merge, WhatAccusesAConformingModelInOneShardCatchesNothingInAnother) {
  auto shards = qualification();
  Planned accuser{"A.a", "read", Status::kFail};
  auto& sum = std::get<results::QualificationShardRow>(shards[0].rows.back());
  sum.units["conforming"][0]["rows"] = 1u;
  shards[0].rows.insert(shards[0].rows.begin(), test_row(accuser));
  const auto merged = merge_shards(shards, "whole", false);
  ASSERT_TRUE(merged) << merged.error().text();
  ASSERT_NE(sum_in(*merged), nullptr);
  EXPECT_FALSE(sum_in(*merged)->held);
  EXPECT_THAT(sum_in(*merged)->accused_by, ElementsAre("A.a"));
  EXPECT_THAT(sum_in(*merged)->missed, ElementsAre(HasSubstr("a on sandy-bridge (A.a accuses")));
  EXPECT_EQ(merged->exit, 1);
}

TEST(Merge, HalfAQualificationHasNoSum) {
  auto shards = qualification();
  shards[1].rows.pop_back();
  shards[1].end.reset();
  EXPECT_FALSE(merge_shards(shards, "whole", false));
  const auto merged = merge_shards(shards, "whole", true);
  ASSERT_TRUE(merged) << merged.error().text();
  EXPECT_EQ(sum_in(*merged), nullptr);
  EXPECT_EQ(merged->exit, 2);
  shards = qualification();
  shards[1].rows.insert(shards[1].rows.begin(), shards[1].rows.front());
  EXPECT_THAT(merge_shards(shards, "whole", true).error().message, HasSubstr("than its sum says"));
  shards = qualification();
  shards[1].run.shard->planned = shards[0].run.shard->planned = 4;
  EXPECT_THAT(merge_shards(shards, "whole", false).error().message, HasSubstr("3 of 4 models"));
}

// ---------------------------------------------------------------------------------------------------
// Files from anywhere.

class ShardFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ =
        (std::filesystem::temp_directory_path() / ("shard-" + std::to_string(::getpid()))).string();
    shards_ = shards_of(kPlan, 2);
    for (const ShardRows& shard : shards_) texts_.push_back(text_of(shard));
  }
  void TearDown() override { std::filesystem::remove(path_); }

  static std::string text_of(const ShardRows& shard) {
    std::string text = results::json_of(shard.run).dump() + "\n";
    text += results::json_of(shard.machines.front()).dump() + "\n";
    for (const Row& row : shard.rows) text += results::json_of(row).dump() + "\n";
    return text + results::json_of(*shard.end).dump() + "\n";
  }

  // The message of whatever refuses it; empty where it merges into a whole run.
  std::string refusal(const std::string& second) {
    std::ofstream(path_, std::ios::binary) << second;
    auto shard = read_shard(path_);
    if (!shard) return shard.error().message;
    const auto merged = merge_shards({shards_[0], *shard}, "whole", false);
    return merged ? "" : merged.error().message;
  }

  std::string path_;
  std::vector<ShardRows> shards_;
  std::vector<std::string> texts_;
};

TEST_F(ShardFiles, WholeItMergesAndCutAnywhereItDoesNot) {
  ASSERT_EQ(refusal(texts_[1]), "");
  for (size_t size = 0; size + 1 < texts_[1].size(); ++size) {
    EXPECT_NE(refusal(texts_[1].substr(0, size)), "") << "cut at " << size;
  }
}

TEST_F(ShardFiles, LinesThatAreLostDoubledTurnedOrOfAnotherShardAreSeen) {
  std::vector<std::string> lines, others;
  for (auto [text, into] : {std::pair(&texts_[1], &lines), std::pair(&texts_[0], &others)}) {
    std::istringstream stream(*text);
    for (std::string line; std::getline(stream, line);) into->push_back(line + "\n");
  }
  const auto whole = [](const std::vector<std::string>& some) {
    std::string text;
    for (const std::string& line : some) text += line;
    return text;
  };
  for (size_t i = 0; i < lines.size(); ++i) {
    auto changed = lines;
    changed.erase(changed.begin() + static_cast<long>(i));
    if (i != 1) {  // the machine, which the other shard says as well
      EXPECT_NE(refusal(whole(changed)), "") << "without line " << i;
    }
    changed = lines;
    changed.insert(changed.begin() + static_cast<long>(i), lines[i]);
    if (i != 1) {
      EXPECT_NE(refusal(whole(changed)), "") << "line " << i << " twice";
    }
    for (size_t j = 0; j < others.size(); ++j) {
      if (i == 1 || j == 1) continue;
      changed = lines;
      changed.insert(changed.begin() + static_cast<long>(i), others[j]);
      EXPECT_NE(refusal(whole(changed)), "") << "line " << j << " of the other before " << i;
    }
    for (size_t j = i + 1; j < lines.size(); ++j) {
      if (i == 1 || j == 1) continue;
      changed = lines;
      std::swap(changed[i], changed[j]);
      EXPECT_NE(refusal(whole(changed)), "") << i << " and " << j << " turned";
    }
  }
}

TEST_F(ShardFiles, AnotherSchemaAWholeRunAndNoRowsAtAll) {
  std::string text = texts_[1];
  text.replace(text.find("\"schema\":1"), 10, "\"schema\":2");
  EXPECT_THAT(refusal(text), HasSubstr("schema 2"));
  shards_[1].run.shard.reset();
  EXPECT_THAT(refusal(text_of(shards_[1])), HasSubstr("but a whole run"));
  EXPECT_THAT(refusal(""), HasSubstr("holds no shard"));
  EXPECT_THAT(refusal("\x7f"
                      "ELF\n"),
              HasSubstr("line 1"));
  EXPECT_THAT(read_shard("/nonexistent/shard").error().message, HasSubstr("there is no"));
  shards_ = shards_of(kPlan, 2);
  shards_[1].run.shard->planned = shards_[0].run.shard->planned = uint64_t{1} << 60;
  EXPECT_THAT(refusal(text_of(shards_[1])), HasSubstr("cut short"));
}

}  // namespace
}  // namespace skidproof::cli
