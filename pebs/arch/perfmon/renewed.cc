#include "pebs/arch/perfmon/renewed.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "pebs/arch/consistency.h"
#include "pebs/arch/perfmon/published.h"

namespace skidproof::arch::perfmon {
namespace {

// What the row points to, and the row.
struct Renewed {
  ReadList list;
  EventOrigin origin;
  std::vector<Event> events;
  Microarch row;
};

}  // namespace

Expected<std::shared_ptr<const Microarch>> renewed(const Microarch& row, ReadList list) {
  const EventOrigin* const origin = row.events.origin();
  if (origin == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("Intel publishes no list of events of {}", row.title),
                "its events are the manual's: take none in their place");
  }
  auto made = std::make_shared<Renewed>(
      Renewed{.list = std::move(list), .origin = *origin, .events = {}, .row = row});
  made->origin.source = made->list.source();
  made->origin.path = made->list.path();
  made->origin.list = made->list.events();
  made->events.resize(made->origin.list.size() + made->origin.own.size());
  made->events.resize(internal::merge(made->origin, made->events.data()));
  made->row.events = EventSet(made->events, &made->origin);
  if (auto fits = consistent(made->row); !fits) {
    return fail(fits.error().code, fmt::format("{}: {}", made->list.source(), fits.error().message),
                fits.error().advice);
  }
  return std::shared_ptr<const Microarch>(made, &made->row);
}

}  // namespace skidproof::arch::perfmon
