// The second, independent prediction: which records, counts, status bits and interrupts the manual
// promises for a traced run. It knows no line of pebs/model.
//
// The manual leaves three things open, and only these are taken from what was seen:
//  - how long arming takes (R15): an event within shadow_instructions() of the overflow may be recorded or
//    may pass unsampled; the first event behind that must be recorded (R2);
//  - how far behind the first half of a fused pair the record lies, where the row publishes two (R12);
//  - when an interrupt that was raised is delivered.
// Where a programme leaves what the manual promises (two facilities that exclude each other, a freeze, a
// skipped event on a row that does not say what that does), exact comparison ends there; what holds on
// any machine is still checked.
#ifndef SKIDPROOF_HARNESS_FUZZ_PREDICTOR_H_
#define SKIDPROOF_HARNESS_FUZZ_PREDICTOR_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/fuzz/case.h"
#include "harness/fuzz/meaning.h"
#include "harness/fuzz/registers.h"
#include "harness/fuzz/trace.h"
#include "harness/fuzz/violation.h"
#include "pebs/arch/reserved.h"
#include "pebs/machine.h"
#include "pebs/record.h"

namespace skidproof::fuzz {

// No document bounds the time that arming takes. Eight cycles of full retirement, every uop a fused pair
// of instructions, is what this fuzzer grants.
unsigned shadow_instructions(const arch::Microarch& microarch);

// What was seen of one run.
struct Observation {
  Records records;  // the new ones
  uint64_t status = 0;
  std::vector<uint64_t> counters, fixed;
  std::span<const Pmi> pmis;
  uint64_t lvt = 0;
  int64_t index = 0;  // PEBS index afterwards, from the base
};

class Predictor {
 public:
  // `registers` is kept up to date by the caller and must outlive this.
  Predictor(const RegisterFile& registers, const DebugStorePlan& ds, const Sequence& code);

  // Software wrote a register between runs, or rewound the index.
  void wrote(uint32_t msr);
  void rewound() { index_ = 0; }

  // Holds what was seen of a run against what was promised. `registers` still holds the counters and the
  // status of before the run. `buffer` is the address of the PEBS buffer.
  std::optional<Violation> judge(const Step& run, const Trace& trace, const Observation& seen,
                                 uint64_t buffer);

  // Of the last run: whether all of it was compared exactly, and how many of its records.
  bool exact() const { return !lost_; }
  uint64_t exact_records() const { return exact_records_; }

 private:
  static constexpr unsigned kCounters = 8;
  // CF, PF, ZF, SF, OF: AF is undefined behind logic operations.
  static constexpr uint64_t kStatusFlags = 0x8C5;
  enum class Arm : uint8_t { kNo, kYes, kMaybe };
  struct Counter {
    Meaning meaning;
    uint64_t value = 0;
    bool known = true;  // its value follows from the trace
    Arm arm = Arm::kNo;
    uint64_t overflow_at = 0;
  };

  void begin(const Step& run, const Trace& trace, const Observation& seen, uint64_t buffer);
  std::optional<Violation> place_records();
  std::optional<Violation> simulate();
  std::optional<Violation> instruction(size_t t);
  void count(size_t t, uint32_t& must, uint32_t& may);
  void overflow(unsigned n, size_t t, uint32_t& must);
  std::optional<Violation> record(size_t t, uint32_t sure, uint32_t possible, size_t eventing);
  void set_status(uint64_t bits);
  void forget_cleared();
  void lose_sight_of(unsigned n);
  bool freezes() const;
  void raise();

  // Violations in words, and what is compared; predictor_checks.cc.
  std::optional<Violation> misplaced(size_t k) const;
  std::optional<Violation> missing(size_t t, uint32_t must) const;
  std::optional<Violation> unexplained(size_t t) const;
  std::optional<Violation> check_contents(size_t k, size_t t, uint32_t sure, uint32_t possible,
                                          size_t eventing) const;
  std::optional<Violation> check_applicable(size_t k, uint32_t sure) const;
  std::optional<Violation> check_store(size_t k, size_t eventing) const;
  std::optional<Violation> check_load(size_t k, size_t t) const;
  std::optional<Violation> check_counters() const;
  std::optional<Violation> check_twins() const;
  std::optional<Violation> check_status(uint64_t seen, const std::string& where) const;
  std::optional<Violation> check_interrupt(const Pmi& pmi) const;
  std::optional<Violation> check_interrupts() const;

  bool matches(Record record, const Retirement& state) const;
  // A counter whose events are not predicted may interrupt at any time.
  bool interrupts_at_will() const;
  // An interrupt of counter n, overflowed in an earlier run, may wait for an assist of this one.
  bool may_wait(unsigned n) const;
  // Of the record that these counters would write, and whether it fits in front of the maximum.
  size_t record_bytes(uint32_t triggering) const;
  bool room(uint32_t triggering) const;
  bool outside(uint64_t ip) const;
  uint64_t address(const DataAccess& access) const;
  std::string place(uint64_t ip) const;
  std::string record_text(size_t k) const;
  uint64_t slot(unsigned n) const;
  uint64_t overflow_bit() const { return arch::pebs_overflow(registers_.microarch()); }
  bool sustained(unsigned n) const;
  uint32_t enabled_counters() const;  // PEBS_EN_PMCn

  const RegisterFile& registers_;
  const DebugStorePlan& ds_;
  const unsigned shadow_;
  std::array<bool, arch::kGprs> defined_{};
  std::array<Counter, kCounters> counters_;
  std::vector<Counter> fixed_;
  uint64_t clock_ = 0;  // instructions in earlier runs
  int64_t index_ = 0;

  // Of the run that is judged.
  const Step* run_ = nullptr;
  const Trace* trace_ = nullptr;
  const Observation* seen_ = nullptr;
  uint64_t buffer_ = 0;
  std::array<uint64_t, arch::kGprs>
      frame_{};                // registers that the program leaves alone; RSP at entry
  std::vector<size_t> place_;  // of each record: the instruction that it lies behind
  size_t next_ = 0;            // the next record
  uint32_t pending_must_ = 0, pending_may_ = 0;  // triggers that wait for the second half of a pair
  bool half_ = false;                            // a record waits for it
  bool wild_ = false;                            // there may be records that nothing here explains
  bool lost_ = false;
  bool frozen_ = false;
  bool interrupt_waits_ = false;    // of some counter, since before the run
  uint64_t status_ = 0, ever_ = 0;  // status bits that are set, that were ever set
  uint64_t certain_ = 0;            // those that are known exactly
  uint64_t raises_ = 0;
  bool masked_ = false;
  uint64_t exact_records_ = 0;
};

}  // namespace skidproof::fuzz

#endif  // SKIDPROOF_HARNESS_FUZZ_PREDICTOR_H_
