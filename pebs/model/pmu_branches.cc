// Branches among what retires, and what becomes of the PMU when their records fill the buffer.
#include "pebs/arch/msr.h"
#include "pebs/model/pmu_state.h"

namespace skidproof::model {

// One instruction while branches are traced, or in SMM. Its PEBS record comes before its branch record, and an
// interrupt of either is delivered behind both (R30).
void Pmu::State::retire_unusual(const Retired& r) {
  if (modes.smm) note_frozen_events(r);
  if (!tracing) return retire(r);
  if (behaviour.bts.before_pebs) trace(r);
  uint64_t records_before = pebs_records;
  retire(r);
  bool hidden = !behaviour.bts.beside_pebs && pebs_records != records_before;
  if (!behaviour.bts.before_pebs && !hidden) trace(r);
}

void Pmu::State::trace(const Retired& r) { traced(tracer.retire(r, trace_context())); }

// An interrupt or exception is stored like a branch (B19).
void Pmu::State::transfer(uint64_t from, uint64_t to) {
  if (tracing) traced(tracer.transfer(from, to, trace_context()));
}

void Pmu::State::traced(const BranchTracer::Outcome& outcome) {
  if (outcome.disables) {
    debugctl &= ~(uarch.branch_trace.messages | uarch.branch_trace.store);
    refresh();
  }
  if (outcome.interrupt) raise_pmi(behaviour.bts.freezes);
}

}  // namespace skidproof::model
