// The microarch rows: lookups, and facts against lists written out again from the manual.
#include "pebs/arch/microarch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "pebs/arch/architectural_record.h"
#include "pebs/arch/consistency.h"
#include "pebs/arch/generations.h"

namespace skidproof::arch {
namespace {

using testing::HasSubstr;

// The table is the rows that the sources define, whichever these are.
TEST(Microarchs, InOrderOfAgeWithTheNamesOfTheCommandLine) {
  const std::vector<std::string_view> known = {
      "netburst",        "core2",         "nehalem",        "westmere",       "sandy-bridge",
      "ivy-bridge",      "haswell",       "broadwell",      "skylake",        "goldmont",
      "goldmont-plus",   "ice-lake",      "tremont",        "alder-lake-p",   "alder-lake-e",
      "sapphire-rapids", "meteor-lake-p", "meteor-lake-e",  "sierra-forest",  "granite-rapids",
      "lunar-lake-p",    "lunar-lake-e",  "panther-lake-p", "panther-lake-e", "clearwater-forest"};
  std::vector<std::string_view> seen;
  std::set<std::string_view> names;
  std::pair<unsigned, unsigned> before;
  for (const Microarch* m : microarchs()) {
    EXPECT_TRUE(names.insert(m->name).second) << m->name << " twice";
    if (std::find(known.begin(), known.end(), m->name) != known.end()) seen.push_back(m->name);
    const std::pair<unsigned, unsigned> date = {m->introduced.year, m->introduced.month};
    EXPECT_GE(date, before) << m->name;
    before = date;
  }
  EXPECT_EQ(seen, known);
  EXPECT_EQ(names.size(), defined_microarchs().size());
}

TEST(Microarchs, SayWhenTheyWereIntroducedAndWhoSaysSo) {
  for (const Microarch* m : microarchs()) {
    SCOPED_TRACE(std::string(m->name));
    EXPECT_GE(m->introduced.year, 2000);
    EXPECT_LE(m->introduced.month, 12);
    EXPECT_THAT(std::string(m->introduced.source), testing::ContainsRegex(".+, .+"))
        << "document and section title";
  }
}

TEST(Microarchs, NamesAreWhatACommandLineTakes) {
  for (const Microarch* m : microarchs()) {
    EXPECT_THAT(std::string(m->name), testing::MatchesRegex("[a-z0-9][a-z0-9-]*[a-z0-9]"));
  }
}

TEST(Microarchs, FoundByName) {
  for (const Microarch* m : microarchs()) {
    const auto found = find_microarch(m->name);
    ASSERT_TRUE(found) << m->name;
    EXPECT_EQ(*found, m);
  }
}

TEST(Microarchs, UnknownNameListsTheNamesAndSuggests) {
  const auto found = find_microarch("sandybridge");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(found.error().message, HasSubstr("'sandybridge'"));
  EXPECT_THAT(found.error().advice, HasSubstr("Did you mean 'sandy-bridge'?"));
  EXPECT_THAT(found.error().advice, HasSubstr("nehalem, westmere, sandy-bridge, ivy-bridge"));
}

TEST(Microarchs, NothingNearSuggestsNothing) {
  const auto found = find_microarch("zen4");
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().advice, Not(HasSubstr("Did you mean")));
  EXPECT_THAT(found.error().advice, HasSubstr("Known: netburst, core2, nehalem"));
}

TEST(Identify, ByFamilyAndModel) {
  const std::vector<std::pair<uint8_t, const Microarch*>> parts = {
      {0x1A, &kNehalem},      {0x1E, &kNehalem},        {0x1F, &kNehalem},
      {0x2E, &kNehalem},      {0x25, &kWestmere},       {0x2C, &kWestmere},
      {0x2F, &kWestmere},     {0x2A, &kSandyBridge},    {0x2D, &kSandyBridge},
      {0x3A, &kIvyBridge},    {0x3E, &kIvyBridge},      {0x0F, &kCore2},
      {0x17, &kCore2},        {0x3C, &kHaswell},        {0x3F, &kHaswell},
      {0x3D, &kBroadwell},    {0x4F, &kBroadwell},      {0x5E, &kSkylake},
      {0x55, &kSkylake},      {0xA5, &kSkylake},        {0x7E, &kIceLake},
      {0x8C, &kIceLake},      {0xA7, &kIceLake},        {0x97, &kAlderLakeP},
      {0xBA, &kAlderLakeP},   {0x8F, &kSapphireRapids}, {0xCF, &kSapphireRapids},
      {0x5C, &kGoldmont},     {0x5F, &kGoldmont},       {0x7A, &kGoldmontPlus},
      {0x86, &kTremont},      {0x9C, &kTremont},        {0xBE, &kAlderLakeE},
      {0xAF, &kSierraForest}, {0x66, nullptr},          {0x37, nullptr},
      {0x00, nullptr}};
  for (const auto& [model, row] : parts) {
    const Microarch* found = identify(6, model);
    EXPECT_EQ(found == nullptr ? "" : found->name, row == nullptr ? "" : row->name) << int{model};
  }
  EXPECT_EQ(identify(0x0F, 0x2A), nullptr);
  EXPECT_EQ(identify(0x0F, 0x04), &kNetBurst);
}

TEST(Identify, TheTypeOfTheCoreDecidesOnHybridParts) {
  for (uint8_t model : {uint8_t{0x97}, uint8_t{0x9A}, uint8_t{0xB7}}) {
    EXPECT_EQ(identify(6, model, 2, CoreType::kCore), &kAlderLakeP);
    EXPECT_EQ(identify(6, model, 2, CoreType::kUnstated), &kAlderLakeP) << "its E-cores are off";
    EXPECT_EQ(identify(6, model, 2, CoreType::kAtom), &kAlderLakeE);
    EXPECT_TRUE(covers_other_cores(6, model));
  }
  EXPECT_EQ(identify(6, 0xAA, 4, CoreType::kAtom), &kMeteorLakeE);
  EXPECT_EQ(identify(6, 0xAA, 4, CoreType::kCore), &kMeteorLakeP);
  EXPECT_EQ(identify(6, 0xBE, 0, CoreType::kCore), nullptr) << "Gracemont alone";
  EXPECT_EQ(identify(6, 0xAD, 0, CoreType::kAtom), nullptr) << "Redwood Cove alone";
}

TEST(Identify, PartsWithEventsOfTheirOwnAreVariantsOfTheRow) {
  struct Part {
    uint8_t model, stepping;
    std::string_view name, title;
  };
  constexpr Part kParts[] = {{0x1A, 5, "nehalem", "Nehalem"},
                             {0x2E, 6, "nehalem", "Nehalem-EX"},
                             {0x2C, 2, "westmere", "Westmere"},
                             {0x25, 5, "westmere", "Westmere (06_25H)"},
                             {0x2F, 2, "westmere", "Westmere-EX"},
                             {0x2A, 7, "sandy-bridge", "Sandy Bridge"},
                             {0x2D, 7, "sandy-bridge", "Sandy Bridge-EP"},
                             {0x3F, 2, "haswell", "Haswell (server)"},
                             {0x3A, 9, "ivy-bridge", "Ivy Bridge"},
                             {0x3E, 4, "ivy-bridge", "Ivy Bridge-EP"},
                             {0x4F, 1, "broadwell", "Broadwell (server)"},
                             {0x56, 3, "broadwell", "Broadwell-DE"},
                             {0xA7, 1, "ice-lake", "Rocket Lake"},
                             {0x5E, 3, "skylake", "Skylake"},
                             {0x55, 4, "skylake", "Skylake (server)"},
                             {0x55, 5, "skylake", "Cascade Lake"},
                             {0x55, 7, "skylake", "Cascade Lake"},
                             {0x7E, 5, "ice-lake", "Ice Lake"},
                             {0x6A, 6, "ice-lake", "Ice Lake (server)"},
                             {0x8C, 1, "ice-lake", "Tiger Lake"},
                             {0x8F, 8, "sapphire-rapids", "Sapphire Rapids"},
                             {0xCF, 2, "sapphire-rapids", "Emerald Rapids"},
                             {0x86, 7, "tremont", "Tremont"},
                             {0x96, 1, "tremont", "Elkhart Lake"},
                             {0xAF, 3, "sierra-forest", "Sierra Forest"},
                             {0xB6, 0, "sierra-forest", "Grand Ridge"}};
  for (const Part& part : kParts) {
    const Microarch* found = identify(6, part.model, part.stepping);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->name, part.name);
    EXPECT_EQ(found->title, part.title);
  }
}

