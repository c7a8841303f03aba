// NetBurst's DS area: both layouts, one 40-bit reset, the index, the maximum and the threshold.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "harness/check/check.h"
#include "suites/netburst_sampling.h"

namespace skidproof::check::netburst_ds {
namespace {

using namespace suites;

constexpr size_t kRoom = 8;

// A little-endian number in the DS area.
uint64_t number_at(std::span<const std::byte> bytes, size_t offset, size_t size) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + offset, size);
  return value;
}

Expected<Sampled> sample_loads(Machine& machine, const arch::Microarch& m, const Program& code,
                               Mode mode, uint64_t records, std::optional<size_t> threshold = {}) {
  SessionPlan plan = netburst_loads(m, mode, kRoom);
  plan.threshold_records = threshold;
  return sample(machine, plan, code, iterations_for_exactly(records, kNetBurstPeriod));
}

}  // namespace

SKIDPROOF_SUITE(NetBurstDs, kBuffer);

// The offsets and sizes of the figures, by number. [SDM Figures 17-5, 17-7, 17-8, 17-10]
SKIDPROOF_NETBURST_TEST_OVER(NetBurstDs, HasTheLayoutOfItsMode, over::words(kModeWords),
                             clause::N13, clause::N12, clause::D2) {
  const Mode mode = mode_of(param().word());
  const bool narrow = mode == Mode::kProtected32;
  SKIDPROOF_REQUIRE(!uarch().dtes64, SkipCategory::kNotOnThisMicroarch,
                    "DTES64: one layout in every mode");
  const Program& code = program("sparse_event", netburst_kernel(), mode);
  Sampled sampled = need(sample_loads(machine(), uarch(), code, mode, 3));

  const size_t field = narrow ? 4 : 8, base_at = narrow ? 0x10 : 0x20,
               index_at = narrow ? 0x14 : 0x28;
  const std::span<const std::byte> ds = sampled.session.ds_bytes();
  const uint64_t base = number_at(ds, base_at, field), index = number_at(ds, index_at, field);
  VERIFY_EQ(index - base, 3u * (narrow ? 0x28 : 0x90));
  VERIFY_EQ(sampled.records().size(), 3u);
  if (sampled.records().size() < 3) return;
  const std::span<const std::byte> first = sampled.records().front().bytes();
  VERIFY_EQ(number_at(first, narrow ? 0x18 : 0x30, field), code.data_address) << "(E)SI";
  VERIFY_FALSE(foreign(code, number_at(first, narrow ? 0x04 : 0x08, field))) << "linear IP";
  const auto behind = sampled.session.after_index();
  VERIFY_TRUE(
      std::all_of(behind.begin(), behind.end(), [](std::byte b) { return b == Session::kFill; }));
}

// A reset value that 32 bits cannot hold: behind the record the counter goes on from there.
SKIDPROOF_NETBURST_TEST_OVER(NetBurstDs, LoadsFortyBitsOfTheResetValue, over::words(kModeWords),
                             clause::N14) {
  const Mode mode = mode_of(param().word());
  const Program& code = program("sparse_event", netburst_kernel(), mode);
  constexpr uint64_t kReset = 0x5A12345678;
  SessionPlan plan = netburst_loads(uarch(), mode, kRoom);
  plan.counters[0].reset = kReset;
  const uint64_t iterations = 200;
  Sampled sampled = need(sample(machine(), plan, code, iterations));
  const uint64_t events = sparse_events("load", code, iterations);
  VERIFY_EQ(sampled.records().size(), 1u);
  VERIFY_EQ(sampled.run.counters.at(0), kReset + events - (kNetBurstPeriod + 1));
}

SKIDPROOF_NETBURST_TEST_OVER(NetBurstDs, InterruptsWithTheThresholdRecordAndNotBefore,
                             over::words(kModeWords), clause::R44, clause::D5, clause::D6) {
  const Mode mode = mode_of(param().word());
  const Program& code = program("sparse_event", netburst_kernel(), mode);
  for (size_t threshold : {size_t{1}, size_t{3}, kRoom}) {
    {
      Sampled before = need(sample_loads(machine(), uarch(), code, mode, threshold - 1, threshold));
      VERIFY_EQ(before.records().size(), threshold - 1);
      VERIFY_EQ(before.run.log.pmis.size(), 0u) << "one record short of " << threshold;
    }
    Sampled sampled = need(sample_loads(machine(), uarch(), code, mode, threshold, threshold));
    VERIFY_EQ(sampled.records().size(), threshold);
    VERIFY_EQ(sampled.run.log.pmis.size(), 1u) << threshold;
    for (const Pmi& pmi : sampled.run.log.pmis) {
      VERIFY_EQ(pmi.pebs_index, sampled.session.threshold());
    }
  }
}

SKIDPROOF_NETBURST_TEST_OVER(NetBurstDs, WritesNothingPastTheMaximumAndDoesNotWrap,
                             over::words(kModeWords), clause::R48, clause::R47a, clause::D4) {
  const Mode mode = mode_of(param().word());
  const Program& code = program("sparse_event", netburst_kernel(), mode);
  Sampled sampled = need(sample_loads(machine(), uarch(), code, mode, kRoom + 1));
  VERIFY_EQ(sampled.records().size(), kRoom);
  VERIFY_EQ(sampled.session.index(), sampled.session.maximum());
  VERIFY_EQ(sampled.run.log.pmis.size(), 0u) << "the threshold lies past the maximum";
  const auto behind = sampled.session.after_index();
  VERIFY_TRUE(
      std::all_of(behind.begin(), behind.end(), [](std::byte b) { return b == Session::kFill; }));
}

SKIDPROOF_NETBURST_TEST(NetBurstDs, GoesOnWhenTheHandlerRewindsTheIndex, clause::R49, clause::D7) {
  const Mode mode = Mode::kProtected32;
  const Program& code = program("sparse_event", netburst_kernel(), mode);
  SessionPlan plan = netburst_loads(uarch(), mode, kRoom);
  plan.threshold_records = 1;
  plan.pmi.rewind_index = true;
  Sampled sampled =
      need(sample(machine(), plan, code, iterations_for_exactly(20, kNetBurstPeriod)));
  VERIFY_EQ(sampled.run.log.pmis.size(), 20u);
  VERIFY_EQ(sampled.session.index(), sampled.session.base());
}

}  // namespace skidproof::check::netburst_ds
