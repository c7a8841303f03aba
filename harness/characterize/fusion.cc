// Macro-fusion: a flag-setting instruction and a conditional jump side by side against the same two
// with a no-operation between them. That the number of instructions limits the code is not taken for granted: the same code
// with one instruction less on each side, and with two, in as many bytes, says in the same samples what a slot is worth
// there. Where it is worth nothing (taken jumps, stores) the pairs stand further apart.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "harness/characterize/parts.h"
#include "harness/characterize/plan.h"
#include "harness/characterize/verdict.h"
#include "harness/run/noise.h"
#include "harness/stats/robust.h"

namespace skidproof {
namespace {

// Runs of each program in a sample, by turns, behind one that only warms up. They are short and each of them counts: what
// slows a core down for a while then spoils few of them, and what makes it slower as a whole changes nothing.
constexpr unsigned kRounds = 4;
constexpr double kPairRunNs = 4e3;
constexpr const char* kNops = "nop";
constexpr const char* kMovTest = "mov_test";
// How the pairs stand. Some caches of decoded instructions hold few that share some bytes, which is the limit where the
// no-operations before each pair and behind it are short; others hand on few lines a cycle, which is the limit where they
// are as long as common instructions are. So both are tried. The pairs are enough that the loop's own jump counts little,
// and few enough that the windows of such a cache are not the limit (some cores showed that with 64 pairs, and with 16
// that have immediate operands).
struct Layout {
  uint64_t spacing, nop_bytes, pairs;
  const char* filler = kNops;
};
constexpr std::array<Layout, 12> kLayouts = {{{2, 4, 4},
                                              {8, 4, 4},
                                              {16, 4, 2},
                                              {32, 4, 2},
                                              {24, 1, 2},
                                              {28, 1, 2},
                                              {32, 1, 2},
                                              {40, 1, 2},
                                              {2, 2, 4, kMovTest},
                                              {8, 2, 4, kMovTest},
                                              {16, 2, 2, kMovTest},
                                              {32, 2, 2, kMovTest}}};
// Some cores fuse a no-operation with the instruction before it, be that the first of a pair that it was to keep apart (on
// Zen 4 twelve of them go by in a cycle, and CMP and JE seemed not to fuse). There, MOVs between registers and TESTs stand in
// for them. As no-operations that are plain take no less than what an ALU has to do: as many as ALUs are three quarters
// of what can be issued at least, and two that are fused take half. This is between the two.
constexpr double kNopIsPlain = 0.62;
constexpr unsigned kPlainRounds = 21;
// A no-operation keeps the MOV that sets the first's operand from being fused with it, which would save a slot only where
// the pair is kept apart, since no other no-operation stands between them there: on Zen 5 ADD and JE seemed not to fuse.
constexpr uint64_t kResetNops = 1;
// What limits the code depends more on the core than on the pair: every so manyth pair goes first through all layouts, in this
// share of the time. The others come in batches, each of which begins where most pairs were told of until then: what another
// on the core made the scouts believe holds no longer than it stays. Whom nothing told of has another go at the end.
constexpr size_t kScouts = 13;
constexpr double kScoutsShare = 1.0 / 3;
constexpr size_t kBatches = 8;
// After so many samples that do not even lean to a verdict another layout has its turn.
constexpr unsigned kVisit = 16;
constexpr unsigned kMostSamples = 1000;
// That a pair gains nothing in one layout may be that layout's doing: a core with Redwood Cove's sizes showed CMP with an immediate
// and JE as fused between long no-operations, and as no gain between short ones, perhaps since it decodes these anew each time, and
// a first that is the last to be decoded at once waits for no jump. So a layout of unlike no-operations is to say it as well,
// where any can: so many visits to those, and at the end while there is time.
constexpr unsigned kVisitsOfUnlike = 3;

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
  std::string parameters(const Layout& layout, bool apart, uint64_t joined) const {
    return fmt::format(
        "first={},condition={},form={},taken={},pairs={},spacing={},nop_bytes={},apart={},joined={"
        "},reset_nops={},filler={}",
        first, condition, form, taken, layout.pairs, layout.spacing, layout.nop_bytes,
        apart ? 1 : 0, joined, kResetNops, layout.filler);
  }
};

// How many pairs that fuse each layout has told of: it shows them where they do.
using Told = std::array<unsigned, kLayouts.size()>;

// A pair in one of the layouts, in one place in memory.
struct Attempt {
  // Each with no, one, and where the layout has so many two no-operations less on each side of each pair.
  std::vector<Workpiece> together, apart;
  uint64_t iterations = 0;
  PairSamples samples;
  std::vector<double>
      saved;  // uops by a pair side by side, in each undisturbed round, where uops are counted
  PairVerdict verdict = PairVerdict::kOpen;
  bool due = true;  // to be made, or made anew elsewhere
};

struct Trial {
  Pair pair;
  std::array<Attempt, kLayouts.size()> attempts;
  size_t at = 0;                                   // the layout that is sampled
  unsigned visited = 0;                            // samples since that began
  std::array<unsigned, kLayouts.size()> visits{};  // ended ones
  // What the place before told. Caches of decoded code find it by its address, so that a place can mislead: only what two
  // tell, one after the other, is a verdict; on what is no silicon, one.
  PairVerdict before = PairVerdict::kOpen;
  std::optional<size_t> no_gain;  // the layout that said so first
  unsigned visits_of_unlike = 0;  // since then
  bool at_the_end = false;        // the others are done