TEST(Identify, VariantsDifferInTheirEventsAndHaveTheRowsModels) {
  for (const Microarch* row : microarchs()) {
    for (const Microarch* part : row->variants) {
      SCOPED_TRACE(std::string(part->title));
      EXPECT_EQ(part->name, row->name);
      EXPECT_NE(part->title, row->title);
      EXPECT_TRUE(part->variants.empty());
      EXPECT_NE(part->events.data(), row->events.data());
      EXPECT_EQ(part->record, row->record);
      EXPECT_EQ(part->pebs_counters, row->pebs_counters);
      ASSERT_FALSE(part->models.empty());
      for (const CpuModel& cpu : part->models) {
        EXPECT_EQ(identify(cpu.family, cpu.model,
                           cpu.stepping < 0 ? uint8_t{15} : static_cast<uint8_t>(cpu.stepping)),
                  part);
        EXPECT_TRUE(std::any_of(row->models.begin(), row->models.end(), [&](const CpuModel& of) {
          return of.family == cpu.family && of.model == cpu.model;
        })) << int{cpu.model};
      }
    }
  }
}

// The periods that published sources give. [SDM 089 21.9.6; Linux 6.12 core.c …_limit_period; errata
// BJ103, HSD11, BDM11, BDM55]
TEST(Periods, TheLeastOfAnEventOnACounter) {
  const Event& loads = *kSapphireRapids.event(0xD0, 0x81);
  EXPECT_EQ(minimum_period(kSapphireRapids, 0, loads), 256U) << "PDist";
  EXPECT_EQ(minimum_period(kSapphireRapids, 1, loads), 1U);
  EXPECT_EQ(minimum_fixed_period(kSapphireRapids, 0), 256U);
  EXPECT_EQ(minimum_fixed_period(kSapphireRapids, 1), 1U);
  EXPECT_EQ(minimum_period(kHaswell, 3, *kHaswell.event(0xC4, 0x20)), 32U);
  EXPECT_EQ(minimum_period(kHaswell, 1, *kHaswell.event(0xC0, 0x01)), 128U);
  EXPECT_EQ(minimum_fixed_period(kHaswell, 1), 32U);
  EXPECT_EQ(minimum_period(kSandyBridge, 1, *kSandyBridge.event(0xC0, 0x01)), 100U);
  EXPECT_EQ(minimum_period(kSandyBridge, 1, *kSandyBridge.event(0xC4, 0x20)), 1U);
  EXPECT_EQ(minimum_period(kIvyBridge, 1, *kIvyBridge.event(0xC0, 0x01)), 1U) << "no such erratum";
  EXPECT_EQ(minimum_period(kNehalem, 0, *kNehalem.event(0xC0, 0x01)), 32U);
}

TEST(Periods, SustainedOnesAreOfTheMultipleThatPdirNeeds) {
  const Event& pdir = *kBroadwell.event(0xC0, 0x01);
  EXPECT_EQ(sustained_period(kBroadwell, 1, pdir, 1), 128U);
  EXPECT_EQ(sustained_period(kBroadwell, 1, pdir, 199), 256U);
  EXPECT_EQ(sustained_period(kBroadwell, 1, pdir, 256), 256U);
  EXPECT_EQ(sustained_period(kBroadwell, 1, *kBroadwell.event(0xC4, 0x20), 199), 199U);
  EXPECT_EQ(sustained_period(kSandyBridge, 1, *kSandyBridge.event(0xC0, 0x01), 50), 100U);
}

