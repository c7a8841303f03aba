// `errata`: which published errata concern a processor, and which of them show.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "harness/check/check.h"
#include "harness/cli/errata_inventory.h"
#include "harness/cli/errata_text.h"
#include "harness/cli/machine_options.h"
#include "harness/cli/machines.h"
#include "harness/cli/result_files.h"
#include "harness/cli/suite_run.h"
#include "harness/cli/text.h"
#include "harness/cli/verb.h"
#include "harness/errata/formats.h"
#include "harness/errata/linux_view.h"
#include "harness/errata/listing.h"
#include "harness/errata/observation.h"
#include "harness/errata/subject.h"
#include "pebs/arch/errata_catalogue.h"
#include "results/writer.h"

namespace skidproof::cli {
namespace {

namespace fs = std::filesystem;
using arch::ErrataCatalogue;
using arch::Erratum;
using errata::LinuxView;
using errata::Seen;
using errata::Subject;
using results::ErratumRow;
using results::Exposure;
using results::Json;
using results::Listed;
using results::MachineRow;
using results::Observed;

constexpr char kHost[] = "host";

constexpr char kErrataExamples[] =
    "Examples:\n"
    "  skidproof errata                                    what is listed for this CPU; writes no "
    "MSR\n"
    "  skidproof errata --machine direct --active          … and does it show, through the driver\n"
    "  skidproof errata --machine model:haswell --defect HSD143 --active --id HSD143\n"
    "  skidproof errata --from skidproof-out/20240501T123456Z-3fa9     by rows of an earlier run\n"
    "  skidproof errata --inventory fleet.jsonl --batch csv            a whole fleet, from its "
    "data\n"
    "  skidproof errata --batch nrpe                       one line for Nagios; prometheus, csv, "
    "json\n"
    "\n"
    "Two verdicts, never mixed: `listed` is what documents and public code say of this processor "
    "and its\n"
    "microcode; `observed` is what tests of the suites saw here.\n"
    "\n"
    "Exit codes, of --batch too: 0 none, 1 affected with a workaround in place, 2 exposed or\n"
    "reproduced, 3 something is unknown and nothing is exposed, 64 bad usage.";

struct ErrataOptions {
  MachineOptions machine = {.name = kHost};
  Destination destination;
  std::vector<std::string> ids;
  std::string min_confidence = "report";
  std::vector<std::string> from;
  std::string inventory;
  std::string catalogue;  // a file or a folder; empty: the built-in one
  std::string batch = "text";
  bool active = false;
  bool all = false;
  bool verbose = false;
  unsigned repeat = 10;
  uint64_t seed = 1;
  double deadline_s = 0;

  Format format() const { return formats().at(batch); }
  arch::Authority least() const { return *arch::parse_authority(min_confidence); }
};

// ---------------------------------------------------------------------------------------------------
// The catalogue, and what of it is asked.

Expected<std::string> whole_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) {
    return fail(ErrorCode::kIo, fmt::format("cannot read '{}'", path.string()),
                "name a file that you may read");
  }
  return text;
}

Expected<ErrataCatalogue> catalogue_at(const std::string& path) {
  std::error_code error;
  std::vector<fs::path> paths = {path};
  if (fs::is_directory(path, error)) {
    paths.clear();
    for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
      const bool ours = at->path().extension() == ".json" && at->path().filename() != "schema.json";
      if (ours) paths.push_back(at->path());
    }
    std::sort(paths.begin(), paths.end());
  }
  std::vector<std::string> names, texts;
  for (const fs::path& one : paths) {
    texts.push_back(SKIDPROOF_TRY(whole_file(one)));
    names.push_back(one.filename().string());
  }
  std::vector<arch::ErrataText> files;
  for (size_t i = 0; i < texts.size(); ++i) files.push_back({names[i], texts[i]});
  return ErrataCatalogue::read(files);
}

Expected<std::vector<const Erratum*>> asked_of(const ErrataCatalogue& catalogue,
                                               const std::vector<std::string>& ids) {
  std::vector<const Erratum*> asked;
  for (const std::string& id : ids) {
    const Erratum* found = catalogue.find(id);
    if (found == nullptr) {
      std::vector<std::string_view> known;
      for (const Erratum& erratum : catalogue.errata()) {
        known.emplace_back(erratum.id);
        known.insert(known.end(), erratum.aliases.begin(), erratum.aliases.end());
      }
      const std::string near = near_or_all(id, known);
      return fail(ErrorCode::kInvalidArgument, fmt::format("no erratum is called '{}'", id),
                  near.starts_with("did") ? near : "see: skidproof list errata");
    }
    if (std::find(asked.begin(), asked.end(), found) == asked.end()) asked.push_back(found);
  }
  if (!ids.empty()) return asked;
  for (const Erratum& erratum : catalogue.errata()) asked.push_back(&erratum);
  return asked;
}