  Attempt& attempt() { return attempts[at]; }
  const Attempt& attempt() const { return attempts[at]; }
  bool told() const {
    return attempt().verdict == PairVerdict::kFused || attempt().verdict == PairVerdict::kNoGain;
  }
  // With these alone; no-operations, or what stands in for them.
  void use(std::string_view filler) {
    for (size_t i = kLayouts.size(); i-- > 0;) {
      if (filler == kLayouts[i].filler)
        at = i;
      else
        attempts[i].verdict = PairVerdict::kNotIssue;
    }
  }
  // Whether this layout may say what the first that said so did, or deny it.
  bool can_confirm(size_t layout) const {
    return attempts[layout].verdict != PairVerdict::kNotIssue &&
           kLayouts[layout].nop_bytes != kLayouts[*no_gain].nop_bytes;
  }
  // Here next, elsewhere in memory; on where it is if this layout cannot tell.
  void begin_at(size_t layout) {
    if (attempts[layout].verdict == PairVerdict::kNotIssue || no_gain) return;
    at = layout;
    attempt().due = true;
    visited = 0;
  }
  // The time is over: one that nothing told of is shown where it was sampled most. What one layout alone told of is believed
  // where none unlike it has told of any pair on this core.
  void settle(const Told& told_of) {
    if (told()) return;
    bool doubtful = !no_gain;
    for (size_t i = 0; !doubtful && i < kLayouts.size(); ++i)
      doubtful = can_confirm(i) && told_of[i] != 0;
    if (!doubtful) {
      at = *no_gain;
      return;
    }
    const auto samples = [](const Attempt& a) { return a.samples.gain.size(); };
    at = static_cast<size_t>(std::ranges::max_element(attempts, {}, samples) - attempts.begin());
  }
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
    const auto params =
        Params::parse((*kernel)->parameters, pair.parameters(kLayouts[0], false, 0));
    if (params && ((*kernel)->check == nullptr || (*kernel)->check(*params))) return true;
  }
  return false;
}