TEST(Identify, MinimumMicrocode) {
  EXPECT_EQ(minimum_microcode(kSandyBridge, 6, 0x2A, 7), 0x28U);
  EXPECT_EQ(minimum_microcode(kSandyBridge, 6, 0x2A, 5), 0U);
  EXPECT_EQ(minimum_microcode(kSandyBridge, 6, 0x2D, 6), 0x618U);
  EXPECT_EQ(minimum_microcode(kSandyBridge, 6, 0x2D, 7), 0x70CU);
  EXPECT_EQ(minimum_microcode(kIvyBridge, 6, 0x3A, 9), 0U);
}

// Table 18-31 and 18.9, once more.
TEST(Facts, WhatSandyBridgeAddsToWestmere) {
  for (const Microarch* m : {&kNehalem, &kWestmere}) {
    EXPECT_FALSE(m->full_width_writes);
    EXPECT_EQ(m->precise_store_counter, 0);
    EXPECT_EQ(m->pdir_counter, 0);
    EXPECT_EQ(m->fused_pair_skid, 1);
    EXPECT_FALSE(m->data_source_tlb_lock_bits);
    EXPECT_FALSE(m->full_buffer_sets_ovf);
    EXPECT_EQ(m->load_latency_event, 0x100B);
  }
  for (const Microarch* m : {&kSandyBridge, &kIvyBridge}) {
    EXPECT_TRUE(m->full_width_writes);
    EXPECT_EQ(m->precise_store_counter, 0b1000);
    EXPECT_EQ(m->pdir_counter, 0b0010);
    EXPECT_EQ(m->fused_pair_skid, 2);
    EXPECT_TRUE(m->data_source_tlb_lock_bits);
    EXPECT_TRUE(m->full_buffer_sets_ovf);
    EXPECT_EQ(m->load_latency_event, 0x01CD);
  }
  for (const Microarch* m : {&kNehalem, &kWestmere, &kSandyBridge, &kIvyBridge}) {
    EXPECT_EQ(m->pebs_counters, 0x0F) << m->name;
    EXPECT_EQ(m->load_latency_counters, 0x08) << m->name;
    EXPECT_EQ(m->record->format, 1) << m->name;
  }
}

// Tables 18-10, 18-11, 18-43, 18-54, and Intel's lists.
TEST(Facts, RecordFormatsAndCountersByGeneration) {
  using FormatRow = std::tuple<const Microarch*, unsigned, unsigned, unsigned, unsigned, unsigned>;
  const std::vector<FormatRow> rows = {
      // format, version, PEBS on PMCn, on fixed counters, load latency
      {&kCore2, 0, 2, 0x01, 0, 0},
      {&kNehalem, 1, 3, 0x0F, 0, 0x08},
      {&kHaswell, 2, 3, 0x0F, 0, 0x08},
      {&kBroadwell, 2, 3, 0x0F, 0, 0x08},
      {&kSkylake, 3, 4, 0x0F, 0, 0x0F},
      {&kIceLake, 4, 5, 0xFF, 0xF, 0xFF},
      {&kAlderLakeP, 4, 5, 0xFF, 0xF, 0xFE},
      {&kSapphireRapids, 4, 5, 0xFF, 0xF, 0xFE},
      {&kGoldmont, 3, 4, 0x01, 0, 0},
      {&kGoldmontPlus, 3, 4, 0x0F, 0x7, 0},
      {&kTremont, 4, 5, 0x0F, 0x7, 0},
      {&kAlderLakeE, 4, 5, 0x3F, 0x7, 0x03},
      {&kMeteorLakeE, 5, 5, 0xFF, 0x7, 0x03},
      {&kSierraForest, 5, 5, 0xFF, 0x7, 0x03}};
  for (const auto& [m, format, version, counters, fixed, latency] : rows) {
    EXPECT_EQ(m->record->format, format) << m->name;
    EXPECT_EQ(m->perfmon_version, version) << m->name;
    EXPECT_EQ(m->streamlined_freeze(), version >= 4) << m->name;
    EXPECT_EQ(m->pebs_counters, counters) << m->name;
    EXPECT_EQ(m->pebs_fixed_counters, fixed) << m->name;
    EXPECT_EQ(m->load_latency_counters, latency) << m->name;
  }
}

TEST(Facts, WhereTheDistributionIsPrecise) {
  for (const Microarch* m : {&kHaswell, &kBroadwell, &kSkylake}) {
    EXPECT_EQ(m->pdir_counter, 0b10) << m->name;
    EXPECT_EQ(m->pdir_fixed_counter, 0) << m->name;
  }
  for (const Microarch* m : {&kIceLake, &kAlderLakeP, &kSapphireRapids}) {
    EXPECT_EQ(m->pdir_counter, 0) << m->name;
    EXPECT_EQ(m->pdir_fixed_counter, 1) << m->name;
    ASSERT_NE(m->event_on_fixed(0), nullptr);
    EXPECT_EQ(m->event_on_fixed(0)->signal, Signal::kInstructions);
    EXPECT_EQ(m->event(0x00, 0x01), nullptr) << "no event select takes it";
  }
  EXPECT_EQ(kIceLake.pdist_counters, 0);
  EXPECT_EQ(kAlderLakeP.pdist_counters, 1);
  EXPECT_EQ(kSapphireRapids.pdist_counters, 1);
}

