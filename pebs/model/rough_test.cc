#include "pebs/model/rough.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pebs/model/behaviour.h"

namespace skidproof::model {
namespace {

using ::testing::HasSubstr;

const arch::Microarch& facts(std::string_view name) { return **arch::find_microarch(name); }

auto numbers_of(const arch::CacheGeometry& geometry) {
  return std::bit_cast<std::array<uint32_t, sizeof(geometry) / sizeof(uint32_t)>>(geometry);
}

TEST(Rough, IsNeutralUnlessSaid) {
  for (const RoughField& field : rough_fields()) EXPECT_EQ(field.get(Rough{}), field.neutral);
  EXPECT_EQ(behaviour_of(facts("sandy-bridge")).rough, Rough{});
}

TEST(Rough, IsTheSameMachineForTheSameSeed) {
  EXPECT_EQ(draw_rough(facts("skylake"), 7), draw_rough(facts("skylake"), 7));
  EXPECT_NE(draw_rough(facts("skylake"), 7), draw_rough(facts("skylake"), 8));
  EXPECT_EQ(rough_of(facts("skylake"), "7").value(), draw_rough(facts("skylake"), 7));
}

// Every field is drawn, stays within its range, and is left neutral now and then.
TEST(Rough, DrawsEachFieldFromItsRange) {
  std::map<std::string_view, std::set<double>> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Rough rough = draw_rough(facts("haswell"), seed);
    for (const RoughField& field : rough_fields()) seen[field.name].insert(field.get(rough));
  }
  for (const RoughField& field : rough_fields()) {
    if (field.low == field.high) {  // by hand alone
      EXPECT_EQ(seen[field.name], std::set<double>{field.neutral}) << field.name;
      continue;
    }
    EXPECT_GT(seen[field.name].size(), 1u) << field.name << " is never drawn";
    EXPECT_TRUE(seen[field.name].contains(field.neutral)) << field.name;
    for (double value : seen[field.name]) {
      if (value == field.neutral || field.name == "arm_high" || field.name == "pmi_high") continue;
      const bool shaped_down = field.name == "l2_kib" || field.name == "fusion_border";
      EXPECT_GE(value, shaped_down ? 0 : field.low) << field.name;
      EXPECT_LE(value, field.high) << field.name;
    }
  }
}

TEST(Rough, TakesByHandWhatIsNeverDrawn) {
  EXPECT_EQ(rough_of(facts("haswell"), "shadowless=1").value().shadowless, 1u);
  EXPECT_EQ(rough_of(facts("haswell"), "tag_apart=1000000").value().tag_apart, 1'000'000u);
  const auto beyond = rough_of(facts("haswell"), "tag_apart=1000001");
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(rough_of(facts("haswell"), "shadowless=2"));
  EXPECT_FALSE(rough_of(facts("haswell"), "pmi_high=302")) << "drawn from all that may be said";
}

TEST(Rough, KeepsTheLeastBelowTheMost) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Rough rough = draw_rough(facts("ice-lake"), seed);
    EXPECT_LE(rough.arm_low, rough.arm_high);
    EXPECT_LE(rough.pmi_low, rough.pmi_high);
  }
}

TEST(Rough, IsSetByName) {
  const Rough rough = rough_of(facts("sandy-bridge"), "assist_cycles=900,tagging=0.02").value();
  EXPECT_EQ(rough.assist_cycles, 900u);
  EXPECT_EQ(rough.tagging, 0.02);
  Rough others = rough;
  others.assist_cycles = Rough{}.assist_cycles;
  others.tagging = Rough{}.tagging;
  EXPECT_EQ(others, Rough{});
  EXPECT_EQ(rough_name("assist_cycles=900"), "assist_cycles=900");
  EXPECT_EQ(rough_name("7"), "rough=7");
}

