// How the outcome of a GoogleTest test becomes a result row.
#include "harness/check/listener.h"

#include <fmt/core.h>

#include <filesystem>
#include <string_view>
#include <utility>

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

std::string place_of(const ::testing::TestPartResult& part) {
  if (part.file_name() == nullptr) return "?";
  const std::string name = std::filesystem::path(part.file_name()).filename().string();
  return fmt::format("{}:{}", name, part.line_number());
}

// VERIFY_… wraps what it compares; people want to read what they wrote.
std::string without_wrapping(std::string message) {
  constexpr std::string_view kWrapping = "::skidproof::check::internal::counted(";
  for (size_t at; (at = message.find(kWrapping)) != std::string::npos;) {
    size_t depth = 1;
    size_t end = at + kWrapping.size();
    for (; end < message.size() && depth > 0; ++end) {
      if (message[end] == '(') ++depth;
      if (message[end] == ')') --depth;
    }
    if (depth == 0) message.erase(end - 1, 1);
    message.erase(at, kWrapping.size());
  }
  return message;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

}  // namespace

Listener::Listener(std::string machine, std::string microarch, RowSink sink, Observer* observer)
    : machine_(std::move(machine)),
      microarch_(std::move(microarch)),
      sink_(std::move(sink)),
      observer_(observer),
      first_seed_(environment().seed) {}

void Listener::OnTestProgramStart(const ::testing::UnitTest& unit) {
  const int repeat = ::testing::GTEST_FLAG(repeat);
  const size_t times = repeat > 0 ? static_cast<size_t>(repeat) : 1;
  if (observer_ != nullptr) {
    observer_->planned(static_cast<size_t>(unit.test_to_run_count()) * times);
  }
}

void Listener::OnTestIterationStart(const ::testing::UnitTest&, int iteration) {
  repetition_ = static_cast<unsigned>(iteration);
  environment().seed = first_seed_ + repetition_;
}

void Listener::OnTestStart(const ::testing::TestInfo& test) {
  current_ = stop_requested() ? nullptr : find(test);
  if (current_ == nullptr) return;
  failures_.clear();
  outcome() = {};
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

void Listener::OnTestPartResult(const ::testing::TestPartResult& part) {
  if (current_ == nullptr || !part.failed()) return;
  const std::string message = part.message() == nullptr ? "" : part.message();
  if (message.find(kHarnessPrefix) != std::string::npos) return;  // in outcome().errors
  failures_.push_back(fmt::format("{}: {}", place_of(part), without_wrapping(message)));
}

void Listener::OnTestEnd(const ::testing::TestInfo&) {
  if (current_ == nullptr) return;
  results::TestRow row = row_of_outcome(*current_);
  row.duration_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
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

// A property that failed stays failed whatever the harness met later; a harness error hides a skip.
results::TestRow Listener::row_of_outcome(const TestInfo& info) const {
  const Outcome& now = outcome();
  results::TestRow row;
  row.machine = machine_;
  row.microarch = microarch_;
  row.id = info.id();
  row.clauses = clause_ids(info);
  for (const Clause* clause : info.clauses) {
    row.citations[std::string(clause->id)] = fmt::format("{} [{}]", clause->text, clause->citation);
  }
  row.seed = environment().seed;
  row.repetition = repetition_;
  row.iterations = now.executed;
  row.comparisons = now.comparisons;
  row.evidence = now.evidence;
  row.failures = failures_;
  row.failures.insert(row.failures.end(), now.errors.begin(), now.errors.end());
  if (!now.began) {
    row.status = Status::kSkip;
    row.skip_category = SkipCategory::kInterrupted;
    row.reason = "not run: an earlier test failed (--gtest_fail_fast)";
  } else if (!failures_.empty()) {
    row.status = Status::kFail;
  } else if (!now.errors.empty()) {
    row.status = Status::kError;
    row.reason = joined(now.errors);
  } else if (now.skip) {
    row.status = Status::kSkip;
    row.skip_category = now.skip;
    row.reason = now.skip_reason.empty() ? results::name_of(*now.skip) : now.skip_reason;
  } else {
    row.status = Status::kPass;
  }
  return row;
}

int exit_code(const results::StatusCounts& counts) {
  if (counts[Status::kFail] + counts[Status::kXpass] > 0) return kExitPropertyFailed;
  if (counts[Status::kError] > 0) return kExitHarnessFailed;
  if (counts[Status::kPass] + counts[Status::kXfail] > 0) return kExitHeld;
  return kExitNothingRan;
}

}  // namespace skidproof::check
