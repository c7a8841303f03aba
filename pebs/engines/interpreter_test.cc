// Runs and steps mean the same in every mixture; what the interpreter refuses, and how.
#include "pebs/engines/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"
#include "kernels/kernel.h"
#include "pebs/engines/flags.h"
#include "pebs/engines/testing/random_code.h"

namespace skidproof::engines {
namespace {

using arch::Signal;
using ::testing::HasSubstr;

using Bytes = std::vector<unsigned>;

// A guest with one program in it.
struct Guest {
  explicit Guest(Accounting accounting = Accounting::kCore)
      : memory(GuestMemory::create(GuestMemory::kBase, 64 << 20).value()),
        microarch(**arch::find_microarch("sandy-bridge")),
        core(microarch, 1),
        interpreter(*memory, core, microarch, accounting),
        code(memory->allocate(4 << 20, MemoryUse::kCode, false).value()),
        stack(memory->allocate(16 << 10, MemoryUse::kData, false).value()) {}

  void start(const Program& program, uint64_t iterations) {
    auto loaded = interpreter.load(program);
    ASSERT_TRUE(loaded) << loaded.error().text();
    interpreter.call(program.entry, iterations, program.data_address,
                     stack.address + stack.host.size());
  }
  // Bytes at the start of the code block.
  void start(const Bytes& bytes) {
    Program program;
    for (unsigned b : bytes) program.code.push_back(static_cast<std::byte>(b));
    program.code_address = program.entry = code.address;
    start(program, 1);
  }
  // The whole budget, past every stop for an instruction of many uops.
  Expected<uint64_t> run(uint64_t budget) {
    uint64_t executed = 0;
    while (executed < budget && !interpreter.finished()) {
      executed += SKIDPROOF_TRY(interpreter.run(budget - executed));
    }
    return executed;
  }
  uint64_t total(Signal signal) const { return core.totals()[arch::index(signal)]; }
  uint64_t& gpr(arch::Gpr r) { return interpreter.registers().gpr[static_cast<size_t>(r)]; }

