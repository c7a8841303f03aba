// What only a broken CPU does beside its assists: each function answers for decisions of Behaviour
// that no conforming microarch takes.
#include <utility>

#include "pebs/arch/data_source.h"
#include "pebs/arch/msr.h"
#include "pebs/model/pmu_state.h"

namespace skidproof::model {

// Whether a defect that shows rarely shows from this overflow until the next.
void Pmu::State::draw_defect() {
  constexpr uint64_t kOne = uint64_t{1} << 32;
  const auto share = static_cast<uint64_t>(rare->share * static_cast<double>(kOne));
  behaviour = draws.below(kOne) < share ? *rare : *rare->otherwise;
  refresh();
}

// Whether what GLOBAL_CTRL stops overflowed so late that its status stays for good.
void Pmu::State::note_late_overflow() {
  constexpr uint64_t kLate = 8;  // instructions
  if (since_overflow < kLate) stuck_status |= global_status & last_overflow;
}

// Whether, with FREEZE_PERFMON_ON_PMI, another fixed counter has only just overflowed.
bool Pmu::State::is_close_overflow(unsigned i, const Retired& r) {
  constexpr uint64_t kClose = 4096;  // cycles
  const bool close = (fixed_overflows & ~(1u << i)) != 0 && r.cycle - fixed_overflow_cycle < kClose;
  fixed_overflows = close ? fixed_overflows | 1u << i : 1u << i;
  fixed_overflow_cycle = r.cycle;
  return close && (debugctl & debugctl::kFreezePerfmonOnPmi) != 0;
}

// What a counter gains of an instruction that it takes for another.
uint64_t Pmu::State::mistaken(const Counter& c, const Retired& r, uint64_t events) const {
  const CountingBehaviour& how = behaviour.counting;
  const uint64_t event = c.select & 0xFFFF;
  const bool of_branches = event == 0x00C4 || event == 0x01C4;
  if (how.cpuid_is_branch && of_branches && r.special == Special::kCpuid) return events + 1;
  const bool fence = r.special == Special::kMfence || r.special == Special::kWrmsr;
  if (how.fence_is_store && event == 0x020B && fence) return events + 1;
  const bool lost = c.signal == Signal::kLockedLoads || c.signal == Signal::kLoadsL2Hit;
  const bool l2_hit = r.load.source == static_cast<uint8_t>(DataSource::kL2Hit);
  if (how.locked_l2_hits_lost && lost && r.load.valid && r.load.locked && l2_hit) return 0;
  return events;
}

// P5, broken: the event of the precise distribution waits for nothing on a counter without it.
bool Pmu::State::armed_at_once(const Counter& c) const {
  return behaviour.pdir_event_at_once && c.event != nullptr && c.event->kind == EventKind::kPdir;
}

// Whether the lowest of these counters counts memory accesses of one privilege level alone.
bool Pmu::State::one_level_memory_event(uint64_t triggering) const {
  triggering &= low_bits(kMaxCounters);
  if (triggering == 0) return false;
  const Counter& c = counters[static_cast<unsigned>(__builtin_ctzll(triggering))];
  bool both = (c.select & evtsel::kOs) != 0 && (c.select & evtsel::kUsr) != 0;
  return !both && (c.load_latency || c.signal == Signal::kLoads || c.signal == Signal::kStores);
}

// Whether the counters that this record was for stay armed, and give one more for nothing.
bool Pmu::State::redundant(uint64_t triggering) {
  if (behaviour.redundant == Redundant::kNever) return false;
  triggering &= low_bits(kMaxCounters);
  if (triggering == 0) return false;
  Counter& c = counters[static_cast<unsigned>(__builtin_ctzll(triggering))];
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
    case Redundant::kLowSixBits:
      c.redundant = c.pdir && (c.period() & 0x3F) != 0;
      break;
    case Redundant::kShortCycles:
      c.redundant = (c.select & evtsel::kInvert) != 0 && (c.select & evtsel::kCmask) != 0 &&
                    c.period() < 1000;
      break;
    case Redundant::kNever:
      break;
  }
  if (c.redundant) {
    for (unsigned n = 0; n < kMaxCounters; ++n) counters[n].armed |= ((triggering >> n) & 1) != 0;
    armed |= static_cast<uint32_t>(triggering);
  }
  return c.redundant;
}

// R28, broken: the interrupt of the record to come.
void Pmu::State::announce_threshold() {
  DebugStore ds = store_now();
  if (!ds.load() || !ds.next_reaches_threshold()) return;
  if (behaviour.threshold_sets_ovf_buffer) global_status |= buffer_bit();
  raise_pmi();
}

// P4, broken: an overflow that PEBS does not take loads the counter all the same.
void Pmu::State::reload_without_record(unsigned n) {
  DebugStore ds = store_now();
  if (((pebs_enable >> n) & 1) == 0 || !ds.load()) return;
  counters[n].load(ds.reset_value(n));
}

// R39, broken: what was armed when it was stopped records in the code that stopped it. That is the
// machine's own, of which the model knows nothing: the registers are zero.
void Pmu::State::record_at_disable(uint32_t which) {
  if (which == 0) return;
  DebugStore ds = store_now();
  if (!ds.load() || !ds.room()) return;
  RecordData data;
  data.global_status = global_status;
  if (ds.store(data, Registers{})) after_record(which, ds, {});
}

}  // namespace skidproof::model
