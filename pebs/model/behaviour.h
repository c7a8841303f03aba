// What the modelled PMU does, decision by decision. A microarch gives the conforming values; a
// defect changes one of them. The PMU asks here and nowhere else, so it holds no generation and no
// defect.
#ifndef SKIDPROOF_PEBS_MODEL_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_BEHAVIOUR_H_

#include <array>
#include <cstdint>

#include "pebs/arch/microarch.h"
#include "pebs/model/bts_behaviour.h"
#include "pebs/model/mode_behaviour.h"

namespace skidproof::model {

// When the index makes the assist write nothing.
enum class Bounds : uint8_t {
  kRecordMustFit,   // index + size > maximum: nothing at or past the maximum is written (R48)
  kIndexAtMaximum,  // only index >= maximum: a record may hang over the end
  kNone,            // never
};

// Which record number raises the threshold interrupt relative to the threshold record (R44, D5).
enum class ThresholdTest : uint8_t {
  kAfterUpdate,
  kBeforeUpdate,
  kOneEarly,
  kEveryRecord,
  kWhenFull,
  kNever
};

enum class Reload : uint8_t {
  kOverflowed,  // every counter that overflowed and is PEBS-enabled (R19)
  kNone,
  kOnlyOnce,       // after the first record only
  kEnabled,        // every PEBS-enabled counter, overflowed or not
  kAnyOverflowed,  // every overflowed counter, PEBS-enabled or not
  kLowestOnly,     // only the lowest-numbered of several
};

struct Behaviour {
  BtsBehaviour bts;
  ModeBehaviour modes;

  // Counters and their MSRs.
  bool legacy_write_sign_extends = true;  // R38
  bool legacy_write_takes_edx = false;    // EDX is ignored (R38)
  uint8_t full_width_bits = 48;           // of IA32_A_PMCx (R38)
  bool excess_bits_fault = true;          // IA32_A_PMCx, IA32_FIXED_CTRx above their width
  bool reserved_bits_fault = true;        // event selects and control registers
  bool absent_counters_fault = true;      // R37: PMC4–7 and their selects
  bool absent_global_bits_fault = true;   // R37: bits 7:4 of GLOBAL_CTRL and OVF_CTRL
  bool status_write_faults = true;        // GLOBAL_STATUS is read-only
  uint32_t lost_events = 0;               // one event in this many is not counted; 0: none
  bool privilege_filters = true;          // USR and OS select what is counted
  bool enable_needs_global = true;        // GLOBAL_CTRL AND EN
  uint8_t answering_counters = 8;         // of those that CPUID reports, how many answer
  uint8_t running_counters = 8;           // … and how many count
  uint8_t answering_fixed = 3;            // of the fixed counters
  bool fixed_counters_swapped = false;    // 0 counts cycles, 1 instructions (M18)
  bool lvt_status_read_only = true;       // delivery status (M26)
  bool pebs_announced = true;             // IA32_MISC_ENABLE[12] clear (M25)
  uint64_t hidden_capabilities = 0;       // bits missing from IA32_PERF_CAPABILITIES (M5)

  // Status.
  bool overflow_sets_status = true;       // R4
  bool record_clears_status = true;       // R17
  bool record_clears_all_status = false;  // also of counters that are not PEBS-enabled
  bool ovf_ctrl_clears = true;            // write 1 to clear
  bool ovf_ctrl_clears_all = false;       // whatever is written
  bool ovf_buffer_clears = true;          // R22: by bit 62
  bool ovf_buffer_sticky = true;          // R22: stays until cleared
  bool threshold_sets_ovf_buffer = true;  // R21

  // Arming and triggering.
  // Cycles from overflow until PEBS is armed. No document gives a figure; that there is such a time
  // is what makes the shadow of R15. The model's own choice.
  uint32_t arm_cycles = 8;
  uint32_t extra_events = 0;          // events between arming and record beyond R2's one
  bool record_on_overflow = false;    // ordinary events recorded at N instead of N+1 (R2)
  bool record_without_event = false;  // the record comes with the next instruction (R3)
  bool pebs_without_enable = false;   // records although PEBS_EN_PMCn is clear
  uint16_t pebs_counters = 0x0F;      // R36
  uint8_t ignored_qualifiers = 0;     // arch::kQualifier… bits that do not invalidate PEBS (R33)

  // What is recorded.
  uint8_t fused_pair_skid = 2;   // R12
  int8_t skid_instructions = 1;  // 0: the eventing instruction itself; 2: one too many
  uint32_t skid_jitter = 0;      // one record in this many lies one instruction further; 0: none
  uint8_t fused_extra_skid = 0;  // more instructions after a fused pair
  bool taken_branch_ip_is_target = true;          // R9
  bool registers_after = true;                    // R5: state after the instruction
  std::array<uint8_t, arch::kGprs> gpr_source{};  // which register goes into each slot
  bool flags_recorded = true;
  bool status_before_assist = true;  // R16
  bool status_all_counters = true;   // R16: whether PEBS-enabled or not

  // PDIR, precise store, load latency.
  uint16_t pdir_counters = 0;              // Table 18-31
  uint16_t precise_store_counters = 0;     // Table 18-31
  bool precise_store_needs_enable = true;  // PS_EN
  int8_t precise_store_lag = 0;            // −1: address of the store before
  bool precise_store_address = true;
  bool precise_store_status = true;  // L1 hit, STLB miss, lock bits
  bool precise_store_status_inverted = false;
  bool precise_store_zero_latency = true;  // A8H written 0
  bool load_latency_threshold = true;      // only above MSR_PEBS_LD_LAT_THRESHOLD
  bool load_latency_source = true;

  // The DS area.
  Bounds bounds = Bounds::kRecordMustFit;
  bool lower_bound = true;           // index below base is out of bounds
  bool skip_reloads = false;         // R46: a skipped event reloads nothing
  bool skip_clears_status = false;   // R46
  bool full_sets_ovf_buffer = true;  // R45, D12
  bool full_interrupts = false;      // R45: no PMI for a full buffer
  bool wraps_when_full = false;      // R47a: not circular
  bool resumes_after_rewind = true;  // R49
  int16_t index_step = 0;            // added to the record size in the index update
  bool index_updates = true;

  // Reload.
  Reload reload = Reload::kOverflowed;  // R19
  int8_t reload_slot_offset = 0;        // slot of counter (n + offset) mod 4
  bool reload_zero = false;
  int64_t reload_bias = 0;           // added to the slot's value
  bool reload_truncates_32 = false;  // only 32 bits of the slot are used

  // Interrupts.
  ThresholdTest threshold = ThresholdTest::kAfterUpdate;
  bool lvt_mask_honoured = true;
  bool delivery_masks_lvt = true;   // R51
  bool overflow_interrupts = true;  // INT of a counter
  bool pebs_overflow_interrupts =
      false;  // a PMI for each PEBS overflow although INT is clear (R35)
  bool freeze_clears_global_ctrl = true;  // R52, architectural version 2–3
  bool freeze_always = false;             // without DEBUGCTL[12]
  // Instructions between raising and delivery, uniform; the model's own choice. Late, never early.
  uint32_t pmi_skid_low = 12;
  uint32_t pmi_skid_high = 48;
};

// The conforming behaviour of a microarch.
Behaviour behaviour_of(const arch::Microarch& microarch);

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_BEHAVIOUR_H_
