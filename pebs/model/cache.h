// A set-associative array of tags with true LRU: the L1D, L2, L3 and both TLBs of the core model.
#ifndef SKIDPROOF_PEBS_MODEL_CACHE_H_
#define SKIDPROOF_PEBS_MODEL_CACHE_H_

#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>

namespace skidproof::model {

// Tags are 31-bit line or page numbers; bit 31 is a mark that the owner uses (a line still on its way)
// and that finding ignores.
struct Tag {
  static constexpr uint32_t kMark = 0x8000'0000;
  static constexpr uint32_t kNumber = 0x7FFF'FFFF;
  static constexpr uint32_t kEmpty = 0xFFFF'FFFF;  // the number 0x7FFFFFFF must not be used
};

// The ways of a set are ordered, most recently used first: the common hit is one comparison, and
// eviction is a shift. Four ways make a vector; the first vectors of all sets lie together, then the
// second ones, so that a small working set keeps few host cache lines busy. kUsualWays makes arrays of
// that many ways the fastest; others work as well.
template <unsigned kUsualWays>
class TagArray {
 public:
  static constexpr unsigned kMaximumWays = 16;
  static constexpr unsigned kAbsent = kMaximumWays;
  static_assert(kUsualWays % 4 == 0 && kUsualWays > 0 && kUsualWays <= kMaximumWays);

  // `entries` in all; `ways` at most kMaximumWays. The number of sets is rounded down to a power of two.
  TagArray(uint32_t entries, uint32_t ways)
      : ways_(std::clamp(ways, 1u, kMaximumWays)),
        mask_(std::bit_floor(std::max(1u, entries / ways_)) - 1),
        vectors_(std::make_unique<Vector[]>(size_t{sets()} * kVectors)) {
    clear();
  }

  void clear() {
    for (size_t n = 0; n < size_t{sets()} * kVectors; ++n)
      std::fill_n(vectors_[n].tags, 4, Tag::kEmpty);
  }

  uint32_t sets() const { return mask_ + 1; }
  // The most recent tag of the set that `number` belongs to.
  uint32_t most_recent(uint32_t number) const { return vectors_[number & mask_].tags[0]; }
  uint32_t tag(uint32_t number, unsigned way) const {
    return place(number, way / 4)->tags[way % 4];
  }
  // Brings the set's most recent tags closer, ahead of their use.
  void prefetch(uint32_t number) const { __builtin_prefetch(place(number, 0)); }

  // The way that holds `number`, or kAbsent.
  unsigned find(uint32_t number) const {
    const __m128i key = _mm_set1_epi32(static_cast<int>(number));
    if (unsigned lanes = matches(number, 0, key); lanes != 0) {
      return static_cast<unsigned>(std::countr_zero(lanes));
    }
    unsigned lanes = 0;
    if (ways_ == kUsualWays) [[likely]] {
#pragma GCC unroll 4
      for (unsigned v = 1; v < kUsualWays / 4; ++v) lanes |= matches(number, v, key) << (4 * v);
    } else {
      for (unsigned v = 1; v < kVectors; ++v) lanes |= matches(number, v, key) << (4 * v);
    }
    return static_cast<unsigned>(std::countr_zero(lanes | 1u << kAbsent));
  }

  // Makes `tag` the most recent of its set in place of the one at `way`. Which way that is the host
  // cannot predict, so within a vector there is no branch.
  void promote(unsigned way, uint32_t tag) {
    __m128i carry = _mm_cvtsi32_si128(static_cast<int>(tag));
    for (unsigned v = 0; v < way / 4; ++v) carry = push(tag, v, carry);
    __m128i* last = load_from(tag, way / 4);
    __m128i x = _mm_load_si128(last);
    __m128i shifted = _mm_or_si128(_mm_slli_si128(x, 4), carry);
    __m128i moved = _mm_load_si128(reinterpret_cast<const __m128i*>(kMoved[way % 4]));
    _mm_store_si128(last, _mm_or_si128(_mm_and_si128(moved, shifted), _mm_andnot_si128(moved, x)));
  }

  // A set held in registers between finding and reordering.
  struct Set {
    __m128i vectors[kUsualWays / 4];
    unsigned matching = 0;  // bit n: way n holds the number
    unsigned marked = 0;    // bit n: way n has the mark