// What stands around the pairs and between them: no-operations where they are plain instructions on this core.
Expected<const char*> filler_of_pairs(const Workbench& bench) {
  struct Kind {
    Workpiece piece;
    uint64_t iterations = 1;
    std::vector<double> cycles;  // an instruction
  };
  std::vector<Kind> kinds;
  for (const char* filler : {kNops, kMovTest}) {
    Kind kind;
    kind.piece = SKIDPROOF_TRY(
        bench.prepare("fused_branch", fmt::format("spacing=64,nop_bytes=2,filler={}", filler)));
    kind.iterations = SKIDPROOF_TRY(bench.iterations_for(kPairRunNs, kind.piece));
    kinds.push_back(std::move(kind));
  }
  for (unsigned round = 0; round < kPlainRounds; ++round) {
    for (Kind& kind : kinds) {
      const Sample sample = SKIDPROOF_TRY(bench.sample(1, kind.piece, kind.iterations));
      kind.cycles.push_back(
          sample.cycles /
          static_cast<double>(kind.piece.program.per_iteration.instructions * kind.iterations));
    }
  }
  const bool plain = stats::median(kinds[0].cycles) >= kNopIsPlain * stats::median(kinds[1].cycles);
  return plain ? kNops : kMovTest;
}

Expected<void> make_attempt(const Workbench& bench, Trial& trial) {
  const Layout& layout = kLayouts[trial.at];
  Attempt made;  // while the old one still is where it is
  for (uint64_t joined = 0; joined <= std::min<uint64_t>(2, layout.spacing / 2); ++joined) {
    for (bool apart : {false, true}) {
      (apart ? made.apart : made.together)
          .push_back(SKIDPROOF_TRY(
              bench.prepare("fused_branch", trial.pair.parameters(layout, apart, joined))));
    }
  }
  made.iterations = SKIDPROOF_TRY(bench.iterations_for(kPairRunNs, made.apart[0]));
  made.due = false;
  trial.attempt() = std::move(made);
  return {};
}

// On to a layout that may still tell: of those that it has been in least, the one that has told of the most pairs; false
// where there is none.
bool move_on(Trial& trial, const Told& told) {
  trial.visited = 0;
  ++trial.visits[trial.at];
  if (trial.no_gain && !trial.at_the_end && trial.visits_of_unlike++ == kVisitsOfUnlike)
    return false;
  std::optional<size_t> best;
  for (size_t i = 0; i < kLayouts.size(); ++i) {
    if (trial.attempts[i].verdict == PairVerdict::kNotIssue) continue;
    if (trial.no_gain && !trial.can_confirm(i)) continue;
    if (!best || trial.visits[i] < trial.visits[*best] ||
        (trial.visits[i] == trial.visits[*best] && told[i] > told[*best])) {
      best = i;
    }
  }
  if (!best) {
    trial.at = trial.no_gain.value_or(trial.at);
    return false;
  }
  trial.at = *best;
  trial.attempt().due = true;
  return true;
}

// What a layout's programs took, each of which has a no-operation less than the one before it.
struct Runs {
  std::vector<double> cycles, beyond;
};

