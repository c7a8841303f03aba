#include "pebs/session_netburst.h"

#include "pebs/arch/netburst.h"

namespace skidproof {
namespace {

namespace nb = arch::netburst;

unsigned number_of(const CounterSetup& c) {
  return nb::kSessionCounters[c.counter % nb::kSessionCounters.size()];
}
uint32_t counter_msr(const CounterSetup& c) { return nb::MSR_BPU_COUNTER0 + number_of(c); }
uint32_t cccr_msr(const CounterSetup& c) { return nb::MSR_BPU_CCCR0 + number_of(c); }
uint32_t escr_msr(const CounterSetup& c) { return nb::escr_of(number_of(c), c.metric->select); }
bool tags(const CounterSetup& c) { return c.metric->tagging == nb::Tagging::kFrontEnd; }
uint32_t upstream_msr(const CounterSetup& c) {
  return nb::escr_of(number_of(c), c.metric->upstream_select);
}

uint64_t escr_value(unsigned event, unsigned mask, uint64_t levels) {
  return (uint64_t{event} << nb::escr::kSelectShift) | (uint64_t{mask} << nb::escr::kMaskShift) |
         levels;
}
uint64_t levels_of(const CounterSetup& c) {
  return (c.usr ? nb::escr::kUsr : 0) | (c.os ? nb::escr::kOs : 0);
}
uint64_t event_value(const CounterSetup& c) {
  return escr_value(c.metric->event, c.metric->mask, levels_of(c));
}

// Enabled; the overflow flag, which this clears, is bit 31.
uint64_t cccr_value(const CounterSetup& c) {
  return nb::cccr::kEnable | nb::cccr::kAnyThread |
         (uint64_t{c.metric->select} << nb::cccr::kEscrShift) |
         (c.interrupt ? nb::cccr::kOvfPmi : 0);
}

// [Table 19-33; 18.15.7 "Processor Event-Based Sampling"]
uint64_t netburst_pebs_enable(const SessionPlan& plan) {
  uint64_t value = 0;
  for (const CounterSetup& c : plan.counters) {
    if (c.metric == nullptr) continue;
    value |= c.metric->enable;
    if (c.metric->tagging == nb::Tagging::kReplay) value |= nb::pebs_enable::kUopTag;
    if (c.pebs) value |= nb::pebs_enable::kEnable;
  }
  return plan.pebs_enable.value_or(value);
}
uint64_t matrix(const SessionPlan& plan) {
  uint64_t value = 0;
  for (const CounterSetup& c : plan.counters) value |= c.metric == nullptr ? 0 : c.metric->matrix;
  return value;
}

}  // namespace

std::vector<uint32_t> netburst_registers(const SessionPlan& plan) {
  std::vector<uint32_t> all = {nb::MSR_PEBS_MATRIX_VERT};
  for (const CounterSetup& c : plan.counters) {
    if (c.metric == nullptr) continue;
    for (uint32_t msr : {counter_msr(c), cccr_msr(c), escr_msr(c)}) all.push_back(msr);
    if (tags(c)) all.push_back(upstream_msr(c));
  }
  return all;
}

std::vector<MsrWrite> netburst_stop(const SessionPlan& plan) {
  std::vector<MsrWrite> writes;
  for (const CounterSetup& c : plan.counters) {
    if (c.metric != nullptr) writes.push_back({cccr_msr(c), nb::cccr::kAnyThread});
  }
  writes.push_back({arch::IA32_PEBS_ENABLE, 0});
  writes.push_back({nb::MSR_PEBS_MATRIX_VERT, 0});
  return writes;
}

std::vector<MsrWrite> netburst_select(const SessionPlan& plan) {
  std::vector<MsrWrite> writes = {{nb::MSR_PEBS_MATRIX_VERT, matrix(plan)}};
  for (const CounterSetup& c : plan.counters) {
    if (c.metric == nullptr || !tags(c)) continue;
    writes.push_back({upstream_msr(c), escr_value(c.metric->upstream_event, c.metric->upstream_mask,
                                                  levels_of(c) | nb::escr::kTagEnable)});
  }
  return writes;
}

void netburst_run(const SessionPlan& plan, const std::vector<uint64_t>& values, bool restart,
                  RunPlan& run) {
  constexpr uint64_t kMask = minus_period(1, nb::kCounterWidth);
  if (restart) run.enable.push_back({arch::IA32_PEBS_ENABLE, 0});
  for (size_t i = 0; i < plan.counters.size(); ++i) {
    const CounterSetup& c = plan.counters[i];
    if (c.metric == nullptr) continue;
    if (restart) run.enable.push_back({counter_msr(c), values[i] & kMask});
    if (restart) run.enable.push_back({cccr_msr(c), cccr_value(c)});
    if (c.interrupt) {
      run.pmi.status_msr = cccr_msr(c);
      if (run.pmi.clear_status) run.pmi.acknowledge.push_back({cccr_msr(c), cccr_value(c)});
    }
    run.read.push_back(counter_msr(c));
    run.read.push_back(cccr_msr(c));
  }
  run.enable.push_back({arch::IA32_PEBS_ENABLE, netburst_pebs_enable(plan)});
  // What an ESCR selects starts and ends the counting, so that CCCRs keep their overflow flags.
  for (const CounterSetup& c : plan.counters) {
    if (c.metric == nullptr) continue;
    run.enable.push_back({escr_msr(c), event_value(c)});
    run.disable.push_back({escr_msr(c), 0});
  }
}

void netburst_results(const SessionPlan& plan, const std::vector<uint64_t>& read,
                      SessionRun& result) {
  size_t at = 0;
  for (const CounterSetup& c : plan.counters) {
    if (c.metric == nullptr) {
      result.counters.push_back(0);
      continue;
    }
    result.counters.push_back(read[at]);
    if ((read[at + 1] & nb::cccr::kOvf) != 0) result.global_status |= arch::bit(c.counter);
    at += 2;
  }
}

}  // namespace skidproof
