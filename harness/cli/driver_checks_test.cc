// Each thing that can go wrong at a first contact, in a computer of files: a copy of /proc and /sys with
// that thing in it.
#include "harness/cli/driver_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "harness/cli/pmu_users.h"
#include "pebs/direct/driver/skidproof_uapi.h"

namespace skidproof::cli {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A driver that claims, and whose CPU runs the loop that it is given.
class FakeDriver final : public direct::Device {
 public:
  int control(unsigned long request, void* argument) override {
    switch (request) {
      case SKIDPROOF_IOC_CLAIM: {
        auto& claim = *static_cast<skidproof_claim*>(argument);
        ++claims;
        claim.refusal = refusal;
        claim.detail = 0xC1;
        claim.microcode = 0x28;
        claim.tsc_khz = 3'000'000;
        claim.limit_us = 10'000;
        claim.flags = flags;
        return refusal == 0 ? 0 : EBUSY;
      }
      case SKIDPROOF_IOC_RELEASE:
        ++releases;
        return 0;
      case SKIDPROOF_IOC_ALLOC: {
        auto& wanted = *static_cast<skidproof_alloc*>(argument);
        wanted.address = wanted.offset = 4096 * (blocks.size() + 1);
        blocks[wanted.offset] = std::vector<std::byte>(wanted.bytes);
        return 0;
      }
      case SKIDPROOF_IOC_RUN: {
        auto& run = *static_cast<skidproof_run*>(argument);
        if (run_error != 0) return run_error;
        EXPECT_EQ(run.enable_count, 0u) << "nothing is armed";
        rings.push_back(run.ring);
        iterations.push_back(run.iterations);
        run.result = run.iterations;
        run.tsc = run.iterations;
        run.slices = run.iterations > 1000 ? slices : 0;
        const uint64_t stored = run.iterations + spoilt;
        std::memcpy(blocks[run.data].data(), &stored, sizeof stored);
        return 0;
      }
      default:
        return 0;
    }
  }
  std::byte* map(uint64_t offset, size_t) override { return blocks[offset].data(); }
  void unmap(std::byte*, size_t) override {}

  uint32_t refusal = 0, flags = SKIDPROOF_DRY_RUN | SKIDPROOF_WATCHED;
  int run_error = 0, claims = 0, releases = 0;
  uint64_t slices = 4, spoilt = 0;
  std::map<uint64_t, std::vector<std::byte>> blocks;
  std::vector<uint32_t> rings;
  std::vector<uint64_t> iterations;
};

// A Sandy Bridge on which nothing is wrong, and the driver built and not loaded.
class DriverChecksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              ("skidproof-driver-checks-" + std::to_string(::getpid()) + "-" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    cpuinfo();
    cpuid();
    file("proc/sys/kernel/osrelease", "6.1.0-test");
    file("proc/sys/kernel/nmi_watchdog", "0");
    file("proc/sys/kernel/panic", "30");
    file("proc/self/status", "CapEff:\t000001ffffffffff");
    file("proc/modules", "");
    file("proc/consoles", "ttyS0                -W- (EC    p a)    4:64\ntty0 -WU (E  p  ) 4:1");
    file("proc/17/comm", "sshd");
    link("proc/17/fd/0", "/dev/null");
    file("sys/kernel/security/lockdown", "[none] integrity confidentiality");
    file("sys/devices/system/cpu/online", "0-3");
    file("sys/devices/system/cpu/vulnerabilities/meltdown", "Mitigation: PTI");
    file("sys/bus/event_source/devices/intel_pt/type", "8");
    file("sys/kernel/kexec_crash_loaded", "1");
    fs::create_directories(folder_ / "lib/modules/6.1.0-test/build");
    module_for("6.1.0-test");
  }
  void TearDown() override { fs::remove_all(folder_); }

