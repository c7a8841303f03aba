// The interpreter against the CPU in front of us: the same programs at the same addresses, one under the
// trap flag and one in the interpreter, compared after each instruction.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "base/random.h"
#include "kernels/kernel.h"
#include "pebs/arch/microarch.h"
#include "pebs/engines/flags.h"
#include "pebs/engines/guest_memory.h"
#include "pebs/engines/interpreter.h"
#include "pebs/engines/testing/random_code.h"
#include "pebs/model/core.h"
#include "pebs/model/decode.h"

namespace skidproof::engines {
namespace {

// Free in a process, also under AddressSanitizer.
constexpr uint64_t kBase = 0x2000'0000'0000;
constexpr uint64_t kBaseBelow4G = 0x6000'0000;
constexpr uint64_t kBytes = 64 << 20;
constexpr uint64_t kTrapFlag = 0x100;
constexpr size_t kStackBytes = 16 << 10;

// ---- The CPU's side. A signal handler swaps the interrupted context for the program's, so that every
// register of the program is ours, RSP included.

struct CpuState {
  Mode mode = Mode::kLong;
  std::array<uint64_t, 16> gpr{};
  uint64_t flags = 0, ip = 0;
  std::array<std::array<uint64_t, 4>, 16> vectors{};
};

// Called after each instruction; false ends the program early.
using AfterEach = std::function<bool(CpuState&)>;

constexpr std::array<int, 16> kOrder = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                        REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                        REG_R12, REG_R13, REG_R14, REG_R15};

// [SDM vol. 1, 13.4 "XSAVE Area": legacy region, header, then AVX state at 576 in the standard format]
struct ExtendedState {
  std::byte legacy[464];
  uint32_t magic, size;
  uint64_t features;
  uint32_t xsave_size;
  uint32_t padding[7];
  uint64_t present;
  uint64_t header[7];
  uint64_t upper[16][2];
};
constexpr uint32_t kExtendedMagic = 0x46505853;  // FP_XSTATE_MAGIC1 of Linux's sigcontext.h

CpuState read_state(const ucontext_t& context) {
  CpuState s;
  for (size_t n = 0; n < 16; ++n)
    s.gpr[n] = static_cast<uint64_t>(context.uc_mcontext.gregs[kOrder[n]]);
  s.flags = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_EFL]) & ~kTrapFlag;
  s.ip = static_cast<uint64_t>(context.uc_mcontext.gregs[REG_RIP]);
  const auto* extended = reinterpret_cast<const ExtendedState*>(context.uc_mcontext.fpregs);
  bool avx = extended->magic == kExtendedMagic && (extended->present & 4);
  for (size_t n = 0; n < 16; ++n) {
    std::memcpy(s.vectors[n].data(), &context.uc_mcontext.fpregs->_xmm[n], 16);
    if (avx) std::memcpy(&s.vectors[n][2], extended->upper[n], 16);
  }
  return s;
}

// The selectors of user code segments on Linux, which has the same numbers on every x86-64 machine: a
// signal handler's return loads CS out of the frame, and with it the mode. [Linux asm/segment.h]
constexpr uint64_t kCodeSegment64 = 0x33, kCodeSegment32 = 0x23;

void write_state(ucontext_t& context, const CpuState& s) {
  auto& segments = context.uc_mcontext.gregs[REG_CSGSFS];  // CS is the low word
  segments = static_cast<greg_t>((static_cast<uint64_t>(segments) & ~uint64_t{0xFFFF}) |
                                 (s.mode == Mode::kLong ? kCodeSegment64 : kCodeSegment32));
  for (size_t n = 0; n < 16; ++n)
    context.uc_mcontext.gregs[kOrder[n]] = static_cast<greg_t>(s.gpr[n]);
  context.uc_mcontext.gregs[REG_EFL] = static_cast<greg_t>(s.flags | kTrapFlag);
  context.uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(s.ip);
  auto* extended = reinterpret_cast<ExtendedState*>(context.uc_mcontext.fpregs);
  bool avx = extended->magic == kExtendedMagic && (extended->features & 4);
  for (size_t n = 0; n < 16; ++n) {
    std::memcpy(&context.uc_mcontext.fpregs->_xmm[n], s.vectors[n].data(), 16);
    if (avx) std::memcpy(extended->upper[n], &s.vectors[n][2], 16);
  }
  if (avx) extended->present |= 7;
}

