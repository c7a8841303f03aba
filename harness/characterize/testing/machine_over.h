// A machine that is another one, but for what a test overrides.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_TESTING_MACHINE_OVER_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_TESTING_MACHINE_OVER_H_

#include "pebs/machine.h"

namespace skidproof {

class MachineOver : public Machine {
 public:
  explicit MachineOver(Machine& under) : under_(under) {}
  const Identity& identity() const override { return under_.identity(); }
  CpuidResult cpuid(uint32_t leaf, uint32_t subleaf) const override {
    return under_.cpuid(leaf, subleaf);
  }
  Expected<uint64_t> rdmsr(uint32_t msr) override { return under_.rdmsr(msr); }
  Expected<void> wrmsr(uint32_t msr, uint64_t value) override { return under_.wrmsr(msr, value); }
  Expected<Memory> allocate(const MemoryRequest& request) override {
    return under_.allocate(request);
  }
  Expected<RunLog> run(const Program& program, const RunPlan& plan) override {
    return under_.run(program, plan);
  }

 private:
  Machine& under_;
};

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_TESTING_MACHINE_OVER_H_
