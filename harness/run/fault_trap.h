// Calls a program's code so that a crash or a runaway in it becomes a value.
#ifndef SKIDPROOF_HARNESS_RUN_FAULT_TRAP_H_
#define SKIDPROOF_HARNESS_RUN_FAULT_TRAP_H_

#include <chrono>
#include <cstdint>
#include <span>

#include "base/expected.h"

namespace skidproof {

struct TrappedCall {
  uint64_t entry = 0;
  uint64_t iterations = 0;
  uint64_t data = 0;
  // The generated code: only inside it may the deadline interrupt.
  uint64_t code_begin = 0;
  uint64_t code_end = 0;
  std::chrono::milliseconds deadline{10'000};
  // The iterations in as many calls, one after another, where there are any: receives the ticks of each. `onward`: each has
  // the last one's result as its data.
  std::span<uint64_t> laps = {};
  bool onward = false;
};

struct CallResult {
  uint64_t result = 0;  // RAX
  uint64_t tsc = 0;     // ticks from before the call to after it; of all laps together
  // An interrupt came meanwhile, whether or not it ended in another thread. Seen by its footprint: IRET to a lower
  // privilege clears the data segments' selectors that are null (Intel SDM vol. 2, IRET, "RETURN-TO-OUTER-PRIVILEGE-LEVEL"),
  // those with a requested privilege level in them, too. What a hypervisor keeps for itself leaves none; nor does a
  // kernel that returns by ERETU (FRED).
  bool interrupted = false;
};

// How a call ended that did not return.
struct Fault {
  bool timeout = false;
  int signal = 0;
  int code = 0;             // si_code
  uint64_t trap = 0;        // x86 vector: 0 #DE, 1 #DB, 3 #BP, 6 #UD, 13 #GP, 14 #PF …
  uint64_t error_code = 0;  // of #PF: bit 0 present, bit 1 write, bit 4 instruction fetch
  uint64_t ip = 0;
  uint64_t address = 0;  // of #PF
};

// Calls entry(iterations, data), of laps each with its share of the iterations, by the SysV
// convention. SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGTRAP raised meanwhile by this thread end the
// call; so does a one-shot timer at the deadline when it finds the thread inside the code:
// generated code holds no lock and owns nothing, so that it can be left anywhere. A jump out of the code that neither faults nor returns is only ended by the
// process's watchdog. Signal handlers stay installed after the first call and pass on, as if they
// were not there, whatever is not from such a call. Errors of the outer Expected: kPermission,
// kNoMemory (no timer or signal stack).
Expected<tl::expected<CallResult, Fault>> call_trapped(const TrappedCall& call);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_RUN_FAULT_TRAP_H_
