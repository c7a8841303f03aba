// `run`: the suites against a machine.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/check/check.h"
#include "harness/cli/machine_options.h"
#include "harness/cli/machines.h"
#include "harness/cli/measured_shape.h"
#include "harness/cli/result_files.h"
#include "harness/cli/resume.h"
#include "harness/cli/run_printer.h"
#include "harness/cli/shard.h"
#include "harness/cli/suite_run.h"
#include "harness/cli/tapes.h"
#include "harness/cli/text.h"
#include "harness/cli/verb.h"

namespace skidproof::cli {
namespace {

struct RunOptions {
  MachineOptions machine;
  Destination destination;
  // Empty: the tape's where one is replayed, else the least.
  std::optional<std::string> filter = {};
  std::optional<uint64_t> seed = {};
  std::optional<unsigned> repeat = {};
  std::string until = check::name_of(check::kStages.back());  // the last stage that is run
  std::string tape;                                           // file to record to; empty: none
  std::string shape_file;                                     // of `characterize`; empty: none
  MachineShape shape = {};                                    // … what it says
  double deadline_s = 0;
  std::optional<Shard> shard = {};  // nullopt: the whole run
  bool verbose = false;
  bool all = false;    // also what stands on broken ground
  bool errata = true;  // a listed erratum explains a failure
  std::string resume;  // folder of the run to go on with; the other options are its own
};

constexpr char kRunExamples[] =
    "Examples:\n"
    "  skidproof run --machine model:sandy-bridge\n"
    "  skidproof run --machine model:ivy-bridge --no-sibling --filter 'Pebs*:-*/PMC3*' --seed 7\n"
    "  skidproof run --machine model:sandy-bridge --defect ID        (skidproof list defects)\n"
    "  skidproof run --machine model:sandy-bridge --part 06_2D_7     another part of the row\n"
    "  skidproof run --machine direct --until read                   registers are read, nothing "
    "more\n"
    "  skidproof run --resume skidproof-out/20240501T123456Z-3fa9    after a hang or a reboot\n"
    "  skidproof run --shard 2/4 --out night/2                       the second of four parts, see "
    "skidproof merge\n"
    "  skidproof run --json - | jq 'select(.status == \"fail\")'\n"
    "  skidproof run --machine direct --tape night.tape              (and anywhere else: --machine "
    "tape:night.tape)\n"
    "  skidproof run -- --gtest_shuffle --gtest_fail_fast            (GoogleTest's own flags)";

std::vector<std::string> suites() {
  std::set<std::string> names;
  for (const check::TestInfo& info : check::tests()) names.insert(info.suite);
  return {names.begin(), names.end()};
}

std::vector<std::string> stage_names() {
  std::vector<std::string> names;
  names.reserve(check::kStages.size());
  for (check::Stage stage : check::kStages) names.emplace_back(check::name_of(stage));
  return names;
}

check::Stage last_stage(const RunOptions& options) {
  for (check::Stage stage : check::kStages) {
    if (options.until == check::name_of(stage)) return stage;
  }
  return check::kStages.back();
}

int complain_of_filter(const RunOptions& options) {
  const std::string stages = last_stage(options) == check::kStages.back()
                                 ? ""
                                 : fmt::format(" up to the stage `{}`", options.until);
  return complain(kExitUsage,
                  fmt::format("the filter '{}' matches no test{}", *options.filter, stages),
                  fmt::format("see `skidproof list tests`; the suites are: {}", joined(suites())));
}

// What the user must type to see one result again, but for the filter.
std::string again(const RunOptions& options) {
  std::string command = fmt::format("skidproof run --machine {}", options.machine.name);
  if (!options.machine.sibling_thread) command += " --no-sibling";
  if (options.machine.cpu.cpu) command += fmt::format(" --cpu {}", *options.machine.cpu.cpu);
  if (!options.machine.cpu.core.empty()) command += " --core " + options.machine.cpu.core;
  for (const std::string& defect : options.machine.defects) command += " --defect " + defect;
  if (!options.machine.rough.empty()) command += " --rough " + options.machine.rough;
  if (!options.machine.part.empty()) command += " --part " + options.machine.part;
  if (!options.machine.microcode.empty()) command += " --microcode " + options.machine.microcode;
  if (!options.machine.perfmon.empty()) command += " --perfmon " + options.machine.perfmon;
  if (!options.errata) command += " --no-errata";
  if (!options.shape_file.empty()) command += " --shape " + options.shape_file;
  return command;
}

// --gtest_help and --gtest_list_tests print and run nothing.
bool only_prints(const Invocation& invocation) {
  for (const std::string& flag : invocation.passed_on) {
    if (flag.starts_with("--gtest_list_tests") || flag == "--gtest_help" || flag == "--help") {
      return true;
    }
  }
  return false;
}

// Opens the rows' files and the machine, in an order that spares the user a folder for a mistyped name.
int not_available(const RunOptions& options, const Invocation& invocation, const Error& error) {
  const int exit = complain(error);
  const Destination& to = options.destination;
  if (exit != kExitNothingRan || (to.out.empty() && to.json.empty())) return exit;
  auto files = ResultFiles::open(to, new_run_id(), "results.jsonl");
  if (!files) return complain(kExitHarnessFailed, files.error());
  (*files)->set_machine(options.machine.name);
  auto header = run_row((*files)->run_id(), invocation.command, options.seed.value_or(1),
                        options.machine.name);
  if (options.shard) {  // nothing is planned without a machine
    header.shard = {
        .index = options.shard->index, .of = options.shard->of, .plan = "", .all = options.all};
  }
  if (auto written = (*files)->write(header); !written) {
    return complain(kExitHarnessFailed, written.error());
  }
  (*files)->end(exit, error.message);
  return exit;
}

// What a replay takes from its tape, unless it is narrowed. Errors: kInvalidArgument where more is asked of it.
Expected<void> settle(RunOptions& options, const OpenMachine& machine) {
  if (machine.tape == nullptr) {
    if (!options.shape_file.empty())
      options.shape = SKIDPROOF_TRY(measured_shape(options.shape_file, machine));
    options.filter = options.filter.value_or("*");
    options.seed = options.seed.value_or(1);
    options.repeat = options.repeat.value_or(1);
    return {};
  }
  const tape::RunFacts& facts = machine.tape->header().facts;
  const auto refuse = [&](const std::string& what) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' {}", options.machine.name, what),
                "a tape holds one run; --filter narrows it");
  };
  if (!options.tape.empty()) return refuse("is a tape already: copy it");
  if (!options.shape_file.empty()) return refuse("has the sizes that it was recorded with");
  if (options.seed.value_or(facts.seed) != facts.seed) {
    return refuse(fmt::format("was recorded with --seed {}", facts.seed));
  }
  if (options.repeat.value_or(1) > facts.repeat) {
    return refuse(fmt::format("was recorded with --repeat {}", facts.repeat));
  }
  options.filter = options.filter.value_or(facts.filter);
  options.seed = facts.seed;
  options.repeat = options.repeat.value_or(facts.repeat);
  options.all |= facts.all;
  options.errata &= facts.errata;
  options.shape = SKIDPROOF_TRY(shape_of_text(facts.shape));
  return {};
}

