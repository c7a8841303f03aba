// What the handlers of system-management interrupts and machine checks execute.
#ifndef SKIDPROOF_PEBS_ENGINES_DISTURBANCE_H_
#define SKIDPROOF_PEBS_ENGINES_DISTURBANCE_H_

#include <cstdint>

#include "pebs/model/core.h"
#include "pebs/model/pmu.h"

namespace skidproof::engines {

inline constexpr uint64_t kSmmHandler = 0x3'8000;  // SMBASE + 8000H at its default
inline constexpr uint64_t kMachineCheckHandler = 0xffff'ffff'8110'0000;
inline constexpr uint64_t kForeignHandler = 0xffff'ffff'8120'0000;  // of an NMI that is no PMI
// Where a handler stands that interrupts code of this mode: outside IA-32e mode below 4 GiB, above the
// programs.
constexpr uint64_t handler_in(Mode mode, uint64_t handler) {
  return mode == Mode::kLong ? handler : 0xC000'0000 | (handler & 0x3FFF'FFFF);
}

// Retires a short loop of SIMD load, subtraction and jump at this address: each kind of event that a
// counter, an armed PEBS or a branch trace could mistake for the program's. The program's registers
// and memory are as before.
void run_handler(uint64_t address, model::Core& core, model::Pmu& pmu);

}  // namespace skidproof::engines

#endif  // SKIDPROOF_PEBS_ENGINES_DISTURBANCE_H_
