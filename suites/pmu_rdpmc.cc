// RDPMC: which index reads which counter, at what width, for whom.
#include <cstdint>
#include <vector>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::pmu_rdpmc {
namespace {

using namespace suites;
using arch::IA32_FIXED_CTR0;
using arch::IA32_PMC0;

constexpr uint32_t kFixed = uint32_t{1} << 30;
constexpr char kNoRdpmc[] = "this machine has no way to execute RDPMC so";

bool executes(const Expected<uint64_t>& read) {
  return read.has_value() || read.error().code != ErrorCode::kNotAvailable;
}

Expected<bool> refuses_rdpmc(Machine& machine, const CounterRead& read) {
  Expected<uint64_t> value = machine.rdpmc(read);
  if (value) return false;
  if (value.error().code == ErrorCode::kGeneralProtection) return true;
  return tl::make_unexpected(value.error());
}

}  // namespace

SKIDPROOF_SUITE(PmuRdpmc, kCount);

SKIDPROOF_TEST(PmuRdpmc, ReadsEachCounterByItsNumber, clause::M32) {
  SKIDPROOF_REQUIRE(executes(machine().rdpmc({.index = 0})), SkipCategory::kMachineLimit, kNoRdpmc);
  const unsigned gp = reported_counters(machine());
  const unsigned fixed = machine().cpuid(0xA, 0).edx & 0x1F;
  // Every counter holds a value of its own, with high bits where they can be written.
  const uint32_t base = uarch().full_width_writes ? arch::IA32_A_PMC0 : IA32_PMC0;
  Restore restore(machine(), {});
  for (uint32_t n = 0; n < gp; ++n) restore.add(IA32_PMC0 + n);
  for (uint32_t i = 0; i < fixed; ++i) restore.add(IA32_FIXED_CTR0 + i);
  for (uint32_t n = 0; n < gp; ++n) {
    need(machine().wrmsr(base + n, random().next() & arch::gp_counter_mask(uarch())));
  }
  for (uint32_t i = 0; i < fixed; ++i) {
    need(machine().wrmsr(IA32_FIXED_CTR0 + i, random().next() & arch::fixed_counter_mask(uarch())));
  }
  for (uint32_t n = 0; n < gp; ++n) {
    VERIFY_EQ(results::hex(need(machine().rdpmc({.index = n}))),
              results::hex(need(machine().rdmsr(IA32_PMC0 + n))))
        << "counter " << n;
  }
  for (uint32_t i = 0; i < fixed; ++i) {
    VERIFY_EQ(results::hex(need(machine().rdpmc({.index = kFixed | i}))),
              results::hex(need(machine().rdmsr(IA32_FIXED_CTR0 + i))))
        << "fixed counter " << i;
  }
  // A legacy write of a value with bit 31 set is sign-extended: the highest bit comes back, too.
  need(machine().wrmsr(IA32_PMC0, 0x8000'0001));
  VERIFY_EQ(results::hex(need(machine().rdpmc({.index = 0}))),
            results::hex(arch::legacy_write_value(uarch(), 0x8000'0001)));
}

SKIDPROOF_TEST(PmuRdpmc, RefusesCountersThatDoNotExist, clause::M32) {
  SKIDPROOF_REQUIRE(executes(machine().rdpmc({.index = 0})), SkipCategory::kMachineLimit, kNoRdpmc);
  // The lowest two of each kind that CPUID does not have, and a high one.
  const auto refuse_absent = [&](uint64_t there, uint32_t kind) {
    unsigned tried = 0;
    for (uint32_t n = 0; n < 32; ++n) {
      if ((there >> n & 1) != 0 || (tried >= 2 && n < 31)) continue;
      VERIFY_TRUE(need(refuses_rdpmc(machine(), {.index = kind | n}))) << results::hex(kind | n);
      ++tried;
    }
  };
  refuse_absent(arch::gp_bits(uarch(), reported_counters(machine())), 0);
  const uint64_t common = arch::low_bits(machine().cpuid(0xA, 0).edx & 0x1F);
  refuse_absent(common | uarch().extended.fixed, kFixed);
}

// Ring 0 may always; above it CR4.PCE decides.
SKIDPROOF_TEST(PmuRdpmc, NeedsCr4PceAboveRing0, clause::M37) {
  SKIDPROOF_REQUIRE(executes(machine().rdpmc({.index = 0, .ring = Ring::kUser, .cr4_pce = false})),
                    SkipCategory::kMachineLimit, kNoRdpmc);
  for (uint32_t index : {uint32_t{0}, kFixed}) {
    auto refused = [&](Ring ring, bool pce) {
      return need(refuses_rdpmc(machine(), {.index = index, .ring = ring, .cr4_pce = pce}));
    };
    VERIFY_FALSE(refused(Ring::kKernel, true)) << results::hex(index);
    VERIFY_FALSE(refused(Ring::kKernel, false)) << results::hex(index);
    VERIFY_FALSE(refused(Ring::kUser, true)) << results::hex(index);
    VERIFY_TRUE(refused(Ring::kUser, false)) << results::hex(index);
  }
}

}  // namespace skidproof::check::pmu_rdpmc
