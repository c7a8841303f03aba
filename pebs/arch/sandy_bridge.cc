// Sandy Bridge and Ivy Bridge: one row each, and their events.
//
// Sources: Intel SDM Vol. 3 (325384-059), 18.9 "Performance Monitoring for Processors Based on
// Intel Microarchitecture Code Name Sandy Bridge", Tables 18-31, 18-32, 19-13, and 18.10 for Ivy
// Bridge; Intel's event lists intel/perfmon SNB V19, JKT V24, IVB V24; minimum microcode from
// Linux.
#include <array>

#include "pebs/arch/event_table.h"
#include "pebs/arch/generations.h"

namespace skidproof::arch {

namespace {

using internal::alone;
using internal::join;
using internal::List;

constexpr List kArchitectural{
    .counters = internal::kPmc0To7,
    .source =
        "Intel SDM Vol. 3 (325384-059), Table 18-1 \"UMask and Event Select Encodings for "
        "Pre-Defined Architectural Performance Events\""};
// Count wherever there is a counter, PEBS on PMC0-3 only (Table 18-31).
constexpr List kAnywhere{
    .counters = internal::kPmc0To7,
    .pebs_counters = internal::kPmc0To3,
    .source = "Intel SDM Vol. 3 (325384-059), Table 18-32; intel/perfmon SNB V19, IVB V24"};
// D0H-D3H count on PMC0-3 whatever hyper-threading is (chapter 19).
constexpr List kPmc0To3{
    .counters = internal::kPmc0To3,
    .pebs_counters = internal::kPmc0To3,
    .source = "Intel SDM Vol. 3 (325384-059), Tables 18-32, 19-13; intel/perfmon SNB V19, IVB V24"};
// Neither counts nor is sampled beyond PMC3, as Intel's lists have it.
constexpr List kFirstFour{
    .counters = internal::kPmc0To3,
    .pebs_counters = internal::kPmc0To3,
    .source = "Intel SDM Vol. 3 (325384-059), Table 18-32; intel/perfmon SNB V19, IVB V24"};
// Of 06_2DH Intel's list has these counted only.
constexpr List kJaketown{.counters = internal::kPmc0To3, .source = "intel/perfmon JKT V24"};
// In no table of the SDM; Intel's lists have them.
constexpr List kPerfmonOnly{.counters = internal::kPmc0To3,
                            .pebs_counters = internal::kPmc0To3,
                            .source = "intel/perfmon SNB V19, IVB V24"};
constexpr List kLoadLatency{.counters = internal::kPmc3,
                            .pebs_counters = internal::kPmc3,
                            .source =
                                "Intel SDM Vol. 3 (325384-059), 18.9.4.2 \"Load Latency "
                                "Performance Monitoring Facility\", Table 19-13 (PMC3 only)"};
constexpr List kPreciseStore{.counters = internal::kPmc3,
                             .pebs_counters = internal::kPmc3,
                             .source =
                                 "Intel SDM Vol. 3 (325384-059), 18.9.4.3 \"Precise Store "
                                 "Facility\", Table 18-31 (PMC3 only)"};
// Table 18-31 restricts the *precise distribution* to PMC1. What C0H/01H gives on PMC0, 2 and 3 is
// not stated; the row lets it count and be sampled there, and Microarch::pdir_counter says where
// the distribution is precise.
constexpr List kPdir{.counters = internal::kPmc0To3,
                     .pebs_counters = internal::kPmc0To3,
                     .source =
                         "Intel SDM Vol. 3 (325384-059), 18.9.4.4 \"Precise Distribution of "
                         "Instructions Retired (PDIR)\", Tables 18-31, 18-32"};

// The core model's LLC events are the lines that its loads and stores ask for; silicon's are those of
// code fetches, prefetches and speculation, too.
constexpr std::array kArchitecturalEvents = {
    kArchitectural.counting("CPU_CLK_UNHALTED.THREAD_P", 0x3C, 0x00, Signal::kCycles),
    kArchitectural.counting("CPU_CLK_UNHALTED.REF_XCLK", 0x3C, 0x01, Signal::kBusCycles),
    kArchitectural.counting("INST_RETIRED.ANY_P", 0xC0, 0x00, Signal::kInstructions),
    kArchitectural.counting("LONGEST_LAT_CACHE.REFERENCE", 0x2E, 0x4F, Signal::kLlcReferences),
    kArchitectural.counting("LONGEST_LAT_CACHE.MISS", 0x2E, 0x41, Signal::kLlcMisses),
    kArchitectural.counting("BR_INST_RETIRED.ALL_BRANCHES", 0xC4, 0x00, Signal::kBranches),
    kArchitectural.counting("BR_MISP_RETIRED.ALL_BRANCHES", 0xC5, 0x00, Signal::kMispredicts),
};

constexpr Event kPrecDist =
    kPdir.pebs("INST_RETIRED.PREC_DIST", 0xC0, 0x01, Signal::kInstructions, EventKind::kPdir);

constexpr std::array kCommonEvents = {
    // Published as macro-fused 1, micro-fused 2: the core model reports the fused domain for both.
    kAnywhere.pebs("UOPS_RETIRED.ALL", 0xC2, 0x01, Signal::kUops),
    kAnywhere.pebs("UOPS_RETIRED.RETIRE_SLOTS", 0xC2, 0x02, Signal::kUops),
    kAnywhere.pebs("BR_INST_RETIRED.CONDITIONAL", 0xC4, 0x01, Signal::kConditional),
    kAnywhere.pebs("BR_INST_RETIRED.NEAR_CALL", 0xC4, 0x02, Signal::kNearCalls),
    // The same encoding, meant with USR alone.
    kAnywhere.pebs("BR_INST_RETIRED.NEAR_CALL_R3", 0xC4, 0x02, Signal::kNearCalls),
    kFirstFour.pebs("BR_INST_RETIRED.ALL_BRANCHES_PEBS", 0xC4, 0x04, Signal::kBranches,
                    EventKind::kPebsOnly),
    kAnywhere.pebs("BR_INST_RETIRED.NEAR_RETURN", 0xC4, 0x08, Signal::kNearReturns),
    kAnywhere.pebs("BR_INST_RETIRED.NEAR_TAKEN", 0xC4, 0x20, Signal::kNearTaken),
    kAnywhere.pebs("BR_MISP_RETIRED.CONDITIONAL", 0xC5, 0x01, Signal::kMispredictsConditional),
    kFirstFour.pebs("BR_MISP_RETIRED.ALL_BRANCHES_PEBS", 0xC5, 0x04, Signal::kMispredicts,
                    EventKind::kPebsOnly),
    alone(kLoadLatency.pebs("MEM_TRANS_RETIRED.LOAD_LATENCY", 0xCD, 0x01, Signal::kLoads,
                            EventKind::kLoadLatency)),
    alone(kPreciseStore.pebs("MEM_TRANS_RETIRED.PRECISE_STORE", 0xCD, 0x02, Signal::kStores,
                             EventKind::kPreciseStore)),
    kPmc0To3.pebs("MEM_UOPS_RETIRED.STLB_MISS_LOADS", 0xD0, 0x11, Signal::kStlbMissLoads),
    kPmc0To3.pebs("MEM_UOPS_RETIRED.STLB_MISS_STORES", 0xD0, 0x12, Signal::kStlbMissStores),
    kPmc0To3.pebs("MEM_UOPS_RETIRED.LOCK_LOADS", 0xD0, 0x21, Signal::kLockedLoads),
    kPmc0To3.pebs("MEM_UOPS_RETIRED.SPLIT_LOADS", 0xD0, 0x41, Signal::kSplitLoads),
    kPmc0To3.pebs("MEM_UOPS_RETIRED.SPLIT_STORES", 0xD0, 0x42, Signal::kSplitStores),
    kPmc0To3.pebs("MEM_UOPS_RETIRED.ALL_LOADS", 0xD0, 0x81, Signal::kLoads),
    kPmc0To3.pebs("MEM_UOPS_RETIRED.ALL_STORES", 0xD0, 0x82, Signal::kStores),
    kPmc0To3.pebs("MEM_LOAD_UOPS_RETIRED.L1_HIT", 0xD1, 0x01, Signal::kLoadsL1Hit),
    kPmc0To3.pebs("MEM_LOAD_UOPS_RETIRED.L2_HIT", 0xD1, 0x02, Signal::kLoadsL2Hit),
    kPmc0To3.pebs("MEM_LOAD_UOPS_RETIRED.HIT_LFB", 0xD1, 0x40, Signal::kLoadsFillBuffer),
};

constexpr std::array kLlcEvents = {
    kPmc0To3.pebs("MEM_LOAD_UOPS_RETIRED.LLC_HIT", 0xD1, 0x04, Signal::kLoadsL3Hit),
    // One core: no snoop is ever needed.
    kPmc0To3.pebs("MEM_LOAD_UOPS_LLC_HIT_RETIRED.XSNP_MISS", 0xD2, 0x01, Signal::kNone),
    kPmc0To3.pebs("MEM_LOAD_UOPS_LLC_HIT_RETIRED.XSNP_HIT", 0xD2, 0x02, Signal::kNone),
    kPmc0To3.pebs("MEM_LOAD_UOPS_LLC_HIT_RETIRED.XSNP_HITM", 0xD2, 0x04, Signal::kNone),
    kPmc0To3.pebs("MEM_LOAD_UOPS_LLC_HIT_RETIRED.XSNP_NONE", 0xD2, 0x08, Signal::kLoadsL3Hit),
};

constexpr std::array kJaketownLlcEvents = {
    kJaketown.counting("MEM_LOAD_UOPS_RETIRED.LLC_HIT", 0xD1, 0x04, Signal::kLoadsL3Hit),
    kJaketown.counting("MEM_LOAD_UOPS_RETIRED.LLC_MISS", 0xD1, 0x20, Signal::kLoadsL3Miss),
    kJaketown.counting("MEM_LOAD_UOPS_LLC_HIT_RETIRED.XSNP_MISS", 0xD2, 0x01, Signal::kNone),
    kJaketown.counting("MEM_LOAD_UOPS_LLC_HIT_RETIRED.XSNP_HIT", 0xD2, 0x02, Signal::kNone),
    kJaketown.counting("MEM_LOAD_UOPS_LLC_HIT_RETIRED.XSNP_HITM", 0xD2, 0x04, Signal::kNone),
    kJaketown.counting("MEM_LOAD_UOPS_LLC_HIT_RETIRED.XSNP_NONE", 0xD2, 0x08, Signal::kLoadsL3Hit),
    kJaketown.counting("MEM_LOAD_UOPS_LLC_MISS_RETIRED.LOCAL_DRAM", 0xD3, 0x01,
                       Signal::kLoadsL3Miss),
    kJaketown.counting("MEM_LOAD_UOPS_LLC_MISS_RETIRED.REMOTE_DRAM", 0xD3, 0x04, Signal::kNone),
};

constexpr std::array kSandyBridgeEvents = {
    alone(kPrecDist),
    kAnywhere.pebs("BR_MISP_RETIRED.NEAR_CALL", 0xC5, 0x02, Signal::kMispredictsNearCall),
    kAnywhere.pebs("BR_MISP_RETIRED.NOT_TAKEN", 0xC5, 0x10, Signal::kMispredictsNotTaken),
    kAnywhere.pebs("BR_MISP_RETIRED.TAKEN", 0xC5, 0x20, Signal::kMispredictsTaken),
};
constexpr std::array kSandyBridgeClientEvents = {
    kPerfmonOnly.pebs("MEM_LOAD_UOPS_MISC_RETIRED.LLC_MISS", 0xD4, 0x02, Signal::kLoadsL3Miss),
};

// The core model says where a load hit, not how many levels it missed on the way: L1_MISS and
// L2_MISS would each be a sum of signals.
constexpr std::array kIvyBridgeEvents = {
    kPrecDist,
    kAnywhere.pebs("BR_MISP_RETIRED.NEAR_TAKEN", 0xC5, 0x20, Signal::kMispredictsTaken),
    kPerfmonOnly.pebs("MEM_LOAD_UOPS_RETIRED.L1_MISS", 0xD1, 0x08, Signal::kNone),
    kPerfmonOnly.pebs("MEM_LOAD_UOPS_RETIRED.L2_MISS", 0xD1, 0x10, Signal::kNone),
    kPerfmonOnly.pebs("MEM_LOAD_UOPS_RETIRED.LLC_MISS", 0xD1, 0x20, Signal::kLoadsL3Miss),
};

constexpr auto kSandyBridgeTable = join(kArchitecturalEvents, kCommonEvents, kLlcEvents,
                                        kSandyBridgeEvents, kSandyBridgeClientEvents);
constexpr auto kJaketownTable =
    join(kArchitecturalEvents, kCommonEvents, kJaketownLlcEvents, kSandyBridgeEvents);
constexpr auto kIvyBridgeTable =
    join(kArchitecturalEvents, kCommonEvents, kLlcEvents, kIvyBridgeEvents);

// Below these revisions Linux refuses PEBS.
constexpr std::array<CpuModel, 5> kSandyBridgeModels = {
    {{.model = 0x2A, .stepping = 7, .minimum_microcode = 0x28},
     {.model = 0x2A},
     {.model = 0x2D, .stepping = 6, .minimum_microcode = 0x618},
     {.model = 0x2D, .stepping = 7, .minimum_microcode = 0x70C},
     {.model = 0x2D}}};
constexpr std::array<CpuModel, 3> kJaketownModels = {
    {{.model = 0x2D, .stepping = 6, .minimum_microcode = 0x618},
     {.model = 0x2D, .stepping = 7, .minimum_microcode = 0x70C},
     {.model = 0x2D}}};
constexpr std::array<CpuModel, 2> kIvyBridgeModels = {{{.model = 0x3A}, {.model = 0x3E}}};

// What the two share. [SDM 18.9.2 for coalescence, 18.9.3 for full-width writes, Table 18-31]
constexpr Microarch shared() {
  return {
      .perfmon_version = 3,
      .gp_counters = 4,
      .gp_counters_alone = 8,
      .gp_width = 48,
      .fixed_counters = 3,
      .fixed_width = 48,
      .full_width_writes = true,
      .pebs_counters = 0x0F,
      .record = &kRecordFormat1,
      .ds = kDsFourResets,
      .load_latency_enable = 0x0F,
      .load_latency_counters = 0x08,
      .load_latency_event = 0x01CD,
      .precise_store_counter = 0x08,
      .pdir_counter = 0x02,
      .fused_pair_skid = 2,
      .data_source_tlb_lock_bits = true,
      .full_buffer_sets_ovf = true,  // by the text of SDM 18.9.1 (R45)
      .minimum_period = 1,           // small ones cost more, and nothing else (R40)
      // Linux samples UOPS_RETIRED.ALL with CMASK 16 and INV as a precise cycle event [Linux 6.12
      // ds.c].
      .disputed_qualifiers = 1u << (kQualifierInvert | kQualifierCmask),
      .fusion = kSandyBridgeFusion,
      .indexed_fusion = IndexedFusion::kNever,
  };
}

constexpr Microarch sandy_bridge() {
  Microarch row = shared();
  row.name = "sandy-bridge";
  row.title = "Sandy Bridge";
  row.models = kSandyBridgeModels;
  row.microcode_source = "Linux 6.12 core.c intel_snb_pebs_broken";
  // Erratum BJ103 (BK102). The updates for Ivy Bridge (BV, BU) list nothing of the kind.
  row.pdir_minimum_period = 100;
  row.events = kSandyBridgeTable;
  row.caches = {.l2_latency = 12,
                .l3_bytes = 8 << 20,
                .l3_latency = 30,
                .mispredict_penalty = 16,
                .bus_ratio = 33};
  return row;
}

constexpr Microarch ivy_bridge() {
  Microarch row = shared();
  row.name = "ivy-bridge";
  row.title = "Ivy Bridge";
  row.models = kIvyBridgeModels;
  row.events = kIvyBridgeTable;
  row.caches = {.l2_latency = 12,
                .l3_bytes = 8 << 20,
                .l3_latency = 30,
                .mispredict_penalty = 15,
                .bus_ratio = 33};
  return row;
}

constexpr Microarch kSandyBridgeEp =
    internal::part_of(sandy_bridge(), "Sandy Bridge-EP", kJaketownModels, kJaketownTable);
constexpr std::array<const Microarch*, 1> kSandyBridgeVariants = {&kSandyBridgeEp};

}  // namespace

constexpr Microarch kSandyBridge = internal::with_variants(sandy_bridge(), kSandyBridgeVariants);
constexpr Microarch kIvyBridge = ivy_bridge();

}  // namespace skidproof::arch
