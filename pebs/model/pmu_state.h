// The state behind Pmu, shared by the files that together are the model: pmu.cc (what the registers
// mean, counting, interrupts), pmu_registers.cc (MSRs), pmu_sampling.cc (arming, assist, reload),
// pmu_adaptive.cc (fixed counters that sample, adaptive records), pmu_arch_pebs.cc, pmu_version6.cc,
// pmu_auto_reload.cc, pmu_branches.cc (branch trace store), pmu_modes.cc (SMM, machine check, INIT,
// RESET), pmu_rough.cc (what nothing promises).
// Nobody else includes it.
#ifndef SKIDPROOF_PEBS_MODEL_PMU_STATE_H_
#define SKIDPROOF_PEBS_MODEL_PMU_STATE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/expected.h"
#include "base/random.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/adaptive_record.h"
#include "pebs/model/assist.h"
#include "pebs/model/behaviour.h"
#include "pebs/model/branch_ring.h"
#include "pebs/model/branch_tracer.h"
#include "pebs/model/counter.h"
#include "pebs/model/legacy_mode.h"
#include "pebs/model/pmu.h"
#include "pebs/model/retired.h"
#include "pebs/model/rough.h"
#include "pebs/model/sibling.h"

namespace skidproof::model {

using namespace arch;

inline constexpr unsigned kLegacyCounters = 8;  // for which legacy addresses have room
inline constexpr unsigned kMaxCounters = 10;
inline constexpr unsigned kMaxFixed = 7;
static_assert(status::kFixedShift + kMaxFixed <= kConfiguredCounters);

inline constexpr Signal kFixedSignals[kMaxFixed] = {
    Signal::kInstructions, Signal::kCycles, Signal::kReferenceCycles, Signal::kSlots, Signal::kNone,
    Signal::kNone,         Signal::kUops};
constexpr bool bit_of(uint64_t mask, unsigned n) { return ((mask >> n) & 1) != 0; }

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
  bool fell_through = false;  // a conditional jump caused it that was not taken
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
  uint32_t late = 0;  // instructions until the record, whatever they are; 0: it waits for its event
};

// Auto counter reload, by the positions of IA32_PERF_GLOBAL_STATUS.
struct AutoReload {
  std::array<uint64_t, kConfiguredCounters> causes{};  // the reload configurations
  bool used = false;                                   // some configuration names a counter
  uint64_t now = 0;                                    // whose overflow came with this instruction
  uint64_t due = 0;                                    // … and waits for its record
};

struct Pmu::State {
  State(const Microarch& microarch, Topology topology, Bus& memory, const Behaviour& decisions,
        uint64_t seed)
      : uarch(row_of(microarch, decisions.rough)),
        bus(memory),
        behaviour(decisions),
        sibling(topology.sibling_thread),
        visible(std::min<unsigned>(gp_counters(microarch, topology.sibling_thread),
                                   decisions.answering_counters)),
        fixed_visible(std::min<unsigned>(microarch.fixed_counters, decisions.answering_fixed)),
        gp_there(gp_bits(microarch, visible)),
        fixed_there(low_bits(fixed_visible) |
                    (microarch.extended.fixed & ~low_bits(microarch.fixed_counters))),
        keeps_history(!decisions.registers_after || decisions.load_latency_lag != 0 ||
                      decisions.efficient.data_address_before),
        mistakes(decisions.counting.cpuid_is_branch || decisions.counting.fence_is_store ||
                 decisions.counting.locked_l2_hits_lost),
        miscounts(decisions.counting.extra_events != 0 || decisions.lost_events != 0 ||
                  decisions.counting.far_loads_lost_percent != 0),
        random(derive_seed(seed, "pmu")),
        rare(decisions.otherwise != nullptr ? std::make_unique<const Behaviour>(decisions)
                                            : nullptr),
        draws(derive_seed(seed, "share")),
        branches(std::max<unsigned>(microarch.last_branches.depth, 1)),
        tracer(memory, microarch, behaviour.bts) {
    reset();
  }

  const Microarch uarch;  // as this part has it
  Bus& bus;
  Behaviour behaviour;
  bool sibling;            // another logical processor shares the core, and is busy
  unsigned visible;        // CPUID.0AH:EAX[15:8]
  unsigned fixed_visible;  // CPUID.0AH:EDX[4:0]
  uint64_t gp_there;       // bit n: counter n exists
  uint64_t fixed_there;    // bit i: fixed counter i does
  bool keeps_history;      // a defect asks for what was before an instruction
  bool mistakes;           // a defect counts one instruction as another
  bool miscounts;          // a defect counts events twice or not at all
  Random random;
  std::unique_ptr<const Behaviour> rare;  // as it behaves where a defect shows rarely; else null
  Random draws;                           // when it does

