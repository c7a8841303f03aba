// Macro-fusion: a flag-setting instruction and a conditional jump side by side against the same two
// with a no-operation between them, in code that does little else than issue. The gain is reported,
// and what can be said from it; what else limits a front end (how dense the jumps are,
// no-operations that themselves fuse on some AMD cores) shows as a gain that is no whole slot, or
// as none.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "harness/characterize/parts.h"
#include "harness/characterize/plan.h"
#include "harness/stats/robust.h"

namespace skidproof {
namespace {

// Enough that the loop's own jump counts little, and few enough for any cache of decoded
// instructions: with 64 of them the windows of such a cache, not issue, were the limit on one core
// (Zen 5).
constexpr uint64_t kPairs = 16;
// The fewest ticks of a dozen runs of each in every sample, in turns: the gain is a sixth of a
// cycle, and anything less drowns in the spread.
constexpr unsigned kPairTries = 12;
constexpr double kPairNs = 15e3;

constexpr std::array kFirsts = {"cmp", "test", "and", "add", "sub", "inc", "dec", "or"};
// Both of a family; R65 to R69 speak of families, so a quick look at the first of each is enough.
constexpr std::array kConditions = {"o",  "b",  "e",  "be", "s",  "p",  "l",  "le",
                                    "no", "ae", "ne", "a",  "ns", "np", "ge", "g"};
constexpr size_t kFamilies = 8;
constexpr std::array kForms = {"reg_reg", "reg_imm", "mem_reg", "mem_imm"};

struct Pair {
  std::string first, condition, form;
  std::string taken;  // as the kernel's parameter
  std::string name() const {
    // The plain form needs no mention: "cmp+je", "cmp[mem_imm]+je".
    return form == "reg_reg" ? fmt::format("{}+j{}", first, condition)
                             : fmt::format("{}[{}]+j{}", first, form, condition);
  }
  std::string parameters(bool apart) const {
    return fmt::format("first={},condition={},form={},taken={},pairs={},apart={}", first, condition,
                       form, taken, kPairs, apart ? 1 : 0);
  }
};

struct Trial {
  Pair pair;
  Workpiece together, apart;
  uint64_t iterations = 1;
  std::vector<double> slot;  // cycles that one instruction takes to issue, in each sample
};

std::vector<Pair> all_pairs(bool quick) {
  std::vector<Pair> pairs;
  for (const char* form : kForms) {
    for (const char* first : kFirsts) {
      for (size_t c = 0; c < kConditions.size(); ++c) {
        const bool plain = std::string_view(form) == "reg_reg";
        if (quick && (c >= kFamilies || (!plain && std::string_view(kConditions[c]) != "e"))) {
          continue;
        }
        pairs.push_back({first, kConditions[c], form, ""});
      }
    }
  }
  return pairs;
}

// Not taken where the flags allow it, else taken (TEST clears CF and OF); false where the pair does
// not exist at all.
bool choose_direction(Pair& pair) {
  const auto kernel = find_kernel("fused_branch");
  if (!kernel) return false;
  for (const char* taken : {"0", "1"}) {
    pair.taken = taken;
    const auto params = Params::parse((*kernel)->parameters, pair.parameters(false));
    if (params && ((*kernel)->check == nullptr || (*kernel)->check(*params))) return true;
  }
  return false;
}

// A fused pair saves one issue slot. No gain means that the pair does not fuse as far as timing can
// tell. Taken jumps have limits of their own, which hide the slot.
std::string verdict(const Pair& pair, const Measurement& gain, double slot) {
  if (pair.taken != "0") return "unclear";
  if (gain.low > slot / 2) return "fused";
  if (gain.high < slot / 8) return "no gain";
  return "unclear";
}

Expected<std::shared_ptr<Trial>> make_trial(const Workbench& bench, const Pair& pair) {
  auto trial = std::make_shared<Trial>(Trial{.pair = pair});
  trial->together = SKIDPROOF_TRY(bench.prepare("fused_branch", pair.parameters(false)));
  trial->apart = SKIDPROOF_TRY(bench.prepare("fused_branch", pair.parameters(true)));
  trial->iterations = SKIDPROOF_TRY(bench.iterations_for(kPairNs, trial->apart));
  return trial;
}

Expected<Sample> sample_trial(const Workbench& bench, Trial& trial) {
  const auto both = SKIDPROOF_TRY(bench.sample_both(
      kPairTries, [&] { return bench.run(trial.together, trial.iterations); },
      [&] { return bench.run(trial.apart, trial.iterations); }));
  const auto pairs = static_cast<double>(trial.iterations * kPairs);
  const auto instructions =
      static_cast<double>(trial.apart.program.per_iteration.instructions) / kPairs;
  trial.slot.push_back(both.second.cycles / pairs / instructions);
  return (both.second - both.first).per(pairs);
}

void emit_gain(const Workbench& bench, const Point& point, const Trial& trial) {
  const Pair& pair = trial.pair;
  Measurement gain = median_measurement("fusion.gain", "cycles", point.cycles,
                                        {{"pair", pair.name()},
                                         {"first", pair.first},
                                         {"condition", pair.condition},
                                         {"form", pair.form},
                                         {"taken", pair.taken}},
                                        point.noise);
  const double slot = stats::median(trial.slot);
  const std::string word = verdict(pair, gain, slot);
  gain.parameters["slot_cycles"] = slot;
  gain.parameters["verdict"] = word;
  Measurement fused = gain;
  bench.emit(std::move(gain));
  if (word == "unclear") return;
  fused.name = "fusion.fused";
  fused.unit = "bool";
  fused.statistic = "verdict";
  fused.value = fused.low = fused.high = word == "fused" ? 1 : 0;
  fused.interval.clear();
  bench.emit(std::move(fused));
}

}  // namespace

Expected<void> characterize_fusion(Workbench& bench) {
  SKIDPROOF_CHECK(find_kernel("fused_branch"));
  std::vector<Pair> pairs = all_pairs(bench.effort() == Effort::kQuick);
  std::erase_if(pairs, [](Pair& pair) { return !choose_direction(pair); });
  std::vector<Point> points;
  std::vector<std::shared_ptr<Trial>> trials;
  for (const Pair& pair : pairs) {
    if (bench.cancelled()) return {};
    auto trial = make_trial(bench, pair);
    if (!trial) {
      bench.problem(trial.error());
      continue;
    }
    Point point;
    point.what = fmt::format("fusion, {}", pair.name());
    point.scale = 1;  // a fraction of a cycle
    point.tag = trials.size();
    point.sample = [&bench, at = *trial] { return sample_trial(bench, *at); };
    points.push_back(std::move(point));
    trials.push_back(*trial);
  }
  SKIDPROOF_CHECK(take_by_turns(bench, points, {.relative = 0.02}));
  for (const Point& point : points) emit_gain(bench, point, *trials[point.tag]);
  return {};
}

}  // namespace skidproof
