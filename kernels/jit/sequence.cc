// From items to instructions.
#include "kernels/jit/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/jit/disasm.h"
#include "kernels/jit/emitter.h"

namespace skidproof {
namespace {

constexpr std::array<std::string_view, kOps> kNames = {
    "nop",   "set",       "move",     "add",      "sub",   "and",     "or",       "xor",
    "inc",   "dec",       "lea",      "compare",  "test",  "load",    "add-load", "compare-load",
    "store", "add-store", "lock-add", "push-pop", "delay", "skip-if", "skip",     "call"};

constexpr std::array<x86::Gp, kSequenceRegisters> kRegisters = {
    x86::rax, x86::rcx, x86::rdx, x86::r8, x86::r9, x86::r10, x86::r11};

// How many registers an operation names.
unsigned registers_of(Op op) {
  switch (op) {
    case Op::kNop:
    case Op::kSkipIf:
    case Op::kSkip:
    case Op::kCall:
      return 0;
    case Op::kMove:
    case Op::kAdd:
    case Op::kSub:
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
    case Op::kLea:
    case Op::kCompare:
    case Op::kTest:
    case Op::kPushPop:
      return 2;
    default:
      return 1;
  }
}

bool touches_data(Op op) { return op >= Op::kLoad && op <= Op::kLockAdd; }

class Writer {
 public:
  explicit Writer(Emitter& e) : e_(e) {}

  void write(std::span<const CodeItem> items) {
    for (size_t i = 0; i < items.size(); ++i) {
      const CodeItem& item = items[i];
      std::span<const CodeItem> next = items.subspan(i + 1);
      next = next.first(std::min<size_t>(next.size(), item.value));
      switch (item.op) {
        case Op::kSkipIf:
        case Op::kSkip: {
          asmjit::Label behind = e_.newLabel();
          item.op == Op::kSkip ? e_.jmp(behind) : e_.j(condition(item), behind);
          next.empty() ? static_cast<void>(e_.nop()) : write(next);
          e_.bind(behind);
          i += next.size();
          break;
        }
        case Op::kCall: {
          asmjit::Label function = e_.newLabel();
          e_.call(function);
          functions_.emplace_back(function, next);
          i += next.size();
          break;
        }
        default:
          write_plain(item);
      }
    }
  }

  // Functions may call functions in turn.
  void write_functions() {
    for (size_t i = 0; i < functions_.size(); ++i) {
      auto [label, items] = functions_[i];
      e_.bind(label);
      write(items);
      e_.ret();
    }
  }

 private:
  static asmjit::x86::CondCode condition(const CodeItem& item) {
    // By the low bits of the opcode: O NO B AE E NE BE A S NS P NP L GE LE G.
    using asmjit::x86::CondCode;
    constexpr std::array<CondCode, 16> kCodes = {
        CondCode::kO,  CondCode::kNO, CondCode::kB,  CondCode::kAE, CondCode::kE, CondCode::kNE,
        CondCode::kBE, CondCode::kA,  CondCode::kS,  CondCode::kNS, CondCode::kP, CondCode::kNP,
        CondCode::kL,  CondCode::kGE, CondCode::kLE, CondCode::kG};
    return kCodes[item.condition & 15];
  }

