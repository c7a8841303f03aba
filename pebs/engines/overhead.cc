#include "pebs/engines/overhead.h"

#include <fmt/format.h>

#include <string_view>

#include "pebs/arch/msr.h"
#include "pebs/engines/journal.h"

namespace skidproof::lab {
namespace {

// The exception by which a program at ring 3 returns to the driver.
constexpr unsigned kInvalidOpcode = 6;

std::string line(std::string_view what, const Distribution& of) {
  return fmt::format("  {:<52}{:>8} times   min {:>4}   median {:>4}   max {:>4}\n", what,
                     of.count(), of.min(), of.median(), of.max());
}

std::string registers(unsigned count) {
  return fmt::format("{} register{}", count, count == 1 ? "" : "s");
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
  for (const auto& [written, interrupts] : handler) {
    if (interrupts.max() > bounds.handler + written * bounds.written) return false;
  }
  return before.max() + after.max() <= bounds.around && system_calls == 0;
}

std::string Overhead::report(const OverheadBounds& bounds) const {
  std::string text = "overhead: instructions that ring 0 executed\n";
  text += line("from enabling the counters to the program's first", before);
  text += line("from the program's last to disabling the counters", after);
  for (const auto& [written, interrupts] : handler) {
    text +=
        line(written == 0 ? "for each interrupt, its IRET included"
                          : fmt::format("the same, with {} more written in it", registers(written)),
             interrupts);
  }
  if (elsewhere.count() > 0)
    text += line("interrupts that came late, by the kernel's handler", elsewhere);
  text += fmt::format("  in sum around a program: {} (at most {})\n", before.max() + after.max(),
                      bounds.around);
  for (const auto& [written, interrupts] : handler) {
    text +=
        fmt::format("  for an interrupt{}: {} (at most {})\n",
                    written == 0 ? "" : fmt::format(" with {} more written", registers(written)),
                    interrupts.max(), bounds.handler + written * bounds.written);
  }
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

// Stopping the counters, acknowledging, opening the LVT entry again and changing GS are the driver's own.
void OverheadMeter::write_msr(uint32_t msr) {
  using namespace arch;  // MSR names
  constexpr uint32_t kFsBase = 0xC000'0100, kKernelGsBase = 0xC000'0102;
  if (msr >= kFsBase && msr <= kKernelGsBase) return;
  if (msr != IA32_PERF_GLOBAL_CTRL && msr != IA32_PERF_GLOBAL_OVF_CTRL && msr != IA32_DEBUGCTL &&
      msr != IA32_X2APIC_LVT_PMI) {
    ++written_;
  }
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
  handled_ = nested_ = written_ = 0;
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
  (drivers_ ? figures_.handler[written_] : figures_.elsewhere).add(handled_);
  // It left the counters off: what comes is no program, or one that nobody counts.
  if (counters_ == 0) state_ = State::kIdle;
}

}  // namespace skidproof::lab
