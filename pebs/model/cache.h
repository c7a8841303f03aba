// A set-associative array of tags with true LRU: the L1D, L2, L3 and both TLBs of the core model.
#ifndef SKIDPROOF_PEBS_MODEL_CACHE_H_
#define SKIDPROOF_PEBS_MODEL_CACHE_H_

#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <memory>

namespace skidproof::model {

// Tags are 31-bit line or page numbers; bit 31 is a mark that the owner uses (a line still on its way, a
// page that needs a check) and that finding ignores. A set is one host cache line, most recently used
// first: the common hit is one comparison, and eviction is a shift.
class TagArray {
 public:
  static constexpr unsigned kMaximumWays = 16;
  static constexpr uint32_t kMark = 0x8000'0000;
  static constexpr uint32_t kNumber = 0x7FFF'FFFF;
  static constexpr uint32_t kEmpty = 0xFFFF'FFFF;  // the number 0x7FFFFFFF must not be used

  struct alignas(64) Set {
    uint32_t tags[kMaximumWays];
  };

  // `entries` in all; `ways` at most kMaximumWays. The number of sets is rounded down to a power of two.
  TagArray(uint32_t entries, uint32_t ways)
      : ways_(std::clamp(ways, 1u, kMaximumWays)),
        vectors_((ways_ + 3) / 4),
        mask_(std::bit_floor(std::max(1u, entries / ways_)) - 1),
        sets_(std::make_unique<Set[]>(mask_ + 1)) {
    clear();
  }

  void clear() {
    for (uint32_t n = 0; n <= mask_; ++n) std::fill_n(sets_[n].tags, kMaximumWays, kEmpty);
  }

  Set& set(uint32_t number) { return sets_[number & mask_]; }
  const Set& set(uint32_t number) const { return sets_[number & mask_]; }
  uint32_t most_recent(uint32_t number) const { return set(number).tags[0]; }
  uint32_t ways() const { return ways_; }
  uint32_t sets() const { return mask_ + 1; }

  // The way that holds `number`, or kMaximumWays.
  unsigned find(const Set& set, uint32_t number) const {
    const __m128i key = _mm_set1_epi32(static_cast<int>(number));
    const __m128i low = _mm_set1_epi32(static_cast<int>(kNumber));
    for (unsigned v = 0; v < vectors_; ++v) {
      __m128i equal = _mm_cmpeq_epi32(_mm_and_si128(vector(set, v), low), key);
      unsigned lanes = static_cast<unsigned>(_mm_movemask_ps(_mm_castsi128_ps(equal)));
      if (lanes != 0) return 4 * v + static_cast<unsigned>(std::countr_zero(lanes));
    }
    return kMaximumWays;
  }

  // Makes `tag` the most recent of the set in place of the one at `way`.
  static void promote(Set& set, unsigned way, uint32_t tag) {
    __m128i carry = _mm_cvtsi32_si128(static_cast<int>(tag));
    unsigned last = way / 4;
    for (unsigned v = 0; v < last; ++v) {
      __m128i x = vector(set, v);
      put(set, v, _mm_or_si128(_mm_slli_si128(x, 4), carry));
      carry = _mm_srli_si128(x, 12);
    }
    __m128i x = vector(set, last);
    __m128i shifted = _mm_or_si128(_mm_slli_si128(x, 4), carry);
    __m128i moved = _mm_load_si128(reinterpret_cast<const __m128i*>(kMoved[way % 4]));
    put(set, last, _mm_or_si128(_mm_and_si128(moved, shifted), _mm_andnot_si128(moved, x)));
  }
  // The same in place of the least recent one.
  void insert(Set& set, uint32_t tag) const { promote(set, ways_ - 1, tag); }

  // Forgets `number` if it is there.
  void erase(uint32_t number) {
    Set& s = set(number);
    unsigned way = find(s, number);
    if (way == kMaximumWays) return;
    std::copy(s.tags + way + 1, s.tags + ways_, s.tags + way);
    s.tags[ways_ - 1] = kEmpty;
  }

 private:
  static __m128i vector(const Set& set, unsigned v) {
    return _mm_load_si128(reinterpret_cast<const __m128i*>(set.tags + 4 * v));
  }
  static void put(Set& set, unsigned v, __m128i value) {
    _mm_store_si128(reinterpret_cast<__m128i*>(set.tags + 4 * v), value);
  }

  // Which lanes of the last vector move up when the tag at lane n leaves its place.
  alignas(16) static constexpr uint32_t kMoved[4][4] = {
      {~0u, 0, 0, 0}, {~0u, ~0u, 0, 0}, {~0u, ~0u, ~0u, 0}, {~0u, ~0u, ~0u, ~0u}};

  uint32_t ways_;
  uint32_t vectors_;  // of four ways each
  uint32_t mask_;
  std::unique_ptr<Set[]> sets_;
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_CACHE_H_
