#include "pebs/engines/overhead.h"

#include <fmt/format.h>

#include "pebs/engines/journal.h"

namespace skidproof::lab {
namespace {

// The exception by which a program at ring 3 returns to the driver.
constexpr unsigned kInvalidOpcode = 6;

std::string line(const char* what, const Distribution& of) {
  return fmt::format("  {:<52}{:>8} times   min {:>4}   median {:>4}   max {:>4}\n", what,
                     of.count(), of.min(), of.median(), of.max());
}

}  // namespace

// The lower one of two.
uint64_t Distribution::median() const {
  uint64_t seen = 0;
  for (const auto& [value, times] : times_) {
    seen += times;
    if (2 * seen >= count_) return value;
  }
  return 0;
}

bool Overhead::within(const OverheadBounds& bounds) const {
  return before.max() + after.max() <= bounds.around && handler.max() <= bounds.handler &&
         system_calls == 0;
}

std::string Overhead::report(const OverheadBounds& bounds) const {
  std::string text = "overhead: instructions that ring 0 executed\n";
  text += line("from enabling the counters to the program's first", before);
  text += line("from the program's last to disabling the counters", after);
  text += line("for each interrupt, its IRET included", handler);
  if (elsewhere.count() > 0)
    text += line("interrupts that came late, by the kernel's handler", elsewhere);
  text += fmt::format("  in sum around a program: {} (at most {})\n", before.max() + after.max(),
                      bounds.around);
  text += fmt::format("  for an interrupt: {} (at most {})\n", handler.max(), bounds.handler);
  text += fmt::format("  system calls between records: {} (at most 0), with {} records\n",
                      system_calls, records);
  if (!measured()) return text + "overhead: nothing was measured\n";
  return text + (within(bounds) ? "overhead: held\n" : "overhead: failed\n");
}

void OverheadMeter::wrote() {
  wrote_ = false;
  if (in_handler_) return;  // it stops them, and lets them go on
  if (counters_ != 0) {
    state_ = State::kEntering;
    count_ = 0;
    return;
  }
  if (state_ == State::kLeaving) figures_.after.add(count_);
  state_ = State::kIdle;
  recorded_ = false;
}

void OverheadMeter::retired(uint64_t ip, bool user) {
  const bool write = wrote_;
  if (write) wrote();
  if (in_handler_) {
    ++handled_;
    if (returns_) leave_handler();
    return;
  }
  if (write) return;
  const bool program = is_program(ip);
  if (program) user_ = user;
  // Registers that user space had written, not a run.
  if (user && !program) state_ = State::kIdle;
  switch (state_) {
    case State::kIdle:
      break;
    case State::kEntering:
      if (program) {
        figures_.before.add(count_);
        state_ = State::kProgram;
      } else {
        ++count_;
      }
      break;
    case State::kProgram:
      if (!program) {
        state_ = State::kLeaving;
        count_ = 1;
      }
      break;
    case State::kLeaving:
      program ? static_cast<void>(state_ = State::kProgram) : static_cast<void>(++count_);
      break;
  }
}

void OverheadMeter::interrupt(bool to_the_driver) {
  in_handler_ = true;
  drivers_ = to_the_driver;
  returns_ = false;
  handled_ = nested_ = 0;
}

void OverheadMeter::exception(unsigned vector) {
  if (in_handler_) {
    ++nested_;
  } else if (state_ == State::kProgram && user_ && vector == kInvalidOpcode) {
    state_ = State::kLeaving;
    count_ = 0;
  } else if (state_ == State::kProgram) {
    state_ = State::kIdle;  // such a program does not return
  }
}

void OverheadMeter::record() {
  ++figures_.records;
  if (recorded_) figures_.system_calls += calls_;
  recorded_ = true;
  calls_ = 0;
}

void OverheadMeter::interrupt_return() {
  if (!in_handler_) return;
  if (nested_ > 0) {
    --nested_;
  } else {
    returns_ = true;
  }
}

void OverheadMeter::leave_handler() {
  in_handler_ = false;
  (drivers_ ? figures_.handler : figures_.elsewhere).add(handled_);
  // It left the counters off: what comes is no program, or one that nobody counts.
  if (counters_ == 0) state_ = State::kIdle;
}

}  // namespace skidproof::lab
