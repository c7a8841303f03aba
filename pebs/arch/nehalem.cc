// Nehalem and Westmere: one row each, and their events.
//
// Sources: Intel SDM Vol. 3 (325384-059), 18.8 "Performance Monitoring for Processors Based on
// Intel Microarchitecture Code Name Nehalem" and Table 18-31 (its Westmere column); Intel's event
// lists intel/perfmon NHM-EP V4, NHM-EX V4, WSM-EP-DP V5, WSM-EP-SP V4 and WSM-EX V4; errata as
// noted.
#include <array>

#include "pebs/arch/event_table.h"
#include "pebs/arch/generations.h"

namespace skidproof::arch {

namespace {

using internal::alone;
using internal::join;
using internal::List;

constexpr List kArchitectural{
    .counters = internal::kPmc0To3,
    .source =
        "Intel SDM Vol. 3 (325384-059), Table 18-1 \"UMask and Event Select Encodings for "
        "Pre-Defined Architectural Performance Events\""};
constexpr List kListed{.counters = internal::kPmc0To3,
                       .pebs_counters = internal::kPmc0To3,
                       .source = "intel/perfmon NHM-EP V4, WSM-EP-DP V5; Linux 6.12 ds.c"};
// Linux takes load latency on PMC0-3 and the SDM's text on any PMC with its LL_EN bit; Intel's list
// publishes PMC3, which every source allows.
constexpr List kPmc3Only{.counters = internal::kPmc3,
                         .pebs_counters = internal::kPmc3,
                         .source =
                             "intel/perfmon NHM-EP V4, WSM-EP-DP V5; Intel SDM Vol. 3 "
                             "(325384-059), 18.8.1.2 \"Load Latency Performance Monitoring "
                             "Facility\""};

// The core model's LLC events are the lines that its loads and stores ask for; silicon's are those of
// code fetches, prefetches and speculation, too.
constexpr std::array kArchitecturalEvents = {
    kArchitectural.counting("CPU_CLK_UNHALTED.THREAD_P", 0x3C, 0x00, Signal::kCycles),
    kArchitectural.counting("CPU_CLK_UNHALTED.REF_P", 0x3C, 0x01, Signal::kBusCycles),
    kArchitectural.counting("INST_RETIRED.ANY_P", 0xC0, 0x00, Signal::kInstructions),
    kArchitectural.counting("LONGEST_LAT_CACHE.REFERENCE", 0x2E, 0x4F, Signal::kLlcReferences),
    kArchitectural.counting("LONGEST_LAT_CACHE.MISS", 0x2E, 0x41, Signal::kLlcMisses),
    kArchitectural.counting("BR_INST_RETIRED.ALL_BRANCHES", 0xC4, 0x00, Signal::kBranches),
    // Erratum AAJ80: counts wrongly on Nehalem silicon.
    kArchitectural.counting("BR_MISP_RETIRED.ALL_BRANCHES", 0xC5, 0x00, Signal::kMispredicts),
};

// Signal::kNone: x87, MMX, FP assists, the ITLB and other cores are no part of the core model, and
// it does not tell packed from scalar or single from double. The DTLB events select the last-level
// (STLB) misses, the only ones that the core model reports.
constexpr std::array kCommonEvents = {
    kListed.pebs("MEM_INST_RETIRED.LOADS", 0x0B, 0x01, Signal::kLoads),
    kListed.pebs("MEM_INST_RETIRED.STORES", 0x0B, 0x02, Signal::kStores),
    alone(kPmc3Only.pebs("MEM_INST_RETIRED.LATENCY_ABOVE_THRESHOLD", 0x0B, 0x10, Signal::kLoads,
                         EventKind::kLoadLatency)),
    kListed.pebs("MEM_STORE_RETIRED.DTLB_MISS", 0x0C, 0x01, Signal::kStlbMissStores),
    kListed.pebs("INST_RETIRED.ANY_P", 0xC0, 0x01, Signal::kInstructions),
    kListed.pebs("INST_RETIRED.X87", 0xC0, 0x02, Signal::kNone),
    kListed.pebs("INST_RETIRED.MMX", 0xC0, 0x04, Signal::kNone),
    kListed.cycles("INST_RETIRED.TOTAL_CYCLES", 0xC0, 0x01, Signal::kInstructions, 16, true),
    kListed.cycles("INST_RETIRED.TOTAL_CYCLES_PS", 0xC0, 0x01, Signal::kInstructions, 16, true,
                   EventKind::kPebsOnly),
    // Published as macro-fused 1, micro-fused 2: the core model reports the fused domain for both.
    kListed.pebs("UOPS_RETIRED.ANY", 0xC2, 0x01, Signal::kUops),
    kListed.pebs("UOPS_RETIRED.RETIRE_SLOTS", 0xC2, 0x02, Signal::kUops),
    kListed.pebs("UOPS_RETIRED.MACRO_FUSED", 0xC2, 0x04, Signal::kMacroFused),
    kListed.cycles("UOPS_RETIRED.ACTIVE_CYCLES", 0xC2, 0x01, Signal::kUops, 1, false),
    kListed.cycles("UOPS_RETIRED.STALL_CYCLES", 0xC2, 0x01, Signal::kUops, 1, true),
    kListed.cycles("UOPS_RETIRED.TOTAL_CYCLES", 0xC2, 0x01, Signal::kUops, 16, true),
    kListed.pebs("BR_INST_RETIRED.CONDITIONAL", 0xC4, 0x01, Signal::kConditional),
    kListed.pebs("BR_INST_RETIRED.NEAR_CALL", 0xC4, 0x02, Signal::kNearCalls),
    kListed.pebs("BR_INST_RETIRED.ALL_BRANCHES", 0xC4, 0x04, Signal::kBranches),
    kListed.pebs("BR_MISP_RETIRED.NEAR_CALL", 0xC5, 0x02, Signal::kMispredictsNearCall),
    kListed.pebs("SSEX_UOPS_RETIRED.PACKED_SINGLE", 0xC7, 0x01, Signal::kNone),
    kListed.pebs("SSEX_UOPS_RETIRED.SCALAR_SINGLE", 0xC7, 0x02, Signal::kNone),
    kListed.pebs("SSEX_UOPS_RETIRED.PACKED_DOUBLE", 0xC7, 0x04, Signal::kNone),
    kListed.pebs("SSEX_UOPS_RETIRED.SCALAR_DOUBLE", 0xC7, 0x08, Signal::kNone),
    kListed.pebs("SSEX_UOPS_RETIRED.VECTOR_INTEGER", 0xC7, 0x10, Signal::kNone),
    kListed.pebs("ITLB_MISS_RETIRED", 0xC8, 0x20, Signal::kNone),
    kListed.pebs("MEM_LOAD_RETIRED.L1D_HIT", 0xCB, 0x01, Signal::kLoadsL1Hit),
    kListed.pebs("MEM_LOAD_RETIRED.L2_HIT", 0xCB, 0x02, Signal::kLoadsL2Hit),
    // One core: every L3 hit is unshared.
    kListed.pebs("MEM_LOAD_RETIRED.LLC_UNSHARED_HIT", 0xCB, 0x04, Signal::kLoadsL3Hit),
    kListed.pebs("MEM_LOAD_RETIRED.OTHER_CORE_L2_HIT_HITM", 0xCB, 0x08, Signal::kNone),
    kListed.pebs("MEM_LOAD_RETIRED.LLC_MISS", 0xCB, 0x10, Signal::kLoadsL3Miss),
    kListed.pebs("MEM_LOAD_RETIRED.HIT_LFB", 0xCB, 0x40, Signal::kLoadsFillBuffer),
    kListed.pebs("MEM_LOAD_RETIRED.DTLB_MISS", 0xCB, 0x80, Signal::kStlbMissLoads),
    kListed.pebs("FP_ASSIST.ALL", 0xF7, 0x01, Signal::kNone),
    kListed.pebs("FP_ASSIST.OUTPUT", 0xF7, 0x02, Signal::kNone),
    kListed.pebs("FP_ASSIST.INPUT", 0xF7, 0x04, Signal::kNone),
};

// One package: all memory is local.
constexpr std::array kNehalemEvents = {
    kListed.pebs("MEM_UNCORE_RETIRED.OTHER_CORE_L2_HITM", 0x0F, 0x02, Signal::kNone),
    kListed.pebs("MEM_UNCORE_RETIRED.REMOTE_CACHE_LOCAL_HOME_HIT", 0x0F, 0x08, Signal::kNone),
    kListed.pebs("MEM_UNCORE_RETIRED.REMOTE_DRAM", 0x0F, 0x10, Signal::kNone),
    kListed.pebs("MEM_UNCORE_RETIRED.LOCAL_DRAM", 0x0F, 0x20, Signal::kLoadsL3Miss),
    kListed.pebs("MEM_UNCORE_RETIRED.UNCACHEABLE", 0x0F, 0x80, Signal::kNone),
};

constexpr std::array kWestmereEvents = {
    kListed.pebs("BR_MISP_RETIRED.CONDITIONAL", 0xC5, 0x01, Signal::kMispredictsConditional),
    kListed.pebs("BR_MISP_RETIRED.ALL_BRANCHES", 0xC5, 0x04, Signal::kMispredicts),
};

// 06_25H and 06_2FH have event 0FH again, with other umasks than Nehalem and than one another.
constexpr List kWestmereSp{.counters = internal::kPmc0To3,
                           .pebs_counters = internal::kPmc0To3,
                           .source = "intel/perfmon WSM-EP-SP V4"};
constexpr std::array kWestmereSpEvents = {
    kWestmereSp.pebs("MEM_UNCORE_RETIRED.OTHER_CORE_L2_HITM", 0x0F, 0x02, Signal::kNone),
    kWestmereSp.pebs("MEM_UNCORE_RETIRED.REMOTE_CACHE_LOCAL_HOME_HIT", 0x0F, 0x08, Signal::kNone),
    kWestmereSp.pebs("MEM_UNCORE_RETIRED.LOCAL_DRAM", 0x0F, 0x10, Signal::kLoadsL3Miss),
    kWestmereSp.pebs("MEM_UNCORE_RETIRED.REMOTE_DRAM", 0x0F, 0x20, Signal::kNone),
    kWestmereSp.pebs("MEM_UNCORE_RETIRED.UNCACHEABLE", 0x0F, 0x80, Signal::kNone),
};
constexpr List kWestmereEx{.counters = internal::kPmc0To3,
                           .pebs_counters = internal::kPmc0To3,
                           .source = "intel/perfmon WSM-EX V4"};
constexpr std::array kWestmereExEvents = {
    kWestmereEx.pebs("MEM_UNCORE_RETIRED.LOCAL_HITM", 0x0F, 0x02, Signal::kNone),
    kWestmereEx.pebs("MEM_UNCORE_RETIRED.REMOTE_HITM", 0x0F, 0x04, Signal::kNone),
    kWestmereEx.pebs("MEM_UNCORE_RETIRED.LOCAL_DRAM_AND_REMOTE_CACHE_HIT", 0x0F, 0x08,
                     Signal::kLoadsL3Miss),
    kWestmereEx.pebs("MEM_UNCORE_RETIRED.REMOTE_DRAM", 0x0F, 0x20, Signal::kNone),
    kWestmereEx.pebs("MEM_UNCORE_RETIRED.UNCACHEABLE", 0x0F, 0x80, Signal::kNone),
};

constexpr auto kNehalemTable = join(kArchitecturalEvents, kCommonEvents, kNehalemEvents);
constexpr auto kNehalemExTable = join(kArchitecturalEvents, kCommonEvents);
constexpr auto kWestmereTable = join(kArchitecturalEvents, kCommonEvents, kWestmereEvents);
constexpr auto kWestmereSpTable =
    join(kArchitecturalEvents, kCommonEvents, kWestmereEvents, kWestmereSpEvents);
constexpr auto kWestmereExTable =
    join(kArchitecturalEvents, kCommonEvents, kWestmereEvents, kWestmereExEvents);

// [Linux 6.12 intel-family.h]
constexpr std::array<CpuModel, 4> kNehalemModels = {
    {{.model = 0x1A}, {.model = 0x1E}, {.model = 0x1F}, {.model = 0x2E}}};
constexpr std::array<CpuModel, 1> kNehalemExModels = {{{.model = 0x2E}}};
// The row's own list is 06_2CH's.
constexpr std::array<CpuModel, 3> kWestmereModels = {
    {{.model = 0x2C}, {.model = 0x25}, {.model = 0x2F}}};
constexpr std::array<CpuModel, 1> kWestmereSpModels = {{{.model = 0x25}}};
constexpr std::array<CpuModel, 1> kWestmereExModels = {{{.model = 0x2F}}};

// What the two share. [SDM 18.8.1; Table 18-18 for widths; Table 18-31, Westmere column]
constexpr Microarch shared() {
  return {
      .perfmon_version = 3,
      .gp_counters = 4,
      .gp_counters_alone = 4,
      .gp_width = 48,
      .fixed_counters = 3,
      .fixed_width = 48,
      .full_width_writes = false,
      .pebs_counters = 0x0F,
      .record = &kRecordFormat1,
      .ds = kDsFourResets,
      .load_latency_enable = 0x0F,
      .load_latency_counters = 0x08,
      .load_latency_event = 0x100B,
      .precise_store_counter = 0,
      .pdir_counter = 0,
      .fused_pair_skid = 1,
      .data_source_tlb_lock_bits = false,
      .full_buffer_sets_ovf = false,  // by the text of SDM 18.8.1.1 (R45)
      // Published PEBS encodings carry CMASK alone (UOPS_RETIRED.ACTIVE_CYCLES) and CMASK with INV
      // (INST_RETIRED.TOTAL_CYCLES_PS) [perfmon NHM-EP, WSM-EP].
      .disputed_qualifiers = (1u << kQualifierCmask) | (1u << (kQualifierInvert | kQualifierCmask)),
      .fusion = kNehalemFusion,
  };
}

constexpr Microarch nehalem() {
  Microarch row = shared();
  row.name = "nehalem";
  row.title = "Nehalem";
  row.models = kNehalemModels;
  row.minimum_period = 32;  // Linux 6.12 core.c nhm_limit_period: smaller ones hang or lose records
  row.events = kNehalemTable;
  row.caches = {.l2_latency = 10,
                .l3_bytes = 8 << 20,
                .l3_latency = 38,
                .mispredict_penalty = 17,
                .bus_ratio = 20};
  return row;
}

constexpr Microarch westmere() {
  Microarch row = shared();
  row.name = "westmere";
  row.title = "Westmere";
  row.models = kWestmereModels;
  row.minimum_period = 1;
  row.events = kWestmereTable;
  row.caches = {.l2_latency = 10,
                .l3_bytes = 4 << 20,
                .l3_latency = 38,
                .mispredict_penalty = 17,
                .bus_ratio = 20};
  return row;
}

constexpr Microarch kNehalemExPart =
    internal::part_of(nehalem(), "Nehalem-EX", kNehalemExModels, kNehalemExTable);
constexpr std::array<const Microarch*, 1> kNehalemVariants = {&kNehalemExPart};
constexpr Microarch kWestmereSpPart =
    internal::part_of(westmere(), "Westmere (06_25H)", kWestmereSpModels, kWestmereSpTable);
constexpr Microarch kWestmereExPart =
    internal::part_of(westmere(), "Westmere-EX", kWestmereExModels, kWestmereExTable);
constexpr std::array<const Microarch*, 2> kWestmereVariants = {&kWestmereSpPart, &kWestmereExPart};

}  // namespace

constexpr Microarch kNehalem = internal::with_variants(nehalem(), kNehalemVariants);
constexpr Microarch kWestmere = internal::with_variants(westmere(), kWestmereVariants);

}  // namespace skidproof::arch
