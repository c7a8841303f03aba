// Where a processor keeps its last branches: the LBR stack.
//
// Source: Intel SDM Vol. 3 (325384-059), §17.4.8 "LBR Stack", table "LBR Stack Size and TOS Pointer Range"; chapter 35
// "Model-Specific Registers" for the addresses; Linux 6.12, arch/x86/events/intel/lbr.c, intel_pmu_lbr_init_….
#ifndef SKIDPROOF_PEBS_ARCH_LAST_BRANCHES_H_
#define SKIDPROOF_PEBS_ARCH_LAST_BRANCHES_H_

#include <cstdint>

namespace skidproof::arch {

// MSR addresses; 0: there is no such register.
struct LastBranches {
  uint8_t depth = 0;     // entries; 0: no row describes the stack
  uint32_t from = 0;     // of entry 0, the others behind it
  uint32_t to = 0;       // the same
  uint32_t info = 0;     // the same
  uint32_t tos = 0;      // says which entry is the newest; without it entry 0 is
  uint32_t filters = 0;  // MSR_LBR_SELECT

  constexpr bool has(uint32_t msr) const {
    const auto in = [&](uint32_t first) {
      return first != 0 && msr >= first && msr - first < depth;
    };
    return in(from) || in(to) || in(info) ||
           (depth != 0 && msr != 0 && (msr == tos || msr == filters));
  }
  // Which entry is the i-th before the newest, where the newest is entry `top`.
  constexpr unsigned entry(unsigned top, unsigned i) const {
    return tos == 0 ? i : (top + depth - i) % depth;
  }
};

inline constexpr uint32_t MSR_LBR_SELECT = 0x1C8;
inline constexpr uint32_t MSR_LASTBRANCH_TOS = 0x1C9;
inline constexpr LastBranches kLastBranches4{
    .depth = 4, .from = 0x40, .to = 0x60, .tos = MSR_LASTBRANCH_TOS};
inline constexpr LastBranches kLastBranches16{
    .depth = 16, .from = 0x680, .to = 0x6C0, .tos = MSR_LASTBRANCH_TOS, .filters = MSR_LBR_SELECT};
inline constexpr LastBranches kLastBranches32{.depth = 32,
                                              .from = 0x680,
                                              .to = 0x6C0,
                                              .info = 0xDC0,
                                              .tos = MSR_LASTBRANCH_TOS,
                                              .filters = MSR_LBR_SELECT};
// MSR_ARCH_LBR_FROM_0, MSR_ARCH_LBR_TO_0, MSR_ARCH_LBR_INFO_0. [Linux 6.12 asm/msr-index.h]
inline constexpr LastBranches kArchitecturalLastBranches{
    .depth = 32, .from = 0x1500, .to = 0x1600, .info = 0x1200};

// MSR_LBR_SELECT: what is not recorded. [SDM 17.7.2 "Filtering of Last Branch Records", table "MSR_LBR_SELECT for
// Intel microarchitecture code name Nehalem"]
namespace lbr_select {
inline constexpr uint64_t kNotAtRing0 = 1;     // CPL_EQ_0
inline constexpr uint64_t kNotAboveRing0 = 2;  // CPL_NEQ_0
}  // namespace lbr_select

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_LAST_BRANCHES_H_
