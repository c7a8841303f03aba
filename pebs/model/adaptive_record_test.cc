// The bytes of adaptive records against the table that reads them back.
#include "pebs/model/adaptive_record.h"

#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <span>
#include <vector>

#include "pebs/arch/architectural_record.h"
#include "pebs/arch/msr.h"

namespace skidproof::model {
namespace {

using namespace arch;

const Microarch& named_row(std::string_view name) { return **find_microarch(name); }

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
    auto bytes = Input().record(named_row("ice-lake"), config);
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
  auto bytes = Input().record(named_row("sapphire-rapids"), 0xF, false);
  EXPECT_EQ(bytes.size(), size_t{adaptive::kBasicBytes});
  EXPECT_EQ(word(bytes, 0), uint64_t{adaptive::kBasicBytes} << adaptive::kSizeShift);
}

TEST(AdaptiveRecordTest, MoreBranchesThanThereAreAreZero) {
  Input input;
  input.branches.clear();
  input.branches.add(1, 2, false, 100);
  auto bytes = input.record(named_row("ice-lake"),
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
      const auto bytes = Input().record(named_row("ice-lake"), config, true, how);
      const unsigned entries = missing < selected ? selected - missing : 1;
      EXPECT_EQ(adaptive::branch_entries(word(bytes, 0)), entries) << missing << " of " << selected;
      EXPECT_EQ(bytes.size(), adaptive::kBasicBytes + entries * adaptive::kBranchEntryBytes)
          << missing << " of " << selected;
    }
  }
}

// Each decision about an entry changes it alone.
TEST(AdaptiveRecordTest, EntriesMaySayOtherwise) {
  const auto newest = [](const AdaptiveBehaviour& how) {
    const auto bytes = Input().record(named_row("ice-lake"), adaptive::kBranches, true, how);
    return std::vector{word(bytes, 0x20), word(bytes, 0x28), word(bytes, 0x30)};
  };
  using Entry = std::vector<uint64_t>;
  constexpr uint64_t kFrom = 0x4000 + 39, kTo = 0x5000 + 39;
  AdaptiveBehaviour how;
  EXPECT_EQ(newest(how), (Entry{kFrom, kTo, branch_info::kMispredicted | 10}));
  how.branches_swapped = true;
  EXPECT_EQ(newest(how), (Entry{kTo, kFrom, branch_info::kMispredicted | 10}));
  how = {};
  how.branch_mispredict = false;
  EXPECT_EQ(newest(how), (Entry{kFrom, kTo, 10}));
  how = {};
  how.branch_cycles = false;
  EXPECT_EQ(newest(how), (Entry{kFrom, kTo, branch_info::kMispredicted}));
}

