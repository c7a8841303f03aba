// What every verb shares: how it enters the command line, where it writes, how it fails.
#ifndef SKIDPROOF_HARNESS_CLI_VERB_H_
#define SKIDPROOF_HARNESS_CLI_VERB_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "harness/check/exit_codes.h"
#include "harness/cli/command.h"
#include "results/json_fwd.h"

namespace skidproof::cli {

using check::kExitHarnessFailed;
using check::kExitHeld;
using check::kExitNothingRan;
using check::kExitPropertyFailed;
using check::kExitUsage;

// One invocation.
struct Invocation {
  std::vector<std::string> command;    // argv, for the `run` row
  std::vector<std::string> passed_on;  // what stands after `--`
  std::function<int()> action;         // set by the verb that was named; returns the exit code
};

// Why a run ended, and with which exit code.
struct Ending {
  int exit = kExitHeld;
  std::string reason = "completed";
};

// Each adds its verb to the program.
void add_doctor(Command program, Invocation& invocation);
void add_list(Command program, Invocation& invocation);
void add_explain(Command program, Invocation& invocation);
void add_run(Command program, Invocation& invocation);
void add_characterize(Command program, Invocation& invocation);
void add_qualify(Command program, Invocation& invocation);
void add_errata(Command program, Invocation& invocation);
void add_fuzz(Command program, Invocation& invocation);
void add_merge(Command program, Invocation& invocation);
void add_python_verbs(Command program, Invocation& invocation);
void add_traceability(Command program, Invocation& invocation);
void add_command_line(Command program, Invocation& invocation);

inline constexpr char kJsonHelp[] =
    "write the result as JSON to FILE; - is standard output, which then carries nothing else";
void add_json(Command verb, std::string& path);

// Says on stderr what happened and what to do, and gives the exit code back.
int complain(int exit, std::string_view message, std::string_view advice = {});
int complain(int exit, const Error& error);
// The same with the exit code that the error's kind deserves: 64 for what the user asked, 77 for what
// this machine cannot, 2 for the rest.
int complain(const Error& error);

// "did you mean a, b?" or a list of all that there are.
std::string near_or_all(std::string_view typed, std::span<const std::string_view> known);

// Writes one JSON document with a line end to a file or, for "-", to standard output.
Expected<void> write_document(const std::string& path, const results::Json& document);

// The path of a file that came with the program, such as "results/skidproof": beside an installed binary
// (../share/skidproof), or in the source tree that it was built from, where it was not built to be installed
// (SKIDPROOF_INSTALLED). Empty when there is none.
std::string shipped(std::string_view relative);

// Of the program, "0.1.0".
const char* version();

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_VERB_H_
