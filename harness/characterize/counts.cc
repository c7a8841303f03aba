// Events chosen, a session held open, and what its counters say of each run.
#include "harness/characterize/counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/characterize/workbench.h"
#include "harness/stats/robust.h"
#include "pebs/capabilities.h"

namespace skidproof {
namespace {

using arch::Signal;

constexpr unsigned kEdgeRuns = 24;

// "l1_hit_loads" of "L1-hit loads": a key for rows.
std::string key_of(Signal signal) {
  std::string key = arch::name_of(signal);
  for (char& c : key) {
    if (c == ' ' || c == '-') c = '_';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return key;
}

// Published without qualifiers, and not for PEBS alone.
bool plain(const arch::Event& event) {
  return event.cmask == 0 && !event.invert && event.kind < arch::EventKind::kPebsOnly &&
         event.counters != 0;
}

const arch::Event* event_on(const arch::Microarch& row, unsigned counter, Signal signal) {
  for (const arch::Event& event : row.events) {
    if (event.signal == signal && plain(event) && ((event.counters >> counter) & 1) != 0)
      return &event;
  }
  return nullptr;
}

// A counter for each signal, tried from the lowest.
bool place_all(const arch::Microarch& row, unsigned counters, std::span<const Signal> signals,
               unsigned used, std::vector<ChosenEvent>& chosen) {
  if (signals.empty()) return true;
  for (unsigned n = 0; n < counters; ++n) {
    if (((used >> n) & 1) != 0) continue;
    const arch::Event* event = event_on(row, n, signals.front());
    if (event == nullptr) continue;
    chosen.push_back({n, event});
    if (place_all(row, counters, signals.subspan(1), used | 1U << n, chosen)) return true;
    chosen.pop_back();
  }
  return false;
}

double middle_of(std::vector<double> values) { return stats::median(values); }

Counts combined(const Counts& a, const Counts& b, double sign) {
  if (!a.any() || !b.any()) return {};
  Counts out = a;
  for (size_t i = 0; i < a.size; ++i) out.values[i] += sign * b.values[i];
  out.declared += sign * b.declared;
  out.timed += sign * b.timed;
  out.judged = a.judged && b.judged;
  out.instructions_agree = a.instructions_agree && b.instructions_agree;
  out.cycles_agree = a.cycles_agree && b.cycles_agree;
  return out;
}

}  // namespace

Counts Counts::per(double units) const {
  Counts out = *this;
  for (double& value : out.values) value /= units;
  out.declared /= units;
  out.timed /= units;
  return out;
}

Counts operator+(const Counts& a, const Counts& b) { return combined(a, b, 1); }
Counts operator-(const Counts& a, const Counts& b) { return combined(a, b, -1); }

Agreements& Agreements::operator+=(Agreements other) {
  judged += other.judged;
  agree += other.agree;
  if (first.empty()) first = std::move(other.first);
  return *this;
}

bool undisturbed_counts(const Noise& noise) {
  return !disturbed(noise) && noise.smi == 0 && noise.machine_checks == 0 &&
         noise.foreign_nmis == 0;
}

std::vector<ChosenEvent> choose_events(const arch::Microarch& row, unsigned counters,
                                       std::span<const Signal> signals) {
  std::vector<Signal> known;
  for (const Signal signal : signals) {
    bool counted = false;
    for (unsigned n = 0; n < counters; ++n) counted |= event_on(row, n, signal) != nullptr;
    if (counted) known.push_back(signal);
  }
  std::vector<ChosenEvent> chosen;
  while (!known.empty() && !place_all(row, counters, known, 0, chosen)) known.pop_back();
  return chosen;
}

Counters::Counters(Session session, std::vector<std::string> names, std::vector<Signal> signals)
    : session_(std::move(session)), names_(std::move(names)), signals_(std::move(signals)) {}

Expected<std::unique_ptr<Counters>> Counters::open(Machine& machine, std::span<const Signal> beside,
                                                   const Program& empty) {
  const Identity& who = machine.identity();
  if (!who.pmu || who.microarch == nullptr) {
    return fail(ErrorCode::kNotAvailable, who.name + " has no PMU whose events are known");
  }
  const arch::Microarch& row = *who.microarch;
  const Capabilities found = SKIDPROOF_TRY(read_capabilities(machine));
  const bool fixed = row.fixed_counters >= 2;
  const unsigned counters = found.gp_counters != 0 ? found.gp_counters : row.gp_counters;
  std::vector<Signal> wanted;
  if (!fixed) wanted = {Signal::kInstructions, Signal::kCycles};
  const size_t own = wanted.size();
  wanted.insert(wanted.end(), beside.begin(), beside.end());
  wanted.resize(std::min(wanted.size(), Counts::kMost - (2 - own)));
  const std::vector<ChosenEvent> chosen = choose_events(row, counters, wanted);
  if (!fixed && (chosen.size() < 2 || chosen[0].event->signal != Signal::kInstructions ||
                 chosen[1].event->signal != Signal::kCycles)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} has no events of instructions and cycles that can be counted "
                            "beside one another",
                            row.title));
  }
  SessionPlan plan;
  plan.ring = Ring::kUser;
  plan.buffer_records = 1;
  std::vector<Signal> signals = {Signal::kInstructions, Signal::kCycles};
  if (fixed) plan.fixed = {{.counter = 0, .os = false}, {.counter = 1, .os = false}};
  for (size_t i = 0; i < chosen.size(); ++i) {
    CounterSetup setup = CounterSetup::of(chosen[i].counter, *chosen[i].event, 0, false);
    setup.os = false;
    plan.counters.push_back(setup);
    if (i >= own) signals.push_back(chosen[i].event->signal);
  }
  std::vector<std::string> names;
  names.reserve(signals.size());
  for (const Signal signal : signals) names.push_back(key_of(signal));
  std::unique_ptr<Counters> made(new Counters(SKIDPROOF_TRY(Session::open(machine, plan)),
                                              std::move(names), std::move(signals)));
  SKIDPROOF_CHECK(made->measure_edge(empty));
  return made;
}

