// The core model's memory side against a plain one: the same accesses, the same stalls, sources and
// counts. The plain one says what core.h's comment says, with lists for sets and no short cuts.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <utility>

#include "base/random.h"
#include "pebs/model/core.h"

namespace skidproof::model {
namespace {

using arch::CacheGeometry;
using arch::Signal;

constexpr uint64_t kBase = 0x7f00'0000'0000;

// A set-associative structure with true LRU; the flag is for lines on their way.
class Lists {
 public:
  Lists(uint32_t entries, uint32_t ways)
      : ways_(ways), sets_(std::bit_floor(std::max(1u, entries / ways))) {}
  bool* find(uint64_t number) {
    for (auto& [held, flag] : set(number)) {
      if (held == number) return &flag;
    }
    return nullptr;
  }
  // Makes it the most recent, put in with the flag if it was absent. True when it was there.
  bool touch(uint64_t number, bool flag = false) {
    auto& all = set(number);
    auto at = std::find_if(all.begin(), all.end(), [&](auto& e) { return e.first == number; });
    const bool there = at != all.end();
    if (there) {
      all.splice(all.begin(), all, at);
    } else {
      all.push_front({number, flag});
      if (all.size() > ways_) all.pop_back();
    }
    return there;
  }
  void erase(uint64_t number) {
    std::erase_if(set(number), [&](auto& e) { return e.first == number; });
  }

 private:
  std::list<std::pair<uint64_t, bool>>& set(uint64_t number) { return lists_[number % sets_]; }

  uint32_t ways_, sets_;
  std::map<uint64_t, std::list<std::pair<uint64_t, bool>>> lists_;
};

// What an access meets, in the encodings of Table 18-24.
enum Source : uint8_t { kL1 = 1, kFillBuffer = 2, kL2 = 3, kL3 = 4, kFromMemory = 0xC };

struct Met {
  uint8_t source = kL1;
  uint64_t latency = 0;      // cycles
  uint64_t wait = 0;         // slots, for a fill buffer
  uint64_t translation = 0;  // cycles
  bool walked = false;
  uint64_t stall = 0;  // slots
};

class PlainCore {
 public:
  explicit PlainCore(const CoreBehaviour& behaviour)
      : g_(behaviour.caches),
        l1_(g_.l1_bytes / 64, g_.l1_ways),
        l2_(g_.l2_bytes / 64, g_.l2_ways),
        l3_(g_.l3_bytes / 64, g_.l3_ways),
        dtlb_(g_.dtlb_entries, g_.dtlb_ways),
        stlb_(g_.stlb_entries, g_.stlb_ways),
        prefetches_(behaviour.prefetch == 1) {
    // L1 is never slower than what lies behind it.
    g_.l1_latency = std::min({g_.l1_latency, g_.l2_latency, g_.l3_latency, g_.memory_latency});
  }

  Met load(uint64_t address, unsigned bytes, uint64_t now, bool chase) {
    Met met = access(address, bytes, now);
    if (split(address, bytes)) met.latency += g_.l1_latency;
    ++loads[met.source];
    split_loads += split(address, bytes);
    walked_loads += met.walked;
    const uint64_t beyond = (met.latency - g_.l1_latency + met.translation) * g_.retire_width;
    met.stall = bounded(met.wait + (chase ? beyond : beyond / 4));
    return met;
  }
  Met store(uint64_t address, unsigned bytes, uint64_t now) {
    Met met = access(address, bytes, now);
    split_stores += split(address, bytes);
    walked_stores += met.walked;
    met.stall = bounded(met.wait + met.translation * g_.retire_width / 4);
    return met;
  }
  Met stream(uint64_t address, unsigned bytes, uint64_t now) {
    Met met{.source = kFromMemory, .latency = g_.l1_latency};
    translate_both(address, bytes, met);
    for (uint64_t part : {address / 64, (address + bytes - 1) / 64}) {
      if (part == combining_) continue;
      combining_ = part;
      for (Lists* level : {&l1_, &l2_, &l3_}) level->erase(part);
      met.wait += buffer(part, now + met.wait, uint64_t{g_.memory_latency} * g_.retire_width / 2);
    }
    split_stores += split(address, bytes);
    walked_stores += met.walked;
    met.stall = bounded(met.wait + met.translation * g_.retire_width / 4);
    return met;
  }

  std::map<uint8_t, uint64_t> loads;
  uint64_t split_loads = 0, split_stores = 0, walked_loads = 0, walked_stores = 0;

