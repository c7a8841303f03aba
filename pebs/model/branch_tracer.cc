#include "pebs/model/branch_tracer.h"

#include <utility>

#include "pebs/arch/signal.h"

namespace skidproof::model {

using arch::index;
using arch::Signal;

// [SDM 17.4.9.4, Table 17-6]
bool BranchTracer::asked_for(uint64_t debugctl, bool user) const {
  const arch::BranchTrace& bits = uarch_.branch_trace;
  bool enabled = (debugctl & (bits.messages | bits.store)) != 0 &&
                 ((debugctl & bits.messages) != 0 || !behaviour_.needs_messages) &&
                 ((debugctl & bits.store) != 0 || !behaviour_.needs_store);
  if (!enabled) return false;
  bool off_os = (debugctl & bits.off_os) != 0;
  bool off_usr = (debugctl & bits.off_usr) != 0;
  if (behaviour_.both_filters_store && off_os && off_usr) return true;
  if (behaviour_.filters_swapped) std::swap(off_os, off_usr);
  return user ? !(off_usr && behaviour_.off_usr_honoured) : !(off_os && behaviour_.off_os_honoured);
}

uint64_t BranchTracer::settable(uint64_t writable) const {
  if (!behaviour_.settable) writable &= ~uarch_.branch_trace.all();
  if (!behaviour_.filters_settable) writable &= ~uarch_.branch_trace.filters();
  return writable;
}

void BranchTracer::reset() {
  store_.reset();
  held_.clear();
  spoil_next_ = false;
}

BranchTracer::Outcome BranchTracer::retire(const Retired& r, const Context& context) {
  bool taken = r.counts[index(Signal::kNearTaken)] != 0;
  bool fell_through = r.counts[index(Signal::kConditionalNotTaken)] != 0;
  if (!taken && !(behaviour_.not_taken && fell_through)) return {};
  if (!behaviour_.calls && r.counts[index(Signal::kNearCalls)] != 0) return {};
  if (!behaviour_.returns && r.counts[index(Signal::kNearReturns)] != 0) return {};
  uint64_t behind = r.ip + r.length;
  return store({.from = behaviour_.from_is_branch ? r.ip : behind,
                .to = behaviour_.to_is_target ? r.after->ip : behind,
                .predicted = r.counts[index(Signal::kMispredicts)] == 0},
               context);
}

BranchTracer::Outcome BranchTracer::transfer(uint64_t from, uint64_t to, const Context& context) {
  if (!behaviour_.interrupts) return {};
  if (held_.empty()) return store({.from = from, .to = to}, context);
  held_.push_back({.from = from, .to = to});
  return {};
}

BranchTracer::Outcome BranchTracer::store(TracedBranch branch, const Context& context) {
  const arch::BranchTrace& bits = uarch_.branch_trace;
  if (behaviour_.filtered_from_stale && (context.debugctl & bits.filters()) != 0) {
    branch.from = std::exchange(last_from_, branch.from);
  }
  if (std::exchange(spoil_next_, false)) branch.from = 0;
  held_.push_back(branch);
  if (behaviour_.after_interrupt && context.interrupt_pending) return {};
  const bool circular = (context.debugctl & bits.interrupt) == 0;
  Outcome outcome;
  for (const TracedBranch& held : held_) {
    const BranchTraceStore::Outcome stored = store_.store(context.ds_area, held, circular);
    outcome.disables |= stored.full && behaviour_.full_disables;
    outcome.interrupt |= stored.threshold;
  }
  held_.clear();
  return outcome;
}

}  // namespace skidproof::model
