// Counting, and the point where a run that was asked to stop does so.
#include "harness/check/counting_machine.h"

#include "harness/check/outcome.h"

namespace skidproof::check {
namespace {

template <typename T>
void count_access(const Expected<T>& answer) {
  if (answer || answer.error().code == ErrorCode::kGeneralProtection) ++outcome().executed;
}

}  // namespace

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
  count_access(answer);
  return answer;
}

Expected<RunLog> CountingMachine::run(const Program& program, const RunPlan& plan) {
  if (stop_requested()) throw stop_reason();
  Expected<RunLog> log = machine_->run(program, plan);
  if (log) outcome().executed += plan.iterations;
  if (!log && log.error().code == ErrorCode::kGeneralProtection) ++outcome().executed;
  return log;
}

}  // namespace skidproof::check
