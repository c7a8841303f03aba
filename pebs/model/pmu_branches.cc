// From a taken branch to its record in the branch trace store, and the interrupt of its threshold.
#include <utility>

#include "pebs/arch/msr.h"
#include "pebs/model/pmu_state.h"

namespace skidproof::model {

// Whether the debug control register asks for branch records at the present privilege level.
// [SDM 17.4.9.4, Table 17-6]
bool Pmu::State::traces_branches() const {
  const BranchTrace& bits = uarch.branch_trace;
  const BtsBehaviour& bts = behaviour.bts;
  bool enabled = (debugctl & (bits.messages | bits.store)) != 0 &&
                 ((debugctl & bits.messages) != 0 || !bts.needs_messages) &&
                 ((debugctl & bits.store) != 0 || !bts.needs_store);
  if (!enabled || !stores_branches()) return false;
  bool off_os = (debugctl & bits.off_os) != 0;
  bool off_usr = (debugctl & bits.off_usr) != 0;
  if (bts.both_filters_store && off_os && off_usr) return true;
  if (bts.filters_swapped) std::swap(off_os, off_usr);
  return user ? !(off_usr && bts.off_usr_honoured) : !(off_os && bts.off_os_honoured);
}

// One instruction while branches are traced, or in SMM. Its PEBS record comes before its branch record, and an
// interrupt of either is delivered behind both (R30).
void Pmu::State::retire_unusual(const Retired& r) {
  if (smm) note_frozen_events(r);
  if (!tracing) return retire(r);
  if (behaviour.bts.before_pebs) trace(r);
  uint64_t records_before = pebs_records;
  retire(r);
  bool hidden = !behaviour.bts.beside_pebs && pebs_records != records_before;
  if (!behaviour.bts.before_pebs && !hidden) trace(r);
}

void Pmu::State::trace(const Retired& r) {
  const BtsBehaviour& bts = behaviour.bts;
  bool taken = r.counts[index(Signal::kNearTaken)] != 0;
  bool fell_through = r.counts[index(Signal::kConditionalNotTaken)] != 0;
  if (!taken && !(bts.not_taken && fell_through)) return;
  if (!bts.calls && r.counts[index(Signal::kNearCalls)] != 0) return;
  if (!bts.returns && r.counts[index(Signal::kNearReturns)] != 0) return;
  uint64_t behind = r.ip + r.length;
  store_branch({.from = bts.from_is_branch ? r.ip : behind,
                .to = bts.to_is_target ? r.after->ip : behind,
                .predicted = r.counts[index(Signal::kMispredicts)] == 0});
}

void Pmu::State::store_branch(TracedBranch branch) {
  if (behaviour.bts.filtered_from_stale && (debugctl & uarch.branch_trace.filters()) != 0) {
    branch.from = std::exchange(last_from, branch.from);
  }
  if (std::exchange(spoil_branch, false)) branch.from = 0;
  if (behaviour.bts.after_interrupt && pmi_pending) {
    held_branches.push_back(branch);
    return;
  }
  for (const TracedBranch& held : held_branches) write_branch(held);
  held_branches.clear();
  write_branch(branch);
}

void Pmu::State::write_branch(const TracedBranch& branch) {
  bool circular = (debugctl & uarch.branch_trace.interrupt) == 0;
  BranchTraceStore::Outcome outcome = branch_store.store(ds_area, branch, circular);
  if (outcome.full && behaviour.bts.full_disables) {
    debugctl &= ~(uarch.branch_trace.messages | uarch.branch_trace.store);
    refresh();
  }
  if (outcome.threshold) raise_pmi(behaviour.bts.freezes);
}

// An interrupt or exception is stored like a branch (B19).
void Pmu::State::transfer(uint64_t from, uint64_t to) {
  if (!tracing || !behaviour.bts.interrupts) return;
  if (!held_branches.empty()) {
    held_branches.push_back({.from = from, .to = to});
  } else {
    store_branch({.from = from, .to = to});
  }
}

}  // namespace skidproof::model