TEST(Rough, SaysWhatIsWrong) {
  struct Case {
    const char* words;
    const char* message;
    const char* advice;
  };
  const Case cases[] = {
      {"asist_cycles=9", "no field 'asist_cycles'", "assist_cycles"},
      {"assist_cycles=5000", "'5000' is no value of assist_cycles", "0 to 1500 cycles"},
      {"assist_cycles=", "'' is no value", "0 to 1500"},
      {"assist_cycles=9x", "'9x' is no value", "0 to 1500"},
      {"assist_cycles=x", "'x' is no value", "0 to 1500"},
      {"tagging=nan", "'nan' is no value", "0.01 to 0.5"},
      {"tagging", "'' is no value", "0.01 to 0.5"},
      {"l2_kib=300", "l2_kib cannot be 300", "256"},
      {"assist_cycles=200.5", "assist_cycles cannot be 200.5", "201"},
      {"", "no words", "a seed"},
      {"-1", "no field '-1'", "list rough"},
  };
  for (const Case& c : cases) {
    const auto rough = rough_of(facts("sandy-bridge"), c.words);
    ASSERT_FALSE(rough) << c.words;
    EXPECT_EQ(rough.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(rough.error().message, HasSubstr(c.message)) << c.words;
    EXPECT_THAT(rough.error().advice, HasSubstr(c.advice)) << c.words;
  }
}

// Each field of the caches changes what it names and nothing else. Sets of L1 are the row_of's: 64 of 64 bytes.
TEST(Rough, ChangesTheRowsCachesOnlyWhereItSaysSo) {
  using G = arch::CacheGeometry;
  struct Case {
    const char* words;
    std::vector<std::pair<uint32_t G::*, uint32_t>> changes;
  };
  const Case cases[] = {
      {"assist_cycles=900", {}},
      {"l1_kib=48", {{&G::l1_bytes, 48 << 10}, {&G::l1_ways, 12}}},
      {"l2_kib=512", {{&G::l2_bytes, 512 << 10}, {&G::l2_ways, 8}}},
      {"l3_kib=4096", {{&G::l3_bytes, 4096 << 10}, {&G::l3_ways, 16}}},
      {"l2_latency=17", {{&G::l2_latency, 17}}},
      {"l3_latency=77", {{&G::l3_latency, 77}}},
      {"memory_latency=333", {{&G::memory_latency, 333}}},
      {"stlb_entries=2048", {{&G::stlb_entries, 2048}}},
      {"bus_ratio=25", {{&G::bus_ratio, 25}}},
      {"retire_width=6", {{&G::retire_width, 6}}},
      {"mispredict_penalty=11", {{&G::mispredict_penalty, 11}}},
  };
  arch::Microarch changed = facts("skylake");
  changed.caches.l1_ways = changed.caches.l2_ways = changed.caches.l3_ways = 5;
  const arch::Microarch& odd = changed;  // as no row_of has it
  for (const arch::Microarch* part :
       {&facts("skylake"), &facts("sapphire-rapids"), &facts("core2"), &odd}) {
    for (const Case& c : cases) {
      G expected = part->caches;
      for (const auto& [field, value] : c.changes) expected.*field = value;
      EXPECT_EQ(numbers_of(geometry_of(*part, rough_of(*part, c.words).value())),
                numbers_of(expected))
          << c.words;
    }
  }
}

TEST(Rough, ReachesTheCoreModel) {
  struct Case {
    const char* words;
    double prefetch;
    uint32_t reference_percent, fusion_border;
  };
  const Case cases[] = {
      {"assist_cycles=900", 0, 100, 0}, {"l1_kib=48,l3_latency=77,retire_width=6", 0, 100, 0},
      {"prefetch=0.5", 0.5, 100, 0},    {"reference_percent=130", 0, 130, 0},
      {"fusion_border=32", 0, 100, 32},
  };
  const arch::Microarch& part = facts("ivy-bridge");
  for (const Case& c : cases) {
    SCOPED_TRACE(c.words);
    const Rough rough = rough_of(part, c.words).value();
    for (const CoreBehaviour& core :
         {core_behaviour_of(part, rough), behaviour_of(part, rough).core}) {
      EXPECT_EQ(numbers_of(core.caches), numbers_of(geometry_of(part, rough)));
      EXPECT_EQ(core.prefetch, c.prefetch);
      EXPECT_EQ(core.reference_percent, c.reference_percent);
      EXPECT_EQ(core.fusion_border, c.fusion_border);
      EXPECT_EQ(core.fusion.cmp, part.fusion.cmp);
      EXPECT_EQ(core.indexed, part.indexed_fusion);
    }
  }
}

// What a cache or a border cannot have is neither drawn nor taken.
TEST(Rough, ValuesHaveTheShapeThatHardwareHas) {
  struct Case {
    const char* field;
    std::vector<unsigned> taken, refused;
  };
  const Case cases[] = {
      {"l1_kib", {24, 28, 32, 64}, {25, 26, 27, 31, 63}},
      {"l2_kib", {256, 512, 1024, 2048}, {257, 384, 2047}},
      {"l3_kib", {2048, 32768}, {2049, 3072}},
      {"stlb_entries", {512, 1024, 2048}, {513, 1536}},
      {"fusion_border", {0, 16, 32, 64}, {1, 8, 15, 17, 48, 63}},
  };
  for (const Case& c : cases) {
    for (unsigned value : c.taken) {
      EXPECT_TRUE(rough_of(facts("haswell"), fmt::format("{}={}", c.field, value)))
          << c.field << "=" << value;
    }
    for (unsigned value : c.refused) {
      EXPECT_FALSE(rough_of(facts("haswell"), fmt::format("{}={}", c.field, value)))
          << c.field << "=" << value;
    }
    const auto field = std::ranges::find(rough_fields(), c.field, &RoughField::name);
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const double drawn = field->get(draw_rough(facts("haswell"), seed));
      if (drawn == field->neutral) continue;
      EXPECT_TRUE(rough_of(facts("haswell"), fmt::format("{}={}", c.field, drawn)))
          << c.field << "=" << drawn;
    }
  }
}

