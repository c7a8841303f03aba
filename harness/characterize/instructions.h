// What the times of instructions say: pure judgement.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_INSTRUCTIONS_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_INSTRUCTIONS_H_

#include <optional>

namespace skidproof {

// Whether an instruction that waits only for its like waits at all, from the interval of its chain's cycles and what the
// cheapest operation of its kind takes. Nothing where some of them do, as on cores whose renaming can move few at a time.
std::optional<bool> free_of_cost(double low, double high, double cycle);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_INSTRUCTIONS_H_
