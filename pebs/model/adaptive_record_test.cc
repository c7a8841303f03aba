// The bytes of adaptive records against the table that reads them back.
#include "pebs/model/adaptive_record.h"

#include <gtest/gtest.h>

#include <cstring>

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

  Input() {
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
    return adaptive_record(m, how, data,
                           {.config = config,
                            .adaptive = adaptive,
                            .registers = &registers,
                            .vectors = &vectors,
                            .branches = &branches});
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
