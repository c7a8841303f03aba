// The work of `fuzz`: cases on one machine after the other, in parallel, until a deadline, a number of
// cases or a violation.
#ifndef SKIDPROOF_HARNESS_CLI_FUZZING_H_
#define SKIDPROOF_HARNESS_CLI_FUZZING_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/expected.h"
#include "harness/cli/machines.h"
#include "harness/cli/shard.h"
#include "harness/fuzz/case.h"
#include "harness/fuzz/execute.h"
#include "harness/fuzz/shrink.h"
#include "harness/fuzz/violation.h"

namespace skidproof::cli {

struct FuzzPlan {
  std::vector<MachineOptions> machines;  // each takes its turn, with and without a sibling thread
  uint64_t seed = 1;
  double seconds = 60;  // no case begins later
  uint64_t cases = 0;   // 0: as many as there is time for
  unsigned jobs = 1;
  // nullopt: every batch of cases. Else its share of the batches, which are dealt out machine by machine in turn: no
  // case is run twice, and with `cases` all shards together run those of the whole.
  std::optional<Shard> shard = {};
};

// How many cases a batch has.
inline constexpr uint64_t kFuzzBatch = 400;

struct FoundViolation {
  fuzz::Case found;     // as it was drawn
  fuzz::Shrunk shrunk;  // the small one
};

struct FuzzResult {
  fuzz::Tally tally;
  std::map<std::string, uint64_t> cases_of;  // by machine
  std::vector<FoundViolation> violations;    // the first, and others that came at the same time
  std::vector<std::string> problems;         // of the harness
  std::string interrupted;
  double seconds = 0;
};

// The same plan and seed draw the same cases in the same order for each machine, whatever the number of
// jobs. `progress` hears of every batch of cases.
FuzzResult run_fuzzing(const FuzzPlan& plan,
                       const std::function<void(const FuzzResult&)>& progress);

// Runs one case on a fresh machine of its kind.
Expected<fuzz::Outcome> run_case(const fuzz::Case& c);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_FUZZING_H_
