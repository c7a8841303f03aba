// Random cases for a microarch: legal and illegal programmes over random code.
#ifndef SKIDPROOF_HARNESS_FUZZ_GENERATOR_H_
#define SKIDPROOF_HARNESS_FUZZ_GENERATOR_H_

#include <cstdint>

#include "harness/fuzz/case.h"
#include "pebs/machine.h"

namespace skidproof::fuzz {

// The case of a seed for this machine. Same identity, counters and seed, same case. `gp_counters`: how
// many CPUID.0AH reports.
Case generate_case(const Identity& machine, unsigned gp_counters, uint64_t seed);

}  // namespace skidproof::fuzz

#endif  // SKIDPROOF_HARNESS_FUZZ_GENERATOR_H_
