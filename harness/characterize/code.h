// What the rate of straight code says: pure judgement.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_CODE_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_CODE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "harness/characterize/reach.h"

namespace skidproof {

// Of cycles an instruction over bytes of code, up to the size where all rates end: where the cache of decoded instructions
// ends, if the curve is two plateaus with a step of at least a fifth between neighbouring sizes; a slope is not clear, as
// where that cache replaces at random or decoders are as fast.
Reach judge_decoded(std::vector<CurvePoint> curve);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_CODE_H_
