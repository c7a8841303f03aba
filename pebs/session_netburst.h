// How a session programmes NetBurst's PMU: ESCRs, CCCRs and tags out of its plan. Private to session.cc.
#ifndef SKIDPROOF_PEBS_SESSION_NETBURST_H_
#define SKIDPROOF_PEBS_SESSION_NETBURST_H_

#include <cstdint>
#include <vector>

#include "pebs/session.h"

namespace skidproof {

// Every register that a session with this plan changes, beside those of the DS area.
std::vector<uint32_t> netburst_registers(const SessionPlan& plan);
// Ends counting, and forgets what is tagged.
std::vector<MsrWrite> netburst_stop(const SessionPlan& plan);
// Selects the events, nothing enabled.
std::vector<MsrWrite> netburst_select(const SessionPlan& plan);
// What starts and ends a run, what its handler does, and what is read behind it. `values` are the
// counters' start values.
void netburst_run(const SessionPlan& plan, const std::vector<uint64_t>& values, bool restart,
                  RunPlan& run);
// The results out of what was read.
void netburst_results(const SessionPlan& plan, const std::vector<uint64_t>& read,
                      SessionRun& result);

}  // namespace skidproof

#endif  // SKIDPROOF_PEBS_SESSION_NETBURST_H_
