// Small periods: from 16 events on, at every value of the low six bits, a period is kept exactly, as
// far down as the microarch sustains it (R41); a record costs time and nothing else (R40). Shorter
// ones are not run: on some parts they hang the machine or lose records.
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "harness/check/check.h"
#include "pebs/arch/errata.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_periods {
namespace {

using namespace suites;
using arch::EventKind;
using arch::Signal;

constexpr char kNoEvent[] = "no precise load event on this counter";
constexpr char kTooShort[] =
    "the sources give a longer least period for this event on this counter";

// Where a fused pair overflows, its second instruction is one that the next period lacks. The loop of this
// spacing is of a length that puts none of the periods' overflows at its pair more often than every fourth time.
constexpr unsigned kSpacingForPairs = 68;

// 16 to 256: the edges of powers of two, and each of the low six bits on its own.
std::vector<Param> periods() {
  return over::numbers("period=",
                       {16, 17, 20, 24, 31,  32,  33,  40,  48,  63,  64,  65,  66,  68,  72,
                        80, 95, 96, 99, 100, 101, 112, 127, 128, 129, 160, 192, 224, 255, 256});
}

}  // namespace

SKIDPROOF_SUITE(PebsPeriods, kEdges);

SKIDPROOF_TEST_OVER(PebsPeriods, AreKeptExactly, periods(), clause::R41, clause::R19) {
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const uint64_t period = param().number();
  SKIDPROOF_REQUIRE(period >= minimum_period(uarch(), counter, *event),
                    SkipCategory::kNotOnThisMicroarch, kTooShort);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t iterations = iterations_for_exactly(8, period);
  const uint64_t events = need(count(machine(), counter, *event, code, iterations));
  const Exact expected = exact(uarch(), events, period, period, counter);

  Sampled sampled =
      need(sample(machine(), one_counter(counter, *event, period, 16), code, iterations));

  evidence("records", sampled.records().size());
  evidence("records-by-the-clause", expected.records);
  VERIFY_EQ(sampled.records().remainder_bytes(), 0u);
  VERIFY_GE(expected.records, 8u);
  VERIFY_EQ(sampled.records().size(), expected.records);
  VERIFY_EQ(sampled.run.counters[0], expected.counter);
}

// The cost is reported, in time-stamp ticks for each record; the rest is promised at any period
// that the microarch sustains.
SKIDPROOF_TEST_OVER(PebsPeriods, CostTimeAndNothingElse,
                    over::numbers("period=", {16, 32, 64, 128, 1024}), clause::R40, clause::R12) {
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const uint64_t period = param().number();
  SKIDPROOF_REQUIRE(period >= minimum_period(uarch(), counter, *event),
                    SkipCategory::kNotOnThisMicroarch, kTooShort);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const size_t room = safe_records(uarch(), 64);
  const uint64_t iterations = iterations_for_exactly(room / 2, period);
  Sampled counted =
      need(sample(machine(), one_counter(plain_counter(counter, *event), 1), code, iterations));
  const uint64_t events = counted.run.counters[0];
  const Exact expected = exact(uarch(), events, period, period, counter);
  need(counted.session.close());

  Sampled sampled =
      need(sample(machine(), one_counter(counter, *event, period, room), code, iterations));

  const double ticks =
      static_cast<double>(sampled.run.log.tsc) - static_cast<double>(counted.run.log.tsc);
  evidence("ticks-without-records", counted.run.log.tsc);
  evidence("ticks-with-records", sampled.run.log.tsc);
  evidence("ticks-a-record",
           ticks / static_cast<double>(std::max<size_t>(sampled.records().size(), 1)));
  VERIFY_EQ(sampled.records().size(), expected.records);
  VERIFY_EQ(sampled.run.counters[0], expected.counter);
  for (Record record : sampled.records()) {
    VERIFY_FALSE(foreign(code, record.ip()));
    VERIFY_EQ(record.ip(), sampled.records().front().ip()) << "there is one such event in the loop";
  }
}

// How a period of the precise distribution is kept in a run.
struct Kept {
  uint64_t records = 0;
  uint64_t instructions = 0;
  uint64_t missing =
      0;  // between all instructions and those that the records and the rest of a period make
  size_t remainder_bytes = 0;
};

constexpr uint64_t kRecords = 100;

