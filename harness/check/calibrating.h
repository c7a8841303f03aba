// The calibration of the machines that a source hands out.
#ifndef SKIDPROOF_HARNESS_CHECK_CALIBRATING_H_
#define SKIDPROOF_HARNESS_CHECK_CALIBRATING_H_

#include <cstdint>
#include <string>

#include "harness/calibrate/calibration.h"
#include "harness/check/check.h"
#include "results/row.h"

namespace skidproof::check {

// Each figure asks the source for a machine of its own, under the figure's name, and gives it back. The
// source must outlive the calibration.
calibrate::Calibration calibration_of(MachineSource& source, uint64_t seed);

// A figure as a row: `measurement`, or `unmeasured` where it is not known.
results::Row row_of(calibrate::Calibration& calibration, calibrate::Quantity quantity,
                    const std::string& machine, const std::string& microarch);

}  // namespace skidproof::check

#endif  // SKIDPROOF_HARNESS_CHECK_CALIBRATING_H_
