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

// Fixed counters for which IA32_FIXED_CTR_CTRL has room, with a bit for adaptive records each.
inline constexpr unsigned kMostFixed = 8;

// General-purpose counters of one logical processor: fewer where a second one shares the core.
// [SDM 18.9.2 "Counter Coalescence"]
constexpr unsigned gp_counters(const Microarch& m, bool sibling_thread) {
  return sibling_thread ? m.gp_counters : m.gp_counters_alone;
}

// The counters of one logical processor as bits: those that CPUID.0AH counts, of which `gp` are general-purpose ones, and
// those that leaf 23H alone lists. [SDM Vol. 3 (325384-089) 21.2.9.3, 21.2.9.4]
constexpr uint64_t gp_bits(const Microarch& m, unsigned gp) {
  return low_bits(gp) | (m.extended.gp & ~low_bits(m.gp_counters));
}
constexpr uint64_t fixed_bits(const Microarch& m) {
  return low_bits(m.fixed_counters) | m.extended.fixed;
}

// Where a counter's registers stand: at the legacy address where CPUID.0AH counts it, else in the bank of version 6.
// [SDM Vol. 3 (325384-089) 21.2.6.1]
constexpr uint32_t counter_msr(const Microarch& m, unsigned n) {
  return n < m.gp_counters_alone ? IA32_PMC0 + n : IA32_PMC_GP0_CTR + kBankStride * n;
}
constexpr uint32_t select_msr(const Microarch& m, unsigned n) {
  return n < m.gp_counters_alone ? IA32_PERFEVTSEL0 + n : IA32_PMC_GP0_CFG_A + kBankStride * n;
}
constexpr uint32_t fixed_counter_msr(const Microarch& m, unsigned i) {
  return i < m.fixed_counters ? IA32_FIXED_CTR0 + i : IA32_PMC_FX0_CTR + kBankStride * i;
}

