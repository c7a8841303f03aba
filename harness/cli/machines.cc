// The factory of machines and the probe for direct access.
#include "harness/cli/machines.h"

#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "harness/cli/text.h"
#include "harness/cli/verb.h"
#include "harness/run/native_identity.h"
#include "harness/run/native_machine.h"
#include "harness/run/pinning.h"
#include "pebs/direct/device.h"
#include "pebs/direct/direct_machine.h"
#include "pebs/engines/model_machine.h"
#include "pebs/model/defects.h"

namespace skidproof::cli {
namespace {

constexpr std::string_view kModelPrefix = "model:";
constexpr unsigned kCapSysRawio = 17;  // linux/capability.h

// A fresh processor for every test.
class ModelSource final : public check::MachineSource {
 public:
  ModelSource(const arch::Microarch& microarch, engines::ModelOptions options)
      : microarch_(microarch), options_(std::move(options)) {}

  Expected<std::shared_ptr<Machine>> machine(uint64_t seed) override {
    engines::ModelOptions options = options_;
    options.seed = seed;
    return std::shared_ptr<Machine>(
        SKIDPROOF_TRY(engines::make_model_machine(microarch_, options)));
  }

 private:
  const arch::Microarch& microarch_;
  const engines::ModelOptions options_;
};

// The one CPU that there is.
class NativeSource final : public check::MachineSource {
 public:
  explicit NativeSource(std::shared_ptr<Machine> machine) : machine_(std::move(machine)) {}
  Expected<std::shared_ptr<Machine>> machine(uint64_t) override { return machine_; }

 private:
  const std::shared_ptr<Machine> machine_;
};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

Expected<OpenMachine> open_model(std::string_view form, const MachineOptions& options,
                                 uint64_t seed) {
  std::vector<std::string> parts = split(form.substr(kModelPrefix.size()), '+');
  const arch::Microarch* microarch = SKIDPROOF_TRY(arch::find_microarch(parts.front()));
  parts.erase(parts.begin());
  parts.insert(parts.end(), options.defects.begin(), options.defects.end());
  for (const std::string& id : parts) SKIDPROOF_TRY(model::find_defect(id));

  const engines::ModelOptions model{
      .sibling_thread = options.sibling_thread, .defects = parts, .seed = seed};
  const auto first = SKIDPROOF_TRY(engines::make_model_machine(*microarch, model));
  return OpenMachine{.identity = first->identity(),
                     .source = std::make_unique<ModelSource>(*microarch, model),
                     .defects = std::move(parts)};
}

Expected<OpenMachine> open_native() {
  std::shared_ptr<Machine> machine = SKIDPROOF_TRY(NativeMachine::create());
  Identity identity = machine->identity();
  return OpenMachine{.identity = std::move(identity),
                     .source = std::make_unique<NativeSource>(std::move(machine)),
                     .defects = {}};
}

// The processor that the driver claimed; this thread stays on it, so that CPUID is its own.
class DirectSource final : public check::MachineSource {
 public:
  DirectSource(PinGuard pinned, std::shared_ptr<Machine> machine)
      : pinned_(std::move(pinned)), machine_(std::move(machine)) {}
  Expected<std::shared_ptr<Machine>> machine(uint64_t) override { return machine_; }

 private:
  const PinGuard pinned_;
  const std::shared_ptr<Machine> machine_;
};

Expected<OpenMachine> open_direct() {
  const std::vector<int> allowed = SKIDPROOF_TRY(allowed_cpus());
  if (allowed.empty()) return fail(ErrorCode::kInternal, "no CPU is allowed to this process");
  // The highest, since the lowest takes most interrupts.
  const int cpu = allowed.back();
  PinGuard pinned = SKIDPROOF_TRY(PinGuard::pin(cpu));
  direct::DirectOptions options;
  options.cpu = cpu;
  options.host = native_identity(cpu);
  options.cpuid = host_cpuid;
  auto device = SKIDPROOF_TRY(direct::open_device());
  std::shared_ptr<Machine> machine =
      SKIDPROOF_TRY(direct::make_direct_machine(std::move(device), options));
  Identity identity = machine->identity();
  return OpenMachine{
      .identity = std::move(identity),
      .source = std::make_unique<DirectSource>(std::move(pinned), std::move(machine)),
      .defects = {}};
}

tl::unexpected<Error> direct_not_available(const std::vector<Obstacle>& obstacles) {
  std::string message = "this computer cannot be the direct machine";
  for (const Obstacle& obstacle : obstacles) {
    message += fmt::format("\n- {}\n  mend: {}", obstacle.what, obstacle.mend);
  }
  return fail(ErrorCode::kNotAvailable, message,
              "what works here: --machine model:<microarch>; see also skidproof doctor");
}

bool has_raw_io() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("CapEff:")) {
      return (std::stoull(line.substr(7), nullptr, 16) >> kCapSysRawio & 1) != 0;
    }
  }
  return ::geteuid() == 0;
}

