// Reduced skid: on IA32_PMC0 of Goldmont, Goldmont Plus and Tremont the record is that of the very next event behind the
// overflow (E1), where other counters have to be armed first (R2), and where PDist has the overflowing event itself (R62).
#include <cstdint>
#include <string>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_reduced_skid {
namespace {

using namespace suites;
using arch::Gpr;

constexpr char kNone[] = "no counter has reduced skid";

bool reduced(const arch::Microarch& microarch, unsigned counter, const arch::Event* event) {
  return event != nullptr && ((microarch.reduced_skid_counters >> counter) & 1) != 0 &&
         microarch.distributes(*event);
}

}  // namespace

SKIDPROOF_SUITE(PebsReducedSkid, kOneRecord);

// RDI counts the iterations down, so that a record's RDI says which event it belongs to. The nearer the events, the more
// of them would pass until PEBS were armed; only the first record of a run is looked at, so that nothing is said of what a
// record costs.
SKIDPROOF_TEST_OVER(PebsReducedSkid, RecordsTheVeryNextEvent,
                    over::product(over::words({"load", "store", "taken"}),
                                  over::numbers("spacing=", {2, 4, 64})),
                    clause::E1, clause::E2, clause::R43) {
  constexpr unsigned kCounter = 0;
  const arch::Event* event = precise_event(uarch(), sparse_signal(param().word()), kCounter);
  SKIDPROOF_REQUIRE(reduced(uarch(), kCounter, event), SkipCategory::kNotOnThisMicroarch, kNone);
  const auto spacing = static_cast<unsigned>(param().number());
  const Program& code = program("sparse_event", sparse_parameters(param().word(), spacing));
  uint64_t recorded_runs = 0, outside = 0;
  for (uint64_t run = 0; run < 12; ++run) {
    const uint64_t period = usable_period(uarch(), kCounter, *event, 33 + 5 * run);
    const uint64_t iterations = 3 * period;
    const uint64_t own = sparse_events(param().word(), code, iterations);
    const uint64_t events = need(count(machine(), kCounter, *event, code, iterations));

    Sampled sampled =
        need(sample(machine(), one_counter(kCounter, *event, period, 4), code, iterations));

    VERIFY_GE(sampled.records().size(), 1u);
    if (sampled.records().empty()) return;
    const Record record = sampled.records().front();
    if (foreign(code, record.ip())) {
      ++outside;
      continue;
    }
    ++recorded_runs;
    const uint64_t recorded = iterations + 1 - record.gpr(Gpr::kRdi);
    VERIFY_LE(recorded, period + 1) << "an event passed before PEBS was armed";
    VERIFY_GE(recorded + (events - own), period + 1) << "the machine's own events come before";
  }
  evidence("records", recorded_runs);
  VERIFY_LE(outside, kForeignAllowed);
}

// From record to record there are as many events as the period says, and one.
SKIDPROOF_TEST_OVER(PebsReducedSkid, PassesOneEventARecord, over::words({"load", "store", "taken"}),
                    clause::E1, clause::R19) {
  constexpr unsigned kCounter = 0;
  const arch::Event* event = precise_event(uarch(), sparse_signal(param().word()), kCounter);
  SKIDPROOF_REQUIRE(reduced(uarch(), kCounter, event), SkipCategory::kNotOnThisMicroarch, kNone);
  SKIDPROOF_REQUIRE_EXACT(param().word());
  const Program& code = program("sparse_event", sparse_parameters(param().word()));
  const uint64_t period =
      usable_period(uarch(), kCounter, *event, static_cast<uint64_t>(random().between(33, 60)));
  const uint64_t each = period + 1;
  const uint64_t iterations = 6 * each + each / 2;
  const uint64_t events = need(count(machine(), kCounter, *event, code, iterations));

  Sampled sampled =
      need(sample(machine(), one_counter(kCounter, *event, period, 16), code, iterations));

  evidence("period", period);
  evidence("records", sampled.records().size());
  VERIFY_EQ(sampled.records().size(), events / each);
  VERIFY_EQ(sampled.run.counters[0], (events % each - period) & arch::gp_counter_mask(uarch()));
}

// What qualifiers or UOPS_RETIRED make of it: no promise, and what becomes of the first record is told.
SKIDPROOF_TEST(PebsReducedSkid, IsReportedForUops, clause::E2) {
  constexpr unsigned kCounter = 0;
  const arch::Event* event = dense_event(uarch(), kCounter);
  SKIDPROOF_REQUIRE(
      uarch().reduced_skid_counters != 0 && event != nullptr && !uarch().distributes(*event),
      SkipCategory::kNotOnThisMicroarch, kNone);
  const Program& code = program("nop_sled");
  const uint64_t period = usable_period(uarch(), kCounter, *event, 2000);

  Sampled sampled = need(sample(machine(), one_counter(kCounter, *event, period, 64), code, 2000));

  VERIFY_GE(sampled.records().size(), 4u);
  const uint64_t events = need(count(machine(), kCounter, *event, code, 2000));
  const uint64_t records = sampled.records().size();
  const uint64_t rest = (sampled.run.counters[0] + period) & arch::gp_counter_mask(uarch());
  observe("events-that-pass-before-a-record",
          static_cast<double>(difference(events, records * period + rest)) /
              static_cast<double>(std::max<uint64_t>(records, 1)));
}

}  // namespace skidproof::check::pebs_reduced_skid
