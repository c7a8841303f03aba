// Sandy Bridge and Ivy Bridge: one row each, and their events.
//
// Sources: Intel SDM Vol. 3 (325384-059), 18.9 "Performance Monitoring for Processors Based on
// Intel Microarchitecture Code Name Sandy Bridge", Tables 18-31, 18-32, 19-13, and 18.10 for Ivy
// Bridge; Intel's event lists intel/perfmon SNB V19, JKT V24, IVB V24; minimum microcode from
// Linux.
#include "pebs/arch/perfmon/sandy_bridge.h"

#include <array>

#include "pebs/arch/event_table.h"
#include "pebs/arch/perfmon/ivy_bridge.h"
#include "pebs/arch/perfmon/ivy_bridge_ep.h"
#include "pebs/arch/perfmon/sandy_bridge_ep.h"

namespace skidproof::arch {

namespace {

using perfmon::events_of;

// Table 18-31 restricts the *precise distribution* to PMC1, and Intel's lists publish the event there alone. What C0H/01H
// gives on PMC0, 2 and 3 is not stated; the row lets it count and be sampled there, and Microarch::pdir_counter says where
// the distribution is precise.
constexpr Event kPrecDist = {.name = "INST_RETIRED.PREC_DIST",
                             .code = 0xC0,
                             .umask = 0x01,
                             .signal = Signal::kInstructions,
                             .counters = internal::kPmc0To3,
                             .pebs_counters = internal::kPmc0To3,
                             .kind = EventKind::kPdir,
                             .source =
                                 "Intel SDM Vol. 3 (325384-059), 18.9.4.4 \"Precise Distribution "
                                 "of Instructions Retired (PDIR)\", Tables 18-31, 18-32",
                             .reason =
                                 "the manual gives the counter where the distribution is precise, "
                                 "not where the event counts; suites ask what the others do"};
constexpr std::array kSandyBridgeOwn = {internal::alone(kPrecDist)};
constexpr std::array kIvyBridgeOwn = {kPrecDist};

// Where the lists do not say where PEBS takes an event. [Table 18-31]
constexpr uint16_t kPebsCounters = internal::kPmc0To3;
constexpr auto kSandyBridgeTable =
    events_of<perfmon::kSandyBridge, kSandyBridgeOwn, kPebsCounters>();
constexpr auto kJaketownTable =
    events_of<perfmon::kSandyBridgeEp, kSandyBridgeOwn, kPebsCounters>();
constexpr auto kIvyBridgeTable = events_of<perfmon::kIvyBridge, kIvyBridgeOwn, kPebsCounters>();
constexpr auto kIvyTownTable = events_of<perfmon::kIvyBridgeEp, kIvyBridgeOwn, kPebsCounters>();

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
constexpr std::array<CpuModel, 1> kIvyTownModels = {{{.model = 0x3E}}};

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

constexpr std::string_view kCacheTable =
    "Optimization Reference Manual (248966), 'Lookup Order and Load Latency'";
constexpr std::array<FastestLatency, 2> kLatencies = {
    {{.level = 1, .cycles = 4, .source = kCacheTable},
     {.level = 2, .cycles = 12, .source = kCacheTable}}};

constexpr Microarch sandy_bridge() {
  Microarch row = shared();
  row.name = "sandy-bridge";
  row.title = "Sandy Bridge";
  row.models = kSandyBridgeModels;
  row.introduced = {.year = 2011,
                    .source =
                        "Intel SDM Vol. 1 (253665-089), Table 2-2 \"Key Features of Most Recent "
                        "Intel 64 Processors\""};
  row.microcode_source = "Linux 6.12 core.c intel_snb_pebs_broken";
  // Erratum BJ103 (BK102). The updates for Ivy Bridge (BV, BU) list nothing of the kind.
  row.pdir_minimum_period = 100;
  row.events = kSandyBridgeTable;
  row.caches = {.l2_latency = 12,
                .l3_bytes = 8 << 20,
                .l3_latency = 30,
                .mispredict_penalty = 16,
                .bus_ratio = 33};
  row.latencies = kLatencies;
  return row;
}

constexpr Microarch ivy_bridge() {
  Microarch row = shared();
  row.name = "ivy-bridge";
  row.title = "Ivy Bridge";
  row.models = kIvyBridgeModels;
  row.introduced = {.year = 2012,
                    .source =
                        "Intel SDM Vol. 1 (253665-089), 2.1.21 \"The Third Generation Intel Core "
                        "Processor Family (2012)\""};
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
constexpr Microarch kIvyBridgeEp =
    internal::part_of(ivy_bridge(), "Ivy Bridge-EP", kIvyTownModels, kIvyTownTable);
constexpr std::array<const Microarch*, 1> kIvyBridgeVariants = {&kIvyBridgeEp};

}  // namespace

SKIDPROOF_MICROARCH(kSandyBridge) = internal::with_variants(sandy_bridge(), kSandyBridgeVariants);
SKIDPROOF_MICROARCH(kIvyBridge) = internal::with_variants(ivy_bridge(), kIvyBridgeVariants);

}  // namespace skidproof::arch
