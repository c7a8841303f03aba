// What `errata` shares: a machine and what is known of it, and how people see it.
#ifndef SKIDPROOF_HARNESS_CLI_ERRATA_TEXT_H_
#define SKIDPROOF_HARNESS_CLI_ERRATA_TEXT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/expected.h"
#include "harness/cli/text.h"
#include "harness/errata/linux_view.h"
#include "harness/errata/observation.h"
#include "harness/errata/subject.h"
#include "pebs/arch/errata_catalogue.h"
#include "results/row.h"

namespace skidproof::cli {

// What --batch takes.
enum class Format : uint8_t { kText, kJson, kPrometheus, kNrpe, kCsv };
const std::map<std::string, Format>& formats();

// A machine, and what its tests saw.
struct Asked {
  results::MachineRow row;
  errata::Subject subject;
  errata::Seen seen;
  std::string not_run = "nothing is run without --active";  // why, where nothing was
};

struct Answer {
  Asked of;
  std::vector<results::ErratumRow> rows;
};

// Whatever keeps verdicts from being given is no verdict: says it, and gives the exit code back, 64 for what the
// user asked and 3 for the rest.
int cannot(const Error& error);

// One machine: who it is, its errata, contradictions first, and their sums. `verbose`: also what is not listed.
void print_answer(const Text& text, const arch::ErrataCatalogue& catalogue, const Answer& answer,
                  bool verbose);
void print_linux(const Text& text, const errata::LinuxView& view);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_ERRATA_TEXT_H_
