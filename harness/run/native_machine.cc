// The Machine interface over this process's own CPU and memory.
#include "harness/run/native_machine.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "harness/run/fault_trap.h"
#include "harness/run/guarded_memory.h"
#include "harness/run/native_identity.h"
#include "kernels/jit/executable.h"

namespace skidproof {

// Shared with the blocks' handles, which may outlive the machine.
struct NativeMachine::Blocks {
  struct Block {
    uint64_t bytes = 0;
    MemoryUse use = MemoryUse::kData;
  };

  mutable std::mutex mutex;
  std::map<uint64_t, Block> all;  // by where each begins

  void add(uint64_t begin, const Block& block) {
    const std::lock_guard lock(mutex);
    all[begin] = block;
  }
  void remove(uint64_t begin) {
    const std::lock_guard lock(mutex);
    all.erase(begin);
  }
  // Whether one block of ours, a code block if so asked, holds all of these bytes.
  bool hold(uint64_t begin, uint64_t bytes, bool code) const {
    const std::lock_guard lock(mutex);
    const auto above = all.upper_bound(begin);
    if (above == all.begin()) return false;
    const auto& [address, block] = *std::prev(above);
    return (!code || block.use == MemoryUse::kCode) && bytes <= block.bytes &&
           begin - address <= block.bytes - bytes;
  }
};

namespace {

tl::unexpected<Error> no_msr(const char* what, uint32_t msr) {
  return fail(
      ErrorCode::kNotAvailable,
      fmt::format("cannot {} MSR {:#x}: the native machine has no access to MSRs", what, msr),
      "use --machine direct (needs the driver and a PMU) or --machine model:sandy-bridge; "
      "`skidproof doctor` says what this machine can run");
}

// An x86 exception in the manual's words (Intel SDM vol. 3A, 6.3.1, table "Protected-Mode
// Exceptions").
std::string exception(const Fault& fault) {
  switch (fault.trap) {
    case 0:
      return "#DE divide error";
    case 1:
      return "#DB debug exception";
    case 3:
      return "#BP breakpoint";
    case 6:
      return "#UD invalid opcode";
    case 7:
      return "#NM no math coprocessor";
    case 13:
      return "#GP general protection (privileged instruction or non-canonical address)";
    case 14:
      return "#PF page fault";
    case 16:
      return "#MF floating-point error";
    case 17:
      return "#AC alignment check";
    case 19:
      return "#XM SIMD floating-point exception";
    default:
      return fmt::format("exception {}", fault.trap);
  }
}

std::string place(const Program& program, uint64_t ip) {
  const uint64_t end = program.code_address + program.code.size();
  if (ip < program.code_address || ip >= end) {
    return fmt::format("{:#x}, outside its code [{:#x}, {:#x})", ip, program.code_address, end);
  }
  const Instruction* instruction = program.at(ip);
  return fmt::format("{:#x} (code + {:#x}{}{})", ip, ip - program.code_address,
                     instruction == nullptr ? "" : ": ",
                     instruction == nullptr ? "" : instruction->text);
}

Error fault_error(const Program& program, const RunPlan& plan, const Fault& fault) {
  if (fault.timeout) {
    return {ErrorCode::kTimeout,
            fmt::format("{} was still running after {} ms, at {}", program.id(),
                        plan.deadline.count(), place(program, fault.ip)),
            "fewer iterations, or a later deadline"};
  }
  std::string message =
      fmt::format("{} ended with SIG{} ({}) at {}", program.id(), sigabbrev_np(fault.signal),
                  exception(fault), place(program, fault.ip));
  if (fault.trap == 14) {
    const char* access = (fault.error_code & 16) != 0  ? "fetching"
                         : (fault.error_code & 2) != 0 ? "writing"
                                                       : "reading";
    message += fmt::format(", {} {:#x}", access, fault.address);
  }
  return {ErrorCode::kExecution, message,
          fmt::format("its data block is [{:#x}, {:#x}); the process itself is unharmed unless the "
                      "program wrote elsewhere before",
                      program.data_address, program.data_address + program.data_bytes)};
}

int default_cpu(const std::vector<int>& allowed) { return allowed.back(); }

}  // namespace

Expected<std::unique_ptr<NativeMachine>> NativeMachine::create(const NativeOptions& options) {
  const std::vector<int> allowed = SKIDPROOF_TRY(allowed_cpus());
  if (allowed.empty()) return fail(ErrorCode::kInternal, "no CPU is allowed to this process");
  const int cpu = options.cpu.value_or(default_cpu(allowed));
  // Pinned only while identifying: cores of one machine may differ.
  const PinGuard pinned = SKIDPROOF_TRY(PinGuard::pin(cpu));
  return std::unique_ptr<NativeMachine>(new NativeMachine(cpu, allowed, native_identity(cpu)));
}

NativeMachine::NativeMachine(int cpu, std::vector<int> allowed, Identity identity)
    : cpu_(cpu),
      allowed_(std::move(allowed)),
      identity_(std::move(identity)),
      blocks_(std::make_shared<Blocks>()) {}

NativeMachine::~NativeMachine() = default;

Machine::CpuidResult NativeMachine::cpuid(uint32_t leaf, uint32_t subleaf) const {
  return host_cpuid(leaf, subleaf);
}

Expected<uint64_t> NativeMachine::rdmsr(uint32_t msr) { return no_msr("read", msr); }

Expected<void> NativeMachine::wrmsr(uint32_t msr, uint64_t /*value*/) {
  return no_msr("write", msr);
}

Expected<Memory> NativeMachine::allocate(const MemoryRequest& request) {
  if (request.low()) {
    return fail(ErrorCode::kNotAvailable, "a process runs in 64-bit mode only",
                "run the program in Mode::kLong");
  }
  if (request.physical) {
    return fail(ErrorCode::kNotAvailable, "a process does not see physical memory",
                "use a machine with a PMU, for example --machine model:panther-lake-p");
  }
  Memory memory = SKIDPROOF_TRY(allocate_guarded(request));
  blocks_->add(memory.address, {memory.host.size(), request.use});
  // The handle that is given out unregisters the block before its mapping goes.
  memory.keep = std::shared_ptr<void>(
      nullptr, [blocks = blocks_, address = memory.address,
                mapping = std::move(memory.keep)](void*) { blocks->remove(address); });
  return memory;
}

Expected<void> NativeMachine::check(const Program& program, const RunPlan& plan) const {
  if (!plan.enable.empty()) return no_msr("write", plan.enable.front().msr);
  if (!plan.disable.empty()) return no_msr("write", plan.disable.front().msr);
  if (!plan.read.empty()) return no_msr("read", plan.read.front());
  if (!plan.disturbances.empty()) {
    return fail(ErrorCode::kNotAvailable,
                "a process cannot bring about SMIs, machine checks or INIT",
                "use a machine that can, for example --machine model:sandy-bridge");
  }
  if (plan.mode != Mode::kLong || program.mode != Mode::kLong) {
    return fail(ErrorCode::kNotAvailable, "a process runs in 64-bit mode only",
                "run the program in Mode::kLong");
  }
  return check_executable(program, blocks_->hold(program.code_address, program.code.size(), true),
                          blocks_->hold(program.data_address, program.data_bytes, false));
}

Expected<void> NativeMachine::pin() {
  // Not gettid(), which is a system call before each run.
  static std::atomic<uint64_t> threads = 0;
  thread_local const uint64_t thread = ++threads;
  if (pinned_ && pinned_thread_ == thread) return {};
  pinned_.reset();
  pinned_ = SKIDPROOF_TRY(PinGuard::pin(cpu_));
  pinned_thread_ = thread;
  return {};
}

Expected<RunLog> NativeMachine::run(const Program& program, const RunPlan& plan) {
  return RunLog(SKIDPROOF_TRY(run_in_laps(program, plan, {})));
}

Expected<RunInLaps> NativeMachine::run_in_laps(const Program& program, const RunPlan& plan,
                                               const Laps& laps) {
  if (laps.count == 0 || laps.count > std::max<uint64_t>(plan.iterations, 1)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} laps of {} iterations", laps.count, plan.iterations),
                "a lap has an iteration at least");
  }
  SKIDPROOF_CHECK(check(program, plan));
  SKIDPROOF_CHECK(pin());
  // NOLINTNEXTLINE(performance-no-int-to-ptr): check() found it inside a block of ours.
  auto* code = reinterpret_cast<std::byte*>(program.code_address);
  // Only when it differs: writing code empties the instruction caches that a repeated run wants
  // warm.
  if (std::memcmp(code, program.code.data(), program.code.size()) != 0) {
    std::memcpy(code, program.code.data(), program.code.size());
  }
  TrappedCall call;
  call.entry = program.entry;
  call.iterations = plan.iterations;
  call.data = program.data_address;
  call.code_begin = program.code_address;
  call.code_end = program.code_address + program.code.size();
  call.deadline = plan.deadline;
  RunInLaps log;
  if (laps.count > 1) log.laps.resize(laps.count);
  call.laps = log.laps;
  call.onward = laps.onward;
  noise_.begin();
  const auto outcome = SKIDPROOF_TRY(call_trapped(call));
  Noise noise = noise_.end();
  if (!outcome) return tl::make_unexpected(fault_error(program, plan, outcome.error()));
  log.result = outcome->result;
  log.tsc = outcome->tsc;
  noise.interrupted = outcome->interrupted ? 1 : 0;
  log.noise = noise;
  return log;
}

}  // namespace skidproof
