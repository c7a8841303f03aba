// What is said against a processor before anybody claims it.
#include "harness/cli/machines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/run/native_identity.h"

namespace skidproof::cli {
namespace {

using testing::Contains;
using testing::Field;
using testing::HasSubstr;

Identity part(unsigned model, unsigned stepping, uint32_t microcode) {
  Identity who;
  who.vendor = "GenuineIntel";
  who.brand = "Test Processor";
  who.family = 6;
  who.model = model;
  who.stepping = stepping;
  who.microcode = microcode;
  who.microarch = arch::identify(6, static_cast<uint8_t>(model), static_cast<uint8_t>(stepping));
  return who;
}

TEST(MachinesTest, ACoreOfATypeWithoutARowIsRefusedByNameWithWhatToDo) {
  Identity who = part(0x97, 2, 0x30);
  who.core_type = "E";
  who.microarch = arch::identify(6, 0x97, 2, arch::CoreType::kAtom);
  EXPECT_THAT(processor_obstacles(who, 3, host_cpuid),
              Not(Contains(Field(&Obstacle::what, HasSubstr("no row of facts")))));
  who = part(0xBE, 0, 0x30);
  who.core_type = "P";
  who.microarch = arch::identify(6, 0xBE, 0, arch::CoreType::kCore);
  const std::vector<Obstacle> obstacles = processor_obstacles(who, 17, host_cpuid);
  ASSERT_FALSE(obstacles.empty());
  EXPECT_THAT(obstacles.back().what, HasSubstr("CPU 17 is a P-core of Test Processor"));
  EXPECT_THAT(obstacles.back().mend, HasSubstr("--core E"));
}

TEST(MachinesTest, AProcessorWithoutARowIsRefusedByItsModel) {
  const std::vector<Obstacle> obstacles = processor_obstacles(part(0x37, 8, 0), 0, host_cpuid);
  ASSERT_FALSE(obstacles.empty());
  EXPECT_THAT(obstacles.back().what, HasSubstr("no row of facts covers family 6 model 0x37"));
}

TEST(MachinesTest, MicrocodeBelowTheMinimumIsNotedWithTheNumbersAndTheirSource) {
  const std::string note = microcode_note(part(0x2A, 7, 0x25));
  EXPECT_THAT(note, HasSubstr("0x25"));
  EXPECT_THAT(note, HasSubstr("0x28"));
  EXPECT_THAT(note, HasSubstr("intel_snb_pebs_broken"));
  EXPECT_THAT(microcode_note(part(0x2D, 6, 0x600)), HasSubstr("0x618"));
  EXPECT_EQ(microcode_note(part(0x2A, 7, 0x28)), "");
  EXPECT_EQ(microcode_note(part(0x2A, 5, 0x1)), "") << "no minimum is known of it";
  EXPECT_EQ(microcode_note(part(0x2A, 7, 0)), "") << "not readable";
  EXPECT_EQ(microcode_note(part(0x37, 8, 1)), "") << "no row";
}

TEST(MachinesTest, TheMachineRowSaysSoToo) {
  OpenMachine machine;
  machine.identity = part(0x2A, 7, 0x25);
  EXPECT_THAT(machine_row(machine).capabilities, Contains(HasSubstr("older than 0x28")));
}

TEST(MachinesTest, ChoosingACpuIsForDirectAlone) {
  for (const char* name : {"model:sandy-bridge", "native"}) {
    MachineOptions options{.name = name};
    options.cpu.core = "P";
    const auto opened = open_machine(options, 1);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(opened.error().advice, HasSubstr("--machine direct"));
  }
  MachineOptions options{.name = "auto"};
  options.cpu.cpu = 100'000;
  EXPECT_FALSE(open_machine(options, 1)) << "no model in its place";
}

}  // namespace
}  // namespace skidproof::cli
