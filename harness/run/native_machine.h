// The native machine: the CPU in front of us without its PMU.
#ifndef SKIDPROOF_HARNESS_RUN_NATIVE_MACHINE_H_
#define SKIDPROOF_HARNESS_RUN_NATIVE_MACHINE_H_

#include <memory>
#include <optional>
#include <vector>

#include "base/expected.h"
#include "harness/run/noise.h"
#include "harness/run/pinning.h"
#include "pebs/machine.h"

namespace skidproof {

struct NativeOptions {
  // The logical CPU that programs run on; without one the highest that this process may use, since
  // the lowest takes most interrupts.
  std::optional<int> cpu;
};

// Runs programs in this process, at ring 3 whatever the plan's ring says, and reads the TSC. Every
// MSR answers kNotAvailable. Addresses are our own pointers. One thread uses it at a time; the
// first run on a thread pins that thread until the machine goes or another thread runs.
class NativeMachine : public Machine {
 public:
  // Errors: kInvalidArgument when this process may not use that CPU; kPermission.
  static Expected<std::unique_ptr<NativeMachine>> create(const NativeOptions& options = {});
  ~NativeMachine() override;

  const Identity& identity() const override { return identity_; }
  CpuidResult cpuid(uint32_t leaf, uint32_t subleaf) const override;
  Expected<uint64_t> rdmsr(uint32_t msr) override;
  Expected<void> wrmsr(uint32_t msr, uint64_t value) override;
  // See guarded_memory.h.
  Expected<Memory> allocate(const MemoryRequest& request) override;

  // Errors: kNotAvailable for a plan that touches MSRs; kInvalidArgument for code outside this
  // machine's code blocks or data outside its blocks; kUnsupported for an ISA extension that this
  // CPU lacks; kExecution for a program that faults, with the signal, the instruction and the
  // address; kTimeout for one that is still in its code at the deadline. A program that jumps out
  // of its code and neither faults nor returns cannot be stopped from here: run under a Watchdog.
  Expected<RunLog> run(const Program& program, const RunPlan& plan) override;
  Expected<RunInLaps> run_in_laps(const Program& program, const RunPlan& plan,
                                  const Laps& laps) override;

  int cpu() const { return cpu_; }
  // The CPUs that its maker might use; a run leaves only one to the thread.
  const std::vector<int>& allowed() const { return allowed_; }

 private:
  struct Blocks;  // what this machine allocated and is still in use

  NativeMachine(int cpu, std::vector<int> allowed, Identity identity);
  Expected<void> check(const Program& program, const RunPlan& plan) const;
  Expected<void> pin();

  const int cpu_;
  const std::vector<int> allowed_;
  const Identity identity_;
  const std::shared_ptr<Blocks> blocks_;
  NoiseMeter noise_;
  std::optional<PinGuard> pinned_;
  uint64_t pinned_thread_ = 0;  // its serial number in this process
};

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_RUN_NATIVE_MACHINE_H_
