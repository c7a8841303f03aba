// Verdicts for other programs: Prometheus' text format, a Nagios plugin's line, CSV.
#ifndef SKIDPROOF_HARNESS_ERRATA_FORMATS_H_
#define SKIDPROOF_HARNESS_ERRATA_FORMATS_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "results/row.h"

namespace skidproof::errata {

// Exit codes of `errata`, which are those of a Nagios plugin.
inline constexpr int kExitNone = 0;     // nothing listed, or all of it mended
inline constexpr int kExitInPlace = 1;  // affected, each with a workaround in place
inline constexpr int kExitExposed = 2;  // affected without one, or reproduced
inline constexpr int kExitUnknown = 3;  // something could not be told, and nothing is exposed

// The worst of the rows: exposed, then unknown, then in place.
int exit_of(std::span<const results::ErratumRow> rows);

// How many of the rows have which exposure, in the order of results::kExposures.
std::array<uint64_t, results::kExposures.size()> by_exposure(
    std::span<const results::ErratumRow> rows);

// Contradictions, what was reproduced, what is exposed, in place, unknown; then by id.
void sort_for_people(std::vector<results::ErratumRow>& rows);

// [Prometheus, "Exposition formats"]: each verdict as a series of the value 1, and sums.
std::string prometheus(std::span<const results::ErratumRow> rows);
std::string prometheus(std::span<const results::ErrataSummaryRow> rows,
                       const std::array<uint64_t, 4>& machines);
// [Monitoring Plugins Development Guidelines, "Plugin Output for Nagios"]: one line, with performance data.
std::string nrpe(std::span<const results::ErratumRow> rows, std::string_view why_unknown);
std::string nrpe(const std::array<uint64_t, 4>& machines);
// [RFC 4180], with a header.
std::string csv(std::span<const results::ErratumRow> rows);
std::string csv_header_of_inventory();
std::string csv(const results::InventoryRow& row);

// Without characters that a terminal, or a reader of lines, would take for more than text.
std::string printable(std::string_view text);

}  // namespace skidproof::errata

#endif  // SKIDPROOF_HARNESS_ERRATA_FORMATS_H_
