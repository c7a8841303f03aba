// What `run` shows to people: a line for each suite, failures with clause and evidence, skips by reason.
#ifndef SKIDPROOF_HARNESS_CLI_RUN_PRINTER_H_
#define SKIDPROOF_HARNESS_CLI_RUN_PRINTER_H_

#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/check/listener.h"
#include "harness/cli/machines.h"
#include "harness/cli/result_files.h"
#include "harness/cli/text.h"

namespace skidproof::cli {

class RunPrinter final : public check::Observer {
 public:
  // `again`: the command that runs this machine again, without --seed and --filter.
  RunPrinter(std::FILE* stream, const OpenMachine& machine, std::string again, bool verbose);

  void header(const ResultFiles& files, uint64_t seed) const;
  void planned(size_t tests) override { planned_ = tests; }
  void started(const check::TestInfo& info) override;
  void finished(const results::TestRow& row) override;
  void summary(const ResultFiles& files, int exit, const std::string& reason);

 private:
  void close_suite();
  void print_verbose(const results::TestRow& row);
  void print_failure(const results::TestRow& row);
  void print_skips() const;

  const Text text_;
  const OpenMachine& machine_;
  const std::string again_;
  const bool verbose_;
  Progress progress_{"run"};
  size_t planned_ = 0;
  size_t done_ = 0;
  std::string suite_;
  size_t suite_width_ = 0;
  results::StatusCounts suite_counts_;
  double suite_seconds_ = 0;
  std::vector<results::TestRow> failures_;  // fail, error and xpass
  std::map<std::pair<std::string, std::string>, std::vector<std::string>>
      skips_;  // category, reason
};

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_RUN_PRINTER_H_
