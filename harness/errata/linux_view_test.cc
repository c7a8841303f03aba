#include "harness/errata/linux_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace skidproof::errata {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LinuxViewTest : public ::testing::Test {
 protected:
  LinuxViewTest() {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~LinuxViewTest() override { fs::remove_all(root_); }
  void file(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  LinuxView view() const { return linux_view(root_.string(), (root_ / "kmsg").string()); }

 private:
  fs::path root_ = fs::path(::testing::TempDir()) / "skidproof_linux_view";
};

TEST_F(LinuxViewTest, ReadsWhatLinuxSays) {
  file("proc/sys/kernel/osrelease", "6.12.3-amd64\n");
  file("sys/devices/system/cpu/vulnerabilities/mds", "Mitigation: Clear CPU buffers\n");
  file("sys/devices/system/cpu/smt/active", "1\n");
  file("sys/devices/system/cpu/cpu0/microcode/version", "0x28\n");
  file("sys/devices/system/cpu/cpu1/microcode/version", "0x2f\n");
  file("sys/devices/system/cpu/cpufreq/microcode/version", "0x1\n");
  file("sys/devices/cpu/allow_tsx_force_abort", "0\n");
  file("sys/devices/cpu_atom/caps/pmu_name", "x\n");
  file("kmsg",
       "6,100,200,-;Linux version 6.12\n"
       "4,101,201,-;core: PMU erratum BJ122, BV98, HSD29 workaround disabled, HT off\n"
       "no prefix: PEBS disabled due to CPU errata\n");
  const LinuxView found = view();
  EXPECT_EQ(found.release, "6.12.3-amd64");
  EXPECT_EQ(found.vulnerabilities.at("mds"), "Mitigation: Clear CPU buffers");
  EXPECT_EQ(found.hyper_threading, true);
  EXPECT_EQ(found.oldest_microcode(), 0x28u);
  EXPECT_EQ(found.switches.at("cpu/allow_tsx_force_abort"), "0");
  EXPECT_THAT(found.core_pmus, ElementsAre("cpu_atom"));
  EXPECT_THAT(found.pmu_lines,
              ElementsAre("core: PMU erratum BJ122, BV98, HSD29 workaround disabled, HT off",
                          "no prefix: PEBS disabled due to CPU errata"));
  EXPECT_THAT(found.notes, Contains(HasSubstr("2 CPUs run different microcode")));
}

TEST_F(LinuxViewTest, SaysWhatCannotBeRead) {
  const LinuxView found = view();
  EXPECT_EQ(found.oldest_microcode(), 0u);
  EXPECT_EQ(found.hyper_threading, std::nullopt);
  EXPECT_THAT(found.notes, Contains(HasSubstr("no microcode revision")));
  EXPECT_THAT(found.notes, Contains(HasSubstr("vulnerabilities")));
  EXPECT_THAT(found.notes, Contains(HasSubstr("the kernel's log cannot be read")));
}

}  // namespace
}  // namespace skidproof::errata
