// Golden Cove (Alder Lake's P-core, Sapphire Rapids) and Redwood Cove (Meteor Lake's P-core, Granite Rapids): one row each.
//
// Sources: Intel's event lists; Linux 6.12 arch/x86/events/intel/core.c and ds.c; Intel SDM Vol. 3 (325384-089), 21.9,
// Table 21-51 (PEBS record format 4), 21.6.2.4.2 (format 5) and Table 21-57 (what differs between the two), since the
// edition that the other rows cite ends before this generation.
#include <array>

#include "pebs/arch/event_table.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/perfmon/alder_lake_p.h"
#include "pebs/arch/perfmon/emerald_rapids.h"
#include "pebs/arch/perfmon/granite_rapids.h"
#include "pebs/arch/perfmon/meteor_lake_p.h"
#include "pebs/arch/perfmon/sapphire_rapids.h"

namespace skidproof::arch {

namespace {

using perfmon::events_of;

// What load latency needs beside it, for the bits of blocked data and addresses.
constexpr Event kAuxiliary = {
    .name = "LD_BLOCKS.STORE_FORWARD",
    .code = 0x03,
    .umask = 0x82,
    .counters = internal::kPmc0To3,
    .source = "intel/perfmon ADL V1.40, SPR V1.39; Linux 6.12 core.c is_mem_loads_aux_event",
    .reason =
        "load latency needs it beside it; of counting events only those come over that the model "
        "counts"};
constexpr std::array kOwn = {kAuxiliary};
constexpr std::array<Event, 0> kNothing = {};

// The lists say where PEBS takes each event.
constexpr uint16_t kPebsCounters = 0;
constexpr auto kAlderLakeTable = events_of<perfmon::kAlderLakeP, kOwn, kPebsCounters>();
constexpr auto kSapphireRapidsTable = events_of<perfmon::kSapphireRapids, kOwn, kPebsCounters>();
constexpr auto kEmeraldRapidsTable = events_of<perfmon::kEmeraldRapids, kOwn, kPebsCounters>();
constexpr auto kMeteorLakeTable = events_of<perfmon::kMeteorLakeP, kNothing, kPebsCounters>();
constexpr auto kGraniteRapidsTable = events_of<perfmon::kGraniteRapids, kNothing, kPebsCounters>();

// Alder Lake, Raptor Lake. [Linux 6.12 intel-family.h]
constexpr std::array<CpuModel, 5> kAlderLakeModels = {
    {{.model = 0x97}, {.model = 0x9A}, {.model = 0xB7}, {.model = 0xBA}, {.model = 0xBF}}};
// Sapphire Rapids, Emerald Rapids.
constexpr std::array<CpuModel, 2> kSapphireRapidsModels = {{{.model = 0x8F}, {.model = 0xCF}}};
constexpr std::array<CpuModel, 1> kEmeraldRapidsModels = {{{.model = 0xCF}}};
// Meteor Lake, its low-power part, and Arrow Lake-U.
constexpr std::array<CpuModel, 3> kMeteorLakeModels = {
    {{.model = 0xAA}, {.model = 0xAC}, {.model = 0xB5}}};
// Granite Rapids and Granite Rapids-D.
constexpr std::array<CpuModel, 2> kGraniteRapidsModels = {{{.model = 0xAD}, {.model = 0xAE}}};

constexpr Microarch shared() {
  return {
      .perfmon_version = 5,
      .gp_counters = 8,
      .gp_counters_alone = 8,
      .gp_width = 48,
      .fixed_counters = 4,
      .fixed_width = 48,
      .full_width_writes = true,
      .lbr_format = 0x3F,  // architectural LBR
      .last_branches = kArchitecturalLastBranches,
      .perfevtsel_defined = (evtsel::kDefined & ~evtsel::kAnyThread) | evtsel::kAdaptive,
      .any_thread = false,  // deprecated: CPUID.0AH:EDX[15]
      .processor_trace = true,
      .perf_metrics = true,
      .frontend_defined = 0x7FFF1F,  // Linux 6.12 core.c intel_glc_extra_regs
      .pebs_counters = 0xFF,
      .pebs_fixed_counters = 0x0F,
      .pebs_any_event = true,
      .pebs_baseline = true,
      .record = &kRecordFormat4Split,  // SDM 089 Table 21-51: format 4, and no timing information
      .ds = kDsEightResets,
      .load_latency_enable = 0,
      .load_latency_counters = 0xFE,
      .load_latency_event = 0x01CD,
      .load_latency_auxiliary = 0x8203,  // LD_BLOCKS.STORE_FORWARD
      .load_latency_auxiliary_counters = internal::kPmc0To3,
      .store_sample_counter = internal::kPmc0,
      .pdir_fixed_counter = 0x01,
      .pdir_records_next = true,  // intel/perfmon README, PDISTCounter
      .pdist_counters = internal::kPmc0,
      .fused_pair_skid = 2,
      .data_source_tlb_lock_bits = true,
      .access = kAccessInfoGoldenCove,
      .reserved_sources = 0,
      .unknown_sources = true,
      .full_buffer_sets_ovf = true,
      .minimum_period = 1,
      // SDM 089 21.9.6 "Precise Distribution Support"; Linux' glc_limit_period enforces 128.
      .pdir_minimum_period = 256,
      .pdist_minimum_period = 256,
      // As on Ice Lake: DTLB_LOAD_MISSES.WALK_ACTIVE, UOPS_EXECUTED.STALL_CYCLES, IDQ.MS_SWITCHES and
      // RS_EMPTY.COUNT [perfmon ADL 1.40, SPR 1.39, EMR 1.24].
      .disputed_qualifiers = internal::kDisputedWithCmask,
      .fusion = kIceLakeFusion,
  };
}

constexpr Microarch alder_lake_p() {
  Microarch row = shared();
  row.name = "alder-lake-p";
  row.title = "Alder Lake (P-core)";
  row.models = kAlderLakeModels;
  row.introduced = {.year = 2021,
                    .month = 11,
                    .source = "NextRift, \"Intel 12th Gen Alder Lake Chips Are Here\""};
  row.hybrid = true;
  row.events = kAlderLakeTable;
  row.caches = {.l1_bytes = 48 << 10,
                .l1_ways = 12,
                .l1_latency = 5,
                .l2_bytes = 1280 << 10,
                .l2_ways = 10,
                .l2_latency = 15,
                .l3_bytes = 16 << 20,
                .l3_latency = 55,
                .dtlb_entries = 96,
                .dtlb_ways = 6,
                .stlb_entries = 2048,
                .stlb_ways = 16,
                .retire_width = 8,
                .mispredict_penalty = 17,
                .slots = 6};
  return row;
}

constexpr Microarch sapphire_rapids() {
  Microarch row = shared();
  row.name = "sapphire-rapids";
  row.title = "Sapphire Rapids";
  row.models = kSapphireRapidsModels;
  row.introduced = {
      .year = 2023,
      .month = 1,
      .source = "Tom's Hardware, \"Intel's Sapphire Rapids Formal Launch Date Revealed\""};
  row.tsx = true;
  row.sgx = true;
  row.la57 = true;
  row.perfevtsel_defined |= evtsel::kInTx;
  row.events = kSapphireRapidsTable;
  row.caches = {.l1_bytes = 48 << 10,
                .l1_ways = 12,
                .l1_latency = 5,
                .l2_bytes = 2 << 20,
                .l2_ways = 16,
                .l2_latency = 16,
                .l3_bytes = 32 << 20,
                .l3_latency = 70,
                .dtlb_entries = 96,
                .dtlb_ways = 6,
                .stlb_entries = 2048,
                .stlb_ways = 16,
                .retire_width = 8,
                .mispredict_penalty = 17,
                .slots = 6};
  return row;
}

// Timed PEBS (IA32_PERF_CAPABILITIES[17], SDM 089 21.9.8) and 32 reset values; load latency needs no event beside it any
// more [Linux 6.12 core.c intel_pmu_init].
constexpr Microarch with_redwood_cove(Microarch row) {
  row.pebs_timing_info = true;
  row.record = &kRecordFormat5;
  row.ds = kDsThirtyTwoResets;
  row.load_latency_auxiliary = 0;
  row.load_latency_auxiliary_counters = 0;
  row.caches.l2_bytes = 2 << 20;
  row.caches.l2_ways = 16;
  row.caches.l2_latency = 16;
  return row;
}

constexpr Microarch meteor_lake_p() {
  Microarch row = with_redwood_cove(alder_lake_p());
  row.name = "meteor-lake-p";
  row.title = "Meteor Lake (P-core)";
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

constexpr Microarch granite_rapids() {
  Microarch row = with_redwood_cove(sapphire_rapids());
  row.name = "granite-rapids";
  row.title = "Granite Rapids";
  row.models = kGraniteRapidsModels;
  row.introduced = {
      .year = 2024,
      .month = 9,
      .source =
          "Tom's Hardware, \"Intel Launches Granite Rapids Xeon 6900P series with 128 cores\""};
  row.events = kGraniteRapidsTable;
  row.caches.l3_bytes = 64 << 20;
  row.caches.l3_latency = 80;
  return row;
}

constexpr Microarch kEmeraldRapids = internal::part_of(sapphire_rapids(), "Emerald Rapids",
                                                       kEmeraldRapidsModels, kEmeraldRapidsTable);
constexpr std::array<const Microarch*, 1> kServerVariants = {&kEmeraldRapids};

}  // namespace

SKIDPROOF_MICROARCH(kAlderLakeP) = alder_lake_p();
SKIDPROOF_MICROARCH(kSapphireRapids) = internal::with_variants(sapphire_rapids(), kServerVariants);
SKIDPROOF_MICROARCH(kMeteorLakeP) = meteor_lake_p();
SKIDPROOF_MICROARCH(kGraniteRapids) = granite_rapids();

}  // namespace skidproof::arch
