// Rows into evidence, and evidence laid over the registries.
#include "harness/cli/tracing.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "harness/cli/text.h"
#include "pebs/arch/microarch.h"
#include "pebs/arch/untested.h"
#include "results/writer.h"

namespace skidproof::cli {
namespace {

using results::Status;

constexpr std::string_view kModel = "model:";

bool is_conforming_model(const std::string& machine) {
  return machine.starts_with(kModel) && machine.find('+') == std::string::npos;
}

// One test for all its parameters.
struct NamedTest {
  std::string source;
  std::set<const Clause*> clauses;
};
using NamedTests = std::map<std::string, NamedTest>;

NamedTests named_tests(std::span<const check::TestInfo> tests) {
  NamedTests named;
  for (const check::TestInfo& info : tests) {
    NamedTest& test = named[without_label(info.id())];
    test.source = source_of(info);
    test.clauses.insert(info.clauses.begin(), info.clauses.end());
  }
  return named;
}

TestTrace trace_test(const std::string& id, const std::string& source, const Evidence& evidence,
                     const std::vector<std::string>& microarchs) {
  TestTrace test{.id = id, .source = source};
  for (const std::string& microarch : microarchs) {
    switch (evidence.ran(id, microarch)) {
      case Evidence::Ran::kNot:
        break;
      case Evidence::Ran::kNoPromise:
        test.no_promise_on.push_back(microarch);
        break;
      case Evidence::Ran::kPassed:
        test.passed_on.push_back(microarch);
        break;
      case Evidence::Ran::kFailed:
        test.failed_on.push_back(microarch);
        break;
    }
  }
  return test;
}

// `qualify` tries the tests of the broken clause first, and `qualify --all` names every test that failed:
// the first that cites the clause is the first catch of both.
std::string first_catch(const std::vector<std::string>& caught_by, const Clause* clause,
                        const NamedTests& tests) {
  for (const std::string& id : caught_by) {
    const auto test = tests.find(without_label(id));
    if (test != tests.end() && test->second.clauses.contains(clause)) return test->first;
  }
  return without_label(caught_by.front());
}

DefectTrace trace_defect(const model::Defect& defect, const Evidence& evidence,
                         const NamedTests& tests, const std::vector<std::string>& microarchs) {
  DefectTrace traced{.id = std::string(defect.id)};
  std::set<std::string> by;
  for (const std::string& microarch : microarchs) {
    const auto* caught = evidence.caught_by(traced.id, microarch);
    if (caught == nullptr) continue;
    if (caught->empty()) {
      traced.missed_on.push_back(microarch);
    } else {
      traced.caught_on.push_back(microarch);
      by.insert(first_catch(*caught, defect.clause, tests));
    }
  }
  traced.caught_by.assign(by.begin(), by.end());
  return traced;
}

std::string why_untested(const ClauseTrace& clause) {
  std::vector<std::string> failed, asserts_nothing;
  for (const TestTrace& test : clause.tests) {
    if (!test.failed_on.empty()) failed.push_back(test.id);
    if (!test.no_promise_on.empty()) asserts_nothing.push_back(test.id);
  }
  if (!failed.empty()) return "fails on a conforming model: " + joined(failed);
  if (!asserts_nothing.empty()) {
    return "classified, not asserted: the sources promise nothing that could fail (" +
           joined(asserts_nothing) + ")";
  }
  if (const Untested* row = find_untested(*clause.clause); row != nullptr) {
    return fmt::format("{}: {}", name_of(row->testable), row->reason);
  }
  if (clause.tests.empty()) return std::string(name_of(Testable::kNotYet));
  std::vector<std::string> ids;
  for (const TestTrace& test : clause.tests) ids.push_back(test.id);
  return "its tests ran nowhere: " + joined(ids);
}

bool is_tested(const ClauseTrace& clause, bool from_rows) {
  if (!from_rows) return !clause.tests.empty();
  bool passed = false;
  for (const TestTrace& test : clause.tests) {
    if (!test.failed_on.empty()) return false;
    passed |= !test.passed_on.empty();
  }
  return passed;
}

}  // namespace

std::string without_label(std::string_view id) { return std::string(id.substr(0, id.find('/'))); }

std::string source_of(const check::TestInfo& info) {
  const std::string file = info.file;
  const size_t suites = file.rfind("suites/");
  return suites == std::string::npos ? file : file.substr(suites);
}

void Evidence::add(const results::Row& row) {
  if (const auto* test = std::get_if<results::TestRow>(&row)) {
    if (!is_conforming_model(test->machine)) return;
    Ran now = Ran::kNot;
    switch (test->status) {
      case Status::kPass:
      case Status::kXpass:  // what an erratum would have explained was asserted, and held
        now = Ran::kPassed;
        break;
      case Status::kFail:
      case Status::kXfail:  // a conforming model has no erratum
      case Status::kError:
        now = Ran::kFailed;
        break;
      case Status::kObserved:
        now = Ran::kNoPromise;
        break;
      case Status::kDisturbed:
        break;
      case Status::kSkip:
        if (test->skip_category == results::SkipCategory::kNoPromise) now = Ran::kNoPromise;
        break;
    }
    microarchs_.insert(test->microarch);
    Ran& known = ran_[{without_label(test->id), test->microarch}];
    known = std::max(known, now);
  } else if (const auto* defect = std::get_if<results::DefectRow>(&row)) {
    caught_[{defect->id, defect->microarch}] = defect->caught_by;
  }
}

Expected<void> Evidence::add_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return add_rows(path);
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
  }
  if (files.empty()) {
    return fail(ErrorCode::kIo, fmt::format("there is no *.jsonl file in '{}'", path),
                "name files written by `skidproof run` and `skidproof qualify`, or their folders");
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) SKIDPROOF_CHECK(add_rows(file));
  return {};
}

