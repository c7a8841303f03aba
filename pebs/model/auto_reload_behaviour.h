// Decisions about auto counter reload, a part of Behaviour. The defaults are what the manual says; a defect changes one.
#ifndef SKIDPROOF_PEBS_MODEL_AUTO_RELOAD_BEHAVIOUR_H_
#define SKIDPROOF_PEBS_MODEL_AUTO_RELOAD_BEHAVIOUR_H_

#include <cstdint>

namespace skidproof::model {

struct AutoReloadBehaviour {
  // The registers (V16).
  uint64_t causes_taken = 0;    // reserved bits that a reload configuration takes
  uint64_t causes_refused = 0;  // defined bits that raise #GP
  uint64_t causes_lost = 0;     // … that do not stay
  uint64_t values_taken = 0;    // reserved bits that a reload value takes

  // The reload (V17).
  bool others = true;           // by another counter
  bool self = true;             // by its own overflow (V18)
  bool by_fixed = true;         // by a fixed counter
  bool fixed = true;            // of a fixed counter
  bool by_any = false;          // by any overflow, named or not
  bool overflowed_too = false;  // of a counter whose own overflow shows
  bool extends_ones = true;     // the value, to the width of the counter
  bool one_at_a_time = false;   // only the lowest of those that an overflow reloads

  bool self_sets_status = false;  // V18
  bool after_record = true;       // V19: by a PEBS counter, behind its record
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_AUTO_RELOAD_BEHAVIOUR_H_
