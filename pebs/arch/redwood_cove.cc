// Redwood Cove: Meteor Lake's P-core and Granite Rapids, one row each.
//
// Sources: Intel SDM Vol. 3 (325384-089), 21.9 and Table 21-57 "PEBS Facility Comparison" (Golden Cove and Redwood Cove),
// 21.6.2.4.2 (PEBS record format 5); Linux 6.12 arch/x86/events/intel/core.c and ds.c; Intel's event lists.
#include <array>

#include "pebs/arch/event_table.h"
#include "pebs/arch/generations.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/perfmon/granite_rapids.h"
#include "pebs/arch/perfmon/meteor_lake_p.h"

namespace skidproof::arch {

namespace {

using perfmon::events_of;

constexpr std::array<Event, 0> kOwn = {};

// The lists say where PEBS takes each event.
constexpr uint16_t kPebsCounters = 0;
constexpr auto kMeteorLakeTable = events_of<perfmon::kMeteorLakePList, kOwn>(
    {.source = perfmon::kMeteorLakePSource, .pebs_counters = kPebsCounters});
constexpr auto kGraniteRapidsTable = events_of<perfmon::kGraniteRapidsList, kOwn>(
    {.source = perfmon::kGraniteRapidsSource, .pebs_counters = kPebsCounters});

// Meteor Lake, its low-power part, and Arrow Lake-U. [Linux 6.12 intel-family.h]
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
      .frontend_defined = 0x7FFF1F,  // Linux 6.12 core.c intel_rwc_extra_regs
      .pebs_counters = 0xFF,
      .pebs_fixed_counters = 0x0F,
      .pebs_any_event = true,
      .pebs_baseline = true,
      .pebs_timing_info = true,  // timed PEBS: IA32_PERF_CAPABILITIES[17], SDM 089 21.9.8
      .record = &kRecordFormat5,
      .ds = kDsThirtyTwoResets,
      .load_latency_enable = 0,
      .load_latency_counters = 0xFE,
      .load_latency_event =
          0x01CD,  // needs no event beside it any more: Linux 6.12 core.c intel_pmu_init
      .store_sample_counter = internal::kPmc0,
      .pdir_fixed_counter = 0x01,
      .pdir_records_next = true,  // intel/perfmon README, PDISTCounter
      .pdist_counters = internal::kPmc0,
      .fused_pair_skid = 2,
      .data_source_tlb_lock_bits = true,
      .data_source_block_bits = true,
      .full_buffer_sets_ovf = true,
      .minimum_period = 1,
      // SDM 089 21.9.6 "Precise Distribution Support"; Linux' glc_limit_period enforces 128.
      .pdir_minimum_period = 256,
      .pdist_minimum_period = 256,
      // As on Golden Cove.
      .disputed_qualifiers = internal::kDisputedWithCmask,
      .fusion = kIceLakeFusion,
  };
}

constexpr Microarch meteor_lake_p() {
  Microarch row = shared();
  row.name = "meteor-lake-p";
  row.title = "Meteor Lake (P-core)";
  row.models = kMeteorLakeModels;
  row.hybrid = true;
  row.events = kMeteorLakeTable;
  row.caches = {.l1_bytes = 48 << 10,
                .l1_ways = 12,
                .l1_latency = 5,
                .l2_bytes = 2 << 20,
                .l2_ways = 16,
                .l2_latency = 16,
                .l3_bytes = 24 << 20,
                .l3_ways = 12,
                .l3_latency = 75,
                .dtlb_entries = 96,
                .dtlb_ways = 6,
                .stlb_entries = 2048,
                .stlb_ways = 16,
                .retire_width = 8,
                .mispredict_penalty = 17,
                .slots = 6};
  return row;
}

constexpr Microarch granite_rapids() {
  Microarch row = shared();
  row.name = "granite-rapids";
  row.title = "Granite Rapids";
  row.models = kGraniteRapidsModels;
  row.tsx = true;
  row.sgx = true;
  row.la57 = true;
  row.perfevtsel_defined |= evtsel::kInTx;
  row.events = kGraniteRapidsTable;
  row.caches = {.l1_bytes = 48 << 10,
                .l1_ways = 12,
                .l1_latency = 5,
                .l2_bytes = 2 << 20,
                .l2_ways = 16,
                .l2_latency = 16,
                .l3_bytes = 64 << 20,
                .l3_latency = 80,
                .dtlb_entries = 96,
                .dtlb_ways = 6,
                .stlb_entries = 2048,
                .stlb_ways = 16,
                .retire_width = 8,
                .mispredict_penalty = 17,
                .slots = 6};
  return row;
}

}  // namespace

constexpr Microarch kMeteorLakeP = meteor_lake_p();
constexpr Microarch kGraniteRapids = granite_rapids();

}  // namespace skidproof::arch
