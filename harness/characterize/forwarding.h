// What a round trip through memory says of store-to-load forwarding: pure judgement, no measuring.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_FORWARDING_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_FORWARDING_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace skidproof {

// A store and a load near it; `offset` is the load's first byte less the store's.
struct ForwardingCase {
  int store_bytes = 8, load_bytes = 8;
  int offset = 0;
  bool across = false;  // the store, or else what both cover, lies across the border of two lines

  bool overlaps() const { return offset < store_bytes && offset + load_bytes > 0; }
  // The store wrote all that the load reads.
  bool contained() const { return offset >= 0 && offset + load_bytes <= store_bytes; }
  int store_at(int line_at) const;  // where the store begins, near the line at `line_at`
  bool operator==(const ForwardingCase&) const = default;
};

// The cases of these widths: the load before the store, partly over it, in it, and behind it. `all`: at every offset.
std::vector<ForwardingCase> forwarding_cases(std::span<const int> widths, bool across, bool all);

// A case and what a round trip cost, in cycles: the median with its interval.
struct ForwardingCost {
  ForwardingCase at;
  double cycles = 0, low = 0, high = 0;
};

// "forwarded", "blocked" or "unclear" for each, and "apart" where load and store share no byte, so that nothing is asked.
// Measured levels decide: the cost where of the two widths the wider is stored and the narrower is loaded from its first
// bytes, and the least cost of loads that need other bytes beside the store's and wait for the cache. Nothing is said where the
// two do not lie apart, nor of what lies between them.
std::vector<std::string> judge_forwarding(std::span<const ForwardingCost> costs);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_FORWARDING_H_
