// What came with adaptive records: PEBS on fixed counters, records by groups, store samples.
#include "pebs/arch/data_source.h"
#include "pebs/arch/msr.h"
#include "pebs/model/adaptive_record.h"
#include "pebs/model/pmu_state.h"

namespace skidproof::model {

// --- Which counters sample

// The counters that are enabled for PEBS, in the positions of IA32_PERF_GLOBAL_STATUS. On older rows
// bits 35:32 of IA32_PEBS_ENABLE mean load latency.
uint64_t Pmu::State::pebs_mask() const {
  return pebs_enable & (low_bits(kMaxCounters) |
                        (uint64_t{uarch.pebs_fixed_counters} << pebs_enable::kFixedShift));
}

// The fixed counters' part of resolve().
void Pmu::State::resolve_fixed(unsigned i) {
  FixedSampling& s = fixed_sampling[i];
  s.pebs =
      ((pebs_mask() >> (pebs_enable::kFixedShift + i)) & 1) != 0 && behaviour.adaptive.fixed_pebs;
  if (s.pebs) {
    const Event* event = uarch.event_on_fixed(i);
    s.precise = event != nullptr && event->precise();
  }
  const bool distributed = s.pebs && ((behaviour.adaptive.pdir_fixed >> i) & 1) != 0;
  s.shadowless = distributed && behaviour.adaptive.pdist_on_fixed_next;
  s.pdir = distributed && !s.shadowless;
  if (!s.pebs) s.armed = false;
}

// Whether this instruction is what armed fixed counter i waits for: its event, or, where that is not
// precise, the next opportunity (R61).
bool Pmu::State::fixed_triggers(unsigned i, const Retired& r, uint64_t events) {
  FixedSampling& s = fixed_sampling[i];
  if (!s.armed || r.cycle < s.ready_cycle) return false;
  if (s.late > 0) return --s.late == 0;
  return events != 0 || !s.precise || behaviour.record_without_event;
}

void Pmu::State::reload_fixed(uint64_t which, const DebugStore& ds) {
  if (behaviour.adaptive.fixed_reset == FixedReset::kNone) return;
  for (unsigned i = 0; i < uarch.ds.fixed_resets && i < kMaxFixed; ++i) {
    if (((which >> (status::kFixedShift + i)) & 1) == 0) continue;
    fixed[i].value = ds.fixed_reset_value(i) & fixed[i].mask;
  }
}

// --- The record

// Whether a record of these counters has the selected groups.
bool Pmu::State::adaptive(uint64_t triggering) const {
  if (!uarch.pebs_baseline) return false;
  auto one = [](AdaptiveBit bit, bool set) {
    return bit == AdaptiveBit::kIgnored || (bit == AdaptiveBit::kOwn && set);
  };
  for (unsigned n = 0; n < kMaxCounters; ++n) {
    if (((triggering >> n) & 1) == 0) continue;
    if (one(behaviour.adaptive.gp_bit, (counters[n].select & evtsel::kAdaptive) != 0)) return true;
  }
  for (unsigned i = 0; i < kMaxFixed; ++i) {
    if (((triggering >> (status::kFixedShift + i)) & 1) == 0) continue;
    if (one(behaviour.adaptive.fixed_bit, (fixed_ctrl & fixed_ctrl::adaptive(i)) != 0)) return true;
  }
  return false;
}

// Where a sampled store went and how long it took. [intel/perfmon MEM_TRANS_RETIRED.STORE_SAMPLE;
// Linux 6.12 ds.c store_latency_data]
void Pmu::State::add_store_sample(RecordData& data, const Access& store) {
  if (!store.valid) return;
  const AdaptiveBehaviour& how = behaviour.adaptive;
  if (how.store_sample_address) data.data_address = store.address;
  if (how.store_sample_source) {
    data.data_source = source_of(store) | told_of(store, behaviour.efficient.store_info);
  }
  if (how.store_sample_latency) {
    data.latency = store.latency;
    data.cache_latency = store.cache_latency;
  }
}

bool Pmu::State::store_adaptive(uint64_t triggering, const Retired& r, RecordData& data,
                                const Registers& registers, DebugStore& ds) {
  const AdaptiveBehaviour& how = behaviour.adaptive;
  data.flags = behaviour.flags_recorded ? registers.flags : 0;
  data.gpr_source = behaviour.gpr_source;
  data.retire_latency = pending.retire_cycles;
  const uint64_t named = how.applicable_all_enabled ? pebs_mask() : data.applicable_counters;
  data.applicable_counters = (named & low_bits(kMaxCounters)) |
                             (named >> status::kFixedShift << how.applicable_fixed_shift);
  CounterSnapshot now = snapshot_of_counters();
  if (behaviour.version6.snapshot_after_reload) {
    for (unsigned n = 0; n < kMaxCounters; ++n) {
      if (bit_of(triggering, n)) now.gp[n] = ds.reset_value(n) & counters[n].count.mask;
    }
  }
  return ds.store(adaptive_record(uarch, behaviour, data,
                                  {.config = pebs_data_cfg,
                                   .adaptive = adaptive(triggering),
                                   .registers = &registers,
                                   .vectors = r.vectors,
                                   .branches = &branches,
                                   .counters = uarch.pebs_counters_group ? &now : nullptr}));
}

}  // namespace skidproof::model
