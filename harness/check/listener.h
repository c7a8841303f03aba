// From GoogleTest's events to result rows: `test-start` before a test touches the machine, `test`
// after.
#ifndef SKIDPROOF_HARNESS_CHECK_LISTENER_H_
#define SKIDPROOF_HARNESS_CHECK_LISTENER_H_

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/expected.h"
#include "harness/check/check.h"
#include "harness/check/exit_codes.h"
#include "results/row.h"

namespace skidproof::check {

// Where rows go. An error ends the run: the test that runs is the last one.
using RowSink = std::function<Expected<void>(const results::Row&)>;

// Someone who watches, for text on a terminal.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void planned(size_t /*tests, over all repetitions*/) {}
  virtual void started(const TestInfo&) {}
  virtual void finished(const results::TestRow&) {}
};

// Reports the tests of tests(); others in the same program pass by unreported. Tests that had not
// begun when the run was asked to stop have no rows.
class Listener final : public ::testing::EmptyTestEventListener {
 public:
  // `machine` and `microarch` stand in every row. Repetition i (--gtest_repeat) runs with the seed
  // that environment() had at construction, plus i.
  Listener(std::string machine, std::string microarch, RowSink sink, Observer* observer = nullptr);

  void OnTestProgramStart(const ::testing::UnitTest& unit) override;
  void OnTestIterationStart(const ::testing::UnitTest& unit, int iteration) override;
  void OnTestStart(const ::testing::TestInfo& test) override;
  void OnTestEnd(const ::testing::TestInfo& test) override;

  const results::StatusCounts& counts() const { return counts_; }
  // The sink's error, if it had one: then some tests have no row.
  const std::vector<Error>& sink_errors() const { return sink_errors_; }

 private:
  bool passed_over(const TestInfo& info);
  void send(const results::Row& row);
  const std::string machine_;
  const std::string microarch_;
  const RowSink sink_;
  Observer* const observer_;
  const TestInfo* current_ = nullptr;  // nullptr: not ours, or not begun
  std::chrono::steady_clock::time_point began_;
  const uint64_t first_seed_;
  unsigned repetition_ = 0;
  results::StatusCounts counts_;
  std::vector<Error> sink_errors_;
};

// The row of the test that was judged last, as outcome() and environment() say, but for the time that it took.
results::TestRow row_of_outcome(const TestInfo& info, const std::string& machine,
                                const std::string& microarch);

// The exit code that these counts deserve: 1 a property failed, 2 the harness failed, 77 nothing could
// run, 0 all that ran held. What an erratum explains, what nothing promises and what noise voided
// decides nothing.
int exit_code(const results::StatusCounts& counts);

}  // namespace skidproof::check

#endif  // SKIDPROOF_HARNESS_CHECK_LISTENER_H_
