// Counting, and the point where a run that was asked to stop does so.
#include "harness/check/counting_machine.h"

#include "harness/check/outcome.h"
#include "harness/check/set_aside.h"

namespace skidproof::check {
namespace {

// An answer is a value or #GP; anything else is no property of the processor.
template <typename T>
void count_access(const Expected<T>& answer) {
  if (answer || answer.error().code == ErrorCode::kGeneralProtection) {
    ++outcome().executed;
  } else if (outcome().access_failed.empty()) {
    outcome().access_failed = answer.error().message;
  }
}

// The same of what a machine may decline before it does anything.
template <typename T>
bool declined(const Expected<T>& answer) {
  return !answer && answer.error().code == ErrorCode::kNotAvailable;
}

// A run that was made again on its own account was not disturbed in the end.
bool disturbs(const Noise& noise) {
  return noise.smi + noise.machine_checks + noise.foreign_nmis + noise.slices + noise.migrations >
         0;
}

void add_noise(const char* name, uint64_t count) {
  if (count == 0) return;
  results::Json& sum = outcome().evidence["noise"][name];
  sum = (sum.is_null() ? 0 : sum.get<uint64_t>()) + count;
}

// What disturbed the runs of this test, where anything did, goes into its row.
void count_noise(const Noise& noise) {
  const std::pair<const char*, uint64_t> counts[] = {
      {"smi", noise.smi},
      {"machine-checks", noise.machine_checks},
      {"foreign-nmis", noise.foreign_nmis},
      {"runs-let-interrupts-in", noise.slices},
      {"runs-repeated", noise.repeats},
      {"migrations", noise.migrations},
  };
  outcome().disturbed += disturbs(noise);
  for (const auto& [name, count] : counts) add_noise(name, count);
}

}  // namespace

bool set_aside(const RunLog& log) {
  if (!disturbs(log.noise)) return false;
  --outcome().disturbed;
  add_noise("runs-set-aside", 1);
  return true;
}

Expected<uint64_t> CountingMachine::rdmsr(uint32_t msr) {
  Expected<uint64_t> answer = machine_->rdmsr(msr);
  count_access(answer);
  return answer;
}

Expected<void> CountingMachine::wrmsr(uint32_t msr, uint64_t value) {
  Expected<void> answer = machine_->wrmsr(msr, value);
  count_access(answer);
  return answer;
}

Expected<uint64_t> CountingMachine::rdpmc(const CounterRead& read) {
  Expected<uint64_t> answer = machine_->rdpmc(read);
  if (!declined(answer)) count_access(answer);
  return answer;
}

Expected<RunLog> CountingMachine::run(const Program& program, const RunPlan& plan) {
  if (stop_requested()) throw stop_reason();
  Expected<RunLog> log = machine_->run(program, plan);
  if (log) {
    outcome().executed += plan.iterations;
    count_noise(log->noise);
  } else if (!declined(log)) {
    count_access(log);
    if (log.error().code == ErrorCode::kTimeout) outcome().timed_out = true;
  }
  return log;
}

}  // namespace skidproof::check
