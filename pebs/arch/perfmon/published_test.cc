// How lines of Intel's lists become events, and that the rows say only on purpose what the lists do not.
#include "pebs/arch/perfmon/published.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "pebs/arch/microarch.h"
#include "pebs/arch/perfmon/list_check.h"

namespace skidproof::arch::perfmon {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr uint16_t kRowsCounters = 0x0F;
constexpr Event event_of(const Published& entry) {
  return event_of(entry, "a list", kRowsCounters);
}

constexpr Published precise(std::string_view name) {
  return {.name = name, .code = 0xD0, .umask = 0x81, .counters = 0xFF, .precision = kPrecise};
}

TEST(Published, APreciseEventIsSampledWhereTheRowSamplesUnlessTheListSays) {
  Published entry = precise("MEM_UOPS_RETIRED.ALL_LOADS");
  Event event = event_of(entry);
  EXPECT_EQ(event.kind, EventKind::kPebs);
  EXPECT_EQ(event.signal, Signal::kLoads);
  EXPECT_EQ(event.counters, 0xFF);
  EXPECT_EQ(event.pebs_counters, 0x0F) << "the row's";
  EXPECT_EQ(event.source, "a list");
  entry.pebs_counters = 0xFE;
  EXPECT_EQ(event_of(entry).pebs_counters, 0xFE) << "the list's";
  entry.counters = 0x02;
  EXPECT_EQ(event_of(entry).pebs_counters, 0x02) << "where it counts at all";
  entry.precision = kPreciseOnly;
  EXPECT_EQ(event_of(entry).kind, EventKind::kPebsOnly);
  entry.precision = kNotPrecise;
  event = event_of(entry);
  EXPECT_EQ(event.kind, EventKind::kCounting);
  EXPECT_EQ(event.pebs_counters, 0) << "sampled, perhaps, but not precisely";
}

TEST(Published, KindsThatANameOrARegisterTells) {
  EXPECT_EQ(event_of(precise("INST_RETIRED.PREC_DIST")).kind, EventKind::kPdir);
  EXPECT_EQ(event_of(precise("MEM_TRANS_RETIRED.STORE_SAMPLE")).kind, EventKind::kStoreSample);
  Published entry = precise("MEM_TRANS_RETIRED.PRECISE_STORE");
  entry.flags = kPreciseStore | kAlone;
  EXPECT_EQ(event_of(entry).kind, EventKind::kPreciseStore);
  EXPECT_TRUE(event_of(entry).taken_alone);
  entry = precise("MEM_UOPS_RETIRED.ALL_STORES");
  entry.flags = kDataAddress | kL1Hit;
  EXPECT_TRUE(event_of(entry).data_address);
  EXPECT_TRUE(event_of(entry).l1_hit_bit);
}

TEST(Published, OneEventForAllValuesOfARegister) {
  for (const char* name :
       {"MEM_TRANS_RETIRED.LOAD_LATENCY_GT_4", "MEM_TRANS_RETIRED.LOAD_LATENCY_GT_512",
        "MEM_TRANS_RETIRED.LOAD_LATENCY"}) {
    Published entry = precise(name);
    entry.msr = kLoadLatencyMsr;
    const Event event = event_of(entry);
    EXPECT_EQ(event.name, "MEM_TRANS_RETIRED.LOAD_LATENCY");
    EXPECT_EQ(event.kind, EventKind::kLoadLatency);
    EXPECT_EQ(event.signal, Signal::kLoads);
  }
  Published entry = precise("MEM_INST_RETIRED.LATENCY_ABOVE_THRESHOLD_16384");
  entry.msr = kLoadLatencyMsr;
  EXPECT_EQ(event_of(entry).name, "MEM_INST_RETIRED.LATENCY_ABOVE_THRESHOLD");
  entry = precise("FRONTEND_RETIRED.L1I_MISS");
  entry.msr = kFrontendMsr;
  EXPECT_EQ(event_of(entry).name, "FRONTEND_RETIRED");
  EXPECT_EQ(event_of(entry).kind, EventKind::kFrontend);
}

TEST(Published, CyclesOfWhatIsNotPreciseAreLeftOut) {
  Published entry = precise("UOPS_RETIRED.STALL_CYCLES");
  entry.cmask = 1;
  EXPECT_TRUE(belongs(entry)) << "precise on the oldest parts";
  entry.precision = kNotPrecise;
  EXPECT_FALSE(belongs(entry));
  entry.cmask = 0;
  EXPECT_TRUE(belongs(entry));
  entry.counters = uint64_t{1} << 32;
  EXPECT_FALSE(belongs(entry)) << "a fixed counter's, not sampled";
  entry.pebs_counters = uint64_t{1} << 32;
  EXPECT_TRUE(belongs(entry));
}

TEST(Published, ARowsOwnEventReplacesTheListsOrIsAdded) {
  static constexpr List kList{"a list", "its path",
                              std::to_array({precise("A"), precise("B"), precise("A")})};
  static constexpr std::array kOwn = {
      Event{.name = "B",
            .code = 0xD0,
            .umask = 0x81,
            .kind = EventKind::kPebs,
            .source = "the manual"},
      Event{.name = "C", .code = 0xC0, .umask = 0x00, .source = "the manual"}};
  static constexpr auto kTable = events_of<kList, kOwn, kRowsCounters>();
  constexpr EventSet kEvents = kTable;
  ASSERT_EQ(kEvents.size(), 3u) << "published twice is once";
  EXPECT_EQ(kEvents[0].name, "C") << "by encoding";
  EXPECT_EQ(kEvents[1].source, "a list");
  EXPECT_EQ(kEvents[2].source, "the manual");
  ASSERT_NE(kEvents.origin(), nullptr);
  EXPECT_EQ(kEvents.list(), "a list");
  EXPECT_EQ(kEvents.origin()->path, "its path");
  EXPECT_EQ(kEvents.origin()->list.size(), 3u);
  EXPECT_EQ(kEvents.origin()->own.data(), kOwn.data());
  EXPECT_EQ(kEvents.origin()->pebs_counters, kRowsCounters);
  EXPECT_EQ(EventSet(kOwn).origin(), nullptr) << "of no list";
  EXPECT_EQ(EventSet(kOwn).list(), "");
}

// Skylake's list has BR_INST_RETIRED.COND beside BR_INST_RETIRED.CONDITIONAL, both C4H/01H, and only one that is sampled.
TEST(Published, ANameThatOnlyCountsGivesWayToOneThatIsSampled) {
  static constexpr List kList{
      "a list", "its path",
      std::to_array(
          {Published{.name = "A", .code = 0xC4, .umask = 1, .counters = 0xFF},
           Published{
               .name = "B", .code = 0xC4, .umask = 1, .counters = 0xFF, .precision = kPrecise},
           Published{.name = "C", .code = 0xC4, .umask = 2, .counters = 0xFF}})};
  static constexpr std::array<Event, 0> kOwn = {};
  static constexpr auto kTable = events_of<kList, kOwn, kRowsCounters>();
  constexpr EventSet kEvents = kTable;
  ASSERT_EQ(kEvents.size(), 2u);
  EXPECT_EQ(kEvents[0].name, "B");
  EXPECT_EQ(kEvents[1].name, "C");
}

// What a row says otherwise than its list, or beside it, stands on another source than the list; list_check_test.cc holds
// the rows to the lists line by line.
TEST(Published, EveryDifferenceFromTheListsStandsOnAnotherSource) {
  ASSERT_GT(rows_with_lists().size(), 20u);
  for (const Microarch* row : rows_with_lists()) {
    for (const Event& event : row->events.origin()->own) {
      EXPECT_THAT(std::string(event.source),
                  AnyOf(HasSubstr("Intel SDM Vol. 3"), HasSubstr("Linux")))
          << row->title << " " << event.name;
    }
    EXPECT_LE(row->events.origin()->own.size(), 3u) << row->title << ": the lists are the rule";
    EXPECT_GT(row->events.size(), 30u) << row->title;
  }
}

}  // namespace
}  // namespace skidproof::arch::perfmon
