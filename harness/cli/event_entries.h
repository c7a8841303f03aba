// Events of the microarchs' rows, for `list events` and `explain EVENT`.
#ifndef SKIDPROOF_HARNESS_CLI_EVENT_ENTRIES_H_
#define SKIDPROOF_HARNESS_CLI_EVENT_ENTRIES_H_

#include <span>
#include <vector>

#include "harness/cli/catalogue.h"
#include "pebs/arch/microarch.h"

namespace skidproof::cli {

// One for each event of each row and of its variants, in the rows' order: "sandy-bridge/UOPS_RETIRED.ALL",
// "sandy-bridge (Sandy Bridge-EP)/UOPS_RETIRED.ALL". Each also answers to the event's name. Where a row publishes one name
// with several encodings, each is an entry of that id.
std::vector<Entry> event_entries();
// Of one row and these variants of it.
std::vector<Entry> event_entries(const arch::Microarch& row,
                                 std::span<const arch::Microarch* const> variants);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_EVENT_ENTRIES_H_
