// What the suites of adaptive records share.
#ifndef SKIDPROOF_SUITES_ADAPTIVE_H_
#define SKIDPROOF_SUITES_ADAPTIVE_H_

#include <cstdint>

#include "pebs/arch/architectural_record.h"
#include "pebs/arch/microarch.h"
#include "pebs/arch/record_layout.h"
#include "pebs/session.h"

namespace skidproof::suites {

inline constexpr char kNoAdaptiveRecords[] = "records are not adaptive";
inline constexpr char kNoFixedPebs[] = "no PEBS on fixed counters";

// MSR_PEBS_DATA_CFG for these groups; `entries` of the branch group.
constexpr uint64_t data_config(uint64_t groups, unsigned entries = 1) {
  const uint64_t more = groups & arch::adaptive::kBranches ? entries - 1 : 0;
  return groups | more << arch::adaptive::kBranchEntriesShift;
}
inline constexpr uint64_t kWithRegisters = arch::adaptive::kMemory | arch::adaptive::kGprs;

inline constexpr char kNoSuchBranches[] = "no record has so many branches";
// Whether a record can have so many: of architectural PEBS 8, 16, or as many as the depth.
inline bool records_branches(const arch::Microarch& microarch, unsigned entries) {
  const unsigned depth = microarch.last_branches.depth;
  return microarch.pebs_baseline ||
         (microarch.architectural_pebs() && arch::architectural::branch_field(entries, depth) != 0);
}

// The fixed counter of the precise distribution.
inline unsigned fixed_pdir(const arch::Microarch& microarch) {
  return static_cast<unsigned>(__builtin_ctz(microarch.pdir_fixed_counter));
}

}  // namespace skidproof::suites

#endif  // SKIDPROOF_SUITES_ADAPTIVE_H_