// SDM 089 Tables 21-53, 21-70, 21-75, 21-76, 21.9.4.
TEST(Facts, WhatEfficientCoresHave) {
  for (const Microarch* m : {&kGoldmont, &kGoldmontPlus, &kTremont}) {
    EXPECT_EQ(m->reduced_skid_counters, 1) << m->name;
    EXPECT_EQ(m->pdist_counters, 0) << m->name;
    EXPECT_EQ(m->load_latency_event, 0) << m->name;
    EXPECT_TRUE(m->out_of_bounds_signalled) << m->name;
  }
  for (const Microarch* m : {&kAlderLakeE, &kMeteorLakeE, &kSierraForest}) {
    EXPECT_EQ(m->reduced_skid_counters, 0) << m->name;
    EXPECT_EQ(m->pdist_counters, 1) << m->name;
    EXPECT_EQ(m->pdir_fixed_counter, 1) << m->name;
    EXPECT_FALSE(m->pdir_records_next) << m->name;
    EXPECT_EQ(m->load_latency_event, 0x05D0) << m->name;
    EXPECT_EQ(m->event(0xD0, 0x06)->kind, EventKind::kStoreSample) << m->name;
    EXPECT_EQ(m->event(0xD0, 0x06)->counters, m->store_sample_counter) << m->name;
    EXPECT_EQ(m->event(0xD0, 0x05)->counters, m->load_latency_counters) << m->name;
  }
  for (const Microarch* m : microarchs()) {
    const bool efficient = m->core == CoreType::kAtom;
    const bool one_thread = efficient || m == &kLunarLakeP || m == &kPantherLakeP;
    EXPECT_EQ(m->hyper_threading, !one_thread) << m->name;
    EXPECT_EQ(m->fusion_published, !efficient) << m->name;
    if (!efficient) continue;
    EXPECT_TRUE(m->distributes(*m->event(0xD0, 0x81))) << m->name;
    const Event* uops = m->event(0xC2, 0x00);
    EXPECT_EQ(uops == nullptr, m == &kClearwaterForest) << m->name;
    if (uops != nullptr) {
      EXPECT_FALSE(m->distributes(*uops)) << m->name << ": UOPS_RETIRED";
      EXPECT_EQ(uops->signal, Signal::kUops)
          << m->name << ": not TOPDOWN_RETIRING.ALL, of which the model knows nothing";
    }
    EXPECT_EQ(m->arming_counters() & m->pdist_counters, 0U) << m->name;
  }
  EXPECT_TRUE(kGoldmont.any_thread);
  EXPECT_TRUE(kGoldmontPlus.deprecates_any_thread());
  EXPECT_FALSE(kGoldmontPlus.reserves_any_thread()) << "no effect, by 21.5.4";
  EXPECT_TRUE(kTremont.reserves_any_thread());
  EXPECT_EQ(kGoldmontPlus.ds.fixed_counter_reset(0), 0x80U) << "of format 3, too";
}

// SDM 089 21.9, 21.6.2.4.2: Golden Cove has Ice Lake's format and reset slots, and no retire latency;
// its latency field has two halves all the same.
TEST(Facts, GoldenCoveIsOfFormatFour) {
  for (const Microarch* m : {&kAlderLakeP, &kSapphireRapids}) {
    EXPECT_EQ(m->record, &kRecordFormat4Split) << m->name;
    EXPECT_EQ(m->ds.fixed_counter_reset(0), 0x80U) << m->name;
    EXPECT_FALSE(m->pebs_timing_info) << m->name;
    EXPECT_EQ(m->load_latency_auxiliary, 0x8203) << m->name;
    const Event* auxiliary = m->event(0x03, 0x82);
    ASSERT_NE(auxiliary, nullptr);
    EXPECT_EQ(auxiliary->counters, m->load_latency_auxiliary_counters);
    EXPECT_EQ(m->event(0x3C, 0x01)->signal, Signal::kReferenceCycles) << "REF_TSC_P";
  }
  EXPECT_EQ(kIceLake.load_latency_auxiliary, 0);
}

// SDM 089 Tables 21-57 and 21-58, 21.2.6, 21.2.9, and Intel's list.
TEST(Facts, LionCoveIsOfVersionSixAndFormatSix) {
  const Microarch& m = kLunarLakeP;
  EXPECT_EQ(m.perfmon_version, 6);
  EXPECT_EQ(m.gp_counters, 8) << "CPUID.0AH counts no more";
  EXPECT_EQ(m.extended.gp, 0x3FFU);
  EXPECT_EQ(m.fixed_counters, 3) << "what the E-cores have, too";
  EXPECT_EQ(m.extended.fixed, 0xFU);
  EXPECT_TRUE(m.extended.leaf && m.extended.umask2 && m.extended.equal);
  EXPECT_EQ(m.extended.slots, m.caches.slots);
  EXPECT_EQ(m.architectural_events, 12);
  EXPECT_EQ(m.record, &kRecordFormat6);
  EXPECT_EQ(m.ds.fixed_counter_reset(0), 0x140U);
  EXPECT_TRUE(m.pebs_counters_group && m.metrics_clear && m.pebs_timing_info);
  EXPECT_EQ(m.pdist_counters, 0b11);
  EXPECT_EQ(m.event(0xCD, 0x01)->counters, 0x3FC) << "load latency on PMC2 to PMC9";
  EXPECT_EQ(m.event(0xCD, 0x02)->counters, 0x003) << "store samples on PMC0 and PMC1";
  EXPECT_EQ(m.event(0xD0, 0x81)->counters, 0x00F);
  EXPECT_EQ(m.event(0xC4, 0x11), nullptr) << "UMASK2 is part of it";
  EXPECT_EQ(m.event(0xC4, 0x11, 0x01)->name, "BR_INST_RETIRED.COND");
  EXPECT_EQ(m.event(0xC4, 0x11, 0x01)->select_fields(), 0x100'0000'11C4U);
  EXPECT_EQ(identify(6, 0xBD, 1, CoreType::kCore), &kLunarLakeP);
}