  void file(const std::string& path, const std::string& text) {
    fs::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path, std::ios::binary) << text << '\n';
  }
  void link(const std::string& path, const std::string& target) {
    fs::create_directories((folder_ / path).parent_path());
    fs::create_symlink(target, folder_ / path);
  }
  void cpuinfo(const std::string& flags = "dts pti", const std::string& vendor = "GenuineIntel",
               int model = 42, const std::string& microcode = "0x28") {
    std::string text;
    for (int cpu : {0, 1}) {
      text += "processor\t: " + std::to_string(cpu) + "\nvendor_id\t: " + vendor +
              "\ncpu family\t: 6\nmodel\t\t: " + std::to_string(model) +
              "\nmodel name\t: Test Processor\nstepping\t: 7\nmicrocode\t: " + microcode +
              "\nflags\t\t: " + flags + "\n\n";
    }
    file("proc/cpuinfo", text);
  }
  void cpuid(const std::string& perfmon = "0x07300403", const std::string& ecx = "0x00008004",
             const std::string& edx = "0x00200000", const std::string& more = "") {
    file("cpuid.txt",
         "CPU:\n   0x00000000 0x00: eax=0x0000000d ebx=0x756e6547 ecx=0x6c65746e edx=0x49656e69\n"
         "   0x00000001 0x00: eax=0x000206a7 ebx=0x00000000 ecx=" +
             ecx + " edx=" + edx + "\n   0x0000000a 0x00: eax=" + perfmon +
             " ebx=0x00000000 ecx=0x00000000 edx=0x00000603\n" + more);
  }
  void module_for(const std::string& release) {
    using namespace std::string_literals;
    file("skidproof.ko",
         "\x7F"
         "ELF\0license=GPL\0vermagic="s +
             release + " SMP mod_unload \0"s);
  }
  void loaded(const std::string& dry_run, const std::string& unbounded = "N",
              const std::string& limit = "10") {
    for (const auto& [name, value] : std::map<std::string, std::string>{{"limit_ms", limit},
                                                                        {"memory_mib", "1024"},
                                                                        {"dry_run", dry_run},
                                                                        {"unbounded", unbounded}}) {
      file("sys/module/skidproof/parameters/" + name, value);
    }
    file("sys/class/misc/skidproof/owners", "");
  }
  // A process with perf events open; with a hardware trace where it maps a second buffer.
  void perf(int pid, const std::string& command, bool traces = false) {
    const std::string process = "proc/" + std::to_string(pid);
    file(process + "/comm", command);
    link(process + "/fd/7", "anon_inode:[perf_event]");
    file(process + "/maps",
         "7f0000000000-7f0000001000 rw-s 00000000 00:0e 1  anon_inode:[perf_event]\n" +
             std::string(traces ? "7f0000010000-7f0000020000 rw-s 00081000 00:0e 1  "
                                  "anon_inode:[perf_event]\n"
                                : ""));
  }

  DriverReport report() { return check_driver(subject()); }
  DriverSubject subject() {
    auto subject = subject_in(folder_.string(), 1);
    EXPECT_TRUE(subject) << subject.error().text();
    if (driver_ != nullptr) {
      subject->open = [this]() -> Expected<std::shared_ptr<direct::Device>> { return driver_; };
    }
    return *subject;
  }
  Finding check(const std::string& name) { return named(report(), name); }
  static Finding named(const DriverReport& report, const std::string& name) {
    for (const Finding& one : report.findings) {
      if (one.name == name) return one;
    }
    ADD_FAILURE() << "no finding is called " << name;
    return {};
  }
  void expect(Health health, const std::string& name, const std::vector<std::string>& words) {
    const Finding found = check(name);
    EXPECT_EQ(found.health, health) << name << ": " << found.value;
    for (const std::string& word : words) {
      EXPECT_THAT(found.value + " | " + found.mend, HasSubstr(word));
    }
    if (health == Health::kBad) {
      EXPECT_NE(found.mend, "") << name;
      EXPECT_TRUE(report().bad());
      EXPECT_THAT(next_step(report(), 1), HasSubstr("mend what is bad"));
    }
  }
  void bad(const std::string& name, const std::vector<std::string>& words) {
    expect(Health::kBad, name, words);
  }
  void note(const std::string& name, const std::vector<std::string>& words) {
    expect(Health::kNote, name, words);
    EXPECT_FALSE(report().bad());
  }
  // The claim, and with `enter` the programs; returns what was announced.
  std::vector<std::string> try_it(DriverReport& report, bool enter) {
    std::vector<std::string> told;
    try_driver(
        subject(), enter, [&](const std::string& what) { told.push_back(what); }, report);
    return told;
  }

  fs::path folder_;
  std::shared_ptr<FakeDriver> driver_;
};

