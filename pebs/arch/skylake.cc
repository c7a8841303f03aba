// Skylake and what shares its core: one row, and its events.
//
// Sources: Intel SDM Vol. 3 (325384-059), 18.13 "6th Generation Intel Core Processor Performance
// Monitoring Facility", Tables 18-53 to 18-59, 35-37; 18.2.4 "Architectural Performance Monitoring
// Version 4"; Intel's event list intel/perfmon SKL V59.
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
// Count wherever there is a counter, PEBS on PMC0-3 only (Table 18-54).
constexpr List kAnywhere{
    .counters = internal::kPmc0To7,
    .pebs_counters = internal::kPmc0To3,
    .source = "Intel SDM Vol. 3 (325384-059), Tables 18-54, 18-56; intel/perfmon SKL V59"};
constexpr List kPmc0To3{
    .counters = internal::kPmc0To3,
    .pebs_counters = internal::kPmc0To3,
    .source = "Intel SDM Vol. 3 (325384-059), Table 18-56; intel/perfmon SKL V59"};
constexpr List kLoadLatency{.counters = internal::kPmc0To3,
                            .pebs_counters = internal::kPmc0To3,
                            .source =
                                "Intel SDM Vol. 3 (325384-059), Table 18-54; intel/perfmon SKL "
                                "V59"};
// See sandy_bridge.cc on what C0H/01H gives outside PMC1.
constexpr List kPdir{
    .counters = internal::kPmc0To3,
    .pebs_counters = internal::kPmc0To3,
    .source = "Intel SDM Vol. 3 (325384-059), Table 18-56; intel/perfmon SKL V59 (PMC1)"};
