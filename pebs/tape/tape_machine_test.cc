// What is replayed is what was seen; what was not asked is not answered.
#include "pebs/tape/tape_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pebs/tape/testing/experiment.h"

namespace skidproof::tape {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::shared_ptr<TapeMachine> replay(const Recorded& tape) {
  auto machine = TapeMachine::create(tape.section.content, tape.identity, 7);
  EXPECT_TRUE(machine) << machine.error().text();
  return *machine;
}

// What a replay of the usual experiment says to another one.
Error off_tape(const Wishes& otherwise) {
  static const Recorded tape = recorded();
  const auto machine = replay(tape);
  experiment(*machine, otherwise);
  const auto finished = machine->finished();
  EXPECT_FALSE(finished) << "nothing was missed";
  return finished ? Error{} : finished.error();
}

TEST(TapeMachine, RepeatsWhatWasSeen) {
  for (const char* microarch : {"core2", "sandy-bridge", "skylake", "sapphire-rapids"}) {
    const Recorded tape = recorded({.microarch = microarch});
    EXPECT_THAT(tape.seen, AllOf(HasSubstr("PMI"), HasSubstr("#GP"))) << microarch;
    EXPECT_EQ(experiment(*model(microarch), {.microarch = microarch}), tape.seen)
        << "recording changes nothing";
    const auto machine = replay(tape);
    EXPECT_EQ(experiment(*machine, {.microarch = microarch}), tape.seen);
    const auto finished = machine->finished();
    EXPECT_TRUE(finished) << finished.error().text();
  }
}

TEST(TapeMachine, IsTheMachineThatWasRecorded) {
  const Recorded tape = recorded();
  const auto machine = replay(tape);
  const Identity& replayed = machine->identity();
  EXPECT_EQ(replayed.name, "model:sandy-bridge");
  EXPECT_EQ(replayed.provenance, Provenance::kModel);
  EXPECT_EQ(replayed.microarch, tape.identity.microarch);
  EXPECT_EQ(replayed.capabilities, tape.identity.capabilities);
  EXPECT_EQ(replayed.modes, tape.identity.modes);
}

TEST(TapeMachine, HasTheIdentityOfItsSectionWhereThatIsNotTheTapes) {
  const std::shared_ptr<Machine> machine = model("haswell");
  Identity other = machine->identity();
  other.microcode = 0x99;
  RecordingMachine recording(machine, {.test = "Suite.Test"}, 7, other);
  const auto replayed = TapeMachine::create(recording.take_section().content, other, 7);
  ASSERT_TRUE(replayed);
  EXPECT_EQ((*replayed)->identity().microcode, machine->identity().microcode);
}

TEST(TapeMachine, IsOfOneSeed) {
  const Recorded tape = recorded();
  const auto machine = TapeMachine::create(tape.section.content, tape.identity, 8);
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().code, ErrorCode::kOffTape);
  EXPECT_THAT(machine.error().message, AllOf(HasSubstr("7 on the tape"), HasSubstr("8 now")));
}

TEST(TapeMachine, SaysWhichRegisterIsWrittenOtherwise) {
  const Error error = off_tape({.period = 98});
  EXPECT_EQ(error.code, ErrorCode::kOffTape);
  // The reset slot in the DS area is written before the counter is.
  EXPECT_THAT(error.message,
              HasSubstr("off the tape: run 1 of the test: IA32_PMC0, written before the "
                        "program, was 0xffffffffff9f on the tape and is "
                        "0xffffffffff9e now"));
}

TEST(TapeMachine, SaysWhatElseIsAskedOtherwise) {
  EXPECT_THAT(
      off_tape({.iterations = 1999}).message,
      HasSubstr("run 1 of the test: number of iterations was 2000 on the tape and is 1999"));
  EXPECT_THAT(off_tape({.asked_last = 0x1D9}).message,
              HasSubstr("rdmsr(IA32_DEBUGCTL) now, and the tape goes on with "
                        "rdmsr(IA32_PERF_GLOBAL_CTRL)"));
  EXPECT_THAT(off_tape({.leaf_asked_last = 1}).message,
              HasSubstr("cpuid(0x1, 0) now, and the tape goes on with cpuid(0xa, 0)"));
  EXPECT_THAT(off_tape({.asks_at_the_end = false}).message,
              AllOf(HasSubstr("call "), HasSubstr("the test ended, and the tape goes on with ")));
}