// A range is drawn from end to end: evenly, and by its logarithm where it spans a power of ten.
TEST(Rough, DrawsFromEndToEnd) {
  constexpr unsigned kSeeds = 4000;
  std::vector<Rough> machines;
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    machines.push_back(draw_rough(facts("haswell"), seed));
  for (const RoughField& field : rough_fields()) {
    if (field.low == field.high || field.name == "arm_high" || field.name == "pmi_high") continue;
    unsigned neutral = 0, below = 0, drawn = 0;
    std::map<double, unsigned> times;
    double least = field.high, most = field.low;
    const bool wide = field.low > 0 && field.high >= 10 * field.low;
    const double middle = wide ? std::sqrt(field.low * field.high) : (field.low + field.high) / 2;
    for (const Rough& machine : machines) {
      const double value = field.get(machine);
      if (value == field.neutral) {
        ++neutral;
        continue;
      }
      ++drawn;
      ++times[value];
      below += value < middle;
      least = std::min(least, value);
      most = std::max(most, value);
    }
    // A third is left as it is. A small whole number may be drawn neutral, too.
    const double whole_values = field.whole ? field.high - field.low + 1 : 1e9;
    EXPECT_GT(neutral, 0.30 * kSeeds) << field.name;
    const bool shaped = field.name.ends_with("_kib") || field.name == "stlb_entries" ||
                        field.name == "fusion_border";
    if (shaped) continue;
    // Of few whole numbers each comes as often as the others.
    if (whole_values < 20 && !wide) {
      const double each = 2.0 / 3 * kSeeds / whole_values;
      for (const auto& [value, n] : times) {
        EXPECT_NEAR(n, each, 5 * std::sqrt(each)) << field.name << " " << value;
      }
    }
    if (whole_values < 100) continue;
    const bool drawn_too = field.neutral >= field.low && field.neutral <= field.high;
    EXPECT_LT(neutral, (drawn_too ? 0.45 : 0.37) * kSeeds) << field.name;
    EXPECT_NEAR(below, drawn / 2.0, 0.04 * drawn) << field.name;
    EXPECT_LE(least, field.low + 0.02 * (field.high - field.low)) << field.name;
    EXPECT_GE(most, field.high - 0.02 * (field.high - field.low)) << field.name;
  }
}