  std::array<Counter, kMaxCounters> counters;
  std::array<CountRegister, kMaxFixed> fixed;
  std::array<FixedSampling, kMaxFixed> fixed_sampling;
  uint64_t fixed_ctrl = 0, global_ctrl = 0, global_status = 0, pebs_enable = 0;
  uint64_t load_latency_threshold = 0, ds_area = 0, debugctl = 0, frontend = 0;
  uint64_t pebs_data_cfg = 0, perf_metrics = 0, lbr_ctl = 0, lbr_select = 0;
  uint64_t misc_enable = misc_enable::kPerfmonAvailable;
  uint64_t lvt_pmi = kResetLvt;
  bool user = false;
  Mode mode = Mode::kLong;
  bool ia32e = true;  // … as the PMU sees it
  RecordingModes modes;
  Registers left_by_64_bit_code;  // what the registers held when the processor left IA-32e mode

  // Derived by refresh(): what retire() and advance() walk.
  uint32_t counting = 0;  // GP counters that count
  uint32_t fixed_counting = 0;
  uint32_t armed = 0;
  uint32_t fixed_armed = 0;
  bool sharing = false;  // some GP counter counts the sibling, too
  uint32_t fixed_sharing = 0;
  uint32_t started = 0, fixed_started = 0;  // by the last write of a register
  bool step_needed =
      false;  // some counter needs each instruction (cycle filters, load latency, LBRs)
  bool branches_recorded = false;  // taken branches go into the LBR stack
  bool tracing = false;            // taken branches are stored
  bool unusual = false;            // retire() alone does not do: branches are traced, or SMM

  PendingAssist pending;
  AutoReload auto_reload;
  PebsRegisters pebs_registers;
  BranchRing branches;
  uint32_t branches_seen = 0;  // kept only for a defect
  bool reloaded_once = false;
  bool enabled_before = false;  // IA32_PEBS_ENABLE was not 0 before
  bool loses_overflow = false;  // the next one arms nothing
  uint32_t records = 0;         // written so far, for a CPU that repeats some
  uint64_t pebs_records = 0;    // written since the model was made
  LatchedBounds latched;        // for a CPU that does not read them again
  uint64_t last_store_address = 0, last_load_address = 0;
  RecordData last_described;    // the last record of a memory access, for rough machines
  Registers before;             // registers before the instruction
  uint32_t interrupts_due = 0;  // overflow interrupts that wait for their counter's assist (R34)
  uint64_t last_ip = 0;         // of the instruction before, kept only for a defect
  uint64_t earlier_tsc = 0;     // of a record before, used only by a defect
  bool pmi_pending = false;
  bool pmi_follows = false;  // a second one waits for the delivery of the first
  bool pmi_second = false;   // the pending one is such a second one
  uint32_t pmis_raised = 0;
  uint64_t pmi_countdown = 0;  // instructions
  bool repeats_pmi = false;
  uint64_t sibling_clock = 0;      // cycles of which the sibling's events were counted
  uint64_t level_change_left = 0;  // instructions that a change of privilege level still hides
  uint64_t fixed_since_loss = 0;
  uint64_t since_overflow = 0;  // instructions since some counter's last overflow, and of whose …
  uint64_t last_overflow = 0;   // … the status bit is, used only by a defect
  uint64_t stuck_status = 0;    // what cannot be cleared, under a defect
  uint32_t fixed_overflows = 0;       // fixed counters that overflowed, kept only for a defect, …
  uint64_t fixed_overflow_cycle = 0;  // … and when the last one did
  uint64_t next_tag = 0;              // no load is tagged before this cycle
  bool auxiliary_missing = false;   // … nor without the event that must count beside load latency
  uint64_t reference_parts = 0;     // hundredths of a reference cycle
  uint64_t stall = 0;               // cycles of records that the core model does not know of yet
  uint64_t extra_instructions = 0;  // that interrupts count as, with the next instruction
  uint32_t magic_selects = 0;       // those of kMagicSelects that were written

  BranchTracer tracer;

  // System-management mode.
  bool smm_frozen = false;  // by FREEZE_WHILE_SMM_EN
  uint64_t saved_global_ctrl = 0, saved_debugctl = 0;
  uint32_t pended_in_smm = 0;  // armed counters whose event came, under a defect

