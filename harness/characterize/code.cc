// How the rate of straight code falls with its size, over no-operations of eight bytes: few decoders are fed as many bytes in
// a cycle as a cache of decoded instructions delivers of them.
#include "harness/characterize/code.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "harness/characterize/company.h"
#include "harness/characterize/parts.h"
#include "harness/characterize/plan.h"

namespace skidproof {
namespace {

constexpr uint64_t kNopBytes = 8;
constexpr uint64_t kSmallCode = 4 << 10, kLargestCode = 128 << 10;
constexpr uint64_t kCodeGrain = 4 << 10;
constexpr uint64_t kNopsOfARun = 32 << 10;

Expected<Point> code_point(const Workbench& bench, uint64_t bytes,
                           const std::shared_ptr<Company>& company) {
  const uint64_t count = bytes / kNopBytes;
  auto piece = std::make_shared<Workpiece>(
      SKIDPROOF_TRY(bench.prepare("nop_sled", fmt::format("count={},bytes={}", count, kNopBytes))));
  const uint64_t iterations = std::max<uint64_t>(2, kNopsOfARun / count);
  Point point;
  point.what = fmt::format("code, {} KiB", bytes >> 10);
  point.scale = 1;
  point.sample = [&bench, piece, iterations, count, company]() -> Expected<Sample> {
    SKIDPROOF_CHECK(bench.run(*piece, 2));
    const Sample watched =
        SKIDPROOF_TRY(company->watch([&] { return bench.sample(3, *piece, iterations); }));
    return watched.per(static_cast<double>(iterations * count));
  };
  return point;
}

}  // namespace

Reach judge_decoded(std::vector<CurvePoint> curve) {
  std::sort(curve.begin(), curve.end(),
            [](const CurvePoint& a, const CurvePoint& b) { return a.x < b.x; });
  Reach reach;
  reach.curve = curve;
  if (curve.size() < 4) {
    reach.why = "too few sizes";
    return reach;
  }
  const double base = curve.front().least;
  const auto step = std::find_if(curve.begin(), curve.end(),
                                 [&](const CurvePoint& at) { return at.least > 1.15 * base; });
  if (step == curve.end()) {
    reach.why = fmt::format("the rate does not fall up to {} KiB", curve.back().x >> 10);
    return reach;
  }
  const auto dearer = [](const CurvePoint& a, const CurvePoint& b) { return a.least < b.least; };
  const double before = std::max_element(curve.begin(), step, dearer)->least;
  const auto [cheapest, dearest] = std::minmax_element(step, curve.end(), dearer);
  reach.within = base;
  reach.beyond = step->least;
  reach.last_within = (step - 1)->x;
  reach.first_beyond = step->x;
  if (before > 1.06 * base || cheapest->least < 1.2 * base ||
      dearest->least > 1.15 * cheapest->least) {
    reach.why =
        fmt::format("the rate falls little by little, from {:.3f} to {:.3f} cycles an instruction",
                    base, dearest->least);
    return reach;
  }
  reach.clear = true;
  return reach;
}

Expected<void> characterize_code(Workbench& bench) {
  SKIDPROOF_CHECK(bench.count({arch::Signal::kUops}));
  const auto company = std::make_shared<Company>(SKIDPROOF_TRY(Company::create(bench)));
  company->set_patience(bench.seconds_of_part() / 2);
  std::vector<Point> small;
  small.push_back(SKIDPROOF_TRY(code_point(bench, kSmallCode, company)));
  SKIDPROOF_CHECK(take_by_turns(
      bench, small, {.relative = 0.01, .seconds = 0.05 * bench.seconds_of_part()}, 0, 0.05));
  if (bench.cancelled() || small.empty()) return {};
  ReachQuestion question;
  question.what = "code";
  question.from = kSmallCode;
  question.to = kLargestCode;
  question.grain = kCodeGrain;
  question.growth = bench.effort() == Effort::kQuick ? 1.6 : 1.2;
  // The rate halves: all slower ways to decode are still below that.
  question.least_rise = small[0].median_cycles();
  question.point = [&](uint64_t bytes) { return code_point(bench, bytes, company); };
  const Reach reach =
      SKIDPROOF_TRY(find_reach(bench, question, 0.9 * bench.seconds_of_part(), 0.05, 1));
  if (bench.cancelled()) return {};
  emit_reach(bench, reach, "code.footprint", "bytes", {{"length", kNopBytes}}, "code.reach",
             "bytes");
  std::vector<CurvePoint> below;
  for (const CurvePoint& at : reach.curve) {
    if (at.x <= reach.last_within) below.push_back(at);
  }
  const Reach decoded = judge_decoded(std::move(below));
  if (!decoded.clear) {
    bench.unclear("shape.uop_cache.reach", decoded.why);
    return {};
  }
  const uint64_t within = decoded.last_within / kNopBytes,
                 beyond = decoded.first_beyond / kNopBytes;
  emit_inferred(bench, {.name = "uop_cache.reach",
                        .unit = "instructions",
                        .value = static_cast<double>(within),
                        .low = static_cast<double>(within),
                        .high = static_cast<double>(beyond),
                        .n = decoded.curve.size(),
                        .parameters = {{"length", kNopBytes}}});
  return {};
}

}  // namespace skidproof