TEST_F(DriverChecksTest, NothingIsWrong) {
  const DriverReport found = report();
  for (const Finding& one : found.findings) {
    EXPECT_EQ(one.health, Health::kGood) << one.name << ": " << one.value;
  }
  EXPECT_EQ(found.state, DriverState::kBuilt);
  EXPECT_THAT(next_step(found, 1), HasSubstr("insmod pebs/direct/driver/skidproof.ko dry_run=1"));
  EXPECT_THAT(named(found, "protections").value, HasSubstr("page-table isolation on; IBT off"));
  EXPECT_EQ(named(found, "microarch").value, "Sandy Bridge");
}

TEST_F(DriverChecksTest, TheyComeInOrder) {
  std::vector<std::string> sections;
  for (const Finding& one : report().findings) {
    if (sections.empty() || sections.back() != one.section) sections.push_back(one.section);
  }
  EXPECT_THAT(sections, ElementsAre("processor", "kernel", "other users", "driver", "evidence"));
}

TEST_F(DriverChecksTest, AFirstFailureStopsNothing) {
  const size_t before = report().findings.size();
  cpuinfo("fred", "GenuineIntel", 0x37);
  cpuid("0x07300406", "0", "0");
  file("proc/sys/kernel/nmi_watchdog", "1");
  const DriverReport found = report();
  EXPECT_EQ(found.findings.size(), before);
  EXPECT_EQ(std::count_if(found.findings.begin(), found.findings.end(),
                          [](const Finding& one) { return one.health == Health::kBad; }),
            4);
}

// --- The processor

TEST_F(DriverChecksTest, AnotherVendor) {
  cpuinfo("", "AuthenticAMD");
  bad("vendor", {"PEBS is Intel's", "AuthenticAMD"});
}
TEST_F(DriverChecksTest, AProcessorWithoutARow) {
  cpuinfo("dts", "GenuineIntel", 0x37);
  bad("microarch", {"no row of facts covers family 6 model 0x37", "list microarchs"});
}
TEST_F(DriverChecksTest, AnEfficientCore) {
  cpuinfo("dts", "GenuineIntel", 0x97);
  cpuid("0x07300605", "0x00008004", "0x00200000",
        "   0x00000007 0x00: eax=0 ebx=0 ecx=0 edx=0x00008000\n"
        "   0x0000001a 0x00: eax=0x20000001 ebx=0 ecx=0 edx=0\n");
  // The highest basic leaf has to reach 1AH.
  const std::string text = read_all((folder_ / "cpuid.txt").string());
  file("cpuid.txt", std::string(text).replace(text.find("eax=0x0000000d"), 14, "eax=0x00000020"));
  EXPECT_EQ(check("microarch").health, Health::kGood);
  // A type that no row of the part has.
  cpuinfo("dts", "GenuineIntel", 0xAF);
  file("cpuid.txt", std::string(text)
                        .replace(text.find("eax=0x0000000d"), 14, "eax=0x00000020")
                        .replace(text.find("eax=0x20000001"), 14, "eax=0x40000001"));
  bad("microarch", {"CPU 1 is a P-core", "--core E"});
}
TEST_F(DriverChecksTest, PerformanceMonitoringOfEachVersionWithGlobalRegisters) {
  for (const char* perfmon : {"0x07300402", "0x07300405", "0x07300806"}) {
    cpuid(perfmon);
    EXPECT_EQ(check("performance monitoring").health, Health::kGood) << perfmon;
  }
}
TEST_F(DriverChecksTest, NoPerformanceMonitoring) {
  cpuid("0x00000000");
  bad("performance monitoring", {"CPUID.0AH:EAX is 0x0", "firmware"});
  cpuid("0x07280201");
  bad("performance monitoring", {"0x7280201"});
  cpuid("0", "0x80008004", "0x00200000",
        "   0x40000000 0x00: eax=0 ebx=0x4b4d564b ecx=0x564b4d56 edx=0x0000004d\n");
  bad("performance monitoring", {"the hypervisor (KVMKVMKVM) shows no PMU", "pmu=on"});
}
TEST_F(DriverChecksTest, NoDebugStore) {
  cpuid("0x07300403", "0x00008004", "0");
  bad("debug store", {"EDX[21]"});
  cpuid("0x07300403", "0x00008000");
  bad("debug store", {"ECX[2]"});
  cpuid("0x07300403", "0x00000004");
  bad("debug store", {"ECX[15]"});
}
TEST_F(DriverChecksTest, OldMicrocode) {
  cpuinfo("dts", "GenuineIntel", 42, "0x25");
  note("microcode", {"0x25 is older than 0x28", "intel-microcode"});
}
TEST_F(DriverChecksTest, AHypervisor) {
  cpuid("0x07300403", "0x80008004", "0x00200000",
        "   0x40000000 0x00: eax=0 ebx=0x4b4d564b ecx=0x564b4d56 edx=0x0000004d\n");
  note("hypervisor", {"KVMKVMKVM", "bare metal"});
}