class Cpu {
 public:
  // Runs from `start` until the sentinel, a fault, or until `after` says no. Returns the signal number of
  // a fault, 0 without one.
  static int run(const CpuState& start, const AfterEach& after) {
    // 64-bit code does without them; 32-bit code cannot use the null selector that they may hold.
    if (start.mode != Mode::kLong) {
      constexpr uint32_t kDataSegment = 0x2B;
      asm volatile("mov %0, %%ds\n\tmov %0, %%es" ::"r"(kDataSegment));
    }
    start_ = &start;
    after_ = &after;
    fault_ = 0;
    running_ = false;
    Handlers handlers;
    asm volatile("int3" ::: "memory");
    return fault_;
  }

 private:
  struct Handlers {
    Handlers() : stack(256 << 10) {
      stack_t mine = {};
      mine.ss_sp = stack.data();
      mine.ss_size = stack.size();
      sigaltstack(&mine, &old_stack);
      struct sigaction action = {};
      action.sa_sigaction = on_signal;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK;
      for (size_t n = 0; n < kSignals.size(); ++n) sigaction(kSignals[n], &action, &old[n]);
    }
    ~Handlers() {
      for (size_t n = 0; n < kSignals.size(); ++n) sigaction(kSignals[n], &old[n], nullptr);
      sigaltstack(&old_stack, nullptr);
    }
    static constexpr std::array<int, 5> kSignals = {SIGTRAP, SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    std::vector<std::byte> stack;
    stack_t old_stack = {};
    std::array<struct sigaction, 5> old = {};
  };

  static void on_signal(int signal, siginfo_t*, void* raw) {
    auto& context = *static_cast<ucontext_t*>(raw);
    if (!running_) {  // the int3 of run()
      std::memcpy(outer_.data(), context.uc_mcontext.gregs, sizeof(gregset_t));
      running_ = true;
      write_state(context, *start_);
      return;
    }
    CpuState state = read_state(context);
    bool more = signal == SIGTRAP && (*after_)(state);
    if (signal != SIGTRAP) fault_ = signal;
    bool returned = state.ip == Interpreter::kSentinel ||
                    (start_->mode != Mode::kLong && state.ip == Interpreter::kSentinel32);
    if (more && !returned) return;
    running_ = false;
    std::memcpy(context.uc_mcontext.gregs, outer_.data(), sizeof(gregset_t));
  }

