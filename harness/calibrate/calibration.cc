#include "harness/calibrate/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "harness/calibrate/placed_program.h"
#include "harness/stats/robust.h"
#include "pebs/arch/event.h"
#include "pebs/session.h"

namespace skidproof::calibrate {
namespace {

using arch::Event;
using arch::EventKind;
using arch::Signal;

constexpr unsigned kTries = 9;
constexpr uint64_t kPeriod = 64;  // no Broadwell repeats records (BDM55)
constexpr size_t kRecords = 12;
constexpr unsigned kInstructionsCounter = 0, kCyclesCounter = 1;  // fixed

// What a measurement has at hand.
struct Bench {
  Machine& machine;
  const arch::Microarch& row;
  uint64_t seed;

  Expected<PlacedProgram> program(std::string_view kernel, const std::string& parameters) const {
    return place_program(machine, kernel, parameters, seed);
  }
};

tl::unexpected<Error> cannot(std::string why) {
  return fail(ErrorCode::kNotAvailable, std::move(why));
}

// The plain event of a signal on a counter: one that PEBS takes, or any.
const Event* plain_event(const arch::Microarch& row, Signal signal, unsigned counter,
                         bool precise) {
  for (const Event& e : row.events) {
    if (e.signal != signal || e.cmask != 0 || e.invert || e.kind > EventKind::kPebsOnly) continue;
    const uint32_t where = precise ? e.pebs_counters : e.counters;
    const bool kind = !precise || e.kind == EventKind::kPebs || e.kind == EventKind::kPebsOnly;
    if (kind && ((where >> counter) & 1) != 0) return &e;
  }
  return nullptr;
}

// An event that comes once an iteration of sparse_event, and which no assist can have.
struct Sparse {
  const char* word = "";
  const Event* event = nullptr;
};
Sparse sparse_event(const arch::Microarch& row, unsigned counter) {
  for (auto [word, signal] : {std::pair{"taken", Signal::kConditional}, {"simd", Signal::kSimd}}) {
    if (const Event* event = plain_event(row, signal, counter, true)) return {word, event};
  }
  return {};
}

Figure figure_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {.value = stats::median(samples),
          .low = samples.front(),
          .high = samples.back(),
          .n = samples.size(),
          .reason = {}};
}
Figure at_most(std::vector<double> samples) {
  Figure figure = figure_of(std::move(samples));
  figure.value = figure.high;
  return figure;
}

// Room for so many records, or for as many as a buffer that is safe on this microarch holds.
size_t safe_records(const arch::Microarch& row, size_t wish) {
  const size_t limit = row.pebs_buffer_limit_bytes;
  return limit == 0 ? wish : std::min(wish, limit / SessionPlan{}.record_bytes(row));
}

// --- Start and stop

Expected<SessionRun> run_once(const Bench& bench, const SessionPlan& plan, const Program& program,
                              uint64_t iterations) {
  Session session = SKIDPROOF_TRY(Session::open(bench.machine, plan));
  return session.run(program, iterations);
}

// Instructions that a counter sees beside the program's own.
Expected<Figure> edge_instructions(const Bench& bench) {
  if (bench.row.fixed_counters <= kInstructionsCounter)
    return cannot("there is no fixed counter of instructions");
  const PlacedProgram placed = SKIDPROOF_TRY(bench.program("nop_sled", "count=64"));
  SessionPlan plan;
  plan.fixed = {{.counter = kInstructionsCounter}};
  std::vector<double> samples;
  for (unsigned i = 0; i < kTries; ++i) {
    const SessionRun run = SKIDPROOF_TRY(run_once(bench, plan, placed.program, 1));
    samples.push_back(static_cast<double>(run.fixed.at(0)) -
                      static_cast<double>(placed.program.total(1).instructions));
  }
  return figure_of(std::move(samples));
}

// Cycles that one counter sees more than another in the same run: how long the run takes differs from
// one to the next, and says nothing of its ends.
Expected<Figure> edge_cycles(const Bench& bench) {
  if (bench.row.fixed_counters <= kCyclesCounter)
    return cannot("there is no fixed counter of cycles");
  const auto counter = static_cast<unsigned>(__builtin_ctz(bench.row.pebs_counters));
  const Event* cycles = plain_event(bench.row, Signal::kCycles, counter, false);
  if (cycles == nullptr) return cannot("no event counts cycles");
  const PlacedProgram placed = SKIDPROOF_TRY(bench.program("nop_sled", "count=64"));
  SessionPlan plan;
  plan.counters = {CounterSetup::of(counter, *cycles, 0, false)};
  plan.fixed = {{.counter = kCyclesCounter}};
  std::vector<double> samples;
  for (unsigned i = 0; i < kTries; ++i) {
    const SessionRun run = SKIDPROOF_TRY(run_once(bench, plan, placed.program, 1));
    samples.push_back(static_cast<double>(run.counters.at(0)) -
                      static_cast<double>(run.fixed.at(0)));
  }
  return figure_of(std::move(samples));
}

// --- What a record takes

// The same run with PEBS and without: what each record makes the difference.
Expected<Figure> each_record(const Bench& bench, SessionPlan plan,
                             const std::function<double(const SessionRun&)>& read) {
  const unsigned sampling = static_cast<unsigned>(__builtin_ctz(bench.row.pebs_counters));
  const Sparse sparse = sparse_event(bench.row, sampling);
  if (sparse.event == nullptr) return cannot("PEBS takes neither jumps nor SIMD instructions");
  const PlacedProgram placed =
      SKIDPROOF_TRY(bench.program("sparse_event", fmt::format("event={}", sparse.word)));
  const uint64_t period = std::max<uint64_t>(kPeriod, bench.row.minimum_period);
  plan.buffer_records = safe_records(bench.row, 2 * kRecords);
  std::vector<double> samples;
  for (unsigned i = 0; i < kTries; ++i) {
    plan.counters.insert(plan.counters.begin(),
                         CounterSetup::of(sampling, *sparse.event, period, false));
    const double without =
        read(SKIDPROOF_TRY(run_once(bench, plan, placed.program, kRecords * period)));
    plan.counters.front().pebs = true;
    Session session = SKIDPROOF_TRY(Session::open(bench.machine, plan));
    const SessionRun run = SKIDPROOF_TRY(session.run(placed.program, kRecords * period));
    plan.counters.erase(plan.counters.begin());
    const size_t records = session.records().size();
    if (records == 0) return cannot("nothing was recorded");
    samples.push_back((read(run) - without) / static_cast<double>(records));
  }
  return figure_of(std::move(samples));
}

Expected<Figure> record_cycles(const Bench& bench) {
  if (bench.row.fixed_counters <= kCyclesCounter)
    return cannot("there is no fixed counter of cycles");
  SessionPlan plan;
  plan.fixed = {{.counter = kCyclesCounter}};
  return each_record(bench, plan,
                     [](const SessionRun& run) { return static_cast<double>(run.fixed.at(0)); });
}

Expected<Figure> record_events(const Bench& bench, Signal signal) {
  const unsigned sampling = static_cast<unsigned>(__builtin_ctz(bench.row.pebs_counters));
  const unsigned counter = sampling + 1;
  const Event* event = plain_event(bench.row, signal, counter, false);
  if (event == nullptr) return cannot("no event counts it");
  SessionPlan plan;
  plan.counters = {CounterSetup::of(counter, *event, 0, false)};
  return each_record(bench, plan,
                     [](const SessionRun& run) { return static_cast<double>(run.counters.at(1)); });
}

// --- Arming

// Events further and further apart, until none passes between an overflow and the event that is
// recorded: what lies between two events then is time enough to arm.
Expected<Figure> arming_cycles(const Bench& bench) {
  if (bench.row.fixed_counters <= kCyclesCounter)
    return cannot("there is no fixed counter of cycles");
  const auto sampling = static_cast<unsigned>(__builtin_ctz(bench.row.arming_counters()));
  const Sparse sparse = sparse_event(bench.row, sampling);
  if (sparse.event == nullptr) return cannot("PEBS takes neither jumps nor SIMD instructions");
  const uint64_t period = std::max<uint64_t>(kPeriod, bench.row.minimum_period);
  constexpr size_t kArmings = 24;
  // A full buffer would end the recording before the run.
  const size_t room = safe_records(bench.row, 2 * kArmings);
  const uint64_t iterations = std::min(kArmings, room - room / 8) * (period + 2);
  for (unsigned spacing = 2; spacing <= 1024; spacing *= 2) {
    const PlacedProgram placed = SKIDPROOF_TRY(
        bench.program("sparse_event", fmt::format("event={},spacing={}", sparse.word, spacing)));
    SessionPlan plan;
    plan.buffer_records = room;
    plan.fixed = {{.counter = kCyclesCounter}};
    plan.counters = {CounterSetup::of(sampling, *sparse.event, 0, false)};
    const SessionRun alone = SKIDPROOF_TRY(run_once(bench, plan, placed.program, iterations));
    plan.counters = {CounterSetup::of(sampling, *sparse.event, period)};
    Session session = SKIDPROOF_TRY(Session::open(bench.machine, plan));
    const SessionRun run = SKIDPROOF_TRY(session.run(placed.program, iterations));
    const uint64_t records = session.records().size();
    const uint64_t mask = minus_period(1, bench.row.gp_width);
    const uint64_t rest = (run.counters.at(0) + period) & mask;
    const uint64_t passed =
        alone.counters.at(0) - std::min(alone.counters.at(0), records * period + rest);
    // Each record takes the event behind the overflow (R2); what is beyond that had to wait.
    if (records == 0 || passed > records + 2) continue;
    const double apart = static_cast<double>(alone.fixed.at(0)) / static_cast<double>(iterations);
    return Figure{.value = apart, .low = apart / 2, .high = apart, .n = records, .reason = {}};
  }
  return cannot("events pass by however far they are apart");
}

// --- Load latency

Expected<Figure> loads_a_tag(const Bench& bench) {
  const Event* event = nullptr;
  for (const Event& e : bench.row.events) {
    if (e.kind == EventKind::kLoadLatency) event = &e;
  }
  if (event == nullptr || bench.row.load_latency_counters == 0)
    return cannot("there is no load latency");
  const auto counter = static_cast<unsigned>(__builtin_ctz(bench.row.load_latency_counters));
  const PlacedProgram placed = SKIDPROOF_TRY(bench.program("pointer_chase", "bytes=4194304"));
  // The counter begins at zero, overflows never and records nothing. A rate of a handful of tags would be
  // no more than its order: then eight times the loads, to one tag in 30,000.
  constexpr uint64_t kEnough = 64;
  uint64_t tags = 0;
  for (const uint64_t loads : {30'000, 240'000, 1'920'000}) {
    SessionPlan plan;
    plan.counters = {CounterSetup::of(counter, *event, 0)};
    plan.buffer_records = 1;
    const SessionRun run = SKIDPROOF_TRY(run_once(bench, plan, placed.program, loads));
    tags = run.counters.at(0);
    if (tags < kEnough) continue;
    const double each =
        static_cast<double>(placed.program.total(loads).loads) / static_cast<double>(tags);
    return Figure{.value = each, .low = each, .high = each, .n = tags, .reason = {}};
  }
  return cannot(tags == 0 ? "no load was tagged" : "next to no load was tagged");
}

// --- Interrupts

Expected<Figure> pmi_lateness(const Bench& bench) {
  const auto counter = static_cast<unsigned>(__builtin_ctz(bench.row.pebs_counters));
  const Event* event = plain_event(bench.row, Signal::kUops, counter, true);
  if (event == nullptr) event = plain_event(bench.row, Signal::kInstructions, counter, true);
  if (event == nullptr) return cannot("PEBS takes neither uops nor instructions");
  const PlacedProgram placed = SKIDPROOF_TRY(bench.program("nop_sled", "count=8192"));
  std::vector<double> samples;
  for (unsigned i = 0; i < 4 * kTries; ++i) {
    SessionPlan plan;
    plan.counters = {CounterSetup::of(counter, *event, 1500 + 37 * i)};
    plan.threshold_records = 1;
    plan.buffer_records = 16;
    Session session = SKIDPROOF_TRY(Session::open(bench.machine, plan));
    const SessionRun run = SKIDPROOF_TRY(session.run(placed.program, 1));
    if (session.records().empty() || run.log.pmis.empty()) continue;
    const uint64_t record = session.records().front().ip(), met = run.log.pmis.front().ip;
    const uint64_t first = placed.program.mark("nop");
    if (record < first || met < record || met >= first + 8192) continue;
    samples.push_back(static_cast<double>(met - record));
  }
  if (samples.empty()) return cannot("no interrupt arrived within the program");
  return at_most(std::move(samples));
}

Expected<Figure> measure(Quantity quantity, const Bench& bench) {
  if (!bench.row.architectural_perfmon())
    return cannot("events are selected by ESCRs and CCCRs here");
  switch (quantity) {
    case Quantity::kEdgeInstructions:
      return edge_instructions(bench);
    case Quantity::kEdgeCycles:
      return edge_cycles(bench);
    case Quantity::kRecordCycles:
      return record_cycles(bench);
    case Quantity::kRecordUops:
      return record_events(bench, Signal::kUops);
    case Quantity::kRecordLoads:
      return record_events(bench, Signal::kLoads);
    case Quantity::kRecordStores:
      return record_events(bench, Signal::kStores);
    case Quantity::kArmingCycles:
      return arming_cycles(bench);
    case Quantity::kLoadsATag:
      return loads_a_tag(bench);
    case Quantity::kPmiLateness:
      return pmi_lateness(bench);
  }
  return cannot("no such figure");
}

}  // namespace

