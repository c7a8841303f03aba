// Events as entries of the catalogue.
#include "harness/cli/event_entries.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "harness/cli/text.h"
#include "pebs/arch/microarch.h"
#include "pebs/arch/signal.h"

namespace skidproof::cli {
namespace {

using arch::Event;
using arch::EventKind;

const char* name_of(EventKind kind) {
  switch (kind) {
    case EventKind::kCounting:
      return "counting";
    case EventKind::kPebs:
      return "precise";
    case EventKind::kPebsOnly:
      return "precise, with PEBS alone";
    case EventKind::kPdir:
      return "precise distribution";
    case EventKind::kPreciseStore:
      return "precise store";
    case EventKind::kLoadLatency:
      return "load latency";
    case EventKind::kStoreSample:
      return "store sample";
    case EventKind::kFrontend:
      return "front end, by MSR_PEBS_FRONTEND";
  }
  return "";
}

// "PMC0-3", "PMC0, PMC2-3", "fixed 0"; empty for none.
std::string counters_of(uint64_t general, uint64_t fixed) {
  std::vector<std::string> parts;
  for (unsigned n = 0; n < 16; ++n) {
    if ((general >> n & 1) == 0) continue;
    unsigned last = n;
    while ((general >> (last + 1) & 1) != 0) ++last;
    parts.push_back(last == n ? fmt::format("PMC{}", n) : fmt::format("PMC{}-{}", n, last));
    n = last;
  }
  for (unsigned n = 0; n < 16; ++n) {
    if ((fixed >> n & 1) != 0) parts.push_back(fmt::format("fixed {}", n));
  }
  return joined(parts);
}

std::string encoding_of(const Event& event) {
  if (event.metric != nullptr) return "ESCR";
  std::string text = fmt::format("{:02X}H/{:02X}H", event.code, event.umask);
  if (event.umask2 != 0) text += fmt::format(" umask2={:02X}H", event.umask2);
  if (event.cmask != 0) text += fmt::format(" cmask={}", event.cmask);
  if (event.invert) text += " inv";
  return text;
}

Entry entry_of(const Event& event, const std::string& row) {
  const uint8_t precise_fixed = event.precise() ? event.fixed_counters : uint8_t{0};
  const std::string where = counters_of(event.counters, event.fixed_counters);
  const std::string sampled = counters_of(event.pebs_counters, precise_fixed);
  const char* const signal = arch::name_of(event.signal);
  std::vector<std::string> rules;
  if (event.taken_alone) rules.emplace_back("no other PEBS event beside it");
  if (event.data_address) rules.emplace_back("records a data address");
  if (event.l1_hit_bit) rules.emplace_back("records whether a store hit the L1 data cache");
  Entry entry{
      .id = fmt::format("{}/{}", row, event.name),
      .columns = {encoding_of(event), where,
                  sampled.empty() ? "-" : fmt::format("{} on {}", name_of(event.kind), sampled)},
      .brief = fmt::format("{} of {}", encoding_of(event), row),
      .details = {{"event", {std::string(event.name)}},
                  {"microarch", {row}},
                  {"encoding", {encoding_of(event)}},
                  {"counts on", {where}},
                  {"kind", {name_of(event.kind)}}},
      .other_ids = {std::string(event.name)}};
  if (!sampled.empty()) entry.details.push_back({"PEBS on", {sampled}});
  if (!rules.empty()) entry.details.push_back({"rules", rules});
  entry.details.push_back(
      {"on the model", {event.signal == arch::Signal::kNone ? "never happens" : signal}});
  entry.details.push_back({"source", {std::string(event.source)}});
  if (!event.reason.empty()) {
    entry.details.push_back({"reason", {std::string(event.reason)}});
  }
  return entry;
}

}  // namespace

std::vector<Entry> event_entries(const arch::Microarch& row,
                                 std::span<const arch::Microarch* const> variants) {
  std::vector<Entry> entries;
  const std::string name(row.name);
  for (const Event& event : row.events) entries.push_back(entry_of(event, name));
  for (const arch::Microarch* variant : variants) {
    const std::string part = fmt::format("{} ({})", name, variant->title);
    for (const Event& event : variant->events) entries.push_back(entry_of(event, part));
  }
  return entries;
}

std::vector<Entry> event_entries() {
  std::vector<Entry> entries;
  for (const arch::Microarch* row : arch::microarchs()) {
    std::vector<Entry> of_row = event_entries(*row, row->variants);
    std::move(of_row.begin(), of_row.end(), std::back_inserter(entries));
  }
  return entries;
}

}  // namespace skidproof::cli
