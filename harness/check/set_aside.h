// For tests of many short runs, each of which can be left out.
#ifndef SKIDPROOF_HARNESS_CHECK_SET_ASIDE_H_
#define SKIDPROOF_HARNESS_CHECK_SET_ASIDE_H_

#include "pebs/machine.h"

namespace skidproof::check {

// Whether something from outside disturbed a run; if so, the test says with this that it throws away what the run
// brought, and the run disturbs the test's outcome no longer. The row counts it as "runs-set-aside".
bool set_aside(const RunLog& log);

}  // namespace skidproof::check

#endif  // SKIDPROOF_HARNESS_CHECK_SET_ASIDE_H_
