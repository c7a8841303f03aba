// The PEBS buffer: the index moves by whole records, nothing stands at or past the maximum, a full
// buffer skips events, and a rewound one goes on.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pebs_buffer {
namespace {

using namespace suites;
using arch::bit;
using arch::Gpr;
using arch::Signal;
using arch::status::kOvfBuffer;

constexpr uint64_t kWishedPeriod = 40;
constexpr char kNoEvent[] = "no precise load event on PMC0";

// All that the session allocated for records, whatever the index says.
std::span<const std::byte> whole_buffer(Session& session) {
  const uint64_t index = session.index();
  session.set_index(session.base());
  std::span<const std::byte> all = session.after_index();
  session.set_index(index);
  return all;
}

// How many bytes no longer hold the session's fill.
size_t written(std::span<const std::byte> bytes) {
  return bytes.size() - static_cast<size_t>(std::count(bytes.begin(), bytes.end(), Session::kFill));
}
size_t written_past_maximum(Session& session) {
  return written(whole_buffer(session).subspan(session.maximum() - session.base()));
}

}  // namespace

SKIDPROOF_SUITE(PebsBuffer, kBuffer);

SKIDPROOF_TEST_OVER(PebsBuffer, MovesTheIndexByWholeRecords, over::numbers("records=", {1, 3, 8}),
                    clause::D2, clause::D1, clause::P2) {
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), 0, *event, kWishedPeriod);
  const uint64_t records = param().number();
  Session session = need(Session::open(machine(), one_counter(0, *event, period, 16)));
  const uint64_t start = session.index();
  std::vector<std::byte> before(session.ds_bytes().begin(), session.ds_bytes().end());

  need(session.run(code, iterations_for_exactly(records, period)));

  evidence("index-moved", session.index() - start);
  VERIFY_EQ(start, session.base());
  VERIFY_EQ(session.index() - start, records * record_bytes(uarch()));
  VERIFY_EQ(written(session.after_index()), 0u) << "bytes behind the index";
  VERIFY_GT(written(whole_buffer(session)), 0u) << "bytes of records";
  session.set_index(start);
  VERIFY_TRUE(std::equal(before.begin(), before.end(), session.ds_bytes().begin()))
      << "the processor changes nothing of the management area but the index";
}

// Two records' worth of events more than there is room for.
SKIDPROOF_TEST_OVER(PebsBuffer, StopsAtTheMaximum, over::numbers("maximum=", {1, 4, 7}), clause::D4,
                    clause::R48, clause::R47a, clause::D13a) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), 0, *event, kWishedPeriod);
  const size_t maximum = param().number();
  SessionPlan plan = one_counter(0, *event, period, maximum + 4);
  plan.maximum_records = maximum;
  const uint64_t iterations = iterations_for_exactly(maximum + 2, period);

  Sampled sampled = need(sample(machine(), plan, code, iterations));

  evidence("records", sampled.records().size());
  VERIFY_EQ(sampled.session.index(), sampled.session.maximum());
  VERIFY_EQ(sampled.records().size(), maximum);
  VERIFY_EQ(written_past_maximum(sampled.session), 0u);
  if (sampled.records().empty()) return;
  const uint64_t first = iterations + 1 - sampled.records().front().gpr(Gpr::kRdi);
  VERIFY_LE(first, period + 1) << "the first record is still the first: nothing went round";
}

// A maximum that is a multiple of the record size, or that and one (D3), lets no byte stand at or past
// it. Any other is a mistake of software's: what becomes of it is observed.
SKIDPROOF_TEST_OVER(PebsBuffer, WritesNoByteAtOrPastAnUnalignedMaximum,
                    over::numbers("bytes-over=", {1, 8, 88, 168, 175}), clause::R48, clause::D3,
                    clause::D13b) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  constexpr size_t kWhole = 3;  // records below the maximum
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), 0, *event, kWishedPeriod);
  SessionPlan plan = one_counter(0, *event, period, kWhole + 4);
  plan.maximum_bytes = kWhole * record_bytes(uarch()) + param().number();

  Sampled sampled = need(sample(machine(), plan, code, iterations_for_exactly(kWhole + 3, period)));

  evidence("records", sampled.records().size());
  evidence("records-that-fit", kWhole);
  VERIFY_GE(sampled.records().size(), 1u);
  if (!suites::aligned_maximum(param().number())) {
    observe("bytes-past-the-maximum", written_past_maximum(sampled.session));
    return;
  }
  VERIFY_EQ(written_past_maximum(sampled.session), 0u);
  VERIFY_LE(sampled.session.index(), sampled.session.maximum());
}

// Sandy Bridge's text (18.9.1): with no room the event is skipped entirely, so the counter runs on
// from its overflow and its status bit stays. Nehalem's says only that nothing is written.
SKIDPROOF_TEST_OVER(PebsBuffer, SkipsEventsWhileItIsFull, over::counters({0, 1, 2, 3}), clause::D10,
                    clause::D15, clause::R46, clause::D4, clause::R18) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const auto counter = static_cast<unsigned>(param().number());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), counter, *event, kWishedPeriod);
  const uint64_t iterations = iterations_for_exactly(3, period);
  const uint64_t events = need(count(machine(), counter, *event, code, iterations));
  SessionPlan plan = one_counter(counter, *event, period, 8);
  plan.maximum_records = 2;
  plan.index_bytes = 2 * record_bytes(uarch());

  Sampled sampled = need(sample(machine(), plan, code, iterations));

  const uint64_t value = sampled.run.counters[0];
  const bool status_stays = (sampled.run.global_status & bit(counter)) != 0;
  evidence("reloaded", value != events - period);
  evidence("status-stays", status_stays);
  VERIFY_EQ(sampled.session.index(), sampled.session.maximum());
  VERIFY_EQ(written(whole_buffer(sampled.session)), 0u);
  if (uarch().full_buffer_sets_ovf) {  // the row follows 18.9.1
    VERIFY_EQ(value, events - period) << "a skipped event reloads nothing";
    VERIFY_TRUE(status_stays) << "only a stored record clears the overflow status";
  }
}

