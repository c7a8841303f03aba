#include "harness/cli/driver_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "harness/cli/machines.h"
#include "harness/cli/pmu_users.h"
#include "harness/cli/text.h"
#include "harness/run/cpu_choice.h"
#include "pebs/arch/enumeration.h"
#include "pebs/arch/microarch.h"
#include "pebs/capabilities.h"
#include "pebs/direct/claim.h"
#include "pebs/direct/direct_machine.h"

namespace skidproof::cli {
namespace {

constexpr char kParameters[] = "/sys/module/skidproof/parameters/";
constexpr char kWithDryRun[] = "rmmod skidproof; insmod pebs/direct/driver/skidproof.ko dry_run=1";
constexpr unsigned kCarefulLimit =
    20;  // ms with interrupts off that a first night needs at the most

// A check that is good unless something stands against it.
void judge(Findings& found, const char* name, const std::optional<Obstacle>& obstacle,
           std::string good) {
  if (obstacle) {
    found.bad(name, obstacle->what, obstacle->mend);
  } else {
    found.good(name, std::move(good));
  }
}

// The value of "key : value" for one CPU in /proc/cpuinfo.
std::string of_cpuinfo(const Tree& tree, int cpu, std::string_view key) {
  std::ifstream file(tree.path("/proc/cpuinfo"));
  bool ours = false;
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::string_view name = std::string_view(line).substr(0, colon);
    name = name.substr(0, name.find_last_not_of(" \t") + 1);
    std::string value = colon + 2 <= line.size() ? line.substr(colon + 2) : "";
    if (name == "processor") ours = value == std::to_string(cpu);
    if (ours && name == key) return value;
  }
  return {};
}

// How many of a list such as "0-3,6".
unsigned count_in(const std::string& list) {
  unsigned count = 0;
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    unsigned first = 0, last = 0;
    const int read = std::sscanf(range.c_str(), "%u-%u", &first, &last);
    if (read == 1) ++count;
    if (read == 2 && last >= first) count += last - first + 1;
  }
  return count;
}

std::string foreseen(const std::string& why, const Error& refusal) {
  return fmt::format("{}; a claim would be refused: {}", why, refusal.message);
}

// --- The processor

void judge_processor(const DriverSubject& subject, Findings& found) {
  const Identity& who = subject.who;
  found.section("processor");
  const auto vendor = against_vendor(who);
  judge(found, "vendor", vendor, fmt::format("{} ({})", who.vendor, processor_words(who)));
  const auto row = vendor ? std::nullopt : against_row(who, subject.cpu);
  if (!vendor) {
    judge(found, "microarch", row,
          fmt::format("{}{}", who.microarch == nullptr ? "" : who.microarch->title,
                      who.core_type.empty() ? "" : fmt::format(", {}-core", who.core_type)));
  }
  const uint32_t perfmon = subject.cpuid(0xA, 0).eax;
  judge(found, "performance monitoring", against_perfmon(who, subject.cpuid),
        fmt::format("version {}, {} counters of {} bits", perfmon & 0xFF, perfmon >> 8 & 0xFF,
                    perfmon >> 16 & 0xFF));
  judge(found, "debug store", against_debug_store(subject.cpuid), "DS, DTES64 and PDCM by CPUID");
  if (const std::string old = microcode_note(who); !old.empty()) {
    found.note("microcode", old, "update it: the intel-microcode package, or the firmware");
  } else {
    found.good("microcode",
               who.microcode == 0 ? "not readable" : fmt::format("{:#x}", who.microcode));
  }
  if (who.hypervisor.empty()) {
    found.good("hypervisor", "none");
  } else if (who.hypervisor == direct::kVirtualLab) {
    found.note("hypervisor", who.hypervisor + ": the virtual lab, not silicon", "");
  } else {
    found.note("hypervisor",
               who.hypervisor + ": counters, PEBS and interrupts are what it makes of them",
               "a first night belongs on bare metal");
  }
}

// --- The kernel

std::set<std::string> flags_of(const DriverSubject& subject) {
  const std::vector<std::string> words = words_in(of_cpuinfo(subject.tree, subject.cpu, "flags"));
  return {words.begin(), words.end()};
}

