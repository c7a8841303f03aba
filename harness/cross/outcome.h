// What a case leaves behind on a machine, as far as two engines must agree on it.
#ifndef SKIDPROOF_HARNESS_CROSS_OUTCOME_H_
#define SKIDPROOF_HARNESS_CROSS_OUTCOME_H_

#include <string>

#include "base/expected.h"
#include "harness/cross/case.h"
#include "pebs/machine.h"
#include "results/row.h"

namespace skidproof::cross {

using results::Json;

// Runs the case: the PEBS buffer and the branch trace store with all bytes that were written, the DS area, the counters,
// IA32_PERF_GLOBAL_STATUS, every PMI as its handler saw it, RAX, and the program's data. An error of the machine is an
// outcome, too.
Json outcome_of(Machine& machine, const Case& c);

// In what two outcomes differ, a line for each, for people; empty when they are the same.
std::string difference(const Json& lab, const Json& in_process, size_t record_bytes);

// How much was compared.
struct Tally {
  uint64_t cases = 0, same = 0, errors = 0;
  uint64_t with_records = 0, with_interrupts = 0, with_branches = 0;
  uint64_t records = 0, interrupts = 0, branches = 0;

  void add(const Json& outcome, size_t record_bytes, size_t branch_bytes);
};

}  // namespace skidproof::cross

#endif  // SKIDPROOF_HARNESS_CROSS_OUTCOME_H_
