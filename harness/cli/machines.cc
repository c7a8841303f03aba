// The factory of machines and the probe for direct access.
#include "harness/cli/machines.h"

#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "harness/cli/kernel_files.h"
#include "harness/cli/pmu_users.h"
#include "harness/cli/tapes.h"
#include "harness/cli/text.h"
#include "harness/cli/verb.h"
#include "harness/run/control_groups.h"
#include "harness/run/native_identity.h"
#include "harness/run/native_machine.h"
#include "harness/run/pinning.h"
#include "pebs/capabilities.h"
#include "pebs/direct/claim.h"
#include "pebs/direct/device.h"
#include "pebs/direct/direct_machine.h"
#include "pebs/engines/model_machine.h"
#include "pebs/model/defects.h"

namespace skidproof::cli {
namespace {

constexpr std::string_view kModelPrefix = "model:";
constexpr std::string_view kTapePrefix = "tape:";

// A fresh processor for every test.
class ModelSource final : public check::MachineSource {
 public:
  ModelSource(const arch::Microarch& microarch, engines::ModelOptions options)
      : microarch_(microarch), options_(std::move(options)) {}

  Expected<std::shared_ptr<Machine>> machine(const check::MachineRequest& request) override {
    engines::ModelOptions options = options_;
    options.seed = request.seed;
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
  Expected<std::shared_ptr<Machine>> machine(const check::MachineRequest&) override {
    return machine_;
  }

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

// The processor of the row that the model plays; nullopt: the row's first as it is.
Expected<std::optional<arch::Part>> part_of(const arch::Microarch& microarch,
                                            const MachineOptions& options) {
  if (options.part.empty() && options.microcode.empty()) return std::nullopt;
  arch::Part part = first_part(microarch);
  if (!options.part.empty()) {
    part = SKIDPROOF_TRY(arch::parse_part(options.part));
    std::vector<std::string> names;
    bool known = false;
    for (const arch::CpuModel& cpu : microarch.models) {
      known |= cpu.family == part.family && cpu.model == part.model;
      names.push_back(fmt::format("{:02X}_{:02X}", cpu.family, cpu.model));
    }
    names.erase(std::unique(names.begin(), names.end()), names.end());
    if (!known) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} is no part of {}", name_of(part), microarch.title),
                  "its parts are " + joined(names));
    }
    part.microcode = arch::minimum_microcode(microarch, static_cast<uint8_t>(part.family),
                                             static_cast<uint8_t>(part.model),
                                             static_cast<uint8_t>(part.stepping));
  }
  if (options.microcode.empty()) return part;
  const char* const end = options.microcode.data() + options.microcode.size();
  const char* begin = options.microcode.data();
  if (options.microcode.starts_with("0x")) begin += 2;
  if (const auto [stop, error] = std::from_chars(begin, end, part.microcode, 16);
      error != std::errc() || stop != end) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' is no microcode revision", options.microcode),
        "it is a hexadecimal number of 32 bits, such as 0x28; 0 is one that cannot be read");
  }
  return part;
}

const arch::Microarch* row_of(const arch::Part& part, const arch::Microarch& row) {
  const arch::Microarch* found =
      arch::identify(static_cast<uint8_t>(part.family), static_cast<uint8_t>(part.model),
                     static_cast<uint8_t>(part.stepping), row.core);
  return found != nullptr ? found : &row;
}

// The row with the events of --perfmon; none where that is not given.
Expected<RenewedRow> renewed_by(const MachineOptions& options, const arch::Microarch* row) {
  if (options.perfmon.empty()) return RenewedRow();
  if (row == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                "no row covers this processor, so it has no event list", "leave --perfmon out");
  }
  return SKIDPROOF_TRY(PerfmonFolder::open(options.perfmon)).renewed(*row);
}

