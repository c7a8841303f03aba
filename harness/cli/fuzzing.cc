// Batches of cases, of some tenths of a second, each in a process of its own: what a broken model does to its process ends there.
#include "harness/cli/fuzzing.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "harness/cli/worker_pool.h"
#include "harness/fuzz/generator.h"

namespace skidproof::cli {
namespace {

using Clock = std::chrono::steady_clock;
using fuzz::Case;
using fuzz::Executor;
using fuzz::Json;
using fuzz::Outcome;
using fuzz::Tally;
using fuzz::Violation;

constexpr std::chrono::seconds kShrinkFor{10};
constexpr std::chrono::seconds kBatchLimit{120};

constexpr std::pair<const char*, uint64_t Tally::*> kTallyFields[] = {
    {"cases", &Tally::cases},           {"runs", &Tally::runs},
    {"exact_runs", &Tally::exact_runs}, {"instructions", &Tally::instructions},
    {"records", &Tally::records},       {"exact_records", &Tally::exact_records},
    {"writes", &Tally::writes},         {"refused", &Tally::refused},
    {"interrupts", &Tally::interrupts}};

// A kind of machine: fresh ones by seed, and what executes cases on them.
struct Bench {
  OpenMachine machine;
  unsigned gp_counters = 0;
  std::unique_ptr<Executor> executor;

  static Expected<Bench> open(const MachineOptions& options) {
    Bench bench;
    bench.machine = SKIDPROOF_TRY(open_machine(options, 1));
    const Identity& who = bench.machine.identity;
    if (!who.pmu || who.microarch == nullptr) {
      return fail(ErrorCode::kNotAvailable, fmt::format("{} has no PMU to be fuzzed", who.name),
                  "use a model, for example --machine model:sandy-bridge");
    }
    const auto first = SKIDPROOF_TRY(bench.machine.source->machine({.seed = 1}));
    bench.gp_counters = (first->cpuid(0xA, 0).eax >> 8) & 0xFF;
    bench.executor = SKIDPROOF_TRY(Executor::create(*who.microarch));
    return bench;
  }

  Expected<Outcome> run(const Case& c) {
    const auto fresh = SKIDPROOF_TRY(machine.source->machine({.seed = c.machine_seed}));
    return executor->run(*fresh, c);
  }
};

// A stretch of one machine's cases.
struct Batch {
  const MachineOptions* machine = nullptr;
  uint64_t first = 0, count = 0;  // numbers of cases, of this machine
};

void send(int descriptor, const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(descriptor, text.data() + done, text.size() - done);
    if (written <= 0) return;
    done += static_cast<size_t>(written);
  }
}

Json violation_json(const Case& found, Bench& bench, const Violation& violation) {
  const fuzz::Judge judge = [&bench](const Case& c) -> std::optional<Violation> {
    auto outcome = bench.run(c);
    if (!outcome) return std::nullopt;
    return std::move(outcome->violation);
  };
  const fuzz::Shrunk shrunk = fuzz::shrink(found, violation, judge, kShrinkFor);
  return {{"found", fuzz::json_of(found)},
          {"smallest", fuzz::json_of(shrunk.smallest)},
          {"evaluations", shrunk.evaluations}};
}

// In the worker.
void work(const FuzzPlan& plan, const Batch& batch, Clock::time_point end, int descriptor) {
  Json report = Json::object();
  Tally tally;
  std::vector<Bench> benches;
  for (bool sibling : {true, false}) {
    MachineOptions options = *batch.machine;
    options.sibling_thread = sibling;
    auto bench = Bench::open(options);
    if (!bench) return send(descriptor, {{"problem", bench.error().text()}});
    benches.push_back(std::move(*bench));
  }
  const std::string& name = benches.front().machine.identity.name;
  const uint64_t seed = derive_seed(plan.seed, name.substr(0, name.find('+')).c_str());
  for (uint64_t i = 0; i < batch.count && (i == 0 || Clock::now() < end); ++i) {
    const uint64_t number = batch.first + i;
    Bench& bench = benches[number % benches.size()];
    const Case c = fuzz::generate_case(bench.machine.identity, bench.gp_counters,
                                       Random(seed + number).next());
    auto outcome = bench.run(c);
    if (!outcome) {
      report["problem"] = fmt::format("{}, case {}: {}", name, number, outcome.error().text());
      report["case"] = fuzz::json_of(c);
      break;
    }
    tally += outcome->tally;
    if (!outcome->violation) continue;
    report["violation"] = violation_json(c, bench, *outcome->violation);
    break;
  }
  for (const auto& [field, member] : kTallyFields) report["tally"][field] = tally.*member;
  send(descriptor, report);
}

class Fuzzer {
 public:
  Fuzzer(const FuzzPlan& plan, const std::function<void(const FuzzResult&)>& progress)
      : plan_(plan),
        progress_(progress),
        began_(Clock::now()),
        end_(began_ + std::chrono::duration_cast<Clock::duration>(
                          std::chrono::duration<double>(plan.seconds))),
        pool_(plan.jobs, kBatchLimit),
        next_(plan.machines.size()) {}