std::optional<size_t> Counters::place(Signal signal) const {
  const auto found = std::find(signals_.begin(), signals_.end(), signal);
  if (found == signals_.end()) return std::nullopt;
  return static_cast<size_t>(found - signals_.begin());
}

Expected<CountedRun> Counters::run_raw(const Program& program, uint64_t iterations) {
  SessionRun ran = SKIDPROOF_TRY(session_.run(program, iterations));
  CountedRun run{{std::move(ran.log), {}}, {}};
  std::vector<uint64_t> values = std::move(ran.fixed);
  values.insert(values.end(), ran.counters.begin(), ran.counters.end());
  run.counts.size = std::min(values.size(), Counts::kMost);
  for (size_t i = 0; i < run.counts.size; ++i)
    run.counts.values[i] = static_cast<double>(values[i]);
  run.counts.declared = static_cast<double>(program.total(iterations).instructions);
  run.counts.judged = undisturbed_counts(run.noise);
  return run;
}

// The middle of what stands beside the program's own, the least ticks, and how far both vary.
Expected<void> Counters::measure_edge(const Program& empty) {
  std::array<std::vector<double>, Counts::kMost> values;
  std::vector<double> ticks;
  SKIDPROOF_CHECK(run_raw(empty, 1));  // its pages and its code come in
  for (unsigned i = 0; i < kEdgeRuns; ++i) {
    const CountedRun run = SKIDPROOF_TRY(run_raw(empty, 1));
    if (!run.counts.judged) continue;
    for (size_t at = 0; at < run.counts.size; ++at) {
      const double own = at == Counts::kInstructions ? run.counts.declared : 0;
      values[at].push_back(run.counts.values[at] - own);
    }
    ticks.push_back(static_cast<double>(run.tsc));
  }
  if (ticks.empty()) return {};  // nothing but disturbed runs: nothing is taken away
  for (size_t at = 0; at < names_.size() && !values[at].empty(); ++at) {
    const auto [least, most] = std::minmax_element(values[at].begin(), values[at].end());
    edge_[at] = middle_of(values[at]);
    apart_[at] = 2 * (*most - *least);
  }
  // Ticks that something made more are seldom the least.
  edge_ticks_ = static_cast<uint64_t>(stats::minimum(ticks));
  ticks_apart_ = 2 * (middle_of(ticks) - static_cast<double>(edge_ticks_));
  return {};
}

