// The state behind Pmu, shared by the files that together are the model: pmu.cc (what the registers
// mean, counting, interrupts), pmu_registers.cc (MSRs), pmu_sampling.cc (arming, assist, reload),
// pmu_adaptive.cc (fixed counters that sample, adaptive records).
// Nobody else includes it.
#ifndef SKIDPROOF_PEBS_MODEL_PMU_STATE_H_
#define SKIDPROOF_PEBS_MODEL_PMU_STATE_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/expected.h"
#include "base/random.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/assist.h"
#include "pebs/model/behaviour.h"
#include "pebs/model/branch_ring.h"
#include "pebs/model/counter.h"
#include "pebs/model/pmu.h"
#include "pebs/model/retired.h"
#include "pebs/model/sibling.h"

namespace skidproof::model {

using namespace arch;

inline constexpr unsigned kMaxCounters = 8;
inline constexpr unsigned kMaxFixed = 4;

// The last, TOPDOWN.SLOTS, is no signal of the core model.
inline constexpr Signal kFixedSignals[kMaxFixed] = {Signal::kInstructions, Signal::kCycles,
                                                    Signal::kReferenceCycles, Signal::kNone};

// Linux writes these once, with the counters off, before it uses those of a Nehalem. [Linux 6.12
// core.c intel_pmu_nhm_workaround; erratum AAK100]
inline constexpr std::array<uint32_t, 4> kMagicSelects = {0x4300B5, 0x4300D2, 0x4300B1, 0x4300B1};
inline constexpr uint32_t kAllMagicSelects = 0xF;

inline uint64_t cycles_of(const SignalCounts& counts) { return counts[index(Signal::kCycles)]; }

// An assist that waits for instructions to retire: the second half of a fused pair.
struct PendingAssist {
  unsigned instructions = 0;  // still to retire; 0: nothing waits
  uint64_t triggers = 0;      // IA32_PMCn at bit n, fixed counter i at 32 + i
  uint64_t ip = 0;            // of the instruction that caused it
  uint64_t ip_before = 0;     // of the one before, kept only for a defect
  Access load, store;
  uint64_t retire_cycles = 0;  // from the retirement before it to its own
};

// PEBS of a fixed counter between overflow and record (Ice Lake).
struct FixedSampling {
  bool pebs = false;        // an overflow arms PEBS
  bool precise = false;     // the record is that of an event
  bool pdir = false;        // … of the overflowing one
  bool shadowless = false;  // … of the one after it, whatever retires slowly
  bool armed = false;
  uint64_t ready_cycle = 0;
};

struct Pmu::State {
  State(const Microarch& microarch, Topology topology, Bus& memory, const Behaviour& decisions,
        uint64_t seed)
      : uarch(microarch),
        bus(memory),
        behaviour(decisions),
        sibling(topology.sibling_thread),
        visible(std::min<unsigned>(gp_counters(microarch, topology.sibling_thread),
                                   decisions.answering_counters)),
        fixed_visible(std::min<unsigned>(microarch.fixed_counters, decisions.answering_fixed)),
        random(derive_seed(seed, "pmu")) {
    reset();
  }

  const Microarch& uarch;
  Bus& bus;
  Behaviour behaviour;
  bool sibling;            // another logical processor shares the core, and is busy
  unsigned visible;        // CPUID.0AH:EAX[15:8]
  unsigned fixed_visible;  // CPUID.0AH:EDX[4:0]
  Random random;

  std::array<Counter, kMaxCounters> counters;
  std::array<CountRegister, kMaxFixed> fixed;
  std::array<FixedSampling, kMaxFixed> fixed_sampling;
  uint64_t fixed_ctrl = 0, global_ctrl = 0, global_status = 0, pebs_enable = 0;
  uint64_t load_latency_threshold = 0, ds_area = 0, debugctl = 0, frontend = 0;
  uint64_t pebs_data_cfg = 0, perf_metrics = 0, lbr_ctl = 0;
  uint64_t misc_enable = misc_enable::kPerfmonAvailable;
  uint64_t lvt_pmi = kResetLvt;
  bool user = false;

  // Derived by refresh(): what retire() and advance() walk.
  uint32_t counting = 0;  // GP counters that count
  uint32_t fixed_counting = 0;
  uint32_t armed = 0;
  uint32_t fixed_armed = 0;
  uint32_t sharing = 0;  // GP counters that count the sibling, too
  uint32_t fixed_sharing = 0;
  bool step_needed =
      false;  // some counter needs each instruction (cycle filters, load latency, LBRs)
  bool branches_recorded = false;  // some record may hold the branch group

