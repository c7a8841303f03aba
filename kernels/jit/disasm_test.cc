// The static list: bytes to flow, memory operations, and the Sandy Bridge macro-fusion rules.
#include "kernels/jit/disasm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/jit/emitter.h"

namespace skidproof {
namespace {

using ::testing::HasSubstr;

std::vector<Decoded> assemble(const std::function<void(Emitter&)>& write) {
  Emitter e({.code_address = 0x1000});
  write(e);
  auto code = e.finish();
  EXPECT_TRUE(code) << code.error().text();
  return *disassemble(*code, 0x1000);
}

struct MemoryRow {
  const char* text;
  void (*write)(Emitter&);
  bool loads, stores;
};

const MemoryRow kMemoryRows[] = {
    {"mov rax, qword ptr [rsi]", [](Emitter& e) { e.mov(x86::rax, data_at(0)); }, true, false},
    {"mov qword ptr [rsi], rax", [](Emitter& e) { e.mov(data_at(0), x86::rax); }, false, true},
    {"add qword ptr [rsi], rax", [](Emitter& e) { e.add(data_at(0), x86::rax); }, true, true},
    {"cmp qword ptr [rsi], rax", [](Emitter& e) { e.cmp(data_at(0), x86::rax); }, true, false},
    {"test qword ptr [rsi], rax", [](Emitter& e) { e.test(data_at(0), x86::rax); }, true, false},
    {"inc qword ptr [rsi]", [](Emitter& e) { e.inc(data_at(0)); }, true, true},
    {"lock xadd qword ptr [rsi], rax", [](Emitter& e) { e.lock().xadd(data_at(0), x86::rax); },
     true, true},
    {"lea rax, [rsi+0x08]", [](Emitter& e) { e.lea(x86::rax, data_at(8)); }, false, false},
    {"push rax", [](Emitter& e) { e.push(x86::rax); }, false, true},
    {"pop rax", [](Emitter& e) { e.pop(x86::rax); }, true, false},
    {"ret", [](Emitter& e) { e.ret(); }, true, false},
    {"call", [](Emitter& e) { e.call(0x1000); }, false, true},
    {"movntps xmmword ptr [rsi], xmm0", [](Emitter& e) { e.movntps(data_at(0, 16), x86::xmm0); },
     false, true},
    {"vmovups ymm0, ymmword ptr [rsi]", [](Emitter& e) { e.vmovups(x86::ymm0, data_at(0, 32)); },
     true, false},
    {"nop", [](Emitter& e) { e.nop(); }, false, false},
};

TEST(Disassemble, CountsMemoryOperationsOfTheStackToo) {
  for (const MemoryRow& row : kMemoryRows) {
    std::vector<Decoded> list = assemble(row.write);
    ASSERT_EQ(list.size(), 1u) << row.text;
    EXPECT_THAT(list[0].instruction.text, HasSubstr(row.text));
    EXPECT_EQ(list[0].instruction.loads, row.loads) << row.text;
    EXPECT_EQ(list[0].instruction.stores, row.stores) << row.text;
  }
}

TEST(Disassemble, ANopWithAMemoryOperandTouchesNoMemory) {
  const std::byte code[] = {std::byte{0x0F}, std::byte{0x1F}, std::byte{0x40}, std::byte{0x00}};
  std::vector<Decoded> list = *disassemble(code, 0);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_FALSE(list[0].instruction.loads);
}

TEST(Disassemble, FollowsFlowAndTargets) {
  std::vector<Decoded> list = assemble([](Emitter& e) {
    asmjit::Label top = e.newLabel();
    e.bind(top);
    e.jnz(top);
    e.jmp(top);
    e.call(top);
    e.ret();
    e.jmp(x86::rax);
  });
  ASSERT_EQ(list.size(), 5u);
  const Flow flows[] = {Flow::kConditional, Flow::kJump, Flow::kCall, Flow::kReturn, Flow::kJump};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(list[i].instruction.flow, flows[i]);
    EXPECT_EQ(list[i].instruction.target, i < 3 ? 0x1000u : 0u);
  }
  EXPECT_EQ(list[1].instruction.address, list[0].instruction.end());
}

TEST(Disassemble, NamesBytesThatAreNoInstruction) {
  const std::byte code[] = {std::byte{0x90},
                            std::byte{0x06}};  // PUSH ES does not exist in 64-bit mode
  auto list = disassemble(code, 0x4000);
  ASSERT_FALSE(list);
  EXPECT_THAT(list.error().message, HasSubstr("0x4001: 06"));
}

TEST(Disassemble, KnowsWhichRegistersAreWritten) {
  std::vector<Decoded> list = assemble([](Emitter& e) {
    e.mov(x86::ah, 1);
    e.div(x86::r8);
    e.cmp(x86::rax, x86::rbx);
    e.xadd(x86::r9, x86::r10);
    e.movups(x86::xmm1, data_at(0, 16));
  });
  EXPECT_EQ(list[0].written, gpr_bit(0));
  EXPECT_EQ(list[1].written, gpr_bit(0) | gpr_bit(2));
  EXPECT_EQ(list[2].written, 0);
  EXPECT_EQ(list[3].written, gpr_bit(9) | gpr_bit(10));
  EXPECT_EQ(list[4].written, 0);
}

// R67 and R69, written out again from the text: one row a first, one column a condition code 0 … 15
// (o no b ae e ne be a s ns p np l ge le g).
struct FusionRow {
  const char* first;
  void (*write)(Emitter&);
  const char* fuses;
};

const FusionRow kFusionRows[] = {
    {"cmp", [](Emitter& e) { e.cmp(x86::rax, x86::rcx); }, "--++++++----++++"},
    {"test", [](Emitter& e) { e.test(x86::rax, x86::rcx); }, "++++++++++++++++"},
    {"and", [](Emitter& e) { e.and_(x86::rax, x86::rcx); }, "++++++++++++++++"},
    {"add", [](Emitter& e) { e.add(x86::rax, x86::rcx); }, "--++++++----++++"},
    {"sub", [](Emitter& e) { e.sub(x86::rax, 1); }, "--++++++----++++"},
    {"inc", [](Emitter& e) { e.inc(x86::rax); }, "----++------++++"},
    {"dec", [](Emitter& e) { e.dec(x86::rax); }, "----++------++++"},
    {"or", [](Emitter& e) { e.or_(x86::rax, x86::rcx); }, "----------------"},
    {"xor", [](Emitter& e) { e.xor_(x86::rax, x86::rcx); }, "----------------"},
    {"neg", [](Emitter& e) { e.neg(x86::rax); }, "----------------"},
    {"sbb", [](Emitter& e) { e.sbb(x86::rax, x86::rcx); }, "----------------"},
    {"shl", [](Emitter& e) { e.shl(x86::rax, 1); }, "----------------"},
    {"cmp imm", [](Emitter& e) { e.cmp(x86::rax, 1000); }, "--++++++----++++"},
    {"cmp reg, mem", [](Emitter& e) { e.cmp(x86::rax, data_at(0)); }, "--++++++----++++"},
    {"cmp mem, reg", [](Emitter& e) { e.cmp(data_at(0), x86::rax); }, "--++++++----++++"},
    {"test mem, reg", [](Emitter& e) { e.test(data_at(0), x86::rax); }, "++++++++++++++++"},
    {"and reg, mem", [](Emitter& e) { e.and_(x86::rax, data_at(0)); }, "++++++++++++++++"},
    {"cmp mem, imm", [](Emitter& e) { e.cmp(data_at(0), 1); }, "----------------"},
    {"test mem, imm", [](Emitter& e) { e.test(data_at(0), 1); }, "----------------"},
    {"add mem, reg", [](Emitter& e) { e.add(data_at(0), x86::rax); }, "----------------"},
    {"inc mem", [](Emitter& e) { e.inc(data_at(0)); }, "----------------"},
};

TEST(Fusion, FollowsTheSandyBridgeRules) {
  for (const FusionRow& row : kFusionRows) {
    for (unsigned condition = 0; condition < 16; ++condition) {
      std::vector<Decoded> list = assemble([&](Emitter& e) {
        asmjit::Label target = e.newLabel();
        row.write(e);
        e.j(static_cast<x86::CondCode>(condition), target);
        e.bind(target);
      });
      ASSERT_EQ(list.size(), 2u);
      EXPECT_EQ(list[0].instruction.fuses_with_next, row.fuses[condition] == '+')
          << row.first << " with " << list[1].instruction.text;
    }
  }
}

TEST(Fusion, NeedsAdjacencyAndAConditionalJump) {
  std::vector<Decoded> list = assemble([](Emitter& e) {
    asmjit::Label target = e.newLabel();
    e.cmp(x86::rax, x86::rcx);
    e.nop();
    e.je(target);
    e.cmp(x86::rax, x86::rcx);
    e.jmp(target);
    e.test(x86::rax, x86::rax);
    e.bind(target);
    e.ret();
  });
  for (const Decoded& decoded : list) EXPECT_FALSE(decoded.instruction.fuses_with_next);
}

TEST(Listing, ShowsIdentityCountsMarksAndFlags) {
  const Kernel& kernel = **find_kernel("pointer_chase");
  Program program = *generate(kernel, *Params::parse(kernel.parameters, ""),
                              {.code_address = 0x1000, .data_address = 0x2000});
  std::string text = listing(program);
  EXPECT_THAT(text, HasSubstr("; pointer_chase(bytes=32768,granularity=64"));
  EXPECT_THAT(text, HasSubstr("; each iteration: 3 instructions, 1 loads, 0 stores, 1 taken"));
  EXPECT_THAT(text, HasSubstr("load:\nloop.first:\n"));
  EXPECT_THAT(text, HasSubstr("  L    mov rax, qword ptr [rax]"));
  EXPECT_THAT(text, HasSubstr("  F    sub rdi, 0x01"));
}

}  // namespace
}  // namespace skidproof
