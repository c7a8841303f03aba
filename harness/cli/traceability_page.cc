// Tables of clauses.
#include "harness/cli/traceability_page.h"

#include <fmt/core.h>

#include <algorithm>

#include "harness/cli/text.h"

namespace skidproof::cli {
namespace {

constexpr size_t kShortText = 110;  // characters of a promise in a table

// What Markdown would take for the end of a cell or for a tag.
std::string cell(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '*') safe += '\\';
    safe += c;
  }
  return safe;
}

std::string standing(const Clause& clause) {
  const std::string agreement(name_of(clause.agreement));
  return clause.excerpt ? agreement + ", excerpt" : agreement;
}

std::string promise(const Clause& clause) { return cell(shortened(clause.text, kShortText)); }

std::string test_cell(const TestTrace& test, const Trace& trace) {
  std::string text = fmt::format("[{}](../{})", test.id, test.source);
  if (!trace.from_rows) return text;
  text += ": " + some_of(test.passed_on, trace.microarchs);
  if (!test.failed_on.empty()) text += "; **fails on** " + joined(test.failed_on);
  if (!test.no_promise_on.empty()) {
    text += "; no promise on " + some_of(test.no_promise_on, trace.microarchs);
  }
  return text;
}

std::string defect_cell(const DefectTrace& defect, const Trace& trace) {
  std::string text = "`" + defect.id + "`";
  if (!defect.caught_by.empty()) text += ": " + joined(defect.caught_by);
  if (!defect.missed_on.empty()) {
    text += "; **missed on** " + joined(defect.missed_on);
  } else if (trace.from_rows && defect.caught_on.empty()) {
    text += ": **not tried**";
  }
  return text;
}

std::string tested_row(const ClauseTrace& clause, const Trace& trace) {
  std::vector<std::string> tests, defects;
  for (const TestTrace& test : clause.tests) tests.push_back(test_cell(test, trace));
  for (const DefectTrace& defect : clause.defects) defects.push_back(defect_cell(defect, trace));
  return fmt::format("| {} | {} | {} | {} | {} |\n", clause.clause->id, standing(*clause.clause),
                     promise(*clause.clause), joined(tests, "<br>"), joined(defects, "<br>"));
}

std::string untested_row(const ClauseTrace& clause) {
  return fmt::format("| {} | {} | {} | {} |\n", clause.clause->id, standing(*clause.clause),
                     promise(*clause.clause), cell(clause.untested_because));
}

std::string coverage_row(std::string_view name, const Coverage& coverage) {
  return fmt::format("| {} | {} | {} | {:.1f} % |\n", name, coverage.clauses, coverage.tested,
                     coverage.percent());
}

std::string coverage_table(const Trace& trace) {
  std::string text = "| clauses | registered | tested | |\n|---|--:|--:|--:|\n";
  text += coverage_row("all", coverage_of(trace, [](const Clause&) { return true; }));
  text += coverage_row("stated in the project's excerpts",
                       coverage_of(trace, [](const Clause& c) { return c.excerpt; }));
  for (Agreement agreement : {Agreement::kAgreed, Agreement::kDisputed, Agreement::kInferred}) {
    text += coverage_row(name_of(agreement), coverage_of(trace, [agreement](const Clause& c) {
                           return c.agreement == agreement;
                         }));
  }
  return text;
}

std::string listing(std::string_view what, const std::vector<std::string>& ids) {
  return fmt::format("- {}: {}\n", what,
                     ids.empty() ? "none" : fmt::format("{} ({})", ids.size(), joined(ids)));
}

results::Json json_of(const TestTrace& test) {
  return {{"id", test.id},
          {"source", test.source},
          {"passed_on", test.passed_on},
          {"failed_on", test.failed_on},
          {"no_promise_on", test.no_promise_on}};
}

results::Json json_of(const DefectTrace& defect) {
  return {{"id", defect.id},
          {"caught_on", defect.caught_on},
          {"missed_on", defect.missed_on},
          {"caught_by", defect.caught_by}};
}

results::Json json_of(const ClauseTrace& clause) {
  results::Json tests = results::Json::array();
  for (const TestTrace& test : clause.tests) tests.push_back(json_of(test));
  results::Json defects = results::Json::array();
  for (const DefectTrace& defect : clause.defects) defects.push_back(json_of(defect));
  results::Json json = {
      {"id", clause.clause->id},           {"agreement", name_of(clause.clause->agreement)},
      {"excerpt", clause.clause->excerpt}, {"text", clause.clause->text},
      {"source", clause.clause->citation}, {"tested", clause.tested},
      {"tests", std::move(tests)},         {"defects", std::move(defects)}};
  if (!clause.tested) json["reason"] = clause.untested_because;
  return json;
}

