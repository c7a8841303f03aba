// A set-associative array of tags with true LRU: the L1D, L2, L3 and both TLBs of the core model.
#ifndef SKIDPROOF_PEBS_MODEL_CACHE_H_
#define SKIDPROOF_PEBS_MODEL_CACHE_H_

#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/zeroed_memory.h"

namespace skidproof::model {

// Tags are 31-bit line or page numbers; in arrays with marks, bit 31 is one that the owner uses (a line
// still on its way) and that finding ignores.
struct Tag {
  static constexpr uint32_t kMark = 0x8000'0000;
  static constexpr uint32_t kNumber = 0x7FFF'FFFF;
  static constexpr uint32_t kEmpty = 0xFFFF'FFFF;  // the number 0x7FFFFFFF must not be used
};

// The ways of a set are ordered, most recently used first: the common hit is one comparison, and
// eviction is a shift. Four ways make a vector; the first vectors of all sets lie together, then the
// second ones, so that a small working set keeps few host cache lines busy. kUsualWays makes arrays of
// that many ways the fastest; others work as well. Where a tag lies, and whether at all, the host cannot
// predict: what follows from it is done by masks, not by branches. Memory holds the complements of tags, so that one of
// zeros is empty: a large array costs what is used of it.
template <unsigned kUsualWays, bool kMarks = false>
class TagArray {
 public:
  static constexpr unsigned kMaximumWays = 16;
  static constexpr unsigned kAbsent = kMaximumWays;
  static_assert(kUsualWays % 4 == 0 && kUsualWays > 0 && kUsualWays <= kMaximumWays);

  // `entries` in all; `ways` at most kMaximumWays. The number of sets is rounded down to a power of two.
  TagArray(uint32_t entries, uint32_t ways)
      : ways_(std::clamp(ways, 1u, kMaximumWays)),
        mask_(std::bit_floor(std::max(1u, entries / ways_)) - 1),
        vectors_(size_t{sets()} * kVectors) {}

  void clear() { vectors_.clear(); }

  uint32_t sets() const { return mask_ + 1; }
  // The most recent tag of the set that `number` belongs to.
  uint32_t most_recent(uint32_t number) const { return ~vectors_[number & mask_].complements[0]; }
  uint32_t tag(uint32_t number, unsigned way) const {
    return ~place(number, way / 4)->complements[way % 4];
  }
  // Brings the set's most recent tags closer, ahead of their use.
  void prefetch(uint32_t number) const { __builtin_prefetch(place(number, 0)); }

  // The way that holds `number`, or kAbsent.
  unsigned find(uint32_t number) const {
    const __m128i key = key_of(number);
    if (unsigned lanes = matches(number, 0, key); lanes != 0) {
      return static_cast<unsigned>(std::countr_zero(lanes));
    }
    unsigned lanes = 0;
    if (usual()) [[likely]] {
#pragma GCC unroll 4
      for (unsigned v = 1; v < kUsualWays / 4; ++v) lanes |= matches(number, v, key) << (4 * v);
    } else {
      for (unsigned v = 1; v < kVectors; ++v) lanes |= matches(number, v, key) << (4 * v);
    }
    return static_cast<unsigned>(std::countr_zero(lanes | 1u << kAbsent));
  }

  // Makes `tag` the most recent of its set in place of the one at `way`.
  void promote(unsigned way, uint32_t tag) {
    __m128i carry = lowest(tag);
    for (unsigned v = 0; v < way / 4; ++v) carry = push(tag, v, carry);
    __m128i* last = load_from(tag, way / 4);
    __m128i x = _mm_load_si128(last);
    _mm_store_si128(last, moved(x, carry, kMovesAlone[1u << way % 4]));
  }

  // A set held in registers between finding and reordering.
  struct Set {
    __m128i* first;
    size_t stride;  // from one vector to the next
    __m128i vectors[kUsualWays / 4];
    unsigned matching = 0;  // bit n: way n holds the number

    bool hit() const { return matching != 0; }
    // Of a hit: whether the way has the mark.
    bool hit_is_marked() const {
      unsigned unmarked = 0;
#pragma GCC unroll 4
      for (unsigned v = 0; v < kUsualWays / 4; ++v) unmarked |= lanes_of(vectors[v]) << (4 * v);
      return (matching & ~unmarked) != 0;
    }
  };
  // Whether open(), close() and close_absent() may be used.
  bool usual() const { return ways_ == kUsualWays; }
  Set open(uint32_t number) const {
    const __m128i key = key_of(number);
    Set set;
    set.first = load_from(number, 0);
    set.stride = sets();
#pragma GCC unroll 4
    for (unsigned v = 0; v < kUsualWays / 4; ++v) {
      set.vectors[v] = _mm_load_si128(set.first + v * set.stride);
      set.matching |= lanes_of(equal(set.vectors[v], key)) << (4 * v);
    }
    return set;
  }
  // Makes `tag` the most recent in place of the one that matched, or of the least recent.
  void close(const Set& set, uint32_t tag) {
    unsigned way = static_cast<unsigned>(std::countr_zero(set.matching | 1u << (kUsualWays - 1)));
    __m128i carry = lowest(tag);
#pragma GCC unroll 4
    for (unsigned v = 0; v < kUsualWays / 4; ++v) {
      __m128i x = set.vectors[v];
      _mm_store_si128(set.first + v * set.stride, moved(x, carry, &kMoves[way][4 * v]));
      carry = _mm_srli_si128(x, 12);
    }
  }
  // The same when nothing matched.
  void close_absent(const Set& set, uint32_t tag) {
    __m128i carry = lowest(tag);
#pragma GCC unroll 4
    for (unsigned v = 0; v < kUsualWays / 4; ++v) {
      __m128i x = set.vectors[v];
      _mm_store_si128(set.first + v * set.stride, _mm_or_si128(_mm_slli_si128(x, 4), carry));
      carry = _mm_srli_si128(x, 12);
    }
  }
  // Finds `number` and makes it the most recent, put in if it was absent. True when it was there.
  bool touch(uint32_t number) {
    if (usual()) [[likely]] {
      Set set = open(number);
      close(set, number);
      return set.hit();
    }
    return touch_unusual(number);
  }
  // Unless `skip`: where `number` is among the four most recent, makes it the very first. True when it
  // was among them.
  [[gnu::always_inline]] bool touch_front(uint32_t number, bool skip) {
    __m128i* front = load_from(number, 0);
    __m128i x = _mm_load_si128(front);
    unsigned lanes = lanes_of(equal(x, key_of(number)));
    unsigned allowed = skip - 1u;
    asm("" : "+r"(allowed));  // or the compiler makes the branch that this avoids
    _mm_store_si128(front, moved(x, lowest(number), kMovesAlone[lanes & allowed]));
    return lanes != 0;
  }

