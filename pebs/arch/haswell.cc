// Haswell and Broadwell: one row each, and their events.
//
// Sources: Intel SDM Vol. 3 (325384-059), 18.11 "4th Generation Intel Core Processor Performance
// Monitoring Facility", Tables 18-42 to 18-46, and 18.12 for Broadwell; Intel's event lists
// intel/perfmon HSW V36, BDW V30; errata as noted.
#include "pebs/arch/perfmon/haswell.h"

#include <array>

#include "pebs/arch/event_table.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/perfmon/broadwell.h"
#include "pebs/arch/perfmon/broadwell_de.h"
#include "pebs/arch/perfmon/broadwell_ep.h"
#include "pebs/arch/perfmon/haswell_ep.h"

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
    .source = "Intel SDM Vol. 3 (325384-059), Table 18-43; intel/perfmon (PMC1)",
    .reason =
        "the manual gives the counter where the distribution is precise, not where the event "
        "counts; suites ask what the others do"};
// Address and status when the uop is a load or a tagged store; Intel's lists say nothing of them.
constexpr Event kUops = internal::data_store(
    {.name = "UOPS_RETIRED.ALL",
     .code = 0xC2,
     .umask = 0x01,
     .signal = Signal::kUops,
     .counters = internal::kPmc0To7,
     .pebs_counters = internal::kPmc0To3,
     .kind = EventKind::kPebs,
     .source =
         "Intel SDM Vol. 3 (325384-059), Table 18-43; Table 18-45 \"Precise Events That Supports "
         "Data Linear Address Profiling\"",
     .reason = "the manual has it among the events whose records hold a data address; the lists "
               "are silent"});
constexpr std::array kOwn = {kPrecDist, kUops};

// Where the lists do not say where PEBS takes an event. [Table 18-43]
constexpr uint16_t kPebsCounters = internal::kPmc0To3;
constexpr auto kHaswellTable = events_of<perfmon::kHaswell, kOwn, kPebsCounters>();
constexpr auto kHaswellServerTable = events_of<perfmon::kHaswellEp, kOwn, kPebsCounters>();
constexpr auto kBroadwellTable = events_of<perfmon::kBroadwell, kOwn, kPebsCounters>();
constexpr auto kBroadwellDeTable = events_of<perfmon::kBroadwellDe, kOwn, kPebsCounters>();
constexpr auto kBroadwellServerTable = events_of<perfmon::kBroadwellEp, kOwn, kPebsCounters>();

// [Linux 6.12 intel-family.h]
constexpr std::array<CpuModel, 4> kHaswellModels = {
    {{.model = 0x3C}, {.model = 0x3F}, {.model = 0x45}, {.model = 0x46}}};
constexpr std::array<CpuModel, 1> kHaswellServerModels = {{{.model = 0x3F}}};
constexpr std::array<CpuModel, 4> kBroadwellModels = {
    {{.model = 0x3D}, {.model = 0x47}, {.model = 0x4F}, {.model = 0x56}}};
constexpr std::array<CpuModel, 1> kBroadwellServerModels = {{{.model = 0x4F}}};
constexpr std::array<CpuModel, 1> kBroadwellDeModels = {{{.model = 0x56}}};

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

constexpr std::string_view kCacheTable =
    "Optimization Reference Manual (248966), 'Cache Parameters of the Haswell Microarchitecture'";
constexpr std::array<FastestLatency, 2> kLatencies = {
    {{.level = 1, .cycles = 4, .source = kCacheTable},
     {.level = 2, .cycles = 11, .source = kCacheTable}}};

constexpr Microarch haswell() {
  Microarch row = shared();
  row.name = "haswell";
  row.title = "Haswell";
  row.models = kHaswellModels;
  row.introduced = {.year = 2013,
                    .source =
                        "Intel SDM Vol. 1 (253665-089), 2.1.22 \"The Fourth Generation Intel Core "
                        "Processor Family (2013)\""};
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
  row.latencies = kLatencies;
  return row;
}

constexpr Microarch broadwell() {
  Microarch row = shared();
  row.name = "broadwell";
  row.title = "Broadwell";
  row.models = kBroadwellModels;
  row.introduced = {
      .year = 2014,
      .month = 9,
      .source = "eWEEK, \"Intel Launches Core M 'Broadwell' for Two-in-One Systems\""};
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
constexpr Microarch kBroadwellDe =
    internal::part_of(broadwell(), "Broadwell-DE", kBroadwellDeModels, kBroadwellDeTable);
constexpr std::array<const Microarch*, 2> kBroadwellVariants = {&kBroadwellServer, &kBroadwellDe};

}  // namespace

SKIDPROOF_MICROARCH(kHaswell) = internal::with_variants(haswell(), kHaswellVariants);
SKIDPROOF_MICROARCH(kBroadwell) = internal::with_variants(broadwell(), kBroadwellVariants);

}  // namespace skidproof::arch
