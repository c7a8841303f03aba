#include "harness/calibrate/calibration.h"

#include <gtest/gtest.h>

#include <string>

#include "pebs/arch/microarch.h"
#include "pebs/engines/model_machine.h"

namespace skidproof::calibrate {
namespace {

Calibration on(const char* microarch, const std::string& rough = "",
               std::vector<std::string> defects = {}) {
  return {[=](const std::string&) -> Expected<std::shared_ptr<Machine>> {
            return std::shared_ptr<Machine>(SKIDPROOF_TRY(engines::make_model_machine(
                **arch::find_microarch(microarch), {.defects = defects, .rough = rough})));
          },
          1};
}

TEST(Calibration, FindsNothingOnTheNoiselessModel) {
  Calibration of = on("sandy-bridge");
  for (Quantity quantity :
       {Quantity::kEdgeInstructions, Quantity::kRecordCycles, Quantity::kRecordUops,
        Quantity::kRecordLoads, Quantity::kRecordStores}) {
    const Figure& figure = of[quantity];
    ASSERT_TRUE(figure.known()) << name_of(quantity) << ": " << figure.reason;
    // Two runs of the same program differ by a line that one of them finds elsewhere.
    const double most = quantity == Quantity::kRecordCycles ? 20 : 0;
    EXPECT_GE(figure.low, -most) << name_of(quantity);
    EXPECT_LE(figure.high, most) << name_of(quantity);
  }
}

TEST(Calibration, FindsWhatIsRough) {
  Calibration of = on("sandy-bridge",
                      "assist_cycles=900,assist_uops=21,assist_accesses=7,arm_low=12,arm_high=30,"
                      "tagging=0.05,pmi_low=20,pmi_high=250,start_instructions=3,stop_cycles=100");
  EXPECT_NEAR(of[Quantity::kRecordCycles].value, 900, 30);
  // An instruction of the code before the program is a part of a record's.
  EXPECT_NEAR(of[Quantity::kRecordUops].value, 21, 0.5);
  EXPECT_NEAR(of[Quantity::kRecordLoads].value, 7, 0.5);
  EXPECT_NEAR(of[Quantity::kRecordStores].value, 7, 0.5);
  EXPECT_GE(of[Quantity::kArmingCycles].value, 12);
  EXPECT_LE(of[Quantity::kArmingCycles].value, 120);
  EXPECT_NEAR(of[Quantity::kLoadsATag].value, 20, 10);
  EXPECT_GE(of[Quantity::kPmiLateness].value, 150);
  EXPECT_LE(of[Quantity::kPmiLateness].value, 260);
  EXPECT_GT(of[Quantity::kEdgeInstructions].high, of[Quantity::kEdgeInstructions].low);
  EXPECT_GT(of[Quantity::kEdgeCycles].high, 0);
}

// What a clause fixes is not measured: a CPU that breaks it gets no margin from here.
TEST(Calibration, GivesABrokenCpuNoMargin) {
  for (const char* defect : {"reset-never", "skid-one-too-many", "reset-to-zero"}) {
    Calibration broken = on("sandy-bridge", "", {defect});
    EXPECT_EQ(broken[Quantity::kEdgeInstructions].high, 0) << defect;
    EXPECT_EQ(broken[Quantity::kRecordUops].high, 0) << defect;
  }
}

// One tag in hundreds of loads is a rate like any other; and a session lets count what load latency needs.
TEST(Calibration, FindsARateOfTagsHoweverSparse) {
  const Figure usual = on("haswell")[Quantity::kLoadsATag];
  EXPECT_NEAR(usual.value, 4, 1);
  const Figure by_time = on("haswell", "tag_apart=500")[Quantity::kLoadsATag];
  ASSERT_TRUE(by_time.known()) << by_time.reason;
  EXPECT_GT(by_time.value, 5);
  const Figure sparse = on("haswell", "tagging=0.01,tag_apart=500")[Quantity::kLoadsATag];
  ASSERT_TRUE(sparse.known()) << sparse.reason;
  EXPECT_NEAR(sparse.value, 100, 20);
  const Figure beside = on("sapphire-rapids", "auxiliary_needed=1")[Quantity::kLoadsATag];
  ASSERT_TRUE(beside.known()) << beside.reason;
  EXPECT_NEAR(beside.value, 4, 1);
}

// Its buffer is a page at the most, which a session refuses to exceed.
TEST(Calibration, MeasuresArmingInTheBufferThatCoreTwoTakes) {
  const Figure neutral = on("core2")[Quantity::kArmingCycles];
  ASSERT_TRUE(neutral.known()) << neutral.reason;
  EXPECT_GE(neutral.n, 20u);
  const Figure slow = on("core2", "arm_low=12,arm_high=40")[Quantity::kArmingCycles];
  ASSERT_TRUE(slow.known()) << slow.reason;
  EXPECT_GE(slow.value, 12);
  EXPECT_LT(neutral.value, slow.value);
}

TEST(Calibration, MeasuresEachFigureOnce) {
  int asked = 0;
  Calibration of({[&](const std::string& figure) -> Expected<std::shared_ptr<Machine>> {
                   ++asked;
                   EXPECT_EQ(figure, "calibration.record-cycles");
                   return std::shared_ptr<Machine>(SKIDPROOF_TRY(
                       engines::make_model_machine(**arch::find_microarch("skylake"), {})));
                 }},
                 1);
  static_cast<void>(of[Quantity::kRecordCycles]);
  static_cast<void>(of[Quantity::kRecordCycles]);
  EXPECT_EQ(asked, 1);
}

TEST(Calibration, SaysWhyAFigureIsUnknown) {
  const Figure netburst = on("netburst")[Quantity::kRecordCycles];
  EXPECT_FALSE(netburst.known());
  EXPECT_NE(netburst.reason.find("ESCR"), std::string::npos);
  const Figure core2 = on("core2")[Quantity::kLoadsATag];
  EXPECT_FALSE(core2.known());
  EXPECT_FALSE(core2.reason.empty());
}

}  // namespace
}  // namespace skidproof::calibrate