  // Makes `tag` the most recent of its set in place of the least recent.
  void insert(uint32_t tag) {
    if (!usual()) [[unlikely]]
      return promote(ways_ - 1, tag);
    __m128i carry = lowest(tag);
#pragma GCC unroll 4
    for (unsigned v = 0; v < kUsualWays / 4; ++v) carry = push(tag, v, carry);
  }

  // Forgets `number` if it is there.
  void erase(uint32_t number) {
    unsigned way = find(number);
    if (way == kAbsent) return;
    for (; way + 1 < ways_; ++way) {
      place(number, way / 4)->complements[way % 4] = ~tag(number, way + 1);
    }
    place(number, way / 4)->complements[way % 4] = ~Tag::kEmpty;
  }

 private:
  static constexpr unsigned kVectors = kMaximumWays / 4;
  struct alignas(16) Vector {
    uint32_t complements[4];
  };

  [[gnu::noinline]] bool touch_unusual(uint32_t number) {
    unsigned way = find(number);
    way == kAbsent ? insert(number) : promote(way, number);
    return way != kAbsent;
  }
  Vector* place(uint32_t number, unsigned v) const {
    return &vectors_[size_t{v} * sets() + (number & mask_)];
  }
  __m128i* load_from(uint32_t number, unsigned v) const {
    return reinterpret_cast<__m128i*>(place(number, v));
  }
  static __m128i lowest(uint32_t tag) { return _mm_cvtsi32_si128(static_cast<int>(~tag)); }
  // What equal() compares the complements of tags with.
  static __m128i key_of(uint32_t number) {
    return _mm_set1_epi32(static_cast<int>(kMarks ? ~number & Tag::kNumber : ~number));
  }
  static unsigned lanes_of(__m128i x) {
    return static_cast<unsigned>(_mm_movemask_ps(_mm_castsi128_ps(x)));
  }
  static __m128i equal(__m128i complements, __m128i key) {
    if constexpr (kMarks) {
      complements = _mm_and_si128(complements, _mm_set1_epi32(static_cast<int>(Tag::kNumber)));
    }
    return _mm_cmpeq_epi32(complements, key);
  }
  unsigned matches(uint32_t number, unsigned v, __m128i key) const {
    return lanes_of(equal(_mm_load_si128(load_from(number, v)), key));
  }
  // Shifts one vector of tags by a place; `carry` comes in at the front, what leaves is returned.
  __m128i push(uint32_t number, unsigned v, __m128i carry) {
    __m128i* at = load_from(number, v);
    __m128i x = _mm_load_si128(at);
    _mm_store_si128(at, _mm_or_si128(_mm_slli_si128(x, 4), carry));
    return _mm_srli_si128(x, 12);
  }
  // `x` with the lanes of the mask `moves` shifted by a place, `carry` coming in at the front.
  static __m128i moved(__m128i x, __m128i carry, const uint32_t* moves) {
    __m128i mask = _mm_load_si128(reinterpret_cast<const __m128i*>(moves));
    __m128i shifted = _mm_or_si128(_mm_slli_si128(x, 4), carry);
    return _mm_xor_si128(x, _mm_and_si128(mask, _mm_xor_si128(x, shifted)));
  }

  // Which lanes of a set move up when the tag at way w leaves its place: those up to w.
  struct Moves {
    alignas(16) uint32_t lanes[kUsualWays][kUsualWays] = {};
    constexpr Moves() {
      for (unsigned w = 0; w < kUsualWays; ++w) {
        for (unsigned n = 0; n <= w; ++n) lanes[w][n] = ~0u;
      }
    }
    constexpr const uint32_t (&operator[](unsigned w) const)[kUsualWays] { return lanes[w]; }
  };
  static constexpr Moves kMoves{};

  // The same within one vector, by the bit mask of the lane that leaves: none for 0.
  struct MovesAlone {
    alignas(16) uint32_t lanes[16][4] = {};
    constexpr MovesAlone() {
      for (unsigned set = 1; set < 16; ++set) {
        for (unsigned n = 0; n <= static_cast<unsigned>(std::countr_zero(set)); ++n)
          lanes[set][n] = ~0u;
      }
    }
    constexpr const uint32_t (&operator[](unsigned set) const)[4] { return lanes[set]; }
  };
  static constexpr MovesAlone kMovesAlone{};

  uint32_t ways_;
  uint32_t mask_;  // sets - 1
  ZeroedMemory<Vector> vectors_;
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_CACHE_H_
