// The bytes of adaptive records against the table that reads them back.
#include "pebs/model/adaptive_record.h"

#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <vector>

namespace skidproof::model {
namespace {

using namespace arch;

const Microarch& row(std::string_view name) { return **find_microarch(name); }

uint64_t word(const std::vector<std::byte>& bytes, size_t offset) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

struct Input {
  Registers registers;
  VectorRegisters vectors{};
  BranchRing branches;
  RecordData data;
  CounterSnapshot counters;
  Version6Behaviour how6;

  Input() {
    for (unsigned n = 0; n < counters.gp.size(); ++n) counters.gp[n] = 0x9000 + n;
    for (unsigned m = 0; m < counters.fixed.size(); ++m) counters.fixed[m] = 0xA000 + m;
    counters.metrics = 0xB000;
    for (unsigned i = 0; i < kGprs; ++i) {
      registers.gpr[i] = 0x1000 + i;
      data.gpr_source[i] = static_cast<uint8_t>(i);
    }
    for (unsigned i = 0; i < vectors.size(); ++i) vectors[i] = {0x2000 + i, 0x3000 + i, 1, 2};
    for (uint64_t i = 0; i < 40; ++i) branches.add(0x4000 + i, 0x5000 + i, i % 2 == 1, 10 * i);
    data.ip = 0x6000;
    data.eventing_ip = 0x6001;
    data.applicable_counters = 4;
    data.tsc = 77;
    data.flags = 0x246;
    data.data_address = 0x7000;
    data.data_source = 3;
    data.latency = 0x1234;
    data.cache_latency = 0x12;
  }
  std::vector<std::byte> record(const Microarch& m, uint64_t config, bool adaptive = true,
                                const AdaptiveBehaviour& how = {}) const {
    Behaviour behaviour;
    behaviour.adaptive = how;
    behaviour.version6 = how6;
    return adaptive_record(m, behaviour, data,
                           {.config = config,
                            .adaptive = adaptive,
                            .registers = &registers,
                            .vectors = &vectors,
                            .branches = &branches,
                            .counters = m.pebs_counters_group ? &counters : nullptr});
  }
};

TEST(AdaptiveRecordTest, EveryChoiceOfGroupsHasTheSizeThatItStates) {
  for (uint64_t groups = 0; groups <= adaptive::kGroups; ++groups) {
    const uint64_t config = groups | uint64_t{31} << adaptive::kBranchEntriesShift;
    auto bytes = Input().record(row("ice-lake"), config);
    EXPECT_EQ(bytes.size(), adaptive::record_bytes(config));
    EXPECT_EQ(adaptive::size_field(word(bytes, 0)), bytes.size());
    const RecordLayout* layout = layout_of(kRecordFormat4, word(bytes, 0));
    ASSERT_EQ(layout, &kRecordFormat4.variants[groups]);
    EXPECT_EQ(word(bytes, 8), 0x6001u);
    EXPECT_EQ(word(bytes, 0x10), 4u);
    EXPECT_EQ(word(bytes, 0x18), 77u);
    if (groups & adaptive::kMemory) {
      EXPECT_EQ(word(bytes, static_cast<size_t>(layout->data_address)), 0x7000u);
      EXPECT_EQ(word(bytes, static_cast<size_t>(layout->latency)), 0x1234u);
    }
    if (groups & adaptive::kGprs) {
      EXPECT_EQ(word(bytes, static_cast<size_t>(layout->ip)), 0x6000u);
      EXPECT_EQ(word(bytes, static_cast<size_t>(layout->flags)), 0x246u);
      for (unsigned i = 0; i < kGprs; ++i) {
        EXPECT_EQ(word(bytes, static_cast<size_t>(layout->gpr[i])), 0x1000u + i);
      }
    }
    if (groups & adaptive::kXmm) {
      EXPECT_EQ(word(bytes, static_cast<size_t>(layout->xmm) + 16 * 5), 0x2005u);
      EXPECT_EQ(word(bytes, static_cast<size_t>(layout->xmm) + 16 * 5 + 8), 0x3005u);
    }
    if (groups & adaptive::kBranches) {
      const auto newest = static_cast<size_t>(layout->lbr);
      EXPECT_EQ(word(bytes, newest), 0x4000u + 39);
      EXPECT_EQ(word(bytes, newest + 8), 0x5000u + 39);
      EXPECT_EQ(word(bytes, newest + 16), branch_info::kMispredicted | 10);
      EXPECT_EQ(word(bytes, newest + 24), 0x4000u + 38);
    }
  }
}

TEST(AdaptiveRecordTest, WithoutTheAdaptiveBitItIsTheBasicGroup) {
  auto bytes = Input().record(row("sapphire-rapids"), 0xF, false);
  EXPECT_EQ(bytes.size(), size_t{adaptive::kBasicBytes});
  EXPECT_EQ(word(bytes, 0), uint64_t{adaptive::kBasicBytes} << adaptive::kSizeShift);
}

TEST(AdaptiveRecordTest, MoreBranchesThanThereAreAreZero) {
  Input input;
  input.branches.clear();
  input.branches.add(1, 2, false, 100);
  auto bytes = input.record(row("ice-lake"),
                            adaptive::kBranches | uint64_t{2} << adaptive::kBranchEntriesShift);
  EXPECT_EQ(word(bytes, 0x20), 1u);
  EXPECT_EQ(word(bytes, 0x38), 0u);
  EXPECT_EQ(word(bytes, 0x50), 0u);
}

// One entry at least remains, and the header says how many.
TEST(AdaptiveRecordTest, EntriesMayBeMissing) {
  for (const unsigned missing : {0u, 1u, 3u, 40u}) {
    for (const unsigned selected : {1u, 2u, 32u}) {
      const uint64_t config = adaptive::kBranches | uint64_t{selected - 1}
                                                        << adaptive::kBranchEntriesShift;
      AdaptiveBehaviour how;
      how.branches_missing = static_cast<uint8_t>(missing);
      const auto bytes = Input().record(row("ice-lake"), config, true, how);
      const unsigned entries = missing < selected ? selected - missing : 1;
      EXPECT_EQ(adaptive::branch_entries(word(bytes, 0)), entries) << missing << " of " << selected;
      EXPECT_EQ(bytes.size(), adaptive::kBasicBytes + entries * adaptive::kBranchEntryBytes)
          << missing << " of " << selected;
    }
  }
}

// SDM 089 Table 21-103: the vectors, the counters from the lowest up, the base of the metrics, the metrics.
TEST(AdaptiveRecordTest, CountersStandBehindAllOtherGroups) {
  const uint64_t config = adaptive::kSnapshot | adaptive::kMemory | adaptive::kBranches |
                          uint64_t{0x205} << adaptive::kIncludeShift |
                          uint64_t{0x0A} << adaptive::kIncludeFixedShift;
  const auto bytes = Input().record(row("lunar-lake-p"), config);
  EXPECT_EQ(bytes.size(), adaptive::configured_bytes(config));
  EXPECT_EQ(adaptive::size_field(word(bytes, 0)), bytes.size());
  EXPECT_EQ(word(bytes, 0) & 0x3F, config & 0x3F);
  const size_t at = 0x40 + 0x18;
  const uint64_t expected[] = {
      uint64_t{0x0A} << 32 | 0x205, 3, 0x9000, 0x9002, 0x9009, 0xA001, 0xA003, 0xA003, 0xB000};
  for (size_t i = 0; i < std::size(expected); ++i) {
    EXPECT_EQ(word(bytes, at + 8 * i), expected[i]) << i;
  }
  EXPECT_EQ(bytes.size(), at + sizeof expected);
  EXPECT_EQ(Input().record(row("lunar-lake-p"), config, false).size(),
            size_t{adaptive::kBasicBytes});
}

// Each decision about the group changes the bytes, as its name says.
TEST(AdaptiveRecordTest, EachDecisionAboutCountersShows) {
  const uint64_t config = adaptive::kSnapshot | adaptive::kBranches |
                          uint64_t{0x3} << adaptive::kIncludeShift |
                          uint64_t{0x9} << adaptive::kIncludeFixedShift;
  const auto words = [&](void (*change)(Version6Behaviour&), uint64_t of,
                         bool adaptive_bit = true) {
    Input input;
    change(input.how6);
    const auto bytes = input.record(row("lunar-lake-p"), of, adaptive_bit);
    std::vector<uint64_t> all;
    for (size_t at = 0x20; at < bytes.size(); at += 8) all.push_back(word(bytes, at));
    return all;
  };
  using How = Version6Behaviour;
  const std::vector<uint64_t> plain = words([](How&) {}, config);
  ASSERT_EQ(plain.size(), 3u + 2 + 2 + 2 + 2);
  const auto tail = [&](void (*change)(How&)) {
    const auto all = words(change, config);
    return std::vector<uint64_t>(all.begin() + 3, all.end());
  };
  using Words = std::vector<uint64_t>;
  constexpr uint64_t kVectors = uint64_t{9} << 32 | 3;
  EXPECT_EQ(tail([](How&) {}),
            (Words{kVectors, 3, 0x9000, 0x9001, 0xA000, 0xA003, 0xA003, 0xB000}));
  EXPECT_EQ(tail([](How& h) { h.snapshot_fixed_first = true; }),
            (Words{kVectors, 3, 0xA000, 0xA003, 0x9000, 0x9001, 0xA003, 0xB000}));
  EXPECT_EQ(tail([](How& h) { h.snapshot_vectors_swapped = true; })[0], uint64_t{3} << 32 | 9);
  EXPECT_EQ(tail([](How& h) { h.snapshot_descending = true; }),
            (Words{kVectors, 3, 0x9001, 0x9000, 0xA003, 0xA000, 0xA003, 0xB000}));
  EXPECT_EQ(tail([](How& h) { h.metrics_before_base = true; }),
            (Words{kVectors, 3, 0x9000, 0x9001, 0xA000, 0xA003, 0xB000, 0xA003}));
  EXPECT_EQ(tail([](How& h) { h.metrics_one_vector_bit = true; })[1], 2u);
  EXPECT_EQ(tail([](How& h) { h.snapshot_every_counter = true; })[0], uint64_t{9} << 32 | 0xFF);
  EXPECT_EQ(words([](How& h) { h.snapshot_before_branches = true; }, config)[0], kVectors);
  EXPECT_EQ(words([](How& h) { h.snapshot_without_adaptive = true; }, config, false).size(), 8u);
  const uint64_t no_base = adaptive::kMetrics;
  EXPECT_EQ(words([](How&) {}, no_base), (Words{0, 0}));
  EXPECT_EQ(words([](How& h) { h.metrics_need_include = false; }, no_base),
            (Words{0, 3, 0xA003, 0xB000}));
  Input wide;
  wide.counters.gp[0] = 0x1'0000'0002;
  wide.how6.snapshot_truncates = true;
  const auto bytes = wide.record(row("lunar-lake-p"),
                                 adaptive::kCounters | uint64_t{1} << adaptive::kIncludeShift);
  EXPECT_EQ(word(bytes, 0x30), 2u);
}

TEST(AdaptiveRecordTest, RetireLatencySaturates) {
  auto field = [](const Microarch& m, uint64_t cycles) {
    Input input;
    input.data.retire_latency = cycles;
    return word(input.record(m, 0), 0) >> adaptive::kRetireLatencyShift & 0xFFFF;
  };
  // No row has it yet: Redwood Cove brings it.
  Microarch timed = row("alder-lake-p");
  timed.record = &kRecordFormat5;
  timed.ds = kDsThirtyTwoResets;
  timed.pebs_timing_info = true;
  EXPECT_EQ(field(timed, 0), 0u);
  EXPECT_EQ(field(timed, 300), 300u);
  EXPECT_EQ(field(timed, 0xFFFF), 0xFFFFu);
  EXPECT_EQ(field(timed, 0x10000), 0xFFFFu);
  EXPECT_EQ(field(timed, uint64_t{1} << 40), 0xFFFFu);
  EXPECT_EQ(field(row("alder-lake-p"), 300), 0u) << "not announced";
  EXPECT_EQ(field(row("ice-lake"), 300), 0u) << "not announced";
}

TEST(AdaptiveRecordTest, GoldenCoveSplitsTheLatency) {
  auto latency = [](std::string_view name) {
    return word(Input().record(row(name), adaptive::kMemory), 0x30);
  };
  EXPECT_EQ(latency("ice-lake"), 0x1234u);
  EXPECT_EQ(latency("sapphire-rapids"), 0x1234u | uint64_t{0x12} << 32);
}

}  // namespace
}  // namespace skidproof::model
