// Exact integer histogram over an ordered map: few distinct values, many of each.
#include "harness/stats/histogram.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace skidproof::stats {

void Histogram::add(int64_t value, uint64_t times) {
  if (times == 0) return;
  counts_[value] += times;
  total_ += times;
}

void Histogram::merge(const Histogram& other) {
  for (auto [value, times] : other.counts_) add(value, times);
}

uint64_t Histogram::count(int64_t value) const {
  auto it = counts_.find(value);
  return it == counts_.end() ? 0 : it->second;
}

double Histogram::share(int64_t value) const {
  return empty() ? 0 : static_cast<double>(count(value)) / static_cast<double>(total_);
}

int64_t Histogram::mode() const {
  auto it = std::max_element(counts_.begin(), counts_.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; });
  return it == counts_.end() ? 0 : it->first;
}

int64_t Histogram::minimum() const { return empty() ? 0 : counts_.begin()->first; }
int64_t Histogram::maximum() const { return empty() ? 0 : counts_.rbegin()->first; }

int64_t Histogram::quantile(double p) const {
  if (empty()) return 0;
  const double needed = std::clamp(p, 0.0, 1.0) * static_cast<double>(total_);
  uint64_t seen = 0;
  for (auto [value, times] : counts_) {
    seen += times;
    if (static_cast<double>(seen) >= needed) return value;
  }
  return maximum();
}

std::vector<uint64_t> Histogram::dense(int64_t low, int64_t high) const {
  std::vector<uint64_t> result;
  if (high < low) return result;
  result.reserve(static_cast<size_t>(high - low) + 1);
  for (int64_t value = low;; ++value) {
    result.push_back(count(value));
    if (value == high) break;
  }
  return result;
}

std::string Histogram::text() const {
  std::string text;
  for (auto [value, times] : counts_) {
    fmt::format_to(std::back_inserter(text), "{}{}:{}", text.empty() ? "" : " ", value, times);
  }
  return text;
}

}  // namespace skidproof::stats