std::string processor(const Identity& who) {
  return fmt::format("family {} model {:#x} stepping {}", who.family, who.model, who.stepping);
}

// What the processor itself, or the hypervisor in front of it, does not offer.
void add_processor_obstacles(const Identity& who, std::vector<Obstacle>& obstacles) {
  if (who.vendor != "GenuineIntel") {
    obstacles.push_back({fmt::format("PEBS is Intel's; this processor is by {}", who.vendor),
                         "use a machine with an Intel processor"});
    return;
  }
  const bool perfmon = (host_cpuid(0xA, 0).eax & 0xFF) != 0;  // version, CPUID.0AH:EAX[7:0]
  if (!perfmon && !who.hypervisor.empty()) {
    obstacles.push_back(
        {fmt::format("the hypervisor ({}) shows no PMU: CPUID.0AH is zero", who.hypervisor),
         "let the hypervisor pass the PMU through (KVM: `-cpu host,pmu=on`), or run on bare "
         "metal"});
  } else if (!perfmon) {
    obstacles.push_back({"CPUID.0AH reports no architectural performance monitoring",
                         "enable performance monitoring in the firmware setup"});
  }
  const bool debug_store = (host_cpuid(1, 0).edx >> 21 & 1) != 0;  // DS
  if (perfmon && !debug_store) {
    obstacles.push_back({"CPUID.01H:EDX[21] reports no debug store, so no PEBS",
                         "run on bare metal, or on a hypervisor that offers PEBS to its guests"});
  }
  if (who.microarch == nullptr) {
    obstacles.push_back({fmt::format("no row of facts covers {} ({})", processor(who), who.brand),
                         "use one of `skidproof list microarchs`"});
  }
}

}  // namespace

DriverFile driver_file() {
  namespace fs = std::filesystem;
  DriverFile found;
  utsname os{};
  ::uname(&os);
  found.headers = fmt::format("/lib/modules/{}/build", os.release);
  found.headers_present = fs::exists(found.headers);
  std::ifstream list(fmt::format("/lib/modules/{}/modules.dep", os.release));
  for (std::string line; std::getline(list, line);) {
    if (line.find("/skidproof.ko") == std::string::npos) continue;
    found.installed = fmt::format("/lib/modules/{}/{}", os.release, line.substr(0, line.find(':')));
  }
  found.modules_possible = fs::exists("/proc/modules");
  // An EFI variable: four bytes of attributes, then the value.
  std::ifstream boot("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
                     std::ios::binary);
  char variable[5] = {};
  found.secure_boot = boot.read(variable, sizeof variable) && variable[4] == 1;
  return found;
}

Obstacle driver_missing() {
  const DriverFile file = driver_file();
  constexpr char kAbsent[] = "there is no /dev/skidproof: ";
  const std::string sign =
      file.secure_boot ? "; Secure Boot is on: sign it with a key of yours (kmodsign, `mokutil "
                         "--import`), or turn that off in the firmware"
                       : "";
  if (!file.modules_possible) {
    return {std::string(kAbsent) + "this kernel takes no modules (CONFIG_MODULES)",
            "boot a distribution kernel"};
  }
  if (!file.installed.empty()) {
    return {std::string(kAbsent) + "the driver is installed, but not loaded",
            "modprobe skidproof" + sign};
  }
  if (!file.headers_present) {
    return {fmt::format("{}the driver is not built, and {} is missing", kAbsent, file.headers),
            "install the headers of the running kernel (apt-get install linux-headers-$(uname "
            "-r)), then: make -C pebs/direct/driver && insmod pebs/direct/driver/skidproof.ko" +
                sign};
  }
  return {std::string(kAbsent) + "the driver is not built",
          "make -C pebs/direct/driver && insmod pebs/direct/driver/skidproof.ko" + sign};
}

