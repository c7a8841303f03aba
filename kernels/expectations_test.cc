// Every kernel's expectations against what the CPU in front of us really executes, under the trap
// flag.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <set>

#include "kernels/kernel.h"
#include "kernels/testing/single_step.h"

namespace skidproof {
namespace {

struct Case {
  std::string kernel;
  std::string parameters;
};

std::string joined(const Case& c) { return c.kernel + "(" + c.parameters + ")"; }
void PrintTo(const Case& c, std::ostream* out) { *out << joined(c); }

const char* missing_isa(const Program& program) {
  for (Isa isa : program.needs) {
    if (!host_supports(isa)) return name_of(isa);
  }
  return nullptr;
}

// A program in memory of its own, ready to run.
struct Ready {
  NativeArena arena;
  Program program;
  const Kernel* kernel = nullptr;
  Params params;

  Expected<void> prepare(uint64_t seed) const {
    return prepare_data(*kernel, params, program, arena.data(), seed);
  }
};

Expected<Ready> make_ready(const Case& c, uint64_t seed = 1) {
  Ready ready;
  ready.kernel = SKIDPROOF_TRY(find_kernel(c.kernel));
  ready.params = SKIDPROOF_TRY(Params::parse(ready.kernel->parameters, c.parameters));
  size_t data = ready.kernel->data_bytes == nullptr ? 0 : ready.kernel->data_bytes(ready.params);
  ready.arena = SKIDPROOF_TRY(NativeArena::create(1 << 20, data));
  ready.program = SKIDPROOF_TRY(generate(*ready.kernel, ready.params,
                                         {.code_address = ready.arena.code_address(),
                                          .data_address = ready.arena.data_address(),
                                          .seed = seed}));
  SKIDPROOF_CHECK(ready.arena.load(ready.program));
  SKIDPROOF_CHECK(ready.prepare(seed));
  return ready;
}

// No trap comes behind MOV SS, and with some hypervisors none behind CPUID, which they execute for the guest.
bool may_lack_trap(const Instruction& instruction) {
  return instruction.text.starts_with("mov ss") || instruction.text.starts_with("cpuid");
}

// Counts what was executed, from each instruction's flags and the way that each jump really went.
class Counter {
 public:
  explicit Counter(const Program& program) : program_(program) {}

  void operator()(const Step& step) {
    // The trap comes after each repetition of a string instruction.
    if (last_ != nullptr && step.rip == last_->address && last_->text.starts_with("rep")) return;
    // The next instruction went with it.
    while (last_ != nullptr && may_lack_trap(*last_) && step.rip != last_->end()) {
      last_ = program_.at(last_->end());
      if (last_ != nullptr) count();
    }
    if (last_ != nullptr) count_branch(step.rip);
    last_ = program_.at(step.rip);
    if (last_ == nullptr) {
      unknown_ = step.rip;
      return;
    }
    count();
  }
  void finish() {
    if (last_ != nullptr) count_branch(0);  // the final RET
  }
  uint64_t unknown() const { return unknown_; }

  Expectations counts;

 private:
  void count() {
    counts += {.instructions = 1,
               .loads = last_->loads ? 1u : 0u,
               .stores = last_->stores ? 1u : 0u,
               .fusible_pairs = last_->fuses_with_next ? 1u : 0u};
  }
  void count_branch(uint64_t next) {
    if (last_->flow == Flow::kNone) return;
    bool falls = last_->flow == Flow::kConditional && next == last_->end();
    falls ? ++counts.branches_not_taken : ++counts.branches_taken;
  }

