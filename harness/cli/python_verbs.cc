// The verbs that read results: Python does it, and knows their options.
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "harness/cli/command.h"
#include "harness/cli/python.h"
#include "harness/cli/verb.h"

namespace skidproof::cli {
namespace {

struct PythonVerb {
  const char* name;
  const char* brief;
};
constexpr PythonVerb kVerbs[] = {
    {"compare", "which figures and verdicts of two runs, or sets of runs, differ"},
    {"report", "one HTML page: of result files, of a machine's history, of the fleet"},
    {"store", "the history of many runs in SQLite or PostgreSQL: add, query, prune, migrate"},
    {"serve", "a read-only HTTP service over a store: pages, JSON, metrics"},
    {"export", "result files as JUnit XML, TAP, CSV, Prometheus text or OCP JSON Lines"},
    {"trends", "what changed in the history of each machine, when, and with what"},
    {"nightly",
     "one night on a lab machine: suites, characterization, errata; exports, store, report"},
    {"completion", "what a shell completes this program's command line with"},
};

}  // namespace

int become_python(const std::string& verb, const std::vector<std::string>& arguments) {
  const std::string package = shipped("results/skidproof");
  if (package.empty()) {
    return complain(kExitHarnessFailed, "the Python package that reads results is missing",
                    "install skidproof whole (cmake --install), or keep its source tree");
  }
  const auto python = find_python("json");
  if (!python) return complain(kExitHarnessFailed, python.error());
  std::vector<std::string> words = {*python, "-B", package, verb};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // A verb that calls others calls this program, unless the user says which.
  std::error_code unknown;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (!unknown) ::setenv("SKIDPROOF", self.c_str(), 0);
  ::execvp(argv.front(), argv.data());
  return complain(kExitHarnessFailed,
                  fmt::format("cannot run {}: {}", words.front(), std::strerror(errno)));
}

void add_python_verbs(Command program, Invocation& invocation) {
  for (const PythonVerb& one : kVerbs) {
    program.foreign_verb(one.name, one.brief,  // Python's help has the options
                         [&one, &invocation](const std::vector<std::string>& arguments) {
                           invocation.action = [&one, arguments] {
                             return become_python(one.name, arguments);
                           };
                         });
  }
}

}  // namespace skidproof::cli
