// The events of a row, and what they were made of.
#ifndef SKIDPROOF_PEBS_ARCH_EVENT_SET_H_
#define SKIDPROOF_PEBS_ARCH_EVENT_SET_H_

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "pebs/arch/event.h"
#include "pebs/arch/perfmon/list.h"

namespace skidproof::arch {

// A list of Intel's, and what a row has beside it: with another list in its place the same gives other events.
struct EventOrigin {
  std::string_view source;  // "intel/perfmon SNB V19"
  std::string_view path;    // in a checkout of intel/perfmon
  std::span<const perfmon::Published> list;
  std::span<const Event> own;  // of the row, beside the list or in place of its lines
  uint16_t pebs_counters = 0;  // PMCn that can do PEBS, where a line does not say
};

// What perfmon::events_of() makes of them.
template <size_t kEvents>
struct EventTable {
  std::array<Event, kEvents> events;
  EventOrigin origin;
};

class EventSet : public std::span<const Event> {
 public:
  constexpr EventSet() = default;
  // Of no list. The events outlive this.
  template <std::convertible_to<std::span<const Event>> Events>
  constexpr EventSet(const Events& events) : std::span<const Event>(events) {}
  constexpr EventSet(std::span<const Event> events, const EventOrigin* origin)
      : std::span<const Event>(events), origin_(origin) {}
  template <size_t kEvents>
  constexpr EventSet(const EventTable<kEvents>& table) : EventSet(table.events, &table.origin) {}

  // nullptr: Intel publishes no list of these.
  constexpr const EventOrigin* origin() const { return origin_; }
  // Which list it is; empty for none.
  constexpr std::string_view list() const {
    return origin_ == nullptr ? std::string_view() : origin_->source;
  }

 private:
  const EventOrigin* origin_ = nullptr;
};

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_EVENT_SET_H_
