// Programs made, timed and calibrated for the characterization.
#include "harness/characterize/workbench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "harness/run/clock.h"
#include "harness/run/noise.h"

namespace skidproof {
namespace {

constexpr double kMostClockChange = 0.01;
constexpr int kClockRetries = 3;
constexpr uint64_t kChainLength = 256;
constexpr uint64_t kChainIterations = 120;
constexpr uint64_t kLongChain = 10;  // times as long
constexpr int kChainTries = 8;
constexpr size_t kChainsBeside = 2;
constexpr std::chrono::microseconds kRatioHolds{500};

// An interrupt takes microseconds: a run as long as this meets the timer's anyway, and they are nothing in it.
constexpr double kLongRun = 2e-3;  // s

// The least of the calls of one thing; of calls in laps the sum of each lap's least.
struct Least {
  double long_run = INFINITY;               // ticks
  double quiet = INFINITY, any = INFINITY;  // ticks
  unsigned quiet_calls = 0;
  bool whole =
      false;  // a call in which nobody else had the CPU, though interrupts may have come: long ones meet the timer's
  Noise noise;
  Counts quiet_counts, any_counts;  // of the same calls
  std::vector<uint64_t> quiet_laps, any_laps;

  void add(const CountedRun& run) {
    const auto ticks = static_cast<double>(run.tsc);
    if (ticks < any) any_counts = run.counts;
    any = std::min(any, ticks);
    keep_least(any_laps, run.laps);
    Noise noticed = run.noise;
    if (ticks >= long_run) noticed.interrupted = 0;
    if (disturbed(noticed)) {
      ++noise.repeats;
    } else {
      if (ticks < quiet) quiet_counts = run.counts;
      quiet = std::min(quiet, ticks);
      keep_least(quiet_laps, run.laps);
      ++quiet_calls;
    }
    whole |=
        run.noise.involuntary_switches == 0 && run.noise.migrations == 0 && run.noise.steal_s <= 0;
    noise = noise + run.noise;
  }
  double ticks() const {
    const std::vector<uint64_t>& laps = quiet_calls != 0 ? quiet_laps : any_laps;
    if (!laps.empty())
      return static_cast<double>(std::accumulate(laps.begin(), laps.end(), uint64_t{0}));
    return quiet_calls != 0 ? quiet : any;
  }
  const Counts& counts() const { return quiet_calls != 0 ? quiet_counts : any_counts; }

 private:
  static void keep_least(std::vector<uint64_t>& least, const std::vector<uint64_t>& laps) {
    if (least.empty()) least = laps;
    for (size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], laps[i]);
  }
};

// The clock's chain beside calls in laps, so many runs of it after each: of each of these places in the row the least, as of each
// lap. A clock that moves by the millisecond is met at its fastest by the least of ten laps, but at any of its paces before and
// after them: 64 KiB, of 16.0 cycles, were 13.8 to 16.3 by those, and 24 KiB, of 5.00, were 4.84 to 5.05.
class ChainsBeside {
 public:
  template <typename RunChain>
  Expected<void> look(const RunChain& run_chain) {
    for (double& least : least_) {
      const CountedRun log = SKIDPROOF_TRY(run_chain());
      least = std::min(least, static_cast<double>(log.tsc));
    }
    return {};
  }
  bool looked() const { return std::isfinite(least_[0]); }
  double ticks() const {
    return std::accumulate(least_.begin(), least_.end(), 0.0) / kChainsBeside;
  }

 private:
  std::vector<double> least_ = std::vector<double>(kChainsBeside, INFINITY);
};

}  // namespace

bool disturbed(const Noise& noise) {
  return noise.involuntary_switches != 0 || noise.migrations != 0 || noise.interrupted != 0 ||
         noise.slices != 0 || noise.steal_s > 0;
}

Sample operator+(const Sample& a, const Sample& b) {
  return {.ns = a.ns + b.ns,
          .cycles = a.cycles + b.cycles,
          .noise = a.noise + b.noise,
          .control = a.control + b.control,
          .counts = a.counts + b.counts,
          .spoiled = a.spoiled || b.spoiled,
          .probed = std::max(a.probed, b.probed)};
}

Sample operator-(const Sample& a, const Sample& b) {
  return {.ns = a.ns - b.ns,
          .cycles = a.cycles - b.cycles,
          .noise = a.noise + b.noise,
          .counts = a.counts - b.counts,
          .spoiled = a.spoiled || b.spoiled,
          .probed = std::max(a.probed, b.probed)};
}

struct Workbench::Clock {
  Workpiece chain;
  double ratio = 0;
  std::chrono::steady_clock::time_point read;
  std::vector<double> ratios;
  std::vector<double> adds;  // cycles counted for each of its ADDs
  uint64_t iterations = kChainIterations;
  bool steady = false;  // it is what it was
};