void judge_protections(const DriverSubject& subject, Findings& found,
                       const std::set<std::string>& flags) {
  const std::string meltdown =
      subject.tree.line("/sys/devices/system/cpu/vulnerabilities/meltdown");
  found.good(
      "protections",
      fmt::format("page-table isolation {}; IBT {}; shadow stacks of user space {}",
                  meltdown.find("PTI") != std::string::npos || flags.contains("pti") ? "on" : "off",
                  flags.contains("ibt") ? "on" : "off",
                  flags.contains("user_shstk") ? "offered" : "not offered"));
}

void judge_kernel(const DriverSubject& subject, Findings& found) {
  const Tree& tree = subject.tree;
  const std::set<std::string> flags = flags_of(subject);
  found.section("kernel");
  found.good("kernel", tree.release());
  const bool xen = tree.line("/sys/hypervisor/type") == "xen";
  const std::string guest = tree.line("/sys/hypervisor/guest_type");
  if (xen && guest == "PV") {
    const Error words = direct::words_of(direct::LoadRefusal::kXenPv);
    found.bad("Xen PV", words.message, words.advice);
  } else {
    found.good("Xen PV", xen ? fmt::format("no: a guest of Xen of the type {}", guest) : "no");
  }
  // The kernel takes the flag away where it does not use FRED.
  if (flags.contains("fred")) {
    const Error words = direct::words_of(direct::LoadRefusal::kFred);
    found.bad("FRED", words.message, words.advice);
  } else {
    found.good("FRED", "not in use");
  }
  judge_protections(subject, found, flags);
  judge_lockdown(found, tree.line("/sys/kernel/security/lockdown"));
  judge_secure_boot(found, driver_file(tree).secure_boot);
  const bool loaded = tree.has("/sys/module/skidproof");
  if (tree.line("/proc/sys/kernel/modules_disabled") == "1" && !loaded) {
    found.bad("modules", "kernel.modules_disabled=1: none can be loaded any more",
              "boot again, and load the driver before that is set");
  } else if (tree.line("/sys/module/module/parameters/sig_enforce") == "Y" && !loaded) {
    found.note("modules", "the kernel loads signed ones only (module.sig_enforce)", kSign);
  } else {
    found.good("modules", "loaded without a signature");
  }
  const Error lacking = direct::words_of(SKIDPROOF_NO_RAW_IO);
  judge(found, "capabilities",
        has_capabilities(tree) ? std::nullopt : std::optional(obstacle_of(lacking)),
        "CAP_SYS_RAWIO and CAP_SYS_ADMIN");
}

// --- Who else uses the counters

void judge_hypervisors(const DriverSubject& subject, const PmuUsers& users, Findings& found) {
  const Error refusal = direct::words_of(SKIDPROOF_VIRTUALIZES, 0, subject.cpu);
  const std::string guests = doing(users.guests, "runs a guest", "run guests");
  if (!guests.empty()) {
    found.bad("KVM", foreseen(guests, refusal), refusal.advice);
  } else if (users.vmx_always) {
    found.bad(
        "KVM",
        foreseen("kvm_intel turns VMX on when it is loaded (kvm.enable_virt_at_load)", refusal),
        "modprobe -r kvm_intel");
  } else if (users.kvm_intel) {
    found.note("KVM", "kvm_intel is loaded and has no guest; a guest would keep the CPU",
               "modprobe -r kvm_intel");
  } else {
    found.good("KVM", "not loaded");
  }
  if (!users.hypervisors.empty()) {
    found.note("other hypervisors",
               joined(users.hypervisors) + " loaded: where a guest runs, a claim is refused",
               "modprobe -r " + joined(users.hypervisors, " "));
  }
}

