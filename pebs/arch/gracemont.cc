// Gracemont (Alder Lake's E-core) and Crestmont (Meteor Lake's E-core, Sierra Forest): one row each.
//
// Sources: Intel SDM Vol. 3 (325384-089), 21.3.10.2 "E-core Performance Monitoring Unit", Tables 21-53 to 21-55; 21.9;
// Table 21-59 (Crestmont); Intel's event lists; Linux 6.12 intel-family.h, and ds.c for Crestmont's access word.
#include <array>
#include <initializer_list>

#include "pebs/arch/event_table.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/perfmon/alder_lake_e.h"
#include "pebs/arch/perfmon/grand_ridge.h"
#include "pebs/arch/perfmon/meteor_lake_e.h"
#include "pebs/arch/perfmon/sierra_forest.h"

namespace skidproof::arch {

namespace {

using perfmon::events_of;

constexpr std::array<Event, 0> kNothing = {};
// The lists say where PEBS takes each event.
constexpr uint16_t kPebsCounters = 0;
constexpr auto kAlderLakeTable = events_of<perfmon::kAlderLakeE, kNothing, kPebsCounters>();
constexpr auto kMeteorLakeTable = events_of<perfmon::kMeteorLakeE, kNothing, kPebsCounters>();
constexpr auto kSierraForestTable = events_of<perfmon::kSierraForest, kNothing, kPebsCounters>();
constexpr auto kGrandRidgeTable = events_of<perfmon::kGrandRidge, kNothing, kPebsCounters>();

// Alder Lake, Raptor Lake; 06_BEH, Alder Lake-N, has no other cores.
constexpr std::array<CpuModel, 6> kAlderLakeModels = {{{.model = 0x97},
                                                       {.model = 0x9A},
                                                       {.model = 0xB7},
                                                       {.model = 0xBA},
                                                       {.model = 0xBF},
                                                       {.model = 0xBE}}};
// Meteor Lake, its low-power part, and Arrow Lake-U.
constexpr std::array<CpuModel, 3> kMeteorLakeModels = {
    {{.model = 0xAA}, {.model = 0xAC}, {.model = 0xB5}}};
// Sierra Forest, Grand Ridge.
constexpr std::array<CpuModel, 2> kSierraForestModels = {{{.model = 0xAF}, {.model = 0xB6}}};
constexpr std::array<CpuModel, 1> kGrandRidgeModels = {{{.model = 0xB6}}};

constexpr uint16_t kPmc0To5 = 0x3F;
constexpr uint16_t kPmc0To1 = 0x03;
constexpr uint32_t sources(std::initializer_list<unsigned> encodings) {
  uint32_t mask = 0;
  for (unsigned each : encodings) mask |= 1u << each;
  return mask;
}

constexpr Microarch alder_lake_e() {
  return {
      .name = "alder-lake-e",
      .title = "Alder Lake (E-core)",
      .models = kAlderLakeModels,
      .introduced = {.year = 2021,
                     .month = 11,
                     .source = "NextRift, \"Intel 12th Gen Alder Lake Chips Are Here\""},
      .hybrid = true,
      .core = CoreType::kAtom,
      .hyper_threading = false,
      .perfmon_version = 5,
      .gp_counters = 6,
      .gp_counters_alone = 6,
      .gp_width = 48,
      .fixed_counters = 3,
      .fixed_width = 48,
      .full_width_writes = true,
      .lbr_format = 0x3F,  // architectural LBR
      .last_branches = kArchitecturalLastBranches,
      .perfevtsel_defined = (evtsel::kDefined & ~evtsel::kAnyThread) | evtsel::kAdaptive,
      .any_thread = false,  // deprecated: CPUID.0AH:EDX[15]
      .processor_trace = true,
      .pebs_counters = kPmc0To5,
      .pebs_fixed_counters = 0x07,
      .pebs_any_event = true,
      .pebs_baseline = true,
      .pebs_output_pt = true,
      .record = &kRecordFormat4Split,
      .ds = kDsEightResets,
      .branch_trace = {.predicted = false},
      .load_latency_enable = 0,
      .load_latency_counters = kPmc0To1,
      .load_latency_event = 0x05D0,
      .store_sample_counter = kPmc0To5,
      .pdir_fixed_counter = 0x01,
      .pdist_counters = internal::kPmc0,
      .undistributed_event = 0xC2,  // UOPS_RETIRED (21.3.10.2.3)
      .fused_pair_skid = 1,
      .data_source_tlb_lock_bits = true,
      .access = kAccessInfoGracemont,
      .reserved_sources = sources({7, 9, 11, 12, 13}),  // Table 21-55
      .memory_source = 0xA,
      .unknown_sources = true,
      .full_buffer_sets_ovf = false,
      .minimum_period = 1,
      .pdir_minimum_period = 256,  // 21.9.6
      .pdist_minimum_period = 256,
      // 21.9.6 has qualifiers switch PDist off, not PEBS.
      .disputed_qualifiers = internal::kEveryQualifier,
      .events = kAlderLakeTable,
      .fusion = kNoFusion,
      .fusion_published = false,
      .caches = {.l1_latency = 3,
                 .l2_bytes = 2 << 20,
                 .l2_ways = 16,
                 .l2_latency = 17,
                 .l3_bytes = 16 << 20,
                 .l3_latency = 60,
                 .dtlb_entries = 32,
                 .stlb_entries = 2048,
                 .retire_width = 8,
                 .mispredict_penalty = 13,
                 .slots = 5},
  };
}

// Timed PEBS, format 5, eight counters. Of the access word no manual of Intel's tells.
constexpr Microarch with_crestmont(Microarch row) {
  row.gp_counters = row.gp_counters_alone = 8;
  row.pebs_timing_info = true;
  row.pebs_counters = internal::kPmc0To7;
  row.record = &kRecordFormat5;
  row.ds = kDsThirtyTwoResets;
  row.store_sample_counter = internal::kPmc0To7;
  row.access = kAccessInfoCrestmont;
  row.reserved_sources = 0;
  row.caches.slots = 6;
  return row;
}

constexpr Microarch meteor_lake_e() {
  Microarch row = with_crestmont(alder_lake_e());
  row.name = "meteor-lake-e";
  row.title = "Meteor Lake (E-core)";
  row.models = kMeteorLakeModels;
  row.introduced = {.year = 2023,
                    .month = 12,
                    .source = "TweakTown, \"Intel announces AI Everywhere event for December 14\""};
  row.events = kMeteorLakeTable;
  row.caches.l3_bytes = 24 << 20;
  row.caches.l3_ways = 12;
  row.caches.l3_latency = 75;
  return row;
}

constexpr Microarch sierra_forest() {
  Microarch row = with_crestmont(alder_lake_e());
  row.name = "sierra-forest";
  row.title = "Sierra Forest";
  row.models = kSierraForestModels;
  row.introduced = {.year = 2024,
                    .month = 6,
                    .source = "Phoronix, \"Intel Launches Xeon 6700E 'Sierra Forest' CPUs\""};
  row.hybrid = false;
  row.sgx = true;
  row.la57 = true;
  row.events = kSierraForestTable;
  row.caches.l2_bytes = 4 << 20;
  row.caches.l3_bytes = 64 << 20;
  row.caches.l3_latency = 80;
  return row;
}

constexpr Microarch kGrandRidge =
    internal::part_of(sierra_forest(), "Grand Ridge", kGrandRidgeModels, kGrandRidgeTable);
constexpr std::array<const Microarch*, 1> kSierraForestVariants = {&kGrandRidge};

}  // namespace

SKIDPROOF_MICROARCH(kAlderLakeE) = alder_lake_e();
SKIDPROOF_MICROARCH(kMeteorLakeE) = meteor_lake_e();
SKIDPROOF_MICROARCH(kSierraForest) = internal::with_variants(sierra_forest(),
                                                             kSierraForestVariants);

}  // namespace skidproof::arch