  void write_plain(const CodeItem& item) {
    const x86::Gp& a = kRegisters[item.a];
    const x86::Gp& b = kRegisters[item.b];
    const auto value = static_cast<int32_t>(item.value);
    switch (item.op) {
      case Op::kNop:
        e_.nop();
        break;
      case Op::kSet:
        e_.mov(a.r32(), item.value);
        break;
      case Op::kMove:
        e_.mov(a, b);
        break;
      case Op::kAdd:
        e_.add(a, b);
        break;
      case Op::kSub:
        e_.sub(a, b);
        break;
      case Op::kAnd:
        e_.and_(a, b);
        break;
      case Op::kOr:
        e_.or_(a, b);
        break;
      case Op::kXor:
        e_.xor_(a, b);
        break;
      case Op::kInc:
        e_.inc(a);
        break;
      case Op::kDec:
        e_.dec(a);
        break;
      case Op::kLea:
        e_.lea(a, x86::ptr(b, value));
        break;
      case Op::kCompare:
        e_.cmp(a, b);
        break;
      case Op::kTest:
        e_.test(a, b);
        break;
      case Op::kLoad:
        e_.mov(a, data_at(value));
        break;
      case Op::kAddLoad:
        e_.add(a, data_at(value));
        break;
      case Op::kCompareLoad:
        e_.cmp(a, data_at(value));
        break;
      case Op::kStore:
        e_.mov(data_at(value), a);
        break;
      case Op::kAddStore:
        e_.add(data_at(value), a);
        break;
      case Op::kLockAdd:
        e_.lock().add(data_at(value), a);
        break;
      case Op::kPushPop:
        e_.push(a);
        e_.pop(b);
        break;
      case Op::kDelay: {
        asmjit::Label again = e_.newLabel();
        e_.mov(a.r32(), item.value);
        e_.bind(again);
        e_.dec(a);
        e_.jnz(again);
        break;
      }
      default:
        break;  // control flow: write()
    }
  }

  Emitter& e_;
  std::vector<std::pair<asmjit::Label, std::span<const CodeItem>>> functions_;
};

void zero_registers(Emitter& e, const Sequence& sequence) {
  std::array<bool, kSequenceRegisters> named = named_registers(sequence);
  for (unsigned i = 0; i < kSequenceRegisters; ++i) {
    if (named[i]) e.xor_(kRegisters[i].r32(), kRegisters[i].r32());
  }
}

}  // namespace

std::string_view name_of(Op op) { return kNames[static_cast<size_t>(op)]; }

std::array<bool, kSequenceRegisters> named_registers(const Sequence& sequence) {
  std::array<bool, kSequenceRegisters> named{};
  for (const CodeItem& item : sequence.items) {
    const unsigned registers = registers_of(item.op);
    if (registers > 0) named[item.a] = true;
    if (registers > 1) named[item.b] = true;
  }
  return named;
}

Expected<void> check_sequence(const Sequence& sequence) {
  for (size_t i = 0; i < sequence.items.size(); ++i) {
    const CodeItem& item = sequence.items[i];
    const char* wrong = nullptr;
    if (static_cast<size_t>(item.op) >= kOps) wrong = "no such operation";
    if (item.a >= kSequenceRegisters || item.b >= kSequenceRegisters) wrong = "no such register";
    if (item.condition > 15) wrong = "no such condition";
    if (touches_data(item.op) && (item.value > kSequenceDataBytes - 8)) wrong = "outside the data";
    if (item.op == Op::kDelay && item.value == 0) wrong = "a delay of 0 would be one of 2^32";
    if (item.op == Op::kLea && item.value > 0x7FFFFFFF) wrong = "displacement too large";
    if (wrong == nullptr) continue;
    return fail(ErrorCode::kInvalidArgument, fmt::format("item {} of the code: {}", i, wrong));
  }
  return {};
}

Expected<Program> assemble(const Sequence& sequence, uint64_t code_address, uint64_t data_address) {
  SKIDPROOF_CHECK(check_sequence(sequence));
  Emitter e({.code_address = code_address, .data_address = data_address});
  zero_registers(e, sequence);
  asmjit::Label top = e.newLabel();
  e.bind(top);
  Writer writer(e);
  writer.write(sequence.items);
  if (sequence.loop) {
    e.sub(kCounter, 1);
    e.jnz(top);
  }
  e.ret();
  e.after_return([&writer] { writer.write_functions(); });

  Program program;
  program.kernel = "sequence";
  program.code_address = program.entry = code_address;
  program.data_address = data_address;
  program.data_bytes = kSequenceDataBytes;
  program.code = SKIDPROOF_TRY(e.finish());
  std::vector<Decoded> decoded = SKIDPROOF_TRY(disassemble(program.code, code_address));
  program.instructions.reserve(decoded.size());
  for (Decoded& one : decoded) program.instructions.push_back(std::move(one.instruction));
  return program;
}

}  // namespace skidproof
