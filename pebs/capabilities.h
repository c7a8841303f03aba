// What a machine says of itself: CPUID, IA32_PERF_CAPABILITIES and IA32_MISC_ENABLE, read from it. Of
// what differs between the parts of one row, and between microcodes, this decides; the row only
// cross-checks.
#ifndef SKIDPROOF_PEBS_CAPABILITIES_H_
#define SKIDPROOF_PEBS_CAPABILITIES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/expected.h"
#include "pebs/arch/microarch.h"
#include "pebs/machine.h"

namespace skidproof {

// A data or unified cache. [SDM vol. 2A, CPUID leaf 04H]
struct Cache {
  unsigned level = 0;
  uint64_t bytes = 0;
  uint32_t line_bytes = 0;
  uint32_t ways = 0;
};

struct Capabilities {
  // IA32_PERF_CAPABILITIES, and fields of it; they are zero where the register does not answer.
  std::optional<uint64_t> perf_capabilities = {};
  unsigned lbr_format = 0;
  bool pebs_trap = false;
  unsigned pebs_format = 0;
  bool smm_freeze = false;
  bool full_width_writes = false;
  bool baseline = false;  // PEBS_BASELINE: adaptive records follow MSR_PEBS_DATA_CFG
  bool perf_metrics = false;
  bool timing_info = false;    // records have the retire latency
  bool metrics_clear = false;  // RDPMC may clear the metrics

  // IA32_MISC_ENABLE; empty where it does not answer.
  std::optional<bool> pebs_available = {};
  std::optional<bool> bts_available = {};

  // CPUID.0AH.
  unsigned perfmon_version = 0;
  unsigned gp_counters = 0, gp_width = 0;
  unsigned fixed_counters = 0, fixed_width = 0;
  uint32_t fixed_mask = 0;  // ECX, from version 5 on: bit i: fixed counter i

  // CPUID.23H: what this logical processor has, where 0AH says what all of them have in common.
  arch::ExtendedPerfmon extended = {};

  // CPUID.07H. RTM stands for both kinds of transactions.
  bool tsx = false, sgx = false, processor_trace = false;
  bool la57 = false;  // whether CR4.LA57 is set nothing here can see
  bool hybrid = false;
  arch::CoreType core_type = arch::CoreType::kUnstated;  // CPUID.1AH, on hybrid parts

  std::vector<Cache> caches = {};  // by level

  // The cache of that level; nullptr where CPUID lists none.
  const Cache* cache(unsigned level) const;
  // The last level, before memory; nullptr where CPUID lists no cache.
  const Cache* last_level_cache() const { return caches.empty() ? nullptr : &caches.back(); }
};

// Of the processor that the machine is. A register that does not exist, or a machine without a PMU,
// leaves its fields empty; other errors are those of Machine::rdmsr().
Expected<Capabilities> read_capabilities(Machine& machine);
// The same; what cannot be read for another reason is left empty, too.
Capabilities capabilities_of(Machine& machine);

// By CPUID alone, as some function answers it.
template <typename Cpuid>
arch::CoreType core_type_of(const Cpuid& cpuid) {
  if (cpuid(0, 0).eax < 0x1A || (cpuid(7, 0).edx >> 15 & 1) == 0) return arch::CoreType::kUnstated;
  switch (cpuid(0x1A, 0).eax >> 24) {
    case static_cast<uint32_t>(arch::CoreType::kCore):
      return arch::CoreType::kCore;
    case static_cast<uint32_t>(arch::CoreType::kAtom):
      return arch::CoreType::kAtom;
    default:
      return arch::CoreType::kUnstated;
  }
}

// The row with what the processor says of itself in place of its own: record format and DS layout,
// retire latency, PEBS_BASELINE, performance metrics, transactions, SGX, processor trace, the width of
// linear addresses, and what CPUID leaf 23H lists, which of 0AH is the truth. Errors:
// kUnsupported for a record format that no table describes, and where leaf 23H lists no counter at all.
Expected<arch::Microarch> as_enumerated(const arch::Microarch& row, const Capabilities& found);

// What CPUID leaves 0AH and 23H say against one another, in words: "CPUID.23H lacks fixed counter 2, which CPUID.0AH has".
// Empty where they agree: 23H lists whatever 0AH counts, and where it does not exist the version is below 6. A virtual
// machine may keep the lowest counters to itself, so which ones are listed is no contradiction, only how many.
std::vector<std::string> contradictions(const Capabilities& found);

// Where the processor and its row differ, and where its own leaves do, in words for reports: "pebs-format=4, row: 5".
std::vector<std::string> differences(const Capabilities& found, const arch::Microarch& row);

}  // namespace skidproof

#endif  // SKIDPROOF_PEBS_CAPABILITIES_H_