constexpr List kNotPmc1{.counters = 0x0D, .pebs_counters = 0x0D, .source = "intel/perfmon SKL V59"};

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
constexpr std::array kListedEvents = {
    kPdir.pebs("INST_RETIRED.PREC_DIST", 0xC0, 0x01, Signal::kInstructions, EventKind::kPdir),
    kNotPmc1.cycles("INST_RETIRED.TOTAL_CYCLES_PS", 0xC0, 0x01, Signal::kInstructions, 10, true,
                    EventKind::kPebsOnly),
    kAnywhere.pebs("INST_RETIRED.NOP", 0xC0, 0x02, Signal::kNops),
    kAnywhere.pebs("BR_INST_RETIRED.CONDITIONAL", 0xC4, 0x01, Signal::kConditional),
    kAnywhere.pebs("BR_INST_RETIRED.NEAR_CALL", 0xC4, 0x02, Signal::kNearCalls),
    kPmc0To3.pebs("BR_INST_RETIRED.ALL_BRANCHES_PEBS", 0xC4, 0x04, Signal::kBranches,
                  EventKind::kPebsOnly),
    kAnywhere.pebs("BR_INST_RETIRED.NEAR_RETURN", 0xC4, 0x08, Signal::kNearReturns),
    kAnywhere.pebs("BR_INST_RETIRED.NEAR_TAKEN", 0xC4, 0x20, Signal::kNearTaken),
    kAnywhere.pebs("BR_INST_RETIRED.FAR_BRANCH", 0xC4, 0x40, Signal::kNone),
    kAnywhere.pebs("BR_MISP_RETIRED.CONDITIONAL", 0xC5, 0x01, Signal::kMispredictsConditional),
    kAnywhere.pebs("BR_MISP_RETIRED.NEAR_CALL", 0xC5, 0x02, Signal::kMispredictsNearCall),
    kPmc0To3.pebs("BR_MISP_RETIRED.ALL_BRANCHES_PEBS", 0xC5, 0x04, Signal::kMispredicts,
                  EventKind::kPebsOnly),
    kAnywhere.pebs("BR_MISP_RETIRED.NEAR_TAKEN", 0xC5, 0x20, Signal::kMispredictsTaken),
    kAnywhere.pebs("HLE_RETIRED.ABORTED", 0xC8, 0x04, Signal::kNone),
    kAnywhere.pebs("RTM_RETIRED.ABORTED", 0xC9, 0x04, Signal::kNone, EventKind::kPebsOnly),
    data_address(
        kPmc0To3.pebs("MEM_INST_RETIRED.STLB_MISS_LOADS", 0xD0, 0x11, Signal::kStlbMissLoads)),
    data_store(
        kPmc0To3.pebs("MEM_INST_RETIRED.STLB_MISS_STORES", 0xD0, 0x12, Signal::kStlbMissStores)),
    data_address(kPmc0To3.pebs("MEM_INST_RETIRED.LOCK_LOADS", 0xD0, 0x21, Signal::kLockedLoads)),
    data_address(kPmc0To3.pebs("MEM_INST_RETIRED.SPLIT_LOADS", 0xD0, 0x41, Signal::kSplitLoads)),
    data_store(kPmc0To3.pebs("MEM_INST_RETIRED.SPLIT_STORES", 0xD0, 0x42, Signal::kSplitStores)),
    data_address(kPmc0To3.pebs("MEM_INST_RETIRED.ALL_LOADS", 0xD0, 0x81, Signal::kLoads)),
    data_store(kPmc0To3.pebs("MEM_INST_RETIRED.ALL_STORES", 0xD0, 0x82, Signal::kStores)),
    data_store(kPmc0To3.pebs("MEM_INST_RETIRED.ANY", 0xD0, 0x83, Signal::kNone)),
    data_address(kPmc0To3.pebs("MEM_LOAD_RETIRED.L1_HIT", 0xD1, 0x01, Signal::kLoadsL1Hit)),
    data_address(kPmc0To3.pebs("MEM_LOAD_RETIRED.L2_HIT", 0xD1, 0x02, Signal::kLoadsL2Hit)),
    data_address(kPmc0To3.pebs("MEM_LOAD_RETIRED.L3_HIT", 0xD1, 0x04, Signal::kLoadsL3Hit)),
    data_address(kPmc0To3.pebs("MEM_LOAD_RETIRED.L1_MISS", 0xD1, 0x08, Signal::kNone)),
    data_address(kPmc0To3.pebs("MEM_LOAD_RETIRED.L2_MISS", 0xD1, 0x10, Signal::kNone)),
    data_address(kPmc0To3.pebs("MEM_LOAD_RETIRED.L3_MISS", 0xD1, 0x20, Signal::kLoadsL3Miss)),
    data_address(kPmc0To3.pebs("MEM_LOAD_RETIRED.FB_HIT", 0xD1, 0x40, Signal::kLoadsFillBuffer)),
    data_address(kPmc0To3.pebs("MEM_LOAD_L3_HIT_RETIRED.XSNP_MISS", 0xD2, 0x01, Signal::kNone)),
    data_address(kPmc0To3.pebs("MEM_LOAD_L3_HIT_RETIRED.XSNP_HIT", 0xD2, 0x02, Signal::kNone)),
    data_address(kPmc0To3.pebs("MEM_LOAD_L3_HIT_RETIRED.XSNP_HITM", 0xD2, 0x04, Signal::kNone)),
    data_address(
        kPmc0To3.pebs("MEM_LOAD_L3_HIT_RETIRED.XSNP_NONE", 0xD2, 0x08, Signal::kLoadsL3Hit)),
    data_address(kPmc0To3.pebs("MEM_LOAD_MISC_RETIRED.UC", 0xD4, 0x04, Signal::kNone)),
    // In Table 18-56 only.
    kAnywhere.pebs("OTHER_ASSISTS.ANY", 0xC1, 0x3F, Signal::kNone),
    alone(kPmc0To3.pebs("FRONTEND_RETIRED", 0xC6, 0x01, Signal::kNone, EventKind::kFrontend)),
    alone(kLoadLatency.pebs("MEM_TRANS_RETIRED.LOAD_LATENCY", 0xCD, 0x01, Signal::kLoads,
                            EventKind::kLoadLatency)),
};

// Counting only: the slots of the fused domain.
constexpr List kCountingOnly{.counters = internal::kPmc0To7, .source = "intel/perfmon SKL V59"};
constexpr std::array kSlotEvents = {
    kCountingOnly.counting("UOPS_RETIRED.RETIRE_SLOTS", 0xC2, 0x02, Signal::kUops),
};

// Servers: 06_55H, steppings 0 to 4 Skylake, from 5 on Cascade Lake and Cooper Lake.
constexpr List kServer{.counters = internal::kPmc0To3,
                       .pebs_counters = internal::kPmc0To3,
                       .source = "intel/perfmon SKX V1.37, CLX V1.25"};
