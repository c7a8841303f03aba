// Shrinking ends at the smallest case that violates the same check.
#include "harness/fuzz/shrink.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "harness/fuzz/describe.h"
#include "harness/fuzz/execute.h"
#include "harness/fuzz/generator.h"
#include "pebs/engines/model_machine.h"

namespace skidproof::fuzz {
namespace {

using namespace std::chrono_literals;

Violation of(Check check, size_t step = 0) {
  return {.check = check, .clause = &clause::R2, .step = step, .expected = "a", .seen = "b"};
}

Case drawn(uint64_t seed) {
  Identity who;
  who.name = "model:sandy-bridge";
  who.microarch = *arch::find_microarch("sandy-bridge");
  who.pmu = true;
  return generate_case(who, 8, seed);
}

bool stores(const Case& c) {
  return std::any_of(c.code.items.begin(), c.code.items.end(),
                     [](const CodeItem& i) { return i.op == Op::kStore; });
}

// A machine that goes wrong when a program with a store runs seven times or more.
std::optional<Violation> wrong_on_seven(const Case& c) {
  for (size_t i = 0; i < c.steps.size(); ++i) {
    const Step& step = c.steps[i];
    if (step.kind == Step::Kind::kRun && step.iterations >= 7 && stores(c)) {
      return of(Check::kCount, i);
    }
  }
  return std::nullopt;
}

TEST(Shrink, DropsAndLowersWhateverIsNotNeeded) {
  unsigned shrunk = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Case c = drawn(seed);
    auto found = wrong_on_seven(c);
    if (!found) continue;
    ++shrunk;
    const Shrunk small = shrink(c, *found, wrong_on_seven, 5s);
    ASSERT_EQ(small.smallest.steps.size(), 1u);
    EXPECT_EQ(small.smallest.steps[0].iterations, 7u);
    EXPECT_EQ(small.smallest.steps[0].value, 0u);
    EXPECT_FALSE(small.smallest.steps[0].user);
    ASSERT_EQ(small.smallest.code.items.size(), 1u);
    EXPECT_EQ(small.smallest.code.items[0].op, Op::kStore);
    EXPECT_EQ(small.smallest.code.items[0].value, 0u);
    EXPECT_EQ(small.smallest.code.items[0].a, 0u);
    EXPECT_TRUE(small.smallest.ds.resets.empty());
    EXPECT_GT(small.evaluations, 0u);
  }
  EXPECT_GT(shrunk, 5u);
}

TEST(Shrink, KeepsToTheSameCheck) {
  // Without its store the case violates another check, which does not count.
  const Judge judge = [](const Case& c) -> std::optional<Violation> {
    return of(stores(c) ? Check::kCount : Check::kMemory);
  };
  Case c = drawn(1);
  c.code.items.push_back({.op = Op::kStore, .a = 3, .value = 8});
  const Shrunk small = shrink(c, of(Check::kCount), judge, 5s);
  EXPECT_TRUE(stores(small.smallest));
  EXPECT_EQ(small.violation.check, Check::kCount);
  EXPECT_EQ(small.smallest.code.items.size(), 1u);
}

TEST(Shrink, TriesOtherSeedsWhereTheMachineActsByChance) {
  // Wrong for one case in two, by the seed and by what else the case holds.
  const Judge judge = [](const Case& c) -> std::optional<Violation> {
    if (!stores(c) || Random(1000 * c.machine_seed + c.steps.size()).chance(1, 2)) {
      return std::nullopt;
    }
    return of(Check::kRecord);
  };
  Case c = drawn(2);
  c.code.items.push_back({.op = Op::kStore, .a = 3, .value = 8});
  while (!judge(c)) ++c.machine_seed;
  const Shrunk small = shrink(c, of(Check::kRecord), judge, 5s);
  EXPECT_EQ(small.smallest.code.items.size(), 1u);
  EXPECT_LE(small.smallest.steps.size(), 1u);
}

TEST(Shrink, EndsInTime) {
  const auto began = std::chrono::steady_clock::now();
  const Judge judge = [](const Case&) -> std::optional<Violation> { return of(Check::kCount); };
  const Shrunk small = shrink(drawn(3), of(Check::kCount), judge, 0ms);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
  EXPECT_EQ(small.violation.check, Check::kCount);
}

// A broken model: found by drawing cases, and shrunk to a few instructions.
TEST(Shrink, MakesARealViolationSmall) {
  const arch::Microarch& uarch = **arch::find_microarch("sandy-bridge");
  auto executor = Executor::create(uarch);
  ASSERT_TRUE(executor);
  const Judge judge = [&](const Case& c) -> std::optional<Violation> {
    auto machine = engines::make_model_machine(uarch, {.sibling_thread = c.sibling_thread,
                                                       .defects = {"reset-off-by-one"},
                                                       .seed = c.machine_seed});
    auto outcome = (*executor)->run(**machine, c);
    return outcome ? outcome->violation : std::nullopt;
  };
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Case c = drawn(seed);
    c.sibling_thread = false;
    auto found = judge(c);
    if (!found) continue;
    const Shrunk small = shrink(c, *found, judge, 20s);
    EXPECT_LE(code_text(small.smallest).size(), 20u);
    EXPECT_LE(small.smallest.steps.size(), 5u);
    ASSERT_TRUE(judge(small.smallest));
    EXPECT_EQ(judge(small.smallest)->check, found->check);
    return;
  }
  FAIL() << "never found";
}

}  // namespace
}  // namespace skidproof::fuzz