  std::unique_ptr<GuestMemory> memory;
  const arch::Microarch& microarch;
  model::Core core;
  Interpreter interpreter;
  Memory code, stack, data;
};

// What must not depend on how a program was executed.
struct Outcome {
  model::Registers registers;
  std::array<Interpreter::Vector, 16> vectors;
  arch::SignalCounts totals;
  uint64_t cycle = 0, instructions = 0;
  std::vector<std::byte> data;
};

struct Note {
  model::Retired retired;
  model::Registers after;
};

void expect_equal(const model::Registers& a, const model::Registers& b) {
  EXPECT_EQ(a.gpr, b.gpr);
  EXPECT_EQ(a.flags, b.flags);
  EXPECT_EQ(a.ip, b.ip);
}
void expect_equal(const model::Access& a, const model::Access& b) {
  EXPECT_EQ(a.valid, b.valid);
  EXPECT_EQ(a.l1_hit, b.l1_hit);
  EXPECT_EQ(a.stlb_miss, b.stlb_miss);
  EXPECT_EQ(a.locked, b.locked);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.latency, b.latency);
  EXPECT_EQ(a.address, b.address);
}
void expect_equal(const Note& a, const Note& b) {
  EXPECT_EQ(a.retired.ip, b.retired.ip);
  EXPECT_EQ(a.retired.counts, b.retired.counts);
  EXPECT_EQ(a.retired.cycle, b.retired.cycle);
  EXPECT_EQ(a.retired.fused_with_next, b.retired.fused_with_next);
  expect_equal(a.retired.load, b.retired.load);
  expect_equal(a.retired.store, b.retired.store);
  expect_equal(a.after, b.after);
}
void expect_equal(const Outcome& a, const Outcome& b) {
  expect_equal(a.registers, b.registers);
  EXPECT_EQ(a.vectors, b.vectors);
  for (size_t n = 0; n < arch::kSignals; ++n) {
    EXPECT_EQ(a.totals[n], b.totals[n]) << arch::name_of(static_cast<Signal>(n));
  }
  EXPECT_EQ(a.cycle, b.cycle);
  EXPECT_EQ(a.instructions, b.instructions);
  EXPECT_TRUE(a.data == b.data);
}

Outcome outcome_of(Guest& guest, uint64_t instructions) {
  EXPECT_TRUE(guest.interpreter.finished());
  EXPECT_EQ(guest.total(Signal::kInstructions), instructions);
  return {guest.interpreter.registers(),
          guest.interpreter.vectors(),
          guest.core.totals(),
          guest.core.cycle(),
          instructions,
          {guest.data.host.begin(), guest.data.host.end()}};
}

// Makes the program for a guest: data allocated and filled, code generated for the guest's addresses.
using Prepare = std::function<Program(Guest&)>;

// Steps all the way, noting everything.
Outcome step_through(const Prepare& prepare, uint64_t iterations, std::vector<Note>& notes) {
  Guest guest;
  guest.start(prepare(guest), iterations);
  model::Retired retired;
  while (!guest.interpreter.finished()) {
    auto stepped = guest.interpreter.step(retired);
    EXPECT_TRUE(stepped) << stepped.error().text();
    if (!stepped) break;
    notes.push_back({retired, *retired.after});
    if (notes.size() > 1'000'000) break;
  }
  return outcome_of(guest, notes.size());
}

Outcome run_through(const Prepare& prepare, uint64_t iterations) {
  Guest guest;
  guest.start(prepare(guest), iterations);
  uint64_t executed = guest.run(UINT64_MAX / 2).value_or(0);
  return outcome_of(guest, executed);
}

// Runs of random budgets and steps in random order; each step must be the one noted in its place.
Outcome mix_through(const Prepare& prepare, uint64_t iterations, const std::vector<Note>& notes,
                    uint64_t seed) {
  Guest guest;
  guest.start(prepare(guest), iterations);
  Random random(seed);
  uint64_t executed = 0;
  model::Retired retired;
  while (!guest.interpreter.finished()) {
    if (random.chance(1, 2)) {
      uint64_t budget = random.below(random.chance(1, 4) ? 400 : 12);
      uint64_t done = guest.run(budget).value_or(0);
      EXPECT_TRUE(done == budget || guest.interpreter.finished());
      executed += done;
    } else {
      EXPECT_TRUE(guest.interpreter.step(retired));
      if (executed >= notes.size()) break;
      expect_equal(notes[executed], {retired, *retired.after});
      ++executed;
    }
    if (::testing::Test::HasFailure()) break;
  }
  return outcome_of(guest, executed);
}

void expect_path_independence(const Prepare& prepare, uint64_t iterations, uint64_t seed) {
  std::vector<Note> notes;
  Outcome steps = step_through(prepare, iterations, notes);
  expect_equal(steps, run_through(prepare, iterations));
  if (::testing::Test::HasFailure()) return;
  for (uint64_t n = 0; n < 3; ++n)
    expect_equal(steps, mix_through(prepare, iterations, notes, 1000 * seed + n));
}

TEST(PathIndependence, HoldsOverRandomCode) {
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE(seed);
    expect_path_independence(
        [seed](Guest& guest) {
          guest.data =
              guest.memory->allocate(testing::RandomCode::kArena, MemoryUse::kData, false).value();
          Random random(seed);
          for (std::byte& b : guest.data.host) b = static_cast<std::byte>(random.next());
          return testing::RandomCode(seed, guest.code.address, guest.data.address, true)
              .generate(400);
        },
        1, seed);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(PathIndependence, HoldsOverEveryKernel) {
  for (const auto& [name, described] : kernels()) {
    SCOPED_TRACE(name);
    expect_path_independence(
        [&kernel = described](Guest& guest) {
          Params params = Params::parse(kernel.parameters, "").value();
          size_t bytes = kernel.data_bytes != nullptr ? kernel.data_bytes(params) : 0;
          guest.data =
              guest.memory->allocate(std::max<size_t>(bytes, 4096), MemoryUse::kData, false)
                  .value();
          if (kernel.fill != nullptr)
            kernel.fill(params, guest.data.host.first(bytes), guest.data.address, 3);
          Placement placement{
              .code_address = guest.code.address, .data_address = guest.data.address, .seed = 3};
          return generate(kernel, params, placement).value();
        },
        300, 5);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Interpreter, CountsWhatKernelsExpect) {
  for (const auto& [name, kernel] : kernels()) {
    SCOPED_TRACE(name);
    Guest guest;
    Params params = Params::parse(kernel.parameters, "").value();
    size_t bytes = kernel.data_bytes != nullptr ? kernel.data_bytes(params) : 0;
    guest.data =
        guest.memory->allocate(std::max<size_t>(bytes, 4096), MemoryUse::kData, false).value();
    if (kernel.fill != nullptr)
      kernel.fill(params, guest.data.host.first(bytes), guest.data.address, 3);
    Placement placement{
        .code_address = guest.code.address, .data_address = guest.data.address, .seed = 3};
    Program program = generate(kernel, params, placement).value();
    guest.start(program, 1000);
    uint64_t executed = guest.run(UINT64_MAX / 2).value_or(0);
    Expectations expected = program.total(kernel.loop ? 1000 : 1);
    EXPECT_EQ(executed, expected.instructions);
    EXPECT_EQ(guest.total(Signal::kInstructions), expected.instructions);
    EXPECT_EQ(guest.total(Signal::kLoads), expected.loads);
    EXPECT_EQ(guest.total(Signal::kStores), expected.stores);
    EXPECT_EQ(guest.total(Signal::kNearTaken), expected.branches_taken);
    EXPECT_EQ(guest.total(Signal::kConditionalNotTaken), expected.branches_not_taken);
    EXPECT_EQ(guest.total(Signal::kBranches), expected.branches());
  }
}

TEST(Interpreter, BareAccountingComputesTheSameAndCountsNothing) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Guest bare(Accounting::kBare), modelled;
    for (Guest* guest : {&bare, &modelled}) {
      guest->data =
          guest->memory->allocate(testing::RandomCode::kArena, MemoryUse::kData, false).value();
      guest->start(
          testing::RandomCode(seed, guest->code.address, guest->data.address, true).generate(300),
          1);
      ASSERT_TRUE(guest->run(1 << 20));
      ASSERT_TRUE(guest->interpreter.finished());
    }
    expect_equal(bare.interpreter.registers(), modelled.interpreter.registers());
    EXPECT_EQ(bare.interpreter.vectors(), modelled.interpreter.vectors());
    EXPECT_EQ(std::memcmp(bare.data.host.data(), modelled.data.host.data(), bare.data.host.size()),
              0);
    EXPECT_EQ(bare.total(Signal::kInstructions), 0u);
  }
}

TEST(Interpreter, RunStopsInFrontOfMoreUopsThanItSaid) {
  Guest guest;
  guest.start({0xFF, 0xC0, 0xEB, 0x00, 0x31, 0xD2, 0x48, 0xF7, 0xF1,
               0xC3});  // inc eax; jmp +0; xor edx,edx; div rcx; ret
  guest.gpr(arch::Gpr::kRcx) = 3;
  uint64_t promised = guest.interpreter.most_uops();
  EXPECT_EQ(guest.interpreter.run(100).value(), 2u);
  EXPECT_EQ(guest.total(Signal::kUops), 2u);
  EXPECT_GT(guest.interpreter.most_uops(), promised);
  EXPECT_EQ(guest.interpreter.run(100).value(), 3u);
  EXPECT_TRUE(guest.interpreter.finished());
}

// Of any stretch, however it begins and ends.
TEST(Interpreter, NoStretchHasMoreEventsThanItsBounds) {
  // add rax,rcx; mov rdx,[rsp]; test cl,1; jz +3; mov [rsp-8],rax (5); dec rcx; jnz; ret
  const Bytes code = {0x48, 0x01, 0xC8, 0x48, 0x8B, 0x14, 0x24, 0xF6, 0xC1, 0x01, 0x74, 0x05,
                      0x48, 0x89, 0x44, 0x24, 0xF8, 0x48, 0xFF, 0xC9, 0x75, 0xEA, 0xC3};
  for (uint64_t length : {1u, 2u, 3u, 5u, 8u, 13u, 100u}) {
    Guest guest;
    guest.start(code);
    guest.gpr(arch::Gpr::kRcx) = 1000;
    while (!guest.interpreter.finished()) {
      const arch::SignalCounts before = guest.core.totals();
      uint64_t executed = 0;
      while (executed < length && !guest.interpreter.finished()) {
        executed += guest.interpreter.run(length - executed, true).value();
      }
      for (size_t n = 0; n < arch::kSignals; ++n) {
        const model::EventBound& bound = guest.interpreter.code_bounds()[n];
        if (bound.apart == 0) continue;
        EXPECT_LE(guest.core.totals()[n] - before[n], bound.once + executed / bound.apart)
            << name_of(static_cast<Signal>(n)) << " in " << executed;
      }
    }
    const model::CodeBounds& bounds = guest.interpreter.code_bounds();
    EXPECT_EQ(bounds[arch::index(Signal::kStores)].once, 2u);
    EXPECT_EQ(bounds[arch::index(Signal::kLoads)].once, 2u);
    EXPECT_EQ(bounds[arch::index(Signal::kNearCalls)].apart, UINT64_MAX);
    EXPECT_EQ(bounds[arch::index(Signal::kCycles)].apart, 0u);
  }
}

TEST(Interpreter, RunStopsInFrontOfMoreEventsThanItSaid) {
  Guest guest;
  guest.start({0xFF, 0xC0, 0xEB, 0x00, 0x48, 0x8B, 0x04, 0x24,
               0xC3});  // inc eax; jmp +0; mov rax,[rsp]; ret
  EXPECT_EQ(guest.interpreter.run(100, true).value(), 0u) << "nothing was known";
  EXPECT_EQ(guest.interpreter.run(100, true).value(), 2u);
  EXPECT_EQ(guest.interpreter.code_bounds()[arch::index(Signal::kLoads)].apart, 1u);
  EXPECT_EQ(guest.interpreter.run(100, true).value(), 2u);
  EXPECT_EQ(guest.interpreter.gained()[arch::index(Signal::kLoads)], 2u);
  EXPECT_TRUE(guest.interpreter.finished());
}

TEST(Interpreter, RunExecutesExactlyItsBudget) {
  Guest guest;
  guest.start(
      {0x48, 0x01, 0xC8, 0x48, 0xFF, 0xC9, 0x75, 0xF8, 0xC3});  // add rax,rcx; dec rcx; jnz -8; ret
  guest.gpr(arch::Gpr::kRcx) = 1'000'000;
  for (uint64_t budget : {1u, 2u, 3u, 7u, 1000u, 1u}) EXPECT_EQ(guest.run(budget).value(), budget);
  EXPECT_EQ(guest.run(0).value(), 0u);
  EXPECT_EQ(guest.run(UINT64_MAX).value(), 3'000'001u - 1014u);
  EXPECT_TRUE(guest.interpreter.finished());
  EXPECT_EQ(guest.run(5).value(), 0u);
  EXPECT_EQ(guest.gpr(arch::Gpr::kRax), 1'000'000ull * 1'000'001 / 2);
  EXPECT_EQ(guest.total(Signal::kMacroFused), 1'000'000u);
}

TEST(Interpreter, ABranchIntoTheMiddleOfAPairLeavesItUnfused) {
  Guest guest;
  // jmp to the jnz; dec ecx; jnz back to dec; ret
  guest.start({0xEB, 0x02, 0xFF, 0xC9, 0x75, 0xFC, 0xC3});
  guest.gpr(arch::Gpr::kRcx) = 3;
  ASSERT_TRUE(guest.run(100));  // ZF is clear at first: taken
  EXPECT_TRUE(guest.interpreter.finished());
  EXPECT_EQ(guest.total(Signal::kMacroFused), 3u);
  EXPECT_EQ(guest.total(Signal::kConditional), 4u);
}

// A pair is one operation in a run and two in steps, and each has its own way to the condition.
TEST(Interpreter, EveryPairDecidesAsItsHalvesDoAtTheBoundaries) {
  const std::vector<Bytes> firsts = {{0x39, 0xC8}, {0x85, 0xC8},      {0x21, 0xC8}, {0x01, 0xC8},
                                     {0x29, 0xC8}, {0xFF, 0xC0},      {0xFF, 0xC8}, {0x3B, 0x06},
                                     {0x03, 0x06}, {0x83, 0xE8, 0x01}};
  const std::vector<uint64_t> values = {0,
                                        1,
                                        2,
                                        UINT64_MAX,
                                        UINT64_MAX - 1,
                                        INT64_MAX,
                                        uint64_t{1} << 63,
                                        INT32_MAX,
                                        uint64_t{1} << 31,
                                        UINT32_MAX,
                                        0x8000'0001};
  Guest guest;
  guest.data = guest.memory->allocate(4096, MemoryUse::kData, false).value();
  uint64_t fused = 0;
  for (const Bytes& first : firsts) {
    for (unsigned wide = 0; wide < 2; ++wide) {
      for (unsigned condition = 0; condition < 16; ++condition) {
        Bytes code = wide ? Bytes{0x48} : Bytes{};
        code.insert(code.end(), first.begin(), first.end());
        for (unsigned b : {0x0Fu, 0x80 | condition, 1u, 0u, 0u, 0u, 0xC3u, 0xC3u})
          code.push_back(b);
        for (uint64_t a : values) {
          for (uint64_t b : values) {
            auto prepare = [&] {
              guest.start(code);
              guest.gpr(arch::Gpr::kRax) = a;
              guest.gpr(arch::Gpr::kRcx) = b;
              guest.gpr(arch::Gpr::kRsi) = guest.data.address;
              std::memcpy(guest.data.host.data(), &b, sizeof(b));
            };
            prepare();
            ASSERT_EQ(guest.run(2).value_or(0), 2u);
            model::Registers together = guest.interpreter.registers();
            prepare();
            model::Retired retired;
            ASSERT_TRUE(guest.interpreter.step(retired));
            fused += retired.fused_with_next;
            ASSERT_TRUE(guest.interpreter.step(retired));
            expect_equal(together, guest.interpreter.registers());
            ASSERT_FALSE(HasFailure()) << "first " << first[0] << " wide " << wide << " condition "
                                       << condition << " of " << a << ", " << b;
          }
        }
      }
    }
  }
  EXPECT_GT(fused, 10'000u);
}

TEST(Interpreter, ARepeatedStoreIsOneInstruction) {
  for (uint64_t elements : {0, 1, 5, 512}) {
    for (bool stepped : {false, true}) {
      Guest guest;
      guest.data = guest.memory->allocate(4096, MemoryUse::kData, false).value();
      guest.start({0xF3, 0x48, 0xAB, 0xC3});  // rep stosq; ret
      guest.gpr(arch::Gpr::kRdi) = guest.data.address;
      guest.gpr(arch::Gpr::kRcx) = elements;
      guest.gpr(arch::Gpr::kRax) = 0x0102'0304'0506'0708;
      if (stepped) {
        model::Retired retired;
        ASSERT_TRUE(guest.interpreter.step(retired));
        EXPECT_EQ(retired.counts[arch::index(Signal::kInstructions)], 1u);
      }
      ASSERT_TRUE(guest.run(10));
      EXPECT_EQ(guest.total(Signal::kInstructions), 2u);
      EXPECT_EQ(guest.gpr(arch::Gpr::kRcx), 0u);
      EXPECT_EQ(guest.gpr(arch::Gpr::kRdi), guest.data.address + 8 * elements);
      for (size_t i = 0; i < 4096; ++i) {
        EXPECT_EQ(std::to_integer<unsigned>(guest.data.host[i]), i < 8 * elements ? 8 - i % 8 : 0);
      }
    }
  }
}

TEST(Interpreter, ARepeatedMoveIsOneInstructionAndReadsWhatItWrote) {
  for (uint64_t distance : {1, 3, 2048}) {
    for (bool stepped : {false, true}) {
      Guest guest;
      guest.data = guest.memory->allocate(4096, MemoryUse::kData, false).value();
      guest.start({0xF3, 0xA4, 0xC3});  // rep movsb; ret
      for (size_t i = 0; i < 2048; ++i) guest.data.host[i] = static_cast<std::byte>(i * 7);
      const std::vector<std::byte> before(guest.data.host.begin(), guest.data.host.begin() + 2048);
      guest.gpr(arch::Gpr::kRsi) = guest.data.address;
      guest.gpr(arch::Gpr::kRdi) = guest.data.address + distance;
      guest.gpr(arch::Gpr::kRcx) = 1000;
      if (stepped) {
        model::Retired retired;
        ASSERT_TRUE(guest.interpreter.step(retired));
        EXPECT_EQ(retired.load.address, guest.data.address);
        EXPECT_EQ(retired.store.address, guest.data.address + distance);
      }
      ASSERT_TRUE(guest.run(10));
      EXPECT_EQ(guest.total(Signal::kInstructions), 2u);
      EXPECT_EQ(guest.gpr(arch::Gpr::kRcx), 0u);
      EXPECT_EQ(guest.gpr(arch::Gpr::kRsi), guest.data.address + 1000);
      EXPECT_EQ(guest.gpr(arch::Gpr::kRdi), guest.data.address + distance + 1000);
      for (size_t i = 0; i < 1000; ++i)
        ASSERT_EQ(guest.data.host[distance + i], before[i % distance]) << i;
    }
  }
}

TEST(Interpreter, ARepeatedMoveOutsideOfTheDataIsAnError) {
  for (bool reads : {false, true}) {
    Guest guest;
    guest.data = guest.memory->allocate(4096, MemoryUse::kData, false).value();
    guest.start({0xF3, 0x48, 0xA5, 0xC3});  // rep movsq; ret
    guest.gpr(arch::Gpr::kRsi) = guest.data.address + (reads ? 8 : 0);
    guest.gpr(arch::Gpr::kRdi) = guest.data.address + (reads ? 0 : 8);
    guest.gpr(arch::Gpr::kRcx) = 512;
    auto executed = guest.run(10);
    ASSERT_FALSE(executed);
    EXPECT_EQ(executed.error().code, ErrorCode::kExecution);
  }
}

TEST(Interpreter, ARepeatedStoreOutsideOfTheDataIsAnError) {
  Guest guest;
  guest.data = guest.memory->allocate(4096, MemoryUse::kData, false).value();
  guest.start({0xF3, 0x48, 0xAB, 0xC3});
  guest.gpr(arch::Gpr::kRdi) = guest.data.address;
  guest.gpr(arch::Gpr::kRcx) = 513;
  auto executed = guest.run(10);
  ASSERT_FALSE(executed);
  EXPECT_EQ(executed.error().code, ErrorCode::kExecution);
}

TEST(Interpreter, RegistersWrittenFromOutsideAreTakenUp) {
  Guest guest;
  guest.start({0x72, 0x01, 0xC3, 0xFF, 0xC0, 0xC3});  // jb +1; ret; inc eax; ret
  guest.interpreter.registers().flags |= kCf;
  ASSERT_TRUE(guest.run(10));
  EXPECT_EQ(guest.gpr(arch::Gpr::kRax), 1u);
  guest.start({0x72, 0x01, 0xC3, 0xFF, 0xC0, 0xC3});
  guest.interpreter.registers().ip = guest.code.address + 3;
  ASSERT_TRUE(guest.run(10));
  EXPECT_EQ(guest.gpr(arch::Gpr::kRax), 1u);
}

// What the manual leaves undefined is as in the lab's emulator, so that random code does the same in both.
TEST(Interpreter, UndefinedFlagsAreTheEmulators) {
  constexpr uint32_t kKept = kCf | kSf | kAf;
  auto flags_after = [](Bytes code, uint64_t operand) {
    Guest guest;
    code.push_back(0xC3);
    guest.start(code);
    guest.interpreter.registers().gpr[static_cast<size_t>(arch::Gpr::kRcx)] = operand;
    guest.interpreter.registers().flags |= kKept;
    EXPECT_TRUE(guest.run(10));
    return guest.interpreter.registers().flags & kStatusFlags;
  };
  const Bytes bsf = {0x0F, 0xBC, 0xC1}, bsr = {0x0F, 0xBD, 0xC1};
  EXPECT_EQ(flags_after(bsf, 0), kKept | kZf);
  EXPECT_EQ(flags_after(bsr, 0), kKept | kZf);
  EXPECT_EQ(flags_after(bsf, 8), uint64_t{kPf});                                   // position 3
  EXPECT_EQ(flags_after(bsr, 16), 0u);                                             // position 4
  EXPECT_EQ(flags_after({0xF3, 0x0F, 0xBD, 0xC1}, 1), uint64_t{kSf | kAf});        // lzcnt
  EXPECT_EQ(flags_after({0xF3, 0x0F, 0xBC, 0xC1}, 0), uint64_t{kCf | kSf | kAf});  // tzcnt
  EXPECT_EQ(flags_after({0xC1, 0xE9, 0x02}, 0x8000'0000) & kOf, 0u);               // shr ecx, 2
  EXPECT_EQ(flags_after({0xC1, 0xE9, 0x02}, 0x4000'0000'8000'0000) & kOf, 0u);
  EXPECT_EQ(flags_after({0xD1, 0xE9}, 0x8000'0000) & kOf, uint64_t{kOf});  // shr ecx, 1
}

TEST(Interpreter, AFunctionReturnsWhereItIsTold) {
  Guest guest;
  guest.interpreter.return_to(0xFFFF'FFFF'C000'0000);
  guest.start({0x90, 0xC3});
  ASSERT_TRUE(guest.run(10));
  EXPECT_TRUE(guest.interpreter.finished());
  EXPECT_EQ(guest.interpreter.registers().ip, 0xFFFF'FFFF'C000'0000);
}

TEST(Interpreter, NewCodeAtTheSameAddressReplacesTheOld) {
  Guest guest;
  guest.start({0xB8, 1, 0, 0, 0, 0xC3});  // mov eax, 1; ret
  ASSERT_TRUE(guest.run(10));
  EXPECT_EQ(guest.gpr(arch::Gpr::kRax), 1u);
  guest.start({0xB8, 2, 0, 0, 0, 0xC3});
  ASSERT_TRUE(guest.run(10));
  EXPECT_EQ(guest.gpr(arch::Gpr::kRax), 2u);
}

// ---- What is refused. Each error names the instruction, and data where data are the reason.

void expect_error(Guest& guest, ErrorCode code, const std::string& words) {
  model::Registers before = guest.interpreter.registers();
  auto ran = guest.run(100);
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, code);
  EXPECT_THAT(ran.error().message, HasSubstr(words));
  EXPECT_EQ(guest.interpreter.registers().ip, before.ip);
  model::Retired retired;
  auto stepped = guest.interpreter.step(retired);
  ASSERT_FALSE(stepped);
  EXPECT_EQ(stepped.error().message, ran.error().message);
}

TEST(Refusal, LoadOutsideOfTheData) {
  Guest guest;
  guest.start({0x48, 0x8B, 0x06});  // mov rax, [rsi]
  guest.gpr(arch::Gpr::kRsi) = 0x1234;
  expect_error(guest, ErrorCode::kExecution, "`mov rax, [rsi]` at 0xffff");
  guest.gpr(arch::Gpr::kRsi) =
      guest.stack.address + guest.stack.host.size() - 4;  // into the guard page
  expect_error(guest, ErrorCode::kExecution, "not mapped");
}

TEST(Refusal, LoadFromFreedMemory) {
  Guest guest;
  Memory block = guest.memory->allocate(4096, MemoryUse::kData, false).value();
  guest.start({0x48, 0x8B, 0x06, 0x48, 0x8B, 0x06, 0xC3});
  guest.gpr(arch::Gpr::kRsi) = block.address;
  ASSERT_TRUE(guest.run(1));
  block = {};
  expect_error(guest, ErrorCode::kExecution, "not mapped");
}

TEST(Refusal, StoreIntoCode) {
  Guest guest;
  // mov rax, [rsi] (so that the page is known), mov [rsi], rax
  guest.start({0x48, 0x8B, 0x06, 0x48, 0x8B, 0x06, 0x48, 0x89, 0x06});
  guest.gpr(arch::Gpr::kRsi) = guest.code.address + 64;
  ASSERT_TRUE(guest.run(2));
  expect_error(guest, ErrorCode::kExecution, "which is code");
}

TEST(Refusal, AddressesFarFromTheArenaThatShareItsLowBits) {
  Guest guest;
  guest.data = guest.memory->allocate(4096, MemoryUse::kData, false).value();
  guest.start({0x48, 0x8B, 0x06, 0x48, 0x8B, 0x07, 0xC3});  // mov rax, [rsi]; mov rax, [rdi]
  guest.gpr(arch::Gpr::kRsi) = guest.data.address;
  for (unsigned bit = 32; bit < 64; ++bit) {
    guest.interpreter.registers().ip = guest.code.address;
    guest.gpr(arch::Gpr::kRdi) = guest.data.address ^ (uint64_t{1} << bit);
    ASSERT_TRUE(guest.run(1));
    auto ran = guest.run(1);
    ASSERT_FALSE(ran) << "bit " << bit;
    EXPECT_EQ(ran.error().code, ErrorCode::kExecution);
  }
}

TEST(Refusal, DivisionByZeroAndOverflow) {
  Guest guest;
  guest.start({0x48, 0xF7, 0xF1});  // div rcx
  expect_error(guest, ErrorCode::kExecution, "#DE");
  guest.gpr(arch::Gpr::kRcx) = 2;
  guest.gpr(arch::Gpr::kRdx) = 2;
  expect_error(guest, ErrorCode::kExecution, "#DE");
  Guest is_signed;
  is_signed.start({0xF7, 0xF9});  // idiv ecx
  is_signed.gpr(arch::Gpr::kRax) = 0x80000000;
  is_signed.gpr(arch::Gpr::kRdx) = 0xFFFFFFFF;
  is_signed.gpr(arch::Gpr::kRcx) = 0xFFFFFFFF;
  expect_error(is_signed, ErrorCode::kExecution, "`idiv ecx`");
}

TEST(Refusal, MisalignedMovaps) {
  Guest guest;
  guest.start({0x0F, 0x28, 0x06});  // movaps xmm0, [rsi]
  guest.gpr(arch::Gpr::kRsi) = guest.stack.address + 8;
  expect_error(guest, ErrorCode::kExecution, "not aligned");
}

TEST(Refusal, UnknownInstructions) {
  for (const Bytes& bytes : {Bytes{0x0F, 0x33},                           // rdpmc
                             Bytes{0x8E, 0xD9},                           // mov ds, ecx
                             Bytes{0x48, 0x8C, 0xD1},                     // mov rcx, ss
                             {0x0F, 0x01, 0xD0},                          // xgetbv
                             {0xF3, 0xAE},                                // repe scasb
                             {0xAE},                                      // scasb
                             {0x64, 0x48, 0x8B, 0x04, 0x25, 0, 0, 0, 0},  // mov rax, fs:[0]
                             {0x67, 0x8B, 0x06},                          // mov eax, [esi]
                             {0xD9, 0xE8},                                // fld1
                             {0x62, 0xF1, 0x7C, 0x48, 0x10, 0x06},        // vmovups zmm0, [rsi]
                             {0x0F, 0x6F, 0x06},                          // movq mm0, [rsi]
                             {0xE3, 0x00},                                // jrcxz
                             {0x66, 0x50},                                // push ax
                             {0x8C, 0xD8},                                // mov eax, ds
                             {0xCC},                                      // int3
                             {0xF4},                                      // hlt
                             {0x0F, 0x22, 0xC0}}) {                       // mov cr0, rax
    Guest guest;
    guest.start(bytes);
    expect_error(guest, ErrorCode::kUnsupported, "does not know `");
  }
}

TEST(Refusal, BytesThatAreNoInstruction) {
  Guest guest;
  guest.start({0x06});
  expect_error(guest, ErrorCode::kExecution, "no instruction at 0xffff");
}

TEST(Refusal, LeavingTheCode) {
  Guest guest;
  guest.start({0xFF, 0xE0});  // jmp rax
  guest.gpr(arch::Gpr::kRax) = guest.stack.address;
  ASSERT_TRUE(guest.run(1));
  expect_error(guest, ErrorCode::kExecution, "left its code");
}

// What nobody jumped to yet is not remembered, whatever an empty place of that memory looks like.
TEST(Refusal, LeavingTheCodeForTheLowestAddresses) {
  for (const uint64_t target : {0, 1, 2, 0x100, 0x101}) {
    Guest guest;
    guest.start({0xFF, 0xE0});  // jmp rax
    guest.gpr(arch::Gpr::kRax) = target;
    ASSERT_TRUE(guest.run(1));
    expect_error(guest, ErrorCode::kExecution, "left its code");
  }
}

TEST(Refusal, AnUnknownInstructionMattersOnlyWhenReached) {
  Guest guest;
  guest.start({0xEB, 0x02, 0x0F, 0x33, 0xB8, 7, 0, 0, 0, 0xC3});  // jmp over rdpmc; mov eax, 7; ret
  ASSERT_TRUE(guest.run(100));
  EXPECT_EQ(guest.gpr(arch::Gpr::kRax), 7u);
  guest.start({0xB8, 7, 0, 0, 0, 0x0F, 0x33});  // mov eax, 7; rdpmc
  EXPECT_EQ(guest.run(1).value(), 1u);
  expect_error(guest, ErrorCode::kUnsupported, "rdpmc");
}

TEST(Refusal, AProgramOutsideOfCodeBlocks) {
  Guest guest;
  Program program;
  program.code.resize(16);
  program.code_address = guest.stack.address;
  auto loaded = guest.interpreter.load(program);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kInvalidArgument);
}

TEST(Refusal, SteppingAFinishedProgram) {
  Guest guest;
  guest.start({0xC3});
  ASSERT_TRUE(guest.run(10));
  model::Retired retired;
  EXPECT_EQ(guest.interpreter.step(retired).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace skidproof::engines
