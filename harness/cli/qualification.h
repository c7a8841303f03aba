// The work of `qualify`: every conforming model and every broken one through the suites, in parallel.
#ifndef SKIDPROOF_HARNESS_CLI_QUALIFICATION_H_
#define SKIDPROOF_HARNESS_CLI_QUALIFICATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/expected.h"
#include "harness/check/listener.h"
#include "harness/cli/shard.h"
#include "pebs/arch/microarch.h"
#include "pebs/model/defects.h"
#include "results/row.h"

namespace skidproof::cli {

struct QualifyPlan {
  std::vector<const arch::Microarch*> microarchs;
  std::vector<const model::Defect*> defects;
  uint64_t seed = 1;   // the first; broken models run with this one
  unsigned seeds = 1;  // of each conforming model and topology
  // Rough machines (pebs/model/rough.h) instead of noiseless ones: so many conforming ones of each
  // microarch, with and without a sibling in turn, and the first kRoughBroken of them with each defect.
  unsigned rough = 0;
  unsigned jobs = 1;
  bool all = false;  // every test against every defect
  // Also a row for each test that a conforming model passes, skips or observes.
  bool passes = false;
  // nullopt: everything. Else a share of the conforming models, and of the defects, each on all of its microarchs: a
  // test that accuses a conforming model in another shard may catch defects here.
  std::optional<Shard> shard = {};
};

inline constexpr unsigned kRoughBroken = 5;

// One model of the plan that was run: a conforming one, or the verdict on a broken one.
struct QualifiedUnit {
  std::string
      name;  // "model:sandy-bridge without a sibling thread, seed 2", "model:sandy-bridge+reset-never"
  bool own = true;  // this shard's
  bool done = false;
  uint64_t rows = 0;  // written for it
};

// One defect on one microarch.
struct DefectVerdict {
  const model::Defect* defect = nullptr;
  const arch::Microarch* microarch = nullptr;
  std::optional<uint64_t> rough;  // the seed of the rough machine
  // It is an erratum that is listed for the part that the model plays: its failures are to be explained.
  bool listed = false;
  std::vector<std::string> failed;     // ids of tests that ended `fail`
  std::vector<std::string> explained;  // … and `xfail`, as a listed erratum says
  uint64_t tests_run = 0;
  double seconds = 0;

  // Ids of the tests that count: of those that nothing explains; of a listed erratum those that it explains, where
  // nothing else failed. Of a rough machine's erratum either, since calibrated margins can hide half of a
  // signature. Empty: it was missed.
  const std::vector<std::string>& caught_by() const;
  // Why it was missed, "what failed is explained: A.B"; empty where nothing failed, or it was caught.
  std::string missed_because() const;
};

struct Qualification {
  std::vector<DefectVerdict>
      defects;  // microarch by microarch, in the order of the plan; of a shard its own
  std::vector<QualifiedUnit> conforming, verdicts;  // the whole plan, in its order
  uint64_t conforming_runs = 0;
  std::vector<results::TestRow> accusations;  // failures on conforming models, explained or not
  std::vector<results::TestRow> disturbed;    // … and those that never came again: no accusation
  std::vector<std::string>
      tests_without_catch;  // with `all`: ran on broken models and never failed
  std::vector<std::string> ran_on_broken, caught_something;  // ids of tests
  std::vector<std::string> problems;  // of the harness: errors on conforming models, crashes
  std::string interrupted;            // what ended it before its end; empty when it is whole
  std::optional<Error> write_error;
};

// The conforming models come first: a test that accuses one of them does not count as catching anything on that
// microarch. Each broken model, with and without a sibling thread, first meets the test that caught its defect on
// the machine before, then those that cite its clause and, where none of them fails, the others, with the errata of
// the part that it plays in force: a failure that one of them explains catches nothing. A model of an erratum that
// is listed for that part meets every test, and all that fail have to be explained. Writes a `defect` row for each
// and a `test` row for each accusation (with `passes` for each test on a conforming model), in the order of the plan
// whatever ends first: a row waits for those before it.
Qualification run_qualification(const QualifyPlan& plan, const check::RowSink& sink);

// The matrix as one document: {"microarchs", "defects": [{"id", "clause", "promise", "brief", "microarch",
// "rough" (its seed, or null), "caught", "caught_by", "explained", "tests_run"}, …]}, a defect once for each microarch
// that it applies to, and for each rough machine of it.
results::Json matrix_of(const QualifyPlan& plan, const Qualification& found);

// The names of all that is planned, in its order: conforming models, then verdicts.
std::vector<std::string> units_of(const QualifyPlan& plan);

// What a shard adds to the sum; machine and duration are the caller's.
results::QualificationShardRow shard_row_of(const QualifyPlan& plan, const Qualification& found);

// The sum; machine and duration are the caller's.
results::QualificationRow row_of(const QualifyPlan& plan, const Qualification& found);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_QUALIFICATION_H_
