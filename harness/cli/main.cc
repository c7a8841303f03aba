// The program: reads the command line, runs the verb that it names, exits with its code.
#include <fmt/core.h>

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

int run(int argc, char** argv) {
  CommandLine program("skidproof", kAbout);
  Invocation invocation;
  program.version(std::string("skidproof ") + version());
  program.epilogue(kEpilogue);
  program.needs_verb();
  add_doctor(program, invocation);
  add_list(program, invocation);
  add_explain(program, invocation);
  add_run(program, invocation);
  add_characterize(program, invocation);
  add_qualify(program, invocation);
  add_errata(program, invocation);
  add_fuzz(program, invocation);
  add_merge(program, invocation);
  add_python_verbs(program, invocation);
  add_traceability(program, invocation);
  add_command_line(program, invocation);

  std::vector<std::string> own;
  split_passed_on(argc, argv, own, invocation);
  if (own.empty()) {
    fmt::print(stderr, "{}", program.help());
    return kExitUsage;
  }
  // The parser's own message for a verb that does not exist speaks of arguments; this one names the verbs.
  if (!own.front().starts_with("-") && !program.has_verb(own.front())) {
    const auto verbs = program.verbs();
    return complain(
        kExitUsage, fmt::format("there is no verb '{}'", own.front()),
        near_or_all(own.front(), std::vector<std::string_view>(verbs.begin(), verbs.end())));
  }
  const auto parsed = program.parse(std::move(own));
  const std::string verb = program.verb_named();
  if (!parsed) {
    return complain(kExitUsage, parsed.error().message,
                    fmt::format("see: skidproof {}--help", verb.empty() ? "" : verb + " "));
  }
  if (*parsed) return kExitHeld;
  if (!invocation.passed_on.empty() && verb != "run") {
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
