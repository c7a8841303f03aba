// PDist: on PMC0 of Golden Cove the record is that of the event that overflowed (R62); every other
// counter records the one behind it (R2).
#include <cstdint>

#include "harness/check/check.h"
#include "suites/adaptive.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_pdist {
namespace {

using namespace suites;
using arch::Gpr;

}  // namespace

SKIDPROOF_SUITE(PebsPdist, kOneRecord);

// RDI counts the iterations down, so that a record's RDI says which event it belongs to.
SKIDPROOF_TEST_OVER(PebsPdist, RecordsTheOverflowingEventOnPmc0Alone,
                    over::product(over::counters({0, 1, 2, 3}),
                                  over::words({"load", "store", "taken"})),
                    clause::R62, clause::R2) {
  SKIDPROOF_REQUIRE(uarch().pdist_counters != 0, SkipCategory::kNotOnThisMicroarch,
                    "no counter gives the precise distribution of every event");
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = precise_event(uarch(), sparse_signal(param().word()), counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "no precise event for this signal on this counter");
  SKIDPROOF_REQUIRE_EXACT(param().word());
  const Program& code = program("sparse_event", sparse_parameters(param().word()));
  const uint64_t period = usable_period(uarch(), counter, *event, random().between(33, 60));
  const uint64_t each = period + ((uarch().pdist_counters >> counter & 1) != 0 ? 0 : 1);
  const uint64_t iterations = 6 * each + each / 2;
  const uint64_t own = sparse_events(param().word(), code, iterations);
  const uint64_t events = need(count(machine(), counter, *event, code, iterations));

  Sampled sampled =
      need(sample(machine(), one_counter(counter, *event, period, 16), code, iterations));

  evidence("period", period);
  evidence("records", sampled.records().size());
  VERIFY_EQ(sampled.records().size(), events / each);
  VERIFY_EQ(sampled.run.counters[0], (events % each - period) & arch::gp_counter_mask(uarch()));
  uint64_t number = 0;
  for (Record record : sampled.records()) {
    number += each;
    const uint64_t recorded = iterations + 1 - record.gpr(Gpr::kRdi);
    VERIFY_LE(recorded, number);
    VERIFY_GE(recorded + (events - own), number) << "the machine's own events come before";
  }
}

}  // namespace skidproof::check::pebs_pdist