Expected<OpenMachine> open_model(std::string_view form, const MachineOptions& options,
                                 uint64_t seed) {
  std::string rough = options.rough;
  if (const size_t tilde = form.find('~'); tilde != std::string_view::npos) {
    if (rough.empty()) rough = form.substr(tilde + 1);
    form = form.substr(0, tilde);
  }
  constexpr std::string_view kDrawn = "rough=";  // as a drawn one's name says it
  if (rough.starts_with(kDrawn)) rough.erase(0, kDrawn.size());
  std::vector<std::string> parts = split(form.substr(kModelPrefix.size()), '+');
  const arch::Microarch* microarch = SKIDPROOF_TRY(arch::find_microarch(parts.front()));
  parts.erase(parts.begin());
  parts.insert(parts.end(), options.defects.begin(), options.defects.end());
  for (const std::string& id : parts) SKIDPROOF_TRY(model::parse_defect(id));

  const engines::ModelOptions model{.sibling_thread = options.sibling_thread,
                                    .defects = parts,
                                    .rough = rough,
                                    .seed = seed,
                                    .part = SKIDPROOF_TRY(part_of(*microarch, options))};
  // Some parts of a row have an event list of their own.
  if (model.part) microarch = row_of(*model.part, *microarch);
  RenewedRow renewed = SKIDPROOF_TRY(renewed_by(options, microarch));
  if (renewed.row != nullptr) microarch = renewed.row.get();
  const auto first = SKIDPROOF_TRY(engines::make_model_machine(*microarch, model));
  return OpenMachine{.renewed = std::move(renewed),
                     .identity = first->identity(),
                     .source = std::make_unique<ModelSource>(*microarch, model),
                     .defects = std::move(parts),
                     .rough = rough};
}

Expected<OpenMachine> open_native() {
  std::shared_ptr<Machine> machine = SKIDPROOF_TRY(NativeMachine::create());
  Identity identity = machine->identity();
  return OpenMachine{.identity = std::move(identity),
                     .source = std::make_unique<NativeSource>(std::move(machine))};
}

// The processor that the driver claimed; this thread stays on it, so that CPUID is its own.
class DirectSource final : public check::MachineSource {
 public:
  DirectSource(PinGuard pinned, std::shared_ptr<Machine> machine)
      : pinned_(std::move(pinned)), machine_(std::move(machine)) {}
  Expected<std::shared_ptr<Machine>> machine(const check::MachineRequest&) override {
    return machine_;
  }

 private:
  const PinGuard pinned_;
  const std::shared_ptr<Machine> machine_;
};

Expected<int> cpu_for(const CpuWish& wish) {
  const auto cpus = SKIDPROOF_TRY(host_cpus());
  return SKIDPROOF_TRY(choose_cpu(cpus, wish)).number;
}

Expected<OpenMachine> open_direct(const MachineOptions& wanted) {
  const int cpu = SKIDPROOF_TRY(cpu_for(wanted.cpu));
  PinGuard pinned = SKIDPROOF_TRY(PinGuard::pin(cpu));
  direct::DirectOptions options;
  options.cpu = cpu;
  options.sibling_cpu = sibling_of(cpu);
  options.host = native_identity(cpu);
  RenewedRow renewed = SKIDPROOF_TRY(renewed_by(wanted, options.host.microarch));
  if (renewed.row != nullptr) options.host.microarch = renewed.row.get();
  options.cpuid = host_cpuid;
  options.who = [](const skidproof_claim& claim) { return holder_of(claim, {}); };
  auto device = SKIDPROOF_TRY(direct::open_device());
  std::shared_ptr<Machine> machine =
      SKIDPROOF_TRY(direct::make_direct_machine(std::move(device), options));
  OpenMachine open;
  open.renewed = std::move(renewed);
  open.identity = machine->identity();
  if (open.identity.microarch != nullptr) {
    const Capabilities found = SKIDPROOF_TRY(read_capabilities(*machine));
    for (const std::string& word : differences(found, *open.identity.microarch)) {
      open.identity.capabilities.push_back("differs: " + word);
      open.notes.push_back(fmt::format("the processor differs from the row {}: {}",
                                       open.identity.microarch->title, word));
    }
  }
  open.source = std::make_unique<DirectSource>(std::move(pinned), std::move(machine));
  return open;
}