// SDM 089 Table 21-59, 21.10; Vol. 4 Table 2-60, and Intel's list.
TEST(Facts, SkymontHasTopDownCountersAndAutoReload) {
  const Microarch& m = kLunarLakeE;
  EXPECT_EQ(m.perfmon_version, 6);
  EXPECT_EQ(m.extended.gp, 0xFFU);
  EXPECT_EQ(m.extended.fixed, 0x77U) << "all but 3";
  EXPECT_FALSE(m.perf_metrics);
  EXPECT_EQ(m.record, &kRecordFormat6);
  EXPECT_EQ(m.extended.reloaded_gp, 0xFCU);
  EXPECT_EQ(m.extended.reloading_fixed, 0x03U);
  EXPECT_FALSE(kLunarLakeP.extended.auto_reload());
  EXPECT_EQ(m.event_on_fixed(6)->name, "TOPDOWN_RETIRING.ALL");
  EXPECT_EQ(m.event(0xD0, 0x05)->counters, 0x03);
  EXPECT_EQ(m.event(0xD0, 0x06)->kind, EventKind::kStoreSample);
  EXPECT_EQ(identify(6, 0xBD, 1, CoreType::kAtom), &kLunarLakeE);
}

// As CPUID leaf 23H of such parts says it, and Intel's lists.
TEST(Facts, CougarCoveAndDarkmontHaveArchitecturalPebs) {
  for (const Microarch* m : microarchs()) {
    const bool arch_pebs = m == &kPantherLakeP || m == &kPantherLakeE || m == &kClearwaterForest;
    EXPECT_EQ(m->architectural_pebs(), arch_pebs) << m->name;
    EXPECT_EQ(m->extended.pebs, arch_pebs) << m->name;
    EXPECT_EQ(m->pebs_in_ds_area(), !arch_pebs) << m->name;
    if (!arch_pebs) continue;
    SCOPED_TRACE(std::string(m->name));
    EXPECT_EQ(m->record, &kArchitecturalRecord);
    EXPECT_EQ(m->record->format, kArchitecturalFormat);
    EXPECT_EQ(m->extended.pebs_gp, m->pebs_counters);
    EXPECT_EQ(m->extended.pebs_fixed, m->pebs_fixed_counters);
    EXPECT_EQ(m->extended.pdist_gp, m->pdist_counters);
    EXPECT_EQ(m->extended.pdist_fixed, m->pdir_fixed_counter);
    EXPECT_EQ(m->extended.pebs_gp & ~m->extended.gp, 0U);
    EXPECT_TRUE(m->records_counters());
    EXPECT_FALSE(m->pebs_baseline);
    EXPECT_EQ(m->event(0xD0, 0x05) != nullptr ? m->event(0xD0, 0x05)->counters : 0xFFU, 0xFFU);
  }
  EXPECT_EQ(kPantherLakeP.event(0xCD, 0x01)->counters, 0x3FC);
  EXPECT_EQ(kPantherLakeP.event(0xCD, 0x02)->counters, 0x003);
  EXPECT_TRUE(kClearwaterForest.extended.auto_reload());
  EXPECT_FALSE(kPantherLakeP.extended.auto_reload());
  for (uint8_t model : {0xCC, 0xD5, 0xE5}) {
    EXPECT_EQ(identify(6, model, 1, CoreType::kCore), &kPantherLakeP);
    EXPECT_EQ(identify(6, model, 1, CoreType::kAtom), &kPantherLakeE);
  }
  EXPECT_EQ(identify(6, 0xDD), &kClearwaterForest);
}

// More than a page of PEBS buffer hangs a Core 2. [Linux 6.12 ds.c]
TEST(Facts, OnlyCoreTwoLimitsTheBuffer) {
  for (const Microarch* m : microarchs()) {
    EXPECT_EQ(m->pebs_buffer_limit_bytes, m == &kCore2 ? 4096U : 0U) << m->name;
  }
}

// Table 18-43: precise store is gone, DataLA instead. STORE_SAMPLE is Golden Cove's.
TEST(Facts, StoreFacilities) {
  for (const Microarch* m : microarchs()) {
    SCOPED_TRACE(std::string(m->name));
    const bool data_la = m->record->format >= 2;
    bool any = false;
    for (const Event& e : m->events) {
      any |= e.data_address;
      EXPECT_TRUE(!e.l1_hit_bit || e.data_address) << e.name;
    }
    EXPECT_EQ(any, data_la);
    EXPECT_TRUE(!data_la || m->precise_store_counter == 0);
    if (!data_la) continue;
    // Darkmont's lists say it of load and store latency alone.
    const bool says_so = m->core == CoreType::kCore || m->pebs_in_ds_area();
    EXPECT_EQ(m->event(0xD0, 0x81)->data_address, says_so);
    if (m->core == CoreType::kAtom) continue;  // nothing of the L1
    for (uint8_t umask : {uint8_t{0x12}, uint8_t{0x42}, uint8_t{0x82}}) {
      EXPECT_TRUE(m->event(0xD0, umask)->l1_hit_bit) << int{umask};
    }
    EXPECT_FALSE(m->event(0xD0, 0x81)->l1_hit_bit);
  }
  EXPECT_EQ(kSkylake.event(0xCD, 0x02), nullptr);
  EXPECT_EQ(kSapphireRapids.event(0xCD, 0x02)->kind, EventKind::kStoreSample);
  EXPECT_EQ(kSapphireRapids.event(0xCD, 0x02)->counters, kSapphireRapids.store_sample_counter);
}

