// A machine that counts what a test really executes on it, so that a test that did nothing cannot
// pass.
#ifndef SKIDPROOF_HARNESS_CHECK_COUNTING_MACHINE_H_
#define SKIDPROOF_HARNESS_CHECK_COUNTING_MACHINE_H_

#include <memory>
#include <utility>

#include "pebs/machine.h"

namespace skidproof::check {

// Forwards to another machine and adds to outcome().executed: one for each MSR or counter access that the
// processor answered (#GP is an answer, "not available" is not), and the iterations of each
// completed run. Notes what disturbed a run, and the first access that failed.
class CountingMachine final : public Machine {
 public:
  explicit CountingMachine(std::shared_ptr<Machine> machine) : machine_(std::move(machine)) {}

  const Identity& identity() const override { return machine_->identity(); }
  CpuidResult cpuid(uint32_t leaf, uint32_t subleaf) const override {
    return machine_->cpuid(leaf, subleaf);
  }
  Expected<uint64_t> rdmsr(uint32_t msr) override;
  Expected<uint64_t> rdpmc(const CounterRead& read) override;
  Expected<void> wrmsr(uint32_t msr, uint64_t value) override;
  Expected<Memory> allocate(const MemoryRequest& request) override {
    return machine_->allocate(request);
  }
  // Throws SkipTest once the run was asked to stop. Only here: a session that unwinds must still be
  // able to restore its MSRs.
  Expected<RunLog> run(const Program& program, const RunPlan& plan) override;

 private:
  std::shared_ptr<Machine> machine_;
};

}  // namespace skidproof::check

#endif  // SKIDPROOF_HARNESS_CHECK_COUNTING_MACHINE_H_