// The median of the rounds' gains. Each round that nothing disturbed votes.
Expected<Sample> sample_trial(const Workbench& bench, Trial& trial) {
  if (trial.attempt().due) SKIDPROOF_CHECK(make_attempt(bench, trial));
  Attempt& attempt = trial.attempt();
  ++trial.visited;
  const double per_tick = SKIDPROOF_TRY(bench.core_cycles_per_tick());
  const auto pairs = static_cast<double>(attempt.iterations * kLayouts[trial.at].pairs);
  const auto instructions =
      static_cast<double>(attempt.apart[0].program.per_iteration.instructions * attempt.iterations);
  const auto uops =
      bench.counters() == nullptr ? std::nullopt : bench.counters()->place(arch::Signal::kUops);
  std::vector<double> gains;
  Sample sample;
  for (unsigned round = 0; round <= kRounds; ++round) {
    bool quiet = true;
    // By the no-operations that it has less: cycles, and uops beyond the instructions.
    const auto run = [&](const std::vector<Workpiece>& pieces) -> Expected<Runs> {
      Runs runs;
      for (const Workpiece& piece : pieces) {
        const CountedRun log = SKIDPROOF_TRY(bench.run(piece, attempt.iterations));
        if (uops) runs.beyond.push_back(log.counts.values[*uops] - log.counts.declared);
        runs.cycles.push_back(log.cycles(per_tick));
        quiet = quiet && !disturbed(log.noise);
        sample.noise = sample.noise + log.noise;
      }
      return runs;
    };
    const Runs together = SKIDPROOF_TRY(run(attempt.together)),
               apart = SKIDPROOF_TRY(run(attempt.apart));
    if (round == 0) continue;
    gains.push_back((apart.cycles[0] - together.cycles[0]) / pairs);
    if (!quiet) continue;
    if (uops) attempt.saved.push_back((apart.beyond[0] - together.beyond[0]) / pairs);
    PairSamples& samples = attempt.samples;
    const auto slot = [pairs](const Runs& runs, size_t joined) {
      return (runs.cycles[joined - 1] - runs.cycles[joined]) / (2 * pairs);
    };
    samples.gain.push_back(gains.back());
    samples.slot_together.push_back(slot(together, 1));
    samples.slot_apart.push_back(slot(apart, 1));
    if (together.cycles.size() > 2) {
      samples.next_together.push_back(slot(together, 2));
      samples.next_apart.push_back(slot(apart, 2));
    }
    samples.share.push_back(apart.cycles[0] / instructions);
  }
  sample.cycles = stats::median(gains);
  sample.ns = sample.cycles / per_tick / bench.tsc_hz() * 1e9;
  return sample;
}

// Whether nothing more is to be sampled: told, or no layout can tell.
bool done(const Workbench& bench, Trial& trial, Told& told) {
  Attempt& attempt = trial.attempt();
  attempt.verdict = judge_pair(attempt.samples);
  if (trial.told()) {
    const bool again = trial.before == attempt.verdict || !on_silicon(bench);
    trial.before = attempt.verdict;
    if (again) {
      if (attempt.verdict == PairVerdict::kFused) ++told[trial.at];
      if (attempt.verdict == PairVerdict::kFused || trial.no_gain || !on_silicon(bench))
        return true;
      trial.no_gain = trial.at;
      trial.before = PairVerdict::kOpen;
      return !move_on(trial, told);
    }
    attempt.verdict = PairVerdict::kOpen;
    attempt.due = true;
    return false;
  }
  if (attempt.verdict != PairVerdict::kNotIssue &&
      (trial.visited < kVisit || leaning(attempt.samples)))
    return false;
  return !move_on(trial, told);
}

std::string_view word_of(PairVerdict verdict) {
  return verdict == PairVerdict::kFused    ? "fused"
         : verdict == PairVerdict::kNoGain ? "no gain"
                                           : "unclear";
}

// The second witness of a verdict: a pair that fuses is a uop less.
std::optional<MeasuredCounts> counts_of_pair(const Attempt& attempt) {
  if (attempt.saved.empty()) return std::nullopt;
  const double saved = stats::median(attempt.saved);
  MeasuredCounts counts{.each = {{"uops_saved", saved}}};
  if (word_of(attempt.verdict) == "unclear") return counts;
  const bool fused = attempt.verdict == PairVerdict::kFused;
  counts.agree = fused == (saved > 0.5);
  if (!*counts.agree) {
    counts.differ = fmt::format("{} by its time, and {:.3g} uops saved by a pair",
                                word_of(attempt.verdict), saved);
  }
  return counts;
}

void emit_gain(const Workbench& bench, const Point& point, const Trial& trial) {
  const Pair& pair = trial.pair;
  Measurement gain =
      median_measurement("fusion.gain", "cycles", trial.attempt().samples.gain,
                         {{"pair", pair.name()},
                          {"first", pair.first},
                          {"condition", pair.condition},
                          {"form", pair.form},
                          {"taken", pair.taken},
                          {"spacing", kLayouts[trial.at].spacing},
                          {"nop_bytes", kLayouts[trial.at].nop_bytes},
                          {"filler", kLayouts[trial.at].filler},
                          {"slot_cycles", trial.attempt().samples.slot()},
                          {"verdict", std::string(word_of(trial.attempt().verdict))}},
                         point.noise);
  gain.counts = counts_of_pair(trial.attempt());
  Measurement fused = gain;
  bench.emit(std::move(gain));
  if (word_of(trial.attempt().verdict) == "unclear") return;
  fused.name = "fusion.fused";
  fused.unit = "bool";
  fused.statistic = "verdict";
  fused.value = fused.low = fused.high = trial.attempt().verdict == PairVerdict::kFused ? 1 : 0;
  fused.interval.clear();
  bench.emit(std::move(fused));
}

}  // namespace

