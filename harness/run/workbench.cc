// Programs made, timed and calibrated for the characterization.
#include "harness/run/workbench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/run/clock.h"
#include "harness/run/noise.h"

namespace skidproof {
namespace {

constexpr unsigned kDefaultRepetitions = 9;
constexpr double kMostClockChange = 0.02;
constexpr int kClockRetries = 3;

}  // namespace

Expected<Workbench> Workbench::create(Machine& machine, const CharacterizeOptions& options,
                                      Characterization& out) {
  Workbench bench;
  bench.machine_ = &machine;
  bench.options_ = &options;
  bench.out_ = &out;
  const Workpiece nothing = SKIDPROOF_TRY(bench.prepare("empty", ""));
  SKIDPROOF_CHECK(bench.run(nothing, 1));
  bench.tsc_hz_ = SKIDPROOF_TRY(calibrate_tsc(options.quick ? 20 : 50));
  return bench;
}

unsigned Workbench::repetitions() const {
  return options_->repetitions == 0 ? kDefaultRepetitions : options_->repetitions;
}

bool Workbench::cancelled() const {
  return options_->cancel != nullptr && options_->cancel->load(std::memory_order_relaxed);
}

Expected<Memory> Workbench::allocate(size_t bytes, bool huge_pages) const {
  return machine_->allocate({.bytes = bytes, .use = MemoryUse::kData, .huge_pages = huge_pages});
}

Expected<Workpiece> Workbench::prepare(std::string_view kernel, std::string_view parameters,
                                       const Memory& data) const {
  Workpiece piece;
  piece.kernel = SKIDPROOF_TRY(find_kernel(kernel));
  piece.params = SKIDPROOF_TRY(Params::parse(piece.kernel->parameters, parameters));
  // Longer than any kernel that is used here; generate() needs an address before the size is known.
  constexpr size_t kCodeBytes = 64 << 10;
  piece.code = SKIDPROOF_TRY(machine_->allocate({.bytes = kCodeBytes, .use = MemoryUse::kCode}));
  piece.data = data;
  if (data.keep == nullptr && piece.kernel->data_bytes != nullptr) {
    const size_t bytes = std::max<size_t>(piece.kernel->data_bytes(piece.params), 1);
    piece.data = SKIDPROOF_TRY(allocate(bytes, false));
  }
  piece.program = SKIDPROOF_TRY(generate(*piece.kernel, piece.params,
                                         {.code_address = piece.code.address,
                                          .data_address = piece.data.address,
                                          .seed = options_->seed}));
  SKIDPROOF_CHECK(refill(piece, options_->seed));
  return piece;
}

Expected<void> Workbench::refill(Workpiece& piece, uint64_t seed) const {
  return prepare_data(*piece.kernel, piece.params, piece.program, piece.data.host, seed);
}

Expected<RunLog> Workbench::run(const Workpiece& piece, uint64_t iterations) const {
  RunPlan plan;
  plan.iterations = iterations;
  plan.ring = Ring::kUser;
  return machine_->run(piece.program, plan);
}

Sample Workbench::convert(double ticks, double ratio_before, double ratio_after,
                          const Noise& noise) const {
  Sample sample;
  sample.ticks = ticks;
  sample.ns = ticks / tsc_hz_ * 1e9;
  sample.cycles = ticks * (ratio_before + ratio_after) / 2;
  sample.noise = noise;
  return sample;
}

Expected<Sample> Workbench::sample(unsigned tries, const Once& once) const {
  Noise noise;
  double before = core_cycles_per_tick();
  for (int retry = 1;; ++retry) {
    double best = INFINITY;
    for (unsigned i = 0; i < tries; ++i) {
      const RunLog log = SKIDPROOF_TRY(once());
      best = std::min(best, static_cast<double>(log.tsc));
      noise = noise + log.noise;
    }
    const double after = core_cycles_per_tick();
    if (std::abs(after / before - 1) <= kMostClockChange || retry == kClockRetries) {
      return convert(best, before, after, noise);
    }
    before = after;
  }
}

void Workbench::emit(Measurement measurement) const {
  if (options_->on_measurement) options_->on_measurement(measurement);
  out_->measurements.push_back(std::move(measurement));
}

void Workbench::problem(Error error) const { out_->problems.push_back(std::move(error)); }

void Workbench::progress(double fraction, std::string_view what) const {
  if (options_->progress) options_->progress(from_ + (to_ - from_) * fraction, what);
}

void Workbench::begin_part(double from, double to) {
  from_ = from;
  to_ = to;
}

Expected<uint64_t> iterations_for(const Workbench& bench, double ns, const RunSome& once) {
  const double wanted = ns * bench.tsc_hz() / 1e9;
  uint64_t iterations = 1;
  for (;;) {
    // The best of two: the first pays for cold code and data.
    const RunLog first = SKIDPROOF_TRY(once(iterations));
    const RunLog second = SKIDPROOF_TRY(once(iterations));
    const auto ticks = static_cast<double>(std::min(first.tsc, second.tsc));
    if (ticks >= wanted / 4) {
      const double scaled = static_cast<double>(iterations) * wanted / ticks;
      return std::max<uint64_t>(1, static_cast<uint64_t>(scaled));
    }
    iterations *= 2;
  }
}

}  // namespace skidproof