std::vector<Obstacle> direct_obstacles() {
  std::vector<Obstacle> obstacles;
  add_processor_obstacles(native_identity(0), obstacles);
  const bool driver = ::access(kDevice, F_OK) == 0;
  if (!driver) obstacles.push_back(driver_missing());
  if (!has_raw_io()) {
    obstacles.push_back({"this process lacks CAP_SYS_RAWIO", "run as root (sudo skidproof ...)"});
  } else if (driver) {
    // The last word is the driver's: it tries the counters, and knows who holds them.
    if (const auto machine = open_direct(); !machine) {
      obstacles.push_back({machine.error().message, machine.error().advice});
    }
  }
  return obstacles;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names = {"auto", "direct", "native"};
  for (const arch::Microarch* microarch : arch::microarchs()) {
    names.push_back(fmt::format("{}{}", kModelPrefix, microarch->name));
  }
  return names;
}

Expected<OpenMachine> open_machine(const MachineOptions& options, uint64_t seed) {
  const std::string_view name = options.name;
  const bool model = name.starts_with(kModelPrefix);
  if (!model && name != "auto" && name != "direct" && name != "native") {
    const std::vector<std::string> names = machine_names();
    const std::vector<std::string_view> known(names.begin(), names.end());
    return fail(ErrorCode::kInvalidArgument, fmt::format("there is no machine '{}'", name),
                near_or_all(name, known));
  }
  if (model) return open_model(name, options, seed);
  if (!options.defects.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("defects are of models; '{}' is not one", name),
                "use --machine model:<microarch> with --defect");
  }
  if (name == "native") return open_native();

  const std::vector<Obstacle> obstacles = direct_obstacles();
  if (obstacles.empty()) return open_direct();
  if (name == "direct") return direct_not_available(obstacles);
  OpenMachine machine = SKIDPROOF_TRY(open_model("model:sandy-bridge", options, seed));
  machine.why = fmt::format("direct does not work here ({}), so this is the model of Sandy Bridge",
                            obstacles.front().what);
  return machine;
}

results::MachineRow machine_row(const OpenMachine& machine) {
  const Identity& who = machine.identity;
  results::MachineRow row;
  row.machine = who.name;
  row.provenance = static_cast<results::RowProvenance>(who.provenance);
  row.vendor = who.vendor;
  row.brand = who.brand;
  row.family = who.family;
  row.model = who.model;
  row.stepping = who.stepping;
  if (who.microcode != 0) row.microcode = who.microcode;
  if (who.microarch != nullptr) row.microarch = who.microarch->name;
  row.hypervisor = who.hypervisor;
  row.core_type = who.core_type;
  row.pmu = who.pmu;
  row.sibling_thread = who.sibling_thread;
  row.capabilities = who.capabilities;
  row.defects = machine.defects;
  utsname os{};
  if (::uname(&os) == 0) {
    row.host = os.nodename;
    row.os = fmt::format("{} {}", os.sysname, os.release);
  }
  return row;
}

static_assert(static_cast<int>(Provenance::kSilicon) ==
                  static_cast<int>(results::RowProvenance::kSilicon) &&
              static_cast<int>(Provenance::kModel) ==
                  static_cast<int>(results::RowProvenance::kModel) &&
              static_cast<int>(Provenance::kVirtualLab) ==
                  static_cast<int>(results::RowProvenance::kVirtualLab));

std::string in_words(const OpenMachine& machine) {
  const Identity& who = machine.identity;
  if (who.provenance == Provenance::kSilicon) return who.brand;
  const std::string_view title = who.microarch == nullptr ? "?" : who.microarch->title;
  const std::string kind = who.provenance == Provenance::kModel ? "MODEL" : "virtual lab";
  if (machine.defects.empty()) return fmt::format("{} of {}, not silicon", kind, title);
  return fmt::format("{} of a broken {} ({}), not silicon", kind, title, joined(machine.defects));
}

}  // namespace skidproof::cli
