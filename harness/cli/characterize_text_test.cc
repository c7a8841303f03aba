// What the sheet says of problems, and of what disturbed the measuring.
#include "harness/cli/characterize_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace skidproof::cli {
namespace {

TEST(GroupedProblems, OneForEachKind) {
  const std::vector<Error> problems = {{ErrorCode::kNoMemory, "cannot reserve 1", "free memory"},
                                       {ErrorCode::kNotAvailable, "no huge pages for 1", "echo"},
                                       {ErrorCode::kNoMemory, "cannot reserve 2", "free memory"},
                                       {ErrorCode::kNotAvailable, "no huge pages for 2", "echo"},
                                       {ErrorCode::kNotAvailable, "no huge pages for 4", "echo"},
                                       {ErrorCode::kInternal, "odd", ""},
                                       {ErrorCode::kInternal, "strange", ""}};
  const std::vector<Error> each = grouped(problems);
  ASSERT_EQ(each.size(), 4u);
  EXPECT_EQ(each[0].message, "cannot reserve 1; cannot reserve 2");
  EXPECT_EQ(each[1].message, "no huge pages for 1; and 2 more such, the last: no huge pages for 4");
  EXPECT_EQ(each[1].advice, "echo");
  EXPECT_EQ(each[2].message, "odd");
  EXPECT_EQ(each[3].message, "strange");
}

std::string noise_of(MeasurementParameters parameters) {
  Characterization all;
  Measurement row;
  row.name = "memory.latency";
  row.unit = "cycles";
  row.statistic = "lower quartile";
  row.n = 12;
  row.parameters = std::move(parameters);
  all.measurements = {row, row};
  all.measurements[1].parameters = {};
  char* written = nullptr;
  size_t size = 0;
  std::FILE* stream = open_memstream(&written, &size);
  print_noise(Text(stream), all);
  std::fclose(stream);
  std::string text(written, size);
  std::free(written);  // NOLINT(cppcoreguidelines-no-malloc): open_memstream's
  return text;
}

TEST(PrintNoise, SaysOfHowManyFiguresOthersSpoiledHalf) {
  using testing::HasSubstr, testing::Not;
  EXPECT_THAT(noise_of({}), Not(HasSubstr("(~ above)")));
  EXPECT_THAT(noise_of({{"in_company", uint64_t{5}}}), Not(HasSubstr("In company")));
  EXPECT_THAT(noise_of({{"in_company", uint64_t{6}}}), HasSubstr("half of the samples of 1 of 2"));
  EXPECT_THAT(noise_of({{"disturbed", uint64_t{6}}}), HasSubstr("Disturbed"));
}

}  // namespace
}  // namespace skidproof::cli
