// Goldmont, Goldmont Plus and Tremont: one row each, and the events of the parts.
//
// Sources: Intel SDM Vol. 3 (325384-089), 21.5.3 to 21.5.5 "Performance Monitoring for Goldmont Microarchitecture",
// "… Goldmont Plus …", "… Tremont …", Tables 21-70 to 21-77; 21.9.1 "Extended PEBS"; 21.9.4 "Reduced Skid PEBS"; 19.6 and
// 19.7 (last branches); Vol. 4 (335592-089), Tables 2-12 to 2-14; Intel's event lists; Linux 6.12 intel-family.h, lbr.c.
#include "pebs/arch/perfmon/goldmont.h"

#include <array>

#include "pebs/arch/event_table.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/perfmon/elkhart_lake.h"
#include "pebs/arch/perfmon/goldmont_plus.h"
#include "pebs/arch/perfmon/snow_ridge.h"

namespace skidproof::arch {

namespace {

using perfmon::events_of;

// The architectural event, which the lists name as older ones do a fixed counter's.
constexpr Event kReference = {
    .name = "CPU_CLK_UNHALTED.REF",
    .code = 0x3C,
    .umask = 0x01,
    .signal = Signal::kBusCycles,
    .counters = internal::kPmc0To3,
    .source =
        "Intel SDM Vol. 3 (325384-089), 21.2.1.2 \"Pre-defined Architectural Performance Events\"",
    .reason = "the architectural event, for which the list has the fixed counter alone"};
constexpr std::array kOwn = {kReference};
constexpr std::array<Event, 0> kNothing = {};
constexpr uint16_t kEveryCounter = internal::kPmc0To3;

// Goldmont's list does not say where PEBS takes an event. [SDM Table 21-70]
constexpr auto kGoldmontTable = events_of<perfmon::kGoldmont, kOwn, internal::kPmc0>();
constexpr auto kGoldmontPlusTable = events_of<perfmon::kGoldmontPlus, kOwn, kEveryCounter>();
constexpr auto kSnowRidgeTable = events_of<perfmon::kSnowRidge, kNothing, kEveryCounter>();
constexpr auto kElkhartLakeTable = events_of<perfmon::kElkhartLake, kNothing, kEveryCounter>();

// Apollo Lake, Denverton.
constexpr std::array<CpuModel, 2> kGoldmontModels = {{{.model = 0x5C}, {.model = 0x5F}}};
// Gemini Lake.
constexpr std::array<CpuModel, 1> kGoldmontPlusModels = {{{.model = 0x7A}}};
// Snow Ridge, Elkhart Lake, Jasper Lake.
constexpr std::array<CpuModel, 3> kTremontModels = {
    {{.model = 0x86}, {.model = 0x96}, {.model = 0x9C}}};
constexpr std::array<CpuModel, 2> kElkhartLakeModels = {{{.model = 0x96}, {.model = 0x9C}}};

// LBR_FMT 6: misprediction in from, cycles in to, no third register. [SDM 19.6, Tables 19-7, 19-8]
constexpr LastBranches kLastBranchesGoldmont{
    .depth = 32, .from = 0x680, .to = 0x6C0, .tos = MSR_LASTBRANCH_TOS, .filters = MSR_LBR_SELECT};

constexpr Microarch goldmont() {
  return {
      .name = "goldmont",
      .title = "Goldmont",
      .models = kGoldmontModels,
      .introduced = {.year = 2016,
                     .source = "Wikipedia, \"List of Intel CPU microarchitectures\": Goldmont"},
      .core = CoreType::kAtom,
      .hyper_threading = false,
      .perfmon_version = 4,
      .gp_counters = 4,
      .gp_counters_alone = 4,
      .gp_width = 48,
      .fixed_counters = 3,
      .fixed_width = 48,
      .full_width_writes = true,
      .lbr_format = 6,
      .last_branches = kLastBranchesGoldmont,
      .perfevtsel_defined = evtsel::kDefined,
      .any_thread = true,  // ignored, and not deprecated (21.5.3)
      .processor_trace = true,
      .sgx = true,  // ASCI is a status bit (Vol. 4, Table 2-12)
      .pebs_counters = internal::kPmc0,
      .pebs_any_event = true,
      .record = &kRecordFormat3,
      .ds = kDsFourResets,
      .branch_trace = {.predicted = false},
      .load_latency_enable = 0,
      .load_latency_counters = 0,
      .load_latency_event = 0,
      .reduced_skid_counters = internal::kPmc0,
      .undistributed_event = 0xC2,  // UOPS_RETIRED (21.9.4)
      .fused_pair_skid = 1,
      .reserved_access_fields = true,
      .data_address_of_any_event = true,
      .out_of_bounds_signalled = true,
      .full_buffer_sets_ovf = false,
      .minimum_period = 1,
      // 21.9.4 has qualifiers switch reduced skid off, not PEBS.
      .disputed_qualifiers = internal::kEveryQualifier,
      .events = kGoldmontTable,
      .fusion = kNoFusion,
      .fusion_published = false,
      .caches = {.l1_bytes = 24 << 10,
                 .l1_ways = 6,
                 .l1_latency = 3,
                 .l2_bytes = 1 << 20,
                 .l2_ways = 16,
                 .l2_latency = 17,
                 .l3_bytes = 2 << 20,
                 .l3_latency = 40,
                 .dtlb_entries = 32,
                 .retire_width = 3,
                 .mispredict_penalty = 13,
                 .slots = 3,
                 .bus_ratio = 60},
  };
}

// Extended PEBS. [SDM 21.5.4, Table 21-75; 21.9.1]
constexpr Microarch goldmont_plus() {
  Microarch row = goldmont();
  row.name = "goldmont-plus";
  row.title = "Goldmont Plus";
  row.models = kGoldmontPlusModels;
  row.introduced = {
      .year = 2017,
      .month = 12,
      .source = "AnandTech, \"Intel Launches Gemini Lake Pentium Silver and Celeron SoCs\""};
  row.lbr_format = 7;
  row.last_branches = kLastBranches32;
  row.any_thread = false;  // deprecated: CPUID.0AH:EDX[15]
  row.perfevtsel_defined = evtsel::kDefined & ~evtsel::kAnyThread;
  row.pebs_counters = kEveryCounter;
  row.pebs_fixed_counters = 0x07;
  row.ds = kDsEightResets;
  row.events = kGoldmontPlusTable;
  row.caches.l2_bytes = 4 << 20;
  row.caches.l2_latency = 18;
  row.caches.l3_bytes = 8 << 20;
  row.caches.retire_width = 4;
  return row;
}

// Adaptive records, the distribution on fixed counter 0, output to Intel PT. [SDM 21.5.5, Table 21-76] Of last branches
// Vol. 4, Table 2-14, says nothing else than Table 2-13.
constexpr Microarch tremont() {
  Microarch row = goldmont_plus();
  row.name = "tremont";
  row.title = "Tremont";
  row.models = kTremontModels;
  row.introduced = {.year = 2020,
                    .source = "Wikipedia, \"List of Intel CPU microarchitectures\": Tremont"};
  row.perfmon_version = 5;
  row.perfevtsel_defined = (evtsel::kDefined & ~evtsel::kAnyThread) | evtsel::kAdaptive;
  row.pebs_baseline = true;
  row.pebs_output_pt = true;
  row.record = &kRecordFormat4;
  row.pdir_fixed_counter = 0x01;
  row.pdir_records_next = true;  // "precisely one instruction" (21.5.5.3)
  row.reserved_access_fields = false;
  row.events = kSnowRidgeTable;
  row.caches.l1_bytes = 32 << 10;
  row.caches.l1_ways = 8;
  row.caches.l2_bytes = 1536 << 10;
  row.caches.l2_ways = 12;
  row.caches.l2_latency = 17;
  row.caches.l3_bytes = 4 << 20;
  row.caches.l3_latency = 50;
  row.caches.stlb_entries = 1024;
  row.caches.bus_ratio = 1;  // REF_TSC_P
  row.caches.slots = 4;
  return row;
}

constexpr Microarch kElkhartLake =
    internal::part_of(tremont(), "Elkhart Lake", kElkhartLakeModels, kElkhartLakeTable);
constexpr std::array<const Microarch*, 1> kTremontVariants = {&kElkhartLake};

}  // namespace

SKIDPROOF_MICROARCH(kGoldmont) = goldmont();
SKIDPROOF_MICROARCH(kGoldmontPlus) = goldmont_plus();
SKIDPROOF_MICROARCH(kTremont) = internal::with_variants(tremont(), kTremontVariants);

}  // namespace skidproof::arch
