// What the meter counts, told instruction by instruction, and that it fails what costs too much.
#include "pebs/engines/overhead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pebs/arch/msr.h"

namespace skidproof::lab {
namespace {

using testing::HasSubstr;

constexpr uint64_t kDriver = 0xFFFF'FFFF'C000'0000, kCode = 0x4000'0000'1000, kUser = 0x40'0000;

class OverheadTest : public testing::Test {
 protected:
  void at(uint64_t ip, uint64_t instructions = 1) {
    for (uint64_t n = 0; n < instructions; ++n) retire(ip + n, false);
  }
  void write(uint64_t counters) {
    meter.enabled(counters);
    retire(kDriver, false);
  }
  void at_ring_3(uint64_t ip, uint64_t instructions) {
    for (uint64_t n = 0; n < instructions; ++n) retire(ip + n, true);
  }
  // An interrupt of this many instructions, the last one its IRET.
  void interrupt(uint64_t instructions, bool to_the_driver = true) {
    meter.interrupt(to_the_driver);
    at(kDriver, instructions - 1);
    meter.interrupt_return();
    at(kDriver);
  }
  void begin(uint64_t instructions = 4) {
    write(1);
    at(kDriver, instructions);
    at(kCode, 10);
  }
  void end(uint64_t instructions = 4) {
    at(kDriver, instructions);
    write(0);
  }
  bool held() const { return figures.measured() && figures.within({}); }

  Overhead figures;
  OverheadMeter meter{figures};

