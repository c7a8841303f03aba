// Cougar Cove (Panther Lake's P-core): Lion Cove's counters with architectural PEBS.
//
// Sources: Intel's event list; of the core's own PMU what Lion Cove has, as Linux takes it for the same (Linux 6.16,
// arch/x86/events/intel/core.c, the models behind Lunar Lake's); architectural PEBS: Linux, as posted in "arch-PEBS enabling for
// Intel platforms" v9. Which counters have PEBS CPUID leaf 23H says; here all have, and PDist those of the event list.
#include <array>

#include "pebs/arch/architectural_record.h"
#include "pebs/arch/event_table.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/perfmon/panther_lake_p.h"

namespace skidproof::arch {

namespace {

constexpr Introduced kPantherLakeIntroduced = {
    .year = 2026,
    .month = 1,
    .source = "worldnl.com, \"Intel's roadmaps examined\" (unveiled at CES in January 2026)"};

// The list says where PEBS takes each event.
constexpr uint16_t kNowhereElse = 0;
constexpr std::array<Event, 0> kNoEventsOfItsOwn = {};
constexpr auto kPantherLakePTable =
    perfmon::events_of<perfmon::kPantherLakeP, kNoEventsOfItsOwn, kNowhereElse>();

// [intel/perfmon, mapfile.csv: Panther Lake, and Wildcat Lake with it]
constexpr std::array<CpuModel, 3> kPantherLakeModels = {
    {{.model = 0xCC}, {.model = 0xD5}, {.model = 0xE5}}};

constexpr Microarch panther_lake_p() {
  return {
      .name = "panther-lake-p",
      .title = "Panther Lake (P-core)",
      .models = kPantherLakeModels,
      .introduced = kPantherLakeIntroduced,
      .hybrid = true,
      .hyper_threading = false,  // Wikipedia, "Panther Lake"
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
                   .events = 0xFFF,
                   .pebs = true,
                   .pebs_groups = internal::kPebsGroups | 0x40,  // the metrics, too
                   .pebs_gp = 0x3FF,
                   .pdist_gp = 0x003,
                   .pebs_fixed = 0x0F,
                   .pdist_fixed = 0x01},
      .full_width_writes = true,
      .lbr_format = 0x3F,  // architectural LBR
      .last_branches = kArchitecturalLastBranches,
      .perfevtsel_defined = (evtsel::kDefined & ~evtsel::kAnyThread) | evtsel::kLogBranches |
                            evtsel::kEqual | evtsel::kUmask2,
      .any_thread = false,
      .processor_trace = true,
      .perf_metrics = true,
      .metrics_clear = true,
      .frontend_defined = 0x7FFF1F,
      .pebs_counters = 0x3FF,
      .pebs_fixed_counters = 0x0F,
      .pebs_any_event = true,
      .pebs_timing_info = true,
      .record = &kArchitecturalRecord,
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
      .minimum_period = 1,
      .pdir_minimum_period = 256,  // SDM 089 21.9.6 "PDist: Precise Distribution"
      .pdist_minimum_period = 256,
      .disputed_qualifiers = internal::kDisputedWithCmask,
      .events = kPantherLakePTable,
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

}  // namespace

SKIDPROOF_MICROARCH(kPantherLakeP) = panther_lake_p();

}  // namespace skidproof::arch
