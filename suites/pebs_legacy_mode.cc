// Sampling outside IA-32e mode: 32-bit code is sampled like 64-bit code, upper halves and registers
// that it does not have are recorded as zero.
#include <cstdint>
#include <cstring>
#include <string>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/load_latency.h"
#include "suites/sampling.h"
#include "suites/sparse_state.h"

namespace skidproof::check::pebs_legacy_mode {
namespace {

using namespace suites;
using arch::bit;
using arch::Gpr;
using arch::Signal;

constexpr Mode k32 = Mode::kProtected32;
constexpr uint64_t kUpperHalf = 0xFFFFFFFF00000000;
constexpr unsigned kSpacing = 64;
constexpr uint64_t kFactor32 = kSparseFactor & 0xFFFFFFFF;
constexpr char kNo32[] = "this machine runs no 32-bit code";
constexpr char kNoEvent[] = "no precise load, store, branch or instruction event on PMC0";

// What is sampled of the sparse_event kernel: its one event an iteration where there is a precise event
// for it, else every instruction.
struct Sampling {
  const char* word = "load";  // of the kernel's parameter
  const arch::Event* event = nullptr;
  bool sparse = true;
  uint64_t period = 0;

  std::string parameters() const { return sparse_parameters(word, kSpacing); }
  // Events in an iteration, or in so many.
  uint64_t events(const Program& code, uint64_t iterations) const {
    return sparse ? sparse_events(word, code, iterations) : code.total(iterations).instructions;
  }
  // Iterations behind which so many records are written and the next is half a period away.
  uint64_t iterations(const Program& code, uint64_t records) const {
    const uint64_t each = sparse ? 1 : code.per_iteration.instructions;
    return iterations_for_exactly(records, period) / each;
  }
};

Sampling sampling(const arch::Microarch& m) {
  for (const char* word : {"taken", "load", "store"}) {
    if (const arch::Event* event = precise_event(m, sparse_signal(word))) {
      return {.word = word, .event = event, .period = usable_period(m, 0, *event, 40)};
    }
  }
  return {.event = precise_event(m, Signal::kInstructions), .sparse = false, .period = 3000};
}

SessionPlan plan_32(const arch::Event& event, uint64_t period, size_t records) {
  SessionPlan plan = one_counter(0, event, period, records);
  plan.mode = k32;
  return plan;
}

}  // namespace

SKIDPROOF_SUITE(PebsLegacyMode, kEdges);

// The record's 32-bit registers are the instruction's, exactly; what is above them is zero.
SKIDPROOF_TEST(PebsLegacyMode, RecordsRegistersWithUpperHalvesZero, clause::R59, clause::R5) {
  SKIDPROOF_REQUIRE(machine().identity().runs(k32), SkipCategory::kMachineLimit, kNo32);
  const Sampling what = sampling(uarch());
  SKIDPROOF_REQUIRE(what.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", what.parameters(), k32);
  const uint64_t iterations = what.iterations(code, 6);

  Sampled sampled =
      need(sample(machine(), plan_32(*what.event, what.period, 16), code, iterations));

  VERIFY_EQ(sampled.records().size(), 6u);
  uint64_t at_event = 0;
  for (Record record : sampled.records()) {
    VERIFY_FALSE(foreign(code, record.ip())) << results::hex(record.ip());
    VERIFY_EQ(record.ip() & kUpperHalf, 0u);
    for (unsigned reg = 0; reg < 8; ++reg) {
      VERIFY_EQ(record.gpr(static_cast<Gpr>(reg)) & kUpperHalf, 0u) << "register number " << reg;
    }
    const uint64_t count = record.gpr(Gpr::kRdi);
    VERIFY_EQ(record.gpr(Gpr::kRdx), kFactor32);
    VERIFY_EQ(record.gpr(Gpr::kRsi), code.data_address);
    VERIFY_LE(count, iterations);
    if (record.ip() != code.mark("after")) continue;
    ++at_event;
    if (what.word[0] == 't' || count == 0 || count > iterations) continue;
    VERIFY_EQ(record.gpr(Gpr::kRax), sparse_chain<uint32_t>(iterations, count, kSpacing));
  }
  evidence("event", what.event->name);
  if (what.sparse) {
    VERIFY_EQ(at_event, 6u) << "the IP is that of the instruction behind the event";
  }
}

SKIDPROOF_TEST(PebsLegacyMode, RecordsFlagsWithTheUpperHalfZero, clause::R59) {
  SKIDPROOF_REQUIRE(machine().identity().runs(k32), SkipCategory::kMachineLimit, kNo32);
  const Sampling what = sampling(uarch());
  SKIDPROOF_REQUIRE(what.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", what.parameters(), k32);

  Sampled sampled = need(
      sample(machine(), plan_32(*what.event, what.period, 16), code, what.iterations(code, 4)));

  VERIFY_EQ(sampled.records().size(), 4u);
  for (Record record : sampled.records()) {
    VERIFY_EQ(record.flags() & kUpperHalf, 0u);
    VERIFY_EQ(record.flags() & bit(1), bit(1)) << "always 1 in EFLAGS";
  }
}

// 64-bit code has used R8 to R11 before.
SKIDPROOF_TEST(PebsLegacyMode, RecordsRegistersThatDoNotExistAsZero, clause::R59) {
  SKIDPROOF_REQUIRE(machine().identity().runs(k32), SkipCategory::kMachineLimit, kNo32);
  SKIDPROOF_REQUIRE(uarch().dtes64, SkipCategory::kNotOnThisMicroarch,
                    "32-bit records have no R8 to R15");
  const Sampling what = sampling(uarch());
  SKIDPROOF_REQUIRE(what.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  need(machine().run(program("straight_line"), RunPlan{}));
  const Program& code = program("sparse_event", what.parameters(), k32);

  Sampled sampled = need(
      sample(machine(), plan_32(*what.event, what.period, 16), code, what.iterations(code, 4)));

  VERIFY_EQ(sampled.records().size(), 4u);
  for (Record record : sampled.records()) {
    for (unsigned reg = 8; reg < arch::kGprs; ++reg) {
      VERIFY_EQ(record.gpr(static_cast<Gpr>(reg)), 0u) << "register number " << reg;
    }
  }
}

// Arming, reload, index and threshold do not depend on the mode.
SKIDPROOF_TEST(PebsLegacyMode, SamplesAsExactlyAsIn64BitMode, clause::R59, clause::R2, clause::R19,
               clause::D2, clause::R44) {
  SKIDPROOF_REQUIRE(machine().identity().runs(k32), SkipCategory::kMachineLimit, kNo32);
  const Sampling what = sampling(uarch());
  SKIDPROOF_REQUIRE(what.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const Program& code = program("sparse_event", what.parameters(), k32);
  const uint64_t iterations = what.iterations(code, 5);
  SessionPlan plan = plan_32(*what.event, what.period, 16);
  plan.threshold_records = 3;

  Sampled sampled = need(sample(machine(), plan, code, iterations));

  const Exact expected = exact(uarch(), what.events(code, iterations), what.period, what.period);
  VERIFY_EQ(sampled.records().size(), expected.records);
  VERIFY_EQ(sampled.records().remainder_bytes(), 0u);
  if (!sampled.records().empty()) {
    VERIFY_EQ(sampled.session.index() - sampled.session.base(),
              expected.records * sampled.records().front().bytes().size());
  }
  if (what.sparse) {
    VERIFY_EQ(sampled.run.counters.at(0), expected.counter);
  }
  VERIFY_EQ(sampled.run.log.pmis.size(), 3u) << "with records 3, 4 and 5";
  for (const Pmi& pmi : sampled.run.log.pmis) {
    VERIFY_GE(pmi.pebs_index, sampled.session.threshold());
  }
}

SKIDPROOF_TEST(PebsLegacyMode, RecordsADataAddressOf32Bits, clause::R59) {
  SKIDPROOF_REQUIRE(machine().identity().runs(k32), SkipCategory::kMachineLimit, kNo32);
  const arch::Event* event = facility_event(uarch(), arch::EventKind::kLoadLatency);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "no load latency facility");
  const Program& code = program("pointer_chase", "bytes=1M", k32);
  SessionPlan plan = latency_plan(uarch(), latency_counter(uarch()), 64);
  plan.mode = k32;

  TaggedLoads sampled =
      need(sample_tagged(machine(), plan, code, calibrated(calibrate::Quantity::kLoadsATag)));

  SKIDPROOF_REQUIRE_TAGS(sampled);
  for (Record record : sampled.records()) {
    VERIFY_GE(record.data_address(), code.data_address);
    VERIFY_LT(record.data_address(), code.data_address + code.data_bytes);
  }
}

// 64-bit code that follows 32-bit code has its whole registers back.
SKIDPROOF_TEST(PebsLegacyMode, Records64BitRegistersAgainAfterwards, clause::R59) {
  SKIDPROOF_REQUIRE(machine().identity().runs(k32), SkipCategory::kMachineLimit, kNo32);
  const Sampling what = sampling(uarch());
  SKIDPROOF_REQUIRE(what.event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  RunPlan plan;
  plan.mode = k32;
  need(machine().run(program("sparse_event", what.parameters(), k32), plan));
  const Program& code = program("sparse_event", what.parameters());

  Sampled sampled = need(sample(machine(), one_counter(0, *what.event, what.period, 16), code,
                                what.iterations(code, 3)));

  VERIFY_EQ(sampled.records().size(), 3u);
  for (Record record : sampled.records()) {
    VERIFY_FALSE(foreign(code, record.ip())) << results::hex(record.ip());
    if (what.sparse) {
      VERIFY_EQ(record.ip(), code.mark("after"));
    }
    VERIFY_EQ(record.gpr(Gpr::kRdx), kSparseFactor);
    VERIFY_EQ(record.gpr(Gpr::kRsi), code.data_address);
  }
}

}  // namespace skidproof::check::pebs_legacy_mode