 private:
  void retire(uint64_t ip, bool user) {
    if (meter.watching()) meter.retired(ip, user);
  }
};

TEST_F(OverheadTest, CountsWhatStandsAroundAProgramWithoutTheWrites) {
  begin(3);
  end(5);
  EXPECT_EQ(figures.before.max(), 3);
  EXPECT_EQ(figures.after.max(), 5);
  EXPECT_FALSE(meter.watching());
}

TEST_F(OverheadTest, CountsWhatStandsAroundAProgramAtRing3) {
  constexpr unsigned kInvalidOpcode = 6, kDivideError = 0;
  write(1);
  at(kDriver, 4);
  at_ring_3(kCode, 10);
  meter.exception(kInvalidOpcode);
  end(7);
  EXPECT_EQ(figures.before.max(), 4);
  EXPECT_EQ(figures.after.max(), 7);

  write(1);
  at(kDriver, 4);
  at_ring_3(kCode, 10);
  meter.exception(kDivideError);
  end(5000);
  EXPECT_EQ(figures.after.count(), 1) << "it did not return";
}

TEST_F(OverheadTest, CountsAnInterruptToItsReturn) {
  begin();
  interrupt(250);
  at(kCode, 10);
  interrupt(300);
  end();
  EXPECT_EQ(figures.handler[0].count(), 2);
  EXPECT_EQ(figures.handler[0].min(), 250);
  EXPECT_EQ(figures.handler[0].median(), 250);
  EXPECT_EQ(figures.handler[0].max(), 300);
  EXPECT_EQ(figures.after.max(), 4);
  EXPECT_TRUE(held());
}

TEST_F(OverheadTest, CountsAnExceptionInTheHandlerWithIt) {
  begin();
  meter.interrupt(true);
  at(kDriver, 100);
  meter.exception(14);
  at(kDriver, 49);
  meter.interrupt_return();
  at(kDriver);
  at(kDriver, 99);
  meter.interrupt_return();
  at(kDriver);
  EXPECT_EQ(figures.handler[0].max(), 250);
}

TEST_F(OverheadTest, CountsTheWritesOfTheHandlerInIt) {
  begin();
  meter.interrupt(true);
  write(0);
  at(kDriver, 200);
  write(1);
  meter.interrupt_return();
  at(kDriver);
  at(kCode, 10);
  end();
  EXPECT_EQ(figures.handler[0].max(), 203);
  EXPECT_EQ(figures.before.count(), 1);
  EXPECT_EQ(figures.after.max(), 4);
}

TEST_F(OverheadTest, KeepsTheKernelsOwnHandlerApart) {
  begin();
  end();
  interrupt(5000, false);
  EXPECT_TRUE(figures.handler.empty());
  EXPECT_EQ(figures.elsewhere.max(), 5000);
  EXPECT_FALSE(figures.measured());
}

TEST_F(OverheadTest, TakesRegistersThatUserSpaceWroteForNoRun) {
  write(1);
  at(kDriver, 5000);
  meter.retired(kUser, true);
  EXPECT_FALSE(meter.watching());
  EXPECT_EQ(figures.before.count(), 0);
}

TEST_F(OverheadTest, DoesNotTakeAFaultForAReturn) {
  begin();
  meter.exception(6);
  at(kDriver, 5000);
  write(0);
  EXPECT_EQ(figures.after.count(), 0);
}

TEST_F(OverheadTest, DoesNotTakeALoopThatIsInterruptedForAReturn) {
  begin();
  meter.interrupt(true);
  write(0);
  meter.interrupt_return();
  at(kDriver);
  at(kDriver, 5000);
  EXPECT_FALSE(meter.watching());
  EXPECT_EQ(figures.after.count(), 0);
}

TEST_F(OverheadTest, FailsWhatIsTooLong) {
  begin(50);
  interrupt(400);
  at(kCode, 10);
  end(50);
  EXPECT_TRUE(held());
  begin(51);
  end(50);
  EXPECT_FALSE(held());

  figures = {};
  begin();
  interrupt(401);
  at(kCode, 10);
  end();
  EXPECT_FALSE(held());
  EXPECT_THAT(figures.report({}), HasSubstr("overhead: failed"));
}

TEST_F(OverheadTest, AllowsAnInterruptWhatItsPlanWrites) {
  const auto interrupt_that_writes = [this](uint64_t instructions, std::vector<uint32_t> msrs) {
    figures = {};
    begin();
    meter.interrupt(true);
    for (const uint32_t msr : msrs) meter.write_msr(msr);
    at(kDriver, instructions - 1);
    meter.interrupt_return();
    at(kDriver);
    at(kCode, 10);
    end();
    return held();
  };
  using namespace arch;  // MSR names
  constexpr uint32_t kGsBase = 0xC000'0101;
  EXPECT_TRUE(interrupt_that_writes(600, {IA32_PERF_GLOBAL_CTRL, IA32_PMC0}));
  EXPECT_THAT(figures.report({}), HasSubstr("with 1 register more written: 600 (at most 600)"));
  EXPECT_FALSE(interrupt_that_writes(601, {IA32_PERF_GLOBAL_CTRL, IA32_PMC0}));
  EXPECT_FALSE(interrupt_that_writes(401, {IA32_PERF_GLOBAL_CTRL, IA32_PERF_GLOBAL_OVF_CTRL,
                                           IA32_DEBUGCTL, IA32_X2APIC_LVT_PMI, kGsBase}))
      << "the driver's own";
}

TEST_F(OverheadTest, FailsASystemCallBetweenTwoRecordsOfARun) {
  meter.system_call();  // what began the run
  begin();
  meter.record();
  interrupt(200);
  at(kCode, 10);
  meter.record();
  end();
  EXPECT_TRUE(held());
  // Another run's record comes after a call, which is not for it.
  meter.system_call();
  begin();
  meter.record();
  EXPECT_TRUE(held());
  EXPECT_EQ(figures.records, 3);

  // A driver that leaves the records to user space, and goes on where the program stood.
  meter.interrupt(true);
  write(0);
  meter.interrupt_return();
  at(kDriver);
  meter.system_call();
  begin();
  meter.record();
  EXPECT_EQ(figures.system_calls, 1);
  EXPECT_FALSE(held());
}

TEST_F(OverheadTest, SaysNothingWhereNothingRan) {
  EXPECT_FALSE(held());
  EXPECT_THAT(figures.report({}), HasSubstr("nothing was measured"));
}

}  // namespace
}  // namespace skidproof::lab
