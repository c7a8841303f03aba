// Looking up microarch rows, their CPU models and their events.
#include "pebs/arch/microarch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "pebs/arch/generations.h"
#include "pebs/arch/near_match.h"

namespace skidproof::arch {

namespace {

// In order of age.
constexpr std::array<const Microarch*, 12> kMicroarchs = {
    &kNetBurst, &kCore2,     &kNehalem, &kWestmere, &kSandyBridge, &kIvyBridge,
    &kHaswell,  &kBroadwell, &kSkylake, &kIceLake,  &kAlderLakeP,  &kSapphireRapids};

// How far an encoding is from "the event itself": CMASK and INV variants come after it, and of two
// plain rows the precise one comes first.
unsigned distance_from_plain(const Event& event) {
  return (event.cmask != 0 || event.invert ? 2U : 0U) + (event.precise() ? 0U : 1U);
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

const Event* Microarch::event(uint8_t code, uint8_t umask) const {
  return plainest(events, [&](const Event& e) {
    return e.code == code && e.umask == umask && e.cmask == 0 && !e.invert && e.counters != 0;
  });
}

const Event* Microarch::event_on_fixed(unsigned counter) const {
  return plainest(events, [&](const Event& e) { return ((e.fixed_counters >> counter) & 1) != 0; });
}

std::span<const Microarch* const> microarchs() { return kMicroarchs; }

Expected<const Microarch*> find_microarch(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Microarch* row : kMicroarchs) {
    if (row->name == name) return row;
    names.push_back(row->name);
  }
  const std::vector<std::string> near = near_matches(name, names, 1);
  const std::string suggestion =
      near.empty() ? std::string() : fmt::format("Did you mean '{}'? ", near.front());
  return fail(ErrorCode::kInvalidArgument, fmt::format("unknown microarch '{}'", name),
              fmt::format("{}Known: {}.", suggestion, fmt::join(names, ", ")));
}

const Microarch* identify(uint8_t family, uint8_t model) {
  for (const Microarch* row : kMicroarchs) {
    for (const CpuModel& cpu : row->models) {
      if (cpu.family == family && cpu.model == model) return row;
    }
  }
  return nullptr;
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

}  // namespace skidproof::arch
