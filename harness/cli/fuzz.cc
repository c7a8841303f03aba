// `fuzz`: random PMU programmes over random code; what a machine does against what the manual promises.
#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "harness/cli/fuzzing.h"
#include "harness/cli/machines.h"
#include "harness/cli/result_files.h"
#include "harness/cli/shard.h"
#include "harness/cli/text.h"
#include "harness/cli/verb.h"
#include "harness/fuzz/describe.h"
#include "pebs/model/defects.h"

namespace skidproof::cli {
namespace {

struct FuzzOptions {
  Destination destination;
  std::string machine;  // empty: every model
  std::vector<std::string> defects;
  std::string replay;
  double deadline_s = 0;  // 0: not given
  FuzzPlan plan;
};

constexpr double kFallbackDeadline_s = 60;

constexpr char kFuzzExamples[] =
    "Examples:\n"
    "  skidproof fuzz                                    every model for 60 s in all\n"
    "  skidproof fuzz --machine model:sandy-bridge --deadline 10s --seed 7\n"
    "  skidproof fuzz --defect skid-one-too-many         how a broken model is found\n"
    "  skidproof fuzz --cases 100000 --shard 2/8 --out shards/2   a part of it, see skidproof "
    "merge\n"
    "  skidproof fuzz --replay skidproof-out/RUN/fuzz-1.json\n"
    "\n"
    "Exit codes: 0 no violation, 1 a violation, 2 the harness failed, 64 bad usage.";

// Every model, or those that the defects apply to.
Expected<void> choose(FuzzOptions& options) {
  std::vector<const model::Defect*> defects;
  for (const std::string& id : options.defects) {
    defects.push_back(SKIDPROOF_TRY(model::find_defect(id)));
  }
  if (!options.machine.empty()) {
    options.plan.machines = {{.name = options.machine, .defects = options.defects}};
    return {};
  }
  for (const arch::Microarch* microarch : arch::microarchs()) {
    // NetBurst's counters are programmed in another way altogether.
    bool all = microarch->perfmon_version >= 2;
    for (const model::Defect* defect : defects) all &= defect->applies_to(*microarch);
    if (!all) continue;
    options.plan.machines.push_back(
        {.name = fmt::format("model:{}", microarch->name), .defects = options.defects});
  }
  if (!options.plan.machines.empty()) return {};
  return fail(ErrorCode::kInvalidArgument, "these defects apply to no microarch together",
              "skidproof explain <defect> says where it does");
}

// What the rows call the machine, and the machines themselves.
struct Opened {
  std::string name;
  std::vector<OpenMachine> machines;
};
Expected<Opened> open_all(const FuzzPlan& plan) {
  Opened opened;
  for (const MachineOptions& options : plan.machines) {
    opened.machines.push_back(SKIDPROOF_TRY(open_machine(options, plan.seed)));
    const Identity& who = opened.machines.back().identity;
    if (opened.machines.back().tape != nullptr) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("'{}' answers only what was asked when it was recorded", options.name),
          "fuzz the machine itself");
    }
    if (who.pmu && who.microarch != nullptr) continue;
    return fail(ErrorCode::kNotAvailable, fmt::format("{} has no PMU to be fuzzed", who.name),
                "use a model, for example --machine model:sandy-bridge");
  }
  opened.name = opened.machines.size() > 1 ? "model:*" : opened.machines.front().identity.name;
  if (opened.machines.size() > 1) {
    for (const std::string& defect : opened.machines.front().defects) opened.name += "+" + defect;
  }
  return opened;
}

results::FuzzRow row_of(const Opened& opened, const FuzzResult& result) {
  const fuzz::Tally& t = result.tally;
  results::FuzzRow row;
  row.machine = opened.name;
  for (const OpenMachine& machine : opened.machines) {
    row.microarchs.emplace_back(machine.identity.microarch->name);
  }
  row.cases = t.cases;
  row.runs = t.runs;
  row.exact_runs = t.exact_runs;
  row.instructions = t.instructions;
  row.records = t.records;
  row.exact_records = t.exact_records;
  row.writes = t.writes;
  row.refused = t.refused;
  row.interrupts = t.interrupts;
  row.cases_per_s = result.seconds > 0 ? static_cast<double>(t.cases) / result.seconds : 0;
  row.violations = result.violations.size();
  row.held = row.violations == 0 && row.cases > 0;
  row.duration_s = result.seconds;
  return row;
}

Expected<std::string> write_replay(const Destination& destination, const std::string& run_id,
                                   size_t number, const results::Json& document) {
  namespace fs = std::filesystem;
  fs::path folder = destination.out;
  if (folder.empty()) folder = fs::path("skidproof-out") / run_id;
  std::error_code error;
  fs::create_directories(folder, error);
  const std::string path = (folder / fmt::format("fuzz-{}.json", number)).string();
  SKIDPROOF_CHECK(write_document(path, document));
  return path;
}

