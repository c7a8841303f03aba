// Nehalem and Westmere: one row each, and their events.
//
// Sources: Intel SDM Vol. 3 (325384-059), 18.8 "Performance Monitoring for Processors Based on
// Intel Microarchitecture Code Name Nehalem" and Table 18-31 (its Westmere column); Intel's event
// lists intel/perfmon NHM-EP V4, NHM-EX V4, WSM-EP-DP V5, WSM-EP-SP V4 and WSM-EX V4; errata as
// noted.
#include <array>

#include "pebs/arch/event_table.h"
#include "pebs/arch/perfmon/nehalem_ep.h"
#include "pebs/arch/perfmon/nehalem_ex.h"
#include "pebs/arch/perfmon/westmere_ep_dp.h"
#include "pebs/arch/perfmon/westmere_ep_sp.h"
#include "pebs/arch/perfmon/westmere_ex.h"

namespace skidproof::arch {

namespace {

using perfmon::events_of;

// The lists publish these under umasks of their own, and not as the architecture does.
constexpr internal::List kArchitectural{
    .counters = internal::kPmc0To3,
    .source =
        "Intel SDM Vol. 3 (325384-059), Table 18-1 \"UMask and Event Select Encodings for "
        "Pre-Defined Architectural Performance Events\"",
    .reason = "the architecture promises this umask; the lists publish the event under others"};
constexpr std::array kOwn = {
    kArchitectural.counting("INST_RETIRED.ANY_P", 0xC0, 0x00, Signal::kInstructions),
    kArchitectural.counting("BR_INST_RETIRED.ALL_BRANCHES", 0xC4, 0x00, Signal::kBranches),
    // Erratum AAJ80: counts wrongly on Nehalem silicon.
    kArchitectural.counting("BR_MISP_RETIRED.ALL_BRANCHES", 0xC5, 0x00, Signal::kMispredicts),
};

// The lists do not say where PEBS takes an event. [18.8.1.1 "Processor Event Based Sampling (PEBS)"]
constexpr uint16_t kPebsCounters = internal::kPmc0To3;
constexpr auto kNehalemTable = events_of<perfmon::kNehalemEp, kOwn, kPebsCounters>();
constexpr auto kNehalemExTable = events_of<perfmon::kNehalemEx, kOwn, kPebsCounters>();
constexpr auto kWestmereTable = events_of<perfmon::kWestmereEpDp, kOwn, kPebsCounters>();
constexpr auto kWestmereSpTable = events_of<perfmon::kWestmereEpSp, kOwn, kPebsCounters>();
constexpr auto kWestmereExTable = events_of<perfmon::kWestmereEx, kOwn, kPebsCounters>();

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

constexpr std::string_view kCacheTable =
    "Optimization Reference Manual (248966), 'Cache Parameters of Intel Core i7 Processors'";
constexpr std::array<FastestLatency, 2> kLatencies = {
    {{.level = 1, .cycles = 4, .source = kCacheTable},
     {.level = 2, .cycles = 10, .source = kCacheTable}}};

constexpr Microarch nehalem() {
  Microarch row = shared();
  row.name = "nehalem";
  row.title = "Nehalem";
  row.models = kNehalemModels;
  row.introduced = {.year = 2008,
                    .source =
                        "Intel SDM Vol. 1 (253665-089), Table 2-2 \"Key Features of Most Recent "
                        "Intel 64 Processors\""};
  row.minimum_period = 32;  // Linux 6.12 core.c nhm_limit_period: smaller ones hang or lose records
  row.events = kNehalemTable;
  row.caches = {.l2_latency = 10,
                .l3_bytes = 8 << 20,
                .l3_latency = 38,
                .mispredict_penalty = 17,
                .bus_ratio = 20};
  row.latencies = kLatencies;
  return row;
}

constexpr Microarch westmere() {
  Microarch row = shared();
  row.name = "westmere";
  row.title = "Westmere";
  row.models = kWestmereModels;
  row.introduced = {.year = 2010,
                    .source =
                        "Intel SDM Vol. 1 (253665-089), Table 2-2 \"Key Features of Most Recent "
                        "Intel 64 Processors\""};
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

SKIDPROOF_MICROARCH(kNehalem) = internal::with_variants(nehalem(), kNehalemVariants);
SKIDPROOF_MICROARCH(kWestmere) = internal::with_variants(westmere(), kWestmereVariants);

}  // namespace skidproof::arch
