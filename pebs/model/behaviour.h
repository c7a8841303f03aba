// What the modelled PMU does, decision by decision. A microarch gives the conforming values; a
// defect changes one of them. The PMU asks here and nowhere else, so it holds no generation and no
// defect.
#ifndef SKIDPROOF_PEBS_MODEL_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_BEHAVIOUR_H_

#include <array>
#include <cstdint>
#include <memory>

#include "pebs/arch/enumeration.h"
#include "pebs/arch/microarch.h"
#include "pebs/model/adaptive_behaviour.h"
#include "pebs/model/arch_pebs_behaviour.h"
#include "pebs/model/auto_reload_behaviour.h"
#include "pebs/model/bts_behaviour.h"
#include "pebs/model/core_behaviour.h"
#include "pebs/model/counting_behaviour.h"
#include "pebs/model/efficient_behaviour.h"
#include "pebs/model/enumeration_behaviour.h"
#include "pebs/model/generation_behaviour.h"
#include "pebs/model/last_branch_behaviour.h"
#include "pebs/model/mode_behaviour.h"
#include "pebs/model/rough.h"
#include "pebs/model/version6_behaviour.h"

namespace skidproof::model {

// When the index makes the assist write nothing.
enum class Bounds : uint8_t {
  kRecordMustFit,       // index + size > maximum: nothing at or past the maximum is written (R48)
  kIndexAtMaximum,      // only index >= maximum: a record may hang over the end
  kIndexEqualsMaximum,  // only index == maximum
  kIndexPastMaximum,    // only index > maximum: one record begins at the maximum
  kWordToSpare,         // a quadword more than the record must fit
  kStrictlyBelow,       // the record must end below the maximum
  kNone,                // never
};

// Which record number raises the threshold interrupt relative to the threshold record (R44, D5).
enum class ThresholdTest : uint8_t {
  kAfterUpdate,
  kBeforeUpdate,
  kOneEarly,
  kEveryRecord,
  kWhenFull,
  kEqual,             // at the threshold, not past it (D6)
  kClampedToMaximum,  // a threshold past the maximum counts as the maximum (D8)
  kFromMaximum,       // the threshold's distance is taken from the maximum (D5)
  kNotFirstRecord,    // a buffer's first record never interrupts (D7)
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

// What the upper halves of a record's fields hold outside IA-32e mode (R59).
enum class LegacyUpper : uint8_t {
  kZero,
  kLeft,  // what 64-bit code left there
  kSign,  // copies of bit 31
};

// Decisions of NetBurst's PMU alone.
struct NetBurstBehaviour {
  uint8_t answering_counters = 18;       // with their CCCRs (N1)
  uint32_t absent_escr = 0;              // one of the 45 that does not answer (N1)
  bool architectural_registers = false;  // … answer without effect (N1)
  uint8_t written_bits = 40;             // of a counter, by WRMSR (N2)
  bool write_sign_extends = false;       // as on later parts
  bool sets_ovf = true;                  // N3
  bool pmi_needs_ovf_pmi = true;         // N4
  bool needs_cccr_enable = true;         // N5
  bool needs_pebs_enable = true;         // N8: bit 25
  bool needs_uop_tag = true;             // N9: bit 24
  bool needs_matrix = true;              // N9
  bool needs_upstream = true;            // N10: the ESCR that tags
  uint32_t precise_counters = 1u << 16;  // N7: IQ_COUNTER4
  bool legacy_layout = true;             // N13: outside IA-32e mode
  bool long_layout = true;               // N13: in IA-32e mode
  bool later_debugctl = false;           // N17: the bits of IA32_DEBUGCTL
  // A write of a counter for which an event is selected carries into the upper bits, unless the write
  // before it was of the same counter (erratum N15).
  bool first_write_carries = false;
  bool late_state = false;  // the record holds the state after the instruction behind (R6)
};

// When a counter stays armed after its record, so that its next event gives another one: a record
// for which nothing overflowed.
enum class Redundant : uint8_t {
  kNever,
  kNowAndThen,           // for one record in eight
  kPdirNotAlone,         // PDIR while another counter does PEBS
  kLoadLatencyNotAlone,  // load latency while another counter does PEBS
  kLowSixBits,           // PDIR unless the low six bits of the period are 0
  kShortCycles,          // INV and CMASK with a period below 1000
};

// When the interrupt of an overflow (INT) is raised, if PEBS is about.
enum class OverflowInterrupt : uint8_t {
  kAfterOwnAssist,  // of a PEBS counter: after its assist and the threshold interrupt (R34)
  kAtOnce,
  kAfterAnyAssist,  // also of a counter without PEBS: once some PEBS counter has recorded
  kWithThreshold,   // as kAfterOwnAssist, and one interrupt for both
};

struct Behaviour {
  NetBurstBehaviour netburst;
  CountingBehaviour counting;         // registers and plain counting
  CoreBehaviour core;                 // fusion
  AdaptiveBehaviour adaptive;         // adaptive records and the counters that came with them
  GenerationBehaviour generation;     // what later generations add
  EfficientBehaviour efficient;       // what E-cores do
  BtsBehaviour bts;                   // the branch trace store
  LastBranchBehaviour last_branches;  // the LBR stack
  ModeBehaviour modes;                // SMM, machine checks, INIT, RESET
  EnumerationBehaviour enumeration;   // CPUID
  ExtendedLeafBehaviour extended;     // … leaf 23H
  AutoReloadBehaviour auto_reload;    // auto counter reload
  ArchPebsBehaviour arch_pebs;        // architectural PEBS
  Version6Behaviour version6;         // architectural version 6, record format 6
  Rough rough;                        // what nothing promises; no defect stands there