void print_violation(const Text& text, const fuzz::Case& c, const fuzz::Violation& violation,
                     const std::string& file) {
  const auto microarch = arch::find_microarch(
      c.machine.substr(0, c.machine.find('+')).substr(c.machine.find(':') + 1));
  text.line();
  text.line(fmt::format("{} {} breaks {}: {}", text.paint(Paint::kRed, "VIOLATION"),
                        text.paint(Paint::kBold, c.machine), violation.clause->id,
                        wrap(violation.clause->text, 2)));
  text.line("  expected: " + wrap(violation.expected, 12));
  text.line("  seen:     " + wrap(violation.seen, 12));
  text.line(fmt::format("  programmed{}:", c.sibling_thread ? "" : " (no sibling thread)"));
  if (microarch) {
    for (const std::string& line : fuzz::programme_text(c, **microarch)) text.line("    " + line);
  }
  const auto code = fuzz::code_text(c);
  text.line(fmt::format("  code, {}:", count_of(code.size(), "instruction")));
  for (const std::string& line : code) text.line("    " + line);
  if (!file.empty()) text.line("  again: skidproof fuzz --replay " + file);
}

void print_summary(const Text& text, const results::FuzzRow& row, const FuzzResult& result) {
  if (result.cases_of.size() > 1) {
    Table table({false, true});
    for (const auto& [machine, cases] : result.cases_of) {
      table.row({machine, count_of(cases, "case")});
    }
    table.print(text);
  }
  text.line();
  text.line(fmt::format(
      "{} in {}: {} of {} (of {} compared exactly), {} of {} refused as they must, {}",
      count_of(row.cases, "case"), duration_text(row.duration_s), count_of(row.records, "record"),
      count_of(row.runs, "run"), row.exact_runs, row.refused, count_of(row.writes, "MSR write"),
      count_of(row.interrupts, "interrupt")));
  text.line(fmt::format("{:.0f} cases/s; {}", row.cases_per_s,
                        row.violations == 0
                            ? text.paint(Paint::kGreen, "no violation")
                            : text.paint(Paint::kRed, count_of(row.violations, "violation"))));
  text.line("Every model here is a MODEL, not silicon.");
}

Ending ending_of_fuzzing(const FuzzResult& result) {
  if (!result.violations.empty()) return {kExitPropertyFailed, "a violation"};
  if (!result.interrupted.empty()) return {kExitHarnessFailed, result.interrupted};
  if (!result.problems.empty()) return {kExitHarnessFailed, result.problems.front()};
  if (result.tally.cases == 0) return {kExitHarnessFailed, "no case ran"};
  return {};
}

Expected<std::unique_ptr<ResultFiles>> open_results(const FuzzOptions& options,
                                                    const Invocation& invocation,
                                                    const Opened& opened) {
  auto files = SKIDPROOF_TRY(ResultFiles::open(options.destination, new_run_id(), "fuzz.jsonl"));
  files->set_machine(opened.name);
  auto header = run_row(files->run_id(), invocation.command, options.plan.seed, opened.name);
  // Of cases there are no names; with a deadline nobody knows how many there are.
  if (options.plan.shard) {
    std::vector<std::string> names;
    for (const OpenMachine& machine : opened.machines) names.push_back(machine.identity.name);
    header.shard = shard_field(options.plan.shard, names, false);
    header.shard->planned = options.plan.cases;
  }
  SKIDPROOF_CHECK(files->write(header));
  for (const OpenMachine& machine : opened.machines) {
    SKIDPROOF_CHECK(files->write(machine_row(machine)));
  }
  return files;
}

// Reports a result in words, rows and replay files, and gives the exit code.
int report(const FuzzOptions& options, const Opened& opened, ResultFiles& files,
           const FuzzResult& result, bool write_replays) {
  const Text text(options.destination.json == "-" ? stderr : stdout);
  Ending end = ending_of_fuzzing(result);
  results::FuzzRow row = row_of(opened, result);
  for (size_t i = 0; i < result.violations.size(); ++i) {
    const fuzz::Shrunk& shrunk = result.violations[i].shrunk;
    results::Json document = fuzz::replay_document(shrunk.smallest, shrunk.violation);
    std::string file = options.replay;
    if (write_replays) {
      document["found"] = fuzz::json_of(result.violations[i].found);
      auto path = write_replay(options.destination, files.run_id(), i + 1, document);
      if (!path) {
        complain(kExitHarnessFailed, path.error());
      } else {
        file = *path;
      }
    }
    print_violation(text, shrunk.smallest, shrunk.violation, file);
    if (i > 0) continue;
    document.erase("found");
    row.violation = std::move(document);
    row.violation["file"] = file;
  }
  for (const std::string& problem : result.problems) {
    complain(kExitHarnessFailed, problem, "this is a defect of the fuzzer or the engine");
  }
  const auto written = files.write(row);
  if (!written) end = {kExitHarnessFailed, files.failure()};
  files.end(end.exit, end.reason.empty() ? "a row could not be written" : end.reason);
  print_summary(text, row, result);
  if (!written) return complain(end.exit, written.error());
  if (end.exit == kExitHarnessFailed && result.problems.empty()) {
    return complain(end.exit, end.reason);
  }
  return end.exit;
}