std::string_view line_at(std::string_view text, size_t begin) {
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

std::string shortened(std::string_view text, size_t characters) {
  if (width_of(text) <= characters) return std::string(text);
  std::string kept;
  size_t width = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    width += width_of(word) + (kept.empty() ? 0 : 1);
    if (width + 2 > characters) break;
    if (!kept.empty()) kept += ' ';
    kept += word;
    begin = end + 1;
  }
  return kept + " …";
}

std::string some_of(const std::vector<std::string>& some, const std::vector<std::string>& all) {
  if (some.empty()) return "none";
  if (some.size() == all.size()) return fmt::format("all {}", all.size());
  if (2 * some.size() <= all.size()) return joined(some);
  std::vector<std::string> others;
  for (const std::string& name : all) {
    if (std::find(some.begin(), some.end(), name) == some.end()) others.push_back(name);
  }
  return "all but " + joined(others);
}

std::string first_difference(std::string_view present, std::string_view expected) {
  size_t line = 1;
  size_t a = 0, b = 0;
  while (a < present.size() || b < expected.size()) {
    const std::string_view has = a < present.size() ? line_at(present, a) : std::string_view();
    const std::string_view should = b < expected.size() ? line_at(expected, b) : std::string_view();
    if (has != should || (a < present.size()) != (b < expected.size())) {
      return fmt::format("line {} reads\n  `{}`\nand should read\n  `{}`", line, has, should);
    }
    a += has.size() + 1;
    b += should.size() + 1;
    ++line;
  }
  return present == expected ? "" : fmt::format("line {} ends differently", line - 1);
}

std::string page_of(const Trace& trace) {
  std::string page =
      "# Traceability\n\n"
      "Every registered clause of the manual, the tests that check it, where they passed, and the "
      "broken CPUs that\nthey caught. Generated by `skidproof traceability` from the registries "
      "and "
      "from result rows; `ci/traceability`\nwrites it again, and `ci/test` fails when it is stale. "
      "All results are of models, not of silicon.\n\n";
  page += trace.from_rows
              ? fmt::format("Rows of {}: {}.\n\n", count_of(trace.microarchs.size(), "microarch"),
                            joined(trace.microarchs))
              : "Made without rows: a clause counts as tested here when a test cites it.\n\n";
  page += coverage_table(trace);
  page += fmt::format("\n- tests, each with all its parameters: {}; defects: {}\n", trace.tests,
                      trace.defects);
  page += listing("tested clauses that no defect breaks", without_defect(trace));
  page += listing("defects that were not caught everywhere", not_caught(trace));

  page +=
      "\n## Tested\n\n"
      "Behind a test stand the microarchs that it passed on; behind a defect the tests that were "
      "the "
      "first to catch it\n(tests of its clause are tried first, and one catch ends the search).\n\n"
      "| clause | standing | promise | tests | defects |\n|---|---|---|---|---|\n";
  for (const ClauseTrace& clause : trace.clauses) {
    if (clause.tested) page += tested_row(clause, trace);
  }
  page += "\n## Without a test\n\n| clause | standing | promise | reason |\n|---|---|---|---|\n";
  for (const ClauseTrace& clause : trace.clauses) {
    if (!clause.tested) page += untested_row(clause);
  }
  return page;
}

results::Json json_of(const Trace& trace) {
  const Coverage all = coverage_of(trace, [](const Clause&) { return true; });
  const Coverage excerpts = coverage_of(trace, [](const Clause& c) { return c.excerpt; });
  results::Json clauses = results::Json::array();
  for (const ClauseTrace& clause : trace.clauses) clauses.push_back(json_of(clause));
  return {{"microarchs", trace.microarchs},
          {"from_rows", trace.from_rows},
          {"registered", all.clauses},
          {"tested", all.tested},
          {"excerpts", excerpts.clauses},
          {"excerpts_tested", excerpts.tested},
          {"tests", trace.tests},
          {"defects", trace.defects},
          {"without_defect", without_defect(trace)},
          {"not_caught", not_caught(trace)},
          {"clauses", std::move(clauses)}};
}

}  // namespace skidproof::cli
