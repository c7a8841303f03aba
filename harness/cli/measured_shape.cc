#include "harness/cli/measured_shape.h"

#include <fmt/format.h>

#include <optional>
#include <variant>

#include "results/writer.h"

namespace skidproof::cli {
namespace {

std::string processor_in_words(const results::MachineRow& row) {
  return fmt::format("{} family {} model {:#x} ({})", row.vendor, row.family, row.model,
                     row.machine);
}

}  // namespace

Expected<MachineShape> measured_shape(const std::string& path, const OpenMachine& machine) {
  const results::RowsFile file = SKIDPROOF_TRY(results::read_rows(path));
  const results::MachineRow here = machine_row(machine);
  MachineShape shape;
  std::optional<results::MachineRow> measured;
  for (const results::ReadRow& each : file.rows) {
    const auto any = results::row_of(each.json);
    if (!any) continue;  // of a newer schema
    if (const auto* who = std::get_if<results::MachineRow>(&*any)) measured = *who;
    const auto* row = std::get_if<results::MeasurementRow>(&*any);
    if (row == nullptr || row->statistic != "inferred") continue;
    const double low = row->low.value_or(row->value), high = row->high.value_or(row->value);
    if (low < 1 || high < low) continue;
    SizeRange* const size = size_named(shape, row->name);
    if (size == nullptr) continue;
    // Of a level in parts, the last row is the largest.
    *size = {static_cast<uint64_t>(low), static_cast<uint64_t>(high)};
  }
  if (!measured || shape == MachineShape{}) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' has no size of a cache or a TLB", path),
                "give the measurements.jsonl of `skidproof characterize --only caches`");
  }
  if (measured->provenance != here.provenance || measured->vendor != here.vendor ||
      measured->family != here.family || measured->model != here.model) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is of another processor: {}, and this is {}", path,
                            processor_in_words(*measured), processor_in_words(here)),
                "characterize this one: skidproof characterize --only caches");
  }
  return shape;
}

}  // namespace skidproof::cli
