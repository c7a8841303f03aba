// The register of kernels and their parameters: what is accepted, and what a mistake is told.
#include "kernels/kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/jit/emitter.h"

namespace skidproof {
namespace {

using ::testing::HasSubstr;

const std::vector<Parameter> kDeclared = {
    {.name = "size", .brief = "a number", .fallback = 8, .low = 1, .high = 1 << 20},
    {.name = "mode", .brief = "a word", .fallback = 1, .words = {"slow", "fast"}}};

TEST(Params, TakesDefaultsForWhatIsNotGiven) {
  auto params = Params::parse(kDeclared, "");
  ASSERT_TRUE(params);
  EXPECT_EQ((*params)["size"], 8u);
  EXPECT_EQ(params->word("mode"), "fast");
  EXPECT_EQ(params->text(), "size=8,mode=fast");
}

TEST(Params, ReadsNumbersInDecimalHexadecimalAndPowersOf1024) {
  EXPECT_EQ((*Params::parse(kDeclared, "size=77"))["size"], 77u);
  EXPECT_EQ((*Params::parse(kDeclared, "size=0x1f"))["size"], 0x1Fu);
  EXPECT_EQ((*Params::parse(kDeclared, "size=4K"))["size"], 4096u);
  EXPECT_EQ((*Params::parse(kDeclared, "size=1M"))["size"], 1u << 20);
}

TEST(Params, TextParsesBackToTheSame) {
  auto params = Params::parse(kDeclared, "mode=slow,size=4K");
  ASSERT_TRUE(params);
  EXPECT_EQ(Params::parse(kDeclared, params->text())->text(), params->text());
}

TEST(Params, RefusesUnknownNamesAndSaysWhichThereAre) {
  auto params = Params::parse(kDeclared, "sise=3");
  ASSERT_FALSE(params);
  EXPECT_EQ(params.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(params.error().text(), HasSubstr("'sise'"));
  EXPECT_THAT(params.error().text(), HasSubstr("size (1…1048576), mode (slow|fast)"));
}

TEST(Params, RefusesValuesOutOfRange) {
  for (const char* text :
       {"size=0", "size=2M", "size=", "size=x", "size=-1", "size=99999999999999999999",
        "size=18446744073709551615K", "mode=1", "mode="}) {
    auto params = Params::parse(kDeclared, text);
    ASSERT_FALSE(params) << text;
    EXPECT_THAT(params.error().message, HasSubstr("is not a value of parameter")) << text;
  }
}

TEST(Params, RefusesANameWithoutAValueAndAValueGivenTwice) {
  EXPECT_THAT(Params::parse(kDeclared, "size").error().message, HasSubstr("has no value"));
  EXPECT_THAT(Params::parse(kDeclared, "size=1,size=2").error().message, HasSubstr("given twice"));
}

TEST(ParamsDeathTest, AnUndeclaredNameIsTheAuthorsMistake) {
  Params params = *Params::parse(kDeclared, "");
  EXPECT_DEATH((void)params["depth"], "'depth' is not declared");
}

TEST(Registry, HoldsEveryKernelWithABriefAndDescribedParameters) {
  for (const char* name :
       {"alu_chain", "branch_pattern", "branch_stream", "call_return", "division_shadow", "empty",
        "fused_branch", "load_stream", "locked_rmw", "mixed", "nop_sled", "pointer_chase",
        "sparse_event", "split_access", "store_stream", "straight_line"}) {
    EXPECT_TRUE(kernels().contains(name)) << name;
  }
  for (const auto& [name, kernel] : kernels()) {
    EXPECT_EQ(kernel.name, name);
    EXPECT_FALSE(kernel.brief.empty()) << name;
    for (const Parameter& parameter : kernel.parameters) {
      EXPECT_FALSE(parameter.brief.empty()) << name << " " << parameter.name;
    }
  }
}

TEST(Registry, AnUnknownNameIsToldTheNearOnes) {
  EXPECT_THAT(find_kernel("pointer_chaze").error().text(),
              HasSubstr("did you mean pointer_chase?"));
  EXPECT_THAT(find_kernel("stream").error().text(),
              AllOf(HasSubstr("load_stream"), HasSubstr("store_stream")));
  EXPECT_THAT(find_kernel("qqqqqqqqqqqqq").error().text(),
              HasSubstr("the kernels are alu_chain, "));
}

TEST(Isa, EveryWordHasANameAndTheBaselineIsAlwaysThere) {
  EXPECT_TRUE(host_supports(Isa::kBaseline));
  EXPECT_STREQ(name_of(Isa::kAvx), "AVX");
  // No CPU has AVX2 without AVX.
  EXPECT_TRUE(!host_supports(Isa::kAvx2) || host_supports(Isa::kAvx));
}

TEST(PrepareData, RefusesAnArenaThatIsTooSmallAndClearsWhatWasThere) {
  const Kernel& kernel = **find_kernel("locked_rmw");
  Params params = *Params::parse(kernel.parameters, "unroll=2");
  Program program = *generate(kernel, params, {.code_address = 0x1000, .data_address = 0x2000});
  ASSERT_EQ(program.data_bytes, 128u);
  std::vector<std::byte> arena(129, std::byte{0xAA});
  EXPECT_EQ(prepare_data(kernel, params, program, std::span(arena).first(127), 1).error().code,
            ErrorCode::kInvalidArgument);
  ASSERT_TRUE(prepare_data(kernel, params, program, arena, 1));
  EXPECT_EQ(arena[127], std::byte{0});
  EXPECT_EQ(arena[128], std::byte{0xAA});
}

// generate() must refuse, not repair.
Kernel broken(void (*body)(Emitter&, const Params&),
              Expectations expectations = {.instructions = 1}) {
  static Expectations declared;
  declared = expectations;
  Kernel kernel;
  kernel.name = "broken";
  kernel.per_iteration = [](const Params&) { return declared; };
  kernel.body = body;
  return kernel;
}

std::string refusal(const Kernel& kernel, Placement placement = {.code_address = 0x1000}) {
  auto program = generate(kernel, {}, placement);
  return program ? "" : program.error().text();
}

TEST(Generate, RefusesAnInstructionThatTheAssemblerRejectsAndNamesIt) {
  std::string text = refusal(
      broken([](Emitter& e, const Params&) { e.emit(x86::Inst::kIdImul, x86::rax, x86::xmm1); }));
  EXPECT_THAT(text, HasSubstr("kernel broken()"));
  EXPECT_THAT(text, HasSubstr("imul rax, xmm1"));
}

TEST(Generate, RefusesAJumpToALabelThatIsNowhere) {
  EXPECT_NE(refusal(broken([](Emitter& e, const Params&) { e.jmp(e.newLabel()); })), "");
}

TEST(Generate, RefusesAShortJumpThatDoesNotReach) {
  EXPECT_NE(refusal(broken([](Emitter& e, const Params&) {
              asmjit::Label far = e.newLabel();
              e.short_().jmp(far);
              for (int i = 0; i < 200; ++i) e.nop();
              e.bind(far);
            })),
            "");
}

TEST(Generate, RefusesAMarkThatIsSetTwiceOrNamesNothing) {
  EXPECT_THAT(refusal(broken([](Emitter& e, const Params&) {
                e.mark("here");
                e.mark("here");
                e.nop();
              })),
              HasSubstr("'here' is set twice"));
  EXPECT_THAT(refusal(broken([](Emitter& e, const Params&) {
                e.alias("event", "nowhere");
                e.nop();
              })),
              HasSubstr("'event' cannot be another name of 'nowhere'"));
}

TEST(Generate, RefusesCodeThatContradictsItsExpectations) {
  auto body = [](Emitter& e, const Params&) { e.mov(x86::rax, data_at(0)); };
  EXPECT_THAT(refusal(broken(body)), HasSubstr("declares 1 instructions, 0 loads"));
  EXPECT_THAT(refusal(broken(body)), HasSubstr("its code has 1 instructions, 1 loads"));
  EXPECT_EQ(refusal(broken(body, {.instructions = 1, .loads = 1})), "");
  EXPECT_NE(refusal(broken(body, {.instructions = 1, .loads = 1, .stores = 1})), "");
  EXPECT_NE(refusal(broken(body, {.instructions = 1, .loads = 1, .branches_taken = 1})), "");
  EXPECT_NE(refusal(broken(body, {.instructions = 1, .loads = 1, .fusible_pairs = 1})), "");
}

TEST(Generate, RefusesToWriteTheCallersAndTheLoopsRegisters) {
  for (auto body : {+[](Emitter&e, const Params&) { e.inc(x86::rbx); },
                    +[](Emitter&e, const Params&) { e.inc(x86::r15); },
                    +[](Emitter&e, const Params&) { e.mov(x86::bpl, 1); },
                    +[](Emitter&e, const Params&) { e.add(x86::rsp, 8); },
                    +[](Emitter&e, const Params&) { e.inc(kCounter); },
                    +[](Emitter&e, const Params&) { e.inc(kData); }}) {
    EXPECT_THAT(refusal(broken(body)), HasSubstr("a register that is not the kernel's"));
  }
}

TEST(Generate, RefusesRegistersOfOthersInFunctionsToo) {
  EXPECT_THAT(refusal(broken([](Emitter& e, const Params&) {
                asmjit::Label f = e.newLabel();
                e.call(f);
                e.after_return([&e, f] {
                  e.bind(f);
                  e.inc(x86::r12);
                  e.ret();
                });
              })),
              HasSubstr("'inc r12'"));
}

TEST(Generate, RefusesABranchInSetup) {
  Kernel kernel = broken([](Emitter& e, const Params&) { e.nop(); });
  kernel.setup = [](Emitter& e, const Params&) {
    asmjit::Label next = e.newLabel();
    e.jmp(next);
    e.bind(next);
  };
  EXPECT_THAT(refusal(kernel), HasSubstr("setup contains a branch"));
}

TEST(Generate, RefusesAddressesThatAreNotAligned) {
  Kernel kernel = broken([](Emitter& e, const Params&) { e.nop(); });
  EXPECT_THAT(refusal(kernel, {.code_address = 0x1010}), HasSubstr("multiple of 64"));
  kernel.data_bytes = [](const Params&) -> size_t { return 8; };
  EXPECT_THAT(refusal(kernel, {.code_address = 0x1000, .data_address = 0x40}),
              HasSubstr("multiple of 4096"));
}

TEST(Generate, GivesTheSameBytesForTheSameInput) {
  const Kernel& kernel = **find_kernel("straight_line");
  Params params = *Params::parse(kernel.parameters, "instructions=500");
  const Placement placement{.code_address = 0x40000, .data_address = 0x80000, .seed = 9};
  Program one = *generate(kernel, params, placement);
  EXPECT_EQ(one.code, generate(kernel, params, placement)->code);
  Placement other = placement;
  other.seed = 10;
  EXPECT_NE(one.code, generate(kernel, params, other)->code);
}

TEST(Generate, PlacesTheLoopOnACacheLineAndMarksIt) {
  const Kernel& kernel = **find_kernel("nop_sled");
  Program program =
      *generate(kernel, *Params::parse(kernel.parameters, ""), {.code_address = 0x7F0040});
  EXPECT_EQ(program.mark("entry"), 0x7F0040u);
  EXPECT_EQ(program.entry, program.mark("entry"));
  EXPECT_EQ(program.mark("loop.first") % 64, 0u);
  EXPECT_EQ(program.mark("nop"), program.mark("loop.first"));
  const Instruction* jump = program.at(program.mark("loop.jnz"));
  ASSERT_NE(jump, nullptr);
  EXPECT_EQ(jump->target, program.mark("loop.first"));
  EXPECT_EQ(program.at(program.mark("return"))->flow, Flow::kReturn);
}

// ---- 32-bit mode.

constexpr Placement kLow{
    .code_address = 0x80000000, .data_address = 0x90000000, .mode = Mode::kProtected32};

TEST(Generate32, MakesEveryKernelThatDoesNotSayOtherwise) {
  size_t made = 0;
  for (const auto& [name, kernel] : kernels()) {
    auto program = generate(kernel, *Params::parse(kernel.parameters, ""), kLow);
    if (kernel.long_mode_only) {
      ASSERT_FALSE(program) << name;
      EXPECT_EQ(program.error().code, ErrorCode::kUnsupported) << name;
      EXPECT_THAT(program.error().text(), HasSubstr("32-bit protected mode"));
      continue;
    }
    ASSERT_TRUE(program) << name << ": " << program.error().text();
    EXPECT_EQ(program->mode, Mode::kProtected32);
    EXPECT_EQ(program->at(program->mark("return"))->text, "ret");
    for (const Instruction& i : program->instructions) {
      EXPECT_EQ(i.text.find("qword ptr [r"), std::string::npos) << name << ": " << i.text;
      EXPECT_EQ(i.text.find("rax"), std::string::npos) << name << ": " << i.text;
    }
    ++made;
  }
  EXPECT_GE(made, 10u);
}

TEST(Generate32, NarrowsRegistersAddressesAndAccesses) {
  Kernel kernel = broken(
      [](Emitter& e, const Params&) {
        e.mov(x86::rax, data_at(8));
        e.movups(x86::xmm0, data_at(x86::rcx, 16, 16));
        e.cmp(data_at(24), 1);
        e.inc(x86::rdx);
      },
      {.instructions = 4, .loads = 3});
  auto program = generate(kernel, {}, kLow);
  ASSERT_TRUE(program) << program.error().text();
  const Instruction* i = program->at(program->mark("loop.first"));
  EXPECT_EQ(i[0].text, "mov eax, dword ptr [esi+0x08]");
  EXPECT_EQ(i[1].text, "movups xmm0, xmmword ptr [esi+ecx*1+0x10]");
  EXPECT_EQ(i[2].text, "cmp dword ptr [esi+0x18], 0x01");
  EXPECT_EQ(i[3].text, "inc edx");
  EXPECT_EQ(i[3].length, 1u);
}

TEST(Generate32, RefusesWhatDoesNotExistThere) {
  EXPECT_THAT(refusal(broken([](Emitter& e, const Params&) { e.inc(x86::r9); }), kLow),
              HasSubstr("there is no r9"));
  EXPECT_THAT(
      refusal(broken([](Emitter& e, const Params&) { e.mov(x86::rax, x86::ptr(kData, x86::r10)); }),
              kLow),
      HasSubstr("there is no r10"));
  EXPECT_THAT(
      refusal(broken([](Emitter& e, const Params&) { e.mov(x86::rax, uint64_t{1} << 40); }), kLow),
      HasSubstr("does not fit 32 bits"));
  EXPECT_EQ(refusal(broken([](Emitter& e, const Params&) {
                      e.mov(x86::rax, e.native(uint64_t{1} << 40 | 7));
                    }),
                    kLow),
            "");
}

TEST(Generate32, RefusesAddressesFrom4GiBOnAndRealMode) {
  Kernel kernel = broken([](Emitter& e, const Params&) { e.nop(); });
  EXPECT_THAT(refusal(kernel, {.code_address = uint64_t{1} << 32, .mode = Mode::kProtected32}),
              HasSubstr("not below 4 GiB"));
  EXPECT_THAT(refusal(kernel, {.code_address = 0x1000, .mode = Mode::kReal}),
              HasSubstr("no code for real-address mode"));
}

TEST(Kernels, RefuseCombinationsThatHaveNoMeaning) {
  struct Row {
    const char* kernel;
    const char* parameters;
    const char* reason;
  };
  for (const Row& row :
       {Row{"pointer_chase", "granularity=12", "multiple of 8"},
        Row{"pointer_chase", "bytes=64,granularity=128", "less than granularity"},
        Row{"load_stream", "window=96", "power of two"},
        Row{"store_stream", "window=96", "power of two"},
        Row{"store_stream", "width=16,kind=nontemporal,stride=8", "multiple of width"},
        Row{"branch_pattern", "length=3", "odd"},
        Row{"fused_branch", "first=inc,form=reg_imm", "no immediate"},
        Row{"fused_branch", "spacing=2,filler=mov_test", "two bytes"},
        Row{"fused_branch", "first=test,condition=o", "jo"},
        Row{"fused_branch", "first=dec,condition=b", "jb"},
        Row{"fused_branch", "first=and,condition=ae,taken=0", "jae"}}) {
    const Kernel& kernel = **find_kernel(row.kernel);
    auto program = generate(kernel, *Params::parse(kernel.parameters, row.parameters),
                            {.code_address = 0x1000, .data_address = 0x2000});
    ASSERT_FALSE(program) << row.kernel << " " << row.parameters;
    EXPECT_EQ(program.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(program.error().text(), HasSubstr(row.reason)) << row.kernel;
  }
}

}  // namespace
}  // namespace skidproof
