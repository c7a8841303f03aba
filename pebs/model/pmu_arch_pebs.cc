// Architectural PEBS: registers in place of the DS area, and groups by counter. [Linux, arch/x86/events/intel/core.c and ds.c, as
// posted in "arch-PEBS enabling for Intel platforms" v9]
#include "pebs/arch/architectural_record.h"
#include "pebs/arch/msr.h"
#include "pebs/model/adaptive_record.h"
#include "pebs/model/general_protection.h"
#include "pebs/model/pmu_state.h"

namespace skidproof::model {

// --- Registers

// By a position of the status: whether the counter has a reload value or architectural PEBS.
bool Pmu::State::has_cfg_c(unsigned position) const {
  const ExtendedPerfmon& x = uarch.extended;
  const bool fixed_one = position >= status::kFixedShift;
  const unsigned n = fixed_one ? position - status::kFixedShift : position;
  const uint32_t reloaded = fixed_one ? x.reloaded_fixed : x.reloaded_gp;
  const uint32_t pebs = fixed_one ? x.pebs_fixed : x.pebs_gp;
  return bit_of(reloaded | (uarch.architectural_pebs() ? pebs : 0), n);
}

std::optional<unsigned> Pmu::State::cfg_c_register(uint32_t msr) const {
  for (unsigned n = 0; n < kMaxCounters; ++n) {
    if (msr == IA32_PMC_GP0_CFG_C + kBankStride * n && has_cfg_c(n)) return n;
  }
  for (unsigned i = 0; i < kMaxFixed; ++i) {
    const unsigned position = status::kFixedShift + i;
    if (msr == IA32_PMC_FX0_CFG_C + kBankStride * i && has_cfg_c(position)) return position;
  }
  return {};
}

std::optional<uint64_t> Pmu::State::read_arch_pebs(uint32_t msr) const {
  if (const auto position = cfg_c_register(msr)) return pebs_registers.config[*position];
  if (!uarch.architectural_pebs()) return {};
  if (msr == IA32_PEBS_BASE) return pebs_registers.base;
  if (msr == IA32_PEBS_INDEX) return pebs_registers.index;
  if (msr == MSR_PEBS_DATA_CFG && behaviour.arch_pebs.older_registers_answer) return 0;
  return {};
}

// PEBS_EN stands in the place that IA32_PEBS_ENABLE has for the counter on other rows.
Expected<void> Pmu::State::write_cfg_c(unsigned position, uint32_t msr, uint64_t value) {
  const ArchPebsBehaviour& how = behaviour.arch_pebs;
  const bool fixed_one = position >= status::kFixedShift;
  const bool pebs = fixed_one ? bit_of(uarch.extended.pebs_fixed, position - status::kFixedShift)
                              : bit_of(uarch.extended.pebs_gp, position);
  const uint64_t writable =
      (writable_cfg_c(uarch, pebs) | behaviour.auto_reload.values_taken) & ~how.config_refused;
  if (!checked(value, writable)) return refused_write(msr, value);
  pebs_registers.config[position] = value & ~how.config_lost;
  const bool deaf = !fixed_one && bit_of(how.deaf_counters, position);
  const bool enabled = (value & cfg_c::kEnable) != 0 && uarch.architectural_pebs() && !deaf;
  pebs_enable = (pebs_enable & ~bit(position)) | (enabled ? bit(position) : 0);
  refresh();
  return {};
}

// True: the register is one of these, and `done` says what became of the write.
bool Pmu::State::write_arch_pebs(uint32_t msr, uint64_t value, Expected<void>& done) {
  if (const auto position = cfg_c_register(msr)) {
    done = write_cfg_c(*position, msr, value);
    return true;
  }
  if (!uarch.architectural_pebs()) return false;
  const ArchPebsBehaviour& how = behaviour.arch_pebs;
  const auto assign = [&](uint64_t& target, uint64_t writable, uint64_t lost) {
    if (!checked(value, writable)) {
      done = refused_write(msr, value);
    } else {
      target = value & ~lost;
    }
    return true;
  };
  switch (msr) {
    case IA32_PEBS_BASE:
      return assign(pebs_registers.base, pebs_base::kAddress | pebs_base::kSize, how.base_lost);
    case IA32_PEBS_INDEX:
      return assign(pebs_registers.index, pebs_index::kDefined, how.index_lost);
    case MSR_PEBS_DATA_CFG:
      return how.older_registers_answer;
    default:
      return false;
  }
}

// --- The buffer

// What of the status a reached threshold sets.
uint64_t Pmu::State::buffer_bit() const {
  if (!uarch.architectural_pebs()) return status::kOvfBuffer;
  const ArchPebsBehaviour& how = behaviour.arch_pebs;
  return (how.threshold_sets_own_bit ? status::kPebsThreshold : 0) |
         (how.threshold_sets_ovf_buffer ? status::kOvfBuffer : 0) |
         (how.threshold_sets_trace_bit ? status::kTraceToPa : 0);
}

// --- The record

// The groups that these counters choose together.
uint64_t Pmu::State::recorded_groups(uint64_t triggering) const {
  const ArchPebsBehaviour& how = behaviour.arch_pebs;
  uint64_t of = triggering;
  if (how.groups_of_all) of = pebs_mask();
  if (how.groups_of_lowest) of = pebs_mask() & (0 - pebs_mask());
  uint64_t groups = 0;
  for (unsigned position = 0; position < kConfiguredCounters; ++position) {
    if (bit_of(of, position)) groups |= pebs_registers.config[position];
  }
  return groups & architectural::kGroups & ~architectural::kBasic & ~cfg_c::kAllow &
         ~how.groups_missing;
}

// The counters that the group of counters has: those that their own CFG_C allows.
adaptive::SnapshotVectors Pmu::State::allowed_counters(uint64_t groups) const {
  const ArchPebsBehaviour& how = behaviour.arch_pebs;
  uint64_t allowed = 0;
  for (unsigned position = 0; position < kConfiguredCounters; ++position) {
    if ((pebs_registers.config[position] & cfg_c::kAllow) != 0) allowed |= bit(position);
  }
  if (how.allow_ignored) allowed = gp_there | fixed_there << status::kFixedShift;
  if (how.allow_needs_enable) allowed &= pebs_mask();
  if (how.allow_own_only) allowed &= pending.triggers;
  adaptive::SnapshotVectors vectors;
  if ((groups & cfg_c::kCountersGp) != 0) vectors.gp = static_cast<uint32_t>(allowed);
  if ((groups & cfg_c::kCountersFixed) != 0) {
    vectors.fixed = static_cast<uint32_t>(allowed >> status::kFixedShift);
  }
  if ((groups & cfg_c::kMetrics) != 0) vectors.metrics = 3;
  return vectors;
}

size_t Pmu::State::architectural_bytes(uint64_t triggering) const {
  const uint64_t groups = recorded_groups(triggering);
  size_t bytes = architectural::record_bytes(groups, branches.depth());
  if (architectural::has_counters(groups)) bytes += allowed_counters(groups).bytes();
  return architectural::whole_units(bytes);
}

bool Pmu::State::store_architectural(uint64_t triggering, const Retired& r, RecordData& data,
                                     const Registers& registers, DebugStore& ds) {
  data.flags = behaviour.flags_recorded ? registers.flags : 0;
  data.gpr_source = behaviour.gpr_source;
  data.retire_latency = pending.retire_cycles;
  if (behaviour.adaptive.applicable_all_enabled) data.applicable_counters = pebs_mask();
  CounterSnapshot now = snapshot_of_counters();
  if (behaviour.arch_pebs.snapshot_after_reload) {
    for (unsigned n = 0; n < kMaxCounters; ++n) {
      if (bit_of(triggering, n)) now.gp[n] = ds.reset_value(n) & counters[n].count.mask;
    }
  }
  const uint64_t groups = recorded_groups(triggering);
  const adaptive::SnapshotVectors vectors = allowed_counters(groups);
  if (!ds.store(architectural_record(behaviour, data,
                                     {.groups = groups,
                                      .mode64 = ia32e,
                                      .counters = vectors,
                                      .now = &now,
                                      .registers = &registers,
                                      .vectors = r.vectors,
                                      .branches = &branches,
                                      .branch_control = lbr_ctl}))) {
    return false;
  }
  if (vectors.metrics != 0) clear_metrics(true);
  return true;
}

}  // namespace skidproof::model
