// `list events --check`: what rows have otherwise than Intel's lists.
#ifndef SKIDPROOF_HARNESS_CLI_EVENT_CHECK_H_
#define SKIDPROOF_HARNESS_CLI_EVENT_CHECK_H_

#include <string>

namespace skidproof::cli {

struct EventCheckOptions {
  std::string microarch;  // a row and its variants; empty: all that have lists
  std::string perfmon;    // folder of the lists; empty: those that the rows were built with
  std::string json;       // empty: text alone
};

// Prints each list with what is missing, wrong or different on purpose, and a summary. The exit code: 0, or 1 where
// something is missing or wrong; 64 for what cannot be asked, 2 where a file cannot be read or written.
int check_events(const EventCheckOptions& options);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_EVENT_CHECK_H_
