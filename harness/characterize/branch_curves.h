// What curves of jumps say: reaches with soft ends, and which rises come with the number of jumps and which with their bytes.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_BRANCH_CURVES_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_BRANCH_CURVES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/characterize/plan.h"
#include "harness/characterize/reach.h"

namespace skidproof {

// The point at this size: the lower quartile of its samples in cycles, between their least and their median. What shares
// tables and slots with this thread makes any of them dearer and none cheaper.
CurvePoint quartile_point(uint64_t x, const Point& point);

// Tables that learn fill up little by little: a reach without a sharp end. `last_within` is the largest size up to which every
// size costs less than `some` cycles more than the small ones do, `first_beyond` the smallest from which on every size costs
// at least `more` more, with all of their intervals; clear where these two are no further than a factor of 3 apart.
Reach soft_reach(std::vector<CurvePoint> curve, double some, double more);

// A curve with one step: the two levels are the medians on either side of where a step fits best, at least `least_step` apart;
// between `last_within` and `first_beyond`, which are `grain` apart at most, it crosses the middle of the two with all of
// both intervals. Of the other points one in ten may lie on the wrong side: a neighbour thread makes some of them dear.
Reach step_reach(std::vector<CurvePoint> curve, double least_step, uint64_t grain);

// Where a cost begins to rise: by at least `per_octave` cycles while the size doubles, and by at least one cycle in all.
struct Rise {
  uint64_t last_within = 0, first_beyond = 0;  // the step with which it begins
};
std::vector<Rise> rises_of(const std::vector<CurvePoint>& curve, double per_octave);

// Something that holds so many jumps, wherever they stand.
struct JumpLevel {
  // The most that cost what fewer do at two of the distances: one alone may miss the first step.
  uint64_t jumps = 0;
  // Over all distances: the fewest and the most behind which the rise begins, and the most with which it had begun.
  uint64_t least = 0, most_within = 0, first_beyond = 0;
  bool agreed = false;  // the fewest and the most are within a quarter: then the size is clear
  std::vector<uint64_t> spacings;  // that show it
};

// Curves by the distance of the jumps in bytes. A rise that begins at as many jumps (within a quarter) at distances of which
// one is four times another is of jumps; one that begins at as many bytes so is of code, and left out. A rise that no
// other distance shows, or one that is twice as far at half the distance, says nothing.
std::vector<JumpLevel> jump_levels(const std::map<uint64_t, std::vector<CurvePoint>>& curves,
                                   double per_octave);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_BRANCH_CURVES_H_
