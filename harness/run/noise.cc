// getrusage, sched_getcpu and /proc/stat behind NoiseMeter.
#include "harness/run/noise.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>

namespace skidproof {
namespace {

constexpr uint64_t kStealInterval = 20'000'000;  // ns
constexpr uint64_t kSwitchesHold = 50'000;       // ns

uint64_t involuntary_switches() {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  return static_cast<uint64_t>(usage.ru_nivcsw);
}

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

std::string read_from_start(int file) {
  std::string text;
  char buffer[4096];
  // The cpu lines come first; the interrupt counts after them can be far longer.
  while (text.find("\nintr") == std::string::npos) {
    const ssize_t got = pread(file, buffer, sizeof buffer, static_cast<off_t>(text.size()));
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

}  // namespace

Noise operator+(const Noise& a, const Noise& b) {
  return {.involuntary_switches = a.involuntary_switches + b.involuntary_switches,
          .migrations = a.migrations + b.migrations,
          .smi = a.smi + b.smi,
          .steal_s = a.steal_s + b.steal_s,
          .interrupted = a.interrupted + b.interrupted,
          .machine_checks = a.machine_checks + b.machine_checks,
          .foreign_nmis = a.foreign_nmis + b.foreign_nmis,
          .slices = a.slices + b.slices,
          .repeats = a.repeats + b.repeats};
}

bool quiet(const Noise& noise) {
  return noise.involuntary_switches == 0 && noise.migrations == 0 && noise.smi == 0 &&
         noise.steal_s == 0 && noise.interrupted == 0 && noise.machine_checks == 0 &&
         noise.foreign_nmis == 0 && noise.slices == 0;
}

NoiseMeter::NoiseMeter() : stat_(open("/proc/stat", O_RDONLY | O_CLOEXEC)) {}

NoiseMeter::~NoiseMeter() {
  if (stat_ >= 0) close(stat_);
}

void NoiseMeter::begin() {
  cpu_ = sched_getcpu();
  if (cpu_ != stolen_cpu_) {
    stolen_cpu_ = cpu_;
    stolen_ = stolen_seconds();
    stolen_read_ns_ = now_ns();
  }
  const bool known =
      switches_of_ == std::this_thread::get_id() && now_ns() - switches_read_ns_ <= kSwitchesHold;
  if (!known) switches_ = involuntary_switches();
}

Noise NoiseMeter::end() {
  Noise noise;
  const uint64_t switches = involuntary_switches();
  noise.involuntary_switches = switches - switches_;
  noise.migrations = sched_getcpu() != cpu_ ? 1 : 0;
  const uint64_t now = now_ns();
  switches_ = switches;
  switches_read_ns_ = now;
  switches_of_ = std::this_thread::get_id();
  if (now - stolen_read_ns_ < kStealInterval) return noise;
  const double stolen = stolen_seconds();
  noise.steal_s = std::max(0.0, stolen - stolen_);
  stolen_ = stolen;
  stolen_read_ns_ = now;
  return noise;
}

double NoiseMeter::stolen_seconds() const {
  if (stat_ < 0 || stolen_cpu_ < 0) return 0;
  const std::string text = read_from_start(stat_);
  const size_t line = text.find(fmt::format("\ncpu{} ", stolen_cpu_));
  if (line == std::string::npos) return 0;
  // proc(5): cpuN user nice system idle iowait irq softirq steal …, in ticks.
  uint64_t ticks = 0;
  if (std::sscanf(text.c_str() + line, "\ncpu%*d %*u %*u %*u %*u %*u %*u %*u %" SCNu64, &ticks) !=
      1) {
    return 0;
  }
  return static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace skidproof
