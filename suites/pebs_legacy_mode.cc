// Sampling outside IA-32e mode: 32-bit code is sampled like 64-bit code, upper halves and registers
// that it does not have are recorded as zero.
#include <cstdint>
#include <cstring>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check {
namespace {

using namespace suites;
using arch::bit;
using arch::Gpr;
using arch::Signal;

constexpr Mode k32 = Mode::kProtected32;
constexpr uint64_t kUpperHalf = 0xFFFFFFFF00000000;
constexpr unsigned kSpacing = 64;
constexpr char kNo32[] = "this machine runs no 32-bit code";
constexpr char kNoEvent[] = "no precise load, store or branch event on PMC0";

// The event of the sparse_event kernel that can be sampled here: a word of its parameter.
const char* sampled_word(const arch::Microarch& m) {
  for (const char* word : {"load", "store", "taken"}) {
    if (precise_event(m, sparse_signal(word)) != nullptr) return word;
  }
  return nullptr;
}

SessionPlan plan_32(const arch::Event& event, uint64_t period, size_t records) {
  SessionPlan plan = one_counter(0, event, period, records);
  plan.mode = k32;
  return plan;
}

// What the kernel's chain has made of EAX when the iteration with this count in EDI has done the
// half before the event. [kernels/sparse_event.cc]
uint32_t chain_at_event(uint32_t iterations, uint32_t count) {
  uint32_t eax = 3;
  const uint32_t edx = 0x7F4A7C15;
  auto chain = [&](unsigned steps) {
    for (unsigned i = 0; i < steps; ++i) eax = i % 2 == 0 ? eax * edx : eax + eax;
  };
  for (uint32_t i = iterations; i > count; --i) {
    chain(kSpacing / 2);
    chain(kSpacing - kSpacing / 2);
  }
  chain(kSpacing / 2);
  return eax;
}

}  // namespace