// R33 is asserted but for the combinations that published PEBS encodings use.
TEST(Facts, DisputedQualifiersAreThoseOfPublishedEncodings) {
  const unsigned cmask = qualifiers(false, false, false, true);
  const unsigned inverted = qualifiers(false, false, true, true);
  EXPECT_EQ(cmask, 8U);
  EXPECT_EQ(inverted, 12U);
  for (const Microarch* m : microarchs()) {
    SCOPED_TRACE(std::string(m->name));
    EXPECT_TRUE(m->disputed_qualifiers >> inverted & 1) << "cycles are sampled so";
    EXPECT_EQ(m->disputed_qualifiers & 1, 0) << "no qualifier is no combination";
    for (const Event& e : m->events) {
      if (!e.precise() || (e.cmask == 0 && !e.invert)) continue;
      const unsigned combination = qualifiers(false, false, e.invert, e.cmask != 0);
      EXPECT_TRUE(m->disputed_qualifiers >> combination & 1) << e.name;
    }
  }
  EXPECT_EQ(kNehalem.disputed_qualifiers, (1U << 8) | (1U << 12));
  EXPECT_EQ(kSandyBridge.disputed_qualifiers, 1U << 12);
  // Where events that are not precise are sampled, Intel's lists sample some with CMASK, with INV or
  // Edge or both beside it; none with Edge or INV alone.
  for (const Microarch* m : {&kIceLake, &kAlderLakeP, &kSapphireRapids}) {
    EXPECT_EQ(m->disputed_qualifiers, (1U << 8) | (1U << 10) | (1U << 12) | (1U << 14)) << m->name;
  }
}

// The rows, and the variants of each.
std::vector<const Microarch*> all_parts() {
  std::vector<const Microarch*> all;
  for (const Microarch* m : microarchs()) {
    all.push_back(m);
    all.insert(all.end(), m->variants.begin(), m->variants.end());
  }
  return all;
}

// consistency_test.cc shows what this finds.
TEST(Events, TablesAreConsistent) {
  for (const Microarch* m : all_parts()) {
    const auto found = consistent(*m);
    EXPECT_TRUE(found) << m->title << ": " << found.error().message;
    for (const Event& e : m->events) EXPECT_LT(index(e.signal), kSignals) << e.name;
  }
}

TEST(Events, TheSpecialOnesAgreeWithTheRow) {
  for (const Microarch* m : all_parts()) {
    SCOPED_TRACE(std::string(m->name));
    if (m->load_latency_event == 0) {
      EXPECT_EQ(m->load_latency_counters, 0);
      continue;
    }
    const Event* latency = m->event(static_cast<uint8_t>(m->load_latency_event & 0xFF),
                                    static_cast<uint8_t>(m->load_latency_event >> 8));
    ASSERT_NE(latency, nullptr);
    EXPECT_EQ(latency->kind, EventKind::kLoadLatency);
    EXPECT_EQ(latency->counters, m->load_latency_counters);
    for (const Event& e : m->events) {
      if (e.kind == EventKind::kPreciseStore) {
        EXPECT_EQ(e.counters, m->precise_store_counter);
      }
      if (e.kind == EventKind::kPdir) {
        EXPECT_TRUE((e.pebs_counters & m->pdir_counter) != 0 ||
                    (e.fixed_counters & m->pdir_fixed_counter) != 0);
      }
    }
  }
  EXPECT_EQ(kNehalem.event(0xCD, 0x02), nullptr);
  EXPECT_EQ(kSandyBridge.event(0xCD, 0x02)->kind, EventKind::kPreciseStore);
  EXPECT_EQ(kSandyBridge.event(0xC0, 0x01)->kind, EventKind::kPdir);
}

using Codes = std::vector<std::pair<uint8_t, std::vector<uint8_t>>>;

void expect_precise(const Microarch& m, const Codes& codes) {
  for (const auto& [code, umasks] : codes) {
    for (uint8_t umask : umasks) {
      SCOPED_TRACE(testing::Message()
                   << m.name << " " << std::hex << int{code} << "H/" << int{umask} << "H");
      const Event* event = m.event(code, umask);
      ASSERT_NE(event, nullptr);
      EXPECT_TRUE(event->precise());
      EXPECT_EQ(event->cmask, 0);
    }
  }
}

// SDM Table 18-32 "PEBS Performance Events for Intel Microarchitecture Code Name Sandy Bridge".
TEST(Events, SandyBridgeHasAllOfTable18_32) {
  expect_precise(kSandyBridge, {{0xC0, {0x01}},
                                {0xC2, {0x01, 0x02}},
                                {0xC4, {0x01, 0x02, 0x04, 0x08, 0x20}},
                                {0xC5, {0x01, 0x02, 0x04, 0x10, 0x20}},
                                {0xD0, {0x11, 0x12, 0x21, 0x41, 0x42, 0x81, 0x82}},
                                {0xD1, {0x01, 0x02, 0x04, 0x40}},
                                {0xD2, {0x01, 0x02, 0x04, 0x08}},
                                {0xCD, {0x01, 0x02}}});
}

TEST(Events, IvyBridgeList) {
  expect_precise(kIvyBridge, {{0xC0, {0x01}},
                              {0xC2, {0x01, 0x02}},
                              {0xC4, {0x01, 0x02, 0x04, 0x08, 0x20}},
                              {0xC5, {0x01, 0x04, 0x20}},
                              {0xD0, {0x11, 0x12, 0x21, 0x41, 0x42, 0x81, 0x82}},
                              {0xD1, {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40}},
                              {0xD2, {0x01, 0x02, 0x04, 0x08}},
                              {0xCD, {0x01, 0x02}}});
  EXPECT_EQ(kIvyBridge.event(0xC5, 0x10), nullptr);
}

TEST(Events, NehalemAndWestmereLists) {
  const Codes common = {{0x0B, {0x01, 0x02, 0x10}},
                        {0x0C, {0x01}},
                        {0xC0, {0x01, 0x02, 0x04}},
                        {0xC2, {0x01, 0x02, 0x04}},
                        {0xC4, {0x01, 0x02, 0x04}},
                        {0xC5, {0x02}},
                        {0xC7, {0x01, 0x02, 0x04, 0x08, 0x10}},
                        {0xC8, {0x20}},
                        {0xCB, {0x01, 0x02, 0x04, 0x08, 0x10, 0x40, 0x80}},
                        {0xF7, {0x01, 0x02, 0x04}}};
  expect_precise(kNehalem, common);
  expect_precise(kWestmere, common);
  expect_precise(kNehalem, {{0x0F, {0x02, 0x08, 0x10, 0x20, 0x80}}});
  expect_precise(kWestmere, {{0xC5, {0x01, 0x04}}});
  EXPECT_EQ(kNehalem.event(0xC5, 0x04), nullptr);
  EXPECT_EQ(kWestmere.event(0x0F, 0x20), nullptr);
}

