// A row with another list of Intel's than the one that it was built with.
#ifndef SKIDPROOF_PEBS_ARCH_PERFMON_RENEWED_H_
#define SKIDPROOF_PEBS_ARCH_PERFMON_RENEWED_H_

#include <memory>

#include "base/expected.h"
#include "pebs/arch/microarch.h"
#include "pebs/arch/perfmon/reader.h"

namespace skidproof::arch::perfmon {

// The row, or the variant of one, with this list's events and its own where those apply. What it points to lives as long as
// it does. kInvalidArgument: Intel publishes no list of it, or the list contradicts the row (consistency.h).
Expected<std::shared_ptr<const Microarch>> renewed(const Microarch& row, ReadList list);

}  // namespace skidproof::arch::perfmon

#endif  // SKIDPROOF_PEBS_ARCH_PERFMON_RENEWED_H_
