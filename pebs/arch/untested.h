// Clauses that no test can hold here, each with the reason; docs/traceability.md shows it.
#ifndef SKIDPROOF_PEBS_ARCH_UNTESTED_H_
#define SKIDPROOF_PEBS_ARCH_UNTESTED_H_

#include <span>
#include <string_view>

#include "pebs/arch/clause.h"

namespace skidproof {

enum class Testable : uint8_t {
  kNotYet,  // a test could be written
  kNever,   // nothing that runs here could fail it
};
// "no test yet", "cannot be tested here".
std::string_view name_of(Testable testable);

struct Untested {
  const Clause* clause;
  Testable testable;
  std::string_view reason;  // a sentence without its stop
};

// In the order of the table (untested.inc); each clause at most once.
std::span<const Untested> untested();
// nullptr: the table says nothing of it.
const Untested* find_untested(const Clause& clause);

}  // namespace skidproof

#endif  // SKIDPROOF_PEBS_ARCH_UNTESTED_H_