// SDM 089 Table 21-103: the vectors, the counters from the lowest up, the base of the metrics, the metrics.
TEST(AdaptiveRecordTest, CountersStandBehindAllOtherGroups) {
  const uint64_t config = adaptive::kSnapshot | adaptive::kMemory | adaptive::kBranches |
                          uint64_t{0x205} << adaptive::kIncludeShift |
                          uint64_t{0x0A} << adaptive::kIncludeFixedShift;
  const auto bytes = Input().record(named_row("lunar-lake-p"), config);
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
  EXPECT_EQ(Input().record(named_row("lunar-lake-p"), config, false).size(),
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
    const auto bytes = input.record(named_row("lunar-lake-p"), of, adaptive_bit);
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
  const auto bytes = wide.record(named_row("lunar-lake-p"),
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
  Microarch timed = named_row("alder-lake-p");
  timed.record = &kRecordFormat5;
  timed.ds = kDsThirtyTwoResets;
  timed.pebs_timing_info = true;
  EXPECT_EQ(field(timed, 0), 0u);
  EXPECT_EQ(field(timed, 300), 300u);
  EXPECT_EQ(field(timed, 0xFFFF), 0xFFFFu);
  EXPECT_EQ(field(timed, 0x10000), 0xFFFFu);
  EXPECT_EQ(field(timed, uint64_t{1} << 40), 0xFFFFu);
  EXPECT_EQ(field(named_row("alder-lake-p"), 300), 0u) << "not announced";
  EXPECT_EQ(field(named_row("ice-lake"), 300), 0u) << "not announced";
}

TEST(AdaptiveRecordTest, GoldenCoveSplitsTheLatency) {
  auto latency = [](std::string_view name) {
    return word(Input().record(named_row(name), adaptive::kMemory), 0x30);
  };
  EXPECT_EQ(latency("ice-lake"), 0x1234u);
  EXPECT_EQ(latency("sapphire-rapids"), 0x1234u | uint64_t{0x12} << 32);
}

// The words of a record of architectural PEBS, with all that the model writes unless told otherwise.
class ArchitecturalRecordTest : public testing::Test {
 protected:
  using Words = std::vector<uint64_t>;
  using How = ArchPebsBehaviour;

  Words words(uint64_t groups) {
    const auto bytes = architectural_record(behaviour, input.data,
                                            {.groups = groups,
                                             .mode64 = mode64,
                                             .counters = counters,
                                             .now = &input.counters,
                                             .registers = &input.registers,
                                             .vectors = vectors ? &input.vectors : nullptr,
                                             .branches = &input.branches,
                                             .branch_control = 0x7F'0003});
    Words all;
    for (size_t at = 0; at < bytes.size(); at += 8) all.push_back(word(bytes, at));
    return all;
  }
  // What stands behind header and basic group.
  Words group(uint64_t groups) {
    Words all = words(groups);
    return Words(all.begin() + 8, all.end());
  }
  static uint64_t header(uint64_t groups, size_t bytes) {
    return architectural::kBasic | architectural::kMode64 | groups | bytes;
  }

  Input input;
  Behaviour behaviour;
  adaptive::SnapshotVectors counters;
  bool mode64 = true, vectors = true;
};

TEST_F(ArchitecturalRecordTest, HeaderAndBasicGroup) {
  input.data.retire_latency = 300;
  EXPECT_EQ(words(0),
            (Words{header(0, 0x40), 0, 0x6001, 4, 77, 300 | architectural::kRetireValid, 0, 0}));
  input.data.retire_latency = 0x10000;
  EXPECT_EQ(words(0)[5], 0xFFFF | architectural::kRetireValid) << "it saturates";
  mode64 = false;
  EXPECT_EQ(words(0)[0], architectural::kBasic | 0x40);
}

TEST_F(ArchitecturalRecordTest, AuxAndRegisters) {
  input.data.latency = 0xA'1234;
  input.data.cache_latency = 0xB'0012;
  input.data.tx_information = 0x99;
  EXPECT_EQ(words(cfg_c::kAux)[0], header(cfg_c::kAux, 0x80));
  EXPECT_EQ(group(cfg_c::kAux), (Words{0x7000, 0, 0, 0, 0, 3, uint64_t{0x12} << 32 | 0x1234, 0x99}))
      << "16 bits of each latency";
  EXPECT_EQ(words(cfg_c::kGprs)[0], header(cfg_c::kGprs, 0xE0));
  Words registers = {0x246, 0x6000};
  for (unsigned i = 0; i < kGprs; ++i) registers.push_back(0x1000 + i);
  registers.insert(registers.end(), 2, 0);  // the shadow stack pointer, and a reserved word
  EXPECT_EQ(group(cfg_c::kGprs), registers);
}

TEST_F(ArchitecturalRecordTest, HalvesOfVectorRegisters) {
  for (unsigned i = 0; i < input.vectors.size(); ++i) {
    input.vectors[i] = {0x2000 + i, 0x3000 + i, 0x4000 + i, 0x5000 + i};
  }
  const auto expected = [](uint64_t low, uint64_t high) {
    Words all = {0, 0};
    for (unsigned i = 0; i < 16; ++i) {
      all.push_back(low + i);
      all.push_back(high + i);
    }
    return all;
  };
  const Words xmm = expected(0x2000, 0x3000), ymm = expected(0x4000, 0x5000);
  EXPECT_EQ(words(cfg_c::kXmm)[0], header(cfg_c::kXmm, 0x150));
  EXPECT_EQ(group(cfg_c::kXmm), xmm);
  EXPECT_EQ(group(cfg_c::kYmmHigh), ymm);
  Words both = xmm;
  both.insert(both.end(), ymm.begin() + 2, ymm.end());
  EXPECT_EQ(group(cfg_c::kXmm | cfg_c::kYmmHigh), both) << "one header for the two";
  vectors = false;
  EXPECT_EQ(group(cfg_c::kYmmHigh), Words(2 + 32, 0)) << "of an engine that has none";
}

TEST_F(ArchitecturalRecordTest, BranchesBehindAHeaderOfTheirOwn) {
  for (const uint64_t code : {1u, 2u, 3u}) {
    const uint64_t config = code << cfg_c::kBranchesShift;
    const size_t entries = code == 3 ? 32 : 8 * code;
    Words expected = {0, 0x7F'0003, 32, 0, 0, 0};
    for (uint64_t i = 0; i < entries; ++i) {
      const uint64_t of = 39 - i;
      expected.insert(expected.end(), {0x4000 + of, 0x5000 + of,
                                       (of % 2 == 1 ? branch_info::kMispredicted : 0) | 10});
    }
    EXPECT_EQ(group(config), expected);
    EXPECT_EQ(words(config)[0], header(config, 0x40 + 8 * expected.size()));
  }
}

TEST_F(ArchitecturalRecordTest, CountersFillUpTheLastUnit) {
  counters = {.gp = 0x22, .fixed = 0x05, .metrics = 0};
  constexpr uint64_t kBoth = cfg_c::kCountersGp | cfg_c::kCountersFixed;
  EXPECT_EQ(group(kBoth), (Words{uint64_t{5} << 32 | 0x22, 0, 0x9001, 0x9005, 0xA000, 0xA002}));
  counters = {.gp = 0x02, .fixed = 0, .metrics = 0};
  EXPECT_EQ(group(cfg_c::kCountersGp), (Words{2, 0, 0x9001, 0}));
  EXPECT_EQ(words(cfg_c::kCountersGp)[0], header(cfg_c::kCountersGp, 0x60));
  counters = {.gp = 0, .fixed = 0, .metrics = 3};
  EXPECT_EQ(group(cfg_c::kMetrics), (Words{0, 3, 0xA003, 0xB000}));
}

// The groups in the order of the sources, where the table that reads them back finds them.
TEST_F(ArchitecturalRecordTest, AllGroupsOneBehindTheOther) {
  namespace a = architectural;
  counters = {.gp = 1, .fixed = 1, .metrics = 0};
  const uint64_t groups = cfg_c::kAux | cfg_c::kGprs | cfg_c::kXmm | cfg_c::kYmmHigh |
                          uint64_t{1} << cfg_c::kBranchesShift | cfg_c::kCountersGp |
                          cfg_c::kCountersFixed;
  const Words all = words(groups);
  const a::Parts parts = a::parts_of(std::as_bytes(std::span(all)));
  EXPECT_EQ(parts.bytes, 8 * all.size());
  EXPECT_EQ(parts.groups, groups | a::kBasic);
  Words expected;
  for (const uint64_t one :
       {cfg_c::kAux, cfg_c::kGprs, cfg_c::kXmm | cfg_c::kYmmHigh,
        uint64_t{1} << cfg_c::kBranchesShift, cfg_c::kCountersGp | cfg_c::kCountersFixed}) {
    const Words its_own = group(one);
    expected.insert(expected.end(), its_own.begin(), its_own.end());
  }
  EXPECT_EQ(group(groups), expected);
}

TEST_F(ArchitecturalRecordTest, EachDecisionShows) {
  const auto changed = [&](void (*change)(Behaviour&), uint64_t groups) {
    behaviour = {};
    change(behaviour);
    Words all = words(groups);
    behaviour = {};
    return all;
  };
  EXPECT_EQ(changed([](Behaviour& b) { b.arch_pebs.counters_behind_ip = false; }, 0)[2], 4u);
  EXPECT_EQ(changed([](Behaviour& b) { b.arch_pebs.counters_behind_ip = false; }, 0)[3], 0x6001u);
  EXPECT_EQ(changed([](Behaviour& b) { b.arch_pebs.retire_valid = false; }, 0)[5], 0u);
  EXPECT_EQ(changed([](Behaviour& b) { b.arch_pebs.header_size_less = true; }, 0)[0],
            header(0, 0x30));
  EXPECT_EQ(changed([](Behaviour& b) { b.arch_pebs.continued_always = true; }, 0)[0],
            header(architectural::kContinued, 0x40));
  const Words flags =
      changed([](Behaviour& b) { b.arch_pebs.flags_behind_ip = true; }, cfg_c::kGprs);
  EXPECT_EQ(flags[8], 0x6000u);
  EXPECT_EQ(flags[9], 0x246u);
  const Words xer =
      changed([](Behaviour& b) { b.arch_pebs.xer_without_header = true; }, cfg_c::kXmm);
  EXPECT_EQ(xer[8], 0x2000u);
  EXPECT_EQ(xer.size(), 8u + 32);
  const uint64_t eight = uint64_t{1} << cfg_c::kBranchesShift;
  const Words branches =
      changed([](Behaviour& b) { b.arch_pebs.branches_without_header = true; }, eight);
  EXPECT_EQ(branches[8], 0x4000u + 39);
  EXPECT_EQ(branches.size(), 8u + 24);
  input.data.latency = 0x34;
  EXPECT_EQ(changed([](Behaviour& b) { b.adaptive.cache_latency = false; }, cfg_c::kAux)[14],
            0x34u);
  EXPECT_EQ(
      changed([](Behaviour& b) { b.adaptive.latency_halves_swapped = true; }, cfg_c::kAux)[14],
      uint64_t{0x34} << 32 | 0x12);
}

}  // namespace
}  // namespace skidproof::model
