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
void Pmu::State::begin_assist(uint64_t triggering, const Retired& r) {
  if (!modes.pebs(behaviour.modes)) return;  // the counter stays armed
  pending = {.triggers = triggering,
             .ip = r.ip,
             .ip_before = last_ip,
             .fell_through = r.counts[arch::index(Signal::kConditionalNotTaken)] != 0,
             .load = r.load,
             .store = r.store,
             .retire_cycles = cycles_of(r.counts)};
  bool jitter = behaviour.skid_jitter != 0 && random.below(behaviour.skid_jitter) == 0;
  unsigned wait =
      static_cast<unsigned>(std::max(behaviour.skid_instructions - 1, 0)) + (jitter ? 1 : 0);
  if (behaviour.one_level_skid != 0 && one_level_memory_event(triggering)) {
    wait += behaviour.one_level_skid;
  }
  if (r.special == Special::kShadow) wait += behaviour.shadow_skid;
  if (r.fused_with_next) {
    const bool two = behaviour.fused_pair_skid == 2 ? !happens(behaviour.rough.fused_skid_one)
                                                    : happens(behaviour.rough.fused_skid_two);
    wait += behaviour.fused_extra_skid + (two ? 1 : 0);
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
                                   const Access& store) {
  RecordData data;
  data.ip = recorded_ip(r);
  data.global_status = behaviour.status_all_counters
                           ? global_status
                           : global_status & (pebs_enable | status::kOvfBuffer);
  if (!behaviour.status_before_assist) data.global_status &= ~triggering;
  if (!behaviour.status_fixed_counters) {
    data.global_status &= low_bits(kMaxCounters) | status::kOvfBuffer;
  }
  if (behaviour.status_of_lowest_only) data.global_status &= ~(triggering & (triggering - 1));
  for (uint64_t rest = triggering & low_bits(kMaxCounters); rest != 0; rest &= rest - 1) {
    const unsigned n = static_cast<unsigned>(__builtin_ctzll(rest));
    const Counter& c = counters[n];
    if (c.load_latency && load.valid) {
      load_fields(data, n, load);
    } else if (c.precise_store && store.valid) {
      store_fields(data, store);
    } else if (c.store_sample) {
      add_store_sample(data, store);
    } else if (c.data_address || (c.pebs && addresses_of_any_event())) {
      add_data_address(data, c, load, store);
    }
  }
  if (behaviour.rough.stale_fields != 0) leave_stale(data, triggering);
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
  if (behaviour.efficient.data_address_before) [[unlikely]]
    data.data_address = of_store ? last_store_address : last_load_address;
  bool shows_status = of_store && c.store_status;
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
    case EventingIp::kBeforeNotTaken:
      data.eventing_ip = pending.fell_through ? pending.ip_before : pending.ip;
      break;
    case EventingIp::kNowAndThenBefore:
      data.eventing_ip = pebs_records % 8 == 7 ? pending.ip_before : pending.ip;
      break;
  }
  data.tx_information = how.tx_information;
  if (how.transaction_before_ip) std::swap(data.eventing_ip, data.tx_information);
  uint64_t its_own = represented(triggering);
  if (!behaviour.efficient.applicable_fixed) its_own &= low_bits(kMaxCounters);
  switch (how.applicable) {
    case Applicable::kRepresented:
      data.applicable_counters = its_own;
      break;
    case Applicable::kOverflowed:
      data.applicable_counters = (global_status & ~pebs_overflow(uarch)) | triggering;
      break;
    case Applicable::kLowest:
      data.applicable_counters = its_own & (0 - its_own);
      break;
    case Applicable::kNone:
      break;
  }
  switch (how.time_stamp) {
    case TimeStamp::kRetirement:
      data.tsc = r.tsc;
      break;
    case TimeStamp::kZero:
      break;
    case TimeStamp::kFirst:
      if (earlier_tsc == 0) earlier_tsc = r.tsc;
      data.tsc = earlier_tsc;
      break;
    case TimeStamp::kBehind:
      data.tsc = r.tsc + 1000;
      break;
    case TimeStamp::kSinceLast:
      data.tsc = r.tsc - std::exchange(earlier_tsc, r.tsc);
      break;
  }
}