// --- The kernel

TEST_F(DriverChecksTest, AGuestOfXenPv) {
  file("sys/hypervisor/type", "xen");
  file("sys/hypervisor/guest_type", "PV");
  bad("Xen PV", {"whose IDT is Xen's"});
  file("sys/hypervisor/guest_type", "HVM");
  EXPECT_EQ(check("Xen PV").health, Health::kGood);
}
TEST_F(DriverChecksTest, Fred) {
  cpuinfo("dts fred");
  bad("FRED", {"there is no IDT", "fred=off"});
}
TEST_F(DriverChecksTest, Lockdown) {
  file("sys/kernel/security/lockdown", "none [integrity] confidentiality");
  bad("lockdown", {"integrity: the kernel is locked down", "Secure Boot"});
}
TEST_F(DriverChecksTest, SecureBoot) {
  using namespace std::string_literals;
  file("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
       "\x06\0\0\0\x01"s);
  note("Secure Boot", {"signed modules only", "mokutil"});
}
TEST_F(DriverChecksTest, ModulesThatCannotBeLoaded) {
  file("sys/module/module/parameters/sig_enforce", "Y");
  note("modules", {"signed ones only", "kmodsign"});
  file("proc/sys/kernel/modules_disabled", "1");
  bad("modules", {"modules_disabled=1"});
  loaded("Y");
  EXPECT_EQ(check("modules").health, Health::kGood) << "it is there already";
}
TEST_F(DriverChecksTest, NoCapabilities) {
  file("proc/self/status", "CapEff:\t0000000000020000");
  bad("capabilities", {"CAP_SYS_ADMIN", "root"});
}

// --- Who else uses the counters

TEST_F(DriverChecksTest, Guests) {
  file("sys/module/kvm_intel/refcnt", "0");
  note("KVM", {"has no guest", "modprobe -r kvm_intel"});
  file("proc/901/comm", "qemu-system-x86");
  link("proc/901/fd/11", "anon_inode:kvm-vm");
  bad("KVM",
      {"process 901 (qemu-system-x86) runs a guest", "would be refused: KVM", "end its guests"});
}
TEST_F(DriverChecksTest, VmxThatIsOnFromTheLoadOfItsModule) {
  file("sys/module/kvm_intel/refcnt", "0");
  file("sys/module/kvm/parameters/enable_virt_at_load", "Y");
  bad("KVM", {"enable_virt_at_load", "modprobe -r kvm_intel"});
}
TEST_F(DriverChecksTest, AnotherHypervisorsModule) {
  file("sys/module/vboxdrv/refcnt", "0");
  note("other hypervisors", {"vboxdrv", "modprobe -r vboxdrv"});
}
TEST_F(DriverChecksTest, ATrace) {
  perf(812, "perf", true);
  bad("Intel PT", {"process 812 (perf) records a hardware trace", "intel_pt"});
}
TEST_F(DriverChecksTest, TheWatchdog) {
  file("proc/sys/kernel/nmi_watchdog", "1");
  bad("NMI watchdog", {"it is on; a claim would be refused", "sysctl kernel.nmi_watchdog=0"});
}
TEST_F(DriverChecksTest, UsersOfPerf) {
  perf(813, "nightly-profile");
  bad("perf", {"process 813 (nightly-profile) has perf events open", "would be refused"});
  EXPECT_EQ(check("Intel PT").health, Health::kGood);
  perf(9, "perf");
  bad("perf", {"processes 9 (perf), 813 (nightly-profile) have perf events open"});
  for (int pid : {20, 21, 22, 23}) perf(pid, "perf");
  bad("perf", {"and 2 more"});
}
TEST_F(DriverChecksTest, ProcessesThatCannotBeLookedInto) {
  file("proc/18/comm", "somebody else's");
  note("perf", {"not every process", "root"});
}
TEST_F(DriverChecksTest, AnotherClaim) {
  loaded("N");
  file("sys/class/misc/skidproof/owners", "1 812 running");
  file("proc/812/comm", "skidproof");
  link("proc/812/fd/0", "/dev/null");
  bad("other claims", {"CPU 1 is claimed by process 812; that is skidproof (running)", "kill 812"});
  file("sys/class/misc/skidproof/owners", "3 812 claimed");
  note("other claims", {"CPU 3 is claimed by process 812"});
}

