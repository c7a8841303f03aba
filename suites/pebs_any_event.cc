// Events that are not precise, where any event can be sampled (R61): a record at the next opportunity,
// with no promise about where.
#include <cstdint>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_any_event {
namespace {

using namespace suites;
using arch::Signal;

// The plain event that counts cycles and is not precise.
const arch::Event* imprecise_cycles(const arch::Microarch& microarch, unsigned counter) {
  for (const arch::Event& e : microarch.events) {
    if (!e.precise() && e.signal == Signal::kCycles && ((e.counters >> counter) & 1) != 0)
      return &e;
  }
  return nullptr;
}

}  // namespace

SKIDPROOF_SUITE(PebsAnyEvent, kOneRecord);

SKIDPROOF_TEST_OVER(PebsAnyEvent, IsSampledSomewhere, over::counters({0, 1, 2, 3, 4, 5, 6, 7}),
                    clause::R61, clause::A14, clause::E3) {
  SKIDPROOF_REQUIRE(uarch().pebs_any_event, SkipCategory::kNotOnThisMicroarch,
                    "precise events only");
  const auto counter = static_cast<unsigned>(param().number());
  SKIDPROOF_REQUIRE((uarch().pebs_counters >> counter & 1) != 0, SkipCategory::kNotOnThisMicroarch,
                    "no PEBS on this counter");
  const arch::Event* event = imprecise_cycles(uarch(), counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, "no cycle event");
  const Program& code = program("mixed");
  const uint64_t period = usable_period(uarch(), 3000);
  constexpr uint64_t kIterations = 10000;
  const uint64_t cycles = need(count(machine(), counter, *event, code, kIterations));

  Sampled sampled =
      need(sample(machine(), one_counter(counter, *event, period, 4096), code, kIterations));

  const size_t records = sampled.records().size();
  evidence("cycles", cycles);
  evidence("records", records);
  VERIFY_GE(records, 2u);
  // No more than overflows; that the second run takes as many cycles is not promised.
  VERIFY_LE(records, 2 * cycles / period);
  uint64_t outside = 0;
  for (Record record : sampled.records()) {
    outside += foreign(code, record.eventing_ip());
    VERIFY_EQ(record.applicable_counters(), arch::bit(counter));
  }
  VERIFY_LE(outside, kForeignAllowed);
  // The overflow was taken up and the counter loaded: it has not counted on from zero.
  const uint64_t since = (sampled.run.counters[0] - minus_period(period, uarch().gp_width)) &
                         arch::gp_counter_mask(uarch());
  VERIFY_LT(since, 2 * period);
}

// The overflow is software's, and no event is awaited: a record, or none, where the text says that there may be one; and
// of no other counter.
SKIDPROOF_TEST_OVER(PebsAnyEvent, IsReportedForAnOverflowThatSoftwareSets,
                    over::counters({0, 1, 2, 3}), clause::E9, clause::G7) {
  SKIDPROOF_REQUIRE(uarch().pebs_any_event && uarch().streamlined_freeze(),
                    SkipCategory::kNotOnThisMicroarch, "precise events only");
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = imprecise_cycles(uarch(), counter);
  SKIDPROOF_REQUIRE(event != nullptr && ((uarch().pebs_counters >> counter) & 1) != 0,
                    SkipCategory::kNotOnThisMicroarch, "no cycle event");
  const Program& code = program("mixed");
  // So far away that no overflow is the counter's own.
  Session session =
      need(Session::open(machine(), one_counter(counter, *event, uint64_t{1} << 40, 8)));
  need(session.run(code, 10));
  VERIFY_EQ(session.records().size(), 0u) << "before the write";
  need(machine().wrmsr(arch::IA32_PERF_GLOBAL_STATUS_SET, arch::bit(counter)));
  need(session.resume(code, 100));

  const size_t records = session.records().size();
  observe("recorded", records);
  VERIFY_LE(records, 1u);
  for (Record record : session.records()) {
    VERIFY_EQ(record.applicable_counters(), arch::bit(counter));
  }
}

}  // namespace skidproof::check::pebs_any_event
