// What the modelled branch trace store does, decision by decision: the part of Behaviour that only
// bts.cc, branch_tracer.cc and pmu_branches.cc ask for.
#ifndef SKIDPROOF_PEBS_MODEL_BTS_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_BTS_BEHAVIOUR_H_

#include <cstdint>

namespace skidproof::model {

// Which record raises the interrupt, relative to the one that moves the index to the threshold (B9).
enum class BranchThreshold : uint8_t { kReached, kOneEarly, kOneLate, kNever };

struct BtsBehaviour {
  // Availability and enabling.
  bool announced = true;            // IA32_MISC_ENABLE[11] is clear (B17)
  bool settable = true;             // TR, BTS and BTINT take a 1 (B17)
  bool filters_settable = true;     // BTS_OFF_OS and BTS_OFF_USR do (B16)
  bool needs_messages = true;       // TR (B1)
  bool needs_store = true;          // BTS (B1)
  bool off_os_honoured = true;      // B15
  bool off_usr_honoured = true;     // B15
  bool filters_swapped = false;     // BTS_OFF_OS keeps user branches out, and the other way round
  bool both_filters_store = false;  // B15: with both set none is stored

  // Which branches.
  bool not_taken = false;  // jumps that fall through too (B2)
  bool calls = true, returns = true;
  bool interrupts = true;    // B19
  bool beside_pebs = true;   // a branch that gave a PEBS record (B20)
  bool before_pebs = false;  // its branch record is written first (R30)
  // While an interrupt is on its way branch records wait for it (R30).
  bool after_interrupt = false;

  // What a record holds.
  bool narrow = false;               // the 12-byte form (B3)
  bool from_is_branch = true;        // B2; else the address behind the branch
  bool to_is_target = true;          // B2; else the address behind the branch
  bool from_to_swapped = false;      // B2
  bool filtered_from_stale = false;  // with a CPL filter set, from is that of the branch before
  bool predicted = true;             // B5
  bool predicted_inverted = false;
  uint32_t predicted_wrong = 0;  // one record in this many says the opposite (SKL88); 0: none

  // Outside IA-32e mode.
  bool legacy_stores = true;      // branches of 32-bit code (B1)
  bool legacy_wide = false;       // the 24-byte form without DTES64 (B4)
  bool legacy_narrow = false;     // the 12-byte form in spite of DTES64 (B3)
  bool legacy_swapped = false;    // from and to change places (B4)
  bool legacy_predicted = true;   // B5
  uint8_t legacy_index_step = 0;  // added to the record size (B7)
  bool legacy_sticks = false;     // back in IA-32e mode all is as outside it (B3)

  // The buffer.
  bool maximum_checked = true;  // B8
  // A maximum that is no whole number of records from the base may be overrun (D2): no defect.
  bool unaligned_overrun{};
  bool end_wraps = false;             // a record that crosses the end of linear memory fits (P79)
  bool record_must_fit = true;        // else a record that begins below the maximum may end past it
  uint32_t room_behind = 0;           // bytes that must stay free behind a record
  uint32_t least_records = 0;         // a buffer of fewer stores nothing (D9)
  bool index_updates = true;          // B7
  int16_t index_step = 0;             // added to the record size
  bool wraps_with_interrupt = false;  // circular although BTINT is set (B14)
  bool wraps_circular = true;         // B11
  bool wraps_at_threshold = false;    // a circular buffer ends there (B13)
  uint32_t wraps_behind_base = 0;     // bytes (B6, B11)
  bool stops_at_threshold = false;    // until the index is set back (B10)
  bool resumes_after_rewind = true;   // B14
  bool full_disables = false;         // a full buffer clears TR and BTS (B14)

  // Interrupts.
  BranchThreshold threshold = BranchThreshold::kReached;
  bool wrap_interrupts = false;  // B12
  bool freezes = true;           // B18
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_BTS_BEHAVIOUR_H_
