// Cases of store-to-load forwarding and their verdicts.
#include <algorithm>
#include <set>
#include <vector>

#include "harness/characterize/forwarding.h"
#include "harness/stats/robust.h"

namespace skidproof {
namespace {

constexpr int kLineOfCases = 64;
// How much dearer a blocked load is at least, where the two levels lie apart.
constexpr double kApart = 1.5;
// Of the way from one level to the other: how far what is forwarded may lie up, being slow for another reason (across
// lines), and what is blocked down, which nothing makes faster.
constexpr double kUp = 0.5, kDown = 0.1;

int round_up(int value, int step) { return (value + step - 1) / step * step; }

// In one line: aligned to its own width, far enough from the line's start that the load has room before it.
int room_before(const ForwardingCase& c) { return round_up(std::max(0, -c.offset), c.store_bytes); }

bool fits_a_line(const ForwardingCase& c) {
  return room_before(c) + std::max(c.store_bytes, c.offset + c.load_bytes) <= kLineOfCases;
}

std::set<int> offsets_of(int store, int load, bool all) {
  std::set<int> offsets;
  if (all) {
    for (int offset = -load; offset <= store; ++offset) offsets.insert(offset);
    return offsets;
  }
  offsets = {-load, 0, store};
  if (load > 1) offsets.insert({-load / 2, store - load / 2});
  if (store != load) offsets.insert(store - load);
  if (store > load) offsets.insert({load, (store - load) / 2 + (load > 1 ? 1 : 0)});
  return offsets;
}

bool same_widths(const ForwardingCase& a, const ForwardingCase& b) {
  return std::minmax(a.store_bytes, a.load_bytes) == std::minmax(b.store_bytes, b.load_bytes);
}

// Through the same kinds of register, so that the chain is the same but for the memory in it.
bool same_kinds(const ForwardingCase& a, const ForwardingCase& b) {
  return (a.store_bytes > 8) == (b.store_bytes > 8) && (a.load_bytes > 8) == (b.load_bytes > 8);
}

struct Levels {
  const ForwardingCost* forwarded = nullptr;
  std::vector<double> blocked;
};

Levels levels_of(std::span<const ForwardingCost> costs, const ForwardingCase& like) {
  Levels levels;
  std::vector<double>
      of_kind;  // a single byte has no part, and 64 of them no neighbours in their line
  for (const ForwardingCost& cost : costs) {
    const ForwardingCase& c = cost.at;
    if (same_widths(c, like) && c.offset == 0 && c.contained() && !c.across)
      levels.forwarded = &cost;
    if (!c.overlaps() || c.contained()) continue;
    if (c.store_bytes == like.store_bytes && c.load_bytes == like.load_bytes)
      levels.blocked.push_back(cost.cycles);
    if (same_kinds(c, like)) of_kind.push_back(cost.cycles);
  }
  if (levels.blocked.empty()) levels.blocked = of_kind;
  return levels;
}

std::string verdict_of(const ForwardingCost& cost, const Levels& levels) {
  if (!cost.at.overlaps()) return "apart";
  if (levels.forwarded == nullptr || levels.blocked.empty()) return "unclear";
  // All that must wait for the cache does: where some of it was forwarded, there is no such level.
  const double low = levels.forwarded->cycles, high = stats::minimum(levels.blocked);
  if (!(high > kApart * levels.forwarded->high)) return "unclear";
  if (cost.high < low + kUp * (high - low)) return "forwarded";
  return cost.low > high - kDown * (high - low) ? "blocked" : "unclear";
}

}  // namespace

int ForwardingCase::store_at(int line_at) const {
  if (!across) return line_at + room_before(*this);
  // With the border in its middle; a single byte stands before it.
  return line_at - std::max(1, store_bytes / 2);
}

std::vector<ForwardingCase> forwarding_cases(std::span<const int> widths, bool across, bool all) {
  std::vector<ForwardingCase> cases;
  for (int store : widths) {
    for (int load : widths) {
      for (int offset : offsets_of(store, load, all)) {
        const ForwardingCase one{store, load, offset, false};
        if (fits_a_line(one)) cases.push_back(one);
        if (across || !fits_a_line(one)) cases.push_back({store, load, offset, true});
      }
    }
  }
  return cases;
}

std::vector<std::string> judge_forwarding(std::span<const ForwardingCost> costs) {
  std::vector<std::string> verdicts;
  verdicts.reserve(costs.size());
  for (const ForwardingCost& cost : costs)
    verdicts.push_back(verdict_of(cost, levels_of(costs, cost.at)));
  return verdicts;
}

}  // namespace skidproof
