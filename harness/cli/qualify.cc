// `qualify`: proof that the suites catch every defect and accuse no conforming model.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "harness/cli/machines.h"
#include "harness/cli/qualification.h"
#include "harness/cli/result_files.h"
#include "harness/cli/shard.h"
#include "harness/cli/text.h"
#include "harness/cli/verb.h"
#include "pebs/model/defects.h"

namespace skidproof::cli {
namespace {

struct QualifyOptions {
  Destination destination;
  std::vector<std::string> microarchs;
  std::vector<std::string> defects;
  std::string matrix;
  QualifyPlan plan;
};

constexpr char kQualifyExamples[] =
    "Examples:\n"
    "  skidproof qualify\n"
    "  skidproof qualify --seeds 50                       before a release\n"
    "  skidproof qualify --rough 50                       on machines as untidy as silicon\n"
    "  skidproof qualify --defect ID --microarch sandy-bridge\n"
    "  skidproof qualify --shard 2/8 --out shards/2       a part of it, see skidproof merge\n"
    "  skidproof qualify --all --json -                   every test against every defect";

Expected<void> choose(QualifyOptions& options) {
  for (const std::string& name : options.microarchs) {
    options.plan.microarchs.push_back(SKIDPROOF_TRY(arch::find_microarch(name)));
  }
  if (options.microarchs.empty()) {
    const auto all = arch::microarchs();
    options.plan.microarchs.assign(all.begin(), all.end());
  }
  for (const std::string& id : options.defects) {
    options.plan.defects.push_back(SKIDPROOF_TRY(model::find_defect(id)));
  }
  if (options.defects.empty()) {
    for (const model::Defect& defect : model::defects()) options.plan.defects.push_back(&defect);
  }
  for (const arch::Microarch* microarch : options.plan.microarchs) {
    for (const model::Defect* defect : options.plan.defects) {
      if (defect->applies_to(*microarch)) return {};
    }
  }
  return fail(ErrorCode::kInvalidArgument, "none of these defects applies to these microarchs",
              "skidproof explain <defect> says where it does");
}

std::string machine_name(const QualifyPlan& plan) {
  if (plan.microarchs.size() > 1) return "model:*";
  return fmt::format("model:{}", plan.microarchs.front()->name);
}

Expected<std::unique_ptr<ResultFiles>> open_results(const QualifyOptions& options,
                                                    const Invocation& invocation) {
  auto files =
      SKIDPROOF_TRY(ResultFiles::open(options.destination, new_run_id(), "qualification.jsonl"));
  const std::string name = machine_name(options.plan);
  files->set_machine(name);
  auto header = run_row(files->run_id(), invocation.command, options.plan.seed, name);
  if (options.plan.shard) {
    header.shard = shard_field(options.plan.shard, units_of(options.plan), options.plan.all);
  }
  SKIDPROOF_CHECK(files->write(header));
  for (const arch::Microarch* microarch : options.plan.microarchs) {
    const OpenMachine machine = SKIDPROOF_TRY(
        open_machine({.name = fmt::format("model:{}", microarch->name)}, options.plan.seed));
    SKIDPROOF_CHECK(files->write(machine_row(machine)));
  }
  return files;
}

std::string cell(const Text& text, const Qualification& found, const model::Defect& defect,
                 const arch::Microarch& microarch) {
  unsigned machines = 0, caught = 0, explained = 0;
  for (const DefectVerdict& verdict : found.defects) {
    if (verdict.defect != &defect || verdict.microarch != &microarch) continue;
    ++machines;
    caught += !verdict.caught_by().empty();
    explained += verdict.failed.empty() && !verdict.caught_by().empty();
  }
  if (machines == 0) return text.paint(Paint::kDim, "-");
  if (caught == machines) {
    return text.paint(Paint::kGreen, explained == machines ? "xfail" : "caught");
  }
  if (caught == 0) return text.paint(Paint::kRed, "MISSED");
  return text.paint(Paint::kYellow, fmt::format("{} of {}", caught, machines));
}

std::string catcher(const Qualification& found, const model::Defect& defect) {
  for (const DefectVerdict& verdict : found.defects) {
    if (verdict.defect == &defect && !verdict.caught_by().empty())
      return verdict.caught_by().front();
  }
  return "";
}

void print_matrix(const Text& text, const QualifyPlan& plan, const Qualification& found) {
  Table table;
  std::vector<std::string> head = {"promise", "defect", "clause"};
  for (const arch::Microarch* microarch : plan.microarchs) head.emplace_back(microarch->name);
  head.emplace_back("first caught by");
  for (std::string& word : head) word = text.paint(Paint::kBold, word);
  table.row(std::move(head));
  for (const model::Defect* defect : plan.defects) {
    std::vector<std::string> line = {std::string(name_of(defect->promise)), std::string(defect->id),
                                     std::string(defect->clause->id)};
    for (const arch::Microarch* microarch : plan.microarchs) {
      line.push_back(cell(text, found, *defect, *microarch));
    }
    line.push_back(catcher(found, *defect));
    table.row(std::move(line));
  }
  table.print(text);
}

// One test accuses with every seed alike: its first time stands for the others.
void print_conforming(const Text& text, const Qualification& found) {
  std::map<std::string, std::vector<const results::TestRow*>> by_test;
  for (const results::TestRow& row : found.accusations) by_test[row.id].push_back(&row);
  for (const auto& [id, rows] : by_test) {
    text.line();
    text.line(fmt::format("{} {} accuses conforming models {}; first {}, seed {}",
                          text.paint(Paint::kRed, "FAIL"), text.paint(Paint::kBold, id),
                          count_of(rows.size(), "time"), rows.front()->machine,
                          rows.front()->seed));
    for (const std::string& failure : rows.front()->failures) text.line(indented(failure, 2, 4));
  }
  for (const results::TestRow& row : found.disturbed) {
    text.line(fmt::format("{} {} on {}, seed {}: {}", text.paint(Paint::kYellow, "disturbed"),
                          row.id, row.machine, row.seed, row.reason));
  }
  for (const std::string& problem : found.problems) {
    text.line(fmt::format("{} {}", text.paint(Paint::kRed, "ERROR"), wrap(problem, 6)));
  }
}

void print_summary(const Text& text, const results::QualificationRow& row, const QualifyPlan& plan,
                   const Qualification& found) {
  const auto explained =
      std::count_if(found.defects.begin(), found.defects.end(), [](const DefectVerdict& verdict) {
        return verdict.failed.empty() && !verdict.caught_by().empty();
      });
  text.line();
  text.line(fmt::format(
      "{} of {} caught; {} of {} in {}", row.caught, count_of(row.defects, "broken model"),
      count_of(row.conforming_failures, "accusation"),
      count_of(row.conforming_runs, "conforming run"), duration_text(row.duration_s)));
  if (!row.missed.empty()) text.line("missed: " + wrap(joined(row.missed), 8));
  if (explained > 0) {
    text.line(
        fmt::format("{} of them as failures that a listed erratum explains (xfail)", explained));
  }
  if (plan.all && !row.tests_without_catch.empty()) {
    text.line(
        fmt::format("{} caught no defect:", count_of(row.tests_without_catch.size(), "test")));
    for (const std::string& id : row.tests_without_catch) text.line("  " + id);
  }
  text.line("Every machine here is a MODEL, not silicon: this judges the suites, not a processor.");
}

// The matrix to where the user wants it, and beside the rows.
Expected<void> write_matrix(const QualifyOptions& options, const Qualification& found,
                            const std::string& folder) {
  const results::Json matrix = matrix_of(options.plan, found);
  if (!options.matrix.empty()) SKIDPROOF_CHECK(write_document(options.matrix, matrix));
  if (folder.empty()) return {};
  return write_document(folder + "/matrix.json", matrix);
}

Ending ending_of(const Qualification& found, const results::QualificationRow& row) {
  if (!found.interrupted.empty()) return {kExitHarnessFailed, found.interrupted};
  if (!row.missed.empty() || row.conforming_failures > 0) return {kExitPropertyFailed, "completed"};
  if (!found.problems.empty()) return {kExitHarnessFailed, "a worker or a test failed"};
  return {row.held ? kExitHeld : kExitHarnessFailed, "completed"};
}

// A shard says what it did; what the qualification says, only all shards together can.
int end_shard(const QualifyOptions& options, ResultFiles& files, const Qualification& found,
              const Text& text) {
  results::QualificationShardRow row = shard_row_of(options.plan, found);
  row.machine = machine_name(options.plan);
  row.duration_s = files.seconds();
  const size_t own = row.units["conforming"].size() + row.units["verdicts"].size();
  const size_t planned = found.conforming.size() + found.verdicts.size();
  const bool missed = std::any_of(found.defects.begin(), found.defects.end(),
                                  [](const auto& one) { return one.caught_by().empty(); });
  Ending end;
  if (!found.interrupted.empty()) {
    end = {kExitHarnessFailed, found.interrupted};
  } else if (missed || !found.accusations.empty()) {
    end = {kExitPropertyFailed, "completed"};
  } else if (!found.problems.empty()) {
    end = {kExitHarnessFailed, "a worker or a test failed"};
  } else if (own == 0) {
    end = {kExitHeld, nothing_to_do(*options.plan.shard, count_of(planned, "model"))};
  }
  Expected<void> written;
  if (found.write_error) {
    written = tl::make_unexpected(*found.write_error);
  } else {
    written = files.write(row);
  }
  if (!written) end = {kExitHarnessFailed, files.failure()};
  files.end(end.exit, end.reason.empty() ? "a row could not be written" : end.reason);
  if (!written) return complain(kExitHarnessFailed, written.error());
  print_matrix(text, options.plan, found);
  print_conforming(text, found);
  text.line();
  text.line(in_words(*options.plan.shard, own, planned, "model"));
  if (own == 0) text.line(end.reason);
  text.line("`skidproof merge` says what all shards come to.");
  if (!found.interrupted.empty()) return complain(end.exit, found.interrupted);
  return end.exit;
}

int qualify(QualifyOptions options, const Invocation& invocation) {
  if (auto chosen = choose(options); !chosen) return complain(chosen.error());
  if (check::tests().empty()) return complain(kExitNothingRan, "this build has no tests");
  auto files = open_results(options, invocation);
  if (!files) return complain(kExitHarnessFailed, files.error());

  const Text text(options.destination.json == "-" ? stderr : stdout);
  for (const std::string& path : (*files)->paths()) text.line("rows go to " + path);
  const Qualification found = run_qualification(
      options.plan, [&files](const results::Row& row) { return (*files)->write(row); });
  if (options.plan.shard) return end_shard(options, **files, found, text);
  results::QualificationRow row = row_of(options.plan, found);
  row.machine = machine_name(options.plan);
  row.duration_s = (*files)->seconds();
  Ending end = ending_of(found, row);
  Expected<void> written;
  if (found.write_error) {
    written = tl::make_unexpected(*found.write_error);
  } else if (found.interrupted.empty()) {  // half a qualification has no sum
    written = (*files)->write(row);
    if (written) written = write_matrix(options, found, (*files)->folder());
  }
  if (!written) end = {kExitHarnessFailed, (*files)->failure()};
  (*files)->end(end.exit, end.reason.empty() ? "a row could not be written" : end.reason);
  if (!written) return complain(kExitHarnessFailed, written.error());

  print_matrix(text, options.plan, found);
  print_conforming(text, found);
  if (!found.interrupted.empty()) return complain(end.exit, found.interrupted);
  print_summary(text, row, options.plan, found);
  return end.exit;
}

}  // namespace

void add_qualify(Command program, Invocation& invocation) {
  auto options = std::make_shared<QualifyOptions>();
  QualifyPlan& plan = options->plan;
  plan.jobs = std::max(1u, std::thread::hardware_concurrency());
  Command verb = program.verb(
      "qualify", "prove that the suites catch every defect and accuse no conforming model");
  verb.epilogue(kQualifyExamples);
  verb.option("--microarch", options->microarchs, "only this one; may be given again")
      .named("NAME")
      .many();
  verb.option("--defect", options->defects, "only this one; may be given again").named("ID").many();
  verb.option("--seeds", plan.seeds, "runs of each conforming model, with as many seeds")
      .named("N")
      .within(1u, 100'000u)
      .shows_default();
  verb.option("--rough", plan.rough,
              fmt::format("rough machines instead of noiseless ones: N conforming ones of each "
                          "microarch, the first {} of them broken in turn",
                          kRoughBroken))
      .named("N")
      .within(1u, 100'000u);
  verb.option("--seed", plan.seed, "the first seed").named("N").shows_default();
  verb.option("--jobs", plan.jobs, "processes at a time")
      .named("N")
      .within(1u, 1024u)
      .shows_default();
  verb.flag("--all", plan.all,
            "every test against every defect, not only until one catches it; also names the tests "
            "that catch none");
  verb.flag("--passes", plan.passes,
            "rows of the tests that conforming models pass, too, for `skidproof traceability`");
  verb.option(
          "--out", options->destination.out,
          "folder for qualification.jsonl and matrix.json (default: skidproof-out/<run id>, unless "
          "--json FILE)")
      .named("DIR");
  verb.option("--matrix", options->matrix,
              "write the matrix as one JSON document: defects[] of id, clause, microarch, "
              "caught_by[]")
      .named("FILE");
  add_json(verb, options->destination.json);
  add_shard(verb, plan.shard);
  verb.when_named([options, &invocation] {
    invocation.action = [options, &invocation] { return qualify(*options, invocation); };
  });
}

}  // namespace skidproof::cli
