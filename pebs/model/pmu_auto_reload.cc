// Auto counter reload: an overflow loads the counters that name its own in their reload configuration.
// [SDM Vol. 3 (325384-089) 21.10 "Auto Counter Reload"]
#include <utility>

#include "pebs/arch/msr.h"
#include "pebs/model/general_protection.h"
#include "pebs/model/pmu_state.h"

namespace skidproof::model {

namespace {

constexpr uint64_t kReloadValue = cfg_c::kReload;

}  // namespace

// The counter whose reload register stands at `first` of the bank, in the positions of IA32_PERF_GLOBAL_STATUS.
std::optional<unsigned> Pmu::State::reload_register(uint32_t msr, uint32_t gp_first,
                                                    uint32_t fixed_first) const {
  const ExtendedPerfmon& x = uarch.extended;
  for (unsigned n = 0; n < kMaxCounters; ++n) {
    if (bit_of(x.reloaded_gp, n) && msr == gp_first + kBankStride * n) return n;
  }
  for (unsigned i = 0; i < kMaxFixed; ++i) {
    if (bit_of(x.reloaded_fixed, i) && msr == fixed_first + kBankStride * i) {
      return status::kFixedShift + i;
    }
  }
  return {};
}

std::optional<uint64_t> Pmu::State::read_reload(uint32_t msr) const {
  if (const auto n = reload_register(msr, IA32_PMC_GP0_CFG_B, IA32_PMC_FX0_CFG_B)) {
    return auto_reload.causes[*n];
  }
  return {};
}

// True: the register is one of these, and `done` says what became of the write.
bool Pmu::State::write_reload(uint32_t msr, uint64_t value, Expected<void>& done) {
  const auto configured = reload_register(msr, IA32_PMC_GP0_CFG_B, IA32_PMC_FX0_CFG_B);
  if (!configured) return false;
  const AutoReloadBehaviour& how = behaviour.auto_reload;
  if (!checked(value, (writable_reload_causes(uarch) | how.causes_taken) & ~how.causes_refused)) {
    done = refused_write(msr, value);
    return true;
  }
  auto_reload.causes[*configured] = value & ~how.causes_lost;
  auto_reload.used = false;
  for (uint64_t causes : auto_reload.causes) auto_reload.used |= causes != 0;
  return true;
}

bool Pmu::State::reloads_itself(unsigned n) const {
  return bit_of(auto_reload.causes[n], n) && behaviour.auto_reload.self;
}

// An overflow of the counter at this position of the status. True: it is loaded at once, and nothing else shows. With PEBS the
// reload waits for the record.
bool Pmu::State::auto_reload_overflow(unsigned n, bool pebs) {
  const AutoReloadBehaviour& how = behaviour.auto_reload;
  (pebs && how.after_record ? auto_reload.due : auto_reload.now) |= bit(n);
  if (!reloads_itself(n) || pebs) return false;
  if (how.self_sets_status) global_status |= bit(n);
  return true;
}

// Loads what names one of these in its configuration: all at the same time, and none whose own overflow shows.
void Pmu::State::reload_by(uint64_t causes) {
  const AutoReloadBehaviour& how = behaviour.auto_reload;
  if ((global_status & status::kCountersFrozen) != 0) return;
  if (!how.by_fixed) causes &= low_bits(kMaxCounters);
  for (unsigned n = 0; n < auto_reload.causes.size(); ++n) {
    const bool named = (auto_reload.causes[n] & causes) != 0;
    const bool any = how.by_any && auto_reload.causes[n] != 0 && causes != 0;
    if (!named && !any) continue;
    const bool own = bit_of(causes, n) && bit_of(auto_reload.causes[n], n);
    if (!own && !how.others) continue;
    if (own && !how.self) continue;
    if (!own && bit_of(global_status, n) && !how.overflowed_too) continue;
    const uint64_t above = how.extends_ones ? ~kReloadValue : 0;
    const uint64_t value = (pebs_registers.config[n] & kReloadValue) | above;
    if (n < status::kFixedShift) {
      counters[n].load(value);
    } else if (how.fixed) {
      CountRegister& f = fixed[n - status::kFixedShift];
      f.value = value & f.mask;
    }
    if (how.one_at_a_time) return;
  }
}

}  // namespace skidproof::model