Expected<void> Evidence::add_rows(const std::string& path) {
  const results::RowsFile file = SKIDPROOF_TRY(results::read_rows(path));
  if (!file.problems.empty()) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}:{}: {}", path, file.problems.front().line, file.problems.front().what));
  }
  if (!file.ended) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' was cut short", path),
                "write it again: half a run proves nothing about the tests that it lacks");
  }
  for (const results::ReadRow& line : file.rows) {
    auto row = results::row_of(line.json);
    if (!row) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}:{}: {}", path, line.line, row.error().message));
    }
    add(*row);
  }
  return {};
}

Evidence::Ran Evidence::ran(const std::string& test, const std::string& microarch) const {
  const auto found = ran_.find({test, microarch});
  return found == ran_.end() ? Ran::kNot : found->second;
}

const std::vector<std::string>* Evidence::caught_by(const std::string& defect,
                                                    const std::string& microarch) const {
  const auto found = caught_.find({defect, microarch});
  return found == caught_.end() ? nullptr : &found->second;
}

Traced everything() {
  Traced all{
      .clauses = clauses(), .tests = check::tests(), .defects = model::defects(), .microarchs = {}};
  for (const arch::Microarch* microarch : arch::microarchs()) {
    all.microarchs.emplace_back(microarch->name);
  }
  return all;
}

Trace trace(const Traced& what, const Evidence& evidence) {
  Trace all{.clauses = {},
            .microarchs = {},
            .defects = what.defects.size(),
            .from_rows = !evidence.empty()};
  for (const std::string& microarch : what.microarchs) {
    if (evidence.microarchs().contains(microarch)) all.microarchs.push_back(microarch);
  }
  const NamedTests tests = named_tests(what.tests);
  all.tests = tests.size();
  for (const Clause* clause : what.clauses) {
    ClauseTrace traced{.clause = clause};
    for (const auto& [id, test] : tests) {
      if (!test.clauses.contains(clause)) continue;
      traced.tests.push_back(trace_test(id, test.source, evidence, all.microarchs));
    }
    for (const model::Defect& defect : what.defects) {
      if (defect.clause != clause) continue;
      traced.defects.push_back(trace_defect(defect, evidence, tests, what.microarchs));
    }
    traced.tested = is_tested(traced, all.from_rows);
    if (!traced.tested) traced.untested_because = why_untested(traced);
    all.clauses.push_back(std::move(traced));
  }
  return all;
}

Coverage coverage_of(const Trace& trace, const std::function<bool(const Clause&)>& pick) {
  Coverage coverage;
  for (const ClauseTrace& clause : trace.clauses) {
    if (!pick(*clause.clause)) continue;
    ++coverage.clauses;
    coverage.tested += clause.tested;
  }
  return coverage;
}

std::vector<std::string> without_defect(const Trace& trace) {
  std::vector<std::string> ids;
  for (const ClauseTrace& clause : trace.clauses) {
    if (clause.tested && clause.defects.empty()) ids.emplace_back(clause.clause->id);
  }
  return ids;
}

std::vector<std::string> tested_after_all(const Trace& trace) {
  std::vector<std::string> ids;
  for (const ClauseTrace& clause : trace.clauses) {
    if (clause.tested && find_untested(*clause.clause) != nullptr) {
      ids.emplace_back(clause.clause->id);
    }
  }
  return ids;
}

std::vector<std::string> not_caught(const Trace& trace) {
  std::vector<std::string> ids;
  for (const ClauseTrace& clause : trace.clauses) {
    for (const DefectTrace& defect : clause.defects) {
      if (!defect.missed_on.empty() || (trace.from_rows && defect.caught_on.empty())) {
        ids.push_back(defect.id);
      }
    }
  }
  return ids;
}

}  // namespace skidproof::cli