  void reset();
  void set_mode(Mode next);
  void refresh();
  void resolve(unsigned n);
  bool counts_sibling(bool any_thread) const;
  uint64_t fixed_field(unsigned i) const {
    return (fixed_ctrl >> (4 * (behaviour.counting.fixed_fields_shared ? 0 : i))) & 0xF;
  }
  bool pebs_eligible(unsigned n, const Event* event) const;
  uint64_t filtering_select(const Counter& c) const;
  bool precise_on(unsigned n, const Event& event) const;

  Expected<void> write(uint32_t msr, uint64_t value);
  Expected<uint64_t> read(uint32_t msr) const;
  Expected<uint64_t> rdpmc(uint32_t index, bool in_user_mode, bool cr4_pce);
  std::optional<unsigned> banked_counter(uint32_t msr) const;
  std::optional<unsigned> banked_select(uint32_t msr) const;
  std::optional<unsigned> banked_fixed(uint32_t msr) const;
  std::optional<unsigned> legacy_counter(uint32_t msr) const;
  std::optional<unsigned> full_width_counter(uint32_t msr) const;
  std::optional<unsigned> selected_counter(uint32_t msr) const;
  std::optional<unsigned> fixed_counter(uint32_t msr) const;
  std::optional<unsigned> legacy_number(uint32_t msr, uint32_t first) const;
  uint8_t umask2_of(uint64_t select) const;
  uint64_t read_metrics();
  void clear_metrics(bool base);
  CounterSnapshot snapshot_of_counters() const;
  void clear_recorded_metrics(uint64_t triggering);
  std::optional<unsigned> reload_register(uint32_t msr, uint32_t gp_first,
                                          uint32_t fixed_first) const;
  std::optional<uint64_t> read_reload(uint32_t msr) const;
  bool write_reload(uint32_t msr, uint64_t value, Expected<void>& done);
  bool reloads_itself(unsigned n) const;
  bool auto_reload_overflow(unsigned n, bool pebs);
  void reload_by(uint64_t causes);
  Expected<void> write_full_width(unsigned n, uint32_t msr, uint64_t value);
  Expected<void> write_fixed(unsigned i, uint32_t msr, uint64_t value);
  void write_counter(unsigned n, uint64_t value);
  void arm_imprecise(uint64_t overflowed);
  void note_select(unsigned n, uint64_t value);
  uint64_t pebs_enable_bits() const;
  bool has_pebs_enable() const;
  bool has_data_cfg() const;
  bool has_metrics() const;
  uint64_t with_defects(uint32_t msr, uint64_t writable) const;
  uint64_t in_use() const;
  // What GLOBAL_CTRL enables: nothing while the counters are frozen.
  uint64_t enabled_counters() const {
    bool frozen =
        (global_status & status::kCountersFrozen) != 0 && behaviour.generation.frozen_counters_stop;
    return frozen ? global_ctrl & behaviour.counting.never_frozen : global_ctrl;
  }
  bool checked(uint64_t value, uint64_t writable) const {
    return !behaviour.reserved_bits_fault || (value & ~writable) == 0;
  }
  uint64_t counter_bits() const;
  bool present(unsigned n) const {
    return bit_of(gp_there, n) || (!behaviour.absent_counters_fault && n < kLegacyCounters);
  }

