// What the driver adds to a program that it samples, counted instruction by instruction: how many ring 0 executes
// between the counters and the program, how many for each interrupt, and which system calls a record costs.
#ifndef SKIDPROOF_PEBS_ENGINES_OVERHEAD_H_
#define SKIDPROOF_PEBS_ENGINES_OVERHEAD_H_

#include <cstdint>
#include <map>
#include <string>

namespace skidproof::lab {

class Distribution {
 public:
  void add(uint64_t value) { ++times_[value], ++count_; }
  uint64_t count() const { return count_; }
  uint64_t min() const { return times_.empty() ? 0 : times_.begin()->first; }
  uint64_t median() const;
  uint64_t max() const { return times_.empty() ? 0 : times_.rbegin()->first; }

 private:
  std::map<uint64_t, uint64_t> times_;
  uint64_t count_ = 0;
};

// What may be at most; instructions at ring 0.
struct OverheadBounds {
  uint64_t around = 100;   // from enabling to the program, and from it to disabling, in sum
  uint64_t handler = 400;  // for each interrupt, its IRET included
  uint64_t written = 200;  // more for each register that the handler writes for the plan
};

// Of all processors together.
struct Overhead {
  Distribution before, after;  // the program; the two WRMSRs of the global control are not counted
  // Interrupts that the driver took, by how many registers it wrote for the plan.
  std::map<unsigned, Distribution> handler;
  Distribution elsewhere;     // those that came when no program ran, and the kernel took
  uint64_t records = 0;       // that the processors wrote, of PEBS and of branches
  uint64_t system_calls = 0;  // between two records of a run

  // Without a run and an interrupt nothing can be said.
  bool measured() const { return after.count() > 0 && !handler.empty(); }
  bool within(const OverheadBounds& bounds) const;
  std::string report(const OverheadBounds& bounds) const;
};

// One processor's meter. It is told of every instruction that retires while watching().
class OverheadMeter {
 public:
  explicit OverheadMeter(Overhead& figures) : figures_(figures) {}

  bool watching() const { return wrote_ || in_handler_ || state_ != State::kIdle; }
  // IA32_PERF_GLOBAL_CTRL is being written, by the instruction that retires next.
  void enabled(uint64_t counters) { wrote_ = true, counters_ = counters; }
  void write_msr(uint32_t msr);
  void retired(uint64_t ip, bool user);
  // A performance monitoring interrupt is delivered, by the driver's IDT or by the kernel's.
  void interrupt(bool to_the_driver);
  void exception(unsigned vector);
  void interrupt_return();
  void system_call() { ++calls_; }
  void record();

 private:
  // kProgram: from its first instruction. kLeaving: from the first one that is not its.
  enum class State : uint8_t { kIdle, kEntering, kProgram, kLeaving };
  void wrote();
  void leave_handler();

  Overhead& figures_;
  State state_ = State::kIdle;
  bool wrote_ = false;
  uint64_t counters_ = 0;
  bool user_ = false;  // the program is at ring 3
  uint64_t count_ = 0;
  bool recorded_ = false;  // this run has a record …
  uint64_t calls_ = 0;     // … and these system calls have come since

  bool in_handler_ = false, drivers_ = false, returns_ = false;
  uint64_t handled_ = 0, nested_ = 0;
  unsigned written_ = 0;  // registers that a handler of the driver's writes for the plan alone
};

}  // namespace skidproof::lab

#endif  // SKIDPROOF_PEBS_ENGINES_OVERHEAD_H_
