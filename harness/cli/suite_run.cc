#include "harness/cli/suite_run.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "harness/check/calibrating.h"
#include "harness/check/check.h"
#include "harness/check/ladder.h"
#include "harness/check/outcome.h"
#include "harness/cli/supervisor.h"

namespace skidproof::cli {
namespace {

Ending ending_of_tests(const check::Listener& listener, const Supervisor& supervisor,
                       const ResultFiles& files, const OpenMachine& machine) {
  if (!listener.sink_errors().empty()) {
    const std::string failure = files.failure();
    return {kExitHarnessFailed, failure.empty() ? "a row could not be written" : failure};
  }
  if (const std::string reason = supervisor.reason(); !reason.empty()) {
    return {kExitHarnessFailed, reason};
  }
  const results::StatusCounts counts = files.counts();  // with what ran before a resumption
  if (counts.total() == 0) return {kExitUsage, "the filter matched no test"};
  const int exit = check::exit_code(counts);
  if (exit == kExitPropertyFailed) return {exit, "completed"};
  // What held, held on what is left of the tape.
  if (machine.tape != nullptr && !machine.tape->damage().empty()) {
    return {kExitHarnessFailed, "the tape is damaged: " + machine.tape->damage().front()};
  }
  return {exit, "completed"};
}

// On which stage of the bring-up a measurement stands.
check::Stage stage_of(calibrate::Quantity quantity) {
  switch (quantity) {
    case calibrate::Quantity::kEdgeInstructions:
    case calibrate::Quantity::kEdgeCycles:
      return check::Stage::kCount;
    case calibrate::Quantity::kPmiLateness:
      return check::Stage::kInterrupt;
    default:
      return check::Stage::kOneRecord;
  }
}

const check::TestInfo* info_of(const ::testing::TestInfo& test) {
  for (const check::TestInfo& info : check::tests()) {
    if (info.suite == test.test_suite_name() && info.name == test.name()) return &info;
  }
  return nullptr;
}

// What the suites take their margins from is measured and written down before the first test of the stage
// on which the measurement stands: before registers were read nothing counts. Stands before
// check::Listener, so that a measurement is no test's. `left_out`: name to reason.
class CalibratesByStage final : public ::testing::EmptyTestEventListener {
 public:
  CalibratesByStage(const Identity& who, ResultFiles& files,
                    const std::map<std::string, std::string>& left_out)
      : who_(who), files_(files) {
    check::Environment& shared = check::environment();
    shared.calibration = std::make_shared<calibrate::Calibration>(
        check::calibration_of(*shared.machines, shared.seed));
    for (calibrate::Quantity quantity : calibrate::kQuantities) {
      const auto found = left_out.find(std::string(name_of(quantity)));
      if (found == left_out.end()) continue;
      shared.calibration->leave_out(quantity, found->second);
      done_[static_cast<size_t>(quantity)] = true;
    }
  }

  void OnTestStart(const ::testing::TestInfo& test) override {
    const check::TestInfo* info = info_of(test);
    if (!who_.pmu || who_.microarch == nullptr || info == nullptr || check::stop_requested())
      return;
    const check::Environment& shared = check::environment();
    if (shared.ran_before && shared.ran_before(*info, shared.repetition)) return;
    if (shared.ladder != nullptr && shared.ladder->broken_below(info->stage)) return;
    for (calibrate::Quantity quantity : calibrate::kQuantities) {
      bool& done = done_[static_cast<size_t>(quantity)];
      if (done || stage_of(quantity) > info->stage) continue;
      done = true;
      if (!measure(quantity)) {
        check::request_stop(results::SkipCategory::kInterrupted, "results could not be written");
        return;
      }
    }
  }

 private:
  // The first row is on disk before the machine is touched.
  bool measure(calibrate::Quantity quantity) {
    const std::string microarch(who_.microarch->name);
    const results::MeasurementStartRow start{.machine = who_.name,
                                             .microarch = microarch,
                                             .name = std::string(name_of(quantity)),
                                             .started = results::utc_now()};
    return files_.write(start) && files_.write(check::row_of(*check::environment().calibration,
                                                             quantity, who_.name, microarch));
  }

