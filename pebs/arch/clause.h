// Clauses: the numbered promises that tests cite. A misspelt one does not compile.
#ifndef SKIDPROOF_PEBS_ARCH_CLAUSE_H_
#define SKIDPROOF_PEBS_ARCH_CLAUSE_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "base/expected.h"

namespace skidproof {

// Whether the sources say one thing.
enum class Agreement : uint8_t {
  kAgreed,    // stated, and no source contradicts it
  kDisputed,  // sources contradict one another: tests classify, they do not fail
  kInferred,  // follows from stated rules; no document says it in so many words
};
std::string_view name_of(Agreement agreement);

struct Clause {
  std::string_view id;        // "R19"
  std::string_view text;      // the promise, in our words
  std::string_view citation;  // document and section or table title
  Agreement agreement = Agreement::kAgreed;
  bool excerpt = false;  // stated in the manual excerpts that the project started from
};

// All clauses, in registry order.
std::span<const Clause* const> clauses();
// By id; an unknown one is an error that names near ids.
Expected<const Clause*> find_clause(std::string_view id);

}  // namespace skidproof

// Defines skidproof::clause::R1, R2, … from the table.
#include "pebs/arch/clauses.inc"

#endif  // SKIDPROOF_PEBS_ARCH_CLAUSE_H_
