// The table behind msr_name: single registers, and runs of numbered ones.
#include "pebs/arch/names.h"

#include <fmt/format.h>

#include "pebs/arch/msr.h"

namespace skidproof::arch {

namespace {

struct Register {
  uint32_t first;
  unsigned count;  // 1: a single one; more: numbered from 0
  const char* name;
};

constexpr Register kRegisters[] = {
    {IA32_APIC_BASE, 1, "IA32_APIC_BASE"},
    {IA32_BIOS_SIGN_ID, 1, "IA32_BIOS_SIGN_ID"},
    {IA32_PMC0, 8, "IA32_PMC"},
    {IA32_PERFEVTSEL0, 8, "IA32_PERFEVTSEL"},
    {IA32_MISC_ENABLE, 1, "IA32_MISC_ENABLE"},
    {IA32_DEBUGCTL, 1, "IA32_DEBUGCTL"},
    {IA32_FIXED_CTR0, 4, "IA32_FIXED_CTR"},
    {IA32_PERF_CAPABILITIES, 1, "IA32_PERF_CAPABILITIES"},
    {IA32_FIXED_CTR_CTRL, 1, "IA32_FIXED_CTR_CTRL"},
    {IA32_PERF_GLOBAL_STATUS, 1, "IA32_PERF_GLOBAL_STATUS"},
    {IA32_PERF_GLOBAL_CTRL, 1, "IA32_PERF_GLOBAL_CTRL"},
    {IA32_PERF_GLOBAL_OVF_CTRL, 1, "IA32_PERF_GLOBAL_OVF_CTRL"},
    {IA32_PERF_GLOBAL_STATUS_SET, 1, "IA32_PERF_GLOBAL_STATUS_SET"},
    {IA32_PERF_GLOBAL_INUSE, 1, "IA32_PERF_GLOBAL_INUSE"},
    {MSR_PERF_METRICS, 1, "MSR_PERF_METRICS"},
    {IA32_PEBS_ENABLE, 1, "IA32_PEBS_ENABLE"},
    {MSR_PEBS_LD_LAT_THRESHOLD, 1, "MSR_PEBS_LD_LAT_THRESHOLD"},
    {MSR_PEBS_DATA_CFG, 1, "MSR_PEBS_DATA_CFG"},
    {IA32_PEBS_BASE, 1, "IA32_PEBS_BASE"},
    {IA32_PEBS_INDEX, 1, "IA32_PEBS_INDEX"},
    {MSR_PEBS_FRONTEND, 1, "MSR_PEBS_FRONTEND"},
    {IA32_A_PMC0, 8, "IA32_A_PMC"},
    {IA32_DS_AREA, 1, "IA32_DS_AREA"},
    {MSR_ARCH_LBR_CTL, 1, "MSR_ARCH_LBR_CTL"},
    {IA32_X2APIC_LVT_PMI, 1, "IA32_X2APIC_LVT_PMI"},
};

// A register of the bank at 1900H: four for each counter, 32 of them general-purpose ones. [SDM Vol. 3 (325384-089) Table 21-2
// "New Performance Monitoring MSR Naming Details"]
std::string banked_name(uint32_t msr) {
  constexpr const char* kParts[kBankStride] = {"CTR", "CFG_A", "CFG_B", "CFG_C"};
  const bool fixed = msr >= IA32_PMC_FX0_CTR;
  const uint32_t from = msr - (fixed ? IA32_PMC_FX0_CTR : IA32_PMC_GP0_CTR);
  return fmt::format("IA32_PMC_{}{}_{}", fixed ? "FX" : "GP", from / kBankStride,
                     kParts[from % kBankStride]);
}

}  // namespace

std::string msr_name(uint32_t msr) {
  constexpr uint32_t kFixedCounters = 16;
  if (msr >= IA32_PMC_GP0_CTR && msr < IA32_PMC_FX0_CTR + kFixedCounters * kBankStride) {
    return banked_name(msr);
  }
  for (const Register& entry : kRegisters) {
    if (msr < entry.first || msr - entry.first >= entry.count) continue;
    if (entry.count == 1) return entry.name;
    return fmt::format("{}{}", entry.name, msr - entry.first);
  }
  return fmt::format("MSR {:X}H", msr);
}

}  // namespace skidproof::arch
