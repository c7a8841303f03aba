#include "pebs/arch/consistency.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

namespace skidproof::arch {
namespace {

tl::unexpected<Error> contradiction(const Microarch& row, const std::string& what) {
  return fail(ErrorCode::kInvalidArgument, what,
              fmt::format("the row of {} says otherwise: use the list that it was built with, or a "
                          "skidproof that knows "
                          "this one",
                          row.title));
}

// By leaf 0AH, and by leaf 23H where that names more.
unsigned existing_gp(const Microarch& row) {
  return ((1U << row.gp_counters_alone) - 1) | row.extended.gp;
}
unsigned existing_fixed(const Microarch& row) {
  return ((1U << row.fixed_counters) - 1) | row.extended.fixed;
}

Expected<void> event_fits(const Microarch& row, const Event& event) {
  const auto wrong = [&](std::string_view what) {
    return contradiction(
        row, fmt::format("{} ({:02X}H/{:02X}H) {}", event.name, event.code, event.umask, what));
  };
  if (event.name.empty() || event.source.empty()) return wrong("has no name or no source");
  if ((event.counters | event.fixed_counters) == 0) return wrong("counts nowhere");
  if ((event.fixed_counters & ~existing_fixed(row)) != 0)
    return wrong("counts on a fixed counter that does not exist");
  if ((event.counters & ~existing_gp(row)) != 0)
    return wrong("counts on a counter that does not exist");
  if ((event.pebs_counters & ~event.counters) != 0)
    return wrong("is sampled where it does not count");
  if ((event.pebs_counters & ~row.pebs_counters) != 0)
    return wrong("is sampled on a counter without PEBS");
  if (!event.precise() && event.pebs_counters != 0) return wrong("is sampled and not precise");
  if (event.precise() && event.pebs_counters == 0 &&
      (event.fixed_counters & row.pebs_fixed_counters) == 0)
    return wrong("is precise, and sampled nowhere");
  if (event.umask2 != 0 && !row.extended.umask2) return wrong("has UMASK2, which is reserved here");
  if (event.invert && event.cmask == 0) return wrong("has INV without CMASK");
  if (event.kind == EventKind::kPreciseStore && event.counters != row.precise_store_counter)
    return wrong("is the precise store, and not where the row has it");
  if (event.kind == EventKind::kStoreSample && event.counters != row.store_sample_counter)
    return wrong("is the store sample, and not where the row has it");
  const unsigned distributing = row.pdir_counter | row.reduced_skid_counters;
  if (event.kind == EventKind::kPdir && (event.pebs_counters & distributing) == 0 &&
      (event.fixed_counters & row.pdir_fixed_counter) == 0)
    return wrong("is the precise distribution, and not where the row has it");
  return {};
}

const Event* selected(const Microarch& row, uint16_t select) {
  return row.event(static_cast<uint8_t>(select & 0xFF), static_cast<uint8_t>(select >> 8));
}

Expected<void> load_latency_fits(const Microarch& row) {
  if (row.load_latency_event == 0) return {};
  const Event* latency = selected(row, row.load_latency_event);
  if (latency == nullptr || latency->kind != EventKind::kLoadLatency ||
      latency->counters != row.load_latency_counters) {
    return contradiction(
        row, fmt::format("load latency ({:04X}H) is not there, or not where the row has it",
                         row.load_latency_event));
  }
  if (row.load_latency_auxiliary == 0) return {};
  const Event* beside = selected(row, row.load_latency_auxiliary);
  if (beside == nullptr || beside->counters != row.load_latency_auxiliary_counters) {
    return contradiction(
        row, fmt::format("{:04X}H, which load latency needs beside it, is not where the row has it",
                         row.load_latency_auxiliary));
  }
  return {};
}

// [SDM, "UMask and Event Select Encodings for Pre-Defined Architectural Performance Events": code | umask << 8]
Expected<void> architectural_events_are_there(const Microarch& row) {
  constexpr std::array<uint16_t, 7> kArchitectural = {0x003C, 0x013C, 0x00C0, 0x4F2E,
                                                      0x412E, 0x00C4, 0x00C5};
  if (!row.architectural_perfmon()) return {};
  for (const uint16_t select : kArchitectural) {
    const Event* event = selected(row, select);
    if (event != nullptr && event->counters == existing_gp(row)) continue;
    return contradiction(
        row,
        fmt::format("the architectural event {:02X}H/{:02X}H is not there, or not on every counter",
                    select & 0xFF, select >> 8));
  }
  return {};
}

}  // namespace

Expected<void> consistent(const Microarch& row) {
  std::set<std::tuple<std::string_view, uint64_t, unsigned, bool>> seen;
  for (const Event& event : row.events) {
    SKIDPROOF_CHECK(event_fits(row, event));
    if (!seen.emplace(event.name, event.select_fields(), event.cmask, event.invert).second) {
      return contradiction(row, fmt::format("{} stands there twice", event.name));
    }
  }
  SKIDPROOF_CHECK(load_latency_fits(row));
  return architectural_events_are_there(row);
}

}  // namespace skidproof::arch
