// Golden Cove: Alder Lake's P-core and Sapphire Rapids, one row each, and their events.
//
// Sources: Intel's event lists intel/perfmon ADL V1.40 (Golden Cove), SPR V1.39; Linux 6.12
// arch/x86/events/intel/core.c and ds.c; Intel SDM Vol. 3 (325384-089), 21.9 and Table 21-51 (PEBS
// record format 4), since the edition that the other rows cite ends before this generation.
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
                         .source = "intel/perfmon ADL V1.40, SPR V1.39"};
// PMC0 counts them; its records are those of the precise distribution, which C0H does not have.
constexpr List kPmc1To7{.counters = internal::kPmc0To7,
                        .pebs_counters = internal::kPmc1To7,
                        .source = "intel/perfmon ADL V1.40, SPR V1.39"};
constexpr List kPmc0To3{.counters = internal::kPmc0To3,
                        .pebs_counters = internal::kPmc0To3,
                        .source = "intel/perfmon ADL V1.40, SPR V1.39"};
constexpr List kPmc0{.counters = internal::kPmc0,
                     .pebs_counters = internal::kPmc0,
                     .source = "intel/perfmon ADL V1.40, SPR V1.39"};
constexpr List kLoadLatency{.counters = internal::kPmc1To7,
                            .pebs_counters = internal::kPmc1To7,
                            .source = "intel/perfmon ADL V1.40, SPR V1.39"};
constexpr List kFixed{.source =
                          "intel/perfmon ADL V1.40, SPR V1.39; Linux 6.12 ds.c "
                          "intel_glc_pebs_event_constraints"};

// The core model's LLC events are the lines that its loads and stores ask for; silicon's are those of
// code fetches, prefetches and speculation, too.
constexpr std::array kArchitecturalEvents = {
    kArchitectural.counting("CPU_CLK_UNHALTED.THREAD_P", 0x3C, 0x00, Signal::kCycles),
    kArchitectural.counting("CPU_CLK_UNHALTED.REF_TSC_P", 0x3C, 0x01, Signal::kReferenceCycles),
    kArchitectural.counting("LONGEST_LAT_CACHE.REFERENCE", 0x2E, 0x4F, Signal::kLlcReferences),
    kArchitectural.counting("LONGEST_LAT_CACHE.MISS", 0x2E, 0x41, Signal::kLlcMisses),
};

// Signal::kNone: far branches, transactions, other cores and packages, uncached memory, and sums of
// signals (L1_MISS, L2_MISS, loads and stores together) are no part of the core model.
// A mispredicted conditional branch that was taken is one too: the core model reports taken branches
// of every type together.
constexpr std::array kCommonEvents = {
    on_fixed(0, kFixed.pebs("INST_RETIRED.ANY", 0x00, 0x01, Signal::kInstructions)),
    on_fixed(0, kFixed.pebs("INST_RETIRED.PREC_DIST", 0x00, 0x01, Signal::kInstructions,
                            EventKind::kPdir)),
    kPmc1To7.pebs("INST_RETIRED.ANY_P", 0xC0, 0x00, Signal::kInstructions),
    kPmc1To7.pebs("INST_RETIRED.NOP", 0xC0, 0x02, Signal::kNops),
    kPmc1To7.pebs("INST_RETIRED.REP_ITERATION", 0xC0, 0x08, Signal::kNone),
    kPmc1To7.pebs("INST_RETIRED.MACRO_FUSED", 0xC0, 0x10, Signal::kMacroFused),
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
    data_address(kPmc0.pebs("MEM_TRANS_RETIRED.STORE_SAMPLE", 0xCD, 0x02, Signal::kStores,
                            EventKind::kStoreSample)),
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
    data_address(kPmc0To3.pebs("MEM_LOAD_L3_HIT_RETIRED.XSNP_NO_FWD", 0xD2, 0x02, Signal::kNone)),
    data_address(kPmc0To3.pebs("MEM_LOAD_L3_HIT_RETIRED.XSNP_FWD", 0xD2, 0x04, Signal::kNone)),
    data_address(
        kPmc0To3.pebs("MEM_LOAD_L3_HIT_RETIRED.XSNP_NONE", 0xD2, 0x08, Signal::kLoadsL3Hit)),
    data_address(
        kPmc0To3.pebs("MEM_LOAD_L3_MISS_RETIRED.LOCAL_DRAM", 0xD3, 0x01, Signal::kLoadsL3Miss)),
    data_address(kPmc0To3.pebs("MEM_LOAD_MISC_RETIRED.UC", 0xD4, 0x04, Signal::kNone)),
    // Not precise: what it samples comes at the next opportunity (R61).
    on_fixed(3, kFixed.counting("TOPDOWN.SLOTS", 0x00, 0x04, Signal::kSlots)),
    alone(kAnywhere.pebs("FRONTEND_RETIRED", 0xC6, 0x01, Signal::kNone, EventKind::kFrontend)),
    alone(kLoadLatency.pebs("MEM_TRANS_RETIRED.LOAD_LATENCY", 0xCD, 0x01, Signal::kLoads,
                            EventKind::kLoadLatency)),
};

