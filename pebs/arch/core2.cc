// Core 2: its row and its events.
//
// Sources: Intel SDM Vol. 3 (325384-059), 18.4 "Performance Monitoring (Processors Based on Intel
// Core Microarchitecture)", Tables 18-10, 18-11, 35-3.
#include <array>

#include "pebs/arch/event_table.h"

namespace skidproof::arch {

namespace {

using internal::List;

constexpr List kArchitectural{
    .counters = 0x03,
    .source =
        "Intel SDM Vol. 3 (325384-059), Table 18-1 \"UMask and Event Select Encodings for "
        "Pre-Defined Architectural Performance Events\""};
constexpr List kListed{
    .counters = 0x03,
    .pebs_counters = internal::kPmc0,
    .source =
        "Intel SDM Vol. 3 (325384-059), Table 18-10 \"PEBS Performance Events for Intel Core "
        "Microarchitecture\""};

// Uops in the fused domain of macro-fusion; counting only.
constexpr List kUops{
    .counters = 0x03,
    .source =
        "Intel SDM Vol. 3 (325384-059), chapter 19 \"Performance Monitoring Events "
        "for Processors Based on Intel Core Microarchitecture\""};

// Signal::kNone: see perfmon/signals.inc; the core model also does not tell a miss that fetches a line from
// one that joins a fetch, and has no L3 to take out of the way of L2_MISS. The last level of the
// architectural events is the core model's L3.
constexpr std::array kEvents = {
    kArchitectural.counting("CPU_CLK_UNHALTED.CORE", 0x3C, 0x00, Signal::kCycles),
    kArchitectural.counting("CPU_CLK_UNHALTED.BUS", 0x3C, 0x01, Signal::kBusCycles),
    kArchitectural.counting("L2_RQSTS.SELF.DEMAND", 0x2E, 0x4F, Signal::kLlcReferences),
    kArchitectural.counting("L2_RQSTS.SELF.DEMAND.I_STATE", 0x2E, 0x41, Signal::kLlcMisses),
    kArchitectural.counting("BR_INST_RETIRED.ANY", 0xC4, 0x00, Signal::kBranches),
    kUops.counting("UOPS_RETIRED.ANY", 0xC2, 0x0F, Signal::kUops),
    kUops.counting("UOPS_RETIRED.MACRO_FUSION", 0xC2, 0x04, Signal::kMacroFused),
    kListed.pebs("INSTR_RETIRED.ANY_P", 0xC0, 0x00, Signal::kInstructions),
    kListed.pebs("X87_OPS_RETIRED.ANY", 0xC1, 0xFE, Signal::kNone),
    kListed.pebs("BR_INST_RETIRED.MISPRED", 0xC5, 0x00, Signal::kMispredicts),
    kListed.pebs("SIMD_INST_RETIRED.ANY", 0xC7, 0x1F, Signal::kSimd),
    kListed.pebs("MEM_LOAD_RETIRED.L1D_MISS", 0xCB, 0x01, Signal::kNone),
    kListed.pebs("MEM_LOAD_RETIRED.L1D_LINE_MISS", 0xCB, 0x02, Signal::kNone),
    kListed.pebs("MEM_LOAD_RETIRED.L2_MISS", 0xCB, 0x04, Signal::kNone),
    kListed.pebs("MEM_LOAD_RETIRED.L2_LINE_MISS", 0xCB, 0x08, Signal::kNone),
    kListed.pebs("MEM_LOAD_RETIRED.DTLB_MISS", 0xCB, 0x10, Signal::kStlbMissLoads),
};

// [Linux 6.12 intel-family.h] Linux switches PEBS off on 06_0FH by its errata; later models keep it.
constexpr std::array<CpuModel, 4> kModels = {
    {{.model = 0x0F}, {.model = 0x16}, {.model = 0x17}, {.model = 0x1D}}};

constexpr std::string_view kCacheTable =
    "Optimization Reference Manual (248966), 'Cache Parameters of Processors based on Intel Core "
    "Microarchitecture'";
constexpr std::array<FastestLatency, 2> kLatencies = {
    {{.level = 1, .cycles = 3, .source = kCacheTable},
     {.level = 2, .cycles = 14, .source = kCacheTable}}};

constexpr Microarch core2() {
  return {
      .name = "core2",
      .title = "Core 2",
      .models = kModels,
      .introduced = {.year = 2006,
                     .source = "Intel SDM Vol. 1 (253665-089), Table 2-2 \"Key Features of Most "
                               "Recent Intel 64 Processors\""},
      .perfmon_version = 2,
      .gp_counters = 2,
      .gp_counters_alone = 2,
      .gp_width = 40,  // Table 18-18
      .fixed_counters = 3,
      .fixed_width = 40,
      .full_width_writes = false,
      .lbr_format = 2,  // 64-bit EIP
      .last_branches = kLastBranches4,
      .smm_freeze = false,               // Figure 18-49 has it from Nehalem on
      .perfevtsel_defined = 0xFFDFFFFF,  // AnyThread comes with version 3 (Figures 18-1, 18-6)
      .any_thread = false,
      .pebs_counters = internal::kPmc0,  // Table 18-11
      .record = &kRecordFormat0,
      .ds = kDsOneReset,
      // With more than a page the WRMSR that enables PEBS hangs. [Linux 6.12 ds.c, at
      // PEBS_BUFFER_SIZE]
      .pebs_buffer_limit_bytes = 4096,
      .branch_trace = {.predicted = false},
      .load_latency_enable = 0,
      .load_latency_counters = 0,
      .load_latency_event = 0,
      .fused_pair_skid = 1,
      .full_buffer_sets_ovf = true,   // 18.4.2 words OvfBuffer as 18.9.1 does (R21, R45)
      .threshold_by_equality = true,  // by the words of errata AR64 and W127 (D6a)
      // Linux samples INSTR_RETIRED.ANY_P with CMASK 16 and INV as a precise cycle event [Linux
      // 6.12 ds.c].
      .disputed_qualifiers = 1u << (kQualifierInvert | kQualifierCmask),
      .events = kEvents,
      .fusion = kCore2Fusion,
      .caches = {.l2_bytes = 4 << 20,
                 .l2_ways = 16,
                 .l2_latency = 14,
                 .l3_bytes = 8 << 20,
                 .l3_latency = 60,
                 .dtlb_entries = 16,
                 .stlb_entries = 256,
                 .mispredict_penalty = 15,
                 .bus_ratio = 9},
      .latencies = kLatencies,
  };
}

}  // namespace

SKIDPROOF_MICROARCH(kCore2) = core2();

}  // namespace skidproof::arch