TEST(TapeMachine, SaysThatMoreIsAskedThanWasRecorded) {
  const Recorded tape = recorded();
  const auto machine = replay(tape);
  experiment(*machine);
  const auto more = machine->rdmsr(0x10);
  ASSERT_FALSE(more);
  EXPECT_THAT(more.error().message, HasSubstr("rdmsr(MSR 10H) now, and the tape has ended"));
}

TEST(TapeMachine, ComparesTheProgram) {
  EXPECT_THAT(off_tape({.parameters = "width=16"}).message,
              AllOf(HasSubstr("run 1 of the test: the program's parameters was "),
                    HasSubstr("width=8,"), HasSubstr("width=16,")));
  const std::shared_ptr<Machine> machine = model("sandy-bridge");
  RecordingMachine recording(machine, {.test = "Suite.Test"}, 7, machine->identity());
  Program program;
  const auto code = recording.allocate({.use = MemoryUse::kCode});
  program.code_address = program.entry = code->address;
  program.code = {std::byte{0x90}, std::byte{0x90}, std::byte{0xC3}};
  ASSERT_TRUE(recording.run(program, {}));
  const auto replayed =
      *TapeMachine::create(recording.take_section().content, machine->identity(), 7);
  ASSERT_TRUE(replayed->allocate({.use = MemoryUse::kCode}));
  program.code[1] = std::byte{0xF8};
  const auto log = replayed->run(program, {});
  ASSERT_FALSE(log);
  EXPECT_THAT(
      log.error().message,
      HasSubstr(
          "run 1 of the test: the program's code differs at byte 1: 0x90 on the tape, 0xf8 now"));
}

TEST(TapeMachine, ComparesWhatTheTestWroteToMemory) {
  EXPECT_THAT(off_tape({.fill = std::byte{0x5A}}).message,
              AllOf(HasSubstr("run 1 of the test: byte 0xfff of the debug store's block at 0x"),
                    HasSubstr("was left alone on the tape and was set to 0x5a now")));
  EXPECT_THAT(off_tape({.seed = 4}).message,
              AllOf(HasSubstr("run 1 of the test: the data block at 0x"),
                    HasSubstr("was not filled as it was for the tape")));
}

TEST(TapeMachine, AnswersNothingOnceItIsOffTheTape) {
  const Recorded tape = recorded();
  const auto machine = replay(tape);
  EXPECT_FALSE(machine->rdmsr(0x10));
  const auto right = machine->allocate({.bytes = 4096});
  ASSERT_FALSE(right);
  EXPECT_EQ(right.error().code, ErrorCode::kOffTape);
  EXPECT_EQ(right.error().message, machine->finished().error().message);
}

TEST(TapeMachine, MemoryOutlivesIt) {
  const Recorded tape = recorded();
  auto machine = replay(tape);
  const auto first = machine->allocate(
      {.bytes = (**find_kernel("store_stream"))
                    .data_bytes(*Params::parse((**find_kernel("store_stream")).parameters, ""))});
  ASSERT_TRUE(first) << first.error().text();
  machine.reset();
  first->host[0] = std::byte{1};
  EXPECT_EQ(first->host[1], std::byte{0});
}

// Whatever stands in a section, nothing breaks; what does not mean anything is said to be damaged.
TEST(TapeMachine, SurvivesAnySection) {
  const Recorded tape = recorded();
  Random random(5);
  size_t as_before = 0;
  for (int i = 0; i < 1000; ++i) {
    std::vector<std::byte> content = tape.section.content;
    for (uint64_t n = random.between(1, 4); n > 0; --n) {
      const auto at = static_cast<ptrdiff_t>(random.below(content.size()));
      switch (random.below(3)) {
        case 0:
          content[static_cast<size_t>(at)] ^= std::byte(1 << random.below(8));
          break;
        case 1:
          content.insert(content.begin() + at, std::byte(random.next()));
          break;
        default:
          content.resize(static_cast<size_t>(at) + 1);
      }
    }
    const auto machine = TapeMachine::create(content, tape.identity, 7);
    if (!machine) continue;
    const bool same = experiment(**machine) == tape.seen;
    if (same && (*machine)->finished()) ++as_before;
  }
  // An answer that the experiment does not look at may have changed.
  EXPECT_LT(as_before, 100u);
}

}  // namespace
}  // namespace skidproof::tape
