// Facts of instructions, one row each, and what their neighbours add.
#include "pebs/model/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "pebs/model/retired.h"

namespace skidproof::model {
namespace {

using arch::FusionFirst;
using arch::Signal;

using Bytes = std::vector<unsigned>;

Decoded decoded(const Bytes& bytes, uint64_t address = 0x1000, Mode mode = Mode::kLong) {
  std::vector<std::byte> code;
  for (unsigned b : bytes) code.push_back(static_cast<std::byte>(b));
  auto d = decode(code, address, mode);
  EXPECT_TRUE(d) << d.error().text();
  return d.value_or(Decoded{});
}

const arch::Microarch& microarch(const char* name = "sandy-bridge") {
  return **arch::find_microarch(name);
}

struct Row {
  const char* text;
  Bytes bytes;
  unsigned loads, stores, uops;
};

TEST(Decode, CountsMemoryOperationsAndSlots) {
  for (const Row& row : {
           Row{"mov rax, [rax]", {0x48, 0x8B, 0x00}, 1, 0, 1},
           {"mov [rsi], rax", {0x48, 0x89, 0x06}, 0, 1, 1},
           {"mov rax, [rsi+rcx*8]", {0x48, 0x8B, 0x04, 0xCE}, 1, 0, 1},
           {"mov [rsi+rcx*8], rax", {0x48, 0x89, 0x04, 0xCE}, 0, 1, 1},
           {"add rax, [rsi]", {0x48, 0x03, 0x06}, 1, 0, 1},
           {"add rax, [rsi+rcx*8]", {0x48, 0x03, 0x04, 0xCE}, 1, 0, 1},
           {"add [rsi], rax", {0x48, 0x01, 0x06}, 1, 1, 2},
           {"lock add [rsi], rax", {0xF0, 0x48, 0x01, 0x06}, 1, 1, 8},
           {"xchg [rsi], rax", {0x48, 0x87, 0x06}, 1, 1, 8},
           {"cmp [rsi], rax", {0x48, 0x39, 0x06}, 1, 0, 1},
           {"lea rax, [rsi+rcx*8]", {0x48, 0x8D, 0x04, 0xCE}, 0, 0, 1},
           {"nop [rsi]", {0x0F, 0x1F, 0x06}, 0, 0, 1},
           {"prefetcht0 [rsi]", {0x0F, 0x18, 0x0E}, 0, 0, 1},
           {"push rax", {0x50}, 0, 1, 1},
           {"push [rsi]", {0xFF, 0x36}, 1, 1, 2},
           {"pop rax", {0x58}, 1, 0, 1},
           {"call", {0xE8, 0, 0, 0, 0}, 0, 1, 2},
           {"call [rsi]", {0xFF, 0x16}, 1, 1, 3},
           {"ret", {0xC3}, 1, 0, 2},
           {"movups xmm0, [rsi]", {0x0F, 0x10, 0x06}, 1, 0, 1},
           {"movntps [rsi], xmm0", {0x0F, 0x2B, 0x06}, 0, 1, 1},
           {"cmovz rax, rcx", {0x48, 0x0F, 0x44, 0xC1}, 0, 0, 2},
           {"adc rax, rcx", {0x48, 0x11, 0xC8}, 0, 0, 2},
       }) {
    SCOPED_TRACE(row.text);
    InstructionFacts f = decoded(row.bytes).facts;
    EXPECT_EQ(f.loads, row.loads);
    EXPECT_EQ(f.stores, row.stores);
    EXPECT_EQ(f.uops, row.uops);
  }
}

TEST(Decode, KnowsNonTemporalStores) {
  EXPECT_TRUE(decoded({0x48, 0x0F, 0xC3, 0x06}).facts.non_temporal);  // movnti [rsi], rax
  EXPECT_TRUE(decoded({0x0F, 0x2B, 0x06}).facts.non_temporal);        // movntps [rsi], xmm0
  EXPECT_FALSE(decoded({0x48, 0x89, 0x06}).facts.non_temporal);       // mov [rsi], rax
}

TEST(Decode, KnowsBranches) {
  EXPECT_EQ(decoded({0x75, 0x10}).facts.branch, Branch::kConditional);
  EXPECT_EQ(decoded({0x75, 0x10}).facts.target, 0x1012u);
  EXPECT_EQ(decoded({0x75, 0x10}).facts.condition, 5);
  EXPECT_EQ(decoded({0x0F, 0x8F, 0, 0, 0, 0}).facts.condition, 15);
  EXPECT_EQ(decoded({0x48, 0x89, 0xC8}).facts.condition, 0) << "mov rax, rcx has none";
  EXPECT_EQ(decoded({0xEB, 0xFE}).facts.branch, Branch::kJump);
  EXPECT_EQ(decoded({0xFF, 0xE0}).facts.branch, Branch::kIndirectJump);
  EXPECT_EQ(decoded({0xE8, 0, 0, 0, 0}).facts.branch, Branch::kCall);
  EXPECT_EQ(decoded({0xFF, 0xD0}).facts.branch, Branch::kIndirectCall);
  EXPECT_EQ(decoded({0xC3}).facts.branch, Branch::kReturn);
}

TEST(Decode, KnowsAPointerChase) {
  EXPECT_TRUE(decoded({0x48, 0x8B, 0x00}).facts.dependent_load);         // mov rax, [rax]
  EXPECT_TRUE(decoded({0x48, 0x8B, 0x04, 0xC6}).facts.dependent_load);   // mov rax, [rsi+rax*8]
  EXPECT_TRUE(decoded({0x48, 0x8B, 0x09}).facts.dependent_load);         // mov rcx, [rcx]
  EXPECT_TRUE(decoded({0x48, 0x8B, 0x0C, 0xCE}).facts.dependent_load);   // mov rcx, [rsi+rcx*8]
  EXPECT_FALSE(decoded({0x48, 0x8B, 0x06}).facts.dependent_load);        // mov rax, [rsi]
  EXPECT_FALSE(decoded({0x48, 0x89, 0x00}).facts.dependent_load);        // mov [rax], rax
  EXPECT_FALSE(decoded({0x48, 0x8B, 0x04, 0xCE}).facts.dependent_load);  // mov rax, [rsi+rcx*8]
}

TEST(Decode, AFlushHasAnAddressAndNeitherLoadsNorStores) {
  const InstructionFacts flush = decoded({0x0F, 0xAE, 0x7A, 0x40}).facts;  // clflush [rdx+64]
  EXPECT_TRUE(flush.flushes);
  EXPECT_TRUE(flush.has_address);
  EXPECT_EQ(flush.address_of.base, 2);
  EXPECT_EQ(flush.address_of.displacement, 64);
  EXPECT_EQ(flush.loads + flush.stores, 0);
  EXPECT_FALSE(decoded({0x0F, 0x18, 0x0A}).facts.flushes);  // prefetcht0 [rdx]
}

// Hidden in the syntax are the stack's accesses and those of string instructions.
TEST(Decode, TellsTheStackFromOtherMemory) {
  struct Case {
    const char* text;
    Bytes bytes;
    Mode mode;
    bool stack_load, stack_store, explicit_load, explicit_store;
  };
  for (const Case& c : {
           Case{"push rax", {0x50}, Mode::kLong, false, true, false, false},
           {"push eax", {0x50}, Mode::kProtected32, false, true, false, false},
           {"push [rsi]", {0xFF, 0x36}, Mode::kLong, false, true, true, false},
           {"pop rax", {0x58}, Mode::kLong, true, false, false, false},
           {"pop eax", {0x58}, Mode::kProtected32, true, false, false, false},
           {"ret", {0xC3}, Mode::kLong, true, false, false, false},
           {"mov rax, [rsp+8]",
            {0x48, 0x8B, 0x44, 0x24, 8},
            Mode::kLong,
            false,
            false,
            true,
            false},
           {"stosq", {0x48, 0xAB}, Mode::kLong, false, false, false, true},
           {"lodsd", {0xAD}, Mode::kProtected32, false, false, true, false},
           {"movsb", {0xA4}, Mode::kLong, false, false, true, false},
       }) {
    SCOPED_TRACE(c.text);
    const InstructionFacts f = decoded(c.bytes, 0x1000, c.mode).facts;
    EXPECT_EQ(f.stack_load, c.stack_load);
    EXPECT_EQ(f.stack_store, c.stack_store);
    EXPECT_EQ(f.explicit_load, c.explicit_load);
    EXPECT_EQ(f.explicit_store, c.explicit_store);
    EXPECT_EQ(f.has_address, c.explicit_load || c.explicit_store);
  }
}

TEST(Decode, AStringMoveLoadsFromOnePlaceAndStoresToAnother) {
  for (const Bytes& bytes : {Bytes{0xA4}, {0x48, 0xA5}, {0xF3, 0xA4}}) {
    const InstructionFacts f = decoded(bytes).facts;
    EXPECT_TRUE(f.string_store);
    EXPECT_EQ(f.address_of.base, 6);
    EXPECT_EQ(f.loads, 1);
    EXPECT_EQ(f.stores, 1);
  }
  for (const Bytes& bytes :
       {Bytes{0xAA}, {0xAC}, {0x48, 0x89, 0x06}, {0xFF, 0x36}}) {  // stosb, lodsb, mov, push
    EXPECT_FALSE(decoded(bytes).facts.string_store);
  }
}

TEST(Decode, ReadsCodeOf32BitMode) {
  const Decoded inc = decoded({0x40}, 0x1000, Mode::kProtected32);  // a prefix in 64-bit mode
  EXPECT_EQ(inc.facts.fusion, FusionFirst::kInc);
  EXPECT_EQ(inc.facts.mode, Mode::kProtected32);
  EXPECT_EQ(text_of(inc), "inc eax");
  const std::byte prefix{0x40};
  EXPECT_FALSE(decode(std::span(&prefix, 1), 0x1000));
  EXPECT_EQ(decoded({0x90}).facts.mode, Mode::kLong);
  EXPECT_EQ(text_of(decoded({0x48, 0x8B, 0x44, 0xCE, 0xF8})), "mov rax, [rsi+rcx*8-0x08]");
}

TEST(Decode, KnowsTheRegistersThatAreWritten) {
  struct Case {
    const char* text;
    Bytes bytes;
    uint32_t writes;
  };
  for (const Case& c : {
           Case{"mov rax, rcx", {0x48, 0x89, 0xC8}, 1u << 0},
           {"mov rcx, [rsi+rax]", {0x48, 0x8B, 0x0C, 0x06}, 1u << 1},
           {"mov [rsi], rax", {0x48, 0x89, 0x06}, 0},
           {"cmp rax, rcx", {0x48, 0x39, 0xC8}, 0},
           {"xadd rax, rcx", {0x48, 0x0F, 0xC1, 0xC8}, 1u << 0 | 1u << 1},
           {"push rax", {0x50}, 1u << 4},
           {"movaps xmm15, xmm0", {0x44, 0x0F, 0x28, 0xF8}, 1u << 31},
           {"vaddsd xmm16, xmm16, xmm1: of no number", {0x62, 0xE1, 0xFF, 0x00, 0x58, 0xC1}, 0},
       }) {
    EXPECT_EQ(decoded(c.bytes).facts.writes, c.writes) << c.text;
  }
}

TEST(Decode, KnowsTheRegisterThatChainsAnInstructionToTheOneBefore) {
  struct Chain {
    const char* text;
    Bytes bytes;
    uint8_t chain;
  };
  for (const Chain& row : {
           Chain{"add rax, rcx", {0x48, 0x01, 0xC8}, 0},
           Chain{"add rcx, rax", {0x48, 0x01, 0xC1}, 1},
           Chain{"inc rax", {0x48, 0xFF, 0xC0}, 0},
           Chain{"mov rax, rcx", {0x48, 0x89, 0xC8}, kNoRegister},
           Chain{"cmp rax, rcx", {0x48, 0x39, 0xC8}, kNoRegister},
           Chain{"test rax, rax", {0x48, 0x85, 0xC0}, kNoRegister},
           Chain{"add [rax], rax", {0x48, 0x01, 0x00}, kNoRegister},
           Chain{"xor eax, eax", {0x31, 0xC0}, kNoRegister},
           Chain{"xor eax, ecx", {0x31, 0xC8}, 0},
           Chain{"sub eax, eax", {0x29, 0xC0}, kNoRegister},
           Chain{"sub eax, [rax]", {0x2B, 0x00}, 0},
           Chain{"sub al, [rsi]", {0x2A, 0x06}, 0},
           Chain{"pxor xmm1, xmm1", {0x66, 0x0F, 0xEF, 0xC9}, kNoRegister},
           Chain{"vpxor xmm1, xmm1, xmm1", {0xC5, 0xF1, 0xEF, 0xC9}, kNoRegister},
           // Vector registers have numbers of their own behind the general ones.
           Chain{"vpxor xmm1, xmm1, xmm2", {0xC5, 0xF1, 0xEF, 0xCA}, 16 + 1},
           Chain{"vpxor xmm1, xmm2, xmm2", {0xC5, 0xE9, 0xEF, 0xCA}, kNoRegister},
           Chain{"vpxor xmm1, xmm2, xmm1", {0xC5, 0xE9, 0xEF, 0xC9}, 16 + 1},
           Chain{"vpaddd xmm15, xmm15, xmm1", {0xC5, 0x01, 0xFE, 0xF9}, 16 + 15},
           Chain{"vaddsd xmm16, xmm16, xmm1", {0x62, 0xE1, 0xFF, 0x00, 0x58, 0xC1}, kNoRegister},
       }) {
    EXPECT_EQ(decoded(row.bytes).facts.chain, row.chain) << row.text;
  }
}

TEST(Decode, ResolvesAddresses) {
  Address a = decoded({0x48, 0x8B, 0x44, 0xCE, 0xF8}).facts.address_of;  // mov rax, [rsi+rcx*8-8]
  EXPECT_EQ(a.base, 6);
  EXPECT_EQ(a.index, 1);
  EXPECT_EQ(a.scale, 3);
  EXPECT_EQ(a.displacement, -8);
  EXPECT_EQ(a.bytes, 8);
  a = decoded({0x48, 0x8B, 0x04, 0xCE}).facts.address_of;  // mov rax, [rsi+rcx*8]
  EXPECT_EQ(a.displacement, 0);
  a = decoded({0x8B, 0x05, 0x10, 0, 0, 0}).facts.address_of;  // mov eax, [rip+0x10]
  EXPECT_EQ(a.base, kNoRegister);
  EXPECT_EQ(a.displacement, 0x1016);
  EXPECT_EQ(a.bytes, 4);
}

// What is undefined afterwards is overwritten, too, but by a division.
TEST(Decode, KnowsTheFlagsThatAreReadAndWritten) {
  constexpr uint32_t kCarry = 0x1, kZero = 0x40, kAll = 0x8D5;
  struct Case {
    const char* text;
    Bytes bytes;
    uint32_t read, written;
  };
  for (const Case& c : {
           Case{"mov rax, rcx", {0x48, 0x89, 0xC8}, 0, 0},
           {"add rax, rcx", {0x48, 0x01, 0xC8}, 0, kAll},
           {"inc rax", {0x48, 0xFF, 0xC0}, 0, kAll & ~kCarry},
           {"and rax, rcx", {0x48, 0x21, 0xC8}, 0, kAll},         // AF undefined
           {"imul rax, rcx", {0x48, 0x0F, 0xAF, 0xC1}, 0, kAll},  // SF, ZF, AF and PF undefined
           {"div rcx", {0x48, 0xF7, 0xF1}, 0, 0},
           {"idiv rcx", {0x48, 0xF7, 0xF9}, 0, 0},
           {"adc rax, rcx", {0x48, 0x11, 0xC8}, kCarry, kAll},
           {"cmovz rax, rcx", {0x48, 0x0F, 0x44, 0xC1}, kZero, 0},
           {"jnz", {0x75, 0x00}, kZero, 0},
       }) {
    EXPECT_EQ(decoded(c.bytes).facts.flags_read, c.read) << c.text;
    EXPECT_EQ(decoded(c.bytes).facts.flags_written, c.written) << c.text;
  }
}

TEST(Decode, FlagsOfShiftsDependOnTheCount) {
  EXPECT_EQ(decoded({0x48, 0xC1, 0xE0, 0x40}).facts.flags_written, 0u);  // shl rax, 64: by 0
  EXPECT_NE(decoded({0x48, 0xC1, 0xE0, 0x20}).facts.flags_written, 0u);  // shl rax, 32
  EXPECT_NE(decoded({0x48, 0xC1, 0xE0, 0x03}).facts.flags_written, 0u);  // shl rax, 3
  EXPECT_EQ(decoded({0xC1, 0xE0, 0x20}).facts.flags_written, 0u);        // shl eax, 32: by 0
  EXPECT_NE(decoded({0xC1, 0xE0, 0x03}).facts.flags_written, 0u);        // shl eax, 3
  EXPECT_EQ(decoded({0x48, 0x0F, 0xBC, 0xC1}).facts.flags_written,
            0x40u);                                                // bsf rax, rcx: ZF alone
  EXPECT_EQ(decoded({0x48, 0xD3, 0xE0}).facts.flags_written, 0u);  // shl rax, cl: nobody knows
}

TEST(Decode, RefusesBytesThatAreNoInstruction) {
  std::array<std::byte, 2> bytes = {std::byte{0x06}, std::byte{0x90}};
  auto d = decode(bytes, 0x1000);
  ASSERT_FALSE(d);
  EXPECT_EQ(d.error().code, ErrorCode::kExecution);
  EXPECT_THAT(d.error().message, ::testing::HasSubstr("06 90"));
  EXPECT_FALSE(decode(std::span(bytes).first(0), 0x1000));
}

// Instructions one behind the other, not placed yet.
std::vector<InstructionFacts> facts_of(const std::vector<Bytes>& code, uint64_t address = 0x1000,
                                       Mode mode = Mode::kLong) {
  std::vector<InstructionFacts> facts;
  for (const auto& bytes : code) {
    facts.push_back(decoded(bytes, address, mode).facts);
    address = facts.back().end();
  }
  return facts;
}

// A block of instructions, placed.
std::vector<InstructionFacts> block(std::initializer_list<Bytes> code,
                                    const char* name = "sandy-bridge", Mode mode = Mode::kLong) {
  std::vector<InstructionFacts> facts = facts_of(code, 0x1000, mode);
  place(facts, microarch(name));
  return facts;
}

const Bytes kJnz = {0x75, 0x00}, kJs = {0x78, 0x00}, kJb = {0x72, 0x00};

TEST(Place, FusesByTheMicroarchsRules) {
  struct Pair {
    const char* text;
    Bytes first, jump;
    bool sandy_bridge, nehalem;
  };
  for (const Pair& p : {
           Pair{"cmp, jnz", {0x48, 0x39, 0xC8}, kJnz, true, true},
           {"cmp, js", {0x48, 0x39, 0xC8}, kJs, false, false},
           {"test, js", {0x48, 0x85, 0xC0}, kJs, true, true},
           {"and, jnz", {0x48, 0x21, 0xC8}, kJnz, true, false},
           {"sub, jnz", {0x48, 0x29, 0xC8}, kJnz, true, false},
           {"dec, jnz", {0x48, 0xFF, 0xC9}, kJnz, true, false},
           {"dec, jb", {0x48, 0xFF, 0xC9}, kJb, false, false},
           {"cmp mem, reg", {0x48, 0x39, 0x06}, kJnz, true, true},
           {"cmp mem, imm", {0x48, 0x83, 0x3E, 0x05}, kJnz, false, false},
           {"add mem, reg", {0x48, 0x01, 0x06}, kJnz, false, false},
           {"or, jnz", {0x48, 0x09, 0xC8}, kJnz, false, false},
           {"xor, jnz", {0x48, 0x31, 0xC8}, kJnz, false, false},
           {"neg, jnz", {0x48, 0xF7, 0xD8}, kJnz, false, false},
           {"adc, jnz", {0x48, 0x11, 0xC8}, kJnz, false, false},
           {"sbb, jnz", {0x48, 0x19, 0xC8}, kJnz, false, false},
           {"shl, jnz", {0x48, 0xC1, 0xE0, 0x03}, kJnz, false, false},
           {"cmp, jrcxz", {0x48, 0x39, 0xC8}, {0xE3, 0x00}, false, false},
           {"cmp, loop", {0x48, 0x39, 0xC8}, {0xE2, 0x00}, false, false},
           {"test, jmp", {0x48, 0x85, 0xC0}, {0xEB, 0x00}, false, false},
           {"test, mov", {0x48, 0x85, 0xC0}, {0x48, 0x89, 0xC8}, false, false},
           {"inc mem", {0x48, 0xFF, 0x06}, kJnz, false, false},
       }) {
    SCOPED_TRACE(p.text);
    EXPECT_EQ(block({p.first, p.jump})[0].fused_with_next, p.sandy_bridge);
    EXPECT_EQ(block({p.first, p.jump}, "nehalem")[0].fused_with_next, p.nehalem);
  }
}

// Core 2 fuses outside 64-bit mode only. (R65)
TEST(Place, FusesInTheModesOfTheMicroarch) {
  const Bytes kCmp = {0x39, 0xC8};  // cmp eax, ecx
  for (const Mode mode : {Mode::kLong, Mode::kProtected32}) {
    EXPECT_EQ(block({kCmp, kJnz}, "core2", mode)[0].fused_with_next, mode == Mode::kProtected32);
    EXPECT_TRUE(block({kCmp, kJnz}, "nehalem", mode)[0].fused_with_next);
  }
}

// Slots of one instruction under a generation's rules.
unsigned slots(const Bytes& bytes, const char* name) { return block({bytes}, name)[0].slots; }

TEST(Place, SplitsIndexedAddressesByTheMicroarchsRules) {
  const Bytes kAdd = {0x48, 0x03, 0x06},
              kAddIndexed = {0x48, 0x03, 0x04, 0x0E};  // add rax, [rsi+rcx]
  const Bytes kAdcIndexed = {0x48, 0x13, 0x04, 0x0E}, kMovIndexed = {0x48, 0x8B, 0x04, 0x0E};
  const Bytes kVexIndexed = {0xC5, 0xF3, 0x58, 0x04, 0x0E};  // vaddsd xmm0, xmm1, [rsi+rcx]
  EXPECT_EQ(slots(kAdd, "sandy-bridge"), 1u);
  EXPECT_EQ(slots(kAddIndexed, "sandy-bridge"), 2u);
  EXPECT_EQ(slots(kAddIndexed, "haswell"), 1u);
  EXPECT_EQ(slots(kAdcIndexed, "haswell"), 3u);
  EXPECT_EQ(slots(kVexIndexed, "haswell"), 2u);
  EXPECT_EQ(slots(kMovIndexed, "sandy-bridge"), 1u);
  const Bytes kCompareRip = {0x48, 0x83, 0x3D, 0, 0, 0, 0, 1};  // cmp qword [rip], 1
  EXPECT_EQ(slots(kCompareRip, "haswell"), 2u);
  EXPECT_EQ(slots({0x48, 0x83, 0x3E, 0x01}, "haswell"), 1u);
  EXPECT_EQ(slots({0x48, 0x03, 0x05, 0, 0, 0, 0}, "haswell"), 1u);  // add rax, [rip]
}

TEST(Place, DecidesByTheBehaviourItIsGiven) {
  const Bytes kOr = {0x48, 0x09, 0xC8}, kXor = {0x48, 0x31, 0xC8}, kNop = {0x90},
              kCmp = {0x48, 0x39, 0xC8};
  const Bytes kNeg = {0x48, 0xF7, 0xD8}, kAdc = {0x48, 0x11, 0xC8}, kSbb = {0x48, 0x19, 0xC8},
              kShl = {0x48, 0xC1, 0xE0, 0x03};
  auto fused = [](std::initializer_list<Bytes> code, void (*change)(CoreBehaviour&)) {
    std::vector<InstructionFacts> facts = facts_of(code);
    CoreBehaviour behaviour = core_behaviour_of(microarch("sandy-bridge"));
    change(behaviour);
    place(facts, behaviour);
    return bool{facts[0].fused_with_next};
  };
  for (const Bytes& first : {kOr, kXor, kNeg, kAdc, kSbb, kShl}) {
    const bool bitwise = first == kOr || first == kXor;
    EXPECT_EQ(fused({first, kJnz}, [](CoreBehaviour& b) { b.fuses_bitwise = true; }), bitwise);
    EXPECT_EQ(fused({first, kJnz}, [](CoreBehaviour& b) { b.fuses_arithmetic = true; }), !bitwise);
  }
  EXPECT_TRUE(fused({kCmp, kNop, kJnz}, [](CoreBehaviour& b) { b.fuses_apart = true; }));
  EXPECT_FALSE(fused({kCmp, kJnz}, [](CoreBehaviour& b) { b.fusion = {}; }));
}

TEST(Place, APairTakesOneSlotAndCountsTwoInstructions) {
  auto pair = block({{0x48, 0x39, 0xC8}, kJnz});
  arch::SignalCounts counts{};
  for (const auto& f : pair) add_static_counts(f, counts);
  EXPECT_EQ(counts[arch::index(Signal::kInstructions)], 2u);
  EXPECT_EQ(counts[arch::index(Signal::kUops)], 1u);
  EXPECT_EQ(counts[arch::index(Signal::kMacroFused)], 1u);
  EXPECT_EQ(counts[arch::index(Signal::kBranches)], 1u);
  // Something between them keeps them apart, and so does entering at the jump.
  EXPECT_FALSE(block({{0x48, 0x39, 0xC8}, {0x90}, kJnz})[0].fused_with_next);
  EXPECT_EQ(block({kJnz})[0].slots, 1);
}

TEST(Place, ADependentChainTakesItsLatency) {
  const Bytes kImul = {0x48, 0x0F, 0xAF, 0xC0};  // imul rax, rax
  auto chain = block({kImul, kImul, kImul});
  EXPECT_EQ(chain[0].stall, 0);  // nothing in this block produced RAX
  EXPECT_EQ(chain[1].stall + chain[1].slots, 3 * 4);
  auto apart = block({kImul, {0x90}, kImul});
  EXPECT_EQ(apart[2].stall, 0);
  auto zeroed = block({kImul, {0x48, 0x31, 0xC0}});  // xor rax, rax depends on nothing
  EXPECT_EQ(zeroed[1].stall, 0);
  auto chase = block({{0x48, 0x8B, 0x00}});
  EXPECT_EQ(chase[0].stall + chase[0].slots, 4 * 4);
  EXPECT_GT(block({{0x48, 0xF7, 0xF1}})[0].stall, 4 * 80);  // div rcx
}

// What an instruction adds by itself, wherever it stands; the rest depends on what it meets.
TEST(Place, AnInstructionAddsItsOwnEvents) {
  struct Case {
    const char* text;
    Bytes bytes;
    std::map<Signal, uint64_t> counts;
  };
  const Case cases[] = {
      {"nop", {0x90}, {{Signal::kNops, 1}, {Signal::kUops, 1}}},
      {"xor rax, rax", {0x48, 0x31, 0xC0}, {{Signal::kUops, 1}}},
      {"mov rax, [rax]", {0x48, 0x8B, 0x00}, {{Signal::kLoads, 1}, {Signal::kUops, 1}}},
      {"mov [rax], rax", {0x48, 0x89, 0x00}, {{Signal::kStores, 1}, {Signal::kUops, 1}}},
      {"addps xmm0, xmm1", {0x0F, 0x58, 0xC1}, {{Signal::kSimd, 1}, {Signal::kUops, 1}}},
      {"vaddps ymm0, ymm0, ymm1",
       {0xC5, 0xFC, 0x58, 0xC1},
       {{Signal::kSimd, 1}, {Signal::kUops, 1}}},
      {"jnz", kJnz, {{Signal::kBranches, 1}, {Signal::kConditional, 1}, {Signal::kUops, 1}}},
      {"jmp", {0xEB, 0x00}, {{Signal::kBranches, 1}, {Signal::kNearTaken, 1}, {Signal::kUops, 1}}},
      {"jmp rax",
       {0xFF, 0xE0},
       {{Signal::kBranches, 1}, {Signal::kNearTaken, 1}, {Signal::kUops, 1}}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    arch::SignalCounts counts{}, expected{};
    add_static_counts(block({c.bytes})[0], counts);
    expected[arch::index(Signal::kInstructions)] = 1;
    for (const auto& [signal, n] : c.counts) expected[arch::index(signal)] = n;
    EXPECT_EQ(counts, expected);
  }
  auto added = [](const Bytes& bytes, Signal signal) {
    arch::SignalCounts counts{};
    add_static_counts(block({bytes})[0], counts);
    return counts[arch::index(signal)];
  };
  const Bytes kCall = {0xE8, 0, 0, 0, 0}, kCallRax = {0xFF, 0xD0}, kRet = {0xC3};
  for (const Bytes& call : {kCall, kCallRax}) {
    EXPECT_EQ(added(call, Signal::kNearCalls), 1u);
    EXPECT_EQ(added(call, Signal::kNearReturns), 0u);
    EXPECT_EQ(added(call, Signal::kStores), 1u);
    EXPECT_EQ(added(call, Signal::kNearTaken), 1u);
  }
  EXPECT_EQ(added(kRet, Signal::kNearReturns), 1u);
  EXPECT_EQ(added(kRet, Signal::kNearCalls), 0u);
  EXPECT_EQ(added(kRet, Signal::kLoads), 1u);
  EXPECT_EQ(added({0xF0, 0x48, 0x01, 0x06}, Signal::kLockedLoads), 1u);  // lock add [rsi], rax
  EXPECT_EQ(added({0x48, 0x01, 0x06}, Signal::kLockedLoads), 0u);
  EXPECT_EQ(added({0x48, 0x01, 0x06}, Signal::kLoads), 1u);
  EXPECT_EQ(added({0x48, 0x01, 0x06}, Signal::kStores), 1u);
}

// A pair on either side of a border does not fuse; without a border every pair does.
TEST(Place, ABorderKeepsAPairApart) {
  for (const uint32_t border : {0u, 16u, 64u}) {
    for (uint64_t address : {0x0FFBu, 0x100Du, 0x103Du, 0x1005u}) {
      std::vector<InstructionFacts> facts = facts_of({{0x48, 0x39, 0xC8}, kJnz}, address);
      CoreBehaviour behaviour = core_behaviour_of(microarch());
      behaviour.fusion_border = border;
      place(facts, behaviour);
      const bool across = border != 0 && address / border != (address + 3) / border;
      EXPECT_EQ(facts[0].fused_with_next, !across) << std::hex << address << ", " << border;
      EXPECT_EQ(facts[1].fused_with_previous, !across);
      EXPECT_EQ(facts[1].slots, across ? 1 : 0);
      place(facts, core_behaviour_of(microarch()));
      EXPECT_TRUE(facts[0].fused_with_next) << "placed anew";
      behaviour.fusion = {};
      place(facts, behaviour);
      EXPECT_FALSE(facts[0].fused_with_next || facts[1].fused_with_previous) << "placed anew";
    }
  }
}

// A broken CPU, on which a pair costs more where its first ends a cache line. (R70)
TEST(Place, APairOverTwoLinesMayCostMore) {
  const Bytes kCmp = {0x48, 0x39, 0xC8}, kNop = {0x90};
  CoreBehaviour conforming = core_behaviour_of(microarch()), broken = conforming;
  broken.line_end_uops = 2;
  struct Case {
    const char* text;
    std::vector<Bytes> code;
    uint64_t address;
    unsigned slots, more;
  };
  const Case cases[] = {
      {"the first ends its line", {kNop, kCmp, kJnz}, 0x103C, 0, 2},
      {"behind another instruction", {kNop, kNop, kCmp, kJnz}, 0x103B, 0, 2},
      {"within a line", {kNop, kCmp, kJnz}, 0x1000, 0, 0},
      {"the jump ends its line", {kNop, kCmp, kJnz}, 0x103A, 0, 0},
      {"a no-operation ends its line", {kCmp, kNop, kJnz}, 0x103C, 1, 0},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    std::vector<InstructionFacts> facts = facts_of(c.code, c.address);
    const auto code = std::span(facts).subspan(1);  // something else stands before the block
    place(code, conforming);
    EXPECT_EQ(code.back().slots, c.slots);
    place(code, broken);
    EXPECT_EQ(code.back().slots, c.slots + c.more);
    for (const InstructionFacts& f : code.first(code.size() - 1)) EXPECT_EQ(f.slots, 1);
  }
}

// A wait for what the instruction before makes is in whole widths of retirement, and has a bound.
TEST(Place, OnlyTheInstructionBeforeIsWaitedFor) {
  const Bytes kAdd = {0x48, 0x01, 0xC0},
              kAddRcx = {0x48, 0x01, 0xC9};  // add rax, rax; add rcx, rcx
  EXPECT_EQ(block({kAdd, kAdd})[1].stall + 1, 4);
  EXPECT_EQ(block({kAddRcx, kAddRcx})[1].stall + 1, 4);
  EXPECT_EQ(block({kAdd, kAddRcx})[1].stall, 0) << "another register";
  EXPECT_EQ(block({kAddRcx, kAddRcx, kAdd, kAddRcx})[3].stall, 0) << "two before";
  EXPECT_EQ(block({kAdd})[0].stall, 0) << "nothing before";
  std::vector<InstructionFacts> facts = facts_of({kAdd, kAdd});
  place(std::span(facts).subspan(1), microarch());
  EXPECT_EQ(facts[1].stall, 0) << "in another block";
}

// Latencies are cycles, and a width of 0 is taken for 1.
TEST(Place, AWaitIsInCyclesWhateverTheWidth) {
  const Bytes kImul = {0x48, 0x0F, 0xAF, 0xC0};  // imul rax, rax
  for (const uint32_t width : {0u, 1u, 3u, 8u}) {
    CoreBehaviour behaviour = core_behaviour_of(microarch());
    behaviour.caches.retire_width = width;
    std::vector<InstructionFacts> facts = facts_of({kImul, kImul});
    place(facts, behaviour);
    EXPECT_EQ(0u + facts[1].stall + facts[1].slots, facts[1].latency * std::max(1u, width))
        << width;
  }
}

TEST(Place, NoInstructionExceedsTheModelsBounds) {
  for (const Bytes& bytes : {Bytes{0x48, 0xF7, 0xF9},
                             {0xF0, 0x48, 0x0F, 0xC1, 0x06},
                             {0x0F, 0x31},
                             {0x48, 0xF7, 0x3C, 0xCE}}) {
    InstructionFacts f = block({bytes})[0];
    EXPECT_LE(f.slots, max_per_instruction(Signal::kUops));
    EXPECT_LE(f.loads, max_per_instruction(Signal::kLoads));
    EXPECT_LE(f.stall, 128 * 4);
  }
  CoreBehaviour slow = core_behaviour_of(microarch());
  slow.caches.l1_latency = 5000;
  std::vector<InstructionFacts> chase = facts_of({{0x48, 0x8B, 0x00}});
  place(chase, slow);
  EXPECT_LE(chase[0].stall, 128 * 4);
}

TEST(Place, AFusedPairOfABrokenCoreTakesLonger) {
  CoreBehaviour slow = core_behaviour_of(microarch());
  std::vector<InstructionFacts> sound = facts_of({{0x48, 0x39, 0xC8}, kJnz});  // cmp rax, rcx
  std::vector<InstructionFacts> broken = sound;
  place(sound, slow);
  slow.fused_stall = 2;
  place(broken, slow);
  ASSERT_TRUE(broken[1].fused_with_previous);
  EXPECT_EQ(broken[1].stall, sound[1].stall + 2 * slow.caches.retire_width);
  EXPECT_EQ(broken[0].stall, sound[0].stall);
}

TEST(Decode, KnowsWhatErrataMistake) {
  const auto special = [](std::vector<uint8_t> bytes) {
    return decode(std::as_bytes(std::span(bytes)), 0x1000)->facts.special;
  };
  EXPECT_EQ(special({0x0F, 0xA2}), Special::kCpuid);
  EXPECT_EQ(special({0x0F, 0xAE, 0xF0}), Special::kMfence);
  EXPECT_EQ(special({0x0F, 0x30}), Special::kWrmsr);
  EXPECT_EQ(special({0xFB}), Special::kShadow) << "STI";
  EXPECT_EQ(special({0x8E, 0xD1}), Special::kShadow) << "MOV SS, ECX";
  EXPECT_EQ(special({0x8C, 0xD1}), Special::kNone) << "MOV ECX, SS";
  EXPECT_EQ(special({0x8E, 0xD9}), Special::kNone) << "MOV DS, ECX";
  EXPECT_EQ(special({0x0F, 0xAE, 0xE8}), Special::kNone) << "LFENCE";
}

}  // namespace
}  // namespace skidproof::model
