#include "pebs/model/counter.h"

namespace skidproof::model {

using namespace arch;

void CycleFilter::configure(uint64_t select) {
  *this = CycleFilter{};
  cmask_ = static_cast<uint8_t>((select & evtsel::kCmask) >> evtsel::kCmaskShift);
  invert_ = (select & evtsel::kInvert) != 0 && cmask_ != 0;  // INV is ignored while CMASK is 0
  edge_ = (select & evtsel::kEdge) != 0;
  used_ = cmask_ != 0 || edge_;
}

bool CycleFilter::asserted(uint64_t events) const {
  if (cmask_ == 0) return events > 0;
  return invert_ ? events < cmask_ : events >= cmask_;
}

uint64_t CycleFilter::feed(uint64_t cycle, uint64_t events) {
  if (!started_) {
    started_ = true;
    cycle_ = cycle;
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
  return gain;
}

}  // namespace skidproof::model
