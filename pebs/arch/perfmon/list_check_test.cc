// The rows against the lists that they are made of, and that the check finds what is not so.
#include "pebs/arch/perfmon/list_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "pebs/arch/generations.h"
#include "pebs/arch/perfmon/published.h"

namespace skidproof::arch::perfmon {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(ListCheck, NothingPreciseIsMissingOrWrongInAnyRow) {
  size_t precise = 0;
  for (const Microarch* row : rows_with_lists()) {
    const ListCheck check = check_list(*row);
    SCOPED_TRACE(check.row + ", " + check.list);
    for (const ListDifference& one : check.missing) ADD_FAILURE() << one.event << " is missing";
    for (const ListDifference& one : check.wrong) {
      ADD_FAILURE() << one.event << ": " << one.in_list << "; row: " << one.in_row << one.reason;
    }
    EXPECT_TRUE(check.good());
    for (const ListDifference& one : check.different) {
      EXPECT_FALSE(one.reason.empty()) << one.event;
      EXPECT_FALSE(one.source.empty()) << one.event;
      EXPECT_NE(one.in_list, one.in_row) << one.event;
    }
    EXPECT_GT(check.precise, 20u);
    EXPECT_LT(check.precise, check.events);
    precise += check.precise;
  }
  EXPECT_GT(precise, 1000u);
}

// Each list that is imported is a row's, once.
TEST(ListCheck, KnowsEveryListOfTheTree) {
  std::set<std::string> wanted, checked;
  std::ifstream file("pebs/arch/perfmon/lists.txt");
  for (std::string name, path; file >> name;) {
    if (name.starts_with('#')) {
      std::getline(file, path);
    } else if (file >> path) {
      wanted.insert(path);
    }
  }
  ASSERT_GT(wanted.size(), 20u);
  for (const Microarch* row : rows_with_lists()) {
    EXPECT_TRUE(checked.emplace(row->events.origin()->path).second) << row->title;
  }
  EXPECT_EQ(checked, wanted);
}

TEST(ListCheck, SaysWhatIsDifferentOnPurpose) {
  const ListCheck check = check_list(kHaswell);
  ASSERT_EQ(check.different.size(), 2u);
  EXPECT_EQ(check.different[0].event, "INST_RETIRED.PREC_DIST C0H/01H");
  EXPECT_THAT(check.different[0].in_list, HasSubstr("counts on PMC1, precise on PMC1"));
  EXPECT_THAT(check.different[0].in_row, HasSubstr("counts on PMC0-3, precise on PMC0-3"));
  EXPECT_THAT(check.different[0].source, HasSubstr("Table 18-43"));
  EXPECT_THAT(check.different[0].reason, HasSubstr("distribution"));
  EXPECT_EQ(check.different[1].event, "UOPS_RETIRED.ALL C2H/01H");
  EXPECT_THAT(check.different[1].in_row, HasSubstr("records a data address"));
  EXPECT_EQ(check_list(kSkylake).different.at(1).in_list, "nothing of it");
}

// Against a list with one line changed, and its row as it is.
ListCheck with_line(const Microarch& row, const std::function<void(Published&)>& change) {
  std::vector<Published> list(row.events.origin()->list.begin(), row.events.origin()->list.end());
  change(*std::find_if(list.begin(), list.end(), [](const Published& line) {
    return line.code == 0xD0 && line.umask == 0x82;
  }));
  return check_list(row, "a newer list", list);
}

TEST(ListCheck, FindsEachFactThatARowHasOtherwise) {
  const std::vector<std::pair<const char*, std::function<void(Published&)>>> changes = {
      {"counts on PMC0", [](Published& line) { line.counters = 1; }},
      {"precise on PMC0", [](Published& line) { line.pebs_counters = 1; }},
      {"fixed 1", [](Published& line) { line.counters |= uint64_t{2} << 32; }},
      {"with PEBS alone", [](Published& line) { line.precision = kPreciseOnly; }},
      {"no other beside it", [](Published& line) { line.flags |= kAlone; }},
      {"precise", [](Published& line) { line.flags &= static_cast<uint16_t>(~kDataAddress); }},
      {"precise", [](Published& line) { line.flags &= static_cast<uint16_t>(~kL1Hit); }},
      {"by PS_EN", [](Published& line) { line.flags |= kPreciseStore; }},
      {"no row can say", [](Published& line) { line.flags |= kEdge; }},
      {"counts on", [](Published& line) { line.precision = kNotPrecise; }}};
  EXPECT_TRUE(with_line(kSapphireRapids, [](Published&) {}).good());
  for (const auto& [words, change] : changes) {
    const ListCheck check = with_line(kSapphireRapids, change);
    SCOPED_TRACE(words);
    EXPECT_THAT(check.missing, IsEmpty());
    ASSERT_EQ(check.wrong.size(), 1u);
    EXPECT_EQ(check.wrong[0].event, "MEM_INST_RETIRED.ALL_STORES D0H/82H");
    EXPECT_THAT(check.wrong[0].in_list, HasSubstr(words));
    EXPECT_THAT(check.wrong[0].in_row, HasSubstr("counts on PMC0-3"));
  }
}

TEST(ListCheck, FindsWhatIsMissingAndWhatComesFromNowhere) {
  for (const auto& change : std::vector<std::function<void(Published&)>>{
           [](Published& line) { line.name = "RENAMED"; },
           [](Published& line) { line.umask = 0x88; }, [](Published& line) { line.umask2 = 1; },
           [](Published& line) { line.cmask = 3; }}) {
    const ListCheck check = with_line(kSapphireRapids, change);
    EXPECT_EQ(check.missing.size(), 1u);
    ASSERT_EQ(check.wrong.size(), 1u) << "the row's is in no list";
    EXPECT_EQ(check.wrong[0].in_list, "nothing of it");
    EXPECT_FALSE(check.good());
  }
}

// A row of one event of its own, which the list does not have.
ListCheck with_own(Event own, bool in_table = true) {
  static constexpr std::array kLines = {
      Published{.name = "A", .code = 0xD0, .umask = 1, .counters = 0x0F, .precision = kPrecise}};
  const std::array owns = {own};
  const EventOrigin origin{"a list", "its path", kLines, owns, 0x0F};
  std::vector<Event> events = {event_of(kLines[0], "a list", 0x0F)};
  if (in_table) events.push_back(own);
  Microarch row = kSandyBridge;
  row.events = EventSet(events, &origin);
  return check_list(row);
}

TEST(ListCheck, AnEventOfARowNeedsAReasonAndASource) {
  Event own{.name = "B", .code = 0xD0, .umask = 2, .source = "the manual", .reason = "why"};
  EXPECT_TRUE(with_own(own).good());
  EXPECT_EQ(with_own(own).different.size(), 1u);
  EXPECT_EQ(with_own(own, false).wrong.size(), 1u) << "it is not in the row";
  own.reason = "";
  ASSERT_EQ(with_own(own).wrong.size(), 1u);
  EXPECT_THAT(with_own(own).wrong[0].reason, HasSubstr("no reason"));
  own.reason = "why";
  own.source = "";
  ASSERT_EQ(with_own(own).wrong.size(), 1u);
  EXPECT_THAT(with_own(own).wrong[0].reason, HasSubstr("no source"));
}

TEST(ListCheck, AnEventThatTheListHasAnywayIsNoDifference) {
  const Event own{.name = "A",
                  .code = 0xD0,
                  .umask = 1,
                  .counters = 0x0F,
                  .pebs_counters = 0x0F,
                  .kind = EventKind::kPebs,
                  .source = "the manual",
                  .reason = "why"};
  ASSERT_EQ(with_own(own, false).wrong.size(), 1u);
  EXPECT_THAT(with_own(own, false).wrong[0].reason, HasSubstr("need not"));
}

}  // namespace
}  // namespace skidproof::arch::perfmon