  const Program& program_;
  const Instruction* last_ = nullptr;
  uint64_t unknown_ = 0;
};

std::string text(const Expectations& e) {
  return fmt::format("{} instructions, {} loads, {} stores, {} taken, {} not taken, {} fusible",
                     e.instructions, e.loads, e.stores, e.branches_taken, e.branches_not_taken,
                     e.fusible_pairs);
}

// A repeated string instruction traps behind each of its steps.
constexpr uint64_t kRepeated = 100'000;

// One run of n iterations counted; reports every contradiction.
void expect_exact(const Ready& ready, uint64_t iterations) {
  SCOPED_TRACE(fmt::format("{} iterations of {}", iterations, ready.program.id()));
  ASSERT_TRUE(ready.prepare(1));
  Counter counter(ready.program);
  Expectations wanted = ready.program.total(iterations);
  auto result = single_step(ready.program, iterations, wanted.instructions + kRepeated,
                            [&](const Step& step) { counter(step); });
  ASSERT_TRUE(result) << result.error().text();
  counter.finish();
  EXPECT_EQ(counter.unknown(), 0u) << "executed an address that is not in the static list";
  EXPECT_EQ(counter.counts, wanted)
      << "  executed " << text(counter.counts) << "\n  expected " << text(wanted);
}

class KernelCase : public ::testing::TestWithParam<Case> {};

TEST_P(KernelCase, TotalIsExactForEveryNumberOfIterations) {
  auto ready = make_ready(GetParam());
  ASSERT_TRUE(ready) << ready.error().text();
  if (const char* isa = missing_isa(ready->program)) GTEST_SKIP() << "this CPU has no " << isa;
  for (uint64_t iterations : {0, 1, 2, 7}) expect_exact(*ready, iterations);
}

TEST_P(KernelCase, KeepsTheCallersRegistersAndTheStack) {
  auto ready = make_ready(GetParam());
  ASSERT_TRUE(ready) << ready.error().text();
  if (const char* isa = missing_isa(ready->program)) GTEST_SKIP() << "this CPU has no " << isa;
  Step first;
  Step last;
  uint64_t steps = 0;
  auto result = single_step(ready->program, 3, 1 << 20, [&](const Step& step) {
    if (steps++ == 0) first = step;
    last = step;
  });
  ASSERT_TRUE(result) << result.error().text();
  EXPECT_EQ(first.rip, ready->program.entry);
  EXPECT_EQ(last.rip, ready->program.mark("return"));
  for (unsigned gpr : {3u, 4u, 5u, 6u, 12u, 13u, 14u, 15u})
    EXPECT_EQ(first.gpr[gpr], last.gpr[gpr]) << gpr;
}

TEST_P(KernelCase, RunsTheSameAtFullSpeed) {
  auto ready = make_ready(GetParam());
  ASSERT_TRUE(ready) << ready.error().text();
  if (const char* isa = missing_isa(ready->program)) GTEST_SKIP() << "this CPU has no " << isa;
  auto stepped = single_step(ready->program, 5, 1 << 20, [](const Step&) {});
  ASSERT_TRUE(stepped) << stepped.error().text();
  std::vector<std::byte> after(ready->arena.data().begin(), ready->arena.data().end());
  ASSERT_TRUE(ready->prepare(1));
  EXPECT_EQ(call_native(ready->program, 5), *stepped);
  EXPECT_TRUE(std::equal(after.begin(), after.end(), ready->arena.data().begin()));
}

TEST_P(KernelCase, EveryMarkIsAnInstruction) {
  auto ready = make_ready(GetParam());
  ASSERT_TRUE(ready) << ready.error().text();
  for (const auto& [name, address] : ready->program.marks) {
    EXPECT_NE(ready->program.at(address), nullptr) << name;
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> out;
  for (const auto& [name, kernel] : kernels()) out.push_back({name, ""});
  const Case more[] = {
      {"pointer_chase", "bytes=4K,order=forward,unroll=4"},
      {"pointer_chase", "bytes=64K,granularity=4K,flush=1,unroll=3"},
      {"pointer_chase", "bytes=64K,granularity=4K,stagger=1,order=backward"},
      {"pointer_chase", "bytes=64,granularity=64,unroll=256"},
      {"pointer_chase", "bytes=1000,granularity=40"},
      {"pointer_chase", "bytes=64K,granularity=4K,shift=128"},
      {"pointer_chase", "bytes=512K,granularity=4K,stagger=2"},
      {"load_stream", "width=16,stride=16,unroll=1"},
      {"load_stream", "width=32,stride=32,unroll=8,window=128"},
      {"load_stream", "width=8,stride=7,unroll=64,window=64"},
      {"store_stream", "width=16,stride=16,window=64"},
      {"store_stream", "width=32,unroll=3"},
      {"store_stream", "width=8,kind=nontemporal,stride=8"},
      {"memory_stream", "kind=store,width=16,window=1K,unroll=16"},
      {"memory_stream", "kind=store-nontemporal,width=32,window=768,unroll=8"},
      {"memory_stream", "kind=copy,width=64,window=8K"},
      {"memory_stream", "kind=copy-nontemporal,width=8,window=192,unroll=3"},
      {"memory_stream", "kind=load,width=8,stride=64,window=4K,unroll=16"},
      {"memory_stream", "kind=copy,width=16,window=8K,unroll=2,streams=8"},
      {"store_stream", "width=16,kind=nontemporal,stride=16"},
      {"store_stream", "width=32,kind=nontemporal,stride=32,unroll=64"},
      {"fused_branch", "pairs=17,first=cmp,condition=l,form=mem_reg"},
      {"fused_branch", "pairs=3,first=cmp,taken=0,spacing=5"},
      {"branch_pattern", "pattern=never,length=10"},
      {"branch_pattern", "pattern=alternating,length=34"},
      {"branch_pattern", "pattern=random,length=200"},
      {"branch_stream", "trips=1"},
      {"branch_stream", "trips=17"},
      {"call_return", "depth=7"},
      {"call_return", "depth=256"},
      {"call_return", "depth=9,spacing=32"},
      {"alu_chain", "operation=imul,length=5"},
      {"alu_chain", "operation=ror,length=1"},
      {"division_shadow", "operation=idiv,before=0,after=0"},
      {"division_shadow", "before=200,after=3"},
      {"division_shadow", "operation=idiv,before=9,after=20,cheap=load"},
      {"split_access", "kind=store,unroll=2"},
      {"special_instruction", "instruction=cpuid,unroll=3"},
      {"special_instruction", "instruction=mfence,unroll=1"},
      {"split_access", "kind=load,width=16,border=page"},
      {"split_access", "kind=store,width=32,border=page,unroll=3"},
      {"locked_rmw", "operation=xadd,unroll=5"},
      {"nop_sled", "count=1"},
      {"straight_line", "instructions=1"},
      {"straight_line", "instructions=3000"},
      {"mixed", "loads=0,stores=0,alu=0,taken=0,not_taken=0"},
      {"mixed", "loads=64,stores=33,alu=7,taken=64,not_taken=5"},
      {"sparse_event", "event=store,spacing=9"},
      {"sparse_event", "event=simd,spacing=6"},
      {"sparse_event", "event=taken"},
      {"sparse_event", "event=not_taken,spacing=2"},
      {"fused_branch", "first=test,line_end=1"},
      {"fused_branch", "first=add,line_end=1,apart=1"},
      {"micro_fusion", "operation=store,address=indexed"},
      {"micro_fusion", "operation=cmp_imm,address=rip,copies=3"},
      {"micro_fusion", "operation=adc,address=rip"},
      {"micro_fusion", "operation=cmov,address=indexed"},
      {"micro_fusion", "operation=vex,address=indexed"},
      {"split_access", "kind=load,width=64,border=none"},
      {"split_access", "kind=store,width=64,border=line,unroll=2"},
      {"split_access", "kind=store,border=none,unroll=16"},
      {"store_forward", "store=1,load=1,load_at=129"},
      {"store_forward", "store=2,load=4,trips=1"},
      {"store_forward", "store=4,load=2,load_at=130,bases=one,trips=9"},
      {"store_forward", "store=8,load=16,store_at=188,load_at=180"},
      {"store_forward", "store=16,load=8,trips=2"},
      {"store_forward", "store=16,load=16,load_at=4224"},
      {"store_forward", "store=32,load=4,load_at=157"},
      {"store_forward", "store=32,load=32,bases=one"},
      {"store_forward", "store=2,load=32,trips=64"},
      {"store_forward", "store=64,load=16,trips=3"},
      {"store_forward", "store=8,load=64"},
      {"store_forward", "chain=address,load_at=4224"},
      {"store_forward", "chain=address,store=32,load_at=120,trips=5"},
      {"rep_string", "bytes=0"},
      {"rep_string", "kind=stosb,bytes=1001"},
      {"rep_string", "kind=movsq,bytes=4K"},
      {"rep_string", "kind=stosq,bytes=64"},
      {"paced_stream", "lines=1,window=64"},
      {"paced_stream", "lines=16,window=8K,pause=1"},
      {"paced_stream", "window=2K,pause=17"},
      {"fused_branch", "pairs=2,first=and,condition=ns,taken=1,spacing=9,nop_bytes=4,joined=2"},
      {"fused_branch", "pairs=3,first=add,form=mem_imm,apart=1,spacing=2,nop_bytes=3,joined=1"},
      {"fused_branch",
       "pairs=3,first=test,taken=0,spacing=5,nop_bytes=2,joined=1,reset_nops=1,filler=mov_test"},
      {"fused_branch",
       "pairs=2,first=inc,condition=ae,apart=1,spacing=4,nop_bytes=2,filler=mov_test"},
      {"taken_jumps", "jumps=1,spacing=2"},
      {"taken_jumps", "jumps=100,spacing=128,kind=jcc"},
      {"taken_jumps", "jumps=9,spacing=64,offset=61,run=8"},
      {"taken_jumps", "jumps=40,spacing=8,kind=jcc,entry=data"},
      {"taken_jumps", "jumps=40,spacing=32,offset=9,run=1,entry=data,skip=39"},
      {"repeated_pattern", "pattern=random,length=6"},
      {"repeated_pattern", "length=2"},
      {"branch_history", "second=independent,between=0,length=4"},
      {"branch_history", "between=33"},
      {"random_returns", "depth=1"},
      {"random_returns", "depth=70,choices=69,shuffles=0"},
      {"random_returns", "depth=3,choices=200,shuffles=2,data=fixed"},
      {"indirect_jumps", "targets=1"},
      {"indirect_jumps", "targets=300"},
      {"string_fill", "elements=0"},
      {"string_fill", "elements=512,copies=1"},
  };
  out.insert(out.end(), std::begin(more), std::end(more));
  // Every instruction of the table, in either order that it has.
  const Kernel& table = **find_kernel("instruction_table");
  for (const std::string& instruction : table.parameters[0].words) {
    for (const char* order : {"chain", "independent"}) {
      const std::string text = fmt::format("instruction={},order={},copies=17", instruction, order);
      if (table.check(*Params::parse(table.parameters, text)))
        out.push_back({"instruction_table", text});
    }
  }
  for (const std::string& filler : (*find_kernel("miss_window"))->parameters[0].words) {
    for (const int count : {0, 1, 70})
      out.push_back({"miss_window", fmt::format("filler={},count={}", filler, count)});
  }
  return out;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string out = joined(info.param);
  for (char& c : out) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, KernelCase, ::testing::ValuesIn(all_cases()), case_name);

// fused_branch over every first, condition, form, distance and direction. What is refused must be
// refused for a reason that the flags give: exactly these directions are impossible.
bool possible(const std::string& first, const std::string& condition, bool taken) {
  bool logic = first == "test" || first == "and" || first == "or" || first == "xor";
  if (logic && (condition == "o" || condition == "b")) return !taken;  // OF = CF = 0
  if (logic && (condition == "no" || condition == "ae")) return taken;
  if (first == "neg" && condition == "a") return !taken;  // CF is 0 exactly for a result of 0
  if (first == "neg" && condition == "be") return taken;
  bool count = first == "inc" || first == "dec";
  if (count && condition == "b") return !taken;  // CF stays 0
  if (count && condition == "ae") return taken;
  return true;
}

TEST(FusedBranch, EveryPairGoesTheDeclaredWayWithTheDeclaredCounts) {
  const Kernel& kernel = **find_kernel("fused_branch");
  auto words = [&](size_t i) { return kernel.parameters[i].words; };
  int ran = 0;
  for (const std::string& first : words(0)) {
    for (const std::string& condition : words(1)) {
      for (const std::string& form : words(2)) {
        bool unary = first == "inc" || first == "dec" || first == "neg" || first == "shl";
        bool no_such_form = unary && form.ends_with("imm");
        for (int apart : {0, 1}) {
          for (int taken : {0, 1}) {
            auto ready = make_ready(
                {"fused_branch", fmt::format("first={},condition={},form={},apart={},taken={}",
                                             first, condition, form, apart, taken)});
            ASSERT_EQ(ready.has_value(), !no_such_form && possible(first, condition, taken != 0))
                << first << " " << condition << " " << form << " " << taken;
            if (!ready) continue;
            ++ran;
            EXPECT_EQ(ready->program.per_iteration.branches_taken,
                      1u + static_cast<unsigned>(taken));
            for (uint64_t iterations : {1, 2, 7}) expect_exact(*ready, iterations);
            if (HasFailure()) return;
          }
        }
      }
    }
  }
  EXPECT_GT(ran, 1500);
}

TEST(FusedBranch, AnyTakesTheJumpWhereFlagsAllowIt) {
  auto none = make_ready({"fused_branch", "first=test,condition=o,taken=any"});
  ASSERT_TRUE(none) << none.error().text();
  EXPECT_EQ(none->program.per_iteration.branches_not_taken, 1u);
  auto some = make_ready({"fused_branch", "first=test,condition=e,taken=any"});
  ASSERT_TRUE(some) << some.error().text();
  EXPECT_EQ(some->program.per_iteration.branches_taken, 2u);
}

TEST(FusedBranch, ApartAndTogetherHaveTheSameInstructions) {
  auto together = make_ready({"fused_branch", ""});
  auto apart = make_ready({"fused_branch", "apart=1"});
  ASSERT_TRUE(together && apart);
  EXPECT_EQ(together->program.per_iteration.instructions,
            apart->program.per_iteration.instructions);
  EXPECT_EQ(together->program.per_iteration.fusible_pairs, 2u);
  EXPECT_EQ(apart->program.per_iteration.fusible_pairs, 1u);  // the loop's own
}

// The data addresses of `count` executions of the instruction at a mark, from the registers before
// them.
std::vector<uint64_t> registers_at(const Ready& ready, const char* mark, unsigned gpr,
                                   uint64_t iterations) {
  std::vector<uint64_t> out;
  auto result = single_step(ready.program, iterations, 1 << 20, [&](const Step& step) {
    if (step.rip == ready.program.mark(mark)) out.push_back(step.gpr[gpr]);
  });
  EXPECT_TRUE(result);
  return out;
}

TEST(PointerChase, VisitsEverySlotOnceThenBeginsAgain) {
  for (const char* parameters : {"bytes=8K", "bytes=8K,order=forward", "bytes=8K,order=backward",
                                 "bytes=512K,granularity=4K,stagger=1", "bytes=1K,granularity=8",
                                 "bytes=64K,granularity=512,stagger=3",
                                 "bytes=12K,granularity=192,stagger=3", "bytes=4K,stagger=3"}) {
    auto ready = make_ready({"pointer_chase", parameters});
    ASSERT_TRUE(ready) << ready.error().text();
    uint64_t slots = ready->params["bytes"] / ready->params["granularity"];
    std::vector<uint64_t> visited = registers_at(*ready, "load", 0, slots + 1);
    EXPECT_EQ(visited.front(), visited.back()) << parameters;
    EXPECT_EQ(std::set<uint64_t>(visited.begin(), visited.end()).size(), slots) << parameters;
  }
}

// One line of each slot, and each set of a cache with ways of 4 and of 32 KiB as often as any other.
TEST(PointerChase, StaggersOverTheSetsOfWaysOfAnySize) {
  constexpr uint64_t kSlots = 2048;
  auto ready = make_ready({"pointer_chase", "bytes=1M,granularity=512,stagger=3"});
  ASSERT_TRUE(ready) << ready.error().text();
  std::vector<uint64_t> visited = registers_at(*ready, "load", 0, kSlots);
  ASSERT_EQ(visited.size(), kSlots);
  for (uint64_t sets : {64, 512}) {
    std::map<uint64_t, uint64_t> lines;
    for (uint64_t address : visited) ++lines[(address - ready->program.data_address) / 64 % sets];
    EXPECT_EQ(lines.size(), sets);
    for (const auto& [set, count] : lines) EXPECT_EQ(count, kSlots / sets) << set;
  }
}

TEST(PointerChase, RandomOrderDependsOnTheSeedOnly) {
  auto one = make_ready({"pointer_chase", ""}, 1);
  auto two = make_ready({"pointer_chase", ""}, 2);
  ASSERT_TRUE(one && two);
  auto offsets = [](const Ready& ready) {
    std::vector<uint64_t> out = registers_at(ready, "load", 0, 50);
    for (uint64_t& address : out) address -= ready.program.data_address;
    return out;
  };
  EXPECT_NE(offsets(*one), offsets(*two));
  EXPECT_EQ(offsets(*one), offsets(*make_ready({"pointer_chase", ""}, 1)));
}

TEST(StoreStream, WritesTheDocumentedAddresses) {
  auto ready = make_ready({"store_stream", "width=8,stride=64,window=256,unroll=1"});
  ASSERT_TRUE(ready) << ready.error().text();
  std::vector<uint64_t> offsets = registers_at(*ready, "store", 1, 6);
  EXPECT_EQ(offsets, (std::vector<uint64_t>{0, 64, 128, 192, 0, 64}));
  uint64_t last = 0;
  std::memcpy(&last, ready->arena.data().data() + 64, 8);
  EXPECT_EQ(last, 1u);  // the counter in the last iteration
}

TEST(StoreStream, WideStoresLeaveThePattern) {
  for (const char* kind : {"regular", "nontemporal"}) {
    auto ready =
        make_ready({"store_stream", fmt::format("width=16,stride=16,window=64,kind={}", kind)});
    ASSERT_TRUE(ready) << ready.error().text();
    call_native(ready->program, 1);
    auto data = ready->arena.data();
    EXPECT_NE(data[0], std::byte{0});
    EXPECT_TRUE(std::equal(data.begin(), data.begin() + 16, data.begin() + 48));
    EXPECT_EQ(data[64], std::byte{0});
  }
}

TEST(SplitAccess, CrossesItsBorder) {
  for (const char* border : {"line", "page"}) {
    auto ready = make_ready({"split_access", fmt::format("kind=store,unroll=2,border={}", border)});
    ASSERT_TRUE(ready) << ready.error().text();
    call_native(ready->program, 300);
    size_t edge = border[0] == 'l' ? 64 : 4096;
    auto data = ready->arena.data();
    EXPECT_EQ(data[edge - 4],
              std::byte{1});  // the counter's last value is 1, its low byte comes first
    EXPECT_EQ(data[3 * edge - 4], std::byte{1});
    EXPECT_EQ(data[edge - 5], std::byte{0});
  }
}

TEST(LockedRmw, AddsOnceEachIteration) {
  auto ready = make_ready({"locked_rmw", "unroll=2"});
  ASSERT_TRUE(ready) << ready.error().text();
  call_native(ready->program, 1000);
  uint64_t second = 0;
  std::memcpy(&second, ready->arena.data().data() + 64, 8);
  EXPECT_EQ(second, 1000u);
}

TEST(SparseEvent, NamesTheEventAndWhatFollowsIt) {
  for (const char* event : {"load", "store", "taken", "not_taken", "simd"}) {
    auto ready = make_ready({"sparse_event", fmt::format("event={}", event)});
    ASSERT_TRUE(ready) << ready.error().text();
    const Program& program = ready->program;
    const Instruction* at = program.at(program.mark("event"));
    ASSERT_NE(at, nullptr);
    uint64_t follows = std::string(event) == "taken" ? at->target : at->end();
    EXPECT_EQ(program.mark("after"), follows) << event;
  }
}

TEST(SingleStep, ReportsAFaultAndAnEndlessProgramAsErrors) {
  auto ready = make_ready({"pointer_chase", ""});
  ASSERT_TRUE(ready) << ready.error().text();
  EXPECT_EQ(single_step(ready->program, 1000, 50, [](const Step&) {}).error().code,
            ErrorCode::kTimeout);
  std::memset(ready->arena.data().data(), 0, 8);  // the first pointer leads to address 0
  auto fault = single_step(ready->program, 3, 1 << 20, [](const Step&) {});
  ASSERT_FALSE(fault);
  EXPECT_EQ(fault.error().code, ErrorCode::kExecution);
}

}  // namespace
}  // namespace skidproof
