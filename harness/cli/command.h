// The command line: verbs, their options, what help says of them. command.cc alone knows the library that parses it,
// whose header takes longer to compile than any verb.
#ifndef SKIDPROOF_HARNESS_CLI_COMMAND_H_
#define SKIDPROOF_HARNESS_CLI_COMMAND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/expected.h"
#include "results/json_fwd.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace skidproof::cli {

// An option of a command; each member gives the option back.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option named(const std::string& value) const;  // what help calls its value: FILE
  Option shows_default() const;                  // what its variable holds now
  Option required() const;
  Option many() const;  // may be given again; each adds to the list
  Option one_of(const std::vector<std::string>& values) const;
  Option in_seconds() const;  // its text has a unit: 500ms, 60s, 5m, 1h
  Option not_negative() const;
  Option within(unsigned least, unsigned most) const;
  Option within(uint64_t least, uint64_t most) const;
  Option within(double least, double most) const;
  Option needs(Option other) const;
  Option excludes(Option other) const;

 private:
  friend class Command;
  CLI::Option* option_;
};

// The program, or one of its verbs. `names` of an option are "-v,--verbose"; "!--no-errata" sets false; a name without
// dashes is an argument that is known by its place. Variables outlive the parsing.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  void epilogue(const std::string& text);  // what help ends with
  Option flag(const std::string& names, bool& variable, const std::string& brief);
  Option option(const std::string& names, std::string& variable, const std::string& brief);
  Option option(const std::string& names, std::vector<std::string>& variable,
                const std::string& brief);
  Option option(const std::string& names, std::optional<std::string>& variable,
                const std::string& brief);
  Option option(const std::string& names, unsigned& variable, const std::string& brief);
  Option option(const std::string& names, std::optional<unsigned>& variable,
                const std::string& brief);
  Option option(const std::string& names, std::optional<int>& variable, const std::string& brief);
  Option option(const std::string& names, uint64_t& variable, const std::string& brief);
  Option option(const std::string& names, std::optional<uint64_t>& variable,
                const std::string& brief);
  Option option(const std::string& names, double& variable, const std::string& brief);
  Option option(const std::string& names, std::optional<double>& variable,
                const std::string& brief);
  // Text that `read` understands; the error's message and advice are shown.
  Option option(const std::string& names, std::function<Expected<void>(const std::string&)> read,
                const std::string& brief);

  // `option` excludes all others of this command but these names.
  void excludes_all_but(Option option, const std::vector<std::string>& names);
  // Called after parsing where this verb was named.
  void when_named(std::function<void()> action);

  Command verb(const std::string& name, const std::string& brief);
  // A verb that help does not speak of.
  Command hidden_verb(const std::string& name, const std::string& brief);
  // A verb whose arguments, --help too, another program reads: `action` gets them.
  void foreign_verb(const std::string& name, const std::string& brief,
                    std::function<void(const std::vector<std::string>& arguments)> action);

  // {"name", "brief", "epilogue", "options": […], "arguments": […], "verbs": […], "elsewhere": …}, for completion and
  // manual pages. An option is {"names": ["-v", "--verbose"], "value": "FILE" or null for a flag, "choices": […], "many",
  // "required", "default", "brief"}; "elsewhere": a foreign verb.
  results::Json describe() const;

 private:
  CLI::App* app_;
};

// A command that owns itself: a program's, or one for parsing a line once more.
class CommandLine : public Command {
 public:
  CommandLine(const std::string& name, const std::string& about);
  ~CommandLine();
  CommandLine(CommandLine&&) noexcept;

  void version(const std::string& text);  // what --version prints
  void needs_verb();

  std::string help() const;
  std::vector<std::string> verbs() const;  // those that help speaks of
  bool has_verb(const std::string& name) const;
  std::string verb_named()
      const;  // on the line that was parsed, also where it was wrong; else empty

  // Sets the variables and calls the named verb's action. `true`: help or the version was asked for, and printed.
  // kInvalidArgument: what is wrong with the line.
  Expected<bool> parse(std::vector<std::string> arguments);

 private:
  explicit CommandLine(std::unique_ptr<CLI::App> app);
  std::unique_ptr<CLI::App> app_;
};

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_COMMAND_H_
