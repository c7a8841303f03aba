// `run`: the suites against a machine.
#include <fmt/core.h>

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "harness/check/check.h"
#include "harness/check/outcome.h"
#include "harness/cli/machines.h"
#include "harness/cli/result_files.h"
#include "harness/cli/run_printer.h"
#include "harness/cli/supervisor.h"
#include "harness/cli/text.h"
#include "harness/cli/verb.h"

namespace skidproof::cli {
namespace {

struct RunOptions {
  MachineOptions machine;
  Destination destination;
  std::string filter = "*";
  uint64_t seed = 1;
  unsigned repeat = 1;
  double deadline_s = 0;
  bool verbose = false;
};

constexpr char kExamples[] =
    "Examples:\n"
    "  skidproof run --machine model:sandy-bridge\n"
    "  skidproof run --machine model:ivy-bridge --no-sibling --filter 'Pebs*:-*/PMC3*' --seed 7\n"
    "  skidproof run --machine model:sandy-bridge --defect ID        (skidproof list defects)\n"
    "  skidproof run --json - | jq 'select(.status == \"fail\")'\n"
    "  skidproof run -- --gtest_shuffle --gtest_fail_fast            (GoogleTest's own flags)";

std::vector<std::string> suites() {
  std::set<std::string> names;
  for (const check::TestInfo& info : check::tests()) names.insert(info.suite);
  return {names.begin(), names.end()};
}

int complain_of_filter(const std::string& filter) {
  return complain(kExitUsage, fmt::format("the filter '{}' matches no test", filter),
                  fmt::format("see `skidproof list tests`; the suites are: {}", joined(suites())));
}

// What the user must type to see one result again, but for the filter.
std::string again(const RunOptions& options) {
  std::string command = fmt::format("skidproof run --machine {}", options.machine.name);
  if (!options.machine.sibling_thread) command += " --no-sibling";
  for (const std::string& defect : options.machine.defects) command += " --defect " + defect;
  return command;
}

// Hands GoogleTest its own flags. What it does not know is the user's mistake.
int start_googletest(const Invocation& invocation, unsigned repeat) {
  std::vector<std::string> words = {"skidproof"};
  words.insert(words.end(), invocation.passed_on.begin(), invocation.passed_on.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int argc = static_cast<int>(words.size());
  ::testing::GTEST_FLAG(repeat) = static_cast<int>(repeat);
  ::testing::InitGoogleTest(&argc, argv.data());
  if (argc == 1) return kExitHeld;
  return complain(kExitUsage, fmt::format("'{}' is not a GoogleTest flag", argv[1]),
                  "after -- stand flags such as --gtest_shuffle; options of `run` stand before it");
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
  if (auto written = (*files)->write(
          run_row((*files)->run_id(), invocation.command, options.seed, options.machine.name));
      !written) {
    return complain(kExitHarnessFailed, written.error());
  }
  (*files)->end(exit, error.message);
  return exit;
}

// Why the run ended, and with which exit code.
struct Ending {
  int exit = kExitHeld;
  std::string reason = "completed";
};

Ending ending(const check::Listener& listener, const Supervisor& supervisor,
              const ResultFiles& files) {
  if (!listener.sink_errors().empty()) {
    const std::string failure = files.failure();
    return {kExitHarnessFailed, failure.empty() ? "a row could not be written" : failure};
  }
  if (const std::string reason = supervisor.reason(); !reason.empty()) {
    return {kExitHarnessFailed, reason};
  }
  const results::StatusCounts& counts = listener.counts();
  if (counts.total() == 0) return {kExitUsage, "the filter matched no test"};
  return {check::exit_code(counts), "completed"};
}

int run_suites(const RunOptions& options, const OpenMachine& machine, ResultFiles& files,
               RunPrinter& printer) {
  check::environment() = {.machines = machine.source.get(), .seed = options.seed};
  const Identity& who = machine.identity;
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  const std::string microarch(who.microarch == nullptr ? "" : who.microarch->name);
  auto* listener = new check::Listener(  // owned by GoogleTest
      who.name, microarch, [&files](const results::Row& row) { return files.write(row); },
      &printer);
  listeners.Append(listener);

  std::optional<std::chrono::milliseconds> deadline;
  if (options.deadline_s > 0) {
    deadline = std::chrono::milliseconds(static_cast<int64_t>(options.deadline_s * 1000));
  }
  const auto ask = [](const std::string& reason, bool late) {
    check::request_stop(
        late ? results::SkipCategory::kDeadline : results::SkipCategory::kInterrupted, reason);
  };
  Supervisor supervisor(deadline, ask, [&](const std::string& reason) {
    files.end(kExitHarnessFailed, reason);
    complain(kExitHarnessFailed, reason + "; a test did not end in time",
             "the rows before it are whole; the last test-start row names the test");
  });
  [[maybe_unused]] const int ours_decide = RUN_ALL_TESTS();
  const Ending end = ending(*listener, supervisor, files);
  files.end(end.exit, end.reason);
  printer.summary(files, end.exit, end.reason);
  if (!listener->sink_errors().empty()) complain(end.exit, listener->sink_errors().front());
  if (end.exit == kExitUsage) complain(end.exit, end.reason, "see what stands after --");
  return end.exit;
}

int run(const RunOptions& options, const Invocation& invocation) {
  auto machine = open_machine(options.machine, options.seed);
  if (!machine) return not_available(options, invocation, machine.error());

  const size_t picked = check::register_with_googletest([&](const check::TestInfo& info) {
    return check::matches_filter(options.filter, info.id());
  });
  if (picked == 0) return complain_of_filter(options.filter);
  if (const int bad = start_googletest(invocation, options.repeat); bad != 0) return bad;
  if (only_prints(invocation)) return RUN_ALL_TESTS();

  auto files = ResultFiles::open(options.destination, new_run_id(), "results.jsonl");
  if (!files) return complain(kExitHarnessFailed, files.error());
  (*files)->set_machine(machine->identity.name);
  const auto header =
      run_row((*files)->run_id(), invocation.command, options.seed, machine->identity.name);
  for (const results::Row& row : {results::Row(header), results::Row(machine_row(*machine))}) {
    if (auto written = (*files)->write(row); !written) {
      (*files)->end(kExitHarnessFailed, "a row could not be written");
      return complain(kExitHarnessFailed, written.error());
    }
  }
  const bool quiet_stdout = options.destination.json == "-";
  RunPrinter printer(quiet_stdout ? stderr : stdout, *machine, again(options), options.verbose);
  printer.header(**files, options.seed);
  return run_suites(options, *machine, **files, printer);
}

}  // namespace

void add_run(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* verb = app.add_subcommand("run", "run the suites against a machine");
  verb->footer(kExamples);
  verb->add_option("--machine", options->machine.name,
                   "auto, direct, native or model:<microarch> (skidproof list machines); auto is "
                   "direct where that works and model:sandy-bridge elsewhere")
      ->type_name("NAME")
      ->capture_default_str();
  verb->add_option("--filter", options->filter,
                   "which tests: POSITIVE:POSITIVE-NEGATIVE:NEGATIVE with * and ?")
      ->type_name("GLOB")
      ->capture_default_str();
  verb->add_option("--seed", options->seed, "reproduces a run: same seed, same programs and data")
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--repeat", options->repeat, "run everything N times, the i-th with seed + i")
      ->type_name("N")
      ->check(CLI::Range(1u, 1'000'000u))
      ->capture_default_str();
  verb->add_option("--defect", options->machine.defects,
                   "break the model on purpose; may be given again (skidproof list defects)")
      ->type_name("ID")
      ->take_all();
  verb->add_flag("--sibling,!--no-sibling", options->machine.sibling_thread,
                 "whether a second thread shares the model's core (default: yes)");
  verb->add_option("--deadline", options->deadline_s, "stop after this many seconds")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.001, 1e7));
  verb->add_option("--out", options->destination.out,
                   "folder for results.jsonl (default: skidproof-out/<run id>, unless --json FILE)")
      ->type_name("DIR");
  add_json(*verb, options->destination.json);
  verb->add_flag("-v,--verbose", options->verbose, "a line for every test");
  verb->callback([options, &invocation] {
    invocation.action = [options, &invocation] { return run(*options, invocation); };
  });
}

}  // namespace skidproof::cli
