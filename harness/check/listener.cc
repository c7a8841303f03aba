// How the outcome of a GoogleTest test becomes a result row.
#include "harness/check/listener.h"

#include <fmt/core.h>

#include <utility>

#include "harness/check/ladder.h"
#include "harness/check/outcome.h"

namespace skidproof::check {
namespace {

using results::Status;

const TestInfo* find(const ::testing::TestInfo& test) {
  for (const TestInfo& info : tests()) {
    if (info.suite == test.test_suite_name() && info.name == test.name()) return &info;
  }
  return nullptr;
}

std::vector<std::string> clause_ids(const TestInfo& info) {
  std::vector<std::string> ids;
  for (const Clause* clause : info.clauses) ids.emplace_back(clause->id);
  return ids;
}

}  // namespace

Listener::Listener(std::string machine, std::string microarch, RowSink sink, Observer* observer)
    : machine_(std::move(machine)),
      microarch_(std::move(microarch)),
      sink_(std::move(sink)),
      observer_(observer),
      first_seed_(environment().seed) {}

void Listener::OnTestProgramStart(const ::testing::UnitTest& unit) {
  if (observer_ == nullptr) return;
  const int repeat = ::testing::GTEST_FLAG(repeat);
  const size_t times = repeat > 0 ? static_cast<size_t>(repeat) : 1;
  size_t planned = static_cast<size_t>(unit.test_to_run_count()) * times;
  const auto& ran_before = environment().ran_before;
  for (int i = 0; ran_before && i < unit.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *unit.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const TestInfo* info = find(*suite.GetTestInfo(j));
      for (unsigned repetition = 0; info != nullptr && repetition < times; ++repetition) {
        if (suite.GetTestInfo(j)->should_run() && ran_before(*info, repetition)) --planned;
      }
    }
  }
  observer_->planned(planned);
}

void Listener::OnTestIterationStart(const ::testing::UnitTest&, int iteration) {
  repetition_ = static_cast<unsigned>(iteration);
  environment().seed = first_seed_ + repetition_;
  if (environment().ladder != nullptr) environment().ladder->reset();
  environment().repetition = repetition_;
}

void Listener::OnTestStart(const ::testing::TestInfo& test) {
  outcome() = {};
  current_ = stop_requested() ? nullptr : find(test);
  if (current_ == nullptr || passed_over(*current_)) return;
  results::TestStartRow row;
  row.machine = machine_;
  row.microarch = microarch_;
  row.id = current_->id();
  row.clauses = clause_ids(*current_);
  row.seed = environment().seed;
  row.repetition = repetition_;
  row.started = results::utc_now();
  send(row);
  if (!sink_errors_.empty()) {
    current_ = nullptr;  // without the intent on disk the machine is not touched
    return;
  }
  if (observer_ != nullptr) observer_->started(*current_);
  began_ = std::chrono::steady_clock::now();
}

// A test of an interrupted run is not run again, but what it said of the ground stands.
bool Listener::passed_over(const TestInfo& info) {
  if (!environment().ran_before) return false;
  const auto before = environment().ran_before(info, repetition_);
  if (!before) return false;
  if (environment().ladder != nullptr) environment().ladder->note(info.stage, info.id(), *before);
  outcome().left_out = true;
  current_ = nullptr;
  return true;
}

void Listener::OnTestEnd(const ::testing::TestInfo& test) {
  if (current_ == nullptr) return;
  results::TestRow row = row_of_outcome(*current_, machine_, microarch_);
  const bool told = row.status == Status::kFail || row.status == Status::kError;
  if (test.result()->Failed() && !told) {  // outside of the attempts, whose failures are judged
    row.status = Status::kError;
    row.skip_category.reset();
    row.reason = "GoogleTest counts a failure that no attempt had";
  }
  row.duration_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  // A tape that does not answer breaks no ground of the processor's.
  if (environment().ladder != nullptr && outcome().off_tape.empty()) {
    environment().ladder->note(current_->stage, row.id, row.status);
  }
  current_ = nullptr;
  ++counts_[row.status];
  send(row);
  if (observer_ != nullptr) observer_->finished(row);
}

void Listener::send(const results::Row& row) {
  if (Expected<void> sent = sink_(row); !sent) {
    sink_errors_.push_back(sent.error());
    request_stop(SkipCategory::kInterrupted, "results could not be written");
  }
}

results::TestRow row_of_outcome(const TestInfo& info, const std::string& machine,
                                const std::string& microarch) {
  const Outcome& now = outcome();
  results::TestRow row;
  row.machine = machine;
  row.microarch = microarch;
  row.id = info.id();
  row.clauses = clause_ids(info);
  for (const Clause* clause : info.clauses) {
    row.citations[std::string(clause->id)] = fmt::format("{} [{}]", clause->text, clause->citation);
  }
  row.seed = environment().seed;
  row.repetition = environment().repetition;
  row.iterations = now.executed;
  row.comparisons = now.comparisons;
  row.evidence = now.evidence;
  row.failures = now.failures;
  row.failures.insert(row.failures.end(), now.errors.begin(), now.errors.end());
  row.stage = name_of(info.stage);
  row.status = now.status;
  row.skip_category = now.skip;
  row.reason = now.reason;
  row.erratum = now.erratum;
  row.repetitions = now.repetitions;
  if (!now.began) {
    row.status = Status::kSkip;
    row.skip_category = SkipCategory::kInterrupted;
    row.reason = "not run: an earlier test failed (--gtest_fail_fast)";
  }
  return row;
}

int exit_code(const results::StatusCounts& counts) {
  if (counts[Status::kFail] > 0) return kExitPropertyFailed;
  if (counts[Status::kError] > 0) return kExitHarnessFailed;
  return counts.total() == counts[Status::kSkip] ? kExitNothingRan : kExitHeld;
}

}  // namespace skidproof::check
