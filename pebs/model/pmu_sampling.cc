// From an armed counter to the record behind it: the assist, the status, the reload.
#include <utility>

#include "pebs/arch/data_source.h"
#include "pebs/arch/msr.h"
#include "pebs/model/pmu_state.h"

namespace skidproof::model {

namespace {

// The low bits of a linear address, as a CPU records them that keeps no more.
uint64_t low_part(uint64_t address, unsigned bits) { return address & low_bits(bits); }

}  // namespace

// Takes the assist now, or after the rest of a fused pair has retired with it (R72).
void Pmu::State::begin_assist(uint32_t triggering, const Retired& r) {
  if (!stores_pebs()) return;  // the counter stays armed
  pending = {.instructions = 0,
             .triggers = triggering,
             .ip = r.ip,
             .ip_before = last_ip,
             .load = r.load,
             .store = r.store};
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
  if (!behaviour.status_fixed_counters) data.global_status &= 0xFF | status::kOvfBuffer;
  if (behaviour.status_of_lowest_only) {
    data.global_status &= ~uint64_t{triggering & (triggering - 1)};
  }
  for (uint32_t rest = triggering; rest != 0; rest &= rest - 1) {
    unsigned n = static_cast<unsigned>(__builtin_ctz(rest));
    if (counters[n].load_latency && load.valid) {
      load_fields(data, n, load);
    } else if (counters[n].precise_store && store.valid) {
      store_fields(data, store);
    } else if (counters[n].data_address) {
      add_data_address(data, counters[n], load, store);
    }
  }
  data.data_address = low_part(data.data_address, behaviour.data_address_bits);
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
void Pmu::State::add_generation_fields(RecordData& data, uint32_t triggering, const Retired& r) {
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
  const uint32_t represented = represented_by(triggering);
  switch (how.applicable) {
    case Applicable::kRepresented:
      data.applicable_counters = represented;
      break;
    case Applicable::kOverflowed:
      data.applicable_counters = (global_status & ~status::kOvfBuffer) | triggering;
      break;
    case Applicable::kLowest:
      data.applicable_counters = represented & (0u - represented);
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

void Pmu::State::load_fields(RecordData& data, unsigned n, const Access& load) const {
  bool published = ((uarch.load_latency_counters >> n) & 1) != 0;
  data.data_address = behaviour.load_latency_lag < 0 ? last_load_address : load.address;
  data.latency = behaviour.load_latency_value && (published || !behaviour.load_latency_elsewhere)
                     ? load.latency
                     : 0;
  data.data_source = 0;
  if (behaviour.load_latency_source) {
    data.data_source = (load.source + behaviour.load_latency_source_offset) & 0xF;
  }
  if (uarch.data_source_tlb_lock_bits && behaviour.load_latency_status_bits) {
    data.data_source |= (load.stlb_miss ? bit(4) : 0) | (load.locked ? bit(5) : 0);
  }
}

void Pmu::State::store_fields(RecordData& data, const Access& store) const {
  bool hit = store.l1_hit != behaviour.precise_store_status_inverted;
  uint64_t flags =
      (hit ? bit(0) : 0) | (store.stlb_miss ? bit(4) : 0) | (store.locked ? bit(5) : 0);
  data.data_address = behaviour.precise_store_lag < 0 ? last_store_address : store.address;
  if (!behaviour.precise_store_address) data.data_address = 0;
  data.data_source = behaviour.precise_store_status ? flags : 0;
  data.latency = behaviour.precise_store_zero_latency ? 0 : store.latency;
}

void Pmu::State::finish_assist(const Retired& r) {
  uint32_t triggering = pending.triggers;
  if (!ia32e && !behaviour.legacy_mode_records) return;
  DebugStore ds(bus, uarch, behaviour, ds_area, latched);
  if (!ds.load()) return skip_assist(ds);
  if (ds.below_base() && behaviour.low_index_to_base) ds.wrap();
  if (ds.full() && behaviour.wraps_when_full) ds.wrap();
  if (!ds.room()) return skip_assist(ds);
  RecordData data = record_data(triggering, r, pending.load, pending.store);
  add_generation_fields(data, triggering, r);
  Registers registers = behaviour.registers_after ? *r.after : before;
  if (!ia32e) outside_ia32e(behaviour, left_by_64_bit_code, registers, data);
  if (!ds.store(data, registers)) return skip_assist(ds);
  after_record(triggering, ds);
}

// The bounds check failed: the event is skipped entirely (D10, R46).
void Pmu::State::skip_assist(DebugStore& ds) {
  uint32_t enabled_overflow = static_cast<uint32_t>(global_status & pebs_enable & 0xFF);
  if (behaviour.skip_reloads || (behaviour.low_index_reloads && ds.below_base())) {
    reload(enabled_overflow, enabled_overflow, ds);
  }
  if (behaviour.skip_clears_status) global_status &= ~uint64_t{enabled_overflow};
  if (behaviour.skip_clears_all_status) global_status &= status::kOvfBuffer;
  if (behaviour.skip_clears_count) {
    for (unsigned n = 0; n < kMaxCounters; ++n) {
      if ((enabled_overflow >> n) & 1) counters[n].load(0);
    }
  }
  if (behaviour.skip_moves_index) ds.skip();
  if (behaviour.skip_interrupts) raise_pmi();
  if (!behaviour.resumes_after_rewind) disarm(0xFF);
  interrupts_after_assist(false);
}

void Pmu::State::after_record(uint32_t triggering, DebugStore& ds) {
  ++pebs_records;
  uint32_t overflow = static_cast<uint32_t>(global_status & 0xFF) | triggering;
  uint32_t represented = represented_by(triggering);
  uint32_t loaded = behaviour.reload_needs_status
                        ? represented & static_cast<uint32_t>(global_status)
                        : represented;
  if (!behaviour.ovf_buffer_sticky) global_status &= ~status::kOvfBuffer;
  if (behaviour.record_clears_status) global_status &= ~uint64_t{represented};
  if (behaviour.record_clears_all_status) global_status &= status::kOvfBuffer;
  if (redundant(triggering)) {
    disarm(represented & ~triggering);
  } else {
    reload(loaded, overflow, ds);
    disarm(represented);
  }
  if (ds.full()) {
    if (behaviour.full_sets_ovf_buffer) global_status |= status::kOvfBuffer;
    if (behaviour.full_clears_ovf_buffer) global_status &= ~status::kOvfBuffer;
    if (behaviour.full_interrupts) raise_pmi();
  }
  bool threshold = ds.reached_threshold();
  if (threshold) {
    if (behaviour.threshold_sets_ovf_buffer) global_status |= status::kOvfBuffer;
    raise_pmi();
    if (behaviour.wraps_at_threshold) ds.wrap();
  }
  interrupts_after_assist(threshold);
}

// Whether the counters that this record was for stay armed, and give one more for nothing.
bool Pmu::State::redundant(uint32_t triggering) {
  if (behaviour.redundant == Redundant::kNever) return false;
  Counter& c = counters[static_cast<unsigned>(__builtin_ctz(triggering))];
  if (std::exchange(c.redundant, false)) return false;
  bool alone = true;
  for (unsigned n = 0; n < kMaxCounters; ++n) {
    alone = alone && (!counters[n].pebs || !counters[n].counting || ((triggering >> n) & 1) != 0);
  }
  switch (behaviour.redundant) {
    case Redundant::kNowAndThen:
      c.redundant = ++records % 8 == 0;
      break;
    case Redundant::kPdirNotAlone:
      c.redundant = c.pdir && !alone;
      break;
    case Redundant::kLoadLatencyNotAlone:
      c.redundant = c.load_latency && !alone;
      break;
    case Redundant::kNever:
      break;
  }
  if (c.redundant) {
    for (unsigned n = 0; n < kMaxCounters; ++n) counters[n].armed |= ((triggering >> n) & 1) != 0;
    armed |= triggering;
  }
  return c.redundant;
}

// R28, broken: the interrupt of the record to come.
void Pmu::State::announce_threshold() {
  DebugStore ds(bus, uarch, behaviour, ds_area, latched);
  if (!ds.load() || !ds.next_reaches_threshold()) return;
  if (behaviour.threshold_sets_ovf_buffer) global_status |= status::kOvfBuffer;
  raise_pmi();
}

// P4, broken: an overflow that PEBS does not take loads the counter all the same.
void Pmu::State::reload_without_record(unsigned n) {
  DebugStore ds(bus, uarch, behaviour, ds_area, latched);
  if (((pebs_enable >> n) & 1) == 0 || !ds.load()) return;
  counters[n].load(ds.reset_value(n));
}

// R39, broken: what was armed when it was stopped records in the code that stopped it. That is the
// machine's own, of which the model knows nothing: the registers are zero.
void Pmu::State::record_at_disable(uint32_t which) {
  if (which == 0) return;
  DebugStore ds(bus, uarch, behaviour, ds_area, latched);
  if (!ds.load() || !ds.room()) return;
  RecordData data;
  data.global_status = global_status;
  if (ds.store(data, Registers{})) after_record(which, ds);
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
    uint64_t value = ds.reset_value(n);
    if (value == 0 && behaviour.reload_skips_zero) continue;
    counters[n].load(value);
  }
}

void Pmu::State::disarm(uint32_t which) {
  for (unsigned n = 0; n < kMaxCounters; ++n) {
    if ((which >> n) & 1) counters[n].armed = false;
  }
  armed &= ~which;
}

}  // namespace skidproof::model