// SDM Tables 18-10 and 18-56.
TEST(Events, CoreTwoAndSkylakeTables) {
  expect_precise(kCore2, {{0xC0, {0x00}},
                          {0xC1, {0xFE}},
                          {0xC5, {0x00}},
                          {0xC7, {0x1F}},
                          {0xCB, {0x01, 0x02, 0x04, 0x08, 0x10}}});
  expect_precise(kSkylake, {{0xC0, {0x01}},
                            {0xC1, {0x3F}},
                            {0xC4, {0x01, 0x02, 0x04, 0x08, 0x20, 0x40}},
                            {0xC5, {0x01, 0x04, 0x20}},
                            {0xC6, {0x01}},
                            {0xC8, {0x04}},
                            {0xC9, {0x04}},
                            {0xD0, {0x21, 0x41, 0x42, 0x81, 0x82}},
                            {0xD1, {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40}},
                            {0xD2, {0x01, 0x02, 0x04, 0x08}}});
  EXPECT_EQ(kSkylake.event("INST_RETIRED.TOTAL_CYCLES_PS")->cmask, 10);
}

// FormatRow counts of the published lists, the load latency event added, and the seven architectural
// events.
TEST(Events, NothingElseIsListed) {
  EXPECT_EQ(kNehalem.events.size(), 39U + 1 + 7);
  EXPECT_EQ(kWestmere.events.size(), 36U + 1 + 7);
  EXPECT_EQ(kSandyBridge.events.size(), 31U + 1 + 7);
  // One that is counted and not sampled.
  EXPECT_EQ(kIvyBridge.events.size(), 31U + 1 + 7 + 1);
  // Table 18-10 has nine; two of the architectural encodings are among them. Uops, and fused pairs.
  EXPECT_EQ(kCore2.events.size(), 9U + 5 + 2);
  EXPECT_EQ(kHaswell.events.size(), 33U + 1 + 7);
  EXPECT_EQ(kBroadwell.events.size(), 34U + 1 + 7);
  // Skylake on: FRONTEND_RETIRED too, and OTHER_ASSISTS of Table 18-56; retirement slots, fused pairs and
  // branches not taken, which are counted and not sampled.
  EXPECT_EQ(kSkylake.events.size(), 35U + 2 + 1 + 7 + 3);
  // The slots; three architectural encodings are in the list itself.
  EXPECT_EQ(kIceLake.events.size(), 42U + 2 + 1 + 4 + 1);
  // And what load latency needs beside it.
  EXPECT_EQ(kAlderLakeP.events.size(), 47U + 2 + 1 + 4 + 2);
  EXPECT_EQ(kSapphireRapids.events.size(), 51U + 2 + 1 + 4 + 2);
}

// intel/perfmon: what the lists of these parts have beside those of their rows, and lack.
TEST(Events, ListsOfServersAndOtherVariants) {
  const auto part = [](uint8_t model, uint8_t stepping) { return identify(6, model, stepping); };
  const auto precise = [](const Microarch* m, uint8_t code, uint8_t umask) {
    const Event* event = m->event(code, umask);
    return event != nullptr && event->precise();
  };
  for (uint8_t umask : {uint8_t{0x02}, uint8_t{0x08}, uint8_t{0x20}}) {
    EXPECT_TRUE(precise(part(0x1A, 5), 0x0F, umask));
    EXPECT_FALSE(precise(part(0x2E, 6), 0x0F, umask)) << "Nehalem-EX has no 0FH";
    EXPECT_TRUE(precise(part(0x25, 5), 0x0F, umask));
    EXPECT_FALSE(precise(part(0x2C, 2), 0x0F, umask));
  }
  EXPECT_EQ(part(0x25, 5)->event(0x0F, 0x10)->signal, Signal::kLoadsL3Miss)
      << "not 20H, as Nehalem";
  EXPECT_EQ(part(0x2F, 2)->event(0x0F, 0x08)->signal, Signal::kLoadsL3Miss);
  EXPECT_TRUE(precise(part(0x2F, 2), 0x0F, 0x04));

  for (const auto& [code, umask] : {std::pair<uint8_t, uint8_t>{0xD1, 0x04},
                                    {0xD2, 0x01},
                                    {0xD2, 0x02},
                                    {0xD2, 0x04},
                                    {0xD2, 0x08}}) {
    EXPECT_TRUE(precise(part(0x2A, 7), code, umask));
    EXPECT_FALSE(precise(part(0x2D, 7), code, umask)) << "JKT counts it only";
  }
  EXPECT_EQ(part(0x2D, 7)->event(0xD1, 0x04)->signal, Signal::kLoadsL3Hit);
  for (uint8_t umask : {uint8_t{0x04}, uint8_t{0x10}, uint8_t{0x20}}) {
    EXPECT_FALSE(precise(part(0x3C, 3), 0xD3, umask));
    EXPECT_TRUE(precise(part(0x3F, 2), 0xD3, umask));
    EXPECT_TRUE(precise(part(0x4F, 1), 0xD3, umask));
  }
  EXPECT_TRUE(precise(part(0x55, 4), 0xD3, 0x08));
  EXPECT_FALSE(precise(part(0x55, 7), 0xD3, 0x08));
  EXPECT_TRUE(precise(part(0x55, 7), 0xD1, 0x80));
  EXPECT_FALSE(precise(part(0x55, 4), 0xD1, 0x80));
  EXPECT_FALSE(part(0x55, 4)->sgx);
  EXPECT_TRUE(precise(part(0x6A, 6), 0xD3, 0x10));
  EXPECT_EQ(part(0x8C, 1)->event(0xD2, 0x02)->name, "MEM_LOAD_L3_HIT_RETIRED.XSNP_NO_FWD");
  EXPECT_EQ(part(0x7E, 5)->event(0xD2, 0x02)->name, "MEM_LOAD_L3_HIT_RETIRED.XSNP_HIT");
  EXPECT_TRUE(precise(part(0x8F, 8), 0xD1, 0x80));
  EXPECT_FALSE(precise(part(0xCF, 2), 0xD1, 0x80));
}

