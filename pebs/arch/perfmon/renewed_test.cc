// A row with another list in place of its own.
#include "pebs/arch/perfmon/renewed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "pebs/arch/generations.h"
#include "pebs/arch/perfmon/list_check.h"
#include "pebs/arch/perfmon/published.h"

namespace skidproof::arch::perfmon {
namespace {

using testing::HasSubstr;

// An event of a list as JSON: counters, PEBS where it is precise, and more fields.
std::string event_json(const std::string& name, const std::string& code, const std::string& umask,
                       const std::string& more) {
  return R"({"EventName": ")" + name + R"(", "EventCode": ")" + code + R"(", "UMask": ")" + umask +
         R"(", "CounterMask": "0")" + more + "}";
}

constexpr char kOnAll[] = R"(, "Counter": "0,1,2,3,4,5,6,7")";
constexpr char kPreciseOnFour[] = R"(, "Counter": "0,1,2,3", "PEBS": "1")";

// What Sandy Bridge's row leans on, and `more`.
std::string list_json(const std::string& more) {
  return R"({"Header": {"Version": "20"}, "Events": [)" +
         event_json("INST_RETIRED.ANY_P", "0xC0", "0", kOnAll) + "," +
         event_json("CPU_CLK_UNHALTED.THREAD_P", "0x3C", "0", kOnAll) + "," +
         event_json("CPU_CLK_UNHALTED.REF_XCLK", "0x3C", "1", kOnAll) + "," +
         event_json("LONGEST_LAT_CACHE.REFERENCE", "0x2E", "0x4F", kOnAll) + "," +
         event_json("LONGEST_LAT_CACHE.MISS", "0x2E", "0x41", kOnAll) + "," +
         event_json("BR_INST_RETIRED.ALL_BRANCHES", "0xC4", "0", kOnAll) + "," +
         event_json("BR_MISP_RETIRED.ALL_BRANCHES", "0xC5", "0", kOnAll) + "," +
         event_json("MEM_TRANS_RETIRED.LOAD_LATENCY_GT_4", "0xCD", "1",
                    R"(, "Counter": "3", "PEBS": "2", "MSRIndex": "0x3F6", "MSRValue": "4")") +
         more + "]}";
}

Expected<std::shared_ptr<const Microarch>> sandy_bridge_with(const std::string& more) {
  const std::string path(kSandyBridge.events.origin()->path);
  return renewed(kSandyBridge, ReadList::read("list.json", path, list_json(more)).value());
}

TEST(Renewed, HasTheListsEventsAndTheRowsOwn) {
  const auto row =
      sandy_bridge_with("," + event_json("NEW.EVENT", "0xD7", "5", kPreciseOnFour)).value();
  EXPECT_EQ(row->name, kSandyBridge.name);
  EXPECT_EQ(row->record, kSandyBridge.record);
  EXPECT_EQ(row->events.list(), "intel/perfmon SNB V20");
  EXPECT_EQ(row->events.size(), 10u);
  const Event* added = row->event("NEW.EVENT");
  ASSERT_NE(added, nullptr);
  EXPECT_TRUE(added->precise());
  EXPECT_EQ(added->pebs_counters, 0x0F) << "the row's, as the list is silent";
  EXPECT_EQ(added->source, "intel/perfmon SNB V20");
  const Event* own = row->event("INST_RETIRED.PREC_DIST");
  ASSERT_NE(own, nullptr) << "the row's own";
  EXPECT_THAT(std::string(own->source), HasSubstr("Intel SDM"));
  EXPECT_EQ(row->event("UOPS_RETIRED.ALL"), nullptr) << "this list does not have it";
  EXPECT_TRUE(check_list(*row).good());
  EXPECT_NE(kSandyBridge.event("UOPS_RETIRED.ALL"), nullptr) << "the table's row stays as it is";
}

TEST(Renewed, TheRowsOwnEventStandsInPlaceOfTheLists) {
  const auto row = sandy_bridge_with("," + event_json("INST_RETIRED.PREC_DIST", "0xC0", "1",
                                                      R"(, "Counter": "1", "PEBS": "2")"))
                       .value();
  EXPECT_EQ(row->event("INST_RETIRED.PREC_DIST")->counters, 0x0F);
  EXPECT_EQ(row->events.size(), 9u);
}

TEST(Renewed, TheSameListGivesTheSameEvents) {
  for (const Microarch* of : rows_with_lists()) {
    std::vector<Event> again(of->events.origin()->list.size() + of->events.origin()->own.size());
    again.resize(internal::merge(*of->events.origin(), again.data()));
    ASSERT_EQ(again.size(), of->events.size()) << of->title;
    for (size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i].name, of->events[i].name);
  }
}

TEST(Renewed, AListThatContradictsTheRowIsRefusedByTheEvent) {
  const auto row = sandy_bridge_with(
      "," + event_json("NEW.EVENT", "0xD7", "5", R"(, "Counter": "9", "PEBS": "1")"));
  ASSERT_FALSE(row);
  EXPECT_EQ(row.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(row.error().message,
              HasSubstr("intel/perfmon SNB V20: NEW.EVENT (D7H/05H) counts on a counter"));
  EXPECT_FALSE(row.error().advice.empty());
}

TEST(Renewed, ARowWithoutAListHasNoneInItsPlace) {
  const auto row =
      renewed(kCore2, ReadList::read("list.json", "a/b/c.json", list_json("")).value());
  ASSERT_FALSE(row);
  EXPECT_THAT(row.error().message, HasSubstr("no list of events of Core 2"));
}

}  // namespace
}  // namespace skidproof::arch::perfmon
