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
static_assert(2 * Core::kMaximumAccessStall + kMaximumPenalty + 128 + 16 < kMaxCyclesPerInstruction);

}  // namespace

Core::Core(const arch::CacheGeometry& geometry, uint64_t seed)
    : l1_(geometry.l1_bytes >> kLineShift, geometry.l1_ways),
      dtlb_(geometry.dtlb_entries, geometry.dtlb_ways),
      l2_(geometry.l2_bytes >> kLineShift, geometry.l2_ways),
      l3_(geometry.l3_bytes >> kLineShift, geometry.l3_ways),
      stlb_(geometry.stlb_entries, geometry.stlb_ways),
      geometry_(geometry),
      width_(std::max(1u, geometry.retire_width)),
      seed_(seed) {
  penalty_ = uint64_t{std::min(geometry_.mispredict_penalty, kMaximumPenalty)} * width_;
  stall_bound_ = uint64_t{kMaximumAccessStall} * width_;
  reset();
}

void Core::reset() {
  for (TagArray* array : {&l1_, &l2_, &l3_, &dtlb_, &stlb_}) array->clear();
  predictor_.clear(seed_);
  stream_line_ = kNoLine;
  pending_line_.fill(kNoLine);
  pending_until_.fill(0);
  next_buffer_ = 0;
  clock_ = 0;
  dynamic_.fill(0);
  totals_.fill(0);
  probe_ = {};
}

void Core::forget_translations() {
  dtlb_.clear();
  stlb_.clear();
}

// Occupies the oldest fill buffer from `now` for `busy` slots; returns the wait until it was free.
uint64_t Core::take_buffer(uint32_t number, uint64_t now, uint64_t busy) {
  unsigned slot = next_buffer_;
  next_buffer_ = slot + 1 == kFillBuffers ? 0 : slot + 1;
  uint64_t wait = pending_until_[slot] > now ? pending_until_[slot] - now : 0;
  pending_line_[slot] = number;
  pending_until_[slot] = now + wait + busy;
  return wait;
}

// A line that L1 lacks: looks further out and fills every level on the way.
Core::Line Core::fetch(uint32_t number, uint64_t now) {
  Line found{kL2, geometry_.l2_latency, 0};
  TagArray::Set& second = l2_.set(number);
  unsigned way = TagArray::find(second, number);
  if (way < TagArray::kMaximumWays) {
    ++dynamic_[kFromL2];
    TagArray::promote(second, way, number);
  } else {
    l2_.insert(second, number);
    TagArray::Set& third = l3_.set(number);
    way = TagArray::find(third, number);
    if (way < TagArray::kMaximumWays) {
      ++dynamic_[kFromL3];
      found = {kL3, geometry_.l3_latency, 0};
      TagArray::promote(third, way, number);
    } else {
      ++dynamic_[kFromMemory];
      found = {kLocalDramExclusive, geometry_.memory_latency, 0};
      l3_.insert(third, number);
    }
  }
  if (number == stream_line_) stream_line_ = kNoLine;
  found.wait = take_buffer(number, now, uint64_t{found.latency} * width_);
  return found;
}

// When a line that is on its way arrives, or arrived; 0 when no fill buffer remembers it.
uint64_t Core::arrival(uint32_t number) const {
  uint64_t until = 0;
  for (unsigned n = 0; n < kFillBuffers; ++n) {
    if (pending_line_[n] == number) until = std::max(until, pending_until_[n]);
  }
  return until;
}

// Where a line is, making it the most recent of its L1 set.
Core::Line Core::reach(uint32_t number, uint64_t now) {
  TagArray::Set& set = l1_.set(number);
  __builtin_prefetch(&l2_.set(number));
  __builtin_prefetch(&l3_.set(number));
  unsigned way = TagArray::find(set, number);
  if (way == TagArray::kMaximumWays) {
    l1_.insert(set, number | TagArray::kMark);
    return fetch(number, now);
  }
  Line hit{kL1, geometry_.l1_latency, 0};
  uint32_t tag = number;
  if (set.tags[way] & TagArray::kMark) {
    uint64_t until = arrival(number);
    if (until > now) {
      ++dynamic_[kFromFillBuffer];
      uint64_t remaining = (until - now + width_ - 1) / width_;
      hit = {kFillBuffer, std::max(geometry_.l1_latency, static_cast<uint32_t>(remaining)), 0};
      tag |= TagArray::kMark;
    }
  }
  TagArray::promote(set, way, tag);
  return hit;
}

Core::Translation Core::translate(uint32_t number, bool checked) {
  uint32_t tag = number | (checked ? TagArray::kMark : 0);
  TagArray::Set& first = dtlb_.set(number);
  if (first.tags[0] == tag) return {};
  unsigned way = TagArray::find(first, number);
  if (way < TagArray::kMaximumWays) {
    TagArray::promote(first, way, tag);
    return {};
  }
  dtlb_.insert(first, tag);
  TagArray::Set& second = stlb_.set(number);
  way = TagArray::find(second, number);
  if (way < TagArray::kMaximumWays) {
    TagArray::promote(second, way, number);
    return {geometry_.stlb_latency, false};
  }
  stlb_.insert(second, number);
  return {geometry_.stlb_latency + geometry_.walk_latency, true};
}

