// A queue of runs, some of them after one another in each process, and what their rows add up to.
#include "harness/cli/qualification.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "harness/check/check.h"
#include "harness/check/listener.h"
#include "harness/cli/machines.h"
#include "harness/cli/text.h"
#include "harness/cli/worker_pool.h"
#include "pebs/arch/errata.h"

namespace skidproof::cli {
namespace {

using results::Status;

// Those that do not cite the defect's clause come one of each parameterised test first: the others of it do much the
// same. Of an erratum's defect on a part that it is listed for kItsOwn are the tests that it spoils, and one of each that
// it drags along.
enum class Which : uint8_t { kAll, kCiting, kOneOfEach, kTheRest, kItsOwn };

// A model and the tests that it meets.
struct Run {
  const arch::Microarch* microarch = nullptr;
  bool sibling = true;
  const model::Defect* defect = nullptr;  // nullptr: conforming
  uint64_t seed = 1;
  std::optional<uint64_t> rough = {};  // the seed of a rough machine
  Which which = Which::kAll;
  bool listed = false;        // the defect is an erratum of the part that is played
  bool until_caught = false;  // stop at the first property that fails
  bool whole_rows = false;    // what passes is written, too
  size_t verdict = 0;         // index in Qualification::defects
  size_t unit = 0;  // index in Qualification::conforming, or behind them in Qualification::verdicts
  std::string test = {};  // the only one, by its id; empty: all that `which` says
};

// What caught a defect.
struct Catch {
  std::string test;
  bool sibling = true;
};

// With a thread beside it on the core and without, where the core can have one.
std::vector<bool> topologies(const arch::Microarch& microarch) {
  if (!microarch.hyper_threading) return {false};
  return {true, false};
}

bool cites(const check::TestInfo& info, const Clause* clause) {
  return std::find(info.clauses.begin(), info.clauses.end(), clause) != info.clauses.end();
}

// Of the tests that a filter takes those before which none differs by its parameter alone.
std::set<const check::TestInfo*> firsts_of(std::string_view filter) {
  std::set<std::string> known;
  std::set<const check::TestInfo*> found;
  for (const check::TestInfo& test : check::tests()) {
    const std::string id = test.id();
    if (check::matches_filter(filter, id) && known.insert(id.substr(0, id.find('/'))).second)
      found.insert(&test);
  }
  return found;
}

bool is_first(const check::TestInfo& info, const std::string& filter = "*") {
  static std::map<std::string, std::set<const check::TestInfo*>> firsts;
  const auto known = firsts.find(filter);
  const auto& found = known != firsts.end()
                          ? known->second
                          : firsts.emplace(filter, firsts_of(filter)).first->second;
  return found.contains(&info);
}

// Ids of tests that accuse a conforming model, by microarch.
using Accusers = std::map<const arch::Microarch*, std::set<std::string>>;

bool picks(const Run& run, const Accusers& accusers, const check::TestInfo& info) {
  if (run.defect == nullptr) return true;
  const auto found = accusers.find(run.microarch);
  if (found != accusers.end() && found->second.contains(info.id())) return false;
  if (!run.test.empty()) return info.id() == run.test;
  if (run.which == Which::kAll) return true;
  if (run.which == Which::kItsOwn) {
    const arch::Reproducer& erratum = *arch::find_erratum(run.defect->id)->reproducer;
    return check::matches_filter(erratum.tests, info.id()) ||
           (!erratum.consequences.empty() && is_first(info, erratum.consequences));
  }
  if (cites(info, run.defect->clause)) return run.which == Which::kCiting;
  return run.which == (is_first(info) ? Which::kOneOfEach : Which::kTheRest);
}

std::string machine_of(const Run& run) {
  std::string name = fmt::format("model:{}", run.microarch->name);
  if (run.defect != nullptr) name += fmt::format("+{}", run.defect->id);
  if (run.rough) name += fmt::format("~rough={}", *run.rough);
  return name;
}

std::string in_words(const Run& run) {
  return fmt::format("{}{}, seed {}", machine_of(run),
                     run.sibling ? "" : " without a sibling thread", run.seed);
}

// Whether no other test need be met.
bool settles(const Run& run, const results::TestRow& row) {
  if (row.status == Status::kFail) return true;
  return run.listed && row.status == Status::kXfail && row.erratum == run.defect->id;
}

// In the worker: writes a line to the pipe, whole.
void write_line(int descriptor, const results::Json& json) {
  const std::string line =
      json.dump(-1, ' ', false, results::Json::error_handler_t::replace) + '\n';
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = ::write(descriptor, line.data() + done, line.size() - done);
    if (written <= 0) throw std::runtime_error("the pipe to the parent is closed");
    done += static_cast<size_t>(written);
  }
}

// The part that a model plays for an erratum: one that has it. nullopt: the row's first.
std::optional<arch::Part> part_for(const arch::Microarch& microarch, const model::Defect* defect) {
  const arch::Erratum* erratum = defect == nullptr ? nullptr : arch::find_erratum(defect->id);
  return erratum == nullptr ? std::nullopt : arch::part_with(microarch, *erratum);
}

// What is told of a row: of a pass no evidence, where nobody wants it whole.
results::Json told(const Run& run, results::TestRow row) {
  const bool bad =
      has_failed(row) || row.status == Status::kError || row.status == Status::kDisturbed;
  if (!bad && !run.whole_rows) {
    row.evidence = results::Json::object();
    row.citations.clear();
  }
  return row;
}

// In the worker: meets the tests on a new model and sends their rows, each a line; behind the last one how long all took.
void work(const Run& run, const Accusers& accusers, int descriptor) {
  const auto since = std::chrono::steady_clock::now();
  const auto seconds = [](auto from) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  };
  MachineOptions options{.name = fmt::format("model:{}", run.microarch->name),
                         .sibling_thread = run.sibling};
  if (run.defect != nullptr) options.defects.emplace_back(run.defect->id);
  if (run.rough) options.rough = std::to_string(*run.rough);
  if (const auto part = part_for(*run.microarch, run.defect)) {
    options.part = name_of(*part);
    options.microcode = results::hex(part->microcode);
  }
  auto machine = open_machine(options, run.seed);
  if (!machine) throw std::runtime_error(machine.error().text());
  check::environment() = {.machines = machine->source.get(), .seed = run.seed, .rates = false};
  const std::string name = machine_of(run), microarch(run.microarch->name);
  for (const check::TestInfo& test : check::tests()) {
    if (!picks(run, accusers, test)) continue;
    const auto began = std::chrono::steady_clock::now();
    check::judge(test);
    results::TestRow row = check::row_of_outcome(test, name, microarch);
    row.duration_s = seconds(began);
    write_line(descriptor, told(run, row));
    if (run.until_caught && settles(run, row)) break;
  }
  write_line(descriptor, {{"seconds", seconds(since)}});
}