  void retire(const Retired& r);
  void advance(const SignalCounts& counts, uint64_t instructions);
  uint64_t contribution(const Counter& c, const Retired& r, bool tagged) const;
  uint64_t mistaken(const Counter& c, const Retired& r, uint64_t events) const;
  uint64_t noticed(Counter& c, uint64_t events) const;
  uint64_t with_sibling(Signal signal, uint64_t select, uint64_t events, uint64_t cycles) const;
  uint64_t fixed_events(unsigned i, const SignalCounts& counts);
  bool triggers(Counter& c, const Retired& r, uint64_t events);
  bool overflowed(unsigned n, const Retired& r);
  bool fixed_overflowed(unsigned i, const Retired& r);
  void note_late_overflow();
  bool is_close_overflow(unsigned i, const Retired& r);
  void resolve_fixed(unsigned i);
  bool fixed_triggers(unsigned i, const Retired& r, uint64_t events);
  bool records_branches() const;
  void note_branch(const Retired& r);
  void freeze_last_branches();
  void freeze_last_branches_early(unsigned n);
  Expected<uint64_t> read_last_branch(uint32_t msr) const;
  Expected<void> write_last_branch(uint32_t msr, uint64_t value);
  uint64_t pebs_mask() const;
  bool adaptive(uint64_t triggering) const;
  void reload_fixed(uint64_t which, const DebugStore& ds);
  bool store_adaptive(uint64_t triggering, const Retired& r, RecordData& data,
                      const Registers& registers, DebugStore& ds);
  // Architectural PEBS.
  DebugStore store_now() {
    return {bus, uarch, behaviour, ds_area, latched, ia32e, &pebs_registers};
  }
  uint64_t buffer_bit() const;
  uint64_t recorded_groups(uint64_t triggering) const;
  size_t architectural_bytes(uint64_t triggering) const;
  adaptive::SnapshotVectors allowed_counters(uint64_t groups) const;
  bool store_architectural(uint64_t triggering, const Retired& r, RecordData& data,
                           const Registers& registers, DebugStore& ds);
  bool has_cfg_c(unsigned position) const;
  std::optional<unsigned> cfg_c_register(uint32_t msr) const;
  std::optional<uint64_t> read_arch_pebs(uint32_t msr) const;
  bool write_arch_pebs(uint32_t msr, uint64_t value, Expected<void>& done);
  Expected<void> write_cfg_c(unsigned position, uint32_t msr, uint64_t value);
  void add_store_sample(RecordData& data, const Access& store);
  bool load_latency_enabled(unsigned n) const;
  bool pdir_works(unsigned n) const;
  bool counts_level(unsigned n) const;
  bool arms(Counter& c);
  bool happens(double share);
  bool tags(const Retired& r);
  bool misses_auxiliary() const;
  uint64_t arming_time();
  bool armed_at_once(const Counter& c) const;
  // PDist, beside the older PDIR.
  bool distributed(unsigned n) const { return ((behaviour.adaptive.pdist_counters >> n) & 1) != 0; }
  void count_assist(uint64_t spared, const Retired& r);
  void gained_overflow(unsigned n, const Retired& r);
  void switched(uint32_t gp_before, uint32_t fixed_before);
  void overflow_interrupt(unsigned n);
  void interrupts_after_assist(bool threshold);
  void reload_without_record(unsigned n);
  void announce_threshold();
  void record_at_disable(uint32_t which);
  bool redundant(uint64_t triggering);
  void draw_defect();
  bool one_level_memory_event(uint64_t triggering) const;
  void begin_assist(uint64_t triggering, const Retired& r);
  void finish_assist(const Retired& r);
  uint64_t recorded_ip(const Retired& r) const;
  RecordData record_data(uint64_t triggering, const Retired& r, const Access& load,
                         const Access& store);
  void leave_stale(RecordData& data, uint64_t triggering);
  void add_generation_fields(RecordData& data, uint64_t triggering, const Retired& r);
  void add_data_address(RecordData& data, const Counter& c, const Access& load,
                        const Access& store) const;
  void load_fields(RecordData& data, unsigned n, const Access& load);
  bool addresses_of_any_event() const;
  uint64_t source_of(const Access& access);
  uint64_t told_of(const Access& access, const AccessInfo& info) const;
  void store_fields(RecordData& data, const Access& store) const;
  void skip_assist(DebugStore& ds);
  bool out_of_bounds(const DebugStore& ds) const;
  void signal_out_of_bounds(const DebugStore& ds);
  uint64_t represented(uint64_t triggering) const;
  void after_record(uint64_t triggering, DebugStore& ds, const Retired& r);
  void reload(uint64_t its_own, uint64_t overflow, const DebugStore& ds);
  void disarm(uint64_t which);
  void raise_pmi(bool may_freeze = true);

  void enter_smm();
  void leave_smm();
  void note_frozen_events(const Retired& r);
  void stop_pebs();
  void stop_branches();
  void machine_check();
  void init();
  void hard_reset();

  BranchTracer::Context trace_context() const { return {ds_area, debugctl, pmi_pending}; }
  void retire_unusual(const Retired& r);
  void retire_any(const Retired& r) { unusual ? retire_unusual(r) : retire(r); }
  void retire_write(const Retired& r);
  void trace(const Retired& r);
  void transfer(uint64_t from, uint64_t to);
  void traced(const BranchTracer::Outcome& outcome);
  Signal fixed_signal(unsigned i) const {
    return kFixedSignals[behaviour.fixed_counters_swapped && i < 2 ? 1 - i : i];
  }
  void elapse(uint64_t instructions) {
    pmi_countdown -= std::min(pmi_countdown, instructions);
    since_overflow += instructions;
  }
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_PMU_STATE_H_
