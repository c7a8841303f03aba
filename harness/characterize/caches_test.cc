// What is inferred of caches and TLBs, on models whose geometry is known: right or not clear, and never wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "harness/characterize/parts.h"
#include "harness/characterize/workbench.h"
#include "pebs/arch/microarch.h"
#include "pebs/engines/model_machine.h"
#include "pebs/model/rough.h"

namespace skidproof {
namespace {

struct InferredShapes {
  std::map<std::string, uint64_t> clear;
  std::map<std::string, std::string> unclear;
};

InferredShapes infer_on(const arch::Microarch& microarch, const std::string& rough) {
  InferredShapes inferred;
  auto machine = engines::make_model_machine(microarch, {.sibling_thread = false, .rough = rough});
  EXPECT_TRUE(machine) << machine.error().text();
  if (!machine) return inferred;
  CharacterizeOptions options;
  options.repetitions = 2;  // which a model answers alike
  Characterization out;
  auto bench = Workbench::create(**machine, options, out);
  EXPECT_TRUE(bench) << bench.error().text();
  if (!bench) return inferred;
  bench->begin_part(0, 1, 5);
  const auto measured = characterize_caches(*bench);
  EXPECT_TRUE(measured) << measured.error().text();
  for (const Error& problem : out.problems) ADD_FAILURE() << problem.text();
  for (const Measurement& m : out.measurements) {
    if (m.name.starts_with("shape.")) inferred.clear[m.name] = static_cast<uint64_t>(m.value);
  }
  for (const Unclear& u : out.unclear) inferred.unclear[u.name] = u.reason;
  return inferred;
}

class CachesOfModels : public testing::TestWithParam<const char*> {};

TEST_P(CachesOfModels, AreRightOrNotClear) {
  const auto found_row = arch::find_microarch(GetParam());
  ASSERT_TRUE(found_row) << found_row.error().text();
  const arch::Microarch* microarch = *found_row;
  std::map<std::string, int> clear;
  const int machines = std::string_view(GetParam()) == "sandy-bridge" ? 10 : 1;
  for (int seed = 0; seed <= machines; ++seed) {
    const std::string text = seed == 0 ? "" : fmt::format("{}", seed);
    const model::Rough rough =
        seed == 0 ? model::Rough{} : model::draw_rough(*microarch, static_cast<uint64_t>(seed));
    const arch::CacheGeometry g = model::geometry_of(*microarch, rough);
    const std::map<std::string, uint64_t> truth = {
        {"shape.l1d.size", g.l1_bytes},      {"shape.l1d.ways", g.l1_ways},
        {"shape.line", g.line_bytes},        {"shape.l2.size", g.l2_bytes},
        {"shape.l2.ways", g.l2_ways},        {"shape.dtlb.reach", g.dtlb_entries},
        {"shape.stlb.reach", g.stlb_entries}};
    const InferredShapes inferred = infer_on(*microarch, text);
    for (const auto& [name, value] : truth) {
      const auto found = inferred.clear.find(name);
      if (found == inferred.clear.end()) {
        ASSERT_TRUE(inferred.unclear.contains(name))
            << name << ", rough " << text << ": neither a number nor a reason";
        // Not clear, and said so.
        continue;
      }
      EXPECT_EQ(found->second, value) << name << ", rough " << text;
      ++clear[name];
    }
  }
  // What the first levels are shows on nearly every machine.
  for (const char* name : {"shape.l1d.size", "shape.l1d.ways", "shape.line", "shape.dtlb.reach"})
    EXPECT_GE(clear[name], machines - 1) << name;
}

INSTANTIATE_TEST_SUITE_P(Each, CachesOfModels,
                         testing::Values("core2", "sandy-bridge", "ice-lake"));

}  // namespace
}  // namespace skidproof
