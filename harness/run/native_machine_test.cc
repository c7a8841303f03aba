// The native machine: it runs code, refuses MSRs, and survives what programs do to themselves.
#include "harness/run/native_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "harness/run/guarded_memory.h"
#include "kernels/kernel.h"

namespace skidproof {
namespace {

using testing::HasSubstr;

class NativeMachineTest : public testing::Test {
 protected:
  void SetUp() override {
    auto created = NativeMachine::create();
    ASSERT_TRUE(created) << created.error().text();
    machine_ = std::move(*created);
    code_ = allocate({.bytes = kSmallPage, .use = MemoryUse::kCode});
    data_ = allocate({.bytes = kSmallPage});
  }

  Memory allocate(const MemoryRequest& request) {
    auto memory = machine_->allocate(request);
    EXPECT_TRUE(memory) << memory.error().text();
    return memory ? *memory : Memory{};
  }

  Program program(std::initializer_list<uint8_t> bytes) const {
    Program program;
    program.kernel = "handmade";
    for (uint8_t byte : bytes) program.code.push_back(std::byte{byte});
    program.code_address = code_.address;
    program.entry = code_.address;
    program.data_address = data_.address;
    program.data_bytes = data_.host.size();
    return program;
  }

  // The error of running these bytes; a success fails the test.
  Error error_of(const Program& program, const RunPlan& plan = {}) {
    auto log = machine_->run(program, plan);
    EXPECT_FALSE(log);
    return log ? Error{} : log.error();
  }

  // lea rax, [rdi+rdi]; ret — and after any failure, proof that the machine still works.
  void expect_alive() {
    auto log = machine_->run(program({0x48, 0x8D, 0x04, 0x3F, 0xC3}), {.iterations = 21});
    ASSERT_TRUE(log) << log.error().text();
    EXPECT_EQ(log->result, 42u);
  }

  std::unique_ptr<NativeMachine> machine_;
  Memory code_, data_;
};

TEST_F(NativeMachineTest, KnowsTheCpu) {
  const Identity& identity = machine_->identity();
  EXPECT_EQ(identity.name, "native");
  EXPECT_EQ(identity.provenance, Provenance::kSilicon);
  EXPECT_EQ(identity.vendor.size(), 12u);
  EXPECT_FALSE(identity.brand.empty());
  EXPECT_GT(identity.family, 0u);
  EXPECT_FALSE(identity.pmu);
  const auto leaf = machine_->cpuid(0, 0);
  std::string vendor(12, '\0');
  std::memcpy(&vendor[0], &leaf.ebx, 4);
  std::memcpy(&vendor[4], &leaf.edx, 4);
  std::memcpy(&vendor[8], &leaf.ecx, 4);
  EXPECT_EQ(vendor, identity.vendor);
  EXPECT_EQ(machine_->cpuid(0x0FFFFFFF, 0).eax, 0u) << "beyond the highest leaf";
}

// The kernel's count of timer interrupts on a CPU; nothing where it does not say.
std::optional<uint64_t> timer_interrupts(int cpu) {
  std::ifstream file("/proc/interrupts");
  std::string line, word;
  std::getline(file, line);
  std::istringstream header(line);
  int column = 0;
  while (header >> word && word != "CPU" + std::to_string(cpu)) ++column;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    if (!(fields >> word) || word != "LOC:") continue;
    uint64_t count = 0;
    for (int i = 0; i <= column; ++i) {
      if (!(fields >> count)) return std::nullopt;
    }
    return count;
  }
  return std::nullopt;
}

// IRET to another privilege level nulls a selector that was null but for its privilege; ERETU, where events are delivered
// by FRED, does not. [SDM Vol. 2, "IRET"; CPUID.(EAX=07H,ECX=1):EAX[17]]
bool interrupts_leave_a_trace(const Machine& machine) {
  return machine.identity().vendor == "GenuineIntel" && (machine.cpuid(7, 1).eax >> 17 & 1) == 0;
}

// A timer comes within a second wherever the kernel has a tick, and into a microsecond hardly ever.
TEST_F(NativeMachineTest, TellsRunsIntoWhichAnInterruptCame) {
  // 1: dec rdi; jnz 1b; ret
  const Program spin = program({0x48, 0xFF, 0xCF, 0x75, 0xFB, 0xC3});
  unsigned quiet_runs = 0;
  for (int i = 0; i < 200; ++i) {
    const auto brief = machine_->run(spin, {.iterations = 100});
    ASSERT_TRUE(brief) << brief.error().text();
    quiet_runs += brief->noise.interrupted == 0 ? 1 : 0;
  }
  EXPECT_GT(quiet_runs, 0u);
  const auto before = timer_interrupts(machine_->cpu());
  for (int i = 0; i < 100; ++i) {
    const auto log = machine_->run(spin, {.iterations = 20'000'000});
    ASSERT_TRUE(log) << log.error().text();
    if (log->noise.interrupted != 0) return;
  }
  const auto after = timer_interrupts(machine_->cpu());
  if (interrupts_leave_a_trace(*machine_) && before && after) {
    EXPECT_LE(*after - *before, 1u)
        << "interrupts came, one of them perhaps between two runs, and none was told";
  }
  GTEST_SKIP() << "no interrupt came in seconds, or this processor's leave no trace";
}

TEST_F(NativeMachineTest, AnswersNoMsr) {
  const auto value = machine_->rdmsr(0x38F);
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().code, ErrorCode::kNotAvailable);
  EXPECT_THAT(value.error().message, HasSubstr("0x38f"));
  EXPECT_THAT(value.error().advice, HasSubstr("doctor"));
  EXPECT_EQ(machine_->wrmsr(0x3F1, 1).error().code, ErrorCode::kNotAvailable);
}

