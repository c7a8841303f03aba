// Edit distance over short words, by the two-row dynamic programme.
#include "pebs/arch/near_match.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

namespace skidproof::arch {

namespace {

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = above[j - 1] + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replace});
    }
    std::swap(above, row);
  }
  return above[b.size()];
}

std::vector<std::string> near_matches(std::string_view typed,
                                      std::span<const std::string_view> known, size_t limit) {
  const size_t allowed = std::max<size_t>(1, typed.size() / 3);
  std::vector<std::pair<size_t, std::string_view>> near;
  for (std::string_view word : known) {
    const size_t distance = edit_distance(typed, word);
    if (distance <= allowed) near.emplace_back(distance, word);
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& x, const auto& y) { return x.first < y.first; });
  std::vector<std::string> words;
  for (const auto& [distance, word] : near) {
    if (words.size() == limit) break;
    words.emplace_back(word);
  }
  return words;
}

}  // namespace skidproof::arch
