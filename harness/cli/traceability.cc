// `traceability`: which tests hold which clause, and what proves it.
#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/text.h"
#include "harness/cli/traceability_page.h"
#include "harness/cli/tracing.h"
#include "harness/cli/verb.h"

namespace skidproof::cli {
namespace {

struct TraceabilityOptions {
  std::vector<std::string> from;
  std::string out;
  std::string check;
  std::string json;
  std::optional<double> require_coverage;
  bool require_excerpts = false;
  bool require_defects = false;
};

constexpr char kTraceabilityExamples[] =
    "Examples:\n"
    "  skidproof traceability                                       from the registries alone\n"
    "  skidproof traceability --from rows/*.jsonl qualify --out docs/traceability.md\n"
    "  skidproof traceability --from rows --check docs/traceability.md --require-coverage 90";
constexpr char kAgain[] =
    "write it again: ci/traceability, or skidproof traceability --from ROWS... --out FILE";

Expected<void> write_page(const std::string& path, const std::string& page) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << page;
  file.close();
  if (file) return {};
  return fail(ErrorCode::kIo, fmt::format("cannot write '{}': {}", path, std::strerror(errno)),
              "name a file in a folder that exists, with room on its disk");
}

Expected<std::string> read_page(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return fail(ErrorCode::kIo, fmt::format("cannot read '{}': {}", path, std::strerror(errno)),
                kAgain);
  }
  return std::string(std::istreambuf_iterator<char>(file), {});
}

int check_page(const std::string& path, const std::string& page) {
  auto present = read_page(path);
  if (!present) return complain(kExitPropertyFailed, present.error());
  const std::string difference = first_difference(*present, page);
  if (difference.empty()) return kExitHeld;
  return complain(kExitPropertyFailed, fmt::format("{} is stale: {}", path, difference), kAgain);
}

std::vector<std::string> untested_ids(const Trace& trace, bool of_excerpts) {
  std::vector<std::string> ids;
  for (const ClauseTrace& clause : trace.clauses) {
    if (!clause.tested && (!of_excerpts || clause.clause->excerpt)) {
      ids.emplace_back(clause.clause->id);
    }
  }
  return ids;
}

// Everything that is required and does not hold, one complaint each.
int check_requirements(const Trace& trace, const TraceabilityOptions& options) {
  int exit = kExitHeld;
  if (options.require_coverage) {
    const Coverage all = coverage_of(trace, [](const Clause&) { return true; });
    if (all.percent() < *options.require_coverage) {
      exit =
          complain(kExitPropertyFailed,
                   fmt::format("{} of {} clauses are tested, {:.1f} % where {:g} % are required; "
                               "without a test: {}",
                               all.tested, all.clauses, all.percent(), *options.require_coverage,
                               joined(untested_ids(trace, false))));
    }
    if (const auto ids = tested_after_all(trace); !ids.empty()) {
      exit = complain(kExitPropertyFailed,
                      "a reason says why these are not tested, and they are: " + joined(ids),
                      "take their rows out of pebs/arch/untested.inc");
    }
  }
  if (options.require_excerpts) {
    if (const auto ids = untested_ids(trace, true); !ids.empty()) {
      exit = complain(kExitPropertyFailed,
                      "clauses of the project's excerpts without a test: " + joined(ids));
    }
  }
  if (options.require_defects) {
    if (const auto ids = without_defect(trace); !ids.empty()) {
      exit = complain(kExitPropertyFailed, "tested clauses that no defect breaks: " + joined(ids),
                      "add one to pebs/model, or the test has not been seen to fail");
    }
  }
  return exit;
}

int traceability(const TraceabilityOptions& options) {
  Evidence evidence;
  for (const std::string& path : options.from) {
    if (auto added = evidence.add_file(path); !added) {
      return complain(kExitHarnessFailed, added.error());
    }
  }
  if (!options.from.empty() && evidence.empty()) {
    return complain(kExitHarnessFailed, "these rows hold no test of a conforming model",
                    "write some: skidproof run --machine model:<microarch> --json FILE");
  }
  const Trace traced = trace(everything(), evidence);
  const std::string page = page_of(traced);
  if (!options.json.empty()) {
    if (auto written = write_document(options.json, json_of(traced)); !written) {
      return complain(kExitHarnessFailed, written.error());
    }
  }
  if (!options.out.empty()) {
    if (auto written = write_page(options.out, page); !written) {
      return complain(kExitHarnessFailed, written.error());
    }
  }
  if (options.out.empty() && options.check.empty() && options.json.empty()) {
    std::fwrite(page.data(), 1, page.size(), stdout);
  }
  int exit = kExitHeld;
  if (!options.check.empty()) exit = check_page(options.check, page);
  if (const int unmet = check_requirements(traced, options); unmet != kExitHeld) exit = unmet;
  return exit;
}

}  // namespace

void add_traceability(Command program, Invocation& invocation) {
  auto options = std::make_shared<TraceabilityOptions>();
  Command verb = program.verb(
      "traceability", "which tests check which clause, where they passed, and what they caught");
  verb.epilogue(kTraceabilityExamples);
  verb.option("--from", options->from,
              "rows of `run` and `qualify`: files, or folders of *.jsonl files; without them "
              "nothing is known of what ran")
      .named("ROWS");
  verb.option("--out", options->out, "write the Markdown page to FILE (default: standard output)")
      .named("FILE");
  verb.option("--check", options->check, "exit 1 when FILE is not this page").named("FILE");
  verb.option("--require-coverage", options->require_coverage,
              "exit 1 when fewer of all clauses are tested")
      .named("PERCENT")
      .within(0.0, 100.0);
  verb.flag("--require-excerpts", options->require_excerpts,
            "exit 1 when a clause of the project's excerpts has no test");
  verb.flag("--require-defects", options->require_defects,
            "exit 1 when no defect breaks a tested clause");
  add_json(verb, options->json);
  verb.when_named(
      [options, &invocation] { invocation.action = [options] { return traceability(*options); }; });
}

}  // namespace skidproof::cli
