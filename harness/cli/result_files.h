// Where a run's rows go: a file in the output folder, a file or standard output by --json, or both.
#ifndef SKIDPROOF_HARNESS_CLI_RESULT_FILES_H_
#define SKIDPROOF_HARNESS_CLI_RESULT_FILES_H_

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "results/row.h"
#include "results/writer.h"

namespace skidproof::cli {

// "20240501T123456Z-3fa9": sorts by time, and two runs of one second differ.
std::string new_run_id();

// What the user asked for.
struct Destination {
  std::string out;   // --out DIR; empty: skidproof-out/<run id>, unless `json` says where
  std::string json;  // --json FILE; empty: none
};

// Writes the rows of one run. After end() nothing more is written, whichever thread asks.
class ResultFiles {
 public:
  // Creates the folder and the files; `file` is the name within the folder ("results.jsonl"). Errors:
  // kIo, kPermission, before anything has run.
  static Expected<std::unique_ptr<ResultFiles>> open(const Destination& destination,
                                                     const std::string& run_id,
                                                     std::string_view file);

  // Goes on with the rows of an interrupted run; `counts` are of those that it has.
  static Expected<std::unique_ptr<ResultFiles>> append_to(const std::string& path,
                                                          const std::string& run_id,
                                                          const results::StatusCounts& counts);

  // The first failure of any file is the run's.
  Expected<void> write(const results::Row& row);
  // The last row. Fills in the machine, the time and the duration, and, where a file failed, the reason.
  void end(int exit, const std::string& reason);

  // Whose rows they are, for the end row.
  void set_machine(std::string machine) { machine_ = std::move(machine); }
  // "disk full" …; empty while all went well.
  std::string failure() const;
  // Paths for people, none for standard output.
  std::vector<std::string> paths() const;
  // For other files of the run; empty when all rows go elsewhere.
  const std::string& folder() const { return folder_; }
  const std::string& run_id() const { return run_id_; }
  double seconds() const;
  results::StatusCounts counts() const;  // of the test rows so far

 private:
  explicit ResultFiles(std::string run_id)
      : run_id_(std::move(run_id)), began_(std::chrono::steady_clock::now()) {}
  std::string failure_locked() const;

  const std::string run_id_;
  const std::chrono::steady_clock::time_point began_;
  std::string folder_;
  std::string machine_ = "none";
  mutable std::mutex mutex_;
  bool ended_ = false;
  results::StatusCounts counts_;
  std::vector<std::unique_ptr<results::JsonLinesWriter>> writers_;
};

// The `run` row of this invocation.
results::RunRow run_row(const std::string& run_id, const std::vector<std::string>& command,
                        uint64_t seed, const std::string& machine);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_RESULT_FILES_H_