// What keeps the run on tape; nullptr where nothing is to. A replay is on a tape already.
Expected<std::unique_ptr<RecordingSource>> open_recording(const RunOptions& options,
                                                          const OpenMachine& machine,
                                                          const Invocation& invocation,
                                                          const std::string& run_id) {
  if (machine.tape != nullptr) return nullptr;
  const results::RunRow run =
      run_row(run_id, invocation.command, *options.seed, machine.identity.name);
  const results::MachineRow row = machine_row(machine);
  auto recording = std::make_unique<RecordingSource>(
      *machine.source, tape::TapeHeader{.identity = machine.identity,
                                        .facts = {.version = run.version,
                                                  .run = run.id,
                                                  .started = run.started,
                                                  .command = run.command,
                                                  .seed = *options.seed,
                                                  .repeat = *options.repeat,
                                                  .filter = *options.filter,
                                                  .host = row.host,
                                                  .os = row.os,
                                                  .defects = machine.defects,
                                                  .rough = machine.rough,
                                                  .all = options.all,
                                                  .errata = options.errata,
                                                  .shape = text_of(options.shape)}});
  if (!options.tape.empty()) SKIDPROOF_CHECK(recording->record_to(options.tape));
  return recording;
}

// The tapes of what fails go to the output folder; where there is none, and no tape is wanted, nothing is kept.
void keep_failures(std::unique_ptr<RecordingSource>& recording, const RunOptions& options,
                   const ResultFiles& files) {
  if (recording == nullptr) return;
  if (!files.folder().empty()) {
    recording->keep_failures_in((std::filesystem::path(files.folder()) / "tapes").string());
  } else if (options.tape.empty()) {
    recording.reset();
  }
}

