// What is measured on the machine under test before it is judged: what nothing promises and margins
// depend on. What a clause fixes (which event is recorded, what a counter is loaded with, when the
// threshold interrupts) is not measured here, so that no broken CPU can talk itself innocent.
#ifndef SKIDPROOF_HARNESS_CALIBRATE_CALIBRATION_H_
#define SKIDPROOF_HARNESS_CALIBRATE_CALIBRATION_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/expected.h"
#include "pebs/machine.h"

namespace skidproof::calibrate {

enum class Quantity : uint8_t {
  kEdgeInstructions,  // that a counter sees beside the program: start and stop, and the machine's own code
  kEdgeCycles,    // cycles that one counter sees more than another of the same run
  kRecordCycles,  // what a record takes
  kRecordUops,    // uops that a record adds to a counter beside the one that it is of
  kRecordLoads,   // loads
  kRecordStores,  // stores
  kArmingCycles,  // from an overflow until PEBS is armed, at the most
  kLoadsATag,     // loads retired for each that load latency takes
  kPmiLateness,   // instructions from the record of a threshold to its interrupt, at the most
};
inline constexpr std::array kQuantities = {
    Quantity::kEdgeInstructions, Quantity::kEdgeCycles,  Quantity::kRecordCycles,
    Quantity::kRecordUops,       Quantity::kRecordLoads, Quantity::kRecordStores,
    Quantity::kArmingCycles,     Quantity::kLoadsATag,   Quantity::kPmiLateness};

// "calibration.record-cycles", and its unit.
std::string_view name_of(Quantity quantity);
std::string_view unit_of(Quantity quantity);

// A figure with the range of its samples. Without samples it could not be measured, and `reason` says why.
struct Figure {
  double value = 0;  // the median; of what is asked for at the most, the most
  double low = 0, high = 0;
  uint64_t n = 0;
  std::string reason;
  bool lost =
      false;  // whoever measured it lost the machine: nothing is known of it, not even that it is small

  bool known() const { return n != 0; }
};

class Calibration {
 public:
  // Where a machine for a figure comes from; it is given back when the figure is known.
  using MachineFor = std::function<Expected<std::shared_ptr<Machine>>(const std::string& figure)>;
  Calibration(MachineFor machine_for, uint64_t seed)
      : machine_for_(std::move(machine_for)), seed_(seed) {}

  // Measured when it is asked for the first time, some milliseconds each.
  const Figure& operator[](Quantity quantity);

  // It took the machine along when it was measured, and is not measured again.
  void leave_out(Quantity quantity, std::string reason) {
    figures_[static_cast<size_t>(quantity)] = Figure{.reason = std::move(reason), .lost = true};
  }

 private:
  MachineFor machine_for_;
  uint64_t seed_;
  std::array<std::optional<Figure>, kQuantities.size()> figures_;
};

}  // namespace skidproof::calibrate

#endif  // SKIDPROOF_HARNESS_CALIBRATE_CALIBRATION_H_