  const Identity& who_;
  ResultFiles& files_;
  std::array<bool, calibrate::kQuantities.size()> done_ = {};
};

// What an interrupted run has behind it, and what other shards run. A lost machine says nothing about the ground that
// it was lost on: what stands above goes on.
void pass_over(const SuiteRun& run) {
  if (run.before == nullptr && run.elsewhere == nullptr) return;
  std::map<std::pair<std::string, unsigned>, results::Status> ran;
  if (run.before != nullptr) {
    for (const results::TestRow& row : run.before->tests) {
      ran[{row.id, row.repetition}] = is_lost(row) ? results::Status::kSkip : row.status;
    }
  }
  check::environment().ran_before = [ran = std::move(ran), elsewhere = run.elsewhere](
                                        const check::TestInfo& info,
                                        unsigned repetition) -> std::optional<results::Status> {
    if (elsewhere && elsewhere(info, repetition)) return results::Status::kSkip;
    const auto found = ran.find({info.id(), repetition});
    return found == ran.end() ? std::nullopt : std::optional(found->second);
  };
}

}  // namespace

// Hands GoogleTest its own flags. What it does not know is the user's mistake.
int start_googletest(const Invocation& invocation, unsigned repeat) {
  std::vector<std::string> words = {"skidproof"};
  words.insert(words.end(), invocation.passed_on.begin(), invocation.passed_on.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int argc = static_cast<int>(words.size());
  ::testing::GTEST_FLAG(repeat) = static_cast<int>(repeat);
  ::testing::InitGoogleTest(&argc, argv.data());
  if (argc == 1) return kExitHeld;
  return complain(kExitUsage, fmt::format("'{}' is not a GoogleTest flag", argv[1]),
                  "after -- stand flags such as --gtest_shuffle; options of `run` stand before it");
}

Ending run_suites(const SuiteRun& run) {
  check::Ladder ladder;
  check::environment() = {
      .machines = run.recording != nullptr ? run.recording : run.machine.source.get(),
      .seed = run.seed,
      .ladder = run.all ? nullptr : &ladder,
      .errata = run.errata,
      .shape = run.shape};
  pass_over(run);
  const Identity& who = run.machine.identity;
  ResultFiles& files = run.files;
  RecordingSource* const recording = run.recording;
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  const std::string microarch(who.microarch == nullptr ? "" : who.microarch->name);
  const auto left_out =
      run.before == nullptr ? std::map<std::string, std::string>() : run.before->left_out;
  auto* listener = new check::Listener(
      who.name, microarch,
      [&files, recording](const results::Row& row) {
        Expected<void> written = files.write(row);
        const auto* test = std::get_if<results::TestRow>(&row);
        if (recording != nullptr && test != nullptr) recording->judged(*test);
        return written;
      },
      run.observer);
  listeners.Append(
      new CalibratesByStage(who, files, left_out));  // owned by GoogleTest, as is the next
  listeners.Append(listener);

  std::optional<std::chrono::milliseconds> deadline;
  if (run.deadline_s > 0) {
    deadline = std::chrono::milliseconds(static_cast<int64_t>(run.deadline_s * 1000));
  }
  const auto ask = [](const std::string& reason, bool late) {
    check::request_stop(
        late ? results::SkipCategory::kDeadline : results::SkipCategory::kInterrupted, reason);
  };
  Supervisor supervisor(deadline, ask, [&](const std::string& reason) {
    files.end(kExitHarnessFailed, reason);
    complain(kExitHarnessFailed, reason + "; a test did not end in time",
             "the rows before it are whole; the last test-start or measurement-start row names it");
  });
  [[maybe_unused]] const int ours_decide = RUN_ALL_TESTS();
  const Expected<void> recorded = recording == nullptr ? Expected<void>() : recording->finish();
  Ending end = ending_of_tests(*listener, supervisor, files, run.machine);
  if (end.exit == kExitHeld && !left_out.empty()) {
    end = {kExitHarnessFailed,
           "the machine was lost while this was measured: " + left_out.begin()->first};
  }
  if (!recorded && end.exit != kExitPropertyFailed) {
    end = {kExitHarnessFailed, recorded.error().message};
  }
  if (run.close) end = run.close(end);
  files.end(end.exit, end.reason);
  if (!recorded) complain(end.exit, recorded.error());
  if (!listener->sink_errors().empty()) complain(end.exit, listener->sink_errors().front());
  return end;
}

}  // namespace skidproof::cli
