#include "harness/cli/merging.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include "harness/check/ladder.h"
#include "harness/check/listener.h"
#include "harness/cli/resume.h"
#include "harness/cli/shard.h"
#include "harness/cli/text.h"
#include "results/writer.h"

namespace skidproof::cli {
namespace {

namespace fs = std::filesystem;
using results::Json;
using results::Row;
using results::Status;

constexpr std::array<std::pair<const char*, const char*>, 3> kFiles = {
    {{"run", "results.jsonl"}, {"qualify", "qualification.jsonl"}, {"fuzz", "fuzz.jsonl"}}};

tl::unexpected<Error> refused(std::string message, std::string advice) {
  return fail(ErrorCode::kInvalidArgument, std::move(message), std::move(advice));
}

std::string name_of_shard(const ShardRows& shard) {
  return fmt::format("shard {} of {}", shard.run.shard->index, shard.run.shard->of);
}

tl::unexpected<Error> damaged(const ShardRows& shard, const std::string& what) {
  return refused(
      fmt::format("the rows in '{}' ({}) are damaged: {}", shard.path, name_of_shard(shard), what),
      "run that shard again");
}

std::string verb_of(const results::RunRow& run) {
  return run.command.size() < 2 ? "" : run.command[1];
}

Expected<std::string> file_of(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    if (fs::exists(path, ignored)) return path;
    return refused(fmt::format("there is no '{}'", path),
                   "name the folders or the files of the shards");
  }
  for (const auto& [verb, file] : kFiles) {
    const fs::path candidate = fs::path(path) / file;
    if (fs::exists(candidate, ignored)) return candidate.string();
  }
  return refused(fmt::format("there are no rows in '{}'", path),
                 "name the folder that --out gave to the shard");
}

// ---------------------------------------------------------------------------------------------------
// Whether the shards are of one run.

std::string difference(const ShardRows& a, const ShardRows& b) {
  const auto differs = [](const char* what, const auto& first, const auto& second) {
    return fmt::format("{}: '{}' and '{}'", what, first, second);
  };
  const results::RunShard &one = *a.run.shard, &two = *b.run.shard;
  const auto first = common_command(a.run.command), second = common_command(b.run.command);
  if (first != second) return differs("commands", joined(first, " "), joined(second, " "));
  if (one.of != two.of) return differs("numbers of shards", one.of, two.of);
  if (a.run.seed != b.run.seed) return differs("seeds", a.run.seed, b.run.seed);
  if (a.run.version != b.run.version) return differs("versions", a.run.version, b.run.version);
  if (a.run.machine != b.run.machine) return differs("machines", a.run.machine, b.run.machine);
  const bool planned = !one.plan.empty() && !two.plan.empty();
  if (planned && (one.plan != two.plan || one.planned != two.planned || one.all != two.all)) {
    return differs("plans", one.plan, two.plan);
  }
  return {};
}

// Of silicon the computer counts, too; a model is the same one everywhere.
std::string difference(const results::MachineRow& a, const results::MachineRow& b) {
  const auto part = [](const results::MachineRow& row) {
    return fmt::format("{}, family {} model {:#x} stepping {}, microcode {}", row.machine,
                       row.family, row.model, row.stepping,
                       row.microcode ? results::hex(*row.microcode) : "not readable");
  };
  if (part(a) != part(b)) return fmt::format("{} and {}", part(a), part(b));
  if (a.event_list != b.event_list) {
    return fmt::format("event lists '{}' and '{}'", a.event_list, b.event_list);
  }
  const bool silicon = a.provenance == results::RowProvenance::kSilicon;
  if (silicon && a.host != b.host) return fmt::format("hosts '{}' and '{}'", a.host, b.host);
  return {};
}

// The shards by their index; those that are missing are in `lacking`.
using Shards = std::map<uint64_t, const ShardRows*>;

Expected<Shards> sorted(const std::vector<ShardRows>& shards, std::vector<std::string>& lacking) {
  if (shards.empty()) return refused("there is no shard to merge", "name their folders");
  Shards by_index;
  for (const ShardRows& shard : shards) {
    const auto [place, is_new] = by_index.try_emplace(shard.run.shard->index, &shard);
    if (!is_new) {
      return refused(fmt::format("{} is there twice: '{}' and '{}'", name_of_shard(shard),
                                 place->second->path, shard.path),
                     "name each shard once");
    }
    const ShardRows& other = shards.front();
    if (const std::string what = difference(other, shard); !what.empty()) {
      return refused(fmt::format("'{}' and '{}' are not shards of one run; they differ in their {}",
                                 other.path, shard.path, what),
                     "merge the shards of one command, run by one version");
    }
  }
  const uint64_t of = shards.front().run.shard->of;
  for (uint64_t index = 1; index <= of; ++index) {
    if (!by_index.contains(index)) {
      lacking.push_back(fmt::format("shard {} of {} is missing", index, of));
    }
  }
  return by_index;
}

void cut_short(const ShardRows& shard, const std::string& did, std::vector<std::string>& lacking) {
  const std::string why = shard.end ? fmt::format("its end says '{}'", shard.end->reason)
                                    : std::string("it has no end");
  lacking.push_back(
      fmt::format("{} ('{}') was cut short: {}; {}", name_of_shard(shard), shard.path, did, why));
}

// ---------------------------------------------------------------------------------------------------
// `run`.

check::Stage stage_of(const results::TestRow& row) {
  for (check::Stage stage : check::kStages) {
    if (row.stage == name_of(stage)) return stage;
  }
  return check::kStages.front();
}

// What the test's row would have been in the run that had known of the broken ground.
results::TestRow not_run(const results::TestRow& ran, const std::string& why) {
  results::TestRow row;
  row.machine = ran.machine;
  row.microarch = ran.microarch;
  row.id = ran.id;
  row.clauses = ran.clauses;
  row.citations = ran.citations;
  row.status = Status::kSkip;
  row.skip_category = results::SkipCategory::kGroundBroken;
  row.reason = why;
  row.seed = ran.seed;
  row.repetition = ran.repetition;
  row.stage = ran.stage;
  return row;
}

// Reads one shard's rows, test by test.
class TestReader {
 public:
  explicit TestReader(const ShardRows& shard) : shard_(shard) {}

