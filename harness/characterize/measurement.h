// One measured number with its spread, its parameters, and what disturbed it.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_MEASUREMENT_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_MEASUREMENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "pebs/machine.h"

namespace skidproof {

using ParameterValue = std::variant<uint64_t, double, std::string>;
using MeasurementParameters = std::map<std::string, ParameterValue, std::less<>>;

// What a machine's counters said beside a figure.
struct MeasuredCounts {
  std::map<std::string, double>
      each;  // of a unit of work (a load, a byte, a jump), by what was counted
  // Whether it agrees with what the programs declare and with their time; empty: every sample was disturbed.
  std::optional<bool> agree;
  std::string differ;  // what does not
};

// What a figure is of its samples. A quartile where whatever disturbs only takes away, so that the better half says
// what the machine does when left alone; what neighbours do for seconds moves it less than the median.
enum class Statistic : uint8_t { kLowerQuartile, kMedian, kUpperQuartile };
double share_below(Statistic statistic);  // 0.25, 0.5, 0.75

struct Measurement {
  std::string name;  // "memory.latency"
  double value = 0;  // `statistic` of the n samples
  std::string unit;  // "ns", "cycles" (of the core), "GB/s" (10⁹ bytes), "B/cycle", "GHz", "bool"
  std::string statistic;  // "median", "lower quartile", "inferred", …
  uint64_t n = 0;
  double low = 0, high = 0;
  std::string interval;  // what low and high are: "95% of the median"
  MeasurementParameters parameters;
  Noise noise;                                // of all samples together
  std::optional<MeasuredCounts> counts = {};  // empty: nothing was counted
};

// What an interval of it that covers this much is called: "95% of the median".
std::string interval_name(Statistic statistic, double coverage);

// The median of these samples, or another of the statistics, with its order-statistic interval of at least 95 % (with few
// samples, stats::quantile_interval has how few, up to the extremes, and the interval's name says what that covers).
Measurement median_measurement(std::string name, std::string unit, std::span<const double> samples,
                               MeasurementParameters parameters, const Noise& noise);
Measurement measurement_of(Statistic statistic, std::string name, std::string unit,
                           std::span<const double> samples, MeasurementParameters parameters,
                           const Noise& noise);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_MEASUREMENT_H_
