// From samples to a Measurement.
#include "harness/characterize/measurement.h"

#include <fmt/format.h>

#include <cmath>

#include "harness/stats/robust.h"

namespace skidproof {

double share_below(Statistic statistic) {
  switch (statistic) {
    case Statistic::kLowerQuartile:
      return 0.25;
    case Statistic::kMedian:
      break;
    case Statistic::kUpperQuartile:
      return 0.75;
  }
  return 0.5;
}

namespace {

const char* name_of(Statistic statistic) {
  switch (statistic) {
    case Statistic::kLowerQuartile:
      return "lower quartile";
    case Statistic::kMedian:
      break;
    case Statistic::kUpperQuartile:
      return "upper quartile";
  }
  return "median";
}

}  // namespace

std::string interval_name(Statistic statistic, double coverage) {
  // Ranks are discrete: the nominal 95 % is what the interval at least covers, where it can.
  return fmt::format("{:.0f}% of the {}", coverage >= 0.95 ? 95 : 100 * coverage,
                     name_of(statistic));
}

Measurement measurement_of(Statistic statistic, std::string name, std::string unit,
                           std::span<const double> samples, MeasurementParameters parameters,
                           const Noise& noise) {
  const double share = share_below(statistic);
  const stats::QuantileInterval interval = stats::quantile_interval(samples, share);
  Measurement out;
  out.name = std::move(name);
  out.value = stats::quantile(samples, share);
  out.unit = std::move(unit);
  out.statistic = name_of(statistic);
  out.n = samples.size();
  out.low = interval.low;
  out.high = interval.high;
  out.interval = interval_name(statistic, interval.coverage);
  out.parameters = std::move(parameters);
  out.noise = noise;
  return out;
}

Measurement median_measurement(std::string name, std::string unit, std::span<const double> samples,
                               MeasurementParameters parameters, const Noise& noise) {
  return measurement_of(Statistic::kMedian, std::move(name), std::move(unit), samples,
                        std::move(parameters), noise);
}

}  // namespace skidproof
