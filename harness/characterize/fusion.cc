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
#include <string_view>
#include <utility>

#include "harness/characterize/company.h"
#include "harness/characterize/pair_trial.h"
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
// that have immediate operands). A loop of one pair fits where a core keeps loops: there its cycles are no whole number.
struct Layout {
  uint64_t spacing, nop_bytes, pairs;
  const char* filler = kNops;
};
constexpr std::array<Layout, 15> kLayouts = {{{2, 4, 4},
                                              {4, 1, 1},
                                              {4, 4, 1},
                                              {8, 4, 4},
                                              {16, 4, 2},
                                              {32, 4, 2},
                                              {24, 1, 2},
                                              {28, 1, 2},
                                              {32, 1, 2},
                                              {40, 1, 2},
                                              {2, 2, 4, kMovTest},
                                              {4, 2, 1, kMovTest},
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
// What limits the code depends more on the core than on the pair: every so manyth pair, and more of the few whose jump is
// always taken, goes first through all layouts, in this share of the time. The others come in batches, each of which begins where
// most pairs were told of until then: what another on the core made the scouts believe holds no longer than it stays. Whom
// nothing told of has another go at the end.
constexpr size_t kScouts = 13, kScoutsTaken = 3;
constexpr double kScoutsShare = 1.0 / 3;
constexpr size_t kBatches = 8;
constexpr double kBatchShare = (1 - kScoutsShare) / (kBatches + 1);
constexpr unsigned kMostSamples = 1000;
// Of the part's time, for those of whom nothing told in it: a neighbour on the core's other thread, which hides what a pair gains,
// is gone after some seconds as a rule. Whom it hides even then has an occasion when all parts are done.
constexpr double kMoreTime = 0.8;
// What may go into waiting for a moment without it, of the part's time and of that more: of a few hundred milliseconds it leaves
// some. Most pairs are told of beside it, too, but those of whom nothing told are told of without it or not at all.
constexpr double kFusionPatience = 0.1, kMorePatience = 0.6;

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

// A pair in one of the layouts, in one place in memory.
struct Attempt {
  // Each with no, one, and where the layout has so many two no-operations less on each side of each pair.
  std::vector<Workpiece> together, apart;
  uint64_t iterations = 0;
  PairSamples samples;
  std::vector<double>
      saved;  // uops by a pair side by side, in each undisturbed round, where uops are counted
  PairVerdict verdict = PairVerdict::kOpen;
};

struct Trial {
  Pair pair;
  PairTrial asked;
  std::array<Attempt, kLayouts.size()> attempts;
  PairVerdict verdict = PairVerdict::kOpen;

  // The layout that is shown: one that says what the verdict is, else where it was sampled most.
  size_t shown() const {
    const auto samples = [&](size_t i) {
      const Attempt& a = attempts[i];
      return std::pair(verdict != PairVerdict::kOpen && a.verdict == verdict,
                       a.samples.gain.size());
    };
    size_t most = 0;
    for (size_t i = 1; i < attempts.size(); ++i) {
      if (samples(i) > samples(most)) most = i;
    }
    return most;
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
Expected<std::string_view> filler_of_pairs(const Workbench& bench) {
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
  return std::string_view(plain ? kNops : kMovTest);
}

Expected<void> make_attempt(const Workbench& bench, Trial& trial) {
  const size_t at = trial.asked.at();
  const Layout& layout = kLayouts[at];
  Attempt made;  // while the old one still is where it is
  for (uint64_t joined = 0; joined <= std::min<uint64_t>(2, layout.spacing / 2); ++joined) {
    for (bool apart : {false, true}) {
      (apart ? made.apart : made.together)
          .push_back(SKIDPROOF_TRY(
              bench.prepare("fused_branch", trial.pair.parameters(layout, apart, joined))));
    }
  }
  made.iterations = SKIDPROOF_TRY(bench.iterations_for(kPairRunNs, made.apart[0]));
  trial.attempts[at] = std::move(made);
  return {};
}

// What a layout's programs took, each of which has a no-operation less than the one before it.
struct Runs {
  std::vector<double> cycles, beyond;
};

// A few rounds over an attempt's programs: the sample is the median of their gains; each round that nothing disturbed votes.
struct Rounds {
  Sample sample;
  PairSamples samples;
  std::vector<double> saved;  // as Attempt's
};

Expected<Rounds> take_rounds(const Workbench& bench, const Attempt& attempt, uint64_t of_a_run) {
  const double per_tick = SKIDPROOF_TRY(bench.core_cycles_per_tick());
  const auto pairs = static_cast<double>(attempt.iterations * of_a_run);
  const auto instructions =
      static_cast<double>(attempt.apart[0].program.per_iteration.instructions * attempt.iterations);
  const auto uops =
      bench.counters() == nullptr ? std::nullopt : bench.counters()->place(arch::Signal::kUops);
  std::vector<double> gains;
  Rounds taken;
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
        taken.sample.noise = taken.sample.noise + log.noise;
      }
      return runs;
    };
    const Runs together = SKIDPROOF_TRY(run(attempt.together)),
               apart = SKIDPROOF_TRY(run(attempt.apart));
    if (round == 0) continue;
    gains.push_back((apart.cycles[0] - together.cycles[0]) / pairs);
    if (!quiet) continue;
    if (uops) taken.saved.push_back((apart.beyond[0] - together.beyond[0]) / pairs);
    PairSamples& samples = taken.samples;
    const auto slot = [pairs](const Runs& runs, size_t joined) {
      return (runs.cycles[joined - 1] - runs.cycles[joined]) / (2 * pairs);
    };
    samples.gain.push_back(gains.back());
    samples.slot_together.push_back(slot(together, 1));
    samples.slot_apart.push_back(slot(apart, 1));
    samples.slot_gain.push_back((apart.cycles[1] - together.cycles[1]) / pairs);
    if (together.cycles.size() > 2) {
      samples.next_together.push_back(slot(together, 2));
      samples.next_apart.push_back(slot(apart, 2));
      samples.next_gain.push_back((apart.cycles[2] - together.cycles[2]) / pairs);
    }
    samples.share.push_back(apart.cycles[0] / instructions);
  }
  taken.sample.cycles = stats::median(gains);
  taken.sample.ns = taken.sample.cycles / per_tick / bench.tsc_hz() * 1e9;
  return taken;
}

// Taken alone where the other thread of the core leaves room for that: a busy one takes issue slots, and what it takes hides a gain.
Expected<Sample> sample_trial(const Workbench& bench, Company& company, Trial& trial) {
  if (trial.asked.take_new_place()) SKIDPROOF_CHECK(make_attempt(bench, trial));
  const size_t at = trial.asked.at();
  Attempt& attempt = trial.attempts[at];
  Rounds taken;
  const Sample sample = SKIDPROOF_TRY(company.watch([&]() -> Expected<Sample> {
    taken = SKIDPROOF_TRY(take_rounds(bench, attempt, kLayouts[at].pairs));
    return taken.sample;
  }));
  attempt.samples += taken.samples;
  attempt.saved.insert(attempt.saved.end(), taken.saved.begin(), taken.saved.end());
  return sample;
}

std::string_view word_of(PairVerdict verdict) {
  return verdict == PairVerdict::kFused    ? "fused"
         : verdict == PairVerdict::kNoGain ? "no gain"
                                           : "unclear";
}

// The second witness of a verdict: a pair that fuses is a uop less.
std::optional<MeasuredCounts> counts_of_pair(const Attempt& attempt, PairVerdict verdict) {
  if (attempt.saved.empty()) return std::nullopt;
  const double saved = stats::median(attempt.saved);
  MeasuredCounts counts{.each = {{"uops_saved", saved}}};
  if (word_of(verdict) == "unclear") return counts;
  const bool fused = verdict == PairVerdict::kFused;
  counts.agree = fused == (saved > 0.5);
  if (!*counts.agree) {
    counts.differ =
        fmt::format("{} by its time, and {:.3g} uops saved by a pair", word_of(verdict), saved);
  }
  return counts;
}

void emit_gain(const Workbench& bench, const Point& point, const Trial& trial) {
  const Pair& pair = trial.pair;
  const size_t at = trial.shown();
  const Attempt& attempt = trial.attempts[at];
  Measurement gain = median_measurement("fusion.gain", "cycles", attempt.samples.gain,
                                        {{"pair", pair.name()},
                                         {"first", pair.first},
                                         {"condition", pair.condition},
                                         {"form", pair.form},
                                         {"taken", pair.taken},
                                         {"spacing", kLayouts[at].spacing},
                                         {"nop_bytes", kLayouts[at].nop_bytes},
                                         {"filler", kLayouts[at].filler},
                                         {"slot_cycles", attempt.samples.slot()},
                                         {"verdict", std::string(word_of(trial.verdict))}},
                                        point.noise);
  gain.counts = counts_of_pair(attempt, trial.verdict);
  Measurement fused = gain;
  bench.emit(std::move(gain));
  if (word_of(trial.verdict) == "unclear") return;
  fused.name = "fusion.fused";
  fused.unit = "bool";
  fused.statistic = "verdict";
  fused.value = fused.low = fused.high = trial.verdict == PairVerdict::kFused ? 1 : 0;
  fused.interval.clear();
  bench.emit(std::move(fused));
}

// All pairs, those that nothing told of yet among them.
class Fusion {
 public:
  static Expected<std::shared_ptr<Fusion>> create(Workbench& bench);

  // Scouts through all layouts, then the others in batches.
  Expected<void> ask(Workbench& bench);
  // Those of whom nothing told, once more.
  Expected<void> ask_again(Workbench& bench, double seconds);
  bool all_told() const { return untold_.empty(); }
  void emit_told(const Workbench& bench) { emit(bench, told_); }
  void emit_untold(const Workbench& bench) { emit(bench, untold_); }

 private:
  Fusion(Company company, std::string_view filler)
      : company_(std::move(company)), filler_(filler) {}
  void add_pairs(const Workbench& bench);
  void sort_out(std::vector<Point> some);
  void emit(const Workbench& bench, std::vector<Point>& points);

  Company company_;
  std::string_view filler_;
  std::vector<Point> scouts_, others_, told_, untold_;
  std::vector<std::shared_ptr<Trial>> trials_;
  LayoutRecords records_{kLayouts.size()};
};

Expected<std::shared_ptr<Fusion>> Fusion::create(Workbench& bench) {
  const std::string_view filler = SKIDPROOF_TRY(filler_of_pairs(bench));
  const std::shared_ptr<Fusion> fusion(new Fusion(SKIDPROOF_TRY(Company::create(bench)), filler));
  fusion->add_pairs(bench);
  return fusion;
}

void Fusion::add_pairs(const Workbench& bench) {
  std::vector<Pair> pairs = all_pairs(bench.effort() == Effort::kQuick);
  std::erase_if(pairs, [](Pair& pair) { return !choose_direction(pair); });
  std::vector<bool> usable;
  usable.reserve(kLayouts.size());
  for (const Layout& layout : kLayouts) usable.push_back(filler_ == layout.filler);
  std::array<size_t, 2> of_direction{};
  for (const Pair& pair : pairs) {
    const bool taken = pair.taken == "1";
    const bool scout = of_direction[taken ? 1 : 0]++ % (taken ? kScoutsTaken : kScouts) == 0;
    const auto trial = std::make_shared<Trial>(
        Trial{.pair = pair, .asked = {usable, taken, scout, !on_silicon(bench)}});
    Point point;
    point.what = fmt::format("fusion, {}", pair.name());
    point.tag = trials_.size();
    point.sample = [this, &bench, trial] { return sample_trial(bench, company_, *trial); };
    point.enough = [this, trial] {
      Attempt& attempt = trial->attempts[trial->asked.at()];
      attempt.verdict = judge_pair(attempt.samples);
      return trial->asked.hear(attempt.verdict, leaning(attempt.samples), records_);
    };
    (scout ? scouts_ : others_).push_back(std::move(point));
    trials_.push_back(trial);
  }
}

// Those that are told of are done with.
void Fusion::sort_out(std::vector<Point> some) {
  for (Point& point : some) {
    Trial& trial = *trials_[point.tag];
    trial.verdict = trial.asked.verdict(records_);
    (trial.verdict == PairVerdict::kOpen ? untold_ : told_).push_back(std::move(point));
  }
}

Expected<void> Fusion::ask(Workbench& bench) {
  const double seconds = std::max(0.0, bench.seconds_left());
  company_.set_patience(kFusionPatience * seconds);
  SKIDPROOF_CHECK(take_by_turns(
      bench, scouts_, {.most = kMostSamples, .seconds = seconds * kScoutsShare}, 0, kScoutsShare));
  for (const Point& point : scouts_) {
    PairTrial& asked = trials_[point.tag]->asked;
    records_.add(asked.taken(), asked.shown(), asked.said());
    asked.end_scouting();
  }
  sort_out(std::exchange(scouts_, {}));
  for (size_t batch = 0; batch < kBatches; ++batch) {
    std::vector<Point> some;
    for (size_t i = batch; i < others_.size(); i += kBatches) some.push_back(others_[i]);
    for (const Point& point : some) trials_[point.tag]->asked.begin(records_);
    const double from = kScoutsShare + static_cast<double>(batch) * kBatchShare;
    const double share =
        std::max(0.0, bench.seconds_left()) / static_cast<double>(kBatches + 1 - batch);
    SKIDPROOF_CHECK(take_by_turns(bench, some, {.most = kMostSamples, .seconds = share}, from,
                                  from + kBatchShare));
    for (const Point& point : some) {
      const PairTrial& asked = trials_[point.tag]->asked;
      records_.add(asked.taken(), asked.verdict(records_), asked.said());
    }
    sort_out(std::move(some));
  }
  others_.clear();
  // A layout may have lost the trust in which it told of the first.
  sort_out(std::exchange(told_, {}));
  return ask_again(bench, std::max(bench.seconds_left(), seconds * kMoreTime));
}

Expected<void> Fusion::ask_again(Workbench& bench, double seconds) {
  std::vector<Point> last = std::exchange(untold_, {});
  for (const Point& point : last) {
    trials_[point.tag]->asked.at_the_end();
    trials_[point.tag]->asked.begin(records_);
  }
  company_.set_patience(kMorePatience * seconds);
  SKIDPROOF_CHECK(
      take_by_turns(bench, last, {.most = kMostSamples, .seconds = seconds}, 1 - kBatchShare, 1));
  sort_out(std::move(last));
  return {};
}

void Fusion::emit(const Workbench& bench, std::vector<Point>& points) {
  std::ranges::sort(points, {}, &Point::tag);
  for (const Point& point : std::exchange(points, {})) {
    const Trial& trial = *trials_[point.tag];
    if (!trial.attempts[trial.shown()].samples.gain.empty()) emit_gain(bench, point, trial);
  }
}

}  // namespace

Expected<void> characterize_fusion(Workbench& bench) {
  SKIDPROOF_CHECK(bench.count({arch::Signal::kUops}));
  SKIDPROOF_CHECK(find_kernel("fused_branch"));
  const std::shared_ptr<Fusion> fusion = SKIDPROOF_TRY(Fusion::create(bench));
  SKIDPROOF_CHECK(fusion->ask(bench));
  fusion->emit_told(bench);
  const auto end = [fusion](Workbench& now, double seconds) -> Expected<void> {
    Expected<void> asked = {};
    if (seconds > 0) {
      asked = now.count({arch::Signal::kUops});
      if (asked) asked = fusion->ask_again(now, seconds);
      fusion->emit_told(now);
    }
    fusion->emit_untold(now);
    return asked;
  };
  // A number of samples that was asked for is that number.
  if (fusion->all_told() || !on_silicon(bench) || bench.options().repetitions != 0)
    return end(bench, 0);
  bench.set_later(end);
  return {};
}

}  // namespace skidproof