  // A field here and in the parts above that has no value of its own gets it from the row: behaviour_of().

  // Counters and their MSRs.
  bool legacy_write_sign_extends = true;  // R38
  bool legacy_write_takes_edx = false;    // EDX is ignored (R38)
  uint8_t legacy_extends_to = 64;         // bits, or to the counter's width if that is less (R38)
  uint8_t full_width_bits{};              // of IA32_A_PMCx (R38)
  bool full_width_sign_extends = false;   // as a legacy write does (R38)
  bool excess_bits_fault = true;          // IA32_A_PMCx, IA32_FIXED_CTRx above their width
  bool reserved_bits_fault = true;        // event selects and control registers
  bool absent_counters_fault = true;      // R37: PMC4–7 and their selects
  bool absent_global_bits_fault = true;   // R37: bits 7:4 of GLOBAL_CTRL and OVF_CTRL
  bool status_write_faults = true;        // GLOBAL_STATUS is read-only
  uint32_t lost_events = 0;               // one event in this many is not counted; 0: none
  bool privilege_filters = true;          // USR and OS select what is counted
  bool pebs_privilege_filters = true;     // … of a PEBS counter
  bool enable_needs_global = true;        // GLOBAL_CTRL AND EN
  uint8_t answering_counters = 8;         // of those that CPUID reports, how many answer
  uint8_t running_counters = 8;           // … and how many count
  uint8_t answering_fixed{};              // of the fixed counters
  bool counter_lists_hold = true;         // an event counts where it is published only (P18)
  bool fixed_counters_swapped = false;    // 0 counts cycles, 1 instructions (M18)
  bool lvt_status_read_only = true;       // delivery status (M26)
  bool pebs_announced = true;             // IA32_MISC_ENABLE[12] clear (M25)
  uint64_t hidden_capabilities = 0;       // bits missing from IA32_PERF_CAPABILITIES (M5)

  // Status.
  bool overflow_sets_status = true;         // R4
  bool pebs_overflow_sets_status = true;    // R18: armed, not yet triggered, it shows 1
  bool record_clears_status = true;         // R17
  bool record_clears_all_status = false;    // also of counters that are not PEBS-enabled
  bool ovf_ctrl_clears = true;              // write 1 to clear
  bool ovf_ctrl_clears_all = false;         // whatever is written
  bool ovf_buffer_clears = true;            // R22: by bit 62
  bool ovf_buffer_sticky = true;            // R22: stays until cleared
  bool threshold_sets_ovf_buffer = true;    // R21
  bool ovf_buffer_needs_freeze = false;     // only with FREEZE_PERFMON_ON_PMI
  bool interrupt_sets_ovf_buffer = false;   // R21: every interrupt does
  bool delivery_clears_ovf_buffer = false;  // the handler finds no reason (R55)

