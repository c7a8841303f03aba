// From an armed counter to the record behind it: the assist, the status, the reload.
#include "pebs/arch/msr.h"
#include "pebs/model/pmu_state.h"

namespace skidproof::model {

// Takes the assist now, or after the rest of a fused pair has retired with it (R72).
void Pmu::State::begin_assist(uint32_t triggering, const Retired& r) {
  if (!stores_pebs()) return;  // the counter stays armed
  pending = {.instructions = 0, .triggers = triggering, .load = r.load, .store = r.store};
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

RecordData Pmu::State::record_data(uint32_t triggering, const Retired& r, const Access& load,
                                   const Access& store) const {
  RecordData data;
  data.ip = recorded_ip(r);
  data.global_status = behaviour.status_all_counters
                           ? global_status
                           : global_status & (pebs_enable | status::kOvfBuffer);
  if (!behaviour.status_before_assist) data.global_status &= ~uint64_t{triggering};
  for (uint32_t rest = triggering; rest != 0; rest &= rest - 1) {
    const Counter& c = counters[static_cast<unsigned>(__builtin_ctz(rest))];
    if (c.load_latency && load.valid) {
      data.data_address = load.address;
      data.latency = load.latency;
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
    }
  }
  return data;
}

void Pmu::State::finish_assist(const Retired& r) {
  uint32_t triggering = pending.triggers;
  DebugStore ds(bus, uarch, behaviour, ds_area);
  if (!ds.load()) return skip_assist(ds);
  if (ds.full() && behaviour.wraps_when_full) ds.wrap();
  if (!ds.room()) return skip_assist(ds);
  RecordData data = record_data(triggering, r, pending.load, pending.store);
  if (!ds.store(data, behaviour.registers_after ? *r.after : before)) return skip_assist(ds);
  after_record(triggering, ds);
}

// The bounds check failed: the event is skipped entirely (D10, R46).
void Pmu::State::skip_assist(const DebugStore& ds) {
  uint32_t enabled_overflow = static_cast<uint32_t>(global_status & pebs_enable & 0xFF);
  if (behaviour.skip_reloads) reload(enabled_overflow, enabled_overflow, ds);
  if (behaviour.skip_clears_status) global_status &= ~uint64_t{enabled_overflow};
  if (!behaviour.resumes_after_rewind) disarm(0xFF);
}

void Pmu::State::after_record(uint32_t triggering, DebugStore& ds) {
  ++pebs_records;
  uint32_t overflow = static_cast<uint32_t>(global_status & 0xFF) | triggering;
  uint32_t represented = overflow & (static_cast<uint32_t>(pebs_enable & 0xFF) | triggering);
  if (!behaviour.ovf_buffer_sticky) global_status &= ~status::kOvfBuffer;
  if (behaviour.record_clears_status) global_status &= ~uint64_t{represented};
  if (behaviour.record_clears_all_status) global_status &= status::kOvfBuffer;
  reload(represented, overflow, ds);
  disarm(represented);
  if (ds.full() && behaviour.full_sets_ovf_buffer) global_status |= status::kOvfBuffer;
  if (ds.full() && behaviour.full_interrupts) raise_pmi();
  if (ds.reached_threshold()) {
    if (behaviour.threshold_sets_ovf_buffer) global_status |= status::kOvfBuffer;
    raise_pmi();
  }
}

void Pmu::State::reload(uint32_t represented, uint32_t overflow, const DebugStore& ds) {
  uint32_t which = represented;
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
      which = static_cast<uint32_t>(pebs_enable & 0xFF);
      break;
    case Reload::kAnyOverflowed:
      which = overflow;
      break;
    case Reload::kLowestOnly:
      which &= 0u - which;
      break;
  }
  reloaded_once = true;
  for (; which != 0; which &= which - 1) {
    unsigned n = static_cast<unsigned>(__builtin_ctz(which));
    counters[n].count.value = ds.reset_value(n) & counters[n].count.mask;
  }
}

void Pmu::State::disarm(uint32_t which) {
  for (unsigned n = 0; n < kMaxCounters; ++n) {
    if ((which >> n) & 1) counters[n].armed = false;
  }
  armed &= ~which;
}

}  // namespace skidproof::model