// What a worker said of one run.
struct Told {
  std::vector<results::TestRow> rows;
  double seconds = 0;
  bool ended = false;  // its last line is there
};

// Everything that the parent knows while the runs go on.
class Qualifier {
 public:
  Qualifier(const QualifyPlan& plan, const check::RowSink& sink)
      : plan_(plan), sink_(sink), pool_(plan.jobs, std::chrono::seconds(120)) {}

  Qualification go();
  // Only the names.
  std::vector<std::string> plan_units();

 private:
  void drain();
  bool has(size_t position) const { return !plan_.shard || plan_.shard->has(position); }
  QualifiedUnit& unit(size_t index);
  void add_conforming(Run run);
  void close_unit(size_t index, std::vector<results::Row> rows);
  void flush(bool gaps);
  void plan_conforming();
  void plan_broken();
  void plan_verdict(Run run, bool own);
  void start_verdict(const model::Defect* defect);
  void plan_next(size_t verdict);
  std::vector<Run> next_batch();
  void finished(const std::vector<Run>& batch, const WorkDone& done);
  void finished(const Run& run, const Told& told);
  void finished_conforming(const Run& run, const std::vector<results::TestRow>& rows);
  void finished_broken(const Run& run, const std::vector<results::TestRow>& rows);
  void close_verdict(size_t verdict);
  void write(const results::Row& row);
  std::vector<Told> told_by(const std::vector<Run>& batch, const WorkDone& done);

