// Who the CPU in front of us is, by CPUID and what Linux says of it.
#ifndef SKIDPROOF_HARNESS_RUN_NATIVE_IDENTITY_H_
#define SKIDPROOF_HARNESS_RUN_NATIVE_IDENTITY_H_

#include <cstdint>
#include <string_view>

#include "pebs/machine.h"

namespace skidproof {

// CPUID of the CPU that executes this; zeros for a leaf beyond the highest of its range.
Machine::CpuidResult host_cpuid(uint32_t leaf, uint32_t subleaf);

// Everything of Identity that needs no ring 0. `cpu` is the logical CPU that programs will run on:
// core type, microcode and sibling are its own, so call this while pinned to it. The name is
// "native" and pmu is false.
Identity native_identity(int cpu);

// The other logical processor of its core, of several the lowest; -1 where none is online.
int sibling_of(int cpu);
// The same from a list of processors as the kernel writes it, "3,67" or "2-3".
int sibling_in(std::string_view list, int cpu);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_RUN_NATIVE_IDENTITY_H_
