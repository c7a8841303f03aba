// Runs a case on a machine and holds everything that it did against the manual.
#ifndef SKIDPROOF_HARNESS_FUZZ_EXECUTE_H_
#define SKIDPROOF_HARNESS_FUZZ_EXECUTE_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "base/expected.h"
#include "harness/fuzz/case.h"
#include "harness/fuzz/trace.h"
#include "harness/fuzz/violation.h"
#include "pebs/machine.h"

namespace skidproof::fuzz {

// What was done and compared.
struct Tally {
  uint64_t cases = 0;
  uint64_t runs = 0;
  uint64_t exact_runs = 0;  // compared exactly to their end
  uint64_t instructions = 0;
  uint64_t records = 0;
  uint64_t exact_records = 0;  // whose event was predicted
  uint64_t writes = 0;
  uint64_t refused = 0;  // writes that had to raise #GP
  uint64_t interrupts = 0;

  Tally& operator+=(const Tally& other);
};

struct Outcome {
  std::optional<Violation> violation;  // the first
  Tally tally;
};

// Executes cases for the machines of one microarch.
class Executor {
 public:
  // Errors: kNoMemory.
  static Expected<std::unique_ptr<Executor>> create(const arch::Microarch& microarch);

  // `machine` must be of the executor's microarch and have a PMU. It is left with counters off. Errors
  // are the harness's: no memory, a program that cannot be traced or executed.
  Expected<Outcome> run(Machine& machine, const Case& c);

  // The program of a case as the last run placed it; at address 0 before any. For people.
  static Expected<Program> program_of(const Case& c, uint64_t code_address = 0);

 private:
  Executor(const arch::Microarch& microarch, std::unique_ptr<Tracer> tracer)
      : microarch_(microarch), tracer_(std::move(tracer)) {}

  const arch::Microarch& microarch_;
  std::unique_ptr<Tracer> tracer_;
};

}  // namespace skidproof::fuzz

#endif  // SKIDPROOF_HARNESS_FUZZ_EXECUTE_H_
