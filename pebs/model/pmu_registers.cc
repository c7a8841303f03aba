// The PMU's registers: which exist, what a write keeps, what raises #GP.
#include <fmt/format.h>

#include <utility>

#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"
#include "pebs/model/general_protection.h"
#include "pebs/model/pmu_state.h"

namespace skidproof::model {

namespace {

// The first of a range of registers that are alike, or the register itself.
uint32_t family_of(uint32_t msr) {
  for (uint32_t first : {IA32_PMC0, IA32_A_PMC0, IA32_PERFEVTSEL0}) {
    if (msr >= first && msr < first + kLegacyCounters) return first;
  }
  const bool banked = msr >= IA32_PMC_GP0_CFG_A && msr < IA32_PMC_FX0_CTR;
  return banked && msr % kBankStride == IA32_PMC_GP0_CFG_A % kBankStride ? IA32_PERFEVTSEL0 : msr;
}

}  // namespace

uint64_t Pmu::State::counter_bits() const {
  return behaviour.absent_global_bits_fault ? gp_there : gp_there | low_bits(kLegacyCounters);
}

uint64_t Pmu::State::pebs_enable_bits() const {
  uint64_t bits = writable_pebs_enable(uarch) | (behaviour.pebs_counters & counter_bits());
  if (uarch.pebs_output_pt) bits |= pebs_enable::kOutputPt;  // kept, and without effect
  if (behaviour.adaptive.fixed_enable_refused) {
    bits &= ~(uint64_t{uarch.pebs_fixed_counters} << pebs_enable::kFixedShift);
  }
  return bits;
}

bool Pmu::State::has_pebs_enable() const {
  return !uarch.architectural_pebs() || behaviour.arch_pebs.older_registers_answer;
}
bool Pmu::State::has_data_cfg() const {
  return uarch.pebs_baseline && behaviour.adaptive.data_cfg_answers;
}
bool Pmu::State::has_metrics() const {
  return uarch.perf_metrics && behaviour.adaptive.metrics_answer;
}

uint64_t Pmu::State::with_defects(uint32_t msr, uint64_t writable) const {
  const CountingBehaviour& how = behaviour.counting;
  if (how.lax.msr == family_of(msr)) writable |= how.lax.bits;
  if (how.refused.msr == family_of(msr)) writable &= ~how.refused.bits;
  return writable;
}

// The counter at a legacy address: there are addresses for eight.
std::optional<unsigned> Pmu::State::legacy_number(uint32_t msr, uint32_t first) const {
  if (msr < first) return {};
  const unsigned n = msr - first;
  if (behaviour.version6.legacy_beyond && n >= kLegacyCounters && n < kMaxCounters) {
    return bit_of(gp_there, n) ? std::optional(n) : std::nullopt;
  }
  const bool there = n < visible || !behaviour.absent_counters_fault;
  return n < kLegacyCounters && there ? std::optional(n) : std::nullopt;
}

// By an address that takes 32 bits, by one that takes all, by that of its select; a fixed one.
std::optional<unsigned> Pmu::State::legacy_counter(uint32_t msr) const {
  return legacy_number(msr, IA32_PMC0);
}
std::optional<unsigned> Pmu::State::full_width_counter(uint32_t msr) const {
  const auto n = legacy_number(msr, IA32_A_PMC0);
  const bool alias = n && uarch.full_width_writes && (*n < 4 || behaviour.counting.upper_aliases);
  return alias ? n : banked_counter(msr);
}
std::optional<unsigned> Pmu::State::selected_counter(uint32_t msr) const {
  const auto n = legacy_number(msr, IA32_PERFEVTSEL0);
  return n ? n : banked_select(msr);
}
std::optional<unsigned> Pmu::State::fixed_counter(uint32_t msr) const {
  if (msr >= IA32_FIXED_CTR0 && msr < IA32_FIXED_CTR0 + fixed_visible) return msr - IA32_FIXED_CTR0;
  return banked_fixed(msr);
}

void Pmu::State::write_counter(unsigned n, uint64_t value) {
  counters[n].load(value);
  if (behaviour.counting.counter_write_clears_status) global_status &= ~bit(n);
}

Expected<uint64_t> Pmu::State::rdpmc(uint32_t index, bool in_user_mode, bool cr4_pce) {
  const CountingBehaviour& how = behaviour.counting;
  auto refuse = [&] {
    return fail(ErrorCode::kGeneralProtection,
                fmt::format("#GP from RDPMC of counter {:#x}", index));
  };
  if (in_user_mode && !cr4_pce && how.rdpmc_needs_pce) return refuse();
  const uint64_t returned = low_bits(how.rdpmc_bits);
  constexpr uint32_t kFixed = uint32_t{1} << 30;
  if (!how.rdpmc_fixed) index &= ~kFixed;
  if (index < kMaxCounters && bit_of(gp_there, index)) {
    return counters[index].count.value & returned;
  }
  if (index >= kFixed && index - kFixed < kMaxFixed && bit_of(fixed_there, index - kFixed)) {
    return fixed[index - kFixed].value & returned;
  }
  constexpr uint32_t kMetrics = uint32_t{1} << 29;
  if (index == kMetrics && has_metrics() && behaviour.adaptive.metrics_by_rdpmc) {
    return read_metrics();
  }
  if (!how.rdpmc_index_faults) return uint64_t{0};
  return refuse();
}

// IA32_PERF_GLOBAL_INUSE: selects that name an event, fixed counters with a ring enabled, and
// whether anything may interrupt. [SDM 18.2.4.3]
uint64_t Pmu::State::in_use() const {
  uint64_t bits = 0;
  bool pmi = (pebs_enable & low_bits(kMaxCounters)) != 0;
  for (unsigned n = 0; n < kMaxCounters; ++n) {
    if (!bit_of(gp_there, n)) continue;
    const uint64_t select = counters[n].select;
    bool shown = !behaviour.generation.in_use_needs_enable || (select & evtsel::kEnable) != 0;
    if ((select & 0xFF) != 0 && shown) bits |= bit(n);
    pmi |= (select & evtsel::kInt) != 0;
  }
  for (unsigned i = 0; i < kMaxFixed; ++i) {
    if (!bit_of(fixed_there, i)) continue;
    const uint64_t field = (fixed_ctrl >> (4 * i)) & 0xF;
    if ((field & (fixed_ctrl::kOs | fixed_ctrl::kUsr)) != 0) bits |= bit(status::kFixedShift + i);
    pmi |= (field & fixed_ctrl::kPmi) != 0;
  }
  return (bits | (pmi ? arch::in_use::kPmi : 0)) & ~behaviour.generation.in_use_hidden;
}

Expected<uint64_t> Pmu::State::read(uint32_t msr) const {
  if (const auto n = legacy_counter(msr)) return counters[*n].count.value;
  if (const auto n = full_width_counter(msr)) return counters[*n].count.value;
  if (const auto n = selected_counter(msr)) {
    const bool misread = *n >= 4 && behaviour.counting.upper_selects_misread;
    return counters[misread ? *n - 4 : *n].select;
  }
  if (const auto i = fixed_counter(msr)) return fixed[*i].value;
  if (const auto reload = read_reload(msr)) return *reload;
  if (const auto pebs = read_arch_pebs(msr)) return *pebs;
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
      if (!has_pebs_enable()) break;
      return pebs_enable;
    case MSR_PEBS_LD_LAT_THRESHOLD:
      return load_latency_threshold;
    case MSR_PEBS_DATA_CFG:
      if (!has_data_cfg()) break;
      return pebs_data_cfg;
    case MSR_PERF_METRICS:
      if (!has_metrics()) break;
      return perf_metrics;
    case MSR_ARCH_LBR_CTL:
      if (!uarch.architectural_lbr()) break;
      return lbr_ctl;
    case IA32_DS_AREA:
      return ds_area;
    case IA32_DEBUGCTL:
      return debugctl;
    case IA32_MISC_ENABLE:
      return misc_enable;
    case IA32_PERF_GLOBAL_STATUS_SET:
      if (!uarch.streamlined_freeze()) return refused_read(msr);
      return 0;
    case IA32_PERF_GLOBAL_INUSE:
      if (!uarch.streamlined_freeze()) return refused_read(msr);
      return in_use();
    case MSR_PEBS_FRONTEND:
      if (uarch.frontend_defined == 0) return refused_read(msr);
      return frontend;
    case IA32_PERF_CAPABILITIES:
      return (perf_capabilities(uarch) & ~behaviour.hidden_capabilities) |
             behaviour.counting.invented_capabilities;
    case IA32_X2APIC_LVT_PMI:
      return lvt_pmi;
    default:
      break;
  }
  return read_last_branch(msr);
}

