// Runs the parts of the characterization in order.
#include "harness/characterize/characterize.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/characterize/parts.h"
#include "harness/characterize/plan.h"
#include "harness/characterize/workbench.h"
#include "harness/stats/robust.h"

namespace skidproof {
namespace {

struct Part {
  std::string_view name;
  Expected<void> (*measure)(Workbench&);
  double seconds;  // that it may take by default
  // What it answers, by a number or by a reason: each has a row, even where an error ends the part early.
  std::vector<std::string_view> shapes = {};
};

const auto kParts = std::to_array<Part>({
    {"clock", characterize_clock, 0.3},
    {"latency", characterize_latency, 12},
    {"strides", characterize_strides, 2},
    {"caches",
     characterize_caches,
     7,
     {"l1d.size", "l1d.ways", "line", "l2.size", "l2.ways", "l3.size", "dtlb.reach", "stlb.reach"}},
    {"bandwidth", characterize_bandwidth, 7},
    {"forwarding", characterize_forwarding, 3},
    {"fusion", characterize_fusion, 5},
    {"branches", characterize_branches, 5},
    {"misprediction", characterize_misprediction, 0.5},
    {"instructions", characterize_instructions, 3},
    {"windows", characterize_windows, 5},
    {"code", characterize_code, 2},
    {"cores", characterize_cores, 4},
});

double factor_of(Effort effort) {
  return effort == Effort::kQuick ? 0.11 : effort == Effort::kDefault ? 1 : 5;
}

// A part's second occasion takes no longer than so many times its seconds.
constexpr double kLaterShare = 3;

// What --help says of a run of all parts, less a twentieth that the end needs.
double seconds_of_run(Effort effort) {
  if (effort == Effort::kThorough) return INFINITY;
  return 0.95 * (effort == Effort::kQuick ? 10 : 60);
}

double planned_seconds(std::span<const Part* const> parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0,
                         [](double sum, const Part* part) { return sum + part->seconds; });
}

std::vector<const Part*> every_part() {
  std::vector<const Part*> out(kParts.size());
  std::ranges::transform(kParts, out.begin(), [](const Part& part) { return &part; });
  return out;
}

Expected<std::vector<const Part*>> chosen_parts(const CharacterizeOptions& options) {
  for (const std::string& name : options.parts) {
    if (std::any_of(kParts.begin(), kParts.end(), [&](const Part& p) { return p.name == name; })) {
      continue;
    }
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("there is nothing called '{}' to characterize", name),
                fmt::format("choose among {}", fmt::join(characterization_parts(), ", ")));
  }
  std::vector<const Part*> chosen = every_part();
  if (options.parts.empty()) return chosen;
  std::erase_if(chosen, [&](const Part* part) {
    return std::ranges::find(options.parts, part->name) == options.parts.end();
  });
  return chosen;
}

// Of the parts that take sizes, those that are chosen.
Expected<void> check_sizes(const CharacterizeOptions& options,
                           const std::vector<const Part*>& chosen) {
  const auto takes = [&](std::string_view name) {
    return std::any_of(chosen.begin(), chosen.end(),
                       [&](const Part* part) { return part->name == name; });
  };
  constexpr uint64_t kLargest = uint64_t{1} << 30;
  for (uint64_t bytes : options.latency_bytes) {
    if (!takes("latency")) break;
    if (bytes >= 64 && bytes <= kLargest && bytes % 64 == 0) continue;
    return fail(ErrorCode::kInvalidArgument, fmt::format("a latency size of {} bytes", bytes),
                "give a multiple of 64 from 64 bytes to 1 GiB");
  }
  for (uint64_t bytes : options.bandwidth_bytes) {
    if (!takes("bandwidth")) break;
    if (bytes >= 4096 && bytes <= kLargest && (bytes & (bytes - 1)) == 0) continue;
    return fail(ErrorCode::kInvalidArgument, fmt::format("a bandwidth size of {} bytes", bytes),
                "give a power of two from 4 KiB to 1 GiB");
  }
  return {};
}

// What an error left without an answer.
void answer_rest(const Workbench& bench, const Part& part, const std::string& reason) {
  for (const std::string_view shape : part.shapes) {
    const std::string name = fmt::format("shape.{}", shape);
    const Characterization& all = bench.so_far();
    const auto named = [&](const auto& row) { return row.name == name; };
    if (std::any_of(all.measurements.begin(), all.measurements.end(), named) ||
        std::any_of(all.unclear.begin(), all.unclear.end(), named)) {
      continue;
    }
    bench.unclear(name, reason);
  }
}