// A tape names its row, not which variant of it the part was, and no list.
Expected<OpenMachine> open_tape(std::string_view form, const MachineOptions& options) {
  std::shared_ptr<const tape::TapeReader> reader =
      SKIDPROOF_TRY(tape::TapeReader::open(std::string(form.substr(kTapePrefix.size()))));
  const tape::RunFacts& facts = reader->header().facts;
  const auto flags = std::find(facts.command.begin(), facts.command.end(), "--");
  const bool had_list = std::any_of(facts.command.begin(), flags, [](const std::string& word) {
    return word == "--perfmon" || word.starts_with("--perfmon=");
  });
  if (had_list != !options.perfmon.empty()) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' was recorded with{} --perfmon", reader->name(), had_list ? "" : "out"),
        had_list ? "give the same event list again" : "leave it out");
  }
  Identity identity = reader->header().identity;
  if (identity.microarch != nullptr && identity.family <= 0xFF) {
    identity.microarch = row_of({.family = identity.family,
                                 .model = identity.model,
                                 .stepping = identity.stepping,
                                 .microcode = identity.microcode},
                                *identity.microarch);
  }
  RenewedRow renewed = SKIDPROOF_TRY(renewed_by(options, identity.microarch));
  if (renewed.row != nullptr) identity.microarch = renewed.row.get();
  return OpenMachine{
      .renewed = std::move(renewed),
      .identity = identity,
      .source = std::make_unique<TapeSource>(reader, identity),
      .defects = facts.defects,
      .rough = facts.rough,
      .why = fmt::format("replays {}: run {} of {}, recorded on {}", reader->name(), facts.run,
                         facts.started, facts.host.empty() ? "?" : facts.host),
      .tape = reader};
}

tl::unexpected<Error> direct_not_available(const std::vector<Obstacle>& obstacles) {
  std::string message = "this computer cannot be the direct machine";
  for (const Obstacle& obstacle : obstacles) {
    message += fmt::format("\n- {}\n  mend: {}", obstacle.what, obstacle.mend);
  }
  return fail(ErrorCode::kNotAvailable, message,
              "what works here: --machine model:<microarch>; see also skidproof doctor");
}

}  // namespace

arch::Part first_part(const arch::Microarch& microarch) {
  const arch::CpuModel& first = microarch.models.front();
  return {.family = first.family,
          .model = first.model,
          .stepping = static_cast<unsigned>(std::max<int>(first.stepping, 0)),
          .microcode = first.minimum_microcode};
}

std::vector<Obstacle> direct_obstacles(const CpuWish& wish) {
  const auto cpu = cpu_for(wish);
  if (!cpu) return {{cpu.error().message, cpu.error().advice}};
  std::vector<Obstacle> obstacles;
  {
    const auto pinned = PinGuard::pin(*cpu);  // CPUID is to be its own
    if (!pinned) return {{pinned.error().message, pinned.error().advice}};
    obstacles = processor_obstacles(native_identity(*cpu), *cpu, host_cpuid);
  }
  const bool driver = ::access(kDevice, F_OK) == 0;
  if (!driver) obstacles.push_back(driver_missing(driver_file()));
  if (!has_capabilities()) {
    obstacles.push_back(obstacle_of(direct::words_of(SKIDPROOF_NO_RAW_IO)));
  } else if (driver) {
    // The last word is the driver's: it tries the counters, and knows who holds them.
    if (const auto machine = open_direct({.cpu = wish}); !machine) {
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
  names.push_back(fmt::format("{}FILE", kTapePrefix));
  return names;
}

Expected<OpenMachine> open_machine(const MachineOptions& options, uint64_t seed) {
  const std::string_view name = options.name;
  const bool model = name.starts_with(kModelPrefix), tape = name.starts_with(kTapePrefix);
  if (!model && !tape && name != "auto" && name != "direct" && name != "native") {
    const std::vector<std::string> names = machine_names();
    const std::vector<std::string_view> known(names.begin(), names.end());
    return fail(ErrorCode::kInvalidArgument, fmt::format("there is no machine '{}'", name),
                near_or_all(name, known));
  }
  if (!options.cpu.any() && name != "direct" && name != "auto") {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--cpu and --core choose among this computer's processors for `direct`; "
                    "'{}' is not that",
                    name),
        "use --machine direct with them");
  }
  if (model) return open_model(name, options, seed);
  if (!options.defects.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("defects are of models; '{}' is not one", name),
                "use --machine model:<microarch> with --defect");
  }
  if (!options.part.empty() || !options.microcode.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a model can play another part; '{}' is what it is", name),
                "use --machine model:<microarch> with --part and --microcode");
  }
  if (!options.rough.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("models are made rough; '{}' is not one", name),
                "silicon is as untidy as it is; use --machine model:<microarch> with --rough");
  }
  if (tape) return open_tape(name, options);
  if (name == "native" && !options.perfmon.empty()) {
    return fail(ErrorCode::kInvalidArgument, "native has no PMU, and counts no events",
                "leave --perfmon out");
  }
  if (name == "native") return open_native();

  const std::vector<Obstacle> obstacles = direct_obstacles(options.cpu);
  if (obstacles.empty()) return open_direct(options);
  if (name == "direct" || !options.cpu.any()) return direct_not_available(obstacles);
  OpenMachine machine = SKIDPROOF_TRY(open_model("model:sandy-bridge", options, seed));
  machine.why = fmt::format("direct does not work here ({}), so this is the model of Sandy Bridge",
                            obstacles.front().what);
  return machine;
}

