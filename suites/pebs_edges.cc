// The edges of the PEBS buffer: an index past the threshold at the start, below the base, a maximum
// that is no multiple of the record size, and what a skipped event leaves alone.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "harness/check/check.h"
#include "pebs/arch/reserved.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_edges {
namespace {

using namespace suites;
using arch::bit;
using arch::pebs_overflow;

constexpr uint64_t kWishedPeriod = 40;
constexpr char kNoEvent[] = "no precise load event on PMC0";

// A share of a record in whole bytes, never none.
uint64_t part_of_record(const arch::Microarch& microarch, uint64_t sixteenths) {
  return std::max<uint64_t>(1, record_bytes(microarch) * sixteenths / 16);
}

}  // namespace

SKIDPROOF_SUITE(PebsEdges, kEdges);

// --- The threshold

// Index and threshold as software may leave them: one record short of it, at it, and past it. The
// index reaches the threshold by becoming equal to it or by being beyond it (D6); on Core 2 the test
// is nominally for equality, so beyond it the outcome is reported (D6a).
SKIDPROOF_TEST_OVER(PebsEdges, InterruptWhenTheIndexIsAtTheThresholdOrPastIt,
                    over::numbers("start-index=", {2, 3, 4}), clause::D6, clause::D6a,
                    clause::R44) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  SessionPlan plan = one_counter(0, *event, usable_period(uarch(), 0, *event, kWishedPeriod), 12);
  plan.threshold_records = 3;
  plan.index_bytes = param().number() * record_bytes(uarch());

  Sampled sampled =
      need(sample(machine(), plan, code, iterations_for_exactly(1, plan.counters[0].period)));

  const uint64_t after = sampled.session.base() + *plan.index_bytes + record_bytes(uarch());
  evidence("interrupts", sampled.run.log.pmis.size());
  VERIFY_EQ(sampled.session.index(), after);
  const bool nominal = after == sampled.session.threshold();
  if (!nominal && uarch().threshold_by_equality) {
    VERIFY_LE(sampled.run.log.pmis.size(), 1u);
    return;
  }
  VERIFY_EQ(sampled.run.log.pmis.size(), 1u);
  for (const Pmi& pmi : sampled.run.log.pmis) VERIFY_EQ(pmi.pebs_index, after);
}

// OvfBuffer was set by the threshold, and nobody has cleared it when the buffer fills.
SKIDPROOF_TEST(PebsEdges, KeepOvfBufferWhenTheBufferFills, clause::D12, clause::R22) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  SessionPlan plan = one_counter(0, *event, usable_period(uarch(), 0, *event, kWishedPeriod), 4);
  plan.threshold_records = 2;
  plan.pmi.clear_status = false;
  plan.pmi.unmask = false;

  Sampled sampled =
      need(sample(machine(), plan, code, iterations_for_exactly(4, plan.counters[0].period)));

  VERIFY_EQ(sampled.session.index(), sampled.session.maximum());
  VERIFY_EQ(sampled.run.global_status & pebs_overflow(uarch()), pebs_overflow(uarch()));
}

// What interrupts is a record that has reached the threshold; an event that finds the buffer full is
// none, however many follow.
SKIDPROOF_TEST(PebsEdges, InterruptForRecordsAndNotForSkippedEvents, clause::D13, clause::R44,
               clause::D4) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), 0, *event, kWishedPeriod);
  SessionPlan plan = one_counter(0, *event, period, 4);
  plan.threshold_records = 2;

  Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(12, period)));

  evidence("interrupts", sampled.run.log.pmis.size());
  VERIFY_EQ(sampled.session.index(), sampled.session.maximum());
  VERIFY_GE(sampled.run.log.pmis.size(), 1u);
  VERIFY_LE(sampled.run.log.pmis.size(), 3u) << "the second record to the fourth";
}

// --- The maximum

// Whole records that end below the maximum are written by every reading of the texts (ds_area:
// comparisons (a) to (d), and a record that must end strictly below it).
SKIDPROOF_TEST_OVER(PebsEdges, HoldEveryRecordThatEndsBelowTheMaximum,
                    over::numbers("sixteenths-over=", {0, 1, 8, 15}), clause::D13b, clause::D3,
                    clause::D4) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  constexpr size_t kWhole = 3;
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), 0, *event, kWishedPeriod);
  SessionPlan plan = one_counter(0, *event, period, kWhole + 4);
  const uint64_t over_it = part_of_record(uarch(), param().number());
  plan.maximum_bytes = kWhole * record_bytes(uarch()) + over_it;

  Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(kWhole + 3, period)));

  evidence("bytes-over", over_it);
  evidence("records", sampled.records().size());
  VERIFY_GE(sampled.records().size(), kWhole);
  VERIFY_EQ(sampled.records().remainder_bytes(), 0u);
  const uint64_t past = sampled.session.maximum() - sampled.session.base();
  sampled.session.set_index(sampled.session.base());
  std::span<const std::byte> behind = sampled.session.after_index().subspan(past);
  const bool untouched =
      std::all_of(behind.begin(), behind.end(), [](std::byte b) { return b == Session::kFill; });
  if (aligned_maximum(over_it)) {
    VERIFY_TRUE(untouched) << "a byte at or past the maximum";
  } else {
    observe("overruns-an-unaligned-maximum", !untouched);
  }
}