void Pmu::State::load_fields(RecordData& data, unsigned n, const Access& load) {
  data.cache_latency = load.cache_latency;
  bool published = ((uarch.load_latency_counters >> n) & 1) != 0;
  data.data_address = behaviour.load_latency_lag < 0 ? last_load_address : load.address;
  data.latency = behaviour.load_latency_value && (!behaviour.load_latency_elsewhere || published)
                     ? load.latency
                     : 0;
  data.data_source = behaviour.load_latency_source
                         ? (source_of(load) + behaviour.load_latency_source_offset) &
                               behaviour.efficient.load_info.source
                         : 0;
  if (uarch.data_source_tlb_lock_bits && behaviour.load_latency_status_bits) {
    data.data_source |= told_of(load, behaviour.efficient.load_info);
  }
}

// Whether 98H has an access although the event is none, which is allowed and no more.
bool Pmu::State::addresses_of_any_event() const {
  return uarch.data_address_of_any_event && behaviour.rough.addresses_of_any_event != 0;
}

// Where the data came from, as the row says it.
uint64_t Pmu::State::source_of(const Access& access) {
  constexpr DataSource kFromMemory = DataSource::kLocalDramExclusive;  // of the core model
  if (uarch.unknown_sources && happens(behaviour.rough.unknown_sources)) return 0;
  const auto source = static_cast<DataSource>(access.source);
  if (behaviour.version6.older_sources) return access.source;
  if (!uarch.access.encodings.empty()) return uarch.access.encoding_of(source);
  if (source != kFromMemory) return access.source;
  const uint8_t reserved = behaviour.efficient.reserved_source;
  return reserved != 0 ? reserved : uarch.memory_source;
}

// What its word tells beside the source.
uint64_t Pmu::State::told_of(const Access& access, const AccessInfo& info) const {
  return (access.stlb_miss ? info.stlb_miss : 0) | (access.locked ? info.locked : 0) |
         behaviour.efficient.always_told;
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
  uint64_t triggering = pending.triggers;
  if (!ia32e && !behaviour.legacy_mode_records) return;
  DebugStore ds = store_now();
  if (!ds.load()) return skip_assist(ds);
  if (behaviour.adaptive.bounds_by_size && adaptive(triggering)) {
    ds.expect(adaptive::configured_bytes(pebs_data_cfg));
  }
  if (uarch.architectural_pebs()) ds.expect(architectural_bytes(triggering));
  if (behaviour.low_index_to_base && ds.below_base()) ds.wrap();
  if (behaviour.wraps_when_full && ds.full()) ds.wrap();
  if (!ds.room()) return skip_assist(ds);
  RecordData data = record_data(triggering, r, pending.load, pending.store);
  add_generation_fields(data, triggering, r);
  Registers registers = behaviour.registers_after ? *r.after : before;
  if (!ia32e) outside_ia32e(behaviour, left_by_64_bit_code, registers, data);
  const bool stored =
      uarch.architectural_pebs() ? store_architectural(triggering, r, data, registers, ds)
      : uarch.record->adaptive() ? store_adaptive(triggering, r, data, registers, ds)
                                 : ds.store(data, registers);
  if (!stored) return skip_assist(ds);
  after_record(triggering, ds, r);
}

// The bounds check failed: the event is skipped entirely (D10, R46).
void Pmu::State::skip_assist(DebugStore& ds) {
  ds.note_full();
  uint64_t enabled_overflow = global_status & pebs_mask();
  if (uarch.out_of_bounds_signalled && out_of_bounds(ds)) return signal_out_of_bounds(ds);
  if (behaviour.skip_reloads || (behaviour.low_index_reloads && ds.below_base())) {
    reload(enabled_overflow, enabled_overflow, ds);
  }
  if (behaviour.skip_clears_status) global_status &= ~enabled_overflow;
  if (behaviour.skip_clears_all_status) global_status &= pebs_overflow(uarch);
  if (behaviour.skip_clears_count) {
    for (unsigned n = 0; n < kMaxCounters; ++n) {
      if ((enabled_overflow >> n) & 1) counters[n].load(0);
    }
  }
  if (behaviour.skip_moves_index) ds.skip();
  if (behaviour.skip_interrupts) raise_pmi();
  if (!behaviour.resumes_after_rewind) disarm(~uint64_t{0});
  interrupts_after_assist(false);
}