Expected<CountedRun> Counters::run(const Program& program, uint64_t iterations) {
  CountedRun run = SKIDPROOF_TRY(run_raw(program, iterations));
  for (size_t at = 0; at < run.counts.size; ++at) run.counts.values[at] -= edge_[at];
  // One tick at least: it is divided by.
  run.tsc = run.tsc > edge_ticks_ ? run.tsc - edge_ticks_ : 1;
  run.counts.instructions_agree =
      std::abs(run.counts.instructions() - run.counts.declared) <= apart_[Counts::kInstructions];
  if (!run.counts.judged) return run;
  ++agreements_.judged;
  if (run.counts.instructions_agree) {
    ++agreements_.agree;
  } else if (agreements_.first.empty()) {
    agreements_.first =
        fmt::format("{} instructions counted of {} iterations of {}, which declares {}",
                    run.counts.instructions(), iterations, program.id(), run.counts.declared);
  }
  return run;
}

Agreements Counters::take_agreements() { return std::exchange(agreements_, {}); }

std::optional<MeasuredCounts> measured_counts(const std::vector<std::string>& names,
                                              std::span<const Counts> samples,
                                              std::span<const double> values, Statistic statistic) {
  const size_t n = std::min(samples.size(), values.size());
  if (n == 0 || !std::any_of(samples.begin(), samples.end(),
                             [](const Counts& counts) { return counts.any(); }))
    return std::nullopt;
  const double figure = stats::quantile(values, share_below(statistic));
  const Counts* middle = nullptr;
  double nearest = INFINITY;
  uint64_t judged = 0, wrong_instructions = 0, wrong_cycles = 0;
  const Counts* odd = nullptr;  // the first that contradicts
  for (size_t i = 0; i < n; ++i) {
    const Counts& counts = samples[i];
    if (!counts.any()) continue;
    if (middle == nullptr || std::abs(values[i] - figure) < nearest) {
      middle = &counts;
      nearest = std::abs(values[i] - figure);
    }
    if (!counts.judged) continue;
    ++judged;
    wrong_instructions += counts.instructions_agree ? 0 : 1;
    wrong_cycles += counts.cycles_agree ? 0 : 1;
    if (odd == nullptr && !counts.instructions_agree) odd = &counts;
  }
  MeasuredCounts out;
  for (size_t i = 0; i < middle->size && i < names.size(); ++i)
    out.each[names[i]] = middle->values[i];
  if (judged == 0) return out;
  out.agree = wrong_instructions == 0 && 2 * wrong_cycles <= judged;
  if (wrong_instructions != 0) {
    // A difference of two may be as declared where neither is.
    const std::string what =
        odd->instructions() == odd->declared
            ? "those of the runs are not as declared"
            : fmt::format("{:.6g} counted, {:.6g} declared", odd->instructions(), odd->declared);
    out.differ =
        fmt::format("instructions: {}, in {} of {} samples", what, wrong_instructions, judged);
  }
  if (2 * wrong_cycles > judged) {
    out.differ += fmt::format("{}cycles: {:.6g} counted, {:.6g} by the TSC, in {} of {} samples",
                              out.differ.empty() ? "" : "; ", middle->cycles(), middle->timed,
                              wrong_cycles, judged);
  }
  return out;
}

}  // namespace skidproof
