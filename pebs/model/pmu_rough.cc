// What a conforming PMU may do beyond what is promised, by behaviour.rough: each function answers for
// choices that the manual leaves open.
#include "pebs/arch/msr.h"
#include "pebs/model/pmu_state.h"

namespace skidproof::model {

// Draws nothing where nothing is left open, so that other draws stay as they are.
bool Pmu::State::happens(double share) {
  constexpr uint64_t kOne = uint64_t{1} << 32;
  return share > 0 && random.below(kOne) < static_cast<uint64_t>(share * static_cast<double>(kOne));
}

// Whether a load is tagged for load latency, and slower than the threshold.
bool Pmu::State::tags(const Retired& r) {
  const Rough& rough = behaviour.rough;
  if (!happens(rough.tagging) || r.cycle < next_tag || auxiliary_missing) return false;
  next_tag = r.cycle + rough.tag_apart;
  const uint64_t latency = rough.threshold_of_caches != 0 ? r.load.cache_latency : r.load.latency;
  return latency > (behaviour.load_latency_threshold ? load_latency_threshold : 0);
}

// Where load latency tags nothing without another event: whether no counter counts that.
bool Pmu::State::misses_auxiliary() const {
  if (behaviour.rough.auxiliary_needed == 0 || uarch.load_latency_auxiliary == 0) return false;
  const uint64_t able = uarch.load_latency_auxiliary_counters & enabled_counters();
  for (unsigned n = 0; n < kMaxCounters; ++n) {
    const uint64_t select = counters[n].select;
    const bool selected = (select & 0xFFFF) == uarch.load_latency_auxiliary;
    if (((able >> n) & 1) != 0 && selected && (select & evtsel::kEnable) != 0) return false;
  }
  return true;
}

uint64_t Pmu::State::arming_time() {
  const Rough& rough = behaviour.rough;
  if (rough.shadowless != 0) return 0;
  return rough.arm_low == rough.arm_high ? rough.arm_low
                                         : random.between(rough.arm_low, rough.arm_high);
}

// The time of a record, which every counter of cycles sees, and its own uops and accesses, which the
// `blind` counters do not see.
void Pmu::State::count_assist(uint64_t blind, const Retired& r) {
  const Rough& rough = behaviour.rough;
  SignalCounts cost{};
  cost[index(Signal::kCycles)] = rough.assist_cycles;
  cost[index(Signal::kReferenceCycles)] =
      uint64_t{rough.assist_cycles} * rough.reference_percent / 100;
  cost[index(Signal::kUops)] = rough.assist_uops;
  cost[index(Signal::kLoads)] = cost[index(Signal::kLoadsL1Hit)] = rough.assist_accesses;
  cost[index(Signal::kStores)] = rough.assist_accesses;
  stall += rough.assist_cycles;
  Retired behind = r;
  behind.cycle += rough.assist_cycles;
  for (uint32_t rest = counting; rest != 0; rest &= rest - 1) {
    const auto n = static_cast<unsigned>(__builtin_ctz(rest));
    Counter& c = counters[n];
    if (c.load_latency) continue;
    uint64_t events = cost[index(c.signal)];
    if (((blind >> n) & 1) != 0 && c.signal != Signal::kCycles) events = 0;
    if (c.filter.used()) events = c.filter.feed(behind.cycle, events, rough.assist_cycles);
    if (events != 0 && c.count.add(events)) gained_overflow(n, behind);
  }
  for (uint32_t rest = fixed_counting; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(__builtin_ctz(rest));
    if (fixed[i].add(cost[index(fixed_signal(i))])) fixed_overflowed(i, behind);
  }
}

// An overflow by something that is no instruction: a record of the event itself waits for the next one.
void Pmu::State::gained_overflow(unsigned n, const Retired& r) {
  if (!overflowed(n, r)) return;
  counters[n].armed = true;
  counters[n].ready_cycle = 0;
  armed |= 1u << n;
}

// What a write that starts or stops counters, by IA32_PERF_GLOBAL_CTRL or by their own enables, lets them
// see of the code around it.
void Pmu::State::switched(uint32_t gp_before, uint32_t fixed_before) {
  const Rough& rough = behaviour.rough;
  auto drawn = [&](Signal signal, uint64_t instructions, uint64_t cycles) -> uint64_t {
    uint64_t most = 0;
    if (signal == Signal::kInstructions || signal == Signal::kUops) most = instructions;
    if (signal == Signal::kCycles || signal == Signal::kReferenceCycles) most = cycles;
    // Draws nothing where nothing is left open: not every machine switches as often around a run.
    return most == 0 ? 0 : random.below(most + 1);
  };
  auto seen_at_start = [&](Signal signal) {
    const bool counts_it = signal == Signal::kInstructions || signal == Signal::kUops;
    return drawn(signal, rough.start_instructions, rough.start_cycles) +
           (counts_it ? rough.start_wrmsr : 0);
  };
  for (unsigned n = 0; n < kMaxCounters; ++n) {
    Counter& c = counters[n];
    if (c.load_latency || c.filter.used()) continue;
    if (((counting & ~gp_before) >> n) & 1) {
      if (c.count.add(seen_at_start(c.signal))) gained_overflow(n, {});
    } else if (((gp_before & ~counting) >> n) & 1) {
      const uint64_t more = drawn(c.signal, rough.stop_instructions, rough.stop_cycles);
      if (c.count.quiet(1) >= more) c.count.add(more);
    }
  }
  for (unsigned i = 0; i < kMaxFixed; ++i) {
    if (((fixed_counting & ~fixed_before) >> i) & 1) {
      if (fixed[i].add(seen_at_start(fixed_signal(i)))) fixed_overflowed(i, {});
    } else if (((fixed_before & ~fixed_counting) >> i) & 1) {
      const uint64_t more = drawn(fixed_signal(i), rough.stop_instructions, rough.stop_cycles);
      if (fixed[i].quiet(1) >= more) fixed[i].add(more);
    }
  }
}

// Fields of a record that belong to a facility which is not at work, and the reserved bits of those
// that are, hold anything.
void Pmu::State::leave_stale(RecordData& data, uint64_t triggering) {
  bool described = false;
  for (uint64_t rest = triggering & low_bits(kMaxCounters); rest != 0; rest &= rest - 1) {
    const Counter& c = counters[static_cast<unsigned>(__builtin_ctzll(rest))];
    described |= c.load_latency || c.precise_store || c.store_sample || c.data_address ||
                 addresses_of_any_event();
  }
  if (behaviour.rough.stale_fields == 2) {
    if (described) {
      last_described = data;
    } else {
      data.data_address = last_described.data_address;
      data.data_source = last_described.data_source;
      data.latency = last_described.latency;
    }
    return;
  }
  if (!described) {
    data.data_address = random.next();
    data.data_source = random.next();
    data.latency = random.next();
    return;
  }
  uint64_t defined = uarch.access.defined() | 0xC0;
  if (!uarch.data_source_tlb_lock_bits) defined &= ~(uarch.access.stlb_miss | uarch.access.locked);
  data.data_source |= random.next() & ~defined;
  if (uarch.reserved_access_fields) {
    data.data_source = random.next();
    data.latency = random.next();
  }
}

}  // namespace skidproof::model