Expected<void> characterize_fusion(Workbench& bench) {
  SKIDPROOF_CHECK(bench.count({arch::Signal::kUops}));
  SKIDPROOF_CHECK(find_kernel("fused_branch"));
  std::vector<Pair> pairs = all_pairs(bench.effort() == Effort::kQuick);
  std::erase_if(pairs, [](Pair& pair) { return !choose_direction(pair); });
  std::vector<Point> scouts, others;
  std::vector<std::shared_ptr<Trial>> trials;
  const auto told = std::make_shared<Told>();
  const char* filler = SKIDPROOF_TRY(filler_of_pairs(bench));
  for (const Pair& pair : pairs) {
    const auto trial = std::make_shared<Trial>(Trial{.pair = pair});
    trial->use(filler);
    Point point;
    point.what = fmt::format("fusion, {}", pair.name());
    point.tag = trials.size();
    point.sample = [&bench, trial] { return sample_trial(bench, *trial); };
    point.enough = [&bench, trial, told] { return done(bench, *trial, *told); };
    (trials.size() % kScouts == 0 ? scouts : others).push_back(std::move(point));
    trials.push_back(trial);
  }
  const double seconds = std::max(0.0, bench.seconds_left());
  std::vector<Point> points, untold;
  // Those that are told of are done with.
  const auto sample_some = [&](std::vector<Point> some, double of_them, double from,
                               double to) -> Expected<void> {
    SKIDPROOF_CHECK(
        take_by_turns(bench, some, {.most = kMostSamples, .seconds = of_them}, from, to));
    for (Point& point : some) (trials[point.tag]->told() ? points : untold).push_back(point);
    return {};
  };
  const auto begin_where_most_are_told_of = [&](const std::vector<Point>& some) {
    const auto best = static_cast<size_t>(std::ranges::max_element(*told) - told->begin());
    for (const Point& point : some) trials[point.tag]->begin_at(best);
  };
  SKIDPROOF_CHECK(sample_some(std::move(scouts), seconds * kScoutsShare, 0, kScoutsShare));
  constexpr double kBatchShare = (1 - kScoutsShare) / (kBatches + 1);
  for (size_t batch = 0; batch < kBatches; ++batch) {
    std::vector<Point> some;
    for (size_t i = batch; i < others.size(); i += kBatches) some.push_back(others[i]);
    begin_where_most_are_told_of(some);
    const double from = kScoutsShare + static_cast<double>(batch) * kBatchShare;
    const double share =
        std::max(0.0, bench.seconds_left()) / static_cast<double>(kBatches + 1 - batch);
    SKIDPROOF_CHECK(sample_some(std::move(some), share, from, from + kBatchShare));
  }
  std::vector<Point> last = std::exchange(untold, {});
  begin_where_most_are_told_of(last);
  for (const Point& point : last) trials[point.tag]->at_the_end = true;
  SKIDPROOF_CHECK(take_by_turns(bench, last, {.most = kMostSamples}, 1 - kBatchShare, 1));
  std::ranges::move(last, std::back_inserter(points));
  std::ranges::sort(points, {}, &Point::tag);
  for (const auto& trial : trials) trial->settle(*told);
  for (const Point& point : points) {
    if (!trials[point.tag]->attempt().samples.gain.empty())
      emit_gain(bench, point, *trials[point.tag]);
  }
  return {};
}

}  // namespace skidproof
