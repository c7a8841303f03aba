// From samples to a Measurement.
#include "harness/characterize/measurement.h"

#include <fmt/format.h>

#include <cmath>

#include "harness/stats/robust.h"

namespace skidproof {

std::string interval_of_median(double coverage) {
  // Ranks are discrete: the nominal 95 % is what the interval at least covers, where it can.
  return coverage >= 0.95 ? "95% of the median"
                          : fmt::format("{:.0f}% of the median", 100 * coverage);
}

Measurement median_measurement(std::string name, std::string unit, std::span<const double> samples,
                               MeasurementParameters parameters, const Noise& noise) {
  const stats::Summary summary = stats::summarize(samples);
  Measurement out;
  out.name = std::move(name);
  out.value = summary.median;
  out.unit = std::move(unit);
  out.statistic = "median";
  out.n = summary.n;
  out.low = summary.interval.low;
  out.high = summary.interval.high;
  out.interval = interval_of_median(summary.interval.coverage);
  out.parameters = std::move(parameters);
  out.noise = noise;
  return out;
}

}  // namespace skidproof
