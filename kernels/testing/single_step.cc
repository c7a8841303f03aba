// A program run one instruction at a time under the trap flag (RFLAGS.TF; SDM volume 3,
// "Single-Step Exception Condition"): the trap comes after each instruction, with the next one's
// RIP.
#include "kernels/testing/single_step.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <csetjmp>
#include <csignal>
#include <cstring>
#include <vector>

namespace skidproof {
namespace {

constexpr uint64_t kTrapFlag = 0x100;
constexpr std::array<int, 5> kSignals = {SIGTRAP, SIGSEGV, SIGBUS, SIGILL, SIGFPE};

// What the handler needs; a signal handler can only reach it as a global.
struct Run {
  uint64_t begin = 0, end = 0;  // the program's code
  uint64_t limit = 0;
  uint64_t steps = 0;
  uint64_t fault_rip = 0;
  const std::function<void(const Step&)>* before = nullptr;
  sigjmp_buf bail_out;
};
Run* current = nullptr;

enum BailOut : int { kTooLong = 1, kFault = 2 };

Step step_of(const ucontext_t& context) {
  constexpr std::array<int, 16> kOrder = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                          REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                          REG_R12, REG_R13, REG_R14, REG_R15};
  const auto& gregs = context.uc_mcontext.gregs;
  Step step;
  step.rip = static_cast<uint64_t>(gregs[REG_RIP]);
  step.rflags = static_cast<uint64_t>(gregs[REG_EFL]) & ~kTrapFlag;
  for (size_t i = 0; i < kOrder.size(); ++i) step.gpr[i] = static_cast<uint64_t>(gregs[kOrder[i]]);
  return step;
}

void on_signal(int signal, siginfo_t*, void* raw) {
  auto& context = *static_cast<ucontext_t*>(raw);
  uint64_t rip = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RIP]);
  if (signal != SIGTRAP) {
    current->fault_rip = rip;
    siglongjmp(current->bail_out, kFault);
  }
  if (rip < current->begin || rip >= current->end) {
    context.uc_mcontext.gregs[REG_EFL] &= ~static_cast<greg_t>(kTrapFlag);  // returned: run freely
    return;
  }
  if (++current->steps > current->limit) siglongjmp(current->bail_out, kTooLong);
  (*current->before)(step_of(context));
}

// The handlers, their stack and their run, put back on every way out.
class Handlers {
 public:
  explicit Handlers(Run& run) : stack_(256 << 10) {
    current = &run;
    stack_t stack = {};
    stack.ss_sp = stack_.data();
    stack.ss_size = stack_.size();
    sigaltstack(&stack, &old_stack_);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &old_[i]);
  }
  ~Handlers() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &old_[i], nullptr);
    sigaltstack(&old_stack_, nullptr);
    current = nullptr;
  }
  Handlers(const Handlers&) = delete;
  Handlers& operator=(const Handlers&) = delete;

 private:
  std::vector<std::byte> stack_;
  stack_t old_stack_ = {};
  std::array<struct sigaction, kSignals.size()> old_ = {};
};

// The trap flag is set by POPFQ and traps first after the CALL, at the program's entry. The red
// zone of this function lies below RSP and must be stepped over.
uint64_t call_trapped(uint64_t entry, uint64_t iterations, uint64_t data) {
  uint64_t result = 0;
  asm volatile(
      "lea -128(%%rsp), %%rsp\n\t"
      "pushfq\n\t"
      "orq $0x100, (%%rsp)\n\t"
      "popfq\n\t"
      "call *%[entry]\n\t"
      "lea 128(%%rsp), %%rsp\n\t"
      : "=a"(result), "+D"(iterations), "+S"(data)
      : [entry] "r"(entry)
      : "rcx", "rdx", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
        "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15",
        "memory", "cc");
  return result;
}

Expected<std::shared_ptr<std::byte>> map(size_t bytes, int protection) {
  void* address = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    return fail(ErrorCode::kNoMemory,
                fmt::format("mmap of {} bytes: {}", bytes, std::strerror(errno)),
                "a policy against writable and executable memory (SELinux, PaX) refuses JIT code");
  }
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(address),
                                    [bytes](std::byte* p) { munmap(p, bytes); });
}

size_t pages(size_t bytes) { return (bytes / 4096 + 1) * 4096; }

}  // namespace

Expected<NativeArena> NativeArena::create(size_t code_bytes, size_t data_bytes) {
  NativeArena arena;
  arena.code_bytes_ = pages(code_bytes);
  arena.data_bytes_ = pages(data_bytes);
  arena.code_ = SKIDPROOF_TRY(map(arena.code_bytes_, PROT_READ | PROT_WRITE | PROT_EXEC));
  arena.data_ = SKIDPROOF_TRY(map(arena.data_bytes_, PROT_READ | PROT_WRITE));
  return arena;
}

Expected<void> NativeArena::load(const Program& program) const {
  if (program.code_address != code_address() || program.code.size() > code_bytes_) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} is {} bytes for {:#x}; the arena has {} at {:#x}", program.id(),
                    program.code.size(), program.code_address, code_bytes_, code_address()));
  }
  std::memcpy(code_.get(), program.code.data(), program.code.size());
  return {};
}

Expected<uint64_t> single_step(const Program& program, uint64_t iterations, uint64_t limit,
                               const std::function<void(const Step&)>& before) {
  Run run;
  run.begin = program.code_address;
  run.end = program.code_address + program.code.size();
  run.limit = limit;
  run.before = &before;
  Handlers handlers(run);
  switch (sigsetjmp(run.bail_out, 1)) {
    case 0:
      return call_trapped(program.entry, iterations, program.data_address);
    case kTooLong:
      return fail(ErrorCode::kTimeout,
                  fmt::format("{} is not done after {} instructions", program.id(), limit));
    default:
      return fail(ErrorCode::kExecution,
                  fmt::format("{} faults at {:#x}", program.id(), run.fault_rip));
  }
}

uint64_t call_native(const Program& program, uint64_t iterations) {
  // A program's addresses are numbers until here: they belong to the machine that it was placed for.
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  auto entry = reinterpret_cast<uint64_t (*)(uint64_t, void*)>(program.entry);
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return entry(iterations, reinterpret_cast<void*>(program.data_address));
}

}  // namespace skidproof
