// `errata --inventory`: a fleet, judged from what is known of its machines.
#ifndef SKIDPROOF_HARNESS_CLI_ERRATA_INVENTORY_H_
#define SKIDPROOF_HARNESS_CLI_ERRATA_INVENTORY_H_

#include <string>

#include "harness/cli/errata_text.h"
#include "pebs/arch/errata_catalogue.h"

namespace skidproof::cli {

struct InventoryRequest {
  std::string path;  // - is standard input
  Format format = Format::kText;
  std::string
      json;  // where rows go, - is standard output; empty: nowhere, unless the format is JSON
  arch::Authority least = arch::Authority::kReport;
  bool verbose = false;  // a line for each machine
};

// Reports lines that are no machine and judges the others. The worst machine's exit code.
int judge_inventory(const arch::ErrataCatalogue& catalogue, const InventoryRequest& request);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_ERRATA_INVENTORY_H_
