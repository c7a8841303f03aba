// What holds between the events of a row and its other facts, from whatever list they come.
#ifndef SKIDPROOF_PEBS_ARCH_CONSISTENCY_H_
#define SKIDPROOF_PEBS_ARCH_CONSISTENCY_H_

#include "base/expected.h"
#include "pebs/arch/microarch.h"

namespace skidproof::arch {

// kInvalidArgument with the event and what is wrong with it: it counts, or is sampled, on a counter that the row does not
// have; it stands there twice; a facility is elsewhere than the row says; an architectural event is not there.
Expected<void> consistent(const Microarch& row);

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_CONSISTENCY_H_
