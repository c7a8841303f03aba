// `list`: what there is, one line each.
#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/check/check.h"
#include "harness/cli/catalogue.h"
#include "harness/cli/event_check.h"
#include "harness/cli/event_entries.h"
#include "harness/cli/machine_options.h"
#include "harness/cli/perfmon_folder.h"
#include "harness/cli/text.h"
#include "harness/cli/verb.h"
#include "pebs/arch/microarch.h"

namespace skidproof::cli {
namespace {

struct ListOptions {
  std::string what;
  std::string microarch;  // of events
  std::string perfmon;    // of events: folder of lists in place of the built-in ones
  bool check = false;     // of events: rows against Intel's lists
  std::string json;
};

std::string known_kinds() {
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) names.emplace_back(kind.plural);
  return joined(names);
}

// A folder's lists, in place of those of the row and its variants; what the folder has no file of stays, and is said.
Expected<std::vector<Entry>> renewed_entries(const arch::Microarch& row,
                                             const std::string& folder) {
  const PerfmonFolder perfmon = SKIDPROOF_TRY(PerfmonFolder::open(folder));
  if (row.events.origin() == nullptr) SKIDPROOF_CHECK(perfmon.renewed(row));
  std::vector<RenewedRow> keep;
  std::vector<std::string> absent;
  const auto renew = [&](const arch::Microarch& of) -> Expected<const arch::Microarch*> {
    std::optional<RenewedRow> renewed = SKIDPROOF_TRY(perfmon.renewed_if_any(of));
    if (!renewed) {
      absent.push_back(fmt::format("{} ({})", of.title, of.events.origin()->path));
      return &of;
    }
    keep.push_back(*std::move(renewed));
    return keep.back().row.get();
  };
  const arch::Microarch* const own = SKIDPROOF_TRY(renew(row));
  std::vector<const arch::Microarch*> variants;
  for (const arch::Microarch* variant : row.variants) {
    variants.push_back(SKIDPROOF_TRY(renew(*variant)));
  }
  if (keep.empty()) SKIDPROOF_CHECK(perfmon.renewed(row));
  for (const std::string& which : absent) {
    fmt::print(stderr, "skidproof: note: '{}' has no list of {}: the built-in one stands\n", folder,
               which);
  }
  return event_entries(*own, variants);
}

Expected<std::vector<Entry>> entries_of(const ListOptions& options, const Kind& kind) {
  if (options.microarch.empty()) return kind.entries();
  const arch::Microarch* row = SKIDPROOF_TRY(arch::find_microarch(options.microarch));
  if (!options.perfmon.empty()) return renewed_entries(*row, options.perfmon);
  return event_entries(*row, row->variants);
}

int list(const ListOptions& options) {
  const Kind* kind = find_kind(options.what);
  if (kind == nullptr) {
    return complain(kExitUsage, fmt::format("'{}' cannot be listed", options.what),
                    "there are: " + known_kinds());
  }
  const bool of_events = std::string_view(kind->plural) == "events";
  if (!of_events && !options.microarch.empty()) {
    return complain(kExitUsage, fmt::format("{} are of no one microarch", kind->plural),
                    "--microarch goes with `list events`");
  }
  if (!of_events && (options.check || !options.perfmon.empty())) {
    return complain(kExitUsage, fmt::format("{} are in no list of Intel's", kind->plural),
                    "--perfmon and --check go with `list events`");
  }
  if (options.check) {
    return check_events(
        {.microarch = options.microarch, .perfmon = options.perfmon, .json = options.json});
  }
  if (!options.perfmon.empty() && options.microarch.empty()) {
    return complain(kExitUsage, "--perfmon takes a list in place of one microarch's",
                    "name it: list events --microarch NAME --perfmon DIR");
  }
  const auto found = entries_of(options, *kind);
  if (!found) return complain(found.error());
  const std::vector<Entry>& entries = *found;
  if (!options.json.empty()) {
    results::Json document = results::Json::array();
    for (const Entry& entry : entries) document.push_back(json_of(entry));
    if (auto written = write_document(options.json, document); !written) {
      return complain(kExitHarnessFailed, written.error());
    }
    if (options.json == "-") return kExitHeld;
  }
  const Text text(stdout);
  Table table;
  for (const Entry& entry : entries) {
    std::vector<std::string> cells = {text.paint(Paint::kBold, entry.id)};
    cells.insert(cells.end(), entry.columns.begin(), entry.columns.end());
    table.row(std::move(cells));
  }
  table.print(text);
  return kExitHeld;
}

}  // namespace

void add_list(Command program, Invocation& invocation) {
  auto options = std::make_shared<ListOptions>();
  Command verb = program.verb("list",
                              "list kernels, clauses, tests, microarchs, defects, errata, "
                              "machines, what of them is rough, or events");
  verb.epilogue(
      "Examples:\n"
      "  skidproof list tests\n"
      "  skidproof list events --microarch skylake\n"
      "  skidproof list events --microarch skylake --perfmon ~/perfmon   of a newer list of "
      "Intel's\n"
      "  skidproof list events --check                                   rows against their lists\n"
      "  skidproof list defects --json - | jq -r '.[].id'");
  verb.option("what", options->what, "one of: " + known_kinds()).required().named("WHAT");
  verb.option("--microarch", options->microarch, "of events: those of this one and its variants")
      .named("NAME");
  add_perfmon(verb, options->perfmon);
  verb.flag("--check", options->check,
            "of events: what rows have otherwise than Intel's lists and why; exits 1 where a "
            "precise event is missing or "
            "wrong. With --perfmon against the lists there");
  add_json(verb, options->json);
  verb.when_named(
      [options, &invocation] { invocation.action = [options] { return list(*options); }; });
}

}  // namespace skidproof::cli
