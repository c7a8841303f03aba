// The table of reasons, and lookup by clause.
#include "pebs/arch/untested.h"

namespace skidproof {
namespace {

constexpr Untested kUntested[] = {
#define SKIDPROOF_UNTESTED(name, testable, reason) {&clause::name, Testable::testable, reason},
#include "pebs/arch/untested.inc"
#undef SKIDPROOF_UNTESTED
};

}  // namespace

std::string_view name_of(Testable testable) {
  switch (testable) {
    case Testable::kNotYet:
      return "no test yet";
    case Testable::kNever:
      return "cannot be tested here";
  }
  return "unknown";
}

std::span<const Untested> untested() { return kUntested; }

const Untested* find_untested(const Clause& clause) {
  for (const Untested& row : kUntested) {
    if (row.clause == &clause) return &row;
  }
  return nullptr;
}

}  // namespace skidproof