  const QualifyPlan& plan_;
  const check::RowSink& sink_;
  WorkerPool pool_;
  Progress progress_{"qualify"};
  std::deque<Run> queue_;
  std::map<size_t, std::vector<Run>> under_way_;  // by the worker
  std::vector<std::deque<Run>> still_to_try_;     // for each verdict
  std::vector<size_t> unit_of_verdict_;
  // One verdict on a defect after the other: the test that caught it last is met first on the next machine.
  std::map<const model::Defect*, std::deque<size_t>> verdicts_to_come_;
  std::map<const model::Defect*, Catch> last_catch_;
  Accusers accusers_;
  std::set<std::string> ran_on_broken_, caught_something_;
  std::map<size_t, std::vector<results::Row>>
      waiting_;                                      // rows of units that ended before another one
  size_t next_unit_ = 0;                             // whose rows are to be written next
  size_t next_id_ = 0, units_ = 0, units_done_ = 0;  // units: conforming runs and verdicts
  Qualification found_;
};

// Of rough machines each is another one, so that both topologies of one would tell little more.
void Qualifier::plan_conforming() {
  for (const arch::Microarch* microarch : plan_.microarchs) {
    for (unsigned i = 0; i < plan_.rough; ++i) {
      add_conforming({.microarch = microarch,
                      .sibling = i % 2 == 0 && microarch->hyper_threading,
                      .seed = plan_.seed + i,
                      .rough = plan_.seed + i});
    }
    if (plan_.rough != 0) continue;
    for (unsigned i = 0; i < plan_.seeds; ++i) {
      for (const bool sibling : topologies(*microarch)) {
        add_conforming({.microarch = microarch, .sibling = sibling, .seed = plan_.seed + i});
      }
    }
  }
}

void Qualifier::add_conforming(Run run) {
  run.whole_rows = plan_.passes;
  run.unit = found_.conforming.size();
  const bool own = has(run.unit);
  found_.conforming.push_back({.name = in_words(run), .own = own});
  if (!own) return;
  queue_.push_back(std::move(run));
  ++units_;
}

QualifiedUnit& Qualifier::unit(size_t index) {
  const size_t conforming = found_.conforming.size();
  return index < conforming ? found_.conforming[index] : found_.verdicts[index - conforming];
}

// Rows are written in the order of the plan, so that the same plan gives the same rows whatever the number of workers,
// and in whichever shard.
void Qualifier::close_unit(size_t index, std::vector<results::Row> rows) {
  unit(index).done = true;
  waiting_[index] = std::move(rows);
  flush(false);
}

// With gaps: also what stands behind units that never ended.
void Qualifier::flush(bool gaps) {
  const size_t all = found_.conforming.size() + found_.verdicts.size();
  for (; next_unit_ < all && (gaps || unit(next_unit_).done || !unit(next_unit_).own);
       ++next_unit_) {
    const auto rows = waiting_.find(next_unit_);
    if (rows == waiting_.end()) continue;
    for (const results::Row& row : rows->second) write(row);
    unit(next_unit_).rows = rows->second.size();
    waiting_.erase(rows);
  }
}

