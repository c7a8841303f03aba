// "Did you mean …": the known words nearest to a mistyped one.
#ifndef SKIDPROOF_PEBS_ARCH_NEAR_MATCH_H_
#define SKIDPROOF_PEBS_ARCH_NEAR_MATCH_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skidproof::arch {

// Levenshtein distance, letter case ignored.
size_t edit_distance(std::string_view a, std::string_view b);

// The known words within a third of the typed word's length (at least one edit), nearest first, at
// most `limit`. Empty when nothing is near: a bad suggestion is worse than none.
std::vector<std::string> near_matches(std::string_view typed,
                                      std::span<const std::string_view> known, size_t limit);

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_NEAR_MATCH_H_