    bool hit() const { return matching != 0; }
    bool hit_is_marked() const { return (matching & marked) != 0; }
  };
  // Whether open() and close() may be used.
  bool usual() const { return ways_ == kUsualWays; }
  Set open(uint32_t number) const {
    const __m128i key = _mm_set1_epi32(static_cast<int>(number));
    const __m128i low = _mm_set1_epi32(static_cast<int>(Tag::kNumber));
    Set set;
#pragma GCC unroll 4
    for (unsigned v = 0; v < kUsualWays / 4; ++v) {
      set.vectors[v] = _mm_load_si128(load_from(number, v));
      __m128i equal = _mm_cmpeq_epi32(_mm_and_si128(set.vectors[v], low), key);
      set.matching |= lanes_of(equal) << (4 * v);
      set.marked |= lanes_of(set.vectors[v]) << (4 * v);
    }
    return set;
  }
  // Makes `tag` the most recent in place of the one that matched, or of the least recent. Without a branch:
  // the host cannot predict which way it is.
  void close(const Set& set, uint32_t tag) {
    unsigned way = static_cast<unsigned>(std::countr_zero(set.matching | 1u << (kUsualWays - 1)));
    __m128i carry = _mm_cvtsi32_si128(static_cast<int>(tag));
#pragma GCC unroll 4
    for (unsigned v = 0; v < kUsualWays / 4; ++v) {
      __m128i x = set.vectors[v];
      __m128i shifted = _mm_or_si128(_mm_slli_si128(x, 4), carry);
      __m128i moves = _mm_load_si128(reinterpret_cast<const __m128i*>(&kMoves[way][4 * v]));
      carry = _mm_srli_si128(x, 12);
      x = _mm_or_si128(_mm_and_si128(moves, shifted), _mm_andnot_si128(moves, x));
      _mm_store_si128(load_from(tag, v), x);
    }
  }
  // Finds `number` and makes it the most recent, put in if it was absent. True when it was there.
  bool touch(uint32_t number) {
    if (usual()) [[likely]] {
      Set set = open(number);
      close(set, number);
      return set.hit();
    }
    unsigned way = find(number);
    way == kAbsent ? insert(number) : promote(way, number);
    return way != kAbsent;
  }

  // The same in place of the least recent one.
  void insert(uint32_t tag) {
    if (ways_ != kUsualWays) [[unlikely]]
      return promote(ways_ - 1, tag);
    __m128i carry = _mm_cvtsi32_si128(static_cast<int>(tag));
#pragma GCC unroll 4
    for (unsigned v = 0; v < kUsualWays / 4; ++v) carry = push(tag, v, carry);
  }

  // Forgets `number` if it is there.
  void erase(uint32_t number) {
    unsigned way = find(number);
    if (way == kAbsent) return;
    for (; way + 1 < ways_; ++way) {
      place(number, way / 4)->tags[way % 4] = tag(number, way + 1);
    }
    place(number, way / 4)->tags[way % 4] = Tag::kEmpty;
  }

 private:
  static constexpr unsigned kVectors = kMaximumWays / 4;
  struct alignas(16) Vector {
    uint32_t tags[4];
  };

  Vector* place(uint32_t number, unsigned v) const {
    return &vectors_[size_t{v} * sets() + (number & mask_)];
  }
  __m128i* load_from(uint32_t number, unsigned v) const {
    return reinterpret_cast<__m128i*>(place(number, v));
  }
  static unsigned lanes_of(__m128i x) {
    return static_cast<unsigned>(_mm_movemask_ps(_mm_castsi128_ps(x)));
  }
  unsigned matches(uint32_t number, unsigned v, __m128i key) const {
    const __m128i low = _mm_set1_epi32(static_cast<int>(Tag::kNumber));
    __m128i equal = _mm_cmpeq_epi32(_mm_and_si128(_mm_load_si128(load_from(number, v)), low), key);
    return static_cast<unsigned>(_mm_movemask_ps(_mm_castsi128_ps(equal)));
  }
  // Shifts one vector of tags by a place; `carry` comes in at the front, what leaves is returned.
  __m128i push(uint32_t number, unsigned v, __m128i carry) {
    __m128i* at = load_from(number, v);
    __m128i x = _mm_load_si128(at);
    _mm_store_si128(at, _mm_or_si128(_mm_slli_si128(x, 4), carry));
    return _mm_srli_si128(x, 12);
  }

  // Which lanes of the last vector move up when the tag at lane n leaves its place.
  alignas(16) static constexpr uint32_t kMoved[4][4] = {
      {~0u, 0, 0, 0}, {~0u, ~0u, 0, 0}, {~0u, ~0u, ~0u, 0}, {~0u, ~0u, ~0u, ~0u}};

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

  uint32_t ways_;
  uint32_t mask_;  // sets - 1
  std::unique_ptr<Vector[]> vectors_;
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_CACHE_H_