constexpr std::array kServerEvents = {
    kAnywhere.pebs("BR_MISP_RETIRED.RET", 0xC5, 0x08, Signal::kNone),
    data_address(
        kServer.pebs("MEM_LOAD_L3_MISS_RETIRED.LOCAL_DRAM", 0xD3, 0x01, Signal::kLoadsL3Miss)),
    data_address(kServer.pebs("MEM_LOAD_L3_MISS_RETIRED.REMOTE_DRAM", 0xD3, 0x02, Signal::kNone)),
    data_address(kServer.pebs("MEM_LOAD_L3_MISS_RETIRED.REMOTE_HITM", 0xD3, 0x04, Signal::kNone)),
};
constexpr std::array kSkylakeServerEvents = {
    data_address(kServer.pebs("MEM_LOAD_L3_MISS_RETIRED.REMOTE_FWD", 0xD3, 0x08, Signal::kNone)),
};
constexpr std::array kCascadeLakeEvents = {
    data_address(kServer.pebs("MEM_LOAD_RETIRED.LOCAL_PMM", 0xD1, 0x80, Signal::kNone)),
    data_address(kServer.pebs("MEM_LOAD_L3_MISS_RETIRED.REMOTE_PMM", 0xD3, 0x10, Signal::kNone)),
};

constexpr auto kTable = join(kArchitecturalEvents, kSlotEvents, kListedEvents);
constexpr auto kSkylakeServerTable =
    join(kArchitecturalEvents, kSlotEvents, kListedEvents, kServerEvents, kSkylakeServerEvents);
constexpr auto kCascadeLakeTable =
    join(kArchitecturalEvents, kSlotEvents, kListedEvents, kServerEvents, kCascadeLakeEvents);

// Skylake, Kaby Lake, Coffee Lake, Cascade Lake, Comet Lake. [Linux 6.12 intel-family.h]
constexpr std::array<CpuModel, 7> kModels = {{{.model = 0x4E},
                                              {.model = 0x5E},
                                              {.model = 0x55},
                                              {.model = 0x8E},
                                              {.model = 0x9E},
                                              {.model = 0xA5},
                                              {.model = 0xA6}}};
constexpr std::array<CpuModel, 5> kSkylakeServerModels = {{{.model = 0x55, .stepping = 0},
                                                           {.model = 0x55, .stepping = 1},
                                                           {.model = 0x55, .stepping = 2},
                                                           {.model = 0x55, .stepping = 3},
                                                           {.model = 0x55, .stepping = 4}}};
constexpr std::array<CpuModel, 1> kCascadeLakeModels = {{{.model = 0x55}}};

// [SDM Tables 18-53, 18-54]
constexpr Microarch skylake() {
  return {
      .name = "skylake",
      .title = "Skylake",
      .models = kModels,
      .perfmon_version = 4,
      .gp_counters = 4,
      .gp_counters_alone = 8,
      .gp_width = 48,
      .fixed_counters = 3,
      .fixed_width = 48,
      .full_width_writes = true,
      .lbr_format = 5,
      .last_branches = kLastBranches32,
      .perfevtsel_defined = evtsel::kDefined | evtsel::kInTx,
      .tsx = true,
      .processor_trace = true,
      .sgx = true,
      .frontend_defined = 0x7FFF17,  // Linux 6.12 core.c intel_skl_extra_regs
      .pebs_counters = 0x0F,
      .record = &kRecordFormat3,
      .ds = kDsFourResets,
      .load_latency_enable = 0x0F,
      .load_latency_counters = 0x0F,
      .load_latency_event = 0x01CD,
      .pdir_counter = 0x02,
      // Table 18-54 lists what is new against Haswell and has no row for skid.
      .fused_pair_skid = 2,
      .data_source_tlb_lock_bits = true,
      .full_buffer_sets_ovf = true,
      .minimum_period = 1,
      // Table 18-56 itself has INST_RETIRED.ALL_CYCLES with CMASK 10 and INV.
      .disputed_qualifiers = 1u << (kQualifierInvert | kQualifierCmask),
      .events = kTable,
      .fusion = kSandyBridgeFusion,
      .indexed_fusion = IndexedFusion::kTwoOperands,
      .caches = {.l2_ways = 4,
                 .l2_latency = 12,
                 .l3_bytes = 8 << 20,
                 .l3_latency = 42,
                 .stlb_entries = 1536,
                 .stlb_ways = 12,
                 .mispredict_penalty = 16,
                 .bus_ratio = 125},
  };
}

// The servers have no SGX.
constexpr Microarch server(std::string_view title, std::span<const CpuModel> models,
                           std::span<const Event> events) {
  Microarch row = internal::part_of(skylake(), title, models, events);
  row.sgx = false;
  return row;
}
constexpr Microarch kSkylakeServer =
    server("Skylake (server)", kSkylakeServerModels, kSkylakeServerTable);
constexpr Microarch kCascadeLake = server("Cascade Lake", kCascadeLakeModels, kCascadeLakeTable);
constexpr std::array<const Microarch*, 2> kVariants = {&kSkylakeServer, &kCascadeLake};

}  // namespace

constexpr Microarch kSkylake = internal::with_variants(skylake(), kVariants);

}  // namespace skidproof::arch
