// The rows of the branches, and relations that hold on any CPU. No test here expects a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "harness/characterize/characterize.h"
#include "harness/run/native_machine.h"

namespace skidproof {
namespace {

TEST(CharacterizeBranches, GivesEveryCurveAndEachShapeOrWhyNot) {
  auto machine = NativeMachine::create();
  ASSERT_TRUE(machine) << machine.error().text();
  CharacterizeOptions options;
  options.effort = Effort::kQuick;
  options.repetitions = 2;
  options.parts = {"branches"};
  const auto out = characterize(**machine, options);
  ASSERT_TRUE(out) << out.error().text();
  EXPECT_TRUE(out->problems.empty()) << out->problems.front().text();
  std::map<std::string, unsigned> rows;
  for (const Measurement& m : out->measurements) {
    ++rows[m.name];
    EXPECT_TRUE(std::isfinite(m.value)) << m.name;
    EXPECT_LE(m.low, m.value) << m.name;
    EXPECT_GE(m.high, m.value) << m.name;
    EXPECT_GT(m.n, 0u) << m.name;
    EXPECT_TRUE(m.statistic != "inferred" || m.low < m.high) << m.name;
  }
  for (const char* curve : {"branch.taken", "branch.btb", "branch.alignment", "branch.pattern",
                            "branch.indirect", "branch.return_stack"}) {
    EXPECT_GT(rows[curve], 4u) << curve;
  }
  std::set<std::string> answered;
  for (const auto& [name, count] : rows) answered.insert(name);
  for (const Unclear& unclear : out->unclear) {
    EXPECT_TRUE(answered.insert(unclear.name).second) << unclear.name << " is both";
    EXPECT_FALSE(unclear.reason.empty());
  }
  EXPECT_THAT(answered, testing::IsSupersetOf({"shape.btb.reach", "shape.pattern.length",
                                               "shape.indirect.targets", "shape.return_stack.depth",
                                               "shape.history.length"}));
}

}  // namespace
}  // namespace skidproof