// The record's 32-bit registers are the instruction's, exactly; what is above them is zero.
SKIDPROOF_TEST(PebsLegacyMode, RecordsRegistersWithUpperHalvesZero, clause::R59, clause::R5) {
  SKIDPROOF_REQUIRE(machine().identity().runs(k32), SkipCategory::kMachineLimit, kNo32);
  const char* word = sampled_word(uarch());
  SKIDPROOF_REQUIRE(word != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const arch::Event& event = *precise_event(uarch(), sparse_signal(word));
  const Program& code = program("sparse_event", sparse_parameters(word, kSpacing), k32);
  const uint64_t period = usable_period(uarch(), 40);
  const uint64_t iterations = iterations_for_exactly(6, period);

  Sampled sampled = need(sample(machine(), plan_32(event, period, 16), code, iterations));

  VERIFY_EQ(sampled.records().size(), 6u);
  uint64_t at_event = 0;
  for (Record record : sampled.records()) {
    VERIFY_FALSE(foreign(code, record.ip())) << results::hex(record.ip());
    VERIFY_EQ(record.ip() & kUpperHalf, 0u);
    for (unsigned reg = 0; reg < 8; ++reg) {
      VERIFY_EQ(record.gpr(static_cast<Gpr>(reg)) & kUpperHalf, 0u) << "register number " << reg;
    }
    if (record.ip() != code.mark("after")) continue;
    ++at_event;
    const uint64_t count = record.gpr(Gpr::kRdi);
    VERIFY_EQ(record.gpr(Gpr::kRdx), 0x7F4A7C15u);
    VERIFY_EQ(record.gpr(Gpr::kRsi), code.data_address);
    VERIFY_LE(count, iterations);
    if (word[0] == 't' || count == 0 || count > iterations) continue;
    VERIFY_EQ(record.gpr(Gpr::kRax),
              chain_at_event(static_cast<uint32_t>(iterations), static_cast<uint32_t>(count)));
  }
  evidence("event", word);
  VERIFY_EQ(at_event, 6u) << "the IP is that of the instruction behind the event";
}

SKIDPROOF_TEST(PebsLegacyMode, RecordsFlagsWithTheUpperHalfZero, clause::R59) {
  SKIDPROOF_REQUIRE(machine().identity().runs(k32), SkipCategory::kMachineLimit, kNo32);
  const char* word = sampled_word(uarch());
  SKIDPROOF_REQUIRE(word != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const arch::Event& event = *precise_event(uarch(), sparse_signal(word));
  const Program& code = program("sparse_event", sparse_parameters(word, kSpacing), k32);
  const uint64_t period = usable_period(uarch(), 40);

  Sampled sampled =
      need(sample(machine(), plan_32(event, period, 16), code, iterations_for_exactly(4, period)));

  VERIFY_EQ(sampled.records().size(), 4u);
  for (Record record : sampled.records()) {
    VERIFY_EQ(record.flags() & kUpperHalf, 0u);
    VERIFY_EQ(record.flags() & bit(1), bit(1)) << "always 1 in EFLAGS";
  }
}

// 64-bit code has used R8 to R11 before.
SKIDPROOF_TEST(PebsLegacyMode, RecordsRegistersThatDoNotExistAsZero, clause::R59) {
  SKIDPROOF_REQUIRE(machine().identity().runs(k32), SkipCategory::kMachineLimit, kNo32);
  SKIDPROOF_REQUIRE(uarch().record->gpr[static_cast<size_t>(Gpr::kR8)] != arch::kAbsent,
                    SkipCategory::kNotOnThisMicroarch, "the record has no R8 to R15");
  const char* word = sampled_word(uarch());
  SKIDPROOF_REQUIRE(word != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const arch::Event& event = *precise_event(uarch(), sparse_signal(word));
  need(machine().run(program("straight_line"), RunPlan{}));
  const Program& code = program("sparse_event", sparse_parameters(word, kSpacing), k32);
  const uint64_t period = usable_period(uarch(), 40);

  Sampled sampled =
      need(sample(machine(), plan_32(event, period, 16), code, iterations_for_exactly(4, period)));

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
  const char* word = sampled_word(uarch());
  SKIDPROOF_REQUIRE(word != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const arch::Event& event = *precise_event(uarch(), sparse_signal(word));
  const Program& code = program("sparse_event", sparse_parameters(word, kSpacing), k32);
  const uint64_t period = usable_period(uarch(), 40);
  const uint64_t iterations = iterations_for_exactly(5, period);
  SessionPlan plan = plan_32(event, period, 16);
  plan.threshold_records = 3;

  Sampled sampled = need(sample(machine(), plan, code, iterations));

  const Exact expected = exact(uarch(), sparse_events(word, code, iterations), period, period);
  VERIFY_EQ(sampled.records().size(), expected.records);
  VERIFY_EQ(sampled.session.index() - sampled.session.base(),
            expected.records * uarch().record->bytes);
  VERIFY_EQ(sampled.run.counters.at(0), expected.counter);
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
  const auto counter = static_cast<unsigned>(__builtin_ctz(event->pebs_counters));
  const Program& code = program("pointer_chase", "bytes=1M", k32);
  SessionPlan plan = one_counter(counter, *event, usable_period(uarch(), 20), 64);
  plan.mode = k32;

  Sampled sampled = need(sample(machine(), plan, code, 20'000));

  VERIFY_GT(sampled.records().size(), 10u);
  for (Record record : sampled.records()) {
    VERIFY_GE(record.data_address(), code.data_address);
    VERIFY_LT(record.data_address(), code.data_address + code.data_bytes);
  }
}

// 64-bit code that follows 32-bit code has its whole registers back.
SKIDPROOF_TEST(PebsLegacyMode, Records64BitRegistersAgainAfterwards, clause::R59) {
  SKIDPROOF_REQUIRE(machine().identity().runs(k32), SkipCategory::kMachineLimit, kNo32);
  const char* word = sampled_word(uarch());
  SKIDPROOF_REQUIRE(word != nullptr, SkipCategory::kNotOnThisMicroarch, kNoEvent);
  const arch::Event& event = *precise_event(uarch(), sparse_signal(word));
  RunPlan plan;
  plan.mode = k32;
  need(machine().run(program("sparse_event", sparse_parameters(word, kSpacing), k32), plan));
  const Program& code = program("sparse_event", sparse_parameters(word, kSpacing));
  const uint64_t period = usable_period(uarch(), 40);

  Sampled sampled = need(sample(machine(), one_counter(0, event, period, 16), code,
                                iterations_for_exactly(3, period)));

  VERIFY_EQ(sampled.records().size(), 3u);
  for (Record record : sampled.records()) {
    VERIFY_EQ(record.ip(), code.mark("after"));
    VERIFY_EQ(record.gpr(Gpr::kRdx), 0x9E3779B97F4A7C15u);
    VERIFY_EQ(record.gpr(Gpr::kRsi), code.data_address);
  }
}

}  // namespace skidproof::check
