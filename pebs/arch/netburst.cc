// NetBurst: its row, and its events out of the at-retirement and plain metrics.
//
// Sources: Intel SDM Vol. 3 (325384-059), 18.15 "Performance Monitoring (Processors Based on Intel
// NetBurst Microarchitecture)", 17.4.9 "BTS and DS Save Area", chapter 19.
#include "pebs/arch/netburst.h"

#include <algorithm>
#include <array>

#include "pebs/arch/microarch.h"

namespace skidproof::arch {

namespace {

// Where a metric counts, in the numbering of kSessionCounters.
constexpr uint16_t counters_of(const netburst::Metric& metric) {
  uint16_t counters = 0;
  for (unsigned n = 0; n < 16; ++n) {
    const unsigned number = netburst::kSessionCounters[n];
    const bool iq = number >= 12;
    if (iq == (metric.block >= 12) && (iq || number < 4)) {
      counters = static_cast<uint16_t>(counters | (1U << n));
    }
  }
  return counters;
}

// The one signal that it counts; none where the core model has to add several.
constexpr Signal signal_of(const netburst::Metric& metric) {
  return metric.signals[1] == Signal::kNone ? metric.signals[0] : Signal::kNone;
}

constexpr Event event_of(const netburst::Metric& metric) {
  Event event;
  event.name = metric.name;
  event.code = metric.event;
  event.umask = static_cast<uint8_t>(metric.mask);
  event.signal = signal_of(metric);
  event.counters = counters_of(metric);
  event.pebs_counters = metric.precise() ? 1 : 0;
  event.kind = metric.precise() ? EventKind::kPebs : EventKind::kCounting;
  event.taken_alone = metric.precise();
  event.source =
      "Intel SDM Vol. 3 (325384-059), chapter 19, events of Intel NetBurst microarchitecture for "
      "at-retirement counting, Table 19-33";
  event.metric = &metric;
  return event;
}

constexpr std::array<Event, netburst::kMetrics.size()> events() {
  std::array<Event, netburst::kMetrics.size()> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = event_of(netburst::kMetrics[i]);
  return all;
}
constexpr std::array kEvents = events();

// The models with IA-32e mode, which have both layouts of the DS area.
constexpr std::array<CpuModel, 3> kModels = {
    {{.family = 15, .model = 4}, {.family = 15, .model = 3}, {.family = 15, .model = 6}}};

constexpr Microarch netburst_row() {
  Microarch row;
  row.name = "netburst";
  row.title = "NetBurst";
  row.models = kModels;
  row.introduced = {.year = 2004,
                    .source =
                        "Intel SDM Vol. 1 (253665-089), Table 2-2 \"Key Features of Most Recent "
                        "Intel 64 Processors\", the first with IA-32e mode"};
  row.perfmon_version = 0;  // CPUID has no leaf 0AH
  row.gp_counters = row.gp_counters_alone = netburst::kCounters;
  row.gp_width = netburst::kCounterWidth;
  row.fixed_counters = 0;
  row.fixed_width = 0;
  row.lbr_format = 0;
  row.last_branches = {};
  row.smm_freeze = false;
  row.perfevtsel_defined = 0;
  row.any_thread = false;
  row.pebs_counters = 1;  // of kSessionCounters: IQ_COUNTER4 (R31)
  row.record = &kRecordFormat0;
  row.ds = kDsOneReset;
  row.branch_trace = kBranchTraceNetBurst;
  row.dtes64 = false;
  row.load_latency_enable = row.load_latency_counters = row.load_latency_event = 0;
  row.full_buffer_sets_ovf = false;  // there is no status register
  row.disputed_qualifiers = 0xFFFE;  // R33 speaks of IA32_PERFEVTSELx
  row.events = kEvents;
  row.fusion = kNoFusion;
  row.caches = {.l1_bytes = 16 << 10,
                .l2_bytes = 1 << 20,
                .l2_latency = 18,
                .l3_bytes = 2 << 20,
                .l3_latency = 60,
                .retire_width = 3,
                .mispredict_penalty = 31};
  return row;
}

}  // namespace

SKIDPROOF_MICROARCH(kNetBurst) = netburst_row();

}  // namespace skidproof::arch