std::string microcode_note(const Identity& who) {
  if (who.microarch == nullptr || who.microcode == 0 || who.family > 0xFF) return {};
  const uint32_t least =
      arch::minimum_microcode(*who.microarch, static_cast<uint8_t>(who.family),
                              static_cast<uint8_t>(who.model), static_cast<uint8_t>(who.stepping));
  if (who.microcode >= least) return {};
  return fmt::format(
      "microcode {:#x} is older than {:#x}, before which PEBS of {} is not to be "
      "trusted [{}]",
      who.microcode, least, processor_words(who), who.microarch->microcode_source);
}

namespace {

// What Linux knows of it by DMI: vendor, version and date.
std::string bios() {
  std::string words;
  for (const char* part : {"bios_vendor", "bios_version", "bios_date"}) {
    const std::string word = read_line(fmt::format("/sys/class/dmi/id/{}", part));
    if (!word.empty()) words += (words.empty() ? "" : " ") + word;
  }
  return words;
}

}  // namespace

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
  if (who.microarch != nullptr) {
    row.microarch = who.microarch->name;
    row.event_list = who.microarch->events.list();
  }
  row.event_list_file = machine.renewed.file;
  row.hypervisor = who.hypervisor;
  row.core_type = who.core_type;
  row.pmu = who.pmu;
  row.sibling_thread = who.sibling_thread;
  row.capabilities = who.capabilities;
  if (const std::string old = microcode_note(who); !old.empty()) row.capabilities.push_back(old);
  row.defects = machine.defects;
  utsname os{};
  if (machine.tape != nullptr) {
    row.host = machine.tape->header().facts.host;
    row.os = machine.tape->header().facts.os;
    row.tape = machine.tape->name();
  } else if (::uname(&os) == 0) {
    row.host = os.nodename;
    row.os = fmt::format("{} {}", os.sysname, os.release);
    row.bios = bios();
    if (who.provenance == Provenance::kSilicon) {
      if (const auto quota = ControlGroups::of_this_process().cpu_quota())
        row.capabilities.push_back(fmt::format("CPU quota {:.3g}", quota->cpus()));
    }
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
  if (who.provenance == Provenance::kSilicon) {
    return machine.tape == nullptr ? who.brand : "a tape of " + who.brand;
  }
  const std::string_view title = who.microarch == nullptr ? "?" : who.microarch->title;
  std::string kind = who.provenance == Provenance::kModel ? "MODEL" : "virtual lab";
  if (!machine.rough.empty()) kind = "rough " + kind;
  if (machine.tape != nullptr) kind = "tape of a " + kind;
  if (machine.defects.empty()) return fmt::format("{} of {}, not silicon", kind, title);
  return fmt::format("{} of a broken {} ({}), not silicon", kind, title, joined(machine.defects));
}

}  // namespace skidproof::cli