// --- The driver

TEST_F(DriverChecksTest, AModuleOfAnotherKernel) {
  module_for("6.12.9-other");
  bad("module", {"was built for 6.12.9-other", "make -C pebs/direct/driver clean all"});
}
TEST_F(DriverChecksTest, NoModuleAndNoHeaders) {
  fs::remove(folder_ / "skidproof.ko");
  note("module", {"not built", "make -C pebs/direct/driver"});
  EXPECT_THAT(next_step(report(), 1), HasSubstr("make -C pebs/direct/driver"));
  fs::remove_all(folder_ / "lib/modules/6.1.0-test/build");
  bad("module", {"6.1.0-test/build is missing", "linux-headers"});
  fs::remove(folder_ / "proc/modules");
  bad("module", {"CONFIG_MODULES"});
}
TEST_F(DriverChecksTest, AnInstalledModuleIsLoadedByModprobe) {
  file("lib/modules/6.1.0-test/modules.dep", "updates/skidproof.ko:");
  fs::rename(folder_ / "skidproof.ko", folder_ / "lib/modules/6.1.0-test/skidproof.ko");
  fs::create_directories(folder_ / "lib/modules/6.1.0-test/updates");
  fs::rename(folder_ / "lib/modules/6.1.0-test/skidproof.ko",
             folder_ / "lib/modules/6.1.0-test/updates/skidproof.ko");
  EXPECT_THAT(next_step(report(), 1), HasSubstr("modprobe skidproof dry_run=1"));
}
TEST_F(DriverChecksTest, ADriverOfAnotherVersion) {
  loaded("Y");
  DriverSubject subject = this->subject();
  subject.open = []() -> Expected<std::shared_ptr<direct::Device>> {
    return fail(ErrorCode::kNotAvailable, "the loaded driver has interface version 2", "rmmod it");
  };
  const DriverReport found = check_driver(subject);
  EXPECT_EQ(named(found, "interface").health, Health::kBad);
  EXPECT_TRUE(found.bad());
}
TEST_F(DriverChecksTest, ParametersThatAreNotForAFirstNight) {
  loaded("Y", "Y");
  note("parameters", {"unbounded=Y: a run may have no bound", "dry_run=1"});
  loaded("Y", "N", "600");
  note("parameters", {"limit_ms=600", "interrupts are off for long"});
}
TEST_F(DriverChecksTest, OneCpu) {
  file("sys/devices/system/cpu/online", "0");
  note("bound on interrupts off", {"one CPU is online", "cpu1/online"});
  file("sys/devices/system/cpu/online", "0,2");
  EXPECT_EQ(check("bound on interrupts off").health, Health::kGood);
}

// --- What remains after a hang

TEST_F(DriverChecksTest, NoEvidence) {
  file("proc/consoles", "tty0 -WU (EC  p  ) 4:1");
  file("sys/kernel/kexec_crash_loaded", "0");
  file("proc/sys/kernel/panic", "0");
  note("serial console", {"a hang leaves no message", "console=ttyS0"});
  note("crash log", {"crashkernel="});
  note("panic", {"until somebody resets it"});
  file("sys/module/pstore/parameters/backend", "(null)");
  note("crash log", {"nor pstore"});
  file("sys/module/pstore/parameters/backend", "efi_pstore");
  EXPECT_EQ(check("crash log").value, "pstore by efi_pstore");
  file("proc/consoles", "netcon0 -W- (E  p  )");
  EXPECT_EQ(check("serial console").health, Health::kGood);
}
TEST_F(DriverChecksTest, NmisThatAreTakenForFatalOnes) {
  file("proc/sys/kernel/unknown_nmi_panic", "1");
  note("stray NMIs", {"is a panic", "unknown_nmi_panic=0"});
  file("proc/sys/kernel/unknown_nmi_panic", "0");
  file("sys/module/hpwdt/refcnt", "1");
  note("stray NMIs", {"hpwdt", "modprobe -r hpwdt"});
}
TEST_F(DriverChecksTest, AWatchdogThatResets) {
  file("sys/class/watchdog/watchdog0/identity", "iTCO_wdt");
  file("sys/class/watchdog/watchdog0/state", "active");
  EXPECT_EQ(check("hardware watchdog").value, "iTCO_wdt, active");
}