 private:
  static bool split(uint64_t address, unsigned bytes) {
    return address / 64 != (address + bytes - 1) / 64;
  }
  uint64_t bounded(uint64_t slots) const {
    return std::min(slots, uint64_t{Core::kMaximumAccessStall} * g_.retire_width);
  }
  void translate(uint64_t page, Met& met) {
    if (dtlb_.touch(page)) return;
    met.translation += g_.stlb_latency;
    if (stlb_.touch(page)) return;
    met.translation += g_.walk_latency;
    met.walked = true;
  }
  void translate_both(uint64_t address, unsigned bytes, Met& met) {
    const uint64_t first = address / 4096, last = (address + bytes - 1) / 4096;
    translate(first, met);
    if (last != first) translate(last, met);
  }
  // Round robin; how long it takes until the buffer is free.
  uint64_t buffer(uint64_t line, uint64_t now, uint64_t busy) {
    auto& [held, until] = buffers_[next_++ % buffers_.size()];
    const uint64_t start = std::max(now, until);
    held = line;
    until = start + busy;
    return start - now;
  }
  void reach(uint64_t line, uint64_t now, Met& met) {
    if (bool* on_its_way = l1_.find(line)) {
      l1_.touch(line);
      met.source = kL1;
      met.latency = g_.l1_latency;
      uint64_t arrival = 0;
      for (auto& [held, until] : buffers_) {
        if (held == line) arrival = std::max(arrival, until);
      }
      if (!*on_its_way || arrival <= now) {
        *on_its_way = false;
        return;
      }
      const uint64_t cycles = (arrival - now + g_.retire_width - 1) / g_.retire_width;
      met.source = kFillBuffer;
      met.latency = std::max<uint64_t>(g_.l1_latency, cycles);
      return;
    }
    l1_.touch(line, true);
    const bool in_l2 = l2_.touch(line);
    const bool in_l3 = !in_l2 && l3_.touch(line);
    met.source = in_l2 ? kL2 : in_l3 ? kL3 : kFromMemory;
    met.latency = in_l2 ? g_.l2_latency : in_l3 ? g_.l3_latency : g_.memory_latency;
    if (combining_ == line) combining_ = UINT64_MAX;
    if (prefetches_ && (line + 1) % (4096 / 64) != 0) prefetch(line + 1);
    met.wait = buffer(line, now, met.latency * g_.retire_width);
  }
  // Into every level, and there at once.
  void prefetch(uint64_t line) {
    l2_.touch(line);
    l3_.touch(line);
    if (l1_.find(line) == nullptr) l1_.touch(line);
  }
  Met access(uint64_t address, unsigned bytes, uint64_t now) {
    Met met;
    translate_both(address, bytes, met);
    reach(address / 64, now, met);
    if (!split(address, bytes)) return met;
    Met other;
    reach((address + bytes - 1) / 64, now + met.wait, other);
    met.wait += other.wait;
    if (other.latency > met.latency) {
      met.source = other.source;
      met.latency = other.latency;
    }
    return met;
  }

