#include "results/forms/line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <string_view>

namespace skidproof::results::forms {
namespace {

std::string measured(std::string_view value = "12.5", std::string_view n = "21",
                     std::string_view low = "12.25", std::string_view high = "null",
                     std::string_view steal = "0.0", std::string_view migrations = "0") {
  return std::string(
             R"({"type":"measurement","machine":"direct","microarch":"skylake","name":"memory.latency","value":)")
      .append(value)
      .append(R"(,"unit":"ns","statistic":"median","n":)")
      .append(n)
      .append(R"(,"low":)")
      .append(low)
      .append(R"(,"high":)")
      .append(high)
      .append(
          R"(,"interval":"quartiles","parameters":{"bytes":16384},"noise":{"involuntary_switches":3,"migrations":)")
      .append(migrations)
      .append(R"(,"smi":0,"steal_s":)")
      .append(steal)
      .append("}}");
}

std::string tested(std::string_view evidence = R"({"skid":{"kind":"histogram"}})",
                   std::string_view low = "0.0") {
  return std::string(
             R"({"type":"test","machine":"direct","microarch":"skylake","id":"Skid.One","clauses":["R1"],"citations":[],)")
      .append(
          R"("status":"pass","skip_category":"","reason":"","duration_s":0.25,"seed":123456789012345678,"repetition":2,)")
      .append(R"("iterations":1000,"comparisons":12,"failures":[],"evidence":)")
      .append(evidence)
      .append(
          R"(,"stage":"skid","erratum":"","repetitions":{"n":1,"k":0,"voided":3,"rate":0.5,"low":)")
      .append(low)
      .append(R"(,"high":1e-3}})");
}

TEST(Forms, MeasurementComesApart) {
  const std::string line = measured();
  const auto m = measurement(line);
  ASSERT_TRUE(m);
  EXPECT_EQ(
      m->key[0],
      R"({"type":"measurement","machine":"direct","microarch":"skylake","name":"memory.latency")");
  EXPECT_EQ(m->key[1], R"(,"unit":"ns","statistic":"median")");
  EXPECT_EQ(m->key[2], R"(,"interval":"quartiles","parameters":{"bytes":16384})");
  EXPECT_EQ(real(m->value), 12.5);
  EXPECT_EQ(integer(m->n), 21);
  EXPECT_EQ(real(m->low), 12.25);
  EXPECT_TRUE(std::isnan(real(m->high)));
  EXPECT_EQ(integer(m->involuntary_switches), 3);
  EXPECT_EQ(m->steal_s, "0.0");
}

TEST(Forms, TestComesApart) {
  const std::string line = tested();
  const auto t = test(line);
  ASSERT_TRUE(t);
  EXPECT_TRUE(t->key[0].ends_with(R"("reason":"")"));
  EXPECT_EQ(t->key[1], R"(,"stage":"skid","erratum":"")");
  EXPECT_EQ(t->evidence, R"({"skid":{"kind":"histogram"}})");
  EXPECT_EQ(integer(t->seed), 123456789012345678);
  EXPECT_EQ(integer(t->voided), 3);
  EXPECT_EQ(real(t->high), 1e-3);
}

TEST(Forms, EvidenceMayLookLikeWhatStandsBehindIt) {
  const std::string evidence = R"({"words":"},\"stage\":\"x\"","a":{"b":{}},"stage":{"n":1}})";
  const std::string line = tested(evidence);
  const auto t = test(line);
  ASSERT_TRUE(t);
  EXPECT_EQ(t->evidence, evidence);
}

TEST(Forms, WhatIsNoJsonNumberIsOfNoForm) {
  for (std::string_view number :
       {"6.",   "1e",   "1e+",  "-",     ".5",  "1.e5",  "-.1",
        "6.1e", "0x1",  "01",   "00",    "-01", "+1",    "1.5.5",
        "",     " 1",   "NaN",  "null ", "nul", "1e123", "1234567890123456",
        "-0",   "true", "\"1\""}) {
    EXPECT_FALSE(measurement(measured(number))) << number;
    EXPECT_FALSE(measurement(measured("1", "1", number))) << number;
    EXPECT_FALSE(measurement(measured("1", "1", "1", number))) << number;
    EXPECT_FALSE(measurement(measured("1", "1", "1", "1", number))) << number;
    EXPECT_FALSE(test(tested("{}", number))) << number;
  }
  for (std::string_view number : {"0", "1.0", "-1", "1e1", "-0", "01", "1234567890", ""}) {
    EXPECT_FALSE(measurement(measured("1", number))) << number;
  }
  EXPECT_FALSE(measurement(measured("null")));
  EXPECT_FALSE(measurement(measured("1", "1", "1", "1", "null")));
  EXPECT_FALSE(measurement(measured("1", "1", "1", "1", "1", "01")));
  for (std::string_view number : {"0", "-1", "0.5", "-0.0", "1e9", "1E+99", "-1.5e-99",
                                  "123456789012345", "0.1234567890123456789"}) {
    EXPECT_TRUE(measurement(measured(number))) << number;
  }
}

TEST(Forms, WhatIsCutShortOrGoesOnIsOfNoForm) {
  for (const std::string& line : {measured(), tested()}) {
    for (size_t length = 0; length < line.size(); ++length) {
      const std::string_view cut = std::string_view(line).substr(0, length);
      EXPECT_FALSE(measurement(cut) || test(cut)) << cut;
    }
    EXPECT_FALSE(measurement(line + " ") || test(line + " "));
  }
}

TEST(Forms, TestStartIsJsonThroughAndThrough) {
  const auto start = [](std::string_view id, std::string_view clauses = R"(["R1","R2"])") {
    return std::string(R"({"type":"test-start","machine":"direct","microarch":"","id":")")
        .append(id)
        .append(R"(","clauses":)")
        .append(clauses)
        .append(R"(,"seed":7,"repetition":0,"started":"2026-01-05T02:00:00Z"})");
  };
  EXPECT_TRUE(is_test_start(start("Skid.One")));
  EXPECT_TRUE(is_test_start(start("Skid.One", "[]")));
  EXPECT_TRUE(is_test_start(start("Skid.One", R"([""])")));
  for (std::string_view id : {"", "a\"", "a\\n", "a\x01", "\xff", "a\n"})
    EXPECT_FALSE(is_test_start(start(id))) << id;
  for (std::string_view clauses : {"", "[", R"(["R1",])", R"([,"R1"])", R"(["R1" "R2"])", "[1]"}) {
    EXPECT_FALSE(is_test_start(start("a", clauses))) << clauses;
  }
}

}  // namespace
}  // namespace skidproof::results::forms
