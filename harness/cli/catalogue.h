// Everything that has a name (kernels, clauses, tests, microarchs, defects, errata, machines), for `list`
// and `explain`.
#ifndef SKIDPROOF_HARNESS_CLI_CATALOGUE_H_
#define SKIDPROOF_HARNESS_CLI_CATALOGUE_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "results/row.h"

namespace skidproof::cli {

// One fact of an entry; several values are a list.
struct Detail {
  std::string key;
  std::vector<std::string> values;
};

struct Entry {
  std::string id;
  std::vector<std::string> columns;  // of the list, after the id
  std::string brief;
  std::vector<Detail> details;
  // Also answers to these: a parameterised test without its label, an erratum's ids in other documents.
  std::vector<std::string> other_ids = {};
};

struct Kind {
  const char* plural;    // what `list` takes
  const char* singular;  // what `explain` calls one
  std::vector<Entry> (*entries)();
};

std::span<const Kind> kinds();
const Kind* find_kind(std::string_view plural);  // nullptr: no such kind

// {"id", "brief", and each detail by its key with `_` for spaces: a string, or a list of them}
results::Json json_of(const Entry& entry);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_CATALOGUE_H_