  struct Test {
    std::vector<Row> before;  // what was measured for it
    std::optional<results::TestStartRow> start;
    std::optional<results::TestRow> test;
  };
  // Empty at the end; without `test` where the shard was cut short in the middle of it.
  Expected<Test> next() {
    Test found;
    for (; next_ < shard_.rows.size(); ++next_) {
      const Row& row = shard_.rows[next_];
      if (const auto* start = std::get_if<results::TestStartRow>(&row)) {
        if (found.start) return damaged(shard_, fmt::format("{} has no end", found.start->id));
        found.start = *start;
      } else if (const auto* test = std::get_if<results::TestRow>(&row)) {
        if (!found.start || found.start->id != test->id ||
            found.start->repetition != test->repetition) {
          return damaged(shard_, fmt::format("{} has no start", test->id));
        }
        found.test = *test;
        ++next_;
        return found;
      } else if (!found.start && (std::holds_alternative<results::MeasurementStartRow>(row) ||
                                  std::holds_alternative<results::MeasurementRow>(row) ||
                                  std::holds_alternative<results::UnmeasuredRow>(row))) {
        found.before.push_back(row);
      } else {
        return damaged(shard_, fmt::format("a `{}` row has no place there",
                                           results::json_of(row)["type"].get<std::string>()));
      }
    }
    return found;
  }

 private:
  const ShardRows& shard_;
  size_t next_ = 0;
};

std::string name_of_measurement(const Row& row) {
  if (const auto* start = std::get_if<results::MeasurementStartRow>(&row)) return start->name;
  if (const auto* found = std::get_if<results::MeasurementRow>(&row)) return found->name;
  return std::get<results::UnmeasuredRow>(row).name;
}

class RunMerger {
 public:
  RunMerger(const Shards& shards, Merged& merged) : shards_(shards), merged_(merged) {
    for (const auto& [index, shard] : shards) {
      const results::RunShard& said = *shard->run.shard;
      if (said.plan.empty()) continue;  // its machine did not open
      plan_ = &said;
      readers_.try_emplace(index, *shard);
    }
  }

