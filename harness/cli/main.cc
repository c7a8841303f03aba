// The program: reads the command line, runs the verb that it names, exits with its code.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstring>
#include <exception>

#include "harness/cli/verb.h"

namespace {

using namespace skidproof;
using namespace skidproof::cli;

constexpr char kAbout[] =
    "Proves what the processor's precise sampling hardware (PEBS) really does.\n"
    "A processor under test is silicon, or an executable model of the manual, and every result "
    "says which.";

constexpr char kEpilogue[] =
    "Examples:\n"
    "  skidproof doctor                              what this machine can run\n"
    "  skidproof run --machine model:sandy-bridge    the suites against a model of Sandy Bridge\n"
    "  skidproof characterize                        latencies and bandwidths of this CPU\n"
    "  skidproof errata                              which published errata concern this CPU\n"
    "  skidproof report                              a page with plots of the latest results\n"
    "\n"
    "Exit codes: 0 all that ran held, 1 a property failed, 2 the harness failed,\n"
    "64 bad usage or a filter that matched nothing, 77 nothing could run. `errata` has its own.";

// Everything after a bare `--` is not ours.
void split_passed_on(int argc, char** argv, std::vector<std::string>& own, Invocation& invocation) {
  std::vector<std::string>* into = &own;
  for (int i = 0; i < argc; ++i) {
    invocation.command.emplace_back(argv[i]);
    if (into == &own && i > 0 && std::strcmp(argv[i], "--") == 0) {
      into = &invocation.passed_on;
    } else if (i > 0) {
      into->emplace_back(argv[i]);
    }
  }
}

// Those that help speaks of.
std::vector<std::string_view> verb_names(const CLI::App& app) {
  std::vector<std::string_view> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!verb->get_group().empty()) names.push_back(verb->get_name());
  }
  return names;
}

// CLI11's own message for a verb that does not exist speaks of arguments; ours names the verbs.
bool names_unknown_verb(const std::vector<std::string>& own, const CLI::App& app) {
  return !own.empty() && !own.front().starts_with("-") &&
         app.get_subcommands([&](const CLI::App* verb) { return verb->get_name() == own.front(); })
             .empty();
}

int run(int argc, char** argv) {
  CLI::App app{kAbout, "skidproof"};
  Invocation invocation;
  app.set_version_flag("--version", std::string("skidproof ") + version());
  app.footer(kEpilogue);
  app.require_subcommand(1);
  add_doctor(app, invocation);
  add_list(app, invocation);
  add_explain(app, invocation);
  add_run(app, invocation);
  add_characterize(app, invocation);
  add_qualify(app, invocation);
  add_errata(app, invocation);
  add_fuzz(app, invocation);
  add_merge(app, invocation);
  add_python_verbs(app, invocation);
  add_traceability(app, invocation);
  add_command_line(app, invocation);

  std::vector<std::string> own;
  split_passed_on(argc, argv, own, invocation);
  const auto verbs = verb_names(app);
  if (own.empty()) {
    fmt::print(stderr, "{}", app.help());
    return kExitUsage;
  }
  if (names_unknown_verb(own, app)) {
    return complain(kExitUsage, fmt::format("there is no verb '{}'", own.front()),
                    near_or_all(own.front(), verbs));
  }
  try {
    std::reverse(own.begin(), own.end());  // as CLI11 wants it
    app.parse(own);
  } catch (const CLI::Success& asked_for_help) {
    return app.exit(asked_for_help);
  } catch (const CLI::ParseError& error) {
    const auto named = app.get_subcommands();
    const std::string verb = named.empty() ? "" : named.front()->get_name() + " ";
    return complain(kExitUsage, error.what(), fmt::format("see: skidproof {}--help", verb));
  }
  if (!invocation.passed_on.empty() && !app.got_subcommand("run")) {
    return complain(kExitUsage, "only `run` passes flags on after --", "see: skidproof run --help");
  }
  const int exit = invocation.action();
  // A verb that prints to a full disk or a closed pipe has not told anyone.
  if (std::fflush(stdout) != 0 && exit == kExitHeld) {
    return complain(kExitHarnessFailed, "standard output could not be written");
  }
  return exit;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return run(argc, argv);
  } catch (const std::exception& exception) {
    return complain(kExitHarnessFailed, fmt::format("internal error: {}", exception.what()),
                    "this is a defect of skidproof: please report it with the command line");
  }
}