// Whether what a process holds are counters nobody but the driver can tell, where it is asked.
void judge_users(const DriverSubject& subject, const PmuUsers& users, bool driver_is_asked,
                 Findings& found) {
  const Error traces = direct::words_of(SKIDPROOF_TRACES, 0, subject.cpu);
  const std::string tracing =
      doing(users.traces, "records a hardware trace", "record hardware traces");
  const bool pt = subject.tree.has("/sys/bus/event_source/devices/intel_pt");
  if (!tracing.empty()) {
    found.bad("Intel PT", foreseen(tracing, traces), traces.advice);
  } else {
    found.good("Intel PT", pt ? "nobody is seen to record" : "the kernel offers none");
  }
  const Error held = direct::words_of(SKIDPROOF_COUNTERS_HELD, 0xC1, subject.cpu);
  if (users.nmi_watchdog) {
    found.bad("NMI watchdog", foreseen("it is on", held), "sysctl kernel.nmi_watchdog=0");
  } else {
    found.good("NMI watchdog", "off");
  }
  const std::string perf = doing(users.perf, "has perf events open", "have perf events open");
  if (!perf.empty() && driver_is_asked) {
    found.note("perf", perf + "; whether they are counters says the claim below", held.advice);
  } else if (!perf.empty()) {
    found.bad("perf", foreseen(perf, held), held.advice);
  } else if (!users.all_seen) {
    found.note("perf", "nobody is seen to use it, but not every process could be looked into",
               "run as root (sudo skidproof ...)");
  } else {
    found.good("perf", "nobody has events open");
  }
}

void judge_owners(const DriverSubject& subject, Findings& found) {
  const std::string owners = read_all(subject.tree.path("/sys/class/misc/skidproof/owners"));
  std::istringstream lines(owners);
  std::vector<std::string> others;
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> columns = words_in(line);  // CPU, process, claimed or running
    if (columns.size() != 3) continue;
    skidproof_claim claim{};
    claim.refusal = SKIDPROOF_CPU_OWNED;
    claim.cpu = static_cast<uint32_t>(std::atoi(columns[0].c_str()));
    claim.detail = static_cast<uint64_t>(std::atoi(columns[1].c_str()));
    const Error words = direct::words_of(
        claim, 0, [&](const skidproof_claim& owned) { return holder_of(owned, subject.tree); });
    if (claim.cpu == static_cast<uint32_t>(subject.cpu)) {
      found.bad("other claims", fmt::format("{} ({})", words.message, columns[2]), words.advice);
      return;
    }
    others.push_back(words.message);
  }
  if (others.empty()) {
    found.good("other claims", "none");
  } else {
    found.note("other claims", joined(others, "; "), "one night at a time: wait for it");
  }
}

// --- The driver

// The kernel that a module says it is for; empty where the file says nothing.
std::string built_for(const std::string& module) {
  const std::string bytes = read_all(module);
  constexpr std::string_view kKey("\0vermagic=", 10);
  const size_t at = bytes.find(kKey);
  if (at == std::string::npos) return {};
  const size_t begin = at + kKey.size();
  return bytes.substr(begin, bytes.find_first_of(std::string_view(" \0", 2), begin) - begin);
}

void judge_build(const DriverSubject& subject, const DriverFile& file, Findings& found,
                 DriverReport& report) {
  const std::string kernel = subject.tree.release();
  const std::string built =
      file.installed.empty() ? subject.module : subject.tree.path(file.installed);
  const std::string is_for = built.empty() ? "" : built_for(built);
  report.installed = !file.installed.empty();
  const bool loaded = report.state != DriverState::kAbsent;
  if (loaded) return;
  const std::string make = "make -C pebs/direct/driver";
  if (!file.modules_possible) {
    const Obstacle none = driver_missing(file);
    found.bad("module", none.what, none.mend);
  } else if (!is_for.empty() && is_for == kernel) {
    found.good("module", fmt::format("{}, for this kernel", built));
    report.state = DriverState::kBuilt;
  } else if (!is_for.empty()) {
    found.bad("module", fmt::format("{} was built for {}", built, is_for),
              fmt::format("{} clean all", make));
  } else if (!file.headers_present) {
    const Obstacle none = driver_missing(file);
    found.bad("module", none.what, none.mend);
  } else {
    found.note("module", "not built", make);
  }
}

void judge_version(const DriverSubject& subject, Findings& found) {
  if (subject.open == nullptr) return;
  const auto device = subject.open();
  if (device) {
    found.good("interface", fmt::format("version {}", SKIDPROOF_ABI));
  } else {
    found.bad("interface", device.error().message, device.error().advice);
  }
}