  Expected<void> go() {
    if (plan_ == nullptr) return nothing_ran();
    std::vector<std::string> names;
    // A plan from a file is only as long as there are rows for it.
    size_t left = readers_.size();
    std::set<uint64_t> ended;
    for (uint64_t position = 0; position < plan_->planned && left > 0; ++position) {
      const uint64_t index = shard_of(position, plan_->of);
      const auto reader = readers_.find(index);
      if (reader == readers_.end() || ended.contains(index)) continue;
      auto test = SKIDPROOF_TRY(reader->second.next());
      const bool whole = test.test.has_value();
      if (!whole) {
        ended.insert(index);
        --left;
        if (test.start) test.test = lost_row(*test.start);
      } else {
        ++ran_[index];
        names.push_back(test.test->id);
      }
      put(std::move(test));
    }
    for (auto& [index, reader] : readers_) {
      const auto more = SKIDPROOF_TRY(reader.next());
      if (more.test || more.start || !more.before.empty()) {
        return damaged(*shards_.at(index), "it has more tests than its share");
      }
    }
    find_lacking();
    if (merged_.lacking.empty() && plan_hash(names) != plan_->plan) {
      return refused("the tests of the shards are not those of their plan, in its order",
                     "their rows were changed after they were written: run them again");
    }
    decide();
    return {};
  }

 private:
  void put(TestReader::Test test) {
    if (!test.test) {  // what was being measured when it ended
      for (Row& row : test.before) measured(row);
      return;
    }
    if (test.test->repetition != repetition_) ladder_.reset();
    repetition_ = test.test->repetition;
    const check::Stage stage = stage_of(*test.test);
    const auto broken = plan_->all ? std::nullopt : ladder_.broken_below(stage);
    if (broken) {
      *test.test = not_run(*test.test, *broken);
    } else {
      for (Row& row : test.before) measured(row);
      const bool off_tape =
          test.test->status == Status::kError && test.test->reason.starts_with("off the tape");
      const bool says_nothing = off_tape || is_lost(*test.test);
      if (!says_nothing) ladder_.note(stage, test.test->id, test.test->status);
    }
    ++counts_[test.test->status];
    merged_.rows.emplace_back(std::move(*test.start));
    merged_.rows.emplace_back(std::move(*test.test));
  }

  // Every shard measures for itself; one run measures once.
  void measured(Row& row) {
    const std::string key =
        fmt::format("{} {}", std::holds_alternative<results::MeasurementStartRow>(row),
                    name_of_measurement(row));
    if (measured_.insert(key).second) merged_.rows.push_back(std::move(row));
  }

  void find_lacking() {
    for (const auto& [index, shard] : shards_) {
      const results::RunShard& said = *shard->run.shard;
      uint64_t own = said.planned / said.of;  // whole rounds
      for (uint64_t p = own * said.of; p < said.planned; ++p) own += shard_of(p, said.of) == index;
      const uint64_t ran = ran_[index];
      if (said.plan.empty() || ran < own || !shard->end) {
        cut_short(*shard, fmt::format("{} of {} ended", ran, count_of(own, "test")),
                  merged_.lacking);
      }
    }
  }

  Expected<void> nothing_ran() {
    const ShardRows& first = *shards_.begin()->second;
    for (const auto& [index, shard] : shards_) {
      if (!shard->end) cut_short(*shard, "nothing ran", merged_.lacking);
    }
    merged_.exit = first.end ? first.end->exit : check::kExitHarnessFailed;
    merged_.reason = first.end ? first.end->reason : "nothing ran";
    return {};
  }

  void decide() {
    merged_.exit = check::exit_code(counts_);
    merged_.reason = "completed";
    if (merged_.exit == check::kExitPropertyFailed) return;
    for (const auto& [index, shard] : shards_) {
      // It says more than its tests do: a damaged tape, a machine lost while something was measured.
      if (!shard->end || shard->end->exit != check::kExitHarnessFailed) continue;
      if (shard->end->reason == "completed") continue;
      merged_.exit = check::kExitHarnessFailed;
      merged_.reason = shard->end->reason;
      return;
    }
  }

  const Shards& shards_;
  Merged& merged_;
  const results::RunShard* plan_ = nullptr;
  std::map<uint64_t, TestReader> readers_;
  std::map<uint64_t, uint64_t> ran_;
  check::Ladder ladder_;
  std::set<std::string> measured_;
  unsigned repetition_ = 0;
  results::StatusCounts counts_;
};

// ---------------------------------------------------------------------------------------------------
// `qualify`.

// One model of the plan, and what was written of it.
struct Unit {
  Json said;
  std::vector<Row> rows;
};

class QualificationMerger {
 public:
  QualificationMerger(const Shards& shards, Merged& merged) : shards_(shards), merged_(merged) {}

