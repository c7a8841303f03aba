// Defects: broken CPUs, each one deliberate deviation of the model from one clause.
#ifndef SKIDPROOF_PEBS_MODEL_DEFECTS_H_
#define SKIDPROOF_PEBS_MODEL_DEFECTS_H_

#include <span>
#include <string>
#include <string_view>

#include "base/expected.h"
#include "pebs/arch/clause.h"
#include "pebs/arch/microarch.h"
#include "pebs/model/behaviour.h"

namespace skidproof::model {

// The promises that every defect and suite is grouped by, and the ground that they stand on.
enum class Promise : uint8_t {
  kSkid,
  kPdir,
  kPreciseStore,
  kReset,
  kThreshold,
  kQualifiers,
  kBranchTrace,
  kModes,
  kTiming,
  kGround
};
std::string_view name_of(Promise promise);

struct Defect {
  std::string_view id;     // "skid-one-too-many": what --defect takes
  std::string_view brief;  // what the broken CPU does
  Promise promise;
  const Clause* clause;  // the one that it breaks
  // nullptr: to every microarch with architectural performance monitoring.
  bool (*applies)(const arch::Microarch&);
  void (*break_it)(Behaviour&);

  bool applies_to(const arch::Microarch& microarch) const {
    return applies == nullptr ? microarch.architectural_perfmon() : applies(microarch);
  }
};

std::span<const Defect> defects();
// By id; an unknown one is an error that names near ids.
Expected<const Defect*> find_defect(std::string_view id);
// A defect as it is played: always, or in this share of the overflows.
struct PlayedDefect {
  const Defect* defect = nullptr;
  double share = 1;
};
// "reset-never", or "reset-never@0.01": rarely.
Expected<PlayedDefect> parse_defect(std::string_view words);
// The behaviour of a microarch with these defects, and these choices where nothing is promised;
// kInvalidArgument for a defect that does not apply to it, and for two that show rarely: one at a time.
Expected<Behaviour> behaviour_with(const arch::Microarch& microarch,
                                   std::span<const std::string> ids, const Rough& rough = {});

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_DEFECTS_H_
