// Ice Lake, Tiger Lake, Rocket Lake: one row, and its events.
//
// Sources: Intel's event list intel/perfmon ICL V1.24; Linux 6.12 arch/x86/events/intel/core.c and
// ds.c, arch/x86/include/asm/perf_event.h; kvm-unit-tests x86/pmu_pebs.c. The SDM edition that the
// other rows cite ends before this generation.
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
using internal::on_fixed;

constexpr List kArchitectural{
    .counters = internal::kPmc0To7,
    .source =
        "Intel SDM Vol. 3 (325384-059), Table 18-1 \"UMask and Event Select Encodings for "
        "Pre-Defined Architectural Performance Events\""};
constexpr List kAnywhere{.counters = internal::kPmc0To7,
                         .pebs_counters = internal::kPmc0To7,
                         .source = "intel/perfmon ICL V1.24"};
constexpr List kPmc0To3{.counters = internal::kPmc0To3,
                        .pebs_counters = internal::kPmc0To3,
                        .source = "intel/perfmon ICL V1.24"};
constexpr List kFixed{
    .source = "intel/perfmon ICL V1.24; Linux 6.12 ds.c intel_icl_pebs_event_constraints"};

// The core model's LLC events are the lines that its loads and stores ask for; silicon's are those of
// code fetches, prefetches and speculation, too.
constexpr std::array kArchitecturalEvents = {
    kArchitectural.counting("CPU_CLK_UNHALTED.THREAD_P", 0x3C, 0x00, Signal::kCycles),
    kArchitectural.counting("CPU_CLK_UNHALTED.REF_XCLK", 0x3C, 0x01, Signal::kBusCycles),
    kArchitectural.counting("LONGEST_LAT_CACHE.REFERENCE", 0x2E, 0x4F, Signal::kLlcReferences),
    kArchitectural.counting("LONGEST_LAT_CACHE.MISS", 0x2E, 0x41, Signal::kLlcMisses),
};

// Signal::kNone: far branches, transactions, other cores and packages, uncached memory, and sums of
// signals (L1_MISS, L2_MISS, loads and stores together) are no part of the core model.
// A mispredicted conditional branch that was taken is one too: the core model reports taken branches
// of every type together.
constexpr std::array kListedEvents = {
    on_fixed(0, kFixed.pebs("INST_RETIRED.ANY", 0x00, 0x01, Signal::kInstructions)),
    on_fixed(0, kFixed.pebs("INST_RETIRED.PREC_DIST", 0x00, 0x01, Signal::kInstructions,
                            EventKind::kPdir)),
    kAnywhere.pebs("INST_RETIRED.ANY_P", 0xC0, 0x00, Signal::kInstructions),
    kAnywhere.pebs("INST_RETIRED.NOP", 0xC0, 0x02, Signal::kNops),
    kAnywhere.pebs("BR_INST_RETIRED.ALL_BRANCHES", 0xC4, 0x00, Signal::kBranches),
    kAnywhere.pebs("BR_INST_RETIRED.COND_TAKEN", 0xC4, 0x01, Signal::kConditionalTaken),
    kAnywhere.pebs("BR_INST_RETIRED.NEAR_CALL", 0xC4, 0x02, Signal::kNearCalls),
    kAnywhere.pebs("BR_INST_RETIRED.NEAR_RETURN", 0xC4, 0x08, Signal::kNearReturns),
    kAnywhere.pebs("BR_INST_RETIRED.COND_NTAKEN", 0xC4, 0x10, Signal::kConditionalNotTaken),
    kAnywhere.pebs("BR_INST_RETIRED.COND", 0xC4, 0x11, Signal::kConditional),
    kAnywhere.pebs("BR_INST_RETIRED.NEAR_TAKEN", 0xC4, 0x20, Signal::kNearTaken),
    kAnywhere.pebs("BR_INST_RETIRED.FAR_BRANCH", 0xC4, 0x40, Signal::kNone),
    kAnywhere.pebs("BR_INST_RETIRED.INDIRECT", 0xC4, 0x80, Signal::kNone),
    kAnywhere.pebs("BR_MISP_RETIRED.ALL_BRANCHES", 0xC5, 0x00, Signal::kMispredicts),
    kAnywhere.pebs("BR_MISP_RETIRED.COND_TAKEN", 0xC5, 0x01, Signal::kNone),
    kAnywhere.pebs("BR_MISP_RETIRED.INDIRECT_CALL", 0xC5, 0x02, Signal::kNone),
    kAnywhere.pebs("BR_MISP_RETIRED.RET", 0xC5, 0x08, Signal::kNone),
    kAnywhere.pebs("BR_MISP_RETIRED.COND_NTAKEN", 0xC5, 0x10, Signal::kMispredictsNotTaken),
    kAnywhere.pebs("BR_MISP_RETIRED.COND", 0xC5, 0x11, Signal::kMispredictsConditional),
    kAnywhere.pebs("BR_MISP_RETIRED.NEAR_TAKEN", 0xC5, 0x20, Signal::kMispredictsTaken),
    kAnywhere.pebs("BR_MISP_RETIRED.INDIRECT", 0xC5, 0x80, Signal::kNone),
    kAnywhere.pebs("RTM_RETIRED.ABORTED", 0xC9, 0x04, Signal::kNone),
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
    data_address(
        kPmc0To3.pebs("MEM_LOAD_L3_HIT_RETIRED.XSNP_NONE", 0xD2, 0x08, Signal::kLoadsL3Hit)),
    data_address(kPmc0To3.pebs("MEM_LOAD_MISC_RETIRED.UC", 0xD4, 0x04, Signal::kNone)),
    // Not precise: what it samples comes at the next opportunity (R61).
    on_fixed(3, kFixed.counting("TOPDOWN.SLOTS", 0x00, 0x04, Signal::kSlots)),
    alone(kAnywhere.pebs("FRONTEND_RETIRED", 0xC6, 0x01, Signal::kNone, EventKind::kFrontend)),
    alone(kAnywhere.pebs("MEM_TRANS_RETIRED.LOAD_LATENCY", 0xCD, 0x01, Signal::kLoads,
                         EventKind::kLoadLatency)),
};