  Expected<void> go() {
    std::vector<Row> of_cut_shards;
    for (const auto& [index, shard] : shards_) {
      const auto sum = std::find_if(shard->rows.begin(), shard->rows.end(), [](const Row& row) {
        return std::holds_alternative<results::QualificationShardRow>(row);
      });
      if (sum == shard->rows.end()) {
        cut_short(*shard, "it does not say what it did", merged_.lacking);
        of_cut_shards.insert(of_cut_shards.end(), shard->rows.begin(), shard->rows.end());
        continue;
      }
      if (std::next(sum) != shard->rows.end()) return damaged(*shard, "rows stand behind its sum");
      const auto& said = std::get<results::QualificationShardRow>(*sum);
      SKIDPROOF_CHECK(take(*shard, said));
      const bool interrupted = shard->end && shard->end->reason.starts_with("interrupted");
      if (!shard->end || interrupted) {
        cut_short(*shard, fmt::format("{} done", count_of(done_[index], "model")), merged_.lacking);
      }
    }
    SKIDPROOF_CHECK(check_plan());
    take_catches_back();
    for (auto* units : {&conforming_, &verdicts_}) {
      for (auto& [position, unit] : *units) {
        merged_.rows.insert(merged_.rows.end(), unit.rows.begin(), unit.rows.end());
      }
    }
    merged_.rows.insert(merged_.rows.end(), of_cut_shards.begin(), of_cut_shards.end());
    merged_.matrix = matrix();
    decide();
    return {};
  }

 private:
  Expected<void> take(const ShardRows& shard, const results::QualificationShardRow& said) {
    size_t next = 0;
    for (const char* kind : {"conforming", "verdicts"}) {
      const bool verdicts = std::string_view(kind) == "verdicts";
      if (!said.units.contains(kind) || !said.units[kind].is_array()) {
        return damaged(shard, fmt::format("its units have no `{}`", kind));
      }
      for (const Json& entry : said.units[kind]) {
        const bool good = entry.is_object() && entry.contains("position") &&
                          entry["position"].is_number_unsigned() && entry.contains("rows") &&
                          entry["rows"].is_number_unsigned() && entry.contains("name") &&
                          entry["name"].is_string();
        if (!good) return damaged(shard, "one of its units cannot be read");
        if (verdicts && !is_verdict(entry)) return damaged(shard, "a verdict cannot be read");
        Unit unit{.said = entry, .rows = {}};
        for (uint64_t left = entry["rows"].get<uint64_t>(); left > 0; --left, ++next) {
          const bool fits = next + 1 < shard.rows.size() &&
                            (verdicts ? std::holds_alternative<results::DefectRow>(shard.rows[next])
                                      : std::holds_alternative<results::TestRow>(shard.rows[next]));
          if (!fits) return damaged(shard, "it has other rows than its sum says");
          unit.rows.push_back(shard.rows[next]);
        }
        if (verdicts && unit.rows.size() != 1) return damaged(shard, "a verdict has one row");
        auto& units = verdicts ? verdicts_ : conforming_;
        if (!units.try_emplace(entry["position"].get<uint64_t>(), std::move(unit)).second) {
          return damaged(
              shard, fmt::format("another shard has {} as well", entry["name"].get<std::string>()));
        }
        ++done_[shard.run.shard->index];
      }
    }
    if (next + 1 != shard.rows.size()) {
      return damaged(shard, "it has more rows than its sum says");
    }
    tests_run_.insert(said.tests_run.begin(), said.tests_run.end());
    tests_caught_.insert(said.tests_caught.begin(), said.tests_caught.end());
    problems_ |= !said.problems.empty();
    if (sum_.microarchs.empty()) sum_ = said;
    return {};
  }

  static bool is_verdict(const Json& entry) {
    for (const char* field : {"id", "microarch", "missed"}) {
      if (!entry.contains(field) || !entry[field].is_string()) return false;
    }
    return entry.contains("caught_by") && entry["caught_by"].is_array() &&
           entry.contains("rough") &&
           (entry["rough"].is_null() || entry["rough"].is_number_unsigned());
  }

  Expected<void> check_plan() {
    const results::RunShard& plan = *shards_.begin()->second->run.shard;
    std::vector<std::string> names;
    for (const auto* units : {&conforming_, &verdicts_}) {
      for (const auto& [position, unit] : *units) {
        names.push_back(unit.said["name"].get<std::string>());
      }
    }
    if (!merged_.lacking.empty()) return {};
    if (names.size() == plan.planned && plan_hash(names) == plan.plan) return {};
    return refused(fmt::format("the shards ran {} of {}, or others than planned", names.size(),
                               count_of(plan.planned, "model")),
                   "their rows were changed after they were written: run them again");
  }

