// Branches among what retires: the branch trace store, with what becomes of the PMU when its buffer is full, and
// the LBR stack.
#include <utility>

#include "pebs/arch/last_branches.h"
#include "pebs/arch/msr.h"
#include "pebs/model/general_protection.h"
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

// --- The LBR stack. [SDM 17.4.8 "LBR Stack"]

// Of MSR_LBR_SELECT the privilege filters take effect; those of branch types are kept and do nothing, and
// MSR_ARCH_LBR_CTL's neither.
bool Pmu::State::records_branches() const {
  if (uarch.last_branches.depth == 0 || (global_status & status::kLbrFrozen) != 0) return false;
  if (uarch.architectural_lbr()) {
    const uint64_t level = user ? lbr_ctl::kUsr : lbr_ctl::kOs;
    return (lbr_ctl & lbr_ctl::kEnable) != 0 && (lbr_ctl & level) != 0;
  }
  const uint64_t kept_out = user ? lbr_select::kNotAboveRing0 : lbr_select::kNotAtRing0;
  return (debugctl & debugctl::kLbr) != 0 && (lbr_select & kept_out) == 0;
}

void Pmu::State::note_branch(const Retired& r) {
  const bool taken = r.counts[index(Signal::kNearTaken)] != 0;
  const bool any = behaviour.adaptive.branches_not_taken && r.counts[index(Signal::kBranches)] != 0;
  if (!taken && !any) return;
  const uint32_t lost = behaviour.last_branches.lost;
  if (lost != 0 && ++branches_seen % lost == 0) return;
  branches.add(r.ip, r.after->ip, r.counts[index(Signal::kMispredicts)] != 0, r.cycle);
}

// Before architectural version 4 by clearing LBR, from then on by LBR_Frz. [SDM 17.4.7 "Freezing LBR and
// Performance Counters on PMI"]
void Pmu::State::freeze_last_branches() {
  if ((debugctl & debugctl::kFreezeLbrsOnPmi) == 0 || !behaviour.last_branches.freezes) return;
  if (uarch.streamlined_freeze()) {
    global_status |= status::kLbrFrozen;
  } else {
    debugctl &= ~debugctl::kLbr;
  }
  refresh();
}

// Erratum AM94: with the overflow whose record will interrupt, of this counter.
void Pmu::State::freeze_last_branches_early(unsigned n) {
  DebugStore ds = store_now();
  if (!counters[n].pebs || !ds.load()) return;
  if (uarch.architectural_pebs()) ds.expect(architectural_bytes(bit(n)));
  if (adaptive(bit(n))) ds.expect(adaptive::configured_bytes(pebs_data_cfg));
  if (ds.room() && ds.next_reaches_threshold()) freeze_last_branches();
}

namespace {

// Which register of a row of them, or -1.
int place_in(uint32_t msr, uint32_t first, unsigned entries) {
  return first != 0 && msr >= first && msr - first < entries ? static_cast<int>(msr - first) : -1;
}

// From LBR_FMT 3 on, and without registers for it, bit 63 of from says that the branch was mispredicted. [SDM
// 17.4.8.1 "LBR Stack and Intel 64 Processors"]
bool flags_in_from(const Microarch& m) { return m.lbr_format >= 3 && m.last_branches.info == 0; }

// LBR_FMT 6: bits 63:48 of to are the cycles since the entry before. [SDM 089 Table 19-7]
bool cycles_in_to(const Microarch& m) { return m.lbr_format == 6; }

}  // namespace

Expected<uint64_t> Pmu::State::read_last_branch(uint32_t msr) const {
  const LastBranches& stack = uarch.last_branches;
  if (stack.tos != 0 && msr == stack.tos) {
    return (branches.newest() + stack.depth - behaviour.last_branches.tos_behind) % stack.depth;
  }
  if (stack.filters != 0 && msr == stack.filters) return lbr_select;
  const auto entry = [&](int n) {
    const auto at = static_cast<unsigned>(n);
    LastBranch found =
        branches.back(stack.tos == 0 ? at : (branches.newest() + stack.depth - at) % stack.depth);
    if (behaviour.last_branches.swapped) std::swap(found.from, found.to);
    return found;
  };
  if (int n = place_in(msr, stack.from, stack.depth); n >= 0) {
    const LastBranch found = entry(n);
    if (!flags_in_from(uarch)) return found.from;
    return (found.from & ~branch_info::kMispredicted) | (found.info & branch_info::kMispredicted);
  }
  if (int n = place_in(msr, stack.to, stack.depth); n >= 0) {
    const LastBranch found = entry(n);
    if (!cycles_in_to(uarch)) return found.to;
    return (found.to & low_bits(48)) | (found.info & branch_info::kMostCycles) << 48;
  }
  if (int n = place_in(msr, stack.info, stack.depth); n >= 0) return entry(n).info;
  return refused_read(msr);
}

Expected<void> Pmu::State::write_last_branch(uint32_t msr, uint64_t value) {
  const LastBranches& stack = uarch.last_branches;
  if (stack.tos != 0 && msr == stack.tos) {
    branches.set_newest(static_cast<unsigned>(value % stack.depth));
    return {};
  }
  if (stack.filters != 0 && msr == stack.filters) {
    // EN_CALLSTACK came with LBR_FMT 4. [SDM 17.8 "… Processors Based on Haswell Microarchitecture"]
    if (!checked(value, low_bits(uarch.lbr_format >= 4 ? 10 : 9))) return refused_write(msr, value);
    lbr_select = value;
    refresh();
    return {};
  }
  const auto entry = [&](int n) -> LastBranch& {
    const auto at = static_cast<unsigned>(n);
    return branches.at_back(stack.tos == 0 ? at
                                           : (branches.newest() + stack.depth - at) % stack.depth);
  };
  if (int n = place_in(msr, stack.from, stack.depth); n >= 0) {
    entry(n).from = value;
  } else if (n = place_in(msr, stack.to, stack.depth); n >= 0) {
    entry(n).to = value;
  } else if (n = place_in(msr, stack.info, stack.depth); n >= 0) {
    entry(n).info = value;
  } else {
    return refused_write(msr, value);
  }
  return {};
}

}  // namespace skidproof::model
