// Exit codes of every verb.
#ifndef SKIDPROOF_HARNESS_CHECK_EXIT_CODES_H_
#define SKIDPROOF_HARNESS_CHECK_EXIT_CODES_H_

namespace skidproof::check {

inline constexpr int kExitHeld = 0;
inline constexpr int kExitPropertyFailed = 1;
inline constexpr int kExitHarnessFailed = 2;
inline constexpr int kExitUsage = 64;
inline constexpr int kExitNothingRan = 77;

}  // namespace skidproof::check

#endif  // SKIDPROOF_HARNESS_CHECK_EXIT_CODES_H_
