// What the modelled PMU does on E-cores, from Goldmont on: reduced skid, an index outside the buffer, the word that tells of
// an access. A part of Behaviour; the defaults are what the sources say, and a defect changes one.
#ifndef SKIDPROOF_PEBS_MODEL_EFFICIENT_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_EFFICIENT_BEHAVIOUR_H_

#include <cstdint>

#include "pebs/arch/data_source.h"

namespace skidproof::model {

// Which index sets OvfBuffer beside that at the threshold (D14).
enum class OutOfBounds : uint8_t {
  kBelowAndAbove,
  kBelow,  // the base alone
  kAbove,  // the maximum alone
};

struct EfficientBehaviour {
  uint16_t reduced_skid_counters{};       // E1, E2
  uint16_t reduced_skid_at_once = 0;      // PMCn that records the overflowing event instead
  bool reduced_skid_event_later = false;  // the second event behind the overflow
  OutOfBounds out_of_bounds = OutOfBounds::kBelowAndAbove;  // D14
  bool out_of_bounds_sets_ovf = true;                       // D14
  bool out_of_bounds_clears = true;       // … and clears the status of the applicable counters,
  bool out_of_bounds_clears_all = false;  // and of no others,
  bool out_of_bounds_reloads = false;     // and loads none
  bool data_address_before = false;       // 98H holds the access before (E4)
  bool applicable_fixed = true;           // fixed records name fixed counters (E3)
  arch::AccessInfo load_info;             // E6
  arch::AccessInfo store_info;            // E6
  uint64_t always_told = 0;               // bits of that word that are always set (E6)
  uint8_t reserved_source = 0;            // instead of that of memory (E7)
  uint16_t load_latency_deaf = 0;         // PMCn that records none (E5)
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_EFFICIENT_BEHAVIOUR_H_