  static inline const CpuState* start_ = nullptr;
  static inline const AfterEach* after_ = nullptr;
  static inline int fault_ = 0;
  static inline bool running_ = false;
  static inline std::array<std::byte, sizeof(gregset_t)> outer_;
};

// ---- Both sides together.

// The flags that are undefined after this instruction, given the registers before it. [SDM vol. 2, each
// instruction's "Flags Affected"; Zydis's tables, and shifts by their count]
uint32_t undefined_flags(const model::Decoded& d, const model::Registers& before) {
  if (d.instruction.cpu_flags == nullptr) return 0;
  uint32_t undefined = d.instruction.cpu_flags->undefined & kStatusFlags;
  bool shifts = d.instruction.meta.category == ZYDIS_CATEGORY_SHIFT;
  if (!shifts && d.instruction.meta.category != ZYDIS_CATEGORY_ROTATE) return undefined;
  unsigned bits = d.operands[0].size;
  uint64_t count = d.operands[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE ? d.operands[1].imm.value.u
                                                                      : before.gpr[1];
  count &= bits == 64 ? 63 : 31;
  if (count == 0) return 0;
  undefined = shifts ? kAf : 0;
  if (count != 1) undefined |= kOf;
  if (shifts && count >= bits) undefined |= kCf;
  return undefined;
}

// BSF and BSR of 0: processors differ in what becomes of the destination.
bool destination_is_undefined(const model::Decoded& d, const CpuState& after, size_t number) {
  bool scans =
      d.instruction.mnemonic == ZYDIS_MNEMONIC_BSF || d.instruction.mnemonic == ZYDIS_MNEMONIC_BSR;
  return scans && (after.flags & kZf) && model::gpr_number(d.operands[0].reg.value) == number;
}

bool cpu_has_avx2() { return __builtin_cpu_supports("avx2"); }

// What the interpreter has, where this CPU has it as well.
bool executed_here(const std::vector<Isa>& needs) {
  return std::all_of(needs.begin(), needs.end(), [](Isa isa) {
    return isa != Isa::kAvx512 && isa != Isa::kFma && host_supports(isa);
  });
}

// A guest and the native memory at the same addresses.
class Oracle : public ::testing::Test {
 protected:
  explicit Oracle(Mode mode = Mode::kLong)
      : mode_(mode), base_(mode == Mode::kLong ? kBase : kBaseBelow4G) {}

  void SetUp() override {
    native_ = static_cast<std::byte*>(
        mmap(reinterpret_cast<void*>(base_), kBytes, PROT_READ | PROT_WRITE | PROT_EXEC,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0));
    if (native_ != reinterpret_cast<std::byte*>(base_)) {
      native_ = nullptr;
      GTEST_SKIP() << "the system refuses writable and executable memory at " << base_;
    }
    memory_ = GuestMemory::create(base_, kBytes).value();
    code_ = memory_->allocate(4 << 20, MemoryUse::kCode, false).value();
    stack_ = memory_->allocate(kStackBytes, MemoryUse::kData, false).value();
  }
  void TearDown() override {
    if (native_ != nullptr) munmap(native_, kBytes);
  }

  std::byte* native(uint64_t address) { return native_ + (address - base_); }
  void allocate_data(size_t bytes) {
    data_ = {};
    data_ = memory_->allocate(std::max<size_t>(bytes, 4096), MemoryUse::kData, false).value();
  }
  void mirror(const Memory& m) { std::memcpy(native(m.address), m.host.data(), m.host.size()); }

  // Both sides execute the program; every difference is a failure that names the instruction.
  void compare(const Program& program, uint64_t iterations, uint64_t limit) {
    SCOPED_TRACE(program.id());
    const arch::Microarch& microarch = **arch::find_microarch("sandy-bridge");
    model::Core core(microarch, 1);
    Interpreter interpreter(*memory_, core, microarch, Accounting::kCore, mode_);
    auto loaded = interpreter.load(program);
    ASSERT_TRUE(loaded) << loaded.error().text();
    std::fill(stack_.host.begin(), stack_.host.end(), std::byte{0});
    interpreter.call(program.entry, iterations, program.data_address, stack_.address + kStackBytes);
    std::memcpy(native(program.code_address), program.code.data(), program.code.size());
    mirror(stack_);
    mirror(data_);
    CpuState start;
    start.mode = mode_;
    start.gpr = interpreter.registers().gpr;
    start.ip = program.entry;
    start.flags = interpreter.registers().flags | 0x202;
    uint64_t executed = 0;
    std::string difference;
    int fault = Cpu::run(start, [&](CpuState& cpu) {
      difference = follow(interpreter, cpu);
      return difference.empty() && ++executed < limit;
    });
    instructions_ += executed;
    ASSERT_EQ(difference, "") << "after " << executed << " instructions";
    ASSERT_EQ(fault, 0) << "the CPU faulted after " << executed << " instructions";
    EXPECT_TRUE(interpreter.finished() || executed == limit);
    EXPECT_EQ(std::memcmp(native(data_.address), data_.host.data(), data_.host.size()), 0);
    EXPECT_EQ(std::memcmp(native(stack_.address), stack_.host.data(), stack_.host.size()), 0);
  }

  // One step of the interpreter against what the CPU has just done. Empty: the same.
  std::string follow(Interpreter& interpreter, const CpuState& cpu) {
    model::Registers before = interpreter.registers();
    auto decoded = model::decode({memory_->host(before.ip), 15}, before.ip, mode_);
    if (!decoded) return decoded.error().text();
    std::string where = fmt::format("`{}` at {:#x}: ", model::text_of(*decoded), before.ip);
    // The CPU traps behind each step of a repeated string instruction; the interpreter takes it whole.
    const bool repeated = (decoded->instruction.attributes & ZYDIS_ATTRIB_HAS_REP) != 0;
    if (repeated && cpu.ip == before.ip) return {};
    model::Retired retired;
    auto stepped = interpreter.step(retired);
    // The CPU does not trap behind MOV SS, nor with some hypervisors behind CPUID, which they execute for the guest: the next
    // instruction goes with it.
    const bool may_lack_trap = decoded->facts.special == model::Special::kShadow ||
                               decoded->facts.special == model::Special::kCpuid;
    if (stepped && may_lack_trap && cpu.ip != decoded->facts.end()) return follow(interpreter, cpu);
    if (!stepped) return where + stepped.error().text();
    ++seen_[ZydisMnemonicGetString(decoded->instruction.mnemonic)];
    model::Registers& after = interpreter.registers();
    if (after.ip != cpu.ip) return where + fmt::format("ip {:#x}, the CPU {:#x}", after.ip, cpu.ip);
    for (size_t n = 0; n < 16; ++n) {
      if (destination_is_undefined(*decoded, cpu, n)) after.gpr[n] = cpu.gpr[n];
      if (after.gpr[n] != cpu.gpr[n]) {
        return where +
               fmt::format("register {} is {:#x}, the CPU's {:#x}", n, after.gpr[n], cpu.gpr[n]);
      }
    }
    uint32_t undefined = undefined_flags(*decoded, before);
    uint64_t differing = (after.flags ^ cpu.flags) & kStatusFlags;
    if (differing & ~uint64_t{undefined}) {
      return where + fmt::format("flags {:#x}, the CPU's {:#x}, undefined {:#x}",
                                 after.flags & kStatusFlags, cpu.flags & kStatusFlags, undefined);
    }
    after.flags ^= differing;  // what is undefined is the CPU's from here on
    for (size_t n = 0; n < 16; ++n) {
      if (interpreter.vectors()[n] != cpu.vectors[n]) {
        return where + fmt::format("vector register {} is {:x}, the CPU's {:x}", n,
                                   fmt::join(interpreter.vectors()[n], " "),
                                   fmt::join(cpu.vectors[n], " "));
      }
    }
    return where_stored(retired, *decoded, where);
  }

  // Small arenas are compared whole after each instruction; large ones around the store.
  std::string where_stored(const model::Retired& retired, const model::Decoded& decoded,
                           const std::string& where) {
    if (data_.host.size() <= 8192 &&
        std::memcmp(native(data_.address), data_.host.data(), data_.host.size()) != 0) {
      return where + "the data differ";
    }
    if (!retired.store.valid) return {};
    const bool operand = decoded.facts.explicit_store || decoded.facts.string_store;
    uint64_t bytes = operand ? decoded.facts.address_of.bytes : mode_ == Mode::kLong ? 8 : 4;
    if (!memory_->mapped(retired.store.address, bytes))
      return where + "stored outside of the guest";
    if (std::memcmp(native(retired.store.address), memory_->host(retired.store.address), bytes) !=
        0) {
      return where + fmt::format("stored another value at {:#x}", retired.store.address);
    }
    return {};
  }

  void agree_over_kernels();
  void agree_over_random_code(uint64_t seeds);

  Mode mode_;
  uint64_t base_;
  std::byte* native_ = nullptr;
  std::unique_ptr<GuestMemory> memory_;
  Memory code_, stack_, data_;
  uint64_t instructions_ = 0;
  std::map<std::string, uint64_t> seen_;  // executed instructions by mnemonic
};

// ---- Kernels.

// The parameters of a kernel that make other code: defaults, and each word of each parameter.
std::vector<std::string> variants(const Kernel& kernel) {
  std::vector<std::string> texts = {""};
  for (const Parameter& p : kernel.parameters) {
    for (const std::string& word : p.words) texts.push_back(p.name + "=" + word);
    if (!p.words.empty()) continue;
    for (uint64_t value : {p.low, p.low + 1, p.fallback * 2}) {
      if (value <= p.high && value <= (1 << 20))
        texts.push_back(fmt::format("{}={}", p.name, value));
    }
  }
  return texts;
}

void Oracle::agree_over_kernels() {
  size_t programs = 0, tried = 0;
  for (const auto& [name, kernel] : kernels()) {
    if (mode_ != Mode::kLong && kernel.long_mode_only) continue;
    ++tried;
    for (const std::string& text : variants(kernel)) {
      auto params = Params::parse(kernel.parameters, text);
      if (!params) continue;  // a combination that the kernel refuses
      if (kernel.check != nullptr && !kernel.check(*params)) continue;
      if (kernel.needs != nullptr && !executed_here(kernel.needs(*params))) continue;
      size_t bytes = kernel.data_bytes != nullptr ? kernel.data_bytes(*params) : 0;
      if (bytes > (8 << 20)) continue;
      allocate_data(bytes);
      Placement placement{
          .code_address = code_.address, .data_address = data_.address, .seed = 7, .mode = mode_};
      auto program = generate(kernel, *params, placement);
      ASSERT_TRUE(program) << name << " " << text << ": " << program.error().text();
      if (kernel.fill != nullptr) kernel.fill(*params, data_.host.first(bytes), data_.address, 7);
      compare(*program, 5, 3000);
      if (HasFatalFailure()) return;
      ++programs;
    }
  }
  EXPECT_GT(programs, 5 * tried);
  RecordProperty("programs", static_cast<int>(programs));
  RecordProperty("instructions", static_cast<int>(instructions_));
}

TEST_F(Oracle, AgreesOverEveryKernel) { agree_over_kernels(); }

// ---- Random code.

void Oracle::agree_over_random_code(uint64_t seeds) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    allocate_data(testing::RandomCode::kArena);
    Random random(seed);
    for (std::byte& b : data_.host) b = static_cast<std::byte>(random.next());
    testing::RandomCode code(seed, code_.address, data_.address, cpu_has_avx2(), mode_);
    Program program = code.generate(300);
    compare(program, 1, 100'000);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(instructions_, 200 * seeds);
  RecordProperty("instructions", static_cast<int>(instructions_));
}

TEST_F(Oracle, AgreesOverRandomCode) {
  agree_over_random_code(150);
  // Every instruction of the supported subset was really compared.
  for (const char* name :
       {"mov",        "movzx",  "movsx",  "movsxd",  "lea",     "add",    "sub",     "and",
        "or",         "xor",    "cmp",    "test",    "adc",     "sbb",    "inc",     "dec",
        "neg",        "not",    "imul",   "mul",     "div",     "idiv",   "shl",     "shr",
        "sar",        "rol",    "ror",    "bswap",   "xchg",    "call",   "ret",     "jmp",
        "push",       "pop",    "nop",    "cdq",     "cqo",     "cwd",    "cbw",     "cwde",
        "cdqe",       "popcnt", "lzcnt",  "tzcnt",   "bsf",     "bsr",    "xadd",    "cmpxchg",
        "mfence",     "lfence", "sfence", "pause",   "movaps",  "movups", "movdqa",  "movdqu",
        "movd",       "movq",   "movsd",  "pxor",    "por",     "pand",   "paddq",   "paddd",
        "psubq",      "psubd",  "movnti", "movntps", "movntdq", "addsd",  "subsd",   "mulsd",
        "divsd",      "sqrtsd", "addps",  "mulps",   "divps",   "sqrtps", "pmuludq", "pshufd",
        "clc",        "stc",    "cmc",    "jz",      "jnz",     "jb",     "jnb",     "jbe",
        "jnbe",       "jl",     "jnl",    "jle",     "jnle",    "js",     "jns",     "jo",
        "jno",        "jp",     "jnp",    "setz",    "setl",    "cmovz",  "cmovl",   "prefetcht0",
        "prefetchnta"}) {
    EXPECT_GE(seen_[name], 5u) << name;
  }
  if (!cpu_has_avx2()) return;
  for (const char* name : {"vmovups", "vmovaps", "vmovdqu", "vmovdqa", "vmovntps", "vmovntdq",
                           "vzeroupper", "vpxor", "vxorps", "vpaddq", "vpaddd", "vpmulld", "vaddps",
                           "vmulps", "vaddsd", "vmulsd", "vdivsd"}) {
    EXPECT_GE(seen_[name], 5u) << name;
  }
}

// ---- 32-bit code, in compatibility mode: to the code it is 32-bit protected mode. [SDM vol. 1, 3.1.1]

class Oracle32 : public Oracle {
 protected:
  Oracle32() : Oracle(Mode::kProtected32) {}
  void SetUp() override {
    Oracle::SetUp();
    if (IsSkipped()) return;
    // A kernel without 32-bit segments refuses the handler's frame.
    CpuState start;
    start.mode = mode_;
    start.ip = code_.address;
    start.gpr[4] = stack_.address + kStackBytes - 16;
    start.flags = 0x202;
    *native(code_.address) = std::byte{0x90};
    if (Cpu::run(start, [](CpuState&) { return false; }) != 0)
      GTEST_SKIP() << "the system has no 32-bit code segment";
  }
};

TEST_F(Oracle32, AgreesOverEveryKernel) { agree_over_kernels(); }

TEST_F(Oracle32, AgreesOverRandomCode) {
  agree_over_random_code(150);
  for (const char* name : {"inc", "dec", "push", "pop", "call", "ret", "jmp", "lea", "div", "xchg",
                           "cmovz", "setz", "movups", "movzx", "movsx", "add", "mov"}) {
    EXPECT_GE(seen_[name], 5u) << name;
  }
}

}  // namespace
}  // namespace skidproof::engines
