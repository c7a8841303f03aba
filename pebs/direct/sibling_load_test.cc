#include "pebs/direct/sibling_load.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace skidproof::direct {
namespace {

// A CPU that this process may run on.
int some_cpu() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  EXPECT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  for (int cpu = CPU_SETSIZE - 1; cpu >= 0; --cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &allowed)) return cpu;
  }
  return -1;
}

TEST(SiblingLoad, ExecutesUntilItIsEnded) {
  const SiblingLoad load(some_cpu());
  ASSERT_TRUE(load.running());
  const uint64_t before = load.loads();
  while (load.loads() <= before) sched_yield();
}

TEST(SiblingLoad, SaysWhereItCannot) {
  for (int cpu : {-1, CPU_SETSIZE - 1, CPU_SETSIZE}) {
    const SiblingLoad load(cpu);
    EXPECT_FALSE(load.running()) << cpu;
    EXPECT_EQ(load.loads(), 0u);
  }
}

}  // namespace
}  // namespace skidproof::direct
