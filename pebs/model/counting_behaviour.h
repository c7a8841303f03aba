// Decisions about registers and plain counting, a part of Behaviour. The defaults are what the
// manual says of every microarch; a defect changes one.
#ifndef SKIDPROOF_PEBS_MODEL_COUNTING_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_COUNTING_BEHAVIOUR_H_

#include <cstdint>

#include "pebs/arch/signal.h"

namespace skidproof::model {

// Bits of one register. The first of several (IA32_PERFEVTSEL0, IA32_PMC0) stands for them all.
struct RegisterBits {
  uint32_t msr = 0;  // 0: none
  uint64_t bits = 0;
};

// What a counter with AnyThread adds up (M36).
enum class AnyThread : uint8_t {
  kBoth,     // this logical processor and its sibling
  kOwn,      // this one alone, as if the bit were clear
  kSibling,  // the sibling alone
  kHalf,     // half of what the two do
};

// An encoding that counts something else.
struct Substitution {
  uint16_t select = 0;                        // code | umask << 8; 0: none
  arch::Signal signal = arch::Signal::kNone;  // kNone: it counts nothing
};

// A signal that is counted as another, whatever selects it.
struct Mistake {
  arch::Signal event = arch::Signal::kNone;  // kNone: none is
  arch::Signal counts = arch::Signal::kNone;
};

struct CountingBehaviour {
  // Registers.
  RegisterBits lax;                   // reserved bits that are taken
  RegisterBits lost;                  // defined bits that do not stay
  RegisterBits refused;               // defined bits that raise #GP
  bool read_only_misc_enable = true;  // M25
  bool upper_aliases = true;          // IA32_A_PMC4-7 answer where there are eight counters (M7)
  bool fixed_sign_extends = false;    // M19
  uint8_t counter_bits = 64;          // a general-purpose counter wraps here at the latest (M33)
  uint64_t invented_capabilities =
      0;                             // undefined bits of IA32_PERF_CAPABILITIES that are set (M46)
  bool needs_magic_selects = false;  // counts only after the sequence of erratum AAK100
  bool upper_selects_misread = false;  // RDMSR of selects 4 to 7 gives that four below (BV80)

  // Status.
  uint8_t gp_status_offset = 0;              // counter n shows in bit n + offset (M35)
  uint8_t fixed_status_shift = 32;           // fixed counter i shows in bit shift + i (M35)
  uint64_t ovf_ctrl_deaf = 0;                // bits that OVF_CTRL takes and does not clear (M15)
  bool ovf_ctrl_clears_next = false;         // and the bit above each that it clears (M15)
  bool select_write_clears_status = false;   // M40
  bool counter_write_clears_status = false;  // M40
  bool disabling_clears_status = false;      // M40
  bool enabling_clears_status = false;       // of counters without PEBS (M34)

  // Enables.
  bool own_enable_needed = true;        // EN (M31)
  bool global_ctrl_crossed = false;     // bit n enables counter n ^ 1 (M41)
  bool fixed_needs_global = true;       // M41
  bool fixed_privilege_filters = true;  // M42
  bool fixed_fields_shared = false;     // the field of fixed counter 0 governs all (M42)
  bool privilege_swapped = false;       // USR counts at level 0, OS above (M27)
  bool selects_shared = false;          // IA32_PMC1 counts what IA32_PERFEVTSEL0 selects (M13)
  bool interrupts_without_int = false;  // M30
  bool fixed_interrupts_without_pmi = false;  // M30
  bool interrupts_twice = false;              // each PMI is delivered again (HSD91)
  // With the freeze and beside a sibling the PMI of fixed counter 0 comes again (AAJ125).
  bool fixed_zero_interrupts_twice = false;
  // With the freeze an overflow close behind another fixed counter's is forgotten (AAJ148).
  bool close_fixed_overflows_lost = false;
  // The status of an overflow just before GLOBAL_CTRL is cleared cannot be cleared (AAJ143).
  bool late_status_sticks = false;
  // A write of fixed counter 2 interrupts if it stood just below its overflow (BJ77).
  bool large_fixed_two_interrupts = false;
  uint16_t never_frozen = 0;         // counters that CTR_FRZ does not stop (SKL90)
  uint16_t upper_usr_only_dead = 0;  // counters that stand still with USR alone (BDM126)

  // What is counted.
  Substitution substitute;         // M47
  Mistake mistake;                 // M49
  uint32_t fixed_lost_events = 0;  // fixed counter 0 misses one in this many (HSD140)
  bool slots = true;               // fixed counter 3 counts (A21)
  uint32_t fixed_start_extra =
      0;                      // what fixed counter 0 gains when enabled beside a sibling (HSD143)
  uint32_t extra_events = 0;  // a counter gains one for each so many; 0: none
  uint32_t far_loads_lost_percent = 0;  // of loads counted as L3 hits and misses (HSD25, BDM124)
  bool cpuid_is_branch = false;         // for C4H with umasks 00H and 01H (W146)
  bool fence_is_store = false;          // MFENCE and WRMSR are, for 0BH/02H (AAJ86)
  bool locked_l2_hits_lost = false;     // locked loads (HSD76)
  uint32_t lost_at_privilege = 0;       // instructions not counted after a change of level (SKL117)
  uint32_t reference_clock_percent = 100;  // of the TSC's rate (W145)
  uint16_t sibling_leaks = 0;              // selects' code, D0H-D3H: bit n is code D0H + n (BJ122)

  // Edge, CMASK, INV.
  bool edge_counts_levels = false;    // M28
  bool edge_ignored = false;          // M28
  uint8_t cmask_offset = 0;           // added to a CMASK that is not 0 (M29)
  bool cmask_ignored = false;         // M29
  bool invert_ignored = false;        // M29
  bool invert_without_cmask = false;  // INV with CMASK 0 counts the cycles without an event (M29)
  bool invert_overcounts_one_level = false;  // with one of USR and OS INV counts twice (HSD73)

  // AnyThread.
  AnyThread any_thread = AnyThread::kBoth;
  AnyThread any_thread_one_level = AnyThread::kBoth;  // with one of USR and OS (BDM62)
  bool any_thread_always = false;  // the sibling is counted with the bit clear, too
  bool any_thread_on_fixed = true;

  // RDPMC.
  bool rdpmc_fixed = true;         // bit 30 of the index selects fixed counters (M32)
  uint8_t rdpmc_bits = 64;         // of the counter that are returned (M32)
  bool rdpmc_index_faults = true;  // M32
  bool rdpmc_needs_pce = true;     // M37

  // UOPS_RETIRED.MACRO_FUSED and its like.
  bool macro_fused_counts_jumps = false;  // R71
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_COUNTING_BEHAVIOUR_H_
