// Limits of control groups, read from files as Linux writes them.
#include "harness/run/control_groups.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace skidproof {
namespace {

class ControlGroupsTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            ("skidproof-groups-" + std::to_string(getpid()) + "-" +
             testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void file(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void second_version(const std::string& group) const {
    file("proc/self/mountinfo",
         "22 1 0:20 / /proc rw - proc proc rw\n"
         "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
    file("proc/self/cgroup", "0::" + group + "\n");
  }

  std::filesystem::path root_;
};

TEST_F(ControlGroupsTest, NoGroupsNoLimits) {
  const auto groups = ControlGroups::of_this_process(root_);
  EXPECT_FALSE(groups.cpu_quota());
  EXPECT_FALSE(groups.memory_left());
  EXPECT_EQ(groups.throttled().times, 0u);
}

TEST_F(ControlGroupsTest, TheTightestOfAllAboveDecides) {
  second_version("/batch/job/step");
  const std::string at = "sys/fs/cgroup/";
  file(at + "batch/job/step/cpu.max", "max 100000\n");
  file(at + "batch/job/step/cpu.stat", "nr_periods 9\nnr_throttled 7\nthrottled_usec 70\n");
  file(at + "batch/job/cpu.max", "150000 100000\n");
  file(at + "batch/job/cpu.stat",
       "usage_usec 1\nnr_periods 9\nnr_throttled 2\nthrottled_usec 250000\n");
  file(at + "batch/cpu.max", "30000 100000\n");
  file(at + "batch/cpu.stat", "nr_throttled 1\nthrottled_usec 500000\n");
  const auto groups = ControlGroups::of_this_process(root_);
  const auto quota = groups.cpu_quota();
  ASSERT_TRUE(quota);
  EXPECT_DOUBLE_EQ(quota->cpus(), 0.3);
  EXPECT_DOUBLE_EQ(quota->runtime_s, 0.03);
  EXPECT_EQ(quota->group, "/batch");
  // A group without a quota stops nobody, whatever it counts.
  EXPECT_EQ(groups.throttled().times, 3u);
  EXPECT_DOUBLE_EQ(groups.throttled().seconds, 0.75);
}

TEST_F(ControlGroupsTest, PageCacheIsNoMemoryInUse) {
  second_version("/batch/job");
  const std::string at = "sys/fs/cgroup/batch/";
  file(at + "memory.max", "1000000\n");
  file(at + "memory.current", "900000\n");
  file(at + "memory.stat", "anon 300000\nfile 600000\ninactive_file 400000\nactive_file 100000\n");
  file(at + "job/memory.max", "max\n");
  file(at + "job/memory.current", "5\n");
  EXPECT_EQ(ControlGroups::of_this_process(root_).memory_left(), 600000u);
  file(at + "job/memory.max", "4096\n");
  EXPECT_EQ(ControlGroups::of_this_process(root_).memory_left(), 4091u);
  file(at + "job/memory.current", "8192\n");
  EXPECT_EQ(ControlGroups::of_this_process(root_).memory_left(), 0u);
}

TEST_F(ControlGroupsTest, VersionOneHasAMountForEachController) {
  file("proc/self/mountinfo",
       "31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
       "32 30 0:28 /docker/7f /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
       "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  file("proc/self/cgroup", "4:memory:/docker/7f/job\n2:cpu,cpuacct:/docker/7f\n0::/\n");
  const std::string cpu = "sys/fs/cgroup/cpu,cpuacct/docker/7f/";
  file(cpu + "cpu.cfs_quota_us", "50000\n");
  file(cpu + "cpu.cfs_period_us", "100000\n");
  file(cpu + "cpu.stat", "nr_periods 5\nnr_throttled 4\nthrottled_time 2000000000\n");
  file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  // The container's mount begins at its own group.
  file("sys/fs/cgroup/memory/memory.limit_in_bytes", "65536\n");
  file("sys/fs/cgroup/memory/memory.usage_in_bytes", "40960\n");
  file("sys/fs/cgroup/memory/memory.stat",
       "inactive_file 1\nactive_file 1\ntotal_inactive_file 4096\ntotal_active_file 0\n");
  file("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  const auto groups = ControlGroups::of_this_process(root_);
  ASSERT_TRUE(groups.cpu_quota());
  EXPECT_DOUBLE_EQ(groups.cpu_quota()->cpus(), 0.5);
  EXPECT_EQ(groups.cpu_quota()->group, "/docker/7f");
  EXPECT_EQ(groups.throttled().times, 4u);
  EXPECT_DOUBLE_EQ(groups.throttled().seconds, 2);
  EXPECT_EQ(groups.memory_left(), 65536u - 40960 + 4096);
}

TEST_F(ControlGroupsTest, CountsOnlyGrow) {
  const Throttled less = Throttled{5, 2.5} - Throttled{3, 1};
  EXPECT_EQ(less.times, 2u);
  EXPECT_DOUBLE_EQ(less.seconds, 1.5);
  EXPECT_EQ((Throttled{1, 1} - Throttled{2, 2}).times, 0u);
}

TEST(ControlGroups, OfThisProcessCanBeAsked) {
  const auto groups = ControlGroups::of_this_process();
  EXPECT_GT(groups.cpu_quota().value_or(CpuQuota{1, 1, ""}).cpus(), 0);
  EXPECT_GE(groups.throttled().seconds, 0);
}

}  // namespace
}  // namespace skidproof
