// Choosing the CPU to claim, on plain and on hybrid parts.
#include "harness/run/cpu_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/run/pinning.h"

namespace skidproof {
namespace {

using arch::CoreType;
using testing::HasSubstr;

// Two P-cores of two threads, four E-cores behind them: as Linux numbers an Alder Lake.
const std::vector<HostCpu> kHybrid = {
    {0, CoreType::kCore}, {1, CoreType::kCore}, {2, CoreType::kCore}, {3, CoreType::kCore},
    {4, CoreType::kAtom}, {5, CoreType::kAtom}, {6, CoreType::kAtom}, {7, CoreType::kAtom}};
const std::vector<HostCpu> kPlain = {{0}, {2}, {5}};

TEST(CpuChoiceTest, TheHighestAndOnAHybridPartThatOfThePCores) {
  EXPECT_EQ(choose_cpu(kPlain, {})->number, 5);
  EXPECT_EQ(choose_cpu(kHybrid, {})->number, 3);
  EXPECT_EQ(choose_cpu(kHybrid, {.core = "P"})->number, 3);
  EXPECT_EQ(choose_cpu(kHybrid, {.core = "E"})->number, 7);
  const std::vector<HostCpu> efficient = {{6, CoreType::kAtom}, {7, CoreType::kAtom}};
  EXPECT_EQ(choose_cpu(efficient, {})->number, 7) << "nothing else is allowed";
}

TEST(CpuChoiceTest, ByNumberWhateverItsType) {
  EXPECT_EQ(choose_cpu(kHybrid, {.cpu = 5})->number, 5);
  EXPECT_EQ(choose_cpu(kHybrid, {.cpu = 5})->core, CoreType::kAtom);
  EXPECT_EQ(choose_cpu(kPlain, {.cpu = 2})->number, 2);
}

TEST(CpuChoiceTest, WhatIsNotThereIsRefusedWithWhatIs) {
  const auto absent = choose_cpu(kPlain, {.cpu = 3});
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(absent.error().advice, HasSubstr("0, 2, 5"));
  const auto typed = choose_cpu(kHybrid, {.cpu = 5, .core = "P"});
  ASSERT_FALSE(typed);
  EXPECT_THAT(typed.error().message, HasSubstr("of that type"));
  EXPECT_THAT(typed.error().advice, HasSubstr("0 to 3"));
  const auto plain = choose_cpu(kPlain, {.core = "E"});
  ASSERT_FALSE(plain);
  EXPECT_THAT(plain.error().message, HasSubstr("E-core"));
  EXPECT_EQ(choose_cpu({}, {}).error().code, ErrorCode::kInternal);
}

TEST(CpuChoiceTest, TheHostsAreThoseThatAreAllowed) {
  const auto cpus = host_cpus();
  ASSERT_TRUE(cpus) << cpus.error().text();
  const std::vector<int> allowed = allowed_cpus().value();
  ASSERT_EQ(cpus->size(), allowed.size());
  EXPECT_EQ(cpus->back().number, allowed.back());
  EXPECT_EQ(allowed_cpus().value(), allowed) << "the affinity is what it was";
}

TEST(CpuChoiceTest, Letters) {
  EXPECT_EQ(letter_of(CoreType::kCore), "P");
  EXPECT_EQ(letter_of(CoreType::kAtom), "E");
  EXPECT_EQ(letter_of(CoreType::kUnstated), "");
}

}  // namespace
}  // namespace skidproof
