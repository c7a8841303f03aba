#include "harness/cli/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "results/json.h"

namespace skidproof::cli {
namespace {

using results::Json;

Json describe_option(const CLI::Option& option) {
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

Json describe_app(const CLI::App& app) {
  Json options = Json::array(), places = Json::array(), verbs = Json::array();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    (option->nonpositional() ? options : places).push_back(describe_option(*option));
  }
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!verb->get_group().empty()) verbs.push_back(describe_app(*verb));
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

Option Option::named(const std::string& value) const { return Option(option_->type_name(value)); }
Option Option::shows_default() const { return Option(option_->capture_default_str()); }
Option Option::required() const { return Option(option_->required()); }
Option Option::many() const { return Option(option_->take_all()); }
Option Option::one_of(const std::vector<std::string>& values) const {
  return Option(option_->check(CLI::IsMember(values)));
}
Option Option::in_seconds() const {
  return Option(option_->transform(CLI::AsNumberWithUnit(
      std::map<std::string, double>{{"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}},
      CLI::AsNumberWithUnit::CASE_SENSITIVE)));
}
Option Option::not_negative() const {
  return Option(option_->check([](const std::string& text) {
    return text.starts_with('-') ? fmt::format("{} is less than 0", text) : std::string();
  }));
}
Option Option::within(unsigned least, unsigned most) const {
  return Option(option_->check(CLI::Range(least, most)));
}
Option Option::within(uint64_t least, uint64_t most) const {
  return Option(option_->check(CLI::Range(least, most)));
}
Option Option::within(double least, double most) const {
  return Option(option_->check(CLI::Range(least, most)));
}
Option Option::needs(Option other) const { return Option(option_->needs(other.option_)); }
Option Option::excludes(Option other) const { return Option(option_->excludes(other.option_)); }

void Command::epilogue(const std::string& text) { app_->footer(text); }

Option Command::flag(const std::string& names, bool& variable, const std::string& brief) {
  return Option(app_->add_flag(names, variable, brief));
}
Option Command::option(const std::string& names, std::string& variable, const std::string& brief) {
  return Option(app_->add_option(names, variable, brief));
}
Option Command::option(const std::string& names, std::vector<std::string>& variable,
                       const std::string& brief) {
  return Option(app_->add_option(names, variable, brief));
}
Option Command::option(const std::string& names, std::optional<std::string>& variable,
                       const std::string& brief) {
  return Option(app_->add_option(names, variable, brief));
}
Option Command::option(const std::string& names, unsigned& variable, const std::string& brief) {
  return Option(app_->add_option(names, variable, brief));
}
Option Command::option(const std::string& names, std::optional<unsigned>& variable,
                       const std::string& brief) {
  return Option(app_->add_option(names, variable, brief));
}
Option Command::option(const std::string& names, std::optional<int>& variable,
                       const std::string& brief) {
  return Option(app_->add_option(names, variable, brief));
}
Option Command::option(const std::string& names, uint64_t& variable, const std::string& brief) {
  return Option(app_->add_option(names, variable, brief));
}
Option Command::option(const std::string& names, std::optional<uint64_t>& variable,
                       const std::string& brief) {
  return Option(app_->add_option(names, variable, brief));
}
Option Command::option(const std::string& names, double& variable, const std::string& brief) {
  return Option(app_->add_option(names, variable, brief));
}
Option Command::option(const std::string& names, std::optional<double>& variable,
                       const std::string& brief) {
  return Option(app_->add_option(names, variable, brief));
}
Option Command::option(const std::string& names,
                       std::function<Expected<void>(const std::string&)> read,
                       const std::string& brief) {
  return Option(app_->add_option_function<std::string>(
      names,
      [names, read = std::move(read)](const std::string& text) {
        const auto understood = read(text);
        if (understood) return;
        const Error& error = understood.error();
        throw CLI::ValidationError(names, error.advice.empty()
                                              ? error.message
                                              : fmt::format("{}: {}", error.message, error.advice));
      },
      brief));
}

void Command::excludes_all_but(Option option, const std::vector<std::string>& names) {
  for (CLI::Option* other : app_->get_options()) {
    if (other == option.option_ || other == app_->get_help_ptr()) continue;
    if (std::none_of(names.begin(), names.end(),
                     [&](const std::string& name) { return other->check_name(name); })) {
      option.option_->excludes(other);
    }
  }
}

void Command::when_named(std::function<void()> action) { app_->callback(std::move(action)); }

Command Command::verb(const std::string& name, const std::string& brief) {
  return Command(*app_->add_subcommand(name, brief));
}

Command Command::hidden_verb(const std::string& name, const std::string& brief) {
  return Command(*app_->add_subcommand(name, brief)->group(""));
}

void Command::foreign_verb(const std::string& name, const std::string& brief,
                           std::function<void(const std::vector<std::string>&)> action) {
  CLI::App* verb = app_->add_subcommand(name, brief);
  verb->set_help_flag();
  verb->prefix_command();
  verb->callback([verb, action = std::move(action)] { action(verb->remaining()); });
}

Json Command::describe() const { return describe_app(*app_); }

CommandLine::CommandLine(const std::string& name, const std::string& about)
    : CommandLine(std::make_unique<CLI::App>(about, name)) {}
CommandLine::CommandLine(std::unique_ptr<CLI::App> app) : Command(*app), app_(std::move(app)) {}
CommandLine::~CommandLine() = default;

void CommandLine::version(const std::string& text) { app_->set_version_flag("--version", text); }
void CommandLine::needs_verb() { app_->require_subcommand(1); }
std::string CommandLine::help() const { return app_->help(); }

std::vector<std::string> CommandLine::verbs() const {
  std::vector<std::string> names;
  for (const CLI::App* verb : app_->get_subcommands([](const CLI::App*) { return true; })) {
    if (!verb->get_group().empty()) names.push_back(verb->get_name());
  }
  return names;
}

bool CommandLine::has_verb(const std::string& name) const {
  return !app_->get_subcommands([&](const CLI::App* verb) { return verb->get_name() == name; })
              .empty();
}

std::string CommandLine::verb_named() const {
  const auto named = app_->get_subcommands();
  return named.empty() ? "" : named.front()->get_name();
}

Expected<bool> CommandLine::parse(std::vector<std::string> arguments) {
  try {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app_->parse(arguments);
  } catch (const CLI::Success& asked_for_help) {
    app_->exit(asked_for_help);
    return true;
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kInvalidArgument, error.what());
  }
  return false;
}

}  // namespace skidproof::cli
