// Columns, paragraphs and evidence as people see them.
#include "harness/cli/text.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace skidproof::cli {
namespace {

std::string printed(const Table& table) {
  std::FILE* file = std::tmpfile();
  table.print(Text(file), 2);
  std::string text(static_cast<size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  return text;
}

TEST(Width, CountsCharactersNotBytesNorColours) {
  EXPECT_EQ(width_of("a–b × c"), 7u);
  EXPECT_EQ(width_of("\x1b[31mred\x1b[0m"), 3u);
  EXPECT_EQ(pad_right("–", 3), "–  ");
  EXPECT_EQ(pad_left("ab", 4), "  ab");
  EXPECT_EQ(pad_left("abcde", 4), "abcde");
}

TEST(Wrap, BreaksBetweenWordsAndIndents) {
  EXPECT_EQ(wrap("one two three four", 2, 12), "one two\n  three four");
  EXPECT_EQ(wrap("unbreakable-word", 2, 8), "unbreakable-word");
  EXPECT_EQ(wrap("", 2, 8), "");
}

TEST(Wrap, KeepsLinesAndTheirOwnIndent) {
  EXPECT_EQ(wrap("- what\n  mend: a long way", 2, 16), "- what\n    mend: a long\n    way");
}

TEST(Indented, LeavesTheMessageAsItIs) { EXPECT_EQ(indented("a\n  b\n", 2, 4), "  a\n      b"); }

TEST(Table, AlignsColumnsAndTrimsLines) {
  Table table({false, true});
  table.row({"name", "1", "x"});
  table.row({"–", "1000", ""});
  EXPECT_EQ(printed(table), "  name     1  x\n  –     1000\n");
}

TEST(Numbers, ReadWell) {
  EXPECT_EQ(duration_text(0.0123), "12 ms");
  EXPECT_EQ(duration_text(1.25), "1.2 s");
  EXPECT_EQ(duration_text(370.2), "370 s");
  EXPECT_EQ(count_of(1, "test"), "1 test");
  EXPECT_EQ(count_of(2, "switch", "switches"), "2 switches");
}

TEST(Evidence, StandsOnOneLine) {
  const results::Json histogram = results::Histogram{
      .name = "skid", .unit = "instructions", .bins = {{1, 998}, {2, 2}}, .expected = {}};
  EXPECT_EQ(evidence_text(histogram), "1 × 998, 2 × 2 instructions");
  EXPECT_EQ(evidence_text("0x7f"), "0x7f");
  EXPECT_EQ(evidence_text(12), "12");
  EXPECT_EQ(evidence_text(std::string(500, 'x')).size(), 500u);
  EXPECT_EQ(evidence_text(results::Json::array({std::string(500, 'x')})).size(), 200u);
}

}  // namespace
}  // namespace skidproof::cli
