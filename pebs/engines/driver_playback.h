// Plays on a model what a driver executed around a program in the virtual lab, out of the lab's journal.
#ifndef SKIDPROOF_PEBS_ENGINES_DRIVER_PLAYBACK_H_
#define SKIDPROOF_PEBS_ENGINES_DRIVER_PLAYBACK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/expected.h"
#include "pebs/engines/journal.h"
#include "pebs/engines/observer.h"
#include "pebs/machine.h"
#include "pebs/model/core.h"
#include "pebs/model/core_behaviour.h"
#include "pebs/model/pmu.h"
#include "pebs/model/retired.h"

namespace skidproof::engines {

class DriverPlayback final : public CodeMemory {
 public:
  // All must outlive it. The journal begins with the write that lets the counters run.
  DriverPlayback(const lab::Journal& journal, model::Core& core, model::Pmu& pmu,
                 const model::CoreBehaviour& behaviour);

  // The driver's next write, past everything before it; empty where there is none.
  std::optional<MsrWrite> next_write();
  // Whether the driver's next deed, but for instructions, is to write this register; then it is done.
  bool take_write(uint32_t msr);

  // Whether the driver executes something before it writes the next register.
  bool has_instruction() const;
  // … or ever again.
  bool has_any_instruction() const { return at_ <= last_instruction_ && executes_; }
  // Where; 0 when it executes nothing.
  uint64_t next_ip() const {
    return has_instruction() ? journal_.entries[next_deed()].executed.ip : 0;
  }
  // The next instruction retires; returns where it leads to. Error: kExecution where it does not stand where the last
  // one led to: the driver was interrupted and the model was not, or the other way round.
  Expected<uint64_t> play(const model::VectorRegisters& vectors);
  // An interrupt, or the program, comes between two instructions.
  void jump() { expected_ip_ = 0; }

  // What the lab's TSC is ahead of the core's cycles.
  uint64_t clock_offset() const { return clock_offset_; }

  size_t code(uint64_t address, std::span<std::byte> into) override;

 private:
  // The next entry that is a deed of the driver's.
  size_t next_deed() const;
  void take_up_lvt();
  void take_up_time();

  const lab::Journal& journal_;
  model::Core& core_;
  model::Pmu& pmu_;
  Observer observer_;
  size_t at_ = 0;
  size_t last_instruction_ = 0;
  bool executes_ = false;
  uint64_t expected_ip_ = 0;
  uint64_t clock_offset_ = 0;
  model::Retired retired_;
};

}  // namespace skidproof::engines

#endif  // SKIDPROOF_PEBS_ENGINES_DRIVER_PLAYBACK_H_
