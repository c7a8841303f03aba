#include "pebs/model/pmu.h"

#include <fmt/format.h>

#include <algorithm>

#include "pebs/arch/msr.h"
#include "pebs/arch/names.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/assist.h"
#include "pebs/model/counter.h"

namespace skidproof::model {

using namespace arch;

namespace {

constexpr unsigned kMaxCounters = 8;
constexpr unsigned kMaxFixed = 3;
// One retired load in this many is tagged for load latency. The manual says "randomly"; the rate is
// the model's own choice. [SDM 18.9.4.2]
constexpr uint64_t kLoadTagRate = 4;

constexpr Signal kFixedSignals[kMaxFixed] = {Signal::kInstructions, Signal::kCycles,
                                             Signal::kReferenceCycles};

tl::unexpected<Error> general_protection(const char* instruction, uint32_t msr, uint64_t value) {
  return fail(ErrorCode::kGeneralProtection, fmt::format("#GP from {} of {} ({:X}H) with {:#x}",
                                                         instruction, msr_name(msr), msr, value));
}

// Which counter of an MSR range of eight, or -1.
int in_range(uint32_t msr, uint32_t first) {
  return msr >= first && msr < first + kMaxCounters ? static_cast<int>(msr - first) : -1;
}

}  // namespace

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
        random(derive_seed(seed, "pmu")) {
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

  PendingAssist pending;
  bool reloaded_once = false;
  uint64_t last_store_address = 0;
  Registers before;  // registers before the instruction, kept only for a defect
  bool pmi_pending = false;
  uint64_t pmi_countdown = 0;  // instructions

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
  void raise_pmi();
  Signal fixed_signal(unsigned i) const {
    return kFixedSignals[behaviour.fixed_counters_swapped && i < 2 ? 1 - i : i];
  }
  void elapse(uint64_t instructions) { pmi_countdown -= std::min(pmi_countdown, instructions); }
};

void Pmu::State::reset() {
  for (Counter& c : counters) {
    c = Counter{};
    c.count.mask = gp_counter_mask(uarch);
  }
  for (CountRegister& f : fixed) f = {0, fixed_counter_mask(uarch)};
  fixed_ctrl = global_ctrl = global_status = pebs_enable = 0;
  load_latency_threshold = ds_area = debugctl = 0;
  misc_enable = misc_enable::kPerfmonAvailable |
                (behaviour.pebs_announced ? 0 : misc_enable::kPebsUnavailable);
  lvt_pmi = kResetLvt;
  pending = {};
  pmi_pending = reloaded_once = false;
  refresh();
}

// --- MSRs
// --------------------------------------------------------------------------------------------

uint64_t Pmu::State::counter_bits() const {
  return low_bits(behaviour.absent_global_bits_fault ? visible : kMaxCounters);
}

Expected<uint64_t> Pmu::State::read(uint32_t msr) const {
  if (int n = in_range(msr, IA32_PMC0); n >= 0 && present(n)) return counters[n].count.value;
  if (int n = in_range(msr, IA32_A_PMC0); n >= 0 && present(n) && uarch.full_width_writes) {
    return counters[n].count.value;
  }
  if (int n = in_range(msr, IA32_PERFEVTSEL0); n >= 0 && present(n)) return counters[n].select;
  if (msr >= IA32_FIXED_CTR0 && msr < IA32_FIXED_CTR0 + fixed_visible) {
    return fixed[msr - IA32_FIXED_CTR0].value;
  }
  switch (msr) {
    case IA32_FIXED_CTR_CTRL:
      return fixed_ctrl;
    case IA32_PERF_GLOBAL_CTRL:
      return global_ctrl;
    case IA32_PERF_GLOBAL_STATUS:
      return global_status;
    case IA32_PERF_GLOBAL_OVF_CTRL:
      return 0;
    case IA32_PEBS_ENABLE:
      return pebs_enable;
    case MSR_PEBS_LD_LAT_THRESHOLD:
      return load_latency_threshold;
    case IA32_DS_AREA:
      return ds_area;
    case IA32_DEBUGCTL:
      return debugctl;
    case IA32_MISC_ENABLE:
      return misc_enable;
    case IA32_PERF_CAPABILITIES:
      return perf_capabilities(uarch) & ~behaviour.hidden_capabilities;
    case IA32_X2APIC_LVT_PMI:
      return lvt_pmi;
    default:
      return general_protection("RDMSR", msr, 0);
  }
}

Expected<void> Pmu::State::write(uint32_t msr, uint64_t value) {
  auto refuse = [&] { return general_protection("WRMSR", msr, value); };
  // Takes a register whose reserved bits fault.
  auto assign = [&](uint64_t& target, uint64_t writable) -> Expected<void> {
    if (!checked(value, writable)) return refuse();
    target = value & writable;
    refresh();
    return {};
  };

  if (int n = in_range(msr, IA32_PMC0); n >= 0 && present(n)) {
    uint64_t low = value & 0xFFFFFFFF;
    uint64_t extended = behaviour.legacy_write_sign_extends
                            ? static_cast<uint64_t>(int64_t{static_cast<int32_t>(low)})
                            : low;
    if (behaviour.legacy_write_takes_edx) extended = value;
    counters[n].count.value = extended & counters[n].count.mask;
    return {};
  }
  if (int n = in_range(msr, IA32_A_PMC0); n >= 0 && present(n) && uarch.full_width_writes) {
    uint64_t writable = counters[n].count.mask;
    if (behaviour.excess_bits_fault && (value & ~writable) != 0) return refuse();
    counters[n].count.value = value & writable & low_bits(behaviour.full_width_bits);
    return {};
  }
  if (int n = in_range(msr, IA32_PERFEVTSEL0); n >= 0 && present(n)) {
    return assign(counters[n].select, writable_perfevtsel(uarch));
  }
  if (msr >= IA32_FIXED_CTR0 && msr < IA32_FIXED_CTR0 + fixed_visible) {
    CountRegister& f = fixed[msr - IA32_FIXED_CTR0];
    if (behaviour.excess_bits_fault && (value & ~f.mask) != 0) return refuse();
    f.value = value & f.mask;
    return {};
  }
  uint64_t beyond = counter_bits() & ~low_bits(visible);  // only under a defect
  switch (msr) {
    case IA32_FIXED_CTR_CTRL:
      return assign(fixed_ctrl, writable_fixed_ctr_ctrl(uarch));
    case IA32_PERF_GLOBAL_CTRL:
      return assign(global_ctrl, writable_global_ctrl(uarch, visible) | beyond);
    case IA32_PERF_GLOBAL_STATUS:
      if (behaviour.status_write_faults) return refuse();
      global_status = value;
      return {};
    case IA32_PERF_GLOBAL_OVF_CTRL: {
      uint64_t writable = clearable_status(uarch, visible) | beyond;
      if (!checked(value, writable)) return refuse();
      uint64_t clear = behaviour.ovf_ctrl_clears_all ? ~uint64_t{0} : value & writable;
      if (!behaviour.ovf_buffer_clears) clear &= ~status::kOvfBuffer;
      if (behaviour.ovf_ctrl_clears) global_status &= ~clear;
      return {};
    }
    case IA32_PEBS_ENABLE:
      return assign(pebs_enable,
                    writable_pebs_enable(uarch) | (behaviour.pebs_counters & counter_bits()));
    case MSR_PEBS_LD_LAT_THRESHOLD:
      return assign(load_latency_threshold, kWritableLoadLatencyThreshold);
    case IA32_DS_AREA:
      if (behaviour.reserved_bits_fault && !canonical(value)) return refuse();
      ds_area = value;
      return {};
    case IA32_DEBUGCTL:
      return assign(debugctl, writable_debugctl(uarch));
    case IA32_MISC_ENABLE:
      return {};  // bits 7, 11 and 12 are read-only; nothing else is modelled
    case IA32_X2APIC_LVT_PMI:
      if (!behaviour.lvt_status_read_only) return assign(lvt_pmi, kWritableLvt | kReadOnlyLvt);
      value &= ~kReadOnlyLvt;  // ignored, not refused
      return assign(lvt_pmi, kWritableLvt);
    default:
      return refuse();
  }
}

bool Pmu::State::pebs_eligible(unsigned n, const Event* event) const {
  const Counter& c = counters[n];
  if (((behaviour.pebs_counters >> n) & 1) == 0) return false;
  if (!behaviour.pebs_without_enable && ((pebs_enable >> n) & 1) == 0) return false;
  // What P4 does not promise the model does not do.
  if (event == nullptr || !event->precise()) return false;
  bool restricted_elsewhere = behaviour.pebs_counters == uarch.pebs_counters;
  if (restricted_elsewhere && ((event->pebs_counters >> n) & 1) == 0 &&
      event->kind != EventKind::kPreciseStore) {
    return false;
  }
  if (event->kind == EventKind::kPreciseStore) {
    if (((behaviour.precise_store_counters >> n) & 1) == 0) return false;
    if (behaviour.precise_store_needs_enable && (pebs_enable & pebs_enable::kPreciseStore) == 0)
      return false;
  }
  // R33; a combination that public practice uses works here as it does there.
  unsigned combination =
      qualifiers((c.select & evtsel::kAnyThread) != 0, (c.select & evtsel::kEdge) != 0,
                 (c.select & evtsel::kInvert) != 0, (c.select & evtsel::kCmask) != 0);
  combination &= ~unsigned{behaviour.ignored_qualifiers};
  return combination == 0 || uarch.expectation(combination) == Expectation::kClassify;
}

// Recomputes what a counter's select means under the present control registers.
void Pmu::State::resolve(unsigned n) {
  Counter& c = counters[n];
  const Event* event =
      uarch.event(static_cast<uint8_t>(c.select), static_cast<uint8_t>(c.select >> 8));
  bool privilege =
      !behaviour.privilege_filters || (c.select & (user ? evtsel::kUsr : evtsel::kOs)) != 0;
  bool enabled = (c.select & evtsel::kEnable) != 0 &&
                 (((global_ctrl >> n) & 1) != 0 || !behaviour.enable_needs_global);
  bool store_elsewhere = event != nullptr && event->kind == EventKind::kPreciseStore &&
                         ((behaviour.precise_store_counters >> n) & 1) != 0;
  bool counted_here = event != nullptr && (((event->counters >> n) & 1) != 0 || store_elsewhere);
  c.load_latency = event != nullptr && event->kind == EventKind::kLoadLatency &&
                   ((pebs_enable >> (pebs_enable::kLoadLatencyShift + n)) & 1) != 0;
  c.signal =
      event != nullptr && event->kind != EventKind::kLoadLatency ? event->signal : Signal::kNone;
  c.counting = enabled && privilege && counted_here &&
               (c.signal != Signal::kNone || c.load_latency) && present(n) &&
               n < behaviour.running_counters;
  c.pebs = pebs_eligible(n, event);
  c.pdir = c.pebs && event->kind == EventKind::kPdir && ((behaviour.pdir_counters >> n) & 1) != 0;
  c.precise_store = c.pebs && event->kind == EventKind::kPreciseStore;
  if (!c.pebs) c.armed = false;
}

void Pmu::State::refresh() {
  counting = fixed_counting = armed = 0;
  step_needed = false;
  for (unsigned n = 0; n < kMaxCounters; ++n) {
    Counter& c = counters[n];
    bool was_counting = c.counting;
    resolve(n);
    if (c.counting && !was_counting) c.filter.configure(c.select);
    if (c.counting) counting |= 1u << n;
    if (c.armed) armed |= 1u << n;
    step_needed |= c.counting && (c.filter.used() || c.load_latency);
  }
  for (unsigned i = 0; i < uarch.fixed_counters; ++i) {
    uint64_t field = (fixed_ctrl >> (4 * i)) & 0xF;
    bool privilege = (field & (user ? fixed_ctrl::kUsr : fixed_ctrl::kOs)) != 0;
    if (privilege && ((global_ctrl >> (status::kFixedShift + i)) & 1) != 0)
      fixed_counting |= 1u << i;
  }
  // Nothing counts any more: an assist that waited for the rest of a fused pair will not come.
  if (counting == 0) pending = {};
}

// --- Counting, arming, triggering
// --------------------------------------------------------------------

uint64_t Pmu::State::contribution(const Counter& c, const Retired& r, bool tagged) const {
  if (c.load_latency) return tagged ? 1 : 0;
  return r.counts[index(c.signal)];
}

// All of them, on a CPU that counts right.
uint64_t Pmu::State::noticed(Counter& c, uint64_t events) const {
  if (behaviour.lost_events == 0) [[likely]]
    return events;
  c.since_loss += events;
  uint64_t lost = c.since_loss / behaviour.lost_events;
  c.since_loss %= behaviour.lost_events;
  return events - lost;
}

// Whether this instruction is the event that an armed counter waits for (R2).
bool Pmu::State::triggers(Counter& c, const Retired& r, uint64_t events) {
  if (!c.armed || r.cycle < c.ready_cycle) return false;
  if (events == 0 && !behaviour.record_without_event) return false;
  if (c.events_to_go > 0) {
    --c.events_to_go;
    return false;
  }
  return true;
}

// An overflow of counter n: status, interrupt, arming. True when the record belongs to this very
// event.
bool Pmu::State::overflowed(unsigned n, const Retired& r) {
  Counter& c = counters[n];
  if (behaviour.overflow_sets_status) global_status |= bit(n);
  bool interrupts =
      (c.select & evtsel::kInt) != 0 || (c.pebs && behaviour.pebs_overflow_interrupts);
  if (interrupts && behaviour.overflow_interrupts) raise_pmi();
  if (!c.pebs) return false;
  if (c.pdir || behaviour.record_on_overflow) return true;
  c.armed = true;
  c.ready_cycle = r.cycle + (behaviour.record_without_event ? 0 : behaviour.arm_cycles);
  c.events_to_go = behaviour.extra_events;
  armed |= 1u << n;
  return false;
}

void Pmu::State::fixed_overflowed(unsigned i) {
  if (behaviour.overflow_sets_status) global_status |= bit(status::kFixedShift + i);
  if (((fixed_ctrl >> (4 * i)) & fixed_ctrl::kPmi) != 0 && behaviour.overflow_interrupts)
    raise_pmi();
}

void Pmu::State::retire(const Retired& r) {
  elapse(1);
  bool tagged = false;
  if (step_needed && r.load.valid) {
    uint64_t threshold = behaviour.load_latency_threshold ? load_latency_threshold : 0;
    tagged = random.below(kLoadTagRate) == 0 && r.load.latency > threshold;
  }
  uint32_t triggering = 0;
  for (uint32_t rest = counting; rest != 0; rest &= rest - 1) {
    unsigned n = static_cast<unsigned>(__builtin_ctz(rest));
    Counter& c = counters[n];
    uint64_t events = contribution(c, r, tagged);
    if (c.filter.used()) events = c.filter.feed(r.cycle, events);
    if (c.armed && triggers(c, r, events)) triggering |= 1u << n;
    events = noticed(c, events);
    if (events != 0 && c.count.add(events) && overflowed(n, r)) triggering |= 1u << n;
  }
  for (uint32_t rest = fixed_counting; rest != 0; rest &= rest - 1) {
    unsigned i = static_cast<unsigned>(__builtin_ctz(rest));
    if (fixed[i].add(r.counts[index(fixed_signal(i))])) fixed_overflowed(i);
  }
  if (pending.instructions > 0) {
    pending.triggers |= triggering;
    if (--pending.instructions == 0) finish_assist(r);
  } else if (triggering != 0) {
    begin_assist(triggering, r);
  }
  if (r.store.valid) last_store_address = r.store.address;
  if (!behaviour.registers_after) before = *r.after;
}

void Pmu::State::advance(const SignalCounts& counts, uint64_t instructions) {
  elapse(instructions);
  for (uint32_t rest = counting; rest != 0; rest &= rest - 1) {
    Counter& c = counters[static_cast<unsigned>(__builtin_ctz(rest))];
    c.count.add(noticed(c, counts[index(c.signal)]));
  }
  for (uint32_t rest = fixed_counting; rest != 0; rest &= rest - 1) {
    unsigned i = static_cast<unsigned>(__builtin_ctz(rest));
    fixed[i].add(counts[index(fixed_signal(i))]);
  }
}

// --- The assist
// ----------------------------------------------------------------------------------------

// Takes the assist now, or after the rest of a fused pair has retired with it (R72).
void Pmu::State::begin_assist(uint32_t triggering, const Retired& r) {
  pending = {.instructions = 0, .triggers = triggering, .load = r.load, .store = r.store};
  bool jitter = behaviour.skid_jitter != 0 && random.below(behaviour.skid_jitter) == 0;
  unsigned wait =
      (behaviour.skid_instructions > 1 ? static_cast<unsigned>(behaviour.skid_instructions) - 1
                                       : 0) +
      (jitter ? 1 : 0);
  if (r.fused_with_next) {
    wait += behaviour.fused_extra_skid;
    if (behaviour.fused_pair_skid > 1) wait += behaviour.fused_pair_skid - 1u;
  }
  pending.instructions = wait;
  if (wait == 0) finish_assist(r);
}

uint64_t Pmu::State::recorded_ip(const Retired& r) const {
  if (behaviour.skid_instructions == 0) return r.ip;
  if (!behaviour.taken_branch_ip_is_target) return r.ip + r.length;
  return r.after->ip;
}

RecordData Pmu::State::record_data(uint32_t triggering, const Retired& r, const Access& load,
                                   const Access& store) const {
  RecordData data;
  data.ip = recorded_ip(r);
  data.global_status = behaviour.status_all_counters
                           ? global_status
                           : global_status & (pebs_enable | status::kOvfBuffer);
  if (!behaviour.status_before_assist) data.global_status &= ~uint64_t{triggering};
  for (uint32_t rest = triggering; rest != 0; rest &= rest - 1) {
    const Counter& c = counters[static_cast<unsigned>(__builtin_ctz(rest))];
    if (c.load_latency && load.valid) {
      data.data_address = load.address;
      data.latency = load.latency;
      data.data_source = behaviour.load_latency_source ? load.source : 0;
      if (uarch.data_source_tlb_lock_bits) {
        data.data_source |= (load.stlb_miss ? bit(4) : 0) | (load.locked ? bit(5) : 0);
      }
    } else if (c.precise_store && store.valid) {
      bool hit = store.l1_hit != behaviour.precise_store_status_inverted;
      uint64_t flags =
          (hit ? bit(0) : 0) | (store.stlb_miss ? bit(4) : 0) | (store.locked ? bit(5) : 0);
      data.data_address = behaviour.precise_store_lag < 0 ? last_store_address : store.address;
      if (!behaviour.precise_store_address) data.data_address = 0;
      data.data_source = behaviour.precise_store_status ? flags : 0;
      data.latency = behaviour.precise_store_zero_latency ? 0 : store.latency;
    }
  }
  return data;
}

void Pmu::State::finish_assist(const Retired& r) {
  uint32_t triggering = pending.triggers;
  DebugStore ds(bus, uarch, behaviour, ds_area);
  if (!ds.load()) return skip_assist(ds);
  if (ds.full() && behaviour.wraps_when_full) ds.wrap();
  if (!ds.room()) return skip_assist(ds);
  RecordData data = record_data(triggering, r, pending.load, pending.store);
  if (!ds.store(data, behaviour.registers_after ? *r.after : before)) return skip_assist(ds);
  after_record(triggering, ds);
}

// The bounds check failed: the event is skipped entirely (D10, R46).
void Pmu::State::skip_assist(const DebugStore& ds) {
  uint32_t enabled_overflow = static_cast<uint32_t>(global_status & pebs_enable & 0xFF);
  if (behaviour.skip_reloads) reload(enabled_overflow, enabled_overflow, ds);
  if (behaviour.skip_clears_status) global_status &= ~uint64_t{enabled_overflow};
  if (!behaviour.resumes_after_rewind) disarm(0xFF);
}

void Pmu::State::after_record(uint32_t triggering, DebugStore& ds) {
  uint32_t overflow = static_cast<uint32_t>(global_status & 0xFF) | triggering;
  uint32_t represented = overflow & (static_cast<uint32_t>(pebs_enable & 0xFF) | triggering);
  if (!behaviour.ovf_buffer_sticky) global_status &= ~status::kOvfBuffer;
  if (behaviour.record_clears_status) global_status &= ~uint64_t{represented};
  if (behaviour.record_clears_all_status) global_status &= status::kOvfBuffer;
  reload(represented, overflow, ds);
  disarm(represented);
  if (ds.full() && behaviour.full_sets_ovf_buffer) global_status |= status::kOvfBuffer;
  if (ds.full() && behaviour.full_interrupts) raise_pmi();
  if (ds.reached_threshold()) {
    if (behaviour.threshold_sets_ovf_buffer) global_status |= status::kOvfBuffer;
    raise_pmi();
  }
}

void Pmu::State::reload(uint32_t represented, uint32_t overflow, const DebugStore& ds) {
  uint32_t which = represented;
  switch (behaviour.reload) {
    case Reload::kOverflowed:
      break;
    case Reload::kNone:
      which = 0;
      break;
    case Reload::kOnlyOnce:
      if (reloaded_once) which = 0;
      break;
    case Reload::kEnabled:
      which = static_cast<uint32_t>(pebs_enable & 0xFF);
      break;
    case Reload::kAnyOverflowed:
      which = overflow;
      break;
    case Reload::kLowestOnly:
      which &= 0u - which;
      break;
  }
  reloaded_once = true;
  for (; which != 0; which &= which - 1) {
    unsigned n = static_cast<unsigned>(__builtin_ctz(which));
    counters[n].count.value = ds.reset_value(n) & counters[n].count.mask;
  }
}

void Pmu::State::disarm(uint32_t which) {
  for (unsigned n = 0; n < kMaxCounters; ++n) {
    if ((which >> n) & 1) counters[n].armed = false;
  }
  armed &= ~which;
}

// --- Interrupts
// ------------------------------------------------------------------------------------------

void Pmu::State::raise_pmi() {
  if ((lvt_pmi & lvt::kMasked) != 0 && behaviour.lvt_mask_honoured) return;
  if (!pmi_pending) {
    pmi_pending = true;
    pmi_countdown = random.between(behaviour.pmi_skid_low, behaviour.pmi_skid_high);
  }
  bool freeze =
      (debugctl & debugctl::kFreezePerfmonOnPmi) != 0 && behaviour.freeze_clears_global_ctrl;
  if (freeze || behaviour.freeze_always) {
    global_ctrl = 0;  // R52, architectural version 2–3
    refresh();
  }
}

// --- Pmu
// ---------------------------------------------------------------------------------------------------

Pmu::Pmu(const Microarch& microarch, Topology topology, Bus& bus, Behaviour behaviour,
         uint64_t seed)
    : state_(std::make_unique<State>(microarch, topology, bus, behaviour, seed)) {}
Pmu::~Pmu() = default;

Expected<uint64_t> Pmu::rdmsr(uint32_t msr) const { return state_->read(msr); }
Expected<void> Pmu::wrmsr(uint32_t msr, uint64_t value) { return state_->write(msr, value); }

Expected<uint64_t> Pmu::rdpmc(uint32_t index) const {
  if (index < state_->visible) return state_->counters[index].count.value;
  uint32_t fixed = index - (uint32_t{1} << 30);
  if (fixed < state_->uarch.fixed_counters) return state_->fixed[fixed].value;
  return fail(ErrorCode::kGeneralProtection, fmt::format("#GP from RDPMC of counter {:#x}", index));
}

void Pmu::set_user(bool user) {
  if (state_->user == user) return;
  state_->user = user;
  state_->refresh();
}

void Pmu::reset() { state_->reset(); }
void Pmu::retire(const Retired& retired) { state_->retire(retired); }
void Pmu::advance(const SignalCounts& counts, uint64_t instructions) {
  state_->advance(counts, instructions);
}

bool Pmu::active() const {
  const State& s = *state_;
  return s.counting != 0 || s.fixed_counting != 0 || s.pmi_pending || s.pending.instructions > 0;
}

uint64_t Pmu::quiet_instructions(uint64_t most_uops) const {
  const State& s = *state_;
  if (s.step_needed || s.pending.instructions > 0 || (s.armed & s.counting) != 0) return 0;
  uint64_t quiet = s.pmi_pending ? s.pmi_countdown : UINT64_MAX;
  for (uint32_t rest = s.counting; rest != 0; rest &= rest - 1) {
    const Counter& c = s.counters[static_cast<unsigned>(__builtin_ctz(rest))];
    quiet = std::min(
        quiet,
        c.count.quiet(c.signal == Signal::kUops ? most_uops : max_per_instruction(c.signal)));
  }
  for (uint32_t rest = s.fixed_counting; rest != 0; rest &= rest - 1) {
    unsigned i = static_cast<unsigned>(__builtin_ctz(rest));
    quiet = std::min(quiet, s.fixed[i].quiet(max_per_instruction(s.fixed_signal(i))));
  }
  return quiet;
}

bool Pmu::interrupt_pending() const { return state_->pmi_pending; }

bool Pmu::take_interrupt() {
  State& s = *state_;
  if (!s.pmi_pending || s.pmi_countdown > 0) return false;
  s.pmi_pending = false;
  if (s.behaviour.delivery_masks_lvt) s.lvt_pmi |= lvt::kMasked;
  return true;
}

}  // namespace skidproof::model
