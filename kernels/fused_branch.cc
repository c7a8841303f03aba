// One instruction that sets flags and one conditional jump: every pair that a microarch may
// macro-fuse, and the pairs that none does.
#include <array>
#include <cstring>
#include <optional>

#include "kernels/jit/emitter.h"

namespace skidproof::fused_branch {
namespace {

enum First : uint64_t {
  kCmp,
  kTest,
  kAnd,
  kAdd,
  kSub,
  kInc,
  kDec,
  kOr,
  kXor,
  kNeg,
  kAdc,
  kSbb,
  kShl,
};
enum Form : uint64_t { kRegReg, kRegImm, kMemReg, kMemImm };
enum Taken : uint64_t { kNotTaken, kTaken, kAny };
enum Fillers : uint64_t { kNops, kMovTest };

// In the order of the condition codes 0 … 15.
const std::vector<std::string> kConditions = {"o", "no", "b", "ae", "e", "ne", "be", "a",
                                              "s", "ns", "p", "np", "l", "ge", "le", "g"};

constexpr x86::Gp kWork = x86::rax;  // the register that the first instruction works on
constexpr x86::Gp kLeft = x86::r8;   // its value, fresh for every pair
constexpr x86::Gp kRight = x86::r9;  // the other operand
constexpr x86::Gp kChain = x86::r10;
struct Operands {
  uint64_t left = 0, right = 0;
};

struct Flags {
  bool c = false, p = false, z = false, s = false, o = false;
};

bool writes_operand(uint64_t first) { return first != kCmp && first != kTest; }
// One operand; SHL shifts by 1.
bool unary(uint64_t first) {
  return first == kInc || first == kDec || first == kNeg || first == kShl;
}
bool takes_carry(uint64_t first) { return first == kAdc || first == kSbb; }
bool memory(const Params& p) { return p["form"] == kMemReg || p["form"] == kMemImm; }

// Whether the first instruction's memory operand is what it writes, too.
bool read_modify_write(const Params& p) {
  return (p["form"] == kMemImm && writes_operand(p["first"])) || (memory(p) && unary(p["first"]));
}

// The left operand stands in memory where the instruction has no form that reads the right one
// there.
bool left_in_memory(const Params& p) {
  return p["form"] == kMemImm || read_modify_write(p) ||
         (p["form"] == kMemReg && p["first"] == kTest);
}

Flags of_result(uint64_t result) {
  return {.p = __builtin_parityll(result & 0xFF) == 0,
          .z = result == 0,
          .s = static_cast<int64_t>(result) < 0};
}

Flags of_sum(uint64_t a, uint64_t b) {
  Flags flags = of_result(a + b);
  flags.c = a + b < a;
  flags.o = static_cast<int64_t>((a ^ (a + b)) & (b ^ (a + b))) < 0;
  return flags;
}

Flags of_difference(uint64_t a, uint64_t b) {
  Flags flags = of_result(a - b);
  flags.c = a < b;
  flags.o = static_cast<int64_t>((a ^ b) & (a ^ (a - b))) < 0;
  return flags;
}

// SDM volume 2. INC and DEC leave CF, ADC and SBB add it; it is 0 here: the loop's SUB of 1 never
// borrows before an iteration.
Flags flags_after(uint64_t first, Operands x) {
  Flags flags;
  switch (first) {
    case kTest:
    case kAnd:
      return of_result(x.left & x.right);
    case kOr:
      return of_result(x.left | x.right);
    case kXor:
      return of_result(x.left ^ x.right);
    case kAdd:
    case kAdc:
      return of_sum(x.left, x.right);
    case kNeg:
      return of_difference(0, x.left);
    case kShl:
      flags = of_result(x.left << 1);
      flags.c = (x.left >> 63) != 0;
      flags.o = flags.s != flags.c;
      return flags;
    case kInc:
      flags = of_sum(x.left, 1);
      break;
    case kDec:
      flags = of_difference(x.left, 1);
      break;
    default:
      return of_difference(x.left, x.right);
  }
  flags.c = false;
  return flags;
}

bool holds(uint64_t condition, Flags f) {
  bool value = false;
  switch (condition >> 1) {
    case 0:
      value = f.o;
      break;
    case 1:
      value = f.c;
      break;
    case 2:
      value = f.z;
      break;
    case 3:
      value = f.c || f.z;
      break;
    case 4:
      value = f.s;
      break;
    case 5:
      value = f.p;
      break;
    case 6:
      value = f.s != f.o;
      break;
    default:
      value = f.z || f.s != f.o;
      break;
  }
  return value != ((condition & 1) != 0);
}

// Operands with which the jump goes the given way. The right one also fits a sign-extended imm32.
std::optional<Operands> operands_for(uint64_t first, uint64_t condition, bool taken) {
  constexpr std::array<uint64_t, 7> kLefts = {
      1, 2, 3, 0, UINT64_MAX, uint64_t{1} << 63, (uint64_t{1} << 63) - 1};
  constexpr std::array<uint64_t, 6> kRights = {1, 2, 3, 0, UINT64_MAX, 0x40000000};
  for (uint64_t left : kLefts) {
    for (uint64_t right : kRights) {
      if (holds(condition, flags_after(first, {left, right})) == taken)
        return Operands{left, right};
    }
  }
  return std::nullopt;
}

// Which way the jump goes; nullopt where the flags cannot send it the wanted way.
std::optional<bool> direction(const Params& p) {
  uint64_t wanted = p["taken"];
  if (wanted != kNotTaken && operands_for(p["first"], p["condition"], true)) return true;
  if (wanted != kTaken && operands_for(p["first"], p["condition"], false)) return false;
  return std::nullopt;
}

Operands operands(const Params& p) {
  return *operands_for(p["first"], p["condition"], direction(p).value_or(false));
}

constexpr std::array<asmjit::InstId, 13> kInstructions = {
    x86::Inst::kIdCmp, x86::Inst::kIdTest, x86::Inst::kIdAnd, x86::Inst::kIdAdd, x86::Inst::kIdSub,
    x86::Inst::kIdInc, x86::Inst::kIdDec,  x86::Inst::kIdOr,  x86::Inst::kIdXor, x86::Inst::kIdNeg,
    x86::Inst::kIdAdc, x86::Inst::kIdSbb,  x86::Inst::kIdShl};

void emit_first(Emitter& e, const Params& p) {
  uint64_t first = p["first"];
  asmjit::InstId id = kInstructions[first];
  const x86::Mem cell = data_at(0);
  const asmjit::Imm right(static_cast<int64_t>(operands(p).right));
  if (first == kShl) {
    memory(p) ? e.emit(id, cell, asmjit::Imm(1)) : e.emit(id, kWork, asmjit::Imm(1));
    return;
  }
  if (unary(first)) {
    memory(p) ? e.emit(id, cell) : e.emit(id, kWork);
    return;
  }
  switch (p["form"]) {
    case kRegReg:
      e.emit(id, kWork, kRight);
      break;
    case kRegImm:
      e.emit(id, kWork, right);
      break;
    case kMemReg:
      first == kTest ? e.emit(id, cell, kRight) : e.emit(id, kWork, cell);
      break;
    default:
      e.emit(id, cell, right);
      break;
  }
}

// No-operations that make the first instruction the last of its cache line: the loop begins a line,
// and so much of it stands before the first's end.
constexpr uint64_t kLine = 64;
uint64_t padding(const Params& p) {
  constexpr uint64_t kReset = 3, kNop = 1,
                     kFirst = 3;  // bytes; apart, the no-operation comes later
  return p["line_end"] == 0 ? 0 : kLine - kReset - kNop - kFirst;
}

void emit_nops(Emitter& e, uint64_t count) {
  for (; count > 0; --count) e.nop();
}

// Two bytes, or twice as many: a prefix that says nothing, and the form with REX.W. No flags are written.
void emit_mov(Emitter& e, bool joined) {
  if (!joined) {
    e.mov(x86::ecx, x86::edx);
    return;
  }
  e.db(0x3E);
  e.mov(x86::rcx, x86::rdx);
}

// What keeps a pair apart, and what stands around it that no flags may cross.
void emit_separators(Emitter& e, const Params& p, uint64_t count) {
  if (p["filler"] == kNops) return emit_nops(e, count);
  for (; count > 0; --count) emit_mov(e, false);
}

// Of each two that are joined, one stands there that is as long as both.
void emit_spacing(Emitter& e, const Params& p) {
  const bool nops = p["filler"] == kNops;
  for (uint64_t i = 0; i < p["joined"]; ++i)
    nops ? e.nop_of(2 * p["nop_bytes"]) : emit_mov(e, true);
  for (uint64_t i = 2 * p["joined"]; i < p["spacing"]; ++i) {
    if (nops) {
      e.nop_of(p["nop_bytes"]);
    } else if (i % 2 == 0) {
      emit_mov(e, false);
    } else {
      e.test(x86::edx, x86::edx);
    }
  }
}

// Each waits for the one before it: three cycles and more, in few instructions.
void emit_chain(Emitter& e, const Params& p) {
  for (uint64_t i = 0; i < p["chain"]; ++i) e.imul(kChain, kChain);
}

// Both kinds of pair have the same instructions: the one that keeps `apart` apart stands before it
// else.
void emit_pair(Emitter& e, const Params& p, uint64_t i) {
  asmjit::Label target = e.newLabel();
  e.mark("reset", i);
  read_modify_write(p) ? e.mov(data_at(0), kLeft) : e.mov(kWork, kLeft);
  emit_separators(e, p, p["reset_nops"]);
  if (p["apart"] == 0) {
    e.mark("nop", i);
    emit_separators(e, p, 1);
  }
  e.mark("first", i);
  emit_first(e, p);
  if (p["apart"] != 0) {
    e.mark("nop", i);
    emit_separators(e, p, 1);
  }
  e.mark("jcc", i);
  e.short_().j(static_cast<x86::CondCode>(p["condition"]), target);
  e.mark("next", i);
  emit_separators(e, p, 1);
  e.bind(target);
  e.mark("target", i);
  emit_separators(e, p, 1);
}

// R64, R67, R69 for the pairs that this kernel writes.
bool fusible(const Params& p) {
  if (p["apart"] != 0 || read_modify_write(p) || p["form"] == kMemImm) return false;
  uint64_t family = p["condition"] >> 1;
  bool count_family = family == 2 || family == 6 || family == 7;
  switch (p["first"]) {
    case kTest:
    case kAnd:
      return true;
    case kCmp:
    case kAdd:
    case kSub:
      return count_family || family == 1 || family == 3;
    case kInc:
    case kDec:
      return count_family;
    default:
      return false;
  }
}

Expectations expect(const Params& p) {
  bool taken = direction(p).value_or(false);
  Expectations one{.instructions = taken ? 5u : 6u,
                   .loads = memory(p) ? 1u : 0u,
                   .stores = read_modify_write(p) ? 2u : 0u,
                   .branches_taken = taken ? 1u : 0u,
                   .branches_not_taken = taken ? 0u : 1u,
                   .fusible_pairs = fusible(p) ? 1u : 0u};
  one.instructions += p["reset_nops"] + 2 * (p["spacing"] - p["joined"] + p["chain"]);
  one = one * p["pairs"];
  one.instructions += padding(p);
  return one;
}

Expected<void> check(const Params& p) {
  if (unary(p["first"]) && (p["form"] == kRegImm || p["form"] == kMemImm)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} takes no immediate", p.word("first")),
                "form=reg_reg is its register form, form=mem_reg its memory form");
  }
  if (takes_carry(p["first"]) && p["pairs"] != 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} takes the carry of the pair before it", p.word("first")),
                "pairs=1 has only the loop's before it, which is 0");
  }
  const bool alone =
      p["pairs"] == 1 && p["spacing"] == 0 && p["chain"] == 0 && p["reset_nops"] == 0;
  if (p["line_end"] != 0 && (p["form"] != kRegReg || !alone)) {
    return fail(ErrorCode::kInvalidArgument, "line_end places one pair of the register form",
                "use form=reg_reg,pairs=1,spacing=0,chain=0,reset_nops=0");
  }
  if (takes_carry(p["first"]) && p["chain"] != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} takes the carry of the multiplication before it", p.word("first")),
                "chain=0 has none");
  }
  if (2 * p["joined"] > p["spacing"]) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} joins of two no-operations out of {}", p["joined"], p["spacing"]),
                "joined is half of spacing at most");
  }
  if (p["filler"] != kNops && (p["nop_bytes"] != 2 || p["line_end"] != 0)) {
    return fail(ErrorCode::kInvalidArgument, "filler=mov_test has instructions of two bytes",
                "use nop_bytes=2,line_end=0");
  }
  if (direction(p)) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("after {} no operands send j{} that way", p.word("first"), p.word("condition")),
      "taken=any takes the way that is possible");
}

}  // namespace

