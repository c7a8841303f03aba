// Lion Cove (Lunar Lake's P-core): architectural version 6 and PEBS record format 6; and Cougar Cove (Panther Lake's), the same
// counters with architectural PEBS.
//
// Sources: Intel's event lists; Intel SDM Vol. 3 (325384-089), 21.2.6 (version 6), 21.2.9 (CPUID leaf 23H), 21.3.11.1 with
// Tables 21-57 and 21-58 (what differs from Golden Cove), 21.9.2.3 (MSR_PEBS_DATA_CFG in format 6), Table 21-107 (data
// sources); Vol. 4 (335592-089), Table 2-2; Linux 6.16 arch/x86/events/intel/core.c and ds.c, intel_lnc_… and lnc_latency_data.
// Of Cougar Cove: what Lion Cove has, as Linux takes it for the same (core.c, the models behind Lunar Lake's); Linux, as posted in
// "arch-PEBS enabling for Intel platforms" v9. Which counters have PEBS CPUID leaf 23H says; here all have, and PDist those of the
// event list.
#include <array>

#include "pebs/arch/event_table.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/perfmon/lunar_lake_p.h"
#include "pebs/arch/perfmon/panther_lake_p.h"

namespace skidproof::arch {

namespace {

// The lists say where PEBS takes each event.
constexpr uint16_t kNowhereElse = 0;
constexpr std::array<Event, 0> kNoEventsOfItsOwn = {};
constexpr auto kLunarLakePTable =
    perfmon::events_of<perfmon::kLunarLakeP, kNoEventsOfItsOwn, kNowhereElse>();
constexpr auto kPantherLakePTable =
    perfmon::events_of<perfmon::kPantherLakeP, kNoEventsOfItsOwn, kNowhereElse>();

// [SDM Vol. 4 (335592-089), Table 2-1]
constexpr std::array<CpuModel, 1> kLunarLakeModels = {{{.model = 0xBD}}};
// [intel/perfmon, mapfile.csv: Panther Lake, and Wildcat Lake with it]
constexpr std::array<CpuModel, 3> kPantherLakeModels = {
    {{.model = 0xCC}, {.model = 0xD5}, {.model = 0xE5}}};

constexpr Microarch lunar_lake_p() {
  return {
      .name = "lunar-lake-p",
      .title = "Lunar Lake (P-core)",
      .models = kLunarLakeModels,
      .introduced = {.year = 2024,
                     .month = 9,
                     .source =
                         "Ars Technica, \"Intel announces first batch of second-gen Lunar Lake "
                         "Core Ultra laptop CPUs\""},
      .hybrid = true,
      .hyper_threading = false,  // Wikipedia, "Lunar Lake", "Panther Lake"
      .perfmon_version = 6,
      // CPUID.0AH has what both types of core have, and eight counters at the most; leaf 23H has the rest.
      .gp_counters = 8,
      .gp_counters_alone = 8,
      .gp_width = 48,
      .fixed_counters = 3,
      .fixed_width = 48,
      .architectural_events = 12,
      .extended = {.leaf = true,
                   .gp = 0x3FF,
                   .fixed = 0x0F,
                   .umask2 = true,
                   .equal = true,
                   .slots = 8,
                   .events = 0xFFF},
      .full_width_writes = true,
      .lbr_format = 0x3F,  // architectural LBR
      .last_branches = kArchitecturalLastBranches,
      .perfevtsel_defined = (evtsel::kDefined & ~evtsel::kAnyThread) | evtsel::kAdaptive |
                            evtsel::kLogBranches | evtsel::kEqual | evtsel::kUmask2,
      .any_thread = false,
      .processor_trace = true,
      .perf_metrics = true,
      .metrics_clear = true,
      .frontend_defined = 0x7FFF1F,
      .pebs_counters = 0x3FF,
      .pebs_fixed_counters = 0x0F,
      .pebs_any_event = true,
      .pebs_baseline = true,
      .pebs_timing_info = true,
      .pebs_counters_group = true,
      .record = &kRecordFormat6,
      .ds = kDsThirtyTwoResets,
      .load_latency_enable = 0,
      .load_latency_counters = 0x3FC,
      .load_latency_event = 0x01CD,
      .store_sample_counter = 0x003,
      .pdir_fixed_counter = 0x01,
      .pdir_records_next = true,
      .pdist_counters = 0x003,
      .fused_pair_skid = 2,
      .data_source_tlb_lock_bits = true,
      .access = kAccessInfoLionCove,
      .unknown_sources = true,
      .full_buffer_sets_ovf = true,
      .minimum_period = 1,
      .pdir_minimum_period = 256,  // SDM 089 21.9.6 "PDist: Precise Distribution"
      .pdist_minimum_period = 256,
      .disputed_qualifiers = internal::kDisputedWithCmask,
      .events = kLunarLakePTable,
      .fusion = kIceLakeFusion,
      .caches = {.l1_bytes = 48 << 10,
                 .l1_ways = 12,
                 .l1_latency = 4,
                 .l2_bytes = 2560 << 10,
                 .l2_ways = 10,
                 .l2_latency = 17,
                 .l3_bytes = 12 << 20,
                 .l3_ways = 12,
                 .l3_latency = 50,
                 .dtlb_entries = 128,
                 .dtlb_ways = 8,
                 .stlb_entries = 2048,
                 .stlb_ways = 16,
                 .retire_width = 12,
                 .mispredict_penalty = 18,
                 .slots = 8},
  };
}

constexpr Microarch panther_lake_p() {
  constexpr uint32_t kMetrics = cfg_c::kMetrics >> cfg_c::kGroupsShift;
  Microarch row =
      internal::with_architectural_pebs(lunar_lake_p(), internal::kPebsGroups | kMetrics);
  row.name = "panther-lake-p";
  row.title = "Panther Lake (P-core)";
  row.models = kPantherLakeModels;
  row.introduced = {
      .year = 2026,
      .month = 1,
      .source = "worldnl.com, \"Intel's roadmaps examined\" (unveiled at CES in January 2026)"};
  row.events = kPantherLakePTable;
  return row;
}

}  // namespace

SKIDPROOF_MICROARCH(kLunarLakeP) = lunar_lake_p();
SKIDPROOF_MICROARCH(kPantherLakeP) = panther_lake_p();

}  // namespace skidproof::arch