// A defect's verdicts stay together: what caught it on one microarch is met first on the next.
void Qualifier::plan_broken() {
  for (const arch::Microarch* microarch : plan_.microarchs) {
    for (size_t place = 0; place < plan_.defects.size(); ++place) {
      const model::Defect* defect = plan_.defects[place];
      const bool own = has(found_.conforming.size() + place);
      Run run{.microarch = microarch, .defect = defect, .seed = plan_.seed};
      if (plan_.rough == 0 && defect->applies_to(*microarch)) plan_verdict(run, own);
      for (unsigned i = 0; i < std::min(plan_.rough, kRoughBroken); ++i) {
        run.seed = plan_.seed + i;
        run.rough = run.seed;
        // A part may lack what its row has.
        const model::Rough rough = model::draw_rough(*microarch, run.seed);
        if (defect->applies_to(model::row_of(*microarch, rough))) plan_verdict(run, own);
      }
    }
  }
  for (const model::Defect* defect : plan_.defects) start_verdict(defect);
}

void Qualifier::start_verdict(const model::Defect* defect) {
  std::deque<size_t>& to_come = verdicts_to_come_[defect];
  if (to_come.empty()) return;
  const size_t verdict = to_come.front();
  to_come.pop_front();
  std::deque<Run>& attempts = still_to_try_[verdict];
  const auto caught = last_catch_.find(defect);
  if (caught != last_catch_.end() && attempts.front().until_caught) {
    Run again = attempts.front();
    again.sibling = caught->second.sibling && again.microarch->hyper_threading;
    again.test = caught->second.test;
    attempts.push_front(std::move(again));
  }
  plan_next(verdict);
}

void Qualifier::plan_verdict(Run run, bool own) {
  found_.verdicts.push_back({.name = machine_of(run), .own = own});
  if (!own) return;
  run.unit = found_.conforming.size() + found_.verdicts.size() - 1;
  run.verdict = found_.defects.size();
  const arch::Erratum* erratum = arch::find_erratum(run.defect->id);
  run.listed = erratum != nullptr && erratum->reproducer &&
               erratum->listed_for(
                   part_for(*run.microarch, run.defect).value_or(first_part(*run.microarch)));
  // Its failures are to be explained, all of them: one does not end the run.
  const bool whole = plan_.all || (run.listed && !run.rough);
  run.until_caught = !whole;
  std::deque<Run> attempts;
  for (Which which : {Which::kCiting, Which::kOneOfEach, Which::kTheRest}) {
    for (const bool sibling : topologies(*run.microarch)) {
      run.which = plan_.all ? Which::kAll : whole ? Which::kItsOwn : which;
      run.sibling = sibling;
      attempts.push_back(run);
    }
    if (whole) break;
  }
  found_.defects.push_back({.defect = run.defect,
                            .microarch = run.microarch,
                            .rough = run.rough,
                            .listed = run.listed,
                            .failed = {},
                            .explained = {}});
  still_to_try_.push_back(std::move(attempts));
  unit_of_verdict_.push_back(run.unit);
  verdicts_to_come_[run.defect].push_back(run.verdict);
  ++units_;
}

// The next attempt that has any test; without one the verdict stands.
void Qualifier::plan_next(size_t verdict) {
  std::deque<Run>& attempts = still_to_try_[verdict];
  while (!attempts.empty()) {
    const Run run = attempts.front();
    attempts.pop_front();
    const auto tests = check::tests();
    if (std::any_of(tests.begin(), tests.end(),
                    [&](const auto& info) { return picks(run, accusers_, info); })) {
      queue_.push_back(run);
      return;
    }
  }
  close_verdict(verdict);
}

void Qualifier::close_verdict(size_t verdict) {
  ++units_done_;
  const DefectVerdict& known = found_.defects[verdict];
  results::DefectRow row;
  row.microarch = known.microarch->name;
  row.id = known.defect->id;
  row.machine =
      machine_of({.microarch = known.microarch, .defect = known.defect, .rough = known.rough});
  row.clause = known.defect->clause->id;
  row.brief = known.defect->brief;
  row.caught = !known.caught_by().empty();
  row.caught_by = known.caught_by();
  row.tests_run = known.tests_run;
  row.duration_s = known.seconds;
  const model::Defect* defect = known.defect;
  close_unit(unit_of_verdict_[verdict], {row});
  start_verdict(defect);
}

