#include "harness/check/calibrating.h"

#include <utility>

namespace skidproof::check {
namespace {

// Tells the source when the machine is no longer used.
struct GivenBack {
  MachineSource* source;
  std::shared_ptr<Machine> machine;
  ~GivenBack() {
    machine.reset();
    // A tape that holds more than was asked for has a figure of its own to say so by: none.
    static_cast<void>(source->given_up());
  }
};

}  // namespace

calibrate::Calibration calibration_of(MachineSource& source, uint64_t seed) {
  auto machine_for = [&source,
                      seed](const std::string& figure) -> Expected<std::shared_ptr<Machine>> {
    auto lent = std::make_shared<GivenBack>();
    lent->source = &source;
    lent->machine =
        SKIDPROOF_TRY(source.machine({.seed = derive_seed(seed, figure.c_str()), .test = figure}));
    return std::shared_ptr<Machine>(lent, lent->machine.get());
  };
  return {std::move(machine_for), seed};
}

results::Row row_of(calibrate::Calibration& calibration, calibrate::Quantity quantity,
                    const std::string& machine, const std::string& microarch) {
  const calibrate::Figure& figure = calibration[quantity];
  if (!figure.known()) {
    return results::UnmeasuredRow{.machine = machine,
                                  .microarch = microarch,
                                  .name = std::string(name_of(quantity)),
                                  .reason = figure.reason};
  }
  results::MeasurementRow row;
  row.machine = machine;
  row.microarch = microarch;
  row.name = name_of(quantity);
  row.value = figure.value;
  row.unit = unit_of(quantity);
  row.statistic = figure.value == figure.high && figure.low != figure.high ? "maximum" : "median";
  row.n = figure.n;
  row.low = figure.low;
  row.high = figure.high;
  row.interval = "range";
  return row;
}

}  // namespace skidproof::check
