// From samples to a Measurement.
#include "harness/characterize/measurement.h"

#include <fmt/format.h>

#include <cmath>

#include "harness/stats/robust.h"

namespace skidproof {

namespace {

struct Described {
  double share_below;
  const char* name;
};
Described described(Statistic statistic) {
  if (statistic == Statistic::kLowerQuartile) return {0.25, "lower quartile"};
  if (statistic == Statistic::kUpperQuartile) return {0.75, "upper quartile"};
  return {0.5, "median"};
}

}  // namespace

double share_below(Statistic statistic) { return described(statistic).share_below; }

std::string interval_name(Statistic statistic, double coverage) {
  // Ranks are discrete: the nominal 95 % is what the interval at least covers, where it can.
  return fmt::format("{:.0f}% of the {}", coverage >= 0.95 ? 95 : 100 * coverage,
                     described(statistic).name);
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
  out.statistic = described(statistic).name;
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
