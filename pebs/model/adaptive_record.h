// An adaptive record as bytes (formats 4 to 6).
#ifndef SKIDPROOF_PEBS_MODEL_ADAPTIVE_RECORD_H_
#define SKIDPROOF_PEBS_MODEL_ADAPTIVE_RECORD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pebs/arch/microarch.h"
#include "pebs/model/assist.h"
#include "pebs/model/behaviour.h"
#include "pebs/model/branch_ring.h"
#include "pebs/model/retired.h"

namespace skidproof::model {

// The counters as they stand at a record.
struct CounterSnapshot {
  std::array<uint64_t, 16> gp{};
  std::array<uint64_t, 8> fixed{};
  uint64_t metrics = 0;
};

struct AdaptiveInput {
  uint64_t config = 0;    // MSR_PEBS_DATA_CFG
  bool adaptive = false;  // a counter of the record has its Adaptive bit
  const Registers* registers = nullptr;
  const VectorRegisters* vectors = nullptr;  // nullptr: the engine has none
  const BranchRing* branches = nullptr;
  const CounterSnapshot* counters = nullptr;  // nullptr: no record has them
};

// The record of `data`: the basic group, and the selected groups behind it. Written group by group from
// the sources' words, not by the table that reads it back. [Linux 6.12 asm/perf_event.h struct
// pebs_basic, pebs_meminfo, pebs_gprs, pebs_xmm, lbr_entry; SDM Vol. 3 (325384-089) Table 21-103 "Counters Group"]
std::vector<std::byte> adaptive_record(const arch::Microarch& microarch, const Behaviour& behaviour,
                                       const RecordData& data, const AdaptiveInput& input);

struct ArchitecturalInput {
  uint64_t groups = 0;  // in the positions of IA32_PMC_GPn_CFG_C
  bool mode64 = true;   // 64-bit code
  arch::adaptive::SnapshotVectors counters = {};
  const CounterSnapshot* now = nullptr;
  const Registers* registers = nullptr;
  const VectorRegisters* vectors = nullptr;  // nullptr: the engine has none
  const BranchRing* branches = nullptr;
  uint64_t branch_control = 0;  // MSR_ARCH_LBR_CTL
};

// The record of architectural PEBS, in one fragment of whole units. Written group by group, too. [Linux,
// arch/x86/include/asm/perf_event.h, struct arch_pebs_…, as posted in "arch-PEBS enabling for Intel platforms" v9]
std::vector<std::byte> architectural_record(const Behaviour& behaviour, const RecordData& data,
                                            const ArchitecturalInput& input);

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_ADAPTIVE_RECORD_H_
