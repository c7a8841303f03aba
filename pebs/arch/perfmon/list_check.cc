#include "pebs/arch/perfmon/list_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace skidproof::arch::perfmon {
namespace {

// What the event needs beside its select, or where its name alone says what it is.
enum class Facility : uint8_t { kNone, kLoadLatency, kFrontend, kPreciseStore };
// As a list says it, and as a kind of event allows it.
enum class Sampling : uint8_t { kNever, kToo, kAlone, kEither };

// An encoding and what is said of it, by either side.
struct Facts {
  std::string_view name;
  uint8_t code = 0, umask = 0, umask2 = 0, cmask = 0;
  bool invert = false;
  uint16_t counters = 0, sampled = 0;
  uint8_t fixed = 0, fixed_sampled = 0;
  bool alone = false, address = false, l1_hit = false;
  Facility facility = Facility::kNone;
  Sampling sampling = Sampling::kNever;
  bool beyond_rows = false;  // it has what no Event can say
};

// "LOAD_LATENCY_GT_4" and "LATENCY_ABOVE_THRESHOLD_8" without the value of the threshold.
std::string_view without_number(std::string_view name) {
  while (!name.empty() && name.back() >= '0' && name.back() <= '9') name.remove_suffix(1);
  if (name.ends_with('_')) name.remove_suffix(1);
  if (name.ends_with("_GT")) return name.substr(0, name.size() - 3);
  return name;
}

Facts facts_of(const Published& line, uint16_t pebs_counters) {
  constexpr uint32_t kLdLat = 0x3F6, kFrontendSelect = 0x3F7;
  constexpr unsigned kFirstFixed = 32;
  const bool precise = line.precision != kNotPrecise;
  const uint64_t sampled = line.pebs_counters != 0 ? line.pebs_counters : pebs_counters;
  Facts facts{.name = line.name,
              .code = line.code,
              .umask = line.umask,
              .umask2 = line.umask2,
              .cmask = line.cmask,
              .invert = line.is(kInvert),
              .counters = static_cast<uint16_t>(line.counters),
              .sampled = static_cast<uint16_t>(precise ? sampled & line.counters : 0),
              .fixed = static_cast<uint8_t>(line.counters >> kFirstFixed),
              .alone = line.is(kAlone),
              .address = line.is(kDataAddress),
              .l1_hit = line.is(kL1Hit),
              .beyond_rows = line.is(kEdge) || line.is(kEqual)};
  // Lists that say where PEBS takes an event say so of fixed counters, too.
  const uint64_t fixed = line.pebs_counters != 0 ? line.pebs_counters : line.counters;
  if (precise) facts.fixed_sampled = static_cast<uint8_t>(fixed >> kFirstFixed);
  if (line.msr == kLdLat) {
    facts.facility = Facility::kLoadLatency;
    facts.name = without_number(line.name);
  } else if (line.msr == kFrontendSelect) {
    facts.facility = Facility::kFrontend;
    facts.name = line.name.substr(0, line.name.find('.'));
  } else if (line.is(kPreciseStore)) {
    facts.facility = Facility::kPreciseStore;
  }
  if (precise) facts.sampling = line.precision == kPreciseOnly ? Sampling::kAlone : Sampling::kToo;
  return facts;
}

Facts facts_of(const Event& event) {
  Facts facts{.name = event.name,
              .code = event.code,
              .umask = event.umask,
              .umask2 = event.umask2,
              .cmask = event.cmask,
              .invert = event.invert,
              .counters = event.counters,
              .sampled = event.pebs_counters,
              .fixed = event.fixed_counters,
              .alone = event.taken_alone,
              .address = event.data_address,
              .l1_hit = event.l1_hit_bit,
              .sampling = Sampling::kEither};
  if (event.kind != EventKind::kCounting) facts.fixed_sampled = event.fixed_counters;
  switch (event.kind) {
    case EventKind::kCounting:
      facts.sampling = Sampling::kNever;
      break;
    case EventKind::kPebs:
      facts.sampling = Sampling::kToo;
      break;
    case EventKind::kPebsOnly:
      facts.sampling = Sampling::kAlone;
      break;
    case EventKind::kLoadLatency:
      facts.facility = Facility::kLoadLatency;
      break;
    case EventKind::kFrontend:
      facts.facility = Facility::kFrontend;
      break;
    case EventKind::kPreciseStore:
      facts.facility = Facility::kPreciseStore;
      break;
    case EventKind::kPdir:
    case EventKind::kStoreSample:
      break;
  }
  return facts;
}

bool same_event(const Facts& a, const Facts& b) {
  return a.name == b.name && a.code == b.code && a.umask == b.umask && a.umask2 == b.umask2 &&
         a.cmask == b.cmask && a.invert == b.invert;
}

bool agree(const Facts& line, const Facts& row) {
  const bool sampling = line.sampling == row.sampling ||
                        (row.sampling == Sampling::kEither && line.sampling != Sampling::kNever);
  // Load latency records an address, and the source of a load, whether and how the list says so.
  const bool latency = row.facility == Facility::kLoadLatency;
  const bool address = line.address == row.address || latency;
  return sampling && address && line.counters == row.counters && line.sampled == row.sampled &&
         line.fixed == row.fixed && line.fixed_sampled == row.fixed_sampled &&
         line.alone == row.alone && (line.l1_hit == row.l1_hit || latency) &&
         line.facility == row.facility && !line.beyond_rows;
}

std::string counters_text(uint16_t general, uint8_t fixed) {
  std::string text;
  for (unsigned n = 0; n < 16; ++n) {
    if ((general >> n & 1) == 0) continue;
    unsigned last = n;
    while (last < 15 && (general >> (last + 1) & 1) != 0) ++last;
    text += text.empty() ? "" : ", ";
    text += last == n ? fmt::format("PMC{}", n) : fmt::format("PMC{}-{}", n, last);
    n = last;
  }
  for (unsigned n = 0; n < 8; ++n) {
    if ((fixed >> n & 1) != 0) text += fmt::format("{}fixed {}", text.empty() ? "" : ", ", n);
  }
  return text.empty() ? "nowhere" : text;
}

std::string in_words(const Facts& facts) {
  std::string text = "counts on " + counters_text(facts.counters, facts.fixed);
  if (facts.sampling != Sampling::kNever) {
    text += ", precise on " + counters_text(facts.sampled, facts.fixed_sampled);
  }
  if (facts.sampling == Sampling::kAlone) text += ", with PEBS alone";
  if (facts.alone) text += ", no other beside it";
  if (facts.address) text += ", records a data address";
  if (facts.l1_hit) text += ", records L1 hits of stores";
  if (facts.facility == Facility::kLoadLatency) text += ", by the latency threshold";
  if (facts.facility == Facility::kFrontend) text += ", by MSR_PEBS_FRONTEND";
  if (facts.facility == Facility::kPreciseStore) text += ", by PS_EN";
  if (facts.beyond_rows) text += ", with Edge or Equal, which no row can say";
  return text;
}

std::string name_of(const Facts& facts) {
  std::string text = fmt::format("{} {:02X}H/{:02X}H", facts.name, facts.code, facts.umask);
  if (facts.umask2 != 0) text += fmt::format(" umask2={:02X}H", facts.umask2);
  if (facts.cmask != 0) text += fmt::format(" cmask={}", facts.cmask);
  if (facts.invert) text += " inv";
  return text;
}

constexpr char kAbsent[] = "nothing of it";

class Check {
 public:
  Check(const Microarch& row, std::string_view source, std::span<const Published> list)
      : row_(row), origin_(*row.events.origin()) {
    check_.row = row.title;
    check_.list = source;
    check_.events = list.size();
    for (const Published& line : list) lines_.push_back(facts_of(line, origin_.pebs_counters));
  }