void judge_parameters(const Tree& tree, Findings& found, DriverReport& report) {
  std::map<std::string, std::string> parameters;
  std::vector<std::string> words;
  for (const char* name : {"limit_ms", "memory_mib", "dry_run", "unbounded"}) {
    parameters[name] = tree.line(std::string(kParameters) + name);
    words.push_back(fmt::format("{}={}", name, parameters[name]));
  }
  const std::string all = joined(words, " ");
  const long limit = std::strtol(parameters["limit_ms"].c_str(), nullptr, 10);
  const bool dry = parameters["dry_run"] == "Y";
  if (dry) report.state = DriverState::kDry;
  if (parameters["unbounded"] == "Y" || limit > kCarefulLimit) {
    found.note(
        "parameters",
        all +
            (limit > kCarefulLimit ? ": interrupts are off for long" : ": a run may have no bound"),
        fmt::format("rmmod skidproof; insmod pebs/direct/driver/skidproof.ko{} (limit_ms=10)",
                    dry ? " dry_run=1" : ""));
  } else {
    found.good("parameters", all);
  }
  if (!dry) {
    found.note("dry run", "the driver is loaded without dry_run=1: it is not asked to claim",
               kWithDryRun);
  }
}

void judge_driver(const DriverSubject& subject, Findings& found, DriverReport& report) {
  const Tree& tree = subject.tree;
  found.section("driver");
  const bool loaded = tree.has("/sys/module/skidproof");
  if (loaded) report.state = DriverState::kLoaded;
  judge_build(subject, driver_file(tree), found, report);
  if (loaded) {
    const bool device = tree.has("/dev/skidproof") || !tree.own();
    judge(found, "module",
          device ? std::nullopt
                 : std::optional(Obstacle{"loaded, but there is no /dev/skidproof",
                                          "mount -t devtmpfs devtmpfs /dev, or: mknod "
                                          "/dev/skidproof c 10 $(cut -d: -f2 "
                                          "/sys/class/misc/skidproof/dev)"}),
          "loaded");
    judge_version(subject, found);
    judge_parameters(tree, found, report);
  }
  const unsigned online = count_in(tree.line("/sys/devices/system/cpu/online"));
  if (online > 1) {
    found.good("bound on interrupts off", fmt::format("by another CPU: {} are online", online));
  } else {
    found.note(
        "bound on interrupts off",
        "one CPU is online: a counter alone bounds the time, and what leaves none is refused",
        "bring another CPU online: echo 1 > /sys/devices/system/cpu/cpu1/online");
  }
  judge_owners(subject, found);
}

// --- What remains after a hang

void judge_consoles(const Tree& tree, Findings& found) {
  std::istringstream consoles(read_all(tree.path("/proc/consoles")));
  bool serial = false, net = false;
  for (std::string line; std::getline(consoles, line);) {
    const std::vector<std::string> words = words_in(line);
    serial |= !words.empty() && words[0].starts_with("ttyS");
    net |= !words.empty() && words[0].starts_with("netcon");
  }
  if (serial) {
    found.good("serial console", "the kernel writes to one");
  } else if (net) {
    found.good("serial console", "none, but netconsole");
  } else {
    found.note("serial console", "none: a hang leaves no message",
               "boot with console=tty0 console=ttyS0,115200, or load netconsole");
  }
}

