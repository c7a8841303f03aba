// What contradicts a row is found, and named.
#include "pebs/arch/consistency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "pebs/arch/generations.h"

namespace skidproof::arch {
namespace {

using testing::HasSubstr;

// What is said of a row after one change to its events; empty: nothing.
std::string said_of(const Microarch& row, const std::function<void(std::vector<Event>&)>& change) {
  std::vector<Event> events(row.events.begin(), row.events.end());
  change(events);
  Microarch changed = row;
  changed.events = events;
  const auto found = consistent(changed);
  if (found) return {};
  EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(found.error().advice, HasSubstr(std::string(row.title)));
  return found.error().message;
}

Event& find(std::vector<Event>& events, uint8_t code, uint8_t umask) {
  return *std::find_if(events.begin(), events.end(), [&](const Event& event) {
    return event.code == code && event.umask == umask;
  });
}

// Of one event, stores retired on Golden Cove.
std::string said_of_stores(const std::function<void(Event&)>& change) {
  return said_of(kSapphireRapids, [&](std::vector<Event>& all) { change(find(all, 0xD0, 0x82)); });
}

TEST(Consistency, ARowAsItIsHasNothingWrong) {
  EXPECT_EQ(said_of(kSapphireRapids, [](auto&) {}), "");
}

TEST(Consistency, AnEventThatDoesNotFitTheRowIsNamed) {
  EXPECT_THAT(said_of_stores([](Event& e) { e.counters = 0x100; }),
              HasSubstr("MEM_INST_RETIRED.ALL_STORES (D0H/82H) counts on a counter"));
  EXPECT_THAT(said_of_stores([](Event& e) { e.fixed_counters = 0x10; }),
              HasSubstr("fixed counter"));
  EXPECT_THAT(said_of_stores([](Event& e) { e.counters = 0; }), HasSubstr("counts nowhere"));
  EXPECT_THAT(said_of_stores([](Event& e) { e.pebs_counters = 0xFF00; }),
              HasSubstr("sampled where it does not count"));
  EXPECT_THAT(said_of_stores([](Event& e) { e.pebs_counters = 0; }), HasSubstr("sampled nowhere"));
  EXPECT_THAT(said_of_stores([](Event& e) { e.kind = EventKind::kCounting; }),
              HasSubstr("sampled and not precise"));
  EXPECT_THAT(said_of_stores([](Event& e) { e.invert = true; }), HasSubstr("INV without CMASK"));
  EXPECT_THAT(said_of_stores([](Event& e) { e.umask2 = 1; }), HasSubstr("UMASK2"));
  EXPECT_THAT(said_of_stores([](Event& e) { e.source = ""; }), HasSubstr("no source"));
  EXPECT_THAT(said_of_stores([](Event& e) { e.kind = EventKind::kStoreSample; }),
              HasSubstr("the store sample, and not where the row has it"));
  EXPECT_THAT(said_of_stores([](Event& e) { e.kind = EventKind::kPreciseStore; }),
              HasSubstr("the precise store"));
  EXPECT_THAT(said_of_stores([](Event& e) { e.kind = EventKind::kPdir; }),
              HasSubstr("the precise distribution"));
  EXPECT_THAT(said_of(kNehalem,
                      [](auto& all) {
                        find(all, 0xC4, 0x00).counters = find(all, 0xC4, 0x00).pebs_counters = 0x0F;
                        find(all, 0xC4, 0x00).kind = EventKind::kPebs;
                      }),
              "");
  Microarch narrow = kSandyBridge;
  narrow.pebs_counters = 0x01;
  ASSERT_FALSE(consistent(narrow));
  EXPECT_THAT(consistent(narrow).error().message, HasSubstr("on a counter without PEBS"));
}

TEST(Consistency, AnEventThatStandsThereTwice) {
  EXPECT_THAT(said_of(kSapphireRapids, [](auto& all) { all.push_back(all.back()); }),
              HasSubstr("twice"));
}

TEST(Consistency, WhatTheRowLeansOnHasToBeThere) {
  const auto without = [](uint8_t code, uint8_t umask) {
    return [=](std::vector<Event>& all) {
      std::erase_if(all, [&](const Event& e) { return e.code == code && e.umask == umask; });
    };
  };
  EXPECT_THAT(said_of(kSapphireRapids, without(0xCD, 0x01)), HasSubstr("load latency (01CDH)"));
  EXPECT_THAT(said_of(kSapphireRapids, without(0x03, 0x82)),
              HasSubstr("8203H, which load latency"));
  EXPECT_THAT(said_of(kSapphireRapids, without(0x2E, 0x4F)), HasSubstr("event 2EH/4FH"));
  EXPECT_THAT(said_of(kSapphireRapids,
                      [](auto& all) {
                        find(all, 0xCD, 0x01).counters = find(all, 0xCD, 0x01).pebs_counters = 0x02;
                      }),
              HasSubstr("load latency"));
  EXPECT_EQ(said_of(kNetBurst, without(0x2E, 0x4F)), "") << "NetBurst has none of them";
}

}  // namespace
}  // namespace skidproof::arch