// ---------------------------------------------------------------------------------------------------
// Verdicts.

ErratumRow verdict_on(const Erratum& erratum, const Asked& of, const errata::Listing& listing) {
  ErratumRow row;
  row.machine = of.row.machine;
  row.microarch = of.row.microarch;
  row.id = erratum.id;
  row.aliases = erratum.aliases;
  row.title = erratum.title;
  row.core_type = errata::core_word(of.subject.core);
  row.listed = listing.verdict;
  if (listing.by) row.listed_by = name_of(*listing.by);
  row.listed_why = listing.why;
  if (listing.fixed_from != 0) row.fixed_from = listing.fixed_from;
  const errata::Observation seen = errata::observe(erratum, of.seen, of.subject);
  row.observed = seen.verdict;
  row.observed_why = of.seen.empty() && erratum.reproducer ? of.not_run : seen.why;
  row.tries = seen.tries;
  row.shown = seen.shown;
  row.excluded_rate = seen.excluded_rate;
  row.exposure = listing.exposure;
  row.exposure_why = listing.exposure_why;
  if (row.observed == Observed::kReproduced) {
    row.contradiction = listing.verdict != Listed::kAffected;
    row.exposure = Exposure::kExposed;
    row.exposure_why = "it was reproduced";
  }
  return row;
}

std::vector<ErratumRow> verdicts(const ErrataCatalogue& catalogue, const ErrataOptions& options,
                                 const std::vector<const Erratum*>& asked, const Asked& of) {
  std::vector<ErratumRow> rows;
  for (const Erratum* erratum : asked) {
    const errata::Listing listing = errata::listing_of(catalogue, *erratum, of.subject);
    if (listing.by && *listing.by > options.least()) continue;
    rows.push_back(verdict_on(*erratum, of, listing));
  }
  errata::sort_for_people(rows);
  return rows;
}

// ---------------------------------------------------------------------------------------------------
// One machine, or what rows say of several.

// Of all the answers.
std::vector<ErratumRow> all_rows(const std::vector<Answer>& answers) {
  std::vector<ErratumRow> rows;
  for (const Answer& answer : answers)
    rows.insert(rows.end(), answer.rows.begin(), answer.rows.end());
  return rows;
}

void show(const ErrataOptions& options, const ErrataCatalogue& catalogue,
          const std::vector<Answer>& answers, const LinuxView* view,
          const std::vector<std::string>& paths) {
  const std::vector<ErratumRow> rows = all_rows(answers);
  std::string why;
  for (const Answer& answer : answers) {
    if (why.empty()) why = errata::unknowable(catalogue, answer.of.subject);
  }
  switch (options.format()) {
    case Format::kJson:
      return;  // the rows are written
    case Format::kPrometheus:
      fmt::print("{}", errata::prometheus(rows));
      return;
    case Format::kNrpe:
      fmt::print("{}", errata::nrpe(rows, why));
      return;
    case Format::kCsv:
      fmt::print("{}", errata::csv(rows));
      return;
    case Format::kText:
      break;
  }
  const Text text(options.destination.json == "-" ? stderr : stdout);
  for (const Answer& answer : answers) {
    print_answer(text, catalogue, answer, options.verbose);
  }
  if (view != nullptr) print_linux(text, *view);
  for (const std::string& path : paths) text.line("rows: " + path);
}

Expected<std::unique_ptr<ResultFiles>> open_files(const ErrataOptions& options,
                                                  const Invocation& invocation,
                                                  const MachineRow& machine) {
  const std::string id = new_run_id();
  auto files = SKIDPROOF_TRY(ResultFiles::open(options.destination, id, "results.jsonl"));
  files->set_machine(machine.machine);
  SKIDPROOF_CHECK(files->write(run_row(id, invocation.command, options.seed, machine.machine)));
  SKIDPROOF_CHECK(files->write(machine));
  return files;
}