void judge_evidence(const Tree& tree, Findings& found) {
  found.section("evidence");
  judge_consoles(tree, found);
  const bool crash_kernel = tree.line("/sys/kernel/kexec_crash_loaded") == "1";
  const std::string backend = tree.line("/sys/module/pstore/parameters/backend");
  const bool pstore = !backend.empty() && backend != "(null)";
  if (crash_kernel || pstore) {
    found.good("crash log", fmt::format("{}{}{}", crash_kernel ? "a crash kernel is loaded" : "",
                                        crash_kernel && pstore ? "; " : "",
                                        pstore ? "pstore by " + backend : ""));
  } else {
    found.note("crash log",
               "neither a crash kernel nor pstore: a panic leaves what the console has",
               "boot with crashkernel=256M and kdump-tools, or modprobe efi_pstore");
  }
  const std::string panic = tree.line("/proc/sys/kernel/panic");
  if (panic.empty() || panic == "0") {
    found.note("panic", "the computer stays as it is until somebody resets it",
               "sysctl kernel.panic=30, or leave it where someone watches the console");
  } else {
    found.good("panic", panic.starts_with("-") ? "restarts at once"
                                               : fmt::format("restarts after {} s", panic));
  }
  // Whoever takes an NMI for a fatal one takes a late PMI for one as well.
  if (tree.line("/proc/sys/kernel/unknown_nmi_panic") == "1") {
    found.note("stray NMIs", "one that nobody handles is a panic",
               "sysctl kernel.unknown_nmi_panic=0");
  } else if (tree.has("/sys/module/hpwdt")) {
    found.note("stray NMIs", "hpwdt makes a panic of one that nobody handles", "modprobe -r hpwdt");
  } else {
    found.good("stray NMIs", "one that nobody handles is logged");
  }
  const std::string dog = tree.line("/sys/class/watchdog/watchdog0/identity");
  if (dog.empty()) {
    found.good("hardware watchdog", "none: a hang takes a reset from outside");
  } else {
    found.good("hardware watchdog",
               fmt::format("{}, {}", dog, tree.line("/sys/class/watchdog/watchdog0/state")));
  }
}

// --- What the driver says

// MOV RAX,RDI; again: DEC RDI; JNZ again; MOV [RSI],RAX; RET
constexpr uint8_t kLoop[] = {0x48, 0x89, 0xF8, 0x48, 0xFF, 0xCF,
                             0x75, 0xFB, 0x48, 0x89, 0x06, 0xC3};

struct LoopEntry {
  Ring ring;
  bool longer;  // than limit_ms
  const char* name;
};

Expected<std::string> enter(Machine& machine, const LoopEntry& entry,
                            const skidproof_claim& claim) {
  const Memory code = SKIDPROOF_TRY(machine.allocate({.use = MemoryUse::kCode}));
  const Memory data = SKIDPROOF_TRY(machine.allocate({.use = MemoryUse::kData}));
  Program program;
  program.kernel = "loop";
  program.code.resize(sizeof kLoop);
  std::memcpy(program.code.data(), kLoop, sizeof kLoop);
  program.code_address = program.entry = code.address;
  program.data_address = data.address;
  program.data_bytes = sizeof(uint64_t);
  RunPlan plan;
  plan.ring = entry.ring;
  // An iteration takes a cycle, whose clock may be twice the TSC's.
  const uint64_t limit = claim.tsc_khz * claim.limit_us / 1000;
  plan.iterations = entry.longer ? 4 * limit : 1000;
  const RunLog log = SKIDPROOF_TRY(machine.run(program, plan));
  uint64_t stored = 0;
  std::memcpy(&stored, data.host.data(), sizeof stored);
  if (log.result != plan.iterations || stored != plan.iterations) {
    return fail(ErrorCode::kInternal,
                fmt::format("RAX came back as {:#x} and its data as {:#x}, not {:#x}", log.result,
                            stored, plan.iterations),
                "unload the driver and report this with dmesg and /proc/cpuinfo");
  }
  const double ms =
      claim.tsc_khz == 0 ? 0 : static_cast<double>(log.tsc) / static_cast<double>(claim.tsc_khz);
  const double limit_ms = static_cast<double>(claim.limit_us) / 1000;
  const bool watched = (claim.flags & SKIDPROOF_WATCHED) != 0;
  if (entry.longer && watched && log.noise.slices == 0 && ms > limit_ms + 1) {
    return fail(
        ErrorCode::kInternal,
        fmt::format("it ran for {:.1f} ms and interrupts were never let in, with a limit of "
                    "{:.0f} ms",
                    ms, limit_ms),
        "unload the driver and report this with dmesg and /proc/cpuinfo");
  }
  return fmt::format("came back after {:.3f} ms, interrupts let in {}", ms,
                     log.noise.slices == 1 ? "once" : fmt::format("{} times", log.noise.slices));
}

