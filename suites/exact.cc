#include "suites/exact.h"

namespace skidproof::suites {

arch::Signal sparse_signal(std::string_view word) {
  if (word == "load") return arch::Signal::kLoads;
  if (word == "store") return arch::Signal::kStores;
  if (word == "simd") return arch::Signal::kSimd;
  return arch::Signal::kConditional;
}

uint64_t sparse_events(std::string_view word, const Program& program, uint64_t iterations) {
  if (word == "load") return program.total(iterations).loads;
  if (word == "store") return program.total(iterations).stores;
  if (word == "simd") return iterations;
  return iterations + 1;
}

Exact exact(const arch::Microarch& microarch, uint64_t events, uint64_t first, uint64_t period,
            unsigned counter) {
  uint64_t mask = arch::gp_counter_mask(microarch);
  const uint64_t to_first = events_a_record(microarch, counter, first);
  const uint64_t each = events_a_record(microarch, counter, period);
  if (events < to_first) return {0, (events - first) & mask};
  uint64_t left = events - to_first;
  return {1 + left / each, (left % each - period) & mask};
}

::testing::Matcher<int64_t> within(int64_t expected, uint64_t margin) {
  const auto by = static_cast<int64_t>(margin);
  return ::testing::AllOf(::testing::Ge(expected - by), ::testing::Le(expected + by));
}

const arch::Event* counting_event(const arch::Microarch& microarch, arch::Signal signal,
                                  unsigned counter) {
  for (const arch::Event& e : microarch.events) {
    bool plain = e.cmask == 0 && !e.invert;
    bool ordinary = e.kind <= arch::EventKind::kPebsOnly;
    if (e.signal == signal && plain && ordinary && ((e.counters >> counter) & 1) != 0) return &e;
  }
  return nullptr;
}

Expected<SessionRun> counting_run(Machine& machine, const CounterSetup& setup,
                                  const Program& program, uint64_t iterations, Ring ring,
                                  bool keep_sibling_busy) {
  SessionPlan plan = one_counter(setup, 1);
  plan.ring = ring;
  plan.keep_sibling_busy = keep_sibling_busy;
  Session session = SKIDPROOF_TRY(Session::open(machine, plan));
  return session.run(program, iterations);
}

Expected<uint64_t> count(Machine& machine, const CounterSetup& setup, const Program& program,
                         uint64_t iterations, Ring ring) {
  const SessionRun run =
      SKIDPROOF_TRY(counting_run(machine, setup, program, iterations, ring, false));
  return run.counters.at(0);
}

Expected<CountedBeside> count_beside(Machine& machine, unsigned counter, const arch::Event& event,
                                     const Program& program, uint64_t iterations) {
  const SessionRun run = SKIDPROOF_TRY(counting_run(machine, plain_counter(counter, event), program,
                                                    iterations, Ring::kKernel, true));
  return CountedBeside{run.counters.at(0), run.log.sibling_busy};
}

Restore::Restore(Machine& machine, std::initializer_list<uint32_t> msrs) : machine_(machine) {
  for (uint32_t msr : msrs) add(msr);
}

Restore::~Restore() {
  // A legacy counter write cannot carry every value (R38).
  const arch::Microarch* row = machine_.identity().microarch;
  const bool full = row != nullptr && row->full_width_writes;
  for (auto it = saved_.rbegin(); it != saved_.rend(); ++it) {
    const bool counter = it->msr >= arch::IA32_PMC0 && it->msr < arch::IA32_PMC0 + 8;
    const uint32_t writable =
        counter && full ? it->msr - arch::IA32_PMC0 + arch::IA32_A_PMC0 : it->msr;
    static_cast<void>(machine_.wrmsr(writable, it->value));
  }
}

void Restore::add(uint32_t msr) {
  if (Expected<uint64_t> value = machine_.rdmsr(msr)) saved_.push_back({msr, *value});
}

Expected<bool> refuses(Machine& machine, uint32_t msr, uint64_t value) {
  Restore restore(machine, {msr});
  Expected<void> written = machine.wrmsr(msr, value);
  if (written) return false;
  if (written.error().code == ErrorCode::kGeneralProtection) return true;
  return tl::make_unexpected(written.error());
}

Expected<bool> refuses_to_read(Machine& machine, uint32_t msr) {
  Expected<uint64_t> read = machine.rdmsr(msr);
  if (read) return false;
  if (read.error().code == ErrorCode::kGeneralProtection) return true;
  return tl::make_unexpected(read.error());
}

}  // namespace skidproof::suites
