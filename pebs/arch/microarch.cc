// Looking up microarch rows, their CPU models and their events.
#include "pebs/arch/microarch.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "pebs/arch/near_match.h"

namespace skidproof::arch {

namespace {

// How far an encoding is from "the event itself": CMASK and INV variants come after it, of two plain rows the precise
// one comes first, and of two names for one event that of which the core model knows what it counts.
unsigned distance_from_plain(const Event& event) {
  return (event.cmask != 0 || event.invert ? 4U : 0U) + (event.precise() ? 0U : 2U) +
         (event.signal != Signal::kNone ? 0U : 1U);
}

// The first of the rows nearest to plain that `matches`; nullptr when none does.
template <typename Predicate>
const Event* plainest(std::span<const Event> events, Predicate matches) {
  const Event* best = nullptr;
  for (const Event& event : events) {
    if (!matches(event)) continue;
    if (best == nullptr || distance_from_plain(event) < distance_from_plain(*best)) best = &event;
  }
  return best;
}

}  // namespace

const Event* Microarch::event(std::string_view event_name) const {
  return plainest(events, [&](const Event& e) { return e.name == event_name; });
}

const Event* Microarch::event(uint8_t code, uint8_t umask, uint8_t umask2) const {
  return plainest(events, [&](const Event& e) {
    return e.code == code && e.umask == umask && e.umask2 == umask2 && e.cmask == 0 && !e.invert &&
           e.counters != 0;
  });
}

const Event* Microarch::event_on_fixed(unsigned counter) const {
  return plainest(events, [&](const Event& e) { return ((e.fixed_counters >> counter) & 1) != 0; });
}

std::span<const Microarch* const> microarchs() {
  static const std::vector<const Microarch*> by_age = [] {
    const std::span<const Microarch* const> defined = defined_microarchs();
    std::vector<const Microarch*> rows(defined.begin(), defined.end());
    const auto age = [](const Microarch& row) {
      return std::tuple(row.introduced.year, row.introduced.month, row.core != CoreType::kCore,
                        row.name);
    };
    std::sort(rows.begin(), rows.end(),
              [&](const Microarch* a, const Microarch* b) { return age(*a) < age(*b); });
    return rows;
  }();
  return by_age;
}

Expected<const Microarch*> find_microarch(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Microarch* row : microarchs()) {
    if (row->name == name) return row;
    names.push_back(row->name);
  }
  const std::vector<std::string> near = near_matches(name, names, 1);
  const std::string suggestion =
      near.empty() ? std::string() : fmt::format("Did you mean '{}'? ", near.front());
  return fail(ErrorCode::kInvalidArgument, fmt::format("unknown microarch '{}'", name),
              fmt::format("{}Known: {}.", suggestion, fmt::join(names, ", ")));
}

namespace {

// How well a list of models names a part: 2 with its stepping, 1 without, 0 not at all.
unsigned match(std::span<const CpuModel> models, uint8_t family, uint8_t model, uint8_t stepping) {
  unsigned best = 0;
  for (const CpuModel& cpu : models) {
    if (cpu.family != family || cpu.model != model) continue;
    if (int{cpu.stepping} == int{stepping}) return 2;
    if (cpu.stepping < 0) best = 1;
  }
  return best;
}

// A row speaks of its steppings' microcode only, so that any stepping of a model is the row's.
bool has_model(const Microarch& row, uint8_t family, uint8_t model) {
  return std::any_of(row.models.begin(), row.models.end(), [&](const CpuModel& cpu) {
    return cpu.family == family && cpu.model == model;
  });
}

}  // namespace

const Microarch* identify(uint8_t family, uint8_t model, uint8_t stepping, CoreType core) {
  for (const Microarch* row : microarchs()) {
    if (!has_model(*row, family, model)) continue;
    if (core != CoreType::kUnstated && core != row->core) continue;
    const Microarch* nearest = row;
    unsigned best = 0;
    for (const Microarch* variant : row->variants) {
      const unsigned found = match(variant->models, family, model, stepping);
      if (found <= best) continue;
      nearest = variant;
      best = found;
    }
    return nearest;
  }
  return nullptr;
}

bool covers_other_cores(uint8_t family, uint8_t model) {
  return std::any_of(microarchs().begin(), microarchs().end(),
                     [&](const Microarch* row) { return has_model(*row, family, model); });
}

uint32_t minimum_microcode(const Microarch& microarch, uint8_t family, uint8_t model,
                           uint8_t stepping) {
  uint32_t any_stepping = 0;
  for (const CpuModel& cpu : microarch.models) {
    if (cpu.family != family || cpu.model != model) continue;
    if (int{cpu.stepping} == int{stepping}) return cpu.minimum_microcode;
    if (cpu.stepping < 0) any_stepping = cpu.minimum_microcode;
  }
  return any_stepping;
}

uint64_t minimum_period(const Microarch& microarch, unsigned counter, const Event& event) {
  uint64_t least = microarch.minimum_period;
  if (event.kind == EventKind::kPdir) {
    least = std::max<uint64_t>(least, microarch.pdir_minimum_period);
  }
  if (((microarch.pdist_counters >> counter) & 1) != 0 && microarch.distributes(event)) {
    least = std::max<uint64_t>(least, microarch.pdist_minimum_period);
  }
  return least;
}

uint64_t minimum_fixed_period(const Microarch& microarch, unsigned counter) {
  const bool pdir = ((microarch.pdir_fixed_counter >> counter) & 1) != 0;
  return std::max<uint64_t>(microarch.minimum_period, pdir ? microarch.pdir_minimum_period : 1);
}

uint64_t sustained_period(const Microarch& microarch, unsigned counter, const Event& event,
                          uint64_t wish) {
  const uint64_t period = std::max(wish, minimum_period(microarch, counter, event));
  const uint64_t multiple = event.kind == EventKind::kPdir ? microarch.pdir_period_multiple : 1;
  return (period + multiple - 1) / multiple * multiple;
}

}  // namespace skidproof::arch
