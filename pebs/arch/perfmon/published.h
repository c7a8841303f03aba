// Intel's published event lists as the importer wrote them, and how an entry becomes an event of a row.
#ifndef SKIDPROOF_PEBS_ARCH_PERFMON_PUBLISHED_H_
#define SKIDPROOF_PEBS_ARCH_PERFMON_PUBLISHED_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "pebs/arch/event.h"
#include "pebs/arch/event_set.h"
#include "pebs/arch/perfmon/list.h"

namespace skidproof::arch::perfmon {

struct Meaning {
  std::string_view name;
  Signal signal;
};
inline constexpr Meaning kMeanings[] = {
#define COUNTS(name, signal) {name, Signal::signal},
#include "pebs/arch/perfmon/signals.inc"
#undef COUNTS
};
constexpr Signal signal_of(std::string_view name) {
  for (const Meaning& meaning : kMeanings) {
    if (meaning.name == name) return meaning.signal;
  }
  return Signal::kNone;
}

// A list as it was imported.
template <size_t kEvents>
struct List {
  std::string_view source;  // "intel/perfmon SNB V19"
  std::string_view path;    // in a checkout: "SNB/events/sandybridge_core.json"
  std::array<Published, kEvents> events;
};
template <size_t kEvents>
List(std::string_view, std::string_view, std::array<Published, kEvents>) -> List<kEvents>;

inline constexpr uint32_t kLoadLatencyMsr = 0x3F6, kFrontendMsr = 0x3F7;

// One event with a parameter in an MSR is published once for each of some values: LOAD_LATENCY_GT_4, …_8; LATENCY_ABOVE_
// THRESHOLD_0, …; FRONTEND_RETIRED.L1I_MISS, ….
constexpr std::string_view name_without_value(const Published& entry) {
  std::string_view name = entry.name;
  if (entry.msr == kFrontendMsr) return name.substr(0, name.find('.'));
  if (entry.msr != kLoadLatencyMsr) return name;
  const size_t last = name.find_last_not_of("0123456789");
  if (last + 1 == name.size()) return name;  // that one leaves the value open
  name = name.substr(0, last);
  return name.ends_with("_GT") ? name.substr(0, name.size() - 3) : name;
}

constexpr EventKind kind_of(const Published& entry) {
  if (entry.precision == kNotPrecise) return EventKind::kCounting;
  if (entry.msr == kLoadLatencyMsr) return EventKind::kLoadLatency;
  if (entry.msr == kFrontendMsr) return EventKind::kFrontend;
  if (entry.is(kPreciseStore)) return EventKind::kPreciseStore;
  if (entry.name.ends_with(".STORE_SAMPLE") || entry.name.ends_with(".STORE_LATENCY")) {
    return EventKind::kStoreSample;
  }
  if (entry.name.ends_with(".PREC_DIST")) return EventKind::kPdir;
  return entry.precision == kPreciseOnly ? EventKind::kPebsOnly : EventKind::kPebs;
}

// `pebs_counters`: PMCn that can do PEBS, where the entry does not say.
constexpr Event event_of(const Published& entry, std::string_view source, uint16_t pebs_counters) {
  Event event{.name = name_without_value(entry),
              .code = entry.code,
              .umask = entry.umask,
              .umask2 = entry.umask2,
              .counters = static_cast<uint16_t>(entry.counters),
              .kind = kind_of(entry),
              .cmask = entry.cmask,
              .invert = entry.is(kInvert),
              .taken_alone = entry.is(kAlone),
              .source = source,
              .fixed_counters = static_cast<uint8_t>(entry.counters >> 32),
              .data_address = entry.is(kDataAddress) && kind_of(entry) != EventKind::kLoadLatency,
              .l1_hit_bit = entry.is(kL1Hit) && kind_of(entry) != EventKind::kLoadLatency};
  event.signal = event.kind == EventKind::kLoadLatency ? Signal::kLoads : signal_of(event.name);
  if (event.precise()) {
    const uint64_t sampled = entry.pebs_counters != 0 ? entry.pebs_counters : pebs_counters;
    event.pebs_counters = static_cast<uint16_t>(sampled & entry.counters);
  }
  return event;
}

// Of what is not precise there are left out cycles of a signal (CMASK, Edge), and what counts on a fixed counter alone and
// is not sampled there: fixed counters are asked for by their numbers, and the oldest lists number them from 1.
constexpr bool belongs(const Published& entry) {
  if (entry.precision != kNotPrecise) return true;
  const bool sampled = entry.pebs_counters != 0;
  return entry.cmask == 0 && !entry.is(kEdge) && ((entry.counters & 0xFFFF) != 0 || sampled);
}

constexpr bool same_encoding(const Event& a, const Event& b) {
  return a.name == b.name && a.select_fields() == b.select_fields() && a.cmask == b.cmask &&
         a.invert == b.invert;
}

namespace internal {
constexpr bool same_select(const Event& a, const Event& b) {
  return a.select_fields() == b.select_fields() && a.cmask == b.cmask && a.invert == b.invert &&
         (a.counters == 0) == (b.counters == 0);
}
// Writes the events of a list, and a row's own in place of those of the same name and encoding, in the order of their
// encodings; returns how many. A name under which the list only counts what it samples under another is left out.
constexpr size_t merge(const EventOrigin& of, Event* out) {
  size_t count = 0;
  const auto put = [&](const Event& event) {
    for (size_t i = 0; i < count; ++i) {
      if (same_encoding(out[i], event)) {
        out[i] = event;
        return;
      }
    }
    out[count++] = event;
  };
  for (const Published& entry : of.list) {
    if (belongs(entry)) put(event_of(entry, of.source, of.pebs_counters));
  }
  for (const Event& event : of.own) put(event);
  Event* const all = out + count;
  Event* const kept = std::remove_if(out, all, [&](const Event& event) {
    return !event.precise() && std::any_of(out, all, [&](const Event& other) {
      return other.precise() && same_select(other, event);
    });
  });
  // Few, and sorted but for a row's own: by insertion, which keeps the list's order where encodings are alike.
  const auto place = [](const Event& e) {
    return uint64_t{e.code} << 32 | uint64_t{e.umask} << 24 | uint64_t{e.umask2} << 16 |
           uint64_t{e.cmask} << 8 | (e.invert ? 1U : 0U);
  };
  for (Event* next = out; next != kept; ++next) {
    std::rotate(
        std::upper_bound(out, next, *next,
                         [&](const Event& a, const Event& b) { return place(a) < place(b); }),
        next, next + 1);
  }
  return static_cast<size_t>(kept - out);
}
}  // namespace internal

// The events of a list, and a row's own: what the list does not have, and what the row says otherwise, each with its
// source and its reason. `pebs_counters`: PMCn that can do PEBS, where an entry of the list does not say.
template <const auto& kList, const auto& kOwn, uint16_t pebs_counters>
constexpr auto events_of() {
  constexpr auto origin = [] {
    return EventOrigin{kList.source, kList.path, kList.events, kOwn, pebs_counters};
  };
  constexpr auto kMerged = [origin] {
    std::array<Event, kList.events.size() + kOwn.size()> all{};
    const size_t count = internal::merge(origin(), all.data());
    return std::pair(all, count);
  }();
  EventTable<kMerged.second> table{.events = {}, .origin = origin()};
  std::copy_n(kMerged.first.begin(), table.events.size(), table.events.begin());
  return table;
}

}  // namespace skidproof::arch::perfmon

#endif  // SKIDPROOF_PEBS_ARCH_PERFMON_PUBLISHED_H_
