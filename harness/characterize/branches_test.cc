// The rows of the branches, and relations that hold on any CPU. No test here expects a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "harness/characterize/characterize.h"
#include "harness/characterize/testing/native_bench.h"

namespace skidproof {
namespace {

class BranchesTest : public NativeBench {};

TEST_F(BranchesTest, GivesEveryCurveAndEachShapeOrWhyNot) {
  options_.repetitions = 2;
  const Characterization out = measure("branches");
  EXPECT_TRUE(out.problems.empty()) << out.problems.front().text();
  std::map<std::string, unsigned> rows;
  for (const Measurement& m : out.measurements) {
    ++rows[m.name];
    EXPECT_TRUE(m.statistic != "inferred" || m.low < m.high) << m.name;
  }
  for (const char* curve : {"branch.taken", "branch.btb", "branch.alignment", "branch.pattern",
                            "branch.indirect", "branch.return_stack"}) {
    EXPECT_GT(rows[curve], 4u) << curve;
  }
  std::set<std::string> answered;
  for (const auto& [name, count] : rows) answered.insert(name);
  for (const Unclear& unclear : out.unclear) {
    EXPECT_TRUE(answered.insert(unclear.name).second) << unclear.name << " is both";
    EXPECT_FALSE(unclear.reason.empty());
  }
  EXPECT_THAT(answered, testing::IsSupersetOf({"shape.btb.reach", "shape.pattern.length",
                                               "shape.indirect.targets", "shape.return_stack.depth",
                                               "shape.history.length"}));
}

}  // namespace
}  // namespace skidproof
