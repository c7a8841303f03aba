// Skymont (Lunar Lake's E-core): architectural version 6, PEBS record format 6, auto counter reload; and Darkmont (Panther Lake's,
// and Clearwater Forest), the same counters with architectural PEBS.
//
// Sources: Intel's event list; Intel SDM Vol. 3 (325384-089), 21.3.11.2 with Table 21-59, 21.3.10.2 "E-core Performance
// Monitoring Unit", 21.9, 21.10 "Auto Counter Reload"; Vol. 4 (335592-089), Tables 2-2 and 2-60; Linux 6.16
// arch/x86/events/intel/core.c intel_skt_…, and ds.c for the word of an access.
// Of Darkmont: what Skymont has, as Linux takes it for the same (core.c, the models behind Lunar Lake's); Linux, as posted in
// "arch-PEBS enabling for Intel platforms" v9. Which counters have PEBS CPUID leaf 23H says; here all have, and PDist those of the
// event lists.
#include <array>

#include "pebs/arch/event_table.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/perfmon/clearwater_forest.h"
#include "pebs/arch/perfmon/lunar_lake_e.h"
#include "pebs/arch/perfmon/panther_lake_e.h"

namespace skidproof::arch {

namespace {

constexpr std::array<Event, 0> kNoOtherEvents = {};
constexpr uint16_t kAsListed = 0;  // where PEBS takes each event
constexpr auto kLunarLakeETable =
    perfmon::events_of<perfmon::kLunarLakeE, kNoOtherEvents, kAsListed>();
constexpr auto kPantherLakeETable =
    perfmon::events_of<perfmon::kPantherLakeE, kNoOtherEvents, kAsListed>();
constexpr auto kClearwaterForestTable =
    perfmon::events_of<perfmon::kClearwaterForest, kNoOtherEvents, kAsListed>();

// [SDM Vol. 4 (335592-089), Table 2-1]
constexpr std::array<CpuModel, 1> kLunarLakeEModels = {{{.model = 0xBD}}};
// [intel/perfmon, mapfile.csv: Panther Lake, and Wildcat Lake with it; Clearwater Forest]
constexpr std::array<CpuModel, 3> kPantherLakeEModels = {
    {{.model = 0xCC}, {.model = 0xD5}, {.model = 0xE5}}};
constexpr std::array<CpuModel, 1> kClearwaterForestModels = {{{.model = 0xDD}}};

constexpr Microarch lunar_lake_e() {
  return {
      .name = "lunar-lake-e",
      .title = "Lunar Lake (E-core)",
      .models = kLunarLakeEModels,
      .introduced = {.year = 2024,
                     .month = 9,
                     .source =
                         "Ars Technica, \"Intel announces first batch of second-gen Lunar Lake "
                         "Core Ultra laptop CPUs\""},
      .hybrid = true,
      .core = CoreType::kAtom,
      .hyper_threading = false,
      .perfmon_version = 6,
      // CPUID.0AH has what both types of core have; leaf 23H has the fixed counters 4 to 6.
      .gp_counters = 8,
      .gp_counters_alone = 8,
      .gp_width = 48,
      .fixed_counters = 3,
      .fixed_width = 48,
      .architectural_events = 13,
      .extended = {.leaf = true,
                   .gp = 0xFF,
                   .fixed = 0x77,
                   .umask2 = true,
                   .equal = true,
                   .slots = 8,
                   .events = 0x1FFF,
                   // Those that have a reload configuration in Table 2-60.
                   .reloaded_gp = 0xFC,
                   .reloaded_fixed = 0x03,
                   .reloading_gp = 0xFC,
                   .reloading_fixed = 0x03},
      .full_width_writes = true,
      .lbr_format = 0x3F,  // architectural LBR
      .last_branches = kArchitecturalLastBranches,
      .perfevtsel_defined = (evtsel::kDefined & ~evtsel::kAnyThread) | evtsel::kAdaptive |
                            evtsel::kLogBranches | evtsel::kEqual | evtsel::kUmask2,
      .any_thread = false,
      .processor_trace = true,
      .pebs_counters = 0xFF,
      .pebs_fixed_counters = 0x77,
      .pebs_any_event = true,
      .pebs_baseline = true,
      .pebs_timing_info = true,
      .pebs_counters_group = true,
      .record = &kRecordFormat6,
      .ds = kDsThirtyTwoResets,
      .branch_trace = {.predicted = false},
      .load_latency_enable = 0,
      .load_latency_counters = 0x03,
      .load_latency_event = 0x05D0,
      .store_sample_counter = 0xFF,
      .pdir_fixed_counter = 0x01,
      .pdist_counters = 0x03,
      .undistributed_event = 0xC2,  // UOPS_RETIRED (21.3.10.2.3)
      .fused_pair_skid = 1,
      .data_source_tlb_lock_bits = true,
      .access = kAccessInfoCrestmont,
      .reserved_sources = 0,
      .unknown_sources = true,
      .minimum_period = 1,
      .pdir_minimum_period = 256,  // SDM 089 21.9.6 "PDist: Precise Distribution"
      .pdist_minimum_period = 256,
      // 21.9.6 has qualifiers switch PDist off, not PEBS.
      .disputed_qualifiers = internal::kEveryQualifier,
      .events = kLunarLakeETable,
      .fusion = kNoFusion,
      .fusion_published = false,
      .caches = {.l1_bytes = 32 << 10,
                 .l1_ways = 8,
                 .l1_latency = 4,
                 .l2_bytes = 4 << 20,
                 .l2_ways = 16,
                 .l2_latency = 19,
                 .l3_bytes = 16 << 20,
                 .l3_ways = 16,
                 .l3_latency = 90,
                 .dtlb_entries = 48,
                 .dtlb_ways = 4,
                 .stlb_entries = 4096,
                 .stlb_ways = 4,
                 .retire_width = 16,
                 .mispredict_penalty = 14,
                 .slots = 8},
  };
}

constexpr Microarch panther_lake_e() {
  Microarch row = internal::with_architectural_pebs(lunar_lake_e(), internal::kPebsGroups);
  row.name = "panther-lake-e";
  row.title = "Panther Lake (E-core)";
  row.models = kPantherLakeEModels;
  row.introduced = {
      .year = 2026,
      .month = 1,
      .source = "worldnl.com, \"Intel's roadmaps examined\" (unveiled at CES in January 2026)"};
  row.load_latency_counters = 0xFF;
  row.events = kPantherLakeETable;
  return row;
}

// A server part, without cores of another type beside.
constexpr Microarch clearwater_forest() {
  Microarch row = panther_lake_e();
  row.name = "clearwater-forest";
  row.title = "Clearwater Forest";
  row.models = kClearwaterForestModels;
  row.introduced = {
      .year = 2026,
      .month = 3,
      .source = "worldnl.com, \"Intel's roadmaps examined\" (introduced at MWC 2026)"};
  row.hybrid = false;
  row.events = kClearwaterForestTable;
  return row;
}

}  // namespace

SKIDPROOF_MICROARCH(kLunarLakeE) = lunar_lake_e();
SKIDPROOF_MICROARCH(kPantherLakeE) = panther_lake_e();
SKIDPROOF_MICROARCH(kClearwaterForest) = clearwater_forest();

}  // namespace skidproof::arch
