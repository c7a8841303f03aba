// Sample rows, one at least of every type, shared by this folder's tests.
#ifndef SKIDPROOF_RESULTS_SAMPLES_SAMPLES_H_
#define SKIDPROOF_RESULTS_SAMPLES_SAMPLES_H_

#include <vector>

#include "results/row.h"

namespace skidproof::results {

RunRow sample_run();
MachineRow sample_machine();
TestRow sample_test();  // a pass with evidence of every shape
MeasurementRow sample_measurement();
QualificationRow sample_qualification();
FuzzRow sample_fuzz();
ErratumRow sample_erratum();  // listed, and not reproduced
EndRow sample_end();

// A file's worth: one row of each type, and besides a test of every other outcome but an error, and a measurement beside
// which something was counted.
std::vector<Row> sample_rows();

}  // namespace skidproof::results

#endif  // SKIDPROOF_RESULTS_SAMPLES_SAMPLES_H_
