// What the reader of lists refuses, and in which words; reader_test.py holds it to the importer.
#include "pebs/arch/perfmon/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace skidproof::arch::perfmon {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Expected<ReadList> read(const std::string& json) {
  return ReadList::read("list.json", "SNB/events/list.json", json);
}
std::string list_of(const std::string& events, const std::string& header = R"("Version": "19")") {
  return R"({"Header": {)" + header + R"(}, "Events": [)" + events + "]}";
}
std::string event_with(const std::string& fields) {
  return R"({"EventName": "A.B", "EventCode": "0xD0", "UMask": "0x81", "CounterMask": "0", "PEBS": "1", )" +
         fields + "}";
}
std::string refusal(const std::string& json) {
  const auto list = read(json);
  if (list) return "read";
  EXPECT_EQ(list.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(list.error().message, testing::StartsWith("list.json: "));
  EXPECT_THAT(list.error().advice, HasSubstr("github.com/intel/perfmon"));
  return list.error().message;
}

TEST(PerfmonReader, ReadsALine) {
  const auto list = read(list_of(event_with(
      R"("Counter": "0,1,Fixed counter 1", "PEBScounters": "0", "Errata": "BV98, hsd29")")));
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(list->source(), "intel/perfmon SNB V19");
  EXPECT_EQ(list->path(), "SNB/events/list.json");
  ASSERT_EQ(list->events().size(), 1u);
  EXPECT_EQ(
      line_of(list->events()[0]),
      R"({"A.B", 0xD0, 0x81, 0x00, 0, 0, 0x200000003, 0x1, 0x0, kPrecise, 0x0, 0x0, "BV98 HSD29"},)");
}

TEST(PerfmonReader, KeepsItsTextsWhenItIsMoved) {
  ReadList list = read(list_of(event_with(R"("Counter": "0", "Errata": "BV98")"))).value();
  const ReadList moved = std::move(list);
  EXPECT_EQ(moved.events()[0].name, "A.B");
  EXPECT_EQ(moved.events()[0].errata, "BV98");
}

TEST(PerfmonReader, NamesTheEventTheFieldAndWhatIsWrong) {
  EXPECT_EQ(refusal(list_of(event_with(R"("Counter": "0,x")"))),
            "list.json: A.B: Counter is '0,x': neither a counter nor a fixed one");
  EXPECT_EQ(refusal(list_of(event_with(R"("CounterHTOff": "")"))),
            "list.json: A.B: Counter is not there: no counter");
  EXPECT_EQ(refusal(list_of(event_with(R"("Counter": "0", "MSRIndex": "0x10000")"))),
            "list.json: A.B: MSRIndex is '0x10000': not between 0 and 65535");
  EXPECT_EQ(refusal(list_of(R"({"EventName": "A", "PEBS": "1", "Counter": "0", "UMask": "0"})")),
            "list.json: A: EventCode is not there: missing");
  EXPECT_EQ(refusal(list_of(R"({"EventName": "A;B", "PEBS": "1"})")),
            "list.json: 'A;B' is no event's name");
}

TEST(PerfmonReader, AMessageHasNothingThatATerminalObeys) {
  const std::string message =
      refusal(list_of(event_with("\"Counter\": \"\\u001b[31m" + std::string(500, 'x') + "\"")));
  EXPECT_THAT(message, AllOf(HasSubstr("'?[31mxxx"), HasSubstr("xx...'"), Not(HasSubstr("\033"))));
  EXPECT_LT(message.size(), 200u);
}

TEST(PerfmonReader, RefusesOtherForms) {
  EXPECT_THAT(refusal(list_of("", R"("Version": "2x")")), HasSubstr("its version is '2x'"));
  EXPECT_THAT(refusal(list_of("", R"("Version": 2)")),
              HasSubstr("the header is no object of texts"));
  EXPECT_THAT(refusal(list_of("", R"("Version": "2", "DatePublished": "today")")),
              HasSubstr("'today' is no date"));
  EXPECT_THAT(refusal(list_of("7")), HasSubstr("an event is no object of texts"));
  EXPECT_THAT(refusal(list_of("")), HasSubstr("no event is left"));
  EXPECT_THAT(refusal("[]"), HasSubstr("something else than 'Header' and 'Events'"));
  EXPECT_THAT(refusal(R"({"Events": []})"), HasSubstr("neither a header nor events"));
  EXPECT_THAT(refusal("{"), HasSubstr("no JSON at byte"));
  EXPECT_THAT(refusal(list_of("") + std::string(1, '\0') + "x"), HasSubstr("no JSON at byte"));
}

TEST(PerfmonReader, RefusesWhatStandsTwice) {
  EXPECT_THAT(refusal(list_of(event_with(R"("PEBS": "2")"))), HasSubstr("'PEBS' stands twice"));
  EXPECT_THAT(refusal(list_of("", R"("Version": "1", "Version": "2")")),
              HasSubstr("'Version' stands twice"));
  EXPECT_THAT(refusal(R"({"Header": {}, "Header": {}})"), HasSubstr("'Header' stands twice"));
}

// Whatever it nests or repeats, it is refused where it leaves the form, before it is all there.
TEST(PerfmonReader, RefusesWhatIsTooDeepTooLongOrTooMuch) {
  EXPECT_THAT(refusal(std::string(10'000'000, '[')), HasSubstr("something else"));
  EXPECT_THAT(refusal(list_of(std::string(1'000'000, '['))), HasSubstr("no object of texts"));
  EXPECT_THAT(refusal(list_of(event_with(R"("X": ")" + std::string(kLongestText + 1, 'x') + "\""))),
              HasSubstr("longer than anything"));
  EXPECT_THAT(refusal(std::string(kLargestFile + 1, ' ')), HasSubstr("more than 16 MiB"));
  std::string many = "{}";
  for (size_t i = 0; i < kMostEvents; ++i) many += ",{}";
  EXPECT_THAT(refusal(list_of(many)), HasSubstr("more than 20000 events"));
}

TEST(PerfmonReader, ReadsTheMapOfACheckout) {
  const auto paths = mapped_lists("mapfile.csv",
                                  "Family-model,Version,Filename,EventType\r\n"
                                  "GenuineIntel-6-2A,V19,/SNB/events/a.json,core\r\n"
                                  "GenuineIntel-6-97,V1,/ADL/events/b.json,hybridcore\n"
                                  "GenuineIntel-6-2A,V19,/SNB/events/c.json,uncore\n");
  ASSERT_TRUE(paths) << paths.error().message;
  EXPECT_THAT(*paths, ElementsAre("ADL/events/b.json", "SNB/events/a.json"));
  for (const char* text :
       {"", "a,b\n1,2\n", "Filename,EventType\nx\n", "Filename,EventType\n\"x\",core\n"}) {
    const auto refused = mapped_lists("mapfile.csv", text);
    ASSERT_FALSE(refused) << text;
    EXPECT_THAT(refused.error().message, HasSubstr("mapfile.csv: "));
  }
}

}  // namespace
}  // namespace skidproof::arch::perfmon
