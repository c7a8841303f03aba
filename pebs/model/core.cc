#include "pebs/model/core.h"

#include <algorithm>

namespace skidproof::model {
namespace {

using arch::Signal;

// Independent misses overlap: how much of the latency beyond L1 shows.
constexpr unsigned kOverlap = 4;
// A misprediction, whatever the table says, stays well inside kMaxCyclesPerInstruction together with
// two accesses and the longest static stall.
constexpr uint32_t kMaximumPenalty = 64;
static_assert(2 * Core::kMaximumAccessStall + kMaximumPenalty + 128 + 16 <
              kMaxCyclesPerInstruction);

}  // namespace

Core::Core(const arch::CacheGeometry& geometry, uint64_t seed, const CoreBehaviour& behaviour)
    : l1_(geometry.l1_bytes >> kLineShift, geometry.l1_ways),
      dtlb_(geometry.dtlb_entries, geometry.dtlb_ways),
      recent_page_(dtlb_.sets(), kNoPage),
      recent_mask_(dtlb_.sets() - 1),
      predictor_(seed),
      l2_(geometry.l2_bytes >> kLineShift, geometry.l2_ways),
      l3_(geometry.l3_bytes >> kLineShift, geometry.l3_ways),
      stlb_(geometry.stlb_entries, geometry.stlb_ways),
      geometry_(geometry),
      l1_latency_(std::min({geometry.l1_latency, geometry.l2_latency, geometry.l3_latency,
                            geometry.memory_latency})),
      width_(std::max(1u, geometry.retire_width)),
      seed_(seed),
      reference_percent_(behaviour.reference_percent),
      prefetch_(static_cast<uint64_t>(behaviour.prefetch * 4294967296.0)) {
  penalty_ = uint64_t{std::min(geometry_.mispredict_penalty, kMaximumPenalty)} * width_;
  stall_bound_ = uint64_t{kMaximumAccessStall} * width_;
  geometry_.l1_latency = l1_latency_;
  geometry_.slots = std::min<uint32_t>(geometry_.slots, kMaxSlotsPerCycle);
  near_latency_ = {geometry_.l3_latency, geometry_.l2_latency};
  near_translation_ = {geometry_.stlb_latency, behaviour.dtlb_latency};
  if (behaviour.watches_accesses()) {
    watching_ = kDeviation;
    deviation_ = behaviour;
  }
  pending_line_.fill(kNoLine);
}

void Core::reset() {
  l1_.clear();
  l2_.clear();
  l3_.clear();
  forget_translations();
  predictor_.clear(seed_);
  stream_line_ = kNoLine;
  pending_line_.fill(kNoLine);
  pending_until_.fill(0);
  next_buffer_ = 0;
  clock_ = cycles_ = reference_cycles_ = bus_cycles_ = 0;
  dynamic_.fill(0);
  totals_.fill(0);
  probe_ = {};
  watching_ &= kDeviation;
  last_store_ = {};
}

void Core::forget_translations() {
  dtlb_.clear();
  stlb_.clear();
  std::fill(recent_page_.begin(), recent_page_.end(), kNoPage);
}

// Occupies the oldest fill buffer from `now` for `busy` slots; returns the wait until it was free.
inline uint64_t Core::take_buffer(uint32_t number, uint64_t now, uint64_t busy) {
  unsigned slot = next_buffer_;
  next_buffer_ = slot + 1 == kFillBuffers ? 0 : slot + 1;
  uint64_t start = std::max(now, pending_until_[slot]);
  pending_line_[slot] = number;
  pending_until_[slot] = start + busy;
  return start - now;
}

// A line that L1 lacks: looks further out and fills every level on the way.
[[gnu::always_inline]] inline Core::Line Core::fetch(uint32_t number, uint64_t now) {
  // Whether L2 has it the host cannot predict, so L3 is looked into either way. Few of its ways are in
  // use by a small working set, and those come first.
  bool in_l2 = l2_.touch(number);
  bool in_l3 = l3_.touch_front(number, in_l2);
  dynamic_[kLlcReference] += !in_l2;
  Level level{in_l2 ? kL2 : kL3, near_latency_[in_l2]};
  if (!(in_l2 | in_l3)) [[unlikely]]
    level = look_far(number);
  if (number == stream_line_) stream_line_ = kNoLine;
  if (prefetch_ != 0) [[unlikely]]
    prefetch_behind(number);
  uint64_t wait = take_buffer(number, now, uint64_t{level.latency} * width_);
  return {level.source, level.latency, wait};
}

// The line behind one that L1 lacked, into every level; not over the end of a page. Which misses it
// follows depends on their lines alone, so that a run is the same however it was cut into pieces.
[[gnu::noinline]] void Core::prefetch_behind(uint32_t number) {
  const uint32_t next = number + 1;
  constexpr uint32_t kLinesOfPage = 1u << (kPageShift - kLineShift);
  if (next % kLinesOfPage == 0 || number * 0x9E37'79B1u >= prefetch_) return;
  l2_.touch(next);
  l3_.touch(next);
  if (l1_.find(next) == l1_.kAbsent) l1_.insert(next);
}

void Core::flush(uint64_t address) {
  const uint32_t number = line(address);
  l1_.erase(number);
  l2_.erase(number);
  l3_.erase(number);
  if (number == stream_line_) stream_line_ = kNoLine;
}

// Not among the most recent lines of L3.
[[gnu::noinline]] Core::Level Core::look_far(uint32_t number) {
  if (l3_.touch(number)) return {kL3, geometry_.l3_latency};
  ++dynamic_[kLlcMiss];
  return {kLocalDramExclusive, geometry_.memory_latency};
}

// A line in L1 that is marked as on its way: has it arrived?
Core::Line Core::pending(uint32_t number, uint64_t now) const {
  uint64_t until = 0;
  for (unsigned n = 0; n < kFillBuffers; ++n) {
    if (pending_line_[n] == number) until = std::max(until, pending_until_[n]);
  }
  if (until <= now) return {kL1, geometry_.l1_latency, 0};
  uint64_t remaining = (until - now + width_ - 1) / width_;
  return {kFillBuffer, std::max(geometry_.l1_latency, static_cast<uint32_t>(remaining)), 0};
}

// Where a line is, making it the most recent of its L1 set.
[[gnu::always_inline]] inline Core::Line Core::reach(uint32_t number, uint64_t now) {
  if (!l1_.usual()) [[unlikely]]
    return reach_unusual(number, now);
  auto set = l1_.open(number);
  if (!set.hit()) {
    l1_.close_absent(set, number | Tag::kMark);
    return fetch(number, now);
  }
  Line hit{kL1, l1_latency_, 0};
  if (set.hit_is_marked()) [[unlikely]]
    hit = pending(number, now);
  l1_.close(set, hit.source == kL1 ? number : number | Tag::kMark);
  return hit;
}

// The same for any number of ways.
Core::Line Core::reach_unusual(uint32_t number, uint64_t now) {
  unsigned way = l1_.find(number);
  if (way == l1_.kAbsent) {
    l1_.insert(number | Tag::kMark);
    return fetch(number, now);
  }
  Line hit{kL1, l1_latency_, 0};
  if (l1_.tag(number, way) & Tag::kMark) hit = pending(number, now);
  l1_.promote(way, hit.source == kL1 ? number : number | Tag::kMark);
  return hit;
}

// `anew`: the next access to this page is looked up, too.
[[gnu::always_inline]] inline Core::Translation Core::translate(uint64_t address, bool anew) {
  uint64_t full = address >> kPageShift;
  uint64_t& recent = recent_page_[full & recent_mask_];
  if (recent == full) return {};
  recent = anew ? kNoPage : full;
  return look_up(page(address));
}

// Beyond the most recent page of a set. Which TLB has it the host cannot predict.
[[gnu::always_inline]] inline Core::Translation Core::look_up(uint32_t number) {
  bool in_dtlb = dtlb_.touch(number);
  bool in_stlb = stlb_.touch_front(number, in_dtlb);
  if (in_dtlb | in_stlb) [[likely]]
    return {near_translation_[in_dtlb], 0};
  return walk(number);
}

[[gnu::noinline]] Core::Translation Core::walk(uint32_t number) {
  if (stlb_.touch(number)) return {geometry_.stlb_latency, 0};  // in a TLB of more than four ways
  return {geometry_.stlb_latency + geometry_.walk_latency, 1};
}

// Loads that were served by `source`; L1 hits are what remains of all loads.
inline void Core::count(uint32_t source, uint64_t times) {
  static constexpr Dynamic kOf[] = {kDynamics, kDynamics, kFromFillBuffer, kFromL2,   kFromL3,
                                    kDynamics, kDynamics, kDynamics,       kDynamics, kDynamics,
                                    kDynamics, kDynamics, kFromMemory};
  dynamic_[kOf[source]] += times;
}

inline uint64_t Core::stall_of(Line found, uint32_t translation, bool pointer_chase) const {
  uint64_t beyond = uint64_t{found.latency - l1_latency_ + translation} * width_;
  return bounded(found.wait + (pointer_chase ? beyond : beyond / kOverlap));
}

// Of a broken core: what a load costs by the last store before it and by the level that serves it.
[[gnu::noinline]] uint64_t Core::deviating_stall(uint64_t address, unsigned bytes, Line found,
                                                 uint32_t translation, bool pointer_chase) {
  const bool in_full = pointer_chase != deviation_.chains_overlap;
  uint64_t stall = stall_of(found, translation, in_full);
  if (found.source == kL1) stall += uint64_t{deviation_.l1_stall} * width_;
  const auto [at, length] = last_store_;
  last_store_.bytes = 0;
  if (length == 0) return bounded(stall);
  uint32_t beside = deviation_.blocked_stall;
  if (address + bytes <= at || at + length <= address) beside = deviation_.apart_stall;
  if (at <= address && address + bytes <= at + length) beside = deviation_.forwarded_stall;
  return bounded(stall + uint64_t{beside} * width_);
}

void Core::note(Access& access, Line found, Translation translation) const {
  access.source = static_cast<uint8_t>(found.source);
  access.l1_hit = found.source == kL1;
  access.stlb_miss = translation.walked != 0;
  access.latency = static_cast<uint16_t>(
      std::min<uint64_t>(found.latency + translation.latency + found.wait / width_, UINT16_MAX));
  access.cache_latency = static_cast<uint16_t>(std::min<uint32_t>(found.latency, UINT16_MAX));
}

// Within one line, as most are. What watches it costs nothing where nothing does.
template <bool kWatched>
[[gnu::always_inline]] inline uint64_t Core::load_whole(uint64_t address, unsigned bytes,
                                                        uint64_t now, bool pointer_chase,
                                                        bool checked) {
  l3_.prefetch(line(address));
  Translation translation = translate(address, kWatched ? looks_up_anew(checked) : checked);
  Line found = reach(line(address), now);
  count(found.source, 1);
  dynamic_[kWalkLoad] += translation.walked;
  if constexpr (kWatched) {
    if (watching_ & kProbe) note(probe_.load, found, translation);
    if (watching_ & kDeviation) {
      return deviating_stall(address, bytes, found, translation.latency, pointer_chase);
    }
  }
  return stall_of(found, translation.latency, pointer_chase);
}

uint64_t Core::load(uint64_t address, unsigned bytes, uint64_t now, bool pointer_chase,
                    bool checked) {
  if (watching_ != 0 || !within_line(address, bytes)) [[unlikely]] {
    return load_rare(address, bytes, now, pointer_chase, checked);
  }
  return load_whole<false>(address, bytes, now, pointer_chase, checked);
}

[[gnu::noinline]] uint64_t Core::load_rare(uint64_t address, unsigned bytes, uint64_t now,
                                           bool pointer_chase, bool checked) {
  if (within_line(address, bytes))
    return load_whole<true>(address, bytes, now, pointer_chase, checked);
  auto [found, translation] = reach_both(address, bytes, now, checked);
  found.latency += l1_latency_;
  count(found.source, 1);
  ++dynamic_[kSplitLoad];
  dynamic_[kWalkLoad] += translation.walked;
  if (watching_ & kProbe) note(probe_.load, found, translation);
  return stall_of(found, translation.latency, pointer_chase);
}

// An access from `address` to `last`: one page, or two in turn.
[[gnu::noinline]] Core::Translation Core::translate_both(uint64_t address, uint64_t last,
                                                         bool checked) {
  const bool anew = looks_up_anew(checked);
  Translation translation = translate(address, anew);
  if (page(last) != page(address)) {
    Translation other = translate(last, anew);
    translation.latency += other.latency;
    translation.walked |= other.walked;
  }
  return translation;
}

// Two lines, and perhaps two pages: one access, whose source is the slower of the two.
[[gnu::noinline]] std::pair<Core::Line, Core::Translation> Core::reach_both(uint64_t address,
                                                                            unsigned bytes,
                                                                            uint64_t now,
                                                                            bool checked) {
  uint64_t last = address + bytes - 1;
  Translation translation = translate_both(address, last, checked);
  Line found = reach(line(address), now);
  Line other = reach(line(last), now + found.wait);
  uint64_t wait = found.wait + other.wait;
  if (other.latency > found.latency) found = other;
  found.wait = wait;
  return {found, translation};
}

template <bool kWatched>
[[gnu::always_inline]] inline uint64_t Core::store_whole(uint64_t address, unsigned bytes,
                                                         uint64_t now, bool checked) {
  l3_.prefetch(line(address));
  Translation translation = translate(address, kWatched ? looks_up_anew(checked) : checked);
  Line found = reach(line(address), now);
  dynamic_[kWalkStore] += translation.walked;
  if constexpr (kWatched) {
    if (watching_ & kProbe) note(probe_.store, found, translation);
    last_store_ = {address, bytes};
  }
  return bounded(found.wait + uint64_t{translation.latency} * width_ / kOverlap);
}

uint64_t Core::store(uint64_t address, unsigned bytes, uint64_t now, bool checked) {
  if (watching_ != 0 || !within_line(address, bytes)) [[unlikely]]
    return store_rare(address, bytes, now, checked);
  return store_whole<false>(address, bytes, now, checked);
}

[[gnu::noinline]] uint64_t Core::store_rare(uint64_t address, unsigned bytes, uint64_t now,
                                            bool checked) {
  if (within_line(address, bytes)) return store_whole<true>(address, bytes, now, checked);
  auto [found, translation] = reach_both(address, bytes, now, checked);
  ++dynamic_[kSplitStore];
  dynamic_[kWalkStore] += translation.walked;
  if (watching_ & kProbe) note(probe_.store, found, translation);
  return bounded(found.wait + uint64_t{translation.latency} * width_ / kOverlap);
}

uint64_t Core::store_stream(uint64_t address, unsigned bytes, uint64_t now, bool checked) {
  uint64_t last = address + bytes - 1;
  Translation translation = translate_both(address, last, checked);
  uint64_t wait = 0;
  bool split = line(last) != line(address);
  for (uint64_t part : {address, last}) {
    uint32_t number = line(part);
    if (number == stream_line_) continue;
    stream_line_ = number;
    l1_.erase(number);
    l2_.erase(number);
    l3_.erase(number);
    wait += take_buffer(number, now + wait, uint64_t{geometry_.memory_latency} * width_ / 2);
  }
  dynamic_[kSplitStore] += split;
  dynamic_[kWalkStore] += translation.walked;
  // Write-combined: never a hit, the source as if from memory.
  if (watching_ & kProbe) note(probe_.store, {kLocalDramExclusive, l1_latency_, wait}, translation);
  return bounded(wait + uint64_t{translation.latency} * width_ / kOverlap);
}

// The signals that are time, up to this reading of the clock. Most calls are of one instruction, within the
// cycle of the one before or in the next, so it divides only where it must.
inline void Core::spend(uint64_t clock, arch::SignalCounts& counts) {
  auto at = [&](Signal s) -> uint64_t& { return counts[arch::index(s)]; };
  const uint64_t since = clock - cycles_ * width_;
  const uint64_t cycles = cycles_ + (since < width_ ? 0 : since < 2 * width_ ? 1 : since / width_);
  const uint64_t reference_cycles = reference(cycles);
  const uint64_t bus_cycles =
      reference_cycles - bus_cycles_ * geometry_.bus_ratio < geometry_.bus_ratio
          ? bus_cycles_
          : reference_cycles / geometry_.bus_ratio;
  at(Signal::kCycles) = cycles - cycles_;
  at(Signal::kSlots) = (cycles - cycles_) * geometry_.slots;
  at(Signal::kReferenceCycles) = reference_cycles - reference_cycles_;
  at(Signal::kBusCycles) = bus_cycles - bus_cycles_;
  cycles_ = cycles;
  reference_cycles_ = reference_cycles;
  bus_cycles_ = bus_cycles;
  clock_ = clock;
}

inline void Core::total(const arch::SignalCounts& counts) {
  // By hand: at -O2 the compiler adds one at a time, which was half of settle().
  using Two [[gnu::vector_size(16), gnu::aligned(8), gnu::may_alias]] = uint64_t;
  for (size_t n = 0; n + 1 < arch::kSignals; n += 2) {
    *reinterpret_cast<Two*>(&totals_[n]) += *reinterpret_cast<const Two*>(&counts[n]);
  }
  if constexpr (arch::kSignals % 2 != 0) totals_.back() += counts.back();
}

void Core::stand_still(uint64_t cycles) {
  arch::SignalCounts counts{};
  spend(clock_ + cycles * width_, counts);
  total(counts);
}

void Core::arm_probe(uint64_t store_address) {
  watching_ |= kProbe;
  probe_ = {};
  probe_.load.source = probe_.store.source = kL1;
  probe_.load.latency = probe_.store.latency = static_cast<uint16_t>(l1_latency_);
  probe_.load.cache_latency = probe_.store.cache_latency = static_cast<uint16_t>(l1_latency_);
  probe_.load.l1_hit = true;
  // A quick store may find its line still on the way, or combine with the one before it: no hit. The
  // mark alone does not say so: quick stores leave it in place when the line has come.
  uint32_t number = line(store_address);
  uint32_t recent = l1_.most_recent(number);
  probe_.store.l1_hit = recent == number ||
                        (recent == (number | Tag::kMark) && pending(number, clock_).source == kL1);
}

// What accesses and branches did. Most single instructions do nothing of it, and then it is all zero already.
[[gnu::noinline]] void Core::count_dynamic(arch::SignalCounts& counts) {
  auto at = [&](Signal s) -> uint64_t& { return counts[arch::index(s)]; };
  const auto d = dynamic_;
  at(Signal::kConditionalTaken) = d[kTaken];
  at(Signal::kConditionalNotTaken) -= d[kTaken];
  at(Signal::kNearTaken) += d[kTaken];
  uint64_t conditional = d[kWrongTaken] + d[kWrongNotTaken];
  at(Signal::kMispredicts) = conditional + d[kWrongCall] + d[kWrongOther];
  at(Signal::kMispredictsConditional) = conditional;
  at(Signal::kMispredictsNearCall) = d[kWrongCall];
  at(Signal::kMispredictsTaken) = d[kWrongTaken] + d[kWrongCall] + d[kWrongOther];
  at(Signal::kMispredictsNotTaken) = d[kWrongNotTaken];
  at(Signal::kLoadsFillBuffer) = d[kFromFillBuffer];
  at(Signal::kLoadsL2Hit) = d[kFromL2];
  at(Signal::kLoadsL3Hit) = d[kFromL3];
  at(Signal::kLoadsL3Miss) = d[kFromMemory];
  at(Signal::kLoadsL1Hit) =
      at(Signal::kLoads) - (d[kFromFillBuffer] + d[kFromL2] + d[kFromL3] + d[kFromMemory]);
  at(Signal::kLlcReferences) = d[kLlcReference];
  at(Signal::kLlcMisses) = d[kLlcMiss];
  at(Signal::kSplitLoads) = d[kSplitLoad];
  at(Signal::kSplitStores) = d[kSplitStore];
  at(Signal::kStlbMissLoads) = d[kWalkLoad];
  at(Signal::kStlbMissStores) = d[kWalkStore];
  dynamic_.fill(0);
}

inline bool Core::has_dynamic() const {
  // By hand, as in total().
  using Two [[gnu::vector_size(16), gnu::aligned(8), gnu::may_alias]] = uint64_t;
  Two any{};
  for (size_t n = 0; n + 1 < kDynamics; n += 2) any |= *reinterpret_cast<const Two*>(&dynamic_[n]);
  return (any[0] | any[1] | dynamic_[kDynamics - 1]) != 0;
}

void Core::settle(arch::SignalCounts& counts, uint64_t clock) {
  auto at = [&](Signal s) -> uint64_t& { return counts[arch::index(s)]; };
  spend(clock, counts);
  at(Signal::kConditionalNotTaken) = at(Signal::kConditional);
  at(Signal::kLoadsL1Hit) = at(Signal::kLoads);
  if (has_dynamic()) {
    count_dynamic(counts);
    total(counts);
  } else {
    // All that is not zero: what add_static_counts() counts, what follows from it, and time.
    constexpr Signal kCounted[] = {Signal::kInstructions, Signal::kUops,
                                   Signal::kMacroFused,   Signal::kNops,
                                   Signal::kSimd,         Signal::kLoads,
                                   Signal::kStores,       Signal::kLockedLoads,
                                   Signal::kBranches,     Signal::kConditional,
                                   Signal::kNearCalls,    Signal::kNearReturns,
                                   Signal::kNearTaken,    Signal::kConditionalNotTaken,
                                   Signal::kLoadsL1Hit,   Signal::kCycles,
                                   Signal::kSlots,        Signal::kReferenceCycles,
                                   Signal::kBusCycles};
#pragma GCC unroll 32
    for (const Signal signal : kCounted)
      totals_[arch::index(signal)] += counts[arch::index(signal)];
  }
  watching_ &= kDeviation;
}

}  // namespace skidproof::model