void Qualifier::write(const results::Row& row) {
  if (found_.write_error) return;
  if (auto written = sink_(row); !written) found_.write_error = written.error();
}

// In the order of the batch, as far as the worker came.
std::vector<Told> Qualifier::told_by(const std::vector<Run>& batch, const WorkDone& done) {
  std::vector<Told> all(1);
  for (size_t begin = 0; begin < done.output.size() && all.size() <= batch.size();) {
    const size_t end = done.output.find('\n', begin);
    if (end == std::string::npos) break;  // cut short: `problem` says why
    const auto json = results::Json::parse(done.output.substr(begin, end - begin), nullptr, false);
    begin = end + 1;
    if (json.is_object() && json.contains("seconds")) {
      all.back().ended = true;
      all.back().seconds = json["seconds"].get<double>();
      all.emplace_back();
      continue;
    }
    auto row = results::row_of(json);
    if (row && std::holds_alternative<results::TestRow>(*row)) {
      all.back().rows.push_back(std::get<results::TestRow>(*row));
    } else {
      found_.problems.push_back(
          fmt::format("{}: a worker sent an unreadable row", in_words(batch[all.size() - 1])));
    }
  }
  return all;
}

void Qualifier::finished_conforming(const Run& run, const std::vector<results::TestRow>& rows) {
  ++found_.conforming_runs;
  ++units_done_;
  std::vector<results::Row> told;
  for (const results::TestRow& row : rows) {
    if (has_failed(row)) {  // it conforms: there is nothing to explain
      found_.accusations.push_back(row);
      accusers_[run.microarch].insert(row.id);
      told.emplace_back(row);
    } else if (row.status == Status::kDisturbed) {
      found_.disturbed.push_back(row);
      told.emplace_back(row);
    } else if (row.status == Status::kError) {
      found_.problems.push_back(fmt::format("{} on {}: {}", row.id, in_words(run), row.reason));
    } else if (plan_.passes) {
      told.emplace_back(row);
    }
  }
  close_unit(run.unit, std::move(told));
}

void Qualifier::finished_broken(const Run& run, const std::vector<results::TestRow>& rows) {
  DefectVerdict& verdict = found_.defects[run.verdict];
  for (const results::TestRow& row : rows) {
    if (row.status == Status::kSkip) continue;
    ++verdict.tests_run;
    ran_on_broken_.insert(row.id);
    if (!has_failed(row)) continue;
    caught_something_.insert(row.id);
    auto& by = row.status == Status::kFail ? verdict.failed : verdict.explained;
    if (std::find(by.begin(), by.end(), row.id) == by.end()) by.push_back(row.id);
  }
}

// The run in which a worker ended is the one to blame; those behind it are another one's.
void Qualifier::finished(const std::vector<Run>& batch, const WorkDone& done) {
  const std::vector<Told> all = told_by(batch, done);
  for (size_t i = 0; i < batch.size(); ++i) {
    if (!all[i].ended) {
      const std::string last =
          all[i].rows.empty() ? "" : fmt::format(" after {}", all[i].rows.back().id);
      found_.problems.push_back(
          fmt::format("{}: the worker {}{}", in_words(batch[i]),
                      done.problem.empty() ? "did not come to the end of it" : done.problem, last));
      queue_.insert(queue_.begin(), batch.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                    batch.end());
      finished(batch[i], all[i]);
      return;
    }
    finished(batch[i], all[i]);
  }
  if (!done.problem.empty()) {  // though it had said all
    found_.problems.push_back(
        fmt::format("{}: behind it the worker {}", in_words(batch.back()), done.problem));
  }
}

