#include "pebs/model/counter.h"

namespace skidproof::model {

using namespace arch;

void CycleFilter::configure(uint64_t select, const CountingBehaviour& behaviour,
                            const Version6Behaviour& behaviour6) {
  *this = CycleFilter{};
  cmask_ = static_cast<uint32_t>((select & evtsel::kCmask) >> evtsel::kCmaskShift);
  if (behaviour.cmask_ignored) cmask_ = 0;
  if (behaviour.invert_without_cmask && cmask_ == 0 && (select & evtsel::kInvert) != 0) cmask_ = 1;
  if (cmask_ != 0) cmask_ += behaviour.cmask_offset;
  // INV is ignored while CMASK is 0.
  invert_ = (select & evtsel::kInvert) != 0 && cmask_ != 0 && !behaviour.invert_ignored;
  // EQ, too, but on a broken CPU.
  const bool equal = (select & evtsel::kEqual) != 0;
  if (equal && cmask_ == 0 && behaviour6.equal_without_cmask) cmask_ = 1;
  equal_ = equal && cmask_ != 0 && behaviour6.equal_compares;
  inverts_zero_ = behaviour6.equal_inverts_zero;
  edge_ = (select & evtsel::kEdge) != 0 && !behaviour.edge_ignored;
  used_ = cmask_ != 0 || edge_;
  if (behaviour.edge_counts_levels) edge_ = false;
  if (behaviour.invert_overcounts_one_level) {
    bool one_level = ((select & evtsel::kUsr) != 0) != ((select & evtsel::kOs) != 0);
    if (invert_ && one_level) weight_ = 2;
  }
}

bool CycleFilter::asserted(uint64_t events) const {
  if (cmask_ == 0) return events > 0;
  if (equal_) return invert_ ? events < cmask_ && (events != 0 || inverts_zero_) : events == cmask_;
  return invert_ ? events < cmask_ : events >= cmask_;
}

uint64_t CycleFilter::feed(uint64_t cycle, uint64_t events, uint64_t spent) {
  if (!started_) {
    started_ = true;
    cycle_ = cycle - spent;
  }
  uint64_t gain = 0;
  if (cycle > cycle_) {
    bool closing = asserted(events_);
    gain += edge_ ? (closing && !level_) : closing;
    level_ = closing;
    uint64_t idle = cycle - cycle_ - 1;  // cycles in which nothing retired
    if (idle > 0) {
      bool quiet = asserted(0);
      gain += edge_ ? (quiet && !level_) : (quiet ? idle : 0);
      level_ = quiet;
    }
    cycle_ = cycle;
    events_ = 0;
  }
  events_ += events;
  return gain * weight_;
}

}  // namespace skidproof::model
