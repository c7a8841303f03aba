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
    c.count.mask = gp_counter_mask(uarch);
  }
  for (CountRegister& f : fixed) f = {0, fixed_counter_mask(uarch)};
  fixed_ctrl = global_ctrl = global_status = pebs_enable = 0;
  load_latency_threshold = ds_area = debugctl = 0;
  misc_enable = misc_enable::kPerfmonAvailable |
                (behaviour.pebs_announced ? 0 : misc_enable::kPebsUnavailable) |
                (behaviour.bts.announced ? 0 : misc_enable::kBtsUnavailable);
  lvt_pmi = kResetLvt;
  pending = {};
  pmi_pending = reloaded_once = false;
  branch_store.reset();
  held_branches.clear();
  smm = frozen = spoil_branch = false;
  pended_in_smm = 0;
  refresh();
}

// --- What the registers mean

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
  tracing = traces_branches();
  unusual = tracing || smm;
  // Nothing counts any more: an assist that waited for the rest of a fused pair will not come.
  if (counting == 0) pending = {};
}

// --- Counting, arming, triggering

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

// --- Interrupts

void Pmu::State::raise_pmi(bool may_freeze) {
  if ((lvt_pmi & lvt::kMasked) != 0 && behaviour.lvt_mask_honoured) return;
  if (!pmi_pending) {
    pmi_pending = true;
    pmi_countdown = random.between(behaviour.pmi_skid_low, behaviour.pmi_skid_high);
  }
  bool freeze = may_freeze && (debugctl & debugctl::kFreezePerfmonOnPmi) != 0 &&
                behaviour.freeze_clears_global_ctrl;
  if (freeze || behaviour.freeze_always) {
    global_ctrl = 0;  // R52, architectural version 2–3
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

void Pmu::reset() { state_->hard_reset(); }
void Pmu::init() { state_->init(); }
void Pmu::enter_smm() { state_->enter_smm(); }
void Pmu::leave_smm() { state_->leave_smm(); }
void Pmu::machine_check() { state_->machine_check(); }
bool Pmu::between_instructions() const { return state_->pending.instructions == 0; }
void Pmu::retire(const Retired& retired) {
  if (state_->unusual) [[unlikely]] {
    state_->retire_unusual(retired);
  } else {
    state_->retire(retired);
  }
}
void Pmu::advance(const SignalCounts& counts, uint64_t instructions) {
  state_->advance(counts, instructions);
}

bool Pmu::active() const {
  const State& s = *state_;
  return s.counting != 0 || s.fixed_counting != 0 || s.pmi_pending || s.tracing ||
         s.pending.instructions > 0;
}

uint64_t Pmu::quiet_instructions(uint64_t most_uops) const {
  const State& s = *state_;
  if (s.step_needed || s.tracing || s.pending.instructions > 0 || (s.armed & s.counting) != 0)
    return 0;
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

void Pmu::transfer(uint64_t from, uint64_t to) { state_->transfer(from, to); }

bool Pmu::interrupt_pending() const { return state_->pmi_pending; }

bool Pmu::take_interrupt() {
  State& s = *state_;
  if (!s.pmi_pending || s.pmi_countdown > 0) return false;
  s.pmi_pending = false;
  if (s.behaviour.delivery_masks_lvt) s.lvt_pmi |= lvt::kMasked;
  return true;
}

}  // namespace skidproof::model