// Rows, where they are wanted, of what nothing was run for.
int finish(const ErrataOptions& options, const Invocation& invocation,
           const ErrataCatalogue& catalogue, const std::vector<Answer>& answers,
           const LinuxView* view) {
  const std::vector<ErratumRow> rows = all_rows(answers);
  const int exit = errata::exit_of(rows);
  std::vector<std::string> paths;
  if (!options.destination.out.empty() || !options.destination.json.empty()) {
    auto files = open_files(options, invocation, answers.front().of.row);
    if (!files) return cannot(files.error());
    Expected<void> written;
    for (size_t i = 1; i < answers.size() && written; ++i)
      written = (*files)->write(answers[i].of.row);
    for (const ErratumRow& row : rows) {
      if (written) written = (*files)->write(row);
    }
    (*files)->end(written ? exit : errata::kExitUnknown,
                  written ? "completed" : "a row could not be written");
    if (!written) return cannot(written.error());
    paths = (*files)->paths();
  }
  show(options, catalogue, answers, view, paths);
  return exit;
}

// ---------------------------------------------------------------------------------------------------
// --active

class Watching final : public check::Observer {
 public:
  void planned(size_t tests) override { planned_ = tests; }
  void started(const check::TestInfo& info) override {
    progress_.update(done_, planned_, info.id());
  }
  void finished(const results::TestRow& row) override {
    ++done_;
    seen_.add(row);
  }
  Seen take() {
    progress_.clear();
    return std::move(seen_);
  }

 private:
  Progress progress_{"errata"};
  size_t planned_ = 0, done_ = 0;
  Seen seen_;
};

int run_reproducers(const ErrataOptions& options, const Invocation& invocation,
                    const ErrataCatalogue& catalogue, const std::vector<const Erratum*>& asked,
                    const OpenMachine& machine, const LinuxView* view) {
  const std::string filter = errata::filter_for(asked);
  const size_t picked =
      filter.empty() ? 0 : check::register_with_googletest([&](const check::TestInfo& info) {
        return check::matches_filter(filter, info.id());
      });
  Answer answer;
  answer.of.row = machine_row(machine);
  answer.of.subject = errata::subject_of(answer.of.row);
  if (picked == 0) {
    answer.of.not_run = "none of those that were asked for has a reproducer";
    answer.rows = verdicts(catalogue, options, asked, answer.of);
    return finish(options, invocation, catalogue, {answer}, view);
  }
  if (const int bad = start_googletest(invocation, options.repeat); bad != 0) return bad;
  auto files = open_files(options, invocation, answer.of.row);
  if (!files) return cannot(files.error());
  Watching watching;
  const auto close = [&](const Ending& end) {
    answer.of.seen = watching.take();
    answer.rows = verdicts(catalogue, options, asked, answer.of);
    for (const ErratumRow& row : answer.rows) {
      if (auto written = (*files)->write(row); !written) {
        complain(errata::kExitUnknown, written.error());
        return Ending{errata::kExitUnknown, "a row could not be written"};
      }
    }
    // What was not judged for want of the machine, or of room, is not known.
    if (end.exit == kExitHarnessFailed && end.reason != "completed") {
      const bool exposed = errata::exit_of(answer.rows) == errata::kExitExposed;
      return Ending{exposed ? errata::kExitExposed : errata::kExitUnknown, end.reason};
    }
    return Ending{errata::exit_of(answer.rows), "completed"};
  };
  const Ending end = run_suites({.machine = machine,
                                 .files = **files,
                                 .observer = &watching,
                                 .seed = options.seed,
                                 .all = options.all,
                                 .deadline_s = options.deadline_s,
                                 .close = close});
  if (end.reason != "completed") complain(end.exit, "not all was tried: " + end.reason);
  show(options, catalogue, {answer}, view, (*files)->paths());
  return end.exit;
}

int active(const ErrataOptions& options, const Invocation& invocation,
           const ErrataCatalogue& catalogue, const std::vector<const Erratum*>& asked) {
  MachineOptions wanted = options.machine;
  const bool host = wanted.name == kHost || wanted.name == "auto";
  if (host) wanted.name = "direct";
  std::optional<LinuxView> view;
  if (wanted.name == "direct") view = errata::linux_view();
  auto machine = open_machine(wanted, options.seed);
  if (machine) {
    return run_reproducers(options, invocation, catalogue, asked, *machine,
                           view ? &*view : nullptr);
  }
  if (machine.error().code == ErrorCode::kInvalidArgument || !host) return cannot(machine.error());
  // What is listed can be told without the driver.
  auto native = open_machine({.name = "native"}, options.seed);
  if (!native) return cannot(native.error());
  Answer answer;
  answer.of.row = machine_row(*native);
  answer.of.subject = errata::subject_of(answer.of.row);
  answer.of.not_run = machine.error().message;
  complain(errata::kExitUnknown, machine.error());
  answer.rows = verdicts(catalogue, options, asked, answer.of);
  return finish(options, invocation, catalogue, {answer}, &*view);
}