// --- What the driver says

TEST_F(DriverChecksTest, WithoutDryRunItIsNotAsked) {
  driver_ = std::make_shared<FakeDriver>();
  loaded("N");
  DriverReport found = report();
  EXPECT_THAT(named(found, "dry run").mend, HasSubstr("dry_run=1"));
  EXPECT_THAT(try_it(found, true), ElementsAre());
  EXPECT_EQ(driver_->claims, 0);
  EXPECT_EQ(found.state, DriverState::kLoaded);
  EXPECT_EQ(next_step(found, 1), "skidproof run --machine direct --cpu 1 --until read");
}

TEST_F(DriverChecksTest, OfACopyNothingIsAsked) {
  loaded("Y");
  DriverReport found = report();
  EXPECT_THAT(try_it(found, true), ElementsAre());
  EXPECT_EQ(found.state, DriverState::kDry);
}

TEST_F(DriverChecksTest, WithDryRunItClaimsAndGivesBack) {
  driver_ = std::make_shared<FakeDriver>();
  loaded("Y");
  perf(812, "perf");
  DriverReport found = report();
  EXPECT_EQ(named(found, "perf").health, Health::kNote) << "the driver knows better";
  EXPECT_THAT(try_it(found, false), ElementsAre("a claim of CPU 1"));
  EXPECT_FALSE(found.bad());
  EXPECT_THAT(named(found, "claim").value,
              AllOf(HasSubstr("microcode 0x28"), HasSubstr("TSC 3000.0 MHz"), HasSubstr("10 ms"),
                    HasSubstr("watched by another CPU")));
  EXPECT_EQ(driver_->claims, 1);
  EXPECT_EQ(driver_->releases, 1);
  EXPECT_THAT(driver_->rings, ElementsAre());
  EXPECT_EQ(next_step(found, 1), "skidproof doctor --driver --enter");
}

TEST_F(DriverChecksTest, ARefusalNamesTheProcess) {
  driver_ = std::make_shared<FakeDriver>();
  driver_->refusal = SKIDPROOF_COUNTERS_HELD;
  loaded("Y");
  perf(812, "perf");
  DriverReport found = report();
  try_it(found, true);
  const Finding claim = named(found, "claim");
  EXPECT_EQ(claim.health, Health::kBad);
  EXPECT_THAT(claim.value, AllOf(HasSubstr("MSR 0xc1 is held"),
                                 HasSubstr("process 812 (perf) has perf events open")));
  EXPECT_THAT(driver_->rings, ElementsAre()) << "no program where no claim";
}

TEST_F(DriverChecksTest, ADriverThatArmsAfterAllIsLeftAlone) {
  driver_ = std::make_shared<FakeDriver>();
  driver_->flags = SKIDPROOF_WATCHED;
  loaded("Y");
  DriverReport found = report();
  try_it(found, true);
  EXPECT_EQ(named(found, "claim").health, Health::kBad);
  EXPECT_EQ(driver_->releases, 1);
  EXPECT_THAT(driver_->rings, ElementsAre());
}

TEST_F(DriverChecksTest, ProgramsRunAtRing0BeforeRing3AndPastTheLimit) {
  driver_ = std::make_shared<FakeDriver>();
  loaded("Y");
  DriverReport found = report();
  EXPECT_THAT(try_it(found, true),
              ElementsAre("a claim of CPU 1", "a program on CPU 1: ring 0",
                          "a program on CPU 1: ring 3", "a program on CPU 1: ring 0 past limit_ms",
                          "a program on CPU 1: ring 3 past limit_ms"));
  EXPECT_THAT(driver_->rings, ElementsAre(0, 3, 0, 3));
  EXPECT_THAT(driver_->iterations, ElementsAre(1000, 1000, 120'000'000, 120'000'000));
  EXPECT_FALSE(found.bad());
  EXPECT_THAT(named(found, "ring 3 past limit_ms").value, HasSubstr("40.000 ms"));
  EXPECT_EQ(driver_->claims, driver_->releases);
  EXPECT_THAT(next_step(found, 1), AllOf(HasSubstr("rmmod skidproof; insmod"),
                                         HasSubstr("--until read"), Not(HasSubstr("dry_run"))));
}