  // Arming and triggering.
  uint32_t extra_events = 0;  // events between arming and record beyond R2's one
  uint32_t late_armings = 0;  // one overflow in this many is recorded an event later; 0: none
  uint32_t lost_armings = 0;  // one overflow in this many arms nothing (R1); 0: none
  uint64_t least_period = 0;  // an overflow after fewer events arms nothing (R40, R41)
  Redundant redundant = Redundant::kNever;
  bool qualified_cycles = false;         // INV with CMASK samples cycles, which nothing promises
  bool arming_survives_disable = false;  // R39
  bool record_at_disable = false;        // R39: what is armed records when it is stopped
  bool toggling_loses_overflow = false;  // the first one after PEBS_ENABLE was 0 and set again
  bool record_on_overflow = false;       // ordinary events recorded at N instead of N+1 (R2)
  bool record_without_event = false;     // the record comes with the next instruction (R3)
  bool pebs_without_enable = false;      // records although PEBS_EN_PMCn is clear
  uint16_t pebs_counters{};              // R36
  uint8_t ignored_qualifiers = 0;  // arch::kQualifier… bits that do not invalidate PEBS (R33)

  // What is recorded.
  uint8_t fused_pair_skid{};     // R12
  int8_t skid_instructions = 1;  // 0: the eventing instruction itself; 2: one too many
  uint32_t skid_jitter = 0;      // one record in this many lies one instruction further; 0: none
  uint8_t one_level_skid = 0;    // more for a memory event with OS or USR alone
  uint8_t fused_extra_skid = 0;  // more instructions after a fused pair
  uint8_t shadow_skid = 0;       // more behind MOV SS and STI (AAJ128)
  bool taken_branch_ip_is_target = true;          // R9
  bool registers_after = true;                    // R5: state after the instruction
  std::array<uint8_t, arch::kGprs> gpr_source{};  // which register goes into each slot
  bool flags_recorded = true;
  bool status_before_assist = true;    // R16
  bool status_all_counters = true;     // R16: whether PEBS-enabled or not
  bool status_fixed_counters = true;   // R16, R23
  bool status_of_lowest_only = false;  // of several that trigger together (R26)
  uint8_t data_address_bits = 64;      // of the data linear address
  uint8_t record_alignment = 1;        // records are written at a multiple of it (D1)

  // PDIR, precise store, load latency.
  uint16_t pdir_counters{};                // Table 18-31
  uint16_t precise_store_counters{};       // Table 18-31
  bool precise_store_needs_enable = true;  // PS_EN
  int8_t precise_store_lag = 0;            // −1: address of the store before
  bool precise_store_address = true;
  bool precise_store_status = true;  // L1 hit, STLB miss, lock bits
  bool precise_store_status_inverted = false;
  bool precise_store_zero_latency = true;  // A8H written 0
  bool load_latency_threshold = true;      // only above MSR_PEBS_LD_LAT_THRESHOLD
  bool load_latency_source = true;
  uint8_t load_latency_source_offset = 0;  // added to the encoding of Table 18-24 (P13)
  bool load_latency_status_bits = true;    // STLB miss and lock (P14)
  bool load_latency_value = true;          // A8H (P17)
  bool load_latency_needs_core = false;    // none while a sibling thread shares the core
  int8_t load_latency_lag = 0;             // −1: address of the load before
  bool load_latency_needs_enable = true;   // LL_EN_PMCn (P10)
  bool load_latency_wants_cmask = false;   // P15: works with CMASK 0
  bool load_latency_elsewhere = false;     // on every PEBS counter, without a latency there (P16)
  bool pdir_needs_pmc0 = false;            // PEBS_ENABLE[0] too (P6)
  bool pdir_with_freeze = true;            // works with FREEZE_PERFMON_ON_PMI
  bool pdir_event_at_once = false;         // armed without a wait on counters without PDIR (P5)
  uint64_t pdir_least_period = 0;          // as least_period, for PDIR