  CacheGeometry g_;
  Lists l1_, l2_, l3_, dtlb_, stlb_;
  bool prefetches_;
  std::array<std::pair<uint64_t, uint64_t>, Core::kFillBuffers> buffers_{};
  size_t next_ = 0;
  uint64_t combining_ = UINT64_MAX;  // the line of the last non-temporal store
};

// Small enough that every level overflows, with latencies that cannot be taken for each other.
CoreBehaviour small(uint32_t l1_ways, uint32_t stlb_ways, uint32_t width) {
  CoreBehaviour behaviour;
  behaviour.caches = {.l1_bytes = 2 * 64 * l1_ways,
                      .l1_ways = l1_ways,
                      .l1_latency = 5,
                      .l2_bytes = 4 * 64 * 8,
                      .l2_ways = 8,
                      .l2_latency = 13,
                      .l3_bytes = 8 * 64 * 16,
                      .l3_ways = 16,
                      .l3_latency = 37,
                      .memory_latency = 211,
                      .dtlb_entries = 8,
                      .dtlb_ways = 4,
                      .stlb_entries = 2 * stlb_ways,
                      .stlb_ways = stlb_ways,
                      .stlb_latency = 7,
                      .walk_latency = 29,
                      .retire_width = width};
  return behaviour;
}
CoreBehaviour prefetching(CoreBehaviour behaviour) {
  behaviour.prefetch = 1;
  return behaviour;
}
CoreBehaviour with_l1_latency(uint32_t cycles, CoreBehaviour behaviour) {
  behaviour.caches.l1_latency = cycles;
  return behaviour;
}

// An address: mostly in a few lines, now and then anywhere in 64 pages.
uint64_t anywhere(Random& random) {
  const uint64_t pages = random.chance(1, 8) ? 64 : random.chance(1, 2) ? 8 : 1;
  const uint64_t page = random.below(pages);
  const uint64_t offset = random.chance(1, 3) ? random.below(4096 + 16) : random.below(24 * 64);
  return kBase + page * 4096 + offset;
}

class CoreReference : public ::testing::TestWithParam<CoreBehaviour> {};

TEST_P(CoreReference, AgreesOnEveryAccess) {
  const CacheGeometry geometry = GetParam().caches;
  Random random(7);
  Core core(GetParam(), 1);
  PlainCore plain(GetParam());
  uint64_t clock = 0, loads = 0, stores = 0, spent = 0;
  auto settle = [&] {
    arch::SignalCounts counts{};
    counts[arch::index(Signal::kLoads)] = std::exchange(loads, 0);
    counts[arch::index(Signal::kStores)] = std::exchange(stores, 0);
    core.settle(counts, clock);
    spent += counts[arch::index(Signal::kCycles)];
  };
  for (int n = 0; n < 60'000; ++n) {
    clock += random.chance(1, 16) ? random.below(3000) : random.below(4);
    const uint64_t address = anywhere(random);
    const unsigned bytes = 1u << random.below(6);
    const bool probed = random.chance(1, 2);
    if (probed) settle(), core.arm_probe(address);
    uint64_t stall = 0;
    Met expected;
    const Access* seen = &core.probe().store;
    switch (random.below(4)) {
      case 0:
      case 1: {
        const bool chase = random.chance(1, 2);
        expected = plain.load(address, bytes, clock, chase);
        if (!core.load_is_quick(address, bytes)) {
          stall = core.load(address, bytes, clock, chase, random.chance(1, 8));
        }
        seen = &core.probe().load;
        ++loads;
        break;
      }
      case 2:
        expected = plain.store(address, bytes, clock);
        if (!core.store_is_quick(address, bytes)) {
          stall = core.store(address, bytes, clock, random.chance(1, 8));
        }
        ++stores;
        break;
      default:
        expected = plain.stream(address, bytes, clock);
        if (!core.stream_is_quick(address, bytes)) {
          stall = core.store_stream(address, bytes, clock, random.chance(1, 8));
        } else {
          seen = nullptr;  // combined without a look: the probe is that of a quick store
        }
        ++stores;
    }
    ASSERT_EQ(stall, expected.stall) << "access " << n;
    if (probed && seen != nullptr) {
      ASSERT_EQ(seen->l1_hit, expected.source == kL1) << "access " << n;
      const bool quick_store = seen == &core.probe().store && stall == 0;
      if (!quick_store) {
        ASSERT_EQ(seen->source, expected.source) << "access " << n;
        ASSERT_EQ(seen->stlb_miss, expected.walked) << "access " << n;
        ASSERT_EQ(seen->cache_latency, expected.latency) << "access " << n;
        ASSERT_EQ(seen->latency,
                  expected.latency + expected.translation + expected.wait / geometry.retire_width)
            << "access " << n;
      }
    }
    clock += stall + 1;
  }
  settle();
  const arch::SignalCounts& t = core.totals();
  auto total = [&](Signal signal) { return t[arch::index(signal)]; };
  EXPECT_EQ(total(Signal::kLoadsL1Hit), plain.loads[kL1]);
  EXPECT_EQ(total(Signal::kLoadsFillBuffer), plain.loads[kFillBuffer]);
  EXPECT_EQ(total(Signal::kLoadsL2Hit), plain.loads[kL2]);
  EXPECT_EQ(total(Signal::kLoadsL3Hit), plain.loads[kL3]);
  EXPECT_EQ(total(Signal::kLoadsL3Miss), plain.loads[kFromMemory]);
  EXPECT_EQ(total(Signal::kSplitLoads), plain.split_loads);
  EXPECT_EQ(total(Signal::kSplitStores), plain.split_stores);
  EXPECT_EQ(total(Signal::kStlbMissLoads), plain.walked_loads);
  EXPECT_EQ(total(Signal::kStlbMissStores), plain.walked_stores);
  EXPECT_EQ(total(Signal::kCycles), clock / geometry.retire_width);
  EXPECT_EQ(spent, total(Signal::kCycles));
  EXPECT_EQ(core.clock(), clock);
  for (uint8_t source : {kL1, kFillBuffer, kL2, kL3, kFromMemory}) {
    EXPECT_GT(plain.loads[source], 100u) << "the accesses do not test source " << int{source};
  }
}

INSTANTIATE_TEST_SUITE_P(Geometries, CoreReference,
                         ::testing::Values(small(8, 4, 4), small(12, 4, 4), small(8, 12, 3),
                                           small(4, 6, 1), prefetching(small(8, 4, 4)),
                                           prefetching(small(12, 4, 4)),
                                           with_l1_latency(20, small(8, 4, 4))));

}  // namespace
}  // namespace skidproof::model
