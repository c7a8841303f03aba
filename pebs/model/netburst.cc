#include "pebs/model/netburst.h"

#include <fmt/format.h>

#include <algorithm>

#include "pebs/model/general_protection.h"

namespace skidproof::model {

using namespace arch;
namespace nb = arch::netburst;

namespace {

constexpr uint64_t kNotModelled =
    nb::cccr::kCompare | nb::cccr::kEdge | nb::cccr::kForceOvf | nb::cccr::kCascade;

uint64_t sum(const nb::Metric& metric, const SignalCounts& counts) {
  uint64_t all = 0;
  for (Signal signal : metric.signals) all += counts[index(signal)];
  return all;
}

// Which counter of a range, or -1.
int in_range(uint32_t msr, uint32_t first) {
  return msr >= first && msr < first + nb::kCounters ? static_cast<int>(msr - first) : -1;
}

// Of architectural performance monitoring: asked for by a defect alone.
bool architectural(uint32_t msr) {
  return msr == IA32_PMC0 || msr == IA32_PERFEVTSEL0 || msr == IA32_FIXED_CTR_CTRL ||
         (msr >= IA32_PERF_GLOBAL_STATUS && msr <= IA32_PERF_GLOBAL_OVF_CTRL);
}

}  // namespace

NetBurst::NetBurst(const Microarch& microarch, Bus& bus, const Behaviour& behaviour, uint64_t seed)
    : uarch_(microarch),
      legacy_(microarch),
      bus_(bus),
      behaviour_(behaviour),
      random_(derive_seed(seed, "netburst")),
      tracer_(bus, uarch_, behaviour_.bts) {
  if (behaviour_.netburst.later_debugctl) uarch_.branch_trace = BranchTrace{};
  legacy_.record = &microarch.record_in(Mode::kProtected32);
  legacy_.ds = microarch.ds_in(Mode::kProtected32);
  clear();
}

// As after power-on.
void NetBurst::clear() {
  for (Slot& slot : slots_) {
    slot = Slot{};
    slot.count.mask = low_bits(nb::kCounterWidth);
  }
  escrs_.fill(0);
  pebs_enable_ = matrix_ = precise_event_ = ds_area_ = debugctl_ = 0;
  lvt_pmi_ = kResetLvt;
  pmi_pending_ = reloaded_once_ = false;
  modes_.smm = modes_.locked = false;
  tracer_.reset();
}

// --- Modes (R56, R57)

void NetBurst::set_mode(Mode mode) {
  ia32e_ = mode == Mode::kLong;
  modes_.real_mode = mode == Mode::kReal;
  tracer_.set_mode(wide() ? Mode::kLong : Mode::kProtected32);
  refresh();
}

void NetBurst::reset() {
  const uint64_t kept_enable = behaviour_.modes.reset_clears_pebs ? 0 : pebs_enable_;
  const uint64_t kept_debugctl = behaviour_.modes.reset_clears_branches ? 0 : debugctl_;
  clear();
  pebs_enable_ = kept_enable;
  debugctl_ = kept_debugctl;
  refresh();
}

// Counters, CCCRs and ESCRs stay.
void NetBurst::init() {
  if (behaviour_.modes.init_clears_pebs) pebs_enable_ = 0;
  if (behaviour_.modes.init_clears_branches) debugctl_ = 0;
  lvt_pmi_ = kResetLvt;
  pmi_pending_ = modes_.smm = false;
  refresh();
}

void NetBurst::enter_smm() {
  modes_.smm = true;
  refresh();
}

void NetBurst::leave_smm() {
  modes_.smm = false;
  if (!behaviour_.modes.rsm_enables_again) {
    pebs_enable_ = 0;
    stop_branches();
  }
  if (behaviour_.modes.rsm_spoils_branch) tracer_.spoil_next();
  refresh();
}

void NetBurst::machine_check() {
  if (behaviour_.modes.machine_check_stops_pebs) pebs_enable_ = 0;
  if (behaviour_.modes.machine_check_stops_branches) stop_branches();
  modes_.locked = !behaviour_.modes.machine_check_reversible;
  refresh();
}

void NetBurst::stop_branches() {
  const BranchTrace& bits = uarch_.branch_trace;
  debugctl_ &= ~(bits.messages | bits.store | bits.interrupt);
}

// --- Registers

Expected<uint64_t> NetBurst::rdmsr(uint32_t msr) const {
  if (int n = in_range(msr, nb::MSR_BPU_COUNTER0); present(n)) return slots_[n].count.value;
  if (int n = in_range(msr, nb::MSR_BPU_CCCR0); present(n)) return slots_[n].cccr;
  if (has_escr(msr)) return escr(msr);
  switch (msr) {
    case IA32_PEBS_ENABLE:
      return pebs_enable_;
    case nb::MSR_PEBS_MATRIX_VERT:
      return matrix_;
    case nb::MSR_TC_PRECISE_EVENT:
      return precise_event_;
    case IA32_DS_AREA:
      return ds_area_;
    case nb::MSR_DEBUGCTLA:
      return debugctl_;
    case IA32_MISC_ENABLE:
      return misc_enable::kPerfmonAvailable |
             (behaviour_.bts.announced ? 0 : misc_enable::kBtsUnavailable) |
             (behaviour_.pebs_announced ? 0 : misc_enable::kPebsUnavailable);
    case IA32_X2APIC_LVT_PMI:
      return lvt_pmi_;
    default:
      if (behaviour_.netburst.architectural_registers && architectural(msr)) return uint64_t{0};
      return refused_read(msr);
  }
}

Expected<void> NetBurst::wrmsr(uint32_t msr, uint64_t value) {
  const uint32_t before = counting_;
  SKIDPROOF_CHECK(write(msr, value));
  last_written_ = msr;
  if (msr != IA32_X2APIC_LVT_PMI) started_ = counting_ & ~before;
  return {};
}

Expected<void> NetBurst::write(uint32_t msr, uint64_t value) {
  auto assign = [&](uint64_t& target, uint64_t writable) -> Expected<void> {
    if (behaviour_.reserved_bits_fault && (value & ~writable) != 0) {
      return refused_write(msr, value);
    }
    target = value & writable;
    refresh();
    return {};
  };
  if (int n = in_range(msr, nb::MSR_BPU_COUNTER0); present(n)) {
    if (behaviour_.netburst.write_sign_extends) {
      value = static_cast<uint64_t>(int64_t{static_cast<int32_t>(value)});
    }
    if (behaviour_.netburst.first_write_carries && slots_[n].metric != nullptr &&
        last_written_ != msr) {
      value += bit(32);
    }
    slots_[n].count.value =
        value & slots_[n].count.mask & low_bits(behaviour_.netburst.written_bits);
    return {};
  }
  if (int n = in_range(msr, nb::MSR_BPU_CCCR0); present(n)) {
    return assign(slots_[n].cccr, nb::cccr::kDefined);
  }
  if (has_escr(msr)) return assign(escrs_[msr - kFirstEscr], nb::escr::kDefined);
  switch (msr) {
    case IA32_PEBS_ENABLE:
      return assign(pebs_enable_, nb::pebs_enable::kDefined);
    case nb::MSR_PEBS_MATRIX_VERT:
      return assign(matrix_, 0x13);  // bits 0, 1 and 4 select tables [Table 19-33]
    case nb::MSR_TC_PRECISE_EVENT:
      return assign(precise_event_, 0xFFFFFFFF);
    case IA32_DS_AREA:
      if (behaviour_.reserved_bits_fault && !canonical(value)) return refused_write(msr, value);
      ds_area_ = value;
      return {};
    case nb::MSR_DEBUGCTLA:
      return assign(debugctl_, tracer_.settable(writable_debugctl(uarch_)));
    case IA32_MISC_ENABLE:
      return {};  // bits 7, 11 and 12 are read-only; nothing else is modelled
    case IA32_X2APIC_LVT_PMI:
      value &= ~kReadOnlyLvt;
      return assign(lvt_pmi_, kWritableLvt);
    default:
      if (behaviour_.netburst.architectural_registers && architectural(msr)) return {};
      return refused_write(msr, value);
  }
}

// Bit 31 asks for the low 32 bits only. [SDM vol. 2 "RDPMC"]
Expected<uint64_t> NetBurst::rdpmc(uint32_t index, bool user, bool cr4_pce) const {
  const bool fast = (index >> 31) != 0;
  const uint32_t n = index & 0x7FFFFFFF;
  const bool allowed = !user || cr4_pce || !behaviour_.counting.rdpmc_needs_pce;
  if (n >= behaviour_.netburst.answering_counters || !allowed) {
    return fail(ErrorCode::kGeneralProtection,
                fmt::format("#GP from RDPMC of counter {:#x}", index));
  }
  return fast ? slots_[n].count.value & 0xFFFFFFFF : slots_[n].count.value;
}

void NetBurst::set_user(bool user) {
  user_ = user;
  refresh();
}

// --- What the registers select

bool NetBurst::selects(uint64_t escr, unsigned event, unsigned mask) const {
  return (escr >> nb::escr::kSelectShift) == event &&
         ((escr >> nb::escr::kMaskShift) & 0xFFFF) == mask;
}

// Whether the uops that a metric counts are tagged for the ESCRs of counter n. [18.15.6]
bool NetBurst::tagged(const nb::Metric& metric, unsigned n) const {
  switch (metric.tagging) {
    case nb::Tagging::kNone:
    case nb::Tagging::kExecution:
      return true;
    case nb::Tagging::kFrontEnd:
      return !behaviour_.netburst.needs_upstream ||
             selects(escr(nb::escr_of(n, metric.upstream_select)), metric.upstream_event,
                     metric.upstream_mask);
    case nb::Tagging::kReplay: {
      constexpr uint64_t kTables = nb::pebs_enable::kMetrics | nb::pebs_enable::kMispredicts;
      const bool tag = (pebs_enable_ & nb::pebs_enable::kUopTag) != 0;
      return (pebs_enable_ & kTables) == metric.enable &&
             (tag || !behaviour_.netburst.needs_uop_tag) &&
             (matrix_ == metric.matrix || !behaviour_.netburst.needs_matrix);
    }
  }
  return false;
}

const nb::Metric* NetBurst::selected(unsigned n) const {
  const uint64_t cccr = slots_[n].cccr;
  const bool enabled = (cccr & nb::cccr::kEnable) != 0 || !behaviour_.netburst.needs_cccr_enable;
  const uint32_t msr = nb::escr_of(n, static_cast<unsigned>(cccr >> nb::cccr::kEscrShift) & 7);
  if (!enabled || (cccr & kNotModelled) != 0 || msr == 0) return nullptr;
  const uint64_t value = escr(msr);
  const uint64_t level = user_ ? nb::escr::kUsr : nb::escr::kOs;
  if (behaviour_.privilege_filters && (value & level) == 0) return nullptr;
  for (const nb::Metric& metric : nb::kMetrics) {
    const bool here = nb::escr_of(n, metric.select) == msr && metric.block / 12 == n / 12;
    if (here && selects(value, metric.event, metric.mask) && tagged(metric, n)) return &metric;
  }
  return nullptr;
}

bool NetBurst::available() const { return behaviour_.pebs_announced; }

void NetBurst::refresh() {
  counting_ = armed_ = 0;
  const bool enabled =
      (pebs_enable_ & nb::pebs_enable::kEnable) != 0 || !behaviour_.netburst.needs_pebs_enable;
  for (unsigned n = 0; n < nb::kCounters; ++n) {
    Slot& slot = slots_[n];
    slot.metric = selected(n);
    slot.pebs = slot.metric != nullptr && slot.metric->precise() && enabled && available() &&
                ((behaviour_.netburst.precise_counters >> n) & 1) != 0;
    if (!slot.pebs) slot.armed = false;
    if (slot.metric != nullptr) counting_ |= 1U << n;
    if (slot.armed) armed_ |= 1U << n;
  }
  if (counting_ == 0) wait_ = 0;
  tracing_ = modes_.branches(behaviour_.modes) && tracer_.asked_for(debugctl_, user_);
}

// --- Counting

// All of them, on a CPU that counts right.
uint64_t NetBurst::noticed(Slot& slot, uint64_t events) const {
  if (behaviour_.lost_events == 0) return events;
  slot.since_loss += events;
  const uint64_t lost = slot.since_loss / behaviour_.lost_events;
  slot.since_loss %= behaviour_.lost_events;
  return events - lost;
}

// The flag stays until software clears it. [18.15.3 "CCCR MSRs"]
void NetBurst::overflowed(unsigned n, const Retired& r) {
  Slot& slot = slots_[n];
  if (behaviour_.netburst.sets_ovf) slot.cccr |= nb::cccr::kOvf;
  const bool interrupts =
      (slot.cccr & nb::cccr::kOvfPmi) != 0 || !behaviour_.netburst.pmi_needs_ovf_pmi;
  if (interrupts && behaviour_.overflow_interrupts) raise_pmi();
  if (!slot.pebs) return;
  slot.armed = true;
  slot.ready_cycle = r.cycle + random_.between(behaviour_.rough.arm_low, behaviour_.rough.arm_high);
  armed_ |= 1U << n;
}

// The PEBS record of an instruction comes before its branch record, and the interrupt of either
// behind both (R30).
void NetBurst::retire(const Retired& r) {
  const uint32_t before = records_;
  count(r);
  if (records_ != before && !behaviour_.bts.beside_pebs) return;
  if (tracing_) traced(tracer_.retire(r, {ds_area_, debugctl_, pmi_pending_}));
}

void NetBurst::retire_write(const Retired& r) {
  const uint32_t now = counting_, before = now & ~started_;
  counting_ = before;
  retire(r);
  if (counting_ == before) counting_ = now;
}

void NetBurst::transfer(uint64_t from, uint64_t to) {
  if (tracing_) traced(tracer_.transfer(from, to, {ds_area_, debugctl_, pmi_pending_}));
}

void NetBurst::traced(const BranchTracer::Outcome& outcome) {
  if (outcome.disables) {
    debugctl_ &= ~(uarch_.branch_trace.messages | uarch_.branch_trace.store);
    refresh();
  }
  if (outcome.interrupt) raise_pmi();
}

void NetBurst::count(const Retired& r) {
  pmi_countdown_ -= std::min<uint64_t>(pmi_countdown_, 1);
  bool triggered = false;
  for (uint32_t rest = counting_; rest != 0; rest &= rest - 1) {
    const auto n = static_cast<unsigned>(__builtin_ctz(rest));
    Slot& slot = slots_[n];
    uint64_t events = sum(*slot.metric, r.counts);
    const bool was_armed = slot.armed && r.cycle >= slot.ready_cycle;
    triggered |= was_armed && events != 0;
    events = noticed(slot, events);
    if (events == 0 || !slot.count.add(events)) continue;
    overflowed(n, r);
    triggered |= slot.pebs && behaviour_.record_on_overflow;
  }
  if (!modes_.pebs(behaviour_.modes)) triggered = false;  // the counter stays armed
  if (wait_ > 0) {
    if (--wait_ == 0) record(r);
  } else if (triggered) {
    wait_ = static_cast<unsigned>(std::max(behaviour_.skid_instructions - 1, 0));
    if (wait_ == 0) record(r);
  }
  before_ = *r.after;
}

void NetBurst::advance(const SignalCounts& counts, uint64_t instructions) {
  pmi_countdown_ -= std::min(pmi_countdown_, instructions);
  for (uint32_t rest = counting_; rest != 0; rest &= rest - 1) {
    Slot& slot = slots_[static_cast<unsigned>(__builtin_ctz(rest))];
    slot.count.add(noticed(slot, sum(*slot.metric, counts)));
  }
}

uint64_t NetBurst::quiet_instructions(uint64_t most_uops) const {
  if (tracing_ || armed_ != 0) return 0;
  uint64_t quiet = pmi_pending_ ? pmi_countdown_ : UINT64_MAX;
  for (uint32_t rest = counting_; rest != 0; rest &= rest - 1) {
    const Slot& slot = slots_[static_cast<unsigned>(__builtin_ctz(rest))];
    uint64_t most = 0;
    for (Signal signal : slot.metric->signals) {
      most += signal == Signal::kUops ? most_uops : max_per_instruction(signal);
    }
    quiet = std::min(quiet, slot.count.quiet(most));
  }
  return quiet;
}

// --- Records

// The registers as the instruction found them, now and then with its results in some of them (R6).
Registers NetBurst::recorded_registers(const Retired& r) {
  if (behaviour_.netburst.late_state) return *r.after;
  Registers registers = before_;
  for (unsigned i = 0; i < kGprs; ++i) {
    if (random_.chance(1, 4)) registers.gpr[i] = r.after->gpr[i];
  }
  return registers;
}

void NetBurst::record(const Retired& r) {
  for (Slot& slot : slots_) slot.armed = false;
  armed_ = 0;
  if (!ia32e_ && !behaviour_.legacy_mode_records) return;
  DebugStore ds(bus_, wide() ? uarch_ : legacy_, behaviour_, ds_area_, latched_, ia32e_);
  if (!ds.load()) return;
  if (ds.full() && behaviour_.wraps_when_full) ds.wrap();
  if (!ds.room()) return;
  RecordData data;
  const bool at_start = behaviour_.skid_instructions == 0 || behaviour_.netburst.late_state;
  data.ip = at_start ? before_.ip : r.after->ip;
  if (!ds.store(data, recorded_registers(r))) return;
  const bool reloads = behaviour_.reload != Reload::kNone &&
                       !(behaviour_.reload == Reload::kOnlyOnce && reloaded_once_);
  reloaded_once_ = true;
  ++records_;
  stall_ += behaviour_.rough.assist_cycles;
  for (Slot& slot : slots_) {
    if (reloads && slot.pebs) slot.count.value = ds.reset_value(0) & slot.count.mask;
  }
  if (ds.reached_threshold()) raise_pmi();
}

void NetBurst::raise_pmi() {
  if ((lvt_pmi_ & lvt::kMasked) != 0 && behaviour_.lvt_mask_honoured) return;
  if (pmi_pending_) return;
  pmi_pending_ = true;
  pmi_countdown_ = random_.between(behaviour_.rough.pmi_low, behaviour_.rough.pmi_high);
}

bool NetBurst::take_interrupt() {
  if (!pmi_pending_ || pmi_countdown_ > 0) return false;
  pmi_pending_ = false;
  if (behaviour_.delivery_masks_lvt) lvt_pmi_ |= lvt::kMasked;
  return true;
}

}  // namespace skidproof::model