  FuzzResult go() {
    while (true) {
      while (pool_.room() && more()) start();
      if (pool_.idle() || !result_.problems.empty()) break;
      const std::vector<WorkDone> done = pool_.wait();
      if (done.empty()) break;
      for (const WorkDone& one : done) take(one);
      result_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
      progress_(result_);
      if (!result_.violations.empty()) break;
    }
    result_.interrupted = pool_.interrupted();
    result_.seconds = std::chrono::duration<double>(Clock::now() - began_).count();
    return std::move(result_);
  }

 private:
  bool more() const {
    if (plan_.cases > 0 && started_ >= plan_.cases) return false;
    return Clock::now() < end_ && result_.problems.empty();
  }

  // The next batch that is this shard's; one without cases where there is none.
  Batch draw() {
    while (plan_.cases == 0 || started_ < plan_.cases) {
      const uint64_t number = drawn_++;
      const size_t turn = number % plan_.machines.size();
      Batch batch{.machine = &plan_.machines[turn], .first = next_[turn], .count = kFuzzBatch};
      if (plan_.cases > 0) batch.count = std::min(batch.count, plan_.cases - started_);
      next_[turn] += batch.count;
      started_ += batch.count;
      if (!plan_.shard || plan_.shard->has(number)) return batch;
    }
    return {};
  }

  void start() {
    const Batch batch = draw();
    if (batch.count == 0) return;  // the rest is other shards'
    batches_.push_back(batch);
    const auto begun = pool_.start(batches_.size() - 1, [this, batch](int descriptor) {
      work(plan_, batch, end_, descriptor);
    });
    if (!begun) result_.problems.push_back(begun.error().text());
  }

  void take(const WorkDone& done) {
    const Batch& batch = batches_[done.id];
    auto problem = [&](const std::string& what) {
      result_.problems.push_back(fmt::format("{}, cases {} to {}: {}", batch.machine->name,
                                             batch.first, batch.first + batch.count - 1, what));
    };
    if (!done.problem.empty()) return problem(done.problem);
    const Json report = Json::parse(done.output, nullptr, false);
    if (!report.is_object()) return problem("the worker said nothing");
    if (report.contains("problem")) return problem(report["problem"].get<std::string>());
    Tally tally;
    for (const auto& [field, member] : kTallyFields) {
      tally.*member = report["tally"].value(field, uint64_t{0});
    }
    result_.tally += tally;
    result_.cases_of[batch.machine->name] += tally.cases;
    if (!report.contains("violation")) return;
    const Json& violation = report["violation"];
    FoundViolation found;
    auto original = fuzz::case_of(violation["found"]);
    auto smallest = fuzz::case_of(violation["smallest"]);
    if (!original || !smallest) return problem("a violation without its case");
    found.found = std::move(*original);
    found.shrunk.smallest = std::move(*smallest);
    found.shrunk.evaluations = violation["evaluations"].get<uint64_t>();
    // Run once more, here: what is reported is what its replay gives.
    auto again = run_case(found.shrunk.smallest);
    if (!again || !again->violation) return problem("a violation that does not come again");
    found.shrunk.violation = std::move(*again->violation);
    result_.violations.push_back(std::move(found));
  }

  const FuzzPlan& plan_;
  const std::function<void(const FuzzResult&)>& progress_;
  const Clock::time_point began_, end_;
  WorkerPool pool_;
  std::vector<uint64_t> next_;  // case of each machine
  std::vector<Batch> batches_;
  uint64_t drawn_ = 0;    // batches, with those of other shards
  uint64_t started_ = 0;  // cases of these
  FuzzResult result_;
};

}  // namespace

FuzzResult run_fuzzing(const FuzzPlan& plan,
                       const std::function<void(const FuzzResult&)>& progress) {
  return Fuzzer(plan, progress).go();
}

Expected<Outcome> run_case(const Case& c) {
  Bench bench = SKIDPROOF_TRY(
      Bench::open({.name = c.machine, .sibling_thread = c.sibling_thread, .defects = {}}));
  return bench.run(c);
}

}  // namespace skidproof::cli