// What a write to a select does besides, on broken CPUs.
void Pmu::State::note_select(unsigned n, uint64_t value) {
  if (behaviour.counting.select_write_clears_status) global_status &= ~bit(n);
  if (!behaviour.counting.needs_magic_selects) return;
  for (unsigned i = 0; i < kMagicSelects.size(); ++i) {
    if (value == kMagicSelects[i]) magic_selects |= 1u << i;
  }
}

Expected<void> Pmu::State::write_full_width(unsigned n, uint32_t msr, uint64_t value) {
  if (behaviour.excess_bits_fault && (value & ~gp_counter_mask(uarch)) != 0) {
    return refused_write(msr, value);
  }
  const bool banked = banked_counter(msr).has_value();
  if (banked && behaviour.version6.counter_write_lost) return {};
  if (behaviour.full_width_sign_extends ||
      (banked && behaviour.version6.counter_write_sign_extends)) {
    value = legacy_write_value(uarch, value);
  }
  write_counter(n, value & low_bits(behaviour.full_width_bits));
  return {};
}

Expected<void> Pmu::State::write_fixed(unsigned i, uint32_t msr, uint64_t value) {
  CountRegister& f = fixed[i];
  if (behaviour.excess_bits_fault && (value & ~f.mask) != 0) return refused_write(msr, value);
  if (behaviour.version6.fixed_write_lost && banked_fixed(msr)) return {};
  if (behaviour.counting.fixed_sign_extends) {
    value = static_cast<uint64_t>(int64_t{static_cast<int32_t>(value)});
  }
  const bool close = f.value > f.mask - 0x3F;
  f.value = value & f.mask;
  if (behaviour.counting.large_fixed_two_interrupts && close && i == 2 &&
      (fixed_field(2) & fixed_ctrl::kPmi) != 0) {
    raise_pmi();
  }
  return {};
}

