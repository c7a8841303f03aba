// Signals on an alternate stack, sigsetjmp around the call, and a timer for the deadline. A call that ends in time costs no
// system call: under some hypervisors each takes a microsecond, and what the kernel does between two runs drives lines out of
// the caches.
#include "harness/run/fault_trap.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>

#include "harness/run/clock.h"

namespace skidproof {
namespace {

constexpr std::array kFaultSignals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
// A wide vector state makes signal frames of several KiB; sanitizers' handlers want more.
constexpr size_t kSignalStack = 128 << 10;

constexpr std::chrono::hours kLongest{24 * 365};
constexpr int64_t kLookAgain =
    10'000'000;  // ns: at a call whose deadline is over, and that was not in its code

// The call in progress on this thread.
struct Active {
  sigjmp_buf back;
  const TrappedCall* call = nullptr;
  int64_t deadline = 0;  // of CLOCK_MONOTONIC, in ns
  Fault fault;
};
thread_local Active* volatile active = nullptr;

struct sigaction previous[NSIG];

int timer_signal() { return SIGRTMIN + 7; }

Fault describe(int signal, const siginfo_t& info, const ucontext_t& context) {
  Fault fault;
  fault.signal = signal;
  fault.code = info.si_code;
  fault.trap = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_TRAPNO]);
  fault.error_code = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_ERR]);
  fault.ip = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RIP]);
  fault.address = reinterpret_cast<uint64_t>(info.si_addr);
  return fault;
}

int64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// A child has none of its parent's timers.
volatile sig_atomic_t generation = 0;

// This thread's timer, which signals it once. It is left armed when a call ends, and finds none then, or a later one that
// still has time, for which it is armed anew: few calls last as long as their deadline.
class DeadlineTimer {
 public:
  DeadlineTimer() = default;
  DeadlineTimer(const DeadlineTimer&) = delete;
  DeadlineTimer& operator=(const DeadlineTimer&) = delete;
  ~DeadlineTimer() {
    if (created_ && generation_ == generation) timer_delete(timer_);
  }

  // Signals at `when`, or earlier. False, with errno: it cannot.
  bool ensure(int64_t when) {
    if (created_ && generation_ != generation) created_ = false;
    if (!created_ && !create()) return false;
    // What expired before this reading may have found nobody.
    if (expires_ > monotonic_ns() && expires_ <= when) return true;
    return arm(when);
  }
  // In a signal handler, too.
  bool arm(int64_t when) {
    itimerspec at = {};
    at.it_value.tv_sec = when / 1'000'000'000;
    at.it_value.tv_nsec = when % 1'000'000'000;
    expires_ = when;
    if (timer_settime(timer_, TIMER_ABSTIME, &at, nullptr) == 0) return true;
    expires_ = 0;
    return false;
  }

 private:
  bool create() {
    static std::once_flag once;
    std::call_once(once,
                   [] { pthread_atfork(nullptr, nullptr, [] { generation = generation + 1; }); });
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = timer_signal();
    event._sigev_un._tid = gettid();
    created_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
    generation_ = generation;
    expires_ = 0;
    return created_;
  }

  timer_t timer_ = nullptr;
  bool created_ = false;
  sig_atomic_t generation_ = 0;
  volatile int64_t expires_ = 0;  // which its handler changes
};
thread_local DeadlineTimer timer;

// Back to the call, from a handler on its thread: with the signals blocked that were so there.
[[noreturn]] void jump_back(Active& current, const ucontext_t& context) {
  active = nullptr;
  pthread_sigmask(SIG_SETMASK, &context.uc_sigmask, nullptr);
  siglongjmp(current.back, 1);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  Active* current = active;
  // si_code > 0: the kernel raised it for an instruction, nobody sent it.
  if (current != nullptr && info->si_code > 0) {
    const auto& machine = *static_cast<ucontext_t*>(context);
    current->fault = describe(signal, *info, machine);
    jump_back(*current, machine);
  }
  const struct sigaction& before = previous[signal];
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
    // With the old disposition back, the faulting instruction repeats and meets it; a sent signal
    // is raised again.
    sigaction(signal, &before, nullptr);
    if (info->si_code <= 0) raise(signal);
  } else {
    before.sa_handler(signal);
  }
}

