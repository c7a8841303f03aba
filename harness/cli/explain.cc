// `explain`: one clause, test, kernel, defect, erratum, microarch or machine in words.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "harness/cli/catalogue.h"
#include "harness/cli/text.h"
#include "harness/cli/verb.h"

namespace skidproof::cli {
namespace {

struct ExplainOptions {
  std::string id;
  std::string json;
};

void print(const Text& text, const Entry& entry, std::string_view kind) {
  text.line(fmt::format("{}  {}", text.paint(Paint::kBold, entry.id),
                        text.paint(Paint::kDim, std::string(kind))));
  if (!entry.brief.empty()) text.line("  " + wrap(entry.brief, 2));
  size_t width = 0;
  for (const Detail& detail : entry.details) width = std::max(width, width_of(detail.key));
  for (const Detail& detail : entry.details) {
    const std::string key = text.paint(Paint::kCyan, pad_right(detail.key, width));
    for (size_t i = 0; i < detail.values.size(); ++i) {
      const std::string left = i == 0 ? key : std::string(width, ' ');
      text.line(fmt::format("  {}  {}", left, wrap(detail.values[i], width + 4)));
    }
  }
}

int complain_of_id(const std::string& id) {
  std::vector<std::string> ids;
  for (const Kind& kind : kinds()) {
    for (const Entry& entry : kind.entries()) {
      ids.push_back(entry.id);
      ids.insert(ids.end(), entry.other_ids.begin(), entry.other_ids.end());
    }
  }
  const std::vector<std::string_view> known(ids.begin(), ids.end());
  const auto near = near_or_all(id, known);
  return complain(kExitUsage, fmt::format("nothing is called '{}'", id),
                  near.starts_with("did") ? near
                                          : "see: skidproof list clauses (or tests, kernels, "
                                            "defects, errata, microarchs, machines)");
}

int explain(const ExplainOptions& options) {
  results::Json document = results::Json::array();
  const Text text(stdout);
  for (const Kind& kind : kinds()) {
    for (const Entry& entry : kind.entries()) {
      const auto& others = entry.other_ids;
      if (entry.id != options.id &&
          std::find(others.begin(), others.end(), options.id) == others.end()) {
        continue;
      }
      if (options.json != "-") {
        if (!document.empty()) text.line();
        print(text, entry, kind.singular);
      }
      results::Json json = json_of(entry);
      json["kind"] = kind.singular;
      document.push_back(std::move(json));
    }
  }
  if (document.empty()) return complain_of_id(options.id);
  if (options.json.empty()) return kExitHeld;
  if (auto written = write_document(options.json, document); !written) {
    return complain(kExitHarnessFailed, written.error());
  }
  return kExitHeld;
}

}  // namespace

void add_explain(Command program, Invocation& invocation) {
  auto options = std::make_shared<ExplainOptions>();
  Command verb =
      program.verb("explain", "one clause, test, kernel, defect, erratum or microarch in words");
  verb.epilogue(
      "Examples:\n"
      "  skidproof explain R19\n"
      "  skidproof explain pointer_chase");
  verb.option("id", options->id, "its name, as `skidproof list` shows it").required().named("ID");
  add_json(verb, options->json);
  verb.when_named(
      [options, &invocation] { invocation.action = [options] { return explain(*options); }; });
}

}  // namespace skidproof::cli
