#include "harness/errata/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace skidproof::errata {
namespace {

using results::ErratumRow;
using results::Exposure;
using results::Observed;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

ErratumRow row(const char* id, Exposure exposure, Observed observed = Observed::kNotRun) {
  ErratumRow made;
  made.machine = "model:haswell";
  made.id = id;
  made.title = "a title, with \"quotes\"";
  made.exposure = exposure;
  made.observed = observed;
  return made;
}

TEST(Formats, TheWorstDecidesTheExit) {
  EXPECT_EQ(exit_of({}), kExitNone);
  std::vector<ErratumRow> rows = {row("A", Exposure::kNone)};
  EXPECT_EQ(exit_of(rows), kExitNone);
  rows.push_back(row("B", Exposure::kInPlace));
  EXPECT_EQ(exit_of(rows), kExitInPlace);
  rows.push_back(row("C", Exposure::kUnknown));
  EXPECT_EQ(exit_of(rows), kExitUnknown);
  rows.push_back(row("D", Exposure::kExposed));
  EXPECT_EQ(exit_of(rows), kExitExposed);
}

TEST(Formats, ContradictionsComeFirst) {
  std::vector<ErratumRow> rows = {row("A", Exposure::kNone),
                                  row("B", Exposure::kUnknown),
                                  row("C", Exposure::kInPlace),
                                  row("D", Exposure::kExposed),
                                  row("E", Exposure::kExposed, Observed::kReproduced),
                                  row("F", Exposure::kExposed, Observed::kReproduced)};
  rows.back().contradiction = true;
  sort_for_people(rows);
  std::string order;
  for (const ErratumRow& one : rows) order += one.id;
  EXPECT_EQ(order, "FEDCBA");
}

TEST(Formats, APluginsLineIsOneLineWithData) {
  std::vector<ErratumRow> rows = {row("A", Exposure::kExposed), row("B", Exposure::kInPlace)};
  EXPECT_EQ(nrpe(rows, ""),
            "ERRATA CRITICAL - 1 exposed (A), 1 with a workaround in place (B) | exposed=1 "
            "in_place=1 unknown=0 reproduced=0\n");
  rows = {row("A", Exposure::kUnknown)};
  EXPECT_THAT(nrpe(rows, "under K|M\n"), StartsWith("ERRATA UNKNOWN - under K/M? | exposed=0"));
  EXPECT_THAT(nrpe({}, ""), StartsWith("ERRATA OK"));
  EXPECT_THAT(nrpe({1, 2, 0, 4}), StartsWith("ERRATA UNKNOWN - 0 machines exposed, 4 unknown"));
}

TEST(Formats, PrometheusEscapesItsLabels) {
  std::vector<ErratumRow> rows = {row("A", Exposure::kExposed, Observed::kReproduced)};
  rows[0].machine = "a\"b\\c\nd";
  const std::string text = prometheus(rows);
  EXPECT_THAT(text,
              HasSubstr(R"(machine="a\"b\\c?d",core="",erratum="A",verdict="reproduced"} 1)"));
  EXPECT_THAT(text, HasSubstr("skidproof_errata_verdict{"));
  EXPECT_THAT(text, HasSubstr("exposure=\"exposed\"} 1"));
}

TEST(Formats, CsvQuotesWhatItMust) {
  const std::vector<ErratumRow> rows = {row("A", Exposure::kExposed)};
  const std::string text = csv(rows);
  EXPECT_THAT(text, StartsWith("machine,core,erratum,listed"));
  EXPECT_THAT(text, HasSubstr("\"a title, with \"\"quotes\"\"\"\r\n"));
  results::InventoryRow machine;
  machine.machine = "x\x1b[31m";
  machine.exposed = {"A", "B"};
  EXPECT_THAT(csv(machine), HasSubstr("x?[31m"));
  EXPECT_THAT(csv(machine), HasSubstr(",A B,"));
  EXPECT_THAT(csv(machine), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace skidproof::errata