std::string_view name_of(Quantity quantity) {
  constexpr std::array<std::string_view, kQuantities.size()> kNames = {
      "calibration.edge-instructions", "calibration.edge-cycles",   "calibration.record-cycles",
      "calibration.record-uops",       "calibration.record-loads",  "calibration.record-stores",
      "calibration.arming-cycles",     "calibration.loads-per-tag", "calibration.pmi-lateness"};
  return kNames[static_cast<size_t>(quantity)];
}

std::string_view unit_of(Quantity quantity) {
  constexpr std::array<std::string_view, kQuantities.size()> kUnits = {
      "instructions", "cycles", "cycles", "uops",        "loads",
      "stores",       "cycles", "loads",  "instructions"};
  return kUnits[static_cast<size_t>(quantity)];
}

const Figure& Calibration::operator[](Quantity quantity) {
  std::optional<Figure>& figure = figures_[static_cast<size_t>(quantity)];
  if (figure) return *figure;
  auto measured = [&]() -> Expected<Figure> {
    const std::shared_ptr<Machine> machine =
        SKIDPROOF_TRY(machine_for_(std::string(name_of(quantity))));
    const Identity& who = machine->identity();
    if (!who.pmu || who.microarch == nullptr)
      return cannot("there is no PMU that can be programmed");
    return measure(quantity, {.machine = *machine, .row = *who.microarch, .seed = seed_});
  }();
  figure = measured ? *std::move(measured) : Figure{.reason = measured.error().message};
  return *figure;
}

}  // namespace skidproof::calibrate
