// Runs what is registered with GoogleTest on a machine, and writes its rows: what `run` and `errata` share.
#ifndef SKIDPROOF_HARNESS_CLI_SUITE_RUN_H_
#define SKIDPROOF_HARNESS_CLI_SUITE_RUN_H_

#include <cstdint>
#include <functional>
#include <string>

#include "harness/check/listener.h"
#include "harness/cli/machines.h"
#include "harness/cli/result_files.h"
#include "harness/cli/resume.h"
#include "harness/cli/tapes.h"
#include "harness/cli/verb.h"

namespace skidproof::cli {

struct SuiteRun {
  const OpenMachine& machine;
  ResultFiles& files;
  check::Observer* observer;             // nullptr: nobody watches
  RecordingSource* recording = nullptr;  // nullptr: nothing is kept on tape
  uint64_t seed = 1;
  bool all = false;                     // also what stands on broken ground
  bool errata = true;                   // a listed erratum explains a failure
  MachineShape shape = {};              // measured before: what programs are made to miss or to fit
  double deadline_s = 0;                // 0: none
  const Interrupted* before = nullptr;  // what an interrupted run has behind it; nullptr: nothing
  // Whether another shard runs this test: then it is passed over without a row. Empty: there is none.
  std::function<bool(const check::TestInfo&, unsigned repetition)> elsewhere = nullptr;
  // Called behind the last test and before the `end` row: may write more rows and end otherwise.
  std::function<Ending(const Ending&)> close = nullptr;
};

// Hands GoogleTest its own flags, of which one that it does not know is the user's mistake. 0, or the exit code
// with which the run ends before it began.
int start_googletest(const Invocation& invocation, unsigned repeat);

// The machine is calibrated, each test that was registered runs, and the `end` row is written. What could not be
// written is said on stderr. Once in a process.
Ending run_suites(const SuiteRun& run);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_SUITE_RUN_H_