SKIDPROOF_KERNEL(fused_branch){
    .brief = "a flag-setting instruction and a conditional jump, adjacent or kept apart",
    .parameters =
        {{.name = "first",
          .brief = "the first of the pair; from or on they are controls that never fuse; shl by 1",
          .words = {"cmp", "test", "and", "add", "sub", "inc", "dec", "or", "xor", "neg", "adc",
                    "sbb", "shl"}},
         {.name = "condition", .brief = "of the jump", .fallback = 4, .words = kConditions},
         {.name = "form",
          .brief = "operands of the first; inc and dec have only reg_reg (a register) and mem_reg "
                   "(memory, written too); and, add, sub, or with mem_imm write memory too",
          .words = {"reg_reg", "reg_imm", "mem_reg", "mem_imm"}},
         {.name = "apart", .brief = "1: a nop between the two; 0: the nop before them", .high = 1},
         {.name = "taken",
          .brief = "which way the jump goes; any: taken where flags allow it",
          .fallback = kTaken,
          .words = {"0", "1", "any"}},
         {.name = "pairs", .brief = "pairs each iteration", .fallback = 1, .low = 1, .high = 256},
         {.name = "line_end",
          .brief = "1: no-operations before the pair make its first the last of a cache line; with "
                   "apart=1 as many stand there",
          .high = 1},
         {.name = "spacing",
          .brief = "no-operations before each pair, and as many behind it: of one pair's jump and "
                   "the loop's each is as far from the other as the other from it",
          .high = 64},
         {.name = "nop_bytes",
          .brief = "how long those of the spacing are",
          .fallback = 1,
          .low = 1,
          .high = 4},
         {.name = "joined",
          .brief =
              "on each side, so many times a no-operation of twice the length instead of two: as "
              "many bytes, fewer instructions",
          .high = 32},
         {.name = "chain",
          .brief = "multiplications on each side, each of which waits for the one before it: where "
                   "cycles "
                   "between the jumps matter",
          .high = 64},
         {.name = "reset_nops",
          .brief = "no-operations between the MOV that sets the first's operand and what follows, "
                   "be the pair apart or not: some cores fuse such a MOV with the first",
          .high = 8},
         {.name = "filler",
          .brief =
              "what stands where this says no-operations; mov_test: a MOV of registers and a "
              "TEST by turns, where flags matter the MOV alone: some cores fuse a no-operation "
              "with the instruction before it",
          .words = {"nop", "mov_test"}}},
    .check = check,
    .data_bytes = [](const Params& p) -> size_t { return memory(p) ? 64 : 0; },
    .fill =
        [](const Params& p, std::span<std::byte> host, uint64_t, uint64_t) {
          if (host.empty()) return;
          Operands values = operands(p);
          uint64_t value = left_in_memory(p) ? values.left : values.right;
          std::memcpy(host.data(), &value, sizeof value);
        },
    .per_iteration = expect,
    .setup =
        [](Emitter& e, const Params& p) {
          Operands values = operands(p);
          e.mov(kLeft, values.left);
          e.mov(kRight, values.right);
          if (p["chain"] != 0) e.mov(kChain, 3);
        },
    .body =
        [](Emitter& e, const Params& p) {
          emit_nops(e, padding(p));
          for (uint64_t i = 0; i < p["pairs"]; ++i) {
            emit_chain(e, p);
            emit_spacing(e, p);
            emit_pair(e, p, i);
            emit_spacing(e, p);
            emit_chain(e, p);
          }
        },
    .long_mode_only = true,
};

}  // namespace skidproof::fused_branch
