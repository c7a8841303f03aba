// What the sheet says of problems.
#include "harness/cli/characterize_text.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace skidproof::cli