  // Outside IA-32e mode (R59).
  bool legacy_mode_records = true;
  bool legacy_mode_sticks = false;  // back in IA-32e mode records are still those of 32-bit code
  LegacyUpper legacy_gpr_upper = LegacyUpper::kZero;
  LegacyUpper legacy_flags_upper = LegacyUpper::kZero;
  LegacyUpper legacy_ip_upper = LegacyUpper::kZero;
  LegacyUpper legacy_address_upper = LegacyUpper::kZero;  // of the data linear address
  bool legacy_absent_registers_zero = true;               // R8 to R15

  // The DS area.
  Bounds bounds = Bounds::kRecordMustFit;
  bool end_wraps = false;               // a record that crosses the end of linear memory fits (P79)
  bool latched = false;                 // base, maximum and threshold are read once (R42)
  bool lower_bound = true;              // index below base is out of bounds
  bool low_index_to_base = false;       // … and is set to the base (R47)
  bool low_index_reloads = false;       // … and the skipped event reloads (D14)
  bool skip_reloads = false;            // R46: a skipped event reloads nothing
  bool skip_clears_status = false;      // R46
  bool skip_clears_all_status = false;  // of counters without PEBS too (D16)
  bool skip_clears_count = false;       // D15: it counts on
  bool skip_moves_index = false;        // D11
  bool skip_interrupts = false;         // D13
  bool full_sets_ovf_buffer{};          // R45, D12
  bool full_interrupts = false;         // R45: no PMI for a full buffer
  bool full_clears_ovf_buffer = false;  // D12, R22
  bool wraps_when_full = false;         // R47a: not circular
  bool wraps_at_threshold = false;      // D13a
  bool resumes_after_rewind = true;     // R49
  int16_t index_step = 0;               // added to the record size in the index update
  bool index_updates = true;

  // Reload.
  Reload reload = Reload::kOverflowed;  // R19
  int8_t reload_slot_offset = 0;        // slot of counter (n + offset) mod 4
  bool reload_single_slot = false;      // counter 0's for all (P2)
  bool reload_zero = false;
  bool reload_skips_zero = false;       // a slot of zero is not loaded (R20)
  bool reload_needs_status = false;     // only with the status bit still set (R24)
  bool reload_without_record = false;   // of counters whose event PEBS does not take (P4)
  uint8_t reload_low_bits_dropped = 0;  // of the slot (R41)
  int64_t reload_bias = 0;              // added to the slot's value
  bool reload_truncates_32 = false;     // only 32 bits of the slot are used

  // Interrupts.
  ThresholdTest threshold = ThresholdTest::kAfterUpdate;
  bool lvt_mask_honoured = true;
  bool delivery_masks_lvt = true;                                             // R51
  bool overflow_interrupts = true;                                            // INT of a counter
  OverflowInterrupt overflow_interrupt = OverflowInterrupt::kAfterOwnAssist;  // R34, R27
  bool threshold_interrupts_at_arming = false;  // R28: before the assist
  bool interrupt_repeats = false;               // the threshold's comes twice
  bool pebs_overflow_interrupts =
      false;                         // a PMI for each PEBS overflow although INT is clear (R35)
  bool freeze_clears_global_ctrl{};  // R52, architectural version 2–3
  bool freeze_always = false;        // without DEBUGCTL[12]
  uint32_t interrupts_before_freeze = 0;  // R53: the freeze is not left out

  // A defect that shows rarely: in this share of the overflows. In the others the PMU does as
  // `otherwise` says, which is empty where it always shows.
  double share = 1;
  std::shared_ptr<const Behaviour> otherwise;
};

// CPUID leaf 23H as this processor answers it.
arch::CpuidLeaf extended_leaf(const arch::Microarch& microarch,
                              const ExtendedLeafBehaviour& behaviour, uint32_t subleaf);

// The conforming behaviour of a microarch, with these choices where nothing is promised.
Behaviour behaviour_of(const arch::Microarch& microarch, const Rough& rough = {});

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_BEHAVIOUR_H_