uint64_t Core::load(uint64_t address, unsigned bytes, uint64_t now, bool pointer_chase, bool checked) {
  Translation translation = translate(page(address), checked);
  Line found = reach(line(address), now);
  if (!within_line(address, bytes)) [[unlikely]] {
    ++dynamic_[kSplitLoad];
    uint64_t last = address + bytes - 1;
    if (page(last) != page(address)) {
      Translation other = translate(page(last), checked);
      translation.latency += other.latency;
      translation.walked |= other.walked;
    }
    // One load operation has one source: what the two halves added is taken back for the nearer one.
    auto counts = dynamic_;
    Line other = reach(line(last), now + found.wait);
    if (other.latency > found.latency) {
      unsigned nearer = found.source == kL1 ? kDynamics : found.source == kFillBuffer ? kFromFillBuffer
                        : found.source == kL2                                        ? kFromL2
                        : found.source == kL3                                        ? kFromL3
                                                                                     : kFromMemory;
      if (nearer != kDynamics) --dynamic_[nearer];
      other.wait += found.wait;
      found = other;
    } else {
      dynamic_ = counts;
      found.wait += other.wait;
    }
    found.latency += geometry_.l1_latency;
  }
  dynamic_[kWalkLoad] += translation.walked;
  uint32_t latency = found.latency + translation.latency;
  uint64_t beyond = uint64_t{latency - std::min(latency, geometry_.l1_latency)} * width_;
  probe_.load.source = found.source;
  probe_.load.l1_hit = found.source == kL1;
  probe_.load.stlb_miss = translation.walked;
  probe_.load.latency = static_cast<uint16_t>(
      std::min<uint64_t>(latency + found.wait / width_, UINT16_MAX));
  return bounded(found.wait + (pointer_chase ? beyond : beyond / kOverlap));
}

uint64_t Core::store(uint64_t address, unsigned bytes, uint64_t now, bool checked) {
  Translation translation = translate(page(address), checked);
  auto counts = dynamic_;  // sources are counted for loads only
  Line found = reach(line(address), now);
  bool hit = found.source == kL1;
  bool split = !within_line(address, bytes);
  if (split) [[unlikely]] {
    uint64_t last = address + bytes - 1;
    if (page(last) != page(address)) {
      Translation other = translate(page(last), checked);
      translation.latency += other.latency;
      translation.walked |= other.walked;
    }
    Line other = reach(line(last), now + found.wait);
    found.wait += other.wait;
    hit &= other.source == kL1;
  }
  dynamic_ = counts;
  dynamic_[kSplitStore] += split;
  dynamic_[kWalkStore] += translation.walked;
  probe_.store.l1_hit = hit;
  probe_.store.stlb_miss = translation.walked;
  probe_.store.latency = static_cast<uint16_t>(found.latency + translation.latency);
  return bounded(found.wait + uint64_t{translation.latency} * width_ / kOverlap);
}

uint64_t Core::store_stream(uint64_t address, unsigned bytes, uint64_t now, bool checked) {
  Translation translation = translate(page(address), checked);
  uint64_t wait = 0;
  uint64_t last = address + bytes - 1;
  bool split = line(last) != line(address);
  if (page(last) != page(address)) {
    Translation other = translate(page(last), checked);
    translation.latency += other.latency;
    translation.walked |= other.walked;
  }
  for (uint64_t part : {address, last}) {
    uint32_t number = line(part);
    if (number == stream_line_) continue;
    stream_line_ = number;
    for (TagArray* cache : {&l1_, &l2_, &l3_}) cache->erase(number);
    wait += take_buffer(number, now + wait, uint64_t{geometry_.memory_latency} * width_ / 2);
  }
  dynamic_[kSplitStore] += split;
  dynamic_[kWalkStore] += translation.walked;
  probe_.store.l1_hit = false;
  probe_.store.stlb_miss = translation.walked;
  probe_.store.latency = static_cast<uint16_t>(geometry_.l1_latency + translation.latency);
  return bounded(wait + uint64_t{translation.latency} * width_ / kOverlap);
}

void Core::arm_probe(uint64_t store_address) {
  probe_ = {};
  probe_.load.source = probe_.store.source = kL1;
  probe_.load.latency = probe_.store.latency = static_cast<uint16_t>(geometry_.l1_latency);
  probe_.load.l1_hit = true;
  // A quick store may find its line still on the way, which is no hit; the mark alone does not say so,
  // since quick stores leave it in place when the line has come.
  uint32_t number = line(store_address);
  uint32_t recent = l1_.most_recent(number);
  bool waits = recent == (number | TagArray::kMark) && arrival(number) > clock_;
  probe_.store.l1_hit = (recent & TagArray::kNumber) == number && !waits;
}

void Core::settle(arch::SignalCounts& counts, uint64_t clock) {
  auto at = [&](Signal s) -> uint64_t& { return counts[arch::index(s)]; };
  const auto& d = dynamic_;
  at(Signal::kCycles) = at(Signal::kReferenceCycles) = clock / width_ - clock_ / width_;
  at(Signal::kConditionalTaken) = d[kTaken];
  at(Signal::kConditionalNotTaken) = at(Signal::kConditional) - d[kTaken];
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
  at(Signal::kSplitLoads) = d[kSplitLoad];
  at(Signal::kSplitStores) = d[kSplitStore];
  at(Signal::kStlbMissLoads) = d[kWalkLoad];
  at(Signal::kStlbMissStores) = d[kWalkStore];
  for (size_t n = 0; n < arch::kSignals; ++n) totals_[n] += counts[n];
  dynamic_.fill(0);
  clock_ = clock;
}

}  // namespace skidproof::model