struct Workbench::Counting {
  Workpiece empty;
  std::vector<arch::Signal> signals;
  std::unique_ptr<Counters> counters;
  Agreements runs;     // of earlier counters: of instructions with what is declared
  Agreements samples;  // of cycles with the TSC
};

Expected<Workbench> Workbench::create(Machine& machine, const CharacterizeOptions& options,
                                      Characterization& out) {
  Workbench bench;
  bench.machine_ = &machine;
  bench.options_ = &options;
  bench.out_ = &out;
  bench.began_ = std::chrono::steady_clock::now();
  const Workpiece nothing = SKIDPROOF_TRY(bench.prepare("empty", ""));
  SKIDPROOF_CHECK(bench.run(nothing, 1));
  bench.tsc_hz_ = 1e9;
  const bool silicon = machine.identity().provenance == Provenance::kSilicon;
  if (silicon) {
    bench.tsc_hz_ = SKIDPROOF_TRY(calibrate_tsc(options.effort == Effort::kQuick ? 20 : 50));
  }
  bench.clock_ = std::make_shared<Clock>();
  bench.clock_->steady = !silicon;
  if (machine.identity().pmu && machine.identity().microarch != nullptr) {
    bench.counting_ = std::make_shared<Counting>();
    bench.counting_->empty = nothing;
    const Expected<void> counts = bench.open_counters({});
    // Time alone is what there is, then.
    if (!counts && counts.error().code == ErrorCode::kUnsupported) {
      bench.counting_.reset();
      bench.problem(counts.error());
    } else if (!counts) {
      return tl::make_unexpected(counts.error());
    } else {
      // What a driver does around a program differs from run to run, by more than it does in a function call.
      bench.clock_->iterations *= kLongChain;
    }
  }
  bench.clock_->chain = SKIDPROOF_TRY(
      bench.prepare("alu_chain", fmt::format("operation=add,length={}", kChainLength)));
  return bench;
}

bool Workbench::cancelled() const {
  return options_->cancel != nullptr && options_->cancel->load(std::memory_order_relaxed);
}

