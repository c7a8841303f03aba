// NetBurst's PMU: 18 counters that CCCRs and ESCRs select for, at-retirement events, and PEBS on one
// of them. What it has in common with the later PMU, the DS area, the record and the branch trace
// store, is shared.
#ifndef SKIDPROOF_PEBS_MODEL_NETBURST_H_
#define SKIDPROOF_PEBS_MODEL_NETBURST_H_

#include <array>
#include <cstdint>
#include <utility>

#include "base/expected.h"
#include "base/mode.h"
#include "base/random.h"
#include "pebs/arch/microarch.h"
#include "pebs/arch/netburst.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/assist.h"
#include "pebs/model/behaviour.h"
#include "pebs/model/branch_tracer.h"
#include "pebs/model/counter.h"
#include "pebs/model/mode_behaviour.h"
#include "pebs/model/pmu.h"
#include "pebs/model/retired.h"

namespace skidproof::model {

// The same interface as Pmu, which see. The processor is logical processor 0 of its core.
//
// Not modelled: counters with COMPARE, EDGE, FORCE_OVF or CASCADE set do not count.
class NetBurst {
 public:
  NetBurst(const arch::Microarch& microarch, Bus& bus, const Behaviour& behaviour, uint64_t seed);

  Expected<uint64_t> rdmsr(uint32_t msr) const;
  Expected<void> wrmsr(uint32_t msr, uint64_t value);
  Expected<uint64_t> rdpmc(uint32_t index, bool user, bool cr4_pce) const;
  void set_mode(Mode mode);
  void set_user(bool user);
  void reset();
  void init();
  void enter_smm();
  void leave_smm();
  void machine_check();
  void retire(const Retired& r);
  void retire_write(const Retired& r);
  void advance(const arch::SignalCounts& counts, uint64_t instructions);
  uint64_t quiet_instructions(uint64_t most_uops) const;
  bool take_interrupt();
  bool interrupt_pending() const { return pmi_pending_; }
  uint64_t take_stall() { return std::exchange(stall_, 0); }
  void transfer(uint64_t from, uint64_t to);
  bool active() const { return counting_ != 0 || pmi_pending_ || tracing_; }

 private:
  struct Slot {
    CountRegister count;
    uint64_t cccr = 0;
    const arch::netburst::Metric* metric = nullptr;  // what the registers select; null: nothing
    bool pebs = false;
    bool armed = false;
    uint64_t ready_cycle = 0;
    uint64_t since_loss = 0;
  };

  void clear();
  Expected<void> write(uint32_t msr, uint64_t value);
  void refresh();
  const arch::netburst::Metric* selected(unsigned n) const;
  bool tagged(const arch::netburst::Metric& metric, unsigned n) const;
  bool present(int n) const { return n >= 0 && n < behaviour_.netburst.answering_counters; }
  bool has_escr(uint32_t msr) const {
    return arch::netburst::is_escr(msr) && msr != behaviour_.netburst.absent_escr;
  }
  bool selects(uint64_t escr, unsigned event, unsigned mask) const;
  uint64_t escr(uint32_t msr) const { return escrs_[msr - kFirstEscr]; }
  uint64_t noticed(Slot& slot, uint64_t events) const;
  void overflowed(unsigned n, const Retired& r);
  void count(const Retired& r);
  void traced(const BranchTracer::Outcome& outcome);
  void stop_branches();
  // Whether the DS area has quadwords.
  bool wide() const {
    return ia32e_ ? behaviour_.netburst.long_layout : !behaviour_.netburst.legacy_layout;
  }
  void record(const Retired& r);
  Registers recorded_registers(const Retired& r);
  void raise_pmi();
  bool available() const;

  static constexpr uint32_t kFirstEscr = 0x3A0;

  // The row, and the row as DS area and record are outside IA-32e mode.
  arch::Microarch uarch_, legacy_;
  Bus& bus_;
  Behaviour behaviour_;
  Random random_;

  std::array<Slot, arch::netburst::kCounters> slots_;
  std::array<uint64_t, 0x42> escrs_{};  // by address from 3A0H; not all of them exist
  uint64_t pebs_enable_ = 0, matrix_ = 0, precise_event_ = 0, ds_area_ = 0, debugctl_ = 0;
  LatchedBounds latched_;
  uint64_t lvt_pmi_ = arch::kResetLvt;
  bool user_ = false, ia32e_ = true;
  RecordingModes modes_;
  BranchTracer tracer_;
  bool tracing_ = false;  // taken branches are stored

  uint32_t counting_ = 0, armed_ = 0;  // bits by counter number
  uint32_t started_ = 0;               // by the last write of a register
  uint32_t last_written_ = 0;          // its MSR, kept only for a defect
  unsigned wait_ = 0;                  // instructions until a late record is written
  Registers before_;                   // the next instruction
  bool reloaded_once_ = false;
  uint32_t records_ = 0;  // written since the model was made
  uint64_t stall_ = 0;    // cycles of records that the core model does not know of yet
  bool pmi_pending_ = false;
  uint64_t pmi_countdown_ = 0;
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_NETBURST_H_
