// `doctor`: what this machine can run, and for each thing that it cannot: why, and what mends it.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "harness/cli/host.h"
#include "harness/cli/text.h"
#include "harness/cli/verb.h"

namespace skidproof::cli {
namespace {

Paint paint_of(Health health) {
  if (health == Health::kGood) return Paint::kGreen;
  return health == Health::kNote ? Paint::kYellow : Paint::kRed;
}

results::Json json_of(const std::vector<Finding>& findings) {
  results::Json list = results::Json::array();
  for (const Finding& finding : findings) {
    results::Json one = {{"section", finding.section},
                         {"name", finding.name},
                         {"health", name_of(finding.health)},
                         {"value", finding.value}};
    if (!finding.mend.empty()) one["mend"] = finding.mend;
    list.push_back(std::move(one));
  }
  return {{"version", version()}, {"findings", list}};
}

void print(const std::vector<Finding>& findings) {
  const Text text(stdout);
  size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, width_of(finding.name));
  std::string section;
  for (const Finding& finding : findings) {
    if (finding.section != section) {
      if (!section.empty()) text.line();
      section = finding.section;
      text.line(text.paint(Paint::kBold, section));
    }
    const std::string health = pad_right(name_of(finding.health), 4);
    const size_t indent = width + 10;
    text.line(fmt::format("  {}  {}  {}", text.paint(paint_of(finding.health), health),
                          pad_right(finding.name, width), wrap(finding.value, indent)));
    if (finding.mend.empty()) continue;
    text.line(std::string(indent, ' ') +
              text.paint(Paint::kCyan, "mend: " + wrap(finding.mend, indent + 6)));
  }
}

int doctor(const std::string& json) {
  const std::vector<Finding> findings = examine_host();
  if (json != "-") print(findings);
  if (json.empty()) return kExitHeld;
  const auto written = write_document(json, json_of(findings));
  return written ? kExitHeld : complain(kExitHarnessFailed, written.error());
}

}  // namespace

void add_doctor(CLI::App& app, Invocation& invocation) {
  auto json = std::make_shared<std::string>();
  CLI::App* verb =
      app.add_subcommand("doctor", "what this machine can run, and what would mend the rest");
  verb->footer(
      "Examples:\n"
      "  skidproof doctor\n"
      "  skidproof doctor --json - | jq '.findings[] | select(.health == \"bad\")'");
  add_json(*verb, *json);
  verb->callback([json, &invocation] { invocation.action = [json] { return doctor(*json); }; });
}

}  // namespace skidproof::cli