void enter_all(const std::shared_ptr<direct::Device>& device, const direct::DirectOptions& options,
               const skidproof_claim& claim, const std::function<void(const std::string&)>& next,
               Findings& found, DriverReport& report) {
  const auto machine = direct::make_direct_machine(device, options);
  if (!machine) {
    found.bad("ring 0", machine.error().message, machine.error().advice);
    return;
  }
  constexpr LoopEntry kEntries[] = {{Ring::kKernel, false, "ring 0"},
                                    {Ring::kUser, false, "ring 3"},
                                    {Ring::kKernel, true, "ring 0 past limit_ms"},
                                    {Ring::kUser, true, "ring 3 past limit_ms"}};
  for (const LoopEntry& entry : kEntries) {
    next(fmt::format("a program on CPU {}: {}", options.cpu, entry.name));
    const auto went = enter(**machine, entry, claim);
    if (!went) {
      found.bad(entry.name, went.error().message, went.error().advice);
      return;
    }
    found.good(entry.name, *went);
  }
  report.state = DriverState::kEntered;
}

std::optional<uint32_t> number_behind(const std::string& line, const char* key) {
  const size_t at = line.find(key);
  uint32_t value = 0;
  if (at == std::string::npos ||
      std::sscanf(line.c_str() + at + std::strlen(key), "%x", &value) != 1) {
    return std::nullopt;
  }
  return value;
}

// "   0x0000000a 0x00: eax=0x07300403 ebx=0x00000000 ecx=0x00000000 edx=0x00000603"
std::map<std::pair<uint32_t, uint32_t>, Machine::CpuidResult> read_cpuid(const std::string& path) {
  std::map<std::pair<uint32_t, uint32_t>, Machine::CpuidResult> leaves;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    uint32_t leaf = 0, subleaf = 0;
    if (std::sscanf(line.c_str(), " %x %x:", &leaf, &subleaf) != 2) continue;
    const auto eax = number_behind(line, "eax="), ebx = number_behind(line, "ebx="),
               ecx = number_behind(line, "ecx="), edx = number_behind(line, "edx=");
    if (eax && ebx && ecx && edx) leaves[{leaf, subleaf}] = {*eax, *ebx, *ecx, *edx};
  }
  return leaves;
}

std::string signature(const Machine::CpuidResult& leaf) {
  std::string text;
  for (uint32_t four : {leaf.ebx, leaf.ecx, leaf.edx}) {
    for (unsigned i = 0; i < 4; ++i) {
      if (const auto c = static_cast<char>(four >> (8 * i) & 0xFF); c != 0) text += c;
    }
  }
  return text.empty() ? "unnamed" : text;
}

unsigned number(const std::string& text) {
  return static_cast<unsigned>(std::strtoul(text.c_str(), nullptr, 0));
}

}  // namespace

void judge_secure_boot(Findings& found, bool on) {
  if (on) {
    found.note("Secure Boot", "on: the kernel loads signed modules only", kSign);
  } else {
    found.good("Secure Boot", "off");
  }
}

void judge_lockdown(Findings& found, const std::string& file) {
  const std::string mode = chosen(file);
  if (mode.empty() || mode == "none") {
    found.good("lockdown", "off");
    return;
  }
  const Error words = direct::words_of(SKIDPROOF_LOCKED_DOWN);
  found.bad("lockdown", fmt::format("{}: {}", mode, words.message), words.advice);
}

bool DriverReport::bad() const {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& one) { return one.health == Health::kBad; });
}

DriverReport check_driver(const DriverSubject& subject) {
  DriverReport report;
  Findings found(report.findings);
  judge_processor(subject, found);
  judge_kernel(subject, found);
  const PmuUsers users = find_pmu_users(subject.tree);
  const bool asked =
      subject.open != nullptr && subject.tree.line(std::string(kParameters) + "dry_run") == "Y";
  found.section("other users");
  judge_hypervisors(subject, users, found);
  judge_users(subject, users, asked, found);
  judge_driver(subject, found, report);
  judge_evidence(subject.tree, found);
  return report;
}

