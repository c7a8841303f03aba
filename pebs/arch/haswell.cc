// Haswell and Broadwell: one row each, and their events.
//
// Sources: Intel SDM Vol. 3 (325384-059), 18.11 "4th Generation Intel Core Processor Performance
// Monitoring Facility", Tables 18-42 to 18-46, and 18.12 for Broadwell; Intel's event lists
// intel/perfmon HSW V36, BDW V30; errata as noted.
#include <array>

#include "pebs/arch/event_table.h"
#include "pebs/arch/generations.h"
#include "pebs/arch/msr.h"

namespace skidproof::arch {

namespace {

using internal::alone;
using internal::data_address;
using internal::data_store;
using internal::join;
using internal::List;

constexpr List kArchitectural{
    .counters = internal::kPmc0To7,
    .source =
        "Intel SDM Vol. 3 (325384-059), Table 18-1 \"UMask and Event Select Encodings for "
        "Pre-Defined Architectural Performance Events\""};
// Count wherever there is a counter, PEBS on PMC0-3 only (Table 18-43).
constexpr List kAnywhere{
    .counters = internal::kPmc0To7,
    .pebs_counters = internal::kPmc0To3,
    .source = "Intel SDM Vol. 3 (325384-059), Table 18-43; intel/perfmon HSW V36, BDW V30"};
constexpr List kPmc0To3{
    .counters = internal::kPmc0To3,
    .pebs_counters = internal::kPmc0To3,
    .source =
        "Intel SDM Vol. 3 (325384-059), Table 18-45 \"Precise Events That Supports Data Linear "
        "Address Profiling\"; intel/perfmon HSW V36, BDW V30"};
// Neither counts nor is sampled beyond PMC3, as Intel's lists have it.
constexpr List kFirstFour{
    .counters = internal::kPmc0To3,
    .pebs_counters = internal::kPmc0To3,
    .source = "Intel SDM Vol. 3 (325384-059), Table 18-43; intel/perfmon HSW V36, BDW V30"};
// Linux takes load latency on PMC0-3, and so does the SDM's text; Intel's lists publish PMC3.
constexpr List kLoadLatency{.counters = internal::kPmc3,
                            .pebs_counters = internal::kPmc3,
                            .source =
                                "intel/perfmon HSW V36, BDW V30; Intel SDM Vol. 3 (325384-059), "
                                "18.8.1.2 \"Load Latency Performance Monitoring Facility\""};
// See sandy_bridge.cc on what C0H/01H gives outside PMC1.
constexpr List kPdir{.counters = internal::kPmc0To3,
                     .pebs_counters = internal::kPmc0To3,
                     .source =
                         "Intel SDM Vol. 3 (325384-059), Table 18-43; intel/perfmon HSW V36, BDW "
                         "V30 (PMC1)"};

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

// Signal::kNone: far branches, transactions, other cores and packages, uncached memory, and sums of
// signals (L1_MISS, L2_MISS, loads and stores together) are no part of the core model.
// UOPS_RETIRED.ALL: address and status when the uop is a load or a tagged store (Table 18-45).
constexpr std::array kCommonEvents = {
    kPdir.pebs("INST_RETIRED.PREC_DIST", 0xC0, 0x01, Signal::kInstructions, EventKind::kPdir),
    data_store(kAnywhere.pebs("UOPS_RETIRED.ALL", 0xC2, 0x01, Signal::kUops)),
    kAnywhere.pebs("UOPS_RETIRED.RETIRE_SLOTS", 0xC2, 0x02, Signal::kUops),
    kAnywhere.pebs("BR_INST_RETIRED.CONDITIONAL", 0xC4, 0x01, Signal::kConditional),
    kAnywhere.pebs("BR_INST_RETIRED.NEAR_CALL", 0xC4, 0x02, Signal::kNearCalls),
    kAnywhere.pebs("BR_INST_RETIRED.NEAR_CALL_R3", 0xC4, 0x02, Signal::kNearCalls),
    kFirstFour.pebs("BR_INST_RETIRED.ALL_BRANCHES_PEBS", 0xC4, 0x04, Signal::kBranches,
                    EventKind::kPebsOnly),
    kAnywhere.pebs("BR_INST_RETIRED.NEAR_RETURN", 0xC4, 0x08, Signal::kNearReturns),
    kAnywhere.pebs("BR_INST_RETIRED.NEAR_TAKEN", 0xC4, 0x20, Signal::kNearTaken),
    kAnywhere.pebs("BR_MISP_RETIRED.CONDITIONAL", 0xC5, 0x01, Signal::kMispredictsConditional),
    kFirstFour.pebs("BR_MISP_RETIRED.ALL_BRANCHES_PEBS", 0xC5, 0x04, Signal::kMispredicts,
                    EventKind::kPebsOnly),
    kAnywhere.pebs("BR_MISP_RETIRED.NEAR_TAKEN", 0xC5, 0x20, Signal::kMispredictsTaken),
    kAnywhere.pebs("HLE_RETIRED.ABORTED", 0xC8, 0x04, Signal::kNone),
    kFirstFour.pebs("RTM_RETIRED.ABORTED", 0xC9, 0x04, Signal::kNone),
    data_address(
        kPmc0To3.pebs("MEM_UOPS_RETIRED.STLB_MISS_LOADS", 0xD0, 0x11, Signal::kStlbMissLoads)),
    data_store(
        kPmc0To3.pebs("MEM_UOPS_RETIRED.STLB_MISS_STORES", 0xD0, 0x12, Signal::kStlbMissStores)),
    data_address(kPmc0To3.pebs("MEM_UOPS_RETIRED.LOCK_LOADS", 0xD0, 0x21, Signal::kLockedLoads)),
    data_address(kPmc0To3.pebs("MEM_UOPS_RETIRED.SPLIT_LOADS", 0xD0, 0x41, Signal::kSplitLoads)),
    data_store(kPmc0To3.pebs("MEM_UOPS_RETIRED.SPLIT_STORES", 0xD0, 0x42, Signal::kSplitStores)),
    data_address(kPmc0To3.pebs("MEM_UOPS_RETIRED.ALL_LOADS", 0xD0, 0x81, Signal::kLoads)),
    data_store(kPmc0To3.pebs("MEM_UOPS_RETIRED.ALL_STORES", 0xD0, 0x82, Signal::kStores)),
    data_address(kPmc0To3.pebs("MEM_LOAD_UOPS_RETIRED.L1_HIT", 0xD1, 0x01, Signal::kLoadsL1Hit)),
    data_address(kPmc0To3.pebs("MEM_LOAD_UOPS_RETIRED.L2_HIT", 0xD1, 0x02, Signal::kLoadsL2Hit)),
    data_address(kPmc0To3.pebs("MEM_LOAD_UOPS_RETIRED.L3_HIT", 0xD1, 0x04, Signal::kLoadsL3Hit)),
    data_address(kPmc0To3.pebs("MEM_LOAD_UOPS_RETIRED.L1_MISS", 0xD1, 0x08, Signal::kNone)),
    data_address(kPmc0To3.pebs("MEM_LOAD_UOPS_RETIRED.L2_MISS", 0xD1, 0x10, Signal::kNone)),
    data_address(kPmc0To3.pebs("MEM_LOAD_UOPS_RETIRED.L3_MISS", 0xD1, 0x20, Signal::kLoadsL3Miss)),
    data_address(
        kPmc0To3.pebs("MEM_LOAD_UOPS_RETIRED.HIT_LFB", 0xD1, 0x40, Signal::kLoadsFillBuffer)),
    data_address(
        kPmc0To3.pebs("MEM_LOAD_UOPS_L3_HIT_RETIRED.XSNP_MISS", 0xD2, 0x01, Signal::kNone)),
    data_address(kPmc0To3.pebs("MEM_LOAD_UOPS_L3_HIT_RETIRED.XSNP_HIT", 0xD2, 0x02, Signal::kNone)),
    data_address(
        kPmc0To3.pebs("MEM_LOAD_UOPS_L3_HIT_RETIRED.XSNP_HITM", 0xD2, 0x04, Signal::kNone)),
    data_address(
        kPmc0To3.pebs("MEM_LOAD_UOPS_L3_HIT_RETIRED.XSNP_NONE", 0xD2, 0x08, Signal::kLoadsL3Hit)),
    data_address(kPmc0To3.pebs("MEM_LOAD_UOPS_L3_MISS_RETIRED.LOCAL_DRAM", 0xD3, 0x01,
                               Signal::kLoadsL3Miss)),
    alone(kLoadLatency.pebs("MEM_TRANS_RETIRED.LOAD_LATENCY", 0xCD, 0x01, Signal::kLoads,
                            EventKind::kLoadLatency)),
};

constexpr std::array kBroadwellEvents = {
    kAnywhere.pebs("BR_MISP_RETIRED.RET", 0xC5, 0x08, Signal::kNone),
};

// Servers can have other packages beside their own.
constexpr List kServer{.counters = internal::kPmc0To3,
                       .pebs_counters = internal::kPmc0To3,
                       .source = "intel/perfmon HSX V29, BDX V23, BDW-DE V12"};
constexpr std::array kServerEvents = {
    data_address(
        kServer.pebs("MEM_LOAD_UOPS_L3_MISS_RETIRED.REMOTE_DRAM", 0xD3, 0x04, Signal::kNone)),
    data_address(
        kServer.pebs("MEM_LOAD_UOPS_L3_MISS_RETIRED.REMOTE_HITM", 0xD3, 0x10, Signal::kNone)),
    data_address(
        kServer.pebs("MEM_LOAD_UOPS_L3_MISS_RETIRED.REMOTE_FWD", 0xD3, 0x20, Signal::kNone)),
};

constexpr auto kHaswellTable = join(kArchitecturalEvents, kCommonEvents);
constexpr auto kHaswellServerTable = join(kArchitecturalEvents, kCommonEvents, kServerEvents);
constexpr auto kBroadwellTable = join(kArchitecturalEvents, kCommonEvents, kBroadwellEvents);
constexpr auto kBroadwellServerTable =
    join(kArchitecturalEvents, kCommonEvents, kBroadwellEvents, kServerEvents);

// [Linux 6.12 intel-family.h]
constexpr std::array<CpuModel, 4> kHaswellModels = {
    {{.model = 0x3C}, {.model = 0x3F}, {.model = 0x45}, {.model = 0x46}}};
constexpr std::array<CpuModel, 1> kHaswellServerModels = {{{.model = 0x3F}}};
constexpr std::array<CpuModel, 4> kBroadwellModels = {
    {{.model = 0x3D}, {.model = 0x47}, {.model = 0x4F}, {.model = 0x56}}};
constexpr std::array<CpuModel, 2> kBroadwellServerModels = {{{.model = 0x4F}, {.model = 0x56}}};

// What the two share. [SDM Tables 18-42, 18-43]
constexpr Microarch shared() {
  return {
      .perfmon_version = 3,
      .gp_counters = 4,
      .gp_counters_alone = 8,
      .gp_width = 48,
      .fixed_counters = 3,
      .fixed_width = 48,
      .full_width_writes = true,
      .lbr_format = 4,
      .perfevtsel_defined = evtsel::kDefined | evtsel::kInTx,
      .tsx = true,
      .pebs_counters = 0x0F,
      .record = &kRecordFormat2,
      .ds = kDsFourResets,
      .load_latency_enable = 0x0F,
      .load_latency_counters = 0x08,
      .load_latency_event = 0x01CD,
      .pdir_counter = 0x02,
      .fused_pair_skid = 2,  // Table 18-43
      .data_source_tlb_lock_bits = true,
      .full_buffer_sets_ovf = true,  // Table 18-43 says nothing new
      .minimum_period = 1,
      // Linux samples UOPS_RETIRED.ALL with CMASK 16 and INV as a precise cycle event [Linux 6.12
      // ds.c].
      .disputed_qualifiers = 1u << (kQualifierInvert | kQualifierCmask),
      .fusion = kSandyBridgeFusion,
      .indexed_fusion = IndexedFusion::kTwoOperands,
  };
}

constexpr Microarch haswell() {
  Microarch row = shared();
  row.name = "haswell";
  row.title = "Haswell";
  row.models = kHaswellModels;
  // Linux 6.12 core.c hsw_limit_period: 32 for every event, and 128 for C0H/01H, where errata HSD11
  // and HSM11 (Linux: HSW11) ask for 100.
  row.minimum_period = 32;
  row.pdir_minimum_period = 128;
  row.events = kHaswellTable;
  row.caches = {.l2_latency = 12,
                .l3_bytes = 8 << 20,
                .l3_latency = 34,
                .stlb_entries = 1024,
                .stlb_ways = 8,
                .mispredict_penalty = 16,
                .bus_ratio = 33};
  return row;
}

constexpr Microarch broadwell() {
  Microarch row = shared();
  row.name = "broadwell";
  row.title = "Broadwell";
  row.models = kBroadwellModels;
  row.processor_trace = true;
  // Errata BDM11, BDM55: Linux 6.12 core.c bdw_limit_period.
  row.pdir_minimum_period = 128;
  row.pdir_period_multiple = 64;
  row.events = kBroadwellTable;
  row.caches = {.l2_latency = 12,
                .l3_bytes = 8 << 20,
                .l3_latency = 38,
                .stlb_entries = 1536,
                .stlb_ways = 6,
                .mispredict_penalty = 16,
                .bus_ratio = 33};
  return row;
}

constexpr Microarch kHaswellServer =
    internal::part_of(haswell(), "Haswell (server)", kHaswellServerModels, kHaswellServerTable);
constexpr std::array<const Microarch*, 1> kHaswellVariants = {&kHaswellServer};
constexpr Microarch kBroadwellServer = internal::part_of(
    broadwell(), "Broadwell (server)", kBroadwellServerModels, kBroadwellServerTable);
constexpr std::array<const Microarch*, 1> kBroadwellVariants = {&kBroadwellServer};

}  // namespace

constexpr Microarch kHaswell = internal::with_variants(haswell(), kHaswellVariants);
constexpr Microarch kBroadwell = internal::with_variants(broadwell(), kBroadwellVariants);

}  // namespace skidproof::arch
