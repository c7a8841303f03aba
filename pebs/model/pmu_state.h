// The state behind Pmu, shared by the files that together are the model: pmu.cc (what the registers
// mean, counting, interrupts), pmu_registers.cc (MSRs), pmu_sampling.cc (arming, assist, reload),
// pmu_branches.cc (branch trace store), pmu_modes.cc (SMM, machine check, INIT, RESET).
// Nobody else includes it.
#ifndef SKIDPROOF_PEBS_MODEL_PMU_STATE_H_
#define SKIDPROOF_PEBS_MODEL_PMU_STATE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/expected.h"
#include "base/random.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/assist.h"
#include "pebs/model/behaviour.h"
#include "pebs/model/bts.h"
#include "pebs/model/counter.h"
#include "pebs/model/pmu.h"
#include "pebs/model/retired.h"

namespace skidproof::model {

using namespace arch;

inline constexpr unsigned kMaxCounters = 8;
inline constexpr unsigned kMaxFixed = 3;

inline constexpr Signal kFixedSignals[kMaxFixed] = {Signal::kInstructions, Signal::kCycles,
                                                    Signal::kReferenceCycles};

// An assist that waits for instructions to retire: the second half of a fused pair.
struct PendingAssist {
  unsigned instructions = 0;  // still to retire; 0: nothing waits
  uint32_t triggers = 0;
  Access load, store;
};

struct Pmu::State {
  State(const Microarch& microarch, Topology topology, Bus& memory, const Behaviour& decisions,
        uint64_t seed)
      : uarch(microarch),
        bus(memory),
        behaviour(decisions),
        visible(std::min<unsigned>(gp_counters(microarch, topology.sibling_thread),
                                   decisions.answering_counters)),
        fixed_visible(std::min<unsigned>(microarch.fixed_counters, decisions.answering_fixed)),
        random(derive_seed(seed, "pmu")),
        branch_store(memory, microarch, behaviour.bts) {
    reset();
  }

  const Microarch& uarch;
  Bus& bus;
  Behaviour behaviour;
  unsigned visible;        // CPUID.0AH:EAX[15:8]
  unsigned fixed_visible;  // CPUID.0AH:EDX[4:0]
  Random random;

  std::array<Counter, kMaxCounters> counters;
  std::array<CountRegister, kMaxFixed> fixed;
  uint64_t fixed_ctrl = 0, global_ctrl = 0, global_status = 0, pebs_enable = 0;
  uint64_t load_latency_threshold = 0, ds_area = 0, debugctl = 0;
  uint64_t misc_enable = misc_enable::kPerfmonAvailable;
  uint64_t lvt_pmi = kResetLvt;
  bool user = false;

  // Derived by refresh(): what retire() and advance() walk.
  uint32_t counting = 0;  // GP counters that count
  uint32_t fixed_counting = 0;
  uint32_t armed = 0;
  bool step_needed = false;  // some counter needs each instruction (cycle filters, load latency)
  bool tracing = false;      // taken branches are stored
  bool unusual = false;      // retire() alone does not do: branches are traced, or SMM

  PendingAssist pending;
  bool reloaded_once = false;
  uint64_t last_store_address = 0;
  Registers before;           // registers before the instruction, kept only for a defect
  uint64_t pebs_records = 0;  // written since power-on
  bool pmi_pending = false;
  uint64_t pmi_countdown = 0;  // instructions

  BranchTraceStore branch_store;
  bool spoil_branch = false;               // the next one's from, under a defect
  uint64_t last_from = 0;                  // of the branch before, kept only for a defect
  std::vector<TakenBranch> held_branches;  // that wait for an interrupt, under a defect

  // System-management mode.
  bool smm = false;
  bool frozen = false;  // by FREEZE_WHILE_SMM_EN
  uint64_t saved_global_ctrl = 0, saved_debugctl = 0;
  uint32_t pended_in_smm = 0;  // armed counters whose event came, under a defect

  void reset();
  void refresh();
  void resolve(unsigned n);
  bool pebs_eligible(unsigned n, const Event* event) const;

  Expected<void> write(uint32_t msr, uint64_t value);
  Expected<uint64_t> read(uint32_t msr) const;
  bool checked(uint64_t value, uint64_t writable) const {
    return !behaviour.reserved_bits_fault || (value & ~writable) == 0;
  }
  uint64_t counter_bits() const;
  bool present(unsigned n) const { return n < visible || !behaviour.absent_counters_fault; }

  void retire(const Retired& r);
  void advance(const SignalCounts& counts, uint64_t instructions);
  uint64_t contribution(const Counter& c, const Retired& r, bool tagged) const;
  uint64_t noticed(Counter& c, uint64_t events) const;
  bool triggers(Counter& c, const Retired& r, uint64_t events);
  bool overflowed(unsigned n, const Retired& r);
  void fixed_overflowed(unsigned i);
  void begin_assist(uint32_t triggering, const Retired& r);
  void finish_assist(const Retired& r);
  uint64_t recorded_ip(const Retired& r) const;
  RecordData record_data(uint32_t triggering, const Retired& r, const Access& load,
                         const Access& store) const;
  void skip_assist(const DebugStore& ds);
  void after_record(uint32_t triggering, DebugStore& ds);
  void reload(uint32_t represented, uint32_t overflow, const DebugStore& ds);
  void disarm(uint32_t which);
  void raise_pmi(bool may_freeze = true);

  bool stores_pebs() const;
  bool stores_branches() const;
  void enter_smm();
  void leave_smm();
  void note_frozen_events(const Retired& r);
  void stop_branches();
  void machine_check();
  void init();
  void hard_reset();

  bool traces_branches() const;
  void retire_unusual(const Retired& r);
  void trace(const Retired& r);
  void store_branch(TakenBranch branch);
  void write_branch(const TakenBranch& branch);
  void transfer(uint64_t from, uint64_t to);
  Signal fixed_signal(unsigned i) const {
    return kFixedSignals[behaviour.fixed_counters_swapped && i < 2 ? 1 - i : i];
  }
  void elapse(uint64_t instructions) { pmi_countdown -= std::min(pmi_countdown, instructions); }
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_PMU_STATE_H_