void try_driver(const DriverSubject& subject, bool entering,
                const std::function<void(const std::string&)>& next, DriverReport& report) {
  if (report.state != DriverState::kDry || subject.open == nullptr) return;
  Findings found(report.findings);
  found.section("the driver says");
  auto device = subject.open();
  if (!device) return;  // said already
  const direct::WhoHolds who = [&](const skidproof_claim& claim) {
    return holder_of(claim, subject.tree);
  };
  next(fmt::format("a claim of CPU {}", subject.cpu));
  const auto claimed = direct::claim(**device, subject.cpu, who);
  if (!claimed) {
    found.bad("claim", claimed.error().message, claimed.error().advice);
    return;
  }
  direct::release(**device);
  if ((claimed->flags & SKIDPROOF_DRY_RUN) == 0) {
    found.bad("claim", "the driver says that it was loaded without dry_run=1", kWithDryRun);
    return;
  }
  const bool watched = (claimed->flags & SKIDPROOF_WATCHED) != 0;
  found.good("claim",
             fmt::format("CPU {} claimed and given back: microcode {:#x}, TSC {:.1f} MHz, "
                         "interrupts off for {} ms at the most, {}",
                         subject.cpu, claimed->microcode,
                         static_cast<double>(claimed->tsc_khz) / 1000, claimed->limit_us / 1000,
                         watched ? "watched by another CPU" : "watched by nobody"));
  report.state = DriverState::kClaimed;
  if (!entering) return;
  if (report.bad()) {
    found.note("ring 0", "not entered while something is bad", "mend what is bad, from the top");
    return;
  }
  direct::DirectOptions options;
  options.cpu = subject.cpu;
  options.host = subject.who;
  options.cpuid = subject.cpuid;
  options.who = who;
  options.dry_run = true;
  enter_all(*device, options, *claimed, next, found, report);
}

std::string next_step(const DriverReport& report, int cpu) {
  const std::string load =
      report.installed ? "modprobe skidproof" : "insmod pebs/direct/driver/skidproof.ko";
  if (report.bad()) return "mend what is bad, from the top; then again: skidproof doctor --driver";
  switch (report.state) {
    case DriverState::kAbsent:
      return "make -C pebs/direct/driver, then again: skidproof doctor --driver";
    case DriverState::kBuilt:
      return load + " dry_run=1, then again: skidproof doctor --driver";
    case DriverState::kDry:
    case DriverState::kClaimed:
      return "skidproof doctor --driver --enter";
    case DriverState::kEntered:
      return fmt::format(
          "rmmod skidproof; {}, then: skidproof run --machine direct --cpu {} --until read", load,
          cpu);
    case DriverState::kLoaded:
      return fmt::format("skidproof run --machine direct --cpu {} --until read", cpu);
  }
  return {};
}

Expected<DriverSubject> subject_in(const std::string& folder, int cpu) {
  DriverSubject subject;
  subject.tree = {folder};
  subject.cpu = cpu;
  if (!subject.tree.has("/proc/cpuinfo")) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("there is no {}/proc/cpuinfo", folder),
                "a folder with proc, sys and lib/modules of another computer, and cpuid.txt, which "
                "`cpuid -1 -r` prints");
  }
  const auto leaves = read_cpuid(folder + "/cpuid.txt");
  subject.cpuid = [leaves](uint32_t leaf, uint32_t subleaf) {
    const auto found = leaves.find({leaf, subleaf});
    return found == leaves.end() ? Machine::CpuidResult{} : found->second;
  };
  const auto says = [&](const char* key) { return of_cpuinfo(subject.tree, cpu, key); };
  Identity& who = subject.who;
  who.vendor = says("vendor_id");
  who.brand = says("model name");
  who.family = number(says("cpu family"));
  who.model = number(says("model"));
  who.stepping = number(says("stepping"));
  who.microcode = number(says("microcode"));
  const arch::CoreType core = core_type_of(subject.cpuid);
  who.core_type = letter_of(core);
  if ((subject.cpuid(1, 0).ecx >> 31 & 1) != 0) {
    who.hypervisor = signature(subject.cpuid(0x40000000, 0));
  }
  if (who.vendor == "GenuineIntel" && who.family <= 0xFF) {
    who.microarch =
        arch::identify(static_cast<uint8_t>(who.family), static_cast<uint8_t>(who.model),
                       static_cast<uint8_t>(who.stepping), core);
  }
  if (const std::string module = folder + "/skidproof.ko"; std::filesystem::exists(module)) {
    subject.module = module;
  }
  return subject;
}

}  // namespace skidproof::cli