void emit_throttled(const Workbench& bench, const CpuQuota& quota, const Throttled& throttled) {
  Measurement row;
  row.name = "quota.throttled";
  row.unit = "s";
  row.statistic = "sum";
  row.n = std::max<uint64_t>(1, throttled.times);
  row.value = row.low = row.high = throttled.seconds;
  row.interval = "exact";
  row.parameters = {{"cpus", quota.cpus()}, {"period", quota.period_s}};
  bench.emit(std::move(row));
}

// How far the core's clock moved over everything that was measured.
void emit_drift(const Workbench& bench) {
  const stats::Summary summary = stats::summarize(bench.ratios());
  if (summary.n < 2 || summary.median <= 0) return;
  Measurement row;
  row.name = "clock.drift";
  row.unit = "%";
  row.statistic = "range over median";
  row.n = summary.n;
  row.value = row.low = row.high = 100 * (summary.maximum - summary.minimum) / summary.median;
  bench.emit(std::move(row));
}

}  // namespace

std::vector<std::string_view> characterization_parts() {
  std::vector<std::string_view> names;
  names.reserve(std::size(kParts));
  for (const Part& part : kParts) names.push_back(part.name);
  return names;
}

Expected<Characterization> characterize(Machine& machine, const CharacterizeOptions& options) {
  if (machine.identity().provenance != Provenance::kSilicon && !options.any_time) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} has no time of its own to characterize", machine.identity().name),
                "use --machine native");
  }
  const std::vector<const Part*> parts = SKIDPROOF_TRY(chosen_parts(options));
  SKIDPROOF_CHECK(check_sizes(options, parts));
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  Characterization out;
  const ControlGroups groups = ControlGroups::of_this_process();
  const Throttled before = groups.throttled();
  Workbench bench = SKIDPROOF_TRY(Workbench::create(machine, options, out));
  const double total = planned_seconds(parts);
  const double factor = factor_of(options.effort);
  const double limit = seconds_of_run(options.effort) * total / planned_seconds(every_part());
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - began).count(); };
  // The part's name before each of its problems; what it did not answer, with the reason.
  const auto settle = [&](const Part& part, const Expected<void>& measured) {
    if (measured || bench.cancelled()) return;
    Error error = measured.error();
    answer_rest(bench, part, error.message);
    error.message = fmt::format("{}: {}", part.name, error.message);
    bench.problem(std::move(error));
  };
  struct PartLater {
    const Part* part;
    Workbench::Later measure;
  };
  std::vector<PartLater> later;
  double done = 0;
  for (const Part* part : parts) {
    const double share =
        on_silicon(bench) ? share_of_plan(done * factor, elapsed(), (total - done) * factor, limit)
                          : 1;
    bench.begin_part(done / total, (done + part->seconds) / total, part->seconds * factor * share);
    Expected<void> measured = bench.count({});
    if (measured) measured = part->measure(bench);
    settle(*part, measured);
    bench.emit_checks(part->name);
    if (Workbench::Later more = bench.take_later()) later.push_back({part, std::move(more)});
    if (bench.cancelled()) break;
    done += part->seconds;
  }
  for (const PartLater& one : later) {
    const double left = seconds_of_run(options.effort) - elapsed(),
                 most = kLaterShare * one.part->seconds * factor;
    // Few rounds may take twice what they are given.
    const double seconds = bench.cancelled() ? 0 : std::clamp(left / 2, 0.0, most);
    bench.begin_part(1, 1, seconds);
    settle(*one.part, one.measure(bench, seconds));
    bench.emit_checks(fmt::format("{}, again", one.part->name));
  }
  if (parts.size() > 1 && !bench.cancelled()) emit_drift(bench);
  if (!bench.cancelled()) bench.emit_chain();
  out.quota = groups.cpu_quota();
  out.throttled = groups.throttled() - before;
  if (out.quota) emit_throttled(bench, *out.quota, out.throttled);
  out.cancelled = bench.cancelled();
  if (!out.cancelled) bench.progress(1, "done");
  return out;
}

}  // namespace skidproof
