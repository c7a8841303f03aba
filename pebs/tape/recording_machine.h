// A machine that keeps all that crosses it.
#ifndef SKIDPROOF_PEBS_TAPE_RECORDING_MACHINE_H_
#define SKIDPROOF_PEBS_TAPE_RECORDING_MACHINE_H_

#include <memory>

#include "pebs/machine.h"
#include "pebs/tape/tape.h"

namespace skidproof::tape {

// Forwards to another machine and keeps question and answer of every call in a section. What it keeps
// of memory is what debug store and data hold around each run, and around each MSR access while the test
// has left PEBS or branch traces on.
class RecordingMachine final : public Machine {
 public:
  // `seed`: what the machine was asked for with; `usual`: the identity in the tape's header.
  RecordingMachine(std::shared_ptr<Machine> machine, SectionKey key, uint64_t seed,
                   const Identity& usual);
  ~RecordingMachine() override;

  const Identity& identity() const override { return machine_->identity(); }
  CpuidResult cpuid(uint32_t leaf, uint32_t subleaf) const override;
  Expected<uint64_t> rdmsr(uint32_t msr) override;
  Expected<void> wrmsr(uint32_t msr, uint64_t value) override;
  Expected<uint64_t> rdpmc(const CounterRead& read) override;
  Expected<Memory> allocate(const MemoryRequest& request) override;
  Expected<RunLog> run(const Program& program, const RunPlan& plan) override;

  // What was kept, once nobody asks the machine any more.
  Section take_section();

 private:
  struct State;
  const std::shared_ptr<Machine> machine_;
  const std::unique_ptr<State> state_;
};

}  // namespace skidproof::tape

#endif  // SKIDPROOF_PEBS_TAPE_RECORDING_MACHINE_H_
