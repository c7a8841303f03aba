// The rate of a core that nobody shares, out of probes of which some are wrong; samples beside another thread that comes and goes.
#include "harness/characterize/company.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>

#include "harness/characterize/testing/machine_over.h"
#include "harness/characterize/testing/native_bench.h"

namespace skidproof {
namespace {

TEST(OwnRate, IsTheLeastOfFewProbes) {
  OwnRate rate;
  EXPECT_TRUE(std::isinf(rate.cycles()));
  for (const double probed : {0.30, 0.18, 0.25}) rate.add(probed);
  EXPECT_EQ(rate.cycles(), 0.18);
}

TEST(OwnRate, ForgivesOneInTwoHundredThatIsTooShort) {
  OwnRate rate;
  rate.add(0.14);
  EXPECT_EQ(rate.cycles(), 0.14) << "nothing says otherwise yet";
  for (int i = 0; i < 1000; ++i) rate.add(i % 3 == 0 ? 0.18 : 0.20);
  for (int i = 0; i < 4; ++i) rate.add(0.15);
  EXPECT_EQ(rate.cycles(), 0.18);
}

// Alone in a hundredth of the time is alone.
TEST(OwnRate, FindsARateThatIsSeldomSeen) {
  OwnRate rate;
  for (int i = 0; i < 200'000; ++i) rate.add(i % 100 == 0 ? 0.18 : 0.36 + i * 1e-7);
  EXPECT_EQ(rate.cycles(), 0.18);
}

// While another thread is busy a no-operation takes twice as long; all else takes a tick an instruction in any case.
class SharedCore : public MachineOver {
 public:
  using MachineOver::MachineOver;
  Expected<RunLog> run(const Program& program, const RunPlan& plan) override {
    RunLog log = SKIDPROOF_TRY(MachineOver::run(program, plan));
    const bool probe = program.kernel == "nop_sled";
    const double pace = !probe ? 1 : busy && busy() ? 0.5 : 0.25;
    log.noise = {};
    log.tsc = static_cast<uint64_t>(
        pace * static_cast<double>((program.per_iteration * plan.iterations).instructions));
    return log;
  }
  std::function<bool()> busy;  // asked before each probe
};

class CompanyTest : public NativeBench {
 protected:
  void SetUp() override {
    NativeBench::SetUp();
    shared_ = std::make_unique<SharedCore>(*machine_);
    auto bench = Workbench::create(*shared_, options_, out_);
    ASSERT_TRUE(bench) << bench.error().text();
    bench_.emplace(std::move(*bench));
    auto company = Company::create(*bench_);
    ASSERT_TRUE(company) << company.error().text();
    company_.emplace(std::move(*company));
  }
  Sample watch() {
    const auto sample = company_->watch([&]() -> Expected<Sample> {
      ++taken_;
      return Sample{.ns = 2, .cycles = 2};
    });
    EXPECT_TRUE(sample) << sample.error().text();
    return sample.value_or(Sample{});
  }

  std::unique_ptr<SharedCore> shared_;
  std::optional<Company> company_;
  int taken_ = 0;
};

TEST_F(CompanyTest, AloneASampleIsTakenOnce) {
  company_->set_patience(100);
  const Sample sample = watch();
  EXPECT_EQ(taken_, 1);
  EXPECT_EQ(sample.noise.repeats, 0u);
  EXPECT_TRUE(company_->alone(sample.probed));
}

TEST_F(CompanyTest, ASampleWaitsUntilTheOtherThreadIsGone) {
  company_->set_patience(100);
  int left = 6;
  shared_->busy = [&] { return left-- > 0; };
  const Sample sample = watch();
  EXPECT_TRUE(company_->alone(sample.probed));
  EXPECT_GT(sample.noise.repeats, 0u);
  EXPECT_EQ(taken_, 1) << "there was company before each of the others";
}

TEST_F(CompanyTest, WhoComesWhileASampleIsTakenSpoilsIt) {
  company_->set_patience(100);
  int runs = 0;  // of a probe there are two
  shared_->busy = [&] { return taken_ == 1 && runs++ < 2; };
  const Sample sample = watch();
  EXPECT_TRUE(company_->alone(sample.probed));
  EXPECT_EQ(taken_, 2);
}

TEST_F(CompanyTest, PatienceEndsAndTheSampleSaysSo) {
  shared_->busy = [] { return true; };
  company_->set_patience(100, 0.002);
  for (int i = 1; i <= 2; ++i) {
    const Sample sample = watch();
    EXPECT_EQ(taken_, i);
    EXPECT_GT(sample.noise.repeats, 0u) << "each sample has patience of its own";
    EXPECT_FALSE(company_->alone(sample.probed));
  }
  company_->set_patience(0);
  EXPECT_EQ(watch().noise.repeats, 0u);
}

TEST_F(CompanyTest, WhoIsCancelledWaitsNoLonger) {
  std::atomic<bool> cancel = false;
  options_.cancel = &cancel;
  int probes = 0;
  shared_->busy = [&] {
    cancel = ++probes > 2;  // of a probe there are two
    return true;
  };
  company_->set_patience(100);
  EXPECT_EQ(watch().noise.repeats, 1u);
  EXPECT_EQ(taken_, 1);
}

TEST_F(CompanyTest, OfAPointThoseInCompanyAreDroppedUnlessTheirNumberWasAskedFor) {
  const double alone = watch().probed, shared = 2 * alone;
  Point point;
  point.probed = {alone, shared, alone, alone, alone, shared, alone, alone};
  point.ns = point.cycles = point.control = {1, 2, 3, 4, 5, 6, 7, 8};
  point.counts.resize(point.ns.size());
  Point asked = point;
  company_->drop_from(point);
  EXPECT_THAT(point.ns, testing::ElementsAre(1, 3, 4, 5, 7, 8));
  options_.repetitions = 8;
  company_->drop_from(asked);
  EXPECT_EQ(asked.ns.size(), 8u);
  EXPECT_EQ(asked.in_company, 2u);
}

}  // namespace
}  // namespace skidproof
