// `characterize`: what a machine's memory, stores and branches really do, by the TSC and, where there is a PMU, by counts.
#include "harness/characterize/characterize.h"

#include <fmt/core.h>

#include <atomic>
#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/cli/characterize_text.h"
#include "harness/cli/machine_options.h"
#include "harness/cli/machines.h"
#include "harness/cli/python.h"
#include "harness/cli/result_files.h"
#include "harness/cli/supervisor.h"
#include "harness/cli/text.h"
#include "harness/cli/verb.h"
#include "harness/run/native_machine.h"

namespace skidproof::cli {
namespace {

struct CharacterizeCommand {
  Destination destination;
  bool quick = false;
  bool thorough = false;
  bool verbose = false;
  std::vector<std::string> sizes;
  MachineOptions machine = {.name = "native"};
  std::vector<std::string> only;
  std::vector<std::string> compare;  // measured before: machines side by side, nothing is measured
  std::string store;
  unsigned repetitions = 0;
  uint64_t seed = 1;
};

results::Json json_of(const MeasurementParameters& parameters) {
  results::Json json = results::Json::object();
  for (const auto& [key, value] : parameters) {
    std::visit([&json, &name = key](const auto& typed) { json[name] = typed; }, value);
  }
  return json;
}

results::MeasurementRow row_of(const Measurement& measured, const Identity& who) {
  results::MeasurementRow row;
  row.machine = who.name;
  if (who.microarch != nullptr) row.microarch = who.microarch->name;
  row.name = measured.name;
  row.value = measured.value;
  row.unit = measured.unit;
  row.statistic = measured.statistic;
  row.n = measured.n;
  row.low = measured.low;
  row.high = measured.high;
  row.interval = measured.interval;
  row.parameters = json_of(measured.parameters);
  row.noise = {measured.noise.involuntary_switches, measured.noise.migrations, measured.noise.smi,
               measured.noise.steal_s};
  if (!measured.counts) return row;
  if (!measured.counts->each.empty()) row.counts = measured.counts->each;
  row.counts_agree = measured.counts->agree;
  row.counts_differ = measured.counts->differ;
  return row;
}

// What this machine lacks is no failure of the harness: of a model's engine, instructions that it does not know.
bool harness_failed(const std::vector<Error>& problems, Provenance provenance) {
  for (const Error& problem : problems) {
    const ErrorCode code = problem.code;
    if (code == ErrorCode::kExecution && provenance == Provenance::kModel) continue;
    if (code != ErrorCode::kNotAvailable && code != ErrorCode::kUnsupported &&
        code != ErrorCode::kNoMemory && code != ErrorCode::kPermission) {
      return true;
    }
  }
  return false;
}

Ending ending_of_measuring(const Expected<Characterization>& result, const std::string& interrupted,
                           const std::optional<Error>& write_error, const ResultFiles& files,
                           Provenance provenance) {
  if (write_error) {
    const std::string failure = files.failure();
    return {kExitHarnessFailed, failure.empty() ? write_error->message : failure};
  }
  if (!interrupted.empty()) return {kExitHarnessFailed, interrupted};
  if (!result) return {kExitHarnessFailed, result.error().message};
  if (result->measurements.empty()) return {kExitNothingRan, "nothing could be measured"};
  if (harness_failed(result->problems, provenance))
    return {kExitHarnessFailed, "a measurement failed"};
  return {};
}

// "48K", "64M", "4096".
Expected<std::vector<uint64_t>> bytes_of(const std::vector<std::string>& sizes) {
  std::vector<uint64_t> bytes;
  for (const std::string& size : sizes) {
    uint64_t number = 0;
    const char* end = size.data() + size.size();
    const auto [rest, error] = std::from_chars(size.data(), end, number);
    const std::string_view suffix(rest, static_cast<size_t>(end - rest));
    const unsigned shift = suffix == "K" ? 10 : suffix == "M" ? 20 : suffix == "G" ? 30 : 0;
    if (error != std::errc{} || (shift == 0 && !suffix.empty()) || number == 0 ||
        number > UINT64_MAX >> shift) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is no size", size),
                  "say bytes, or 48K, 4M, 1G");
    }
    bytes.push_back(number << shift);
  }
  return bytes;
}

// What is measured, and what holds it.
struct Measured {
  OpenMachine open;
  std::shared_ptr<Machine> machine;
  std::optional<int> cpu;  // of this computer, where it is known
};

