#include "harness/characterize/company.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <thread>

namespace skidproof {
namespace {

constexpr uint64_t kProbeNops = 256;
constexpr uint64_t kProbeIterations = 60;
constexpr int kProbeTries = 2;
constexpr std::chrono::milliseconds kFirstProbes{1};
constexpr std::chrono::microseconds kCompanyPause{300};

}  // namespace

Expected<Company> Company::create(const Workbench& bench) {
  using Clock = std::chrono::steady_clock;
  Company company(bench);
  company.nops_ = SKIDPROOF_TRY(bench.prepare("nop_sled", fmt::format("count={}", kProbeNops)));
  for (const auto began = Clock::now(); on_silicon(bench) && Clock::now() - began < kFirstProbes;)
    SKIDPROOF_CHECK(company.probe());
  return company;
}

Expected<double> Company::probe() {
  std::array<CountedRun, kProbeTries> runs;
  for (CountedRun& run : runs) run = SKIDPROOF_TRY(bench_->run(nops_, kProbeIterations));
  const double per_tick = SKIDPROOF_TRY(bench_->core_cycles_per_tick());
  double cycles = INFINITY;
  for (const CountedRun& run : runs) cycles = std::min(cycles, run.cycles(per_tick));
  cycles /= static_cast<double>(kProbeNops * kProbeIterations);
  own_.add(cycles);
  return cycles;
}

void OwnRate::add(double probed) {
  ++probes_;
  const auto place = std::ranges::upper_bound(least_, probed);
  if (place == least_.end() && least_.size() == kKept) return;
  least_.insert(place, probed);
  if (least_.size() > kKept) least_.pop_back();
}

double OwnRate::cycles() const {
  return least_.empty() ? INFINITY : least_[std::min(probes_ / kOneIn, least_.size() - 1)];
}

Expected<Sample> Company::watch(const std::function<Expected<Sample>()>& sample) {
  using Clock = std::chrono::steady_clock;
  if (!on_silicon(*bench_)) return sample();
  uint64_t repeats = 0;
  double left = std::min(patience_, of_a_sample_);
  for (;;) {
    const auto began = Clock::now();
    const double before = SKIDPROOF_TRY(probe());
    const bool waits = left > 0 && !bench_->cancelled();
    if (alone(before) || !waits) {
      Sample watched = SKIDPROOF_TRY(sample());
      watched.probed = std::max(before, SKIDPROOF_TRY(probe()));
      if (alone(watched.probed) || !waits) {
        watched.noise.repeats += repeats;
        return watched;
      }
    }
    ++repeats;
    std::this_thread::sleep_for(kCompanyPause);
    const double spent = std::chrono::duration<double>(Clock::now() - began).count();
    patience_ -= spent;
    left -= spent;
  }
}

void Company::drop_from(Point& point) const {
  drop_company(point, most(), bench_->options().repetitions != 0 ? SIZE_MAX : size_t{Goal{}.least});
}

}  // namespace skidproof