  // A test that accuses a conforming model proves nothing against a broken one of its microarch. The shard that had
  // the broken one did not know of it.
  void take_catches_back() {
    for (const auto& [position, unit] : conforming_) {
      for (const Row& row : unit.rows) {
        const auto& test = std::get<results::TestRow>(row);
        if (!has_failed(test)) continue;
        ++accusations_;
        accused_by_.insert(test.id);
        accusers_[test.microarch].insert(test.id);
      }
    }
    for (auto& [position, unit] : verdicts_) {
      auto& row = std::get<results::DefectRow>(unit.rows.front());
      const auto accusers = accusers_.find(row.microarch);
      if (accusers == accusers_.end()) continue;
      const std::string before = joined(row.caught_by);
      std::erase_if(row.caught_by,
                    [&](const std::string& id) { return accusers->second.contains(id); });
      if (row.caught && row.caught_by.empty()) {
        unit.said["missed"] = fmt::format(
            "{} accuses a conforming model in another shard, and catches nothing", before);
      }
      row.caught = !row.caught_by.empty();
      unit.said["caught"] = row.caught;
      unit.said["caught_by"] = row.caught_by;
    }
  }

  Json matrix() const {
    Json defects = Json::array();
    for (const auto& [position, unit] : verdicts_) {
      Json entry = unit.said;
      for (const char* field : {"position", "name", "rows", "missed"}) entry.erase(field);
      defects.push_back(std::move(entry));
    }
    return {{"microarchs", sum_.microarchs},
            {"seed", sum_.seed},
            {"all", sum_.all},
            {"defects", std::move(defects)}};
  }

  void decide() {
    if (!merged_.lacking.empty()) return;  // half a qualification has no sum
    results::QualificationRow row;
    row.machine = shards_.begin()->second->run.machine;
    row.microarchs = sum_.microarchs;
    row.seeds = sum_.seeds;
    row.conforming_runs = conforming_.size();
    row.conforming_failures = accusations_;
    row.accused_by.assign(accused_by_.begin(), accused_by_.end());
    row.defects = verdicts_.size();
    for (const auto& [position, unit] : verdicts_) {
      const auto& verdict = std::get<results::DefectRow>(unit.rows.front());
      if (verdict.caught) {
        ++row.caught;
        continue;
      }
      const Json& rough = unit.said["rough"];
      const std::string why = unit.said["missed"].get<std::string>();
      row.missed.push_back(
          fmt::format("{} on {}{}{}", verdict.id, verdict.microarch,
                      rough.is_null() ? "" : fmt::format("~rough={}", rough.get<uint64_t>()),
                      why.empty() ? "" : fmt::format(" ({})", why)));
    }
    if (sum_.all) {
      std::set_difference(tests_run_.begin(), tests_run_.end(), tests_caught_.begin(),
                          tests_caught_.end(), std::back_inserter(row.tests_without_catch));
    }
    row.held = row.missed.empty() && row.conforming_failures == 0 && row.defects > 0 &&
               row.conforming_runs > 0;
    for (const auto& [index, shard] : shards_) row.duration_s += shard->end->duration_s;
    merged_.reason = "completed";
    if (!row.missed.empty() || row.conforming_failures > 0) {
      merged_.exit = check::kExitPropertyFailed;
    } else if (problems_) {
      merged_.exit = check::kExitHarnessFailed;
      merged_.reason = "a worker or a test failed";
    } else {
      merged_.exit = row.held ? check::kExitHeld : check::kExitHarnessFailed;
    }
    merged_.rows.emplace_back(std::move(row));
  }

