// What the program takes on its command line, as JSON: completion and manual pages are made of it.
#include "harness/cli/verb.h"
#include "results/json.h"

namespace skidproof::cli {

void add_command_line(Command program, Invocation& invocation) {
  Command verb = program.hidden_verb("command-line", "what the program takes, as JSON");
  verb.when_named([program, &invocation] {
    invocation.action = [program] {
      results::Json all = program.describe();
      all["version"] = version();
      const auto written = write_document("-", all);
      return written ? kExitHeld : complain(kExitHarnessFailed, written.error());
    };
  });
}

}  // namespace skidproof::cli
