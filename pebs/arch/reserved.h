// What of each register can be written, and what enumeration says: masks and values out of a
// microarch row. Writing a 1 outside a mask raises #GP unless the comment says otherwise.
#ifndef SKIDPROOF_PEBS_ARCH_RESERVED_H_
#define SKIDPROOF_PEBS_ARCH_RESERVED_H_

#include <cstdint>

#include "pebs/arch/microarch.h"
#include "pebs/arch/msr.h"

namespace skidproof::arch {

// The lowest `count` bits.
constexpr uint64_t low_bits(unsigned count) { return count >= 64 ? ~uint64_t{0} : bit(count) - 1; }

// General-purpose counters of one logical processor: fewer where a second one shares the core.
// [SDM 18.9.2 "Counter Coalescence"]
constexpr unsigned gp_counters(const Microarch& m, bool sibling_thread) {
  return sibling_thread ? m.gp_counters : m.gp_counters_alone;
}

// What a general-purpose counter holds, and what IA32_A_PMCx takes. A write to the legacy IA32_PMCx
// never faults for its value: EAX is sign-extended to this width. [SDM 18.2.5, 18.9.3]
constexpr uint64_t gp_counter_mask(const Microarch& m) { return low_bits(m.gp_width); }
constexpr uint64_t legacy_write_value(const Microarch& m, uint64_t written) {
  const auto extended = static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(written)));
  return extended & gp_counter_mask(m);
}

// Fixed counters: no sign extension, bits above the width reserved. [SDM 18.2.2]
constexpr uint64_t fixed_counter_mask(const Microarch& m) { return low_bits(m.fixed_width); }

// IA32_PERFEVTSELx. [SDM Figure 18-6; bits 32 and up need TSX]
constexpr uint64_t writable_perfevtsel(const Microarch& m) { return m.perfevtsel_defined; }

// IA32_FIXED_CTR_CTRL: four bits for each counter. [SDM Figure 18-7]
constexpr uint64_t writable_fixed_ctr_ctrl(const Microarch& m) {
  return low_bits(4U * m.fixed_counters);
}

// IA32_PERF_GLOBAL_CTRL: existing counters only. [SDM 18.2.2; 18.9.2 for bits 7:4]
constexpr uint64_t writable_global_ctrl(const Microarch& m, unsigned gp) {
  return low_bits(gp) | (low_bits(m.fixed_counters) << status::kFixedShift);
}

// The bits that IA32_PERF_GLOBAL_STATUS can show; the register is read-only.
// [SDM Figure 18-33 (Sandy Bridge), Figure 18-20 (Nehalem)]
constexpr uint64_t status_bits(const Microarch& m, unsigned gp) {
  return writable_global_ctrl(m, gp) | status::kOvfUncore | status::kOvfBuffer | status::kCondChgd;
}

// IA32_PERF_GLOBAL_OVF_CTRL: 1 clears. [SDM Figure 18-34: ClrOvfUncore 61, ClrOvfDSBuffer 62,
// ClrCondChgd 63. Table 35-2 lists 61 for 06_2EH only; the figures show it on both generations]
constexpr uint64_t clearable_status(const Microarch& m, unsigned gp) { return status_bits(m, gp); }

// IA32_PEBS_ENABLE up to Skylake. [SDM Figures 18-21, 18-35; Tables 35-13, 35-18]
constexpr uint64_t writable_pebs_enable(const Microarch& m) {
  const uint64_t load_latency = uint64_t{m.load_latency_enable} << pebs_enable::kLoadLatencyShift;
  const uint64_t store = m.precise_store_counter != 0 ? pebs_enable::kPreciseStore : 0;
  return uint64_t{m.pebs_counters} | load_latency | store;
}

// MSR_PEBS_LD_LAT_THRESHOLD. [SDM Figure 18-23] Values below the minimum are not promised anything.
inline constexpr uint64_t kWritableLoadLatencyThreshold = 0xFFFF;
inline constexpr uint64_t kMinimumLoadLatencyThreshold = 3;

// IA32_DEBUGCTL: LBR, BTF, TR, BTS, BTINT, BTS_OFF_OS, BTS_OFF_USR, the two freezes, and the SMM
// freeze where it is enumerated. [SDM 17.4.1 "IA32_DEBUGCTL MSR"] Bit 13, ENABLE_UNCORE_PMI, is
// drawn for Nehalem (253668-032, Figure 16-11) and was never given another meaning.
constexpr uint64_t writable_debugctl(const Microarch& m) {
  const BranchTrace& bts = m.branch_trace;
  const uint64_t trace = bts.messages | bts.store | bts.interrupt;
  const uint64_t branches = bit(0) | bit(1) | trace | (bts.cpl_qualified ? bts.filters() : 0);
  const uint64_t freezes = bit(11) | debugctl::kFreezePerfmonOnPmi;
  return branches | freezes | bit(13) | (m.smm_freeze ? debugctl::kFreezeWhileSmm : 0);
}

// The LVT performance counter register. A write to the read-only delivery status is ignored, not
// refused. [SDM 10.5.1 "Local Vector Table", Figure 10-8]
inline constexpr uint64_t kWritableLvt = lvt::kVector | lvt::kDeliveryMode | lvt::kMasked;
inline constexpr uint64_t kReadOnlyLvt = lvt::kDeliveryStatus;
inline constexpr uint64_t kResetLvt = lvt::kMasked;

// IA32_DS_AREA takes canonical linear addresses (48 bits, sign-extended).
constexpr bool canonical(uint64_t address) {
  return static_cast<uint64_t>(static_cast<int64_t>(address << 16) >> 16) == address;
}

// CPUID leaf 0AH as the row's part reports it: every architectural event available.
// [SDM 18.2.1.1, 18.2.2; EBX: Table 18-1, 1 = not available]
struct PerfmonLeaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};
inline constexpr unsigned kArchitecturalEventCount = 7;
constexpr PerfmonLeaf perfmon_leaf(const Microarch& m, bool sibling_thread) {
  PerfmonLeaf leaf;
  leaf.eax = uint32_t{m.perfmon_version} | (gp_counters(m, sibling_thread) << 8) |
             (uint32_t{m.gp_width} << 16) | (kArchitecturalEventCount << 24);
  leaf.edx = uint32_t{m.fixed_counters} | (uint32_t{m.fixed_width} << 5);
  return leaf;
}

// IA32_PERF_CAPABILITIES. [SDM 17.4.8.1 for LBR_FMT, 18.4.4.2 for bits 11:6, Figure 18-49]
// PEBS_TRAP and PEBS_ARCH_REG are set on every part with a fixed-layout record from Nehalem on.
constexpr uint64_t perf_capabilities(const Microarch& m) {
  return uint64_t{m.lbr_format} | capabilities::kPebsTrap | capabilities::kPebsArchReg |
         (uint64_t{m.record->format} << capabilities::kFormatShift) |
         (m.smm_freeze ? capabilities::kSmmFreeze : 0) |
         (m.full_width_writes ? capabilities::kFullWidthWrite : 0);
}

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_RESERVED_H_