// ---------------------------------------------------------------------------------------------------
// Without --active

// This computer by CPUID and by what Linux shows: no MSR is touched. Of a hybrid part each type of core.
std::vector<Asked> this_computer(const OpenMachine& native, const LinuxView& view) {
  Asked asked;
  asked.row = machine_row(native);
  if (asked.row.microcode || view.oldest_microcode() != 0) {
    const uint32_t own = asked.row.microcode.value_or(view.oldest_microcode());
    asked.row.microcode =
        view.oldest_microcode() == 0 ? own : std::min(own, view.oldest_microcode());
  }
  asked.subject = errata::subject_of(asked.row);
  if (view.hyper_threading) asked.subject.hyper_threading = view.hyper_threading;
  if (view.core_pmus.size() < 2) return {asked};
  std::vector<Asked> both = {asked, asked};
  both[0].subject.core = arch::CoreType::kCore;
  both[1].subject.core = arch::CoreType::kAtom;
  for (Asked& one : both) one.row.core_type = errata::core_word(one.subject.core);
  return both;
}

int passive(const ErrataOptions& options, const Invocation& invocation,
            const ErrataCatalogue& catalogue, const std::vector<const Erratum*>& asked) {
  MachineOptions wanted = options.machine;
  const bool here = wanted.name == kHost || wanted.name == "auto" || wanted.name == "direct" ||
                    wanted.name == "native";
  if (here) wanted.name = "native";
  wanted.cpu = {};
  auto machine = open_machine(wanted, options.seed);
  if (!machine) return cannot(machine.error());
  std::vector<Answer> answers;
  std::optional<LinuxView> view;
  if (here) {
    view = errata::linux_view();
    for (Asked& one : this_computer(*machine, *view)) answers.push_back({std::move(one), {}});
  } else {
    Asked one;
    one.row = machine_row(*machine);
    one.subject = errata::subject_of(one.row);
    answers.push_back({std::move(one), {}});
  }
  for (Answer& answer : answers) answer.rows = verdicts(catalogue, options, asked, answer.of);
  return finish(options, invocation, catalogue, answers, view ? &*view : nullptr);
}

// ---------------------------------------------------------------------------------------------------
// --from

// Takes in the rows of one file.
Expected<void> take_file(const std::string& named, std::map<std::string, Asked>& machines) {
  std::error_code error;
  const std::string path =
      fs::is_directory(named, error) ? (fs::path(named) / "results.jsonl").string() : named;
  const results::RowsFile file = SKIDPROOF_TRY(results::read_rows(path));
  for (const results::LineProblem& problem : file.problems) {
    fmt::print(stderr, "skidproof: note: line {} of '{}' is no row: {}\n", problem.line, path,
               errata::printable(problem.what));
  }
  Asked* now =
      nullptr;  // the machine that the last `machine` row was of: two hosts may call theirs alike
  for (const results::ReadRow& read : file.rows) {
    auto row = results::row_of(read.json);
    if (!row) {
      fmt::print(stderr, "skidproof: note: '{}': {}\n", path,
                 errata::printable(row.error().message));
      continue;
    }
    if (auto* machine = std::get_if<MachineRow>(&*row)) {
      Asked& asked = machines[machine->machine + "\n" + machine->host];
      if (machine->microcode && asked.row.microcode && *machine->microcode < *asked.row.microcode) {
        fmt::print(stderr,
                   "skidproof: note: the microcode of {} goes backwards: {:#x}, then {:#x} in "
                   "'{}'; the last one counts\n",
                   errata::printable(machine->machine), *asked.row.microcode, *machine->microcode,
                   path);
      }
      asked.row = *machine;
      asked.subject = errata::subject_of(asked.row);
      asked.not_run = "no row is of one of its tests";
      now = &asked;
    } else if (const auto* test = std::get_if<results::TestRow>(&*row)) {
      if (now != nullptr && now->row.machine == test->machine) now->seen.add(*test);
    }
  }
  return {};
}

int from_rows(const ErrataOptions& options, const Invocation& invocation,
              const ErrataCatalogue& catalogue, const std::vector<const Erratum*>& asked) {
  std::vector<Answer> answers;
  std::map<std::string, Asked> machines;
  for (const std::string& path : options.from) {
    if (auto taken = take_file(path, machines); !taken) return cannot(taken.error());
  }
  answers.reserve(machines.size());
  for (auto& [name, of] : machines) answers.push_back({std::move(of), {}});
  if (answers.empty()) {
    return complain(kExitUsage, "no `machine` row stands in what was given to --from",
                    "name results.jsonl, or the folder, of a `skidproof run`");
  }
  for (Answer& answer : answers) answer.rows = verdicts(catalogue, options, asked, answer.of);
  return finish(options, invocation, catalogue, answers, nullptr);
}