int run_campaign(FuzzOptions& options, const Invocation& invocation) {
  if (auto chosen = choose(options); !chosen) return complain(chosen.error());
  const auto opened = open_all(options.plan);
  if (!opened) return complain(opened.error());
  options.plan.seconds = options.deadline_s > 0   ? options.deadline_s
                         : options.plan.cases > 0 ? 1e7
                                                  : kFallbackDeadline_s;
  auto files = open_results(options, invocation, *opened);
  if (!files) return complain(kExitHarnessFailed, files.error());
  const Text text(options.destination.json == "-" ? stderr : stdout);
  for (const std::string& path : (*files)->paths()) text.line("rows go to " + path);
  Progress progress("fuzzing");
  const FuzzResult result = run_fuzzing(options.plan, [&](const FuzzResult& now) {
    const bool timed = options.plan.cases == 0;
    const auto total = static_cast<size_t>(timed ? std::ceil(options.plan.seconds)
                                                 : static_cast<double>(options.plan.cases));
    const auto done =
        static_cast<size_t>(timed ? now.seconds : static_cast<double>(now.tally.cases));
    progress.update(std::min(done, total), total,
                    fmt::format("{} cases, {:.0f}/s", now.tally.cases,
                                static_cast<double>(now.tally.cases) / now.seconds));
  });
  progress.clear();
  if (options.plan.shard && result.tally.cases == 0 && result.problems.empty() &&
      result.interrupted.empty()) {
    const uint64_t batches = (options.plan.cases + kFuzzBatch - 1) / kFuzzBatch;
    const std::string why =
        options.plan.cases == 0
            ? "nothing to do: no case began before the deadline"
            : nothing_to_do(*options.plan.shard, count_of(batches, "batch", "batches"));
    text.line(why);
    (*files)->end(kExitHeld, why);
    return kExitHeld;
  }
  return report(options, *opened, **files, result, true);
}

Expected<fuzz::Case> read_case(const FuzzOptions& options) {
  std::ifstream stream(options.replay, std::ios::binary);
  if (!stream) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("cannot read '{}'", options.replay),
                "name a file that skidproof fuzz wrote");
  }
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  fuzz::Case c = SKIDPROOF_TRY(fuzz::parse_case(text));
  if (!options.machine.empty()) c.machine = options.machine;
  for (const std::string& defect : options.defects) c.machine += "+" + defect;
  return c;
}

int replay(FuzzOptions& options, const Invocation& invocation) {
  if (options.plan.shard) {
    return complain(kExitUsage, "--replay runs one case: there is nothing to split",
                    "leave --shard out");
  }
  const auto c = read_case(options);
  if (!c) return complain(kExitUsage, c.error());
  options.plan.machines = {
      {.name = c->machine, .sibling_thread = c->sibling_thread, .defects = {}}};
  const auto opened = open_all(options.plan);
  if (!opened) return complain(opened.error());
  auto files = open_results(options, invocation, *opened);
  if (!files) return complain(kExitHarnessFailed, files.error());
  FuzzResult result;
  auto outcome = run_case(*c);
  result.seconds = (*files)->seconds();
  if (!outcome) {
    result.problems.push_back(outcome.error().text());
  } else {
    result.tally = outcome->tally;
    if (outcome->violation) {
      result.violations.push_back(
          {.found = *c, .shrunk = {.smallest = *c, .violation = std::move(*outcome->violation)}});
    }
  }
  return report(options, *opened, **files, result, false);
}

}  // namespace

void add_fuzz(Command program, Invocation& invocation) {
  auto options = std::make_shared<FuzzOptions>();
  FuzzPlan& plan = options->plan;
  plan.jobs = std::max(1u, std::thread::hardware_concurrency());
  Command verb =
      program.verb("fuzz", "random PMU programmes and code; a machine against the manual");
  verb.epilogue(kFuzzExamples);
  verb.option("--machine", options->machine,
              "model:<microarch> (skidproof list machines); default: every model in turn")
      .named("NAME");
  verb.option("--defect", options->defects, "break the models on purpose; may be given again")
      .named("ID")
      .many();
  verb.option("--seed", plan.seed, "same seed, same cases").named("N").shows_default();
  verb.option("--deadline", options->deadline_s,
              "stop after this time: 60s, 5m, 500ms (default: 60s, unless --cases)")
      .named("TIME")
      .in_seconds()
      .within(0.001, 1e7);
  verb.option("--cases", plan.cases, "stop after so many cases")
      .named("N")
      .within(uint64_t{1}, uint64_t{1} << 40);
  verb.option("--jobs", plan.jobs, "processes at a time")
      .named("N")
      .within(1u, 1024u)
      .shows_default();
  verb.option("--replay", options->replay,
              "run the case of this file again, on its machine or on --machine")
      .named("FILE");
  verb.option("--out", options->destination.out,
              "folder for fuzz.jsonl and replay files (default: skidproof-out/<run id>)")
      .named("DIR");
  add_json(verb, options->destination.json);
  add_shard(verb, plan.shard);
  verb.when_named([options, &invocation] {
    invocation.action = [options, &invocation] {
      return options->replay.empty() ? run_campaign(*options, invocation)
                                     : replay(*options, invocation);
    };
  });
}

}  // namespace skidproof::cli