  PendingAssist pending;
  BranchRing branches;
  bool reloaded_once = false;
  uint64_t last_store_address = 0;
  uint64_t last_ip = 0;    // of the instruction before, kept only for a defect
  uint64_t first_tsc = 0;  // of the first record, used only by a defect
  Registers before;        // registers before the instruction, kept only for a defect
  bool pmi_pending = false;
  uint64_t pmi_countdown = 0;  // instructions
  bool repeats_pmi = false;
  uint64_t sibling_clock = 0;      // cycles of which the sibling's events were counted
  uint64_t level_change_left = 0;  // instructions that a change of privilege level still hides
  uint64_t fixed_since_loss = 0;
  uint64_t reference_parts = 0;  // hundredths of a reference cycle
  uint32_t magic_selects = 0;    // those of kMagicSelects that were written

  void reset();
  void refresh();
  void resolve(unsigned n);
  bool counts_sibling(bool any_thread) const;
  uint64_t fixed_field(unsigned i) const {
    return (fixed_ctrl >> (4 * (behaviour.counting.fixed_fields_shared ? 0 : i))) & 0xF;
  }
  bool pebs_eligible(unsigned n, const Event* event) const;
  bool precise_on(unsigned n, const Event& event) const;

  Expected<void> write(uint32_t msr, uint64_t value);
  Expected<uint64_t> read(uint32_t msr) const;
  Expected<uint64_t> rdpmc(uint32_t index, bool in_user_mode, bool cr4_pce) const;
  void write_counter(unsigned n, uint64_t value);
  void note_select(unsigned n, uint64_t value);
  bool has_alias(int n) const;
  uint64_t pebs_enable_bits() const;
  bool has_data_cfg() const;
  bool has_metrics() const;
  uint64_t with_defects(uint32_t msr, uint64_t writable) const;
  uint64_t in_use() const;
  // What GLOBAL_CTRL enables: nothing while the counters are frozen.
  uint64_t enabled_counters() const {
    bool frozen =
        (global_status & status::kCountersFrozen) != 0 && behaviour.generation.frozen_counters_stop;
    return frozen ? 0 : global_ctrl;
  }
  bool checked(uint64_t value, uint64_t writable) const {
    return !behaviour.reserved_bits_fault || (value & ~writable) == 0;
  }
  uint64_t counter_bits() const;
  bool present(unsigned n) const { return n < visible || !behaviour.absent_counters_fault; }

  void retire(const Retired& r);
  void advance(const SignalCounts& counts, uint64_t instructions);
  uint64_t contribution(const Counter& c, const Retired& r, bool tagged) const;
  uint64_t noticed(Counter& c, uint64_t events) const;
  uint64_t with_sibling(Signal signal, uint64_t select, uint64_t events, uint64_t cycles) const;
  uint64_t fixed_events(unsigned i, const SignalCounts& counts);
  bool triggers(Counter& c, const Retired& r, uint64_t events);
  bool overflowed(unsigned n, const Retired& r);
  bool fixed_overflowed(unsigned i, const Retired& r);
  void resolve_fixed(unsigned i);
  bool fixed_triggers(unsigned i, const Retired& r, uint64_t events);
  void note_branch(const Retired& r);
  uint64_t pebs_mask() const;
  bool adaptive(uint64_t triggering) const;
  void reload_fixed(uint64_t which, const DebugStore& ds);
  bool store_adaptive(uint64_t triggering, const Retired& r, RecordData& data,
                      const Registers& registers, DebugStore& ds);
  void add_store_sample(RecordData& data, const Access& store) const;
  void begin_assist(uint64_t triggering, const Retired& r);
  void finish_assist(const Retired& r);
  uint64_t recorded_ip(const Retired& r) const;
  RecordData record_data(uint64_t triggering, const Retired& r, const Access& load,
                         const Access& store) const;
  void add_generation_fields(RecordData& data, uint64_t triggering, const Retired& r);
  void add_data_address(RecordData& data, const Counter& c, const Access& load,
                        const Access& store) const;
  void skip_assist(const DebugStore& ds);
  uint64_t represented(uint64_t triggering) const;
  void after_record(uint64_t triggering, DebugStore& ds);
  void reload(uint64_t its_own, uint64_t overflow, const DebugStore& ds);
  void disarm(uint64_t which);
  void raise_pmi();
  Signal fixed_signal(unsigned i) const {
    return kFixedSignals[behaviour.fixed_counters_swapped && i < 2 ? 1 - i : i];
  }
  void elapse(uint64_t instructions) { pmi_countdown -= std::min(pmi_countdown, instructions); }
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_PMU_STATE_H_
