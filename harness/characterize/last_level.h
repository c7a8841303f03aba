// The last-level cache, which many share and nobody sees whole: a range, or not clear.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_LAST_LEVEL_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_LAST_LEVEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/expected.h"
#include "harness/characterize/workbench.h"

namespace skidproof {

// A working set and what a load from it costs, translation taken away.
struct WorkingSetCost {
  uint64_t bytes = 0;
  double cycles = 0;
};

struct LastLevel {
  bool clear = false;
  std::string why;                // where it is not
  uint64_t low = 0, high = 0;     // surely fits; surely does not
  double within = 0, beyond = 0;  // cycles of a load
};

// Judges a curve that begins beyond the level before. A set fits while it costs hardly more (an eighth of the way up to
// memory) than the cheapest, and all smaller ones do; what is reported is an eighth less than the last such, since caches that
// do not replace the oldest line miss few of a set that is little too large. It does not where seven tenths of the way are
// behind it, for it and all larger ones: uneven sets, of addresses that are hashed, lose lines of a set that just fits, but
// not so many. Not clear: no rise by half at least; memory is not reached (the last two sizes, one twice the other, differ by
// more than a tenth of the rise); the range is wider than from one to four.
LastLevel judge_last_level(std::vector<WorkingSetCost> curve);

// The number stands only where what CPUID tells, if it tells anything, lies in the range: where others use the cache too, or
// parts of it are kept from us, less of it is seen than there is.
LastLevel held_against(LastLevel found, std::optional<uint64_t> told);

// Chases through sets on 2 MiB pages from twice `before` (bytes of the level before) up to where memory answers alone, then
// between what fits and what does not. Emits cache.last_level (cycles; bytes) and shape.l3.size, or why there is none.
Expected<void> find_last_level(Workbench& bench, uint64_t before, double seconds);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_LAST_LEVEL_H_