// An index below the base or above the maximum. (D14)
bool Pmu::State::out_of_bounds(const DebugStore& ds) const {
  const OutOfBounds which = behaviour.efficient.out_of_bounds;
  return (ds.below_base() && which != OutOfBounds::kAbove) ||
         (ds.above_maximum() && which != OutOfBounds::kBelow);
}

// It is signalled, the counters to which the record would have applied are as if it were written, but for
// their values.
void Pmu::State::signal_out_of_bounds(const DebugStore& ds) {
  const EfficientBehaviour& how = behaviour.efficient;
  const uint64_t applicable = global_status & pebs_mask();
  if (how.out_of_bounds_reloads) reload(applicable, applicable, ds);
  if (how.out_of_bounds_sets_ovf) global_status |= status::kOvfBuffer;
  if (how.out_of_bounds_clears) global_status &= ~applicable;
  if (how.out_of_bounds_clears_all) global_status &= status::kOvfBuffer;
  disarm(applicable);
  if (behaviour.rough.out_of_bounds_interrupts != 0) raise_pmi();
  interrupts_after_assist(false);
}

// The counters that a record stands for: those that triggered it, and every other that has
// overflowed under PEBS (R17, R19, R26).
uint64_t Pmu::State::represented(uint64_t triggering) const {
  return (global_status & pebs_mask()) | triggering;
}

void Pmu::State::after_record(uint64_t triggering, DebugStore& ds, const Retired& r) {
  ++pebs_records;
  clear_recorded_metrics(triggering);
  const uint64_t all = low_bits(kMaxCounters) | (low_bits(kMaxFixed) << status::kFixedShift);
  const uint64_t overflow = (global_status & all) | triggering;
  const uint64_t its_own = represented(triggering);
  const uint64_t loaded = behaviour.reload_needs_status ? its_own & global_status : its_own;
  uint64_t cleared = its_own;
  if (!behaviour.adaptive.fixed_status_clears) cleared &= low_bits(kMaxCounters);
  if (!behaviour.ovf_buffer_sticky) global_status &= ~pebs_overflow(uarch);
  if (behaviour.record_clears_status) global_status &= ~cleared;
  if (behaviour.record_clears_all_status) global_status &= pebs_overflow(uarch);
  if (redundant(triggering)) {
    disarm(its_own & ~triggering);
  } else {
    reload(loaded, overflow, ds);
    disarm(its_own);
  }
  if (const uint64_t due = auto_reload.due & its_own; due != 0) [[unlikely]] {
    auto_reload.due &= ~due;
    reload_by(due);
  }
  if (behaviour.rough.assist_cycles != 0 || behaviour.rough.assist_uops != 0 ||
      behaviour.rough.assist_accesses != 0) {
    count_assist(behaviour.rough.assist_seen_by_own != 0 ? 0 : its_own, r);
  }
  if (ds.full()) {
    if (behaviour.full_sets_ovf_buffer) global_status |= buffer_bit();
    if (behaviour.full_interrupts) raise_pmi();
  }
  bool threshold = ds.reached_threshold();
  if (threshold) {
    bool frozen = (debugctl & debugctl::kFreezePerfmonOnPmi) != 0;
    if (behaviour.threshold_sets_ovf_buffer && (frozen || !behaviour.ovf_buffer_needs_freeze)) {
      global_status |= buffer_bit();
    }
    if (behaviour.arch_pebs.threshold_interrupts || !uarch.architectural_pebs()) raise_pmi();
    if (behaviour.wraps_at_threshold) ds.wrap();
  }
  if (behaviour.full_clears_ovf_buffer && ds.full()) global_status &= ~pebs_overflow(uarch);
  interrupts_after_assist(threshold);
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
      if (std::exchange(reloaded_once, true)) which = 0;
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
  reload_fixed(which, ds);
  for (which &= low_bits(kMaxCounters); which != 0; which &= which - 1) {
    unsigned n = static_cast<unsigned>(__builtin_ctzll(which));
    uint64_t value = ds.reset_value(n);
    if (behaviour.reload_skips_zero && value == 0) continue;
    counters[n].load(value);
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
