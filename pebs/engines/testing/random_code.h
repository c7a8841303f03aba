// Random programs of the instructions that the interpreter knows, for tests: encoded by Zydis, free of
// faults, with memory operands inside a data arena.
#ifndef SKIDPROOF_PEBS_ENGINES_TESTING_RANDOM_CODE_H_
#define SKIDPROOF_PEBS_ENGINES_TESTING_RANDOM_CODE_H_

#include <Zydis/Zydis.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <vector>

#include "base/mode.h"
#include "base/random.h"
#include "kernels/program.h"

namespace skidproof::engines::testing {

// R12 points into the middle of the arena, R13 holds a small index and RSP the stack: nothing else writes
// them. R14 and R15 are scratch of the generator's own sequences. In 32-bit mode EBX, EBP, EDI and ESI
// have these parts, and all of the arena lies below 2 GiB.
class RandomCode {
 public:
  static constexpr int64_t kArena = 4096;  // bytes of data; operands stay inside

  // Which of the later instructions about bits there are: POPCNT is an invalid opcode elsewhere, LZCNT and TZCNT
  // are executed as BSR and BSF.
  enum class BitCounts : uint8_t { kNone, kPopulation, kAll };

  RandomCode(uint64_t seed, uint64_t code_address, uint64_t data_address, bool avx2,
             Mode mode = Mode::kLong, BitCounts bit_counts = BitCounts::kAll)
      : random_(seed),
        mode_(mode),
        code_address_(code_address),
        data_address_(data_address),
        avx_(avx2),
        bit_counts_(bit_counts) {}

  // About `length` random instructions between a prologue that sets every register and a RET.
  Program generate(unsigned length) {
    prologue();
    while (count_ < length) anything(3);
    if (avx_) emit(ZYDIS_MNEMONIC_VZEROUPPER, {});
    // The stack is balanced here, so RET finds the return address.
    emit(ZYDIS_MNEMONIC_RET, {});
    Program program;
    program.mode = mode_;
    program.kernel = "random";
    program.code = code_;
    program.code_address = program.entry = code_address_;
    program.data_address = data_address_;
    program.data_bytes = kArena;
    return program;
  }

 private:
  using Operand = ZydisEncoderOperand;

  static Operand reg(ZydisRegister r) {
    Operand o{};
    o.type = ZYDIS_OPERAND_TYPE_REGISTER;
    o.reg.value = r;
    return o;
  }
  static Operand imm(int64_t value) {
    Operand o{};
    o.type = ZYDIS_OPERAND_TYPE_IMMEDIATE;
    o.imm.s = value;
    return o;
  }
  static Operand mem(ZydisRegister base, ZydisRegister index, unsigned scale, int64_t displacement,
                     unsigned bytes) {
    Operand o{};
    o.type = ZYDIS_OPERAND_TYPE_MEMORY;
    o.mem.base = base;
    o.mem.index = index;
    o.mem.scale = static_cast<ZyanU8>(index == ZYDIS_REGISTER_NONE ? 0 : scale);
    o.mem.displacement = displacement;
    o.mem.size = static_cast<ZyanU16>(bytes);
    return o;
  }