void Qualifier::finished(const Run& run, const Told& told) {
  const std::vector<results::TestRow>& rows = told.rows;
  if (run.defect == nullptr) {
    finished_conforming(run, rows);
    return;
  }
  finished_broken(run, rows);
  DefectVerdict& verdict = found_.defects[run.verdict];
  verdict.seconds += told.seconds;
  const auto settling =
      std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return settles(run, row); });
  const bool settled = settling != rows.end();
  if (settled) last_catch_[run.defect] = {.test = settling->id, .sibling = run.sibling};
  if (plan_.all || !settled) {
    plan_next(run.verdict);
  } else {
    close_verdict(run.verdict);
  }
}

Qualification Qualifier::go() {
  plan_conforming();
  drain();
  if (found_.interrupted.empty() && !found_.write_error) {
    plan_broken();
    drain();
  }
  flush(true);  // of what was interrupted, what there is
  found_.ran_on_broken.assign(ran_on_broken_.begin(), ran_on_broken_.end());
  found_.caught_something.assign(caught_something_.begin(), caught_something_.end());
  if (plan_.all) {
    std::set_difference(ran_on_broken_.begin(), ran_on_broken_.end(), caught_something_.begin(),
                        caught_something_.end(), std::back_inserter(found_.tests_without_catch));
  }
  return std::move(found_);
}

std::vector<std::string> Qualifier::plan_units() {
  plan_conforming();
  plan_broken();
  std::vector<std::string> names;
  for (const QualifiedUnit& one : found_.conforming) names.push_back(one.name);
  for (const QualifiedUnit& one : found_.verdicts) names.push_back(one.name);
  return names;
}

// Ever fewer towards the end of the queue, so that no worker is left with many.
std::vector<Run> Qualifier::next_batch() {
  constexpr size_t kMost = 64;
  const size_t count = std::clamp<size_t>(queue_.size() / (4 * std::max(plan_.jobs, 1u)), 1, kMost);
  const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<Run> batch(std::make_move_iterator(queue_.begin()), std::make_move_iterator(end));
  queue_.erase(queue_.begin(), end);
  return batch;
}

// Runs the queue, and what is added to it on the way, to its end.
void Qualifier::drain() {
  while ((!queue_.empty() || !pool_.idle()) && !found_.write_error) {
    while (!queue_.empty() && pool_.room()) {
      const std::vector<Run>& batch = under_way_[next_id_] = next_batch();
      const auto work_on = [&](int pipe) {
        for (const Run& run : batch) work(run, accusers_, pipe);
      };
      if (auto started = pool_.start(next_id_, work_on); !started) {
        found_.interrupted = started.error().text();
        return;
      }
      ++next_id_;
    }
    for (const WorkDone& done : pool_.wait()) {
      const std::vector<Run> batch = std::move(under_way_.at(done.id));
      under_way_.erase(done.id);
      progress_.update(units_done_, units_, in_words(batch.back()));
      finished(batch, done);
    }
    if (!pool_.interrupted().empty()) {
      found_.interrupted = pool_.interrupted();
      return;
    }
  }
}

results::Json matrix_entry(const DefectVerdict& verdict) {
  return {{"id", verdict.defect->id},
          {"clause", verdict.defect->clause->id},
          {"promise", name_of(verdict.defect->promise)},
          {"brief", verdict.defect->brief},
          {"microarch", verdict.microarch->name},
          {"rough", verdict.rough ? results::Json(*verdict.rough) : results::Json()},
          {"caught", !verdict.caught_by().empty()},
          {"caught_by", verdict.caught_by()},
          {"explained", verdict.explained},
          {"tests_run", verdict.tests_run}};
}

}  // namespace

const std::vector<std::string>& DefectVerdict::caught_by() const {
  if (!listed) return failed;
  if (failed.empty()) return explained;
  static const std::vector<std::string> none;
  return rough ? failed : none;
}

std::string DefectVerdict::missed_because() const {
  if (!caught_by().empty()) return {};
  if (!failed.empty()) return fmt::format("the erratum does not explain {}", joined(failed));
  return explained.empty() ? "" : fmt::format("a listed erratum explains {}", joined(explained));
}

