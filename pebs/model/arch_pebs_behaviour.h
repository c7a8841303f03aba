// Decisions about architectural PEBS, a part of Behaviour. The defaults are what the sources say, and where none does what the
// model chose; a defect changes one.
#ifndef SKIDPROOF_PEBS_MODEL_ARCH_PEBS_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_ARCH_PEBS_BEHAVIOUR_H_

#include <cstdint>

namespace skidproof::model {

struct ArchPebsBehaviour {
  // Registers.
  uint64_t base_lost = 0;               // defined bits of IA32_PEBS_BASE that do not stay (X3)
  uint64_t index_lost = 0;              // … of IA32_PEBS_INDEX (X4)
  uint64_t config_refused = 0;          // defined bits of CFG_C that raise #GP (X2)
  uint64_t config_lost = 0;             // … that do not stay (X2)
  uint32_t deaf_counters = 0;           // listed, and CFG_C of them enables nothing (X2)
  bool older_registers_answer = false;  // IA32_PEBS_ENABLE and MSR_PEBS_DATA_CFG (X10)

  // The buffer (X3, X4).
  uint8_t write_shift = 0;          // WR counts 16 << shift bytes
  uint8_t threshold_shift = 0;      // THRESH counts 16 >> shift bytes
  uint8_t size_scale = 1;           // the buffer is so many times as long as SIZE says
  bool index_enable_needed = true;  // EN
  bool full_stops = true;           // FULL: nothing more is recorded (X11)

  // The threshold (X5).
  bool threshold_interrupts = true;
  bool threshold_sets_own_bit = true;      // bit 54
  bool threshold_sets_ovf_buffer = false;  // bit 62
  bool threshold_sets_trace_bit = false;   // bit 55 instead of 54

  // The record (X6 to X9).
  bool reload_extends_ones = true;       // X8
  bool groups_of_all = false;            // those of every enabled counter (X6)
  bool groups_of_lowest = false;         // those of the lowest enabled counter (X6)
  uint64_t groups_missing = 0;           // that are selected and neither recorded nor named (X6)
  bool allow_ignored = false;            // X7: every counter is recorded
  bool allow_own_only = false;           // X7: only the counters of the record
  bool allow_needs_enable = false;       // X7: only counters that do PEBS
  bool snapshot_after_reload = false;    // X7
  bool header_size_less = false;         // by the header (X9)
  bool continued_always = false;         // X9
  bool flags_behind_ip = false;          // they change places in the group of registers (X9)
  bool xer_without_header = false;       // X9
  bool branches_without_header = false;  // X9
  bool counters_behind_ip = true;        // the applicable counters, in the basic group (X9)
  bool retire_valid = true;              // X9
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_ARCH_PEBS_BEHAVIOUR_H_