TEST_F(DriverChecksTest, NoProgramRunsWhileSomethingIsBad) {
  driver_ = std::make_shared<FakeDriver>();
  loaded("Y");
  file("proc/sys/kernel/nmi_watchdog", "1");
  DriverReport found = report();
  try_it(found, true);
  EXPECT_EQ(named(found, "claim").health, Health::kGood) << "the driver said so";
  EXPECT_THAT(named(found, "ring 0").value, HasSubstr("not entered"));
  EXPECT_THAT(driver_->rings, ElementsAre());
}

TEST_F(DriverChecksTest, AProgramThatComesBackWrongIsBad) {
  driver_ = std::make_shared<FakeDriver>();
  driver_->spoilt = 1;
  loaded("Y");
  DriverReport found = report();
  try_it(found, true);
  EXPECT_EQ(named(found, "ring 0").health, Health::kBad);
  EXPECT_THAT(named(found, "ring 0").value, HasSubstr("0x3e9, not 0x3e8"));
  EXPECT_THAT(driver_->rings, ElementsAre(0)) << "nothing more is tried";
}

TEST_F(DriverChecksTest, ABoundThatDoesNotHoldIsBad) {
  driver_ = std::make_shared<FakeDriver>();
  driver_->slices = 0;
  loaded("Y");
  DriverReport found = report();
  try_it(found, true);
  EXPECT_THAT(named(found, "ring 0 past limit_ms").value,
              HasSubstr("40.0 ms and interrupts were never let in, with a limit of 10 ms"));
  EXPECT_TRUE(found.bad());
}

TEST_F(DriverChecksTest, ARunWithoutABoundIsRefusedInWords) {
  driver_ = std::make_shared<FakeDriver>();
  driver_->run_error = EDEADLK;
  loaded("Y");
  DriverReport found = report();
  try_it(found, true);
  EXPECT_THAT(named(found, "ring 0").value, HasSubstr("no other CPU is online"));
}

// --- Who stands behind a refusal

TEST_F(DriverChecksTest, HoldersAreNamedByWhatWasRefused) {
  const Tree tree{folder_.string()};
  const auto holder = [&](uint32_t refusal, uint64_t detail = 0) {
    skidproof_claim claim{};
    claim.refusal = refusal;
    claim.detail = detail;
    return holder_of(claim, tree);
  };
  EXPECT_EQ(holder(SKIDPROOF_COUNTERS_HELD), "");
  EXPECT_EQ(holder(SKIDPROOF_TRACES), "");
  EXPECT_EQ(holder(SKIDPROOF_VIRTUALIZES), "");
  EXPECT_EQ(holder(SKIDPROOF_CPU_OWNED, 17), "that is sshd");
  EXPECT_EQ(holder(SKIDPROOF_CPU_OWNED, 18), "") << "it has gone";
  EXPECT_EQ(holder(SKIDPROOF_NO_DEBUG_STORE), "");

  file("proc/sys/kernel/nmi_watchdog", "1");
  EXPECT_EQ(holder(SKIDPROOF_COUNTERS_HELD), "nmi_watchdog is on");
  perf(812, "perf");
  EXPECT_EQ(holder(SKIDPROOF_COUNTERS_HELD),
            "nmi_watchdog is on; process 812 (perf) has perf events open");
  EXPECT_EQ(holder(SKIDPROOF_TRACES), "process 812 (perf) has perf events open");
  perf(813, "perf", true);
  EXPECT_EQ(holder(SKIDPROOF_TRACES), "process 813 (perf) records a hardware trace");

  file("sys/module/vmmon/refcnt", "1");
  EXPECT_EQ(holder(SKIDPROOF_VIRTUALIZES), "loaded: vmmon");
  file("sys/module/kvm_intel/refcnt", "1");
  file("sys/module/kvm/parameters/enable_virt_at_load", "Y");
  EXPECT_THAT(holder(SKIDPROOF_VIRTUALIZES), HasSubstr("kvm_intel turns VMX on"));
  file("proc/901/comm", "qemu-system-x86");
  link("proc/901/fd/11", "anon_inode:kvm-vm");
  EXPECT_EQ(holder(SKIDPROOF_VIRTUALIZES), "process 901 (qemu-system-x86) runs a guest");
}

TEST_F(DriverChecksTest, AFolderThatIsNoCopy) {
  const auto subject = subject_in((folder_ / "nowhere").string(), 0);
  ASSERT_FALSE(subject);
  EXPECT_EQ(subject.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace skidproof::cli