// Overflows that software has made: where the event is not precise, the next opportunity is a record's (R61).
void Pmu::State::arm_imprecise(uint64_t overflowed) {
  for (unsigned n = 0; n < kMaxCounters; ++n) {
    Counter& c = counters[n];
    if (((overflowed >> n) & 1) == 0 || !c.any_event) continue;
    c.armed = true;
    c.ready_cycle = 0;
    c.events_to_go = 0;
  }
}

Expected<void> Pmu::State::write(uint32_t msr, uint64_t value) {
  auto refuse = [&] { return refused_write(msr, value); };
  // Takes a register whose reserved bits fault.
  auto assign = [&](uint64_t& target, uint64_t writable) -> Expected<void> {
    writable = with_defects(msr, writable);
    if (!checked(value, writable)) return refuse();
    target = value & writable;
    if (behaviour.counting.lost.msr == family_of(msr)) target &= ~behaviour.counting.lost.bits;
    refresh();
    return {};
  };

  if (const auto n = legacy_counter(msr)) {
    uint64_t low = value & 0xFFFFFFFF;
    uint64_t extended = behaviour.legacy_write_sign_extends
                            ? static_cast<uint64_t>(int64_t{static_cast<int32_t>(low)})
                            : low;
    extended &= low_bits(behaviour.legacy_extends_to);
    if (behaviour.legacy_write_takes_edx) extended = value;
    write_counter(*n, extended);
    return {};
  }
  if (const auto n = full_width_counter(msr)) return write_full_width(*n, msr, value);
  if (const auto n = selected_counter(msr)) {
    if (behaviour.version6.select_write_lost && banked_select(msr)) return {};
    note_select(*n, value);
    const bool in_txcp = behaviour.generation.in_txcp_everywhere && uarch.tsx;
    SKIDPROOF_CHECK(assign(counters[*n].select,
                           writable_perfevtsel(uarch, *n) | (in_txcp ? evtsel::kInTxCp : 0)));
    if (behaviour.rough.pc_sticks == 0) counters[*n].select &= ~evtsel::kPinControl;
    return {};
  }
  if (const auto i = fixed_counter(msr)) return write_fixed(*i, msr, value);
  if (Expected<void> done; write_reload(msr, value, done) || write_arch_pebs(msr, value, done)) {
    return done;
  }
  uint64_t beyond = counter_bits() & ~gp_there;  // only under a defect
  switch (msr) {
    case IA32_FIXED_CTR_CTRL:
      return assign(fixed_ctrl, writable_fixed_ctr_ctrl(uarch));
    case IA32_PERF_GLOBAL_CTRL:
      if (behaviour.counting.disabling_clears_status && value == 0) global_status = 0;
      if (behaviour.counting.enabling_clears_status && value != 0) {
        global_status &= pebs_mask() | pebs_overflow(uarch);
      }
      if (behaviour.counting.late_status_sticks && value == 0) note_late_overflow();
      return assign(global_ctrl, writable_global_ctrl(uarch, visible) | beyond);
    case IA32_PERF_GLOBAL_STATUS:
      if (behaviour.status_write_faults) return refuse();
      global_status = value;
      return {};
    case IA32_PERF_GLOBAL_OVF_CTRL: {
      uint64_t writable = with_defects(msr, clearable_status(uarch, visible) | beyond);
      if (!checked(value, writable)) return refuse();
      uint64_t clear = behaviour.ovf_ctrl_clears_all ? ~uint64_t{0} : value & writable;
      if (!behaviour.ovf_buffer_clears) clear &= ~pebs_overflow(uarch);
      if (behaviour.counting.ovf_ctrl_clears_next) clear |= clear << 1;
      clear &= ~behaviour.counting.ovf_ctrl_deaf;
      if (!behaviour.generation.status_reset_unfreezes) clear &= ~status::kCountersFrozen;
      if (behaviour.ovf_ctrl_clears) global_status &= ~clear | stuck_status;
      refresh();  // CTR_Frz
      return {};
    }
    case IA32_PERF_GLOBAL_STATUS_SET: {
      if (!uarch.streamlined_freeze()) return refuse();
      uint64_t settable =
          (settable_status(uarch, visible) | behaviour.generation.status_set_reserved) &
          ~behaviour.generation.status_set_refused;
      if (!checked(value, settable)) return refuse();
      if (behaviour.generation.status_set_sets) global_status |= value & settable;
      if (behaviour.rough.set_overflow_records != 0) arm_imprecise(value & settable);
      refresh();
      return {};
    }
    case IA32_PERF_GLOBAL_INUSE:
      if (behaviour.generation.in_use_read_only || !uarch.streamlined_freeze()) return refuse();
      return {};
    case MSR_PEBS_FRONTEND:
      if (uarch.frontend_defined == 0) return refuse();
      return assign(frontend, uarch.frontend_defined | behaviour.generation.frontend_reserved);
    case IA32_PEBS_ENABLE:
      if (!has_pebs_enable()) return refuse();
      if (behaviour.toggling_loses_overflow && pebs_enable == 0 && value != 0) {
        loses_overflow = std::exchange(enabled_before, true);
      }
      return assign(pebs_enable, pebs_enable_bits());
    case MSR_PEBS_DATA_CFG:
      if (!has_data_cfg()) return refuse();
      return assign(pebs_data_cfg, writable_pebs_data_cfg(uarch));
    case MSR_PERF_METRICS:
      if (!has_metrics()) return refuse();
      return assign(perf_metrics, ~uint64_t{0});
    case MSR_ARCH_LBR_CTL:
      if (!uarch.architectural_lbr()) return refuse();
      return assign(lbr_ctl, lbr_ctl::kDefined);
    case MSR_PEBS_LD_LAT_THRESHOLD:
      return assign(load_latency_threshold, kWritableLoadLatencyThreshold);
    case IA32_DS_AREA:
      if (behaviour.reserved_bits_fault && !canonical(value, linear_address_bits(uarch))) {
        if ((value & ~with_defects(msr, 0)) != 0 || behaviour.counting.lax.msr != msr)
          return refuse();
      }
      ds_area = value;
      if (behaviour.counting.lost.msr == msr) ds_area &= ~behaviour.counting.lost.bits;
      latched = {};
      return {};
    case IA32_DEBUGCTL:
      return assign(debugctl, tracer.settable(writable_debugctl(uarch)));
    case IA32_MISC_ENABLE:
      // Bits 7, 11 and 12 are read-only; nothing else is modelled.
      if (!behaviour.counting.read_only_misc_enable) misc_enable = value;
      return {};
    case IA32_X2APIC_LVT_PMI:
      if (!behaviour.lvt_status_read_only) return assign(lvt_pmi, kWritableLvt | kReadOnlyLvt);
      value &= ~kReadOnlyLvt;  // ignored, not refused
      return assign(lvt_pmi, kWritableLvt);
    default:
      return write_last_branch(msr, value);
  }
}

}  // namespace skidproof::model
