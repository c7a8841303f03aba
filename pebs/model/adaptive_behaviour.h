// Decisions about adaptive records and what came with them (PEBS on every counter, fixed counters,
// PDist, store samples, retire latency), a part of Behaviour. The defaults are what the sources say;
// a defect changes one.
#ifndef SKIDPROOF_PEBS_MODEL_ADAPTIVE_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_ADAPTIVE_BEHAVIOUR_H_

#include <array>
#include <cstdint>

namespace skidproof::model {

// The optional groups of a record.
enum class Group : uint8_t { kMemory, kGprs, kXmm, kBranches };

// What the groups of a record depend on (A4).
enum class AdaptiveBit : uint8_t {
  kOwn,      // the Adaptive bit of its counter
  kIgnored,  // MSR_PEBS_DATA_CFG alone
  kDead,     // nothing: the record is always the basic group
};

// Where fixed counter i finds its reset value (A15).
enum class FixedReset : uint8_t {
  kOwn,          // the slot of the row's layout
  kGp,           // the slot of IA32_PMCi
  kOtherFormat,  // where the other adaptive format has it
  kFirst,        // the slot of fixed counter 0
  kNone,         // not reloaded
};

struct AdaptiveBehaviour {
  // The basic group.
  bool counters_before_ip = false;  // the applicable counters and the IP change places (A1)
  bool basic_padded = false;        // it has a quadword more (A1)

  // The record.
  AdaptiveBit gp_bit = AdaptiveBit::kOwn;                                                      // A4
  AdaptiveBit fixed_bit = AdaptiveBit::kOwn;                                                   // A4
  std::array<Group, 4> order = {Group::kMemory, Group::kGprs, Group::kXmm, Group::kBranches};  // A3
  int16_t size_bias = 0;                // added to the size in the header (A2)
  bool size_of_basic_only = false;      // the size in the header leaves out the groups (A2)
  bool names_groups = true;             // A2
  bool names_selected_groups = false;   // those of DATA_CFG, recorded or not (A2)
  bool index_by_size = true;            // the index moves by the record's own size (A5)
  bool bounds_by_size = true;           // the bounds check is of the record's own size (A5)
  bool applicable_all_enabled = false;  // every counter enabled for PEBS (A6)
  uint8_t applicable_fixed_shift = 32;  // fixed counter i shows in bit shift + i (A6)
  bool next_ip_in_gprs = true;          // the register group holds the one after it (A8)
  bool gprs_in_old_order = false;       // as in the fixed formats (A8)
  bool xmm_recorded = true;             // A9
  bool xmm_upper_half = true;           // A9
  uint8_t xmm_shift = 0;                // slot n holds register n + shift (A9)
  bool branches_newest_first = true;    // A10
  uint8_t branches_missing = 0;         // entries fewer than selected (A10)
  bool branches_swapped = false;        // from and to (A10)
  bool branches_not_taken = false;      // branches that fell through are entries, too (A10)
  bool branch_mispredict = true;        // A10
  bool branch_cycles = true;            // A10

  // The memory group.
  // Which of address, data source, latency and transaction information stands where (A11).
  std::array<uint8_t, 4> memory_order = {0, 1, 2, 3};
  bool cache_latency = true;            // A12
  bool latency_halves_swapped = false;  // A12

  // Retire latency (R63).
  bool retire_latency = true;
  bool retire_latency_unannounced = false;  // … also without IA32_PERF_CAPABILITIES[17]
  uint32_t retire_latency_most = 0xFFFF;    // where it saturates
  bool retire_latency_wraps = false;        // … instead of saturating
  uint8_t retire_latency_scale = 1;

  // Counters.
  bool fixed_pebs = true;                     // A14
  bool fixed_enable_refused = false;          // A14
  FixedReset fixed_reset = FixedReset::kOwn;  // A15
  bool fixed_status_clears = true;            // with the record (A16)
  uint8_t pdir_fixed{};                       // mask of fixed counters (A17)
  uint16_t pdist_counters{};                  // R62
  bool pdist_on_fixed_next{};        // PDIR++: the event after the overflow, without a shadow (R62)
  uint8_t pdist_on_fixed_lag = 0;    // so many instructions behind the next
  uint16_t store_sample_counters{};  // A18
  bool store_sample_address = true;  // A18
  bool store_sample_latency = true;  // A18
  bool store_sample_source = true;   // A18
  bool load_latency_needs_enable = false;  // IA32_PEBS_ENABLE[32 + n] as on older rows (A19)
  bool any_event{};                        // R61

  // Registers.
  bool data_cfg_answers = true;  // A13
  bool metrics_answer = true;    // A20
  bool metrics_by_rdpmc = true;  // A20
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_ADAPTIVE_BEHAVIOUR_H_
