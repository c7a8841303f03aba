// From a kernel to a Program: the loop around the body, the static list, and the proof that the two
// agree.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/jit/disasm.h"
#include "kernels/jit/emitter.h"
#include "kernels/kernel.h"

namespace skidproof {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kPage = 4096;
constexpr Expectations kLoopOwn{.instructions = 2, .branches_taken = 1, .fusible_pairs = 1};

// rax rcx rdx rsp r8 r9 r10 r11; rsp is checked apart.
constexpr GprMask kScratch =
    gpr_bit(0) | gpr_bit(1) | gpr_bit(2) | gpr_bit(8) | gpr_bit(9) | gpr_bit(10) | gpr_bit(11);
constexpr GprMask kStackPointer = gpr_bit(4);

// Where the parts stand. For a kernel without a loop, `check` is where its body ends.
struct Parts {
  uint64_t setup = 0, setup_end = 0;  // the kernel's code before the loop
  uint64_t top = 0;                   // the body
  uint64_t check = 0;                 // the loop's own two instructions, then the exit
  uint64_t exit = 0;                  // vzeroupper and RET
  uint64_t ret = 0;                   // RET; what follows is the kernel's after_return() code
};

bool needs_avx(const std::vector<Isa>& needs) {
  return std::any_of(needs.begin(), needs.end(), [](Isa isa) {
    return isa == Isa::kAvx || isa == Isa::kAvx2 || isa == Isa::kFma || isa == Isa::kAvx512;
  });
}

void zero_scratch(Emitter& e) {
  for (const x86::Gp& reg :
       {x86::eax, x86::ecx, x86::edx, x86::r8d, x86::r9d, x86::r10d, x86::r11d}) {
    if (e.mode() == Mode::kLong || reg.id() < 8) e.xor_(reg, reg);
  }
}

void write_setup(Emitter& e, const Kernel& kernel, const Params& params, Parts& parts) {
  parts.setup = e.address();
  if (kernel.setup != nullptr) kernel.setup(e, params);
  parts.setup_end = e.address();
}

Parts write(Emitter& e, const Kernel& kernel, const Params& params, bool avx) {
  Parts parts;
  e.mark("entry");
  asmjit::Label top = e.newLabel();
  asmjit::Label check = e.newLabel();
  if (kernel.loop) e.lea(kCounter, x86::ptr(kCounter, 1));
  zero_scratch(e);
  write_setup(e, kernel, params, parts);
  if (kernel.loop) {
    e.jmp(check);
    e.align(asmjit::AlignMode::kCode, kLine);
    e.bind(top);
    e.mark("loop.first");
  }
  parts.top = e.address();
  kernel.body(e, params);
  parts.check = e.address();
  if (kernel.loop) {
    e.bind(check);
    e.mark("loop.sub");
    e.sub(kCounter, 1);
    e.mark("loop.jnz");
    e.jnz(top);
  }
  parts.exit = e.address();
  if (avx) e.vzeroupper();
  parts.ret = e.address();
  e.mark("return");
  e.ret();
  return parts;
}

// What a straight run through [begin, end) does; branches are the caller's to count.
Expectations count(const std::vector<Instruction>& all, uint64_t begin, uint64_t end) {
  Expectations out;
  for (const Instruction& instruction : all) {
    if (instruction.address < begin || instruction.address >= end) continue;
    ++out.instructions;
    out.loads += instruction.loads;
    out.stores += instruction.stores;
    out.fusible_pairs += instruction.fuses_with_next;
  }
  return out;
}

bool straight(const std::vector<Instruction>& all, uint64_t begin, uint64_t end) {
  return std::none_of(all.begin(), all.end(), [&](const Instruction& i) {
    return i.address >= begin && i.address < end && i.flow != Flow::kNone;
  });
}

std::string text(const Expectations& e) {
  return fmt::format(
      "{} instructions, {} loads, {} stores, {} taken, {} not taken, {} fusible pairs",
      e.instructions, e.loads, e.stores, e.branches_taken, e.branches_not_taken, e.fusible_pairs);
}

// The kernel's code may write its scratch registers, and RSP by PUSH, POP, CALL and RET.
Expected<void> check_registers(const std::vector<Decoded>& all, const Parts& parts,
                               const Kernel& kernel) {
  for (const Decoded& decoded : all) {
    const Instruction& i = decoded.instruction;
    bool own = (i.address >= parts.setup && i.address < parts.setup_end) ||
               (i.address >= parts.top && i.address < parts.check) || i.address > parts.ret;
    if (!own) continue;
    GprMask allowed = kScratch;
    if (kernel.string_instructions) allowed |= gpr_bit(6) | gpr_bit(7);  // rsi, rdi
    if (kernel.restores_rbx) allowed |= gpr_bit(3);
    bool stack = i.flow == Flow::kCall || i.flow == Flow::kReturn || i.text.starts_with("push") ||
                 i.text.starts_with("pop");
    if (stack) allowed |= kStackPointer;
    if ((decoded.written & ~allowed) != 0) {
      return fail(ErrorCode::kInternal,
                  fmt::format("'{}' writes a register that is not the kernel's", i.text),
                  "use rax, rcx, rdx, r8 to r11; see kernels/jit/emitter.h");
    }
  }
  return {};
}

Expected<void> check_marks(const Program& program) {
  for (const auto& [name, address] : program.marks) {
    if (program.at(address) == nullptr) {
      return fail(ErrorCode::kInternal,
                  fmt::format("the mark '{}' ({:#x}) names no instruction", name, address));
    }
  }
  return {};
}

// The body's expectations against its instructions, where no branch makes that a question of paths.
Expected<void> check_body(const Program& program, const Parts& parts,
                          const Expectations& declared) {
  if (!straight(program.instructions, parts.top, parts.check)) return {};
  Expectations found = count(program.instructions, parts.top, parts.check);
  if (found == declared) return {};
  return fail(
      ErrorCode::kInternal,
      fmt::format("one iteration declares {}, but its code has {}", text(declared), text(found)),
      "correct per_iteration or the body in the kernel's file");
}

Expected<void> set_expectations(Program& program, const Kernel& kernel, const Parts& parts,
                                const Expectations& declared) {
  if (!straight(program.instructions, parts.setup, parts.setup_end)) {
    return fail(ErrorCode::kInternal, "setup contains a branch",
                "setup must be straight-line code");
  }
  SKIDPROOF_CHECK(check_body(program, parts, declared));
  Expectations exit = count(program.instructions, parts.exit, parts.ret + 1);
  exit.branches_taken = 1;  // RET
  if (!kernel.loop) {
    program.once = count(program.instructions, program.entry, parts.top) + declared + exit;
    return {};
  }
  Expectations before = count(program.instructions, program.entry, parts.setup_end);
  before.instructions += 1;  // the jump over the padding to the check
  before.branches_taken = 1;
  Expectations last_check = count(program.instructions, parts.check, parts.exit);
  last_check.branches_not_taken = 1;  // the check that ends the loop falls through
  program.per_iteration = declared + kLoopOwn;
  program.once = before + last_check + exit;
  return {};
}

Expected<void> check_mode(const Kernel& kernel, const Placement& placement, size_t data_bytes) {
  if (placement.mode == Mode::kLong) return {};
  if (kernel.long_mode_only || placement.mode != Mode::kProtected32) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("there is no code for {}", name_of(placement.mode)));
  }
  constexpr uint64_t kFourGiB = uint64_t{1} << 32;
  if (placement.code_address >= kFourGiB || placement.data_address > kFourGiB - data_bytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("code at {:#x} or data at {:#x} is not below 4 GiB",
                            placement.code_address, placement.data_address));
  }
  return {};
}

