// MSR addresses and bit fields, by the manual's names.
//
// Source: Intel SDM Vol. 3 (325384-059), chapters 18 "Performance Monitoring" and 35
// "Model-Specific Registers"; section names with each entry.
#ifndef SKIDPROOF_PEBS_ARCH_MSR_H_
#define SKIDPROOF_PEBS_ARCH_MSR_H_

#include <cstdint>

namespace skidproof::arch {

inline constexpr uint32_t IA32_APIC_BASE = 0x1B;
inline constexpr uint32_t IA32_BIOS_SIGN_ID = 0x8B;
inline constexpr uint32_t IA32_PMC0 = 0xC1;
inline constexpr uint32_t IA32_PERFEVTSEL0 = 0x186;
inline constexpr uint32_t IA32_MISC_ENABLE = 0x1A0;
inline constexpr uint32_t IA32_DEBUGCTL = 0x1D9;
inline constexpr uint32_t IA32_FIXED_CTR0 = 0x309;
inline constexpr uint32_t MSR_PERF_METRICS = 0x329;
inline constexpr uint32_t IA32_PERF_CAPABILITIES = 0x345;
inline constexpr uint32_t IA32_FIXED_CTR_CTRL = 0x38D;
inline constexpr uint32_t IA32_PERF_GLOBAL_STATUS = 0x38E;
inline constexpr uint32_t IA32_PERF_GLOBAL_CTRL = 0x38F;
inline constexpr uint32_t IA32_PERF_GLOBAL_OVF_CTRL = 0x390;
// The same register under its name from architectural version 4 on.
inline constexpr uint32_t IA32_PERF_GLOBAL_STATUS_RESET = 0x390;
inline constexpr uint32_t IA32_PERF_GLOBAL_STATUS_SET = 0x391;
inline constexpr uint32_t IA32_PERF_GLOBAL_INUSE = 0x392;
inline constexpr uint32_t IA32_PEBS_ENABLE = 0x3F1;
inline constexpr uint32_t MSR_PEBS_DATA_CFG = 0x3F2;
// Architectural PEBS: where records go. [Intel SDM Vol. 4, Table 2-2 of 2026; Linux, arch/x86/include/asm/msr-index.h, as
// posted in "arch-PEBS enabling for Intel platforms" v9]
inline constexpr uint32_t IA32_PEBS_BASE = 0x3F4;
inline constexpr uint32_t IA32_PEBS_INDEX = 0x3F5;
inline constexpr uint32_t MSR_PEBS_LD_LAT_THRESHOLD = 0x3F6;
inline constexpr uint32_t MSR_PEBS_FRONTEND = 0x3F7;
inline constexpr uint32_t IA32_A_PMC0 = 0x4C1;
inline constexpr uint32_t IA32_DS_AREA = 0x600;
// LVT performance counter register: the x2APIC MSR. A machine whose APIC is in xAPIC mode answers
// here with FEE00340H. [SDM Table 10-6 "Local APIC Register Address Map Supported by x2APIC"]
inline constexpr uint32_t IA32_X2APIC_LVT_PMI = 0x834;
// Architectural last branch records. [Linux 6.12 asm/msr-index.h]
inline constexpr uint32_t MSR_ARCH_LBR_CTL = 0x14CE;
// The counters' registers from architectural version 6 on: those of counter n stand kBankStride * n behind these.
// [SDM Vol. 3 (325384-089) 21.2.6.1 "Performance Monitoring MSR Aliasing", Table 21-2]
inline constexpr uint32_t IA32_PMC_GP0_CTR = 0x1900;
inline constexpr uint32_t IA32_PMC_GP0_CFG_A = 0x1901;
inline constexpr uint32_t IA32_PMC_GP0_CFG_B = 0x1902;  // which overflows reload it
inline constexpr uint32_t IA32_PMC_GP0_CFG_C = 0x1903;  // … with what, and its architectural PEBS
inline constexpr uint32_t IA32_PMC_FX0_CTR = 0x1980;
inline constexpr uint32_t IA32_PMC_FX0_CFG_B = 0x1982;
inline constexpr uint32_t IA32_PMC_FX0_CFG_C = 0x1983;
inline constexpr uint32_t kBankStride = 4;

constexpr uint64_t bit(unsigned n) { return uint64_t{1} << n; }

// IA32_PERFEVTSELx [SDM 18.2.1.1 "Architectural Performance Monitoring Version 1 Facilities"]
namespace evtsel {
inline constexpr uint64_t kUsr = bit(16);
inline constexpr uint64_t kOs = bit(17);
inline constexpr uint64_t kEdge = bit(18);
inline constexpr uint64_t kPinControl = bit(19);
inline constexpr uint64_t kInt = bit(20);
inline constexpr uint64_t kAnyThread = bit(21);
inline constexpr uint64_t kEnable = bit(22);
inline constexpr uint64_t kInvert = bit(23);
inline constexpr unsigned kCmaskShift = 24;
inline constexpr uint64_t kCmask = uint64_t{0xFF} << kCmaskShift;
inline constexpr uint64_t kDefined = 0xFFFFFFFF;
inline constexpr uint64_t kInTx = bit(32);      // only inside transactions (Haswell)
inline constexpr uint64_t kInTxCp = bit(33);    // not what aborted ones counted; PERFEVTSEL2 only
inline constexpr uint64_t kAdaptive = bit(34);  // the record follows MSR_PEBS_DATA_CFG
inline constexpr uint64_t kLogBranches = bit(35);  // EN_LBR_LOG
// Version 6, where CPUID.23H.00H:EBX has them. [SDM Vol. 3 (325384-089) 21.2.6.2, 21.2.6.3]
inline constexpr uint64_t kEqual = bit(36);
inline constexpr unsigned kUmask2Shift = 40;
inline constexpr uint64_t kUmask2 = uint64_t{0xFF} << kUmask2Shift;
inline constexpr unsigned kInTxCpCounter = 2;
// The fields that must be zero for a PEBS event (R33).
inline constexpr uint64_t kPebsQualifiers = kAnyThread | kEdge | kInvert | kCmask;
}  // namespace evtsel

// IA32_FIXED_CTR_CTRL: four bits for each counter.
namespace fixed_ctrl {
inline constexpr uint64_t kOs = 1;
inline constexpr uint64_t kUsr = 2;
inline constexpr uint64_t kAnyThread = 4;
inline constexpr uint64_t kPmi = 8;
constexpr uint64_t field(unsigned counter, uint64_t value) { return value << (4 * counter); }
// The record of fixed counter i follows MSR_PEBS_DATA_CFG. [Linux 6.12 ICL_FIXED_0_ADAPTIVE]
constexpr uint64_t adaptive(unsigned counter) { return bit(32 + 4 * counter); }
// RDPMC of the metrics clears them, and fixed counter 3. [SDM Vol. 3 (325384-089) Figure 21-15]
inline constexpr uint64_t kMetricsClear = bit(14);
}  // namespace fixed_ctrl

// IA32_PERF_GLOBAL_STATUS and IA32_PERF_GLOBAL_OVF_CTRL.
namespace status {
inline constexpr unsigned kFixedShift = 32;
inline constexpr uint64_t kPerfMetrics = bit(48);
inline constexpr uint64_t kPebsThreshold = bit(54);  // of architectural PEBS
inline constexpr uint64_t kTraceToPa = bit(55);
inline constexpr uint64_t kLbrFrozen = bit(58);       // LBR_Frz
inline constexpr uint64_t kCountersFrozen = bit(59);  // CTR_Frz
inline constexpr uint64_t kAsci = bit(60);
inline constexpr uint64_t kOvfUncore = bit(61);
inline constexpr uint64_t kOvfBuffer = bit(62);  // Ovf_DSBuffer, PEBS_Ovf
inline constexpr uint64_t kCondChgd = bit(63);
}  // namespace status

// IA32_PERF_GLOBAL_INUSE. [SDM 18.2.4.3 "IA32_PERF_GLOBAL_INUSE MSR"; its table has PMI at 63]
namespace in_use {
inline constexpr uint64_t kPmi = bit(63);
}  // namespace in_use

// IA32_PEBS_ENABLE: what bits 35:32 mean depends on the generation.
namespace pebs_enable {
inline constexpr unsigned kFixedShift = 32;         // PEBS on fixed counter i (Ice Lake)
inline constexpr unsigned kLoadLatencyShift = 32;   // LL_EN_PMCn
inline constexpr uint64_t kPreciseStore = bit(63);  // PS_EN (Sandy Bridge, Ivy Bridge)
// PMI_AFTER_EACH_RECORD and PEBS_OUTPUT, where records may go to Intel PT. [SDM 089 Table 21-77]
inline constexpr uint64_t kOutputPt = bit(60) | bit(61) | bit(62);
}  // namespace pebs_enable

// Architectural PEBS. [Linux, arch/x86/include/asm/perf_event.h and msr-index.h, as posted in "arch-PEBS enabling for Intel
// platforms" v9; KVM's virtual PMU takes the same fields]
// IA32_PEBS_BASE: the physical address of the buffer, of whole pages in one piece. 0: there is none.
namespace pebs_base {
inline constexpr uint64_t kSize = 0x1F;  // the buffer has 4096 << SIZE bytes
inline constexpr unsigned kPageShift = 12;
inline constexpr uint64_t kAddress = (bit(52) - 1) & ~uint64_t{0xFFF};
constexpr uint64_t bytes(uint64_t base) {
  return base == 0 ? 0 : uint64_t{1} << (kPageShift + (base & kSize));
}
}  // namespace pebs_base

// IA32_PEBS_INDEX. WR and THRESH count 16 bytes from the base.
namespace pebs_index {
inline constexpr unsigned kUnit = 16;
inline constexpr unsigned kWriteShift = 4;
inline constexpr uint64_t kWrite = uint64_t{0x7FFFFF} << kWriteShift;  // 26:4
inline constexpr uint64_t kFull = bit(31);
inline constexpr uint64_t kEnable = bit(32);
inline constexpr unsigned kThresholdShift = 36;
inline constexpr uint64_t kThreshold = uint64_t{0x7FFFFF} << kThresholdShift;  // 58:36
inline constexpr uint64_t kDefined = kWrite | kFull | kEnable | kThreshold;
constexpr uint64_t write_bytes(uint64_t index) { return index & kWrite; }
constexpr uint64_t threshold_bytes(uint64_t index) {
  return ((index & kThreshold) >> kThresholdShift) * kUnit;
}
// Of a distance from the base, which is a multiple of the unit.
constexpr uint64_t threshold_field(uint64_t bytes) {
  return (bytes / kUnit) << kThresholdShift & kThreshold;
}
}  // namespace pebs_index

// IA32_PMC_GPn_CFG_C and IA32_PMC_FXm_CFG_C. 31:0 is what the counter is loaded with.
namespace cfg_c {
inline constexpr uint64_t kReload = 0xFFFFFFFF;
inline constexpr unsigned kGroupsShift = 32;  // where CPUID.23H.04H:EBX begins
inline constexpr uint64_t kAllow = bit(35);   // other counters' records may have it
inline constexpr uint64_t kCountersGp = bit(36);
inline constexpr uint64_t kCountersFixed = bit(37);
inline constexpr uint64_t kMetrics = bit(38);
inline constexpr unsigned kBranchesShift = 40;
inline constexpr uint64_t kBranches = uint64_t{3} << kBranchesShift;
inline constexpr uint64_t kXmm = bit(49), kYmmHigh = bit(50), kOpmask = bit(53), kZmmHigh = bit(54),
                          kHighZmm = bit(55);
inline constexpr uint64_t kXer = kXmm | kYmmHigh | kOpmask | kZmmHigh | kHighZmm;
inline constexpr uint64_t kGprs = bit(61);
inline constexpr uint64_t kAux = bit(62);
inline constexpr uint64_t kEnable = bit(63);
// Reserved in KVM's virtual PMU.
inline constexpr uint64_t kReserved = uint64_t{7} << 32 | bit(39) | uint64_t{0x7F} << 42;
}  // namespace cfg_c

// IA32_DEBUGCTL. The bits of the branch trace store are a fact of the microarch (BranchTrace).
namespace debugctl {
inline constexpr uint64_t kLbr = bit(0);
inline constexpr uint64_t kFreezeLbrsOnPmi = bit(11);
inline constexpr uint64_t kFreezePerfmonOnPmi = bit(12);
inline constexpr uint64_t kFreezeWhileSmm = bit(14);
inline constexpr uint64_t kRtm = bit(15);
}  // namespace debugctl

// MSR_ARCH_LBR_CTL. [Linux 6.12 asm/msr-index.h ARCH_LBR_CTL_…]
namespace lbr_ctl {
inline constexpr uint64_t kEnable = bit(0);  // where IA32_DEBUGCTL has it, too
inline constexpr uint64_t kOs = bit(1);
inline constexpr uint64_t kUsr = bit(2);
inline constexpr uint64_t kCallStack = bit(3);
inline constexpr uint64_t kBranchTypes = uint64_t{0x7F} << 16;
inline constexpr uint64_t kDefined = kEnable | kOs | kUsr | kCallStack | kBranchTypes;
}  // namespace lbr_ctl

// IA32_MISC_ENABLE.
namespace misc_enable {
inline constexpr uint64_t kPerfmonAvailable = bit(7);
inline constexpr uint64_t kBtsUnavailable = bit(11);
inline constexpr uint64_t kPebsUnavailable = bit(12);
}  // namespace misc_enable

// IA32_PERF_CAPABILITIES.
namespace capabilities {
inline constexpr uint64_t kPebsTrap = bit(6);
inline constexpr uint64_t kPebsArchReg = bit(7);
inline constexpr unsigned kFormatShift = 8;
inline constexpr uint64_t kFormat = uint64_t{0xF} << kFormatShift;
inline constexpr uint64_t kSmmFreeze = bit(12);
inline constexpr uint64_t kFullWidthWrite = bit(13);
inline constexpr uint64_t kPebsBaseline = bit(14);
inline constexpr uint64_t kPerfMetrics = bit(15);
inline constexpr uint64_t kPebsOutputPt = bit(16);
inline constexpr uint64_t kPebsTimingInfo = bit(17);
inline constexpr uint64_t kRdpmcMetricsClear = bit(19);
}  // namespace capabilities

// The LVT performance counter register.
namespace lvt {
inline constexpr uint64_t kVector = 0xFF;
inline constexpr uint64_t kDeliveryMode = uint64_t{7} << 8;
inline constexpr uint64_t kNmi = uint64_t{4} << 8;
inline constexpr uint64_t kDeliveryStatus = bit(12);  // read-only
inline constexpr uint64_t kMasked = bit(16);
}  // namespace lvt

}  // namespace skidproof::arch

#endif  // SKIDPROOF_PEBS_ARCH_MSR_H_
