// Every refusal of the driver has words of its own, and names whoever stands behind it.
#include "pebs/direct/claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>

namespace skidproof::direct {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kLastRefusal = SKIDPROOF_VIRTUALIZES;

// Answers a claim as it is told.
class Answers final : public Device {
 public:
  int control(unsigned long request, void* argument) override {
    if (request == SKIDPROOF_IOC_RELEASE) {
      ++releases;
      return 0;
    }
    if (request != SKIDPROOF_IOC_CLAIM) return ENOTTY;
    auto& claim = *static_cast<skidproof_claim*>(argument);
    EXPECT_EQ(claim.abi, uint32_t{SKIDPROOF_ABI});
    EXPECT_EQ(claim.flags, 0u) << "the driver takes none";
    const uint32_t cpu = claim.cpu;
    claim = answer;
    claim.cpu = cpu;
    return error;
  }
  std::byte* map(uint64_t, size_t) override { return nullptr; }
  void unmap(std::byte*, size_t) override {}

  skidproof_claim answer{};
  int error = 0, releases = 0;
};

TEST(ClaimTest, EachRefusalHasItsOwnWordsAndWhatMendsIt) {
  std::set<std::string> seen;
  for (uint32_t refusal = SKIDPROOF_NOT_INTEL; refusal <= kLastRefusal; ++refusal) {
    const Error words = words_of(static_cast<skidproof_refusal>(refusal), 7, 3);
    EXPECT_TRUE(words.code == ErrorCode::kNotAvailable || words.code == ErrorCode::kPermission)
        << refusal;
    EXPECT_TRUE(seen.insert(words.message).second) << words.message;
    if (refusal != SKIDPROOF_FILE_OWNS) {
      EXPECT_NE(words.advice, "") << words.message;
    }
  }
}

TEST(ClaimTest, WordsCarryTheDetail) {
  EXPECT_THAT(words_of(SKIDPROOF_NO_PERFMON, 0x701).message, HasSubstr("0x701"));
  EXPECT_THAT(words_of(SKIDPROOF_COUNTERS_HELD, 0xC2).message, HasSubstr("MSR 0xc2"));
  EXPECT_THAT(words_of(SKIDPROOF_NO_MSR, 0x600).message, HasSubstr("MSR 0x600"));
  EXPECT_THAT(words_of(SKIDPROOF_CPU_OWNED, 812, 3).message,
              HasSubstr("CPU 3 is claimed by process 812"));
  EXPECT_THAT(words_of(SKIDPROOF_CPU_OWNED, 812, 3).advice, HasSubstr("kill 812"));
  EXPECT_THAT(words_of(SKIDPROOF_TRACES, 1, 3).message, HasSubstr("Intel PT traces on CPU 3"));
  EXPECT_THAT(words_of(SKIDPROOF_VIRTUALIZES, 1, 3).advice, HasSubstr("modprobe -r kvm_intel"));
}

TEST(ClaimTest, AnErrorWithoutAReasonIsNamedByItsErrno) {
  skidproof_claim claim{};
  claim.cpu = 3;
  const Error words = words_of(claim, ENOMEM);
  EXPECT_EQ(words.code, ErrorCode::kIo);
  EXPECT_THAT(words.message, HasSubstr("cannot claim CPU 3: Cannot allocate memory"));
}

TEST(ClaimTest, WhatTheModuleRefusesToLoadForIsSaid) {
  EXPECT_THAT(words_of(LoadRefusal::kXenPv).message, HasSubstr("Xen PV"));
  EXPECT_THAT(words_of(LoadRefusal::kFred).advice, HasSubstr("fred=off"));
}

TEST(ClaimTest, WhoHoldsItStandsBehindTheRefusal) {
  Answers device;
  device.error = EBUSY;
  device.answer.refusal = SKIDPROOF_COUNTERS_HELD;
  device.answer.detail = 0xC1;
  uint32_t asked = 0;
  const auto refused = claim(device, 3, [&](const skidproof_claim& answer) {
    asked = answer.refusal;
    return std::string("process 812 (perf) has perf events open");
  });
  ASSERT_FALSE(refused);
  EXPECT_EQ(asked, uint32_t{SKIDPROOF_COUNTERS_HELD});
  EXPECT_THAT(refused.error().message,
              ::testing::EndsWith("; process 812 (perf) has perf events open"));
  const auto nobody = claim(device, 3, [](const skidproof_claim&) { return std::string(); });
  EXPECT_EQ(nobody.error().message, words_of(SKIDPROOF_COUNTERS_HELD, 0xC1, 3).message);
}

TEST(ClaimTest, WhatTheDriverSaysOfTheCpuComesBack) {
  Answers device;
  device.answer.microcode = 0x28;
  device.answer.flags = SKIDPROOF_DRY_RUN | SKIDPROOF_WATCHED;
  const auto claimed = claim(device, 3);
  ASSERT_TRUE(claimed);
  EXPECT_EQ(claimed->cpu, 3u);
  EXPECT_EQ(claimed->microcode, 0x28u);
  EXPECT_EQ(claimed->flags, uint32_t{SKIDPROOF_DRY_RUN | SKIDPROOF_WATCHED});
  release(device);
  EXPECT_EQ(device.releases, 1);
}

}  // namespace
}  // namespace skidproof::direct
