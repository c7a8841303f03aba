// `list`: what there is, one line each.
#include <fmt/core.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/check/check.h"
#include "harness/cli/catalogue.h"
#include "harness/cli/text.h"
#include "harness/cli/verb.h"
#include "pebs/arch/microarch.h"

namespace skidproof::cli {
namespace {

struct ListOptions {
  std::string what;
  std::string microarch;  // of events
  std::string json;
};

std::string known_kinds() {
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) names.emplace_back(kind.plural);
  return joined(names);
}

int list(const ListOptions& options) {
  const Kind* kind = find_kind(options.what);
  if (kind == nullptr) {
    return complain(kExitUsage, fmt::format("'{}' cannot be listed", options.what),
                    "there are: " + known_kinds());
  }
  std::vector<Entry> entries = kind->entries();
  if (!options.microarch.empty()) {
    if (std::string_view(kind->plural) != "events") {
      return complain(kExitUsage, fmt::format("{} are of no one microarch", kind->plural),
                      "--microarch goes with `list events`");
    }
    if (auto row = arch::find_microarch(options.microarch); !row)
      return complain(kExitUsage, row.error());
    // The row's own and its variants': "sandy-bridge/…", "sandy-bridge (Sandy Bridge-EP)/…".
    std::erase_if(entries, [&](const Entry& entry) {
      return !entry.id.starts_with(options.microarch + "/") &&
             !entry.id.starts_with(options.microarch + " (");
    });
  }
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
      "  skidproof list defects --json - | jq -r '.[].id'");
  verb.option("what", options->what, "one of: " + known_kinds()).required().named("WHAT");
  verb.option("--microarch", options->microarch, "of events: those of this one and its variants")
      .named("NAME");
  add_json(verb, options->json);
  verb.when_named(
      [options, &invocation] { invocation.action = [options] { return list(*options); }; });
}

}  // namespace skidproof::cli
