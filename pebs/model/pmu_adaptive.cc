// What came with adaptive records: PEBS on fixed counters, records by groups, the addresses of
// ordinary memory events.
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

// The fixed counters' part of resolve(), for one that counts.
void Pmu::State::resolve_fixed(unsigned i) {
  FixedSampling& s = fixed_sampling[i];
  const Event* event = uarch.event_on_fixed(i);
  s.pebs = ((pebs_mask() >> (pebs_enable::kFixedShift + i)) & 1) != 0 && behaviour.adaptive.fixed_pebs;
  s.precise = event != nullptr && event->precise();
  const bool distributed = s.pebs && ((behaviour.adaptive.pdir_fixed >> i) & 1) != 0;
  s.shadowless = distributed && behaviour.adaptive.pdist_on_fixed_next;
  s.pdir = distributed && !s.shadowless;
  if (!s.pebs) s.armed = false;
  if (s.armed) fixed_armed |= 1u << i;
}

// Whether this instruction is what armed fixed counter i waits for: its event, or, where that is not
// precise, the next opportunity (R61).
bool Pmu::State::fixed_triggers(unsigned i, const Retired& r, uint64_t events) {
  const FixedSampling& s = fixed_sampling[i];
  if (!s.armed || r.cycle < s.ready_cycle) return false;
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

void Pmu::State::note_branch(const Retired& r) {
  const bool taken = r.counts[index(Signal::kNearTaken)] != 0;
  const bool any = r.counts[index(Signal::kBranches)] != 0 && behaviour.adaptive.branches_not_taken;
  if (!taken && !any) return;
  branches.add(r.ip, r.after->ip, r.counts[index(Signal::kMispredicts)] != 0, r.cycle);
}

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

// What the record says of the access of an event that has one: its address; of a store whether it hit
// the L1 data cache; of a sampled store where it went and how long it took. [intel/perfmon Data_LA,
// L1_Hit_Indication; Linux 6.12 ds.c precise_datala_hsw, store_latency_data]
void Pmu::State::memory_data(const Counter& c, RecordData& data, const Access& load,
                             const Access& store) const {
  const AdaptiveBehaviour& how = behaviour.adaptive;
  const bool stores = c.signal == Signal::kStores || c.signal == Signal::kSplitStores ||
                      c.signal == Signal::kStlbMissStores;
  const Access& access = stores ? store : load;
  if (!access.valid) return;
  if (how.data_address && (!c.store_sample || how.store_sample_address)) {
    data.data_address = access.address;
  }
  if (c.store_sample) {
    data.data_source = access.source | (access.stlb_miss ? data_source::kStlbMiss : 0) |
                       (access.locked ? data_source::kLocked : 0);
    if (how.store_sample_latency) {
      data.latency = access.latency;
      data.cache_latency = access.cache_latency;
    }
  } else if (c.data->l1_hit_bit && how.l1_hit_bit) {
    data.data_source = access.l1_hit != how.l1_hit_inverted ? store_status::kL1Hit : 0;
  }
}

bool Pmu::State::store_adaptive(uint64_t triggering, const Retired& r, RecordData& data,
                                const Registers& registers, DebugStore& ds) {
  const AdaptiveBehaviour& how = behaviour.adaptive;
  data.flags = behaviour.flags_recorded ? registers.flags : 0;
  data.gpr_source = behaviour.gpr_source;
  data.eventing_ip = pending.eventing_ip;
  data.retire_latency = pending.retire_cycles;
  const uint64_t counters_of_it =
      how.applicable_all_enabled ? pebs_mask() : represented(triggering);
  data.applicable_counters =
      (counters_of_it & low_bits(kMaxCounters)) |
      (counters_of_it >> status::kFixedShift << how.applicable_fixed_shift);
  if (!how.applicable_recorded) data.applicable_counters = 0;
  if (!stamped) first_stamp = r.cycle;
  stamped = true;
  data.time_stamp = (how.time_stamp_frozen ? first_stamp : r.cycle) & how.time_stamp_mask;
  if (!how.time_stamp) data.time_stamp = 0;
  return ds.store(adaptive_record(uarch, how, data,
                                  {.config = pebs_data_cfg,
                                   .adaptive = adaptive(triggering),
                                   .registers = &registers,
                                   .vectors = r.vectors,
                                   .branches = &branches}));
}

}  // namespace skidproof::model
