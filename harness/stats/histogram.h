// A histogram of exact integers: skid in instructions, lateness in records, hits of each address.
#ifndef SKIDPROOF_HARNESS_STATS_HISTOGRAM_H_
#define SKIDPROOF_HARNESS_STATS_HISTOGRAM_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace skidproof::stats {

class Histogram {
 public:
  void add(int64_t value, uint64_t times = 1);
  void merge(const Histogram& other);

  uint64_t total() const { return total_; }
  bool empty() const { return total_ == 0; }
  uint64_t count(int64_t value) const;
  double share(int64_t value) const;  // count / total; 0 of nothing

  // The most frequent value (the smallest of several); 0 of nothing, as are the next three.
  int64_t mode() const;
  int64_t minimum() const;
  int64_t maximum() const;
  // The smallest value that at least a share p of all values does not exceed.
  int64_t quantile(double p) const;

  // Values that occurred, ascending, with their counts.
  const std::map<int64_t, uint64_t>& counts() const { return counts_; }
  // Counts of low, low + 1, … high, zeros included: what a chi-square test needs.
  std::vector<uint64_t> dense(int64_t low, int64_t high) const;
  // "1:4000 2:12": for messages and evidence.
  std::string text() const;

  bool operator==(const Histogram&) const = default;

 private:
  std::map<int64_t, uint64_t> counts_;
  uint64_t total_ = 0;
};

}  // namespace skidproof::stats

#endif  // SKIDPROOF_HARNESS_STATS_HISTOGRAM_H_
