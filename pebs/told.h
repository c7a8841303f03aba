// What CPUID says of caches and TLBs. What `characterize` infers is held against it, and never comes from it; suites
// choose their working sets by it.
#ifndef SKIDPROOF_PEBS_TOLD_H_
#define SKIDPROOF_PEBS_TOLD_H_

#include <cstdint>
#include <optional>
#include <string>

#include "pebs/machine.h"

namespace skidproof {

struct ToldCache {
  uint64_t bytes = 0, ways = 0, line = 0;
  uint64_t sharing = 1;  // logical CPUs at most that share it
  std::string leaf;      // "CPUID.04H"
};
// The data or unified cache of a level. Intel: leaf 04H; AMD: leaf 8000001DH, of the same form (Intel SDM vol. 2, CPUID,
// "Deterministic Cache Parameters Leaf"; AMD APM vol. 3, appendix E, "Function 8000_001Dh"). Nothing where no leaf has it.
std::optional<ToldCache> told_cache(const Machine& machine, unsigned level);

struct ToldTlb {
  uint64_t entries = 0;
  std::string leaf;
};
// Entries of the TLB of a level (1, 2) for loads through 4 KiB pages. Intel: leaf 18H; AMD: leaves 80000005H and
// 80000006H. Nothing where no leaf has it.
std::optional<ToldTlb> told_tlb(const Machine& machine, unsigned level);

}  // namespace skidproof

#endif  // SKIDPROOF_PEBS_TOLD_H_