// The native machine, or one that was asked for by its name: what has a time of its own, be it silicon's or not.
Expected<Measured> open_to_measure(const CharacterizeCommand& options) {
  MachineOptions wanted = options.machine;
  if (wanted.name == "auto" || wanted.name.starts_with("tape:")) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' cannot be characterized: {}", wanted.name,
                            wanted.name == "auto"
                                ? "a model's times are not silicon's, so what is measured is chosen"
                                : "a tape has the times of what it recorded, and no others"),
                "say --machine native, direct or model:<microarch>");
  }
  Measured measured;
  const bool native = wanted.name == "native";
  measured.cpu = wanted.cpu.cpu;
  if (native) wanted.cpu.cpu.reset();
  measured.open = SKIDPROOF_TRY(open_machine(wanted, options.seed));
  if (native) {
    auto machine = SKIDPROOF_TRY(NativeMachine::create({.cpu = measured.cpu}));
    measured.cpu = machine->cpu();
    measured.machine = std::move(machine);
    measured.open.identity = measured.machine->identity();
  } else {
    measured.machine = SKIDPROOF_TRY(measured.open.source->machine({.seed = options.seed}));
  }
  return measured;
}

// Above all, whose times these are.
void print_whose(const Text& text, const OpenMachine& machine) {
  if (machine.identity.provenance == Provenance::kSilicon) return;
  const bool model = machine.identity.provenance == Provenance::kModel;
  text.line();
  text.line(
      text.paint(Paint::kYellow,
                 fmt::format("{}: its clock is {}, and a tick of it is taken for a nanosecond.",
                             in_words(machine), model ? "the model's own" : "the emulated PC's")));
}

int measure(const CharacterizeCommand& options, const OpenMachine& open, Machine& machine,
            ResultFiles& files, const Text& text) {
  std::atomic<bool> cancel = false;
  std::optional<Error> write_error;
  Progress progress("characterize");
  CharacterizeOptions what;
  what.effort = options.quick      ? Effort::kQuick
                : options.thorough ? Effort::kThorough
                                   : Effort::kDefault;
  what.parts = options.only;
  what.latency_bytes = what.bandwidth_bytes = *bytes_of(options.sizes);
  what.seed = options.seed;
  what.repetitions = options.repetitions;
  what.any_time = true;  // it was asked for by its name
  what.cancel = &cancel;
  what.progress = [&progress](double fraction, std::string_view label) {
    progress.update(static_cast<size_t>(fraction * 100), 100, label);
  };
  what.on_measurement = [&](const Measurement& measured) {
    if (write_error) return;
    if (auto written = files.write(row_of(measured, machine.identity())); !written) {
      write_error = written.error();
      cancel = true;
    }
  };
  what.on_unclear = [&](const Unclear& unclear) {
    if (write_error) return;
    results::UnmeasuredRow row{
        .machine = machine.identity().name, .name = unclear.name, .reason = unclear.reason};
    if (machine.identity().microarch != nullptr) row.microarch = machine.identity().microarch->name;
    if (auto written = files.write(row); !written) {
      write_error = written.error();
      cancel = true;
    }
  };
  Supervisor supervisor(
      {}, [&cancel](const std::string&, bool) { cancel = true; },
      [&files](const std::string& reason) { files.end(kExitHarnessFailed, reason); });
  const auto result = characterize(machine, what);
  progress.clear();
  const Ending end = ending_of_measuring(result, supervisor.reason(), write_error, files,
                                         machine.identity().provenance);
  files.end(end.exit, end.reason);
  if (!result) return complain(result.error());
  print_whose(text, open);
  options.verbose ? print_everything(text, *result) : print_sheet(text, *result);
  print_counts(text, *result);
  if (!result->measurements.empty()) print_noise(text, *result);
  for (const Error& problem : grouped(result->problems)) complain(0, problem);
  if (write_error) complain(end.exit, *write_error);
  text.line();
  text.line(
      fmt::format("{} in {}{}{}", count_of(result->measurements.size(), "measurement"),
                  duration_text(files.seconds()),
                  options.verbose || result->measurements.empty() ? "" : "; all of them: --verbose",
                  end.exit == kExitHeld ? "" : "; " + end.reason));
  return end.exit;
}

Expected<std::unique_ptr<ResultFiles>> open_results(const CharacterizeCommand& options,
                                                    const Invocation& invocation,
                                                    const OpenMachine& machine) {
  auto files =
      SKIDPROOF_TRY(ResultFiles::open(options.destination, new_run_id(), "measurements.jsonl"));
  const std::string& name = machine.identity.name;
  files->set_machine(name);
  SKIDPROOF_CHECK(files->write(run_row(files->run_id(), invocation.command, options.seed, name)));
  SKIDPROOF_CHECK(files->write(machine_row(machine)));
  return files;
}