// A record of PDist by instructions is one late at the most; where nothing is distributed, the field says
// nothing, and is drawn.
TEST(Rough, APartThatDistributesIsOneInstructionLateAtTheMost) {
  std::set<uint32_t> by_instructions, otherwise;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    by_instructions.insert(draw_rough(facts("sapphire-rapids"), seed).pdist_late_most);
    otherwise.insert(draw_rough(facts("ice-lake"), seed).pdist_late_most);
  }
  EXPECT_EQ(by_instructions, std::set<uint32_t>{1});
  EXPECT_EQ(otherwise, (std::set<uint32_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Rough, ByHandTheMostIsNoLessThanTheLeast) {
  const Rough rough =
      rough_of(facts("haswell"), "arm_low=12,pmi_low=40,pmi_high=40,arm_high=8").value();
  EXPECT_EQ(rough.arm_high, 12u);
  EXPECT_EQ(rough.pmi_high, 40u);
  const Rough late = rough_of(facts("haswell"), "pmi_low=40").value();
  EXPECT_EQ(late.pmi_high, 48u);
}

// What later parts of Golden Cove's formats announce, no earlier part can.
TEST(Rough, RetireLatencyComesWithRecordsThatSplitTheLatency) {
  for (const char* name : {"sandy-bridge", "skylake", "ice-lake"}) {
    const arch::Microarch part =
        row_of(facts(name), rough_of(facts(name), "retire_latency=1").value());
    EXPECT_EQ(part.pebs_timing_info, facts(name).pebs_timing_info) << name;
    EXPECT_EQ(part.record, facts(name).record) << name;
  }
  const arch::Microarch& golden = facts("sapphire-rapids");
  EXPECT_FALSE(row_of(golden, {}).pebs_timing_info);
  const arch::Microarch part = row_of(golden, rough_of(golden, "retire_latency=1").value());
  EXPECT_TRUE(part.pebs_timing_info);
  EXPECT_TRUE(part.record->retire_latency);
}

TEST(Rough, IsNoFasterThanWhatIsPublished) {
  const arch::Microarch& bridge = facts("sandy-bridge");
  ASSERT_NE(bridge.fastest_latency(2), nullptr);
  const uint32_t least = bridge.fastest_latency(2)->cycles;
  EXPECT_EQ(geometry_of(bridge, rough_of(bridge, "l2_latency=10").value()).l2_latency, least);
  EXPECT_EQ(geometry_of(bridge, rough_of(bridge, "l2_latency=17").value()).l2_latency, 17u);
  const arch::Microarch& broadwell = facts("broadwell");
  ASSERT_EQ(broadwell.fastest_latency(2), nullptr);
  EXPECT_EQ(geometry_of(broadwell, rough_of(broadwell, "l2_latency=10").value()).l2_latency, 10u);
}

TEST(Rough, TakesTheSideOfADisputedClause) {
  const arch::Microarch& skylake = facts("skylake");
  auto sets = [&](const char* words) {
    return behaviour_of(skylake, rough_of(skylake, words).value()).full_sets_ovf_buffer;
  };
  EXPECT_TRUE(sets("full_buffer=1"));
  EXPECT_FALSE(sets("full_buffer=2"));
  EXPECT_EQ(sets("full_buffer=0"), skylake.full_buffer_sets_ovf);
}

}  // namespace
}  // namespace skidproof::model