int answer(ErrataOptions options, const Invocation& invocation) {
  std::optional<ErrataCatalogue> own;
  if (!options.catalogue.empty()) {
    auto read = catalogue_at(options.catalogue);
    if (!read) return cannot(read.error());
    own = std::move(*read);
  }
  const ErrataCatalogue& catalogue = own ? *own : ErrataCatalogue::built_in();
  auto asked = asked_of(catalogue, options.ids);
  if (!asked) return cannot(asked.error());
  if (!options.inventory.empty()) {
    return judge_inventory(catalogue, {.path = options.inventory,
                                       .format = options.format(),
                                       .json = options.destination.json,
                                       .least = options.least(),
                                       .verbose = options.verbose});
  }
  if (options.format() == Format::kJson && options.destination.json.empty()) {
    options.destination.json = "-";
  }
  if (!options.from.empty()) return from_rows(options, invocation, catalogue, *asked);
  return options.active ? active(options, invocation, catalogue, *asked)
                        : passive(options, invocation, catalogue, *asked);
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  names.reserve(formats().size());
  for (const auto& [name, format] : formats()) names.push_back(name);
  return names;
}

std::vector<std::string> authority_names() {
  std::vector<std::string> names;
  names.reserve(arch::kAuthorities.size());
  for (arch::Authority authority : arch::kAuthorities) names.emplace_back(name_of(authority));
  return names;
}

}  // namespace

void add_errata(Command program, Invocation& invocation) {
  auto options = std::make_shared<ErrataOptions>();
  Command verb = program.verb(
      "errata", "which published errata of PMU and PEBS concern a processor, and which show");
  verb.epilogue(kErrataExamples);
  const Option machine =
      verb.option("--machine", options->machine.name,
                  "host (this computer by CPUID), direct, model:<microarch> or tape:FILE")
          .named("NAME")
          .shows_default();
  verb.option("--id", options->ids, "only this erratum, by any of its ids; may be given again")
      .named("ID")
      .many();
  verb.option("--min-confidence", options->min_confidence,
              "leave out what is listed by less: " + joined(authority_names(), " > "))
      .named("WHO")
      .one_of(authority_names())
      .shows_default();
  const Option runs = verb.flag("--active", options->active,
                                "run the reproducers too; without it no MSR is written");
  verb.option("--repeat", options->repeat, "how often each reproducer is tried")
      .named("N")
      .within(1u, 1'000'000u)
      .needs(runs)
      .shows_default();
  verb.option("--seed", options->seed, "of the reproducers' programs and data")
      .named("N")
      .shows_default();
  verb.flag("--all", options->all,
            "also reproducers on broken ground: without it a failure that no listed erratum "
            "explains ends the higher stages")
      .needs(runs);
  verb.option("--deadline", options->deadline_s, "stop after this many seconds")
      .named("SECONDS")
      .within(0.001, 1e7)
      .needs(runs);
  add_model_and_cpu(verb, options->machine);
  verb.option("--from", options->from,
              "answer from rows of earlier runs: files, or folders with results.jsonl")
      .named("RESULTS")
      .many()
      .excludes(runs)
      .excludes(machine);
  verb.option("--inventory", options->inventory,
              "judge each machine of a file of JSON Lines or CSV (family, model, stepping, "
              "microcode, hyper_threading …), - is standard input")
      .named("FILE")
      .excludes(runs)
      .excludes(machine);
  verb.option("--catalogue", options->catalogue,
              "another catalogue than the built-in one: a file, or a folder of them")
      .named("PATH");
  verb.option("--batch", options->batch, "for other programs: " + joined(format_names()))
      .named("FORMAT")
      .one_of(format_names())
      .shows_default();
  verb.option("--out", options->destination.out,
              "folder for results.jsonl (with --active, default: skidproof-out/<run id>, "
              "unless --json FILE)")
      .named("DIR");
  add_json(verb, options->destination.json);
  verb.flag("-v,--verbose", options->verbose, "also what is not listed, and why");
  verb.when_named([options, &invocation] {
    invocation.action = [options, &invocation] { return answer(*options, invocation); };
  });
}

}  // namespace skidproof::cli
