#include "harness/errata/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace skidproof::errata {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Read {
  std::vector<InventoryItem> items;
  std::vector<std::string> problems;
};

Read read(const std::string& text) {
  std::istringstream stream(text);
  auto reader = InventoryReader::open(stream);
  Read found;
  if (!reader) {
    found.problems.push_back(reader.error().message);
    return found;
  }
  while (auto next = reader->next()) {
    if (*next) {
      found.items.push_back(**next);
    } else {
      found.problems.push_back(next->error().message);
    }
  }
  return found;
}

TEST(Inventory, ReadsJsonLines) {
  const Read found = read(
      R"({"host":"a","vendor":"GenuineIntel","family":6,"model":60,"stepping":3,"microcode":"0x1f","hyper_threading":true})"
      "\n\n"
      R"({"host":"b","family":"6","model":"0x2A","stepping":"7"})");
  ASSERT_EQ(found.items.size(), 2u) << found.problems.front();
  EXPECT_EQ(found.items[0].subject.part->microcode, 0x1Fu);
  EXPECT_EQ(found.items[0].subject.hyper_threading, true);
  EXPECT_EQ(found.items[1].subject.part->model, 0x2Au);
  EXPECT_EQ(found.items[1].subject.part->microcode, 0u);
  EXPECT_EQ(found.items[1].subject.hyper_threading, std::nullopt);
  EXPECT_EQ(found.items[1].line, 3u);
}

TEST(Inventory, ReadsCsvWithQuotesAndItsOwnOrder) {
  const Read found = read(
      "\xEF\xBB\xBFmodel,CPU family,hostname,stepping,microcode,Thread(s) per core\r\n"
      "60,6,\"rack 7, \"\"left\"\"\",3,0x1e,1\r\n");
  ASSERT_EQ(found.items.size(), 1u) << found.problems.front();
  EXPECT_EQ(found.items[0].host, "rack 7, \"left\"");
  EXPECT_EQ(found.items[0].subject.hyper_threading, false);
  EXPECT_EQ(found.items[0].subject.part->microcode, 0x1Eu);
}

TEST(Inventory, ReadsLscpuAndNodeExporter) {
  const Read found = read(
      R"({"host":"c","lscpu":[{"field":"Vendor ID:","data":"GenuineIntel","children":[{"field":"Model name:","data":"x","children":[{"field":"CPU family:","data":"6"},{"field":"Model:","data":"85"},{"field":"Thread(s) per core:","data":"2"},{"field":"Stepping:","data":"7"}]}]},{"field":"Hypervisor vendor:","data":"KVM"}]})"
      "\n"
      R"({"metric":{"__name__":"node_cpu_info","instance":"d:9100","core":"0","family":"6","model":"142","stepping":"11","microcode":"0xca","vendor":"GenuineIntel"},"value":[1,"1"]})");
  ASSERT_EQ(found.items.size(), 2u) << found.problems.front();
  EXPECT_EQ(found.items[0].subject.part->model, 85u);
  EXPECT_EQ(found.items[0].subject.hyper_threading, true);
  EXPECT_EQ(found.items[0].subject.hypervisor, "KVM");
  EXPECT_EQ(found.items[1].host, "d:9100");
  EXPECT_EQ(found.items[1].subject.part->microcode, 0xCAu);
}

TEST(Inventory, ReportsACorruptLineAndGoesOn) {
  const Read found =
      read(R"({"host":"a","family":6,"model":60,"stepping":3})"
           "\nnot JSON\n[1]\n"
           R"({"host":"b","family":6,"model":"sixty","stepping":3})"
           "\n"
           R"({"host":"c","family":6,"stepping":3})"
           "\n"
           R"({"host":"d","family":6,"model":60,"stepping":3,"microcode":"new"})"
           "\n" +
           std::string(100'000, '{') + "\n" + R"({"host":"e","family":6,"model":60,"stepping":3})");
  EXPECT_EQ(found.items.size(), 2u);
  EXPECT_EQ(found.problems.size(), 6u);
  EXPECT_THAT(found.problems,
              AllOf(Contains(HasSubstr("line 2: it is no JSON object")),
                    Contains(HasSubstr("line 4: its model is no number: sixty")),
                    Contains(HasSubstr("line 5: its model is not said")),
                    Contains(HasSubstr("line 6: its microcode")), Contains(HasSubstr("too long"))));
  EXPECT_THAT(read("host;model\n").problems, ElementsAre(HasSubstr("neither a JSON object nor")));
  EXPECT_THAT(read("family,model,stepping\n6,60\n").problems, ElementsAre(HasSubstr("2 cells")));
  EXPECT_THAT(read("family,model,stepping\n6,\"60,3\n").problems, ElementsAre(HasSubstr("quote")));
}

InventoryItem machine(const char* host, unsigned model, unsigned stepping, uint32_t microcode) {
  InventoryItem item{.line = 1, .host = host, .subject = {}};
  item.subject.vendor = "GenuineIntel";
  item.subject.part =
      arch::Part{.family = 6, .model = model, .stepping = stepping, .microcode = microcode};
  return item;
}

TEST(Inventory, JudgesAndAddsUp) {
  InventoryJudge judge(arch::ErrataCatalogue::built_in(), arch::Authority::kReport);
  const auto old = judge.judge(machine("a", 0x3C, 3, 0x1E));
  const auto mended = judge.judge(machine("b", 0x3C, 3, 0x1F));
  EXPECT_THAT(old->exposed, Contains("HSD159"));
  EXPECT_THAT(mended->exposed, Not(Contains("HSD159")));
  EXPECT_THAT(mended->fixed, Contains("HSD159"));
  EXPECT_EQ(mended->verdict, 2);
  InventoryItem guest = machine("c", 0x3C, 3, 0x1F);
  guest.subject.hypervisor = "KVM";
  EXPECT_EQ(judge.judge(guest)->verdict, 3);
  EXPECT_EQ(judge.by_verdict(), (std::array<uint64_t, 4>{0, 0, 2, 1}));
  uint64_t exposed = 0, fixed = 0;
  for (const auto& row : judge.summary()) {
    if (row.id != "HSD159") continue;
    exposed += row.exposed;
    fixed += row.fixed;
  }
  EXPECT_EQ(exposed, 1u);
  EXPECT_EQ(fixed, 1u);
}

TEST(Inventory, AMachineThatCameAlreadyIsNoOtherUnlessItChanged) {
  InventoryJudge judge(arch::ErrataCatalogue::built_in(), arch::Authority::kReport);
  EXPECT_TRUE(judge.judge(machine("a", 0x3C, 3, 0x1F)));
  EXPECT_FALSE(judge.judge(machine("a", 0x3C, 3, 0x1F)));
  EXPECT_TRUE(judge.judge(machine("a", 0x3C, 3, 0x1E)));
  EXPECT_THAT(judge.backwards(), ElementsAre(HasSubstr("a: 0x1f, then 0x1e")));
}

}  // namespace
}  // namespace skidproof::errata
