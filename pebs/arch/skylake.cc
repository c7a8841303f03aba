// Skylake and what shares its core: one row, and its events.
//
// Sources: Intel SDM Vol. 3 (325384-059), 18.13 "6th Generation Intel Core Processor Performance
// Monitoring Facility", Tables 18-53 to 18-59, 35-37; 18.2.4 "Architectural Performance Monitoring
// Version 4"; Intel's event list intel/perfmon SKL V59.
#include "pebs/arch/perfmon/skylake.h"

#include <array>

#include "pebs/arch/event_table.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/perfmon/cascade_lake.h"
#include "pebs/arch/perfmon/skylake_sp.h"

namespace skidproof::arch {

namespace {

using perfmon::events_of;

// See sandy_bridge.cc on what C0H/01H gives outside PMC1.
constexpr Event kPrecDist = {
    .name = "INST_RETIRED.PREC_DIST",
    .code = 0xC0,
    .umask = 0x01,
    .signal = Signal::kInstructions,
    .counters = internal::kPmc0To3,
    .pebs_counters = internal::kPmc0To3,
    .kind = EventKind::kPdir,
    .source = "Intel SDM Vol. 3 (325384-059), Table 18-56; intel/perfmon (PMC1)",
    .reason =
        "the manual gives the counter where the distribution is precise, not where the event "
        "counts; suites ask what the others do"};
// In no list of Intel's.
constexpr Event kAssists = {.name = "OTHER_ASSISTS.ANY",
                            .code = 0xC1,
                            .umask = 0x3F,
                            .counters = internal::kPmc0To7,
                            .pebs_counters = internal::kPmc0To3,
                            .kind = EventKind::kPebs,
                            .source = "Intel SDM Vol. 3 (325384-059), Table 18-56",
                            .reason = "the manual has it among the precise events"};
constexpr std::array kOwn = {kPrecDist, kAssists};

// Where the lists do not say where PEBS takes an event. [Table 18-54]
constexpr uint16_t kPebsCounters = internal::kPmc0To3;
constexpr auto kTable = events_of<perfmon::kSkylake, kOwn, kPebsCounters>();
constexpr auto kSkylakeServerTable = events_of<perfmon::kSkylakeSp, kOwn, kPebsCounters>();
constexpr auto kCascadeLakeTable = events_of<perfmon::kCascadeLake, kOwn, kPebsCounters>();

// Servers are 06_55H: steppings 0 to 4 Skylake, from 5 on Cascade Lake and Cooper Lake.
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

constexpr std::string_view kCacheTable =
    "Optimization Reference Manual (248966), 'Cache Parameters of the Skylake Microarchitecture'";
constexpr std::array<FastestLatency, 2> kLatencies = {
    {{.level = 1, .cycles = 4, .source = kCacheTable},
     {.level = 2, .cycles = 12, .source = kCacheTable}}};

// [SDM Tables 18-53, 18-54]
constexpr Microarch skylake() {
  return {
      .name = "skylake",
      .title = "Skylake",
      .models = kModels,
      .introduced = {.year = 2015,
                     .month = 8,
                     .source = "The Verge, \"Intel's Skylake generation begins with a pair of "
                               "powerful processors\""},
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
      .latencies = kLatencies,
  };
}

// The servers have no SGX.
constexpr Microarch server(std::string_view title, std::span<const CpuModel> models,
                           EventSet events) {
  Microarch row = internal::part_of(skylake(), title, models, events);
  row.sgx = false;
  return row;
}
constexpr Microarch kSkylakeServer =
    server("Skylake (server)", kSkylakeServerModels, kSkylakeServerTable);
constexpr Microarch kCascadeLake = server("Cascade Lake", kCascadeLakeModels, kCascadeLakeTable);
constexpr std::array<const Microarch*, 2> kVariants = {&kSkylakeServer, &kCascadeLake};

}  // namespace

SKIDPROOF_MICROARCH(kSkylake) = internal::with_variants(skylake(), kVariants);

}  // namespace skidproof::arch
