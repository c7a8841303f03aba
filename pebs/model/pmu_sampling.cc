// From an armed counter to the record behind it: the assist, the status, the reload.
#include "pebs/arch/data_source.h"
#include "pebs/arch/msr.h"
#include "pebs/model/pmu_state.h"

namespace skidproof::model {

// Takes the assist now, or after the rest of a fused pair has retired with it (R72).
void Pmu::State::begin_assist(uint64_t triggering, const Retired& r) {
  pending = {.instructions = 0,
             .triggers = triggering,
             .ip = r.ip,
             .ip_before = last_ip,
             .load = r.load,
             .store = r.store,
             .retire_cycles = cycles_of(r.counts)};
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

RecordData Pmu::State::record_data(uint64_t triggering, const Retired& r, const Access& load,
                                   const Access& store) const {
  RecordData data;
  data.ip = recorded_ip(r);
  data.global_status = behaviour.status_all_counters
                           ? global_status
                           : global_status & (pebs_enable | status::kOvfBuffer);
  if (!behaviour.status_before_assist) data.global_status &= ~triggering;
  for (uint64_t rest = triggering & low_bits(kMaxCounters); rest != 0; rest &= rest - 1) {
    const Counter& c = counters[static_cast<unsigned>(__builtin_ctzll(rest))];
    if (c.load_latency && load.valid) {
      data.data_address = load.address;
      data.latency = load.latency;
      data.cache_latency = load.cache_latency;
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
    } else if (c.store_sample) {
      add_store_sample(data, store);
    } else if (c.data_address) {
      add_data_address(data, c, load, store);
    }
  }
  return data;
}

// DataLA: a store event's record has the store, any other's the load where there is one.
void Pmu::State::add_data_address(RecordData& data, const Counter& c, const Access& load,
                                  const Access& store) const {
  const GenerationBehaviour& how = behaviour.generation;
  bool of_store = store.valid && (c.store_status || !load.valid);
  const Access& access = of_store ? store : load;
  if (!access.valid) return;
  if (how.data_address)
    data.data_address = access.address + static_cast<uint64_t>(how.data_address_offset);
  bool shows_status = (of_store && c.store_status) || how.store_status_for_loads;
  bool hit = access.l1_hit != how.store_status_inverted;
  data.data_source = shows_status && how.store_status && hit ? store_status::kL1Hit : 0;
  data.latency = how.data_zero_latency ? 0 : access.latency;
}

// What formats 2 and 3 add to a record.
void Pmu::State::add_generation_fields(RecordData& data, uint64_t triggering, const Retired& r) {
  const GenerationBehaviour& how = behaviour.generation;
  switch (how.eventing_ip) {
    case EventingIp::kSampled:
      data.eventing_ip = pending.ip;
      break;
    case EventingIp::kNext:
      data.eventing_ip = data.ip;
      break;
    case EventingIp::kBefore:
      data.eventing_ip = pending.ip_before;
      break;
    case EventingIp::kZero:
      break;
  }
  data.tx_information = how.tx_information;
  const uint64_t its_own = represented(triggering);
  switch (how.applicable) {
    case Applicable::kRepresented:
      data.applicable_counters = its_own;
      break;
    case Applicable::kOverflowed:
      data.applicable_counters = (global_status & ~status::kOvfBuffer) | triggering;
      break;
    case Applicable::kLowest:
      data.applicable_counters = its_own & (0 - its_own);
      break;
    case Applicable::kNone:
      break;
  }
  if (first_tsc == 0) first_tsc = r.cycle;
  switch (how.time_stamp) {
    case TimeStamp::kRetirement:
      data.tsc = r.cycle;  // the TSC runs with the core clock
      break;
    case TimeStamp::kZero:
      break;
    case TimeStamp::kFirst:
      data.tsc = first_tsc;
      break;
    case TimeStamp::kBehind:
      data.tsc = r.cycle + 1000;
      break;
  }
}

void Pmu::State::finish_assist(const Retired& r) {
  uint64_t triggering = pending.triggers;
  DebugStore ds(bus, uarch, behaviour, ds_area);
  if (!ds.load()) return skip_assist(ds);
  if (behaviour.adaptive.bounds_by_size && adaptive(triggering)) {
    ds.expect(adaptive::record_bytes(pebs_data_cfg));
  }
  if (ds.full() && behaviour.wraps_when_full) ds.wrap();
  if (!ds.room()) return skip_assist(ds);
  RecordData data = record_data(triggering, r, pending.load, pending.store);
  add_generation_fields(data, triggering, r);
  const Registers& registers = behaviour.registers_after ? *r.after : before;
  const bool stored = uarch.record->adaptive() ? store_adaptive(triggering, r, data, registers, ds)
                                               : ds.store(data, registers);
  if (!stored) return skip_assist(ds);
  after_record(triggering, ds);
}

// The bounds check failed: the event is skipped entirely (D10, R46).
void Pmu::State::skip_assist(const DebugStore& ds) {
  uint64_t enabled_overflow = global_status & pebs_mask();
  if (behaviour.skip_reloads) reload(enabled_overflow, enabled_overflow, ds);
  if (behaviour.skip_clears_status) global_status &= ~enabled_overflow;
  if (!behaviour.resumes_after_rewind) disarm(~uint64_t{0});
}

// The counters that a record stands for: those that triggered it, and every other that has overflowed
// under PEBS (R17, R19, R26).
uint64_t Pmu::State::represented(uint64_t triggering) const {
  return (global_status & pebs_mask()) | triggering;
}

void Pmu::State::after_record(uint64_t triggering, DebugStore& ds) {
  const uint64_t all = low_bits(kMaxCounters) | (low_bits(kMaxFixed) << status::kFixedShift);
  const uint64_t overflow = (global_status & all) | triggering;
  const uint64_t its_own = represented(triggering);
  uint64_t cleared = its_own;
  if (!behaviour.adaptive.fixed_status_clears) cleared &= low_bits(kMaxCounters);
  if (!behaviour.ovf_buffer_sticky) global_status &= ~status::kOvfBuffer;
  if (behaviour.record_clears_status) global_status &= ~cleared;
  if (behaviour.record_clears_all_status) global_status &= status::kOvfBuffer;
  reload(its_own, overflow, ds);
  disarm(its_own);
  if (ds.full() && behaviour.full_sets_ovf_buffer) global_status |= status::kOvfBuffer;
  if (ds.full() && behaviour.full_interrupts) raise_pmi();
  if (ds.reached_threshold()) {
    if (behaviour.threshold_sets_ovf_buffer) global_status |= status::kOvfBuffer;
    raise_pmi();
  }
}

void Pmu::State::reload(uint64_t its_own, uint64_t overflow, const DebugStore& ds) {
  uint64_t which = its_own;
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
      which = pebs_mask();
      break;
    case Reload::kAnyOverflowed:
      which = overflow;
      break;
    case Reload::kLowestOnly:
      which &= uint64_t{0} - which;
      break;
  }
  reloaded_once = true;
  reload_fixed(which, ds);
  for (which &= low_bits(kMaxCounters); which != 0; which &= which - 1) {
    unsigned n = static_cast<unsigned>(__builtin_ctzll(which));
    counters[n].count.value = ds.reset_value(n) & counters[n].count.mask;
  }
}

void Pmu::State::disarm(uint64_t which) {
  for (unsigned n = 0; n < kMaxCounters; ++n) {
    if ((which >> n) & 1) counters[n].armed = false;
  }
  armed &= ~static_cast<uint32_t>(which);
  which >>= status::kFixedShift;
  for (unsigned i = 0; i < kMaxFixed; ++i) {
    if ((which >> i) & 1) fixed_sampling[i].armed = false;
  }
  fixed_armed &= ~static_cast<uint32_t>(which);
}

}  // namespace skidproof::model