Qualification run_qualification(const QualifyPlan& plan, const check::RowSink& sink) {
  return Qualifier(plan, sink).go();
}

std::vector<std::string> units_of(const QualifyPlan& plan) {
  QualifyPlan whole = plan;
  whole.shard.reset();
  const check::RowSink nowhere = [](const results::Row&) -> Expected<void> { return {}; };
  return Qualifier(whole, nowhere).plan_units();
}

results::QualificationShardRow shard_row_of(const QualifyPlan& plan, const Qualification& found) {
  results::QualificationShardRow row;
  for (const arch::Microarch* microarch : plan.microarchs) {
    row.microarchs.emplace_back(microarch->name);
  }
  row.seeds = plan.seeds;
  row.seed = plan.seed;
  row.all = plan.all;
  results::Json conforming = results::Json::array(), verdicts = results::Json::array();
  for (size_t i = 0; i < found.conforming.size(); ++i) {
    const QualifiedUnit& unit = found.conforming[i];
    if (!unit.done) continue;
    conforming.push_back({{"position", i}, {"name", unit.name}, {"rows", unit.rows}});
  }
  size_t own = 0;  // found.defects has no others
  for (size_t i = 0; i < found.verdicts.size(); ++i) {
    const QualifiedUnit& unit = found.verdicts[i];
    if (!unit.own) continue;
    const DefectVerdict& verdict = found.defects[own++];
    if (!unit.done) continue;
    results::Json entry = {{"position", found.conforming.size() + i},
                           {"name", unit.name},
                           {"rows", unit.rows},
                           {"missed", verdict.missed_because()}};
    entry.update(matrix_entry(verdict));
    verdicts.push_back(std::move(entry));
  }
  row.units = {{"conforming", std::move(conforming)}, {"verdicts", std::move(verdicts)}};
  row.tests_run = found.ran_on_broken;
  row.tests_caught = found.caught_something;
  row.problems = found.problems;
  return row;
}

results::Json matrix_of(const QualifyPlan& plan, const Qualification& found) {
  results::Json microarchs = results::Json::array();
  for (const arch::Microarch* microarch : plan.microarchs) microarchs.push_back(microarch->name);
  results::Json defects = results::Json::array();
  for (const DefectVerdict& verdict : found.defects) {
    defects.push_back(matrix_entry(verdict));
  }
  return {{"microarchs", std::move(microarchs)},
          {"seed", plan.seed},
          {"all", plan.all},
          {"defects", std::move(defects)}};
}

results::QualificationRow row_of(const QualifyPlan& plan, const Qualification& found) {
  results::QualificationRow row;
  for (const arch::Microarch* microarch : plan.microarchs) {
    row.microarchs.emplace_back(microarch->name);
  }
  row.seeds = plan.seeds;
  row.conforming_runs = found.conforming_runs;
  row.conforming_failures = found.accusations.size();
  std::set<std::string> accusers;
  for (const results::TestRow& accusation : found.accusations) accusers.insert(accusation.id);
  row.accused_by.assign(accusers.begin(), accusers.end());
  row.defects = found.defects.size();
  for (const DefectVerdict& verdict : found.defects) {
    if (verdict.caught_by().empty()) {
      const std::string rough = verdict.rough ? fmt::format("~rough={}", *verdict.rough) : "";
      const std::string why = verdict.missed_because();
      row.missed.push_back(fmt::format("{} on {}{}{}", verdict.defect->id, verdict.microarch->name,
                                       rough, why.empty() ? "" : fmt::format(" ({})", why)));
    } else {
      ++row.caught;
    }
  }
  row.tests_without_catch = found.tests_without_catch;
  row.held = row.missed.empty() && row.conforming_failures == 0 && row.defects > 0 &&
             row.conforming_runs > 0;
  return row;
}

}  // namespace skidproof::cli