// Tiger Lake gives these two umasks other names, and the server both.
constexpr std::array kIceLakeEvents = {
    data_address(kPmc0To3.pebs("MEM_LOAD_L3_HIT_RETIRED.XSNP_HIT", 0xD2, 0x02, Signal::kNone)),
    data_address(kPmc0To3.pebs("MEM_LOAD_L3_HIT_RETIRED.XSNP_HITM", 0xD2, 0x04, Signal::kNone)),
};
constexpr List kNewer{.counters = internal::kPmc0To3,
                      .pebs_counters = internal::kPmc0To3,
                      .source = "intel/perfmon TGL V1.19, ICX V1.30"};
constexpr std::array kTigerLakeEvents = {
    data_address(kNewer.pebs("MEM_LOAD_L3_HIT_RETIRED.XSNP_NO_FWD", 0xD2, 0x02, Signal::kNone)),
    data_address(kNewer.pebs("MEM_LOAD_L3_HIT_RETIRED.XSNP_FWD", 0xD2, 0x04, Signal::kNone)),
};
constexpr List kServer{.counters = internal::kPmc0To3,
                       .pebs_counters = internal::kPmc0To3,
                       .source = "intel/perfmon ICX V1.30"};
constexpr std::array kServerEvents = {
    data_address(kServer.pebs("MEM_LOAD_RETIRED.LOCAL_PMM", 0xD1, 0x80, Signal::kNone)),
    data_address(
        kServer.pebs("MEM_LOAD_L3_MISS_RETIRED.LOCAL_DRAM", 0xD3, 0x01, Signal::kLoadsL3Miss)),
    data_address(kServer.pebs("MEM_LOAD_L3_MISS_RETIRED.REMOTE_DRAM", 0xD3, 0x02, Signal::kNone)),
    data_address(kServer.pebs("MEM_LOAD_L3_MISS_RETIRED.REMOTE_HITM", 0xD3, 0x04, Signal::kNone)),
    data_address(kServer.pebs("MEM_LOAD_L3_MISS_RETIRED.REMOTE_FWD", 0xD3, 0x08, Signal::kNone)),
    data_address(kServer.pebs("MEM_LOAD_L3_MISS_RETIRED.REMOTE_PMM", 0xD3, 0x10, Signal::kNone)),
};

// Counting only: the slots of the fused domain.
constexpr List kCountingOnly{.counters = internal::kPmc0To7, .source = "intel/perfmon ICL V1.24"};
constexpr std::array kSlotEvents = {
    kCountingOnly.counting("UOPS_RETIRED.SLOTS", 0xC2, 0x02, Signal::kUops),
};