Expected<Kept> run_of(Machine& machine, unsigned counter, const arch::Event& event, uint64_t period,
                      const Program& code) {
  const arch::Microarch& microarch = *machine.identity().microarch;
  SessionPlan plan = one_counter(counter, event, period, 2 * kRecords);
  plan.fixed = {{.counter = 0}};  // instructions retired
  const uint64_t iterations = kRecords * period / code.per_iteration.instructions + 1;
  const Sampled sampled = SKIDPROOF_TRY(sample(machine, plan, code, iterations));
  const uint64_t records = sampled.records().size();
  const uint64_t rest = (sampled.run.counters[0] - minus_period(period, microarch.gp_width)) &
                        arch::gp_counter_mask(microarch);
  const uint64_t accounted = records * period + rest, all = sampled.run.fixed[0];
  return Kept{.records = records,
              .instructions = all,
              .missing = std::max(all, accounted) - std::min(all, accounted),
              .remainder_bytes = sampled.records().remainder_bytes()};
}

// R13's event N is inferred, and so one more may pass, and with it the second half of a fused pair; an
// ordinary event lets several.
bool is_kept(const Kept& run, uint64_t period, uint64_t edge) {
  return run.records >= kRecords * period / (period + 2) * 9 / 10 &&
         run.missing <= run.records * 3 / 2 + 2 * edge;
}

// Periods that no source promises are judged only where a listed erratum is what takes the promise away: they
// ask whether it shows, and are its own tests (pebs/arch/errata). It shows in one of them or in all.
struct AskedOfErratum {
  std::string_view id;
  std::vector<uint64_t> periods;
};
const std::vector<AskedOfErratum>& asked_of_errata() {
  static const std::vector<AskedOfErratum> kAsked = {{"BJ103", {64, 99}}, {"BDM55", {129}}};
  return kAsked;
}

// Those that are asked together with this one, itself among them; none where no listed erratum is asked for.
std::vector<uint64_t> asked_with(const Machine& machine, uint64_t period) {
  const Identity& who = machine.identity();
  const arch::Part part = {.family = who.family,
                           .model = who.model,
                           .stepping = who.stepping,
                           .microcode = who.microcode};
  for (const AskedOfErratum& asked : asked_of_errata()) {
    const arch::Erratum* erratum = arch::find_erratum(asked.id);
    if (erratum == nullptr || !erratum->listed_for(part)) continue;
    // Where another erratum takes all but some multiples, only those tell the one from the other.
    const uint64_t multiple = asked.id == "BDM55" ? 1 : who.microarch->pdir_period_multiple;
    std::vector<uint64_t> together;
    for (uint64_t one : asked.periods) {
      if (one % multiple == 0 && one >= who.microarch->minimum_period) together.push_back(one);
    }
    if (std::count(together.begin(), together.end(), period) != 0) return together;
  }
  return {};
}

// Each record of the precise distribution takes as many instructions as its period, down to the
// least that the sources give for it.
SKIDPROOF_TEST_OVER(PebsPeriods, AreKeptByThePreciseDistribution, periods(), clause::R41,
                    clause::R13) {
  SKIDPROOF_REQUIRE(uarch().pdir_counter != 0, SkipCategory::kNotOnThisMicroarch,
                    "no precise distribution on a general-purpose counter");
  const auto counter = static_cast<unsigned>(__builtin_ctz(uarch().pdir_counter));
  const arch::Event* event = facility_event(uarch(), EventKind::kPdir);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const uint64_t period = param().number();
  SKIDPROOF_REQUIRE(period >= uarch().minimum_period, SkipCategory::kNotOnThisMicroarch, kTooShort);
  const Program& code = program("sparse_event", sparse_parameters("load", kSpacingForPairs));
  const uint64_t edge = margin_of(calibrated(calibrate::Quantity::kEdgeInstructions));
  const bool sustained = sustained_period(uarch(), counter, *event, period) == period;

  const Kept run = need(run_of(machine(), counter, *event, period, code));

  evidence("records", run.records);
  evidence("missing", run.missing);
  if (sustained) {
    VERIFY_EQ(run.remainder_bytes, 0u);
    VERIFY_GE(run.records, kRecords * period / (period + 2) * 9 / 10);
    VERIFY_LE(run.missing, run.records * 3 / 2 + 2 * edge)
        << "events that pass before each record are missing, or records came without an overflow";
    return;
  }
  const std::vector<uint64_t> together = asked_with(machine(), period);
  if (together.empty()) observe("kept", is_kept(run, period, edge));
  for (uint64_t other : together) {
    const Kept asked =
        other == period ? run : need(run_of(machine(), counter, *event, other, code));
    VERIFY_TRUE(is_kept(asked, other, edge))
        << asked.records << " records of " << other << " events, and " << asked.missing
        << " events missing, of " << asked.instructions;
  }
}

}  // namespace skidproof::check::pebs_periods