// Every test that is registered, once for each repetition, in the order in which GoogleTest runs them.
struct Plan {
  std::map<std::string, uint64_t> positions;  // of each test in its repetition, by id
  std::vector<std::string> units;  // names, those of the second repetition behind the first
};
Plan plan_of(unsigned repeat) {
  Plan plan;
  std::vector<std::string> once;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      once.push_back(fmt::format("{}.{}", suite.name(), suite.GetTestInfo(j)->name()));
      plan.positions[once.back()] = once.size() - 1;
    }
  }
  plan.units.reserve(once.size() * repeat);
  for (unsigned repetition = 0; repetition < repeat; ++repetition) {
    plan.units.insert(plan.units.end(), once.begin(), once.end());
  }
  return plan;
}

uint64_t own_units(const Shard& shard, const Plan& plan) {
  uint64_t own = 0;
  for (uint64_t position = 0; position < plan.units.size(); ++position) own += shard.has(position);
  return own;
}

// Runs what is registered, and shows what came of it.
int run_and_show(const RunOptions& options, const OpenMachine& machine, RecordingSource* recording,
                 ResultFiles& files, RunPrinter& printer, const Interrupted* before,
                 const Plan& plan) {
  std::function<bool(const check::TestInfo&, unsigned)> elsewhere;
  if (options.shard) {
    elsewhere = [&plan, shard = *options.shard](const check::TestInfo& info, unsigned repetition) {
      return !shard.has(repetition * plan.positions.size() + plan.positions.at(info.id()));
    };
  }
  const Ending end = run_suites({.machine = machine,
                                 .files = files,
                                 .observer = &printer,
                                 .recording = recording,
                                 .seed = *options.seed,
                                 .all = options.all,
                                 .errata = options.errata,
                                 .shape = options.shape,
                                 .deadline_s = options.deadline_s,
                                 .before = before,
                                 .elsewhere = elsewhere});
  printer.summary(files, end.exit, end.reason,
                  recording == nullptr ? std::vector<std::string>() : recording->kept());
  if (end.exit == kExitUsage) complain(end.exit, end.reason, "see what stands after --");
  return end.exit;
}

// Registers what the filter picks. 0, or the exit code with which the run ends before it began.
int prepare(const RunOptions& options, const Invocation& invocation) {
  const size_t picked = check::register_with_googletest([&](const check::TestInfo& info) {
    return check::matches_filter(*options.filter, info.id()) && info.stage <= last_stage(options);
  });
  if (picked == 0) return complain_of_filter(options);
  if (options.shard && !invocation.passed_on.empty()) {
    return complain(kExitUsage, "--shard does not go together with GoogleTest's flags",
                    "they change what runs, and in which order: --filter and --repeat do not");
  }
  return start_googletest(invocation, *options.repeat);
}