constexpr auto kTable = join(kArchitecturalEvents, kSlotEvents, kListedEvents, kIceLakeEvents);
constexpr auto kTigerLakeTable =
    join(kArchitecturalEvents, kSlotEvents, kListedEvents, kTigerLakeEvents);
constexpr auto kServerTable = join(kArchitecturalEvents, kSlotEvents, kListedEvents, kIceLakeEvents,
                                   kTigerLakeEvents, kServerEvents);

// Ice Lake, Tiger Lake, Rocket Lake, clients and servers. [Linux 6.12 intel-family.h]
constexpr std::array<CpuModel, 8> kModels = {{{.model = 0x7D},
                                              {.model = 0x7E},
                                              {.model = 0x9D},
                                              {.model = 0x6A},
                                              {.model = 0x6C},
                                              {.model = 0x8C},
                                              {.model = 0x8D},
                                              {.model = 0xA7}}};
constexpr std::array<CpuModel, 2> kTigerLakeModels = {{{.model = 0x8C}, {.model = 0x8D}}};
constexpr std::array<CpuModel, 2> kServerModels = {{{.model = 0x6A}, {.model = 0x6C}}};

constexpr Microarch ice_lake() {
  return {
      .name = "ice-lake",
      .title = "Ice Lake",
      .models = kModels,
      .perfmon_version = 5,
      .gp_counters = 8,
      .gp_counters_alone = 8,
      .gp_width = 48,
      .fixed_counters = 4,
      .fixed_width = 48,
      .full_width_writes = true,
      .lbr_format = 5,
      .last_branches = kLastBranches32,
      .perfevtsel_defined =
          (evtsel::kDefined & ~evtsel::kAnyThread) | evtsel::kInTx | evtsel::kAdaptive,
      .any_thread = false,  // deprecated: CPUID.0AH:EDX[15]
      .tsx = true,
      .processor_trace = true,
      .sgx = true,
      .perf_metrics = true,
      .frontend_defined = 0x7FFF17,  // Linux 6.12 core.c intel_icl_extra_regs
      .pebs_counters = 0xFF,
      .pebs_fixed_counters = 0x0F,
      .pebs_any_event = true,
      .pebs_baseline = true,
      .record = &kRecordFormat4,
      .ds = kDsEightResets,
      .load_latency_enable = 0,
      .load_latency_counters = 0xFF,
      .load_latency_event = 0x01CD,
      .pdir_fixed_counter = 0x01,
      .fused_pair_skid = 2,
      .data_source_tlb_lock_bits = true,
      .full_buffer_sets_ovf = true,
      .minimum_period = 1,
      // Intel's lists take a record (CollectPEBSRecord) of events with CMASK alone
      // (DTLB_LOAD_MISSES.WALK_ACTIVE), with INV (UOPS_RETIRED.STALL_CYCLES), with Edge
      // (MACHINE_CLEARS.COUNT) and with both (RS_EVENTS.EMPTY_END) [perfmon ICL 1.24, ICX 1.30].
      .disputed_qualifiers = internal::kDisputedWithCmask,
      .events = kTable,
      .fusion = kIceLakeFusion,
      .caches = {.l1_bytes = 48 << 10,
                 .l1_ways = 12,
                 .l1_latency = 5,
                 .l2_bytes = 512 << 10,
                 .l2_latency = 13,
                 .l3_bytes = 8 << 20,
                 .l3_latency = 42,
                 .stlb_entries = 2048,
                 .stlb_ways = 16,
                 .retire_width = 5,
                 .mispredict_penalty = 17,
                 .slots = 5,
                 .bus_ratio = 100},
  };
}

constexpr Microarch ice_lake_server() {
  Microarch row = internal::part_of(ice_lake(), "Ice Lake (server)", kServerModels, kServerTable);
  row.la57 = true;
  return row;
}
constexpr Microarch kTigerLake =
    internal::part_of(ice_lake(), "Tiger Lake", kTigerLakeModels, kTigerLakeTable);
constexpr Microarch kIceLakeServer = ice_lake_server();
constexpr std::array<const Microarch*, 2> kVariants = {&kTigerLake, &kIceLakeServer};

}  // namespace

constexpr Microarch kIceLake = internal::with_variants(ice_lake(), kVariants);

}  // namespace skidproof::arch
