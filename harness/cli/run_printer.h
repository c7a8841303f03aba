// What `run` shows to people: a line for each suite, failures with clause and evidence, what an erratum
// or noise explains, what was observed, and skips by reason.
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
#include "harness/cli/resume.h"
#include "harness/cli/text.h"

namespace skidproof::cli {

class RunPrinter final : public check::Observer {
 public:
  // `again`: the command that runs this machine again, without --seed and --filter.
  RunPrinter(std::FILE* stream, const OpenMachine& machine, std::string again, bool verbose);

  void header(const ResultFiles& files, uint64_t seed) const;
  // What there is of the run already, and what was mended.
  void resumed(const Interrupted& before) const;
  void planned(size_t tests) override { planned_ = tests; }
  void started(const check::TestInfo& info) override;
  void finished(const results::TestRow& row) override;
  // `also`: lines that say what else there is of the run.
  void summary(const ResultFiles& files, int exit, const std::string& reason,
               const std::vector<std::string>& also = {});

 private:
  void close_suite();
  void print_verbose(const results::TestRow& row);
  void print_failure(const results::TestRow& row);
  void print_reason(Paint paint, const std::string& what, const std::string& reason,
                    const std::vector<std::string>& ids) const;
  void print_skips() const;
  void print_explained() const;
  void print_observations() const;

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
  std::vector<results::TestRow> failures_;      // fail and error
  std::vector<results::TestRow> observations_;  // observed
  std::map<std::pair<std::string, std::string>, std::vector<std::string>>
      skips_;  // category, reason
  std::map<std::pair<results::Status, std::string>, std::vector<std::string>>
      explained_;  // xfail or disturbed, reason
};

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_RUN_PRINTER_H_
