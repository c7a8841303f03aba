// What the registers mean, what is counted, when it interrupts.
#include "pebs/model/pmu.h"

#include <fmt/format.h>

#include <algorithm>

#include "pebs/arch/msr.h"
#include "pebs/model/pmu_state.h"

namespace skidproof::model {

namespace {

// One retired load in this many is tagged for load latency. The manual says "randomly"; the rate is
// the model's own choice. [SDM 18.9.4.2]
constexpr uint64_t kLoadTagRate = 4;

}  // namespace

void Pmu::State::reset() {
  for (Counter& c : counters) {
    c = Counter{};
    c.count.mask = gp_counter_mask(uarch) & low_bits(behaviour.counting.counter_bits);
  }
  for (CountRegister& f : fixed) f = {0, fixed_counter_mask(uarch)};
  fixed_ctrl = global_ctrl = global_status = pebs_enable = 0;
  sibling_clock = magic_selects = level_change_left = 0;
  load_latency_threshold = ds_area = debugctl = frontend = first_tsc = 0;
  pebs_data_cfg = perf_metrics = lbr_ctl = 0;
  fixed_sampling = {};
  branches.clear();
  misc_enable = misc_enable::kPerfmonAvailable |
                (behaviour.pebs_announced ? 0 : misc_enable::kPebsUnavailable);
  lvt_pmi = kResetLvt;
  pending = {};
  pmi_pending = reloaded_once = false;
  refresh();
}

// --- What the registers mean

bool Pmu::State::pebs_eligible(unsigned n, const Event* event) const {
  const Counter& c = counters[n];
  if (((behaviour.pebs_counters >> n) & 1) == 0) return false;
  if (!behaviour.pebs_without_enable && ((pebs_enable >> n) & 1) == 0) return false;
  if (event == nullptr) return false;
  // What P4 does not promise the model does not do, unless any event will do (R61).
  if (!precise_on(n, *event) && !behaviour.adaptive.any_event) return false;
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

// Whether PEBS takes the event itself on this counter.
bool Pmu::State::precise_on(unsigned n, const Event& event) const {
  if (!event.precise()) return false;
  if (event.kind == EventKind::kStoreSample) {
    return ((behaviour.adaptive.store_sample_counters >> n) & 1) != 0;
  }
  bool restricted_elsewhere = behaviour.pebs_counters == uarch.pebs_counters;
  return !restricted_elsewhere || ((event.pebs_counters >> n) & 1) != 0 ||
         event.kind == EventKind::kPreciseStore;
}

// Recomputes what a counter's select means under the present control registers.
void Pmu::State::resolve(unsigned n) {
  Counter& c = counters[n];
  const Event* event =
      uarch.event(static_cast<uint8_t>(c.select), static_cast<uint8_t>(c.select >> 8));
  const CountingBehaviour& how = behaviour.counting;
  if (how.selects_shared && n == 1) {
    const uint64_t first = counters[0].select;
    event = uarch.event(static_cast<uint8_t>(first), static_cast<uint8_t>(first >> 8));
  }
  bool privilege = !behaviour.privilege_filters ||
                   (c.select & (user != how.privilege_swapped ? evtsel::kUsr : evtsel::kOs)) != 0;
  bool own_enable = (c.select & evtsel::kEnable) != 0 || !how.own_enable_needed;
  unsigned enabling_bit = how.global_ctrl_crossed ? n ^ 1 : n;
  bool enabled = own_enable && (((enabled_counters() >> enabling_bit) & 1) != 0 ||
                                !behaviour.enable_needs_global);
  if ((c.select & evtsel::kOs) == 0 && ((how.upper_usr_only_dead >> n) & 1) != 0) enabled = false;
  if (how.needs_magic_selects && magic_selects != kAllMagicSelects) enabled = false;
  // No program of the model is ever inside a transaction.
  if ((c.select & evtsel::kInTx) != 0 && behaviour.generation.in_tx_filters) enabled = false;
  bool store_elsewhere = event != nullptr && event->kind == EventKind::kPreciseStore &&
                         ((behaviour.precise_store_counters >> n) & 1) != 0;
  store_elsewhere |= event != nullptr && event->kind == EventKind::kStoreSample &&
                     ((behaviour.adaptive.store_sample_counters >> n) & 1) != 0;
  bool counted_here = event != nullptr && (((event->counters >> n) & 1) != 0 || store_elsewhere);
  bool own_latency_bit =
      uarch.load_latency_enable != 0 || behaviour.adaptive.load_latency_needs_enable;
  c.load_latency =
      event != nullptr && event->kind == EventKind::kLoadLatency &&
      (!own_latency_bit || ((pebs_enable >> (pebs_enable::kLoadLatencyShift + n)) & 1) != 0);
  c.signal =
      event != nullptr && event->kind != EventKind::kLoadLatency ? event->signal : Signal::kNone;
  if (how.substitute.select != 0 && how.substitute.select == (c.select & 0xFFFF)) {
    c.signal = how.substitute.signal;
  }
  if (how.macro_fused_counts_jumps && c.signal == Signal::kMacroFused) {
    c.signal = Signal::kConditional;
  }
  c.counting = enabled && privilege && counted_here &&
               (c.signal != Signal::kNone || c.load_latency) && present(n) &&
               n < behaviour.running_counters;
  c.any_thread = c.counting && !c.load_latency && counts_sibling(c.select & evtsel::kAnyThread);
  if (sibling && event != nullptr && event->code >= 0xD0 && event->code <= 0xD3 &&
      ((how.sibling_leaks >> (event->code - 0xD0)) & 1) != 0) {
    c.any_thread = c.counting;
  }
  c.pebs = pebs_eligible(n, event);
  c.any_event = c.pebs && !precise_on(n, *event);
  c.pdir = c.pebs && event->kind == EventKind::kPdir && ((behaviour.pdir_counters >> n) & 1) != 0;
  c.pdir |= c.pebs && !c.any_event && ((behaviour.adaptive.pdist_counters >> n) & 1) != 0;
  c.store_sample = c.pebs && !c.any_event && event->kind == EventKind::kStoreSample;
  c.precise_store = c.pebs && event->kind == EventKind::kPreciseStore;
  c.data_address = c.pebs && !c.any_event && event->data_address;
  c.store_status = c.data_address && event->l1_hit_bit;
  if (!c.pebs) c.armed = false;
}

// Whether a counter with or without AnyThread counts the other logical processor, too (M36).
bool Pmu::State::counts_sibling(bool any_thread) const {
  if (!sibling || !uarch.any_thread) return false;
  return (any_thread && behaviour.counting.any_thread != AnyThread::kOwn) ||
         behaviour.counting.any_thread_always;
}

void Pmu::State::refresh() {
  const CountingBehaviour& how = behaviour.counting;
  const uint32_t fixed_before = fixed_counting;
  counting = fixed_counting = armed = fixed_armed = sharing = fixed_sharing = 0;
  step_needed = false;
  for (unsigned n = 0; n < kMaxCounters; ++n) {
    Counter& c = counters[n];
    bool was_counting = c.counting;
    resolve(n);
    if (c.counting && !was_counting) c.filter.configure(c.select, how);
    if (c.counting) counting |= 1u << n;
    if (c.armed) armed |= 1u << n;
    if (c.any_thread) sharing |= 1u << n;
    step_needed |= c.counting && (c.filter.used() || c.load_latency);
  }
  for (unsigned i = 0; i < uarch.fixed_counters; ++i) {
    resolve_fixed(i);
    uint64_t field = fixed_field(i);
    bool privilege =
        (field & (user != how.privilege_swapped ? fixed_ctrl::kUsr : fixed_ctrl::kOs)) != 0;
    if (!how.fixed_privilege_filters && (field & (fixed_ctrl::kUsr | fixed_ctrl::kOs)) != 0)
      privilege = true;
    bool global = ((enabled_counters() >> (status::kFixedShift + i)) & 1) != 0;
    if (!privilege || !(global || !how.fixed_needs_global)) continue;
    fixed_counting |= 1u << i;
    if (fixed_sampling[i].armed) fixed_armed |= 1u << i;
    if (how.any_thread_on_fixed && counts_sibling(field & fixed_ctrl::kAnyThread))
      fixed_sharing |= 1u << i;
  }
  if ((fixed_counting & ~fixed_before & 1) != 0 && sibling) fixed[0].add(how.fixed_start_extra);
  // Nothing counts any more: an assist that waited for the rest of a fused pair will not come.
  if ((counting | fixed_counting) == 0) pending = {};
  branches_recorded = (pebs_data_cfg & adaptive::kBranches) != 0 && pebs_mask() != 0 &&
                      (uarch.architectural_lbr() ? lbr_ctl : debugctl) & debugctl::kLbr;
  if (branches_recorded) step_needed |= (counting | fixed_counting) != 0;
}

// --- Counting, arming, triggering

uint64_t Pmu::State::contribution(const Counter& c, const Retired& r, bool tagged) const {
  if (c.load_latency) return tagged ? 1 : 0;
  return r.counts[index(c.signal)];
}

// What a counter of both threads gains while this one gains so many of a signal.
uint64_t Pmu::State::with_sibling(Signal signal, uint64_t select, uint64_t events,
                                  uint64_t cycles) const {
  const uint64_t other = Sibling::events(signal, sibling_clock, sibling_clock + cycles);
  const bool one_level = ((select & evtsel::kUsr) != 0) != ((select & evtsel::kOs) != 0);
  switch (one_level && behaviour.counting.any_thread_one_level != AnyThread::kBoth
              ? behaviour.counting.any_thread_one_level
              : behaviour.counting.any_thread) {
    case AnyThread::kBoth:
    case AnyThread::kOwn:
      break;
    case AnyThread::kSibling:
      return other;
    case AnyThread::kHalf:
      return (events + other + 1) / 2;
  }
  return events + other;
}

// All of them, on a CPU that counts right.
uint64_t Pmu::State::noticed(Counter& c, uint64_t events) const {
  if (behaviour.counting.extra_events != 0) [[unlikely]] {
    c.since_extra += events;
    events += c.since_extra / behaviour.counting.extra_events;
    c.since_extra %= behaviour.counting.extra_events;
  }
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
  if (events == 0 && !behaviour.record_without_event && !c.any_event) return false;
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
  if (behaviour.overflow_sets_status) global_status |= bit(n + behaviour.counting.gp_status_offset);
  bool interrupts = (c.select & evtsel::kInt) != 0 || behaviour.counting.interrupts_without_int ||
                    (c.pebs && behaviour.pebs_overflow_interrupts);
  if (interrupts && behaviour.overflow_interrupts) raise_pmi();
  if (!c.pebs) return false;
  if (c.pdir || behaviour.record_on_overflow) return true;
  c.armed = true;
  c.ready_cycle = r.cycle + (behaviour.record_without_event ? 0 : behaviour.arm_cycles);
  c.events_to_go = behaviour.extra_events;
  armed |= 1u << n;
  return false;
}

// An overflow of fixed counter i. True when the record belongs to this very event.
bool Pmu::State::fixed_overflowed(unsigned i, const Retired& r) {
  if (behaviour.overflow_sets_status) {
    global_status |= bit(behaviour.counting.fixed_status_shift + i);
  }
  bool interrupts = (fixed_field(i) & fixed_ctrl::kPmi) != 0 ||
                    behaviour.counting.fixed_interrupts_without_pmi ||
                    (fixed_sampling[i].pebs && behaviour.pebs_overflow_interrupts);
  if (interrupts && behaviour.overflow_interrupts) raise_pmi();
  FixedSampling& sampling = fixed_sampling[i];
  if (!sampling.pebs) return false;
  if (sampling.pdir || behaviour.record_on_overflow) return true;
  sampling.armed = true;
  sampling.ready_cycle = r.cycle + (sampling.shadowless ? 0 : behaviour.arm_cycles);
  fixed_armed |= 1u << i;
  return false;
}

// What a fixed counter gains.
uint64_t Pmu::State::fixed_events(unsigned i, const SignalCounts& counts) {
  const CountingBehaviour& how = behaviour.counting;
  uint64_t events = counts[index(fixed_signal(i))];
  if ((fixed_sharing >> i) & 1) {
    uint64_t one_level = (fixed_field(i) & fixed_ctrl::kUsr) != 0 ? evtsel::kUsr : 0;
    if ((fixed_field(i) & fixed_ctrl::kOs) != 0) one_level |= evtsel::kOs;
    events = with_sibling(fixed_signal(i), one_level, events, cycles_of(counts));
  }
  if (i == 0 && how.fixed_lost_events != 0) [[unlikely]] {
    fixed_since_loss += events;
    events -= fixed_since_loss / how.fixed_lost_events;
    fixed_since_loss %= how.fixed_lost_events;
  }
  if (i == 2 && how.reference_clock_percent != 100) [[unlikely]] {
    reference_parts += events * how.reference_clock_percent;
    events = reference_parts / 100;
    reference_parts %= 100;
  }
  return events;
}

void Pmu::State::retire(const Retired& r) {
  elapse(1);
  if (level_change_left > 0) [[unlikely]] {
    --level_change_left;
    return;
  }
  bool tagged = false;
  if (step_needed && r.load.valid) {
    uint64_t threshold = behaviour.load_latency_threshold ? load_latency_threshold : 0;
    tagged = random.below(kLoadTagRate) == 0 && r.load.latency > threshold;
  }
  uint64_t triggering = 0;
  for (uint32_t rest = counting; rest != 0; rest &= rest - 1) {
    unsigned n = static_cast<unsigned>(__builtin_ctz(rest));
    Counter& c = counters[n];
    uint64_t events = contribution(c, r, tagged);
    if (c.any_thread) events = with_sibling(c.signal, c.select, events, cycles_of(r.counts));
    if (c.filter.used()) events = c.filter.feed(r.cycle, events, cycles_of(r.counts));
    if (c.armed && triggers(c, r, events)) triggering |= bit(n);
    events = noticed(c, events);
    if (events != 0 && c.count.add(events) && overflowed(n, r)) triggering |= bit(n);
  }
  for (uint32_t rest = fixed_counting; rest != 0; rest &= rest - 1) {
    unsigned i = static_cast<unsigned>(__builtin_ctz(rest));
    uint64_t events = fixed_events(i, r.counts);
    if (((fixed_armed >> i) & 1) != 0 && fixed_triggers(i, r, events)) [[unlikely]] {
      triggering |= bit(status::kFixedShift + i);
    }
    if (fixed[i].add(events) && fixed_overflowed(i, r)) triggering |= bit(status::kFixedShift + i);
  }
  if ((sharing | fixed_sharing) != 0) sibling_clock += cycles_of(r.counts);
  if (branches_recorded) [[unlikely]]
    note_branch(r);
  if (pending.instructions > 0) {
    pending.triggers |= triggering;
    if (--pending.instructions == 0) finish_assist(r);
  } else if (triggering != 0) {
    begin_assist(triggering, r);
  }
  if (r.store.valid) last_store_address = r.store.address;
  if (!behaviour.registers_after) before = *r.after;
  last_ip = r.ip;
}

void Pmu::State::advance(const SignalCounts& counts, uint64_t instructions) {
  elapse(instructions);
  for (uint32_t rest = counting; rest != 0; rest &= rest - 1) {
    Counter& c = counters[static_cast<unsigned>(__builtin_ctz(rest))];
    uint64_t events = counts[index(c.signal)];
    if (c.any_thread) events = with_sibling(c.signal, c.select, events, cycles_of(counts));
    c.count.add(noticed(c, events));
  }
  for (uint32_t rest = fixed_counting; rest != 0; rest &= rest - 1) {
    unsigned i = static_cast<unsigned>(__builtin_ctz(rest));
    fixed[i].add(fixed_events(i, counts));
  }
  if ((sharing | fixed_sharing) != 0) sibling_clock += cycles_of(counts);
}

// --- Interrupts

void Pmu::State::raise_pmi() {
  if ((lvt_pmi & lvt::kMasked) != 0 && behaviour.lvt_mask_honoured) return;
  if (!pmi_pending) {
    pmi_pending = true;
    pmi_countdown = random.between(behaviour.pmi_skid_low, behaviour.pmi_skid_high);
  }
  bool freeze = (debugctl & debugctl::kFreezePerfmonOnPmi) != 0;
  if ((freeze && behaviour.freeze_clears_global_ctrl) || behaviour.freeze_always) {
    global_ctrl = 0;  // R52, architectural version 2–3
    refresh();
  } else if (freeze && behaviour.generation.streamlined_freeze) {
    global_status |= status::kCountersFrozen;
    refresh();
  }
}

// --- Pmu

Pmu::Pmu(const Microarch& microarch, Topology topology, Bus& bus, Behaviour behaviour,
         uint64_t seed)
    : state_(std::make_unique<State>(microarch, topology, bus, behaviour, seed)) {}
Pmu::~Pmu() = default;

Expected<uint64_t> Pmu::rdmsr(uint32_t msr) const { return state_->read(msr); }
Expected<void> Pmu::wrmsr(uint32_t msr, uint64_t value) { return state_->write(msr, value); }

Expected<uint64_t> Pmu::rdpmc(uint32_t index, bool user, bool cr4_pce) const {
  return state_->rdpmc(index, user, cr4_pce);
}

void Pmu::set_user(bool user) {
  if (state_->user == user) return;
  state_->user = user;
  state_->level_change_left = state_->behaviour.counting.lost_at_privilege;
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
  if (s.step_needed || s.pending.instructions > 0 || ((s.armed & s.counting) | s.fixed_armed) != 0)
    return 0;
  if (s.level_change_left > 0) [[unlikely]]
    return 0;
  uint64_t quiet = s.pmi_pending ? s.pmi_countdown : UINT64_MAX;
  for (uint32_t rest = s.counting; rest != 0; rest &= rest - 1) {
    const Counter& c = s.counters[static_cast<unsigned>(__builtin_ctz(rest))];
    uint64_t most = c.signal == Signal::kUops ? most_uops : max_per_instruction(c.signal);
    if (c.any_thread) most += Sibling::most(kMaxCyclesPerInstruction);
    if (s.behaviour.counting.extra_events != 0) most *= 2;
    quiet = std::min(quiet, c.count.quiet(most));
  }
  for (uint32_t rest = s.fixed_counting; rest != 0; rest &= rest - 1) {
    unsigned i = static_cast<unsigned>(__builtin_ctz(rest));
    uint64_t most = max_per_instruction(s.fixed_signal(i));
    if ((s.fixed_sharing >> i) & 1) most += Sibling::most(kMaxCyclesPerInstruction);
    if (s.behaviour.counting.reference_clock_percent > 100) most *= 2;
    quiet = std::min(quiet, s.fixed[i].quiet(most));
  }
  return quiet;
}

bool Pmu::interrupt_pending() const { return state_->pmi_pending; }

bool Pmu::take_interrupt() {
  State& s = *state_;
  if (!s.pmi_pending || s.pmi_countdown > 0) return false;
  s.pmi_pending = false;
  if (s.behaviour.counting.interrupts_twice) {
    s.pmi_pending = s.repeats_pmi = !s.repeats_pmi;
    if (s.pmi_pending) s.pmi_countdown = s.behaviour.pmi_skid_high;
  }
  if (s.behaviour.delivery_masks_lvt) s.lvt_pmi |= lvt::kMasked;
  return true;
}

}  // namespace skidproof::model