TEST(Events, SomeCountOnTheFirstFourOnly) {
  for (const Microarch* m : {&kSandyBridge, &kIvyBridge, &kHaswell, &kBroadwell, &kSkylake}) {
    EXPECT_EQ(m->event(0xC4, 0x04)->counters, 0x0F) << m->name;
    EXPECT_EQ(m->event(0xC5, 0x04)->counters, 0x0F) << m->name;
  }
  EXPECT_EQ(kHaswell.event(0xC9, 0x04)->counters, 0x0F);
  EXPECT_EQ(kBroadwell.event(0xC9, 0x04)->counters, 0x0F);
  EXPECT_EQ(kHaswell.event(0xC8, 0x04)->counters, 0xFF);
}

TEST(Events, SlotsAreCountedAndNotPrecise) {
  for (const Microarch* m : {&kIceLake, &kAlderLakeP, &kSapphireRapids}) {
    const Event* slots = m->event_on_fixed(3);
    ASSERT_NE(slots, nullptr);
    EXPECT_FALSE(slots->precise()) << m->name;
    EXPECT_EQ(slots->signal, Signal::kSlots);
  }
}

TEST(Events, ArchitecturalOnesCountEverywhereWithoutPebs) {
  const std::vector<std::tuple<uint8_t, uint8_t, Signal>> architectural = {
      {0x3C, 0x00, Signal::kCycles},       {0x3C, 0x01, Signal::kBusCycles},
      {0xC0, 0x00, Signal::kInstructions}, {0x2E, 0x4F, Signal::kLlcReferences},
      {0x2E, 0x41, Signal::kLlcMisses},    {0xC4, 0x00, Signal::kBranches},
      {0xC5, 0x00, Signal::kMispredicts}};
  for (const Microarch* m : microarchs()) {
    if (!m->architectural_perfmon()) continue;
    for (const auto& [code, umask, signal] : architectural) {
      SCOPED_TRACE(testing::Message() << m->name << " " << std::hex << int{code} << int{umask});
      const Event* event = m->event(code, umask);
      ASSERT_NE(event, nullptr);
      // Golden Cove counts 3CH/01H at the TSC's rate, the others at the bus's.
      const bool tsc = signal == Signal::kBusCycles && m->caches.bus_ratio == 1;
      EXPECT_EQ(event->signal, tsc ? Signal::kReferenceCycles : signal);
      // Core 2 samples two of them, Ice Lake three.
      if (m->record->format >= 1 && !m->pebs_any_event) {
        EXPECT_FALSE(event->precise());
      }
      EXPECT_EQ(event->counters, ((1U << m->gp_counters_alone) - 1) | m->extended.gp);
    }
  }
}

TEST(Events, MemoryEventsOfSandyBridgeCountOnTheFirstFourOnly) {
  for (const Microarch* m : {&kSandyBridge, &kIvyBridge}) {
    for (const Event& e : m->events) {
      if (e.code >= 0xD0 && e.code <= 0xD3) {
        EXPECT_EQ(e.counters, 0x0F) << e.name;
      }
    }
    EXPECT_EQ(m->event(0xC4, 0x20)->counters, 0xFF);
    EXPECT_EQ(m->event(0xC4, 0x20)->pebs_counters, 0x0F);
  }
}

// Where a figure is published the model is no faster.
TEST(Latencies, ArePublishedOfTheFirstLevelsAndHoldForTheModel) {
  size_t figures = 0;
  for (const Microarch* m : microarchs()) {
    SCOPED_TRACE(std::string(m->name));
    EXPECT_EQ(m->fastest_latency(3), nullptr) << "another clock's";
    for (const FastestLatency& one : m->latencies) {
      EXPECT_EQ(m->fastest_latency(one.level), &one);
      EXPECT_GE(one.level == 1 ? m->caches.l1_latency : m->caches.l2_latency, one.cycles);
      EXPECT_NE(one.source.find("248966"), std::string_view::npos);
      ++figures;
    }
  }
  EXPECT_GT(figures, 0u);
}

TEST(Events, ANameWithSeveralEncodingsGivesThePlainPreciseOne) {
  const Event* any = kNehalem.event("INST_RETIRED.ANY_P");
  ASSERT_NE(any, nullptr);
  EXPECT_EQ(any->select(), 0x01C0);
  EXPECT_TRUE(any->precise());
  const Event* branches = kNehalem.event("BR_INST_RETIRED.ALL_BRANCHES");
  ASSERT_NE(branches, nullptr);
  EXPECT_EQ(branches->select(), 0x04C4);
  EXPECT_EQ(kNehalem.event("INST_RETIRED.ALL"), nullptr);
}

TEST(Events, AnEncodingGivesThePlainRow) {
  const Event* plain = kNehalem.event(0xC2, 0x01);
  ASSERT_NE(plain, nullptr);
  EXPECT_EQ(plain->name, "UOPS_RETIRED.ANY");
  EXPECT_EQ(kNehalem.event("UOPS_RETIRED.STALL_CYCLES")->cmask, 1);
  EXPECT_TRUE(kNehalem.event("UOPS_RETIRED.STALL_CYCLES")->invert);
  EXPECT_EQ(kNehalem.event("INST_RETIRED.TOTAL_CYCLES_PS")->kind, EventKind::kPebsOnly);
}

}  // namespace
}  // namespace skidproof::arch
