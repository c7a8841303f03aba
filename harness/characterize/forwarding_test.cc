// Forwarding: the judgement over costs that are made up, and the part on this CPU, of which only what holds on any is asked.
#include "harness/characterize/forwarding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "harness/characterize/characterize.h"
#include "harness/characterize/testing/native_bench.h"

namespace skidproof {
namespace {

constexpr std::array kAllWidths = {1, 2, 4, 8, 16, 32, 64};

TEST(ForwardingCases, LieWhereTheySayThatTheyLie) {
  constexpr int kBorder = 1024;
  for (bool all : {false, true}) {
    std::set<std::tuple<int, int, int, bool>> seen;
    for (const ForwardingCase& c : forwarding_cases(kAllWidths, true, all)) {
      EXPECT_TRUE(seen.emplace(c.store_bytes, c.load_bytes, c.offset, c.across).second) << "twice";
      const int store = c.store_at(kBorder), load = store + c.offset;
      const int first = std::min(store, load);
      const int last = std::max(store + c.store_bytes, load + c.load_bytes) - 1;
      ASSERT_GE(first, 64);
      ASSERT_LT(last, 2 * kBorder);
      if (!c.across) {
        EXPECT_EQ(first / 64, last / 64);
        EXPECT_EQ(store % c.store_bytes, 0);
      } else if (c.store_bytes > 1) {
        EXPECT_NE(store / 64, (store + c.store_bytes - 1) / 64);
      }
    }
    for (int width : kAllWidths) EXPECT_TRUE(seen.contains({width, width, 0, false}));
  }
}

TEST(ForwardingCases, AllHaveEveryOffset) {
  constexpr std::array kTwo = {4, 8};
  std::set<int> offsets;
  for (const ForwardingCase& c : forwarding_cases(kTwo, false, true)) {
    if (c.store_bytes == 8 && c.load_bytes == 4) offsets.insert(c.offset);
  }
  EXPECT_EQ(offsets.size(), 13u);
  EXPECT_EQ(*offsets.begin(), -4);
  EXPECT_EQ(*offsets.rbegin(), 8);
}

// A CPU that forwards what `forwards` says.
template <class Rule>
std::vector<ForwardingCost> played(double forwarded, double blocked, double half, Rule forwards) {
  std::vector<ForwardingCost> costs;
  for (const ForwardingCase& c : forwarding_cases(kAllWidths, true, true)) {
    const double cycles = !c.overlaps() ? 1 : forwards(c) ? forwarded : blocked;
    costs.push_back({c, cycles, cycles - half, cycles + half});
  }
  return costs;
}

TEST(ForwardingVerdict, FollowsTheMeasuredLevels) {
  const auto contained = [](const ForwardingCase& c) { return c.contained(); };
  for (const auto& [forwarded, blocked] :
       {std::pair{5.0, 13.0}, {4.2, 19.0}, {0.4, 12.0}, {14.0, 60.0}}) {
    const auto costs = played(forwarded, blocked, 0.1, contained);
    const auto verdicts = judge_forwarding(costs);
    for (size_t i = 0; i < costs.size(); ++i) {
      const ForwardingCase& c = costs[i].at;
      EXPECT_EQ(verdicts[i], !c.overlaps()   ? "apart"
                             : c.contained() ? "forwarded"
                                             : "blocked")
          << c.store_bytes << " " << c.load_bytes << " " << c.offset;
    }
  }
}

TEST(ForwardingVerdict, SeesContainedLoadsThatAreBlocked) {
  // Only from the first byte, and never across lines: as older processors do.
  const auto first = [](const ForwardingCase& c) {
    return c.contained() && c.offset == 0 && !c.across;
  };
  const auto costs = played(5, 15, 0.1, first);
  const auto verdicts = judge_forwarding(costs);
  for (size_t i = 0; i < costs.size(); ++i) {
    if (costs[i].at.overlaps()) {
      EXPECT_EQ(verdicts[i], first(costs[i].at) ? "forwarded" : "blocked");
    }
  }
}

TEST(ForwardingVerdict, SaysNothingWhereLevelsDoNotLieApart) {
  for (const auto& costs :
       {played(5, 6, 0.1, [](const ForwardingCase& c) { return c.contained(); }),
        played(5, 15, 0.1, [](const ForwardingCase&) { return true; }),
        played(15, 15, 0.1, [](const ForwardingCase&) { return false; }),
        played(5, 15, 8, [](const ForwardingCase& c) { return c.contained(); })}) {
    const auto verdicts = judge_forwarding(costs);
    for (size_t i = 0; i < costs.size(); ++i)
      EXPECT_EQ(verdicts[i], costs[i].at.overlaps() ? "unclear" : "apart");
  }
  EXPECT_TRUE(judge_forwarding({}).empty());
}

TEST(ForwardingVerdict, LeavesWhatLiesBetweenTheLevels) {
  auto costs = played(5, 15, 0.1, [](const ForwardingCase& c) { return c.contained(); });
  for (ForwardingCost& cost : costs) {
    if (cost.at.across && cost.at.contained()) cost.cycles = 12, cost.low = 11.9, cost.high = 12.1;
  }
  const auto verdicts = judge_forwarding(costs);
  for (size_t i = 0; i < costs.size(); ++i) {
    if (costs[i].at.across && costs[i].at.contained()) {
      EXPECT_EQ(verdicts[i], "unclear");
    }
  }
}

// ---- On this CPU.

class ForwardingTest : public NativeBench {};

std::string word_at(const Measurement& m, std::string_view key) {
  const auto found = m.parameters.find(key);
  return found == m.parameters.end() ? "" : std::get<std::string>(found->second);
}

TEST_F(ForwardingTest, IsDearerThanNothingAndCheaperThanABlockedLoad) {
  const Characterization out = measure("forwarding");
  EXPECT_TRUE(out.problems.empty()) << out.problems.front().text();
  std::map<std::string, int> names;
  std::map<std::pair<uint64_t, uint64_t>, double> dearest_forwarded, cheapest_blocked;
  for (const Measurement& m : out.measurements) {
    ++names[m.name];
    EXPECT_EQ(m.unit, "cycles");
    EXPECT_TRUE(std::isfinite(m.value));
    EXPECT_GT(m.value, 0) << m.name;
    if (m.name != "store.forwarding" || word_at(m, "place") != "line") continue;
    const std::pair widths = std::minmax(std::get<uint64_t>(m.parameters.at("store_bytes")),
                                         std::get<uint64_t>(m.parameters.at("load_bytes")));
    const std::string verdict = word_at(m, "verdict");
    if (verdict == "forwarded")
      dearest_forwarded[widths] = std::max(dearest_forwarded[widths], m.value);
    if (verdict == "blocked") {
      auto& least = cheapest_blocked[widths];
      least = least == 0 ? m.value : std::min(least, m.value);
    }
  }
  EXPECT_GT(names["store.forwarding"], 20);
  EXPECT_GE(names["store.alias_4k"], 8);
  EXPECT_GE(names["split.load"], 6);
  EXPECT_EQ(names["split.load"], names["split.store"]);
  for (const auto& [widths, blocked] : cheapest_blocked)
    EXPECT_LT(dearest_forwarded[widths], blocked);
}

TEST_F(ForwardingTest, StopsWhenCancelled) {
  std::atomic<bool> cancel{true};
  options_.cancel = &cancel;
  const Characterization out = measure("forwarding");
  EXPECT_TRUE(out.cancelled);
  EXPECT_TRUE(out.measurements.empty());
}

}  // namespace
}  // namespace skidproof