  void emit(ZydisMnemonic mnemonic, std::initializer_list<Operand> operands,
            uint64_t prefixes = 0) {
    ZydisEncoderRequest request{};
    request.machine_mode = wide() ? ZYDIS_MACHINE_MODE_LONG_64 : ZYDIS_MACHINE_MODE_LEGACY_32;
    request.mnemonic = mnemonic;
    request.prefixes = prefixes;
    for (const Operand& o : operands) request.operands[request.operand_count++] = o;
    std::array<std::byte, 16> bytes;
    ZyanUSize size = bytes.size();
    // RIP-relative operands and branch targets are given as addresses.
    if (ZYAN_FAILED(ZydisEncoderEncodeInstructionAbsolute(&request, bytes.data(), &size, here()))) {
      // The generator asked for an instruction that does not exist.
      std::fprintf(stderr, "cannot encode %s with %u operands\n", ZydisMnemonicGetString(mnemonic),
                   static_cast<unsigned>(operands.size()));
      std::abort();
    }
    code_.insert(code_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    ++count_;
  }
  uint64_t here() const { return code_address_ + code_.size(); }

  // ---- The mode.

  bool wide() const { return mode_ == Mode::kLong; }
  unsigned word() const { return wide() ? 8 : 4; }  // bytes of a general register
  unsigned base_number() const { return wide() ? 12 : 3; }
  unsigned index_number() const { return wide() ? 13 : 5; }
  unsigned value_number() const { return wide() ? 14 : 7; }
  unsigned count_number() const { return wide() ? 15 : 6; }
  ZydisRegister base() const { return general(word(), base_number()); }
  ZydisRegister index() const { return general(word(), index_number()); }

  // ---- Operands.

  ZydisRegister general(unsigned bytes, unsigned number) const {
    ZydisRegister first = bytes == 8   ? ZYDIS_REGISTER_RAX
                          : bytes == 4 ? ZYDIS_REGISTER_EAX
                                       : ZYDIS_REGISTER_AX;
    return static_cast<ZydisRegister>(first + number);
  }
  // One that may be written; the low byte, so that it may stand beside any other operand.
  ZydisRegister target(unsigned bytes) {
    constexpr std::array<unsigned, 11> kNumbers = {0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11};
    if (!wide()) {
      const auto number = static_cast<unsigned>(random_.below(3));
      return bytes > 1 ? general(bytes, number)
                       : static_cast<ZydisRegister>(ZYDIS_REGISTER_AL + number);
    }
    if (bytes > 1) return general(bytes, kNumbers[random_.below(kNumbers.size())]);
    constexpr std::array<ZydisRegister, 8> kBytes = {
        ZYDIS_REGISTER_AL,  ZYDIS_REGISTER_CL,  ZYDIS_REGISTER_DL,  ZYDIS_REGISTER_BL,
        ZYDIS_REGISTER_R8B, ZYDIS_REGISTER_R9B, ZYDIS_REGISTER_SIL, ZYDIS_REGISTER_DIL};
    return kBytes[random_.below(kBytes.size())];
  }
  // One that encodes without REX, AH … BH among the bytes: not beside memory() or a REX register.
  ZydisRegister legacy(unsigned bytes) {
    if (bytes != 1) return target(bytes);
    if (!wide()) return random_.chance(1, 2) ? target(1) : high_byte();
    return static_cast<ZydisRegister>(ZYDIS_REGISTER_AL + random_.below(8));
  }
  ZydisRegister high_byte() {
    return static_cast<ZydisRegister>(ZYDIS_REGISTER_AH + random_.below(3));
  }
  ZydisRegister vector(unsigned bytes) {
    return static_cast<ZydisRegister>((bytes == 32 ? ZYDIS_REGISTER_YMM0 : ZYDIS_REGISTER_XMM0) +
                                      random_.below(wide() ? 16 : 8));
  }
  // Anywhere in the arena: also across lines and, rarely, aligned to nothing at all.
  Operand memory(unsigned bytes, unsigned alignment = 1) {
    constexpr int64_t kMiddle = kArena / 2;
    int64_t low = -kMiddle + 256, high = kMiddle - 256;
    int64_t at = low + static_cast<int64_t>(random_.below(static_cast<uint64_t>(high - low)));
    at -= ((at % alignment) + alignment) % alignment;
    switch (random_.below(4)) {
      case 0:
        return mem(base(), ZYDIS_REGISTER_NONE, 0, at, bytes);
      case 1: {
        unsigned scale = alignment > 8 ? 8 : 1u << random_.below(4);
        // R13 is a multiple of 8, so that R13 × 8 keeps any alignment.
        return mem(base(), index(), scale, at, bytes);
      }
      case 2:
        return mem(base(), ZYDIS_REGISTER_NONE, 0, (at & ~511) / 16, bytes);
      default:
        return mem(wide() ? ZYDIS_REGISTER_RIP : ZYDIS_REGISTER_NONE, ZYDIS_REGISTER_NONE, 0,
                   static_cast<int64_t>(data_address_) + kMiddle + at, bytes);
    }
  }
  int64_t immediate(unsigned bytes) {
    int64_t value = static_cast<int64_t>(random_.next());
    switch (random_.below(4)) {
      case 0:
        return static_cast<int8_t>(value);
      case 1:
        return static_cast<int64_t>(random_.below(3)) - 1;
      default:
        break;
    }
    if (bytes == 1) return static_cast<int8_t>(value);
    return bytes == 2 ? int64_t{static_cast<int16_t>(value)} : int64_t{static_cast<int32_t>(value)};
  }
  unsigned size() { return 1u << random_.below(wide() ? 4 : 3); }
  unsigned word_or_less() { return 2u << random_.below(wide() ? 3 : 2); }  // 2 bytes and more

  // ---- Sequences.

  void prologue() {
    for (unsigned n : {0u, 1u, 2u, 3u, 5u, 6u, 7u, 8u, 9u, 10u, 11u, 14u, 15u}) {
      if (n >= 8 && !wide()) break;
      auto value = static_cast<int64_t>(random_.next());
      emit(ZYDIS_MNEMONIC_MOV,
           {reg(general(word(), n)), imm(wide() ? value : int64_t{static_cast<int32_t>(value)})});
    }
    emit(ZYDIS_MNEMONIC_MOV, {reg(base()), imm(static_cast<int64_t>(data_address_) + kArena / 2)});
    emit(ZYDIS_MNEMONIC_MOV, {reg(index()), imm(static_cast<int64_t>(8 * random_.below(3)))});
  }

  void anything(unsigned depth) {
    switch (random_.below(24)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return arithmetic();
      case 4:
      case 5:
        return unary();
      case 6:
      case 7:
        return shift();
      case 8:
      case 9:
      case 10:
        return move();
      case 11:
        return multiply();
      case 12:
        return divide();
      case 13:
        return bits();
      case 14:
        return condition();
      case 15:
        return exchange();
      case 16:
        return wide() || random_.chance(1, 2) ? odd() : wrapping();
      case 17:
        return stack();
      case 18:
      case 19:
        return vector_move();
      case 20:
        return vector_compute();
      default:
        return depth == 0 ? arithmetic() : branch(depth - 1);
    }
  }
  ZydisMnemonic one_of(std::initializer_list<ZydisMnemonic> list) {
    return list.begin()[random_.below(list.size())];
  }

  void arithmetic() {
    binary(one_of({ZYDIS_MNEMONIC_ADD, ZYDIS_MNEMONIC_SUB, ZYDIS_MNEMONIC_AND, ZYDIS_MNEMONIC_OR,
                   ZYDIS_MNEMONIC_XOR, ZYDIS_MNEMONIC_CMP, ZYDIS_MNEMONIC_TEST, ZYDIS_MNEMONIC_ADC,
                   ZYDIS_MNEMONIC_SBB}));
  }
  void binary(ZydisMnemonic mnemonic) {
    unsigned bytes = size();
    switch (random_.below(mnemonic == ZYDIS_MNEMONIC_TEST ? 4 : 5)) {
      case 0:
        emit(mnemonic, {reg(legacy(bytes)), reg(legacy(bytes))});
        break;
      case 1:
        emit(mnemonic, {reg(target(bytes)), imm(immediate(bytes))});
        break;
      case 2:
        emit(mnemonic, {memory(bytes), reg(target(bytes))});
        break;
      case 3:
        emit(mnemonic, {memory(bytes), imm(immediate(bytes))});
        break;
      default:
        emit(mnemonic, {reg(target(bytes)), memory(bytes)});
        break;
    }
  }
  void unary() {
    ZydisMnemonic mnemonic =
        one_of({ZYDIS_MNEMONIC_INC, ZYDIS_MNEMONIC_DEC, ZYDIS_MNEMONIC_NEG, ZYDIS_MNEMONIC_NOT});
    unsigned bytes = size();
    bool lock = random_.chance(1, 8);
    if (lock || random_.chance(1, 3))
      return emit(mnemonic, {memory(bytes)}, lock ? ZYDIS_ATTRIB_HAS_LOCK : 0);
    emit(mnemonic, {reg(legacy(bytes))});
  }
  void shift() {
    ZydisMnemonic mnemonic = one_of({ZYDIS_MNEMONIC_SHL, ZYDIS_MNEMONIC_SHR, ZYDIS_MNEMONIC_SAR,
                                     ZYDIS_MNEMONIC_ROL, ZYDIS_MNEMONIC_ROR});
    unsigned bytes = size();
    Operand count = random_.chance(1, 3)
                        ? reg(ZYDIS_REGISTER_CL)
                        : imm(static_cast<int64_t>(random_.chance(1, 4) ? 1 : random_.below(64)));
    if (random_.chance(1, 4)) return emit(mnemonic, {memory(bytes), count});
    emit(mnemonic, {reg(legacy(bytes)), count});
  }
  void move() {
    unsigned bytes = size();
    switch (random_.below(7)) {
      case 0:
        return binary_without_immediate(ZYDIS_MNEMONIC_MOV);
      case 1:
        return emit(ZYDIS_MNEMONIC_MOV, {reg(target(bytes == 1 ? word() : bytes)),
                                         imm(immediate(bytes == 1 ? word() : bytes))});
      case 2:
        return emit(ZYDIS_MNEMONIC_MOV, {memory(bytes), imm(immediate(bytes))});
      case 3: {
        unsigned from = 1u << random_.below(2), to = word_or_less();
        if (to <= from) to = 2 * from;
        ZydisMnemonic m = one_of({ZYDIS_MNEMONIC_MOVZX, ZYDIS_MNEMONIC_MOVSX});
        if (random_.chance(1, 2)) return emit(m, {reg(target(to)), memory(from)});
        emit(m, {reg(target(to)), reg(target(from))});
        return;
      }
      case 4:
        if (!wide()) return binary_without_immediate(ZYDIS_MNEMONIC_MOV);
        if (random_.chance(1, 2)) return emit(ZYDIS_MNEMONIC_MOVSXD, {reg(target(8)), memory(4)});
        return emit(ZYDIS_MNEMONIC_MOVSXD, {reg(target(8)), reg(target(4))});
      case 5: {
        unsigned to = word_or_less();
        ZydisRegister added = random_.chance(1, 2) ? target(word()) : ZYDIS_REGISTER_NONE;
        return emit(ZYDIS_MNEMONIC_LEA,
                    {reg(target(to)),
                     mem(target(word()), added, 1u << random_.below(4), immediate(4), word())});
      }
      default:
        return emit(ZYDIS_MNEMONIC_MOVNTI,
                    {memory(bytes < 4 ? 4 : bytes), reg(target(bytes < 4 ? 4 : bytes))});
    }
  }
  void binary_without_immediate(ZydisMnemonic mnemonic) {
    unsigned bytes = size();
    switch (random_.below(3)) {
      case 0:
        emit(mnemonic, {reg(legacy(bytes)), reg(legacy(bytes))});
        break;
      case 1:
        emit(mnemonic, {memory(bytes), reg(target(bytes))});
        break;
      default:
        emit(mnemonic, {reg(target(bytes)), memory(bytes)});
        break;
    }
  }
  Operand register_or_memory(unsigned bytes) {
    return random_.chance(1, 2) ? memory(bytes) : reg(target(bytes));
  }

  void multiply() {
    unsigned bytes = word_or_less();
    switch (random_.below(4)) {
      case 0:
        return emit(ZYDIS_MNEMONIC_IMUL, {reg(target(bytes)), register_or_memory(bytes)});
      case 1:
        return emit(ZYDIS_MNEMONIC_IMUL,
                    {reg(target(bytes)), register_or_memory(bytes), imm(immediate(bytes))});
      default: {
        unsigned any = size();
        ZydisMnemonic m = one_of({ZYDIS_MNEMONIC_MUL, ZYDIS_MNEMONIC_IMUL});
        if (random_.chance(1, 2)) return emit(m, {memory(any)});
        return emit(m, {reg(legacy(any))});
      }
    }
  }
  // A small positive divisor in R14 or memory, and a dividend whose quotient fits.
  void divide() {
    unsigned bytes = size();
    bool is_signed = random_.chance(1, 2);
    Operand divisor = random_.chance(1, 2) || (bytes == 1 && !wide())
                          ? mem(base(), ZYDIS_REGISTER_NONE, 0, 64, bytes)
                      : bytes == 1 ? reg(ZYDIS_REGISTER_R14B)
                                   : reg(general(bytes, value_number()));
    emit(ZYDIS_MNEMONIC_MOV, {divisor, imm(static_cast<int64_t>(random_.between(1, 100)))});
    if (bytes == 1) {
      // AX / divisor must fit in a byte: at most 127 × 1.
      emit(ZYDIS_MNEMONIC_MOVZX, {reg(ZYDIS_REGISTER_EAX), reg(ZYDIS_REGISTER_AL)});
      emit(ZYDIS_MNEMONIC_AND, {reg(ZYDIS_REGISTER_EAX), imm(0x7F)});
    } else if (is_signed) {
      emit(bytes == 8   ? ZYDIS_MNEMONIC_CQO
           : bytes == 4 ? ZYDIS_MNEMONIC_CDQ
                        : ZYDIS_MNEMONIC_CWD,
           {});
    } else {
      emit(ZYDIS_MNEMONIC_XOR, {reg(ZYDIS_REGISTER_EDX), reg(ZYDIS_REGISTER_EDX)});
    }
    emit(is_signed ? ZYDIS_MNEMONIC_IDIV : ZYDIS_MNEMONIC_DIV, {divisor});
  }
  void bits() {
    unsigned bytes = word_or_less();
    ZydisMnemonic m = one_of({ZYDIS_MNEMONIC_POPCNT, ZYDIS_MNEMONIC_LZCNT, ZYDIS_MNEMONIC_TZCNT,
                              ZYDIS_MNEMONIC_BSF, ZYDIS_MNEMONIC_BSR, ZYDIS_MNEMONIC_BSWAP});
    if (bit_counts_ == BitCounts::kNone && m == ZYDIS_MNEMONIC_POPCNT) m = ZYDIS_MNEMONIC_BSF;
    if (bit_counts_ != BitCounts::kAll && m == ZYDIS_MNEMONIC_LZCNT) m = ZYDIS_MNEMONIC_BSR;
    if (bit_counts_ != BitCounts::kAll && m == ZYDIS_MNEMONIC_TZCNT) m = ZYDIS_MNEMONIC_BSF;
    if (m == ZYDIS_MNEMONIC_BSWAP) return emit(m, {reg(target(bytes == 2 ? 4 : bytes))});
    emit(m, {reg(target(bytes)), register_or_memory(bytes)});
  }
  void condition() {
    unsigned cc = static_cast<unsigned>(random_.below(16));
    constexpr std::array<ZydisMnemonic, 16> kMove = {
        ZYDIS_MNEMONIC_CMOVO, ZYDIS_MNEMONIC_CMOVNO, ZYDIS_MNEMONIC_CMOVB,  ZYDIS_MNEMONIC_CMOVNB,
        ZYDIS_MNEMONIC_CMOVZ, ZYDIS_MNEMONIC_CMOVNZ, ZYDIS_MNEMONIC_CMOVBE, ZYDIS_MNEMONIC_CMOVNBE,
        ZYDIS_MNEMONIC_CMOVS, ZYDIS_MNEMONIC_CMOVNS, ZYDIS_MNEMONIC_CMOVP,  ZYDIS_MNEMONIC_CMOVNP,
        ZYDIS_MNEMONIC_CMOVL, ZYDIS_MNEMONIC_CMOVNL, ZYDIS_MNEMONIC_CMOVLE, ZYDIS_MNEMONIC_CMOVNLE};
    constexpr std::array<ZydisMnemonic, 16> kSet = {
        ZYDIS_MNEMONIC_SETO, ZYDIS_MNEMONIC_SETNO, ZYDIS_MNEMONIC_SETB,  ZYDIS_MNEMONIC_SETNB,
        ZYDIS_MNEMONIC_SETZ, ZYDIS_MNEMONIC_SETNZ, ZYDIS_MNEMONIC_SETBE, ZYDIS_MNEMONIC_SETNBE,
        ZYDIS_MNEMONIC_SETS, ZYDIS_MNEMONIC_SETNS, ZYDIS_MNEMONIC_SETP,  ZYDIS_MNEMONIC_SETNP,
        ZYDIS_MNEMONIC_SETL, ZYDIS_MNEMONIC_SETNL, ZYDIS_MNEMONIC_SETLE, ZYDIS_MNEMONIC_SETNLE};
    if (random_.chance(1, 2)) {
      return random_.chance(1, 3) ? emit(kSet[cc], {memory(1)}) : emit(kSet[cc], {reg(legacy(1))});
    }
    unsigned bytes = word_or_less();
    emit(kMove[cc], {reg(target(bytes)), register_or_memory(bytes)});
  }
  void exchange() {
    unsigned bytes = size();
    bool lock = random_.chance(1, 2);
    switch (random_.below(4)) {
      case 0:
        emit(ZYDIS_MNEMONIC_XCHG, {memory(bytes), reg(target(bytes))});
        break;
      case 1:
        emit(ZYDIS_MNEMONIC_XCHG, {reg(target(bytes)), reg(target(bytes))});
        break;
      case 2: {
        ZydisMnemonic m = one_of({ZYDIS_MNEMONIC_XADD, ZYDIS_MNEMONIC_CMPXCHG});
        if (random_.chance(1, 3)) {
          emit(m, {reg(target(bytes)), reg(target(bytes))});
        } else {
          emit(m, {memory(bytes), reg(target(bytes))}, lock ? ZYDIS_ATTRIB_HAS_LOCK : 0);
        }
        break;
      }
      default: {
        ZydisMnemonic m =
            one_of({ZYDIS_MNEMONIC_ADD, ZYDIS_MNEMONIC_SUB, ZYDIS_MNEMONIC_OR, ZYDIS_MNEMONIC_AND});
        emit(m, {memory(bytes), reg(target(bytes))}, ZYDIS_ATTRIB_HAS_LOCK);
      }
    }
  }
  void odd() {
    ZydisMnemonic m =
        one_of({ZYDIS_MNEMONIC_CDQ, ZYDIS_MNEMONIC_CQO, ZYDIS_MNEMONIC_CWD, ZYDIS_MNEMONIC_CBW,
                ZYDIS_MNEMONIC_CWDE, ZYDIS_MNEMONIC_CDQE, ZYDIS_MNEMONIC_CLC, ZYDIS_MNEMONIC_STC,
                ZYDIS_MNEMONIC_CMC, ZYDIS_MNEMONIC_MFENCE, ZYDIS_MNEMONIC_LFENCE,
                ZYDIS_MNEMONIC_SFENCE, ZYDIS_MNEMONIC_PAUSE, ZYDIS_MNEMONIC_NOP,
                ZYDIS_MNEMONIC_PREFETCHT0, ZYDIS_MNEMONIC_PREFETCHNTA, ZYDIS_MNEMONIC_CLFLUSH});
    if (m == ZYDIS_MNEMONIC_PREFETCHT0 || m == ZYDIS_MNEMONIC_PREFETCHNTA)
      return emit(m, {memory(1)});
    if (m == ZYDIS_MNEMONIC_CLFLUSH) return emit(m, {memory(64)});
    if (m == ZYDIS_MNEMONIC_NOP && random_.chance(1, 2)) return emit(m, {memory(4)});
    if (!wide() && (m == ZYDIS_MNEMONIC_CQO || m == ZYDIS_MNEMONIC_CDQE)) m = ZYDIS_MNEMONIC_CDQ;
    emit(m, {});
  }
  // An address that is right only when its sum wraps at 4 GiB.
  void wrapping() {
    const auto step = static_cast<int64_t>(random_.between(1, 64));
    const ZydisRegister back = general(4, value_number());
    const unsigned scale = 1u << random_.below(4), bytes = size();
    emit(ZYDIS_MNEMONIC_MOV, {reg(back), imm(-step)});
    Operand at = mem(base(), back, scale, step * scale, bytes);
    switch (random_.below(4)) {
      case 0:
        return emit(ZYDIS_MNEMONIC_ADD, {at, reg(target(bytes))});
      case 1:
        return emit(ZYDIS_MNEMONIC_MOV, {reg(target(bytes)), at});
      case 2:
        at.mem.size = 4;
        return emit(ZYDIS_MNEMONIC_LEA, {reg(target(4)), at});
      default:
        at.mem.size = 16;
        return emit(ZYDIS_MNEMONIC_MOVUPS, {reg(vector(16)), at});
    }
  }
  // Something pushed, something done, something popped.
  void stack() {
    switch (random_.below(3)) {
      case 0:
        emit(ZYDIS_MNEMONIC_PUSH, {reg(target(word()))});
        break;
      case 1:
        emit(ZYDIS_MNEMONIC_PUSH, {imm(immediate(4))});
        break;
      default:
        emit(ZYDIS_MNEMONIC_PUSH, {memory(word())});
        break;
    }
    arithmetic();
    emit(ZYDIS_MNEMONIC_POP, {reg(target(word()))});
  }

  void vector_move() {
    bool ymm = avx_ && random_.chance(1, 3);
    if (avx_ && random_.chance(1, 3)) {
      unsigned bytes = ymm ? 32 : 16;
      bool aligned = random_.chance(1, 2);
      ZydisMnemonic m = aligned ? one_of({ZYDIS_MNEMONIC_VMOVAPS, ZYDIS_MNEMONIC_VMOVDQA})
                                : one_of({ZYDIS_MNEMONIC_VMOVUPS, ZYDIS_MNEMONIC_VMOVDQU});
      return load_store_or_copy(m, bytes, aligned ? bytes : 1);
    }
    switch (random_.below(4)) {
      case 0: {
        bool aligned = random_.chance(1, 2);
        ZydisMnemonic m = aligned ? one_of({ZYDIS_MNEMONIC_MOVAPS, ZYDIS_MNEMONIC_MOVDQA})
                                  : one_of({ZYDIS_MNEMONIC_MOVUPS, ZYDIS_MNEMONIC_MOVDQU});
        return load_store_or_copy(m, 16, aligned ? 16 : 1);
      }
      case 1: {
        bool quad = random_.chance(1, 2);
        ZydisMnemonic m = quad ? ZYDIS_MNEMONIC_MOVQ : ZYDIS_MNEMONIC_MOVD;
        unsigned bytes = quad ? 8 : 4;
        switch (quad && !wide() ? random_.between(2, 3) : random_.below(4)) {
          case 0:
            return emit(m, {reg(vector(16)), reg(target(bytes))});
          case 1:
            return emit(m, {reg(target(bytes)), reg(vector(16))});
          case 2:
            return emit(m, {reg(vector(16)), memory(bytes)});
          default:
            return emit(m, {memory(bytes), reg(vector(16))});
        }
      }
      case 2: {
        if (ymm)
          return emit(one_of({ZYDIS_MNEMONIC_VMOVNTPS, ZYDIS_MNEMONIC_VMOVNTDQ}),
                      {memory(32, 32), reg(vector(32))});
        return emit(one_of({ZYDIS_MNEMONIC_MOVNTPS, ZYDIS_MNEMONIC_MOVNTDQ}),
                    {memory(16, 16), reg(vector(16))});
      }
      default:
        if (random_.chance(1, 2)) return emit(ZYDIS_MNEMONIC_MOVSD, {reg(vector(16)), memory(8)});
        return emit(ZYDIS_MNEMONIC_MOVSD, {memory(8), reg(vector(16))});
    }
  }
  void load_store_or_copy(ZydisMnemonic m, unsigned bytes, unsigned alignment) {
    switch (random_.below(3)) {
      case 0:
        return emit(m, {reg(vector(bytes)), memory(bytes, alignment)});
      case 1:
        return emit(m, {memory(bytes, alignment), reg(vector(bytes))});
      default:
        return emit(m, {reg(vector(bytes)), reg(vector(bytes))});
    }
  }
  void vector_compute() {
    bool from_memory = random_.chance(1, 3);
    if (avx_ && random_.chance(1, 3)) {
      if (random_.chance(1, 6)) return emit(ZYDIS_MNEMONIC_VZEROUPPER, {});
      if (random_.chance(1, 2)) {
        Operand second = from_memory ? memory(8) : reg(vector(16));
        return emit(one_of({ZYDIS_MNEMONIC_VADDSD, ZYDIS_MNEMONIC_VMULSD, ZYDIS_MNEMONIC_VDIVSD}),
                    {reg(vector(16)), reg(vector(16)), second});
      }
      unsigned bytes = random_.chance(1, 2) ? 32 : 16;
      Operand second = from_memory ? memory(bytes) : reg(vector(bytes));
      return emit(one_of({ZYDIS_MNEMONIC_VXORPS, ZYDIS_MNEMONIC_VPXOR, ZYDIS_MNEMONIC_VPADDQ,
                          ZYDIS_MNEMONIC_VPADDD, ZYDIS_MNEMONIC_VADDPS, ZYDIS_MNEMONIC_VMULPS,
                          ZYDIS_MNEMONIC_VPMULLD}),
                  {reg(vector(bytes)), reg(vector(bytes)), second});
    }
    if (random_.chance(1, 10)) {
      return emit(ZYDIS_MNEMONIC_PSHUFD, {reg(vector(16)), reg(vector(16)),
                                          imm(static_cast<int64_t>(random_.below(256)))});
    }
    if (random_.chance(1, 2)) {
      Operand second = from_memory ? memory(8) : reg(vector(16));
      return emit(one_of({ZYDIS_MNEMONIC_ADDSD, ZYDIS_MNEMONIC_SUBSD, ZYDIS_MNEMONIC_MULSD,
                          ZYDIS_MNEMONIC_DIVSD, ZYDIS_MNEMONIC_SQRTSD}),
                  {reg(vector(16)), second});
    }
    Operand second = from_memory ? memory(16, 16) : reg(vector(16));
    emit(one_of({ZYDIS_MNEMONIC_PXOR, ZYDIS_MNEMONIC_POR, ZYDIS_MNEMONIC_PAND, ZYDIS_MNEMONIC_PADDQ,
                 ZYDIS_MNEMONIC_PADDD, ZYDIS_MNEMONIC_PSUBQ, ZYDIS_MNEMONIC_PSUBD,
                 ZYDIS_MNEMONIC_PMULUDQ, ZYDIS_MNEMONIC_ADDPS, ZYDIS_MNEMONIC_MULPS,
                 ZYDIS_MNEMONIC_DIVPS, ZYDIS_MNEMONIC_SQRTPS}),
         {reg(vector(16)), second});
  }

  // ---- Branches: what is jumped over is generated first, so that its length is known.

  template <typename Body>
  std::vector<std::byte> aside(uint64_t gap, Body body) {
    // Code that will stand `gap` bytes further on (RIP-relative operands depend on it).
    std::vector<std::byte> saved = code_;
    size_t from = code_.size() + gap;
    code_.resize(from);
    body();
    std::vector<std::byte> result(code_.begin() + static_cast<ptrdiff_t>(from), code_.end());
    code_ = std::move(saved);
    return result;
  }
  void append(const std::vector<std::byte>& bytes) {
    code_.insert(code_.end(), bytes.begin(), bytes.end());
  }
  void raw(std::initializer_list<unsigned> bytes) {
    for (unsigned b : bytes) code_.push_back(static_cast<std::byte>(b));
  }
  void raw32(uint64_t value) {
    for (unsigned n = 0; n < 4; ++n) code_.push_back(static_cast<std::byte>(value >> (8 * n)));
  }

  void branch(unsigned depth) {
    switch (random_.below(8)) {
      case 0:
        return jump(depth);
      case 1:
        return call(depth);
      case 2:
        return indirect();
      case 3:
        return loop();
      default:
        return conditional(depth);
    }
  }
  // [an instruction that may fuse] jcc over a few instructions.
  void conditional(unsigned depth) {
    if (random_.chance(1, 2)) {
      ZydisMnemonic m = one_of({ZYDIS_MNEMONIC_CMP, ZYDIS_MNEMONIC_TEST, ZYDIS_MNEMONIC_AND,
                                ZYDIS_MNEMONIC_ADD, ZYDIS_MNEMONIC_SUB});
      random_.chance(1, 4) ? unary() : binary(m);
    }
    auto over = aside(6, [&] {
      for (uint64_t n = random_.below(4); n-- > 0;) anything(depth);
    });
    raw({0x0F, 0x80 | static_cast<unsigned>(random_.below(16))});
    raw32(over.size());
    ++count_;
    append(over);
  }
  void jump(unsigned depth) {
    auto over = aside(5, [&] { anything(depth); });
    raw({0xE9});
    raw32(over.size());
    ++count_;
    append(over);
  }
  // call f; jmp end; f: …; ret; end:
  void call(unsigned depth) {
    bool indirect_call = random_.chance(1, 3);
    const uint64_t address = wide() ? 7 : 5, through = wide() ? 3 : 2;
    uint64_t prefix = indirect_call ? address + through + 5 : 5 + 5;
    auto function = aside(prefix, [&] {
      anything(depth);
      emit(ZYDIS_MNEMONIC_RET, {});
    });
    if (indirect_call && wide()) {
      raw({0x4C, 0x8D, 0x35});  // lea r14, [rip + 8]
      raw32(3 + 5);
      raw({0x41, 0xFF, 0xD6});  // call r14
    } else if (indirect_call) {
      const uint64_t target = here() + prefix;
      raw({0xBF});  // mov edi, function
      raw32(target);
      raw({0xFF, 0xD7});  // call edi
    } else {
      raw({0xE8});
      raw32(5);
    }
    raw({0xE9});
    raw32(function.size());
    count_ += 3;
    append(function);
  }
  void indirect() {
    count_ += 2;
    if (!wide()) {
      const uint64_t target = here() + 5 + 2 + 1;
      raw({0xBE});  // mov esi, behind the INT3
      raw32(target);
      raw({0xFF, 0xE6, 0xCC});  // jmp esi
      return;
    }
    raw({0x4C, 0x8D, 0x3D});  // lea r15, [rip + 4]
    raw32(4);
    raw({0x41, 0xFF, 0xE7});  // jmp r15
    raw({0xCC});              // never reached
  }
  // R15 counts a few iterations.
  void loop() {
    const ZydisRegister counter = general(4, count_number());
    emit(ZYDIS_MNEMONIC_MOV, {reg(counter), imm(static_cast<int64_t>(random_.between(1, 6)))});
    size_t top = code_.size();
    for (uint64_t n = random_.between(1, 3); n-- > 0;) arithmetic();
    emit(ZYDIS_MNEMONIC_DEC,
         {reg(random_.chance(1, 2) ? general(word(), count_number()) : counter)});
    raw({0x0F, 0x85});
    raw32(
        static_cast<uint64_t>(static_cast<int64_t>(top) - static_cast<int64_t>(code_.size() + 4)));
    ++count_;
  }

  Random random_;
  Mode mode_;
  uint64_t code_address_, data_address_;
  bool avx_;
  BitCounts bit_counts_;
  unsigned count_ = 0;
  std::vector<std::byte> code_;
};

}  // namespace skidproof::engines::testing

#endif  // SKIDPROOF_PEBS_ENGINES_TESTING_RANDOM_CODE_H_
