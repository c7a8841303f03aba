// Decisions about architectural version 6 and PEBS record format 6, a part of Behaviour. The defaults are what the manual
// says; a defect changes one.
#ifndef SKIDPROOF_PEBS_MODEL_VERSION6_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_VERSION6_BEHAVIOUR_H_

#include <cstdint>

namespace skidproof::model {

// What CPUID leaf 23H says otherwise than the row; the PMU behind it does as the row says.
struct ExtendedLeafBehaviour {
  bool announced = true;             // CPUID.07H.01H:EAX[8] (V1)
  uint32_t wrong_gp = 0;             // bits of 23H.01H:EAX that say the opposite (V2)
  uint32_t wrong_fixed = 0;          // … of 23H.01H:EBX (V2)
  uint32_t wrong_subleaves = 0;      // … of 23H.00H:EAX (V1)
  bool all_counters_in_0ah = false;  // CPUID.0AH:EAX[15:8] goes beyond eight (V3)
  uint8_t slots_more = 0;            // added to 23H.00H:ECX (V7)
  // Architectural PEBS: bits of 23H.04H:EBX and of 23H.05H that say the opposite (X1, X2).
  uint32_t wrong_pebs_groups = 0;
  uint32_t wrong_pebs_gp = 0, wrong_pdist_gp = 0, wrong_pebs_fixed = 0, wrong_pdist_fixed = 0;
};

struct Version6Behaviour {
  // The bank of registers at 1900H.
  bool counters_answer = true;              // V4
  bool counter_write_sign_extends = false;  // V4: as a legacy write
  bool counter_write_lost = false;          // V4: the counter of CPUID.0AH does not change
  bool select_write_lost = false;           // V4
  bool fixed_write_lost = false;            // V4
  bool legacy_beyond = false;  // V3: counters that 23H alone lists answer at legacy addresses, too
  uint32_t dead_counters = 0;  // V2: listed, and never count
  uint32_t silent_status = 0;  // V2: … or overflow without a status bit

  // IA32_PERFEVTSELx.
  bool umask2_selects = true;        // V5
  bool equal_compares = true;        // V6
  bool equal_inverts_zero = false;   // V6: with INV cycles without an event are counted, too
  bool equal_without_cmask = false;  // V6: EQ does something where CMASK is 0

  // RDPMC of the metrics (V7).
  bool rdpmc_clears = true;
  bool rdpmc_clears_always = false;  // with METRICS_CLEAR_EN clear
  bool rdpmc_clears_base = true;     // fixed counter 3

  bool older_sources = false;  // V15: the data source as the cores before encode it

  // The group of counters in a record.
  bool snapshot_before_branches = false;     // V9
  bool snapshot_fixed_first = false;         // V9: the values
  bool snapshot_vectors_swapped = false;     // V9
  bool snapshot_descending = false;          // V9
  bool snapshot_every_counter = false;       // V8: whatever is included
  bool snapshot_after_reload = false;        // V10: values behind the reload
  bool snapshot_truncates = false;           // V10: 32 bits of each
  bool snapshot_without_adaptive = false;    // V8: in a basic record
  bool metrics_need_include = true;          // V11
  bool metrics_before_base = false;          // V11
  bool metrics_one_vector_bit = false;       // V11
  bool metrics_cleared = true;               // V12
  bool metrics_base_cleared = true;          // V12
  bool metrics_cleared_by_counters = false;  // V12: also where only the counters are recorded
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_VERSION6_BEHAVIOUR_H_
