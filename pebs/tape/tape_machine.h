// A machine that answers as another one once did.
#ifndef SKIDPROOF_PEBS_TAPE_TAPE_MACHINE_H_
#define SKIDPROOF_PEBS_TAPE_TAPE_MACHINE_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "pebs/machine.h"

namespace skidproof::tape {

// Replays one section. Memory is ordinary, stands at the recorded addresses to programs and the DS area,
// and changes as it did. Whoever asks something else than what is recorded gets kOffTape with the first
// difference, to that question and all that follow; kIo where the section cannot be understood.
class TapeMachine final : public Machine {
 public:
  // `usual`: the identity in the tape's header. Errors: kOffTape where the machine was asked for with
  // another seed; kIo.
  static Expected<std::shared_ptr<TapeMachine>> create(std::vector<std::byte> content,
                                                       const Identity& usual, uint64_t seed);

  ~TapeMachine() override;

  const Identity& identity() const override;
  // Zeros where it is off the tape: finished() says so.
  CpuidResult cpuid(uint32_t leaf, uint32_t subleaf) const override;
  Expected<uint64_t> rdmsr(uint32_t msr) override;
  Expected<void> wrmsr(uint32_t msr, uint64_t value) override;
  Expected<uint64_t> rdpmc(const CounterRead& read) override;
  Expected<Memory> allocate(const MemoryRequest& request) override;
  Expected<RunLog> run(const Program& program, const RunPlan& plan) override;

  // Once nobody asks any more: what went wrong, or that the tape goes on.
  Expected<void> finished();

 private:
  class Replay;
  explicit TapeMachine(std::unique_ptr<Replay> replay);

  const std::unique_ptr<Replay> replay_;
};

}  // namespace skidproof::tape

#endif  // SKIDPROOF_PEBS_TAPE_TAPE_MACHINE_H_
