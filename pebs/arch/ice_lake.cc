// Ice Lake, Tiger Lake, Rocket Lake: one row, and its events.
//
// Sources: Intel's event list intel/perfmon ICL V1.24; Linux 6.12 arch/x86/events/intel/core.c and
// ds.c, arch/x86/include/asm/perf_event.h; kvm-unit-tests x86/pmu_pebs.c. The SDM edition that the
// other rows cite ends before this generation.
#include "pebs/arch/perfmon/ice_lake.h"

#include <array>

#include "pebs/arch/event_table.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/perfmon/ice_lake_sp.h"
#include "pebs/arch/perfmon/rocket_lake.h"
#include "pebs/arch/perfmon/tiger_lake.h"

namespace skidproof::arch {

namespace {

using perfmon::events_of;

// An architectural event that the clients' lists leave out.
constexpr Event kReferences = {
    .name = "LONGEST_LAT_CACHE.REFERENCE",
    .code = 0x2E,
    .umask = 0x4F,
    .signal = Signal::kLlcReferences,
    .counters = internal::kPmc0To7,
    .source =
        "Intel SDM Vol. 3 (325384-059), Table 18-1 \"UMask and Event Select Encodings for "
        "Pre-Defined Architectural Performance Events\"",
    .reason = "CPUID announces this architectural event, whether the list has it or not"};
constexpr std::array kOwn = {kReferences};
constexpr std::array<Event, 0> kNothing = {};

// The lists say where PEBS takes each event.
constexpr uint16_t kPebsCounters = 0;
constexpr auto kTable = events_of<perfmon::kIceLake, kOwn, kPebsCounters>();
constexpr auto kTigerLakeTable = events_of<perfmon::kTigerLake, kOwn, kPebsCounters>();
constexpr auto kRocketLakeTable = events_of<perfmon::kRocketLake, kOwn, kPebsCounters>();
constexpr auto kServerTable = events_of<perfmon::kIceLakeSp, kNothing, kPebsCounters>();

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
constexpr std::array<CpuModel, 1> kRocketLakeModels = {{{.model = 0xA7}}};
constexpr std::array<CpuModel, 2> kServerModels = {{{.model = 0x6A}, {.model = 0x6C}}};

constexpr Microarch ice_lake() {
  return {
      .name = "ice-lake",
      .title = "Ice Lake",
      .models = kModels,
      .introduced = {.year = 2019,
                     .source = "Wikipedia, \"List of Intel CPU microarchitectures\": Sunny Cove"},
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
constexpr Microarch kRocketLake =
    internal::part_of(ice_lake(), "Rocket Lake", kRocketLakeModels, kRocketLakeTable);
constexpr Microarch kIceLakeServer = ice_lake_server();
constexpr std::array<const Microarch*, 3> kVariants = {&kTigerLake, &kRocketLake, &kIceLakeServer};

}  // namespace

SKIDPROOF_MICROARCH(kIceLake) = internal::with_variants(ice_lake(), kVariants);

}  // namespace skidproof::arch
