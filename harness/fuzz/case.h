// A fuzz case: a PMU programme over a piece of code, as plain data. The file that it is written to is
// all that a second run needs.
#ifndef SKIDPROOF_HARNESS_FUZZ_CASE_H_
#define SKIDPROOF_HARNESS_FUZZ_CASE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/expected.h"
#include "kernels/jit/sequence.h"
#include "results/row.h"

namespace skidproof::fuzz {

using results::Json;

// One thing that ring 0 does.
struct Step {
  enum class Kind : uint8_t {
    kWrite,   // WRMSR of `value` to `msr`, legal or not
    kRewind,  // PEBS index := base, as software does after reading the records
    kRun,     // GLOBAL_CTRL := `value`, the program, GLOBAL_CTRL := 0
  };
  Kind kind = Kind::kWrite;
  uint32_t msr = 0;
  uint64_t value = 0;
  // Of a run.
  uint32_t iterations = 1;
  bool user = false;          // the program runs at CPL 3
  bool unmask = false;        // the interrupt handler clears the LVT mask bit …
  bool clear_status = false;  // … and writes the status that it read to OVF_CTRL
  bool operator==(const Step&) const = default;
};

// The DS buffer management area, in bytes from the buffer's base.
struct DebugStorePlan {
  int64_t index = 0;
  int64_t maximum = 0;
  int64_t threshold = 0;
  std::vector<uint64_t> resets;  // by slot; slots that are not named hold 0
  bool operator==(const DebugStorePlan&) const = default;
};

struct Case {
  std::string machine;  // "model:sandy-bridge", with "+<defect>" for each defect
  bool sibling_thread = true;
  uint64_t machine_seed = 1;  // what a model does by chance
  uint64_t data_seed = 1;     // what the program's data holds
  Sequence code;
  DebugStorePlan ds;
  std::vector<Step> steps;
  bool operator==(const Case&) const = default;
};

// Limits that keep a case from a file harmless.
inline constexpr uint32_t kMaximumIterations = 10'000;
inline constexpr size_t kMaximumItems = 512, kMaximumSteps = 256;
// The most instructions that one run may retire; longer ones are refused by the tracer.
inline constexpr size_t kMaximumTrace = 200'000;
// Room around the PEBS buffer that the case may reach into; see DebugStorePlan.
inline constexpr int64_t kMaximumBufferBytes = 32 << 10;

Json json_of(const Case& c);
// Error: kInvalidArgument with the field that is missing, ill-typed or out of range.
Expected<Case> case_of(const Json& json);
// The text of a file, of whatever origin. Error: kInvalidArgument.
Expected<Case> parse_case(std::string_view text);

}  // namespace skidproof::fuzz

#endif  // SKIDPROOF_HARNESS_FUZZ_CASE_H_