int run(RunOptions options, const Invocation& invocation) {
  auto machine = open_machine(options.machine, options.seed.value_or(1));
  if (!machine) return not_available(options, invocation, machine.error());
  if (auto settled = settle(options, *machine); !settled) return complain(settled.error());
  if (const int bad = prepare(options, invocation); bad != 0) return bad;
  if (only_prints(invocation)) return RUN_ALL_TESTS();

  const Plan plan = plan_of(*options.repeat);
  const std::string run_id = new_run_id();
  auto recording = open_recording(options, *machine, invocation, run_id);
  if (!recording) return complain(kExitHarnessFailed, recording.error());
  auto files = ResultFiles::open(options.destination, run_id, "results.jsonl");
  if (!files) return complain(kExitHarnessFailed, files.error());
  keep_failures(*recording, options, **files);
  (*files)->set_machine(machine->identity.name);
  auto header = run_row(run_id, invocation.command, *options.seed, machine->identity.name);
  if (machine->tape != nullptr) header.tape = machine->tape->name();
  header.shard = shard_field(options.shard, plan.units, options.all);
  for (const results::Row& row : {results::Row(header), results::Row(machine_row(*machine))}) {
    if (auto written = (*files)->write(row); !written) {
      (*files)->end(kExitHarnessFailed, "a row could not be written");
      return complain(kExitHarnessFailed, written.error());
    }
  }
  const bool quiet_stdout = options.destination.json == "-";
  std::vector<std::string> notes = machine->notes;
  if (std::string old = microcode_note(machine->identity); !old.empty()) notes.push_back(old);
  for (const std::string& note : notes) fmt::print(stderr, "skidproof: note: {}\n", note);
  RunPrinter printer(quiet_stdout ? stderr : stdout, *machine, again(options), options.verbose);
  printer.header(**files, *options.seed);
  if (options.shard) {
    const uint64_t own = own_units(*options.shard, plan);
    const Text text(quiet_stdout ? stderr : stdout);
    text.line(in_words(*options.shard, own, plan.units.size(), "test"));
    if (own == 0) {
      const std::string why = nothing_to_do(*options.shard, count_of(plan.units.size(), "test"));
      text.line(why);
      (*files)->end(kExitHeld, why);
      return kExitHeld;
    }
    text.line();
  }
  return run_and_show(options, *machine, recording->get(), **files, printer, nullptr, plan);
}

void declare(Command verb, RunOptions& options) {
  verb.option(
          "--machine", options.machine.name,
          "auto, direct, native, model:<microarch> or tape:FILE (skidproof list machines); auto "
          "is direct where that works and model:sandy-bridge elsewhere")
      .named("NAME")
      .shows_default();
  verb.option("--filter", options.filter,
              "which tests: POSITIVE:POSITIVE-NEGATIVE:NEGATIVE with * and ? (default: all)")
      .named("GLOB");
  verb.option("--seed", options.seed,
              "reproduces a run: same seed, same programs and data (default: 1)")
      .named("N");
  verb.option("--repeat", options.repeat,
              "run everything N times, the i-th with seed + i (default: 1)")
      .named("N")
      .within(1u, 1'000'000u);
  verb.option("--tape", options.tape,
              "record everything that crosses the machine's interface to FILE; --machine tape:FILE "
              "replays it")
      .named("FILE");
  add_model_and_cpu(verb, options.machine);
  add_perfmon(verb, options.machine.perfmon);
  verb.option("--until", options.until,
              "only up to this stage of the bring-up: " + joined(stage_names()))
      .named("STAGE")
      .one_of(stage_names());
  verb.flag("--all", options.all,
            "also what stands on broken ground: without it a run ends with the first stage in "
            "which something failed");
  verb.flag("!--no-errata", options.errata,
            "a failure is one, whatever erratum is listed for this processor");
  verb.option("--shape", options.shape_file,
              "what `skidproof characterize` measured of this processor: programs that are to miss "
              "a cache or a TLB go by it, else by what CPUID tells")
      .named("FILE");
  verb.option("--deadline", options.deadline_s, "stop after this many seconds")
      .named("SECONDS")
      .within(0.001, 1e7);
  verb.option("--out", options.destination.out,
              "folder for results.jsonl and the tapes of what fails (default: skidproof-out/<run "
              "id>, unless --json FILE)")
      .named("DIR");
  add_json(verb, options.destination.json);
  add_shard(verb, options.shard);
  verb.flag("-v,--verbose", options.verbose, "a line for every test");
}

// The options and flags of the run whose row this is.
Expected<RunOptions> options_of(const results::RunRow& row, Invocation& invocation) {
  const auto not_a_run =
      fail(ErrorCode::kInvalidArgument,
           fmt::format("the rows are not of `skidproof run`, but of: {}", joined(row.command, " ")),
           "only `run` can be resumed");
  if (row.command.size() < 2 || row.command[1] != "run") return not_a_run;
  const auto flags = std::find(row.command.begin(), row.command.end(), "--");
  std::vector<std::string> own(row.command.begin() + 2, flags);
  if (flags != row.command.end()) invocation.passed_on.assign(flags + 1, row.command.end());
  RunOptions options;
  CommandLine parsing("skidproof", "");
  declare(parsing, options);
  if (auto parsed = parsing.parse(std::move(own)); !parsed) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the run's own command cannot be read: {}", parsed.error().message),
                "go on with the version of skidproof that began it: " + row.version);
  }
  return options;
}

