// What the program takes on its command line, as JSON: completion and manual pages are made of it.
#include <CLI/CLI.hpp>

#include "harness/cli/verb.h"

namespace skidproof::cli {
namespace {

using results::Json;

// {"names": ["-v", "--verbose"], "value": "FILE" or null for a flag, "choices": […], "many": …, "required": …,
// "default": …, "brief": …}; what has no names is told by its place.
Json describe(const CLI::Option& option) {
  Json names = Json::array();
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  Json value, choices = Json::array();
  if (option.get_items_expected_max() > 0) {
    // Behind the name stand the validators: STAGE:{read,write}, N:UINT in [1 - 100].
    const std::string type = option.get_type_name();
    value = type.substr(0, type.find(':'));
    const size_t open = type.find(":{");
    const size_t close = type.find('}', open == std::string::npos ? 0 : open);
    if (open != std::string::npos && close != std::string::npos) {
      for (const std::string& choice :
           CLI::detail::split(type.substr(open + 2, close - open - 2), ',')) {
        choices.push_back(choice);
      }
    }
  }
  return {{"names", names},
          {"value", value},
          {"choices", choices},
          {"many", option.get_items_expected_max() > 1},
          {"required", option.get_required()},
          {"default", option.get_default_str()},
          {"brief", option.get_description()}};
}

// `elsewhere`: a verb of Python's, which knows its own options.
Json describe(const CLI::App& app) {
  Json options = Json::array(), places = Json::array(), verbs = Json::array();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    (option->nonpositional() ? options : places).push_back(describe(*option));
  }
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!verb->get_group().empty()) verbs.push_back(describe(*verb));
  }
  return {{"name", app.get_name()},
          {"brief", app.get_description()},
          {"epilogue", app.get_footer()},
          {"options", options},
          {"arguments", places},
          {"verbs", verbs},
          {"elsewhere", app.get_prefix_command()}};
}

}  // namespace

void add_command_line(CLI::App& app, Invocation& invocation) {
  CLI::App* verb = app.add_subcommand("command-line", "what the program takes, as JSON");
  verb->group("");  // for the program's own use
  verb->callback([&app, &invocation] {
    invocation.action = [&app] {
      Json all = describe(app);
      all["version"] = version();
      const auto written = write_document("-", all);
      return written ? kExitHeld : complain(kExitHarnessFailed, written.error());
    };
  });
}

}  // namespace skidproof::cli
