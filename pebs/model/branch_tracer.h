// From a retired branch to its record in the branch trace store: which branches the debug control
// register asks for, and what of a record's way there a defect changes.
#ifndef SKIDPROOF_PEBS_MODEL_BRANCH_TRACER_H_
#define SKIDPROOF_PEBS_MODEL_BRANCH_TRACER_H_

#include <cstdint>
#include <vector>

#include "base/mode.h"
#include "pebs/arch/microarch.h"
#include "pebs/model/bts.h"
#include "pebs/model/bts_behaviour.h"
#include "pebs/model/pmu.h"
#include "pebs/model/retired.h"

namespace skidproof::model {

class BranchTracer {
 public:
  // The row and the decisions must outlive the tracer.
  BranchTracer(Bus& bus, const arch::Microarch& microarch, const BtsBehaviour& behaviour)
      : uarch_(microarch), behaviour_(behaviour), store_(bus, microarch, behaviour) {}

  // What the processor's registers say when a branch retires.
  struct Context {
    uint64_t ds_area = 0;
    uint64_t debugctl = 0;
    bool interrupt_pending = false;
  };
  struct Outcome {
    bool interrupt = false;  // the threshold's is due
    bool disables = false;   // a full buffer clears TR and BTS
  };

  // Whether the debug control register asks for records of this privilege level's branches.
  bool asked_for(uint64_t debugctl, bool user) const;
  // The bits of the debug control register that can be set. (B16, B17)
  uint64_t settable(uint64_t writable) const;
  void set_mode(Mode mode) { store_.set_mode(mode); }

  // While asked_for(): an instruction has retired; control went somewhere without a branch (B19).
  Outcome retire(const Retired& r, const Context& context);
  Outcome transfer(uint64_t from, uint64_t to, const Context& context);

  void spoil_next() { spoil_next_ = true; }  // from of the next record is invalid
  void reset();

 private:
  Outcome store(TracedBranch branch, const Context& context);

  const arch::Microarch& uarch_;
  const BtsBehaviour& behaviour_;
  BranchTraceStore store_;
  bool spoil_next_ = false;
  uint64_t last_from_ = 0;          // of the branch before, kept only for a defect
  std::vector<TracedBranch> held_;  // that wait for an interrupt, under a defect
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_BRANCH_TRACER_H_