// The texts disagree on whether a full buffer is reported (R45): the outcome is.
SKIDPROOF_TEST(PebsBuffer, ReportsHowAFullBufferIsSignalled, clause::R45, clause::D4, clause::D11,
               clause::D12, clause::D13) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), 0, *event, kWishedPeriod);
  const SessionPlan plan = one_counter(0, *event, period, 4);

  Sampled filled = need(sample(machine(), plan, code, iterations_for_exactly(4, period)));
  evidence("ovf-buffer-when-filled", (filled.run.global_status & kOvfBuffer) != 0);
  VERIFY_EQ(filled.session.index(), filled.session.maximum());
  need(filled.session.close());

  Sampled beyond = need(sample(machine(), plan, code, iterations_for_exactly(6, period)));
  evidence("ovf-buffer-when-skipping", (beyond.run.global_status & kOvfBuffer) != 0);
  VERIFY_EQ(beyond.session.index(), beyond.session.maximum());
  VERIFY_EQ(beyond.records().size(), 4u);
}

// The buffer is full and has skipped an event when fixed counter 0 interrupts, which nothing of PEBS did: the threshold
// lies beyond. The handler sets the index back and enables nothing.
SKIDPROOF_TEST(PebsBuffer, GoesOnWhenTheHandlerSetsTheIndexBack, clause::R49, clause::D11,
               clause::D5, clause::R35) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  // Where an overflow arms nothing (R62), a skipped one leaves nothing behind to go on with.
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), counter, *event, kWishedPeriod);
  SessionPlan plan = one_counter(counter, *event, period, 2);
  const uint64_t full_and_skipping = 3 * (period + 1) + period / 2;  // iterations
  plan.fixed = {
      {.counter = 0,
       .interrupt = true,
       .initial = minus_period(code.total(full_and_skipping).instructions, uarch().fixed_width)}};
  plan.pmi.rewind_index = true;

  Sampled sampled = need(sample(machine(), plan, code, 4 * (period + 1)));

  evidence("records-after", sampled.records().size());
  VERIFY_EQ(sampled.run.log.pmis.size(), 1u);
  for (const Pmi& pmi : sampled.run.log.pmis) {
    VERIFY_EQ(pmi.pebs_index, sampled.session.maximum()) << "the buffer was full";
  }
  VERIFY_GE(sampled.records().size(), 1u) << "recorded after the handler";
  VERIFY_LE(sampled.session.index(), sampled.session.maximum());
}

SKIDPROOF_TEST(PebsBuffer, GoesOnWhenSoftwareSetsTheIndexBackBetweenRuns, clause::R49) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const unsigned counter = arming_counter(uarch());
  const arch::Event* event = sparse_event(uarch(), "taken", counter);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), counter, *event, kWishedPeriod);
  Sampled sampled = need(sample(machine(), one_counter(counter, *event, period, 2), code,
                                iterations_for_exactly(3, period)));
  VERIFY_EQ(sampled.session.index(), sampled.session.maximum());

  sampled.session.rewind();
  need(sampled.session.resume(code, period / 2));

  evidence("records-after", sampled.records().size());
  VERIFY_GE(sampled.records().size(), 1u);
}

// An index below the base is documented for Goldmont alone (R47): what becomes of the event is
// reported. The maximum holds in any case, and so does the record size.
SKIDPROOF_TEST(PebsBuffer, ReportsWhatAnIndexBelowTheBaseDoes, clause::R47, clause::R48,
               clause::D14) {
  SKIDPROOF_REQUIRE(uarch().pebs_in_ds_area(), SkipCategory::kNotOnThisMicroarch, kNoDsPebs);
  const arch::Event* event = sparse_event(uarch(), "taken");
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", sparse_parameters(uarch(), "taken"));
  const uint64_t period = usable_period(uarch(), 0, *event, kWishedPeriod);
  Session session = need(Session::open(machine(), one_counter(0, *event, period, 8)));
  const uint64_t start = session.index();
  const uint64_t size = record_bytes(uarch());
  need(session.run(code, iterations_for_exactly(3, period)));
  VERIFY_EQ(session.index() - start, 3 * size) << "with the index at the base";
  session.rewind();
  session.set_base(start + 4 * size);

  const SessionRun run = need(session.run(code, iterations_for_exactly(3, period)));

  session.set_base(start);
  const uint64_t moved = session.index() - start;
  evidence("records", moved / size);
  evidence("ovf-buffer", (run.global_status & kOvfBuffer) != 0);
  VERIFY_EQ(moved % size, 0u);
  VERIFY_LE(moved / size, 3u);
  VERIFY_EQ(written_past_maximum(session), 0u);
}

}  // namespace skidproof::check::pebs_buffer
