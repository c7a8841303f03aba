#include "pebs/model/rough.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "pebs/model/behaviour.h"

namespace skidproof::model {
namespace {

using ::testing::HasSubstr;

const arch::Microarch& row(std::string_view name) { return **arch::find_microarch(name); }

TEST(Rough, IsNeutralUnlessSaid) {
  for (const RoughField& field : rough_fields()) EXPECT_EQ(field.get(Rough{}), field.neutral);
  EXPECT_EQ(behaviour_of(row("sandy-bridge")).rough, Rough{});
}

TEST(Rough, IsTheSameMachineForTheSameSeed) {
  EXPECT_EQ(draw_rough(row("skylake"), 7), draw_rough(row("skylake"), 7));
  EXPECT_NE(draw_rough(row("skylake"), 7), draw_rough(row("skylake"), 8));
  EXPECT_EQ(rough_of(row("skylake"), "7").value(), draw_rough(row("skylake"), 7));
}

// Every field is drawn, stays within its range, and is left neutral now and then.
TEST(Rough, DrawsEachFieldFromItsRange) {
  std::map<std::string_view, std::set<double>> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Rough rough = draw_rough(row("haswell"), seed);
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
  EXPECT_EQ(rough_of(row("haswell"), "shadowless=1").value().shadowless, 1u);
  EXPECT_EQ(rough_of(row("haswell"), "tag_apart=1000000").value().tag_apart, 1'000'000u);
  const auto beyond = rough_of(row("haswell"), "tag_apart=1000001");
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(rough_of(row("haswell"), "shadowless=2"));
  EXPECT_FALSE(rough_of(row("haswell"), "pmi_high=302")) << "drawn from all that may be said";
}

TEST(Rough, KeepsTheLeastBelowTheMost) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Rough rough = draw_rough(row("ice-lake"), seed);
    EXPECT_LE(rough.arm_low, rough.arm_high);
    EXPECT_LE(rough.pmi_low, rough.pmi_high);
  }
}

TEST(Rough, IsSetByName) {
  const Rough rough = rough_of(row("sandy-bridge"), "assist_cycles=900,tagging=0.02").value();
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
      {"tagging=nan", "'nan' is no value", "0.01 to 0.5"},
      {"tagging", "'' is no value", "0.01 to 0.5"},
      {"l2_kib=300", "l2_kib cannot be 300", "256"},
      {"assist_cycles=200.5", "assist_cycles cannot be 200.5", "201"},
      {"", "no words", "a seed"},
      {"-1", "no field '-1'", "list rough"},
  };
  for (const Case& c : cases) {
    const auto rough = rough_of(row("sandy-bridge"), c.words);
    ASSERT_FALSE(rough) << c.words;
    EXPECT_EQ(rough.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(rough.error().message, HasSubstr(c.message)) << c.words;
    EXPECT_THAT(rough.error().advice, HasSubstr(c.advice)) << c.words;
  }
}

TEST(Rough, ChangesTheRowsCachesOnlyWhereItSaysSo) {
  const arch::Microarch& skylake = row("skylake");
  EXPECT_EQ(geometry_of(skylake, {}).l1_bytes, skylake.caches.l1_bytes);
  const arch::CacheGeometry other =
      geometry_of(skylake, rough_of(skylake, "l1_kib=48,retire_width=6").value());
  EXPECT_EQ(other.l1_bytes, 48u << 10);
  EXPECT_EQ(other.l1_ways, 12u);
  EXPECT_EQ(other.retire_width, 6u);
  EXPECT_EQ(other.l2_bytes, skylake.caches.l2_bytes);
}

TEST(Rough, TakesTheSideOfADisputedClause) {
  const arch::Microarch& skylake = row("skylake");
  auto sets = [&](const char* words) {
    return behaviour_of(skylake, rough_of(skylake, words).value()).full_sets_ovf_buffer;
  };
  EXPECT_TRUE(sets("full_buffer=1"));
  EXPECT_FALSE(sets("full_buffer=2"));
  EXPECT_EQ(sets("full_buffer=0"), skylake.full_buffer_sets_ovf);
}

}  // namespace
}  // namespace skidproof::model
