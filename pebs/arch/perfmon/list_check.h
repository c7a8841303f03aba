// Holds the events of a row to a list of Intel's, line by line, by other code than what makes events of lines.
#ifndef SKIDPROOF_PEBS_ARCH_PERFMON_LIST_CHECK_H_
#define SKIDPROOF_PEBS_ARCH_PERFMON_LIST_CHECK_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pebs/arch/microarch.h"
#include "pebs/arch/perfmon/list.h"

namespace skidproof::arch::perfmon {

// Where a row and a list are not of one mind; texts are for people.
struct ListDifference {
  std::string event;    // "INST_RETIRED.PREC_DIST C0H/01H"
  std::string in_list;  // "precise on PMC1, alone"
  std::string in_row;
  std::string source = {};  // of the row's own event
  std::string reason = {};  // … why it is so
};

struct ListCheck {
  std::string row;                 // title of the row or the variant
  std::string list;                // "intel/perfmon SNB V19"
  size_t events = 0, precise = 0;  // lines of the list, and those of them that are precise
  std::vector<ListDifference> missing = {};  // precise events that the row does not have
  std::vector<ListDifference> wrong = {};    // what the row says otherwise, and gives no reason for
  std::vector<ListDifference> different =
      {};  // what it says otherwise, or beside the list, with its reason

  bool good() const { return missing.empty() && wrong.empty(); }
};

// `row` has events of a list: of this one, or of another edition of it.
ListCheck check_list(const Microarch& row, std::string_view source,
                     std::span<const Published> list);
// … of the one that it was built with.
ListCheck check_list(const Microarch& row);

// Each row and variant of the table that has one.
std::vector<const Microarch*> rows_with_lists();

}  // namespace skidproof::arch::perfmon

#endif  // SKIDPROOF_PEBS_ARCH_PERFMON_LIST_CHECK_H_
