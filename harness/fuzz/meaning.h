// What the registers make of a counter: read out of the manual's words, not out of the model.
#ifndef SKIDPROOF_HARNESS_FUZZ_MEANING_H_
#define SKIDPROOF_HARNESS_FUZZ_MEANING_H_

#include <cstdint>
#include <optional>

#include "harness/fuzz/registers.h"
#include "pebs/arch/signal.h"

namespace skidproof::fuzz {

enum class Pebs : uint8_t {
  kNever,      // an overflow writes no record
  kOrdinary,   // the first event after arming is recorded (R2)
  kPdir,       // the overflowing event itself (R13)
  kNoPromise,  // there may be records: the manual does not say which
};

struct Meaning {
  bool counts = false;                 // under this GLOBAL_CTRL and privilege level
  std::optional<arch::Signal> signal;  // what it counts, where the instructions alone decide that
  bool published = false;              // the event is published for this counter
  Pebs pebs = Pebs::kNever;
  bool precise_store = false;
  bool load_latency = false;
  bool qualified = false;   // AnyThread, Edge, Invert or CMask is set
  bool interrupts = false;  // INT
  bool alone = false;       // published as excluding other PEBS events (R32, P6)
};

// IA32_PMCn in a run with this GLOBAL_CTRL.
Meaning meaning_of(const RegisterFile& registers, unsigned counter, uint64_t global_ctrl,
                   bool user);
// Fixed counter i.
Meaning fixed_meaning_of(const RegisterFile& registers, unsigned counter, uint64_t global_ctrl,
                         bool user);

}  // namespace skidproof::fuzz

#endif  // SKIDPROOF_HARNESS_FUZZ_MEANING_H_
