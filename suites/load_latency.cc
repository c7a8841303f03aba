#include "suites/load_latency.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace skidproof::suites {

SessionPlan latency_plan(const arch::Microarch& microarch, unsigned counter, size_t records,
                         uint64_t threshold) {
  constexpr uint64_t kWishedPeriod = 32;
  const arch::Event& event = *facility_event(microarch, arch::EventKind::kLoadLatency);
  SessionPlan plan =
      one_counter(counter, event, usable_period(microarch, counter, event, kWishedPeriod), records);
  plan.load_latency_threshold = threshold;
  return plan;
}

std::string TaggedLoads::words() const {
  return fmt::format("too sparse: {} of {} records in {} iterations", recorded, wanted, iterations);
}

Expected<TaggedLoads> sample_tagged(Machine& machine, const SessionPlan& plan,
                                    const Program& program, const calibrate::Figure& tagging) {
  const arch::Microarch& microarch = *machine.identity().microarch;
  const CounterSetup& counter = plan.counters.at(0);
  const size_t room = plan.buffer_records.value();
  const size_t wanted = room * 3 / 4;
  // Two instructions close the loop.
  const uint64_t longest = kMostInstructions / (program.per_iteration.instructions + 2);
  uint64_t iterations = std::min(loads_for(room, counter.period, tagging), longest);
  const uint64_t most = std::min(tagging.known() ? 64 * iterations : kMostOfUnknown, longest);
  for (;;) {
    Sampled sampled = SKIDPROOF_TRY(sample(machine, plan, program, iterations));
    const size_t records = sampled.records().size();
    const uint64_t counted =
        (sampled.run.counters.at(0) + counter.period) & arch::gp_counter_mask(microarch);
    const double tags = tagging.known() ? static_cast<double>(iterations) / tagging.value : 0;
    TaggedLoads found{.session = std::move(sampled.session),
                      .run = std::move(sampled.run),
                      .iterations = iterations,
                      .recorded = records,
                      .wanted = wanted,
                      .period = counter.period,
                      .unrecorded = records < room ? counted : 0,
                      .promised = tags / static_cast<double>(counter.period + 1)};
    if (found.enough() || found.lost() || iterations >= most) return found;
    SKIDPROOF_CHECK(found.session.close());
    iterations = std::min(4 * iterations, most);
  }
}

}  // namespace skidproof::suites