  const Shards& shards_;
  Merged& merged_;
  std::map<uint64_t, Unit> conforming_, verdicts_;  // by position
  std::map<uint64_t, uint64_t> done_;
  std::map<std::string, std::set<std::string>> accusers_;  // by microarch
  std::set<std::string> accused_by_, tests_run_, tests_caught_;
  uint64_t accusations_ = 0;
  bool problems_ = false;
  results::QualificationShardRow sum_;  // of the first
};

// ---------------------------------------------------------------------------------------------------
// `fuzz`.

Expected<void> merge_fuzz(const Shards& shards, Merged& merged) {
  results::FuzzRow sum;
  sum.machine = shards.begin()->second->run.machine;
  std::string failed;
  for (const auto& [index, shard] : shards) {
    const bool interrupted = shard->end && shard->end->reason.starts_with("interrupted");
    if (shard->rows.size() > 1) return damaged(*shard, "it has more than one row");
    if (!shard->end || interrupted) {
      cut_short(*shard, "it did not come to its end", merged.lacking);
    }
    if (shard->end && shard->end->exit == check::kExitHarnessFailed && failed.empty()) {
      failed = shard->end->reason;
    }
    if (shard->rows.empty()) continue;
    const auto* row = std::get_if<results::FuzzRow>(&shard->rows.front());
    if (row == nullptr) return damaged(*shard, "a row that is not of `fuzz`");
    for (auto member :
         {&results::FuzzRow::cases, &results::FuzzRow::runs, &results::FuzzRow::exact_runs,
          &results::FuzzRow::instructions, &results::FuzzRow::records,
          &results::FuzzRow::exact_records, &results::FuzzRow::writes, &results::FuzzRow::refused,
          &results::FuzzRow::interrupts, &results::FuzzRow::violations}) {
      sum.*member += row->*member;
    }
    sum.duration_s += row->duration_s;
    if (sum.microarchs.empty()) sum.microarchs = row->microarchs;
    if (sum.violation.empty()) sum.violation = row->violation;
  }
  const uint64_t planned = shards.begin()->second->run.shard->planned;
  if (planned > 0 && sum.violations == 0 && failed.empty() && merged.lacking.empty() &&
      sum.cases != planned) {
    return refused(fmt::format("the shards ran {} cases, and {} were planned", sum.cases, planned),
                   "their rows were changed after they were written: run them again");
  }
  sum.cases_per_s = sum.duration_s > 0 ? static_cast<double>(sum.cases) / sum.duration_s : 0;
  sum.held = sum.violations == 0 && sum.cases > 0;
  merged.reason = "completed";
  if (sum.violations > 0) {
    merged.exit = check::kExitPropertyFailed;
    merged.reason = "a violation";
  } else if (!failed.empty() || sum.cases == 0) {
    merged.exit = check::kExitHarnessFailed;
    merged.reason = failed.empty() ? "no case ran" : failed;
  }
  merged.rows.emplace_back(std::move(sum));
  return {};
}

// ---------------------------------------------------------------------------------------------------
// What stands around the rows.

Expected<void> put_header(const Shards& shards, const std::string& run_id, Merged& merged) {
  results::RunRow run = shards.begin()->second->run;
  run.id = run_id;
  run.command = common_command(run.command);
  run.shard.reset();
  run.merged_from.clear();
  const ShardRows* with_machines = nullptr;
  for (const auto& [index, shard] : shards) {
    run.started = std::min(run.started, shard->run.started);
    run.merged_from.push_back(shard->run.id);
    if (shard->machines.empty()) continue;
    if (with_machines == nullptr) with_machines = shard;
    const auto& first = with_machines->machines;
    const size_t both = std::min(first.size(), shard->machines.size());
    for (size_t i = 0; i < both; ++i) {
      const std::string what = difference(first[i], shard->machines[i]);
      if (what.empty()) continue;
      return refused(fmt::format("'{}' and '{}' are of two machines: {}", with_machines->path,
                                 shard->path, what),
                     "results of two processors do not belong in one run");
    }
    if (shard->machines.size() > first.size()) with_machines = shard;
  }
  merged.rows.emplace_back(std::move(run));
  if (with_machines == nullptr) return {};
  for (const results::MachineRow& machine : with_machines->machines) {
    merged.rows.emplace_back(machine);
  }
  return {};
}

void put_end(const Shards& shards, Merged& merged) {
  results::EndRow end;
  end.machine = shards.begin()->second->run.machine;
  for (const Row& row : merged.rows) {
    if (const auto* test = std::get_if<results::TestRow>(&row)) ++end.counts[test->status];
  }
  for (const auto& [index, shard] : shards) {
    end.finished = std::max(end.finished, shard->end ? shard->end->finished : shard->run.started);
    if (shard->end) end.duration_s += shard->end->duration_s;
  }
  if (!merged.lacking.empty()) {
    merged.exit = check::kExitHarnessFailed;
    merged.reason = "merged in part: " + joined(merged.lacking, "; ");
  }
  end.exit = merged.exit;
  end.reason = merged.reason;
  merged.rows.emplace_back(std::move(end));
}

}  // namespace

