// Macro-fusion: a flag-setting instruction and a conditional jump side by side against the same two
// with a no-operation between them, in code that does little else than issue. The gain is reported,
// and what can be said from it; what else limits a front end (how dense the jumps are,
// no-operations that themselves fuse on some AMD cores) shows as a gain that is no whole slot, or
// as none.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "harness/run/clock.h"
#include "harness/run/noise.h"
#include "harness/run/workbench.h"

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

struct Gains {
  std::vector<double> saved;  // cycles per pair
  std::vector<double> slot;   // cycles that one instruction takes to issue
  Noise noise;
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

Expected<void> sample_pair(const Workbench& bench, const Workpiece& together,
                           const Workpiece& apart, uint64_t iterations, Gains& gains) {
  const double before = core_cycles_per_tick();
  double best_together = INFINITY, best_apart = INFINITY;
  Noise noise;
  for (unsigned i = 0; i < kPairTries; ++i) {
    const RunLog a = SKIDPROOF_TRY(bench.run(together, iterations));
    const RunLog b = SKIDPROOF_TRY(bench.run(apart, iterations));
    best_together = std::min(best_together, static_cast<double>(a.tsc));
    best_apart = std::min(best_apart, static_cast<double>(b.tsc));
    noise = noise + a.noise + b.noise;
  }
  const double after = core_cycles_per_tick();
  const auto pairs = static_cast<double>(iterations * kPairs);
  const double cycles_together = bench.convert(best_together, before, after, {}).cycles / pairs;
  const double cycles_apart = bench.convert(best_apart, before, after, {}).cycles / pairs;
  const auto instructions = static_cast<double>(apart.program.per_iteration.instructions) / kPairs;
  gains.saved.push_back(cycles_apart - cycles_together);
  gains.slot.push_back(cycles_apart / instructions);
  gains.noise = gains.noise + noise;
  return {};
}

// A fused pair saves one issue slot. No gain means that the pair does not fuse as far as timing can
// tell. Taken jumps have limits of their own, which hide the slot.
std::string verdict(const Pair& pair, const Measurement& gain, double slot) {
  if (pair.taken != "0") return "unclear";
  if (gain.low > slot / 2) return "fused";
  if (gain.high < slot / 8) return "no gain";
  return "unclear";
}

Expected<void> measure_pair(Workbench& bench, const Pair& pair) {
  const Workpiece together = SKIDPROOF_TRY(bench.prepare("fused_branch", pair.parameters(false)));
  const Workpiece apart = SKIDPROOF_TRY(bench.prepare("fused_branch", pair.parameters(true)));
  const auto some = [&](uint64_t count) { return bench.run(apart, count); };
  const uint64_t iterations = SKIDPROOF_TRY(iterations_for(bench, kPairNs, some));
  Gains gains;
  for (unsigned i = 0; i < bench.repetitions(); ++i) {
    SKIDPROOF_CHECK(sample_pair(bench, together, apart, iterations, gains));
  }
  Measurement gain = median_measurement("fusion.gain", "cycles", gains.saved,
                                        {{"pair", pair.name()},
                                         {"first", pair.first},
                                         {"condition", pair.condition},
                                         {"form", pair.form},
                                         {"taken", pair.taken}},
                                        gains.noise);
  const Measurement slot = median_measurement("", "", gains.slot, {}, {});
  const std::string word = verdict(pair, gain, slot.value);
  gain.parameters["slot_cycles"] = slot.value;
  gain.parameters["verdict"] = word;
  Measurement fused = gain;
  bench.emit(std::move(gain));
  if (word == "unclear") return {};
  fused.name = "fusion.fused";
  fused.unit = "bool";
  fused.statistic = "verdict";
  fused.value = fused.low = fused.high = word == "fused" ? 1 : 0;
  fused.interval.clear();
  bench.emit(std::move(fused));
  return {};
}

}  // namespace

Expected<void> characterize_fusion(Workbench& bench) {
  SKIDPROOF_CHECK(find_kernel("fused_branch"));
  std::vector<Pair> pairs = all_pairs(bench.options().quick);
  std::erase_if(pairs, [](Pair& pair) { return !choose_direction(pair); });
  for (size_t i = 0; i < pairs.size() && !bench.cancelled(); ++i) {
    bench.progress(static_cast<double>(i) / static_cast<double>(pairs.size()),
                   fmt::format("fusion, {}", pairs[i].name()));
    const auto measured = measure_pair(bench, pairs[i]);
    if (!measured) bench.problem(measured.error());
  }
  return {};
}

}  // namespace skidproof