int compare_machines(const CharacterizeCommand& options) {
  std::vector<std::string> arguments = {"--compare"};
  arguments.insert(arguments.end(), options.compare.begin(), options.compare.end());
  const std::pair<const char*, const std::string&> others[] = {{"--out", options.destination.out},
                                                               {"--json", options.destination.json},
                                                               {"--store", options.store}};
  for (const auto& [name, value] : others) {
    if (!value.empty()) arguments.insert(arguments.end(), {name, value});
  }
  return become_python("characterize", arguments);
}

int characterize_verb(const CharacterizeCommand& options, const Invocation& invocation) {
  if (!options.compare.empty()) return compare_machines(options);
  const auto parts = characterization_parts();
  for (const std::string& part : options.only) {
    if (std::find(parts.begin(), parts.end(), part) != parts.end()) continue;
    return complain(kExitUsage, fmt::format("there is no part '{}'", part),
                    near_or_all(part, parts));
  }
  if (const auto sizes = bytes_of(options.sizes); !sizes)
    return complain(kExitUsage, sizes.error());
  auto measured = open_to_measure(options);
  if (!measured) return complain(measured.error());
  const OpenMachine& open = measured->open;
  const Identity& who = open.identity;
  const HeldSignals held;
  auto files = open_results(options, invocation, open);
  if (!files) return complain(kExitHarnessFailed, files.error());

  const Text text(options.destination.json == "-" ? stderr : stdout);
  text.line(fmt::format("skidproof {}  {}  {}{}", version(), text.paint(Paint::kBold, who.name),
                        in_words(open),
                        measured->cpu ? fmt::format("  CPU {}", *measured->cpu) : ""));
  if (!who.hypervisor.empty()) text.line("  under the hypervisor " + who.hypervisor);
  for (const std::string& note : open.notes) text.line("  " + note);
  for (const std::string& path : (*files)->paths()) text.line("  rows go to " + path);
  return measure(options, open, *measured->machine, **files, text);
}

}  // namespace

void add_characterize(Command program, Invocation& invocation) {
  auto options = std::make_shared<CharacterizeCommand>();
  std::vector<std::string> parts;
  for (std::string_view part : characterization_parts()) parts.emplace_back(part);
  Command verb = program.verb(
      "characterize",
      "measure a processor: caches and memory, stores, branches, the core, cores together");
  verb.epilogue(
      "Examples:\n"
      "  skidproof characterize --quick\n"
      "  skidproof characterize --only latency --cpu 3 --json latency.jsonl\n"
      "  skidproof characterize --machine direct                          by PMU counts, too\n"
      "  skidproof characterize --compare lab7/measurements.jsonl lab8/measurements.jsonl");
  verb.flag("--quick", options->quick,
            "fewer sizes and wider intervals: under 10 s instead of a minute");
  verb.flag("--thorough", options->thorough, "narrower intervals: some minutes");
  verb.flag("--verbose", options->verbose, "tables of all measurements instead of the sheet");
  verb.option("--machine", options->machine.name,
              "native (this CPU, by its time stamp counter), direct (by PMU counts, too), or "
              "model:<microarch>, whose times are not silicon's")
      .named("NAME")
      .shows_default();
  add_model_and_cpu(verb, options->machine,
                    "logical CPU to measure (default: of `native` the last one that this process "
                    "may use, of `direct` the highest, on a hybrid part of the P-cores)");
  verb.option("--only", options->only, "one part; may be given again: " + joined(parts))
      .named("PART")
      .many();
  verb.option("--size", options->sizes,
              "working set of latency (a multiple of 64) and bandwidth (a power of two), such as "
              "48K; may be given again")
      .named("BYTES")
      .many();
  verb.option("--repetitions", options->repetitions,
              "samples behind each median (default: until its interval is narrow)")
      .named("N")
      .within(1u, 1000u);
  verb.option("--seed", options->seed, "of the random cycles and branch directions")
      .named("N")
      .shows_default();
  verb.option("--out", options->destination.out,
              "folder for measurements.jsonl (default: skidproof-out/<run id>, unless --json FILE)")
      .named("DIR");
  add_json(verb, options->destination.json);
  const Option compare =
      verb.option("--compare", options->compare,
                  "lay machines side by side, here and as comparison.html: results, folders of "
                  "them or run:ID of a store; nothing is measured")
          .named("FILE")
          .many();
  verb.option("--store", options->store,
              "where run:ID is looked up (default: $SKIDPROOF_STORE, then skidproof.db)")
      .named("STORE")
      .needs(compare);
  verb.excludes_all_but(compare, {"--out", "--json", "--store"});
  verb.when_named([options, &invocation] {
    invocation.action = [options, &invocation] { return characterize_verb(*options, invocation); };
  });
}

}  // namespace skidproof::cli
