// One general-purpose counter: its value, what its event select means, and its PEBS state.
#ifndef SKIDPROOF_PEBS_MODEL_COUNTER_H_
#define SKIDPROOF_PEBS_MODEL_COUNTER_H_

#include <cstdint>

#include "pebs/arch/event.h"
#include "pebs/arch/msr.h"
#include "pebs/model/counting_behaviour.h"
#include "pebs/model/retired.h"
#include "pebs/model/version6_behaviour.h"

namespace skidproof::model {

// A value that counts up and wraps at its width.
struct CountRegister {
  uint64_t value = 0;
  uint64_t mask = 0;

  // True when the addition went from all-ones to 0 or beyond (R1).
  bool add(uint64_t n) {
    uint64_t before = value;
    value = (value + n) & mask;
    return n > mask - before;
  }
  // How many instructions, each adding at most `most`, surely leave it below the overflow.
  uint64_t quiet(uint64_t most) const { return most == 0 ? UINT64_MAX : (mask - value) / most; }
};

// CMASK, INV, Edge and EQ: events of one cycle compared with a mask. [SDM 18.2.1.1; Vol. 3 (325384-089) 21.2.6.3]
class CycleFilter {
 public:
  void configure(uint64_t select, const CountingBehaviour& behaviour = {},
                 const Version6Behaviour& behaviour6 = {});
  bool used() const { return used_; }
  // Closes the cycles before `cycle`, then notes this instruction's events in it; returns what the
  // filtered counter gains. `spent`: cycles that the instruction took, which the first one that is
  // fed brings with it.
  uint64_t feed(uint64_t cycle, uint64_t events, uint64_t spent = 0);

 private:
  bool asserted(uint64_t events) const;

  bool used_ = false;
  bool invert_ = false, edge_ = false, equal_ = false;
  bool inverts_zero_ = false;  // EQ with INV counts the cycles without an event, too
  uint32_t cmask_ = 0;
  uint64_t weight_ = 1;  // of a cycle
  bool level_ = false;   // the condition in the last closed cycle
  uint64_t cycle_ = 0;   // the open cycle
  uint64_t events_ = 0;  // in it
  bool started_ = false;
};

struct Counter {
  CountRegister count;
  uint64_t select = 0;  // IA32_PERFEVTSELn

  // What the select and the control registers make of it; recomputed whenever one changes.
  const arch::Event* event = nullptr;  // what the row knows by …
  uint32_t event_code = UINT32_MAX;    // … these bits 47:40 and 15:0 of a select
  bool counting = false;
  arch::Signal signal = arch::Signal::kNone;
  bool load_latency = false;   // counts tagged loads above the threshold
  bool any_thread = false;     // … and the sibling's events
  bool pebs = false;           // an overflow arms PEBS
  bool pdir = false;           // records the overflowing event itself
  bool shadowless = false;     // armed at once (reduced skid)
  bool precise_store = false;  // records the next store's data
  bool any_event = false;      // sampled although it is not precise (R61)
  bool store_sample = false;   // records a store's address and latency
  bool data_address = false;   // records the address of the access (DataLA)
  bool store_status = false;   // … and of a store whether it hit the L1
  CycleFilter filter;
  uint64_t since_extra = 0;  // … that a miscounting CPU counted twice
  uint64_t since_loss = 0;   // events since the last one that a miscounting CPU lost
  uint64_t start = 0;        // the value last written or loaded: −period

  // PEBS between overflow and record.
  bool armed = false;
  uint64_t ready_cycle = 0;   // armed from this cycle on
  uint32_t events_to_go = 0;  // qualifying events to let pass first
  uint32_t armings = 0;       // overflows so far, for a CPU that arms wrongly
  bool redundant = false;     // armed again by its own record

  void load(uint64_t value) { count.value = start = value & count.mask; }
  uint64_t period() const { return (uint64_t{0} - start) & count.mask; }
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_COUNTER_H_
