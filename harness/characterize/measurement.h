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

struct Measurement {
  std::string name;       // "memory.latency"
  double value = 0;       // `statistic` of the n samples
  std::string unit;       // "ns", "cycles" (of the core), "GB/s" (10⁹ bytes), "GHz", "bool"
  std::string statistic;  // "median"
  uint64_t n = 0;
  double low = 0, high = 0;
  std::string interval;  // what low and high are: "95% of the median"
  MeasurementParameters parameters;
  Noise noise;                                // of all samples together
  std::optional<MeasuredCounts> counts = {};  // empty: nothing was counted
};

// What an interval of the median that covers this much is called.
std::string interval_of_median(double coverage);

// The median of these samples with its order-statistic interval of at least 95 % (the extremes for
// fewer than 6, and the interval's name then says what they cover).
Measurement median_measurement(std::string name, std::string unit, std::span<const double> samples,
                               MeasurementParameters parameters, const Noise& noise);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_MEASUREMENT_H_
