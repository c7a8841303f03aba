// Architectural version 6: the counters' registers in their bank, what a select can say more, metrics that a read clears.
#include "pebs/arch/msr.h"
#include "pebs/model/pmu_state.h"

namespace skidproof::model {

namespace {

// Which counter's register of a bank, or nullopt: `first` is that of counter 0.
std::optional<unsigned> in_bank(uint32_t msr, uint32_t first, unsigned counters) {
  if (msr < first || (msr - first) % kBankStride != 0) return {};
  const unsigned n = (msr - first) / kBankStride;
  return n < counters ? std::optional(n) : std::nullopt;
}

}  // namespace

// The counter whose value stands at a register of the bank.
std::optional<unsigned> Pmu::State::banked_counter(uint32_t msr) const {
  if (uarch.perfmon_version < 6 || !behaviour.version6.counters_answer) return {};
  const auto n = in_bank(msr, IA32_PMC_GP0_CTR, kMaxCounters);
  return n && bit_of(gp_there, *n) ? n : std::nullopt;
}

std::optional<unsigned> Pmu::State::banked_select(uint32_t msr) const {
  if (uarch.perfmon_version < 6) return {};
  const auto n = in_bank(msr, IA32_PMC_GP0_CFG_A, kMaxCounters);
  return n && bit_of(gp_there, *n) ? n : std::nullopt;
}

std::optional<unsigned> Pmu::State::banked_fixed(uint32_t msr) const {
  if (uarch.perfmon_version < 6) return {};
  const auto i = in_bank(msr, IA32_PMC_FX0_CTR, kMaxFixed);
  return i && bit_of(fixed_there, *i) ? i : std::nullopt;
}

// The umask 2 of a select, as far as it decides what is counted.
uint8_t Pmu::State::umask2_of(uint64_t select) const {
  if (!behaviour.version6.umask2_selects) return 0;
  return static_cast<uint8_t>((select & evtsel::kUmask2) >> evtsel::kUmask2Shift);
}

// RDPMC of the metrics, which may clear what it has read.
uint64_t Pmu::State::read_metrics() {
  const Version6Behaviour& how = behaviour.version6;
  const uint64_t value = perf_metrics;
  const bool enabled = uarch.metrics_clear && (fixed_ctrl & fixed_ctrl::kMetricsClear) != 0;
  if ((enabled && how.rdpmc_clears) || how.rdpmc_clears_always)
    clear_metrics(how.rdpmc_clears_base);
  return value;
}

void Pmu::State::clear_metrics(bool base) {
  perf_metrics = 0;
  if (base) fixed[adaptive::kMetricsBaseCounter].value = 0;
}

// What a record's group of counters has: each as it stands before anything is reloaded.
CounterSnapshot Pmu::State::snapshot_of_counters() const {
  CounterSnapshot now;
  for (unsigned n = 0; n < kMaxCounters; ++n) now.gp[n] = counters[n].count.value;
  for (unsigned i = 0; i < kMaxFixed; ++i) now.fixed[i] = fixed[i].value;
  now.metrics = perf_metrics;
  return now;
}

// A record with the metrics clears them, and what they stand on. [SDM Vol. 3 (325384-089) 21.9.2.3.1]
void Pmu::State::clear_recorded_metrics(uint64_t triggering) {
  const Version6Behaviour& how = behaviour.version6;
  if (!uarch.pebs_counters_group || !adaptive(triggering)) return;
  const adaptive::SnapshotVectors vectors = adaptive::snapshot_vectors(pebs_data_cfg);
  const bool recorded = vectors.metrics != 0;
  if (!recorded && !(how.metrics_cleared_by_counters && vectors.gp != 0)) return;
  if (how.metrics_cleared) perf_metrics = 0;
  if (how.metrics_base_cleared) fixed[adaptive::kMetricsBaseCounter].value = 0;
}

}  // namespace skidproof::model