// --- Skipped events

// The buffer is full from the start: whether the counter's own bit stays is not settled (D16), and
// is reported; the bits of others are none of its business.
SKIDPROOF_TEST_OVER(PebsEdges, LeaveTheStatusOfOthersToASkippedEvent, over::counters({0, 2, 3}),
                    clause::D16, clause::R46, clause::R17) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr && ((event->counters >> 1) & 1) != 0,
                    SkipCategory::kNotOnThisMicroarch, "no precise load event on this counter");
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), counter, *event, kWishedPeriod);
  SessionPlan plan = one_counter(counter, *event, period, 8);
  plan.counters.push_back(CounterSetup::of(1, *event, period / 2, false));
  plan.fixed = {{.counter = 0, .initial = minus_period(100, uarch().fixed_width)}};
  plan.maximum_records = 2;
  plan.index_bytes = 2 * record_bytes(uarch());

  Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(2, period)));

  const uint64_t others = bit(1) | bit(arch::status::kFixedShift);
  evidence("own-bit", (sampled.run.global_status & bit(counter)) != 0 ? "stays" : "cleared");
  VERIFY_EQ(sampled.session.index(), sampled.session.maximum());
  VERIFY_EQ(sampled.run.global_status & others, others);
}

// Goldmont and what follows it say what becomes of an index outside the buffer (D14): OvfBuffer is set, the status of the
// counters to which the record would have applied is cleared, nothing is written, and no counter is loaded.
SKIDPROOF_TEST_OVER(PebsEdges, SignalAnIndexOutsideTheBuffer,
                    over::product(over::words({"below", "above"}), over::counters({0, 1, 2, 3})),
                    clause::D14, clause::R47, clause::D16) {
  SKIDPROOF_REQUIRE(uarch().out_of_bounds_signalled, SkipCategory::kNotOnThisMicroarch,
                    "nothing says what an index outside the buffer does");
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), counter, *event, kWishedPeriod);
  // Half a period behind the first overflow.
  const uint64_t iterations = iterations_for_exactly(1, period);
  const uint64_t events = need(count(machine(), counter, *event, code, iterations));
  const uint64_t size = record_bytes(uarch());
  SessionPlan plan = one_counter(counter, *event, period, 8);
  const unsigned other = counter == 1 ? 2 : 1;  // without PEBS
  plan.counters.push_back(CounterSetup::of(other, *event, period / 2, false));
  plan.pmi.clear_status = false;
  plan.pmi.unmask = false;
  const bool below = param().word() == "below";
  if (!below) {
    plan.maximum_records = 2;
    plan.index_bytes = 3 * size;
  }
  Session session = need(Session::open(machine(), plan));
  const uint64_t base = session.base();
  const uint64_t start = session.index();
  if (below) session.set_base(base + 4 * size);

  const SessionRun run = need(session.run(code, iterations));

  session.set_base(base);
  const uint64_t index = session.index();
  session.set_index(base);
  const std::span<const std::byte> all = session.after_index();
  const bool untouched =
      std::all_of(all.begin(), all.end(), [](std::byte b) { return b == Session::kFill; });
  session.set_index(index);
  evidence("status", results::hex(run.global_status));
  VERIFY_EQ(index, start) << "no record";
  VERIFY_TRUE(untouched) << "bytes in the buffer";
  VERIFY_EQ(run.global_status & pebs_overflow(uarch()), pebs_overflow(uarch()));
  VERIFY_EQ(run.global_status & bit(counter), 0u) << "the applicable counter's";
  VERIFY_EQ(run.global_status & bit(other), bit(other)) << "another's";
  VERIFY_EQ(run.counters[0], events - period) << "no counter is loaded";
}

// Below the base: recorded or skipped is reported (R47). Recorded, it counts as one record does;
// skipped, no source has the counter loaded (D10 and D14 say so).
SKIDPROOF_TEST(PebsEdges, LoadNoCounterForAnEventSkippedBelowTheBase, clause::D14, clause::D10,
               clause::R47) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), 0, *event, kWishedPeriod);
  const uint64_t iterations = iterations_for_exactly(2, period);
  const uint64_t events = need(count(machine(), 0, *event, code, iterations));
  const Exact expected = exact(uarch(), events, period, period);
  Session session = need(Session::open(machine(), one_counter(0, *event, period, 8)));
  const uint64_t start = session.index();
  session.set_base(start + 4 * record_bytes(uarch()));

  const SessionRun run = need(session.run(code, iterations));

  session.set_base(start);
  const uint64_t moved = session.index() - start;
  evidence("records", moved / record_bytes(uarch()));
  if (moved == 0) {
    if (uarch().full_buffer_sets_ovf) {  // the row follows 18.9.1: skipped entirely
      VERIFY_EQ(run.counters[0], events - period);
    }
  } else {
    VERIFY_EQ(moved, expected.records * record_bytes(uarch()));
    VERIFY_EQ(run.counters[0], expected.counter);
  }
  VERIFY_LE(session.index(), session.maximum());
}

}  // namespace skidproof::check::pebs_edges