// The counters that do PEBS, in the positions of IA32_PEBS_ENABLE: by that register, or by IA32_PMC_GPn_CFG_C of each. `read`
// gives the value of a register.
template <typename Read>
constexpr uint64_t sampling_counters(const Microarch& m, Read read) {
  if (!m.architectural_pebs()) return read(IA32_PEBS_ENABLE);
  uint64_t sampling = 0;
  for (unsigned n = 0; n < pebs_enable::kFixedShift; ++n) {
    const auto configured = [&](uint32_t counters, uint32_t first) {
      return (counters >> n & 1) != 0 && (read(first + kBankStride * n) & cfg_c::kEnable) != 0;
    };
    if (configured(m.extended.pebs_gp, IA32_PMC_GP0_CFG_C)) sampling |= bit(n);
    if (configured(m.extended.pebs_fixed, IA32_PMC_FX0_CFG_C)) {
      sampling |= bit(pebs_enable::kFixedShift + n);
    }
  }
  return sampling;
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

// IA32_PERFEVTSELx: what every one of them takes, and what the one of a counter takes: IN_TXCP
// exists on IA32_PERFEVTSEL2 only. [SDM Figures 18-6, 18-40, 18.11.5 "Performance Monitoring and
// Intel TSX"]
constexpr uint64_t writable_perfevtsel(const Microarch& m) { return m.perfevtsel_defined; }
constexpr uint64_t writable_perfevtsel(const Microarch& m, unsigned counter) {
  const bool in_txcp = m.tsx && counter == evtsel::kInTxCpCounter;
  return m.perfevtsel_defined | (in_txcp ? evtsel::kInTxCp : 0);
}

// IA32_FIXED_CTR_CTRL: four bits for each counter, AnyThread where it exists, where records are
// adaptive one more for each counter, and where RDPMC can clear the metrics one for that. [SDM Figures 18-3, 18-7; Linux
// 6.12 ICL_FIXED_0_ADAPTIVE; SDM Vol. 3 (325384-089) Figure 21-15]
constexpr uint64_t writable_fixed_ctr_ctrl(const Microarch& m) {
  uint64_t writable = m.metrics_clear ? fixed_ctrl::kMetricsClear : 0;
  for (unsigned i = 0; i < kMostFixed; ++i) {
    if (((fixed_bits(m) >> i) & 1) == 0) continue;
    writable |= fixed_ctrl::field(i, 0xF & ~(m.any_thread ? 0 : fixed_ctrl::kAnyThread));
    if (m.pebs_baseline) writable |= fixed_ctrl::adaptive(i);
  }
  return writable;
}

// IA32_PERF_GLOBAL_CTRL: existing counters only, and the metrics where there are any. [SDM 18.2.2;
// 18.9.2 for bits 7:4; Linux 6.12 GLOBAL_CTRL_EN_PERF_METRICS]
constexpr uint64_t writable_global_ctrl(const Microarch& m, unsigned gp) {
  return gp_bits(m, gp) | (fixed_bits(m) << status::kFixedShift) |
         (m.perf_metrics ? status::kPerfMetrics : 0);
}

// The bits that IA32_PERF_GLOBAL_STATUS can show; the register is read-only.
// [SDM Figures 18-4 (version 2), 18-20 (Nehalem), 18-33 (Sandy Bridge), 18-10 (version 4), 18-41;
// Table 35-2 for 55 and 60]
constexpr uint64_t status_bits(const Microarch& m, unsigned gp) {
  uint64_t bits = writable_global_ctrl(m, gp) | status::kOvfBuffer | status::kCondChgd;
  if (m.perfmon_version >= 3) bits |= status::kOvfUncore;
  if (m.architectural_pebs()) bits |= status::kPebsThreshold;
  if (m.processor_trace) bits |= status::kTraceToPa;
  if (m.streamlined_freeze()) bits |= status::kLbrFrozen | status::kCountersFrozen;
  if (m.streamlined_freeze() && m.sgx) bits |= status::kAsci;
  return bits;
}

// IA32_PERF_GLOBAL_OVF_CTRL: 1 clears. [SDM Figure 18-34: ClrOvfUncore 61, ClrOvfDSBuffer 62,
// ClrCondChgd 63. Table 35-2 lists 61 for 06_2EH only; the figures show it on both generations, and
// so do the tables of Sandy Bridge, Broadwell and Skylake: SDM Vol. 4 (335592-089), 2-20, 2-34, 2-39]
constexpr uint64_t clearable_status(const Microarch& m, unsigned gp) { return status_bits(m, gp); }

// IA32_PERF_GLOBAL_STATUS_SET (version 4): 1 sets; all but CondChgd. [SDM 18.2.4.2, Figure 18-12]
constexpr uint64_t settable_status(const Microarch& m, unsigned gp) {
  return m.streamlined_freeze() ? status_bits(m, gp) & ~status::kCondChgd : 0;
}

// The status bit of the PEBS buffer. [SDM Figure 18-33; of architectural PEBS Linux, arch/x86/events/intel/core.c,
// handle_pmi_common, and KVM]
constexpr uint64_t pebs_overflow(const Microarch& m) {
  return m.architectural_pebs() ? status::kPebsThreshold : status::kOvfBuffer;
}

// IA32_PEBS_ENABLE. [SDM Figures 18-21, 18-35; Tables 18-43, 18-54, 35-3, 35-13, 35-18; Linux 6.12
// core.c intel_pmu_pebs_enable for the fixed counters]
constexpr uint64_t writable_pebs_enable(const Microarch& m) {
  const uint64_t load_latency = uint64_t{m.load_latency_enable} << pebs_enable::kLoadLatencyShift;
  const uint64_t store = m.precise_store_counter != 0 ? pebs_enable::kPreciseStore : 0;
  const uint64_t fixed = uint64_t{m.pebs_fixed_counters} << pebs_enable::kFixedShift;
  return uint64_t{m.pebs_counters} | load_latency | store | fixed;
}

// MSR_PEBS_DATA_CFG: groups, and branch entries − 1; absent without PEBS_BASELINE. [Linux 6.12
// asm/perf_event.h PEBS_DATACFG_…; KVM takes the same bits] Where counters can be recorded, which ones: of those that
// leaf 23H lists. [SDM Vol. 3 (325384-089) Table 21-102 "MSR_PEBS_CFG Programming"]
constexpr uint64_t writable_pebs_data_cfg(const Microarch& m) {
  if (!m.pebs_baseline) return 0;
  uint64_t writable = adaptive::kGroups | (uint64_t{0xFF} << adaptive::kBranchEntriesShift);
  if (!m.pebs_counters_group) return writable;
  writable |= adaptive::kCounters | (m.perf_metrics ? adaptive::kMetrics : 0);
  return writable | (gp_bits(m, m.gp_counters) & 0xFFFF) << adaptive::kIncludeShift |
         (fixed_bits(m) & 0xFF) << adaptive::kIncludeFixedShift;
}

// IA32_PMC_GPn_CFG_C or IA32_PMC_FXm_CFG_C: a reload value, and where the counter has architectural PEBS that and the groups of
// its records. [Intel SDM Vol. 1 of 2026, "CPUID.23H.04H", "CPUID.23H.05H"]
constexpr uint64_t writable_cfg_c(const Microarch& m, bool pebs) {
  if (!m.architectural_pebs() || !pebs) return cfg_c::kReload;
  return cfg_c::kReload | uint64_t{m.extended.pebs_groups} << cfg_c::kGroupsShift | cfg_c::kEnable;
}

// A counter's reload configuration: the counters whose overflow can reload one. [SDM Vol. 4 (335592-089), Table 2-2,
// IA32_PMC_GP2_CFG_B; Vol. 3 (325384-089) 21.10.1 "Discovery and Interface"]
constexpr uint64_t writable_reload_causes(const Microarch& m) {
  return uint64_t{m.extended.reloading_gp} | uint64_t{m.extended.reloading_fixed} << 32;
}

// MSR_PEBS_LD_LAT_THRESHOLD. [SDM Figure 18-23; Vol. 3 (325384-089) 21.9.7 "Load Latency Facility" for adaptive records]
// Values below the minimum are not promised anything.
inline constexpr uint64_t kWritableLoadLatencyThreshold = 0xFFFF;
constexpr uint64_t minimum_load_latency_threshold(const Microarch& m) {
  return m.pebs_baseline ? 1 : 3;
}

// IA32_DEBUGCTL: LBR, BTF, TR, BTS, BTINT, BTS_OFF_OS, BTS_OFF_USR, the two freezes, and the SMM
// freeze where it is enumerated, RTM. [SDM 17.4.1 "IA32_DEBUGCTL MSR"] Bit 13, ENABLE_UNCORE_PMI, is
// drawn for Nehalem (253668-032, Figure 16-11) and was never given another meaning.
// MSR_DEBUGCTLA has neither freezes nor what came later. [SDM 17.11.1 "MSR_DEBUGCTLA MSR"]
constexpr uint64_t writable_debugctl(const Microarch& m) {
  const BranchTrace& bts = m.branch_trace;
  const uint64_t trace = bts.messages | bts.store | bts.interrupt;
  const uint64_t branches = bit(0) | bit(1) | trace | (bts.cpl_qualified ? bts.filters() : 0);
  if (!m.architectural_perfmon()) return branches;
  const uint64_t freezes = bit(11) | debugctl::kFreezePerfmonOnPmi;
  const uint64_t uncore = m.perfmon_version >= 3 ? bit(13) : 0;
  return branches | freezes | uncore | (m.smm_freeze ? debugctl::kFreezeWhileSmm : 0) |
         (m.tsx ? debugctl::kRtm : 0);
}

// The LVT performance counter register. A write to the read-only delivery status is ignored, not
// refused. [SDM 10.5.1 "Local Vector Table", Figure 10-8]
inline constexpr uint64_t kWritableLvt = lvt::kVector | lvt::kDeliveryMode | lvt::kMasked;
inline constexpr uint64_t kReadOnlyLvt = lvt::kDeliveryStatus;
inline constexpr uint64_t kResetLvt = lvt::kMasked;

// IA32_DS_AREA takes canonical linear addresses: those of the processor's width, sign-extended. What
// counts is the width that CPUID.07H:ECX[16] announces, whatever CR4.LA57 has switched on, which
// nothing here can see. [SDM Vol. 1, 3.3.7.1 "Canonical Addressing"; Vol. 4, Table 2-2, IA32_DS_AREA]
constexpr unsigned linear_address_bits(bool la57) { return la57 ? 57 : 48; }
constexpr unsigned linear_address_bits(const Microarch& m) { return linear_address_bits(m.la57); }
constexpr bool canonical(uint64_t address, unsigned bits = 48) {
  const unsigned above = 64 - bits;
  return static_cast<uint64_t>(static_cast<int64_t>(address << above) >> above) == address;
}

// CPUID leaf 0AH as the row's part reports it: every architectural event available.
// [SDM 18.2.1.1, 18.2.2; EBX: Table 18-1, 1 = not available; from version 5 ECX has the fixed
// counters one by one. EDX[15] says that AnyThread is deprecated: Linux 6.12 union cpuid10_edx, of
// version 4 on Goldmont Plus: SDM 089 21.5.4]
struct PerfmonLeaf {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};
constexpr PerfmonLeaf perfmon_leaf(const Microarch& m, bool sibling_thread) {
  PerfmonLeaf leaf;
  leaf.eax = uint32_t{m.perfmon_version} | (gp_counters(m, sibling_thread) << 8) |
             (uint32_t{m.gp_width} << 16) | (uint32_t{m.architectural_events} << 24);
  leaf.edx = uint32_t{m.fixed_counters} | (uint32_t{m.fixed_width} << 5);
  if (m.perfmon_version >= 5) {
    leaf.ecx = static_cast<uint32_t>(low_bits(m.fixed_counters));
  }
  if (m.deprecates_any_thread()) leaf.edx |= 1U << 15;
  return leaf;
}

// IA32_PERF_CAPABILITIES. [SDM 17.4.8.1 for LBR_FMT, 18.4.4.2 for bits 11:6, Figure 18-49]
// PEBS_TRAP and PEBS_ARCH_REG are set on every part from Core 2 on. Bits 14 to 17: Linux 6.12
// union perf_capabilities.
constexpr uint64_t perf_capabilities(const Microarch& m) {
  return uint64_t{m.lbr_format} | capabilities::kPebsTrap | capabilities::kPebsArchReg |
         (uint64_t{m.record->format} << capabilities::kFormatShift) |
         (m.smm_freeze ? capabilities::kSmmFreeze : 0) |
         (m.full_width_writes ? capabilities::kFullWidthWrite : 0) |
         (m.pebs_baseline ? capabilities::kPebsBaseline : 0) |
         (m.perf_metrics ? capabilities::kPerfMetrics : 0) |
         (m.pebs_output_pt ? capabilities::kPebsOutputPt : 0) |
         (m.pebs_timing_info ? capabilities::kPebsTimingInfo : 0) |
         (m.metrics_clear ? capabilities::kRdpmcMetricsClear : 0);
}

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_RESERVED_H_