double Workbench::seconds_left() const {
  return budget_ - std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

Expected<Memory> Workbench::allocate(size_t bytes, bool huge_pages) const {
  return machine_->allocate({.bytes = bytes, .use = MemoryUse::kData, .huge_pages = huge_pages});
}

Expected<Memory> Workbench::allocate_huge(size_t bytes, size_t many) const {
  Memory memory = SKIDPROOF_TRY(allocate(bytes * many, true));
  if (memory.huge_pages) return memory;
  if (machine_->identity().pmu) {
    return fail(ErrorCode::kNotAvailable, "Skidproof's driver has no 2 MiB pages",
                "use --machine native for what stands on them");
  }
  return fail(ErrorCode::kNotAvailable,
              fmt::format("the kernel gave no 2 MiB pages for {} KiB", (bytes + 1023) >> 10),
              "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; echo 1 > "
              "/proc/sys/vm/compact_memory");
}

Expected<Workpiece> Workbench::prepare(std::string_view kernel, std::string_view parameters,
                                       const Memory& data, Fill fill) const {
  Workpiece piece;
  piece.kernel = SKIDPROOF_TRY(find_kernel(kernel));
  piece.params = SKIDPROOF_TRY(Params::parse(piece.kernel->parameters, parameters));
  piece.data = data;
  // Not its handle: that of the native machine owns nothing that it points to.
  if (data.host.empty() && piece.kernel->data_bytes != nullptr) {
    const size_t bytes = std::max<size_t>(piece.kernel->data_bytes(piece.params), 1);
    piece.data = SKIDPROOF_TRY(allocate(bytes, false));
  }
  // A program's size is known only when it is generated, and that needs its address: most are small.
  for (size_t room = 16 << 10;; room *= 16) {
    piece.code = SKIDPROOF_TRY(machine_->allocate({.bytes = room, .use = MemoryUse::kCode}));
    piece.program = SKIDPROOF_TRY(generate(*piece.kernel, piece.params,
                                           {.code_address = piece.code.address,
                                            .data_address = piece.data.address,
                                            .seed = options_->seed}));
    if (piece.program.code.size() <= room) break;
  }
  if (fill == Fill::kItsOwn) SKIDPROOF_CHECK(refill(piece, options_->seed));
  return piece;
}

Expected<Workpiece> Workbench::elsewhere(const Workpiece& piece, const Memory& data,
                                         Fill fill) const {
  Workpiece other = piece;
  other.data = data;
  other.program.data_address = data.address;
  if (fill == Fill::kItsOwn) SKIDPROOF_CHECK(refill(other, options_->seed));
  return other;
}

Expected<void> Workbench::refill(Workpiece& piece, uint64_t seed) const {
  return prepare_data(*piece.kernel, piece.params, piece.program, piece.data.host, seed);
}

Expected<CountedRun> Workbench::run(const Workpiece& piece, uint64_t iterations,
                                    const Laps& laps) const {
  if (counters() != nullptr) return counting_->counters->run(piece.program, iterations);
  RunPlan plan;
  plan.iterations = iterations;
  plan.ring = Ring::kUser;
  return CountedRun{SKIDPROOF_TRY(machine_->run_in_laps(piece.program, plan, laps)), {}};
}

const Counters* Workbench::counters() const {
  return counting_ == nullptr ? nullptr : counting_->counters.get();
}

Expected<void> Workbench::count(std::initializer_list<arch::Signal> signals) {
  if (counting_ == nullptr) return {};
  return open_counters(signals);
}

Expected<void> Workbench::open_counters(std::vector<arch::Signal> signals) {
  if (counting_->counters != nullptr) {
    if (counting_->signals == signals) return {};
    counting_->runs += counting_->counters->take_agreements();
    counting_->counters.reset();  // first: it puts back what it found
  }
  counting_->counters = SKIDPROOF_TRY(Counters::open(*machine_, signals, counting_->empty.program));
  counting_->signals = std::move(signals);
  return {};
}

Sample Workbench::sample_of(double ticks, double ratio, const Noise& noise, Counts counts) const {
  Sample sample{ticks / tsc_hz_ * 1e9, ticks * ratio, noise};
  if (!counts.any()) return sample;
  counts.timed = ticks * ratio;
  // Beside the change of the clock that a sample may have: how far runs of nothing differ.
  const double allowed = kMostClockChange * counts.timed + counters()->cycles_apart() +
                         counters()->ticks_apart() * ratio;
  counts.cycles_agree = std::abs(counts.cycles() - counts.timed) <= allowed;
  if (counts.judged) {
    Agreements& samples = counting_->samples;
    ++samples.judged;
    samples.agree += counts.cycles_agree ? 1 : 0;
    if (!counts.cycles_agree && samples.first.empty()) {
      samples.first =
          fmt::format("{:.6g} cycles counted, {:.6g} by the TSC", counts.cycles(), counts.timed);
    }
  }
  sample.cycles = counts.cycles();
  sample.counts = counts;
  return sample;
}

void Workbench::emit_checks(std::string_view part) const {
  if (counters() == nullptr) return;
  counting_->runs += counting_->counters->take_agreements();
  const auto emit_one = [&](const char* name, const char* of, Agreements& all) {
    const Agreements found = std::exchange(all, {});
    if (found.judged == 0) return;
    Measurement row;
    row.name = name;
    row.unit = "share";
    row.statistic = of;
    row.n = found.judged;
    row.value = static_cast<double>(found.agree) / static_cast<double>(found.judged);
    row.low = row.high = row.value;
    row.parameters = {{"part", std::string(part)}};
    row.counts =
        MeasuredCounts{.each = {}, .agree = found.agree == found.judged, .differ = found.first};
    emit(std::move(row));
  };
  emit_one("check.instructions", "share of runs", counting_->runs);
  emit_one("check.cycles", "share of samples", counting_->samples);
}

void Workbench::emit_chain() const {
  if (counters() == nullptr || clock_->adds.empty()) return;
  Measurement row = median_measurement("check.chain", "cycles", clock_->adds, {}, {});
  row.counts = MeasuredCounts{};
  // A model's core is no promise.
  if (!clock_->steady) {
    row.counts->agree = std::abs(row.value - 1) <= kMostClockChange;
    if (!*row.counts->agree)
      row.counts->differ = "by the TSC alone an ADD of this chain is taken for one cycle";
  }
  emit(std::move(row));
}

Expected<double> Workbench::measure_ratio() const {
  Least least;
  const auto length = static_cast<double>(kChainLength * clock_->iterations);
  // Whatever disturbs makes the chain longer, and a hypervisor may do so eight times in a row: what seems a slower clock is
  // asked once more.
  const auto slower = [&] {
    return length / least.ticks() < clock_->ratio * (1 - kMostClockChange);
  };
  for (int i = 0; i < kChainTries || (i < 2 * kChainTries && slower()); ++i)
    least.add(SKIDPROOF_TRY(run(clock_->chain, clock_->iterations)));
  const double cycles = least.counts().any() ? least.counts().cycles() : length;
  if (least.counts().any()) clock_->adds.push_back(cycles / length);
  clock_->ratio = cycles / least.ticks();
  clock_->read = std::chrono::steady_clock::now();
  clock_->ratios.push_back(clock_->ratio);
  return clock_->ratio;
}

Expected<double> Workbench::ratio_afterwards() const {
  if (clock_->steady) return clock_->ratio;
  return measure_ratio();
}

const std::vector<double>& Workbench::ratios() const { return clock_->ratios; }

Expected<double> Workbench::core_cycles_per_tick() const {
  const auto age = std::chrono::steady_clock::now() - clock_->read;
  if (clock_->ratio != 0 && (clock_->steady || age < kRatioHolds)) return clock_->ratio;
  return measure_ratio();
}

Expected<Sample> Workbench::sample(unsigned tries, const Once& once) const {
  Least least;
  double before = SKIDPROOF_TRY(core_cycles_per_tick());
  for (int retry = 1;; ++retry) {
    Least now{.long_run = kLongRun * tsc_hz_};
    ChainsBeside chains;
    for (unsigned i = 0; i < 3 * tries && now.quiet_calls < tries; ++i) {
      const CountedRun call = SKIDPROOF_TRY(once());
      now.add(call);
      if (call.laps.empty()) continue;
      SKIDPROOF_CHECK(chains.look([&] { return run(clock_->chain, clock_->iterations); }));
    }
    now.noise = now.noise + least.noise;
    least = now;
    if (chains.looked()) {
      const auto cycles = static_cast<double>(kChainLength * clock_->iterations);
      Sample sample =
          sample_of(least.ticks(), cycles / chains.ticks(), least.noise, least.counts());
      sample.spoiled = !least.whole;
      return sample;
    }
    const double after = SKIDPROOF_TRY(ratio_afterwards());
    if (std::abs(after / before - 1) <= kMostClockChange || retry == kClockRetries) {
      Sample sample = sample_of(least.ticks(), (before + after) / 2, least.noise, least.counts());
      sample.spoiled = !least.whole;
      return sample;
    }
    before = after;
  }
}

Expected<Sample> Workbench::sample(unsigned tries, const Workpiece& piece, uint64_t iterations,
                                   const Laps& laps) const {
  return sample(tries, [&] { return run(piece, iterations, laps); });
}

Expected<std::pair<Sample, Sample>> Workbench::sample_both(unsigned tries, const Once& first,
                                                           const Once& second) const {
  Noise earlier;
  double before = SKIDPROOF_TRY(core_cycles_per_tick());
  for (int retry = 1;; ++retry) {
    Least a, b;
    for (unsigned i = 0; i < 3 * tries && std::min(a.quiet_calls, b.quiet_calls) < tries; ++i) {
      a.add(SKIDPROOF_TRY(first()));
      b.add(SKIDPROOF_TRY(second()));
    }
    const double after = SKIDPROOF_TRY(ratio_afterwards());
    if (std::abs(after / before - 1) <= kMostClockChange || retry == kClockRetries) {
      const double ratio = (before + after) / 2;
      std::pair both{sample_of(a.ticks(), ratio, earlier + a.noise, a.counts()),
                     sample_of(b.ticks(), ratio, b.noise, b.counts())};
      both.first.spoiled = !a.whole;
      both.second.spoiled = !b.whole;
      return both;
    }
    earlier = earlier + a.noise + b.noise;
    before = after;
  }
}

void Workbench::emit(Measurement measurement) const {
  if (options_->on_measurement) options_->on_measurement(measurement);
  out_->measurements.push_back(std::move(measurement));
}

void Workbench::unclear(std::string name, std::string reason) const {
  out_->unclear.push_back({std::move(name), std::move(reason)});
  if (options_->on_unclear) options_->on_unclear(out_->unclear.back());
}

void Workbench::problem(Error error) const { out_->problems.push_back(std::move(error)); }

void Workbench::progress(double fraction, std::string_view what) const {
  if (options_->progress)
    options_->progress(from_ + (to_ - from_) * std::clamp(fraction, 0.0, 1.0), what);
}

void Workbench::begin_part(double from, double to, double seconds) {
  from_ = from;
  to_ = to;
  budget_ = seconds;
  began_ = std::chrono::steady_clock::now();
}

Expected<uint64_t> Workbench::iterations_for(double ns, const Workpiece& piece) const {
  return iterations_for(ns, [&](uint64_t iterations) { return run(piece, iterations); });
}

Expected<uint64_t> Workbench::iterations_for(double ns, const RunSome& once) const {
  const double wanted = ns * tsc_hz_ / 1e9;
  uint64_t iterations = 1;
  for (;;) {
    // The best of two: the first pays for cold code and data.
    const CountedRun first = SKIDPROOF_TRY(once(iterations));
    const CountedRun second = SKIDPROOF_TRY(once(iterations));
    const auto ticks = std::max(1.0, static_cast<double>(std::min(first.tsc, second.tsc)));
    if (ticks >= wanted / 8) {
      const double scaled = static_cast<double>(iterations) * wanted / ticks;
      return std::max<uint64_t>(1, static_cast<uint64_t>(scaled));
    }
    iterations *= 4;
  }
}

}  // namespace skidproof
