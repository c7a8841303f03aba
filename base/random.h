// A small generator whose sequence is the same with every standard library: results name a seed, and
// the seed must reproduce them elsewhere.
#ifndef SKIDPROOF_BASE_RANDOM_H_
#define SKIDPROOF_BASE_RANDOM_H_

#include <cstdint>

namespace skidproof {

// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  // Uniform in [0, bound); 0 for a bound of 0.
  uint64_t below(uint64_t bound) {
    if (bound == 0) return 0;
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }

  // Uniform in [low, high].
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }

  bool chance(uint64_t numerator, uint64_t denominator) { return below(denominator) < numerator; }

 private:
  uint64_t state_;
};

// A seed for a named purpose: independent streams from one run's seed.
inline uint64_t derive_seed(uint64_t seed, const char* purpose) {
  uint64_t hash = 0xCBF29CE484222325u ^ seed;
  for (const char* c = purpose; *c != '\0'; ++c) {
    hash = (hash ^ static_cast<unsigned char>(*c)) * 0x100000001B3u;
  }
  return Random(hash).next();
}

}  // namespace skidproof

#endif  // SKIDPROOF_BASE_RANDOM_H_