constexpr std::array kAlderLakeEvents = {
    data_address(kPmc0To3.pebs("MEM_LOAD_L3_HIT_RETIRED.XSNP_HIT", 0xD2, 0x02, Signal::kNone)),
    data_address(kPmc0To3.pebs("MEM_LOAD_L3_HIT_RETIRED.XSNP_HITM", 0xD2, 0x04, Signal::kNone)),
};

// Sapphire Rapids' alone; Emerald Rapids takes no persistent memory.
constexpr std::array kPersistentMemoryEvents = {
    data_address(kPmc0To3.pebs("MEM_LOAD_RETIRED.LOCAL_PMM", 0xD1, 0x80, Signal::kNone)),
    kPmc0To3.pebs("MEM_LOAD_L3_MISS_RETIRED.REMOTE_PMM", 0xD3, 0x10, Signal::kNone),
};
constexpr std::array kServerEvents = {
    kAnywhere.pebs("RTM_RETIRED.ABORTED", 0xC9, 0x04, Signal::kNone),
    data_address(kPmc0To3.pebs("MEM_LOAD_L3_MISS_RETIRED.REMOTE_DRAM", 0xD3, 0x02, Signal::kNone)),
    data_address(kPmc0To3.pebs("MEM_LOAD_L3_MISS_RETIRED.REMOTE_HITM", 0xD3, 0x04, Signal::kNone)),
    data_address(kPmc0To3.pebs("MEM_LOAD_L3_MISS_RETIRED.REMOTE_FWD", 0xD3, 0x08, Signal::kNone)),
};

// Counting only: the slots of the fused domain.
constexpr List kCountingOnly{.counters = internal::kPmc0To7,
                             .source = "intel/perfmon ADL V1.40, SPR"};
// What load latency needs beside it, for the bits of blocked data and addresses.
constexpr List kAuxiliary{
    .counters = internal::kPmc0To3,
    .source = "intel/perfmon ADL V1.40, SPR V1.39; Linux 6.12 core.c is_mem_loads_aux_event"};
constexpr std::array kSlotEvents = {
    kAuxiliary.counting("LD_BLOCKS.STORE_FORWARD", 0x03, 0x82, Signal::kNone),
    kCountingOnly.counting("UOPS_RETIRED.SLOTS", 0xC2, 0x02, Signal::kUops),
};

constexpr auto kAlderLakeTable =
    join(kArchitecturalEvents, kSlotEvents, kCommonEvents, kAlderLakeEvents);
constexpr auto kSapphireRapidsTable =
    join(kArchitecturalEvents, kSlotEvents, kCommonEvents, kServerEvents, kPersistentMemoryEvents);
constexpr auto kEmeraldRapidsTable =
    join(kArchitecturalEvents, kSlotEvents, kCommonEvents, kServerEvents);

// Alder Lake, Raptor Lake. [Linux 6.12 intel-family.h]
constexpr std::array<CpuModel, 5> kAlderLakeModels = {
    {{.model = 0x97}, {.model = 0x9A}, {.model = 0xB7}, {.model = 0xBA}, {.model = 0xBF}}};
// Sapphire Rapids, Emerald Rapids.
constexpr std::array<CpuModel, 2> kSapphireRapidsModels = {{{.model = 0x8F}, {.model = 0xCF}}};
constexpr std::array<CpuModel, 1> kEmeraldRapidsModels = {{{.model = 0xCF}}};

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
      .data_source_block_bits = true,
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

constexpr Microarch kEmeraldRapids = internal::part_of(sapphire_rapids(), "Emerald Rapids",
                                                       kEmeraldRapidsModels, kEmeraldRapidsTable);
constexpr std::array<const Microarch*, 1> kServerVariants = {&kEmeraldRapids};

}  // namespace

constexpr Microarch kAlderLakeP = alder_lake_p();
constexpr Microarch kSapphireRapids = internal::with_variants(sapphire_rapids(), kServerVariants);

}  // namespace skidproof::arch