TEST_F(NativeMachineTest, RefusesPlansThatTouchMsrs) {
  const Program nothing = program({0xC3});
  EXPECT_EQ(error_of(nothing, {.enable = {{0x38F, 1}}}).code, ErrorCode::kNotAvailable);
  EXPECT_EQ(error_of(nothing, {.disable = {{0x38F, 0}}}).code, ErrorCode::kNotAvailable);
  EXPECT_EQ(error_of(nothing, {.read = {0xC1}}).code, ErrorCode::kNotAvailable);
}

TEST_F(NativeMachineTest, RunsAProgramAndTimesIt) {
  expect_alive();
  // mov [rsi], rdi; mov rax, [rsi]; ret
  auto log = machine_->run(program({0x48, 0x89, 0x3E, 0x48, 0x8B, 0x06, 0xC3}), {.iterations = 7});
  ASSERT_TRUE(log) << log.error().text();
  EXPECT_EQ(log->result, 7u);
  EXPECT_EQ(data_.host[0], std::byte{7});
  EXPECT_GT(log->tsc, 0u);
  EXPECT_TRUE(log->pmis.empty());
  EXPECT_EQ(log->noise.migrations, 0u);
}

TEST_F(NativeMachineTest, RunsInLapsAndTimesEach) {
  // mov rax, [rsi]; add [rsi+8], rdi; ret: where the first word points, and how often it came by.
  const Program onward = program({0x48, 0x8B, 0x06, 0x48, 0x01, 0x7E, 0x08, 0xC3});
  const auto put = [&](size_t at, uint64_t value) { std::memcpy(&data_.host[at], &value, 8); };
  const auto seen = [&](size_t at) {
    uint64_t value = 0;
    std::memcpy(&value, &data_.host[at], 8);
    return value;
  };
  put(0, data_.address + 64);
  put(64, data_.address);
  const auto log = machine_->run_in_laps(onward, {.iterations = 11}, {.count = 4, .onward = true});
  ASSERT_TRUE(log) << log.error().text();
  ASSERT_EQ(log->laps.size(), 4u);
  uint64_t sum = 0;
  for (const uint64_t lap : log->laps) {
    EXPECT_GT(lap, 0u);
    sum += lap;
  }
  EXPECT_EQ(sum, log->tsc);
  EXPECT_EQ(seen(8), 6u) << "the first and the third, of three iterations each";
  EXPECT_EQ(seen(72), 5u) << "the second and the last";
  EXPECT_EQ(log->result, data_.address);

  const auto again = machine_->run_in_laps(onward, {.iterations = 11}, {.count = 4});
  ASSERT_TRUE(again) << again.error().text();
  EXPECT_EQ(seen(8), 17u) << "all begin at the program's data";
  EXPECT_EQ(seen(72), 5u);

  const auto one = machine_->run_in_laps(onward, {.iterations = 11}, {});
  ASSERT_TRUE(one) << one.error().text();
  EXPECT_TRUE(one->laps.empty());

  EXPECT_EQ(machine_->run_in_laps(onward, {.iterations = 3}, {.count = 4}).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(machine_->run_in_laps(onward, {.iterations = 3}, {.count = 0}).error().code,
            ErrorCode::kInvalidArgument);
}

TEST_F(NativeMachineTest, RunsNewCodeAtTheSameAddress) {
  for (uint8_t value = 0; value < 100; ++value) {
    auto log = machine_->run(program({0xB8, value, 0, 0, 0, 0xC3}), {});  // mov eax, value; ret
    ASSERT_TRUE(log) << log.error().text();
    EXPECT_EQ(log->result, value);
  }
}

TEST_F(NativeMachineTest, UndefinedInstructionIsAnError) {
  const Error error = error_of(program({0x90, 0x0F, 0x0B}));  // nop; ud2
  EXPECT_EQ(error.code, ErrorCode::kExecution);
  EXPECT_THAT(error.message, HasSubstr("SIGILL"));
  EXPECT_THAT(error.message, HasSubstr("#UD"));
  EXPECT_THAT(error.message, HasSubstr("code + 0x1"));
  expect_alive();
}

TEST_F(NativeMachineTest, GuardPagesAreOnBothSides) {
  // mov rax, [rsi+disp32]; ret
  const Error after = error_of(program({0x48, 0x8B, 0x86, 0x00, 0x10, 0, 0, 0xC3}));
  EXPECT_EQ(after.code, ErrorCode::kExecution);
  EXPECT_THAT(after.message,
              HasSubstr(fmt::format("reading {:#x}", data_.address + data_.host.size())));
  // mov [rsi-8], rdi; ret
  const Error before = error_of(program({0x48, 0x89, 0x7E, 0xF8, 0xC3}));
  EXPECT_THAT(before.message, HasSubstr(fmt::format("writing {:#x}", data_.address - 8)));
  expect_alive();
}

TEST_F(NativeMachineTest, DivisionByZeroAndBreakpointAndPrivilegeAreErrors) {
  // xor ecx, ecx; div ecx
  EXPECT_THAT(error_of(program({0x31, 0xC9, 0xF7, 0xF1, 0xC3})).message, HasSubstr("#DE"));
  EXPECT_THAT(error_of(program({0xCC, 0xC3})).message, HasSubstr("#BP"));
  EXPECT_THAT(error_of(program({0xF4, 0xC3})).message, HasSubstr("#GP"));  // hlt
  expect_alive();
}

TEST_F(NativeMachineTest, LosingTheStackOrTheWayIsAnError) {
  // xor esp, esp; push rax
  EXPECT_EQ(error_of(program({0x31, 0xE4, 0x50, 0xC3})).code, ErrorCode::kExecution);
  // xor eax, eax; jmp rax
  const Error lost = error_of(program({0x31, 0xC0, 0xFF, 0xE0}));
  EXPECT_THAT(lost.message, HasSubstr("outside its code"));
  EXPECT_THAT(lost.message, HasSubstr("fetching 0x0"));
  expect_alive();
}

TEST_F(NativeMachineTest, DataIsNotExecutable) {
  data_.host[0] = std::byte{0xC3};
  EXPECT_EQ(error_of(program({0xFF, 0xE6})).code, ErrorCode::kExecution);  // jmp rsi
}

TEST_F(NativeMachineTest, ARunawayMeetsItsDeadline) {
  const Error error =
      error_of(program({0xEB, 0xFE}), {.deadline = std::chrono::milliseconds(30)});  // jmp $
  EXPECT_EQ(error.code, ErrorCode::kTimeout);
  EXPECT_THAT(error.message, HasSubstr("30 ms"));
  EXPECT_EQ(error_of(program({0xEB, 0xFE}), {.deadline = std::chrono::milliseconds(0)}).code,
            ErrorCode::kTimeout);
  expect_alive();
}

TEST_F(NativeMachineTest, EachRunHasItsOwnDeadline) {
  using std::chrono::milliseconds;
  const Program runaway = program({0xEB, 0xFE});
  // mov rcx, rdi; dec rcx; jnz; ret: a tenth of a second
  const Program loop = program({0x48, 0x89, 0xF9, 0x48, 0xFF, 0xC9, 0x75, 0xFB, 0xC3});
  for (int i = 0; i < 2; ++i) {
    expect_alive();  // in 10 s
    EXPECT_EQ(error_of(runaway, {.deadline = milliseconds(20)}).code, ErrorCode::kTimeout);
    EXPECT_TRUE(machine_->run(program({0xC3}), {.deadline = milliseconds(20)}));
    const auto lasting = machine_->run(loop, {.iterations = 300'000'000});
    EXPECT_TRUE(lasting) << lasting.error().text();
  }
}

TEST_F(NativeMachineTest, AForkedProcessHasItsOwnTimer) {
  expect_alive();
  EXPECT_EXIT(
      {
        const Error error =
            error_of(program({0xEB, 0xFE}), {.deadline = std::chrono::milliseconds(20)});
        _exit(error.code == ErrorCode::kTimeout ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(NativeMachineTest, FaultsOnAnotherThreadToo) {
  std::thread([this] {
    EXPECT_EQ(error_of(program({0x0F, 0x0B})).code, ErrorCode::kExecution);
    expect_alive();
  }).join();
  expect_alive();
}

TEST_F(NativeMachineTest, AFaultOutsideAProgramStillKills) {
  EXPECT_EXIT(
      {
        expect_alive();
        __builtin_trap();
      },
      testing::KilledBySignal(SIGILL), "");
}

TEST_F(NativeMachineTest, RefusesCodeAndDataThatAreNotItsOwn) {
  Program elsewhere = program({0xC3});
  elsewhere.code_address = elsewhere.entry = data_.address;
  EXPECT_EQ(error_of(elsewhere).code, ErrorCode::kInvalidArgument) << "a data block is not code";

  Program too_long = program({0xC3});
  too_long.code.resize(code_.host.size() + 1);
  EXPECT_EQ(error_of(too_long).code, ErrorCode::kInvalidArgument);

  Program foreign = program({0xC3});
  uint64_t local = 0;
  foreign.data_address = reinterpret_cast<uint64_t>(&local);
  foreign.data_bytes = sizeof local;
  EXPECT_EQ(error_of(foreign).code, ErrorCode::kInvalidArgument);

  Program bad_entry = program({0xC3});
  bad_entry.entry = code_.address + 1;
  EXPECT_EQ(error_of(bad_entry).code, ErrorCode::kInvalidArgument);

  const Program freed = program({0xC3});
  code_ = Memory{};
  EXPECT_EQ(error_of(freed).code, ErrorCode::kInvalidArgument);
}

TEST_F(NativeMachineTest, BlocksOutliveTheMachine) {
  machine_.reset();
  data_.host.back() = std::byte{1};
  EXPECT_EQ(data_.host.back(), std::byte{1});
}

TEST_F(NativeMachineTest, PinsWhileItLivesAndRestores) {
  cpu_set_t before, during, after;
  sched_getaffinity(0, sizeof before, &before);
  expect_alive();
  sched_getaffinity(0, sizeof during, &during);
  EXPECT_EQ(CPU_COUNT(&during), 1);
  EXPECT_TRUE(CPU_ISSET(machine_->cpu(), &during));
  machine_.reset();
  sched_getaffinity(0, sizeof after, &after);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(NativeMachine, RefusesACpuThatIsNotThere) {
  const auto machine = NativeMachine::create({.cpu = 1023});
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(machine.error().advice, HasSubstr("choose one of"));
}

// Every kernel with its default parameters, generated for this machine's addresses.
TEST_F(NativeMachineTest, RunsEveryKernel) {
  ASSERT_FALSE(kernels().empty());
  const Memory code = allocate({.bytes = 1 << 20, .use = MemoryUse::kCode});
  for (const auto& [name, kernel] : kernels()) {
    const auto params = Params::parse(kernel.parameters, "");
    ASSERT_TRUE(params) << name << ": " << params.error().text();
    const size_t bytes = kernel.data_bytes == nullptr ? 0 : kernel.data_bytes(*params);
    const Memory data = allocate({.bytes = std::max<size_t>(bytes, 1)});
    const auto made = generate(
        kernel, *params, {.code_address = code.address, .data_address = data.address, .seed = 1});
    ASSERT_TRUE(made) << name << ": " << made.error().text();
    if (!std::all_of(made->needs.begin(), made->needs.end(), host_supports)) continue;
    ASSERT_TRUE(prepare_data(kernel, *params, *made, data.host, 1)) << name;
    const auto log = machine_->run(*made, {.iterations = 100});
    EXPECT_TRUE(log) << name << ": " << log.error().text();
  }
}

}  // namespace
}  // namespace skidproof