// Writes what became of the test or the measurement that was running, and says so.
Expected<void> name_the_lost(Interrupted& before, ResultFiles& files, RunPrinter& printer) {
  if (before.lost_measurement) {
    SKIDPROOF_CHECK(files.write(
        results::UnmeasuredRow{.machine = before.run.machine,
                               .microarch = before.machine ? before.machine->microarch : "",
                               .name = *before.lost_measurement,
                               .reason = before.left_out.at(*before.lost_measurement)}));
  }
  if (!before.lost) return {};
  const results::TestRow row = lost_row(*before.lost);
  SKIDPROOF_CHECK(files.write(row));
  for (const check::TestInfo& info : check::tests()) {
    if (info.id() == row.id) printer.started(info);
  }
  printer.finished(row);
  before.tests.push_back(row);
  return {};
}

int resume(const RunOptions& given, Invocation invocation) {
  auto before = read_interrupted(given.resume);
  if (!before) return complain(before.error());
  auto options = options_of(before->run, invocation);
  if (!options) return complain(options.error());
  options->verbose |= given.verbose;
  auto machine = open_machine(options->machine, options->seed.value_or(1));
  if (!machine) return complain(machine.error());
  if (auto settled = settle(*options, *machine); !settled) return complain(settled.error());
  if (const auto why = other_machine(*before, machine_row(*machine)); !why.empty()) {
    return complain(kExitUsage,
                    fmt::format("the run in '{}' cannot go on here: {}", given.resume, why),
                    "results of two processors do not belong in one run: start a new one");
  }
  if (const int bad = prepare(*options, invocation); bad != 0) return bad;
  const Plan plan = plan_of(*options->repeat);
  if (before->run.shard && before->run.shard->plan != plan_hash(plan.units)) {
    return complain(
        kExitUsage,
        fmt::format("the shard in '{}' was planned by a version with other tests", given.resume),
        "go on with that version, or begin all shards anew");
  }

  results::StatusCounts counts;
  for (const results::TestRow& row : before->tests) ++counts[row.status];
  if (auto mended = mend(*before); !mended) return complain(mended.error());
  auto files = ResultFiles::append_to(before->path, before->run.id, counts);
  if (!files) return complain(kExitHarnessFailed, files.error());
  (*files)->set_machine(machine->identity.name);
  RunPrinter printer(stdout, *machine, again(*options), options->verbose);
  printer.header(**files, *options->seed);
  printer.resumed(*before);
  auto written = before->machine ? Expected<void>() : (*files)->write(machine_row(*machine));
  if (written) written = name_the_lost(*before, **files, printer);
  if (!written) return complain(kExitHarnessFailed, written.error());
  // The tape of what ran before is whole, and stays as it is.
  if (!options->tape.empty()) options->tape += ".resumed";
  invocation.command = before->run.command;  // the run's own, by which its tape is replayed
  auto recording = open_recording(*options, *machine, invocation, before->run.id);
  if (!recording) return complain(kExitHarnessFailed, recording.error());
  keep_failures(*recording, *options, **files);
  return run_and_show(*options, *machine, recording->get(), **files, printer, &*before, plan);
}

}  // namespace

void add_run(Command program, Invocation& invocation) {
  auto options = std::make_shared<RunOptions>();
  Command verb = program.verb("run", "run the suites against a machine");
  verb.epilogue(kRunExamples);
  declare(verb, *options);
  const Option resumes =
      verb.option("--resume", options->resume,
                  "go on with the run in this folder, which a hang or a reboot cut short, with "
                  "its own options; the test that was running is named and left out")
          .named("DIR");
  verb.excludes_all_but(resumes, {"--verbose"});
  verb.when_named([options, &invocation] {
    invocation.action = [options, &invocation] {
      return options->resume.empty() ? run(*options, invocation) : resume(*options, invocation);
    };
  });
}

}  // namespace skidproof::cli
