// From clauses to the tests that cite them and the defects that these caught: what the registries say
// of it, and what result rows prove.
#ifndef SKIDPROOF_HARNESS_CLI_TRACING_H_
#define SKIDPROOF_HARNESS_CLI_TRACING_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/expected.h"
#include "harness/check/check.h"
#include "pebs/arch/clause.h"
#include "pebs/model/defects.h"
#include "results/row.h"

namespace skidproof::cli {

// "PebsReload.TakesEachCountersOwnSlot": a test's id without the label of its parameters.
std::string without_label(std::string_view id);
// "suites/pebs_reload.cc": where a test stands, seen from the project's root.
std::string source_of(const check::TestInfo& info);

// What rows prove. Only conforming models count: a broken one proves nothing about where a test holds, and
// the page does not speak of silicon.
class Evidence {
 public:
  // Test rows and defect rows; others say nothing here.
  void add(const results::Row& row);
  // Every row of a file, or of each *.jsonl file of a folder. Errors: kIo, kPermission; kInvalidArgument for
  // rows that cannot be read and for a file whose writer was cut short.
  Expected<void> add_file(const std::string& path);

  bool empty() const { return microarchs_.empty(); }
  // Where any test ran.
  const std::set<std::string>& microarchs() const { return microarchs_; }

  enum class Ran : uint8_t { kNot, kNoPromise, kPassed, kFailed };
  // The worst of all parameters, topologies and seeds; skipped ones apart. kNoPromise: each of them that ran
  // found that the manual promises nothing that it could assert.
  Ran ran(const std::string& test, const std::string& microarch) const;
  // Tests that failed on a broken model, in the order in which they were tried; nullptr: it was not tried.
  const std::vector<std::string>* caught_by(const std::string& defect,
                                            const std::string& microarch) const;

 private:
  using Key = std::pair<std::string, std::string>;  // test or defect, and microarch
  Expected<void> add_rows(const std::string& path);

  std::set<std::string> microarchs_;
  std::map<Key, Ran> ran_;
  std::map<Key, std::vector<std::string>> caught_;
};

struct TestTrace {
  std::string id;
  std::string source;
  std::vector<std::string> passed_on = {};  // microarchs, in the order of the table
  std::vector<std::string> failed_on = {};
  std::vector<std::string> no_promise_on = {};
};

struct DefectTrace {
  std::string id;
  std::vector<std::string> caught_on = {};  // microarchs
  std::vector<std::string> missed_on = {};
  std::vector<std::string> caught_by = {};  // on each of them the first, without labels, sorted
};

struct ClauseTrace {
  const Clause* clause = nullptr;
  std::vector<TestTrace> tests = {};  // by id
  std::vector<DefectTrace> defects = {};
  // With rows: some test passed somewhere and none failed. Without: some test cites it.
  bool tested = false;
  std::string untested_because = {};
};

struct Trace {
  std::vector<ClauseTrace> clauses;     // in registry order
  std::vector<std::string> microarchs;  // that the rows speak of, in the order of the table
  size_t tests = 0;                     // without labels
  size_t defects = 0;
  bool from_rows = false;
};

// What is to be traced; the registries, outside of tests.
struct Traced {
  std::span<const Clause* const> clauses;
  std::span<const check::TestInfo> tests;
  std::span<const model::Defect> defects;
  std::vector<std::string> microarchs;  // the order in which they are named
};
Traced everything();

Trace trace(const Traced& what, const Evidence& evidence);

// Of the clauses that a predicate picks.
struct Coverage {
  size_t clauses = 0;
  size_t tested = 0;
  double percent() const {
    return clauses == 0 ? 100.0
                        : 100.0 * static_cast<double>(tested) / static_cast<double>(clauses);
  }
};
Coverage coverage_of(const Trace& trace, const std::function<bool(const Clause&)>& pick);

// Ids of tested clauses that no defect breaks, of tested ones that untested.inc gives a reason for, and of
// defects that were missed somewhere or, where there are rows, tried nowhere.
std::vector<std::string> without_defect(const Trace& trace);
std::vector<std::string> tested_after_all(const Trace& trace);
std::vector<std::string> not_caught(const Trace& trace);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_TRACING_H_
