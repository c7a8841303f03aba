// PEBS on NetBurst: which counter, what switches it on, what is tagged, and what a record holds.
#include <cstdint>

#include "harness/check/check.h"
#include "suites/netburst_sampling.h"
#include "suites/sparse_state.h"

namespace skidproof::check::netburst_pebs {
namespace {

using namespace suites;
using arch::bit;
using arch::Gpr;

// The last value that the accumulator can have: what is checked is the state around the event.
uint64_t chain(Mode mode, uint64_t iterations, uint64_t count) {
  return mode == Mode::kLong ? sparse_chain<uint64_t>(iterations, count, kNetBurstSpacing)
                             : sparse_chain<uint32_t>(iterations, count, kNetBurstSpacing);
}

}  // namespace

SKIDPROOF_SUITE(NetBurstPebs, kOneRecord);

// Event N+1 behind each overflow at N, the reload with it: both counted to the last event.
SKIDPROOF_NETBURST_TEST_OVER(NetBurstPebs, RecordsTheEventBehindTheOverflow,
                             over::product(over::words({"load", "store"}), over::words(kModeWords)),
                             clause::N15, clause::N14, clause::N10) {
  const std::string& word = param().word(0);
  const Mode mode = mode_of(param().word(1));
  const Program& code = program("sparse_event", netburst_kernel(word), mode);
  SessionPlan plan = one_counter(
      netburst_counter(uarch(), word == "load" ? "memory_loads" : "memory_stores", kNetBurstPeriod),
      16);
  plan.mode = mode;
  const uint64_t iterations = iterations_for_exactly(5, kNetBurstPeriod);

  Sampled sampled = need(sample(machine(), plan, code, iterations));

  const Exact expected =
      exact(uarch(), sparse_events(word, code, iterations), kNetBurstPeriod, kNetBurstPeriod);
  VERIFY_EQ(sampled.records().size(), expected.records);
  VERIFY_EQ(sampled.run.counters.at(0), expected.counter);
}

// Nominally the state at the beginning of the instruction, partly modified at times (R6): what the
// event's instruction does not write is exact, what it writes is reported. So is the IP, of which
// the sources say both (N11).
SKIDPROOF_NETBURST_TEST_OVER(NetBurstPebs, HoldsTheStateAroundTheEvent, over::words(kModeWords),
                             clause::R6, clause::N11, clause::N12) {
  const Mode mode = mode_of(param().word());
  const Program& code = program("sparse_event", netburst_kernel(), mode);
  const uint64_t iterations = iterations_for_exactly(8, kNetBurstPeriod);

  Sampled sampled = need(sample(machine(), netburst_loads(uarch(), mode, 16), code, iterations));

  uint64_t at_event = 0, behind = 0;
  VERIFY_EQ(sampled.records().size(), 8u);
  for (Record record : sampled.records()) {
    at_event += record.ip() == code.mark("event");
    behind += record.ip() == code.mark("after");
    VERIFY_EQ(record.gpr(Gpr::kRdx),
              mode == Mode::kLong ? kSparseFactor : kSparseFactor & 0xFFFFFFFF);
    VERIFY_EQ(record.gpr(Gpr::kRsi), code.data_address);
    const uint64_t count = record.gpr(Gpr::kRdi);
    VERIFY_GE(count, 1u);
    VERIFY_LE(count, iterations);
    if (count >= 1 && count <= iterations) {
      VERIFY_EQ(record.gpr(Gpr::kRax), chain(mode, iterations, count));
    }
    VERIFY_NE(record.gpr(Gpr::kRsp), 0u);
    VERIFY_EQ(record.flags() & bit(1), bit(1)) << "always 1 in EFLAGS";
  }
  evidence("IP of the event", at_event);
  evidence("IP behind it", behind);
  VERIFY_EQ(at_event + behind, sampled.records().size());
}

SKIDPROOF_NETBURST_TEST(NetBurstPebs, WritesRecordsForIqCounter4Alone, clause::N7, clause::R31) {
  const Program& code = program("sparse_event", netburst_kernel());
  const uint64_t iterations = iterations_for_exactly(4, kNetBurstPeriod);
  {
    Sampled control =
        need(sample(machine(), netburst_loads(uarch(), Mode::kLong, 16), code, iterations));
    VERIFY_EQ(control.records().size(), 4u);
  }
  for (unsigned counter : {1u, 2u, 3u, 4u, 5u}) {
    SessionPlan plan =
        one_counter(netburst_counter(uarch(), "memory_loads", kNetBurstPeriod, counter), 16);
    Sampled sampled = need(sample(machine(), plan, code, iterations));
    VERIFY_EQ(sampled.records().size(), 0u) << "counter " << nb::kSessionCounters[counter];
    VERIFY_EQ(sampled.run.global_status & bit(counter), bit(counter)) << "it counts";
  }
}

// Bit 25 by Table 35-41. With bit 24 alone, which the text calls the enable, the outcome is reported.
SKIDPROOF_NETBURST_TEST(NetBurstPebs, NeedsEnablePebs, clause::N8) {
  const Program& code = program("sparse_event", netburst_kernel());
  const uint64_t iterations = iterations_for_exactly(4, kNetBurstPeriod);
  SessionPlan plan = netburst_loads(uarch(), Mode::kLong, 16);
  auto records = [&](uint64_t enable) -> uint64_t {
    plan.pebs_enable = enable;
    return need(sample(machine(), plan, code, iterations)).records().size();
  };
  evidence("records with bit 24 alone", records(nb::pebs_enable::kUopTag));
  VERIFY_EQ(records(nb::pebs_enable::kEnable | nb::pebs_enable::kUopTag), 4u);
  VERIFY_EQ(records(0), 0u) << "neither bit";
}

SKIDPROOF_NETBURST_TEST(NetBurstPebs, CountsTaggedUopsOfAnotherEscrOnly, clause::N10) {
  const Program& code = program("sparse_event", netburst_kernel());
  const uint32_t upstream = nb::MSR_RAT_ESCR0;
  SessionPlan plan = one_counter(netburst_counter(uarch(), "memory_loads", 0, 0, false), 1);
  auto session = need(Session::open(machine(), plan));
  const uint64_t with = need(session.run(code, 100)).counters.at(0);
  VERIFY_GE(with, code.total(100).loads);
  need(machine().wrmsr(upstream, 0));
  const uint64_t without = need(session.run(code, 100)).counters.at(0);
  VERIFY_EQ(without, 0u) << "nothing is tagged";
}

// Split accesses: as many as the kernel makes, sampled and counted.
SKIDPROOF_NETBURST_TEST_OVER(NetBurstPebs, SamplesReplayEventByItsTags,
                             over::words({"load", "store"}), clause::N9, clause::N15) {
  const std::string& kind = param().word();
  const Program& code = program("split_access", "unroll=1,kind=" + kind);
  const std::string event = "split_" + kind + "_retired";
  constexpr uint64_t iterations = 2000, period = 100;
  // Events pass by in the cycles in which PEBS arms itself (R15): how many cycles no text says.
  constexpr uint64_t kShadow = 64;
  SessionPlan plan = one_counter(netburst_counter(uarch(), event, 0, 0, false), 1);
  const uint64_t splits = need(sample(machine(), plan, code, iterations)).run.counters.at(0);
  evidence("splits", splits);
  VERIFY_EQ(splits, iterations) << "each access is split";

  plan = one_counter(netburst_counter(uarch(), event, period), 32);
  Sampled sampled = need(sample(machine(), plan, code, iterations));
  VERIFY_GE(sampled.records().size(), iterations / (period + 1 + kShadow));
  VERIFY_LE(sampled.records().size(), iterations / (period + 1));
}

SKIDPROOF_NETBURST_TEST(NetBurstPebs, TagsReplaysWithUopTagAndItsTableOnly, clause::N9) {
  const Program& code = program("split_access", "unroll=1,kind=load");
  const nb::Metric& metric = *uarch().event("split_load_retired")->metric;
  SessionPlan plan = one_counter(netburst_counter(uarch(), "split_load_retired", 0, 0, false), 1);
  auto counted = [&](uint64_t enable, uint64_t matrix) -> uint64_t {
    plan.pebs_enable = enable;
    auto session = need(Session::open(machine(), plan));
    need(machine().wrmsr(nb::MSR_PEBS_MATRIX_VERT, matrix));
    return need(session.run(code, 200)).counters.at(0);
  };
  const uint64_t tag = nb::pebs_enable::kUopTag;
  VERIFY_EQ(counted(metric.enable | tag, metric.matrix), 200u);
  VERIFY_EQ(counted(metric.enable, metric.matrix), 0u) << "without UOP_TAG";
  VERIFY_EQ(counted(tag, metric.matrix), 0u) << "without a metric";
  VERIFY_EQ(counted(metric.enable | tag, 0), 0u) << "without a table";
  VERIFY_EQ(counted(metric.enable | tag, 2), 0u) << "the table of stores";
}

// The core's caches are the machine's own: that a chase beyond the caches misses, and one inside
// does not, is asserted; how often is reported.
SKIDPROOF_NETBURST_TEST(NetBurstPebs, TellsLoadsThatMissTheCachesAndTheDtlb, clause::N9) {
  const Program& near = program("pointer_chase", "bytes=4K");
  const Program& far = program("pointer_chase", "bytes=8M,granularity=4K,stagger=1");
  for (const char* event : {"1st_level_load_miss_retired", "2nd_level_load_miss_retired",
                            "DTLB_load_miss_retired", "DTLB_all_miss_retired"}) {
    SessionPlan plan = one_counter(netburst_counter(uarch(), event, 0, 0, false), 1);
    const uint64_t few = need(sample(machine(), plan, near, 4000)).run.counters.at(0);
    const uint64_t many = need(sample(machine(), plan, far, 4000)).run.counters.at(0);
    evidence(event, many);
    VERIFY_LT(few, 400u) << event;
    VERIFY_GT(many, 2000u) << event;
  }
}

}  // namespace skidproof::check::netburst_pebs