  ListCheck run() {
    for (const Facts& line : lines_) hold_line(line);
    for (const Event& own : origin_.own) hold_own(own);
    for (const Event& event : row_.events) hold_event(event);
    return std::move(check_);
  }

 private:
  bool is_own(const Facts& facts) const {
    return std::any_of(origin_.own.begin(), origin_.own.end(),
                       [&](const Event& own) { return same_event(facts_of(own), facts); });
  }
  std::optional<Facts> in_list(const Facts& facts) const {
    const auto found = std::find_if(lines_.begin(), lines_.end(),
                                    [&](const Facts& line) { return same_event(line, facts); });
    return found == lines_.end() ? std::nullopt : std::optional(*found);
  }
  std::optional<Facts> in_row(const Facts& facts) const {
    for (const Event& event : row_.events) {
      if (same_event(facts_of(event), facts)) return facts_of(event);
    }
    return std::nullopt;
  }

  // A line that is precise is an event of the row, as the list says.
  void hold_line(const Facts& line) {
    if (line.sampling == Sampling::kNever) return;
    ++check_.precise;
    const auto event = in_row(line);
    if (!event) {
      check_.missing.push_back({name_of(line), in_words(line), kAbsent});
    } else if (!agree(line, *event) && !is_own(line)) {
      check_.wrong.push_back({name_of(line), in_words(line), in_words(*event)});
    }
  }

  // What the row says itself is in it as it says, is not what the list says anyway, and has a reason and a source.
  void hold_own(const Event& own) {
    const Facts facts = facts_of(own);
    const auto line = in_list(facts), event = in_row(facts);
    ListDifference difference{.event = name_of(facts),
                              .in_list = line ? in_words(*line) : kAbsent,
                              .in_row = event ? in_words(*event) : kAbsent,
                              .source = std::string(own.source),
                              .reason = std::string(own.reason)};
    const bool idle = line && agree(*line, facts);
    if (idle) difference.reason = "the list says the same: the row need not";
    if (own.reason.empty()) difference.reason = "the row's event has no reason";
    if (own.source.empty()) difference.reason = "the row's event has no source";
    const bool good = event && !idle && !own.reason.empty() && !own.source.empty();
    (good ? check_.different : check_.wrong).push_back(std::move(difference));
  }

  // What is in the row comes from somewhere.
  void hold_event(const Event& event) {
    const Facts facts = facts_of(event);
    if (is_own(facts)) return;
    const auto line = in_list(facts);
    if (!line) {
      check_.wrong.push_back({name_of(facts), kAbsent, in_words(facts)});
    } else if (line->sampling == Sampling::kNever && !agree(*line, facts)) {
      check_.wrong.push_back({name_of(facts), in_words(*line), in_words(facts)});
    }
  }

  const Microarch& row_;
  const EventOrigin& origin_;
  std::vector<Facts> lines_;
  ListCheck check_;
};

}  // namespace

ListCheck check_list(const Microarch& row, std::string_view source,
                     std::span<const Published> list) {
  return Check(row, source, list).run();
}

ListCheck check_list(const Microarch& row) {
  const EventOrigin& origin = *row.events.origin();
  return check_list(row, origin.source, origin.list);
}

std::vector<const Microarch*> rows_with_lists() {
  std::vector<const Microarch*> rows;
  const auto take = [&](const Microarch* row) {
    if (row->events.origin() != nullptr) rows.push_back(row);
  };
  for (const Microarch* row : microarchs()) {
    take(row);
    for (const Microarch* variant : row->variants) take(variant);
  }
  return rows;
}

}  // namespace skidproof::arch::perfmon
