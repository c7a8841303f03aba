// What the modelled PMU does where generations add to the record or to the control registers: record
// formats 2 and 3, DataLA, architectural version 4.
#ifndef SKIDPROOF_PEBS_MODEL_GENERATION_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_GENERATION_BEHAVIOUR_H_

#include <cstdint>

namespace skidproof::model {

// What stands in the record where the sampled instruction's IP belongs (R8).
enum class EventingIp : uint8_t {
  kSampled,
  kNext,    // the instruction after it, as at 08H
  kBefore,  // the one that retired before it
  kZero,
  kBeforeNotTaken,    // the one before it, where it is a conditional jump that falls through
  kNowAndThenBefore,  // the one before it, in one record of eight
};

// Which counters 90H of format 3 names (G5).
enum class Applicable : uint8_t {
  kRepresented,  // the PEBS counters whose overflow the record represents
  kOverflowed,   // every counter that overflowed, as format 2's status does
  kLowest,       // of several the lowest
  kNone,
};

enum class TimeStamp : uint8_t {
  kRetirement,  // the TSC when the record is taken
  kZero,
  kFirst,      // of the first record, ever after
  kBehind,     // a thousand ticks later
  kSinceLast,  // the ticks since the record before
};

struct GenerationBehaviour {
  // Formats 0 to 3.
  int8_t record_bytes_more = 0;  // than the format has (G1)

  // Formats 2 and 3.
  bool transaction_before_ip = false;  // EventingIP and transaction information change places (G1)
  EventingIp eventing_ip = EventingIp::kSampled;
  uint64_t tx_information = 0;  // outside transactions (G2)
  Applicable applicable = Applicable::kRepresented;
  TimeStamp time_stamp = TimeStamp::kRetirement;

  // DataLA (G3, G4).
  bool data_address = true;
  int16_t data_address_offset = 0;
  bool store_status = true;
  bool store_status_inverted = false;
  bool data_zero_latency = true;

  // Version 4.
  bool streamlined_freeze{};           // a freeze sets CTR_Frz and leaves GLOBAL_CTRL (R52)
  bool frozen_counters_stop = true;    // G9
  bool status_reset_unfreezes = true;  // G9
  bool status_set_sets = true;         // G7
  uint64_t status_set_reserved = 0;    // reserved bits of IA32_PERF_GLOBAL_STATUS_SET that it takes
  uint64_t status_set_refused = 0;     // defined bits of it that raise #GP (SKL51)
  uint64_t in_use_hidden = 0;          // bits missing from IA32_PERF_GLOBAL_INUSE (G8)
  bool in_use_needs_enable = false;    // a select shows only while its EN is set (G8)
  bool in_use_read_only = true;        // G8
  uint64_t frontend_reserved = 0;      // reserved bits of MSR_PEBS_FRONTEND that it takes (G10)
  bool in_txcp_everywhere = false;     // G11: IN_TXCP on every select
  bool in_tx_filters = true;           // G11: IN_TX counts inside transactions only
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_GENERATION_BEHAVIOUR_H_
