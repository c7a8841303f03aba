// What a machine did that no reading of the manual allows.
#ifndef SKIDPROOF_HARNESS_FUZZ_VIOLATION_H_
#define SKIDPROOF_HARNESS_FUZZ_VIOLATION_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "pebs/arch/clause.h"

namespace skidproof::fuzz {

// The checks, one for each kind of contradiction: a case is shrunk while it still violates the same.
enum class Check : uint8_t {
  kAccess,      // a register that must answer refused, or the other way round
  kRegisters,   // a register does not hold what it must
  kMemory,      // a byte outside the new records changed
  kIndex,       // the PEBS index left whole records, or the buffer
  kPlace,       // a record is of no state that the program went through
  kRecord,      // a record is missing, or is not of the event that it must be of
  kExtra,       // a record that no event explains
  kContents,    // a field of a record
  kCount,       // a counter's value after a run
  kStatus,      // IA32_PERF_GLOBAL_STATUS after a run, or in a record
  kInterrupts,  // performance monitoring interrupts
};
std::string_view name_of(Check check);

struct Violation {
  Check check = Check::kAccess;
  const Clause* clause = nullptr;  // the promise that is broken
  size_t step = 0;                 // of the case
  std::string expected;
  std::string seen;
};

}  // namespace skidproof::fuzz

#endif  // SKIDPROOF_HARNESS_FUZZ_VIOLATION_H_