std::vector<std::string> common_command(const std::vector<std::string>& command) {
  static constexpr std::array<std::string_view, 6> kWithValue = {"--shard",  "--out",  "--json",
                                                                 "--matrix", "--tape", "--jobs"};
  std::vector<std::string> common = {"skidproof"};
  for (size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    const std::string_view name = std::string_view(word).substr(0, word.find('='));
    if (std::find(kWithValue.begin(), kWithValue.end(), name) != kWithValue.end()) {
      if (name.size() == word.size()) ++i;
    } else if (word != "-v" && word != "--verbose") {
      common.push_back(word);
    }
  }
  return common;
}

Expected<ShardRows> read_shard(const std::string& path) {
  ShardRows shard;
  shard.path = SKIDPROOF_TRY(file_of(path));
  const results::RowsFile file = SKIDPROOF_TRY(results::read_rows(shard.path));
  shard.torn = file.truncated;
  for (const results::LineProblem& problem : file.problems) {
    if (file.truncated && &problem == &file.problems.back()) break;
    return refused(
        fmt::format("line {} of '{}' is no row: {}", problem.line, shard.path, problem.what),
        "these rows were changed after they were written: run that shard again");
  }
  for (const results::ReadRow& read : file.rows) {
    auto parsed = results::row_of(read.json);
    if (parsed) {
      if (auto sound = results::check_row(*parsed); !sound)
        parsed = tl::make_unexpected(sound.error());
    }
    const auto problem = [&](const std::string& what) {
      return refused(fmt::format("line {} of '{}': {}", read.line, shard.path, what),
                     "name the rows that a shard wrote (skidproof run --shard I/N)");
    };
    if (!parsed) return problem(parsed.error().message);
    const bool first = &read == &file.rows.front();
    if (auto* run = std::get_if<results::RunRow>(&*parsed); first != (run != nullptr)) {
      return problem(first ? "a run begins with a `run` row" : "a second run begins");
    } else if (run != nullptr) {
      shard.run = std::move(*run);
    } else if (shard.end) {
      return problem("a row stands behind the end");
    } else if (auto* machine = std::get_if<results::MachineRow>(&*parsed)) {
      shard.machines.push_back(std::move(*machine));
    } else if (auto* end = std::get_if<results::EndRow>(&*parsed)) {
      shard.end = std::move(*end);
    } else {
      shard.rows.push_back(std::move(*parsed));
    }
  }
  if (!shard.run.shard) {
    return refused(fmt::format("'{}' holds no shard{}", shard.path,
                               shard.run.id.empty() ? "" : ", but a whole run"),
                   "merge what `run`, `qualify` or `fuzz` wrote with --shard I/N");
  }
  const results::RunShard& said = *shard.run.shard;
  if (said.index < 1 || said.index > said.of || said.of > kMostShards) {
    return refused(fmt::format("'{}' calls itself shard {} of {}", shard.path, said.index, said.of),
                   "these rows were changed after they were written: run that shard again");
  }
  return shard;
}

Expected<Merged> merge_shards(const std::vector<ShardRows>& shards, const std::string& run_id,
                              bool partial) {
  Merged merged;
  const Shards by_index = SKIDPROOF_TRY(sorted(shards, merged.lacking));
  const std::string verb = verb_of(by_index.begin()->second->run);
  for (const auto& [known, file] : kFiles) {
    if (verb == known) merged.file = file;
  }
  if (merged.file.empty()) {
    return refused(fmt::format("'{}' is of `skidproof {}`", by_index.begin()->second->path, verb),
                   "only `run`, `qualify` and `fuzz` have shards");
  }
  SKIDPROOF_CHECK(put_header(by_index, run_id, merged));
  if (verb == "run") {
    SKIDPROOF_CHECK(RunMerger(by_index, merged).go());
  } else if (verb == "qualify") {
    SKIDPROOF_CHECK(QualificationMerger(by_index, merged).go());
  } else {
    SKIDPROOF_CHECK(merge_fuzz(by_index, merged));
  }
  if (!merged.lacking.empty() && !partial) {
    return refused(
        joined(merged.lacking, "; "),
        "run those shards again, or `skidproof run --resume` them; --partial merges what "
        "there is");
  }
  put_end(by_index, merged);
  return merged;
}

}  // namespace skidproof::cli
