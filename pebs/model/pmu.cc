// What the registers mean, what is counted, when it interrupts.
#include "pebs/model/pmu.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "pebs/arch/msr.h"
#include "pebs/model/netburst.h"
#include "pebs/model/pmu_state.h"

namespace skidproof::model {

void Pmu::State::reset() {
  for (Counter& c : counters) {
    c = Counter{};
    c.count.mask = gp_counter_mask(uarch) & low_bits(behaviour.counting.counter_bits);
  }
  for (CountRegister& f : fixed) f = {0, fixed_counter_mask(uarch)};
  fixed_ctrl = global_ctrl = global_status = pebs_enable = 0;
  sibling_clock = magic_selects = level_change_left = next_tag = 0;
  fixed_overflows = 0;
  last_overflow = stuck_status = 0;
  load_latency_threshold = ds_area = debugctl = frontend = earlier_tsc = 0;
  pebs_data_cfg = perf_metrics = lbr_ctl = lbr_select = 0;
  fixed_sampling = {};
  branches.clear();
  branches_seen = 0;
  misc_enable = misc_enable::kPerfmonAvailable |
                (behaviour.pebs_announced ? 0 : misc_enable::kPebsUnavailable) |
                (behaviour.bts.announced ? 0 : misc_enable::kBtsUnavailable);
  lvt_pmi = kResetLvt;
  pending = {};
  auto_reload = {};
  pebs_registers = {};
  tracer.reset();
  modes.smm = modes.locked = smm_frozen = false;
  pended_in_smm = 0;
  latched = {};
  interrupts_due = records = pmis_raised = 0;
  pmi_pending = pmi_follows = pmi_second = false;
  reloaded_once = enabled_before = loses_overflow = false;
  refresh();
}

// What 64-bit code leaves in the registers is anything.
void Pmu::State::set_mode(Mode next) {
  if (mode == next) return;
  mode = next;
  const bool enters = mode == Mode::kLong;
  if (!enters) left_by_64_bit_code = any_registers(random);
  ia32e = enters && (ia32e || !behaviour.legacy_mode_sticks);
  modes.real_mode = mode == Mode::kReal;
  tracer.set_mode(mode);
  refresh();
}

// --- What the registers mean

namespace {
unsigned combination_of(uint64_t select) {
  return qualifiers((select & evtsel::kAnyThread) != 0, (select & evtsel::kEdge) != 0,
                    (select & evtsel::kInvert) != 0, (select & evtsel::kCmask) != 0);
}
}  // namespace

bool Pmu::State::pebs_eligible(unsigned n, const Event* event) const {
  const Counter& c = counters[n];
  if (((behaviour.pebs_counters >> n) & 1) == 0) return false;
  if (!behaviour.pebs_without_enable && ((pebs_enable >> n) & 1) == 0) return false;
  if (event == nullptr) return false;
  if (event->kind == EventKind::kLoadLatency && behaviour.load_latency_needs_core && sibling)
    return false;
  // What P4 does not promise the model does not do, unless any event will do (R61).
  if (!precise_on(n, *event) && !behaviour.adaptive.any_event) return false;
  if (event->kind == EventKind::kPreciseStore) {
    if (((behaviour.precise_store_counters >> n) & 1) == 0) return false;
    if (behaviour.precise_store_needs_enable && (pebs_enable & pebs_enable::kPreciseStore) == 0)
      return false;
  }
  // R33; a combination that published encodings use works here as it does there.
  const unsigned combination = combination_of(c.select) & ~unsigned{behaviour.ignored_qualifiers};
  return combination == 0 ||
         (uarch.expectation(combination) == Expectation::kClassify &&
          (behaviour.rough.disputed_qualifiers != 0 || behaviour.qualified_cycles));
}

// The select by which a counter filters what it counts: PEBS may make nothing of disputed qualifiers.
uint64_t Pmu::State::filtering_select(const Counter& c) const {
  const bool ignored = c.pebs && behaviour.rough.disputed_qualifiers == 2 &&
                       !behaviour.qualified_cycles &&
                       uarch.expectation(combination_of(c.select)) == Expectation::kClassify;
  return ignored ? c.select & ~(evtsel::kEdge | evtsel::kInvert | evtsel::kCmask) : c.select;
}

bool Pmu::State::load_latency_enabled(unsigned n) const {
  if (behaviour.load_latency_wants_cmask && (counters[n].select & evtsel::kCmask) == 0)
    return false;
  const bool own_bit = uarch.load_latency_enable != 0
                           ? behaviour.load_latency_needs_enable
                           : behaviour.adaptive.load_latency_needs_enable;
  return !own_bit || ((pebs_enable >> (pebs_enable::kLoadLatencyShift + n)) & 1) != 0;
}

bool Pmu::State::pdir_works(unsigned n) const {
  if (behaviour.pdir_needs_pmc0 && (pebs_enable & 1) == 0) return false;
  if (!behaviour.pdir_with_freeze && (debugctl & debugctl::kFreezePerfmonOnPmi) != 0) return false;
  return ((behaviour.pdir_counters >> n) & 1) != 0;
}

// Whether PEBS takes the event itself on this counter.
bool Pmu::State::precise_on(unsigned n, const Event& event) const {
  if (!event.precise()) return false;
  if (event.kind == EventKind::kStoreSample) {
    return ((behaviour.adaptive.store_sample_counters >> n) & 1) != 0;
  }
  const bool restricted_elsewhere = behaviour.pebs_counters == uarch.pebs_counters;
  const bool anywhere = event.kind == EventKind::kLoadLatency && behaviour.load_latency_elsewhere;
  return !restricted_elsewhere || ((event.pebs_counters >> n) & 1) != 0 || anywhere ||
         event.kind == EventKind::kPreciseStore;
}

// Whether USR and OS let it count at the present level.
bool Pmu::State::counts_level(unsigned n) const {
  const uint64_t select = counters[n].select;
  if (!behaviour.privilege_filters) return true;
  if (!behaviour.pebs_privilege_filters && ((pebs_enable >> n) & 1) != 0) return true;
  const bool user_level = user != behaviour.counting.privilege_swapped;
  return (select & (user_level ? evtsel::kUsr : evtsel::kOs)) != 0;
}

// Recomputes what a counter's select means under the present control registers.
void Pmu::State::resolve(unsigned n) {
  Counter& c = counters[n];
  const CountingBehaviour& how = behaviour.counting;
  const uint64_t select = how.selects_shared && n == 1 ? counters[0].select : c.select;
  const uint8_t umask2 = umask2_of(select);
  const auto code = static_cast<uint32_t>((select & 0xFFFF) | uint32_t{umask2} << 16);
  if (c.event_code != code) {
    c.event_code = code;
    c.event = uarch.event(static_cast<uint8_t>(select), static_cast<uint8_t>(select >> 8), umask2);
  }
  const Event* event = c.event;
  bool privilege = counts_level(n);
  bool own_enable = (c.select & evtsel::kEnable) != 0 || !how.own_enable_needed;
  unsigned enabling_bit = how.global_ctrl_crossed ? n ^ 1 : n;
  bool enabled = own_enable && (((enabled_counters() >> enabling_bit) & 1) != 0 ||
                                !behaviour.enable_needs_global);
  if (((how.upper_usr_only_dead >> n) & 1) != 0 && (c.select & evtsel::kOs) == 0) enabled = false;
  if (how.needs_magic_selects && magic_selects != kAllMagicSelects) enabled = false;
  // No program of the model is ever inside a transaction.
  if (behaviour.generation.in_tx_filters && (c.select & evtsel::kInTx) != 0) enabled = false;
  bool store_elsewhere = event != nullptr && event->kind == EventKind::kPreciseStore &&
                         ((behaviour.precise_store_counters >> n) & 1) != 0;
  store_elsewhere |= event != nullptr && event->kind == EventKind::kStoreSample &&
                     ((behaviour.adaptive.store_sample_counters >> n) & 1) != 0;
  bool latency = event != nullptr && event->kind == EventKind::kLoadLatency &&
                 ((behaviour.efficient.load_latency_deaf >> n) & 1) == 0;
  bool elsewhere = store_elsewhere || (latency && behaviour.load_latency_elsewhere);
  bool counted_here = event != nullptr && (((event->counters >> n) & 1) != 0 || elsewhere ||
                                           !behaviour.counter_lists_hold);
  c.load_latency = latency && load_latency_enabled(n);
  c.signal =
      event != nullptr && event->kind != EventKind::kLoadLatency ? event->signal : Signal::kNone;
  if (how.substitute.select == (c.select & 0xFFFF)) c.signal = how.substitute.signal;
  if (how.mistake.event != Signal::kNone && c.signal == how.mistake.event) {
    c.signal = how.mistake.counts;
  }
  if (how.macro_fused_counts_jumps && c.signal == Signal::kMacroFused) {
    c.signal = Signal::kConditional;
  }
  c.counting = enabled && privilege && counted_here &&
               (c.signal != Signal::kNone || c.load_latency) && present(n) &&
               (n < behaviour.running_counters || n >= kLegacyCounters) &&
               !bit_of(behaviour.version6.dead_counters, n);
  c.any_thread = c.counting && !c.load_latency && counts_sibling(c.select & evtsel::kAnyThread);
  if (how.sibling_leaks != 0 && sibling && event != nullptr && event->code >= 0xD0 &&
      event->code <= 0xD3 && ((how.sibling_leaks >> (event->code - 0xD0)) & 1) != 0) {
    c.any_thread = c.counting;
  }
  c.pebs = pebs_eligible(n, event);
  c.any_event = c.pebs && !precise_on(n, *event);
  c.pdir = c.pebs && event->kind == EventKind::kPdir && pdir_works(n);
  // Neither works with a qualifier. [SDM 089 21.9.4, 21.9.6]
  const bool distributable =
      c.pebs && !c.any_event && combination_of(c.select) == 0 && uarch.distributes(*event);
  c.pdir |= distributable && distributed(n);
  c.pdir |= distributable && ((behaviour.efficient.reduced_skid_at_once >> n) & 1) != 0;
  c.shadowless = distributable && ((behaviour.efficient.reduced_skid_counters >> n) & 1) != 0;
  c.store_sample = c.pebs && !c.any_event && event->kind == EventKind::kStoreSample;
  c.precise_store = c.pebs && event->kind == EventKind::kPreciseStore;
  c.data_address = c.pebs && !c.any_event && event->data_address;
  c.store_status = c.data_address && event->l1_hit_bit;
  if (!c.pebs && !behaviour.arming_survives_disable) c.armed = false;
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
  const uint32_t could_record = armed & counting;
  counting = fixed_counting = armed = fixed_armed = fixed_sharing = 0;
  sharing = false;
  step_needed = false;
  for (unsigned n = 0; n < kMaxCounters; ++n) {
    Counter& c = counters[n];
    bool was_counting = c.counting;
    resolve(n);
    if (c.counting && !was_counting)
      c.filter.configure(filtering_select(c), how, behaviour.version6);
    if (c.counting) counting |= 1u << n;
    if (c.armed) armed |= 1u << n;
    sharing |= c.any_thread;
    step_needed |= c.counting && (c.filter.used() || c.load_latency);
  }
  for (unsigned i = 0; i < kMaxFixed; ++i) {
    if (!bit_of(fixed_bits(uarch), i)) continue;
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
  auxiliary_missing = misses_auxiliary();
  tracing = modes.branches(behaviour.modes) && tracer.asked_for(debugctl, user);
  unusual = tracing || modes.smm;
  if (how.fixed_start_extra != 0 && sibling && (fixed_counting & ~fixed_before & 1) != 0) {
    fixed[0].add(how.fixed_start_extra);
  }
  // Nothing counts any more: an assist that waited for the rest of a fused pair will not come.
  if ((counting | fixed_counting) == 0) pending = {};
  interrupts_due &= armed | static_cast<uint32_t>(pending.triggers);
  branches_recorded = records_branches();
  step_needed |= branches_recorded;
  if (behaviour.record_at_disable) record_at_disable(could_record & ~counting);
}

// --- Counting, arming, triggering

uint64_t Pmu::State::contribution(const Counter& c, const Retired& r, bool tagged) const {
  if (c.load_latency) return tagged ? 1 : 0;
  const uint64_t events = r.counts[index(c.signal)];
  return mistakes ? mistaken(c, r, events) : events;
}

// What a counter of both threads gains while this one gains so many of a signal.
uint64_t Pmu::State::with_sibling(Signal signal, uint64_t select, uint64_t events,
                                  uint64_t cycles) const {
  const bool idle = behaviour.rough.sibling_idle != 0;
  const uint64_t other = idle ? 0 : Sibling::events(signal, sibling_clock, sibling_clock + cycles);
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
  if (!miscounts) [[likely]]
    return events;
  if (behaviour.counting.extra_events != 0) {
    c.since_extra += events;
    events += c.since_extra / behaviour.counting.extra_events;
    c.since_extra %= behaviour.counting.extra_events;
  }
  const bool far = c.signal == Signal::kLoadsL3Hit || c.signal == Signal::kLoadsL3Miss;
  if (far && behaviour.counting.far_loads_lost_percent != 0) {
    c.since_loss += events * behaviour.counting.far_loads_lost_percent;
    const uint64_t lost = std::min(events, c.since_loss / 100);
    c.since_loss -= 100 * lost;
    return events - lost;
  }
  if (behaviour.lost_events == 0) return events;
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

// Whether an overflow arms, and how many events pass before the one that is recorded. Every one
// does, on a CPU that keeps R1.
bool Pmu::State::arms(Counter& c) {
  ++c.armings;
  c.redundant = false;
  bool late = behaviour.late_armings != 0 && c.armings % behaviour.late_armings == 0;
  c.events_to_go = behaviour.extra_events + (late ? 1 : 0);
  if (c.shadowless && behaviour.efficient.reduced_skid_event_later) [[unlikely]]
    ++c.events_to_go;
  if (behaviour.toggling_loses_overflow && std::exchange(loses_overflow, false)) return false;
  if (behaviour.lost_armings != 0 && c.armings % behaviour.lost_armings == 0) return false;
  uint64_t least = c.pdir ? behaviour.pdir_least_period : behaviour.least_period;
  return c.period() >= least;
}

// An overflow of counter n: status, interrupt, arming. True when the record belongs to this very
// event.
bool Pmu::State::overflowed(unsigned n, const Retired& r) {
  if (rare != nullptr) [[unlikely]]
    draw_defect();
  Counter& c = counters[n];
  if (auto_reload.used && auto_reload_overflow(n, c.pebs)) [[unlikely]]
    return false;
  if (behaviour.overflow_sets_status && (behaviour.pebs_overflow_sets_status || !c.pebs)) {
    last_overflow =
        bit(n + behaviour.counting.gp_status_offset) & ~uint64_t{behaviour.version6.silent_status};
    since_overflow = 0;
    global_status |= last_overflow;
  }
  bool interrupts = (c.select & evtsel::kInt) != 0 || behaviour.counting.interrupts_without_int ||
                    (c.pebs && behaviour.pebs_overflow_interrupts);
  if (interrupts && behaviour.overflow_interrupts) overflow_interrupt(n);
  if (!c.pebs) {
    if (behaviour.reload_without_record) reload_without_record(n);
    return false;
  }
  if (!arms(c)) return false;
  if (behaviour.threshold_interrupts_at_arming) announce_threshold();
  if (behaviour.last_branches.frozen_at_overflow) [[unlikely]]
    freeze_last_branches_early(n);
  const bool pdir = c.pdir && !(distributed(n) && c.period() < behaviour.rough.pdist_least);
  const bool on_time = !happens(pdir && !distributed(n) ? behaviour.rough.pdir_next : 0);
  if ((pdir && on_time) || behaviour.record_on_overflow) return true;
  const bool waits = !pdir && !c.shadowless && !behaviour.record_without_event && !armed_at_once(c);
  c.armed = true;
  c.ready_cycle = r.cycle + (waits ? arming_time() : 0);
  armed |= 1u << n;
  return false;
}

// An overflow of fixed counter i. True when the record belongs to this very event.
bool Pmu::State::fixed_overflowed(unsigned i, const Retired& r) {
  if (rare != nullptr) [[unlikely]]
    draw_defect();
  if (behaviour.counting.close_fixed_overflows_lost && is_close_overflow(i, r)) [[unlikely]]
    return false;
  if (auto_reload.used && auto_reload_overflow(status::kFixedShift + i, fixed_sampling[i].pebs))
      [[unlikely]]
    return false;
  if (behaviour.overflow_sets_status) {
    global_status |= bit(behaviour.counting.fixed_status_shift + i);
  }
  bool interrupts = (fixed_field(i) & fixed_ctrl::kPmi) != 0 ||
                    behaviour.counting.fixed_interrupts_without_pmi ||
                    (fixed_sampling[i].pebs && behaviour.pebs_overflow_interrupts);
  if (interrupts && behaviour.overflow_interrupts) {
    const bool freezes = (debugctl & debugctl::kFreezePerfmonOnPmi) != 0;
    raise_pmi();
    if (behaviour.counting.fixed_zero_interrupts_twice && i == 0 && sibling && freezes &&
        (fixed_field(0) & fixed_ctrl::kAnyThread) == 0) {
      pmi_follows = pmi_pending;
    }
  }
  FixedSampling& sampling = fixed_sampling[i];
  if (!sampling.pebs) return false;
  const bool at_once = sampling.shadowless || sampling.pdir;
  const bool other = at_once && happens(behaviour.rough.pdir_next);
  const uint8_t lag = behaviour.adaptive.pdist_on_fixed_lag;
  const bool itself = at_once && lag == 0 && sampling.pdir != other;
  const bool late = at_once && happens(behaviour.rough.pdist_late);
  sampling.late =
      late ? static_cast<uint32_t>(random.between(1, behaviour.rough.pdist_late_most)) : 0;
  if ((itself && !late) || behaviour.record_on_overflow) return true;
  sampling.armed = true;
  sampling.ready_cycle = r.cycle + (at_once ? 0 : arming_time());
  // The next instruction is that of a record which is not late.
  if (at_once && !itself && late) ++sampling.late;
  if (at_once && lag != 0) [[unlikely]]
    sampling.late = std::max(sampling.late, 1u) + lag;
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
  if (!how.slots && i == 3) [[unlikely]]
    events = 0;
  if (how.fixed_lost_events != 0 && i == 0) [[unlikely]] {
    fixed_since_loss += events;
    events -= fixed_since_loss / how.fixed_lost_events;
    fixed_since_loss %= how.fixed_lost_events;
  }
  if (how.reference_clock_percent != 100 && i == 2) [[unlikely]] {
    reference_parts += events * how.reference_clock_percent;
    events = reference_parts / 100;
    reference_parts %= 100;
  }
  return events;
}

void Pmu::State::retire(const Retired& r) {
  if (extra_instructions != 0) [[unlikely]] {
    Retired more = r;
    more.counts[index(Signal::kInstructions)] += std::exchange(extra_instructions, 0);
    return retire(more);
  }
  elapse(1);
  if (level_change_left > 0) [[unlikely]] {
    --level_change_left;
    return;
  }
  // Before an overflow of this instruction interrupts, and freezes the stack.
  if (branches_recorded) [[unlikely]]
    note_branch(r);
  bool tagged = false;
  if (step_needed && r.load.valid) {
    tagged = tags(r);
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
  if (sharing || fixed_sharing != 0) sibling_clock += cycles_of(r.counts);
  if (auto_reload.now != 0) [[unlikely]]
    reload_by(std::exchange(auto_reload.now, 0));
  if (pending.instructions > 0) {
    pending.triggers |= triggering;
    if (--pending.instructions == 0) finish_assist(r);
  } else if (triggering != 0) {
    begin_assist(triggering, r);
  }
  if (r.store.valid) last_store_address = r.store.address;
  if (keeps_history) {
    before = *r.after;
    if (r.load.valid) last_load_address = r.load.address;
  }
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
  if (sharing || fixed_sharing != 0) sibling_clock += cycles_of(counts);
}

// --- Interrupts

void Pmu::State::raise_pmi(bool may_freeze) {
  if ((lvt_pmi & lvt::kMasked) != 0 && behaviour.lvt_mask_honoured) return;
  if (!pmi_pending) {
    pmi_pending = true;
    pmi_countdown = random.between(behaviour.rough.pmi_low, behaviour.rough.pmi_high);
  }
  if (behaviour.interrupt_sets_ovf_buffer) global_status |= pebs_overflow(uarch);
  bool freeze = may_freeze && (debugctl & debugctl::kFreezePerfmonOnPmi) != 0 &&
                (behaviour.interrupts_before_freeze == 0 ||
                 ++pmis_raised > behaviour.interrupts_before_freeze);
  if ((freeze && behaviour.freeze_clears_global_ctrl) || behaviour.freeze_always) {
    global_ctrl = 0;  // R52, architectural version 2–3
    refresh();
  } else if (freeze && behaviour.generation.streamlined_freeze) {
    global_status |= status::kCountersFrozen;
    refresh();
  }
  if (may_freeze && behaviour.rough.lbr_frozen_at_delivery == 0) freeze_last_branches();
}

// With PEBS on the counter the assist comes first, then the threshold interrupt, then this one
// (R34).
void Pmu::State::overflow_interrupt(unsigned n) {
  bool any = behaviour.overflow_interrupt == OverflowInterrupt::kAfterAnyAssist;
  bool waits = counters[n].pebs && behaviour.overflow_interrupt != OverflowInterrupt::kAtOnce;
  if (any) {
    for (const Counter& c : counters) waits = waits || (c.counting && c.pebs);
  }
  if (waits) {
    interrupts_due |= 1u << n;
  } else {
    raise_pmi();
  }
}

// Raises what has waited for this assist; behind the threshold's it is an interrupt of its own.
void Pmu::State::interrupts_after_assist(bool threshold) {
  bool due = std::exchange(interrupts_due, 0) != 0;
  if (behaviour.interrupt_repeats && threshold) pmi_follows = pmi_pending;
  if (!due || (threshold && behaviour.overflow_interrupt == OverflowInterrupt::kWithThreshold))
    return;
  if (threshold && pmi_pending) {
    pmi_follows = true;
  } else {
    raise_pmi();
  }
}

void Pmu::State::retire_write(const Retired& r) {
  const uint32_t gp = counting, fixed_ones = fixed_counting;
  const uint32_t gp_before = gp & ~started, fixed_before = fixed_ones & ~fixed_started;
  counting = gp_before;
  fixed_counting = fixed_before;
  retire_any(r);
  // Unless something has just switched them anew, as a freeze does.
  if (counting != gp_before || fixed_counting != fixed_before) return;
  counting = gp;
  fixed_counting = fixed_ones;
}

// --- Pmu: NetBurst's registers are other ones, and rare enough to be asked for last.

Pmu::Pmu(const Microarch& microarch, Topology topology, Bus& bus, const Behaviour& behaviour,
         uint64_t seed) {
  if (microarch.architectural_perfmon()) {
    state_ = std::make_unique<State>(microarch, topology, bus, behaviour, seed);
  } else {
    netburst_ = std::make_unique<NetBurst>(microarch, bus, behaviour, seed);
  }
}
Pmu::~Pmu() = default;

Expected<uint64_t> Pmu::rdmsr(uint32_t msr) const {
  return netburst_ ? netburst_->rdmsr(msr) : state_->read(msr);
}
Expected<void> Pmu::wrmsr(uint32_t msr, uint64_t value) {
  if (netburst_) return netburst_->wrmsr(msr, value);
  State& s = *state_;
  const uint32_t gp = s.counting, fixed_ones = s.fixed_counting;
  SKIDPROOF_CHECK(s.write(msr, value));
  // The LVT entry belongs to the local APIC: writing it stands between no write and its retirement.
  if (msr != IA32_X2APIC_LVT_PMI) {
    s.started = s.counting & ~gp;
    s.fixed_started = s.fixed_counting & ~fixed_ones;
  }
  if (gp != s.counting || fixed_ones != s.fixed_counting) s.switched(gp, fixed_ones);
  return {};
}

Expected<uint64_t> Pmu::rdpmc(uint32_t index, bool user, bool cr4_pce) {
  return netburst_ ? netburst_->rdpmc(index, user, cr4_pce) : state_->rdpmc(index, user, cr4_pce);
}

void Pmu::set_mode(Mode mode) { netburst_ ? netburst_->set_mode(mode) : state_->set_mode(mode); }

void Pmu::set_user(bool user) {
  if (netburst_) return netburst_->set_user(user);
  if (state_->user == user) return;
  state_->user = user;
  state_->level_change_left = state_->behaviour.counting.lost_at_privilege;
  state_->refresh();
}

void Pmu::reset() { netburst_ ? netburst_->reset() : state_->hard_reset(); }
void Pmu::init() { netburst_ ? netburst_->init() : state_->init(); }
void Pmu::enter_smm() { netburst_ ? netburst_->enter_smm() : state_->enter_smm(); }
void Pmu::leave_smm() { netburst_ ? netburst_->leave_smm() : state_->leave_smm(); }
void Pmu::machine_check() { netburst_ ? netburst_->machine_check() : state_->machine_check(); }
bool Pmu::between_instructions() const {
  return netburst_ != nullptr || state_->pending.instructions == 0;
}
void Pmu::retire(const Retired& retired) {
  if (netburst_) [[unlikely]]
    return netburst_->retire(retired);
  if (state_->unusual) [[unlikely]]
    return state_->retire_unusual(retired);
  state_->retire(retired);
}
void Pmu::retire_write(const Retired& retired) {
  netburst_ ? netburst_->retire_write(retired) : state_->retire_write(retired);
}
void Pmu::advance(const SignalCounts& counts, uint64_t instructions) {
  if (netburst_) [[unlikely]]
    return netburst_->advance(counts, instructions);
  state_->advance(counts, instructions);
}

bool Pmu::active() const {
  if (netburst_) [[unlikely]]
    return netburst_->active();
  const State& s = *state_;
  return s.counting != 0 || s.fixed_counting != 0 || s.pmi_pending || s.tracing ||
         s.pending.instructions > 0;
}

uint64_t Pmu::quiet_instructions(uint64_t most_uops, const CodeBounds* code) const {
  if (netburst_) [[unlikely]]
    return netburst_->quiet_instructions(most_uops);
  const State& s = *state_;
  if (s.step_needed || s.tracing || s.pending.instructions > 0 ||
      ((s.armed & s.counting) | s.fixed_armed | s.extra_instructions) != 0)
    return 0;
  if (s.level_change_left > 0 || s.mistakes) [[unlikely]]
    return 0;
  // A defect that shows what was before an event sees it only where it is stepped to.
  if (s.keeps_history || s.behaviour.precise_store_lag != 0) [[unlikely]]
    code = nullptr;
  uint64_t quiet = s.pmi_pending ? s.pmi_countdown : UINT64_MAX;
  for (uint32_t rest = s.counting; rest != 0; rest &= rest - 1) {
    const Counter& c = s.counters[static_cast<unsigned>(__builtin_ctz(rest))];
    uint64_t most = c.signal == Signal::kUops ? most_uops : max_per_instruction(c.signal);
    if (c.any_thread) most += Sibling::most(kMaxCyclesPerInstruction);
    if (s.behaviour.counting.extra_events != 0) most *= 2;
    uint64_t its = c.count.quiet(most);
    if (code != nullptr && !c.any_thread && s.behaviour.counting.extra_events == 0) {
      its = std::max(its, (*code)[index(c.signal)].within(c.count.mask - c.count.value));
    }
    quiet = std::min(quiet, its);
  }
  for (uint32_t rest = s.fixed_counting; rest != 0; rest &= rest - 1) {
    unsigned i = static_cast<unsigned>(__builtin_ctz(rest));
    uint64_t most = max_per_instruction(s.fixed_signal(i));
    if ((s.fixed_sharing >> i) & 1) most += Sibling::most(kMaxCyclesPerInstruction);
    if (s.behaviour.counting.reference_clock_percent > 100) most *= 2;
    uint64_t its = s.fixed[i].quiet(most);
    if (code != nullptr && ((s.fixed_sharing >> i) & 1) == 0) {
      its = std::max(its,
                     (*code)[index(s.fixed_signal(i))].within(s.fixed[i].mask - s.fixed[i].value));
    }
    quiet = std::min(quiet, its);
  }
  return quiet;
}

void Pmu::transfer(uint64_t from, uint64_t to) {
  netburst_ ? netburst_->transfer(from, to) : state_->transfer(from, to);
}

uint64_t Pmu::take_stall() {
  return netburst_ ? netburst_->take_stall() : std::exchange(state_->stall, 0);
}

bool Pmu::interrupt_pending() const {
  return netburst_ ? netburst_->interrupt_pending() : state_->pmi_pending;
}

bool Pmu::take_interrupt() {
  if (netburst_) [[unlikely]]
    return netburst_->take_interrupt();
  State& s = *state_;
  if (!s.pmi_pending || s.pmi_countdown > 0) return false;
  s.pmi_pending = false;
  if (s.behaviour.rough.lbr_frozen_at_delivery != 0) s.freeze_last_branches();
  bool second = std::exchange(s.pmi_second, false);
  if (second && (s.lvt_pmi & lvt::kMasked) != 0 && s.behaviour.lvt_mask_honoured) return false;
  if (s.behaviour.counting.interrupts_twice) {
    s.pmi_pending = s.repeats_pmi = !s.repeats_pmi;
    if (s.pmi_pending) s.pmi_countdown = s.behaviour.rough.pmi_high;
  }
  if (s.pmi_follows) {
    s.pmi_follows = false;
    s.pmi_pending = s.pmi_second = true;
    s.pmi_countdown = s.random.between(s.behaviour.rough.pmi_low, s.behaviour.rough.pmi_high);
  }
  s.extra_instructions += s.behaviour.rough.interrupt_instructions;
  if (s.behaviour.delivery_masks_lvt) s.lvt_pmi |= lvt::kMasked;
  if (s.behaviour.delivery_clears_ovf_buffer) s.global_status &= ~pebs_overflow(s.uarch);
  return true;
}

}  // namespace skidproof::model