void on_timer(int signal, siginfo_t* info, void* context) {
  Active* current = active;
  if (current == nullptr || info->si_code != SI_TIMER) return;
  const int64_t now = monotonic_ns();
  if (now < current->deadline) {
    timer.arm(current->deadline);
    return;
  }
  const auto& machine = *static_cast<ucontext_t*>(context);
  const auto ip = static_cast<uint64_t>(machine.uc_mcontext.gregs[REG_RIP]);
  if (ip < current->call->code_begin || ip >= current->call->code_end) {
    timer.arm(now + kLookAgain);
    return;
  }
  current->fault = describe(signal, *info, machine);
  current->fault.timeout = true;
  jump_back(*current, machine);
}

void install_handlers() {
  struct sigaction action = {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  action.sa_sigaction = on_fault;
  for (int signal : kFaultSignals) sigaction(signal, &action, &previous[signal]);
  action.sa_sigaction = on_timer;
  action.sa_flags |= SA_RESTART;
  sigaction(timer_signal(), &action, &previous[timer_signal()]);
}

// Where handlers run when the program has ruined its stack pointer; one for each thread.
class SignalStack {
 public:
  SignalStack() {
    stack_t old = {};
    if (sigaltstack(nullptr, &old) == 0 && (old.ss_flags & SS_DISABLE) == 0 &&
        old.ss_size >= kSignalStack / 4) {
      ready_ = true;  // someone's own, and large enough
      return;
    }
    void* memory =
        mmap(nullptr, kSignalStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    memory_ = memory;
    const stack_t stack = {.ss_sp = memory, .ss_flags = 0, .ss_size = kSignalStack};
    ready_ = sigaltstack(&stack, nullptr) == 0;
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;
  ~SignalStack() {
    if (memory_ == nullptr) return;
    const stack_t none = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    sigaltstack(&none, nullptr);
    munmap(memory_, kSignalStack);
  }
  bool ready() const { return ready_; }

 private:
  void* memory_ = nullptr;
  bool ready_ = false;
};

// Apart and never inlined: a frame between the sigsetjmp and the program whose locals nobody needs
// after a jump.
__attribute__((noinline)) CallResult call_and_time(const TrappedCall& call) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the address of generated code is a number.
  auto* entry = reinterpret_cast<uint64_t (*)(uint64_t, uint64_t)>(call.entry);
  // A null selector that is not 0: see CallResult::interrupted.
  uint32_t selector = 3;
  asm volatile("mov %0, %%es" : : "r"(selector));
  const uint64_t begin = fenced_tsc();
  uint64_t result = 0, end = 0;
  if (call.laps.empty()) {
    result = entry(call.iterations, call.data);
    end = fenced_tsc();
  } else {
    const uint64_t each = call.iterations / call.laps.size();
    const uint64_t one_more = call.iterations % call.laps.size();
    uint64_t data = call.data, since = begin;
    for (size_t i = 0; i < call.laps.size(); ++i) {
      result = entry(each + (i < one_more ? 1 : 0), data);
      end = fenced_tsc();
      call.laps[i] = end - since;
      since = end;
      if (call.onward) data = result;
    }
  }
  asm volatile("mov %%es, %0" : "=r"(selector));
  return {result, end - begin, (selector & 3) == 0};
}

}  // namespace

Expected<tl::expected<CallResult, Fault>> call_trapped(const TrappedCall& call) {
  static std::once_flag once;
  std::call_once(once, install_handlers);
  thread_local const SignalStack stack;
  if (!stack.ready()) {
    return fail(ErrorCode::kNoMemory, "cannot set up an alternate signal stack", "free memory");
  }
  Active here;
  here.call = &call;
  here.deadline = monotonic_ns() + std::chrono::nanoseconds(
                                       std::min<std::chrono::milliseconds>(call.deadline, kLongest))
                                       .count();
  if (sigsetjmp(here.back, 0) != 0)
    return tl::expected<CallResult, Fault>(tl::unexpect, here.fault);
  // Before the timer is looked at: it finds this call, or has expired before.
  active = &here;
  if (!timer.ensure(here.deadline)) {
    active = nullptr;
    return fail(
        ErrorCode::kPermission,
        fmt::format("cannot arm a timer for the deadline: {}", std::strerror(errno)),
        "raise `ulimit -i` (pending signals), or leave the sandbox that forbids timer_create");
  }
  const CallResult result = call_and_time(call);
  active = nullptr;
  return tl::expected<CallResult, Fault>(result);
}

}  // namespace skidproof