Expected<void> check_placement(const Placement& placement, size_t data_bytes) {
  if (placement.code_address % kLine != 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the code address {:#x} is not a multiple of 64", placement.code_address));
  }
  if (data_bytes != 0 && placement.data_address % kPage != 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the data address {:#x} is not a multiple of 4096", placement.data_address));
  }
  return {};
}

Expected<Program> build(const Kernel& kernel, const Params& params, const Placement& placement) {
  if (kernel.check != nullptr) SKIDPROOF_CHECK(kernel.check(params));
  Program program;
  program.mode = placement.mode;
  program.kernel = kernel.name;
  program.parameters = params.text();
  program.code_address = placement.code_address;
  program.entry = placement.code_address;
  program.data_address = placement.data_address;
  program.data_bytes = kernel.data_bytes == nullptr ? 0 : kernel.data_bytes(params);
  if (kernel.needs != nullptr) program.needs = kernel.needs(params);
  SKIDPROOF_CHECK(check_placement(placement, program.data_bytes));
  SKIDPROOF_CHECK(check_mode(kernel, placement, program.data_bytes));

  Emitter emitter(placement);
  Parts parts = write(emitter, kernel, params, needs_avx(program.needs));
  program.code = SKIDPROOF_TRY(emitter.finish());
  program.marks = emitter.marks();
  std::vector<Decoded> decoded =
      SKIDPROOF_TRY(disassemble(program.code, program.code_address, program.mode));
  SKIDPROOF_CHECK(check_registers(decoded, parts, kernel));
  program.instructions.reserve(decoded.size());
  for (Decoded& one : decoded) program.instructions.push_back(std::move(one.instruction));
  SKIDPROOF_CHECK(check_marks(program));
  SKIDPROOF_CHECK(set_expectations(program, kernel, parts, kernel.per_iteration(params)));
  return program;
}

}  // namespace

Expected<Program> generate(const Kernel& kernel, const Params& params, const Placement& placement) {
  Expected<Program> program = build(kernel, params, placement);
  if (program) return program;
  Error error = program.error();
  error.message = fmt::format("kernel {}({}): {}", kernel.name, params.text(), error.message);
  return tl::make_unexpected(std::move(error));
}

}  // namespace skidproof
