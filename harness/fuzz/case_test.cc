// Cases survive the way to a file and back; what is no case is refused with its reason.
#include "harness/fuzz/case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "harness/fuzz/generator.h"
#include "harness/fuzz/registers.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/reserved.h"

namespace skidproof::fuzz {
namespace {

using ::testing::HasSubstr;

Identity identity_of(const arch::Microarch& microarch) {
  Identity who;
  who.name = "model:" + std::string(microarch.name);
  who.microarch = &microarch;
  who.pmu = who.sibling_thread = true;
  return who;
}

const arch::Microarch& sandy_bridge() { return **arch::find_microarch("sandy-bridge"); }

Case sample() { return generate_case(identity_of(sandy_bridge()), 4, 1); }

std::string problem_of(const Json& json) {
  auto parsed = parse_case(json.dump());
  return parsed ? "" : parsed.error().message;
}

TEST(FuzzCase, SurvivesItsFile) {
  for (const arch::Microarch* microarch : arch::microarchs()) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const Case c = generate_case(identity_of(*microarch), microarch->gp_counters, seed);
      auto back = parse_case(json_of(c).dump(2));
      ASSERT_TRUE(back) << back.error().text();
      ASSERT_EQ(*back, c) << microarch->name << ", seed " << seed;
    }
  }
}

TEST(FuzzCase, IsReadOutOfAReplayFile) {
  const Json document = {{"check", "record"}, {"case", json_of(sample())}};
  auto back = parse_case(document.dump());
  ASSERT_TRUE(back) << back.error().text();
  EXPECT_EQ(*back, sample());
}

TEST(FuzzCase, NamesWhatIsWrong) {
  EXPECT_THAT(parse_case("{").error().message, HasSubstr("not JSON"));
  EXPECT_THAT(problem_of(Json::array()), HasSubstr("is no object"));
  Json json = json_of(sample());
  json.erase("machine");
  EXPECT_THAT(problem_of(json), HasSubstr("lacks `machine`"));
  json = json_of(sample());
  json["skidproof-fuzz"] = 2;
  EXPECT_THAT(problem_of(json), HasSubstr("`skidproof-fuzz` is no integer from 1 to 1"));
  json = json_of(sample());
  json["data-seed"] = "7";
  EXPECT_THAT(problem_of(json), HasSubstr("`data-seed` is no hexadecimal string"));
  json = json_of(sample());
  json["code"] = Json::array({{{"op", "load"}, {"value", 4089}}});
  EXPECT_THAT(problem_of(json), HasSubstr("item 0 of the code: outside the data"));
  json["code"] = Json::array({{{"op", "fly"}}});
  EXPECT_THAT(problem_of(json), HasSubstr("item 0 has an unknown `op`"));
  json["code"] = Json::array({{{"op", "inc"}, {"a", 7}}});
  EXPECT_THAT(problem_of(json), HasSubstr("item 0 `a` is no integer from 0 to 6"));
  json = json_of(sample());
  json["steps"] = Json::array({{{"do", "run"}, {"global-ctrl", "0x1"}, {"iterations", 0}}});
  EXPECT_THAT(problem_of(json), HasSubstr("step 0 `iterations`"));
  json = json_of(sample());
  json["ds"]["maximum"] = int64_t{1} << 40;
  EXPECT_THAT(problem_of(json), HasSubstr("`ds` `maximum`"));
}

TEST(FuzzGenerator, GivesTheSameCaseForTheSameSeedAndOthersForOthers) {
  std::set<std::string> all;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Case c = generate_case(identity_of(sandy_bridge()), 4, seed);
    EXPECT_EQ(c, generate_case(identity_of(sandy_bridge()), 4, seed));
    all.insert(json_of(c).dump());
  }
  EXPECT_EQ(all.size(), 100u);
}

// Of every kind of item and of step something is drawn, and writes that must be refused among them.
TEST(FuzzGenerator, DrawsLegalAndIllegalProgrammesOverAllItems) {
  std::set<Op> ops;
  std::set<Step::Kind> kinds;
  uint64_t legal = 0, illegal = 0;
  const RegisterFile registers(sandy_bridge(), 4);
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Case c = generate_case(identity_of(sandy_bridge()), 4, seed);
    for (const CodeItem& item : c.code.items) ops.insert(item.op);
    for (const Step& step : c.steps) {
      kinds.insert(step.kind);
      if (step.kind != Step::Kind::kWrite) continue;
      registers.accepts(step.msr, step.value) ? ++legal : ++illegal;
    }
  }
  EXPECT_EQ(ops.size(), kOps);
  EXPECT_EQ(kinds.size(), 3u);
  EXPECT_GT(legal, 1000u);
  EXPECT_GT(illegal, 200u);
}

TEST(FuzzRegisters, FollowTheReservedBits) {
  using namespace arch;
  RegisterFile four(sandy_bridge(), 4);
  EXPECT_TRUE(four.accepts(IA32_PMC0 + 3, ~uint64_t{0}));  // EDX is ignored
  EXPECT_FALSE(four.accepts(IA32_PMC0 + 4, 0));
  EXPECT_FALSE(four.read(IA32_A_PMC0 + 4).has_value());
  EXPECT_FALSE(four.accepts(IA32_A_PMC0, bit(48)));
  EXPECT_TRUE(four.accepts(IA32_PERF_GLOBAL_CTRL, 0xF));
  EXPECT_FALSE(four.accepts(IA32_PERF_GLOBAL_CTRL, 0x10));
  EXPECT_TRUE(RegisterFile(sandy_bridge(), 8).accepts(IA32_PERF_GLOBAL_CTRL, 0x10));
  EXPECT_FALSE(four.accepts(IA32_PERF_GLOBAL_STATUS, 0));
  EXPECT_FALSE(four.accepts(IA32_DS_AREA, bit(47)));
  EXPECT_FALSE(four.accepts(IA32_PERF_CAPABILITIES, 0));

  four.write(IA32_PMC0, 0x1'8000'0000);
  EXPECT_EQ(four.read(IA32_A_PMC0), 0xFFFF'8000'0000u) << "sign-extended, under both names";
  four.set(IA32_PERF_GLOBAL_STATUS, 0xF);
  four.write(IA32_PERF_GLOBAL_OVF_CTRL, 0x5);
  EXPECT_EQ(four.read(IA32_PERF_GLOBAL_STATUS), 0xAu);
  EXPECT_EQ(four.read(IA32_PERF_GLOBAL_OVF_CTRL), 0u);
  four.write(IA32_X2APIC_LVT_PMI, lvt::kNmi | lvt::kDeliveryStatus);
  EXPECT_EQ(four.read(IA32_X2APIC_LVT_PMI), lvt::kNmi);
  const RegisterFile nehalem(**find_microarch("nehalem"), 4);
  EXPECT_FALSE(nehalem.read(IA32_A_PMC0).has_value()) << "no full-width writes";
}

}  // namespace
}  // namespace skidproof::fuzz
